"""Several arrays of rows, such as mapped segments, read as one without being joined."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dpindex.base.arrays import AnyArray
from dpindex.base.files import release_pages

Rows = npt.NDArray[np.int64]


class RowParts:
    """Arrays of one width, one below the other; never changed, but for what they show.

    Parameters
    ----------
    arrays : sequence of arrays, shapes (n_i, …)
        Anything that has a length and gives an array for a slice or an array of rows.

    >>> parts = RowParts([np.arange(3), np.arange(10, 12)])
    >>> len(parts), parts.take(np.array([4, 0, 3])), parts.take(slice(2, 4))
    (5, array([11,  0, 10]), array([ 2, 10]))
    """

    def __init__(self, arrays: Sequence[Any] = ()) -> None:
        self.arrays = list(arrays)
        self._starts = np.cumsum([0, *map(len, self.arrays)])

    def __len__(self) -> int:
        return int(self._starts[-1])

    def plus(self, array: Any) -> RowParts:
        """These, and one more array below."""
        return RowParts([*self.arrays, array])

    def __iter__(self) -> Iterator[tuple[int, Any]]:
        """Each array, and the number of its first row."""
        return zip(self._starts.tolist(), self.arrays, strict=False)

    def within(self, start: int, stop: int, rows: int = 1 << 62) -> Iterator[tuple[int, Any]]:
        """Rows ``start`` to ``stop`` in views of at most so many, and the first row of each."""
        while start < min(stop, len(self)):
            part = self._part_of(start)
            end = min(start + rows, stop, int(self._starts[part + 1]))
            first = int(self._starts[part])
            yield start, self.arrays[part][start - first : end - first]
            start = end

    def _part_of(self, row: int) -> int:
        return int(np.searchsorted(self._starts, row, side="right")) - 1

    def take(self, rows: slice | Rows) -> AnyArray:
        """Some rows: a view of them where a slice lies in one array, else a copy."""
        if isinstance(rows, slice):
            first, stop, _ = rows.indices(len(self))
            if first >= stop:
                return np.asarray(self.arrays[0][:0])
            pieces = [piece for _, piece in self.within(first, stop)]
            if len(pieces) == 1:
                return np.asarray(pieces[0])
            return np.concatenate(pieces)
        flat = rows.ravel()
        if len(self.arrays) == 1 or not len(flat):
            found = np.asarray(self.arrays[0][flat])
            return found.reshape(rows.shape + found.shape[1:])
        part = np.searchsorted(self._starts, flat, side="right") - 1
        order = np.argsort(part, kind="stable")
        cuts = np.flatnonzero(np.diff(part[order])) + 1
        pieces = []
        for some in np.split(order, cuts):
            array = self.arrays[part[some[0]]]
            pieces.append(array[flat[some] - self._starts[part[some[0]]]])
            release_pages(array)  # the system maps sixteen pages about each row
        joined = np.concatenate(pieces)
        found = np.empty_like(joined)
        found[order] = joined
        return found.reshape(rows.shape + found.shape[1:])
