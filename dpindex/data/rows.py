"""Rows of original vectors, read from where they lie in any order."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from dpindex.base.arrays import Rows
from dpindex.base.files import release_pages
from dpindex.data.dataset import Dataset, in_parts, open_dataset
from dpindex.data.source import Location, VectorSource, as_source

LARGE_MAP_BYTES = 1 << 29
"""Bytes of vectors in memory, or of a memory map, that are compared as they lie."""


class Stretch(NamedTuple):
    """Consecutive rows of a dataset.

    Attributes
    ----------
    first, stop : int
        Row numbers.
    vectors : array or CSR matrix, shape (stop − first, columns)
    """

    first: int
    stop: int
    vectors: Any


def open_rows(vectors: Any) -> Dataset:
    """Return the rows of an array, a memory map, a sparse matrix, a file or a dataset.

    >>> open_rows(np.eye(3)).rows
    3
    """
    name = "the vectors to rerank by"
    if isinstance(vectors, str | os.PathLike):
        name = os.fsdecode(vectors)
        vectors = open_dataset(name)  # refuses a damaged file, with its name
        if name.lower().endswith(".npy"):
            vectors = np.load(name, mmap_mode="r", allow_pickle=False)
    if isinstance(vectors, Dataset):
        return vectors
    source = as_source(vectors, name)
    rows, columns = source.shape
    at_once = rows
    if not source.is_sparse:
        at_once = max(1, LARGE_MAP_BYTES // (columns * source.dtype.itemsize))

    def read(start: int, count: int) -> VectorSource:
        # Each part anew: searches in several threads share them.
        _, chunk = next(source.chunks(count, start))
        return VectorSource.in_memory(Location(name), chunk)

    return replace(in_parts(source, at_once, read), rows_at_a_time=at_once)


def stretches(dataset: Dataset, rows: Rows) -> Iterator[Stretch]:
    """Yield stretches that hold ascending rows, in order; each is used before the next is made.

    Of a part that holds rows it is read from its beginning to the last of them.

    >>> [(s.first, s.stop) for s in stretches(open_rows(np.eye(3)), np.array([0, 2]))]
    [(0, 3)]
    """
    start = 0
    for part in dataset.parts:
        stop = start + part.rows
        first, end = np.searchsorted(rows, [start, stop])
        if first < end:
            last = rows[end - 1]
            with part.vectors() as source:
                for begin, chunk in source.chunks(dataset.rows_at_a_time):
                    stretch = Stretch(start + begin, start + begin + chunk.shape[0], chunk)
                    yield stretch
                    if len(dataset.parts) > 1 and _is_shared_map(chunk):
                        # Pages near a row are mapped with it, and count as memory until then.
                        release_pages(chunk)
                    if stretch.stop > last:
                        break
        start = stop


def _is_shared_map(array: Any) -> bool:
    """Return True for a memory map whose pages can be dropped without loss."""
    while isinstance(array, np.ndarray):
        if isinstance(array, np.memmap):
            return array.mode != "c"
        array = array.base
    return False
