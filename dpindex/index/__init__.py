"""The searchable index: Faiss stores over private codes, and segments on disk."""

from dpindex.index.build import build_index
from dpindex.index.private_index import Hits, PrivateIndex
from dpindex.index.queries import QueryMode
from dpindex.index.segments import IndexDirectory
from dpindex.index.settings import Metric, Settings, Storage

__all__ = [
    "Hits",
    "IndexDirectory",
    "Metric",
    "PrivateIndex",
    "QueryMode",
    "Settings",
    "Storage",
    "build_index",
]
