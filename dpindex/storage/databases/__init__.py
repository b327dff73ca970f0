"""Vector databases that hold published codes: one module a database, behind one seam."""

from dpindex.storage.databases.conditions import Column, Condition, Dialect
from dpindex.storage.databases.database import Database, Layout, Rows
from dpindex.storage.databases.places import is_database_url, open_database

__all__ = [
    "Column",
    "Condition",
    "Database",
    "Dialect",
    "Layout",
    "Rows",
    "is_database_url",
    "open_database",
]
