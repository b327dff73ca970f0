"""Datasets: vectors, ids and payload in parts, each of which can be read by itself."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from dpindex.base.arrays import AnyArray, row_blocks
from dpindex.base.errors import InputError
from dpindex.base.files import AnyPath
from dpindex.base.ids import in_order_of
from dpindex.data.columns import (
    ARROW_SUFFIXES,
    COLUMN_SUFFIXES,
    ColumnFile,
    column_type,
    columns_of,
    ids_of,
    open_columns,
    refuse_attributes,
    sole_column,
    vectors_of,
)
from dpindex.data.readers import open_vectors
from dpindex.data.source import Chunk, Location, VectorSource, split_key
from dpindex.data.stores import Store, is_url, open_store

_SUFFIX = ".parquet"
_PART_BYTES = 1 << 25
"""Bytes of the vectors that are read at a time."""

_PARQUET_ROWS = 65536
_SPARSE_ROWS = 8192


def _itself(given: Any = None) -> Any:
    """Return what is given: a partial of it is a function that can be pickled."""
    return given


@dataclass(frozen=True)
class Part:
    """Consecutive rows of a dataset, and how they are read; it pickles where its readers do.

    Attributes
    ----------
    name : str
        What messages call it.
    start : int
        Number of its first row in messages.
    rows : int
    vectors : callable
        Opens the vectors, to be read in chunks.
    ids : callable
        Reads the ids, None if there are none.
    payload : callable
        Reads the columns to publish in the clear as an Arrow table, None if there are none.
    """

    name: str
    start: int
    rows: int
    vectors: Callable[[], VectorSource] = field(repr=False)
    ids: Callable[[], AnyArray | None] = field(default=_itself, repr=False)
    payload: Callable[[], Any] = field(default=_itself, repr=False)


@dataclass(frozen=True)
class Dataset(AbstractContextManager["Dataset"]):
    """Vectors in parts, whose order is that of the rows; close it, or use it in a ``with``.

    Attributes
    ----------
    name : str
    columns : int
        Attributes of a vector.
    rows_at_a_time : int
        Rows whose vectors take little memory, about 32 MB.
    parts : tuple of Part
        Files, row groups or ranges of rows.
    attributes : tuple of str
        Names of the columns, if they have any.
    resources : ExitStack
        Closed with the dataset.

    >>> Dataset("nothing yet", columns=384, rows_at_a_time=1, parts=()).rows
    0
    """

    name: str
    columns: int
    rows_at_a_time: int
    parts: tuple[Part, ...]
    attributes: tuple[str, ...] = ()
    resources: ExitStack = field(default_factory=ExitStack, repr=False, compare=False)

    @property
    def rows(self) -> int:
        """Rows of all parts."""
        return sum(part.rows for part in self.parts)

    def chunks(self) -> Iterator[tuple[str, int, Chunk]]:
        """Yield all vectors, each chunk with its part's name and the number of its first row."""
        for part in self.parts:
            with part.vectors() as source:
                for start, chunk in source.chunks(self.rows_at_a_time):
                    yield part.name, part.start + start, chunk

    def __exit__(self, *exception: object) -> None:
        self.resources.close()

    def with_labels(self, ids: AnyArray | None = None, payload: Any = None) -> Dataset:
        """Return the same vectors with ids or payload from elsewhere, in place of its own.

        Parameters
        ----------
        ids : array, optional
        payload : pyarrow.Table, optional

        Raises
        ------
        InputError
            If their number is not that of the vectors.
        """
        for labels, name in ((ids, "ids"), (payload, "payload rows")):
            if labels is not None and len(labels) != self.rows:
                raise InputError(f"there are {len(labels)} {name} for {self.rows} vectors.")
        if payload is not None:
            names = self.ids() if ids is None else ids
            if names is None:
                names = np.arange(self.rows)
            payload = in_order_of(names, payload, "the payload")
        first_row = 0
        parts = []
        for part in self.parts:
            if ids is not None:
                part_ids = ids[first_row : first_row + part.rows]
                part = replace(part, ids=partial(_itself, part_ids))
            if payload is not None:
                table = payload.slice(first_row, part.rows)
                part = replace(part, payload=partial(_itself, table))
            parts.append(part)
            first_row += part.rows
        return replace(self, parts=tuple(parts))

    def ids(self) -> AnyArray | None:
        """Return the ids of all rows, None if there are none."""
        own = [part.ids() for part in self.parts]
        if own and all(names is not None for names in own):
            return np.concatenate(own)  # type: ignore[arg-type]
        return None


def open_dataset(
    location: AnyPath,
    *,
    id_column: str | None = None,
    payload_columns: Sequence[str] = (),
    rows_per_part: int | None = None,
    in_process: bool = False,
) -> Dataset:
    """Open vectors as a dataset: list its files and rows; vectors are read later, a part at a time.

    Parameters
    ----------
    location : path or URL
        A folder or a prefix of an object store (``s3://bucket/prefix``, ``gs://``, ``az://``) of
        .parquet files, in folders within it or not, or one such file; ``:KEY`` after it names the
        list column. Names that begin with ``_`` or ``.`` are left out. Rows are in the order of the
        paths. Or any file of vectors that :func:`dpindex.data.open_vectors` reads.
    id_column : str, optional
        The column of whole numbers, strings or UUIDs that holds the ids, of a file of columns.
    payload_columns : sequence of str
        Columns of a Parquet dataset that an index publishes in the clear, beside the codes.
    rows_per_part : int, optional
        Rows of a part of an array file; default what fits into 32 MB. A part of a Parquet file is
        as many row groups as have no more rows, 65536 by default, and at least one.
    in_process : bool
        Read an array file in one pass, by parts that this process alone can read. Otherwise parts
        pickle, and each opens the file anew.

    Raises
    ------
    InputError
        For a location without vectors, and what the readers refuse.

    >>> import tempfile
    >>> import numpy as np
    >>> folder = tempfile.TemporaryDirectory()
    >>> np.save(folder.name + "/x.npy", np.zeros((5, 3)))
    >>> dataset = open_dataset(folder.name + "/x.npy", rows_per_part=2)
    >>> dataset.rows, dataset.columns, [part.rows for part in dataset.parts]
    (5, 3, [2, 2, 1])
    >>> folder.cleanup()
    """
    name = os.path.expanduser(os.fsdecode(location))
    place, column = split_key(name)
    is_table = place.lower().endswith(COLUMN_SUFFIXES)
    if is_url(place) or os.path.isdir(place) or (is_table and os.path.exists(place)):
        files = _parquet_files(place)
        rows = rows_per_part or _PARQUET_ROWS
        return _open_parquet(name, column, files, id_column, payload_columns, rows)
    if os.path.exists(place):  # what does not exist is refused as that
        if id_column is not None:
            raise InputError(f"{name} has no column of ids; name a file of ids.", field="ids")
        if payload_columns:
            raise InputError(
                f"{name} has no columns for a payload; .parquet and .arrow files have."
            )
    source = open_vectors(name)
    if in_process:
        return as_dataset(source, rows_per_part)
    with source:
        return _in_parts(source, rows_per_part, partial(_rows_of_file, name))


def as_dataset(source: VectorSource, rows_per_part: int | None = None) -> Dataset:
    """Cut an open source into parts, which this process reads in one pass.

    Parameters
    ----------
    source : VectorSource
        Closed with the dataset.
    rows_per_part : int, optional
        Default what fits into 32 MB.

    >>> import numpy as np
    >>> from dpindex.data import as_source
    >>> [part.rows for part in as_dataset(as_source(np.zeros((5, 3))), rows_per_part=3).parts]
    [3, 2]
    """
    stream = _Stream(source, rows_per_part or rows_at_a_time(source))
    dataset = _in_parts(source, rows_per_part, stream.rows_from)
    dataset.resources.enter_context(source)
    return dataset


def rows_at_a_time(source: VectorSource) -> int:
    """Return the number of rows whose vectors take about 32 MB."""
    if source.is_sparse:
        return _SPARSE_ROWS
    value_bytes = max(4, source.dtype.itemsize)
    row_bytes = source.shape[1] * value_bytes
    return max(1, _PART_BYTES // row_bytes)


def _in_parts(
    source: VectorSource,
    rows_per_part: int | None,
    read: Callable[[int, int], VectorSource],
) -> Dataset:
    """Cut a source into parts; ``read`` opens a number of rows from a start."""
    count, columns = source.shape
    parts = []
    few = rows_at_a_time(source)
    for rows in row_blocks(count, rows_per_part or few):
        size = rows.stop - rows.start
        vectors = partial(read, rows.start, size)
        parts.append(Part(source.name, rows.start, size, vectors))
    return Dataset(source.name, columns, few, tuple(parts), source.attributes)


class _Stream:
    """One pass over an open source, which begins anew when it is asked for earlier rows."""

    def __init__(self, source: VectorSource, rows: int) -> None:
        self._source = source
        self._rows = rows
        self._next = 0
        self._chunks: Iterator[tuple[int, Chunk]] = iter(())

    def rows_from(self, start: int, count: int) -> VectorSource:
        """Return the ``count`` rows of the part that begins at ``start``."""
        if start == 0 or start != self._next:
            self._chunks = self._source.chunks(self._rows, start)
        _, chunk = next(self._chunks)
        self._next = start + count
        return VectorSource.in_memory(Location(self._source.name), chunk)


def _rows_of_file(path: str, start: int, rows: int) -> VectorSource:
    """Open some rows of a file, which any process can open."""
    source = open_vectors(path)
    location = Location(path)
    location.resources.enter_context(source)

    def stream(firsts: range) -> Iterator[Chunk]:
        for first, chunk in source.chunks(firsts.step, start + firsts.start):
            yield chunk[: start + rows - first]

    return VectorSource(
        location,
        shape=(rows, source.shape[1]),
        dtype=source.dtype,
        stream=stream,
        is_sparse=source.is_sparse,
    )


@dataclass(frozen=True)
class _RowGroups:
    """Consecutive row groups of a Parquet file, and the columns of it that are read."""

    store: Store
    path: str
    groups: range
    column: str | None
    id_column: str | None
    payload_columns: Sequence[str]

    @property
    def name(self) -> str:
        place = f"{self.store.location}/{self.path}"
        if self.groups.start == 0:
            return place
        return f"{place}, from row group {self.groups.start}"

    @contextmanager
    def _opened(self, key: str | None) -> Iterator[tuple[Location, Any]]:
        location = Location(self.name, key=key)
        with location.reading():
            try:
                yield location, _opened(location, self.store, self.path)
            except BaseException:
                location.resources.close()
                raise

    def vectors(self) -> VectorSource:
        with self._opened(self.column) as (location, file):
            return vectors_of(location, file, self.groups)

    def ids(self) -> AnyArray | None:
        if self.id_column is None:
            return None
        with self._opened(self.id_column) as (location, file), location.resources:
            return ids_of(location, file, self.groups)

    def payload(self) -> Any:
        if not self.payload_columns:
            return None
        with self._opened(None) as (location, file), location.resources:
            return file.read(self.payload_columns, self.groups)


def _open_parquet(
    name: str,
    column: str | None,
    files: tuple[Store, list[str]],
    id_column: str | None,
    payload: Sequence[str],
    rows: int,
) -> Dataset:
    """Open Parquet files, of which ``column`` holds the vectors; None for their only list column.

    Parts have at most ``rows`` rows, or one row group.
    """
    store, paths = files
    parts: list[Part] = []
    first_types: list[str] = []
    first_attributes: list[str] = []
    for path in paths:
        location = Location(f"{store.location}/{path}")
        with location.reading(), location.resources:
            file = _opened(location, store, path)
            counts: list[int] = file.counts
            if column is None and sum(counts) > 0:  # all files must have the first one's
                column = sole_column(location, file).key
            if column is not None:
                keyed = replace(location, key=column)
                attributes = columns_of(keyed, file)
                refuse_attributes(keyed, file, attributes, (*payload, id_column))
                first_attributes = first_attributes or attributes
                if attributes != first_attributes:
                    raise location.error(
                        "its columns of numbers have other names or another order than those of "
                        "the first file; make them the same."
                    )
            types = [str(column_type(location, file, key)) for key in payload]
            if id_column is not None:
                column_type(location, file, id_column)
            first_types = first_types or types
            if types != first_types:
                raise location.error(
                    f"its payload columns are of the types {', '.join(types)} and those of the "
                    f"first file {', '.join(first_types)}; make them the same."
                )
        for groups, count in _packed(counts, rows):
            read = _RowGroups(store, path, groups, column, id_column, payload)
            part = Part(
                read.name,
                start=0,
                rows=count,
                vectors=read.vectors,
                ids=read.ids,
                payload=read.payload,
            )
            parts.append(part)
    if not parts:
        raise InputError(
            f"{name}: there are no {_SUFFIX} files with rows; check the path, and join files of "
            f"another format into one."
        )
    with parts[0].vectors() as source:
        return Dataset(
            name,
            columns=source.shape[1],
            rows_at_a_time=rows_at_a_time(source),
            parts=tuple(parts),
            attributes=source.attributes,
        )


def _opened(location: Location, store: Store, path: str) -> ColumnFile:
    """Open a file of columns in a store; Arrow's own format lies in files of this machine alone."""
    if path.lower().endswith(ARROW_SUFFIXES):
        place = os.path.join(store.location, path)
        return open_columns(replace(location, path=place, size=os.path.getsize(place)))
    return open_columns(location, store.open(path))


def _parquet_files(place: str) -> tuple[Store, list[str]]:
    if not is_url(place) and os.path.isfile(place):
        place = os.path.abspath(place)
        folder, path = os.path.split(place)
        return open_store(folder), [path]
    store = open_store(place)
    names = store.sizes()
    paths = [path for path in names if path.lower().endswith(_SUFFIX)]
    if not paths and is_url(place) and place.lower().endswith(_SUFFIX):
        prefix, _, path = place.rpartition("/")
        return open_store(prefix), [path]
    return store, [path for path in paths if not _is_hidden(path)]


def _is_hidden(path: str) -> bool:
    names = path.split("/")
    return any(name.startswith(("_", ".")) for name in names)


def _packed(counts: list[int], most_rows: int) -> Iterator[tuple[range, int]]:
    """Yield consecutive row groups with their rows, at most ``most_rows`` or one group."""
    first = 0
    rows = 0
    for group, count in enumerate(counts):
        if rows and rows + count > most_rows:
            yield range(first, group), rows
            first = group
            rows = 0
        rows += count
    if rows:
        yield range(first, len(counts)), rows
