"""Vector databases that hold published codes: one module an engine, behind one seam."""

from dpindex.engines.conditions import Column, Condition, Dialect
from dpindex.engines.engine import Engine, Layout, Rows
from dpindex.engines.places import is_engine_url, open_engine

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
