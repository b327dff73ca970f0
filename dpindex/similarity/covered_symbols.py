"""Similarities of symbol codes whose errors say how badly a codebook covers a collection.

Estimates are calibrated on the codebook (:mod:`dpindex.similarity.symbol_codes`). Of a collection
or of queries that are unlike it they say little: such a vector may be no nearer to the codeword of
its report than a vector at random. The chance of that is taken from the codes of the collection and
of private queries. The error then reaches as far as a vector at random lies.
"""

from __future__ import annotations

import numpy as np

from dpindex.mechanism.codes import Codes
from dpindex.mechanism.spec import Spec
from dpindex.similarity.codebook_coverage import crowding
from dpindex.similarity.float_codes import Estimate
from dpindex.similarity.similarity import (
    Estimator,
    PrivateQueries,
    Queries,
    SymbolSimilarity,
    codeword_similarities,
)


class CoveredSymbols(Estimator):
    """Cosines of symbol codes, with errors that know how the codebook covers the collection.

    Parameters
    ----------
    spec : Spec
    codes : Codes
        A sample of the collection.
    """

    def __init__(self, spec: Spec, codes: Codes) -> None:
        self._similarity = SymbolSimilarity(spec, "cosine")
        self._doubt = doubt_of(codes, spec)

    def estimates(self, codes: Codes, queries: Queries, groups: int) -> Estimate:
        estimate, error = self._similarity.estimates(codes, queries, groups)
        at_random = codeword_similarities(queries).mean(axis=1, keepdims=True)
        trust = 1.0 - self._doubt
        if isinstance(queries, PrivateQueries):
            trust *= 1.0 - queries.doubt
        return estimate, np.hypot(error, np.sqrt(1.0 - trust) * (estimate - at_random))


def doubt_of(codes: Codes, spec: Spec) -> float:
    """Return the chance that a vector is unlike the codebook, as the symbols of many show it."""
    if len(codes) < 2:
        return 0.0
    return 1.0 - 1.0 / max(crowding(codes, spec.symbol_law), 1.0)
