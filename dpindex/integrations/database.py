"""The seam of vector databases to which codes are published, and where they are searched."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from dpindex.base.arrays import AnyArray, Bytes, Doubles, Singles
from dpindex.base.files import holding_folder


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
    """

    text_ids: bool
    code_bytes: int
    vector_width: int
    metric: Literal["ip", "l2"]
    schema: Any = None

    @property
    def fields(self) -> tuple[Any, ...]:
        """The fields of the payload; none without a payload."""
        return tuple(self.schema or ())

    def id_array(self, values: Sequence[Any]) -> AnyArray:
        """Ids that came out of the collection, int64 or strings, shape (n,)."""
        return np.array(values, np.str_ if self.text_ids else np.int64)

    def code_array(self, values: Sequence[Any]) -> AnyArray:
        """Codes that came out of the collection, bytes or whole numbers, as in :class:`Rows`."""
        if self.code_bytes:
            return np.frombuffer(b"".join(values), np.uint8).reshape(-1, self.code_bytes)
        return np.array(values, np.int32)


@dataclass(frozen=True)
class Rows:
    """Rows that go into a collection, or come out of it.

    Attributes
    ----------
    ids : array, shape (n,)
        int64 or strings.
    codes : uint8 array, shape (n, code_bytes), or whole numbers, shape (n,)
    vectors : float32 array, shape (n, vector_width), optional
        They never come out.
    payload : pyarrow.Table, optional
        With the columns of the layout; None where it has none, and where it was not asked for.
    """

    ids: AnyArray
    codes: AnyArray
    vectors: Singles | None = None
    payload: Any = None


class Database(ABC):
    """One collection of a database, and a few documents that belong to it.

    It stores and finds rows, and knows nothing of what codes mean. Conditions (``where``) are text
    in the database's own language, which is passed on as it is. Every method raises InputError for
    what the database refuses. ``tests/integrations/database_contract.py`` holds an implementation
    to this contract.
    """

    max_found: ClassVar[int]
    """Most rows that one answer holds."""

    @abstractmethod
    def is_in(self, column: Literal["id", "code"], values: Sequence[Any]) -> str:
        """The condition that holds for rows with one of these ids, or of these symbols.

        Ids are whatever a sender submitted: no id may end its own quotes.
        """

    @abstractmethod
    def exists(self) -> bool:
        """Whether there is a collection, or a document."""

    @abstractmethod
    def drop(self) -> None:
        """Remove the collection and all documents, as far as they are there."""

    @abstractmethod
    def create(self, layout: Layout) -> None:
        """Make the collection, which is not there yet."""

    @abstractmethod
    def open(self, layout: Layout) -> None:
        """Use the collection that is there."""

    @abstractmethod
    def insert(self, rows: Rows, *, replace: bool = False) -> None:
        """Add rows; with ``replace`` in the place of those with the same ids."""

    @abstractmethod
    def finish(self) -> None:
        """Make durable and searchable what was inserted."""

    @abstractmethod
    def search(
        self, queries: Bytes | Singles, count: int, where: str | None
    ) -> tuple[list[AnyArray], list[Doubles]]:
        """The nearest rows of each query, among those that meet a condition.

        Parameters
        ----------
        queries : uint8 array of shape (nq, code_bytes), or float32 array, shape (nq, vector_width)
            Compared with codes by Hamming distance, or with vectors by the metric.
        count : int
            Rows wanted, [1, max_found].

        Returns
        -------
        For each query the ids of at most ``count`` rows, and their scores, highest first: minus the
        Hamming distance, the inner product, or minus the squared distance.
        """

    @abstractmethod
    def select(self, where: str, count: int, *, payload: bool = False) -> Rows:
        """At most ``count`` rows that meet a condition, in any order."""

    @abstractmethod
    def count(self, where: str | None = None) -> int:
        """How many rows meet a condition."""

    @abstractmethod
    def read(self, name: str) -> bytes | None:
        """A document; None if there is none of that name."""

    @abstractmethod
    def write(self, name: str, data: bytes) -> None:
        """Keep a document, in the place of one of the same name."""

    @abstractmethod
    def lease(self) -> AbstractContextManager[Path | None]:
        """Be the only collector of the collection until the block ends.

        The lease is where the collection is, so it holds whatever machine, state folder or symbolic
        link a collector comes from. A Milvus server offers no lease, and gives none.

        Returns
        -------
        A context that gives the private folder of the collector beside a collection in files, and
        None where a server keeps the collection.

        Raises
        ------
        BusyError
            If another collector has the lease.
        """

    @abstractmethod
    def close(self) -> None:
        """Let go of the database."""


def lease_beside(place: str, collection: str) -> AbstractContextManager[Path | None]:
    """Lease a collection in files: hold the lock of a folder beside the true path of the files.

    The lock is the operating system's. It ends with the process that holds it, and holds between
    machines as far as the file system shares locks.
    """
    files = Path(os.path.realpath(place))
    folder = files.with_name(f"{files.name}.{collection}.collector")
    return holding_folder(folder, f"{place}, collection {collection},")
