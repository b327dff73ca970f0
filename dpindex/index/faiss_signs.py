"""Packed signs in Faiss: private queries by Hamming distance, exact ones by inner product."""

from __future__ import annotations

from typing import Any

import faiss
import numpy as np

from dpindex.arrays import AnyArray, Bytes, Doubles, Floats
from dpindex.errors import InputError
from dpindex.index.search_backend import EXACT, Rows, SearchBackend, best_of

_BLOCK_ROWS, _BLOCK_QUERIES = 8192, 256
_BLOCK_NUMBERS = 1 << 20


class FaissSigns(SearchBackend):
    """Signs, packed eight to a byte, first sign lowest.

    A code of k signs is a product-quantizer code whose 4-bit centroids are the sign patterns, so
    ``Σ y_j s_j`` is a product quantizer's inner product and runs at the speed of its fast scan.
    Fast scan rounds its tables to bytes; the rounding is bounded, so the candidates it returns are
    rescored exactly and the answer is provably the exact ranking, or more candidates are fetched.
    """

    def __init__(self, width: int, metric: str, index_type: str) -> None:
        if index_type != EXACT:
            raise InputError(
                f"index_type {index_type!r} is for vectors of numbers; signs are searched exactly "
                f"as they are: leave it out."
            )
        self._width, self._bytes = width, -(-width // 8)
        self.begin(np.empty((0, self._bytes), dtype=np.uint8))

    def __len__(self) -> int:
        return int(self._hamming.ntotal)

    def begin(self, sample: AnyArray) -> None:
        self._hamming = faiss.IndexBinaryFlat(8 * self._bytes)
        self._scan: Any = None

    def add(self, items: Bytes) -> None:
        self._scan = None
        self._hamming.add(np.ascontiguousarray(items))

    def finish(self) -> None:
        """Build the asymmetric structure (it cannot be appended to; 0.1 s per million codes)."""
        if self._scan is not None:
            return
        groups = 2 * self._bytes
        index = faiss.IndexPQ(4 * groups, groups, 4, faiss.METRIC_INNER_PRODUCT)
        patterns = 2.0 * ((np.arange(16)[:, None] >> np.arange(4)) & 1) - 1.0
        centroids = np.tile(patterns.astype(np.float32), (groups, 1, 1))
        faiss.copy_array_to_vector(centroids.ravel(), index.pq.centroids)
        faiss.copy_array_to_vector(self._codes().ravel(), index.codes)
        index.ntotal = len(self)
        index.is_trained = True
        self._scan = faiss.IndexPQFastScan(index)

    def _codes(self) -> Bytes:
        stored = self._hamming.xb  # seen in place: a copy for every batch would cost more than it
        flat = faiss.rev_swig_ptr(stored.data(), stored.size())
        return np.asarray(flat, dtype=np.uint8).reshape(-1, self._bytes)

    def subset(self, rows: Rows) -> FaissSigns:
        part = FaissSigns(self._width, "cosine", EXACT)
        part.add(self._codes()[rows])
        part.finish()
        return part

    def search(self, queries: Bytes, count: int) -> tuple[Doubles, Rows]:
        """Scores ``k − 2·hamming = Σ s_j t_j`` and rows of the best ``count`` for each query."""
        distance, rows = self._hamming.search(np.ascontiguousarray(queries), count)
        return self._width - 2.0 * distance, rows

    def search_exact(self, queries: Floats, count: int) -> tuple[Doubles, Rows]:
        """Scores ``Σ y_j s_j``, exact, and rows of the best ``count`` for each query."""
        padded = np.zeros((len(queries), 8 * self._bytes), dtype=np.float64)
        padded[:, : self._width] = queries
        scores = np.empty((len(queries), count))
        rows = np.empty((len(queries), count), dtype=np.int64)
        uncertain = np.arange(len(queries))
        for candidates in (2 * count + 16, 8 * count + 256):
            if uncertain.size and candidates < len(self):
                best, places, certain = self._rescored(padded[uncertain], candidates, count)
                settled = uncertain[certain]
                scores[settled], rows[settled] = best[certain], places[certain]
                uncertain = uncertain[~certain]
        for start in range(0, len(uncertain), _BLOCK_QUERIES):
            some = uncertain[start : start + _BLOCK_QUERIES]
            scores[some], rows[some] = rank_all(self._codes(), padded[some], count)
        return scores, rows

    def _rescored(self, queries: Doubles, candidates: int, count: int) -> tuple[AnyArray, ...]:
        """The best of the fast scan's candidates, and whether no other code can be among them."""
        coarse, rows = self.coarse(queries, candidates)
        best, places = best_of(self._exact_scores(queries, rows), rows, count)
        # What was not returned scores at most the worst coarse score plus the rounding error.
        unseen = coarse.min(axis=1) + rounding_bound(queries)
        # Rows of −1 fill up where the scan drops codes of the least possible score.
        certain = (best[:, -1] > unseen) & (rows >= 0).all(axis=1)
        return best, places, certain

    def coarse(self, queries: Doubles, count: int) -> tuple[Doubles, Rows]:
        """The fast scan's own scores, off by at most :func:`rounding_bound`, and their rows.

        Rows of −1 stand where it leaves out codes of the least possible score.
        """
        # A common scale keeps float32 tables exact enough; ranking does not depend on it.
        largest = np.maximum(np.abs(queries).max(axis=1, keepdims=True), 1e-300)
        coarse, rows = self._scan.search((queries / largest).astype(np.float32), count)
        return coarse * largest, rows

    def _exact_scores(self, queries: Doubles, rows: Rows) -> Doubles:
        """``Σ y_j s_j = 2 Σ y_j b_j − Σ y_j`` of candidate rows, b the bits of a code."""
        scores = np.empty(rows.shape)
        step = max(1, _BLOCK_NUMBERS // (rows.shape[1] * queries.shape[1]))
        for some in (slice(start, start + step) for start in range(0, len(rows), step)):
            bits = np.unpackbits(self._codes()[rows[some]], axis=2, bitorder="little")
            scores[some] = 2 * np.matmul(bits.astype(np.float64), queries[some, :, None])[:, :, 0]
        scores -= queries.sum(axis=1, keepdims=True)
        return scores


def rounding_bound(queries: Doubles) -> Doubles:
    """Bound on fast scan's error: each table entry is off by at most one step of its scale.

    The scale maps the widest table to 255 and the sum of all to at most 65535.
    """
    spans = 2 * np.abs(queries).reshape(len(queries), -1, 4).sum(axis=2)
    step = np.maximum(spans.max(axis=1) / 255, spans.sum(axis=1) / 65535)
    return np.asarray(spans.shape[1] * step * (1 + 1e-3))


def rank_all(codes: Bytes, queries: Doubles, count: int) -> tuple[Doubles, Rows]:
    """All codes against a few queries: for small indexes, and for crowds of equal codes."""
    scores = np.empty((len(queries), 0))
    rows = np.empty((len(queries), 0), dtype=np.int64)
    for start in range(0, len(codes), _BLOCK_ROWS):
        bits = np.unpackbits(codes[start : start + _BLOCK_ROWS], axis=1, bitorder="little")
        block = np.broadcast_to(np.arange(start, start + len(bits)), (len(queries), len(bits)))
        scores = np.hstack([scores, queries @ (2.0 * bits - 1.0).T])
        scores, rows = best_of(scores, np.hstack([rows, block]), count)
    return scores, rows
