"""Whether queries lie where the codebook of an index has codewords."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from dpindex.base.errors import QualityWarning
from dpindex.mechanism.spec import Spec

__all__ = ["QueryCoverage"]

_MIN_QUERIES = 20
"""Queries of which the share that lies far is known well enough to be told."""

_MANY_FAR = 0.2


class QueryCoverage:
    """Warns of queries far from a codebook, once.

    Parameters
    ----------
    spec : Spec
        Of the codes that are searched; without a codebook nothing is ever said.
    """

    def __init__(self, spec: Spec) -> None:
        self._codebook = spec.codebook

    def check(self, queries: Any) -> None:
        """Warn by a :class:`QualityWarning` if many of these dense vectors, (nq, dim), lie far.

        Codes, sparse vectors and fewer than 20 queries tell nothing.
        """
        if self._codebook is None or not isinstance(queries, np.ndarray):
            return
        if queries.ndim != 2 or len(queries) < _MIN_QUERIES:
            return
        # here: few searches need it
        from dpindex.exposure.coverage import far_queries

        share = far_queries(queries, self._codebook)
        self._codebook = None  # once is enough, and takes time
        if share > _MANY_FAR:
            warnings.warn(
                f"{share:.0%} of the queries lie farther from the codebook than 95 % of public "
                "vectors do: it holds nothing like them, and few of their neighbours will be "
                "found",
                QualityWarning,
                stacklevel=4,
            )
