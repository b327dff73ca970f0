"""Signs as they are stored, ranked by Faiss, with a proof that the ranking is exact."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from dpindex.base.arrays import (
    AnyArray,
    Bytes,
    Doubles,
    Floats,
    RowParts,
    Rows,
    best_of,
    release_pages,
    row_blocks,
    unfilled,
)
from dpindex.index.backends import SearchBackend, faiss
from dpindex.storage.manifest import EXACT

_SCAN_KERNEL = 15
"""Faiss's kernel for blocks of codes with a reservoir of results: with many queries it is a quarter
faster than the one that Faiss takes by itself, and never slower."""

_SMALL_ROWS = 4096
_SCAN_ROWS = 1 << 18
_UNSCANNED_ROWS = 512
"""Added rows that are compared one by one until there are more: a scan cannot be appended to."""
_SCANNED_ROWS = 8192
_MANY = 512
_BLOCK_QUERIES = 256
_COMPARED_NUMBERS = 1 << 20
_GAP = 0.25
"""Where rounding may err by more than this share of a score's standard deviation, few candidates
cannot prove which are the best of a million, and the first scan is of many."""


class FaissSigns(SearchBackend):
    """Signs, packed eight to a byte, first sign lowest.

    Private queries are compared with the codes where they lie, exact ones with a copy in the order
    that fast scan reads, of as many bytes, which is made piece by piece for the first of them.

    A code of k signs is a product-quantizer code whose 4-bit centroids are the sign patterns, so
    ``Σ y_j s_j`` is a product quantizer's inner product and runs at the speed of its fast scan.
    Fast scan rounds its tables to bytes; the rounding is bounded, so the candidates it returns are
    rescored exactly and the answer is provably the exact ranking, or more candidates are fetched.
    """

    block_rows = 1 << 18

    def __init__(
        self,
        width: int,
        metric: str,
        index_type: str,
    ) -> None:
        self._width = width
        self._bytes = -(-width // 8)
        self._building = threading.Lock()
        self.begin(np.empty((0, self._bytes), dtype=np.uint8))

    def __len__(self) -> int:
        return self._codes.count

    def begin(self, sample: AnyArray, count: int = 0) -> None:
        self._codes = RowParts([sample[:0]])
        self._scans: list[Any] = []

    def add(self, items: Bytes) -> None:
        parts = [*self._codes.arrays, items]
        *others, last, _ = parts
        if not len(last):
            parts = [*others, items]
        elif len(last) < _SMALL_ROWS:  # each part costs every search some time
            parts = [*others, np.concatenate([last, items])]
        self._codes = RowParts(parts)

    def scans(self) -> list[Any]:
        """Fast scans of all codes but the last few, of at most :data:`_SCAN_ROWS` codes each.

        They take 0.3 s per million to be made. A scan is joined with later ones once these have
        half as many, as digits are carried in a binary counter: no code is copied often.
        """
        count = self._codes.count
        with self._building:  # searches run side by side
            scans = self._scans
            new = count
            for scan in scans:
                new -= scan.ntotal
            if scans and new <= _UNSCANNED_ROWS:
                return scans
            while scans and scans[-1].ntotal < min(2 * new, _SCAN_ROWS):
                new += scans.pop().ntotal
            for start in range(count - new, count, _SCAN_ROWS):
                stop = start + _SCAN_ROWS
                codes = self._codes.take(slice(start, stop))
                scans.append(_fast_scan(codes))
                for _, part in self._codes.within(start, stop):
                    release_pages(part)
            return scans

    def subset(self, rows: Rows) -> FaissSigns:
        part = FaissSigns(self._width, "cosine", EXACT)
        part.add(self._codes.take(rows))
        return part

    def search(self, queries: AnyArray, count: int) -> tuple[Doubles, Rows]:
        """Scores and rows of the best ``count`` for each query, packed signs or exact floats."""
        if queries.dtype == np.uint8:
            return self._search_signs(queries, count)
        return self._search_exact(queries, count)

    def _search_signs(self, queries: Bytes, count: int) -> tuple[Doubles, Rows]:
        """Scores ``k − 2·hamming = Σ s_j t_j`` and rows."""
        queries = np.ascontiguousarray(queries)
        near, rows = unfilled(len(queries), 0, np.int32)
        for start, part in self._codes:
            depth = min(count, len(part))
            # Of many answers, counts for each distance take half the time of a heap.
            variant = "hc"
            if depth >= min(_MANY, self._width):
                variant = "mc"
            distance, places = faiss().knn_hamming(queries, part, depth, variant)
            found = (-distance, start + places)
            near, rows = best_of([(near, rows), found], count)
        return self._width + 2 * near.astype(np.float64), rows

    def _search_exact(self, queries: Floats, count: int) -> tuple[Doubles, Rows]:
        """Scores ``Σ y_j s_j``, exact, and rows."""
        shape = (len(queries), 8 * self._bytes)
        padded = np.zeros(shape, dtype=np.float64)
        padded[:, : self._width] = queries
        scans = self.scans()
        scanned = sum(scan.ntotal for scan in scans)
        near = self._search_scanned(padded, scans, scanned, min(count, scanned))
        if scanned == self._codes.count:
            return near
        last = rank_all(self._codes, padded, count, range(scanned, self._codes.count))
        return best_of([near, last], count)

    def _search_scanned(
        self, padded: Doubles, scans: list[Any], scanned: int, count: int
    ) -> tuple[Doubles, Rows]:
        """Scores and rows of the best among the ``scanned`` rows that are in fast scans."""
        scores, rows = unfilled(len(padded), count)
        uncertain = np.ones(len(padded), dtype=np.bool_)
        deviations = np.linalg.norm(padded, axis=1)
        bound = rounding_bound(padded)
        few_suffice = bound < _GAP * deviations
        for candidates, eligible in ((2 * count + 16, few_suffice), (8 * count + 256, uncertain)):
            block = np.flatnonzero(uncertain & eligible)
            if not block.size or candidates >= scanned:
                continue
            near = coarse(scans, padded[block], candidates)
            best, places, certain = self._rescored(padded[block], near, bound[block], count)
            settled = block[certain]
            scores[settled] = best[certain]
            rows[settled] = places[certain]
            uncertain[settled] = False
        unsettled = np.flatnonzero(uncertain)
        for part in row_blocks(len(unsettled), _BLOCK_QUERIES):
            block = unsettled[part]
            ranked = rank_all(self._codes, padded[block], count, range(scanned))
            scores[block], rows[block] = ranked
        return scores, rows

    def _rescored(
        self,
        queries: Doubles,
        near: tuple[Doubles, Rows],
        bound: Doubles,
        count: int,
    ) -> tuple[AnyArray, ...]:
        """The best of the fast scan's candidates, and whether no other code can be among them."""
        scores, rows = near
        exact = self._exact_scores(queries, rows)
        best, places = best_of([(exact, rows)], count)
        # What was not returned scores at most the worst coarse score plus the rounding error.
        unseen = scores.min(axis=1) + bound
        # Rows of −1 fill up where the scan drops codes of the least possible score.
        is_full = (rows >= 0).all(axis=1)
        certain = is_full & (best[:, -1] > unseen)
        return best, places, certain

    def _exact_scores(self, queries: Doubles, rows: Rows) -> Doubles:
        """``Σ y_j s_j = 2 Σ y_j b_j − Σ y_j`` of candidate rows, b the bits of a code."""
        scores = np.empty(rows.shape)
        size = _COMPARED_NUMBERS // (rows.shape[1] * queries.shape[1])
        for block in row_blocks(len(rows), size):
            known = np.maximum(rows[block], 0)
            codes = self._codes.take(known)
            bits = np.unpackbits(codes, axis=2, bitorder="little").astype(np.float64)
            # Not by BLAS, whose threads would be woken for every query.
            scores[block] = np.einsum("qck,qk->qc", bits, queries[block])
        sums = queries.sum(axis=1, keepdims=True)
        return np.asarray(2 * scores - sums)


def coarse(scans: list[Any], queries: Doubles, count: int) -> tuple[Doubles, Rows]:
    """The scores of fast scans themselves, off by at most :func:`rounding_bound`, and their rows.

    Rows of −1 stand where they leave out codes of the least possible score.
    """
    # A common scale keeps float32 tables exact enough; ranking does not depend on it.
    largest = np.abs(queries).max(axis=1, keepdims=True)
    largest = np.maximum(largest, 1e-300)
    scaled = (queries / largest).astype(np.float32)
    first, *others = scans
    scores, rows = first.search(scaled, min(count, first.ntotal))
    start = first.ntotal
    for scan in others:
        near, places = scan.search(scaled, min(count, scan.ntotal))
        places[places >= 0] += start
        start += scan.ntotal
        scores, rows = best_of([(scores, rows), (near, places)], count)
    return scores * largest, rows


def rounding_bound(queries: Doubles) -> Doubles:
    """Bound on fast scan's error: each table entry is off by at most one step of its scale.

    The scale maps the widest table to 255 and the sum of all to at most 65535.
    """
    tables = np.abs(queries).reshape(len(queries), -1, 4)
    spans = 2 * tables.sum(axis=2)
    step = np.maximum(
        spans.max(axis=1) / 255,
        spans.sum(axis=1) / 65535,
    )
    return np.asarray(spans.shape[1] * step * (1 + 1e-3))


def _fast_scan(codes: Bytes) -> Any:
    """A fast scan of packed signs, four of them to a part of the quantizer."""
    groups = 2 * codes.shape[1]
    index = faiss().IndexPQ(4 * groups, groups, 4, faiss().METRIC_INNER_PRODUCT)
    bits = np.arange(16)[:, None] >> np.arange(4) & 1
    signs = (2 * bits - 1).astype(np.float32)
    centroids = np.tile(signs, (groups, 1, 1))
    faiss().copy_array_to_vector(centroids.ravel(), index.pq.centroids)
    faiss().copy_array_to_vector(codes.ravel(), index.codes)
    index.ntotal = len(codes)
    index.is_trained = True
    scan = faiss().IndexPQFastScan(index)
    scan.implem = _SCAN_KERNEL
    return scan


def rank_all(
    codes: RowParts,
    queries: Doubles,
    count: int,
    among: range,
) -> tuple[Doubles, Rows]:
    """Some codes against a few queries: for few rows, and for crowds of equal codes."""
    scores, rows = unfilled(len(queries))
    for start, part in codes.within(among.start, among.stop, _SCANNED_ROWS):
        bits = np.unpackbits(part, axis=1, bitorder="little")
        signs = 2.0 * bits - 1.0
        part_scores = queries @ signs.T
        part_rows = np.arange(start, start + len(part))
        compared = (part_scores, np.broadcast_to(part_rows, part_scores.shape))
        scores, rows = best_of([(scores, rows), compared], count)
    return scores, rows
