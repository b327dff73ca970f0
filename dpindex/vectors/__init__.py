"""Readers of vector files: every format behind one face, streamed in chunks.

Memory is bounded by the chunk that is asked for, not by the file. Nothing a file says about itself
is believed before it has been checked against the file's size; whatever is wrong with it, the
answer is an :class:`~dpindex.errors.InputError` of one sentence.
"""

from __future__ import annotations

from dpindex.vectors.formats import open_vectors
from dpindex.vectors.ids import read_ids
from dpindex.vectors.source import VectorSource, as_source

__all__ = ["VectorSource", "as_source", "open_vectors", "read_ids"]
