"""Exact nearest neighbours, and how many of them a search found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, get_args

import numpy as np
import scipy.sparse

from dpindex.base.arrays import (
    AnyArray,
    Bools,
    Doubles,
    Rows,
    Singles,
    best_of,
    nearest_items,
    row_blocks,
    row_norms,
    unfilled,
)
from dpindex.base.errors import InputError
from dpindex.data import VectorSource, as_source
from dpindex.data.source import check_columns
from dpindex.decode.base import Metric

# Scores and row numbers, best first, shape (nq, count) each.
ScoredRows: TypeAlias = tuple[Singles, Rows]

# Relative tolerance of a tie: what single precision leaves open.
TIE = 1e-6
# Neighbours stored beyond ``depth``, and neighbours stored for queries with ties beyond those.
MARGIN = 32
_MAX_TIED = 4096
# Queries that are compared with a chunk of the base at a time: about a fifth of a second of work;
# Ctrl-C is honoured in between.
QUERY_ROWS = 512
# Norms up to which squared distances are finite in single precision.
_LONGEST = 2.0**62
# Ids of neighbours that are marked at a time, over all queries.
_MARKS = 1 << 22


@dataclass(frozen=True, eq=False)
class GroundTruth:
    """The true neighbours of every query, best first.

    More than ``depth`` are stored, so that those that tie with the last of them are known too.

    Attributes
    ----------
    ids : int64 array, shape (nq, stored)
        Row numbers of the base; −1 where fewer were stored.
    scores : float32 array, shape (nq, stored)
        Cosine, inner product or negated squared distance: higher is nearer.
    depth : int
        Number of neighbours requested, [1, stored].

    >>> truth = ground_truth(np.eye(3), np.array([[3.0, 2.0, 1.0]]), depth=2)
    >>> truth.ids.tolist()
    [[0, 1, 2]]
    >>> truth.recall(np.array([[1, 2]]), at=2, neighbours=2).tolist()
    [0.5]
    """

    ids: Rows
    scores: Singles
    depth: int

    def relevant(self, found: AnyArray, neighbours: int) -> Bools:
        """Which found ids, shape (nq, m), are among the true ``neighbours``, ties included.

        An id is relevant if its true score equals or exceeds that of the last true neighbour, so
        the order of equal scores does not matter. Negative ids mean that nothing was found.

        Raises InputError unless ``neighbours`` is in [1, depth].
        """
        if not 1 <= neighbours <= self.depth:
            raise InputError(
                f"the ground truth holds {self.depth} neighbours of each query, not {neighbours}."
            )
        true = self.scores >= _lowest(self.scores, neighbours)
        # A column for each id, and an empty last one, which is that of −1. Looking ids up query by
        # query took half of an evaluation.
        largest = max(self.ids.max(), found.max(initial=0))
        columns = 2 + int(largest)
        relevant = np.empty(found.shape, dtype=np.bool_)
        for block in row_blocks(len(self.ids), _MARKS // columns):
            ids = self.ids[block]
            marks = np.zeros((len(ids), columns), dtype=np.bool_)
            np.put_along_axis(marks, ids, true[block], axis=1)
            relevant[block] = np.take_along_axis(marks, found[block], axis=1)
        return relevant

    def precision(self, found: AnyArray, at: int, neighbours: int) -> Doubles:
        """Share of the first ``at`` found ids that are true neighbours, shape (nq,)."""
        relevant = self.relevant(found[:, :at], neighbours)
        return np.asarray(relevant.sum(axis=1) / at)

    def recall(self, found: AnyArray, at: int, neighbours: int) -> Doubles:
        """Share of the true ``neighbours`` among the first ``at`` found ids, shape (nq,).

        With ``at == neighbours`` this is the recall of ann-benchmarks.
        """
        relevant = self.relevant(found[:, :at], neighbours)
        return recall_of(relevant, neighbours)


def recall_of(relevant: Bools, neighbours: int) -> Doubles:
    """Share of the true ``neighbours`` that were found, by which of the found ids are relevant."""
    # With ties at the cut there can be more hits than true neighbours.
    hits = np.minimum(relevant.sum(axis=1), neighbours)
    return np.asarray(hits / neighbours)


def ground_truth(
    base: Any,
    queries: Any,
    depth: int,
    metric: Metric = "cosine",
) -> GroundTruth:
    """The exact nearest neighbours of every query. The base is read in chunks.

    Parameters
    ----------
    base, queries : array, scipy sparse matrix or VectorSource, shapes (n, p) and (nq, p)
        The original vectors. All queries are held in memory.
    depth : int
        Number of neighbours, [1, n]. Ties with the last one are stored too, up to 4096 neighbours.
    metric : "cosine", "ip" or "l2"
        Similarity to rank by. A zero vector in the base has cosine 0 with everything.

    Raises
    ------
    InputError
        If widths differ, the base has fewer than ``depth`` rows, a value is NaN or infinite, a norm
        is above 2^62 and not compared by cosine, or, under cosine, a query is the zero vector,
        which has no direction.

    >>> ground_truth(np.eye(3), np.array([[3.0, 2.0, 1.0]]), depth=3).ids.tolist()
    [[0, 1, 2]]
    """
    if metric not in get_args(Metric):
        raise InputError(f"metric must be one of {', '.join(get_args(Metric))}, not {metric!r}.")
    base = as_source(base, "base")
    queries = as_source(queries, "queries")
    check_columns(queries, base)
    count = base.shape[0]
    if not 1 <= depth <= count:
        raise InputError(
            f"{depth} true neighbours cannot be found among {count} vectors in {base.name}; ask "
            f"for 1 to {count}."
        )
    rows = queries.read()
    prepare = partial(_prepared, metric=metric, sparse=base.is_sparse)
    prepared = prepare(queries, rows)
    if metric == "l2" and not base.is_sparse:
        # Far from 0, products leave little of distances. Differences of whole numbers stay exact.
        prepare = partial(prepare, centre=np.median(prepared, axis=0).astype(np.float64))
        prepared = prepare(queries, rows)
    sizes = np.asarray(abs(prepared).sum(axis=1)).ravel()
    if metric == "cosine" and not sizes.all():
        raise InputError(
            f"{queries.name}: row {int(sizes.argmin())} is the zero vector, which has no direction "
            f"and so no nearest neighbours by cosine; leave it out."
        )
    stored = min(count, depth + MARGIN)
    scores, ids = _nearest(base, prepared, stored, metric, prepare)
    reach_the_end = scores[:, -1:] >= _lowest(scores, depth)
    tied = np.flatnonzero(reach_the_end)
    deeper = min(count, _MAX_TIED)
    if tied.size and deeper > stored:
        beyond = ((0, 0), (0, deeper - stored))
        scores = np.pad(scores, beyond, constant_values=-np.inf)
        ids = np.pad(ids, beyond, constant_values=-1)
        scores[tied], ids[tied] = _nearest(base, prepared[tied], deeper, metric, prepare)
    return GroundTruth(ids, scores, depth)


def _lowest(scores: Singles, neighbours: int) -> Singles:
    """The lowest score that ties with the last of the true neighbours, shape (nq, 1)."""
    last: Singles = scores[:, neighbours - 1, None]
    tolerance = np.float32(TIE) * np.abs(last)
    return last - tolerance


def _prepared(
    source: VectorSource,
    rows: Any,
    first: int = 0,
    *,
    metric: Metric,
    sparse: bool,
    centre: Any = 0.0,
) -> Any:
    """Rows as float32, CSR if ``sparse``, checked to be finite; of norm 1 or 0 under cosine.

    From dense rows the ``centre`` is subtracted.
    """
    given_sparse = scipy.sparse.issparse(rows)
    wide: Any = rows.astype(np.float64)
    with np.errstate(over="ignore"):  # what overflows is refused
        norms = row_norms(wide)
    longest = np.finfo(np.float64).max if metric == "cosine" else _LONGEST
    faults = np.flatnonzero(~(norms <= longest))
    if faults.size:
        raise InputError(
            f"{source.name}: row {first + int(faults[0])} holds NaN, infinity or a number too "
            f"large to square; every value must be finite, and its square, too."
        )
    if metric == "cosine":
        norms[norms == 0] = 1.0
        factors = 1.0 / norms
        if given_sparse:
            wide = scipy.sparse.diags(factors) @ wide
        else:
            wide *= factors[:, None]
    if sparse:
        return scipy.sparse.csr_matrix(wide.astype(np.float32))
    if given_sparse:
        wide = wide.toarray()
    wide -= centre
    return np.ascontiguousarray(wide, dtype=np.float32)


def _nearest(
    base: VectorSource,
    queries: Any,
    count: int,
    metric: Metric,
    prepare: Callable[[VectorSource, Any, int], Any],
) -> ScoredRows:
    """The ``count`` nearest rows of the base, prepared as the queries are, for every query."""
    nearest_of = _nearest_sparse if base.is_sparse else nearest_items
    blocks = [queries[rows] for rows in row_blocks(queries.shape[0], QUERY_ROWS)]
    best = [unfilled(block.shape[0], 0, np.float32) for block in blocks]
    for first, chunk in base.chunks():
        vectors = prepare(base, chunk, first)
        most = min(count, vectors.shape[0])
        for place, block in enumerate(blocks):
            scores, ids = nearest_of(block, vectors, most, by_distance=metric == "l2")
            best[place] = best_of([best[place], (scores, ids + first)], count)
    scores, ids = map(np.concatenate, zip(*best, strict=True))
    return scores, ids


def _nearest_sparse(
    queries: Any,
    vectors: Any,
    count: int,
    *,
    by_distance: bool,
) -> ScoredRows:
    scores: Any = (queries @ vectors.T).toarray()
    if by_distance:
        squares = row_norms(vectors) ** 2
        query_squares = row_norms(queries)[:, None] ** 2
        scores = 2 * scores - squares - query_squares
    order = np.argpartition(-scores, count - 1, axis=1)
    ids = order[:, :count].astype(np.int64)
    nearest = np.take_along_axis(scores, ids, axis=1)
    return nearest.astype(np.float32), ids
