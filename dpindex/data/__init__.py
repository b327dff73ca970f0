"""Readers of vector files: one :class:`VectorSource` for every format, read in chunks.

Memory is bounded by the chunk that is asked for, not by the file; only a .npz file is loaded whole,
and refused where it would take far more memory than its size. Whatever a file declares about
itself is checked against its size first; whatever is wrong with it raises an
:class:`~dpindex.base.errors.InputError` of one sentence.
"""

from __future__ import annotations

from dpindex.data.dataset import Dataset, open_dataset
from dpindex.data.ranges import Ranges, one_per_person
from dpindex.data.readers import open_vectors, read_ids
from dpindex.data.source import VectorSource, as_source, dense_rows, taken_rows
from dpindex.data.tables import TABLE_SUFFIXES, read_payload, read_tables

__all__ = [
    "TABLE_SUFFIXES",
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
    "read_tables",
    "taken_rows",
]
