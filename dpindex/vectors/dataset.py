"""Datasets: vectors and their ids in parts, each of which can be read by another process."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from dpindex.base.arrays import AnyArray
from dpindex.base.checks import id_array
from dpindex.base.errors import InputError
from dpindex.vectors.parquet import column_type, ids_of, open_file, vectors_of
from dpindex.vectors.readers import open_vectors, read_ids
from dpindex.vectors.source import Chunk, Location, VectorSource, as_source
from dpindex.vectors.stores import Store, is_url, open_store

__all__ = ["Dataset", "InMemoryPart", "Part", "open_dataset"]

_SUFFIX = ".parquet"


class Part(ABC):
    """Consecutive rows of a dataset: a few facts, which any process can read the rows by.

    Attributes
    ----------
    name : str
        What messages call it.
    rows : int
    payload_columns : tuple of str
        Columns to be published in the clear; empty for none.
    """

    name: str
    rows: int
    payload_columns: tuple[str, ...] = ()

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """What tells these rows from others, without reading them."""

    @abstractmethod
    def vectors(self) -> VectorSource:
        """The vectors, to be read in chunks; InputError if they were changed."""

    @abstractmethod
    def ids(self) -> AnyArray | None:
        """The ids, None if there are none."""

    def payload(self) -> Any:
        """The payload columns as an Arrow table, None if there are none."""
        return None

    def refuse_changed(self) -> None:  # noqa: B027
        """InputError if the rows were changed since the dataset was opened."""


@dataclass(frozen=True)
class Dataset:
    """Vectors in parts, whose order is that of the rows.

    Attributes
    ----------
    name : str
    columns : int
        Attributes of a vector.
    parts : tuple of Part
        Files, row groups or ranges of rows; what a worker reads at a time.

    >>> Dataset("nothing yet", columns=384, parts=()).rows
    0
    """

    name: str
    columns: int
    parts: tuple[Part, ...]

    @property
    def rows(self) -> int:
        """Rows of all parts."""
        return sum(part.rows for part in self.parts)


def open_dataset(
    location: str | os.PathLike[str],
    *,
    id_column: str | None = None,
    ids: str | os.PathLike[str] | None = None,
    payload_columns: Sequence[str] = (),
    rows_per_part: int = 65536,
) -> Dataset:
    """Open vectors as a dataset: list its files and rows; vectors are read later, a part at a time.

    Parameters
    ----------
    location : path or URL
        A folder or a prefix of an object store (``s3://bucket/prefix``, ``gs://``, ``az://``) of
        .parquet files, in folders within it or not, or one such file; ``:KEY`` after it names the
        list column. Names that begin with ``_`` or ``.`` are left out. Rows are in the order of the
        paths. Or any file of vectors that :func:`dpindex.vectors.open_vectors` reads.
    id_column : str, optional
        The column of whole numbers or strings that holds the ids, of a Parquet dataset.
    ids : path, optional
        The file of ids of any other file, as :func:`dpindex.vectors.read_ids` reads it.
    payload_columns : sequence of str
        Columns of a Parquet dataset that an index publishes in the clear, beside the codes.
    rows_per_part : int
        Parts of an array file have so many rows; parts of a Parquet file are as many row groups as
        have no more, and at least one.

    Raises
    ------
    InputError
        For a location without vectors, and what the readers refuse.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> np.save(folder.name + "/x.npy", np.zeros((5, 3)))
    >>> dataset = open_dataset(folder.name + "/x.npy", rows_per_part=2)
    >>> dataset.rows, dataset.columns, [part.rows for part in dataset.parts]
    (5, 3, [2, 2, 1])
    >>> folder.cleanup()
    """
    name = os.fsdecode(location)
    place, column = _split(name)
    if not (is_url(place) or os.path.isdir(place) or place.lower().endswith(_SUFFIX)):
        if id_column is not None:
            raise InputError(f"{name} has no column of ids; name a file of ids (--ids).")
        if payload_columns:
            raise InputError(f"{name} has no columns for a payload; those of .parquet files do.")
        return _open_array(name, ids, rows_per_part)
    if ids is not None:
        raise InputError(f"{name} holds its ids itself; name their column (--id-column).")
    return _open_parquet(name, place, column, id_column, tuple(payload_columns), rows_per_part)


def _split(name: str) -> tuple[str, str | None]:
    """Place and column; a place that exists as written has no column."""
    head, colon, column = name.rpartition(":")
    if not colon or column.startswith("//") or (not is_url(name) and os.path.exists(name)):
        return name, None
    return head, column


@dataclass(frozen=True)
class _ParquetPart(Part):
    store: str
    path: str
    stamp: str
    column: str | None
    id_column: str | None
    groups: tuple[int, int]
    rows: int
    payload_columns: tuple[str, ...] = ()

    @property
    def name(self) -> str:  # type: ignore[override]
        first, here = self.groups[0], f"{self.store}/{self.path}"
        return here if first == 0 else f"{here}, from row group {first}"

    @property
    def fingerprint(self) -> str:
        columns = self.column, self.id_column, self.payload_columns
        return repr((self.path, self.stamp, columns, self.groups, self.rows))

    def refuse_changed(self) -> None:
        if open_store(self.store).stamp(self.path) != self.stamp:
            raise _changed(self.name)

    @contextmanager
    def _opened(self, key: str | None) -> Iterator[tuple[Location, Any]]:
        self.refuse_changed()
        location = Location(self.name, "", key, 0, 0)
        with location.reading():
            try:
                yield location, _file(open_store(self.store), self.path, location)
            except BaseException:
                location.resources.close()
                raise

    def vectors(self) -> VectorSource:
        with self._opened(self.column) as (location, file):
            return vectors_of(location, file, range(*self.groups))

    def ids(self) -> AnyArray | None:
        if self.id_column is None:
            return None
        with self._opened(self.id_column) as (location, file), location.resources:
            return _checked(ids_of(location, file, range(*self.groups)), location)

    def payload(self) -> Any:
        if not self.payload_columns:
            return None
        with self._opened(None) as (location, file), location.resources:
            return file.read_row_groups(list(range(*self.groups)), columns=[*self.payload_columns])


def _file(store: Store, path: str, location: Location) -> Any:
    return open_file(location, location.resources.enter_context(store.open(path)))


def _checked(ids: Any, location: Location) -> AnyArray:
    array = id_array(ids, location.error)
    if array.dtype.kind == "U" and (empty := np.flatnonzero(array == "")).size:
        raise location.error(f"row {empty[0]} has an empty id; give it one.")
    return array


def _changed(name: str) -> InputError:
    return InputError(f"{name} was changed since the build was planned; begin a new build.")


def _open_parquet(
    name: str,
    place: str,
    column: str | None,
    id_column: str | None,
    payload_columns: tuple[str, ...],
    rows: int,
) -> Dataset:
    store, paths = _parquet_files(place)
    parts: list[Part] = []
    kinds: list[Any] = []
    for path in paths:
        stamp = store.stamp(path)
        location = Location(f"{store.location}/{path}", "", None, 0, 0)
        with location.reading(), location.resources:
            file = _file(store, path, location)
            meta = file.metadata
            kinds.append([column_type(location, file, key) for key in payload_columns])
            if kinds[-1] != kinds[0]:
                raise location.error(
                    f"its payload columns are of the types {', '.join(map(str, kinds[-1]))} and "
                    f"those of the first file {', '.join(map(str, kinds[0]))}; make them the same."
                )
            counts = [meta.row_group(group).num_rows for group in range(meta.num_row_groups)]
        for first, stop, count in _packed(counts, rows):
            here = (store.location, path, stamp, column, id_column, (first, stop), count)
            parts.append(_ParquetPart(*here, payload_columns))
    if not parts:
        raise InputError(f"{name}: there are no {_SUFFIX} files with rows; check the path.")
    with parts[0].vectors() as source:
        return Dataset(name, source.shape[1], tuple(parts))


def _parquet_files(place: str) -> tuple[Store, list[str]]:
    if not is_url(place) and os.path.isfile(place):
        folder, path = os.path.split(os.path.abspath(place))
        return open_store(folder), [path]
    store = open_store(place)
    found = [path for path in store.sizes() if path.lower().endswith(_SUFFIX)]
    if not found and is_url(place) and place.lower().endswith(_SUFFIX):
        prefix, _, path = place.rpartition("/")
        return open_store(prefix), [path]
    return store, [p for p in found if not any(n.startswith(("_", ".")) for n in p.split("/"))]


def _packed(counts: list[int], most: int) -> Iterator[tuple[int, int, int]]:
    """Row groups from first to stop, and their rows: as many together as have at most so many."""
    first, rows = 0, 0
    for group, count in enumerate(counts):
        if rows and rows + count > most:
            yield first, group, rows
            first, rows = group, 0
        rows += count
    if rows:
        yield first, len(counts), rows


@dataclass(frozen=True)
class _ArrayPart(Part):
    path: str
    start: int
    rows: int
    stored: str
    ids_path: str | None
    ids_stamp: str

    @property
    def name(self) -> str:  # type: ignore[override]
        return f"{self.path}, from row {self.start}"

    @property
    def fingerprint(self) -> str:
        return repr((self.stored, self.start, self.rows, self.ids_stamp))

    def refuse_changed(self) -> None:
        with open_vectors(self.path) as source:
            if repr(source.fingerprint()) != self.stored:
                raise _changed(self.name)

    def vectors(self) -> VectorSource:
        self.refuse_changed()
        source = open_vectors(self.path)
        columns, stop = source.shape[1], self.start + self.rows
        location = Location(self.name, "", None, 0, 0)
        location.resources.enter_context(source)

        def stream(firsts: range) -> Iterator[Chunk]:
            for first, chunk in source.chunks(firsts.step, self.start + firsts.start):
                yield chunk[: stop - first]

        shape, is_sparse = (self.rows, columns), source.is_sparse
        return VectorSource(location, shape, source.dtype, stream, is_sparse=is_sparse)

    def ids(self) -> AnyArray | None:
        if self.ids_path is None:
            return None
        if _file_stamp(self.ids_path) != self.ids_stamp:
            raise _changed(self.ids_path)
        return _all_ids(self.ids_path, self.ids_stamp)[self.start : self.start + self.rows]


@lru_cache(maxsize=1)
def _all_ids(path: str, stamp: str) -> AnyArray:
    return read_ids(path)


def _file_stamp(ids: str) -> str:
    """Of a file of ids, whose name may have a key."""
    path = ids if os.path.exists(ids) else ids.rpartition(":")[0]
    status = os.stat(path)
    return f"{ids} {status.st_size} {status.st_mtime_ns}"


def _open_array(name: str, ids: str | os.PathLike[str] | None, rows: int) -> Dataset:
    path, ids_path = os.path.abspath(name), None if ids is None else os.path.abspath(ids)
    with open_vectors(path) as source:
        count, columns = source.shape
        stored = repr(source.fingerprint())
    stamp = ""
    if ids_path is not None:
        found = len(read_ids(ids_path))
        if found != count:
            raise InputError(f"there are {found} ids for {count} vectors.")
        stamp = _file_stamp(ids_path)
    parts = [
        _ArrayPart(path, start, min(rows, count - start), stored, ids_path, stamp)
        for start in range(0, count, rows)
    ]
    return Dataset(name, columns, tuple(parts))


class InMemoryPart(Part):
    """Rows that an engine holds in memory.

    Parameters
    ----------
    name : str
    vectors : array or sparse matrix, shape (n, p)
    ids : array, optional
    payload : pyarrow.Table, optional
    """

    def __init__(
        self, name: str, vectors: Any, ids: Any | None = None, payload: Any = None
    ) -> None:
        self._vectors, self._payload, self.name = vectors, payload, name
        self.payload_columns = () if payload is None else tuple(payload.column_names)
        self.rows = self.vectors().shape[0]
        self._ids = None if ids is None else id_array(ids)

    @property
    def fingerprint(self) -> str:
        return self.name

    def vectors(self) -> VectorSource:
        return as_source(self._vectors, self.name)

    def ids(self) -> AnyArray | None:
        return self._ids

    def payload(self) -> Any:
        return self._payload
