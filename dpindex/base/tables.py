"""The door for tables: whatever speaks Arrow becomes columns, and columns become vectors.

pandas, polars, DuckDB, pyarrow and ``datasets`` speak Arrow's PyCapsule protocol; what they hand
over is read through it alone. Errors name rows and columns, and repeat no value of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

import numpy as np

from dpindex.base.arrays import AnyArray, Table
from dpindex.base.errors import InputError, import_extra, naming

_PROTOCOL = ("__arrow_c_stream__", "__arrow_c_array__", "__arrow_array__")
NUMBERED = "__index_level_"
"""What names of columns begin with that hold an index of pandas without a name."""


def arrow() -> Any:
    """The module pyarrow; InputError where it is not installed."""
    return import_extra("pyarrow", "tables, Arrow columns and payload need pyarrow", "io")


def speaks_arrow(value: Any) -> bool:
    """Whether it is a table or a column that Arrow reads."""
    return not isinstance(value, type) and any(hasattr(value, name) for name in _PROTOCOL)


def as_arrow(value: Any) -> Any:
    """Return what speaks Arrow as a ``pyarrow.Table`` or a ``pyarrow.ChunkedArray``.

    Raises
    ------
    InputError
        Without pyarrow, and for values that have no Arrow type.

    >>> import pyarrow as pa
    >>> as_arrow(pa.array([1, 2])).type
    DataType(int64)
    """
    pa = arrow()
    if isinstance(value, pa.Table | pa.ChunkedArray):
        return value
    try:
        if hasattr(value, "__arrow_c_stream__"):
            try:
                return pa.table(value)
            except pa.ArrowInvalid as error:
                if "non-struct" not in str(error):
                    raise
            return pa.chunked_array(value)
        array = pa.array(value)
        if pa.types.is_struct(array.type):
            return pa.table(value)
        return pa.chunked_array([array])
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        kind = type(value).__name__
        if "format string" in str(error):  # a type that its maker alone has, as 128-bit integers
            raise InputError(
                f"a column of this {kind} has a type that Arrow does not have; cast it, such as to "
                f"64-bit numbers."
            ) from None
        if "Sparse" in str(error):
            raise InputError(
                f"this {kind} has sparse columns, which Arrow does not have; give "
                f"frame.sparse.to_dense(), or a scipy matrix of vectors."
            ) from None
        # Arrow's own sentence repeats a value.
        raise InputError(
            f"this {kind} cannot be read as Arrow data: give its columns distinct names, and each "
            f"of them values of one type."
        ) from None


def table_of_rows(rows: Sequence[Any]) -> Table:
    """Return dicts as a table of all their keys, with nulls where a row lacks one.

    >>> table_of_rows([{"a": 1}, {"a": 2, "b": "two"}]).to_pydict()
    {'a': [1, 2], 'b': [None, 'two']}
    """
    names = dict.fromkeys(name for row in rows for name in row)
    return table_of_columns({name: [row.get(name) for row in rows] for name in names})


def table_of_columns(columns: Any) -> Table:
    """Return a mapping of names to columns as a table; InputError for columns of mixed types."""
    pa = arrow()
    arrays = {}
    for name, values in columns.items():
        try:
            arrays[name] = as_arrow(values) if speaks_arrow(values) else pa.array(values)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            row = _other_type(values)
            raise InputError(
                f"column {name!r} has values of several types or too large ones, in row {row} "
                f"first; give it values of one type."
            ) from None
    try:
        return pa.table(arrays)
    except (pa.ArrowException, TypeError, ValueError):
        raise InputError("columns must be named by text, and all have as many rows.") from None


def _other_type(values: Sequence[Any]) -> int:
    """Return the first row with a value of another type than those before it, or a large one."""
    kinds = set()
    if not isinstance(values, Iterable):
        return 0
    for row, value in enumerate(values):
        if value is not None:
            kinds.add(type(value))
        if len(kinds) > 1 or (type(value) is int and value.bit_length() > 63):
            return row
    return 0


def plain(column: Any) -> Any:
    """Return a column without the ways in which Arrow packs values.

    Dictionaries, views, run lengths and extension types become the values themselves; UUIDs become
    their text.
    """
    pa = arrow()
    kind = column.type
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        storage = pa.chunked_array([chunk.storage for chunk in column.chunks], kind.storage_type)
        if kind.extension_name == "arrow.uuid":
            texts = [one and str(UUID(bytes=one)) for one in storage.to_pylist()]
            return pa.chunked_array([pa.array(texts, pa.string())])
        return plain(storage)
    if types.is_dictionary(kind):
        # Arrow takes no values out of a dictionary of views.
        decoded = [
            pa.DictionaryArray.from_arrays(
                chunk.indices, _one(plain(pa.chunked_array([chunk.dictionary])))
            ).dictionary_decode()
            for chunk in column.chunks
        ]
        if not decoded:
            return plain(pa.chunked_array([], kind.value_type))
        return pa.chunked_array(decoded)
    if types.is_run_end_encoded(kind):
        return pa.chunked_array(
            [pa.compute.run_end_decode(chunk) for chunk in column.chunks], kind.value_type
        )
    text = f"{kind}"
    if text == "string_view":
        return column.cast(pa.large_string())
    if text == "binary_view":
        return column.cast(pa.large_binary())
    if types.is_large_list(kind) and str(kind.value_type) == "string_view":
        return column.cast(pa.large_list(pa.large_string()))
    if types.is_list(kind) and str(kind.value_type) == "string_view":
        return column.cast(pa.list_(pa.large_string()))
    return column


def _one(column: Any) -> Any:
    """Return a column in one piece."""
    pieces = column.combine_chunks()
    if hasattr(pieces, "chunks"):
        return pieces.chunk(0)
    return pieces


def first_null(column: Any) -> int:
    """Return the first row without a value."""
    is_null = column.is_null().to_numpy(zero_copy_only=False)
    return int(np.argmax(is_null))


def is_list(kind: Any) -> bool:
    """Whether a column of that Arrow type is a list of numbers in each row."""
    pa = arrow()
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    tests = ("list", "large_list", "fixed_size_list", "list_view", "large_list_view")
    return any(getattr(pa.types, f"is_{test}")(kind) for test in tests) and is_number(
        kind.value_type
    )


def is_number(kind: Any) -> bool:
    """Whether a column of that Arrow type holds real numbers or bools."""
    tests = ("integer", "floating", "boolean", "decimal")
    return any(getattr(arrow().types, f"is_{test}")(kind) for test in tests)


def numbers_of(column: Any, name: str, place: str = "") -> AnyArray:
    """Return a column of numbers as shape (n,), or of lists of numbers as shape (n, p).

    Parameters
    ----------
    column : pyarrow.ChunkedArray
    name, place : str
        What messages call the vectors, and which of their columns it is.

    Raises
    ------
    InputError
        For another type, a null, and lists of several lengths.

    >>> import pyarrow as pa
    >>> numbers_of(pa.chunked_array([[[1, 2]], [[3, 4]]]), "vectors").tolist()
    [[1, 2], [3, 4]]
    """
    if place:
        place = f" in column {place!r}"
    if len(getattr(column.type, "shape", ())) > 1:
        raise InputError(f"{name} are tensors{place}; {as_matrix(1 + len(column.type.shape))}.")
    column = plain(column)
    if is_number(column.type):
        if column.null_count:
            raise InputError(
                f"{name} have a null or NaN{place}, row {first_null(column)}; fill the missing "
                f"values."
            )
        return _values(column)
    if not is_list(column.type):
        raise InputError(f"{name} must be real numbers, not {column.type}{place}.")
    blocks: list[AnyArray] = []
    first = 0
    for chunk in filter(len, column.chunks):
        width = blocks[0].shape[1] if blocks else None
        with naming(name):
            blocks.append(matrix(chunk, first, width))
        first += len(chunk)
    if len(blocks) == 1:
        return blocks[0]
    if blocks:
        return np.concatenate(blocks)
    return np.empty((0, 0))


def matrix(lists: Any, first: int = 0, width: int | None = None) -> AnyArray:
    """Return an Arrow array of lists as shape (n, p), without a copy where that is possible.

    Parameters
    ----------
    lists : pyarrow.Array
        Of one of the types of :func:`is_list`, not of an extension.
    first : int
        Number of its first row, for messages.
    width : int, optional
        Length of every list; default that of the first.
    """
    from pyarrow import compute

    if lists.null_count:
        row = first + first_null(lists)
        raise InputError(f"row {row} is null; every row must be a vector.")
    lengths = compute.list_value_length(lists).to_numpy(zero_copy_only=False)
    if width is None:
        width = int(lengths[0])
    wrong = np.flatnonzero(lengths != width)
    if wrong.size:
        raise InputError(
            f"row {first + wrong[0]} has {lengths[wrong[0]]} values and row 0 {width}; all rows "
            f"must be of one length."
        )
    values = lists.flatten()
    if values.null_count:
        row = first + first_null(values) // max(1, width)
        raise InputError(f"row {row} has a null; fill the missing values.")
    return _values(values).reshape(len(lists), width)


def _values(numbers: Any) -> AnyArray:
    """Return numbers without nulls as an array; decimals as the nearest float64."""
    pa = arrow()
    if pa.types.is_decimal(numbers.type):
        numbers = numbers.cast(pa.float64())
    if hasattr(numbers, "chunks"):
        return np.asarray(numbers.to_numpy())
    return np.asarray(numbers.to_numpy(zero_copy_only=False))


def _vectors_of(value: Any, name: str) -> AnyArray:
    """Return what speaks Arrow as vectors, shape (n, p), or as one vector, shape (p,).

    A table is either a single column of lists, or a column for each coordinate.
    """
    content = as_arrow(value)
    if not isinstance(content, arrow().Table):
        return numbers_of(content, name)
    index = index_columns(content)
    refuse_ids([label for label in content.column_names if label not in index])
    columns = {}
    for place, label in enumerate(content.column_names):
        if label not in index:
            columns[place] = numbers_of(content.column(place), name, label)
    if len(columns) > 1 and any(column.ndim > 1 for column in columns.values()):
        raise InputError(
            f"{name} are one column of lists, or columns of numbers; give that column alone."
        )
    if not columns:
        return np.empty((len(content), 0))
    return np.column_stack(list(columns.values()))


def refuse_ids(names: Sequence[str]) -> None:
    """Raise InputError if a column of ids stands among coordinates, one of which it would be."""
    for name in names:
        if len(names) > 1 and name.lower() == "id":
            raise InputError(
                f"column {name!r} names rows and is not a coordinate; leave it out of the vectors, "
                f"and give it as ids."
            )


def index_columns(table: Table) -> list[str]:
    """Return the names of those columns of a table that are the index of a pandas frame."""
    stated = (table.schema.metadata or {}).get(b"pandas")
    if stated is None:
        return []
    levels = json.loads(stated)["index_columns"]
    return [name for name in levels if isinstance(name, str) and name in table.schema.names]


def column_names(value: Any) -> tuple[str, ...]:
    """Return the names of the columns of a frame or table but its index; none of anything else.

    >>> import pyarrow as pa
    >>> column_names(pa.table({"a": [1], "b": [2]})), column_names(np.eye(2))
    (('a', 'b'), ())
    """
    if not speaks_arrow(value):
        return ()
    pa = arrow()
    if not isinstance(value, pa.Table | pa.RecordBatch):
        return tuple(map(str, getattr(value, "columns", ())))
    index = index_columns(value)
    return tuple(name for name in value.schema.names if name not in index)


def index_of(value: Any, *, named: bool = True) -> Any:
    """Return the index of a pandas frame or column as its rows' own ids; None if it has none.

    Parameters
    ----------
    value : object
    named : bool
        Only an index with a name counts; otherwise every one but the numbers of the rows.
    """
    index = getattr(value, "index", None)
    if index is None or type(value).__module__.partition(".")[0] != "pandas":
        return None
    if named and all(name is None for name in index.names):
        return None
    is_default = index.name is None and index.dtype.kind == "i"
    if is_default and np.array_equal(index, np.arange(len(index))):
        return None
    if len(index.names) > 1:
        raise InputError(
            "this frame has an index of several levels, which cannot be ids; drop it with "
            "reset_index(drop=True), or name one of them."
        )
    return index


def as_table(X: Any, name: str = "vectors") -> Any:
    """Return a user's vectors as an ndarray: also tables and columns that speak Arrow.

    Raises
    ------
    InputError
        For a missing row, rows of several lengths, and columns of other values than numbers.
    """
    if speaks_arrow(X):
        return _vectors_of(X, name)
    try:
        array = np.asarray(X)
    except ValueError:
        raise InputError(f"{name} must all be equally long, and numbers.") from None
    if hasattr(X, "collect"):  # a query that has not run, as a LazyFrame
        raise InputError(f"{name} must be real numbers, not {type(X).__name__}; collect it first.")
    if array.dtype != object or array.ndim != 1 or isinstance(X, list | tuple):
        return array
    rows = list(map(np.asarray, array))
    shapes = [row.shape for row in rows]
    if not any(shapes):
        return array  # a column of numbers or words, and no lists
    for place, shape in enumerate(shapes):
        if shape != shapes[0] or len(shape) != 1:
            raise InputError(f"{name}: row {place} is not a list as long as that of row 0.")
    return np.stack(rows)


def as_matrix(dimensions: int) -> str:
    """How an array ``x`` of another number of dimensions becomes a table of vectors."""
    if dimensions > 2:
        return "make each item one row with x.reshape(len(x), -1)"
    return "make a single vector one row with x.reshape(1, -1)"
