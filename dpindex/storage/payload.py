"""The payload of an index: columns of plain values, one row a code, published in the clear.

In memory it is an Arrow table. A segment of an index has its rows as one file in Arrow's stream
format (schema, one record batch, uncompressed).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dpindex.base.arrays import AnyArray, Table
from dpindex.base.errors import DamagedError, InputError, naming, refuse_unprintable
from dpindex.base.ids import ID, in_order_of
from dpindex.base.tables import (
    NUMBERED,
    arrow,
    as_arrow,
    index_columns,
    plain,
    speaks_arrow,
    table_of_columns,
    table_of_rows,
)
from dpindex.data.columns import BatchHeader

_MAX_PAYLOAD_BYTES = 1 << 30
_CHUNKS = 64
_PLAIN = (
    *("boolean", "integer", "floating", "decimal", "date", "time", "timestamp", "duration"),
    *("string", "large_string"),
)


@dataclass(frozen=True, eq=False)
class Payload:
    """The payload of all rows of a store.

    Parameters
    ----------
    table : pyarrow.Table, optional
        Its columns in row order; None until a payload is added. Rows that were added without one
        have nulls.

    >>> payload = Payload()
    >>> payload = payload.extended(0, payload.checked({"title": ["one", "two"]}, 2), 2)
    >>> payload.columns, payload.take(np.array([1])).to_pylist()
    ({'title': 'string'}, [{'title': 'two'}])
    """

    table: Table = None

    @property
    def columns(self) -> dict[str, str]:
        """Type of each column by its name, in Arrow's words."""
        if self.table is None:
            return {}
        return {column.name: str(column.type) for column in self.table.schema}

    def checked(self, values: Any, count: int, ids: AnyArray | None = None) -> Table:
        """Return a copy of values as a table of ``count`` rows that may be added.

        Parameters
        ----------
        values : mapping of names to columns, list of dicts, DataFrame, or Arrow table
            A DataFrame is one of pandas or polars.
        count : int
        ids : array, optional
            Those of the rows, by which values with ids of their own are joined: a column ``id``, or
            the named index of a frame.

        Raises
        ------
        InputError
            If the number of rows is another, for columns of another kind than plain values (lists
            of numbers are refused: vectors would be published), and for other columns than those
            that are there.
        """
        table = _as_table(values)
        if not table.column_names:
            raise InputError("the payload has no columns.")
        if len(table) != count:
            raise InputError(f"the payload has {len(table)} rows for {count} vectors.")
        if ids is not None:
            table = in_order_of(ids, table, "the payload")
        numbered = [name for name in index_columns(table) if name.startswith(NUMBERED)]
        table = _checked(table.drop_columns(numbered))
        if self.table is not None:
            table = _fitted(table, self.table.schema)
        return copied_values(table)

    def extended(self, rows: int, table: Table, count: int) -> Payload:
        """Return the first ``rows`` rows and ``count`` more: those of a table, or nulls.

        There is a table, or a payload already.
        """
        if self.table is None:
            before = _nulls(table.schema, rows)
        else:
            before = self.table
            if before.column(0).num_chunks > _CHUNKS:
                before = self.whole
            before = before.slice(0, rows)
            if table is None:
                table = _nulls(before.schema, count)
        joined = arrow().concat_tables([before, table])
        return Payload(joined)

    def take(self, rows: slice | AnyArray) -> Table:
        """Return a copy of some rows of a payload that is there, without a trace of others."""
        if isinstance(rows, slice):
            rows = np.arange(len(self.table))[rows]
        return self.whole.take(rows)

    @cached_property
    def whole(self) -> Table:
        """The table with each column in one piece: a lookup in many pieces joins them first."""
        if self.table is None:
            return None
        return self.table.combine_chunks()


def _as_table(values: Any) -> Table:
    with naming("the payload"):
        if speaks_arrow(values):
            table = as_arrow(values)
            if isinstance(table, arrow().Table):
                return table
        elif isinstance(values, Sequence) and all(isinstance(row, Mapping) for row in values):
            return table_of_rows(values)
        elif isinstance(values, Mapping):
            return table_of_columns(values)
    raise InputError(
        "a payload must be a mapping of column names to columns, a list of dicts, a DataFrame or "
        f"an Arrow table, not {type(values).__name__}."
    )


def _checked(table: Table) -> Table:
    """Return a table of plain columns with distinct names, without metadata."""
    pa = arrow()
    names = table.schema.names
    if not names:
        raise InputError("the payload has no columns.")
    refuse_unprintable(names, "payload column")
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"the payload has two columns {name!r}; rename one of them.")
        if name in ("", ID):
            raise InputError(f"a payload column cannot be called {name!r}; rename or drop it.")
    columns = [_plain(name, table.column(name)) for name in names]
    return pa.table(columns, names=names)


def _plain(name: str, column: Any) -> Any:
    pa = arrow()
    column = plain(column)
    if pa.types.is_null(column.type):
        column = column.cast(pa.string())
    if not is_plain(column.type):
        raise InputError(
            f"payload column {name!r} is of type {column.type}; a payload is published in the "
            f"clear and holds numbers, strings, times and lists of strings only; leave it out."
        )
    return column


def is_plain(kind: Any) -> bool:
    """Whether a payload column may have that Arrow type."""
    types = arrow().types
    if types.is_list(kind) or types.is_large_list(kind):
        value = kind.value_type
        return bool(types.is_string(value) or types.is_large_string(value))
    return any(getattr(types, f"is_{name}")(kind) for name in _PLAIN)


def _fitted(table: Table, schema: Any) -> Table:
    """Return a table with the columns of a schema; InputError if it does not fit."""
    if set(table.schema.names) != set(schema.names):
        raise InputError(
            f"the payload of this index has the columns {', '.join(schema.names)}; new rows need "
            f"the same, not {', '.join(table.schema.names)}."
        )
    columns = []
    for field in schema:
        column = table[field.name]
        try:
            if column.null_count < len(column) and not _fits(column.type, field.type):
                raise arrow().ArrowInvalid
            columns.append(column.cast(field.type))
        except arrow().ArrowException:
            raise InputError(
                f"payload column {field.name!r} does not fit: it is {column.type}, and in this "
                f"index {field.type}; convert it first."
            ) from None
    return arrow().table(columns, schema=schema)


def _fits(kind: Any, into: Any) -> bool:
    """Whether a cast that Arrow calls safe keeps what values say."""
    types = arrow().types
    texts = [types.is_string(one) or types.is_large_string(one) for one in (kind, into)]
    if types.is_floating(kind) and types.is_floating(into):
        return bool(kind.bit_width <= into.bit_width)
    return texts[0] == texts[1] and not (types.is_floating(kind) and types.is_integer(into))


def copied_values(table: Table) -> Table:
    """Return a copy of values alone: slices and nulls of Arrow may keep what was cut or masked."""
    rows = np.arange(len(table))
    return table.combine_chunks().take(rows)


def _nulls(schema: Any, count: int) -> Table:
    pa = arrow()
    columns = [pa.nulls(count, column.type) for column in schema]
    return pa.table(columns, schema=schema)


def payload_to_bytes(table: Table) -> bytes:
    """Return a table as the bytes of its file.

    >>> table = Payload().checked({"year": [1999, None]}, 2)
    >>> payload_from_bytes(payload_to_bytes(table)).to_pylist()
    [{'year': 1999}, {'year': None}]
    """
    pa = arrow()
    table = copied_values(table).combine_chunks()
    if table.nbytes > _MAX_PAYLOAD_BYTES:
        raise InputError(
            f"the payload of {len(table)} rows takes {table.nbytes} bytes; keep large values "
            f"elsewhere, and their addresses in the payload."
        )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return bytes(sink.getvalue())


def payload_from_bytes(data: bytes) -> Table:
    """Return the inverse of :func:`payload_to_bytes`; InputError for anything else."""
    pa = arrow()
    damaged = DamagedError("this payload is not what dpindex writes; the file is damaged.")
    try:
        messages = list(pa.ipc.MessageReader.open_stream(data))
        if [message.type for message in messages] != ["schema", "record batch"]:
            raise damaged
        if BatchHeader.of(messages[1]).is_compressed:  # could grow without bound
            raise damaged
        table = pa.ipc.open_stream(data).read_all()
        table.validate(full=True)
        return _checked(table)
    except (pa.ArrowException, struct.error, OSError, ValueError):
        raise damaged from None
