"""Parquet: a file, or a folder or prefix of an object store with several, asked through DuckDB.

Rows are written once: sorted by code where codes are symbols, in groups whose statistics let every
engine skip what it does not need. Documents lie before the footer, where no other reader looks. The
footer states the spec, the guarantee and a SHA-256 of the whole file, which is verified before the
file is searched. A folder is named whole by its head, ``_dpindex.parquet``, which has no rows: its
parts never change, and the head that names others takes its place in one step.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from dpindex.base.arrays import AnyArray, Table
from dpindex.base.errors import DamagedError, InputError, import_extra
from dpindex.base.files import sync_folder
from dpindex.base.ids import COLLECTION
from dpindex.base.tables import arrow
from dpindex.index.conditions import DuckDb
from dpindex.integrations.database import Database, Layout, SqlDatabase

__all__ = ["Parquet"]

_GROUP_BYTES = 1 << 26
GROUP_ROWS = 1 << 17
_LEAST_ROWS = 1 << 13
PART_GROUPS = 128
"""Groups of rows in one part of a folder."""
_READ_BYTES = 1 << 22
_MEMORY = "600MB"
"""What DuckDB keeps in memory; what it sorts beyond that lies beside the table meanwhile."""
_HEAD = "_dpindex.parquet"
_PART = re.compile(r"part-[0-9]{5,}\.parquet")
_UNSIGNED = b"0" * 64
_SIGNATURE = re.compile(rb"dpindex\.sha256..([0-9a-f]{64})", re.DOTALL)
"""The hash in a footer: between a key and its value are the two bytes of a field and a length."""
_SCORES = {
    "ip": "array_inner_product({})",
    "l2": "-(array_distance({}) ** 2)",
}


class Parquet(SqlDatabase, DuckDb):
    """A Parquet table. A collection that has a name of its own is a file within the folder."""

    title = "DuckDB"
    noun = "file"
    max_found = 1 << 24
    column_name = re.compile(rb"(?is)(?!(id|code|vector)$).+")

    is_staged: bool = False
    """Whether the rows are in DuckDB: documents, and what is not published yet."""
    _documents: bytes = b""
    _seen: Any = None
    """The head as it was when it was verified: its time and size."""
    described: Parquet | None = None
    """The table whose documents these rows are."""

    def __init__(self, address: str, name: str) -> None:
        super().__init__(address, name)
        self._parts: dict[str, str] = {}
        self._counts: Mapping[int, int] = {}
        self._footers: dict[str, tuple[Any, ...]] = {}
        duckdb = import_extra("duckdb", "Parquet tables are asked through duckdb", "duckdb")
        system = import_extra("pyarrow.fs", "Parquet tables need pyarrow", "duckdb")
        self._pq = import_extra("pyarrow.parquet", "", "duckdb")
        self.errors = (duckdb.Error, arrow().ArrowException, OSError)
        with self.asking():
            if "://" in address:
                self._system, path = system.FileSystem.from_uri(address)
            else:
                self._system = system.LocalFileSystem()
                path = os.path.abspath(address)
            place = os.path.join(tempfile.gettempdir(), "dpindex")
            if self._system.type_name == "local":
                self.files = place = path.rstrip("/")
            self._scratch = f"{place}.{secrets.token_hex(4)}.tmp"
            self._path: str = path.rstrip("/")
            if name != COLLECTION:
                if self._kind() == system.FileType.File:
                    raise InputError(
                        f"{address} is a file, which has one collection; name another file, or "
                        "leave the collection out."
                    )
                self._path += f"/{name}.parquet"
            self._is_folder = address.endswith("/") or self._kind() == system.FileType.Directory
            self._connection = duckdb.connect(
                config={
                    "memory_limit": _MEMORY,
                    "temp_directory": self._scratch,
                    "autoinstall_known_extensions": False,
                }
            )

    def literal(self, value: Any, kind: Any, name: str) -> str:
        if kind is not None and getattr(kind, "tz", None) is not None:
            return super().literal(value, kind, name).replace(" as timestamp)", " as timestamptz)")
        return super().literal(value, kind, name)

    def beside(self, suffix: str) -> Database:
        documents = super().beside(suffix)
        assert isinstance(documents, Parquet)
        documents.described = self
        return documents

    def _kind(self) -> Any:
        return self._system.get_file_info(self._path).type

    @property
    def _head(self) -> str:
        if self._is_folder:
            return f"{self._path}/{_HEAD}"
        return self._path

    @property
    def _table(self) -> str:
        return self.column(self.name)

    def _run(self, command: str, **tables: Any) -> Any:
        """Run a command over tables by their names; of a question return the answer's relation."""
        cursor = self._connection.cursor()
        for name, table in tables.items():
            cursor.register(name, table)
        if command.startswith(("from ", "select ")):
            return cursor.sql(command)
        return cursor.execute(command)

    def _over(self, paths: Sequence[str], columns: str, clauses: str) -> Any:
        """Select from the rows of files."""
        if self.files is None:  # DuckDB would download what it reads stores with
            dataset = import_extra("pyarrow.dataset", "", "duckdb")
            rows = dataset.dataset([*paths], filesystem=self._system)
            return self._run(f"select {columns} from files {clauses}", files=rows)
        plain = [re.sub(r"([*?\[])", r"[\1]", path) for path in paths]
        listed = ", ".join(self.literal(path, None, "") for path in plain)
        return self._run(f"select {columns} from read_parquet([{listed}]) {clauses}")

    def exists(self) -> bool:
        with self.asking():
            if self.described is not None and not self.is_staged:
                self.is_staged = self.described.verify()
                return self.is_staged
            return self.is_staged or self._mark() is not None

    def _mark(self) -> Any:
        """Time and size of the head, or of what else is in its place; None if nothing is."""
        found = self._system.get_file_info(self._head)
        if not found.is_file:
            return None
        return found.mtime_ns, found.size

    def verify(self) -> bool:
        """Verify what is there, unless that was done; return whether it is a published table."""
        mark = self._mark()
        if mark is not None and mark != self._seen:
            facts, documents = self._verified(self._head)
            if "dpindex.parts" not in facts:
                return False
            parts = json.loads(facts["dpindex.parts"])
            for name, digest in parts.items():
                known = self._parts.get(name)
                if known is None and _PART.fullmatch(name):
                    known = self._verified(f"{self._path}/{name}")[0].get("dpindex.sha256")
                if known != digest:
                    raise DamagedError(f"{self.place}: {name} is of another table.")
            self._parts = parts
            self._documents = documents
            rows = arrow().ipc.open_stream(documents).read_all()
            table = self.column(f"{self.name}_dpindex")
            self._run(f"create or replace table {table} as select * from rows", rows=rows)
            self._see(mark)
        return mark is not None

    def _see(self, mark: Any) -> None:
        """Know the head that was verified or written, and nothing of the one before it."""
        self._seen = mark
        self._counts = {}
        self._footers = {}

    def _verified(self, path: str) -> tuple[dict[str, str], bytes]:
        """The facts and documents of a file; none of one that states no hash.

        Raises
        ------
        DamagedError
            If a byte of it was changed.
        """
        damaged = DamagedError(
            f"{self.place}: {path} was changed or cut off, or is no Parquet file; publish the "
            f"index to another one."
        )
        with self._system.open_input_file(path) as file:
            try:
                stated = self._pq.read_metadata(file).metadata or {}
                facts = {
                    key.decode(): value.decode()
                    for key, value in stated.items()
                    if key.startswith(b"dpindex.")
                }
            except (arrow().ArrowException, UnicodeDecodeError):
                raise damaged from None
            if not facts:
                return {}, b""
            start, found, digest = _hashed(file)
            if found != digest or facts.get("dpindex.sha256") != digest:
                raise damaged
            size = int(facts["dpindex.documents"])
            file.seek(start - size)
            return facts, file.read(size)

    def drop(self) -> None:
        with self.asking():
            self._run(f"drop table if exists {self._table}")
            self.is_staged = False
            if self.described is None:
                self._seen = None
                if self._mark() is not None:
                    self._system.delete_file(self._head)  # first: parts are nothing without it

    def make(self, layout: Layout) -> None:
        schema = layout.columns
        if len({name.lower() for name in schema.names}) < len(schema):
            raise InputError("DuckDB does not tell A from a: rename a payload column in the index.")
        for field in layout.fields:
            if arrow().types.is_float16(field.type):  # DuckDB reads no table that has one
                raise _not_kept(field)
        with self.asking():
            made = f"create table {self._table} as select * from rows"
            self._run(made, rows=schema.empty_table())
            self.is_staged = True
            kept = self._run(f"from {self._table}").to_arrow_table().schema
        for field in layout.fields:
            if not _holds(kept.field(field.name).type, field.type):
                raise _not_kept(field)

    def open(self, layout: Layout) -> None:
        self.layout = layout

    def insert(self, rows: Table) -> None:
        with self.asking():
            if self.described is not None or self.is_staged:
                self._run(f"insert into {self._table} select * from rows", rows=rows)
                return
            if not self.layout.code_bytes:
                rows = rows.sort_by([("code", "ascending"), ("id", "ascending")])
            self.verify()
            if self._is_folder:
                name, digest = self._new_part([rows])
                self._name_parts({**self._parts, name: digest})
            else:
                self._write(self._head, chain(self._rows_of(self._head), [rows]))

    def finish(self) -> None:
        """Publish the rows that are staged with their documents, once these are finished."""
        if self.described is not None and self.described.is_staged:
            with self.asking():
                self.described.publish(self._run(f"from {self._table}").to_arrow_table())

    def publish(self, documents: Table) -> None:
        sink = arrow().BufferOutputStream()
        with arrow().ipc.new_stream(sink, documents.schema) as stream:
            stream.write_table(documents)
        self._documents = sink.getvalue().to_pybytes()
        order = ""
        if not self.layout.code_bytes:
            order = "order by code, id"
        rows = self._groups(self._run(f"from {self._table} {order}"))
        if self._is_folder:
            self._parts = {}
            for first in rows:
                name, digest = self._new_part(chain([first], islice(rows, PART_GROUPS - 1)))
                self._parts[name] = digest
        self._write(self._head, rows)
        self._run(f"drop table {self._table}")
        self.is_staged = False

    def _rows_of(self, path: str, where: str = "true") -> Iterator[Table]:
        return self._groups(self._over([path], "*", f"where {where}"))

    def _groups(self, answer: Any) -> Iterator[Table]:
        """The rows of an answer, one group at a time."""
        for batch in answer.to_arrow_reader(self._group_rows):
            yield arrow().Table.from_batches([batch]).cast(self.layout.columns)

    @property
    def _group_rows(self) -> int:
        row_bytes = 8 + self.layout.code_bytes + 4 * self.layout.vector_width
        return min(GROUP_ROWS, _GROUP_BYTES // row_bytes)

    def _new_part(self, tables: Iterable[Table]) -> tuple[str, str]:
        """Write a part under a name that none has; return its name and hash."""
        numbers = [int(name[5:-8]) for name in self._parts]
        number = max(numbers, default=0) + 1
        name = f"part-{number:05d}.parquet"
        return name, self._write(f"{self._path}/{name}", tables)

    def _name_parts(self, parts: Mapping[str, str]) -> None:
        """Let other parts be the table, in one step, and remove those that are not."""
        gone = self._parts.keys() - parts.keys()
        self._parts = dict(parts)
        self._write(self._head, ())
        for name in gone:
            self._system.delete_file(f"{self._path}/{name}")

    def _write(self, path: str, tables: Iterable[Table]) -> str:
        """Write a file whole and durably; return its hash."""
        documents = b""
        facts = {**self.layout.facts, "sha256": _UNSIGNED.decode()}
        if path == self._head:
            documents = self._documents
            facts["parts"] = json.dumps(self._parts)
        facts["documents"] = str(len(documents))
        if self.files is not None:
            os.makedirs(os.path.dirname(path), exist_ok=True)
        temporary = f"{self._scratch}.new"
        try:
            digest = self._written(temporary, tables, facts, documents)
            self._put(temporary, path)
        finally:
            Path(temporary).unlink(missing_ok=True)
        if path == self._head:
            self._see(self._mark())
        return digest

    def _written(
        self, path: str, tables: Iterable[Table], facts: Mapping[str, str], documents: bytes
    ) -> str:
        repeated = [field.name for field in self.layout.fields]
        if not self.layout.code_bytes:
            repeated.append("code")
        encoding = {}
        if not self.layout.text_ids:
            encoding["id"] = "DELTA_BINARY_PACKED"
        with self._pq.ParquetWriter(
            path,
            self.layout.columns,
            compression="zstd",
            use_dictionary=repeated,
            column_encoding=encoding,
            write_page_index=True,
        ) as writer:
            for table in tables:
                for group in self._at_symbols(table):
                    writer.write_table(group, self._group_rows)
            writer.add_key_value_metadata({f"dpindex.{key}": facts[key] for key in facts})
        return _sealed(path, documents)

    def _at_symbols(self, table: Table) -> Iterator[Table]:
        """Rows in groups that end where a symbol does: then a query reads little else."""
        cuts = [len(table)]
        if not self.layout.code_bytes:
            symbols = table["code"].to_numpy()
            changes = np.flatnonzero(np.diff(symbols)) + 1
            cuts = [*changes, *cuts]
        start = 0
        for stop in cuts:
            if stop - start >= _LEAST_ROWS or stop == len(table):
                yield table.slice(start, stop - start)
                start = stop

    def _put(self, temporary: str, path: str) -> None:
        if self.files is not None:
            os.replace(temporary, path)
            sync_folder(os.path.dirname(path))
            return
        with open(temporary, "rb") as file, self._system.open_output_stream(path) as sink:
            while block := file.read(_READ_BYTES):
                sink.write(block)

    def _files(self) -> list[str]:
        return [f"{self._path}/{name}" for name in self._parts] or [self._head]

    def answer(self, columns: str, clauses: str) -> Mapping[str, Any]:
        with self.asking():
            if self.is_staged:
                rows = self._run(f"select {columns} from {self._table} {clauses}")
            else:
                self.verify()
                rows = self._over(self._files(), columns, clauses)
            table = rows.to_arrow_table()
        return dict(zip(table.column_names, table.columns, strict=True))

    def score(self, query: AnyArray) -> str:
        if query.dtype == np.uint8:
            digits = "".join(f"\\x{byte:02X}" for byte in query.tolist())
            return f"-bit_count(xor(code::bit, '{digits}'::blob::bit))"
        # With an exponent a number is a double, and loses nothing.
        numbers = ", ".join(f"{number:.17e}" for number in query.tolist())
        kind = f"double[{self.layout.vector_width}]"
        return _SCORES[self.layout.metric].format(f"vector::{kind}, [{numbers}]::{kind}")

    def ids_of_codes(self, codes: Sequence[int], where: str | None, count: int) -> list[AnyArray]:
        if where is not None or self.is_staged:
            return super().ids_of_codes(codes, where, count)
        wanted = np.sort(codes)
        ids = []
        symbols = []
        with self.asking():
            self.verify()
            for path in self._files():
                footer, first, last, rows = self._footer(path)
                # Groups of rows with none of these symbols are not read, nor the codes of others
                # that are of one symbol.
                holds = wanted.searchsorted(first) < wanted.searchsorted(last, "right")
                mixed = holds & (first < last)
                every = np.repeat(first[holds], rows[holds])
                with self._system.open_input_file(path) as source:
                    file = self._pq.ParquetFile(
                        source, metadata=footer, pre_buffer=self.files is None
                    )
                    ids += _column(file, "id", holds).chunks
                    every[np.repeat(mixed[holds], rows[holds])] = _column(file, "code", mixed)
                symbols.append(every)
        kind = self.layout.columns.field("id").type
        every_id = arrow().chunked_array(ids, kind)
        return self.layout.ids_by_code(every_id, np.concatenate(symbols), codes)

    def _footer(self, path: str) -> tuple[Any, ...]:
        """The footer of a file; of each group of rows the least and the greatest code, and rows."""
        if path not in self._footers:
            with self._system.open_input_file(path) as file:
                footer = self._pq.read_metadata(file)
            facts = []
            for group in map(footer.row_group, range(footer.num_row_groups)):
                between = (0, -1)  # where all rows were removed
                if group.num_rows:
                    codes = group.column(1).statistics
                    between = (codes.min, codes.max)
                facts.append((*between, group.num_rows))
            low, high, rows = np.array(facts, np.int32).reshape(-1, 3).T
            self._footers[path] = footer, low, high, rows
        return self._footers[path]

    def delete(self, where: str) -> None:
        with self.asking():
            if self.is_staged:
                self._run(f"delete from {self._table} where {where}")
                return
            self.verify()
            parts = {}
            for path in self._files():
                counted = self._over([path], "count(*)", f"where {where}")
                name = os.path.basename(path)
                digest = self._parts.get(name, "")
                if counted.fetchall()[0][0]:
                    left = self._rows_of(path, f"not coalesce(({where}), false)")
                    if not self._is_folder:
                        self._write(path, left)
                        return
                    name, digest = self._new_part(left)
                    self._parts[name] = digest
                parts[name] = digest
            if self._is_folder:
                self._name_parts(parts)

    def code_counts(self) -> Mapping[int, int]:
        with self.asking():
            self.verify()
        if self.is_staged or not self._counts:
            self._counts = super().code_counts()
        return self._counts

    def close(self) -> None:
        self._connection.close()


def _not_kept(field: Any) -> InputError:
    return InputError(
        f"DuckDB keeps no payload column of type {field.type}: turn {field.name!r} into numbers of "
        f"32 or 64 bits, text or times in microseconds."
    )


def _holds(kept: Any, wanted: Any) -> bool:
    """Whether a type of DuckDB holds every value of a type of a payload."""
    with suppress(arrow().ArrowException):
        arrow().array([], kept).cast(wanted)
        return "[ns" in str(kept) or "[ns" not in str(wanted)
    return False


def _column(file: Any, name: str, groups: AnyArray) -> Any:
    """A column of some groups of rows."""
    return file.read_row_groups(np.flatnonzero(groups).tolist(), [name], use_threads=False)[name]


def _hashed(file: Any) -> tuple[int, str, str]:
    """Where the footer of a file starts, the hash that it states, and that of the file.

    The hash is of all bytes, with zeros where it stands itself.
    """
    size = file.seek(0, os.SEEK_END) or file.tell()
    file.seek(size - 8)
    start = size - 8 - int.from_bytes(file.read(4), "little")
    file.seek(start)
    footer = file.read(size - start)
    found = _SIGNATURE.findall(footer)
    stated = b""
    if len(found) == 1:
        stated = found[0]
    digest = hashlib.sha256()
    file.seek(0)
    for place in range(0, start, _READ_BYTES):
        digest.update(file.read(min(_READ_BYTES, start - place)))
    digest.update(footer.replace(stated, _UNSIGNED))
    return start, stated.decode(), digest.hexdigest()


def _sealed(path: str, documents: bytes) -> str:
    """Put documents before the footer of a file, and the hash of all into it; return the hash."""
    with open(path, "r+b") as file:
        start, _, _ = _hashed(file)
        file.seek(start)
        footer = file.read()
        file.seek(start)
        file.write(documents + footer)
        _, _, digest = _hashed(file)
        file.seek(start + len(documents))
        file.write(footer.replace(_UNSIGNED, digest.encode()))
        file.flush()
        os.fsync(file.fileno())
    return digest
