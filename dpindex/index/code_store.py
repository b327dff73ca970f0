"""What an index keeps: codes, their ids (whole numbers or strings) and payload, in row order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from dpindex.arrays import AnyArray, Integers
from dpindex.checks import MAX_ID_LENGTH, check_id_lengths, id_array
from dpindex.codes import CodeFormat, Codes
from dpindex.errors import InputError
from dpindex.files import pack, unpack
from dpindex.format1 import MAGIC_IDS, ids_from_bytes_1
from dpindex.index.payload import Payload, Table

Rows = npt.NDArray[np.int64]

_MAX_BYTES = 1 << 30
"""What the 65536 rows that a segment may have take as an array, at 4096 characters each."""

_BLOCK_NUMBERS = 1 << 22
"""Coordinates of codes that are handled together: 16 MB of float32."""


@dataclass(eq=False)
class Ids:
    """The ids of an index in row order: a list without duplicates.

    Attributes
    ----------
    array : int64 or unicode array, shape (n,)
        All ids.

    >>> ids = Ids()
    >>> ids.append(ids.check(["a", "b", "c"], 3))
    >>> len(ids), ids.rows(["c", "a"])
    (3, array([0, 2]))
    """

    array: AnyArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    def __len__(self) -> int:
        return len(self.array)

    @cached_property
    def _known(self) -> dict[Any, int]:
        """Rows by id, made when it is first needed: numbering new rows does without."""
        return {value: row for row, value in enumerate(self.array.tolist())}

    def __contains__(self, value: object) -> bool:
        if isinstance(value, np.integer | np.str_):
            value = value.item()
        return type(value) in (int, str) and value in self._known

    def check(self, ids: Any | None, count: int, *, replace: bool = False) -> AnyArray:
        """``ids`` as an array that may be added: ``count`` new ids, or the next free numbers.

        With ``replace`` they may be there already.
        """
        if ids is None:
            if self.array.dtype.kind == "U" and len(self.array):
                raise InputError("this index has string ids, so new vectors need ids too.")
            start = max(int(self.array.max(initial=-1)) + 1, 0)
            if start + count > 1 << 63:
                raise InputError("the next free ids pass 64 bits; give ids to new vectors.")
            return np.arange(start, start + count, dtype=np.int64)
        array = id_array(ids)
        if len(array) != count:
            raise InputError(f"there are {len(array)} ids for {count} vectors.")
        if len(self.array) and array.dtype.kind != self.array.dtype.kind:
            kind = "strings" if self.array.dtype.kind == "U" else "whole numbers"
            raise InputError(f"the ids of this index are {kind}; new ids must be {kind} too.")
        values, known = array.tolist(), {} if replace else self._known
        if len(set(values)) < count or not known.keys().isdisjoint(values):
            seen: set[Any] = set()
            for row, value in enumerate(values):
                if value in seen or value in known:
                    where = "twice in the input" if value in seen else "already in the index"
                    raise InputError(f"id {value!r} (row {row}) is {where}; ids must be unique.")
                seen.add(value)
        return array

    def append(self, ids: AnyArray) -> None:
        """Add ids that ``check`` returned."""
        bytes_after = (len(self) + len(ids)) * max(self.array.itemsize, ids.itemsize)
        if ids.dtype.kind == "U" and bytes_after > _MAX_BYTES:
            parts = [part for part in (self.array, ids) if part.dtype.kind == "U"]
            check_id_lengths(np.concatenate([np.char.str_len(part) for part in parts]))
        known = vars(self).pop("_known", None)  # made again, should anything go wrong half-way
        count = len(self)
        self.array = np.concatenate([self.array, ids]) if count else ids.copy()
        if known is not None:
            known.update(zip(ids.tolist(), range(count, len(self)), strict=True))
            self._known = known

    def rows(self, ids: Any, *, missing: bool = False) -> Rows:
        """Rows of ids, ascending; unless ``missing`` is allowed, InputError for one not there."""
        found = {value: self._known.get(value) for value in id_array(ids).tolist()}
        if None in found.values() and not missing:
            first = next(value for value, row in found.items() if row is None)
            raise InputError(f"id {first!r} is not in the index; nothing was removed.")
        return np.array(sorted(row for row in found.values() if row is not None), np.int64)


def _row_bytes(stored: Integers, other: np.dtype[Any]) -> list[bytes]:
    """Each row as bytes that can be compared with rows of another type, which may be wider."""
    return [row.tobytes() for row in stored.astype(np.promote_types(stored.dtype, other))]


def ids_to_bytes(ids: AnyArray) -> bytes:
    """Ids as a container: ``numbers``, or ``lengths`` in characters and all the ``text`` as UTF-8.

    >>> ids_from_bytes(ids_to_bytes(np.array(["one", "two"])))
    array(['one', 'two'], dtype='<U3')
    """
    if ids.dtype.kind != "U":
        return pack("ids", {}, {"numbers": ids.astype(np.int64)})
    text = np.frombuffer("".join(ids.tolist()).encode(), np.uint8)
    return pack("ids", {}, {"lengths": np.char.str_len(ids).astype(np.uint32), "text": text})


def ids_from_bytes(data: bytes) -> AnyArray:
    """The inverse of :func:`ids_to_bytes`, also for format 1; InputError for anything else."""
    if data.startswith(MAGIC_IDS):
        return ids_from_bytes_1(data)
    _, arrays = unpack(data, "ids")
    forms = {name: (array.dtype.str, array.ndim) for name, array in arrays.items()}
    if forms == {"numbers": ("<i8", 1)}:
        return arrays["numbers"].astype(np.int64)
    if forms == {"lengths": ("<u4", 1), "text": ("|u1", 1)}:
        return _texts(arrays["lengths"], arrays["text"])
    raise InputError("these ids are neither numbers nor strings; the file is damaged.")


def _texts(lengths: AnyArray, text: AnyArray) -> AnyArray:
    damaged = InputError("these ids have strings that do not fit together; the file is damaged.")
    longest = int(lengths.max(initial=1))
    if longest > MAX_ID_LENGTH or 4 * len(lengths) * longest > _MAX_BYTES:
        raise damaged
    try:
        points = np.frombuffer(text.tobytes().decode().encode("utf-32-le"), "<u4")
    except UnicodeDecodeError:
        raise damaged from None
    if int(lengths.sum()) != len(points):
        raise damaged
    padded = np.zeros((len(lengths), longest), np.uint32)
    padded[np.arange(longest) < lengths[:, None]] = points
    ids = padded.view(f"U{longest}")[:, 0]
    if (np.char.str_len(ids) != lengths).any():  # one ends with a NUL character
        raise damaged
    return ids


class CodeStore:
    """Codes of one format under unique ids. It keeps; what searches is rebuilt from it.

    Attributes
    ----------
    format : CodeFormat
        The format of all codes.
    payload : Payload
        Of all rows.
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
        self.payload = Payload()
        self.removals = 0
        self._ids = Ids()
        # Stored codes in one array that doubles its room, and widens its integers where needed.
        self._room: Integers = np.empty((0, format_.width), dtype=np.int8)

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def ids(self) -> AnyArray:
        """The ids in row order, int64 or strings, shape (n,)."""
        return self._ids.array

    @property
    def codes(self) -> Codes:
        """All codes in row order, as a copy."""
        return self.format.codes(self._room[: len(self)].copy())

    def __contains__(self, value: object) -> bool:
        return value in self._ids

    def checked_ids(self, ids: Any | None, count: int, *, replace: bool = False) -> AnyArray:
        """``ids`` as ``count`` unique ids, new unless ``replace``, or the next free numbers."""
        return self._ids.check(ids, count, replace=replace)

    def append(self, codes: Codes, ids: AnyArray, payload: Table = None) -> None:
        """Add codes of the store's format, with ids and payload that were checked."""
        # The ids say how many rows there are: what lies beyond, left by Ctrl-C, is overwritten.
        self._put(codes.stored)
        self.payload = self.payload.extended(len(self), payload, len(ids))
        self._ids.append(ids)

    def _put(self, rows: Integers) -> None:
        """Write rows after those that have ids."""
        rows, count = self.format.concatenate([rows]), len(self)  # as narrow as they can be
        end = count + len(rows)
        dtype = np.promote_types(rows.dtype, self._room.dtype) if count else rows.dtype
        if end > len(self._room) or dtype != self._room.dtype:
            room = np.empty((max(2 * count, end), rows.shape[1]), dtype=dtype)
            room[:count] = self._room[:count]
            self._room = room
        self._room[count:end] = rows

    def take(self, rows: slice | npt.NDArray[np.int64]) -> Codes:
        """The codes of some rows."""
        return self.format.codes(self._room[: len(self)][rows])

    def rows(self, ids: Any, *, missing: bool = False) -> Rows:
        """Rows of ids, ascending; InputError for an id that is not there, unless allowed."""
        return self._ids.rows(ids, missing=missing)

    def blocks(self, start: int = 0, rows: int | None = None) -> Iterator[Codes]:
        """The codes from row ``start`` on, in blocks of that many rows, or of a few megabytes."""
        step = rows or max(1, _BLOCK_NUMBERS // self.format.code_length)
        for first in range(start, len(self), step):
            yield self.take(slice(first, first + step))

    def repeats(self, codes: Codes) -> int:
        """How many of these codes are here already, byte for byte."""
        new = _row_bytes(codes.stored, self.take(slice(0)).stored.dtype)
        wanted, here = set(new), set[bytes]()
        for block in self.blocks():
            here |= wanted.intersection(_row_bytes(block.stored, codes.stored.dtype))
        return sum(code in here for code in new)

    def remove(self, ids: Any) -> int:
        """Remove codes by id; returns how many.

        Raises
        ------
        InputError
            If one of the ids is not there; nothing is removed then.
        """
        rows = self._ids.rows(ids)
        self._become(self._without(rows))
        return len(rows)

    def replace(self, codes: Codes, ids: AnyArray, payload: Table = None) -> None:
        """Append in one step, in place of the rows that have one of these ids."""
        made = self._without(self._ids.rows(ids, missing=True))
        made.append(codes, ids, payload)
        self._become(made)

    def _without(self, rows: Rows) -> CodeStore:
        """A new store without some rows."""
        left = CodeStore(self.format)
        kept = np.ones(len(self), dtype=np.bool_)
        kept[rows] = False
        left._ids = Ids(self.ids[kept])
        left.payload = Payload(self.payload.take(np.flatnonzero(kept)))
        left._room = self.format.concatenate([self._room[: len(self)][kept]])
        return left

    def _become(self, other: CodeStore) -> None:
        """Take over what another store keeps: all of it, also where Ctrl-C strikes."""
        kept = other._ids, other._room, other.payload, self.removals + 1
        self._ids, self._room, self.payload, self.removals = kept
