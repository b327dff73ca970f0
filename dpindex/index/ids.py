"""Ids of an index: whole numbers or strings, unique, in row order; and their bytes."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

import numpy as np

from dpindex.arrays import AnyArray
from dpindex.errors import InputError

__all__ = ["Ids", "ids_from_bytes", "ids_to_bytes"]

_MAGIC = b"DPID"
_HEADER = struct.Struct("<4sBxxxQ")
_INTEGERS, _STRINGS = 0, 1
_LONGEST = 4096


def as_ids(ids: Any) -> AnyArray:
    """Ids as a one-dimensional int64 or unicode array."""
    array = np.asarray(ids if not isinstance(ids, str | bytes) else [ids])
    if array.ndim == 0:
        array = array[None]
    if array.size == 0 and array.dtype.kind == "f":
        array = array.astype(np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iuU":
        raise InputError("ids must be a list of whole numbers or of strings.")
    if array.dtype.kind == "U":
        if array.dtype.itemsize // 4 > _LONGEST:
            raise InputError(f"an id is longer than {_LONGEST} characters.")
        return array
    if array.dtype.kind == "u" and array.size and int(array.max()) > np.iinfo(np.int64).max:
        raise InputError("ids must fit into 64-bit signed integers.")
    return array.astype(np.int64)


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
            start = int(self._array.max()) + 1 if len(self._array) else 0
            return np.arange(start, start + count, dtype=np.int64)
        array = as_ids(ids)
        if len(array) != count:
            raise InputError(f"there are {len(array)} ids for {count} vectors.")
        if len(self._array) and array.dtype.kind != self._array.dtype.kind:
            kind = "strings" if self._array.dtype.kind == "U" else "whole numbers"
            raise InputError(f"the ids of this index are {kind}; new ids must be {kind} too.")
        seen: set[Any] = set()
        for row, value in enumerate(array.tolist()):
            if value in seen or value in self._known:
                where = "twice in the input" if value in seen else "already in the index"
                raise InputError(f"id {value!r} (row {row}) is {where}; ids must be unique.")
            seen.add(value)
        return array

    def append(self, ids: AnyArray) -> None:
        """Add ids that ``check`` returned."""
        self._array = np.concatenate([self._array, ids]) if len(self._array) else ids.copy()
        if self._set is not None:
            self._set.update(ids.tolist())

    def rows(self, ids: Any) -> np.ndarray[Any, np.dtype[np.intp]]:
        """Rows of ids; InputError for one that is not there."""
        wanted = as_ids(ids).tolist()
        for value in wanted:
            if value not in self._known:
                raise InputError(f"id {value!r} is not in the index; nothing was removed.")
        if len(self._array) == 0:
            return np.empty(0, dtype=np.intp)
        return np.flatnonzero(np.isin(self._array, np.array(wanted, dtype=self._array.dtype)))

    def keep(self, mask: AnyArray) -> None:
        """Keep the rows where ``mask`` is true."""
        self._array = self._array[mask]
        self._set = None


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
    return np.array(_texts(text, ends, broken), dtype=np.str_)


def _texts(text: memoryview, ends: Iterable[int], broken: InputError) -> list[str]:
    start, texts = 0, []
    for end in ends:
        try:
            texts.append(str(text[start:end], "utf-8"))
        except UnicodeDecodeError:
            raise broken from None
        start = int(end)
    return texts
