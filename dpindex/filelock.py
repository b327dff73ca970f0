"""The operating system's lock on an open file: it dies with the process that holds it."""

from __future__ import annotations

try:
    import fcntl
except ImportError:  # pragma: no cover - no advisory locks on this platform
    fcntl = None  # type: ignore[assignment]

__all__ = ["locked"]


def locked(handle: int) -> bool:
    """Take the lock of an open file without waiting; False if another holder has it."""
    if fcntl is not None:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
    return True
