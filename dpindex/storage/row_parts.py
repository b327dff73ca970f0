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
    """Arrays of one width, one below the other, which are never changed.

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
        """Return these arrays and one more below."""
        return RowParts([*self.arrays, array])

    def __iter__(self) -> Iterator[tuple[int, Any]]:
        """Yield the number of the first row of each array, and the array."""
        return zip(self._starts.tolist(), self.arrays, strict=False)

    def within(self, start: int, stop: int, rows: int = 1 << 62) -> Iterator[tuple[int, Any]]:
        """Yield rows ``start`` to ``stop`` as views of at most ``rows`` rows.

        Each comes with the number of its first row.
        """
        while start < min(stop, len(self)):
            part = self._part_of(start)
            end = min(start + rows, stop, int(self._starts[part + 1]))
            first = int(self._starts[part])
            yield start, self.arrays[part][start - first : end - first]
            start = end

    def _part_of(self, row: int) -> int:
        return int(np.searchsorted(self._starts, row, side="right")) - 1

    def take(self, rows: slice | Rows) -> AnyArray:
        """Return some rows: a view where a slice lies in one array, else a copy."""
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
            values = np.asarray(self.arrays[0][flat])
        else:
            values = self._gathered(flat)
        return values.reshape(rows.shape + values.shape[1:])

    def _gathered(self, rows: Rows) -> AnyArray:
        """Return rows of several arrays; the rows of each array are read at once."""
        parts = np.searchsorted(self._starts, rows, side="right") - 1
        order = np.argsort(parts, kind="stable")
        cuts = np.flatnonzero(np.diff(parts[order])) + 1
        pieces = []
        for places in np.split(order, cuts):
            part = parts[places[0]]
            array = self.arrays[part]
            pieces.append(array[rows[places] - self._starts[part]])
            release_pages(array)  # the system maps sixteen pages about each row
        joined = np.concatenate(pieces)
        values = np.empty_like(joined)
        values[order] = joined
        return values

    def where(self, kept: npt.NDArray[np.bool_]) -> RowParts:
        """Return the rows of a mask; an array of which all rows are kept is not copied."""
        arrays = []
        for start, array in self:
            chosen = np.flatnonzero(kept[start : start + len(array)])
            if len(chosen) < len(array):
                array = array[chosen]
            arrays.append(array)
        return RowParts(arrays)
