"""Ids of an index (whole numbers or strings) in row order, and the file of the ids of a segment."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from dpindex.base.arrays import (
    MAX_ID_LENGTH,
    AnyArray,
    check_id_lengths,
    id_array,
    other_kind_of_ids,
)
from dpindex.base.errors import DamagedError, InputError
from dpindex.base.files import Buffer, pack, unpack
from dpindex.storage.row_parts import RowParts, Rows
from dpindex.storage.stored_ids import IdBlock, StoredIds, TextIds, places

__all__ = ["Ids", "id_block", "ids_from_bytes", "ids_to_bytes"]

_MAX_BYTES = 1 << 30
"""Bytes of the 65536 rows that a segment may have as an array, at 4096 characters each."""


@dataclass(eq=False)
class Ids:
    """The ids of an index: a list in row order, without duplicates.

    Attributes
    ----------
    added : int64 or unicode array
        Ids that were added in memory, after the stored ones.
    stored : StoredIds
        Ids of saved segments.

    >>> ids = Ids()
    >>> ids.append(ids.check(["a", "b", "c"], 3))
    >>> len(ids), ids.rows(["c", "a"])
    (3, array([0, 2]))
    """

    added: AnyArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    stored: StoredIds = field(default_factory=StoredIds)

    def __len__(self) -> int:
        return len(self.stored) + len(self.added)

    @property
    def array(self) -> AnyArray:
        """All ids, int64 or unicode, shape (n,)."""
        return self.take(slice(None))

    def take(self, rows: slice | Rows) -> AnyArray:
        """Return the ids of some rows."""
        if not len(self.stored):
            return self.added[rows]
        parts: list[Any] = [self.stored]
        if len(self.added):
            parts.append(self.added)
        return RowParts(parts).take(rows)

    @property
    def _kind(self) -> str | None:
        """The kind of all ids, "i" or "U"; None without ids."""
        if self.stored.kind is None and len(self.added):
            return self.added.dtype.kind
        return self.stored.kind

    @cached_property
    def _rows_by_id(self) -> dict[Any, int]:
        """Rows of added ids, made when first needed: numbering new rows does without."""
        return {value: row for row, value in enumerate(self.added.tolist(), len(self.stored))}

    @cached_property
    def _ascend(self) -> bool:
        """Whether the added ids are numbers that ascend, as the default ones do."""
        numbers = self.added.dtype.kind == "i"
        return numbers and bool((self.added[1:] > self.added[:-1]).all())

    def _rows_of(self, ids: AnyArray) -> Rows:
        """Return the row of each id, −1 for one that is not there."""
        rows = self.stored.rows(ids)
        if not len(self.added):
            return rows
        missing = np.flatnonzero(rows < 0)
        if self._ascend and ids.dtype.kind == "i":
            place = np.minimum(places(self.added, ids[missing]), len(self.added) - 1)
            present = self.added[place] == ids[missing]
            rows[missing] = np.where(present, len(self.stored) + place, -1)
        else:
            rows[missing] = [self._rows_by_id.get(value, -1) for value in ids[missing].tolist()]
        return rows

    def __contains__(self, value: object) -> bool:
        if isinstance(value, np.integer | np.str_):
            value = value.item()
        try:
            return type(value) in (int, str) and self._rows_of(id_array([value]))[0] >= 0
        except InputError:  # it cannot be an id
            return False

    def check(self, ids: Any | None, count: int, *, replace: bool = False) -> AnyArray:
        """Return ``count`` ids that may be added, as an array; of None the next free numbers.

        They are new, unless ``replace`` allows ids that are there already.
        """
        if ids is None:
            return self._next_numbers(count)
        array = id_array(ids)
        if len(array) != count:
            raise InputError(f"there are {len(array)} ids for {count} vectors.")
        if self._kind not in (None, array.dtype.kind):
            raise other_kind_of_ids(self._kind == "U", "new ids")
        present = set[Any]()
        if not replace and len(self):
            present.update(array[self._rows_of(array) >= 0].tolist())
        _refuse_repeated(array.tolist(), present)
        return array

    def _next_numbers(self, count: int) -> AnyArray:
        if self._kind == "U":
            raise InputError("this index has string ids, so new vectors need ids too.")
        parts = (self.added, self.stored[:])
        start = max(0, *(int(part.max(initial=-1)) + 1 for part in parts))
        if start + count > 1 << 63:
            raise InputError("the next free ids pass 64 bits; give ids to new vectors.")
        return np.arange(start, start + count, dtype=np.int64)

    def append(self, ids: AnyArray) -> None:
        """Add ids that ``check`` returned."""
        count = len(self.added)
        bytes_after = (count + len(ids)) * max(self.added.itemsize, ids.itemsize)
        if ids.dtype.kind == "U" and bytes_after > _MAX_BYTES:
            parts = [part for part in (self.added, ids) if part.dtype.kind == "U"]
            check_id_lengths(np.concatenate([np.char.str_len(part) for part in parts]))
        vars(self).pop("_ascend", None)
        # Made again, should anything go wrong half-way.
        rows_by_id = vars(self).pop("_rows_by_id", None)
        before = len(self)
        if count:
            self.added = np.concatenate([self.added, ids])
        else:
            self.added = ids.copy()
        if rows_by_id is not None:
            rows_by_id.update(zip(ids.tolist(), range(before, len(self)), strict=True))
            self._rows_by_id = rows_by_id

    def rows(self, ids: Any, *, missing: bool = False) -> Rows:
        """Return the rows of ids, ascending.

        Raises
        ------
        InputError
            For an id that is not there, unless ``missing`` is allowed.
        """
        array = id_array(ids)
        rows = self._rows_of(array)
        if not missing and (rows < 0).any():
            first = array[np.argmin(rows)].item()
            raise InputError(f"id {first!r} is not in the index; nothing was removed.")
        rows = rows[rows >= 0]
        if (rows[1:] > rows[:-1]).all():
            return rows
        return np.unique(rows)

    def without(self, rows: Rows) -> Ids:
        """Return these ids but those of some rows."""
        count = len(self.stored)
        stored = self.stored
        if count:
            stored = stored.without(rows[rows < count])
        return Ids(np.delete(self.added, rows[rows >= count] - count), stored)


def _refuse_repeated(ids: list[Any], present: Set[Any]) -> None:
    """Refuse an id that is there twice, or is in the index."""
    if len(set(ids)) == len(ids) and not present:
        return
    before = set[Any]()
    for row, value in enumerate(ids):
        place = ""
        if value in before:
            place = "twice in the input"
        elif value in present:
            place = "already in the index"
        if place:
            raise InputError(f"id {value!r} (row {row}) is {place}; ids must be unique.")
        before.add(value)


def ids_to_bytes(ids: AnyArray) -> bytes:
    """Return ids as the bytes of their file.

    The file holds ``numbers``, or ``lengths`` in characters and all the ``text`` as UTF-8.

    >>> ids_from_bytes(ids_to_bytes(np.array(["one", "two"])))
    array(['one', 'two'], dtype='<U3')
    """
    if ids.dtype.kind != "U":
        return pack("ids", {}, {"numbers": ids.astype(np.int64)})
    text = np.frombuffer("".join(ids.tolist()).encode(), np.uint8)
    return pack("ids", {}, {"lengths": np.char.str_len(ids).astype(np.uint32), "text": text})


def ids_from_bytes(data: Buffer, *, verified: bool = False) -> AnyArray:
    """Return the inverse of :func:`ids_to_bytes`; DamagedError for anything else."""
    block = id_block(data, verified=verified)
    if isinstance(block, TextIds):
        return block[:]
    return block


def id_block(data: Buffer, *, verified: bool = False) -> IdBlock:
    """Return the ids of a file, of which strings stay in ``data``, which is not to change.

    Raises
    ------
    DamagedError
        For what :func:`ids_to_bytes` does not write.
    """
    _, arrays = unpack(data, "ids", verified=verified)
    forms = {name: (array.dtype.str, array.ndim) for name, array in arrays.items()}
    if forms == {"numbers": ("<i8", 1)}:
        return arrays["numbers"].astype(np.int64)
    if forms == {"lengths": ("<u4", 1), "text": ("|u1", 1)}:
        _refuse_damaged(arrays["lengths"], arrays["text"])
        return TextIds(arrays["text"], arrays["lengths"])
    raise DamagedError("these ids are neither numbers nor strings; the file is damaged.")


def _refuse_damaged(lengths: AnyArray, text: AnyArray) -> None:
    damaged = DamagedError("these ids have strings that do not fit together; the file is damaged.")
    longest = int(lengths.max(initial=1))
    if longest > MAX_ID_LENGTH or 4 * len(lengths) * longest > _MAX_BYTES:
        raise damaged
    try:
        points = np.frombuffer(text.tobytes().decode().encode("utf-32-le"), "<u4")
    except UnicodeDecodeError:
        raise damaged from None
    ends = np.cumsum(lengths, dtype=np.int64)
    if int(lengths.sum()) != len(points) or not points[ends[lengths > 0] - 1].all():
        raise damaged  # also where one ends with a NUL character
