"""The searchable index: codes and their ids, what searches them, and the directory they lie in.

Vectors are privatized into an index by :mod:`dpindex.index.ingest`, which is imported apart from
the rest: who only searches never imports the secret stream.
"""

from dpindex.estimators.similarity import Metric
from dpindex.index.asked import QueryMode
from dpindex.index.directory import IndexDirectory, Settings, Summary, summarize
from dpindex.index.hits import Hits
from dpindex.index.private_index import PrivateIndex
from dpindex.index.published import PublishedIndex, connect

__all__ = [
    "Hits",
    "IndexDirectory",
    "Metric",
    "PrivateIndex",
    "PublishedIndex",
    "QueryMode",
    "Settings",
    "Summary",
    "connect",
    "summarize",
]
