"""Compact and sublinear storage of float codes: a Faiss factory string, read strictly.

Vectors may be rotated first onto the leading directions of their *uncentred* second moment
(``ROT64,…``). Faiss's own ``PCA`` subtracts the mean, which changes every cosine, and is not taken.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import faiss
import numpy as np
import numpy.typing as npt

from dpindex.errors import InputError

__all__ = ["CompactIndex", "Layout", "parse_layout"]

Singles = npt.NDArray[np.float32]
Rows = npt.NDArray[np.int64]

_FORM = re.compile(
    r"(?:ROT(?P<rotation>\d{1,5}),)?"
    r"(?P<factory>"
    r"(?P<graph>HNSW\d{1,3})(?:,SQ8)?"
    r"|(?:OPQ(?P<opq>\d{1,4}),)?(?:IVF(?P<lists>\d{1,6}),)?"
    r"(?:Flat|SQ4|SQ6|SQ8|SQfp16|PQ(?P<parts>\d{1,4})(?:x(?P<bits>4fs|4|8))?)"
    r")"
)
_MAX_LISTS = 1 << 17
_ROWS_PER_LIST = 64
_TRAINING_ROWS = 65536
_PROBES = 100
_NEIGHBOURS = 10
_WANTED_RECALL = 0.98
_WORTH_DOUBLING = 0.002
_MAX_NODES = 1024


@dataclass(frozen=True)
class Layout:
    """A factory string, taken apart.

    Attributes
    ----------
    rotation : int, optional
        Leading directions that are kept.
    factory : str
        What Faiss is given.
    lists : int
        Buckets of an inverted file, 0 without one.
    graph : bool
        Whether it is an HNSW graph.
    """

    rotation: int | None
    factory: str
    lists: int
    graph: bool

    @property
    def training_rows(self) -> int:
        """Rows it should be trained on."""
        return max(_TRAINING_ROWS, _ROWS_PER_LIST * self.lists)

    @property
    def min_rows(self) -> int:
        """Rows it must have: one for each centroid."""
        return max(self.lists, 256 if "PQ" in self.factory else 1)

    @property
    def min_effort(self) -> int:
        """Buckets or nodes that a search visits at first."""
        return 16 if self.graph else 1

    @property
    def max_effort(self) -> int:
        """All buckets; of a graph, as many nodes as still make sense."""
        return _MAX_NODES if self.graph else max(1, self.lists)


def parse_layout(storage: str, k: int) -> Layout:
    """The layout that a string names, for vectors of length k.

    Raises
    ------
    InputError
        For anything but ``[ROTd,]HNSWm[,SQ8]`` and ``[ROTd,][OPQm,][IVFn,]X``, where X is Flat,
        SQ4, SQ6, SQ8, SQfp16, PQm, PQmx8, PQmx4 or PQmx4fs, or if a length does not divide.
    """
    match = _FORM.fullmatch(storage) if isinstance(storage, str) else None
    if match is None:
        raise InputError(
            f"storage must be one of f32, f16, int8, or a Faiss factory string such as SQ8, "
            f"PQ32x8, ROT64,SQ4, IVF1024,PQ32x4fs or HNSW32, not {storage!r}."
        )
    rotation = int(match["rotation"]) if match["rotation"] else None
    width = k if rotation is None else rotation
    if not 1 <= width <= k:
        raise InputError(f"storage {storage!r} rotates to {width} of {k} directions.")
    for name in ("opq", "parts"):
        parts = int(match[name] or 1)
        if parts < 1 or width % parts:
            raise InputError(f"storage {storage!r} cuts {width} numbers into {parts} equal parts.")
    lists = int(match["lists"] or 0)
    if lists > _MAX_LISTS or (match["lists"] and lists < 1):
        raise InputError(f"storage {storage!r} has {lists} lists; 1 to {_MAX_LISTS} are possible.")
    if match["graph"] and not 2 <= int(match["graph"][4:]) <= 256:
        raise InputError(f"storage {storage!r}: a graph has 2 to 256 links a node.")
    return Layout(rotation, match["factory"], lists, match["graph"] is not None)


class CompactIndex:
    """A Faiss index of a layout, trained on a sample, that knows its recall against flat search.

    A hundred of the sample's vectors are also searched exactly, block by block as vectors are
    added. That sets how many buckets or nodes a search visits, the fewest that find 98 % of the ten
    nearest, or beyond which twice as many find no more, and gives ``recall``. Where what is visited
    does not hold as many vectors as are asked for, all are visited.
    """

    def __init__(self, layout: Layout, metric: int, sample: Singles) -> None:
        if len(sample) < layout.min_rows:
            raise InputError(
                f"storage {layout.factory!r} is trained on the vectors and needs at least "
                f"{layout.min_rows} of them, not {len(sample)}."
            )
        self.layout = layout
        self._metric = metric
        self._rotation = None if layout.rotation is None else _leading(sample, layout.rotation)
        rotated = self._rotated(sample)
        self._index: Any = faiss.index_factory(rotated.shape[1], layout.factory, metric)
        self._kept_alive = _quiet(self._index)
        self._index.train(rotated)
        places = np.linspace(0, len(sample) - 1, min(len(sample), _PROBES)).astype(np.intp)
        self._probes = sample[places]
        self._near = np.empty((len(self._probes), 0), dtype=np.float32)
        self._true = np.empty((len(self._probes), 0), dtype=np.int64)
        self._effort = 1
        self.recall = 1.0

    def __len__(self) -> int:
        return int(self._index.ntotal)

    def _rotated(self, vectors: Singles) -> Singles:
        return vectors if self._rotation is None else vectors @ self._rotation

    def add(self, vectors: Singles) -> None:
        """Append vectors, float32, shape (n, k); ``tune`` when all are in."""
        depth = min(len(vectors), _NEIGHBOURS + 1)
        near, rows = faiss.knn(self._probes, vectors, depth, metric=self._metric)
        if self._metric == faiss.METRIC_L2:
            near = -near
        near = np.concatenate([self._near, near], axis=1)
        rows = np.concatenate([self._true, rows + len(self)], axis=1)
        best = np.argsort(-near, axis=1, kind="stable")[:, : _NEIGHBOURS + 1]
        self._near = np.take_along_axis(near, best, axis=1)
        self._true = np.take_along_axis(rows, best, axis=1)
        self._index.add(self._rotated(vectors))

    def tune(self) -> None:
        """Set the effort of a search, and measure ``recall``."""
        most = self.layout.max_effort
        self._effort = min(most, self.layout.min_effort)
        probes = self._rotated(self._probes)
        self.recall = self._found(probes, self._effort)
        while self.recall < _WANTED_RECALL and self._effort < most:
            effort = min(most, 2 * self._effort)
            recall = self._found(probes, effort)
            if recall < self.recall + _WORTH_DOUBLING:  # what is lost now is lost to precision
                return
            self._effort, self.recall = effort, recall

    def _found(self, probes: Singles, effort: int) -> float:
        # The vector itself is found by any index; the ten after it count.
        _, found = self._visit(probes, self._true.shape[1], effort)
        pairs = zip(found, self._true[:, 1:], strict=True)
        return float(np.mean([np.isin(true, rows).mean() for rows, true in pairs]))

    def search(self, queries: Singles, count: int) -> tuple[Singles, Rows]:
        """As Faiss returns them: scores or distances and rows, with every place filled."""
        rotated = self._rotated(queries)
        scores, rows = self._visit(rotated, count, self._effort)
        if (short := np.flatnonzero((rows < 0).any(axis=1))).size:
            scores[short], rows[short] = self._exhaustive(rotated[short], count)
        return scores, rows

    def _visit(self, rotated: Singles, count: int, effort: int) -> tuple[Singles, Rows]:
        parameters: Any = None
        if self.layout.graph:
            parameters = faiss.SearchParametersHNSW(efSearch=max(effort, count))
        elif self.layout.lists:
            parameters = faiss.SearchParametersIVF(nprobe=effort)
            if self.layout.factory.startswith("OPQ"):
                parameters = faiss.SearchParametersPreTransform(index_params=parameters)
        scores, rows = self._index.search(rotated, count, params=parameters)
        return scores, rows

    def _exhaustive(self, rotated: Singles, count: int) -> tuple[Singles, Rows]:
        if not self.layout.graph:
            return self._visit(rotated, count, self.layout.max_effort)
        scores, rows = faiss.downcast_index(self._index.storage).search(rotated, count)
        return scores, rows


def _quiet(index: Any) -> list[Any]:
    """Let Faiss train on few rows without a warning on the terminal: recall is measured anyway.

    Returns what must live as long as the index.
    """
    index, made = faiss.downcast_index(index), []
    if isinstance(index, faiss.IndexPreTransform):
        opq = faiss.downcast_VectorTransform(index.chain.at(0))
        made.append(faiss.ProductQuantizer(opq.d_out, opq.M, 8))
        opq.pq = made[0]
        index = faiss.downcast_index(index.index)
    if hasattr(
        index, "do_polysemous_training"
    ):  # a second of annealing a part, for a search we never run
        index.do_polysemous_training = False
    for part in (index, getattr(index, "pq", None), *made):
        clustering: Any = getattr(part, "cp", None)
        if clustering is not None:
            clustering.min_points_per_centroid = 1
    return made


def _leading(sample: Singles, width: int) -> Singles:
    _, vectors = np.linalg.eigh((sample.T @ sample).astype(np.float64))
    return np.ascontiguousarray(vectors[:, ::-1][:, :width], dtype=np.float32)
