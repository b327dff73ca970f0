"""Codes of an index with their ids and payload, in row order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import copy
from itertools import groupby
from typing import Any

import numpy as np

from dpindex.base.arrays import AnyArray, Integers, Table
from dpindex.mechanism.codes import CodeFormat, Codes, check_format
from dpindex.mechanism.spec import Spec
from dpindex.storage.ids import IdBlock, Ids, RowParts, Rows, StoredIds, appended
from dpindex.storage.payload import Payload

MAPPED_BYTES = 1 << 20
"""Files of segments that are mapped where they lie; smaller ones are read and joined."""

_SEGMENT_BYTES = 1 << 25
_SEGMENT_ROWS = 65536
BLOCK_NUMBERS = 1 << 20
"""Coordinates of codes that are handled together: 16 MB of float32."""


def rows_per_segment(spec: Spec) -> int:
    """Return how many rows fill a segment, whose files are read whole."""
    return max(1, min(_SEGMENT_ROWS, _SEGMENT_BYTES // spec.format.max_row_bytes))


class CodeStore:
    """Codes of one format under unique ids.

    Attributes
    ----------
    format : CodeFormat
        The format of all codes.
    ids : Ids
        In row order: what is appended has ids that were checked with it.
    payload : Payload
        Of all rows.
    removals : int
        How often codes were removed, which gives the rows after them new numbers.

    >>> from dpindex.mechanism.codes import SignFormat
    >>> format_ = SignFormat(2, bytes(16))
    >>> store = CodeStore(format_)
    >>> codes = format_.codes(format_.pack(np.array([[True, False], [True, True]])))
    >>> store.append(codes, store.ids.check(["a", "b"], 2))
    >>> store.remove(["a"]), store.ids.array.tolist(), store.codes.to_float().tolist()
    (1, ['b'], [[1.0, 1.0]])
    """

    def __init__(self, format_: CodeFormat) -> None:
        self.format = format_
        self.payload = Payload()
        self.removals = 0
        self.ids = Ids()
        # Codes of saved segments, mapped where they lie; then those that were added, in one array
        # that doubles its room, and widens its integers where needed.
        self._room: Integers = np.empty((0, format_.width), dtype=np.int8)
        self._fixed = RowParts()

    @classmethod
    def of_segments(
        cls, format_: CodeFormat, segments: Iterable[tuple[Codes, IdBlock, Table]]
    ) -> CodeStore:
        """Return a store of segments, whose codes it does not copy; they are not to change.

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
            table = store.payload.checked(table, len(codes))
            store.payload = store.payload.extended(count, table, len(codes))
            parts.append(codes.stored)
            blocks.append(ids)
            count += len(codes)
        if not parts:
            return store
        arrays: list[Integers] = []
        for is_small, run in groupby(parts, lambda part: part.nbytes < MAPPED_BYTES):
            if is_small:
                arrays.append(format_.concatenate(list(run)))
            else:
                arrays += run
        store._fixed = RowParts(arrays)
        store.ids = Ids(stored=StoredIds(blocks))
        return store

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def codes(self) -> Codes:
        """All codes in row order, as a copy."""
        arrays = self.table.arrays
        if len(arrays) == 1:
            return self.format.codes(self.format.concatenate([arrays[0].copy()]))
        return self.format.codes(self.format.concatenate(arrays))

    def append(
        self,
        codes: Codes,
        ids: AnyArray,
        payload: Table = None,
        *,
        replace: bool = False,
    ) -> None:
        """Add codes of the store's format, with ids and payload that were checked.

        With ``replace`` they take, in one step, the place of rows that have one of these ids.
        """
        if replace:
            self._become(self.grown(codes, ids, payload, replace=True))
            return
        # The ids say how many rows there are: what lies beyond, left by Ctrl-C, is overwritten.
        count = len(self.ids)
        self._room = appended(self._room, count - len(self._fixed), codes.stored)
        self.payload = self.payload.extended(count, payload, len(ids))
        self.ids.append(ids)

    def grown(
        self,
        codes: Codes,
        ids: AnyArray,
        payload: Table = None,
        *,
        replace: bool = False,
    ) -> CodeStore:
        """Return a store with more codes, as :meth:`append` adds them; this one stays as it is."""
        if replace:
            store = self.without(self.ids.rows(ids, missing=True))
            store.removals = self.removals + 1
        else:
            store = copy(self)
            store.ids = self.ids.handed_over()
        store.append(codes, ids, payload)
        return store

    def take(self, rows: slice | Rows) -> Codes:
        """Return the codes of some rows; those of a slice are not copied, if it can be."""
        return self.format.codes(self.table.take(rows))

    @property
    def table(self) -> RowParts:
        """The stored codes in row order, which stay as they are when others come or go."""
        count = len(self.ids) - len(self._fixed)
        if count or not self._fixed.arrays:
            return RowParts([*self._fixed.arrays, self._room[:count]])
        return self._fixed

    def blocks(self, start: int = 0, rows: int | None = None) -> Iterator[Codes]:
        """Yield the codes from row ``start`` on, none copied.

        A block has at most ``rows`` rows; by default a few megabytes.
        """
        step = rows or max(1, BLOCK_NUMBERS // self.format.code_length)
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

    def remove(self, ids: Any) -> int:
        """Remove codes by id; returns how many.

        Raises
        ------
        InputError
            If one of the ids is not there; nothing is removed then.
        """
        rows = self.ids.rows(ids)
        self._become(self.without(rows))
        return len(rows)

    def without(self, rows: Rows) -> CodeStore:
        """Return a new store without some rows."""
        store = CodeStore(self.format)
        count = len(self.ids)
        fixed = len(self._fixed)
        kept = np.ones(count, dtype=np.bool_)
        kept[rows] = False
        store.ids = self.ids.without(rows)
        store.payload = Payload(self.payload.take(np.flatnonzero(kept)))
        store._fixed = self._fixed.where(kept)
        store._room = self._room[: count - fixed][kept[fixed:]]
        return store

    def _become(self, other: CodeStore) -> None:
        """Take over all that another store keeps, in one step that Ctrl-C does not cut."""
        other.removals = self.removals + 1
        self.__dict__ = other.__dict__


def _row_bytes(stored: Integers, common: np.dtype[Any]) -> list[bytes]:
    """Return each row as bytes that can be compared with rows of another type."""
    return [row.tobytes() for row in stored.astype(common)]
