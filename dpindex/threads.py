"""How many threads BLAS and OpenMP use on a machine that others use too."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from threadpoolctl import ThreadpoolController

from dpindex.arrays import cores

__all__ = ["idle_cores", "limited_threads"]


def idle_cores() -> int:
    """Processors that this process may use and that others left idle in the last minute, [1, ∞)."""
    try:
        busy = os.getloadavg()[0]
    except (AttributeError, OSError):  # not on this system
        busy = 0.0
    return max(1, round(cores() - busy))


@contextmanager
def limited_threads(most: int | None = None) -> Iterator[None]:
    """Let BLAS and OpenMP have at most so many threads; by default, as many as idle processors.

    Threads of these pools wait for each other after every small operation. Where one of them has no
    processor, the others spin, and the work takes several times as long as with a single thread.
    Pools are never enlarged, so ``OMP_NUM_THREADS`` and other limits hold. They are those of the
    whole process, so this is for commands and long measurements, and not for a search in a server.
    A pool that is loaded later is not limited; SciPy's comes with ``scipy.linalg``.

    >>> with limited_threads():
    ...     _ = sum(range(10))
    """
    pools = ThreadpoolController()
    now = [pool.num_threads or 1 for pool in pools.lib_controllers]
    with pools.limit(limits=min([most or idle_cores(), *now])):
        yield
