"""The searchable index: Faiss stores over private codes, and segments on disk."""

from dpindex.index.build import build_index
from dpindex.index.private_index import Hits, PrivateIndex
from dpindex.index.segments import IndexDirectory
from dpindex.index.settings import Settings

__all__ = ["Hits", "IndexDirectory", "PrivateIndex", "Settings", "build_index"]
