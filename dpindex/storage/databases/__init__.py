"""Vector databases that hold published codes: one module an engine, behind one seam."""

from dpindex.storage.databases.conditions import Column, Condition, Dialect
from dpindex.storage.databases.engine import Engine, Layout, Rows
from dpindex.storage.databases.places import is_engine_url, open_engine

__all__ = [
    "Column",
    "Condition",
    "Dialect",
    "Engine",
    "Layout",
    "Rows",
    "is_engine_url",
    "open_engine",
]
