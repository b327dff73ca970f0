"""Names for the array types that appear in signatures; canonical CSR, rows brought to one size."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy

AnyArray: TypeAlias = npt.NDArray[Any]
Bools: TypeAlias = npt.NDArray[np.bool_]
Bytes: TypeAlias = npt.NDArray[np.uint8]
Doubles: TypeAlias = npt.NDArray[np.float64]
Singles: TypeAlias = npt.NDArray[np.float32]
Floats: TypeAlias = npt.NDArray[np.floating[Any]]
Integers: TypeAlias = npt.NDArray[np.integer[Any]]
Vectors: TypeAlias = Any
"""What a user hands over: an ndarray of any real dtype, a memory map, or a scipy CSR/CSC matrix."""


_THREAD = threading.local()


def issparse(array: Any) -> bool:
    """Whether this is a scipy sparse matrix, which nothing can be before scipy.sparse is loaded.

    Devices and searchers of dense vectors never load it: importing it takes a quarter of a second.
    """
    return "scipy.sparse" in sys.modules and bool(scipy.sparse.issparse(array))


def is_masked(array: Any) -> bool:
    """Whether this is a masked array, which nothing can be before numpy.ma is loaded."""
    return "numpy.ma" in sys.modules and isinstance(array, np.ma.MaskedArray)


def as_table(X: Any) -> Any:
    """Return a user's vectors as an ndarray: also a column of lists (of Arrow, pandas, polars).

    ValueError, which names the row, if a list of the column is missing or as long as no other.
    """
    array = np.asarray(X)
    if array.dtype != object or array.ndim != 1 or isinstance(X, list | tuple) or not len(array):
        return array
    rows = [None if row is None else np.asarray(row) for row in array]
    lengths = [None if row is None or row.ndim != 1 else len(row) for row in rows]
    if not any(lengths):
        return array  # a column of numbers or words, and no lists
    for place, length in enumerate(lengths):
        if length != lengths[0] or length is None:
            raise ValueError(f"row {place} is no list as long as that of row 0")
    return np.stack(rows)  # type: ignore[arg-type]


def canonical_csr(matrix: Any) -> scipy.sparse.csr_matrix:
    """A sparse table as CSR with sorted, unique indices; entries given twice become their sum.

    Checked before it is converted, as scipy's own routines trust the indices: ValueError.
    """
    if hasattr(matrix, "check_format"):
        matrix.check_format(full_check=True)
    csr = scipy.sparse.csr_matrix(matrix)
    if not csr.has_canonical_format:
        csr = csr.copy()  # it may still share the caller's arrays
        csr.sum_duplicates()
    return csr


def cores() -> int:
    """Processors this process may use; 1 in a thread that shares them with others of ours."""
    if getattr(_THREAD, "shares", False):
        return 1
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def share_cores() -> None:
    """Use one processor in this thread from now on: others like it use the rest."""
    _THREAD.shares = True


def row_norms(vectors: Vectors) -> Doubles:
    """Return the norm of each row of an array or a sparse matrix, float64, shape (n,)."""
    wide = vectors.astype(np.float64)
    if issparse(wide):
        return np.asarray(scipy.sparse.linalg.norm(wide, axis=1))
    return np.asarray(np.linalg.norm(wide, axis=1))


def unit(vectors: Floats) -> npt.NDArray[np.float32]:
    """Rows brought to norm 1, float32; those of norm 0 stay."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    out = np.zeros(vectors.shape, dtype=np.float32)
    np.divide(vectors, norms, out=out, where=norms > 0, casting="same_kind")
    return out


def stacked(parts: Sequence[Vectors]) -> Any:
    """Return arrays or sparse matrices of one width as one."""
    if issparse(parts[0]):
        from scipy.sparse import vstack

        return vstack(parts)
    return np.concatenate(parts)


def row_by_row(several: Singles, vectors: Singles) -> Singles:
    """Inner products of each vector, shape (m, k), with as many rows of its own: shape (m, n/m).

    ``several``, shape (n, k), has those of the first vector, then those of the next.
    """
    parts = several.reshape(len(vectors), -1, vectors.shape[1])
    return np.asarray(np.matmul(parts, vectors[..., None])[..., 0])


def products(x: Floats, y: Floats) -> Doubles:
    """Inner products, shape (n, count), of x, shape (n or 1, count, k), and y, shape (n, k)."""
    if len(x) == 1:
        return np.asarray(y @ x[0].T, dtype=np.float64)
    return np.asarray(np.matmul(x, y[:, :, None])[:, :, 0], dtype=np.float64)


def in_units_of_largest(vectors: Floats) -> Doubles:
    """Rows divided by their largest magnitude, so that no square over- or underflows."""
    wide = vectors.astype(np.float64)
    largest = np.abs(wide).max(axis=1, keepdims=True, initial=0.0)
    np.divide(wide, largest, out=wide, where=largest > 0)
    return wide


def row_blocks(stop: int, size: int, start: int = 0) -> Iterator[slice]:
    """Yield slices of the rows from ``start`` to ``stop``, each of at most ``size`` rows.

    A size below 1 counts as 1.

    >>> list(row_blocks(5, 2))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    step = max(1, size)
    for first in range(start, stop, step):
        yield slice(first, min(first + step, stop))


def spaced(rows: int, count: int) -> npt.NDArray[np.intp]:
    """Return ``count`` row numbers at equal distances, all of them if there are so many.

    >>> spaced(9, 3).tolist()
    [0, 4, 8]
    """
    return np.linspace(0, rows - 1, min(rows, count)).astype(np.intp)
