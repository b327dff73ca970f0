"""Vectors in memory as they are, and the nearest of them to queries, in order.

Few queries go through Faiss, and many through matrix products, whose BLAS is a newer one. Of equal
scores the lowest rows come first, whichever it was.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from copy import copy

import numpy as np

from dpindex.base.arrays import (
    Doubles,
    Floats,
    Rows,
    Singles,
    best_of,
    nearest_items,
    row_blocks,
    row_norms,
    unit,
)
from dpindex.index.backends import PRODUCTS_FROM, SearchBackend, faiss

SAMPLE_NUMBERS = 1 << 25
"""Numbers of a sample, or of a subset, that are held."""

_SAMPLE_ROWS = 1024
# Room for more rows, at least, and as a share of those that are there.
_ROOM_ROWS = 16384
_ROOM_SHARE = 8
_SPARE = 4
_MORE = 4
_BLOCK_FOUND = 1 << 22
_COMPARED_NUMBERS = 1 << 16
_QUERIES_FROM = 20
"""Older versions of Faiss multiply matrices from this many queries on, whatever is set."""
_STEP = 2.0**-26
_MOST_STEPS = 128
"""Error of the difference of two scores in single precision, over the squared sum of both norms.

A sum of d products, in any order, errs by half of a last digit for each addition, and all products
together by one such half more. No partial sum exceeds the product of both norms, so of vectors of
norm 1 half of a digit is at most 2^-25, and two scores err by d + 1 steps; of others by twice as
many, and of distances, which hold sums of squares too, by eight times. Longer sums could
err by more than 128 steps; those of data, even of bits behind one large number, err by less.
"""


class VectorItems:
    """float32 vectors under the rows 0, 1, 2, …

    They lie in blocks, of which the last one may have room: nothing is copied as more are added,
    and their memory is never there twice.

    Parameters
    ----------
    width : int
    by_distance : bool
        Scores are negated squared distances; otherwise inner products.
    of_norm_1 : bool
        All vectors are of norm 1.

    Attributes
    ----------
    count : int
        Rows.
    """

    def __init__(self, width: int, *, by_distance: bool, of_norm_1: bool) -> None:
        self._width = width
        self._by_distance = by_distance
        self._of_norm_1 = of_norm_1
        self._blocks: list[Singles] = []
        self.count = 0
        self._longest = 1.0  # squared norm

    def clear(self, count: int) -> None:
        """Forget all rows, and have room for ``count``."""
        self.count = 0
        self._longest = 1.0
        del self._blocks[1:]
        # Memory that was written to before takes half of the time, as after a removal.
        if self._blocks and not count <= len(self._blocks[0]) <= 2 * count:
            self._blocks.clear()
        if not self._blocks:
            self._blocks.append(self._room(count))

    def _room(self, rows: int) -> Singles:
        return np.empty((rows, self._width), np.float32)

    def add(self, vectors: Singles) -> None:
        """Append vectors, shape (n, width)."""
        if not self._of_norm_1:
            self._longest = max(self._longest, _longest_of(vectors))
        stop = self.count + len(vectors)
        lacking = stop - sum(map(len, self._blocks))
        if lacking > 0:
            self._blocks.append(self._room(max(lacking, _ROOM_ROWS, self.count // _ROOM_SHARE)))
        for first, block in self._placed():
            low = max(first, self.count)
            high = min(first + len(block), stop)
            if low < high:
                rows = vectors[low - self.count : high - self.count]
                block[low - first : high - first] = rows
        # At last, so that Ctrl-C never comes between a row and its count.
        self.count = stop

    def _placed(self) -> Iterator[tuple[int, Singles]]:
        """Yield the row at which each block begins, and the block, room and all."""
        first = 0
        for block in self._blocks:
            yield first, block
            first += len(block)

    def holding(self, vectors: Singles) -> VectorItems:
        """Return other vectors, which are searched alike, where they lie."""
        other = copy(self)
        other._blocks = [vectors]
        other.count = len(vectors)
        if not self._of_norm_1:
            other._longest = _longest_of(vectors)
        return other

    def take(self, rows: Rows) -> Singles:
        """Return the vectors of some rows."""
        if len(self._blocks) == 1:
            return self._blocks[0].take(rows, axis=0)
        taken = self._room(len(rows))
        for first, block in self._placed():
            inside = (first <= rows) & (rows < first + len(block))
            taken[inside] = block[rows[inside] - first]
        return taken

    def nearest(self, queries: Singles, count: int, spare: int = _SPARE) -> tuple[Doubles, Rows]:
        """Search all rows; of equal scores the lowest rows are found, and come first.

        Of those that are equal but for rounding any are found. So more rows are taken, until the
        last of these is worse than the last that is wanted, by more than both may be off.
        """
        total = self.count
        depth = min(count + spare, total)
        size = max(1, _BLOCK_FOUND // depth)
        if len(queries) > size:
            blocks = row_blocks(len(queries), size)
            parts = [self.nearest(queries[block], count, spare) for block in blocks]
            scores, rows = map(np.concatenate, zip(*parts, strict=True))
            return scores, rows
        near, found, error = self._compared(queries, depth)
        scores = near[:, :count]
        rows = found[:, :count]
        if depth < total:
            open_ = np.flatnonzero(scores[:, -1] <= near[:, -1] + error)
            if len(open_):
                deeper = _MORE * depth - count
                scores[open_], rows[open_] = self.nearest(queries[open_], count, deeper)
        return scores, rows

    def _compared(self, queries: Singles, depth: int) -> tuple[Doubles, Rows, Doubles]:
        """Scores and rows of ``depth`` items for each query, and how far two scores may be off.

        Equal items have equal scores. In matrix products they have not: there the place of a row
        decides in which order its numbers are added. So those that are near each other are
        computed again.
        """
        multiplied = queries.size >= PRODUCTS_FROM or len(queries) >= _QUERIES_FROM
        found = []
        for first, block in self._placed():
            items = block[: max(0, self.count - first)]
            if not len(items):
                continue
            wanted = min(depth, len(items))
            if multiplied:
                near, rows = nearest_items(queries, items, wanted, by_distance=self._by_distance)
            else:
                near, rows = scanned(queries, items, wanted, by_distance=self._by_distance)
            found.append((near.astype(np.float64), first + rows))
        if not multiplied:
            return *best_of(found, depth), np.zeros(1)
        scores, rows = found[0] if len(found) == 1 else best_of(found, depth)
        error = self._error(queries)
        self._settle(queries, scores, rows, error)
        return scores, rows, error

    def _error(self, queries: Singles) -> Doubles:
        """How far apart two scores of each query may come out that are equal."""
        steps = self._width + 2
        if not self._of_norm_1:
            steps *= 8 if self._by_distance else 2
        relative = _STEP * min(steps, _MOST_STEPS)
        return relative * (row_norms(queries) + math.sqrt(self._longest)) ** 2

    def _settle(self, queries: Singles, scores: Doubles, rows: Rows, error: Doubles) -> None:
        """Compute scores anew that are near each other, best first, and put them in order."""
        is_near = np.zeros(scores.shape, np.bool_)  # the one before it
        is_near[:, 1:] = np.diff(scores, axis=1) >= -error[:, None]
        # Distances are what large numbers leave of each other: none is good enough as it is.
        unsure = is_near | self._by_distance
        unsure[:, :-1] |= is_near[:, 1:]
        asked, columns = np.nonzero(unsure)
        if not len(asked):
            return
        exact = self._exactly(queries, asked, rows[unsure])
        scores[unsure] = exact
        # Those that are near each other are a run. Each is put in order that is in none: few are,
        # and to sort all of them would take a tenth of the time of a search.
        run = np.cumsum(~is_near[unsure])
        is_wrong = (exact[1:] >= exact[:-1]) & (run[1:] == run[:-1])
        if not is_wrong.any():
            return
        moved = np.flatnonzero(np.isin(run, run[1:][is_wrong]))
        cells = asked[moved], columns[moved]
        order = np.lexsort((rows[cells], -exact[moved], run[moved]))
        scores[cells] = exact[moved][order]
        rows[cells] = rows[cells][order]

    def _exactly(self, queries: Singles, asked: Rows, found: Rows) -> Doubles:
        """Scores of queries with the rows that were found for them, which nothing else decides."""
        exact = np.empty(len(found))
        wide = queries.astype(np.float64)
        for block in row_blocks(len(found), _COMPARED_NUMBERS // self._width):
            items = self.take(found[block]).astype(np.float64)
            if self._by_distance:
                items -= wide[asked[block]]
                exact[block] = -np.square(items, out=items).sum(axis=1)
            else:
                exact[block] = np.einsum("nd,nd->n", items, wide[asked[block]])
        return exact


def scanned(
    queries: Singles, items: Singles, count: int, *, by_distance: bool
) -> tuple[Singles, Rows]:
    """Return scores and rows of the nearest items of few queries, as Faiss finds them.

    Parameters as of :func:`dpindex.base.arrays.nearest_items`, which is for many queries.
    """
    if not by_distance:
        scores, rows = faiss().knn(queries, items, count, metric=faiss().METRIC_INNER_PRODUCT)
        return scores, rows
    distances, rows = faiss().knn(queries, items, count, metric=faiss().METRIC_L2)
    return -distances, rows


def _longest_of(vectors: Singles) -> float:
    """The largest squared norm, at least 1."""
    return float(np.einsum("nd,nd->n", vectors, vectors).max(initial=1.0))


class VectorBackend(SearchBackend):
    """A search backend of vectors: brought to norm 1 under ``cosine``, else to a common unit."""

    def __init__(self, width: int, metric: str, index_type: str) -> None:
        self._width = width
        self._normalise = metric == "cosine"
        self._by_distance = metric == "l2"
        self._unit = 1.0
        self.max_subset = SAMPLE_NUMBERS // width

    def _measure(self, sample: Floats) -> None:
        """Choose the unit of vectors by a sample of them.

        A power of two near the largest value: half floats end at 65504, and fail below 1e-4.
        """
        largest = float(np.abs(sample).max(initial=0.0))
        self._unit = 1.0
        if largest and not self._normalise:
            self._unit = float(2.0 ** np.frexp(largest)[1])

    def _prepared(self, vectors: Floats) -> Singles:
        single = np.ascontiguousarray(vectors, dtype=np.float32)
        if self._normalise:
            return unit(single)
        return single / np.float32(self._unit)

    def _new_items(self, width: int) -> VectorItems:
        return VectorItems(width, by_distance=self._by_distance, of_norm_1=self._normalise)


class ExactVectors(VectorBackend):
    """float32 vectors, all of which are compared with a query."""

    def __init__(self, width: int, metric: str, index_type: str) -> None:
        super().__init__(width, metric, index_type)
        if not self._normalise:
            self.sample_rows = min(_SAMPLE_ROWS, self.max_subset)
        self._items = self._new_items(width)

    def __len__(self) -> int:
        return self._items.count

    def begin(self, sample: Floats, count: int = 0) -> None:
        self._measure(sample)
        self._items.clear(count)

    def add(self, items: Floats) -> None:
        self._items.add(self._prepared(items))

    def subset(self, rows: Rows) -> ExactVectors:
        part = copy(self)
        part._items = self._items.holding(self._items.take(rows))
        return part

    def search(self, queries: Floats, count: int) -> tuple[Doubles, Rows]:
        scores, rows = self._items.nearest(self._prepared(queries), count)
        return scores * self._unit**2, rows
