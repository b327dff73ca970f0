"""Codes of an index with their ids and payload, in row order.

A store stays as it is: whoever adds rows or removes some has another one, which shares what it can
with the one before. So a search has its rows to itself, and no writer waits for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import copy
from itertools import groupby
from typing import Any

import numpy as np

from dpindex.base.arrays import AnyArray, Integers, RowParts, Rows, Table
from dpindex.base.errors import InputError
from dpindex.base.ids import check_id_lengths, id_array, other_kind_of_ids, refuse_unordered
from dpindex.mechanism.codes import CodeFormat, Codes, check_format
from dpindex.mechanism.spec import Spec
from dpindex.storage.ids import MAX_ID_BYTES, NO_IDS, IdBlock, StoredIds, places
from dpindex.storage.payload import Payload

MAPPED_BYTES = 1 << 20
"""Files of segments that are mapped where they lie; smaller ones are read and joined."""

_SEGMENT_BYTES = 1 << 25
_SEGMENT_ROWS = 65536
STORED_NUMBERS = 1 << 20
"""Coordinates of codes that are handled together: 16 MB of float32."""


def rows_per_segment(spec: Spec) -> int:
    """Return how many rows fill a segment, whose files are read whole."""
    return max(1, min(_SEGMENT_ROWS, _SEGMENT_BYTES // spec.format.max_row_bytes))


class CodeStore:
    """Codes of one format under unique ids, which stay as they are.

    Parameters
    ----------
    format_ : CodeFormat
        The format of all codes.
    ids : Ids
        In row order.
    payload : Payload
        Of all rows.
    fixed : RowParts
        Codes of saved segments, mapped where they lie.
    room : integer array
        Then those that were added, in one array that doubles its room, and widens its integers
        where needed.
    removals : int
        How often codes were removed, which gives the rows after them new numbers.
    changes : int
        Rows that were added or removed since it was made or opened.

    >>> from dpindex.mechanism.codes import SignFormat
    >>> format_ = SignFormat(2, bytes(16))
    >>> store = CodeStore.of_segments(format_)
    >>> codes = format_.codes(format_.pack(np.array([[True, False], [True, True]])))
    >>> store = store.grown(codes, store.ids.check(["a", "b"], 2))
    >>> left = store.without(store.ids.rows(["a"]))
    >>> left.ids.array.tolist(), left.codes.to_float().tolist()
    (['b'], [[1.0, 1.0]])
    """

    def __init__(
        self,
        format_: CodeFormat,
        ids: Ids,
        payload: Payload,
        fixed: RowParts,
        room: Integers,
        *,
        removals: int = 0,
        changes: int = 0,
    ) -> None:
        self.format = format_
        self.ids = ids
        self.payload = payload
        self.removals = removals
        self.changes = changes
        self._fixed = fixed
        self._room = room

    @classmethod
    def of_segments(
        cls, format_: CodeFormat, segments: Iterable[tuple[Codes, IdBlock, Table]] = ()
    ) -> CodeStore:
        """Return a store of segments, whose codes it does not copy; they are not to change.

        Raises
        ------
        InputError
            For codes of another form, ids that are there twice, and payloads that do not fit.
        """
        payload = Payload()
        parts = []
        blocks = []
        count = 0
        for codes, ids, table in segments:
            check_format(codes, format_)
            if table is not None:
                table = payload.checked(table, len(codes))
            if table is not None or payload.table is not None:
                payload = payload.extended(count, table, len(codes))
            parts.append(codes.stored)
            blocks.append(ids)
            count += len(codes)
        arrays: list[Integers] = []
        # Neighbours that are small are joined, so that a search has few arrays; large ones stay
        # mapped.
        for is_small, run in groupby(parts, lambda part: part.nbytes < MAPPED_BYTES):
            if is_small:
                run = iter([format_.concatenate(list(run))])
            arrays += run
        room = np.empty((0, format_.width), np.int8)
        return cls(format_, Ids(StoredIds(blocks)), payload, RowParts(arrays), room)

    def __len__(self) -> int:
        return self.ids.count

    @property
    def codes(self) -> Codes:
        """All codes in row order, as a copy."""
        first, *others = self.table.arrays
        stored = self.format.concatenate([first.copy(), *others])
        return self.format.codes(stored)

    def grown(
        self,
        codes: Codes,
        ids: AnyArray,
        payload: Table = None,
        *,
        replace: bool = False,
    ) -> CodeStore:
        """Return a store with more codes of its format; this one stays as it is.

        Ids and payload were checked. Both stores share the arrays, in which the new rows lie beyond
        those of this one, as in :meth:`Ids.grown`: one store alone may grow from it. With
        ``replace`` the codes take the place of rows that have one of these ids.
        """
        if replace:
            replaced = self.ids.rows(ids, missing=True)
            return self.without(replaced).grown(codes, ids, payload)
        # The ids say how many rows there are: what lies beyond, left by Ctrl-C, is overwritten.
        count = self.ids.count
        columns = self.payload
        if payload is not None or columns.table is not None:
            columns = columns.extended(count, payload, len(ids))
        return CodeStore(
            self.format,
            self.ids.grown(ids),
            columns,
            self._fixed,
            appended(self._room, count - self._fixed.count, codes.stored),
            removals=self.removals,
            changes=self.changes + len(ids),
        )

    def checked_labels(
        self, ids: Any | None, payload: Any, count: int, *, replace: bool = False
    ) -> tuple[AnyArray, Table]:
        """Return ids and payload of ``count`` rows that may be added.

        Refused is what :meth:`Ids.check` and :meth:`Payload.checked` refuse.
        """
        names = self.ids.check(ids, count, replace=replace)
        if payload is None:
            return names, None
        return names, self.payload.checked(payload, count, names)

    def payload_of(self, rows: slice | Rows) -> Table:
        """Return a copy of the payload of some rows; None if the store has none."""
        if self.payload.table is None:
            return None
        return self.payload.take(rows)

    def take(self, rows: slice | Rows) -> Codes:
        """Return the codes of some rows; those of a slice are not copied, if it can be."""
        return self.format.codes(self.table.take(rows))

    @property
    def table(self) -> RowParts:
        """The stored codes in row order, which stay as they are when others come or go."""
        count = len(self.ids) - len(self._fixed)
        if count or not self._fixed.arrays:
            added = self._room[:count]
            return RowParts([*self._fixed.arrays, added])
        return self._fixed

    def blocks(self, start: int = 0, rows: int | None = None) -> Iterator[Codes]:
        """Yield the codes from row ``start`` on, none copied.

        A block has at most ``rows`` rows; by default a few megabytes.
        """
        step = rows or max(1, STORED_NUMBERS // self.format.code_length)
        for _, stored in self.table.within(start, len(self), step):
            yield self.format.codes(stored)

    def repeats(self, codes: Codes) -> int:
        """Return how many of these codes are in the store already, byte for byte."""
        types = [array.dtype for array in self.table.arrays]
        common = np.result_type(codes.stored.dtype, *types)
        rows = _row_bytes(codes.stored, common)
        distinct = set(rows)
        repeated = set[bytes]()
        for block in self.blocks():
            repeated |= distinct.intersection(_row_bytes(block.stored, common))
        return sum(row in repeated for row in rows)

    def without(self, rows: Rows) -> CodeStore:
        """Return a new store without some rows."""
        # A new array without them, and not marks: what was removed must not stay in memory or on
        # disk.
        kept = np.ones(len(self.ids), dtype=np.bool_)
        kept[rows] = False
        kept_rows = np.flatnonzero(kept)
        fixed = len(self._fixed)
        return CodeStore(
            self.format,
            self.ids.without(rows),
            Payload(self.payload_of(kept_rows)),
            self._fixed.where(kept),
            self._room[kept_rows[kept_rows >= fixed] - fixed],
            removals=self.removals + 1,
            changes=self.changes + len(rows),
        )


def _row_bytes(stored: Integers, common: np.dtype[Any]) -> list[bytes]:
    """Return each row as bytes that can be compared with rows of another type."""
    return [row.tobytes() for row in stored.astype(common)]


class Ids:
    """The ids of an index: a list in row order, without duplicates, which stays as it is.

    Parameters
    ----------
    stored : StoredIds, optional
        Ids of saved segments.
    added : int64 or unicode array
        Ids that were added in memory, after the stored ones.

    Attributes
    ----------
    stored, added
        As given.
    count : int
        Of all ids.
    kind : str, optional
        "i" for numbers, "U" for strings; None without ids.

    >>> ids = Ids()
    >>> ids = ids.grown(ids.check(["a", "b", "c"], 3))
    >>> len(ids), ids.rows(["c", "a"])
    (3, array([0, 2]))
    """

    def __init__(self, stored: StoredIds | None = None, added: AnyArray = NO_IDS) -> None:
        if stored is None:
            stored = StoredIds()
        self.stored = stored
        self.added = added
        # Its room doubles, so that many small additions take as long as one.
        self._room = added
        self.count = stored.count + len(added)
        self.kind = stored.kind
        if len(added):
            self.kind = added.dtype.kind
        self._ascend = _ascend(added)  # as the default ids do
        self._by_id: dict[Any, int] | None = None

    def __len__(self) -> int:
        return self.count

    @property
    def array(self) -> AnyArray:
        """All ids, int64 or unicode, shape (n,)."""
        return self.take(slice(None))

    def take(self, rows: slice | Rows) -> AnyArray:
        """Return the ids of some rows."""
        if not self.stored.count:
            return self.added[rows]
        parts: list[Any] = [self.stored]
        if len(self.added):
            parts.append(self.added)
        return RowParts(parts).take(rows)

    @property
    def _rows_by_id(self) -> dict[Any, int]:
        """Rows of added ids, made when first needed: numbers that ascend do without."""
        by_id = self._by_id
        if by_id is None:
            rows = range(self.stored.count, len(self))
            # Kept here for others: another thread may hand it over at any time.
            self._by_id = by_id = dict(zip(self.added.tolist(), rows, strict=True))
        return by_id

    def _rows_of(self, ids: AnyArray) -> Rows:
        """Return the row of each id, −1 for one that is not there."""
        rows = self.stored.rows(ids)
        added = self.added
        if not len(added):
            return rows
        is_missing = rows < 0
        missing = ids[is_missing]
        if self._ascend and ids.dtype.kind == "i":
            place = places(added, missing)
            place = np.minimum(place, len(added) - 1)
            is_present = added[place] == missing
            found = self.stored.count + place
            rows[is_missing] = np.where(is_present, found, -1)
        else:
            row_of = self._rows_by_id
            rows_of_missing = [row_of.get(value, -1) for value in missing.tolist()]
            found = np.array(rows_of_missing, np.int64)
            # Of ids that were added since these were copied, which share the dict.
            rows[is_missing] = np.where(found < len(self), found, -1)
        return rows

    def __contains__(self, value: object) -> bool:
        try:
            ids = id_array([value])
        except InputError:  # it cannot be an id
            return False
        (row,) = self._rows_of(ids)
        return bool(row >= 0)

    def check(
        self,
        ids: Any | None,
        count: int,
        *,
        replace: bool = False,
    ) -> AnyArray:
        """Return ``count`` ids that may be added, as an array; of None the next free numbers.

        They are new, unless ``replace`` allows ids that are there already.
        """
        if ids is None:
            if replace:
                raise InputError(
                    "what is replaced is named by id; give every vector an id.", field="ids"
                )
            return self._next_numbers(count)
        refuse_unordered(ids)
        array = id_array(ids)
        if len(array) != count:
            raise InputError(f"there are {len(array)} ids for {count} vectors.")
        if self.kind not in (None, array.dtype.kind):
            raise other_kind_of_ids(self.kind == "U", "new ids")
        taken: dict[Any, str] = {}
        if not replace and len(self):
            is_present = self._rows_of(array) >= 0
            taken = dict.fromkeys(array[is_present].tolist(), "already in the index")
        values = array.tolist()
        if taken or len(set(values)) < count:
            _refuse_repeated(values, taken)
        return array

    def _next_numbers(self, count: int) -> AnyArray:
        if self.kind == "U":
            raise InputError("this index has string ids, so new vectors need ids too.")
        start = self.stored.next_number
        if len(self.added):
            largest = self.added[-1] if self._ascend else self.added.max()
            start = max(start, int(largest) + 1)
        if start + count > 1 << 63:
            raise InputError("the next free ids pass 64 bits; give ids to new vectors.")
        return np.arange(start, start + count, dtype=np.int64)

    def grown(self, ids: AnyArray) -> Ids:
        """Return these ids and others that ``check`` returned; these stay as they are.

        Both share one array, in which the new ids lie beyond the length of these: so these grow
        only once.
        """
        count = len(self.added)
        end = count + len(ids)
        dtype = ids.dtype
        if count:
            dtype = np.promote_types(dtype, self._room.dtype)
        if dtype.kind == "U" and end * dtype.itemsize > MAX_ID_BYTES:
            lengths = [np.char.str_len(part) for part in (self.added, ids) if len(part)]
            check_id_lengths(np.concatenate(lengths))
        room = appended(self._room, count, ids)
        ascend = self._ascend and _ascend(ids)
        if ascend and count and len(ids):
            ascend = bool(ids[0] > self.added[-1])
        grown = copy(self)  # what these know of their ids is not found again
        grown._by_id = None
        grown.added = room[:end]
        grown._room = room
        grown.count += len(ids)
        if len(ids):
            grown.kind = ids.dtype.kind
        grown._ascend = ascend
        if self._by_id is not None:
            # Handed over, as Ctrl-C may end this half-way: these make another if they need it.
            by_id = self._by_id
            self._by_id = None
            rows = range(self.count, grown.count)
            by_id.update(zip(ids.tolist(), rows, strict=True))
            grown._by_id = by_id
        return grown

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
        if (rows[1:] > rows[:-1]).all():  # to make them so takes a hundred times as long
            return rows
        return np.unique(rows)

    def without(self, rows: Rows) -> Ids:
        """Return these ids but those of some rows."""
        count = self.stored.count
        stored = self.stored
        if count:
            stored = stored.without(rows[rows < count])
        added = np.delete(self.added, rows[rows >= count] - count)
        return Ids(stored, added)


def appended(room: AnyArray, count: int, rows: AnyArray) -> AnyArray:
    """Write rows after the first ``count`` of an array, and return it, or a larger one.

    Room doubles, so that many small additions take as long as one, and values become as wide as the
    rows need.

    >>> appended(np.array([1, 2, 0], np.int8), 2, np.array([3], np.int8))
    array([1, 2, 3], dtype=int8)
    """
    end = count + len(rows)
    dtype = rows.dtype
    if count:
        dtype = np.promote_types(dtype, room.dtype)
    if end > len(room) or dtype != room.dtype:
        before = room
        length = max(2 * count, end)
        room = np.empty((length, *rows.shape[1:]), dtype)
        room[:count] = before[:count]
    room[count:end] = rows
    return room


def _ascend(ids: AnyArray) -> bool:
    """Return whether ids are numbers that ascend, or none."""
    if ids.dtype.kind == "U":
        return not len(ids)
    rises = ids[1:] > ids[:-1]
    return bool(rises.all())


def _refuse_repeated(ids: list[Any], taken: dict[Any, str]) -> None:
    """Refuse the first id that is taken, or there twice; of the taken ones it is said where."""
    for row, value in enumerate(ids):
        if value in taken:
            raise InputError(f"id {value!r} (row {row}) is {taken[value]}; ids must be unique.")
        taken[value] = "twice in the input"
