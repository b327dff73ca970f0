"""A lock that many readers share and one writer has alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class ReadWriteLock:
    """Shared by readers, exclusive for a writer, who is not starved by new readers."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._readers = 0
        self._writing = False
        self._waiting = 0

    # Ctrl-C may strike at any call, so what was taken is recorded inside the ``try``.

    @contextmanager
    def read(self) -> Iterator[None]:
        held = False
        try:
            with self._condition:
                self._condition.wait_for(lambda: not self._writing and not self._waiting)
                self._readers += 1
                held = True
            yield
        finally:
            with self._condition:
                self._readers -= held
                self._condition.notify_all()

    @contextmanager
    def write(self) -> Iterator[None]:
        held = waiting = False
        try:
            with self._condition:
                self._waiting += 1
                waiting = True
                self._condition.wait_for(lambda: not self._writing and not self._readers)
                self._writing = held = True
            yield
        finally:
            with self._condition:
                self._waiting -= waiting
                self._writing = self._writing and not held
                self._condition.notify_all()
