"""A database in memory, whose conditions are Python: the recipe of CONTRIBUTING, in one file."""

import re
from typing import ClassVar

import numpy as np

from dpindex.integrations.database import Database

MADE = {}
"""Rows by id, by collection."""


class Toy(Database):
    """Collections are dicts."""

    title = "Toy"
    max_found = 1000
    column_name = re.compile(rb"[a-z]+")
    words: ClassVar = {"==": "=="}

    def column(self, name):
        return name

    def literal(self, value, kind, name):
        return repr(value)

    def is_in(self, column, values):
        return f"{column} in {list(values)!r}"

    def exists(self):
        return self.place in MADE

    def drop(self):
        MADE.pop(self.place, None)

    def make(self, layout):
        MADE[self.place] = {}

    def open(self, layout):
        self.layout = layout
        self._rows = MADE[self.place]

    def insert(self, rows):
        for row in rows.to_pylist():
            self._rows[row["id"]] = {"vector": None, **row}

    def finish(self):
        """Nothing is pending."""

    def _matching(self, where):
        meets = compile(where or "True", "where", "eval")
        return [row for row in self._rows.values() if eval(meets, {}, row)]

    def search(self, queries, count, where):
        rows = self._matching(where)
        found = []
        for query in queries:
            values = np.array([self._score(query, row) for row in rows], float)
            order = np.argsort(-values, kind="stable")[:count]
            ids = self.layout.id_array([rows[place]["id"] for place in order])
            found.append((ids, values[order]))
        return found

    def _score(self, query, row):
        if query.dtype == np.uint8:
            return -float(np.unpackbits(query ^ np.frombuffer(row["code"], np.uint8)).sum())
        if self.layout.metric == "ip":
            return float(np.array(row["vector"]) @ query)
        return -float(((np.array(row["vector"]) - query) ** 2).sum())

    def select(self, where, count, payload=()):
        rows = self._matching(where)[:count]
        names = ["id", "code", *payload]
        return self.layout.table({name: [row[name] for row in rows] for name in names})

    def delete(self, where):
        for row in self._matching(where):
            del self._rows[row["id"]]

    def count(self, where=None):
        return len(self._matching(where))

    def close(self):
        """Nothing is held."""
