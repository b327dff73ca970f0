"""Ids of saved segments: no object for an id, and the text of strings stays in its mapped file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from dpindex.base.arrays import AnyArray, Bytes
from dpindex.base.errors import DamagedError, InputError
from dpindex.storage.row_parts import RowParts, Rows


class TextIds:
    """Strings that read like an array, kept as UTF-8 with four bytes more for each.

    Parameters
    ----------
    text : uint8 array
        All strings, one after the other.
    lengths : integer array, shape (n,)
        Of each in characters; their sum is that of the text.

    >>> ids = TextIds(np.frombuffer("aüb".encode(), np.uint8), np.array([2, 1]))
    >>> ids[np.array([1, 0])].tolist(), ids[:1].tolist()
    (['b', 'aü'], ['aü'])
    """

    def __init__(self, text: Bytes, lengths: npt.NDArray[np.integer[Any]]) -> None:
        begins = np.append(np.flatnonzero((text & 0xC0) != 0x80), len(text))  # of characters
        ends = np.cumsum(lengths, dtype=np.int64)
        self._text = text
        self._ends = np.append(0, begins[ends]).astype(np.uint32)

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, rows: slice | Rows) -> AnyArray:
        pairs = zip(self._ends[:-1][rows].tolist(), self._ends[1:][rows].tolist(), strict=True)
        text = self._text.data
        return np.array([str(text[start:end], "utf-8") for start, end in pairs], dtype=np.str_)


IdBlock: TypeAlias = "AnyArray | TextIds"


class StoredIds:
    """The ids of saved segments, read like an array, and the row of each.

    Numbers that ascend, as the default ones do, take 8 bytes each; others, and strings, 16 more.

    Parameters
    ----------
    blocks : sequence of int64 arrays, or of TextIds or unicode arrays

    Raises
    ------
    InputError
        If blocks are of both kinds, or an id stands there twice.

    >>> ids = StoredIds([np.array([5, 3]), np.array([9])])
    >>> ids[np.array([2, 0])], ids.rows(np.array([3, 4]))
    (array([9, 5]), array([ 1, -1]))
    """

    def __init__(self, blocks: Sequence[IdBlock] = ()) -> None:
        blocks = [block for block in blocks if len(block)]
        kinds = {"i" if _is_numbers(block) else "U" for block in blocks}
        if len(kinds) > 1:
            raise DamagedError("some ids of this index are numbers and others strings.")
        self.kind = kinds.pop() if kinds else None
        """ "i" for numbers, "U" for strings; None without ids."""
        self._parts = RowParts(
            [np.concatenate([*map(np.asarray, blocks)])] if self.kind == "i" else blocks
        )
        parts = [_keys(part[:]) for part in self._parts.arrays] or [_NONE]
        keys = np.concatenate(parts) if parts[1:] else parts[0]
        self._order: Rows | None = None  # of rows by key; None if keys ascend
        if not (keys[1:] > keys[:-1]).all():
            self._order = np.argsort(keys, kind="stable")
            keys = keys[self._order]
            self._refuse_twice(np.flatnonzero(keys[1:] == keys[:-1]), self._order)
        self._sorted = keys

    def _refuse_twice(self, places: Rows, order: Rows) -> None:
        first = order[places]
        second = order[places + 1]
        if len(twice := np.flatnonzero(self[first] == self[second])):
            row = int(second[twice[0]])
            raise InputError(
                f"id {self[row : row + 1][0].item()!r} (row {row}) is already in the "
                f"index; ids must be unique."
            )

    def __len__(self) -> int:
        return len(self._parts)

    def __getitem__(self, rows: slice | Rows) -> AnyArray:
        if len(self):
            return self._parts.take(rows)
        return _NONE

    def rows(self, wanted: AnyArray) -> Rows:
        """The row of each id, −1 for one that is not there."""
        found = np.full(len(wanted), -1, dtype=np.int64)
        if self.kind != wanted.dtype.kind:
            return found
        keys = _keys(wanted)
        ascending = self._order is None
        place = places(self._sorted, keys) if ascending else np.searchsorted(self._sorted, keys)
        left = np.arange(len(wanted))
        while True:  # a second time only for strings of equal hash
            left = left[place[left] < len(self)]
            left = left[self._sorted[place[left]] == keys[left]]
            if not len(left):
                return found
            rows = place[left] if self._order is None else self._order[place[left]]
            same = self[rows] == wanted[left]
            found[left[same]] = rows[same]
            left = left[~same]
            place[left] += 1

    def without(self, rows: Rows) -> StoredIds:
        """These ids but those of some rows."""
        kept = np.ones(len(self), dtype=np.bool_)
        kept[rows] = False
        return StoredIds(
            [
                block if (here := kept[start : start + len(block)]).all()
                else block[np.flatnonzero(here)]
                for start, block in self._parts
            ]
        )  # fmt: skip


_NONE: Rows = np.empty(0, dtype=np.int64)


def places(ascending: Rows, wanted: Rows) -> Rows:
    """How many of the strictly ascending numbers are below each of ``wanted``.

    >>> places(np.array([3, 4, 5]), np.array([9, 4, 1])), places(np.array([3, 7]), np.array([7, 4]))
    (array([3, 1, 0]), array([1, 1]))
    """
    count = len(ascending)
    if count and int(ascending[-1]) - (first := int(ascending[0])) == count - 1:  # default ids
        return np.clip(wanted - first, 0, count)
    return np.searchsorted(ascending, wanted)


def _is_numbers(block: IdBlock) -> bool:
    return isinstance(block, np.ndarray) and block.dtype.kind == "i"


def _keys(ids: AnyArray) -> Rows:
    """Numbers that are equal for equal ids: numbers themselves, and Python's hash of strings."""
    if ids.dtype.kind == "i":
        return ids
    return np.fromiter(map(hash, ids.tolist()), np.int64, len(ids))
