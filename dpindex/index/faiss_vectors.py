"""Vectors in a Faiss index of any index type that does not keep all of them: compact or sublinear.

An index type is a strict subset of Faiss factory strings. Vectors may be rotated first onto the
leading directions of their *uncentred* second moment (``ROT64,…``): Faiss's own ``PCA`` subtracts
the mean, which changes every cosine, and is not offered.
"""

from __future__ import annotations

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
    spaced,
    unfilled,
)
from dpindex.base.errors import InputError
from dpindex.index.backends import faiss
from dpindex.index.exact_vectors import VectorBackend, VectorItems, scanned
from dpindex.storage.manifest import parse_index_type

_ROWS_PER_LIST = 64
TRAINING_ROWS = 65536
_PROBES = 100
_NEIGHBOURS = 10
_WANTED_RECALL = 0.98
_WORTH_DOUBLING = 0.002
_MAPPING = threading.Lock()


class FaissVectors(VectorBackend):
    """float32 vectors in a Faiss index; under ``cosine`` they are normalised.

    A hundred vectors of the sample are also searched exactly, block by block as vectors are added.
    That gives ``recall``, and sets how many lists or nodes a search visits: the fewest that find
    98 % of the ten nearest, or beyond which twice as many find no more.
    """

    exact = False

    def __init__(self, width: int, metric: str, index_type: str) -> None:
        super().__init__(width, metric, index_type)
        self._type = parse_index_type(index_type, width)
        sample = max(TRAINING_ROWS, _ROWS_PER_LIST * self._type.lists)
        self.sample_rows = max(self._type.min_rows, min(sample, self.max_subset))
        self._index: Any = None
        self._only: Rows | None = None  # rows that may be found; None for all
        self._items: VectorItems | None = None  # instead of the index: those that are searched
        self._fitted = 0  # vectors of the sample

    def __len__(self) -> int:
        # Counted by Faiss itself, so that Ctrl-C never comes between a row and its count.
        if self._only is not None:
            return len(self._only)
        if self._items is not None:
            return self._items.count
        return 0 if self._index is None else int(self._index.ntotal)

    @property
    def _metric(self) -> int:
        if self._by_distance:
            return int(faiss().METRIC_L2)
        return int(faiss().METRIC_INNER_PRODUCT)

    def needs_retraining(self, count: int) -> bool:
        return self._fitted < self.sample_rows and count >= 2 * self._fitted

    def begin(self, sample: Floats, count: int = 0) -> None:
        self._type.check_count(len(sample))
        self._measure(sample)
        vectors = self._prepared(sample)
        self._rotation = None
        if self._type.rotation is not None:
            self._rotation = _leading(vectors, self._type.rotation)
        rotated = self._rotated(vectors)
        index = self._made(rotated.shape[1])
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
        depth = min(len(vectors), _NEIGHBOURS + 1)
        near, rows = scanned(self._probes, vectors, depth, by_distance=self._by_distance)
        found = (near, len(self) + rows)
        self._nearest = best_of([self._nearest, found], _NEIGHBOURS + 1)
        self._index.add(self._rotated(vectors))

    def finish(self) -> None:
        """Set the effort of a search, and measure ``recall``."""
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
        kept = self._kept(rows)
        part._items = self._new_items(kept.shape[1]).holding(kept)
        return part

    def _kept(self, rows: Rows) -> Singles:
        """The vectors of rows, as they are kept."""
        lists: Any = self._index
        if isinstance(lists, faiss().IndexPreTransform):
            lists = faiss().downcast_index(lists.index)
        if isinstance(lists, faiss().IndexIVF):
            with _MAPPING:  # searches run side by side
                lists.make_direct_map()
        return np.asarray(self._index.reconstruct_batch(rows))

    def search(self, queries: Floats, count: int) -> tuple[Doubles, Rows]:
        rotated = self._rotated(self._prepared(queries))
        if self._items is not None:
            exact, lowest = self._items.nearest(rotated, count)
            return exact * self._unit**2, lowest
        scores, rows = self._visit(rotated, count, self._effort)
        is_short = (rows < 0).any(axis=1)
        if is_short.any():
            short = np.flatnonzero(is_short)
            scores[short], rows[short] = self._exhaustive(rotated[short], count)
        wide = scores.astype(np.float64) * self._unit**2
        if self._by_distance:
            wide = -wide
        return best_of([(wide, rows)], count)

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


def _leading(sample: Singles, width: int) -> Singles:
    """Return the leading directions of the second moment, best first, as columns."""
    second_moment = sample.T @ sample
    _, directions = np.linalg.eigh(second_moment.astype(np.float64))
    best_first = directions[:, ::-1]
    return np.ascontiguousarray(best_first[:, :width], dtype=np.float32)
