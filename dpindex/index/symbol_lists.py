"""Lists of rows by symbol."""

from __future__ import annotations

from copy import copy

import numpy as np
import numpy.typing as npt

from dpindex.base.arrays import AnyArray, Doubles, Indices, Longs, Rows
from dpindex.index.backends import SearchBackend, unfilled
from dpindex.storage.ids import RowParts

_FIRST_SYMBOLS = 64


def shuffled_numbers(rows: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """A fixed public permutation of 64-bit numbers (the finalizer of splitmix64)."""
    mixed = rows + np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed ^= mixed >> np.uint64(shift)
        mixed *= np.uint64(factor)
    mixed ^= mixed >> np.uint64(31)
    return mixed


class SymbolLists(SearchBackend):
    """Rows by symbol. Queries are scores of all symbols, shape (nq, K), higher is nearer.

    Rows of one symbol tie; they come in a random order that is fixed for an index, so that neither
    the order of adding nor the query decides which of them are found.
    """

    def __init__(
        self,
        width: int,
        metric: str,
        index_type: str,
    ) -> None:
        self.begin(np.empty((0, 1)))

    def __len__(self) -> int:
        return len(self._symbols)

    def begin(self, sample: AnyArray, count: int = 0) -> None:
        self._symbols = RowParts()
        # Row numbers, symbol after symbol, and where the rows of each symbol start.
        self._rows: Rows = np.empty(0, dtype=np.int64)
        self._starts: Rows = np.zeros(1, dtype=np.int64)

    def add(self, items: AnyArray) -> None:
        symbols = items[:, 0].astype(np.uint16, copy=False)
        self._symbols = RowParts([*self._symbols.arrays, symbols])

    def finish(self) -> None:
        self._symbols = RowParts([self._symbols.take(slice(None))])
        self._sort(np.arange(len(self)))

    def subset(self, rows: Rows) -> SymbolLists:
        part = copy(self)
        part._symbols = RowParts([self._symbols.take(rows)])
        part._sort(rows)
        return part

    def _sort(self, names: Rows) -> None:
        """Make the lists; within one, the row numbers in the whole index decide the order."""
        (symbols,) = self._symbols.arrays
        chance = shuffled_numbers(names.astype("<u8"))
        # Keys of 16 bits are sorted by radix.
        keys = chance.view("<u2").reshape(-1, 4).T
        order = np.lexsort((*keys[1:], symbols))
        self._rows = order.astype(np.int64, copy=False)
        every_symbol = np.arange(int(symbols.max()) + 2)
        self._starts = np.searchsorted(symbols[order], every_symbol)

    def search(self, queries: AnyArray, count: int) -> tuple[Doubles, Rows]:
        sizes = np.zeros(queries.shape[1], dtype=np.int64)
        sizes[: len(self._starts) - 1] = np.diff(self._starts)
        scores, rows = unfilled(len(queries), count)
        for i, query in enumerate(queries):
            best = _best_symbols(query, sizes, count)
            spans = zip(self._starts[best], self._starts[best + 1], strict=True)
            near = np.concatenate([self._rows[start:stop] for start, stop in spans])
            rows[i] = near[:count]
            score_of_row = np.repeat(query[best], sizes[best])
            scores[i] = score_of_row[:count]
        return scores, rows


def _best_symbols(query: AnyArray, sizes: Longs, count: int) -> Indices:
    """The symbols of highest score that have ``count`` rows together, ties by symbol."""
    symbols = np.flatnonzero(sizes)
    # Few symbols have all that is wanted: to find the highest costs less than to sort all.
    candidates = _FIRST_SYMBOLS
    while candidates < len(symbols):
        similarity = query[symbols]
        place = len(symbols) - candidates
        cut = np.partition(similarity, place)[place]
        top = symbols[similarity >= cut]
        if sizes[top].sum() >= count:
            symbols = top
            break
        candidates *= 4
    order = np.argsort(-query[symbols], kind="stable")
    best = symbols[order]
    rows_so_far = np.cumsum(sizes[best])
    enough = int(np.searchsorted(rows_so_far, count)) + 1
    return best[:enough]
