"""Ids of an index: whole numbers or strings, unique, in row order; and their bytes."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

import numpy as np

from dpindex.arrays import AnyArray, check_padding
from dpindex.errors import InputError

__all__ = ["Ids", "ids_from_bytes", "ids_to_bytes"]

_MAGIC = b"DPID"
_HEADER = struct.Struct("<4sBxxxQ")
_INTEGERS, _STRINGS = 0, 1
_LONGEST = 4096
_LARGEST = np.iinfo(np.int64).max
_MAX_BYTES = 1 << 30


def as_ids(ids: Any) -> AnyArray:
    """Ids as a one-dimensional int64 or unicode array."""
    if isinstance(ids, str | int | np.integer):
        ids = [ids]
    if isinstance(ids, np.ndarray) and ids.ndim == 0:
        ids = ids[None]
    if not isinstance(ids, np.ndarray) or ids.dtype.kind == "O":
        ids = list(ids) if isinstance(ids, Iterable) and not isinstance(ids, bytes) else [None]
        # NumPy would turn [1, "a"] into strings and [True] into numbers, and drop final NULs.
        if not (
            all(isinstance(value, str) for value in ids)
            or all(isinstance(value, int | np.integer) and type(value) is not bool for value in ids)
        ):
            raise InputError("ids must be a list of whole numbers or of strings.")
        if any(isinstance(value, str) and value.endswith("\0") for value in ids):
            raise InputError("an id ends with a NUL character; ids must be plain text.")
        if any(isinstance(value, str) and len(value) > _LONGEST for value in ids):
            raise InputError(f"an id is longer than {_LONGEST} characters.")
    array = np.array(ids) if len(ids) else np.empty(0, dtype=np.int64)
    if array.dtype.kind == "O" and all(isinstance(value, int) for value in array.flat):
        raise InputError("ids must fit into 64-bit signed integers.")
    if array.ndim != 1 or array.dtype.kind not in "iuU":
        raise InputError("ids must be a list of whole numbers or of strings.")
    if array.dtype.kind == "U":
        return _checked_texts(array)
    if array.dtype.kind == "u" and array.size and int(array.max()) > _LARGEST:
        raise InputError("ids must fit into 64-bit signed integers.")
    return array.astype(np.int64)


def _checked_texts(array: AnyArray) -> AnyArray:
    if array.dtype.itemsize // 4 > _LONGEST and int(np.char.str_len(array).max()) > _LONGEST:
        raise InputError(f"an id is longer than {_LONGEST} characters.")
    native = array.astype(array.dtype.newbyteorder("="))
    points = np.ascontiguousarray(native).view(np.uint32)
    if ((points >= 0xD800) & (points <= 0xDFFF)).any():
        raise InputError("an id holds half a surrogate pair; ids must be text that UTF-8 can hold.")
    return native


class Ids:
    """The ids of an index in row order. Think of it as a list that refuses a second copy."""

    def __init__(self) -> None:
        self._array: AnyArray = np.empty(0, dtype=np.int64)
        self._set: set[Any] | None = None

    def __len__(self) -> int:
        return len(self._array)

    @property
    def _known(self) -> set[Any]:
        """The ids as a set, made when it is first needed: numbering new rows does without."""
        if self._set is None:
            self._set = set(self._array.tolist())
        return self._set

    @property
    def array(self) -> AnyArray:
        """All ids, int64 or unicode, shape (n,)."""
        return self._array

    def check(self, ids: Any | None, count: int) -> AnyArray:
        """``ids`` as an array that may be added: ``count`` new ids, or the next free numbers."""
        if ids is None:
            if self._array.dtype.kind == "U" and len(self._array):
                raise InputError("this index has string ids, so new vectors need ids too.")
            start = max(int(self._array.max()) + 1, 0) if len(self._array) else 0
            if start + count - 1 > _LARGEST:
                raise InputError("the next free ids pass 64 bits; give ids to new vectors.")
            return np.arange(start, start + count, dtype=np.int64)
        array = as_ids(ids)
        if len(array) != count:
            raise InputError(f"there are {len(array)} ids for {count} vectors.")
        if len(self._array) and array.dtype.kind != self._array.dtype.kind:
            kind = "strings" if self._array.dtype.kind == "U" else "whole numbers"
            raise InputError(f"the ids of this index are {kind}; new ids must be {kind} too.")
        seen: set[Any] = set()
        known = self._known
        for row, value in enumerate(array.tolist()):
            if value in seen or value in known:
                where = "twice in the input" if value in seen else "already in the index"
                raise InputError(f"id {value!r} (row {row}) is {where}; ids must be unique.")
            seen.add(value)
        return array

    def append(self, ids: AnyArray) -> None:
        """Add ids that ``check`` returned."""
        if ids.dtype.kind == "U" and len(ids):
            _check_room(self._array, ids)
        known, self._set = self._set, None  # made again, should anything go wrong half-way
        self._array = np.concatenate([self._array, ids]) if len(self._array) else ids.copy()
        if known is not None:
            known.update(ids.tolist())
            self._set = known

    def rows(self, ids: Any) -> np.ndarray[Any, np.dtype[np.intp]]:
        """Rows of ids; InputError for one that is not there."""
        wanted = as_ids(ids).tolist()
        for value in wanted:
            if value not in self._known:
                raise InputError(f"id {value!r} is not in the index; nothing was removed.")
        if len(self._array) == 0:
            return np.empty(0, dtype=np.intp)
        return np.flatnonzero(np.isin(self._array, np.array(wanted, dtype=self._array.dtype)))

    def kept(self, mask: AnyArray) -> Ids:
        """The ids of the rows where ``mask`` is true."""
        ids = Ids()
        ids._array = self._array[mask]
        return ids


def _check_room(old: AnyArray, new: AnyArray) -> None:
    """InputError before padding old and new ids to one length takes too much memory."""
    count, width = len(old) + len(new), max(old.dtype.itemsize, new.dtype.itemsize) // 4
    if count * width > 1 << 28:  # else it is allowed, whatever their lengths are
        parts = [part for part in (old, new) if part.dtype.kind == "U"]
        check_padding(count, width, sum(int(np.char.str_len(part).sum()) for part in parts))


def ids_to_bytes(ids: AnyArray) -> bytes:
    """Ids as bytes: a header, then int64 numbers, or lengths and UTF-8 text."""
    if ids.dtype.kind != "U":
        return _HEADER.pack(_MAGIC, _INTEGERS, len(ids)) + ids.astype("<i8").tobytes()
    texts = [text.encode() for text in ids.tolist()]
    lengths = np.array([len(text) for text in texts], dtype="<u4")
    return _HEADER.pack(_MAGIC, _STRINGS, len(ids)) + lengths.tobytes() + b"".join(texts)


def ids_from_bytes(data: bytes) -> AnyArray:
    """The inverse of :func:`ids_to_bytes`; InputError for anything else."""
    broken = InputError("an ids file of the index is damaged.")
    if len(data) < _HEADER.size:
        raise broken
    magic, kind, count = _HEADER.unpack_from(data)
    body = memoryview(data)[_HEADER.size :]
    if magic != _MAGIC or kind not in (_INTEGERS, _STRINGS):
        raise broken
    if kind == _INTEGERS:
        if count * 8 != len(body):
            raise broken
        return np.frombuffer(body, dtype="<i8").astype(np.int64)
    if count * 4 > len(body):
        raise broken
    lengths = np.frombuffer(body[: count * 4], dtype="<u4").astype(np.int64)
    text = body[count * 4 :]
    ends = np.cumsum(lengths)
    if (int(ends[-1]) if count else 0) != len(text) or (count and lengths.max() > 4 * _LONGEST):
        raise broken
    texts = _texts(text, ends, broken)
    longest = max(map(len, texts), default=0)
    if longest > _LONGEST or any(text.endswith("\0") for text in texts):
        raise broken
    if 4 * count * longest > _MAX_BYTES:  # more than the 65536 rows that a segment may have
        raise broken
    return np.array(texts, dtype=np.str_)


def _texts(text: memoryview, ends: Iterable[int], broken: InputError) -> list[str]:
    start, texts = 0, []
    for end in ends:
        try:
            texts.append(str(text[start:end], "utf-8"))
        except UnicodeDecodeError:
            raise broken from None
        start = int(end)
    return texts
