"""A database in memory, whose conditions are Python: the recipe of CONTRIBUTING, in one file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from dpindex.base.arrays import AnyArray, Bytes, Singles
from dpindex.integrations.database import Database, Layout, Neighbours

MADE: dict[str, dict[Any, dict[str, Any]]] = {}
"""Rows by id, by collection."""


class Toy(Database):
    """Collections are dicts."""

    title = "Toy"
    max_found = 1000
    column_name = re.compile(rb"[a-z]+")
    words: ClassVar = {"==": "=="}

    def column(self, name: str) -> str:
        return name

    def literal(self, value: Any, kind: Any, name: str) -> str:
        return repr(value)

    def is_in(self, column: str, values: Sequence[Any]) -> str:
        return f"{column} in {list(values)!r}"

    def exists(self) -> bool:
        return self.place in MADE

    def drop(self) -> None:
        MADE.pop(self.place, None)

    def make(self, layout: Layout) -> None:
        MADE[self.place] = {}

    def open(self, layout: Layout) -> None:
        self.layout = layout
        self._rows = MADE[self.place]

    def insert(self, rows: Any) -> None:
        for row in rows.to_pylist():
            self._rows[row["id"]] = {"vector": None, **row}

    def finish(self) -> None:
        """Nothing is pending."""

    def _matching(self, where: str | None) -> list[dict[str, Any]]:
        meets = compile(where or "True", "where", "eval")
        return [row for row in self._rows.values() if eval(meets, {}, row)]

    def search(self, queries: Bytes | Singles, count: int, where: str | None) -> Neighbours:
        rows = self._matching(where)
        found = []
        for query in queries:
            values = np.array([self._score(query, row) for row in rows], float)
            order = np.argsort(-values, kind="stable")[:count]
            ids = self.layout.id_array([rows[place]["id"] for place in order])
            found.append((ids, values[order]))
        return found

    def _score(self, query: AnyArray, row: dict[str, Any]) -> float:
        if query.dtype == np.uint8:
            return -float(np.unpackbits(query ^ np.frombuffer(row["code"], np.uint8)).sum())
        if self.layout.metric == "ip":
            return float(np.array(row["vector"]) @ query)
        return -float(((np.array(row["vector"]) - query) ** 2).sum())

    def select(self, where: str, count: int, payload: Sequence[str] = ()) -> Any:
        rows = self._matching(where)[:count]
        names = ["id", "code", *payload]
        return self.layout.table({name: [row[name] for row in rows] for name in names})

    def delete(self, where: str) -> None:
        for row in self._matching(where):
            del self._rows[row["id"]]

    def count(self, where: str | None = None) -> int:
        return len(self._matching(where))

    def close(self) -> None:
        """Nothing is held."""
