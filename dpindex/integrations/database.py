"""The seam of vector databases to which codes are published, and their addresses."""

from __future__ import annotations

import copy
import json
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np

from dpindex.base.arrays import AnyArray, Bytes, Doubles, Singles, Table
from dpindex.base.errors import InputError, one_line
from dpindex.base.files import AnyPath, holding_folder
from dpindex.base.tables import arrow
from dpindex.index.conditions import Language

_OWN = ("id", "code", "vector")
"""Columns that are no payload."""
Neighbours: TypeAlias = list[tuple[AnyArray, Doubles]]
"""Ids and scores of the rows that were found for each query, best first."""


@dataclass(frozen=True)
class Layout:
    """The columns of a collection.

    Attributes
    ----------
    text_ids : bool
        Whether ids are strings; else they are int64.
    code_bytes : int
        Bytes of a code in the column ``code``; 0 if it is a whole number, a symbol.
    vector_width : int
        Numbers in the column ``vector``; 0 without one.
    metric : "ip" or "l2"
        What vectors are ranked by: inner products, or distances.
    schema : pyarrow.Schema, optional
        The columns of the payload.
    facts : mapping
        What is said of the rows to those who read them without dpindex.
    """

    text_ids: bool
    code_bytes: int
    vector_width: int
    metric: Literal["ip", "l2"]
    schema: Any = None
    facts: Mapping[str, str] = field(default_factory=dict)

    @property
    def fields(self) -> tuple[Any, ...]:
        """The fields of the payload; none without a payload."""
        return tuple(self.schema or ())

    @cached_property
    def columns(self) -> Any:
        """The Arrow schema of rows: ``id``, ``code``, ``vector`` if there is one, and the payload.

        A code is bytes of a fixed number, or an int32; a vector is a list of float32 of fixed size.
        """
        pa = arrow()
        columns = {
            "id": pa.string() if self.text_ids else pa.int64(),
            "code": pa.binary(self.code_bytes) if self.code_bytes else pa.int32(),
        }
        if self.vector_width:
            columns["vector"] = pa.list_(pa.float32(), self.vector_width)
        return pa.schema([*columns.items(), *self.fields])

    def table(self, columns: Mapping[str, Sequence[Any]]) -> Table:
        """Rows of values by column, with lists as JSON or as lists, times and decimals as text."""
        pa = arrow()
        arrays = {}
        for name, values in columns.items():
            kind = self.columns.field(name).type
            if isinstance(values, np.ndarray):
                values = pa.array(values)
            if isinstance(values, pa.Array | pa.ChunkedArray):
                arrays[name] = values.cast(kind)
                continue
            if pa.types.is_nested(kind):
                values = [json.loads(one) if isinstance(one, str) else one for one in values]
            elif pa.types.is_integer(kind):
                values = [None if one is None else int(one) for one in values]
            elif any(isinstance(one, str) for one in values):
                values = pa.array(values, pa.string()).cast(kind)
            arrays[name] = pa.array(values, kind)
        return pa.table(arrays)

    def id_array(self, values: Sequence[Any]) -> AnyArray:
        """Ids that came out of the collection, int64 or strings, shape (n,)."""
        return np.asarray(values, np.str_ if self.text_ids else np.int64)

    def ids_by_code(self, ids: Any, symbols: AnyArray, codes: Sequence[int]) -> list[AnyArray]:
        """The ids of each of some symbols, of a column of ids and the symbols of its rows."""
        names = self.id_array(ids.to_numpy())
        if np.any(symbols[1:] < symbols[:-1]):
            order = np.argsort(symbols, kind="stable")
            symbols = symbols[order]
            names = names[order]
        wanted = np.asarray(codes, symbols.dtype)
        starts = np.searchsorted(symbols, wanted)
        stops = np.searchsorted(symbols, wanted, side="right")
        return [names[start:stop] for start, stop in zip(starts, stops, strict=True)]


def code_bytes(column: Any) -> Bytes:
    """The bytes of a column of codes, shape (n, code_bytes)."""
    joined = b"".join(column.to_pylist())
    return np.frombuffer(joined, np.uint8).reshape(-1, column.type.byte_width)


def json_texts(column: Any) -> list[str | None]:
    """The values of a column as JSON, None where one is missing."""
    return [None if value is None else json.dumps(value) for value in column.to_pylist()]


class Database(ABC, Language):
    """One collection of a database.

    It stores and finds rows, and knows nothing of what codes mean. Conditions (``where``) are text
    in the database's own language, which it states as a :class:`Language`; SQL by default. Every
    method raises InputError for what the database refuses.
    ``dpindex.testing`` holds an implementation to this contract.

    Parameters
    ----------
    address : str
        As a row of :data:`PLACES` matches it.
    name : str
        Of the collection.

    Raises
    ------
    InputError
        If nothing answers there, and without the packages it needs.
    """

    title: ClassVar[str]
    """The name of the database in messages, such as "Milvus"."""
    max_found: ClassVar[int]
    """Most rows that one answer holds."""
    column_name: ClassVar[re.Pattern[bytes]]
    """The pattern of names that a payload column may have, matched as a whole, in UTF-8."""

    noun: ClassVar[str] = "collection"
    """What a collection is called in messages."""
    errors: tuple[type[Exception], ...] = ()
    """What its library raises where the database refuses something."""
    files: str | None = None
    """The path of a database in files of this machine; None where a server keeps it."""
    layout: Layout
    """The columns of the collection, known once it is opened or made."""
    effort: int = 0
    """Nodes of the graph of bits that a search by Hamming distance visits; 0 to scan all rows."""

    def __init__(self, address: str, name: str) -> None:
        self.address = address
        self.name = name

    @property
    def place(self) -> str:
        """The address and the name of the collection, with which messages begin."""
        return f"{self.address}, {self.name}"

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Turn an error of the library into an InputError."""
        try:
            yield
        except InputError:
            raise
        except self.errors as error:
            raise self.refusal(error) from None

    def refusal(self, error: object) -> InputError:
        """What is raised for an error of the library, or for its reason."""
        return InputError(f"{self.place}: {self.title} refuses this ({one_line(error)}).")

    def beside(self, suffix: str) -> Database:
        """Another collection over the same connection, whose name has that suffix."""
        other = copy.copy(self)
        other.name += suffix
        return other

    def create(self, layout: Layout) -> None:
        """Make the collection, which is not there yet, and open it."""
        for column in layout.fields:
            is_allowed = self.column_name.fullmatch(column.name.encode())
            if column.name in _OWN or not is_allowed:
                raise InputError(
                    f"{self.title} cannot have a payload column called {column.name!r}: "
                    f"{', '.join(_OWN)} are taken, and a name matches "
                    f"{self.column_name.pattern.decode()}; rename it in the index."
                )
        self.make(layout)
        self.open(layout)

    def is_in(self, column: Literal["id", "code"], values: Sequence[Any]) -> str:
        """The condition that holds for rows with one of these ids, or of these symbols.

        Ids are whatever a sender submitted: no id may end its own quotes.
        """
        return self.among(column, values, None)

    @abstractmethod
    def exists(self) -> bool:
        """Whether there is a collection."""

    @abstractmethod
    def drop(self) -> None:
        """Remove the collection if it is there."""

    @abstractmethod
    def make(self, layout: Layout) -> None:
        """Make the collection, whose columns may have their names."""

    def check_graph(self) -> None:
        """Raise InputError where :meth:`make_graph` cannot build one."""
        raise InputError(
            f"{self.title} scans bits here; LanceDB and PostgreSQL can have a graph of them."
        )

    def make_graph(self) -> None:
        """Build a graph over the bits of the rows that are there; later ones are found too."""
        raise NotImplementedError

    @abstractmethod
    def open(self, layout: Layout) -> None:
        """Use the collection that is there."""

    @abstractmethod
    def insert(self, rows: Table) -> None:
        """Add rows, with the columns of the layout, whose ids are new."""

    @abstractmethod
    def finish(self) -> None:
        """Make durable and searchable what was inserted."""

    @abstractmethod
    def search(self, queries: Bytes | Singles, count: int, where: str | None) -> Neighbours:
        """The nearest rows of each query, among those that meet a condition.

        Parameters
        ----------
        queries : uint8 array of shape (nq, code_bytes), or float32 array, shape (nq, vector_width)
            Compared with codes by Hamming distance, or with vectors by the metric.
        count : int
            Rows wanted, [1, max_found].

        Returns
        -------
        For each query the ids of at most ``count`` rows and their scores, highest first: minus the
        Hamming distance, the inner product, or minus the squared distance. Rows of equal scores
        come in any order.
        """

    @abstractmethod
    def delete(self, where: str) -> None:
        """Remove the rows that meet a condition, so that nobody finds them any more."""

    @abstractmethod
    def select(self, where: str, count: int, payload: Sequence[str] = ()) -> Table:
        """At most ``count`` rows that meet a condition, in any order.

        They have ids, codes, and the columns of the payload that are named.
        """

    def ids_of_codes(self, codes: Sequence[int], where: str | None, count: int) -> list[AnyArray]:
        """The ids of each of these symbols whose rows meet a condition.

        Some may be missing where there are ``count`` or more in all.
        """
        condition = self.is_in("code", codes)
        if where is not None:
            condition = f"({condition}) and ({where})"
        rows = self.select(condition, count)
        return self.layout.ids_by_code(rows["id"], rows["code"].to_numpy(), codes)

    @abstractmethod
    def count(self, where: str | None = None) -> int:
        """How many rows meet a condition."""

    def code_counts(self) -> Mapping[int, int] | None:
        """How many rows each symbol has that has any; None where only a scan here would say."""
        return None

    def lease(self) -> AbstractContextManager[Path | None]:
        """Be the only collector of the collection until the block ends.

        The lease is where the collection is, so it holds whatever machine, state folder or symbolic
        link a collector comes from. Beside files it is the operating system's lock of a folder. It
        ends with the process that holds it, and holds between machines as far as the file system
        shares locks. A Milvus server has neither locks nor insertion that keeps ids unique.

        Returns
        -------
        A context that gives the private folder of the collector beside a collection in files, and
        None where a server keeps the collection.

        Raises
        ------
        BusyError
            If another collector has the lease.
        """
        if self.files is None:
            return nullcontext()
        files = Path(os.path.realpath(self.files))
        folder = files.with_name(f"{files.name}.{self.name}.collector")
        return holding_folder(folder, f"{self.files}, collection {self.name},")

    @abstractmethod
    def close(self) -> None:
        """Let go of the database."""


class SqlDatabase(Database):
    """A database that answers in SQL, where one statement ranks all rows by a score."""

    @abstractmethod
    def answer(self, columns: str, clauses: str) -> Mapping[str, Any]:
        """The columns of rows, by name, that a SELECT of these columns finds.

        Parameters
        ----------
        columns, clauses : str
            What stands before FROM, and behind the table.
        """

    @abstractmethod
    def score(self, query: AnyArray) -> str:
        """The score of a row for one query, as :meth:`search` says it is."""

    def found(self, score: str, clauses: str) -> tuple[AnyArray, Doubles]:
        """Ids and scores of rows."""
        rows = self.answer(f"id, {score} as score", clauses)
        return self.layout.id_array(rows["id"]), np.asarray(rows["score"], np.float64)

    def search(self, queries: Bytes | Singles, count: int, where: str | None) -> Neighbours:
        clauses = f"where {where or 'true'} order by score desc, id limit {count}"
        return [self.found(self.score(query), clauses) for query in queries]

    def select(self, where: str, count: int, payload: Sequence[str] = ()) -> Table:
        columns = ", ".join(map(self.column, ["id", "code", *payload]))
        return self.layout.table(self.answer(columns, f"where {where} limit {count}"))

    def count(self, where: str | None = None) -> int:
        rows = self.answer("count(*) as n", f"where {where or 'true'}")
        return int(np.asarray(rows["n"])[0])  # scalars of pyarrow 19 are no numbers

    def code_counts(self) -> Mapping[int, int]:
        rows = self.answer("code, count(*) as n", "group by code")
        codes = np.asarray(rows["code"]).tolist()
        return dict(zip(codes, np.asarray(rows["n"]).tolist(), strict=True))


PLACES = {
    r"milvus(\+tls)?://.+": "dpindex.integrations.milvus.Milvus",
    r"postgres(ql)?://.+": "dpindex.integrations.postgres.Postgres",
    r"(?!.*://).*\.db": "dpindex.integrations.milvus.Milvus",
    r"(?!.*://).*\.lance": "dpindex.integrations.lance.Lance",
    r".*\.parquet/?": "dpindex.integrations.parquet.Parquet",
}
"""Which class is behind an address that matches as a whole; it is imported when it is opened."""

_NAME = re.compile(r"[A-Za-z_]\w{0,54}", re.ASCII)
"""PostgreSQL cuts names after 63 bytes, and documents lie in ``NAME_dpindex``."""


def adapter_of(location: AnyPath) -> str | None:
    """The class behind the address of a database; None for a folder and an object store.

    >>> adapter_of("milvus://localhost:19530"), adapter_of("s3://bucket/index")
    ('dpindex.integrations.milvus.Milvus', None)
    """
    address = os.fspath(location)
    for pattern, name in PLACES.items():
        if re.fullmatch(pattern, address, re.DOTALL):
            return name
    return None


def open_database(location: AnyPath, collection: str, *, new: bool = False) -> Database:
    """A collection, which need not be there yet, of the database at an address.

    A file or folder is made only if it may be ``new``.

    Raises
    ------
    InputError
        For an address or a name that is not understood, a database that does not answer, and
        without the packages it needs.
    """
    text = os.path.expanduser(os.fspath(location))
    adapter = adapter_of(text)
    if adapter is None:
        raise InputError(
            f"{text} names no database: give milvus://host:port, milvus+tls://host:port, "
            f"postgresql://user@host/database, or the path of a file of Milvus Lite, which ends in "
            f".db, of a folder of LanceDB, which ends in .lance, or of a table, .parquet."
        )
    if not _NAME.fullmatch(collection):
        raise InputError(
            f"the name of a collection has at most 55 letters, digits and _, and is not "
            f"{collection!r}."
        )
    if not (new or "://" in text or Path(text).exists()):
        raise InputError(f"there is nothing at {text}; dpindex publish makes one.")
    module, _, name = adapter.rpartition(".")
    database: Database = getattr(import_module(module), name)(text, collection)
    return database
