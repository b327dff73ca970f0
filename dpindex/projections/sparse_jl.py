"""Sparse projections: Kane & Nelson's sparse Johnson–Lindenstrauss map, and very sparse entries.

Neither ever holds a dense dim × k matrix, and sparse input never becomes dense in ``dim``.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from dpindex.arrays import Floats, Integers
from dpindex.projections.base import Projection, Sensitivity, check_size, scatter
from dpindex.projections.entries import sparse_places
from dpindex.randomness import PublicStream

__all__ = ["SparseJL", "VerySparse"]

_PIECE = 1 << 20
_PLACE_BYTES = 4
_ENTRY_BYTES = 32


class _Sparse(Projection):
    """A map kept as a sparse matrix."""

    @cached_property
    def _matrix(self) -> sparse.csr_matrix:
        raise NotImplementedError

    def apply(self, x: Floats) -> Floats:
        return np.asarray(x @ self._matrix.astype(x.dtype, copy=False), order="C")


class SparseJL(_Sparse):
    """``s`` blocks of ``k/s`` coordinates; each attribute has one ±1 in every block.

    Kane & Nelson 2014 (the block construction), as made private by Stausholm 2021. After ``scale``,
    1/√s, entries are ±1/√s. Changing one attribute by β moves s coordinates by β: before the scale
    the L1 sensitivity is sβ and the L2 sensitivity √s·β.

    Parameters
    ----------
    dim, k : int
        Attributes and coordinates.
    seed : int
        Public seed.
    sparsity : int
        Blocks s, a divisor of k.
    """

    def __init__(self, dim: int, k: int, seed: int, sparsity: int) -> None:
        check_size(dim, k, _PLACE_BYTES * dim * sparsity)
        self.dim, self.k, self.sparsity = dim, k, sparsity
        self.scale = 1.0 / math.sqrt(sparsity)
        self.rms = math.sqrt(sparsity / k)
        self.inner_product_factor = 1.0 / k
        self.sensitivity = Sensitivity.of_signs(sparsity)
        self._width = k // sparsity
        # 2·place + sign, in the smallest integers that hold it: 2s bytes an attribute as a rule.
        dtype = np.uint16 if 2 * self._width <= 1 << 16 else np.uint32
        self._packed: npt.NDArray[Any] = np.empty((dim, sparsity), dtype=dtype)
        counts = np.zeros((sparsity, self._width), dtype=np.int64)
        for block in range(sparsity):
            stream = PublicStream(seed, f"sparse-jl/{dim}/{k}/{sparsity}/{block}")
            for start in range(0, dim, _PIECE):
                words = stream.words(min(_PIECE, dim - start), np.uint32)
                place = (words >> np.uint32(1)).astype(np.int64) * self._width >> 31
                counts[block] += np.bincount(place, minlength=self._width)
                self._packed[start : start + len(words), block] = 2 * place + (words & 1)
        self.max_column_l1 = int(counts.max())

    def _entries(self, attributes: Any) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int8]]:
        """Coordinates and signs of some attributes, shape (len, s) each."""
        packed = self._packed[attributes]
        places = (packed >> 1).astype(np.int32)
        places += np.arange(self.sparsity, dtype=np.int32) * np.int32(self._width)
        return places, (1 - 2 * (packed & 1).astype(np.int8)).astype(np.int8)

    @cached_property
    def _matrix(self) -> sparse.csr_matrix:
        places, signs = self._entries(slice(None))
        starts = np.arange(self.dim + 1) * self.sparsity
        shape = (self.dim, self.k)
        return sparse.csr_matrix((signs.ravel().astype(np.float32), places.ravel(), starts), shape)

    def apply_sparse(self, x: sparse.csr_matrix) -> Floats:
        places, signs = self._entries(x.indices)
        return scatter(x, places, signs, self.k)


class VerySparse(_Sparse):
    """Independent entries ±1 with chance 1/2s each, else 0 (Li & Li 2023, Eq. 18).

    Very sparse random projections (Li, Hastie & Church 2006). After ``scale`` = √(s/k) the entries
    are ±√s. The sensitivity is that of the fullest row.

    Parameters
    ----------
    dim, k : int
        Attributes and coordinates.
    seed : int
        Public seed.
    sparsity : int
        One entry in s is not zero, [1, ∞); √dim is customary.

    Raises
    ------
    InputError
        If more than 2^25 entries would have to be kept.
    """

    def __init__(self, dim: int, k: int, seed: int, sparsity: int) -> None:
        advice = f"raise sparsity, for example to {math.isqrt(dim)}, or use dp-oporp"
        check_size(dim, k, _ENTRY_BYTES * (dim * k // sparsity), advice)
        self.dim, self.k, self.sparsity = dim, k, sparsity
        self.rms = 1.0 / math.sqrt(sparsity)
        self.scale = math.sqrt(sparsity / k)
        self.inner_product_factor = 1.0 / k
        stream = PublicStream(seed, f"very-sparse/{dim}/{k}/{sparsity}")
        places = sparse_places(dim * k, sparsity, stream)
        rows, columns = np.divmod(places, k)
        starts = np.searchsorted(rows, np.arange(dim + 1))
        self._matrix = sparse.csr_matrix(
            (stream.signs(len(places)), columns.astype(np.int32), starts),
            shape=(dim, k),
        )
        fullest = int(np.diff(starts).max())
        self.sensitivity = Sensitivity.of_signs(max(1, fullest))
        self.max_column_l1 = max(1, int(np.bincount(columns, minlength=k).max()))

    @cached_property
    def _first(self) -> npt.NDArray[Any]:
        """For each attribute 0, or 2 + 4·coordinate + 2·(whether −1) + (whether there are more).

        Most attributes meet no entry and most others just one: one look into these few bytes an
        attribute settles them all.
        """
        matrix, largest = self._matrix, 4 * self.k + 2
        first = np.zeros(self.dim, dtype=np.uint16 if largest < 1 << 16 else np.uint32)
        lengths = np.diff(matrix.indptr)
        filled = np.flatnonzero(lengths)
        at = matrix.indptr[filled]
        first[filled] = (
            2 + 4 * matrix.indices[at] + 2 * (matrix.data[at] < 0) + (lengths[filled] > 1)
        )
        return first

    def apply_sparse(self, x: sparse.csr_matrix) -> Floats:
        """A sparse product that looks at the entries of the attributes that have any."""
        # Attributes are in range already, and "clip" skips looking whether they are.
        first = np.take(self._first, x.indices, mode="clip")
        met = np.flatnonzero(first != 0)  # nonzero is quick on booleans only
        first, values = first[met] - first.dtype.type(2), x.data[met]
        bounds = np.searchsorted(met, x.indptr)
        signs = 1 - (first & 2).astype(np.int8)
        places = (first >> 2).astype(np.int32)
        landed = sparse.csr_matrix((values * signs, places, bounds), (x.shape[0], self.k))
        out: Any = landed.toarray()
        more = np.flatnonzero((first & 1) != 0)
        rows = np.searchsorted(bounds, more, side="right") - 1
        self._add_others(out, rows, x.indices[met[more]], values[more])
        return np.asarray(out)

    def _add_others(
        self, out: Floats, rows: Integers, attributes: Integers, values: Floats
    ) -> None:
        """Add what values of some attributes contribute through all entries but the first."""
        matrix = self._matrix
        starts = matrix.indptr[attributes] + 1
        times = matrix.indptr[attributes + 1] - starts
        ends = np.cumsum(times, dtype=np.int64)
        # The other entries of an attribute lie at starts, starts + 1, … in the matrix.
        entries = np.repeat(starts - ends + times, times) + np.arange(times.sum())
        places = np.repeat(rows * self.k, times) + matrix.indices[entries]
        np.add.at(out.reshape(-1), places, np.repeat(values, times) * matrix.data[entries])
