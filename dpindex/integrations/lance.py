"""LanceDB, embedded: a folder of columnar files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np

from dpindex.base.arrays import AnyArray, Bytes, Doubles, Singles
from dpindex.base.errors import InputError, import_extra, one_line
from dpindex.integrations.database import Database, Layout, Rows, lease_beside

__all__ = ["Lance"]

_OWN = ("id", "code", "vector", "query_index", "_distance")
_SCALE = 2.0**40
_SCANNED_ROWS = 1 << 16
"""Rows that a selection looks at together; of few rows, few match, and each batch takes a while."""
_MOST_PARTS = 100
"""Small files that a table may have: each insertion makes one, and searches read them all."""


class Lance(Database):
    """A table of LanceDB; its documents are rows of a second one, ``NAME_dpindex``."""

    max_found = 16_384

    def __init__(self, address: str, name: str) -> None:
        lance = import_extra("lancedb", "LanceDB needs lancedb", "lance")
        self._pa = import_extra("pyarrow", "LanceDB needs pyarrow", "lance")
        self._address = address
        self._place = f"{address}, {name}"
        self._name = name
        self._documents = f"{name}_dpindex"
        self._document_schema = self._pa.schema([("id", "string"), ("data", "large_binary")])
        with self._asking():
            # At once it sees what others write.
            self._connection = lance.connect(address, read_consistency_interval=timedelta(0))

    @contextmanager
    def _asking(self) -> Iterator[None]:
        try:
            yield
        except (ValueError, RuntimeError, OSError) as error:
            reason = one_line(re.split(r",\s+/\S+\.rs:", str(error))[0])
            raise InputError(f"{self._place}: LanceDB refuses this ({reason}).") from None

    def is_in(self, column: str, values: Sequence[Any]) -> str:
        listed = ", ".join(
            "'{}'".format(value.replace("'", "''")) if isinstance(value, str) else str(value)
            for value in values
        )
        return f"{column} in ({listed})"

    def _tables(self) -> list[str]:
        return [name for name in (self._name, self._documents) if name in self._connection]

    def exists(self) -> bool:
        with self._asking():
            return bool(self._tables())

    def drop(self) -> None:
        with self._asking():
            for name in self._tables():
                self._connection.drop_table(name)

    def create(self, layout: Layout) -> None:
        for field in layout.fields:
            name = field.name
            if name in _OWN or not name or set(".`") & set(name):
                raise InputError(
                    f"LanceDB cannot have a payload column called {name!r}: a name has no dot and "
                    f"no backtick, and is not {', '.join(_OWN)}; rename it in the index."
                )
        pa = self._pa
        code = pa.list_(pa.uint8(), layout.code_bytes) if layout.code_bytes else pa.int32()
        columns = [("id", pa.string() if layout.text_ids else pa.int64()), ("code", code)]
        if layout.vector_width:
            columns.append(("vector", pa.list_(pa.float32(), layout.vector_width)))
        with self._asking():
            schema = pa.schema([*columns, *layout.fields])
            self._connection.create_table(self._name, schema=schema)
        self.open(layout)

    def open(self, layout: Layout) -> None:
        self._layout = layout
        with self._asking():
            self._table = self._connection.open_table(self._name)

    def insert(self, rows: Rows, *, replace: bool = False) -> None:
        columns = {"id": rows.ids.tolist(), "code": rows.codes, "vector": rows.vectors}
        if rows.payload is not None:
            columns |= {name: rows.payload[name] for name in rows.payload.column_names}
        with self._asking():
            schema = self._table.schema
            arrays = [self._column(columns[f.name], f.type) for f in schema]
            made = self._pa.table(arrays, schema=schema)
            if replace:
                _put(self._table, made)
            else:
                self._table.add(made)

    def _column(self, values: Any, kind: Any) -> Any:
        pa = self._pa
        if isinstance(values, pa.ChunkedArray):
            return values
        if pa.types.is_fixed_size_list(kind) and isinstance(values, np.ndarray):
            flat = pa.array(values.ravel(), kind.value_type)
            return pa.FixedSizeListArray.from_arrays(flat, type=kind)
        return pa.array(values, kind)

    def finish(self) -> None:
        with self._asking():
            for name in self._tables():
                table = self._connection.open_table(name)
                if table.stats()["fragment_stats"]["num_small_fragments"] > _MOST_PARTS:
                    # Searches that run now may still read the files that were joined.
                    table.optimize(cleanup_older_than=timedelta(minutes=1))

    def search(
        self, queries: Bytes | Singles, count: int, where: str | None
    ) -> tuple[list[AnyArray], list[Doubles]]:
        binary = queries.dtype == np.uint8
        products = self._layout.metric == "ip"
        metric = "hamming"
        if not binary:
            metric = "dot" if products else "l2"
        # Of a product p Lance returns 1 - p in single precision; of a large one nothing is lost.
        scale = 1.0
        if metric == "dot":
            scale = _SCALE
        scaled = queries if binary else queries * np.float32(scale)
        with self._asking():
            request = self._table.search(list(scaled), "code" if binary else "vector")
            request = request.distance_type(metric).select(["id", "_distance"]).limit(count)
            table = (request.where(where) if where else request).to_arrow()
        distances = table["_distance"].to_numpy().astype(float)
        several = "query_index" in table.column_names
        query = table["query_index"].to_numpy() if several else np.zeros(len(table), int)
        order = np.lexsort((distances, query))
        ids = self._layout.id_array(table["id"].to_pylist())[order]
        scores = ((metric == "dot") - distances[order]) / scale
        cuts = np.searchsorted(query[order], np.arange(1, len(queries)))
        return np.split(ids, cuts), np.split(scores, cuts)

    def select(self, where: str, count: int, *, payload: bool = False) -> Rows:
        names = []
        if payload:
            names = [field.name for field in self._layout.fields]
        with self._asking():
            request = self._table.search().where(where).select(["id", "code", *names]).limit(count)
            rows = request.to_batches(_SCANNED_ROWS).read_all()
        codes: AnyArray = rows["code"].to_numpy()
        if width := self._layout.code_bytes:
            codes = rows["code"].combine_chunks().flatten().to_numpy().reshape(-1, width)
        table = None
        if names:
            table = rows.select(names).cast(self._layout.schema)
        return Rows(self._layout.id_array(rows["id"].to_pylist()), codes, payload=table)

    def count(self, where: str | None = None) -> int:
        with self._asking():
            return int(self._table.count_rows(where))

    def read(self, name: str) -> bytes | None:
        with self._asking():
            if self._documents not in self._connection:
                return None
            table = self._connection.open_table(self._documents)
            if table.schema != self._document_schema:
                raise InputError(
                    f"{self._place}: the table {self._documents} is none of dpindex's; publish"
                    " under another name."
                )
            documents = table.search().where(self.is_in("id", [name])).to_arrow()
        for data in documents["data"].to_pylist():
            if data is None:
                raise InputError(f"{self._place}: the document {name} is empty; publish anew.")
            return bytes(data)
        return None

    def write(self, name: str, data: bytes) -> None:
        schema = self._document_schema
        with self._asking():
            table = self._connection.create_table(self._documents, schema=schema, exist_ok=True)
            _put(table, self._pa.table([[name], [data]], schema=schema))

    def lease(self) -> AbstractContextManager[Path | None]:
        return lease_beside(self._address, self._name)

    def close(self) -> None:
        """Nothing is held open."""


def _put(table: Any, rows: Any) -> None:
    """Insert rows, in the place of those with the same ids."""
    table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(rows)
