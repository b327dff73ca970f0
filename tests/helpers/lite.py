"""Engines that run here: those that are not installed are reported as skipped."""

from importlib.util import find_spec

import psutil
import pytest

from dpindex.integrations.database import Layout
from helpers.postgres_server import has_pgvector, new_database, programs


def _place(name, *modules):
    # Not imported: that takes seconds in each process that collects tests.
    missing = [module for module in modules if find_spec(module) is None]
    marks = [pytest.mark.extra, pytest.mark.skipif(bool(missing), reason=f"no {missing}")]
    return pytest.param(name, marks=marks)


def _postgres():
    """PostgreSQL with pgvector, which all kinds of codes need."""
    if not has_pgvector():
        kind = "" if programs() is None else " with pgvector"
        mark = pytest.mark.skip(reason=f"no PostgreSQL{kind} is installed")
        return pytest.param("postgresql", marks=[pytest.mark.extra, mark])
    return _place("postgresql", "psycopg")


PLACES = [
    _place("x.db", "pymilvus", "milvus_lite"),
    _place("x.lance", "lancedb"),
    _place("x.parquet", "duckdb"),
    _postgres(),
]
"""Where to publish to: see :func:`address`."""


def address(folder, place):
    """An address to publish to: in a folder of a test, or a new database of a server."""
    if place == "postgresql":
        return new_database()
    return str(folder / place)


def layout(columns=None):
    """Of a small table of codes and vectors."""
    return Layout(False, 2, 3, "ip", columns)


def end_with_children(process, number):
    """Send a signal; return when the process and all that it started, as Milvus Lite, are gone."""
    if process.poll() is None:
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(number)
        process.wait()
        psutil.wait_procs(children, timeout=600)


FILTERS = [
    "ignore:.*pkg_resources",
    "ignore::ResourceWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
]
LITE = [
    pytest.mark.slow,
    pytest.mark.usefixtures("eager_milvus"),
    *map(pytest.mark.filterwarnings, FILTERS),
]
"""Marks of tests that use them, which take a second to start."""
