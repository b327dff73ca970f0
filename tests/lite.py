"""Engines that run here: those that are not installed are reported as skipped."""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import Any

import pytest


def _place(name: str, *modules: str) -> Any:
    missing = []
    for module in modules:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # Milvus still uses pkg_resources
                import_module(module)
        except ImportError:
            missing.append(module)
    return pytest.param(name, marks=pytest.mark.skipif(bool(missing), reason=f"no {missing}"))


PLACES = [_place("x.db", "pymilvus", "milvus_lite"), _place("x.lance", "lancedb")]
"""Addresses to publish to, in a folder of a test."""
FILTERS = [
    "ignore:.*pkg_resources",
    "ignore::ResourceWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
]
LITE = [pytest.mark.slow, *map(pytest.mark.filterwarnings, FILTERS)]
"""Marks of tests that use them, which take a second to start."""
