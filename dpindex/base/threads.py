"""Threads: how many there are, what they share, and how many a library may have."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache
from threading import Lock
from typing import Any, TypeVar

_THREAD = threading.local()


def cores() -> int:
    """Processors this process may use; 1 in a thread that shares them with others of ours."""
    if getattr(_THREAD, "shares", False):
        return 1
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def share_cores() -> None:
    """Use one processor in this thread from now on: others like it use the rest."""
    _THREAD.shares = True


_M_TRIM_THRESHOLD = -1


_M_MMAP_THRESHOLD = -3


_Item = TypeVar("_Item")


_Result = TypeVar("_Result")


@cache
def keep_freed_memory() -> None:
    """Let glibc keep freed blocks of up to 32 MB for the next arrays of this process.

    Else every array is handed to the kernel and faulted in again, page by page, a third of the time
    of privatizing. It holds under the environment of Dask's workers too, which asks for that.
    """
    with suppress(AttributeError, OSError, TypeError):  # another C library
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, 1 << 25)
        libc.mallopt(_M_TRIM_THRESHOLD, 1 << 27)


def map_from_both_ends(
    task: Callable[[_Item], _Result],
    items: Sequence[_Item],
    workers: int,
) -> list[_Result]:
    """Return the results of all items in their order, computed by ``workers`` threads.

    The calling thread works too, from the last item backwards, until it meets the others: a thread
    that only waits for each result in turn is woken by every one, and takes the interpreter's lock
    from those that work. The first exception stops what has not begun and is raised.

    >>> map_from_both_ends(abs, [-1, 2, -3], workers=2)
    [1, 2, 3]
    """
    if workers == 1:
        return list(map(task, items))
    with ThreadPoolExecutor(workers - 1) as pool:
        others = [pool.submit(task, item) for item in items]
        last: list[_Result] = []
        try:
            for item, other in zip(reversed(items), reversed(others), strict=True):
                if not other.cancel():
                    break
                last.append(task(item))
            rest = others[: len(items) - len(last)]
            first = [other.result() for other in rest]
        finally:
            pool.shutdown(cancel_futures=True)
    return [*first, *reversed(last)]


def idle_cores() -> int:
    """Processors that this process may use and that others left idle in the last minute, [1, ∞)."""
    try:
        busy = os.getloadavg()[0]
    except (AttributeError, OSError):  # not on this system
        busy = 0.0
    return max(1, round(cores() - busy))


_lock = Lock()


_limits: list[int] = []


_before: dict[str, tuple[Any, int]] = {}
"""By file: pools of the process, and their threads before the first of the active limits."""


@contextmanager
def limited_threads(most: int | None = None) -> Iterator[None]:
    """Limit the threads of BLAS and OpenMP; by default, to the number of idle processors.

    Threads of these pools wait for each other after every small operation. Where one of them has no
    processor, the others spin, and the work takes several times as long as with a single thread.
    Pools are never enlarged, so ``OMP_NUM_THREADS`` and other limits hold.

    NumPy's pool is that of the whole process, so this is for commands and long operations, and not
    for a search in a server. Limits may overlap, nested or in several threads: the lowest of them
    holds, and the last to end gives the pool back what it had before the first. OpenMP, which Faiss
    uses, is limited in the calling thread alone. A pool that is loaded later is not limited.

    >>> with limited_threads():
    ...     _ = sum(range(10))
    """
    from threadpoolctl import ThreadpoolController  # long operations alone need it

    limit = most or idle_cores()
    pools = ThreadpoolController()
    openmp = pools.select(user_api="openmp", threading_layer="openmp").lib_controllers
    own = [(pool, pool.num_threads or 1) for pool in openmp]
    with _lock:
        for pool in pools.lib_controllers:
            if pool not in openmp:
                _before.setdefault(pool.filepath, (pool, pool.num_threads or 1))
        _limits.append(limit)
        _set_pools(pools)
    try:
        for pool, threads in own:
            pool.set_num_threads(min(threads, limit))
        yield
    finally:
        for pool, threads in own:
            pool.set_num_threads(threads)
        with _lock:
            _limits.remove(limit)
            _set_pools(pools)
            if not _limits:
                _before.clear()


def _set_pools(pools: Any) -> None:
    """Let pools of the process have what they had before, or the lowest limit if that is less."""
    # threadpoolctl lets no other thread set OpenBLAS until the one that did leaves such a block.
    with pools.select().limit():
        for pool, threads in _before.values():
            pool.set_num_threads(min([threads, *_limits]))
