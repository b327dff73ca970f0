"""Files of columns, Parquet and Arrow: vectors, ids and payload, a bounded batch at a time."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import accumulate
from typing import IO, Any

import numpy as np

from dpindex.base.arrays import AnyArray, Table
from dpindex.base.errors import InputError, escaped, naming
from dpindex.base.ids import ids_of_file
from dpindex.base.tables import (
    arrow,
    first_null,
    is_list,
    is_number,
    matrix,
    numbers_of,
    plain,
    refuse_ids,
)
from dpindex.data.source import Location, VectorSource

ARROW_SUFFIXES = (".arrow", ".feather")
COLUMN_SUFFIXES = (".parquet", *ARROW_SUFFIXES)
_MAGIC = b"ARROW1"
_MAX_BATCH = 1 << 30
_MAX_GROWTH = 8


@dataclass(frozen=True)
class ColumnFile:
    """An open file of columns.

    Attributes
    ----------
    schema : pyarrow.Schema
    counts : list of int
        Rows of each group of rows.
    batches : callable
        From names of columns, numbers of groups and a number of rows to record batches of those
        columns, each of at most that many rows.
    """

    schema: Any
    counts: list[int]
    batches: Callable[[list[str], Sequence[int], int], Iterator[Any]]

    @property
    def groups(self) -> range:
        """The numbers of all groups."""
        return range(len(self.counts))

    def read(self, names: Sequence[str], groups: Sequence[int]) -> Table:
        """Return some columns of some groups as a table."""
        fields = [self.schema.field(name) for name in names]
        rows = max(1, sum(self.counts))
        batches = list(self.batches(list(names), groups, rows))
        return arrow().Table.from_batches(batches, arrow().schema(fields))


def open_columns(location: Location, stream: IO[bytes] | None = None) -> ColumnFile:
    """A file of columns at a location, or a Parquet file that is open already."""
    if stream is None and location.path.lower().endswith(ARROW_SUFFIXES):
        file = _arrow_file(location)
    else:
        file = _parquet_file(location, stream)
    location.check_names(file.schema.names)
    return file


def _parquet_file(location: Location, stream: IO[bytes] | None) -> ColumnFile:
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
    meta = file.metadata
    if any(key.startswith(b"dpindex.") for key in meta.metadata or ()):
        raise location.error("it is a published index; name the file of vectors.")
    counts = [meta.row_group(group).num_rows for group in range(meta.num_row_groups)]

    def batches(names: list[str], groups: Sequence[int], size: int) -> Iterator[Any]:
        return file.iter_batches(  # type: ignore[no-any-return]
            size,
            row_groups=list(groups),
            columns=names,
            use_threads=False,
        )

    return ColumnFile(file.schema_arrow, counts, batches)


def _arrow_file(location: Location) -> ColumnFile:
    """Arrow's stream, or its file format, whose footer says where the messages lie."""
    pa = arrow()
    file = location.resources.enter_context(pa.memory_map(location.path))
    data = file.read_buffer()
    has_footer = data[: len(_MAGIC)].to_pybytes() == _MAGIC
    if has_footer:
        messages = _messages_of_footer(data)
        opened = pa.ipc.open_file
    else:
        messages = pa.ipc.MessageReader.open_stream(data)
        opened = pa.ipc.open_stream
    counts = []
    for message in messages:
        if message.type == "schema":
            continue
        batch = BatchHeader.of(message)
        if batch.unpacked > max(_MAX_BATCH, _MAX_GROWTH * location.size):
            raise location.error(
                f"a batch of it takes {batch.unpacked} bytes of memory, and the file has "
                f"{location.size}; save it as .parquet."
            )
        if message.type == "record batch":
            counts.append(batch.rows)
    reader = opened(data)

    def record_batches(groups: Sequence[int]) -> Iterator[Any]:
        if has_footer:
            return map(reader.get_batch, groups)
        every = enumerate(pa.ipc.open_stream(data))
        return (batch for group, batch in every if group in groups)

    def batches(names: list[str], groups: Sequence[int], size: int) -> Iterator[Any]:
        for batch in record_batches(groups):
            columns = batch.select(names)
            for first in range(0, len(columns), size):
                yield columns.slice(first, size)

    return ColumnFile(reader.schema, counts, batches)


def _messages_of_footer(data: Any) -> Iterator[Any]:
    """The dictionaries and record batches of Arrow's file format.

    Polars 2 writes no whole stream between the marks, and Arrow itself reads the footer alone.
    """
    (size,) = struct.unpack("<i", data[-10:-6].to_pybytes())
    footer = data[-10 - size : -10].to_pybytes()
    (root,) = struct.unpack_from("<I", footer)
    for number in (2, 3):  # Footer.dictionaries, Footer.recordBatches
        if not _field(footer, root, number):
            continue
        blocks = _referred(footer, root, number)
        (count,) = struct.unpack_from("<I", footer, blocks)
        places = footer[blocks + 4 : blocks + 4 + 24 * count]
        for offset, _, _ in struct.iter_unpack("<qi4xq", places):
            yield arrow().ipc.read_message(data[offset:])


@dataclass(frozen=True)
class BatchHeader:
    """What the message of a record batch or a dictionary declares before it is read.

    Read from its Flatbuffers bytes by Arrow's format, Message.fbs.

    Attributes
    ----------
    rows : int
    is_compressed : bool
    unpacked : int
        Bytes that its compressed buffers say they grow to.
    """

    rows: int
    is_compressed: bool
    unpacked: int

    @classmethod
    def of(cls, message: Any) -> BatchHeader:
        """Read the header of a message; struct.error or IndexError if it is damaged."""
        head = message.metadata.to_pybytes()
        (root,) = struct.unpack_from("<I", head)
        batch = _referred(head, root, 2)  # Message.header
        if message.type == "dictionary":
            batch = _referred(head, batch, 1)  # DictionaryBatch.data
        rows = 0
        if length := _field(head, batch, 0):  # RecordBatch.length
            (rows,) = struct.unpack_from("<q", head, length)
        is_compressed = _field(head, batch, 3) != 0  # RecordBatch.compression
        unpacked = 0
        if is_compressed:
            body = memoryview(message.body)
            buffers = _referred(head, batch, 2)  # RecordBatch.buffers: offsets and lengths
            (count,) = struct.unpack_from("<I", head, buffers)
            for offset, length in struct.iter_unpack(
                "<qq", head[buffers + 4 : buffers + 4 + 16 * count]
            ):
                if length >= 8:  # its size when unpacked stands before it, or −1
                    unpacked += max(0, struct.unpack_from("<q", body, offset)[0])
        return cls(rows, is_compressed, unpacked)


def _field(data: bytes, table: int, number: int) -> int:
    """Return where a field of a Flatbuffers table lies, 0 if it is absent.

    A table begins with the distance back to its vtable: the sizes of vtable and table, and then the
    place of each field in the table.
    """
    vtable = table - struct.unpack_from("<i", data, table)[0]
    (size,) = struct.unpack_from("<H", data, vtable)
    entry = 4 + 2 * number
    within = 0
    if entry < size:
        (within,) = struct.unpack_from("<H", data, vtable + entry)
    if within:
        return table + within
    return 0


def _referred(data: bytes, table: int, number: int) -> int:
    """Return where what a field of a Flatbuffers table refers to begins."""
    place = _field(data, table, number)
    return place + int(struct.unpack_from("<I", data, place)[0])


def open_vectors_of_columns(location: Location) -> VectorSource:
    """The columns of the key, or the only list column."""
    file = open_columns(location)
    return vectors_of(location, file, file.groups)


def vectors_of(location: Location, file: ColumnFile, groups: Sequence[int]) -> VectorSource:
    """The vectors of some groups of an open file: a list column, or a column for each coordinate.

    The key of the location is the name of a list column; or ``first:last`` or a pattern such as
    ``d*``, which stand for columns of numbers in the order of the file.
    """
    if location.key is None:
        location = sole_column(location, file)
    names = columns_of(location, file)
    first_type = file.schema.field(names[0]).type
    has_lists = len(names) == 1 and is_list(first_type)
    if not has_lists:
        for name in names:
            kind = file.schema.field(name).type
            if not is_number(plain_type(kind)):
                raise location.error(
                    f"column {name!r} is {kind}; vectors need a list of numbers, or columns of "
                    f"numbers, named as first:last or d*."
                )
        with naming(escaped(location.name)):
            refuse_ids(names)
    counts = [file.counts[group] for group in groups]
    rows = sum(counts)
    width = len(names)
    dtype = np.result_type(*(_dtype(file.schema.field(name).type) for name in names))
    if has_lists:
        width = 0
    if has_lists and rows:
        width = next(_matrices(location, file, names, groups, 1)).shape[1]
    ends = list(accumulate(counts))

    def stream(firsts: range) -> Iterator[AnyArray]:
        # Whole groups before the first row are not read.
        skipped = sum(end <= firsts.start for end in ends)
        start = 0
        if skipped:
            start = ends[skipped - 1]
        matrices = _matrices(location, file, names, groups[skipped:], firsts.step, start, width)
        return _rechunked(matrices, firsts.start - start, firsts.step)

    attributes = () if has_lists else names
    return VectorSource(location, (rows, width), dtype, stream, attributes=attributes)


def sole_column(location: Location, file: ColumnFile) -> Location:
    """The location with the only list column of an open file; InputError if there are others."""
    kinds = {field.name: field.type for field in file.schema}
    types = kinds.values()
    if not any(map(is_list, types)) and any(map(is_number, types)):
        raise location.error(
            f"it has no list columns of numbers among its columns ({', '.join(kinds)}); name "
            f"columns of numbers as PATH:first:last or PATH:d*, or by --columns."
        )
    return location.sole(kinds, is_list, "{} list columns of numbers among its columns")


def refuse_attributes(
    location: Location,
    file: ColumnFile,
    attributes: Sequence[str],
    published: Container[str | None],
) -> None:
    """Refuse to publish attributes of the vectors; a list of them is neither payload nor id."""
    for name in attributes:
        if name in published and not is_list(file.schema.field(name).type):
            raise location.error(
                f"column {name!r} is an attribute of the vectors, and ids and payload are "
                f"published in the clear; leave it out of these, or of the vectors."
            )


def columns_of(location: Location, file: ColumnFile) -> list[str]:
    """Return the names of the columns that the key stands for, in the order of the file."""
    key = str(location.key)
    names = list(file.schema.names)
    first, _, last = key.partition(":")
    chosen = [name for name in names if name == key]
    if not chosen and first in names and last in names:
        chosen = names[names.index(first) : names.index(last) + 1]
    if not chosen and re.search(r"[*?[]", key):
        chosen = [name for name in names if fnmatchcase(name, key)]
    if not chosen or any(names.count(name) > 1 for name in chosen):
        raise location.error(
            f"it has no single column {key!r}; name one of {', '.join(names)}, or several as "
            f"first:last or d*."
        )
    return chosen


def plain_type(kind: Any) -> Any:
    """Return the type of the values of a column, however they are packed."""
    return plain(arrow().chunked_array([], kind)).type


def _dtype(kind: Any) -> np.dtype[Any]:
    kind = plain_type(kind)
    if is_list(kind):
        kind = kind.value_type
    empty = arrow().chunked_array([], kind)
    return numbers_of(empty, "vectors").dtype


def _matrices(
    location: Location,
    file: ColumnFile,
    names: list[str],
    groups: Sequence[int],
    size: int,
    first: int = 0,
    width: int | None = None,
) -> Iterator[AnyArray]:
    """The rows of groups from row number ``first`` on, at most ``size`` at a time."""
    pa = arrow()
    end = first + sum(file.counts[group] for group in groups)
    try:
        for batch in filter(len, file.batches(names, groups, size)):
            columns = []
            for name in names:
                column = batch.column(name)
                column.validate(full=True)
                columns.append(column)
            with naming(escaped(location.name)):
                if is_list(columns[0].type):
                    lists = plain(pa.chunked_array(columns)).chunk(0)
                    vectors = matrix(lists, first, width)
                    width = vectors.shape[1]
                else:
                    vectors = _joined(names, columns, first)
            yield vectors
            first += len(batch)
    except pa.ArrowInvalid as error:
        if "list offsets" not in str(error):
            raise
        raise location.error(
            f"a row of column {location.key!r} is missing numbers that its length declares, which "
            f"pyarrow cannot read: DuckDB 2.0 writes a NULL in a FLOAT[n] column so. Leave rows "
            f"out that are NULL, or write the column as FLOAT[]."
        ) from error
    if first < end:
        raise location.error(f"it ends before the {end} rows it declares; the file is damaged.")


def _joined(names: list[str], columns: list[Any], first: int) -> AnyArray:
    """Return columns of numbers side by side."""
    arrays = []
    for name, column in zip(names, columns, strict=True):
        if column.null_count:
            row = first + first_null(column)
            raise InputError(f"row {row}, column {name!r} is null; fill the missing values.")
        arrays.append(numbers_of(arrow().chunked_array([column]), "vectors"))
    return np.column_stack(arrays)


def _rechunked(matrices: Iterator[AnyArray], skip: int, size: int) -> Iterator[AnyArray]:
    """Yield rows in chunks of one size, the last perhaps smaller, without the first few."""
    held: list[AnyArray] = []
    count = 0
    for rows in matrices:
        if skip:
            dropped = min(skip, len(rows))
            rows = rows[dropped:]
            skip -= dropped
        while len(rows):
            part = rows[: size - count]
            rows = rows[len(part) :]
            held.append(part)
            count += len(part)
            if count == size:
                yield held[0] if len(held) == 1 else np.concatenate(held)
                held = []
                count = 0
    if held:
        yield held[0] if len(held) == 1 else np.concatenate(held)


def column_ids(location: Location) -> AnyArray:
    """The ids in a column of whole numbers, strings or UUIDs."""
    file = open_columns(location)
    return ids_of(location, file, file.groups)


def ids_of(location: Location, file: ColumnFile, groups: Sequence[int]) -> AnyArray:
    """The ids in a column of some groups of an open file."""
    key = str(location.key)
    column_type(location, file, key)
    column = file.read([key], groups).column(0)
    column.validate(full=True)
    with naming(escaped(f"{location.name}, column {key!r}")):
        return ids_of_file(column)


def column_type(location: Location, file: ColumnFile, key: str) -> Any:
    """The Arrow type of one column of an open file."""
    names = file.schema.names
    if names.count(key) != 1:
        raise location.error(f"it has no single column {key!r}; name one of {', '.join(names)}.")
    return file.schema.field(key).type
