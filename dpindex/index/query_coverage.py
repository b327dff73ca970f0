"""Whether queries lie where the codebook of an index has codewords."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from dpindex.base.errors import QualityWarning
from dpindex.mechanism.spec import Spec
from dpindex.similarity.symbol_codes import far_queries

__all__ = ["QueryCoverage"]

_MIN_QUERIES = 20
"""Queries of which the share that lies far is known well enough to be told."""

_MANY_FAR = 0.2


class QueryCoverage:
    """Warns once if many queries lie far from a codebook.

    Parameters
    ----------
    spec : Spec
        Of the codes that are searched; without a codebook no query is far.
    """

    def __init__(self, spec: Spec) -> None:
        self._codebook = spec.codebook
        self._checked = False

    def warn_of_far(self, queries: Any) -> None:
        """Warn once if many of the first queries, shape (nq, dim), lie far from all codewords.

        Codes, sparse vectors and fewer than 20 queries tell nothing. The answer does not depend on
        it: that to private queries is a function of their codes alone.

        Warns
        -----
        QualityWarning
        """
        if self._codebook is None or self._checked or not isinstance(queries, np.ndarray):
            return
        if queries.ndim != 2 or len(queries) < _MIN_QUERIES:
            return
        self._checked = True
        share = far_queries(queries, self._codebook)
        if share > _MANY_FAR:
            warnings.warn(
                f"{share:.0%} of the queries lie farther from the codebook than 95 % of public "
                "vectors do: it holds nothing like them, and few of their neighbours will be "
                "found",
                QualityWarning,
                stacklevel=4,
            )
