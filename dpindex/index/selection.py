"""Filtered search: the ranking restricted to the rows that a filter kept."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np

from dpindex.base.arrays import Doubles, row_blocks
from dpindex.index.ranking import Ranking
from dpindex.index.search_backend import Rows, SearchBackend, best_of
from dpindex.similarity.similarity import Queries

_FEW = 8
_SPARE = 16


class Selection:
    """Some rows of a ranking that holds every row, for the batches of queries of one search.

    Less than an eighth of all rows are searched by themselves, exactly, whatever the index type. Of
    more, twice the expected number of neighbours is found and the others are left out; queries for
    which too few remain are asked again among the rows alone.

    Parameters
    ----------
    ranking : Ranking
    rows : int64 array, shape (m,)
        Ascending.
    """

    def __init__(self, ranking: Ranking, rows: Rows) -> None:
        self._ranking = ranking
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def search(self, queries: Queries, count: int) -> tuple[Doubles, Rows]:
        """Return scores and rows of the best ``count`` ≤ m, m ≥ 1, for each query, best first."""
        total = len(self._ranking.backend)
        candidates = 2 * count * total // len(self._rows) + _SPARE
        if len(self._rows) * _FEW < total or candidates >= total:
            return self._search_alone(queries, count)
        scores, rows = self._ranking.search(queries, candidates)
        kept = self._mask[rows]
        kept_first = np.argsort(~kept, axis=1, kind="stable")[:, :count]
        scores = np.take_along_axis(scores, kept_first, axis=1)
        rows = np.take_along_axis(rows, kept_first, axis=1)
        short = np.flatnonzero(kept.sum(axis=1) < count)
        if short.size:
            short_scores, short_rows = self._search_alone(queries[short], count)
            scores[short] = short_scores
            rows[short] = short_rows
        return scores, rows

    @cached_property
    def _mask(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        mask = np.zeros(len(self._ranking.backend), dtype=np.bool_)
        mask[self._rows] = True
        return mask

    def _search_alone(self, queries: Queries, count: int) -> tuple[Doubles, Rows]:
        """Search the rows by themselves, exactly."""
        if len(self._rows) <= self._ranking.backend.max_subset:
            # In the order of the backend, also among equals.
            scores, places = self._ranking.search_in(self._subset, queries, count)
            return scores, self._rows[places]
        scores = np.empty((len(queries), 0))
        rows = np.empty((len(queries), 0), np.int64)
        for block, backend in self._blocks():
            near, places = self._ranking.search_in(backend, queries, min(count, len(block)))
            all_scores = np.hstack([scores, near])
            all_rows = np.hstack([rows, block[places]])
            scores, rows = best_of(all_scores, all_rows, count)
        return scores, rows

    def _blocks(self) -> Iterator[tuple[Rows, SearchBackend]]:
        """Yield the rows, as many at a time as fit into memory, and a backend of them."""
        backend = self._ranking.backend
        for places in row_blocks(len(self._rows), backend.max_subset):
            block = self._rows[places]
            yield block, backend.subset(block)

    @cached_property
    def _subset(self) -> SearchBackend:
        """A backend of all the rows, made once for all batches."""
        return self._ranking.backend.subset(self._rows)
