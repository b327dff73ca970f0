"""Exact neighbours, and the share of them that a search found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import faiss
import numpy as np
import numpy.typing as npt
import scipy.sparse

from dpindex.errors import InputError
from dpindex.index import Metric
from dpindex.vectors import VectorSource, as_source

__all__ = ["GroundTruth", "ground_truth", "source_of"]

_METRICS = ("cosine", "ip", "l2")

_TIE = 1e-5
"""Relative width of a tie: an absolute one would call one bit in 1024 a tie (FIELD-NOTES)."""

_MARGIN = 32
_DEEPEST_TIES = 4096
"""Neighbours looked at past the cut, and for queries that are still tied there."""

_NUMBERS = 1 << 22
_SPARSE_ROWS = 4096
_QUERY_ROWS = 512
"""Sizes of a block: a fifth of a second of work, so that Ctrl-C is answered at once."""


@dataclass(frozen=True, eq=False)
class GroundTruth:
    """The true neighbours of every query, best first, some way past ``depth`` so as to hold ties.

    Attributes
    ----------
    ids : int64 array, shape (nq, stored)
        Row numbers of the base; −1 where nothing more was looked for.
    scores : float32 array, shape (nq, stored)
        Cosine, inner product or negated squared distance: more is nearer.
    depth : int
        Neighbours that were asked for, at most ``stored``.

    >>> truth = ground_truth(np.eye(3), np.array([[3.0, 2.0, 1.0]]), depth=2)
    >>> truth.ids.tolist()
    [[0, 1, 2]]
    >>> truth.recall(np.array([[1, 2]]), at=2, neighbours=2).tolist()
    [0.5]
    """

    ids: npt.NDArray[np.int64]
    scores: npt.NDArray[np.float32]
    depth: int

    def relevant(self, found: npt.NDArray[Any], neighbours: int) -> npt.NDArray[np.bool_]:
        """Which found ids, shape (nq, m), are among the true ``neighbours``, ties included.

        An id counts whenever its true score is that of the last true neighbour or better, so no
        search is blamed for the order of equals. Ids below 0 stand for nothing found.
        """
        if not 1 <= neighbours <= self.depth:
            raise InputError(
                f"the ground truth is {self.depth} deep; {neighbours} neighbours were asked of it."
            )
        true = self.scores >= _lowest(self.scores, neighbours)[:, None]
        span = 1 + max(int(self.ids.max()), int(found.max(initial=0)))
        offsets = span * np.arange(len(self.ids), dtype=np.int64)[:, None]
        wanted = (self.ids + offsets)[true & (self.ids >= 0)]
        return np.isin(found + offsets, wanted) & (found >= 0)

    def precision(
        self, found: npt.NDArray[Any], at: int, neighbours: int
    ) -> npt.NDArray[np.float64]:
        """Share of the first ``at`` found ids that are true neighbours, shape (nq,)."""
        return self._count(found, at, neighbours) / at

    def recall(self, found: npt.NDArray[Any], at: int, neighbours: int) -> npt.NDArray[np.float64]:
        """Share of the true ``neighbours`` among the first ``at`` found ids, shape (nq,).

        With ``at == neighbours`` this is the recall of ann-benchmarks.
        """
        # Where equals at the cut were found too, there are more hits than places for them.
        return np.minimum(self._count(found, at, neighbours), neighbours) / neighbours

    def _count(self, found: npt.NDArray[Any], at: int, neighbours: int) -> npt.NDArray[np.float64]:
        relevant = self.relevant(found[:, :at], neighbours)
        return np.asarray(relevant.sum(axis=1), dtype=np.float64)


def ground_truth(base: Any, queries: Any, depth: int, metric: Metric = "cosine") -> GroundTruth:
    """The exact nearest neighbours of every query, streamed: the base is never copied whole.

    Parameters
    ----------
    base, queries : array, scipy sparse matrix or VectorSource, shapes (n, p) and (nq, p)
        The vectors themselves. The base is read in chunks, the queries are held.
    depth : int
        Neighbours wanted, [1, n]. More are stored, so that ties at the cut are seen: ties are
        followed 4096 deep, beyond which an equal is not counted.
    metric : "cosine", "ip" or "l2"
        What is near. A zero vector in the base has cosine 0 with everything.

    Raises
    ------
    InputError
        If widths differ, the base has fewer than ``depth`` rows, a value is NaN or infinite, or,
        under cosine, a query is zero: it has no direction and hence no neighbours.
    """
    if metric not in _METRICS:
        raise InputError(f"metric must be one of {', '.join(_METRICS)}, not {metric!r}.")
    base, queries = source_of(base, "base"), source_of(queries, "queries")
    (count, width), (_, query_width) = base.shape, queries.shape
    if width != query_width:
        raise InputError(
            f"{queries.name} has {query_width} columns where {base.name} has {width}; they must be "
            f"vectors of one kind."
        )
    if not 1 <= depth <= count:
        raise InputError(
            f"{depth} true neighbours cannot be found among {count} vectors in {base.name}; ask "
            f"for 1 to {count}."
        )
    prepared = _prepared(queries, queries.read(), 0, metric, base.is_sparse)
    if metric == "cosine":
        _refuse_zeros(queries, prepared)
    stored = min(count, depth + _MARGIN)
    scores, ids = _nearest(base, prepared, stored, metric)
    tied = np.flatnonzero(scores[:, -1] >= _lowest(scores, depth))
    deeper = min(count, _DEEPEST_TIES)
    if tied.size and deeper > stored:
        beyond = ((0, 0), (0, deeper - stored))
        scores = np.pad(scores, beyond, constant_values=-np.inf)
        ids = np.pad(ids, beyond, constant_values=-1)
        scores[tied], ids[tied] = _nearest(base, prepared[tied], deeper, metric)
    return GroundTruth(ids, scores, depth)


def source_of(vectors: Any, name: str) -> VectorSource:
    """Vectors in memory or in a file, behind one face."""
    return vectors if isinstance(vectors, VectorSource) else as_source(vectors, name)


def _lowest(scores: npt.NDArray[np.float32], neighbours: int) -> npt.NDArray[np.float32]:
    """The least score that ties with the last of the true neighbours, shape (nq,)."""
    cut: npt.NDArray[np.float32] = scores[:, neighbours - 1]
    return np.subtract(cut, np.float32(_TIE) * np.abs(cut), dtype=np.float32)


def _prepared(
    source: VectorSource, rows: Any, first: int, metric: Metric, keep_sparse: bool
) -> Any:
    """Rows as float32, of unit norm under cosine (zero rows stay zero), checked to be finite."""
    sparse = scipy.sparse.issparse(rows)
    wide: Any = rows.astype(np.float64)
    squares: Any = wide.multiply(wide).sum(axis=1) if sparse else np.einsum("ij,ij->i", wide, wide)
    norms = np.sqrt(np.asarray(squares, dtype=np.float64).ravel())
    if (faults := np.flatnonzero(~np.isfinite(norms))).size:
        raise InputError(
            f"{source.name}: row {first + int(faults[0])} holds NaN, infinity or a number too "
            f"large to square; every value must be finite."
        )
    if metric == "cosine":
        factors = 1.0 / np.where(norms > 0, norms, 1.0)
        wide = scipy.sparse.diags(factors) @ wide if sparse else wide * factors[:, None]
    narrow = wide.astype(np.float32)
    if keep_sparse:
        return scipy.sparse.csr_matrix(narrow)
    return np.ascontiguousarray(narrow.toarray() if sparse else narrow)


def _refuse_zeros(source: VectorSource, queries: Any) -> None:
    sparse = scipy.sparse.issparse(queries)
    largest: Any = abs(queries).max(axis=1).toarray() if sparse else np.abs(queries).max(axis=1)
    if (zeros := np.flatnonzero(np.asarray(largest).ravel() == 0)).size:
        raise InputError(
            f"{source.name}: row {int(zeros[0])} is the zero vector, which has no direction and so "
            f"no nearest neighbours by cosine; leave it out."
        )


def _nearest(
    base: VectorSource, queries: Any, count: int, metric: Metric
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Scores and ids of the ``count`` nearest of every query, best first."""
    best_of = [
        (faiss.ResultHeap(block.shape[0], count, keep_max=True), block)
        for block in _blocks(queries, _QUERY_ROWS)
    ]
    rows = _SPARSE_ROWS if base.is_sparse else max(1, _NUMBERS // base.shape[1])
    score: Callable[..., Any] = _sparse_scores if base.is_sparse else _dense_scores
    for first, chunk in base.chunks(rows):
        vectors = _prepared(base, chunk, first, metric, base.is_sparse)
        for best, block in best_of:
            scores, ids = score(block, vectors, min(count, vectors.shape[0]), metric)
            best.add_result(scores, ids + first)
    for best, _ in best_of:
        best.finalize()
    return np.concatenate([b.D for b, _ in best_of]), np.concatenate([b.I for b, _ in best_of])


def _blocks(rows: Any, size: int) -> Iterator[Any]:
    return (rows[start : start + size] for start in range(0, rows.shape[0], size))


def _dense_scores(
    queries: npt.NDArray[np.float32], vectors: npt.NDArray[np.float32], count: int, metric: Metric
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    if metric == "l2":
        distances, ids = faiss.knn(queries, vectors, count, metric=faiss.METRIC_L2)
        return -distances, ids
    scores, ids = faiss.knn(queries, vectors, count, metric=faiss.METRIC_INNER_PRODUCT)
    return scores, ids


def _sparse_scores(
    queries: Any, vectors: Any, count: int, metric: Metric
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    scores: npt.NDArray[np.float32] = (queries @ vectors.T).toarray()
    if metric == "l2":
        squares = np.asarray(vectors.multiply(vectors).sum(axis=1)).ravel()
        own = np.asarray(queries.multiply(queries).sum(axis=1)).ravel()
        scores = 2 * scores - squares[None, :] - own[:, None]
    ids = np.argpartition(-scores, count - 1, axis=1)[:, :count].astype(np.int64)
    return np.take_along_axis(scores, ids, axis=1).astype(np.float32), ids
