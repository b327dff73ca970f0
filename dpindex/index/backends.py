"""The seam of search engines: what each has to offer to an index; and the one for symbols.

Symbols are ranked by lists of rows, in sorted runs: a large one, and smaller ones of what was
added. What ranks vectors and signs has files of its own, which use Faiss.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dpindex.base.arrays import AnyArray, Doubles, Indices, Longs, RowParts, Rows, unfilled

PRODUCTS_FROM = 4096
"""Numbers of queries from which on matrices are multiplied."""


@cache
def faiss() -> Any:
    """Return Faiss, imported when vectors are first searched: a manifest is read without it."""
    import faiss as library

    # Faiss turns to matrix products only for large batches by default; ours are small enough to
    # answer Ctrl-C, and six times faster this way. Older versions count queries, from 20.
    library.cvar.distance_compute_blas_threshold = min(
        library.cvar.distance_compute_blas_threshold, PRODUCTS_FROM
    )
    return library


class SearchBackend(ABC):
    """Items under the row numbers 0, 1, 2, …, and the nearest of them to a query.

    Items are what a :class:`dpindex.decode.base.Decoder` makes of codes, such as vectors or packed
    signs. A backend keeps nothing that cannot be rebuilt from the codes, and it gives scores and
    rows only: similarities are read off the codes. Items and queries are finite.

    Parameters
    ----------
    width : int
        Coordinates of an item.
    metric : "cosine", "ip" or "l2"
        What neighbours are ranked by.
    index_type : str
        How vectors are kept: see :func:`dpindex.storage.manifest.parse_index_type`.
    """

    sample_rows: int = 0
    """Items that :meth:`begin` should be given a sample of."""

    block_rows: int | None = None
    """Items that :meth:`add` should be given at most, None for a few megabytes of coordinates."""

    exact: bool = True
    """True if a search always finds the true neighbours."""

    recall: float | None = None
    """Share of the ten nearest that a search finds, measured on the items, where not exact."""

    @abstractmethod
    def __init__(
        self,
        width: int,
        metric: str,
        index_type: str,
    ) -> None: ...

    @abstractmethod
    def __len__(self) -> int:
        """Items that were added."""

    @abstractmethod
    def begin(self, sample: AnyArray, count: int = 0) -> None:
        """Forget all items, and fit whatever is fitted to a sample of those that will come.

        ``count`` of them are expected.
        """

    @abstractmethod
    def add(self, items: AnyArray) -> None:
        """Append items, shape (n, …), which nobody changes afterwards: it may keep them."""

    def finish(self) -> None:  # noqa: B027
        """Called before a search when items were added; by default nothing."""

    def needs_retraining(self, count: int) -> bool:
        """Return True if it was fitted to far fewer than ``count`` items, and should begin anew."""
        return False

    @abstractmethod
    def search(self, queries: AnyArray, count: int) -> tuple[Doubles, Rows]:
        """The nearest items of queries.

        Parameters
        ----------
        queries : array, shape (nq, …)
            Items themselves, or exact vectors, which a backend tells apart where they differ.
        count : int
            Items wanted for each query, [1, len].

        Returns
        -------
        Scores (higher is nearer) and rows, both of shape (nq, count), best first; every row number
        is of an item, and none stands twice for a query.
        """

    max_subset: int = 1 << 62
    """Items that :meth:`subset` should be asked for at once."""

    @abstractmethod
    def subset(self, rows: Rows) -> SearchBackend:
        """A backend of these items alone (ascending row numbers), to be searched and not added to.

        Item i of it is item ``rows[i]`` here, and has the same score.
        """


_FIRST_SYMBOLS = 64
_GROWTH = 8
"""A run is joined with the one before it unless that is this many times as long."""

Symbols = npt.NDArray[np.uint16]


def shuffled_numbers(rows: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """A fixed public permutation of 64-bit numbers (the finalizer of splitmix64)."""
    mixed = rows + np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed ^= mixed >> np.uint64(shift)
        mixed *= np.uint64(factor)
    mixed ^= mixed >> np.uint64(31)
    return mixed


def tie_keys(rows: Rows) -> npt.NDArray[np.uint64]:
    """Numbers of 48 bits by which rows of one symbol are ordered, then by their own."""
    return shuffled_numbers(rows.astype(np.uint64)) >> np.uint64(16)


class _Run(NamedTuple):
    """Rows that stand below each other, sorted by symbol and, within one, in the random order.

    Attributes
    ----------
    symbols : uint16 array, shape (n,)
        In row order.
    rows : int64 array, shape (n,)
        Row numbers, symbol after symbol.
    starts : int64 array, shape (largest symbol + 2,)
        Where the rows of each symbol start.
    """

    symbols: Symbols
    rows: Rows
    starts: Rows

    @classmethod
    def sorted(cls, symbols: Symbols, rows: Rows, names: Rows) -> _Run:
        """A run of these rows, shape (n,), whose ``names`` in the whole index decide the order."""
        # The 48 high bits, which are the tie keys, as keys of 16 bits: these are sorted by radix.
        chance = shuffled_numbers(names.view(np.uint64)).astype("<u8", copy=False)
        keys = chance.view("<u2").reshape(-1, 4).T
        order = np.lexsort((*keys[1:], symbols))
        starts = np.append(0, np.cumsum(np.bincount(symbols)))
        return cls(symbols, rows[order], starts)

    def sizes(self, symbols: int) -> Longs:
        """The number of rows of each symbol."""
        sizes = np.zeros(symbols, dtype=np.int64)
        sizes[: len(self.starts) - 1] = np.diff(self.starts)
        return sizes


class SymbolLists(SearchBackend):
    """Rows by symbol. Queries are scores of all symbols, shape (nq, K), higher is nearer.

    Rows of one symbol tie; they come in a random order that is fixed for an index, so that neither
    the order of adding nor the query decides which of them are found.

    What is added becomes a run of its own, which is sorted. It is joined with the run before it
    until that is eight times as long: there are few runs, and a row is sorted again only when eight
    times as many have come (the logarithmic method, Bentley and Saxe 1980).
    """

    _runs: list[_Run]
    _new: list[Symbols]

    def __init__(
        self,
        width: int,
        metric: str,
        index_type: str,
    ) -> None:
        self.begin(np.empty((0, 1)))

    def __len__(self) -> int:
        sorted_rows = sum(len(run.symbols) for run in self._runs)
        return sorted_rows + sum(map(len, self._new))

    def begin(self, sample: AnyArray, count: int = 0) -> None:
        self._hold([])

    def _hold(self, runs: list[_Run]) -> None:
        """Have these runs, and nothing that is not sorted yet, in one step that Ctrl-C spares."""
        new: list[Symbols] = []
        self.__dict__.update(_runs=runs, _new=new)

    def add(self, items: AnyArray) -> None:
        self._new.append(items[:, 0].astype(np.uint16, copy=False))

    def finish(self) -> None:
        count = len(self)
        runs = list(self._runs)
        parts = list(self._new)
        length = sum(map(len, parts))
        while runs and len(runs[-1].symbols) < _GROWTH * length:
            parts.insert(0, runs.pop().symbols)
            length += len(parts[0])
        if not length:
            return
        rows = np.arange(count - length, count)
        runs.append(_Run.sorted(np.concatenate(parts), rows, rows))
        self._hold(runs)

    def subset(self, rows: Rows) -> SymbolLists:
        symbols = RowParts([run.symbols for run in self._runs]).take(rows)
        part = SymbolLists(1, "", "")
        part._hold([_Run.sorted(symbols, np.arange(len(rows)), rows)])
        return part

    def search(self, queries: AnyArray, count: int) -> tuple[Doubles, Rows]:
        symbols = queries.shape[1]
        sizes = np.sum([run.sizes(symbols) for run in self._runs], axis=0)
        scores, rows = unfilled(len(queries), count)
        for i, query in enumerate(queries):
            best = _best_symbols(query, sizes, count)
            near = np.concatenate([self._rows_of(symbol) for symbol in best.tolist()])
            rows[i] = near[:count]
            score_of_row = np.repeat(query[best], sizes[best])
            scores[i] = score_of_row[:count]
        return scores, rows

    def _rows_of(self, symbol: int) -> Rows:
        """The rows of a symbol in all runs, in the random order."""
        pieces = []
        for run in self._runs:
            starts = run.starts
            if symbol + 1 < len(starts) and starts[symbol] < starts[symbol + 1]:
                pieces.append(run.rows[starts[symbol] : starts[symbol + 1]])
        if len(pieces) == 1:
            return pieces[0]
        joined = np.concatenate(pieces)
        return joined[np.lexsort((joined, tie_keys(joined)))]


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
