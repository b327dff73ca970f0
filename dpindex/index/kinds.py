"""The kinds of code: one row for each, with all that a search and an attack do with such codes.

A new kind is a format in :mod:`dpindex.mechanism.codes` and, unless its codes are compared as
decoded numbers, a row here.
"""

from __future__ import annotations

from typing import NamedTuple

from dpindex.denoise import Denoiser
from dpindex.index.ranking import PackedSigns, Ranking, Symbols
from dpindex.mechanism.codes import CodeFormat, SignFormat, SymbolFormat
from dpindex.mechanism.spec import Spec
from dpindex.similarity.calibration import SimilarityCalibration
from dpindex.similarity.likelihoods import (
    CodeLikelihoods,
    NumberLikelihoods,
    SignLikelihoods,
    SymbolLikelihoods,
)
from dpindex.similarity.posterior import (
    DenoisedPosterior,
    NumberPosterior,
    Posterior,
    SignPosterior,
    SymbolPosterior,
)
from dpindex.similarity.similarity import (
    Estimator,
    NumberSimilarity,
    SignSimilarity,
    Similarity,
    SymbolSimilarity,
)
from dpindex.storage.manifest import Settings


class Kind(NamedTuple):
    """What is done with one kind of code.

    Attributes
    ----------
    format : type of CodeFormat
        It and the formats derived from it are of this kind.
    estimator : type of Similarity
        Estimates similarities and their errors from one pair alone.
    posterior : type of Posterior
        Estimates cosines with what was learned of a collection.
    ranking : type of Ranking
        Finds the nearest codes.
    likelihoods : type of CodeLikelihoods
        How likely a code is for a known vector.
    """

    format: type[CodeFormat]
    estimator: type[Similarity]
    posterior: type[Posterior]
    ranking: type[Ranking]
    likelihoods: type[CodeLikelihoods]


KINDS = [
    Kind(SignFormat, SignSimilarity, SignPosterior, PackedSigns, SignLikelihoods),
    Kind(SymbolFormat, SymbolSimilarity, SymbolPosterior, Symbols, SymbolLikelihoods),
    Kind(CodeFormat, NumberSimilarity, NumberPosterior, Ranking, NumberLikelihoods),  # type: ignore[type-abstract]
]
"""Every kind of code. The first row that fits counts; the last one takes codes as numbers."""


def posterior_of(
    settings: Settings, calibration: SimilarityCalibration | None, denoiser: Denoiser | None
) -> Estimator | None:
    """Return what estimates cosines that selection does not bias; None if nothing does.

    A denoiser ranks by more than the two codes of a pair, so there the denoised codes say what the
    cosines are; of denoised signs nothing is known.
    """
    if settings.metric != "cosine" or calibration is None:
        return None
    if denoiser is None:
        return kind_of(settings.spec).posterior(settings.spec, calibration)
    if calibration.energy == 0.0:
        return None
    return DenoisedPosterior(denoiser, calibration.energy)


def kind_of(spec: Spec) -> Kind:
    """Return the kind of a spec's codes.

    >>> from dpindex import attribute
    >>> kind_of(Spec("dp-signoporp-rr", dim=8, k=8, epsilon=2.0,
    ...     adjacency=attribute(1.0))).ranking.__name__
    'PackedSigns'
    """
    return next(kind for kind in KINDS if issubclass(spec.format_type, kind.format))
