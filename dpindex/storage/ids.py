"""Ids of saved segments: how they lie in files, and in which row each of them stands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from dpindex.base.arrays import AnyArray, Bytes, RowParts, Rows
from dpindex.base.errors import DamagedError, InputError
from dpindex.base.files import Buffer, pack, unpack
from dpindex.base.ids import MAX_ID_LENGTH


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

    dtype = np.dtype(np.str_)

    def __init__(self, text: Bytes, lengths: npt.NDArray[np.integer[Any]]) -> None:
        is_first = (text & 0xC0) != 0x80  # of the bytes of a character
        begins = np.append(np.flatnonzero(is_first), len(text))
        stops = np.cumsum(lengths, dtype=np.int64)
        starts = np.append(0, begins[stops])
        self._text = text
        self._starts = starts.astype(np.uint32)

    def __len__(self) -> int:
        return len(self._starts) - 1

    def __getitem__(self, rows: slice | Rows) -> AnyArray:
        starts = self._starts[:-1][rows].tolist()
        ends = self._starts[1:][rows].tolist()
        text = self._text.data
        pairs = zip(starts, ends, strict=True)
        strings = [str(text[start:end], "utf-8") for start, end in pairs]
        return np.array(strings, dtype=np.str_)


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
        kinds = {block.dtype.kind for block in blocks}
        if len(kinds) > 1:
            raise DamagedError("some ids are numbers and others strings; write all as strings.")
        self.kind: str | None = next(iter(kinds), None)
        """ "i" for numbers, "U" for strings; None without ids."""
        keys = NO_IDS
        if blocks:
            parts = [id_keys(block[:]) for block in blocks]
            keys = RowParts(parts).take(slice(None))
        if self.kind == "i":
            blocks = [keys]
        self._parts = RowParts(blocks)
        self.count = len(keys)
        self._order: Rows | None = None  # of rows by key; None if keys ascend
        if not (keys[1:] > keys[:-1]).all():
            self._order = np.argsort(keys, kind="stable")
            keys = keys[self._order]
            equal = keys[1:] == keys[:-1]
            first = self._order[:-1][equal]
            second = self._order[1:][equal]
            self._refuse_twice(first, second)
        self._sorted = keys
        self.next_number = 0  # above all of them
        if self.kind == "i":
            self.next_number = max(0, int(keys[-1]) + 1)

    def _refuse_twice(self, first: Rows, second: Rows) -> None:
        """Refuse rows of equal keys if their ids are equal too."""
        same = self[first] == self[second]
        if same.any():
            one = first[same][0]
            other = second[same][0]
            raise InputError(f"rows {one} and {other} have the same id; ids must be unique.")

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, rows: slice | Rows) -> AnyArray:
        if self.count:
            return self._parts.take(rows)
        return NO_IDS

    def rows(self, ids: AnyArray) -> Rows:
        """Return the row of each id, −1 for one that is not there."""
        rows = np.full(len(ids), -1, dtype=np.int64)
        if self.kind != ids.dtype.kind:
            return rows
        keys = id_keys(ids)
        if self._order is None:
            place = places(self._sorted, keys)
        else:
            place = np.searchsorted(self._sorted, keys)
        open_ids = np.arange(len(ids))
        while True:  # a second time only for strings of equal hash
            open_ids = open_ids[place[open_ids] < len(self)]
            has_key = self._sorted[place[open_ids]] == keys[open_ids]
            open_ids = open_ids[has_key]
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


NO_IDS: Rows = np.empty(0, dtype=np.int64)


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


def id_keys(ids: AnyArray) -> Rows:
    """Return numbers that are equal for equal ids: numbers themselves, hashes of strings."""
    if ids.dtype.kind == "i":
        return ids
    hashes = map(hash, ids.tolist())
    return np.fromiter(hashes, np.int64, len(ids))


MAX_ID_BYTES = 1 << 30
"""Bytes of the 65536 rows that a segment may have as an array, at 4096 characters each."""


def ids_to_bytes(ids: AnyArray) -> bytes:
    """Return ids as the bytes of their file.

    The file holds ``numbers``, or ``lengths`` in characters and all the ``text`` as UTF-8.

    >>> id_block(ids_to_bytes(np.array(["one", "two"])))[:]
    array(['one', 'two'], dtype='<U3')
    """
    if ids.dtype.kind != "U":
        arrays = {"numbers": ids.astype(np.int64)}
    else:
        text = "".join(ids.tolist())
        arrays = {
            "lengths": np.char.str_len(ids).astype(np.uint32),
            "text": np.frombuffer(text.encode(), np.uint8),
        }
    return pack("ids", {}, arrays)


def id_block(data: Buffer, *, verified: bool = False) -> IdBlock:
    """Return the ids of a file, of which strings stay in ``data``, which is not to change.

    Raises
    ------
    DamagedError
        For what :func:`ids_to_bytes` does not write.
    """
    _, arrays = unpack(data, "ids", verified=verified)
    forms = {}
    for name, array in arrays.items():
        forms[name] = (array.dtype.str, array.ndim)
    if forms == {"numbers": ("<i8", 1)}:
        return arrays["numbers"].astype(np.int64)
    if forms == {"lengths": ("<u4", 1), "text": ("|u1", 1)}:
        return _text_ids(**arrays)
    raise DamagedError("these ids are neither numbers nor strings; the file is damaged.")


def _text_ids(lengths: AnyArray, text: Bytes) -> TextIds:
    """Return strings; DamagedError unless they fit together, and none ends with a NUL."""
    damaged = DamagedError("these ids have strings that do not fit together; the file is damaged.")
    longest = int(lengths.max(initial=1))
    if longest > MAX_ID_LENGTH or 4 * len(lengths) * longest > MAX_ID_BYTES:
        raise damaged
    try:
        characters = str(text.data, "utf-8")
    except UnicodeDecodeError:
        raise damaged from None
    if int(lengths.sum()) != len(characters):
        raise damaged
    if "\0" in characters:
        stops = np.cumsum(lengths)[lengths > 0]
        if any(characters[stop - 1] == "\0" for stop in stops.tolist()):
            raise damaged
    return TextIds(text, lengths)
