"""Stored codes in one growing array."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dpindex.arrays import Integers
from dpindex.codes.numbers import narrowest

__all__ = ["CodeBuffer"]


class CodeBuffer:
    """Rows in one array that doubles its room; widens its integers when new rows need it."""

    def __init__(self) -> None:
        self._room: npt.NDArray[Any] = np.empty((0, 0), dtype=np.int8)

    def first(self, count: int) -> Integers:
        """The first ``count`` rows, a view of shape (count, width)."""
        return self._room[:count]

    def put(self, count: int, rows: Integers) -> None:
        """Write rows after the first ``count``."""
        rows = rows if rows.dtype == np.uint8 else narrowest(rows)
        wider = rows.dtype.itemsize > self._room.itemsize
        if count == 0:
            self._room = rows.copy()
        elif count + len(rows) > len(self._room) or wider:
            dtype = rows.dtype if wider else self._room.dtype
            room = np.empty((max(2 * count, count + len(rows)), rows.shape[1]), dtype=dtype)
            room[:count] = self._room[:count]
            room[count : count + len(rows)] = rows
            self._room = room
        else:
            self._room[count : count + len(rows)] = rows
