"""Names for the array types that appear in signatures; canonical CSR, rows brought to one size."""

from __future__ import annotations

import os
import sys
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy

AnyArray: TypeAlias = npt.NDArray[Any]
Bytes: TypeAlias = npt.NDArray[np.uint8]
Doubles: TypeAlias = npt.NDArray[np.float64]
Singles: TypeAlias = npt.NDArray[np.float32]
Floats: TypeAlias = npt.NDArray[np.floating[Any]]
Integers: TypeAlias = npt.NDArray[np.integer[Any]]
Vectors: TypeAlias = Any
"""What a user hands over: an ndarray of any real dtype, a memory map, or a scipy CSR/CSC matrix."""


def issparse(array: Any) -> bool:
    """Whether this is a scipy sparse matrix, which nothing can be before scipy.sparse is loaded.

    Devices and searchers of dense vectors never load it: importing it takes a quarter of a second.
    """
    return "scipy.sparse" in sys.modules and bool(scipy.sparse.issparse(array))


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
    """Processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def unit(vectors: Floats) -> npt.NDArray[np.float32]:
    """Rows brought to norm 1, float32; those of norm 0 stay."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    out = np.zeros(vectors.shape, dtype=np.float32)
    np.divide(vectors, norms, out=out, where=norms > 0, casting="same_kind")
    return out


def in_units_of_largest(vectors: Floats) -> Doubles:
    """Rows divided by their largest magnitude, so that no square over- or underflows."""
    wide = vectors.astype(np.float64)
    largest = np.abs(wide).max(axis=1, keepdims=True, initial=0.0)
    np.divide(wide, largest, out=wide, where=largest > 0)
    return wide
