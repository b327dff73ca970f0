"""Whether queries lie where the codebook of an index has codewords."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from dpindex.base.errors import QualityWarning
from dpindex.mechanism.spec import Spec
from dpindex.similarity.codebook_coverage import FAR, far_queries

__all__ = ["QueryCoverage"]

_MIN_QUERIES = 20
"""Queries of which the share that lies far is known well enough to be told."""

_MANY_FAR = 0.2


class QueryCoverage:
    """Tells how many queries lie far from a codebook, and warns once if many do.

    Parameters
    ----------
    spec : Spec
        Of the codes that are searched; without a codebook no query is far.
    """

    def __init__(self, spec: Spec) -> None:
        self._codebook = spec.codebook
        self._checked = False

    def far(self, queries: Any, *, private: bool) -> float:
        """Return the share of private queries, (nq, dim), that is far beyond chance, [0, 1].

        Codes, sparse vectors and fewer than 20 queries tell nothing: 0. Exact queries show
        themselves how far they are: they are checked once, and their share is 0.

        Warns
        -----
        QualityWarning
            Once, if many of the first queries do.
        """
        if self._codebook is None or not isinstance(queries, np.ndarray):
            return 0.0
        if queries.ndim != 2 or len(queries) < _MIN_QUERIES:
            return 0.0
        if self._checked and not private:
            return 0.0
        share = far_queries(queries, self._codebook)
        if share > _MANY_FAR and not self._checked:
            warnings.warn(
                f"{share:.0%} of the queries lie farther from the codebook than 95 % of public "
                "vectors do: it holds nothing like them, and few of their neighbours will be "
                "found",
                QualityWarning,
                stacklevel=4,
            )
        self._checked = True
        if not private:
            return 0.0
        return max(0.0, (share - FAR) / (1.0 - FAR))
