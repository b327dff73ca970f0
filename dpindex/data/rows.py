"""Rows of original vectors, read from where they lie in any order."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dpindex.base.arrays import (
    AnyArray,
    Rows,
    release_pages,
    row_blocks,
)
from dpindex.base.tables import column_names
from dpindex.data.dataset import Dataset, open_dataset
from dpindex.data.source import in_memory

LARGE_MAP_BYTES = 1 << 29
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


@dataclass(frozen=True)
class RowTable:
    """A table of vectors whose rows are read by number.

    Attributes
    ----------
    name : str
        What messages call it.
    rows, columns : int
    attributes : tuple of str
        Names of the columns, if they have any.
    ids : array, optional
        The id of each row, where the table has ids.
    stretches : callable
        Yields, in order, stretches that hold ascending row numbers. A stretch is used before the
        next one is asked for.
    """

    name: str
    rows: int
    columns: int
    attributes: tuple[str, ...]
    ids: AnyArray | None
    stretches: Callable[[Rows], Iterator[Stretch]]


def open_rows(vectors: Any) -> RowTable:
    """Return the rows of an array, a memory map, a sparse matrix, a file or a dataset.

    >>> [(s.first, s.stop) for s in open_rows(np.eye(3)).stretches(np.array([0, 2]))]
    [(0, 3)]
    """
    name = "the vectors to rerank by"
    if isinstance(vectors, str | os.PathLike):
        name = os.fsdecode(vectors)
        vectors = open_dataset(name)  # refuses a damaged file, with its name
        if name.lower().endswith(".npy"):
            vectors = np.load(name, mmap_mode="r", allow_pickle=False)
    if isinstance(vectors, Dataset):
        stretches = partial(_of_dataset, vectors)
        shape = (vectors.rows, vectors.columns)
        return RowTable(vectors.name, *shape, vectors.attributes, vectors.ids(), stretches)
    array = in_memory(vectors, name)
    read: Callable[[Any, Rows], Iterator[Stretch]] = _of_array
    if _is_shared_map(vectors) and array.nbytes > LARGE_MAP_BYTES:
        read = _of_map
    rows, columns = array.shape
    return RowTable(name, rows, columns, column_names(vectors), None, partial(read, array))


def _of_array(array: Any, _: Rows) -> Iterator[Stretch]:
    """Yield the array as it lies: its user takes a few rows, and chunks would copy them all."""
    yield Stretch(0, array.shape[0], array)


def _of_map(array: AnyArray, rows: Rows) -> Iterator[Stretch]:
    """Yield one stretch of a memory map at a time.

    Pages near a row that is read are mapped with it, and count as memory until they are let go of.
    """
    size = LARGE_MAP_BYTES * len(array) // array.nbytes
    for block in row_blocks(len(array), size):
        if _have_between(rows, block.start, block.stop):
            yield Stretch(block.start, block.stop, array[block])
            release_pages(array)


def _of_dataset(dataset: Dataset, rows: Rows) -> Iterator[Stretch]:
    """Yield the parts that hold rows, each from its beginning to the last of them."""
    start = 0
    for part in dataset.parts:
        end = start + part.rows
        if _have_between(rows, start, end):
            last = rows[np.searchsorted(rows, end) - 1]
            with part.vectors() as source:
                for first, chunk in source.chunks(dataset.rows_at_a_time):
                    stretch = Stretch(start + first, start + first + chunk.shape[0], chunk)
                    yield stretch
                    if stretch.stop > last:
                        break
        start = end


def _have_between(rows: Rows, first: int, stop: int) -> bool:
    """Return True if one of the ascending rows lies in [first, stop)."""
    start, end = np.searchsorted(rows, [first, stop])
    return bool(start < end)


def _is_shared_map(array: Any) -> bool:
    """Return True for a memory map whose pages can be dropped without loss."""
    while isinstance(array, np.ndarray):
        if isinstance(array, np.memmap):
            return array.mode != "c"
        array = array.base
    return False
