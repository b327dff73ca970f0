"""Vectors in a Faiss index of any index type: exact, compact or sublinear.

An index type is a strict subset of Faiss factory strings. Vectors may be rotated first onto the
leading directions of their *uncentred* second moment (``ROT64,…``): Faiss's own ``PCA`` subtracts
the mean, which changes every cosine, and is not offered.
"""

from __future__ import annotations

import math
import threading
from copy import copy
from typing import Any

import numpy as np

from dpindex.base.arrays import (
    Doubles,
    Floats,
    Rows,
    Singles,
    best_of,
    matrix_product,
    nearest_items,
    row_blocks,
    row_norms,
    spaced,
    unfilled,
    unit,
)
from dpindex.base.errors import InputError
from dpindex.index.backends import PRODUCTS_FROM, SearchBackend, faiss
from dpindex.storage.manifest import EXACT, parse_index_type

_ROWS_PER_LIST = 64
TRAINING_ROWS = 65536
_EXACT_SAMPLE_ROWS = 1024
_SAMPLE_NUMBERS = 1 << 25
_PROBES = 100
_NEIGHBOURS = 10
_WANTED_RECALL = 0.98
_WORTH_DOUBLING = 0.002
_MAPPING = threading.Lock()
_TAIL_ROWS = 16384
_TAIL_SHARE = 8
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


class FaissVectors(SearchBackend):
    """float32 vectors in a Faiss index; under ``cosine`` they are normalised.

    Where the index type is not exact, a hundred vectors of the sample are also searched exactly,
    block by block as vectors are added. That gives ``recall``, and sets how many lists or nodes a
    search visits: the fewest that find 98 % of the ten nearest, or beyond which twice as many find
    no more.
    """

    def __init__(
        self,
        width: int,
        metric: str,
        index_type: str,
    ) -> None:
        self._type = parse_index_type(index_type, width)
        self._width = width
        self._normalise = metric == "cosine"
        self._distance = metric == "l2"
        self.exact = self._type.exact
        self.max_subset = _SAMPLE_NUMBERS // width
        sample = _EXACT_SAMPLE_ROWS
        if not self.exact:
            sample = max(TRAINING_ROWS, _ROWS_PER_LIST * self._type.lists)
        sample = min(sample, self.max_subset)
        self.sample_rows = max(self._type.min_rows, sample)
        self._index: Any = None
        # Of an exact index: what was added to it once it was built. To let the large one grow would
        # copy it, and all its memory would be there twice.
        self._tail: Any = None
        self._expected = 0
        self._only: Rows | None = None  # rows that may be found; None for all
        self._fitted = 0  # vectors of the sample

    def __len__(self) -> int:
        # Counted by Faiss itself, so that Ctrl-C never comes between a row and its count.
        if self._only is not None:
            return len(self._only)
        before = 0 if self._index is None else self._index.ntotal
        after = 0 if self._tail is None else self._tail.ntotal
        return int(before + after)

    @property
    def _metric(self) -> int:
        if self._distance:
            return int(faiss().METRIC_L2)
        return int(faiss().METRIC_INNER_PRODUCT)

    def needs_retraining(self, count: int) -> bool:
        saw_few = self._fitted < self.sample_rows
        return not self.exact and saw_few and count >= 2 * self._fitted

    def begin(self, sample: Floats, count: int = 0) -> None:
        self._type.check_count(len(sample))
        # A power of two near the largest value: half floats end at 65504, and fail below 1e-4.
        self._unit = 1.0
        largest = float(np.abs(sample).max(initial=0.0))
        if largest and not self._normalise:
            self._unit = float(2.0 ** np.frexp(largest)[1])
        vectors = self._prepared(sample)
        self._rotation = None
        if self._type.rotation is not None:
            self._rotation = _leading(vectors, self._type.rotation)
        rotated = self._rotated(vectors)
        index = self._index
        if self.exact and index is not None:
            index.reset()  # its memory is used again: half of the time of the first search
        else:
            index = self._made(rotated.shape[1])
        self._expected = count
        self._tail = None
        self._longest = 1.0  # squared norm
        self._kept_alive = _without_warnings(index)
        index.train(rotated)
        if isinstance(index, faiss().IndexFlatCodes):
            # The memory of all items at once, where they lie in one array: to grow takes thrice.
            index.codes.resize(count * index.code_size)
            index.codes.resize(0)
        probes = spaced(len(vectors), _PROBES)
        # A hundred of the items, and their exact neighbours among those that were added.
        self._probes = vectors[probes]
        self._nearest = unfilled(len(probes), 0, np.float32)
        self._effort = self._type.efforts[0]
        self.recall = None
        self._index = index
        self._fitted = len(vectors)

    def _made(self, width: int) -> Any:
        try:
            return faiss().index_factory(width, self._type.factory, self._metric)
        except RuntimeError:
            raise InputError(
                f"this version of Faiss has no {self._type.factory}; run pip install -U faiss-cpu.",
                field="index_type",
            ) from None

    def add(self, items: Floats) -> None:
        vectors = self._prepared(items)
        if not self.exact:
            depth = min(len(vectors), _NEIGHBOURS + 1)
            near, rows = faiss().knn(self._probes, vectors, depth, metric=self._metric)
            if self._distance:
                near = -near
            found = (near, len(self) + rows)
            self._nearest = best_of([self._nearest, found], _NEIGHBOURS + 1)
        rotated = self._rotated(vectors)
        rows = self._index.ntotal + len(rotated)
        if self.exact and not self._normalise:
            self._longest = max(self._longest, _longest_of(rotated))
        if not self.exact or rows <= max(self._expected, len(rotated)):
            self._index.add(rotated)
            return
        if self._tail is None:
            self._tail = faiss().IndexFlat(self._index.d, self._metric)
        self._tail.add(rotated)
        tail = self._tail.ntotal
        if tail > max(_TAIL_ROWS, self._index.ntotal // _TAIL_SHARE):
            self._index.merge_from(self._tail, 0)
            self._expected = self._index.ntotal
            self._tail = None

    def finish(self) -> None:
        """Set the effort of a search, and measure ``recall``."""
        if self.exact:
            return
        self._effort, max_effort = self._type.efforts
        probes = self._rotated(self._probes)
        self.recall = self._found(probes, self._effort)
        while self.recall < _WANTED_RECALL and self._effort < max_effort:
            effort = min(max_effort, 2 * self._effort)
            recall = self._found(probes, effort)
            if recall < self.recall + _WORTH_DOUBLING:  # what is lost now is lost to precision
                return
            self._effort = effort
            self.recall = recall

    def _found(self, probes: Singles, effort: int) -> float:
        _, nearest = self._nearest
        _, visited = self._visit(probes, nearest.shape[1], effort)
        # The vector itself is found by any index; the ten after it count.
        pairs = zip(visited, nearest[:, 1:], strict=True)
        hit = np.concatenate([np.isin(true, rows) for rows, true in pairs])
        if not hit.size:
            return 1.0
        return float(hit.mean())

    def subset(self, rows: Rows) -> FaissVectors:
        """In the exact index, the vectors as this one keeps them, where it can give them back."""
        part = copy(self)
        if "RaBitQ" in self._type.factory:
            part._only = rows
            part._effort = self._type.efforts[1]
            return part
        part._type = parse_index_type(EXACT, self._width)
        part._index = faiss().IndexFlat(self._index.d, self._metric)
        part._tail = None
        kept = self._kept(rows)
        if not self._normalise:
            part._longest = _longest_of(kept)
        part._index.add(kept)
        return part

    def _kept(self, rows: Rows) -> Singles:
        """The vectors of rows, as they are kept."""
        lists: Any = self._index
        if isinstance(lists, faiss().IndexFlat):
            return self._kept_exactly(rows)
        if isinstance(lists, faiss().IndexPreTransform):
            lists = faiss().downcast_index(lists.index)
        if isinstance(lists, faiss().IndexIVF):
            with _MAPPING:  # searches run side by side
                lists.make_direct_map()
        return np.asarray(self._index.reconstruct_batch(rows))

    def _kept_exactly(self, rows: Rows) -> Singles:
        """The vectors of rows of the exact index and its tail."""
        items = _items_of(self._index)
        if self._tail is None:
            return items.take(rows, axis=0)  # half the time of an index
        vectors = np.empty((len(rows), self._index.d), np.float32)
        is_late = rows >= len(items)
        vectors[~is_late] = items[rows[~is_late]]
        vectors[is_late] = _items_of(self._tail)[rows[is_late] - len(items)]
        return vectors

    def search(self, queries: Floats, count: int) -> tuple[Doubles, Rows]:
        rotated = self._rotated(self._prepared(queries))
        if self.exact:
            exact, lowest = self._nearest_in_order(rotated, count)
            return exact * self._unit**2, lowest
        scores, rows = self._visit(rotated, count, self._effort)
        is_short = (rows < 0).any(axis=1)
        if is_short.any():
            short = np.flatnonzero(is_short)
            scores[short], rows[short] = self._exhaustive(rotated[short], count)
        wide = scores.astype(np.float64) * self._unit**2
        if self._distance:
            wide = -wide
        return best_of([(wide, rows)], count)

    def _nearest_in_order(
        self, queries: Singles, count: int, spare: int = _SPARE
    ) -> tuple[Doubles, Rows]:
        """Search all items; of equal scores the lowest rows are found, and come first.

        Of those that are equal but for rounding any are found. So more rows are taken, until the
        last of these is worse than the last that is wanted, by more than both may be off.
        """
        total = len(self)
        depth = min(count + spare, total)
        size = max(1, _BLOCK_FOUND // depth)
        if len(queries) > size:
            blocks = row_blocks(len(queries), size)
            parts = [self._nearest_in_order(queries[block], count, spare) for block in blocks]
            scores, rows = map(np.concatenate, zip(*parts, strict=True))
            return scores, rows
        near, found, error = self._compared(queries, depth)
        scores = near[:, :count]
        rows = found[:, :count]
        if depth < total:
            open_ = np.flatnonzero(scores[:, -1] <= near[:, -1] + error)
            if len(open_):
                deeper = _MORE * depth - count
                scores[open_], rows[open_] = self._nearest_in_order(queries[open_], count, deeper)
        return scores, rows

    def _compared(self, queries: Singles, depth: int) -> tuple[Doubles, Rows, Doubles]:
        """Scores and rows of ``depth`` items for each query, and how far two scores may be off.

        Equal items have equal scores. In matrix products they have not: there the place of a row
        decides in which order its numbers are added. So those that are near each other are
        computed again.
        """
        multiplied = queries.size >= PRODUCTS_FROM or len(queries) >= _QUERIES_FROM
        found = []
        first = 0
        for part in (self._index, self._tail):
            if part is None or part.ntotal == 0:
                continue
            count = min(depth, part.ntotal)
            if multiplied:
                near, places = nearest_items(
                    queries, _items_of(part), count, by_distance=self._distance
                )
            else:
                near, places = part.search(queries, count)
                if self._distance:
                    near = -near
            places += first
            found.append((near.astype(np.float64), places))
            first += part.ntotal
        if not multiplied:
            return *best_of(found, depth), np.zeros(1)
        scores, rows = found[0] if len(found) == 1 else best_of(found, depth)
        steps = self._index.d + 2
        if not self._normalise:
            steps *= 8 if self._distance else 2
        relative = _STEP * min(steps, _MOST_STEPS)
        error = relative * (row_norms(queries) + math.sqrt(self._longest)) ** 2
        is_near = np.zeros(scores.shape, np.bool_)  # the one before it
        is_near[:, 1:] = np.diff(scores, axis=1) >= -error[:, None]
        # Distances are what large numbers leave of each other: none is good enough as it is.
        unsure = is_near | self._distance
        unsure[:, :-1] |= is_near[:, 1:]
        asked, columns = np.nonzero(unsure)
        if len(asked):
            exact = self._exactly(queries, asked, rows[unsure])
            scores[unsure] = exact
            # Those that are near each other are a run. Each is put in order that is in none: few
            # are, and to sort all of them would take a tenth of the time of a search.
            run = np.cumsum(~is_near[unsure])
            is_wrong = (exact[1:] >= exact[:-1]) & (run[1:] == run[:-1])
            if is_wrong.any():
                moved = np.flatnonzero(np.isin(run, run[1:][is_wrong]))
                cells = asked[moved], columns[moved]
                order = np.lexsort((rows[cells], -exact[moved], run[moved]))
                scores[cells] = exact[moved][order]
                rows[cells] = rows[cells][order]
        return scores, rows, error

    def _exactly(self, queries: Singles, asked: Rows, found: Rows) -> Doubles:
        """Scores of queries with the rows that were found for them, which nothing else decides."""
        exact = np.empty(len(found))
        wide = queries.astype(np.float64)
        for block in row_blocks(len(found), _COMPARED_NUMBERS // self._index.d):
            items = self._kept(found[block]).astype(np.float64)
            if self._distance:
                items -= wide[asked[block]]
                exact[block] = -np.square(items, out=items).sum(axis=1)
            else:
                exact[block] = np.einsum("nd,nd->n", items, wide[asked[block]])
        return exact

    def _visit(
        self,
        rotated: Singles,
        count: int,
        effort: int,
    ) -> tuple[Singles, Rows]:
        """Return scores or distances and rows as Faiss does, −1 where no more were visited.

        ``effort`` is the number of lists, or of nodes of a graph, that a search visits.
        """
        parameters: Any = None
        if self._type.links:
            parameters = faiss().SearchParametersHNSW(efSearch=max(effort, count))
        elif self._type.lists:
            parameters = faiss().SearchParametersIVF(nprobe=effort)
        if self._only is not None:
            parameters = parameters or faiss().SearchParameters()
            chosen = faiss().IDSelectorBatch(self._only)
            parameters.sel = chosen
        if parameters is not None and self._type.factory.startswith("OPQ"):
            parameters = faiss().SearchParametersPreTransform(index_params=parameters)
        scores, rows = self._index.search(rotated, count, params=parameters)
        if self._only is not None:
            places = np.searchsorted(self._only, rows)
            rows = np.where(rows < 0, rows, places)
        return scores, rows

    def _exhaustive(self, rotated: Singles, count: int) -> tuple[Singles, Rows]:
        """Return scores or distances and rows with every place filled: everything is visited."""
        if self._type.links:
            storage = faiss().downcast_index(self._index.storage)
            scores, rows = storage.search(rotated, count)
        else:
            _, max_effort = self._type.efforts
            scores, rows = self._visit(rotated, count, max_effort)
        # Fast scan leaves out what has the least possible score, as all have for a zero query.
        every_row = np.arange(len(self))
        for score, row in zip(scores, rows, strict=True):
            missing = np.flatnonzero(row < 0)
            if not missing.size:
                continue
            left_out = np.setdiff1d(every_row, row)
            row[missing] = left_out[: len(missing)]
            least = 0.0
            if missing[0]:
                least = score[missing[0] - 1]
            score[missing] = least
        return scores, rows

    def _rotated(self, vectors: Singles) -> Singles:
        if self._rotation is None:
            return vectors
        return matrix_product(vectors, self._rotation)

    def _prepared(self, vectors: Floats) -> Singles:
        single = np.ascontiguousarray(vectors, dtype=np.float32)
        if self._normalise:
            return unit(single)
        return single / np.float32(self._unit)


def _without_warnings(index: Any) -> list[Any]:
    """Let Faiss train on few rows without a warning on the terminal: recall is measured anyway.

    Returns what must live as long as the index.
    """
    index = faiss().downcast_index(index)
    made = []
    if isinstance(index, faiss().IndexPreTransform):
        opq = faiss().downcast_VectorTransform(index.chain.at(0))
        made.append(faiss().ProductQuantizer(opq.d_out, opq.M, 8))
        opq.pq = made[0]
        index = faiss().downcast_index(index.index)
    # Polysemous training takes a second a part, for a search that is never run here.
    if hasattr(index, "do_polysemous_training"):
        index.do_polysemous_training = False
    for part in (index, getattr(index, "pq", None), *made):
        clustering: Any = getattr(part, "cp", None)
        if clustering is not None:
            clustering.min_points_per_centroid = 1
    return made


def _longest_of(vectors: Singles) -> float:
    """The largest squared norm, at least 1."""
    return float(np.einsum("nd,nd->n", vectors, vectors).max(initial=1.0))


def _items_of(flat: Any) -> Singles:
    """The vectors of an exact index where they lie, until it is changed."""
    items = faiss().rev_swig_ptr(flat.get_xb(), flat.ntotal * flat.d)
    return np.asarray(items.reshape(flat.ntotal, flat.d))


def _leading(sample: Singles, width: int) -> Singles:
    """Return the leading directions of the second moment, best first, as columns."""
    second_moment = sample.T @ sample
    _, directions = np.linalg.eigh(second_moment.astype(np.float64))
    best_first = directions[:, ::-1]
    return np.ascontiguousarray(best_first[:, :width], dtype=np.float32)
