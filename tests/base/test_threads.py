"""Thread pools: limited to idle processors while work lasts, never enlarged, and given back."""

import os
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import faiss
import numpy as np
import pytest
from helpers.common import attribute_spec, filled_index
from threadpoolctl import threadpool_info, threadpool_limits

from dpindex.base import threads
from dpindex.base.threads import idle_cores, limited_threads
from dpindex.decode.denoiser import Channel


def sizes():
    return [pool["num_threads"] for pool in threadpool_info()]


@pytest.mark.parametrize(
    "processors, load, idle",
    [
        (8, 0.2, 8),
        (8, 5.6, 2),
        (8, 30.0, 1),
        (1, 0.0, 1),
    ],
)
def test_idle_processors_are_those_that_others_leave(processors, load, idle, monkeypatch):
    monkeypatch.setattr(threads, "cores", lambda: processors)
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0), raising=False)
    assert idle_cores() == idle


def test_without_a_load_average_all_processors_count(monkeypatch):
    monkeypatch.delattr(os, "getloadavg", raising=False)
    monkeypatch.setattr(threads, "cores", lambda: 6)
    assert idle_cores() == 6


def test_pools_are_limited_and_given_back(monkeypatch):
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
            for size, most in zip(sizes(), before, strict=True):
                assert size <= most


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("limits, kept", [((1, 1), (1, 1)), ((1, 2), (2, 1)), ((2, 1), (1, 2))])
def test_limits_may_overlap_in_threads(first, limits, kept):
    """While one of two is left its limit holds, and afterwards there is none."""
    np.ones((4, 4)) @ np.ones((4, 4))
    before = sizes()
    openmp = faiss.omp_get_max_threads()
    inside = [Event(), Event()]
    leave = [Event(), Event()]
    left = [Event(), Event()]
    end = [Event(), Event()]

    def work(number):
        with limited_threads(limits[number]):
            inside[number].set()
            leave[number].wait(600)
            within = faiss.omp_get_max_threads()
        left[number].set()
        end[number].wait(600)
        return within, faiss.omp_get_max_threads()

    def shared():
        """The most threads of pools that all threads share; OpenMP's are of this thread alone."""
        own = [pool for pool in threadpool_info() if not of_openmp(pool)]
        return max(pool["num_threads"] for pool in own)

    most = shared()
    with ThreadPoolExecutor(2) as pool:
        results = []
        for number in (0, 1):
            results.append(pool.submit(work, number))
            assert inside[number].wait(600)
        assert shared() == min(most, *limits)
        assert faiss.omp_get_max_threads() == openmp
        for number in (first, 1 - first):
            leave[number].set()
            assert left[number].wait(600)
            expected = min(most, kept[number]) if number == first else most
            assert shared() == expected
        for event in end:
            event.set()
        for limit, result in zip(limits, results, strict=True):
            assert result.result() == (min(limit, openmp), openmp)
    assert sizes() == before


def test_limits_may_be_nested():
    with threadpool_limits(limits=3):
        before = sizes()
        with limited_threads(2):
            outer = sizes()
            for inner in (1, 2, 64):
                with limited_threads(inner):
                    assert max(sizes()) <= min(inner, 2)
                assert sizes() == outer
        assert sizes() == before


def test_blocks_of_codes_are_denoised_without_threads_of_blas(
    monkeypatch,
):
    """They have threads of their own, in the fit and where an index ranks by its result."""
    import faiss  # noqa: F401  # a pool that is loaded later is not limited

    rng = np.random.default_rng(0)
    seen = []
    run = Channel.for_each_block

    def watched(self, count, action):
        seen.append(sizes())
        run(self, count, action)

    monkeypatch.setattr(Channel, "for_each_block", watched)
    base = rng.random((2000, 2)) @ rng.random((2, 8))
    spec = attribute_spec("raw-staircase", 8, epsilon=8.0, bounds=(0, 2))
    index = filled_index(spec, base)
    index.fit_denoiser("score")
    fitted = len(seen)
    index.search(base[:3], k=5)
    assert 0 < fitted < len(seen)
    assert all(set(pools) == {1} for pools in seen)


def of_openmp(pool):
    return "openmp" in (pool["user_api"], pool.get("threading_layer"))
