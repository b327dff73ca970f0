"""Filtered search: the ranking restricted to the rows that a filter kept."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np

from dpindex.base.arrays import Doubles
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
    rows : int64 array, shape (m,), m ≥ 1
        Ascending.
    """

    def __init__(self, ranking: Ranking, rows: Rows) -> None:
        self._ranking = ranking
        self._rows = rows

    def search(self, queries: Queries, count: int) -> tuple[Doubles, Rows]:
        """Scores and rows of the best ``count`` ≤ m for each query, best first."""
        total = len(self._ranking.backend)
        wanted = 2 * count * total // len(self._rows) + _SPARE
        if len(self._rows) * _FEW < total or wanted >= total:
            return self._among(queries, count)
        scores, found = self._ranking.search(queries, wanted)
        kept = self._mask[found]
        first = np.argsort(~kept, axis=1, kind="stable")[:, :count]
        scores = np.take_along_axis(scores, first, axis=1)
        found = np.take_along_axis(found, first, axis=1)
        if (short := np.flatnonzero(kept.sum(axis=1) < count)).size:
            scores[short], found[short] = self._among(queries[short], count)
        return scores, found

    @cached_property
    def _mask(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        mask = np.zeros(len(self._ranking.backend), dtype=np.bool_)
        mask[self._rows] = True
        return mask

    def _among(self, queries: Queries, count: int) -> tuple[Doubles, Rows]:
        scores = np.empty((len(queries), 0))
        found = np.empty((len(queries), 0), np.int64)
        for rows, part in self._parts():
            near, places = self._ranking.search_in(part, queries, min(count, len(rows)))
            if len(rows) == len(self._rows):  # in the order of the backend, also among equals
                return near, rows[places]
            near = np.hstack([scores, near])
            places = np.hstack([found, rows[places]])
            scores, found = best_of(near, places, count)
        return scores, found

    def _parts(self) -> Iterator[tuple[Rows, SearchBackend]]:
        """The rows, as many at a time as fit into memory, and a backend of them."""
        most = self._ranking.backend.max_subset
        if len(self._rows) <= most:
            yield self._rows, self._only
            return
        for start in range(0, len(self._rows), most):
            rows = self._rows[start : start + most]
            yield rows, self._ranking.backend.subset(rows)

    @cached_property
    def _only(self) -> SearchBackend:
        """A backend of all the rows, made once for all batches."""
        return self._ranking.backend.subset(self._rows)
