"""Reranking: candidates that the codes found, in the order of their exact similarities."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from dpindex.base.arrays import (
    Doubles,
    Rows,
    issparse,
)
from dpindex.base.checks import whole_number
from dpindex.base.errors import InputError
from dpindex.decode.base import Estimate, Metric
from dpindex.index.hits import Estimates, Hits
from dpindex.index.originals import Candidates, Holder, Rerank, holder_of
from dpindex.mechanism.codes import Codes
from dpindex.mechanism.spec import Spec

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
        Exact similarities; NaN where the holder gave no answer.
    """

    places: Rows
    similarity: Doubles


@dataclass(frozen=True)
class Reranking:
    """The holder of the originals, and the queries in the clear.

    Attributes
    ----------
    holder : Holder
    queries : array or CSR matrix, shape (nq, dim)
        In units of the data.
    metric : "cosine", "ip" or "l2"
    candidates : int
        Candidates of each query.
    scale : float
        Attributes of the data are divided by it: see :class:`~dpindex.Spec`.
    on_average : bool
        Whether a query may take more or fewer, where the index knows which one needs more.
    """

    holder: Holder
    queries: Any
    metric: Metric
    candidates: int
    scale: float
    on_average: bool = False

    def nearest(self, block: slice, candidates: Candidates, k: int) -> Nearest:
        """Return the k nearest candidates of each query in a block of them.

        Answered candidates come first, by their exact similarity. Equal ones, and then those
        without an answer, keep the order of the codes.
        """
        queries = self.queries[block]
        if issparse(queries) and not self.holder.takes_sparse:
            queries = queries.toarray()
        wide = queries.astype(np.float64)
        similarity = self.holder.similarities(wide, candidates, self.metric)
        similarity[~np.isfinite(similarity)] = np.nan
        if self.metric != "cosine":
            similarity /= self.scale**2
        # NaN is sorted last.
        order = np.argsort(-direction(self.metric) * similarity, axis=1, kind="stable")
        places = order[:, :k]
        return Nearest(places, np.take_along_axis(similarity, places, axis=1))


def new_reranking(
    rerank: Rerank,
    candidates: int | str | None,
    k: int,
    queries: Any,
    metric: Metric,
    spec: Spec,
    rows: int | None = None,
) -> Reranking:
    """Return what orders the candidates of queries.

    Parameters
    ----------
    rerank
        See :func:`dpindex.index.originals.holder_of`.
    candidates : int or str, optional
        Default :data:`CANDIDATES`, or k if that is more; "5%" is a share of the index, on average.
    k : int
        Neighbours wanted.
    queries : array, CSR matrix or Codes, shape (nq, dim)
    metric, spec, rows
        Of the index; None for rows where their number is not known.

    Raises
    ------
    InputError
        For candidates that nobody orders, fewer candidates than neighbours, and queries that are
        codes.
    """
    if rerank is None:
        raise InputError(
            "candidates are put in order by their original vectors: say where these are.",
            field="rerank",
        )
    count = wanted(candidates, k, rows)
    if isinstance(queries, Codes):
        raise InputError(
            "codes cannot be compared with original vectors: give the queries as vectors, and make "
            "them private to search with their codes.",
            field="query",
        )
    holder = holder_of(rerank).within(spec)
    return Reranking(holder, queries, metric, count, spec.scale, isinstance(candidates, str))


def wanted(candidates: int | str | None, k: int, rows: int | None) -> int:
    """Return how many candidates are wanted of a query, on average where they are a share."""
    if candidates is None:
        candidates = max(k, CANDIDATES)
    if isinstance(candidates, str):
        share = share_of(candidates)
        if rows is None:
            raise InputError("state candidates as a number here.", field="candidates")
        candidates = max(k, round(share * rows))
    candidates = whole_number(candidates, "candidates", 1, _MAX_CANDIDATES)
    if candidates < k:
        raise InputError(
            f"candidates must be at least k = {k}, not {candidates}.", field="candidates"
        )
    return candidates


def share_of(text: str) -> float:
    """The share that a text such as "5%" states, (0, 1]; InputError for another text."""
    share = math.nan
    if text.endswith("%"):
        with suppress(ValueError):
            share = float(text[:-1]) / 100
    if not 0 < share <= 1:
        raise InputError(
            'candidates must be a whole number or a share of the index such as "5%", above 0 % '
            "and at most 100 %, not "
            f"{text[:40]!r}.",
            field="candidates",
        )
    return share


def with_exact(hits: Hits, exact: Doubles, metric: Metric) -> Hits:
    """Return hits whose similarities are exact where they are known, and estimates elsewhere."""
    answered = ~np.isnan(exact)

    def posterior() -> Estimate:
        similarity = np.where(answered, exact, hits.similarity)
        return similarity, np.where(answered, 0.0, hits.stderr)

    estimates = Estimates(lambda: hits.estimates.plain, posterior, hits.estimates.why)
    scores = np.where(answered, direction(metric) * exact, -np.inf)
    return replace(hits, scores=scores, estimates=estimates, exact=answered)


def within(
    hits: Hits,
    threshold: float,
    metric: Metric,
) -> list[Hits]:
    """Return the hits of each query whose similarity reaches a threshold."""
    sign = direction(metric)
    reaching = []
    for query in range(len(hits)):
        one = hits[query]
        reaches = sign * one.similarity >= sign * threshold
        reaching.append(one.take(np.flatnonzero(reaches)))
    return reaching


def direction(metric: Metric) -> float:
    """Return 1 where larger similarities are nearer, and −1 for distances."""
    if metric == "l2":
        return -1.0
    return 1.0
