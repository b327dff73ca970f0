"""The kinds of code: one row for each, with all that a search and an attack do with such codes.

A new kind is a format in :mod:`dpindex.mechanism.codes` and, unless its codes are compared as
decoded numbers, a row here.
"""

from __future__ import annotations

from typing import NamedTuple

from dpindex.index.ranking import PackedSigns, Ranking, Symbols
from dpindex.mechanism.codes import CodeFormat, SignFormat, SymbolFormat
from dpindex.mechanism.spec import Spec
from dpindex.similarity.likelihoods import (
    CodeLikelihoods,
    NumberLikelihoods,
    SignLikelihoods,
    SymbolLikelihoods,
)
from dpindex.similarity.similarity import (
    NumberSimilarity,
    SignSimilarity,
    Similarity,
    SymbolSimilarity,
)


class Kind(NamedTuple):
    """What is done with one kind of code.

    Attributes
    ----------
    format : type of CodeFormat
        It and the formats derived from it are of this kind.
    estimator : type of Similarity
        Estimates similarities and their errors.
    ranking : type of Ranking
        Finds the nearest codes.
    likelihoods : type of CodeLikelihoods
        How likely a code is for a known vector.
    """

    format: type[CodeFormat]
    estimator: type[Similarity]
    ranking: type[Ranking]
    likelihoods: type[CodeLikelihoods]


KINDS = [
    Kind(SignFormat, SignSimilarity, PackedSigns, SignLikelihoods),
    Kind(SymbolFormat, SymbolSimilarity, Symbols, SymbolLikelihoods),
    Kind(CodeFormat, NumberSimilarity, Ranking, NumberLikelihoods),  # type: ignore[type-abstract]
]
"""Every kind of code. The first row that fits counts; the last one takes codes as numbers."""


def kind_of(spec: Spec) -> Kind:
    """Return the kind of a spec's codes.

    >>> from dpindex import attribute
    >>> kind_of(Spec("dp-signoporp-rr", dim=8, k=8, epsilon=2.0,
    ...     adjacency=attribute(1.0))).ranking.__name__
    'PackedSigns'
    """
    return next(kind for kind in KINDS if issubclass(spec.format_type, kind.format))
