"""The door of a search structure: searches go in one by one, and are inside together."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Door:
    """Lets searches in, in the order in which they came.

    The search at the door may change what is inside, alone. It waits only for those that came
    before it and for searches that run, and none of them waits for it: so each gets in, as each
    search ends.

    >>> door, rows = Door(), [1]
    >>> with door.passed(lambda: len(rows) == 2, lambda: rows.append(2)):
    ...     print(rows)
    [1, 2]
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._queue: deque[object] = deque()
        self._inside = 0

    # Ctrl-C may strike at any call, so what was taken is given back in ``finally``.

    @contextmanager
    def passed(self, is_ready: Callable[[], bool], prepare: Callable[[], object]) -> Iterator[None]:
        """Wait until it is one's turn, ``prepare`` alone unless all ``is_ready``, and be inside."""
        me = object()
        is_inside = False
        try:
            with self._changed:
                self._queue.append(me)
                while self._queue[0] is not me:
                    self._changed.wait()
            if not is_ready():
                with self._changed:
                    while self._inside:
                        self._changed.wait()
                prepare()
            with self._changed:
                self._inside += 1
                is_inside = True
                self._queue.remove(me)
                self._changed.notify_all()
            yield
        finally:
            with self._changed:
                self._inside -= is_inside
                if me in self._queue:
                    self._queue.remove(me)
                self._changed.notify_all()
