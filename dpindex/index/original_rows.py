"""Rows of original vectors that are read by their numbers, wherever they lie."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from dpindex.base.arrays import AnyArray, as_table, canonical_csr, issparse, row_blocks
from dpindex.base.files import release_pages
from dpindex.data.dataset import Dataset, Part, open_dataset
from dpindex.data.source import as_source
from dpindex.storage.row_parts import Rows

__all__ = ["RowReader", "Rows", "Stretch", "open_rows"]


_MAPPED_BYTES = 1 << 29
"""Bytes of a memory map that are in memory at a time."""


class Stretch(NamedTuple):
    """Consecutive rows of a table.

    Attributes
    ----------
    first, stop : int
        Row numbers.
    vectors : array or CSR matrix, shape (stop − first, columns)
    """

    first: int
    stop: int
    vectors: Any


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
    def stretches(self, rows: Rows) -> Iterator[Stretch]:
        """Yield, in order, stretches that hold these ascending row numbers.

        A stretch is used before the next one is asked for.
        """


class ArrayRows(RowReader):
    """Rows of an array or CSR matrix in memory, or of a memory map."""

    def __init__(self, array: Any, name: str = "the vectors to rerank by") -> None:
        as_source(array, name)  # refuses what is no matrix of numbers
        self.name = name
        self._array: Any = canonical_csr(array) if issparse(array) else as_table(array)
        self.rows, self.columns = self._array.shape
        self._is_mapped = _is_shared_map(array)

    def stretches(self, rows: Rows) -> Iterator[Stretch]:
        if not self._is_mapped or self._array.nbytes <= _MAPPED_BYTES:
            yield Stretch(0, self.rows, self._array)
            return
        # Pages near a row that is read are mapped with it, and count as memory until they are let
        # go of: one stretch of the file is mapped at a time.
        size = _MAPPED_BYTES * self.rows // self._array.nbytes
        for block in row_blocks(self.rows, size):
            if _have_between(rows, block.start, block.stop):
                yield Stretch(block.start, block.stop, self._array[block])
                release_pages(self._array)


class DatasetRows(RowReader):
    """Rows of a dataset: the parts that hold them are read from their beginning."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset
        self.name = dataset.name
        self.rows = dataset.rows
        self.columns = dataset.columns
        ids = [part.ids() for part in dataset.parts]
        if ids and all(part_ids is not None for part_ids in ids):
            self.ids = np.concatenate(ids)  # type: ignore[arg-type]

    def stretches(self, rows: Rows) -> Iterator[Stretch]:
        start = 0
        for part in self._dataset.parts:
            if _have_between(rows, start, start + part.rows):
                yield from self._of_part(part, start, rows)
            start += part.rows

    def _of_part(self, part: Part, start: int, rows: Rows) -> Iterator[Stretch]:
        last = rows[np.searchsorted(rows, start + part.rows) - 1]
        with part.vectors() as source:
            for first, chunk in source.chunks(self._dataset.rows_at_a_time):
                stretch = Stretch(start + first, start + first + chunk.shape[0], chunk)
                yield stretch
                if stretch.stop > last:
                    return


def _have_between(rows: Rows, first: int, stop: int) -> bool:
    """Return True if one of the ascending rows lies in [first, stop)."""
    start, end = np.searchsorted(rows, [first, stop])
    return bool(start < end)


def open_rows(vectors: Any) -> RowReader:
    """Return the reader of an array, a memory map, a sparse matrix, a file or a dataset.

    >>> [(s.first, s.stop) for s in open_rows(np.eye(3)).stretches(np.array([0, 2]))]
    [(0, 3)]
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
