"""Ids: the one door for what names rows, taken exactly or refused."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

import numpy as np

from dpindex.base.arrays import AnyArray, Integers, Rows, Table, is_masked
from dpindex.base.errors import InputError
from dpindex.base.tables import (
    NUMBERED,
    arrow,
    as_arrow,
    first_null,
    index_columns,
    index_of,
    plain,
    speaks_arrow,
)

MAX_ID_LENGTH = 4096
"""Characters that an id may have."""

ID = "id"
"""The name of the ids among the columns of a payload."""

COLLECTION = "dpindex"
"""The name of a collection in a database, where none is given."""

_MAX_INT64 = np.iinfo(np.int64).max
_MAX_PADDED_BYTES = 1 << 30
_MAX_PADDING = 16


def id_array(ids: Any) -> AnyArray:
    """Ids as a new array of shape (n,): int64, or strings of at most 4096 characters.

    Parameters
    ----------
    ids : id, sequence, array or column
        Whole numbers, strings or UUIDs: one, a list, a NumPy array, or a column of Arrow, pandas,
        polars or DuckDB. Numbers stay numbers and text stays text; UUIDs become their text.

    Raises
    ------
    InputError
        For a missing or masked id, and ids of another type or of several.

    >>> id_array(range(3)), id_array("one")
    (array([0, 1, 2]), array(['one'], dtype='<U3'))
    """
    if isinstance(ids, str | int | np.integer | UUID) or hasattr(ids, "as_py"):
        ids = [ids]
    if is_masked(ids):
        masked = np.flatnonzero(np.ma.getmaskarray(ids))
        if masked.size:
            raise InputError(f"row {masked[0]} is masked; every row needs an id.")
        ids = np.asarray(ids)
    if speaks_arrow(ids):
        ids = _of_column(as_arrow(ids))
    if isinstance(ids, np.ndarray):
        ids = np.atleast_1d(ids)
    if not isinstance(ids, np.ndarray) or (ids.ndim == 1 and ids.dtype.kind in "OT"):
        if isinstance(ids, bytes) or not isinstance(ids, Iterable):
            raise InputError(f"ids are whole numbers or strings, not {type(ids).__name__}.")
        ids = _array_of_list(list(ids))
    array: AnyArray = ids
    if not array.size and array.dtype.kind != "U":
        return np.empty(0, np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iuU":
        found = f"{array.ndim} dimension(s) of type {array.dtype}"
        raise InputError(f"ids must be a list of whole numbers or of strings, not {found}.")
    if array.dtype.kind != "U":
        if int(array.max()) > _MAX_INT64:
            raise InputError(
                f"id {array.max()} is too large; ids must fit into 64-bit signed integers."
            )
        return array.astype(np.int64)
    array = array.astype(array.dtype.newbyteorder("="))
    # NumPy takes any 32 bits for a character, half a surrogate pair included.
    points = array.view(np.uint32)
    width = array.dtype.itemsize // 4
    is_half = (points >= 0xD800) & (points <= 0xDFFF)
    wrong = np.flatnonzero((points > 0x10FFFF) | is_half)
    if wrong.size:
        row = wrong[0] // width
        raise InputError(
            f"row {row} has an id that is not text; ids must be text that UTF-8 can hold."
        )
    if width > MAX_ID_LENGTH:
        check_id_lengths(np.char.str_len(array))
    return array


def refuse_unordered(ids: Any) -> None:
    """Raise InputError for a set of ids, where each is that of a row."""
    if isinstance(ids, set | frozenset):
        raise InputError("ids in a set have no order; give a list, in the order of the rows.")


def ids_of_file(ids: Any) -> AnyArray:
    """Return ids that were read from a file as :func:`id_array` does; none may be empty."""
    array = id_array(ids)
    if array.dtype.kind == "U":
        empty = np.flatnonzero(array == "")
        if empty.size:
            raise InputError(f"row {empty[0]} has an empty id; give it one.")
    return array


def ids_of_text(texts: Sequence[str]) -> AnyArray:
    """Return ids that were read from text, where no type says what they are.

    They are whole numbers if every one is an int64 in plain decimal, and else text as it stands.

    >>> ids_of_text(["1", "20"]), ids_of_text(["1", "020"])
    (array([ 1, 20]), array(['1', '020'], dtype='<U3'))
    """
    try:
        numbers = np.array([int(text) for text in texts], dtype=np.int64)
    except (ValueError, OverflowError):
        return id_array(texts)
    if [str(number) for number in numbers.tolist()] == list(texts):
        return numbers
    return id_array(texts)


def _of_column(column: Any) -> Any:
    """Return a column of Arrow as an array of numbers or a list of strings."""
    pa = arrow()
    if isinstance(column, pa.Table):
        if column.num_columns != 1:
            raise InputError(
                f"ids are one column, and this table has {column.num_columns}; name the column."
            )
        column = column.column(0)
    column = plain(column)
    if column.null_count:
        raise InputError(f"row {first_null(column)} is null; every row needs an id.")
    kind = column.type
    if pa.types.is_integer(kind):
        return np.asarray(column.to_numpy())
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or not len(column):
        return column.to_pylist()
    raise InputError(f"ids are whole numbers, strings or UUIDs, and these are of type {kind}.")


def _array_of_list(values: list[Any]) -> AnyArray:
    values = [value.as_py() if hasattr(value, "as_py") else value for value in values]
    # NumPy would turn [1, "a"] into strings and [True] into numbers, and drop final NULs.
    if values and all(isinstance(value, UUID) for value in values):
        values = list(map(str, values))
    if values and all(isinstance(value, str) for value in values):
        if any(value.endswith("\0") for value in values):
            raise InputError("an id ends with a NUL character; ids must be plain text.")
        lengths = np.array(list(map(len, values)))
        check_id_lengths(lengths)
        return np.array(values, dtype=np.str_)
    if all(isinstance(value, int | np.integer) and type(value) is not bool for value in values):
        try:
            return np.fromiter(map(int, values), np.int64, len(values))
        except OverflowError:
            raise InputError("ids must fit into 64-bit signed integers.") from None
    kinds = [type(value).__name__ for value in values]
    row = next(row for row, kind in enumerate(kinds) if kind != kinds[0] or kind not in _KINDS)
    raise InputError(
        f"ids must be a list of whole numbers or of strings; that of row {row} is {kinds[row]}."
    )


_KINDS = ("int", "str", "UUID")


def check_id_lengths(lengths: Integers) -> None:
    """Refuse strings with these numbers of characters as ids, if one array of them is too large.

    NumPy pads each to the longest; up to 1 GB, or 16 times what they need, is allowed.
    """
    longest = int(lengths.max(initial=0))
    count = len(lengths)
    if longest > MAX_ID_LENGTH:
        raise InputError(
            f"the id in row {int(np.argmax(lengths))} has {longest} characters; at most"
            f" {MAX_ID_LENGTH} are allowed."
        )
    padded = 4 * count * longest
    if padded > max(_MAX_PADDED_BYTES, 4 * _MAX_PADDING * int(lengths.sum())):
        raise InputError(
            f"the longest id has {longest} characters, to which all {count} would be padded: that"
            " takes too much memory; shorten the long ones."
        )


def other_kind_of_ids(has_text: bool, others: str) -> InputError:
    """Return the error for ids of another kind than those of an index.

    Parameters
    ----------
    has_text : bool
        The ids of the index are strings, and not whole numbers.
    others : str
        Which ids are of another kind, the subject of a sentence.
    """
    kind = kind_of_ids(has_text)
    return InputError(f"the ids of this index are {kind}; {others} must be {kind} too.")


def kind_of_ids(has_text: bool) -> str:
    """Return what ids are: strings, or whole numbers."""
    if has_text:
        return "strings"
    return "whole numbers"


def check_unique(ids: AnyArray) -> None:
    """Raise InputError, which names both rows, if an id stands there twice.

    >>> check_unique(np.array([7, 9, 7]))
    Traceback (most recent call last):
      ...
    dpindex.base.errors.InputError: rows 0 and 2 have the same id; ids must be unique.
    """
    order = np.argsort(ids, kind="stable")
    ordered = ids[order]
    equal = np.flatnonzero(ordered[1:] == ordered[:-1])
    if equal.size:
        first = equal[0]
        one, other = order[first : first + 2]
        raise InputError(f"rows {one} and {other} have the same id; ids must be unique.")


def joined_rows(own: Any, ids: AnyArray, what: str) -> Rows | None:
    """Return, for each of the ids, the row of a table that has this id; None if all are in order.

    Parameters
    ----------
    own : ids
        The ids of the table's rows, as it states them.
    ids : array, shape (n,)
        Those of the vectors.
    what : str
        What has the table's ids, the subject of a sentence.

    Raises
    ------
    InputError
        Unless both are the same ids, each once.

    >>> joined_rows(["b", "a"], np.array(["a", "b"]), "the payload's column 'id'")
    array([1, 0])
    """
    rows = id_array(own)
    if len(rows) == len(ids) and rows.dtype.kind == ids.dtype.kind:
        if (rows == ids).all():
            return None
        check_unique(rows)
        order = np.argsort(rows)
        places = np.minimum(np.searchsorted(rows[order], ids), len(rows) - 1)
        found = order[places]
        if (rows[found] == ids).all():
            return found
    raise InputError(
        f"{what} names other rows than the ids of the vectors; give each vector's id once, or "
        f"leave it out."
    )


def in_order_of(ids: AnyArray, table: Table, what: str) -> Table:
    """Return a table's rows in the order of the ids, by its column ``id`` or a frame's index.

    Both columns are left out of what is returned. A table with neither is in that order, unless an
    index without a name holds the ids in another: InputError.

    >>> import pyarrow as pa
    >>> table = pa.table({"id": [9, 7], "title": ["nine", "seven"]})
    >>> in_order_of(np.array([7, 9]), table, "the payload").to_pydict()
    {'title': ['seven', 'nine']}
    """
    index = index_columns(table)
    named = [name for name in index if not name.startswith(NUMBERED)]
    for name in {ID: None, **dict.fromkeys(named)}:
        if name in table.column_names:
            rows = joined_rows(table[name], ids, f"column {name!r} of {what}")
            if rows is not None:
                table = table.take(rows)
    for name in set(index).difference(named):
        if _is_another_order(table[name], ids):
            raise InputError(
                f"the index of {what} holds the ids in another order than the vectors; name it "
                f"'id' to join by it, or drop it with reset_index(drop=True)."
            )
    dropped = {ID, *index}.intersection(table.column_names)
    return table.drop_columns(sorted(dropped))


def _is_another_order(own: Any, ids: AnyArray) -> bool:
    try:
        return joined_rows(own, ids, "") is not None
    except InputError:  # other values, which are no ids
        return False


def check_index(vectors: Any, ids: Any) -> None:
    """Raise InputError if vectors are a frame whose named index names other rows than the ids."""
    index = index_of(vectors)
    if index is None:
        return
    if ids is None:
        raise InputError(
            f"the vectors have an index {index.name!r}, which would be lost: give it as ids, or "
            f"drop it with reset_index(drop=True).",
            field="ids",
        )
    others = index_of(ids, named=False)
    if others is not None and others.equals(index):
        return
    if joined_rows(index, id_array(ids), f"the index {index.name!r} of the vectors") is not None:
        raise InputError(
            f"the index {index.name!r} of the vectors names the rows in another order than the "
            f"ids; give it as ids, or drop it with reset_index(drop=True).",
            field="ids",
        )
