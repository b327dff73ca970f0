"""List columns of Parquet files, decoded a bounded batch at a time."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from typing import IO, Any

import numpy as np

from dpindex.base.arrays import AnyArray, Table
from dpindex.base.files import AnyPath
from dpindex.data.source import Location, VectorSource, locate

_BATCH_BYTES = 1 << 20


def open_parquet(location: Location) -> VectorSource:
    """The list column of the key, or the only one."""
    file = open_file(location)
    return vectors_of(location, file, range(file.num_row_groups))


def vectors_of(
    location: Location,
    file: Any,
    groups: Sequence[int],
) -> VectorSource:
    """The list column of some row groups of an open file."""
    import pyarrow as pa

    if location.key is None:
        location = sole_column(location, file)
    kind = column_type(location, file, str(location.key))
    if not _is_list(kind):
        raise location.error(f"column {location.key!r} is {kind}; vectors need a list of numbers.")
    empty = pa.array([], kind.value_type)
    dtype = empty.to_numpy(zero_copy_only=False).dtype
    counts = [file.metadata.row_group(group).num_rows for group in groups]
    rows = sum(counts)
    width = 0
    if rows:
        first = next(_matrices(location, file, groups, rows, 1))
        width = first.shape[1]
    row_bytes = max(1, width * dtype.itemsize)
    size = max(1, _BATCH_BYTES // row_bytes)

    def stream(firsts: range) -> Iterator[AnyArray]:
        matrices = _matrices(location, file, groups, rows, size)
        vectors = chain.from_iterable(matrices)
        left = islice(vectors, firsts.start, None)
        for _ in firsts:
            chunk = list(islice(left, firsts.step))
            yield np.stack(chunk)

    return VectorSource(location, (rows, width), dtype, stream)


def sole_column(location: Location, file: Any) -> Location:
    """The location with the only list column of an open file; InputError if there are others."""
    kinds = {field.name: field.type for field in file.schema_arrow}
    return location.sole(kinds, _is_list, "{} list columns of numbers among its columns")


def parquet_ids(location: Location) -> AnyArray | list[str]:
    """The ids in a column of integers or strings."""
    file = open_file(location)
    return ids_of(location, file, range(file.num_row_groups))


def ids_of(
    location: Location,
    file: Any,
    groups: Sequence[int],
) -> AnyArray | list[str]:
    """The ids in a column of some row groups of an open file."""
    from pyarrow import types

    key = location.key
    kind = column_type(location, file, str(location.key))
    is_text = types.is_string(kind) or types.is_large_string(kind)
    if not (is_text or types.is_integer(kind)):
        raise location.error(f"column {key!r} is of type {kind}; ids are integers or strings.")
    table = file.read_row_groups(list(groups), columns=[key])
    column = table.column(0)
    column.validate(full=True)
    if column.null_count:
        raise location.error(f"row {_first_null(column)} is null; every vector needs an id.")
    if is_text:
        return list(column.to_pylist())
    return np.asarray(column.to_numpy())


def open_file(location: Location, stream: IO[bytes] | None = None) -> Any:
    """A file at a location, or one that is open already, as Parquet."""
    from pyarrow.parquet import ParquetFile

    resources = location.resources
    if stream is not None:
        resources.enter_context(stream)
    # A small read buffer and no prefetch: either would hold whole row groups.
    file = ParquetFile(
        stream or location.path,
        buffer_size=1 << 20,
        pre_buffer=False,
        page_checksum_verification=True,
    )
    resources.enter_context(file)
    location.check_names(file.schema_arrow.names)
    return file


def column_type(location: Location, file: Any, key: str) -> Any:
    """The Arrow type of one column of an open file."""
    names = file.schema_arrow.names
    if names.count(key) != 1:
        raise location.error(f"it has no single column {key!r}; name one of {', '.join(names)}.")
    return file.schema_arrow.field(key).type


def _is_list(kind: Any) -> bool:
    from pyarrow import types

    lists = (types.is_list, types.is_large_list, types.is_fixed_size_list)
    if not any(test(kind) for test in lists):
        return False
    values = (types.is_integer, types.is_floating, types.is_boolean)
    return any(test(kind.value_type) for test in values)


def _first_null(column: Any) -> int:
    is_null = column.is_null().to_numpy(zero_copy_only=False)
    return int(np.argmax(is_null))


def _matrices(
    location: Location,
    file: Any,
    groups: Sequence[int],
    rows: int,
    size: int,
) -> Iterator[AnyArray]:
    """The ``rows`` of the row groups, at most ``size`` at a time, each as long as row 0."""
    first = 0
    width = None
    batches = file.iter_batches(
        size,
        row_groups=list(groups),
        columns=[location.key],
        use_threads=False,
    )
    for batch in filter(len, batches):
        column = batch.column(location.key)
        column.validate(full=True)
        if column.null_count:
            row = first + _first_null(column)
            raise location.error(f"row {row} is null; every row must be a vector.")
        lengths = column.value_lengths().to_numpy(zero_copy_only=False)
        if width is None:
            width = int(lengths[0])
        wrong = np.flatnonzero(lengths != width)
        if wrong.size:
            raise location.error(
                f"row {first + wrong[0]} has {lengths[wrong[0]]} values and row 0 {width}; all"
                " rows must be of one length."
            )
        values = column.flatten()
        if values.null_count:
            row = first + _first_null(values) // width
            raise location.error(f"row {row} has a null; fill the missing values.")
        numbers = values.to_numpy(zero_copy_only=False)
        yield numbers.reshape(len(column), width)
        first += len(column)
    if first < rows:
        raise location.error(f"it ends before the {rows} rows it declares; the file is damaged.")


def read_payload(location: AnyPath, columns: Sequence[str] | None = None) -> Table:
    """Read a table with one row for each vector.

    Parameters
    ----------
    location : path
        A .parquet file, or a .csv file whose first line names the columns. A key after a colon,
        which names a column of vectors, is passed over.
    columns : sequence of str, optional
        Columns to take; default all.

    Raises
    ------
    InputError
        For a file that cannot be read, and a column that is not there.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = folder + "/payload.csv"
    ...     with open(path, "w") as file:
    ...         _ = file.write("title,year\\none,1999\\ntwo,2001\\n")
    ...     read_payload(path, ["year"]).to_pydict()
    {'year': [1999, 2001]}
    """
    file, read = locate(location, _TABLES, "file of payload columns")
    with file.reading(), file.resources:
        table = read(file)
        file.check_names(table.column_names)
        for name in columns or ():
            if table.column_names.count(name) != 1:
                names = ", ".join(table.column_names)
                raise file.error(f"it has no single column {name!r}; its columns are {names}.")
        if columns is None:
            return table
        return table.select(columns)


def _parquet(location: Location) -> Table:
    from pyarrow import parquet

    return parquet.read_table(location.path, partitioning=None)


def _csv(location: Location) -> Table:
    from pyarrow import csv

    try:
        return csv.read_csv(location.path)
    except ValueError as error:  # Arrow repeats the line, other columns of it included
        row = re.search(r"Row #(\d+)", str(error))
        place = f"line {row[1]} of it" if row else "it"
        raise location.error(
            f"{place} is no line of a table in UTF-8; give every line one cell for each column."
        ) from None


_TABLES: dict[str, Callable[[Location], Table]] = {
    ".parquet": _parquet,
    ".csv": _csv,
}
