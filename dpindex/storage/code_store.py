"""What an index keeps: codes, their ids (whole numbers or strings) and payload, in row order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np

from dpindex.base.arrays import AnyArray, Integers
from dpindex.base.checks import MAX_ID_LENGTH, check_id_lengths, id_array
from dpindex.base.errors import DamagedError, InputError
from dpindex.base.files import Buffer, pack, unpack
from dpindex.mechanism.codes import CodeFormat, Codes, check_format
from dpindex.mechanism.spec import Spec
from dpindex.storage.payload import Payload, Table
from dpindex.storage.row_parts import RowParts, Rows
from dpindex.storage.stored_ids import IdBlock, StoredIds, TextIds, places

MAPPED_BYTES = 1 << 20
"""Files of segments that are mapped where they lie; smaller ones are read and joined."""

_SEGMENT_BYTES = 1 << 25
_SEGMENT_ROWS = 65536
_MAX_BYTES = 1 << 30
"""What the 65536 rows that a segment may have take as an array, at 4096 characters each."""

_BLOCK_NUMBERS = 1 << 22
"""Coordinates of codes that are handled together: 16 MB of float32."""


def rows_per_segment(spec: Spec) -> int:
    """Rows whose codes fill a segment: few enough for memory, and for one file to be read whole."""
    return max(1, min(_SEGMENT_ROWS, _SEGMENT_BYTES // spec.format.max_row_bytes))


@dataclass(eq=False)
class Ids:
    """The ids of an index in row order: a list without duplicates.

    Attributes
    ----------
    added : int64 or unicode array
        Those that were added in memory, after the stored ones.
    stored : StoredIds
        Those of saved segments.

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
        """The ids of some rows."""
        if not len(self.stored):
            return self.added[rows]
        return RowParts([self.stored, self.added] if len(self.added) else [self.stored]).take(rows)

    @property
    def _kind(self) -> str | None:
        return self.stored.kind or (self.added.dtype.kind if len(self.added) else None)

    @cached_property
    def _known(self) -> dict[Any, int]:
        """Rows of added ids, made when first needed: numbering new rows does without."""
        return {value: row for row, value in enumerate(self.added.tolist(), len(self.stored))}

    @cached_property
    def _ascend(self) -> bool:
        """Whether the added ids are numbers that ascend, as the default ones do."""
        numbers = self.added.dtype.kind == "i"
        return numbers and bool((self.added[1:] > self.added[:-1]).all())

    def _found(self, ids: AnyArray) -> Rows:
        """The row of each id, −1 for one that is not there."""
        rows = self.stored.rows(ids)
        if len(self.added):
            left = np.flatnonzero(rows < 0)
            before = len(self.stored)
            if self._ascend and ids.dtype.kind == "i":
                place = np.minimum(places(self.added, ids[left]), len(self.added) - 1)
                rows[left] = np.where(self.added[place] == ids[left], before + place, -1)
            else:
                rows[left] = [self._known.get(value, -1) for value in ids[left].tolist()]
        return rows

    def __contains__(self, value: object) -> bool:
        if isinstance(value, np.integer | np.str_):
            value = value.item()
        try:
            return type(value) in (int, str) and self._found(id_array([value]))[0] >= 0
        except InputError:  # it cannot be an id
            return False

    def check(self, ids: Any | None, count: int, *, replace: bool = False) -> AnyArray:
        """``ids`` as an array that may be added: ``count`` new ids, or the next free numbers.

        With ``replace`` they may be there already.
        """
        if ids is None:
            if self._kind == "U":
                raise InputError("this index has string ids, so new vectors need ids too.")
            parts = (self.added, self.stored[:])
            start = max(0, *(int(part.max(initial=-1)) + 1 for part in parts))
            if start + count > 1 << 63:
                raise InputError("the next free ids pass 64 bits; give ids to new vectors.")
            return np.arange(start, start + count, dtype=np.int64)
        array = id_array(ids)
        if len(array) != count:
            raise InputError(f"there are {len(array)} ids for {count} vectors.")
        if self._kind not in (None, array.dtype.kind):
            kind = "strings" if self._kind == "U" else "whole numbers"
            raise InputError(f"the ids of this index are {kind}; new ids must be {kind} too.")
        values = array.tolist()
        known = set[Any]()
        if not replace and len(self):
            known.update(array[self._found(array) >= 0].tolist())
        if len(set(values)) < count or known:
            seen: set[Any] = set()
            for row, value in enumerate(values):
                if value in seen or value in known:
                    where = "twice in the input" if value in seen else "already in the index"
                    raise InputError(f"id {value!r} (row {row}) is {where}; ids must be unique.")
                seen.add(value)
        return array

    def append(self, ids: AnyArray) -> None:
        """Add ids that ``check`` returned."""
        count = len(self.added)
        bytes_after = (count + len(ids)) * max(self.added.itemsize, ids.itemsize)
        if ids.dtype.kind == "U" and bytes_after > _MAX_BYTES:
            parts = [part for part in (self.added, ids) if part.dtype.kind == "U"]
            check_id_lengths(np.concatenate([np.char.str_len(part) for part in parts]))
        vars(self).pop("_ascend", None)
        known = vars(self).pop("_known", None)  # made again, should anything go wrong half-way
        before = len(self)
        self.added = np.concatenate([self.added, ids]) if count else ids.copy()
        if known is not None:
            known.update(zip(ids.tolist(), range(before, len(self)), strict=True))
            self._known = known

    def rows(self, ids: Any, *, missing: bool = False) -> Rows:
        """Rows of ids, ascending; unless ``missing`` is allowed, InputError for one not there."""
        wanted = id_array(ids)
        rows = self._found(wanted)
        if not missing and (rows < 0).any():
            first = wanted[np.argmin(rows)].item()
            raise InputError(f"id {first!r} is not in the index; nothing was removed.")
        rows = rows[rows >= 0]
        if (rows[1:] > rows[:-1]).all():
            return rows
        return np.unique(rows)

    def without(self, rows: Rows) -> Ids:
        """These ids but those of some rows."""
        count = len(self.stored)
        stored = self.stored.without(rows[rows < count]) if count else self.stored
        return Ids(np.delete(self.added, rows[rows >= count] - count), stored)


def ids_to_bytes(ids: AnyArray) -> bytes:
    """Ids as a container: ``numbers``, or ``lengths`` in characters and all the ``text`` as UTF-8.

    >>> ids_from_bytes(ids_to_bytes(np.array(["one", "two"])))
    array(['one', 'two'], dtype='<U3')
    """
    if ids.dtype.kind != "U":
        return pack("ids", {}, {"numbers": ids.astype(np.int64)})
    text = np.frombuffer("".join(ids.tolist()).encode(), np.uint8)
    return pack("ids", {}, {"lengths": np.char.str_len(ids).astype(np.uint32), "text": text})


def ids_from_bytes(data: Buffer, *, verified: bool = False) -> AnyArray:
    """The inverse of :func:`ids_to_bytes`; DamagedError for anything else."""
    block = id_block(data, verified=verified)
    if isinstance(block, TextIds):
        return block[:]
    return block


def id_block(data: Buffer, *, verified: bool = False) -> IdBlock:
    """As :func:`ids_from_bytes`, but strings stay in ``data``, which is not to change."""
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

    >>> from dpindex.mechanism.codes import SignFormat
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
        # Codes of saved segments, mapped where they lie; then those that were added, in one array
        # that doubles its room, and widens its integers where needed.
        self._room: Integers = np.empty((0, format_.width), dtype=np.int8)
        self._fixed = RowParts()

    @classmethod
    def of_segments(
        cls, format_: CodeFormat, segments: Iterable[tuple[Codes, IdBlock, Table]]
    ) -> CodeStore:
        """A store of segments, whose codes it does not copy; they are not to change.

        Raises
        ------
        InputError
            For codes of another form, ids that are there twice, and payloads that do not fit.
        """
        store = cls(format_)
        parts = []
        blocks = []
        count = 0
        for codes, ids, table in segments:
            check_format(codes, format_)
            beside = store.payload.checked(table, len(codes))
            store.payload = store.payload.extended(count, beside, len(codes))
            parts.append(codes.stored)
            blocks.append(ids)
            count += len(codes)
        if not parts:
            return store
        runs = groupby(parts, lambda part: part.nbytes < MAPPED_BYTES)
        store._fixed = RowParts(
            [part for small, run in runs for part in (_joined(format_, run) if small else run)]
        )
        store._ids = Ids(stored=StoredIds(blocks))
        return store

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def ids(self) -> AnyArray:
        """The ids in row order, int64 or strings, shape (n,)."""
        return self._ids.array

    def ids_of(self, rows: slice | Rows) -> AnyArray:
        """The ids of some rows."""
        return self._ids.take(rows)

    @property
    def codes(self) -> Codes:
        """All codes in row order, as a copy."""
        parts = self._table.arrays
        return self.format.codes(self.format.concatenate(parts if parts[1:] else [parts[0].copy()]))

    @property
    def _added(self) -> Integers:
        return self._room[: len(self) - len(self._fixed)]

    def __contains__(self, value: object) -> bool:
        return value in self._ids

    def checked_ids(self, ids: Any | None, count: int, *, replace: bool = False) -> AnyArray:
        """``ids`` as ``count`` unique ids, new unless ``replace``, or the next free numbers."""
        return self._ids.check(ids, count, replace=replace)

    def append(
        self, codes: Codes, ids: AnyArray, payload: Table = None, *, replace: bool = False
    ) -> None:
        """Add codes of the store's format, with ids and payload that were checked.

        With ``replace`` they take, in one step, the place of rows that have one of these ids.
        """
        if replace:
            made = self._without(self._ids.rows(ids, missing=True))
            made.append(codes, ids, payload)
            self._become(made)
            return
        # The ids say how many rows there are: what lies beyond, left by Ctrl-C, is overwritten.
        self._put(codes.stored)
        self.payload = self.payload.extended(len(self), payload, len(ids))
        self._ids.append(ids)

    def _put(self, rows: Integers) -> None:
        """Write rows after those that have ids."""
        rows, count = self.format.concatenate([rows]), len(self._added)  # as narrow as can be
        end = count + len(rows)
        dtype = np.promote_types(rows.dtype, self._room.dtype) if count else rows.dtype
        if end > len(self._room) or dtype != self._room.dtype:
            room = np.empty((max(2 * count, end), rows.shape[1]), dtype=dtype)
            room[:count] = self._room[:count]
            self._room = room
        self._room[count:end] = rows

    def take(self, rows: slice | Rows) -> Codes:
        """The codes of some rows; those of a slice are shown where they lie, if it can be."""
        return self.format.codes(self._table.take(rows))

    @property
    def _table(self) -> RowParts:
        added = self._added
        if len(added) or not len(self._fixed):
            return self._fixed.plus(added)
        return self._fixed

    def rows(self, ids: Any, *, missing: bool = False) -> Rows:
        """Rows of ids, ascending; InputError for an id that is not there, unless allowed."""
        return self._ids.rows(ids, missing=missing)

    def blocks(self, start: int = 0, rows: int | None = None) -> Iterator[Codes]:
        """The codes from row ``start`` on, in blocks of at most that many rows, or of a few
        megabytes; none is copied.
        """
        step = rows or max(1, _BLOCK_NUMBERS // self.format.code_length)
        for _, stored in self._table.within(start, len(self), step):
            yield self.format.codes(stored)

    def repeats(self, codes: Codes) -> int:
        """How many of these codes are here already, byte for byte."""
        parts = [part.dtype for part in self._table.arrays]
        common = np.result_type(codes.stored.dtype, *parts)
        new = _row_bytes(codes.stored, common)
        wanted = set(new)
        here = set[bytes]()
        for block in self.blocks():
            here |= wanted.intersection(_row_bytes(block.stored, common))
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

    def _without(self, rows: Rows) -> CodeStore:
        """A new store without some rows."""
        left = CodeStore(self.format)
        kept = np.ones(len(self), dtype=np.bool_)
        kept[rows] = False
        left._ids = self._ids.without(rows)
        left.payload = Payload(self.payload.take(np.flatnonzero(kept)))
        left._fixed = RowParts(
            [
                part if (here := kept[start : start + len(part)]).all() else part[here]
                for start, part in self._fixed
            ]
        )
        left._room = self.format.concatenate([self._added[kept[len(self._fixed) :]]])
        return left

    def _become(self, other: CodeStore) -> None:
        """Take over what another store keeps: all of it, also where Ctrl-C strikes."""
        kept = other._ids, other._fixed, other._room, other.payload, self.removals + 1
        self._ids, self._fixed, self._room, self.payload, self.removals = kept


def _joined(format_: CodeFormat, parts: Iterable[Integers]) -> list[Integers]:
    return [format_.concatenate(list(parts))]


def _row_bytes(stored: Integers, common: np.dtype[Any]) -> list[bytes]:
    """Each row as bytes that can be compared with rows of another type."""
    return [row.tobytes() for row in stored.astype(common)]
