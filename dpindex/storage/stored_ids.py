"""Ids of saved segments: without an object for each, and with strings in their mapped files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from dpindex.base.arrays import AnyArray, Bytes
from dpindex.base.errors import DamagedError, InputError
from dpindex.storage.row_parts import RowParts, Rows


class TextIds:
    """Strings that read like an array, kept as UTF-8 and four bytes for each.

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
        self.kind: str | None = None
        """ "i" for numbers, "U" for strings; None without ids."""
        keys = _NONE
        if blocks:
            self.kind = _kind_of(blocks)
            keys = _joined([_keys(block[:]) for block in blocks])
            if self.kind == "i":
                blocks = [keys]
        self._parts = RowParts(blocks)
        self._order: Rows | None = None  # of rows by key; None if keys ascend
        if not (keys[1:] > keys[:-1]).all():
            self._order = np.argsort(keys, kind="stable")
            keys = keys[self._order]
            self._refuse_twice(np.flatnonzero(keys[1:] == keys[:-1]), self._order)
        self._sorted = keys

    def _refuse_twice(self, places: Rows, order: Rows) -> None:
        """Refuse ids that are equal, among neighbours of equal keys."""
        first = order[places]
        second = order[places + 1]
        repeated = np.flatnonzero(self[first] == self[second])
        if len(repeated):
            row = int(second[repeated[0]])
            value = self[row : row + 1][0].item()
            raise InputError(
                f"id {value!r} (row {row}) is already in the index; ids must be unique."
            )

    def __len__(self) -> int:
        return len(self._parts)

    def __getitem__(self, rows: slice | Rows) -> AnyArray:
        if len(self):
            return self._parts.take(rows)
        return _NONE

    def rows(self, ids: AnyArray) -> Rows:
        """Return the row of each id, −1 for one that is not there."""
        rows = np.full(len(ids), -1, dtype=np.int64)
        if self.kind != ids.dtype.kind:
            return rows
        keys = _keys(ids)
        if self._order is None:
            place = places(self._sorted, keys)
        else:
            place = np.searchsorted(self._sorted, keys)
        open_ids = np.arange(len(ids))
        while True:  # a second time only for strings of equal hash
            open_ids = open_ids[place[open_ids] < len(self)]
            open_ids = open_ids[self._sorted[place[open_ids]] == keys[open_ids]]
            if not len(open_ids):
                return rows
            candidates = place[open_ids]
            if self._order is not None:
                candidates = self._order[candidates]
            same = self[candidates] == ids[open_ids]
            rows[open_ids[same]] = candidates[same]
            open_ids = open_ids[~same]
            place[open_ids] += 1

    def without(self, rows: Rows) -> StoredIds:
        """Return these ids but those of some rows."""
        kept = np.ones(len(self), dtype=np.bool_)
        kept[rows] = False
        return StoredIds(self._parts.where(kept).arrays)


_NONE: Rows = np.empty(0, dtype=np.int64)


def places(ascending: Rows, values: Rows) -> Rows:
    """Return how many of the strictly ascending numbers are below each value.

    >>> places(np.array([3, 4, 5]), np.array([9, 4, 1])), places(np.array([3, 7]), np.array([7, 4]))
    (array([3, 1, 0]), array([1, 1]))
    """
    count = len(ascending)
    if count:
        first = int(ascending[0])
        if int(ascending[-1]) - first == count - 1:  # default ids
            return np.clip(values - first, 0, count)
    return np.searchsorted(ascending, values)


def _kind_of(blocks: Sequence[IdBlock]) -> str:
    numbers = [isinstance(block, np.ndarray) and block.dtype.kind == "i" for block in blocks]
    if all(numbers):
        return "i"
    if any(numbers):
        raise DamagedError("some ids of this index are numbers and others strings.")
    return "U"


def _keys(ids: AnyArray) -> Rows:
    """Return numbers that are equal for equal ids: numbers themselves, hashes of strings."""
    if ids.dtype.kind == "i":
        return ids
    return np.fromiter(map(hash, ids.tolist()), np.int64, len(ids))


def _joined(arrays: Sequence[Rows]) -> Rows:
    if len(arrays) == 1:
        return arrays[0]
    return np.concatenate(arrays)
