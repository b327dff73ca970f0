"""PostgreSQL: plain columns, with pgvector for what is ranked by float vectors."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from dpindex.base.arrays import AnyArray, Bytes, Singles, Table
from dpindex.base.errors import BusyError, InputError, StorageError, import_extra, one_line
from dpindex.base.tables import arrow
from dpindex.integrations.database import Layout, Neighbours, SqlDatabase, json_texts

__all__ = ["Postgres"]

_TEXT = 'text collate "C"'
"""Strings in the order of code points, as elsewhere."""
_SCORES = {"ip": "-(vector <#> {})", "l2": "-vector_l2_squared_distance(vector, {})"}
"""pgvector's operators are distances: of an inner product, its negative."""
_HAS_GRAPHS = """
    select coalesce(max(string_to_array(extversion, '.')::int[]) >= '{0,8}', false)
    from pg_extension where extname = 'vector'
"""
_MOST_EFFORT = 1000
"""Nodes that pgvector visits at most before it begins anew: where more are wanted, a scan is as
fast, and exact."""
_LEASE = """
    select {}(hashtextextended('dpindex collector ' || n.nspname || '.' || c.relname, 0))
    from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = to_regclass(%s)
"""
"""SQL that calls a function of advisory locks with a key of the table's schema and name."""
_NEEDS_PGVECTOR = (
    "number codes, and exact queries of signs, need the extension pgvector at the server; let its "
    "administrator run CREATE EXTENSION vector, or publish signs for private queries alone "
    "(exact_queries=False; dpindex publish --private-only)."
)


class Postgres(SqlDatabase):
    """A table of PostgreSQL 14 or later.

    Symbols are an integer column with an index. Other codes are a column of bits, so that
    ``bit_count(code # query)`` is their Hamming distance. Everything is committed where it returns.
    """

    title = "PostgreSQL"
    max_found = 65_536
    column_name = re.compile(rb"(?s).{1,63}")  # longer names are cut by the server, in silence

    def __init__(self, address: str, name: str) -> None:
        super().__init__(address, name)
        if re.search("//[^/@]*:[^/@]+@|password=[^&]", address):
            raise InputError("an address holds no password; give it as PGPASSWORD or in ~/.pgpass.")
        self._psycopg = import_extra("psycopg", "PostgreSQL needs psycopg", "postgres")
        self.errors = (self._psycopg.Error, ValueError, OverflowError)
        with self.asking():
            self._connection = self._psycopg.connect(address, autocommit=True)

    @property
    def _table(self) -> str:
        return self.column(self.name)

    def refusal(self, error: object) -> InputError:
        errors = self._psycopg.errors
        if isinstance(error, errors.UniqueViolation):
            return InputError(
                f"{self.place}: another writer has added one of these ids; ids must be unique."
            )
        if isinstance(error, errors.OperationalError):
            return StorageError(
                f"{self.place}: PostgreSQL cannot be reached, or has no room ({one_line(error)})."
            )
        return super().refusal(error)

    def literal(self, value: Any, kind: Any, name: str) -> str:
        if isinstance(value, str):
            # Quoted by the server's own rules: backslashes may be escapes there.
            return str(self._psycopg.sql.quote(value, self._connection))
        return super().literal(value, kind, name)

    def _run(self, command: str, *values: Any) -> Any:
        """Run a command; conditions in it hold literals, so % stands for itself without values."""
        return self._connection.execute(command, values or None)

    def exists(self) -> bool:
        with self.asking():
            answer = self._run("select to_regclass(%s) is not null", self._table)
            (found,) = answer.fetchone()
        return bool(found)

    def drop(self) -> None:
        with self.asking():
            self._run(f"drop table if exists {self._table}")

    def make(self, layout: Layout) -> None:
        columns = self._columns(layout)
        if layout.vector_width:
            try:
                self._run("create extension if not exists vector")
            except self._psycopg.Error:
                raise InputError(f"{self.place}: {_NEEDS_PGVECTOR}") from None
        declarations = ", ".join(f"{self.column(name)} {kind}" for name, kind in columns.items())
        with self.asking(), self._connection.transaction():
            self._run(f"create table {self._table} ({declarations}, primary key (id))")
            if not layout.code_bytes:
                self._run(f"create index on {self._table} (code)")

    def check_graph(self) -> None:
        with suppress(self._psycopg.Error):  # what is missing is said below
            self._run("create extension if not exists vector")
        if not self.has_graphs():
            raise InputError(
                f"{self.place}: a graph needs the extension pgvector 0.8 or later in this "
                f"database; let its administrator run CREATE EXTENSION vector, or ALTER EXTENSION "
                f"vector UPDATE."
            )

    def has_graphs(self) -> bool:
        """Whether the extension of the database has graphs that go on past deleted rows."""
        with self.asking():
            (found,) = self._run(_HAS_GRAPHS).fetchone()
        return bool(found)

    def make_graph(self) -> None:
        with self.asking():
            self._run(f"create index on {self._table} using hnsw (code bit_hamming_ops)")

    def _columns(self, layout: Layout) -> dict[str, str]:
        """Names of columns with their types in SQL; InputError for what PostgreSQL cannot keep."""
        types = arrow().types
        kinds = (
            (types.is_fixed_size_binary, f"bit({8 * layout.code_bytes})"),
            (types.is_fixed_size_list, f"vector({layout.vector_width})"),
            (types.is_boolean, "boolean"),
            (types.is_uint64, "numeric"),
            (types.is_integer, "bigint"),
            (types.is_floating, "double precision"),
            (types.is_decimal, "numeric"),
            (types.is_date, "date"),
            (types.is_string, _TEXT),
            (types.is_large_string, _TEXT),
            (types.is_list, "jsonb"),
            (types.is_large_list, "jsonb"),
        )
        columns = {}
        for field in layout.columns:
            names = [name for is_of_kind, name in kinds if is_of_kind(field.type)]
            if not names:
                raise InputError(
                    f"PostgreSQL keeps no payload column of type {field.type} here: turn "
                    f"{field.name!r} into numbers, text or dates."
                )
            columns[field.name] = names[0]
        return columns

    def open(self, layout: Layout) -> None:
        self.layout = layout
        if layout.vector_width and not self.has_vectors():
            raise InputError(f"{self.place}: {_NEEDS_PGVECTOR}")

    def has_vectors(self) -> bool:
        with self.asking():
            (found,) = self._run("select to_regtype('vector') is not null").fetchone()
        return bool(found)

    def insert(self, rows: Table) -> None:
        columns = ", ".join(map(self.column, self._columns(self.layout)))
        command = f"copy {self._table} ({columns}) from stdin"
        with (
            self.asking(),
            self._connection.transaction(),
            self._connection.cursor().copy(command) as copy,
        ):
            for row in zip(*self._values(rows), strict=True):
                copy.write_row(row)

    def _values(self, rows: Table) -> Iterator[Iterable[Any]]:
        """The columns of some rows, as values that psycopg writes as text."""
        types = arrow().types
        for name in rows.column_names:
            column = rows[name]
            kind = self.layout.columns.field(name).type
            if types.is_list(kind) or types.is_large_list(kind):
                yield json_texts(column)
            elif types.is_fixed_size_binary(kind):
                yield [f"x{code.hex()}" for code in column.to_pylist()]
            elif types.is_fixed_size_list(kind):
                yield map(str, column.to_pylist())
            else:
                yield column.to_pylist()

    def finish(self) -> None:
        with self.asking():
            self._run(f"analyze {self._table}")

    def search(self, queries: Bytes | Singles, count: int, where: str | None) -> Neighbours:
        effort = max(self.effort, 2 * count)
        by_graph = queries.dtype == np.uint8 and self.effort and not where
        if by_graph and effort <= _MOST_EFFORT:
            return self._near(queries, count, effort)
        return super().search(queries, count, where)

    def _near(self, queries: Bytes | Singles, count: int, effort: int) -> Neighbours:
        """What a search of ``effort`` nodes of the graph finds; it goes on past deleted rows."""
        found = []
        with self.asking(), self._connection.transaction():
            self._run(f"set local hnsw.ef_search = {effort}")
            self._run("set local hnsw.iterative_scan = strict_order")
            self._run("set local enable_seqscan = off")  # the recall that is stated is the graph's
            for query in queries:
                distance = f"code <~> X'{query.tobytes().hex()}'"
                found.append(self.found(f"-({distance})", f"order by {distance} limit {count}"))
        return found

    def score(self, query: AnyArray) -> str:
        if query.dtype == np.uint8:
            return f"-bit_count(code # X'{query.tobytes().hex()}')"
        return _SCORES[self.layout.metric].format(f"'{query.astype(float).tolist()}'::vector")

    def answer(self, columns: str, clauses: str) -> Mapping[str, Any]:
        with self.asking():
            cursor = self._run(f"select {columns} from {self._table} {clauses}")
            rows = cursor.fetchall()
        found: dict[str, list[Any]] = {}
        for place, column in enumerate(cursor.description):
            found[column.name] = [row[place] for row in rows]
        if "code" in found and self.layout.code_bytes:
            numbers = [int(bits, 2) for bits in found["code"]]
            width = self.layout.code_bytes
            found["code"] = [number.to_bytes(width, "big") for number in numbers]
        return found

    def delete(self, where: str) -> None:
        with self.asking():
            self._run(f"delete from {self._table} where {where}")

    @contextmanager
    def lease(self) -> Iterator[Path | None]:
        """Be the only collector: an advisory lock of this session, which ends with it.

        A lost connection is not opened again, so nothing is accepted once the lock is lost.
        """
        with self.asking():
            answer = self._run(_LEASE.format("pg_try_advisory_lock"), self._table).fetchone()
        if answer is None:
            raise InputError(f"{self.place}: the table is missing; publish the index anew.")
        if not answer[0]:
            raise BusyError(f"{self.place} is being written by another collector; wait for it.")
        try:
            yield None
        finally:
            if not self._connection.closed:
                with self.asking():
                    self._run(_LEASE.format("pg_advisory_unlock"), self._table)

    def close(self) -> None:
        self._connection.close()
