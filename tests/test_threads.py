"""Thread pools: limited to idle processors while work lasts, never enlarged, and given back."""

from __future__ import annotations

import os
import subprocess
import sys

import faiss
import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from dpindex import threads
from dpindex.threads import idle_cores, limited_threads


def sizes() -> list[int]:
    return [pool["num_threads"] for pool in threadpool_info()]


@pytest.mark.parametrize(
    ("processors", "load", "idle"), [(8, 0.2, 8), (8, 5.6, 2), (8, 30.0, 1), (1, 0.0, 1)]
)
def test_idle_processors_are_those_that_others_leave(
    processors: int, load: float, idle: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "cores", lambda: processors)
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0), raising=False)
    assert idle_cores() == idle


def test_without_a_load_average_all_processors_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "getloadavg", raising=False)
    monkeypatch.setattr(threads, "cores", lambda: 6)
    assert idle_cores() == 6


def test_pools_are_limited_and_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    np.ones((4, 4)) @ np.ones((4, 4))
    with threadpool_limits(limits=3):
        before = sizes()
        assert before
        monkeypatch.setattr(threads, "idle_cores", lambda: 2)
        with limited_threads():
            assert all(size <= 2 for size in sizes())
            assert faiss.omp_get_max_threads() <= 2
        assert sizes() == before
        monkeypatch.setattr(threads, "idle_cores", lambda: 64)
        with limited_threads():
            assert all(after <= size for after, size in zip(sizes(), before, strict=True))
        with limited_threads(1):
            assert set(sizes()) == {1}


@pytest.mark.parametrize("module", ["dpindex.evaluate.curve", "dpindex.planner.planner"])
def test_the_pool_of_scipy_is_limited_too(module: str) -> None:
    """SciPy brings its own, which comes with its linear algebra."""
    code = (
        f"import {module}, sys\n"
        "assert 'scipy.linalg' in sys.modules\n"
        "from dpindex.threads import limited_threads\n"
        "with limited_threads(1):\n"
        "    import threadpoolctl\n"
        "    assert {pool['num_threads'] for pool in threadpoolctl.threadpool_info()} == {1}\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
