"""A database in memory, whose conditions are Python: the recipe of CONTRIBUTING, in one file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpindex.base.arrays import AnyArray, Bytes, Doubles, Singles
from dpindex.integrations.database import Database, Layout, Rows

MADE: dict[str, dict[Any, dict[str, Any]]] = {}
"""Rows by id, by collection."""


class Toy(Database):
    """Collections are dicts."""

    title = "Toy"
    max_found = 1000
    column_name = re.compile(rb"[a-z]+")

    def is_in(self, column: str, values: Sequence[Any]) -> str:
        return f"{column} in {list(values)!r}"

    def exists(self) -> bool:
        return self.place in MADE

    def drop(self) -> None:
        MADE.pop(self.place, None)

    def create(self, layout: Layout) -> None:
        self.check_columns(layout)
        MADE[self.place] = {}
        self.open(layout)

    def open(self, layout: Layout) -> None:
        self.layout = layout
        self._rows = MADE[self.place]

    def insert(self, rows: Rows) -> None:
        for place, name in enumerate(rows.ids.tolist()):
            row = {"id": name, "code": rows.codes[place].tolist(), "vector": None}
            if rows.vectors is not None:
                row["vector"] = rows.vectors[place]
            if rows.payload is not None:
                row |= rows.payload.slice(place, 1).to_pylist()[0]
            self._rows[name] = row

    def finish(self) -> None:
        """Nothing is pending."""

    def _matching(self, where: str | None) -> list[dict[str, Any]]:
        rows = self._rows.values()
        return [row for row in rows if where is None or eval(where, {}, row)]

    def search(
        self, queries: Bytes | Singles, count: int, where: str | None
    ) -> tuple[list[AnyArray], list[Doubles]]:
        rows = self._matching(where)
        ids, scores = [], []
        for query in queries:
            values = np.array([self._score(query, row) for row in rows], float)
            order = np.argsort(-values, kind="stable")[:count]
            ids.append(self.layout.id_array([rows[place]["id"] for place in order]))
            scores.append(values[order])
        return ids, scores

    def _score(self, query: AnyArray, row: dict[str, Any]) -> float:
        if query.dtype == np.uint8:
            return -float(np.unpackbits(query ^ np.array(row["code"], np.uint8)).sum())
        if self.layout.metric == "ip":
            return float(row["vector"] @ query)
        return -float(((row["vector"] - query) ** 2).sum())

    def select(self, where: str, count: int, *, payload: bool = False) -> Rows:
        import pyarrow as pa

        rows = self._matching(where)[:count]
        table = None
        if payload and self.layout.schema is not None:
            names = self.layout.schema.names
            table = pa.Table.from_pylist(
                [{name: row[name] for name in names} for row in rows], schema=self.layout.schema
            )
        codes: Any = [row["code"] for row in rows]
        if self.layout.code_bytes:
            codes = [bytes(code) for code in codes]
        ids = self.layout.id_array([row["id"] for row in rows])
        return Rows(ids, self.layout.code_array(codes), payload=table)

    def count(self, where: str | None = None) -> int:
        return len(self._matching(where))

    def close(self) -> None:
        """Nothing is held."""
