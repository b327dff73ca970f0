"""Rows of original vectors that are read by their numbers, wherever they lie."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from dpindex.base.arrays import AnyArray, as_table, canonical_csr, issparse
from dpindex.base.files import release_pages
from dpindex.storage.row_parts import Rows
from dpindex.vectors.dataset import Dataset, open_dataset
from dpindex.vectors.source import as_source

__all__ = ["RowReader", "Rows", "open_rows"]


_MAPPED_BYTES = 1 << 28
"""Bytes of a memory map that are in memory at a time."""


class RowReader(ABC):
    """A table of vectors whose rows are read by number.

    Attributes
    ----------
    name : str
        What messages call it.
    rows, columns : int
    ids : array, optional
        The id of each row, where the table has ids.
    """

    name: str
    rows: int
    columns: int
    ids: AnyArray | None = None

    @abstractmethod
    def take(self, rows: Rows) -> Any:
        """Return the vectors of ascending row numbers, an array or a CSR matrix."""


class ArrayRows(RowReader):
    """Rows of an array or CSR matrix in memory, or of a memory map."""

    def __init__(self, array: Any, name: str = "the vectors to rerank by") -> None:
        as_source(array, name)  # refuses what is no matrix of numbers
        self.name = name
        self._array: Any = canonical_csr(array) if issparse(array) else as_table(array)
        self.rows, self.columns = self._array.shape
        self._is_mapped = _is_shared_map(array)

    def take(self, rows: Rows) -> Any:
        if not self._is_mapped or self._array.nbytes <= _MAPPED_BYTES:
            return self._array[rows]
        vectors = np.empty((len(rows), self.columns), self._array.dtype)
        # Pages near a row that is read are mapped with it, and count as memory until they are let
        # go of: one stretch of the file is mapped at a time.
        stretch = max(1, _MAPPED_BYTES * self.rows // self._array.nbytes)
        start = 0
        while start < len(rows):
            stop = start + int(np.searchsorted(rows[start:], rows[start] + stretch))
            vectors[start:stop] = self._array[rows[start:stop]]
            release_pages(self._array)
            start = stop
        return vectors


class DatasetRows(RowReader):
    """Rows of a dataset: the parts that hold them are read."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset
        self.name = dataset.name
        self.rows = dataset.rows
        self.columns = dataset.columns
        ids = [part.ids() for part in dataset.parts]
        if ids and all(part_ids is not None for part_ids in ids):
            self.ids = np.concatenate(ids)  # type: ignore[arg-type]

    def take(self, rows: Rows) -> Any:
        pieces = []
        first_row = 0
        for part in self._dataset.parts:
            start, stop = np.searchsorted(rows, [first_row, first_row + part.rows])
            if start < stop:
                pieces += self._of_part(part, rows[start:stop] - first_row)
            first_row += part.rows
        if not pieces:
            return np.empty((0, self.columns))
        return np.concatenate(pieces)

    def _of_part(self, part: Any, rows: Rows) -> list[AnyArray]:
        pieces = []
        with part.vectors() as source:
            for first, chunk in source.chunks(self._dataset.rows_at_a_time):
                start, stop = np.searchsorted(rows, [first, first + chunk.shape[0]])
                if start < stop:
                    vectors = chunk[rows[start:stop] - first]
                    pieces.append(vectors.toarray() if issparse(vectors) else vectors)
                if stop == len(rows):
                    break
        return pieces


def open_rows(vectors: Any) -> RowReader:
    """Return the reader of an array, a memory map, a sparse matrix, a file or a dataset.

    >>> open_rows(np.eye(3)).take(np.array([0, 2])).tolist()
    [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
    """
    if isinstance(vectors, Dataset):
        return DatasetRows(vectors)
    if not isinstance(vectors, str | os.PathLike):
        return ArrayRows(vectors)
    dataset = open_dataset(vectors)  # refuses a damaged file, with its name
    path = os.fsdecode(vectors)
    if path.lower().endswith(".npy"):
        return ArrayRows(np.load(path, mmap_mode="r", allow_pickle=False), path)
    return DatasetRows(dataset)


def _is_shared_map(array: Any) -> bool:
    """Return True for a memory map whose pages can be dropped without loss."""
    while isinstance(array, np.ndarray):
        if isinstance(array, np.memmap):
            return array.mode != "c"
        array = array.base
    return False
