"""LanceDB, embedded: a folder of columnar files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from importlib import import_module
from typing import Any

import numpy as np

from dpindex.base.arrays import AnyArray, Bytes, Singles, Table
from dpindex.base.errors import InputError, import_extra
from dpindex.base.tables import arrow
from dpindex.integrations.database import Database, Layout, Neighbours, code_bytes

__all__ = ["Lance"]

_SCALE = 2.0**100
"""Factor of queries for inner products. Lance returns 1 - p of a product p, in single precision; p
is that large that the 1 is lost, and not a digit of p. Numbers of queries and rows are near 1."""
_SCANNED_ROWS = 1 << 16
"""Rows that a selection looks at together; of few rows, few match, and each batch takes a while."""
_MOST_PARTS = 100
"""Small files that a table may have: each insertion makes one, and searches read them all."""


class Lance(Database):
    """A table of LanceDB."""

    title = "LanceDB"
    errors = (ValueError, RuntimeError, OSError)
    max_found = 16_384
    column_name = re.compile(rb"(?!(query_index|_distance)$)[^.`]+")
    quote = "`"

    def __init__(self, address: str, name: str) -> None:
        super().__init__(address, name)
        self.files = address
        lance = import_extra("lancedb", "LanceDB needs lancedb", "lance")
        with self.asking():
            # At once it sees what others write.
            self._connection = lance.connect(address, read_consistency_interval=timedelta(0))

    def refusal(self, error: object) -> InputError:
        reason, *_ = re.split(r",\s+/\S+\.rs:", str(error))
        return super().refusal(reason)

    def literal(self, value: Any, kind: Any, name: str) -> str:
        if kind is not None and arrow().types.is_decimal(kind):
            return f"cast('{value}' as decimal({kind.precision}, {kind.scale}))"
        if isinstance(value, float):
            return f"cast('{value!r}' as double)"
        if value == -(1 << 63):  # written plainly, it is a double to LanceDB
            return f"cast('{value}' as bigint)"
        return super().literal(value, kind, name)

    def is_nan(self, name: str) -> str:
        return f"isnan({self.column(name)})"

    def exists(self) -> bool:
        with self.asking():
            return self.name in self._connection

    def drop(self) -> None:
        with self.asking():
            self._connection.drop_table(self.name, ignore_missing=True)

    def make(self, layout: Layout) -> None:
        schema = layout.columns
        if layout.code_bytes:  # it compares lists of bytes, and no binary values
            code = arrow().list_(arrow().uint8(), layout.code_bytes)
            schema = schema.set(1, arrow().field("code", code))
        with self.asking():
            self._connection.create_table(self.name, schema=schema)

    def check_graph(self) -> None:
        """Every version that is allowed builds one."""

    def make_graph(self) -> None:
        graph = import_module("lancedb.index").HnswFlat(distance_type="hamming", num_partitions=1)
        with self.asking():
            self._table.create_index("code", config=graph)

    def open(self, layout: Layout) -> None:
        self.layout = layout
        with self.asking():
            self._table = self._connection.open_table(self.name)

    def insert(self, rows: Table) -> None:
        if width := self.layout.code_bytes:
            numbers = code_bytes(rows["code"]).ravel()
            codes = arrow().FixedSizeListArray.from_arrays(numbers, width)
            rows = rows.set_column(1, "code", codes)
        with self.asking():
            self._table.add(rows)

    def finish(self) -> None:
        with self.asking():
            if self._table.stats()["fragment_stats"]["num_small_fragments"] > _MOST_PARTS:
                # Searches that run now may still read the files that were joined.
                self._table.optimize(cleanup_older_than=timedelta(minutes=1))

    def search(self, queries: Bytes | Singles, count: int, where: str | None) -> Neighbours:
        column = "vector"
        metric = "l2"
        if self.layout.metric == "ip":
            metric = "dot"
        if queries.dtype == np.uint8:
            column = "code"
            metric = "hamming"
        asked: AnyArray = queries
        if metric == "dot":
            asked = queries * np.float32(_SCALE)
        with self.asking():
            request = self._table.search(list(asked), column).distance_type(metric)
            if where:
                request = request.where(where)
            if column == "code" and self.effort and not where:
                request = request.ef(max(self.effort, 2 * count))
            else:  # among few rows a graph finds fewer than there are
                request = request.bypass_vector_index()
            table = request.select(["id", "_distance"]).limit(count).to_arrow()
        scores = -table["_distance"].to_numpy().astype(float)
        if metric == "dot":
            scores = (1 + scores) / _SCALE
        query = np.zeros(len(table), int)
        if "query_index" in table.column_names:  # there are several
            query = table["query_index"].to_numpy()
        order = np.lexsort((-scores, query))
        ids = self.layout.id_array(table["id"].to_numpy())[order]
        cuts = np.searchsorted(query[order], np.arange(1, len(queries)))
        ids_of_query = np.split(ids, cuts)
        scores_of_query = np.split(scores[order], cuts)
        return list(zip(ids_of_query, scores_of_query, strict=True))

    def select(self, where: str, count: int, payload: Sequence[str] = ()) -> Table:
        pa = arrow()
        names = ["id", "code", *payload]
        with self.asking():
            request = self._table.search().where(where).select(names).limit(count)
            rows = request.to_batches(_SCANNED_ROWS).read_all().select(names)
        if width := self.layout.code_bytes:
            numbers = rows["code"].combine_chunks().flatten().to_numpy()
            codes = [row.tobytes() for row in numbers.reshape(-1, width)]
            rows = rows.set_column(1, "code", pa.array(codes, pa.binary(width)))
        fields = [self.layout.columns.field(name) for name in names]
        return rows.cast(pa.schema(fields))

    def delete(self, where: str) -> None:
        with self.asking():
            self._table.delete(where)

    def count(self, where: str | None = None) -> int:
        with self.asking():
            return int(self._table.count_rows(where))

    def close(self) -> None:
        """Nothing is held open."""
