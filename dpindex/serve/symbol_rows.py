"""Rows of the symbols that are nearest to queries, from a database: each symbol is read once."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from dpindex.base.arrays import AnyArray, Doubles, row_blocks
from dpindex.storage.databases import Condition, Database

__all__ = ["nearest_symbols"]

_MAX_GROUP = 1024
_REQUEST_ROWS = 1000
"""A request takes about as long as reading so many rows."""


def nearest_symbols(
    database: Database,
    similarities: AnyArray,
    count: int,
    where: Condition | None,
    rows_of_symbol: float,
) -> list[tuple[AnyArray, Doubles]]:
    """Return ids and scores of the rows whose symbols are nearest to each query, best first.

    Parameters
    ----------
    database : Database
    similarities : array of shape (queries, symbols)
        Score of each symbol.
    count : int
        Rows of each query, [1, max_found of the database].
    where : Condition, optional
        Holds for the rows that are searched.
    rows_of_symbol : float
        Rows that a symbol has on average, as far as is known.
    """
    order = np.argsort(-similarities, axis=1, kind="stable")
    symbols = _Symbols(database, count, where, rows_of_symbol)
    used = np.zeros(len(order), int)
    pending = list(range(len(order)))
    while pending:
        unread = set()
        for query in pending:
            missing = count - symbols.rows_of(order[query, : used[query]])
            used[query] += symbols.expected(missing)
            unread.update(order[query, : used[query]].tolist())
        symbols.read(unread)
        pending = [
            query
            for query in pending
            if used[query] < order.shape[1] and symbols.rows_of(order[query, : used[query]]) < count
        ]
    return [
        symbols.found(nearest[:last], scores)
        for nearest, last, scores in zip(order, used, similarities, strict=True)
    ]


class _Symbols:
    """Ids under the symbols that were read: of each, up to as many as one query takes."""

    def __init__(
        self, database: Database, count: int, where: Condition | None, rows_of_symbol: float
    ) -> None:
        self._database = database
        self._count = count
        self._where = where
        self._rows_of_symbol = rows_of_symbol
        self._ids: dict[int, AnyArray] = {}
        self._rows = 0

    def expected(self, missing: int) -> int:
        """Return how many symbols are likely to have the rows that are missing."""
        return math.ceil(missing / max(self._rows_of_symbol, 1 / missing))

    def rows_of(self, symbols: AnyArray) -> int:
        """Return how many rows symbols that were read have."""
        return sum(len(self._ids[symbol]) for symbol in symbols.tolist())

    def found(self, symbols: AnyArray, scores: AnyArray) -> tuple[AnyArray, Doubles]:
        """Return ids of symbols in their order, and their scores, up to the count."""
        ids = [self._ids[symbol] for symbol in symbols.tolist()]
        repeated = np.repeat(scores[symbols].astype(np.float64), [len(names) for names in ids])
        return np.concatenate(ids)[: self._count], repeated[: self._count]

    def read(self, symbols: Iterable[int]) -> None:
        """Read those that were not read, several at a time."""
        unread = sorted(set(symbols) - self._ids.keys())
        size = 1
        if self._rows_of_symbol < self._count + _REQUEST_ROWS:
            half = self._database.max_found / 2
            size = int(half / max(self._rows_of_symbol, half / _MAX_GROUP))
        for group in row_blocks(len(unread), size):
            self._read_group(unread[group])
        self._rows_of_symbol = self._rows / len(self._ids)

    def _read_group(self, symbols: list[int]) -> None:
        condition = self._database.dialect.field("code").isin(symbols)
        if self._where is not None:
            condition = condition & self._where
        limit = self._database.max_found
        if len(symbols) == 1:  # the rows of one symbol are equal
            limit = self._count
        rows = self._database.select(condition.true, limit)
        if len(rows.ids) == limit and len(symbols) > 1:  # some may be missing
            middle = len(symbols) // 2
            self._read_group(symbols[:middle])
            self._read_group(symbols[middle:])
            return
        order = np.argsort(rows.codes, kind="stable")
        cuts = np.searchsorted(rows.codes[order], symbols[1:])
        self._rows += len(rows.ids)
        for symbol, ids in zip(symbols, np.split(rows.ids[order], cuts), strict=True):
            self._ids[symbol] = ids
