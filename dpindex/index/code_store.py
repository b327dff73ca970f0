"""What an index keeps: codes and their ids, in row order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from dpindex.arrays import AnyArray, Integers
from dpindex.codes import CodeFormat, Codes
from dpindex.index.ids import Ids

__all__ = ["CodeBuffer", "CodeStore"]

_BLOCK_NUMBERS = 1 << 22
"""Coordinates of codes that are handled together: 16 MB of float32."""


class CodeBuffer:
    """Stored codes in one array that doubles its room, and widens its integers where needed."""

    def __init__(self, format_: CodeFormat) -> None:
        self._format = format_
        self._room: Integers = np.empty((0, format_.width), dtype=np.int8)

    def first(self, count: int) -> Integers:
        """The first ``count`` rows, a view of shape (count, width)."""
        return self._room[:count]

    def put(self, count: int, rows: Integers) -> None:
        """Write rows after the first ``count``."""
        rows = self._format.concatenate([rows])  # as narrow as they can be
        end = count + len(rows)
        dtype = np.promote_types(rows.dtype, self._room.dtype) if count else rows.dtype
        if end > len(self._room) or dtype != self._room.dtype:
            room = np.empty((max(2 * count, end), rows.shape[1]), dtype=dtype)
            room[:count] = self._room[:count]
            self._room = room
        self._room[count:end] = rows


class CodeStore:
    """Codes of one format under unique ids. It keeps; what searches is rebuilt from it.

    Attributes
    ----------
    format : CodeFormat
        The format of all codes.
    removals : int
        How often codes were removed, which gives the rows after them new numbers.

    >>> from dpindex.codes import SignFormat
    >>> format_ = SignFormat(2, bytes(16))
    >>> store = CodeStore(format_)
    >>> codes = format_.codes(format_.pack(np.array([[True, False], [True, True]])))
    >>> store.append(codes, store.checked_ids(["a", "b"], 2))
    >>> store.remove(["a"]), store.ids.tolist(), store.codes.to_signs().tolist()
    (1, ['b'], [[1, 1]])
    """

    def __init__(self, format_: CodeFormat) -> None:
        self.format = format_
        self.removals = 0
        self._ids = Ids()
        self._buffer = CodeBuffer(format_)

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def ids(self) -> AnyArray:
        """The ids in row order, int64 or strings, shape (n,)."""
        return self._ids.array

    @property
    def codes(self) -> Codes:
        """All codes in row order, as a copy."""
        return self.format.codes(self._buffer.first(len(self)).copy())

    def checked_ids(self, ids: Any | None, count: int) -> AnyArray:
        """``ids`` as ``count`` new unique ids, or the next free numbers; else InputError."""
        return self._ids.check(ids, count)

    def append(self, codes: Codes, ids: AnyArray) -> None:
        """Add codes of the store's format under ids that :meth:`checked_ids` returned."""
        # The ids say how many rows there are: codes beyond, left by Ctrl-C, are overwritten.
        self._buffer.put(len(self), codes.stored)
        self._ids.append(ids)

    def take(self, rows: slice | npt.NDArray[np.int64]) -> Codes:
        """The codes of some rows."""
        return self.format.codes(self._buffer.first(len(self))[rows])

    def blocks(self, start: int = 0, rows: int | None = None) -> Iterator[Codes]:
        """The codes from row ``start`` on, in blocks of that many rows, or of a few megabytes."""
        step = rows or max(1, _BLOCK_NUMBERS // self.format.code_length)
        for first in range(start, len(self), step):
            yield self.take(slice(first, first + step))

    def remove(self, ids: Any) -> int:
        """Remove codes by id; returns how many.

        Raises
        ------
        InputError
            If one of the ids is not there; nothing is removed then.
        """
        rows = self._ids.rows(ids)
        kept = np.ones(len(self), dtype=np.bool_)
        kept[rows] = False
        buffer, left = CodeBuffer(self.format), self._ids.kept(kept)
        buffer.put(0, self._buffer.first(len(self))[kept])
        self._ids, self._buffer, self.removals = left, buffer, self.removals + 1
        return len(rows)
