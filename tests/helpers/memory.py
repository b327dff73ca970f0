"""How much memory a block of a test takes."""

import tracemalloc
from contextlib import contextmanager
from types import SimpleNamespace


@contextmanager
def peak_memory():
    """Counts in ``bytes`` what Python and NumPy held at most in the block."""
    peak = SimpleNamespace(bytes=0)
    tracemalloc.start()
    try:
        yield peak
        _, peak.bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
