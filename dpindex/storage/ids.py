"""Ids of an index in row order, as they lie in files and as they are added; and rows in parts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from dpindex.base.arrays import AnyArray, Bools, Bytes, Rows
from dpindex.base.errors import DamagedError, InputError
from dpindex.base.files import Buffer, pack, release_pages, unpack
from dpindex.base.ids import (
    MAX_ID_LENGTH,
    check_id_lengths,
    id_array,
    other_kind_of_ids,
    refuse_unordered,
)


class RowParts:
    """Arrays of one width, one below the other, which are never changed.

    Parameters
    ----------
    arrays : sequence of arrays, shapes (n_i, …)
        Anything that has a length and gives an array for a slice or an array of rows.

    >>> parts = RowParts([np.arange(3), np.arange(10, 12)])
    >>> len(parts), parts.take(np.array([4, 0, 3])), parts.take(slice(2, 4))
    (5, array([11,  0, 10]), array([ 2, 10]))
    """

    def __init__(self, arrays: Sequence[Any] = ()) -> None:
        self.arrays = list(arrays)
        lengths = map(len, self.arrays)
        self._starts = np.cumsum([0, *lengths])
        self.count = int(self._starts[-1])

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[tuple[int, Any]]:
        """Yield the number of the first row of each array, and the array."""
        return zip(self._starts.tolist(), self.arrays, strict=False)

    def within(
        self,
        start: int,
        stop: int,
        rows: int = 1 << 62,
    ) -> Iterator[tuple[int, Any]]:
        """Yield rows ``start`` to ``stop`` as views of at most ``rows`` rows.

        Each comes with the number of its first row.
        """
        stop = min(stop, self.count)
        while start < stop:
            part = int(np.searchsorted(self._starts, start, side="right")) - 1
            first, beyond = self._starts[part : part + 2].tolist()
            end = min(start + rows, stop, beyond)
            yield start, self.arrays[part][start - first : end - first]
            start = end

    def take(self, rows: slice | Rows) -> AnyArray:
        """Return some rows: a view where a slice lies in one array, else a copy."""
        if isinstance(rows, slice):
            first, stop, _ = rows.indices(self.count)
            if first >= stop:
                return np.asarray(self.arrays[0][:0])
            pieces = [piece for _, piece in self.within(first, stop)]
            if len(pieces) == 1:
                return np.asarray(pieces[0])
            return np.concatenate(pieces)
        flat = rows.ravel()
        if len(self.arrays) == 1 or not len(flat):
            values = np.asarray(self.arrays[0][flat])
        else:
            values = self._gathered(flat)
        return values.reshape(rows.shape + values.shape[1:])

    def _gathered(self, rows: Rows) -> AnyArray:
        """Return rows of several arrays; the rows of each array are read at once."""
        parts = np.searchsorted(self._starts, rows, side="right") - 1
        order = np.argsort(parts, kind="stable")
        cuts = np.flatnonzero(np.diff(parts[order])) + 1
        pieces = []
        for places in np.split(order, cuts):
            part = parts[places[0]]
            array = self.arrays[part]
            within = rows[places] - self._starts[part]
            pieces.append(array[within])
            release_pages(array)  # the system maps sixteen pages about each row
        joined = np.concatenate(pieces)
        values = np.empty_like(joined)
        values[order] = joined
        return values

    def where(self, kept: Bools) -> RowParts:
        """Return the rows of a mask; an array of which all rows are kept is not copied."""
        arrays = []
        for start, array in self:
            chosen = kept[start : start + len(array)]
            if not chosen.all():
                array = array[chosen]
            arrays.append(array)
        return RowParts(arrays)


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
        keys = _NONE
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
        return _NONE

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


def id_keys(ids: AnyArray) -> Rows:
    """Return numbers that are equal for equal ids: numbers themselves, hashes of strings."""
    if ids.dtype.kind == "i":
        return ids
    hashes = map(hash, ids.tolist())
    return np.fromiter(hashes, np.int64, len(ids))


_MAX_ID_BYTES = 1 << 30
"""Bytes of the 65536 rows that a segment may have as an array, at 4096 characters each."""


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

    def __init__(self, stored: StoredIds | None = None, added: AnyArray = _NONE) -> None:
        if stored is None:
            stored = StoredIds()
        self._hold(stored, added, added, _ascend(added))

    def _hold(self, stored: StoredIds, added: AnyArray, room: AnyArray, ascend: bool) -> None:
        self.stored = stored
        self.added = added
        # Its room doubles, so that many small additions take as long as one.
        self._room = room
        self.count = stored.count + len(added)
        self.kind = stored.kind
        if len(added):
            self.kind = added.dtype.kind
        self._ascend = ascend  # as the default ids do
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
        if dtype.kind == "U" and end * dtype.itemsize > _MAX_ID_BYTES:
            lengths = [np.char.str_len(part) for part in (self.added, ids) if len(part)]
            check_id_lengths(np.concatenate(lengths))
        room = appended(self._room, count, ids)
        ascend = self._ascend and _ascend(ids)
        if ascend and count and len(ids):
            ascend = bool(ids[0] > self.added[-1])
        grown = Ids.__new__(Ids)  # what these know of their ids is not found again
        grown._hold(self.stored, room[:end], room, ascend)
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
    return len(ids) < 2 or bool((ids[1:] > ids[:-1]).all())


def _refuse_repeated(ids: list[Any], taken: dict[Any, str]) -> None:
    """Refuse the first id that is taken, or there twice; of the taken ones it is said where."""
    for row, value in enumerate(ids):
        if value in taken:
            raise InputError(f"id {value!r} (row {row}) is {taken[value]}; ids must be unique.")
        taken[value] = "twice in the input"


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
    if longest > MAX_ID_LENGTH or 4 * len(lengths) * longest > _MAX_ID_BYTES:
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
