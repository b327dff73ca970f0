"""The face that every source of vectors shows, and the one that wraps arrays in memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse

from dpindex.arrays import canonical_csr
from dpindex.errors import InputError
from dpindex.vectors.location import Location, reading

__all__ = ["ArraySource", "Chunk", "VectorSource", "as_source", "is_real"]

Chunk: TypeAlias = Any
"""An ``npt.NDArray`` or, from a sparse source, a ``scipy.sparse.csr_matrix``."""


def is_real(dtype: np.dtype[Any]) -> bool:
    """Whether vectors may have this dtype: bool, any integer, or a float of at most 64 bits."""
    return dtype.kind in "biu" or (dtype.kind == "f" and dtype.itemsize <= 8)


class VectorSource(ABC):
    """A matrix that is read a few rows at a time: think of an array that stays where it is.

    Get one from :func:`open_vectors` or :func:`as_source`. Values are passed on as they are stored,
    NaN and infinity included: whoever uses them checks them. Sources inside compressed or Parquet
    files read forward; going back is allowed and starts again from the beginning. One thread at a
    time.

    Attributes:
        name: the source as the user named it; every error message begins with it.
        shape: ``(rows, columns)``, both at least 1.
        dtype: bool, integer or float16/32/64, in the machine's byte order.
        is_sparse: whether chunks are ``scipy.sparse.csr_matrix`` (with sorted indices and no
            duplicates) rather than C-contiguous arrays.
    """

    def __init__(
        self,
        location: Location,
        shape: Sequence[int],
        dtype: np.dtype[Any],
        *,
        is_sparse: bool = False,
    ) -> None:
        if not is_real(dtype):
            raise location.error(
                f"the values are of type {dtype}; use integers, bool, or floats of 16, 32 or 64"
                " bits."
            )
        if len(shape) != 2:
            raise location.error(
                f"the array has {len(shape)} dimension(s); vectors need two, (rows, columns): save"
                " a single vector x as x[None, :]."
            )
        rows, columns = (int(length) for length in shape)
        if rows < 1 or columns < 1:
            raise location.error(
                f"the array is {rows} x {columns}; at least one row and one column are needed."
            )
        self.name = location.name
        self.shape = (rows, columns)
        self.dtype = dtype.newbyteorder("=")
        self.is_sparse = is_sparse
        self._location = location
        self._resources = ExitStack()
        self._closed = False

    @abstractmethod
    def _rows(self, start: int, stop: int) -> Chunk:
        """Rows ``start`` to ``stop`` of a range already checked, in any byte order and layout."""

    def rows(self, start: int, stop: int) -> Chunk:
        """Rows ``start <= i < stop``: ``(stop - start, columns)``, to be treated as read-only.

        Raises InputError when the range is outside the source, or the file is damaged there.
        """
        if self._closed:
            raise self._error("it has been closed; open it again.")
        if not 0 <= start <= stop <= self.shape[0]:
            raise self._error(
                f"rows {start} to {stop} were asked for; it has rows 0 to {self.shape[0]}."
            )
        with reading(self.name):
            chunk = self._rows(start, stop)
            return chunk if self.is_sparse else np.ascontiguousarray(chunk, dtype=self.dtype)

    def chunks(self, rows_per_chunk: int, start: int = 0) -> Iterator[tuple[int, Chunk]]:
        """Pairs ``(first_row, chunk)`` from row ``start`` to the end; only the last is shorter."""
        rows = self.shape[0]
        if rows_per_chunk < 1:
            raise self._error(f"a chunk needs at least one row, not {rows_per_chunk}.")
        if not 0 <= start <= rows:
            raise self._error(f"reading cannot start at row {start}; it has {rows} rows.")
        return (
            (first, self.rows(first, min(first + rows_per_chunk, rows)))
            for first in range(start, rows, rows_per_chunk)
        )

    def read(self) -> Chunk:
        """All rows at once."""
        return self.rows(0, self.shape[0])

    def fingerprint(self) -> dict[str, int | str]:
        """Rows, columns, bytes, time of change and key, to see that a source is the same again.

        No hash of the content, deliberately: a hash of private vectors says which vectors they
        were. A source in memory has size ``nbytes`` and time 0.
        """
        return {
            "rows": self.shape[0],
            "columns": self.shape[1],
            "size": self._location.size,
            "mtime_ns": self._location.mtime_ns,
            "key": self._location.key or "",
        }

    def own(self, resources: ExitStack) -> None:
        """Take over what has to be closed with this source."""
        self._resources = resources

    def close(self) -> None:
        """Close the file; closing twice is harmless."""
        self._closed = True
        self._resources.close()

    def __enter__(self) -> VectorSource:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _error(self, sentence: str) -> InputError:
        return self._location.error(sentence)


class ArraySource(VectorSource):
    """An ndarray or a canonical CSR matrix that is in memory already."""

    def __init__(self, location: Location, array: Chunk) -> None:
        is_sparse = scipy.sparse.issparse(array)
        super().__init__(location, array.shape, array.dtype, is_sparse=is_sparse)
        self._array = array

    def _rows(self, start: int, stop: int) -> Chunk:
        return self._array[start:stop]


def as_source(X: Any, name: str = "array") -> VectorSource:
    """Wrap vectors in memory: an ndarray, a memory map, any scipy sparse matrix, or nested lists.

    Nothing is copied where a view will do (the view is read-only). A VectorSource is returned as
    it is, so that functions take vectors in memory or in a file.

    Raises InputError, beginning with ``name``, for anything that is not a real matrix with at least
    one row and one column.

    >>> source = as_source([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    >>> [(first, chunk.shape) for first, chunk in source.chunks(2)]
    [(0, (2, 2)), (2, (1, 2))]
    """
    if isinstance(X, VectorSource):
        return X
    try:
        array = _canonical_csr(X) if scipy.sparse.issparse(X) else _read_only(X)
    except (ValueError, TypeError) as error:
        raise InputError(f"{name}: this is not a matrix of real numbers ({error}).") from error
    size = sum(part.nbytes for part in _parts(array))
    return ArraySource(Location(name, path="", key=None, size=size, mtime_ns=0), array)


def _parts(array: Chunk) -> list[npt.NDArray[Any]]:
    if scipy.sparse.issparse(array):
        return [array.data, array.indices, array.indptr]
    return [array]


def _read_only(matrix: Any) -> npt.NDArray[Any]:
    if np.ma.isMaskedArray(matrix):
        raise ValueError("it has a mask; fill the missing values first")
    array = np.asarray(matrix).view()
    array.flags.writeable = False
    return array


def _canonical_csr(matrix: Any) -> Chunk:
    """A sparse matrix of real numbers in the form that everything here reads."""
    if matrix.ndim != 2 or not is_real(matrix.dtype):
        raise ValueError(
            f"it is a sparse array of {matrix.ndim} dimension(s) and type {matrix.dtype}"
        )
    return canonical_csr(matrix)
