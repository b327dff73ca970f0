"""Inverted lists of symbol codes: a search orders the symbols and walks through their lists."""

from __future__ import annotations

from copy import copy

import numpy as np
import numpy.typing as npt

from dpindex.base.arrays import AnyArray, Doubles
from dpindex.index.search_backend import Rows, SearchBackend

_FIRST_SYMBOLS = 64


def _shuffled(rows: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """A fixed public permutation of 64-bit numbers (the finalizer of splitmix64)."""
    mixed = rows + np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return mixed ^ (mixed >> np.uint64(31))


class SymbolLists(SearchBackend):
    """Rows by symbol. Queries are scores of all symbols, shape (nq, K), higher is nearer.

    Rows of one symbol tie; they come in a random order that is fixed for an index, so that neither
    the order of adding nor the query decides which of them are found.
    """

    def __init__(self, width: int, metric: str, index_type: str) -> None:
        self._parts: list[npt.NDArray[np.uint16]] = []
        self._count = 0
        self.begin(np.empty((0, 1)))

    def __len__(self) -> int:
        return self._count

    @property
    def row_bytes(self) -> float:
        return 10  # a row number and a symbol

    def begin(self, sample: AnyArray) -> None:
        self._parts = []
        self._count = 0
        self._rows: Rows = np.empty(0, dtype=np.int64)
        self._starts: Rows = np.zeros(1, dtype=np.int64)

    def add(self, items: AnyArray) -> None:
        self._parts.append(items[:, 0].astype(np.uint16, copy=False))
        self._count += len(items)

    def finish(self) -> None:
        self._parts = [np.concatenate(self._parts)]
        self._sort(np.arange(self._count))

    def subset(self, rows: Rows) -> SymbolLists:
        part = copy(self)
        part._parts = [self._parts[0][rows]]
        part._count = len(rows)
        part._sort(rows)
        return part

    def _sort(self, names: Rows) -> None:
        """Make the lists; within one, the row numbers in the whole index decide the order."""
        (symbols,) = self._parts
        chance = _shuffled(names.astype("<u8")).view("<u2").reshape(-1, 4)
        # Keys of 16 bits are sorted by radix.
        self._rows = np.lexsort((*chance.T[1:], symbols)).astype(np.int64, copy=False)
        self._starts = np.searchsorted(symbols[self._rows], np.arange(int(symbols.max()) + 2))

    def search(self, queries: AnyArray, count: int) -> tuple[Doubles, Rows]:
        sizes = np.zeros(queries.shape[1], dtype=np.int64)
        sizes[: len(self._starts) - 1] = np.diff(self._starts)
        scores = np.empty((len(queries), count))
        rows = np.empty((len(queries), count), dtype=np.int64)
        for i, query in enumerate(queries):
            best = self._best_symbols(query, sizes, count)
            lists = [self._rows[self._starts[s] : self._starts[s + 1]] for s in best]
            rows[i] = np.concatenate(lists)[:count]
            scores[i] = np.repeat(query[best], sizes[best])[:count]
        return scores, rows

    def _best_symbols(
        self, query: AnyArray, sizes: npt.NDArray[np.int64], count: int
    ) -> npt.NDArray[np.intp]:
        """The symbols of highest score that have ``count`` rows together, ties by symbol."""
        candidates = _FIRST_SYMBOLS
        filled = np.flatnonzero(sizes)
        while candidates < len(filled):
            cut = np.partition(query[filled], len(filled) - candidates)[len(filled) - candidates]
            top = filled[query[filled] >= cut]
            if sizes[top].sum() >= count:
                filled = top
                break
            candidates *= 4
        order = filled[np.argsort(-query[filled], kind="stable")]
        enough = int(np.searchsorted(np.cumsum(sizes[order]), count)) + 1
        return order[:enough]
