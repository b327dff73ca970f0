"""Readers of vector files: one :class:`VectorSource` for every format, read in chunks.

Memory is bounded by the chunk that is asked for, not by the file. Whatever a file declares about
itself is checked against its size first; whatever is wrong with it raises an
:class:`~dpindex.base.errors.InputError` of one sentence.
"""

from __future__ import annotations

from dpindex.vectors.dataset import Dataset, open_dataset
from dpindex.vectors.payload import read_payload
from dpindex.vectors.persons import one_per_person
from dpindex.vectors.ranges import Ranges
from dpindex.vectors.readers import open_vectors, read_ids
from dpindex.vectors.source import VectorSource, as_source, dense_rows

__all__ = [
    "Dataset",
    "Ranges",
    "VectorSource",
    "as_source",
    "dense_rows",
    "one_per_person",
    "open_dataset",
    "open_vectors",
    "read_ids",
    "read_payload",
]
