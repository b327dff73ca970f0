"""Milvus Lite for tests: reported as skipped where it is not installed."""

from __future__ import annotations

import warnings

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it still uses pkg_resources
    pytest.importorskip("pymilvus")
    pytest.importorskip("milvus_lite")

FILTERS = [
    "ignore:.*pkg_resources",
    "ignore::ResourceWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
]
LITE = [pytest.mark.slow, *map(pytest.mark.filterwarnings, FILTERS)]
"""Marks of tests that use it, which takes a second to start."""
