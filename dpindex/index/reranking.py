"""Reranking: candidates that the codes found, in the order of their exact similarities."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from dpindex.base.arrays import Doubles, issparse
from dpindex.base.checks import whole_number
from dpindex.base.errors import InputError
from dpindex.index.hits import Hits
from dpindex.index.owners import Candidates, Owner, Rerank, owner_of
from dpindex.mechanism.codes import Codes
from dpindex.similarity.similarity import Metric
from dpindex.storage.row_parts import Rows

__all__ = [
    "CANDIDATES",
    "Nearest",
    "Reranking",
    "direction",
    "new_reranking",
    "with_exact",
    "within",
]

CANDIDATES = 1000
"""Candidates of each query where none are named."""

_MAX_CANDIDATES = 1 << 40


class Nearest(NamedTuple):
    """The candidates that come first.

    Attributes
    ----------
    places : int64 array, shape (nq, k)
        Columns of the candidates.
    similarity : float64 array, shape (nq, k)
        Exact similarities; NaN where the owner gave no answer.
    """

    places: Rows
    similarity: Doubles


@dataclass(frozen=True)
class Reranking:
    """The owner of the originals, and the queries in the clear.

    Attributes
    ----------
    owner : Owner
    queries : array or CSR matrix, shape (nq, dim)
        In units of the data.
    metric : "cosine", "ip" or "l2"
    candidates : int
        Candidates of each query.
    scale : float
        Attributes of the data are divided by it: see :class:`~dpindex.Spec`.
    """

    owner: Owner
    queries: Any
    metric: Metric
    candidates: int
    scale: float

    def __getitem__(self, rows: slice) -> Reranking:
        """Return the reranking of some of the queries."""
        return replace(self, queries=self.queries[rows])

    def nearest(self, candidates: Candidates, k: int) -> Nearest:
        """Return the k nearest candidates of each query.

        Answered candidates come first, by their exact similarity. Equal ones, and then those
        without an answer, keep the order of the codes.
        """
        queries = self.queries
        if issparse(queries):
            queries = queries.toarray()
        wide = np.asarray(queries, dtype=np.float64)
        similarity = self.owner.similarities(wide, candidates, self.metric)
        similarity[~np.isfinite(similarity)] = np.nan
        if self.metric != "cosine":
            similarity /= self.scale**2
        # NaN is sorted last.
        order = np.argsort(-direction(self.metric) * similarity, axis=1, kind="stable")[:, :k]
        return Nearest(order, np.take_along_axis(similarity, order, axis=1))


def new_reranking(
    rerank: Rerank, candidates: int | None, k: int, queries: Any, metric: Metric, scale: float
) -> Reranking:
    """Return what orders the candidates of queries.

    Parameters
    ----------
    rerank
        See :func:`dpindex.index.owners.owner_of`.
    candidates : int, optional
        Default :data:`CANDIDATES`, or k if that is more.
    k : int
        Neighbours wanted.
    queries : array, CSR matrix or Codes, shape (nq, dim)
    metric, scale
        Of the index.

    Raises
    ------
    InputError
        For candidates that nobody orders, fewer candidates than neighbours, and queries that are
        codes.
    """
    if rerank is None:
        raise InputError(
            "candidates are ordered by their original vectors: say who has them.",
            field="rerank",
        )
    if candidates is None:
        candidates = max(k, CANDIDATES)
    candidates = whole_number(candidates, "candidates", 1, _MAX_CANDIDATES)
    if candidates < k:
        raise InputError(
            f"candidates must be at least k = {k}, not {candidates}.", field="candidates"
        )
    if isinstance(queries, Codes):
        raise InputError(
            "codes cannot be compared with original vectors: give the queries as vectors, and make "
            "them private to search with their codes.",
            field="query",
        )
    return Reranking(owner_of(rerank), queries, metric, candidates, scale)


def with_exact(hits: Hits, exact: Doubles, metric: Metric) -> Hits:
    """Return hits whose similarities are exact where they are known, and estimates elsewhere."""
    answered = ~np.isnan(exact)
    return replace(
        hits,
        scores=np.where(answered, direction(metric) * exact, -np.inf),
        similarity=np.where(answered, exact, hits.similarity),
        stderr=np.where(answered, 0.0, hits.stderr),
        exact=answered,
    )


def within(hits: Hits, threshold: float, metric: Metric) -> list[Hits]:
    """Return the hits of each query whose similarity reaches a threshold."""
    sign = direction(metric)
    return [one.take(np.flatnonzero(sign * one.similarity >= sign * threshold)) for one in hits]


def direction(metric: Metric) -> float:
    """Return 1 where larger similarities are nearer, and −1 for distances."""
    if metric == "l2":
        return -1.0
    return 1.0
