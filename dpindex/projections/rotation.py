"""Public rotations by signs and Walsh–Hadamard transforms: fast, and the same on every machine."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from dpindex.arrays import Floats
from dpindex.projections.base import Projection, Sensitivity, check_size
from dpindex.projections.sparse_jl import walsh_hadamard
from dpindex.randomness import PublicStream

_NUMBERS = 1 << 18
_ROUNDS = 2
_MAX_WRITTEN = 1 << 12
"""Attributes up to which the map is written out as a matrix, which takes their square of work."""


def scaled_rows(x: Floats) -> npt.NDArray[np.float32]:
    """Rows divided by their largest magnitude, float32, so that nothing over- or underflows."""
    wide = x.astype(np.float64)
    largest = np.abs(wide).max(axis=1, keepdims=True, initial=0.0)
    np.divide(wide, largest, out=wide, where=largest > 0)
    return wide.astype(np.float32)


def _scaled_entries(x: sparse.csr_matrix) -> sparse.csr_matrix:
    """:func:`scaled_rows` of a sparse table, the same numbers."""
    data = x.data.astype(np.float64)
    row = np.repeat(np.arange(x.shape[0]), np.diff(x.indptr))
    largest = np.zeros(x.shape[0])
    np.maximum.at(largest, row, np.abs(data))
    np.divide(data, largest[row], out=data, where=data != 0)
    return sparse.csr_matrix((data.astype(np.float32), x.indices, x.indptr), shape=x.shape)


class Rotation(Projection):
    """k coordinates of ``H·D₂·H·D₁·u``: two rounds of random signs and a Walsh–Hadamard transform.

    The vector is padded with zeros to the next power of two that holds both dim and k. Two rounds
    bring the coordinates of any fixed vector close to normal (Ailon & Chazelle 2009 for one round);
    k of them are taken at random places. A matrix product is faster than the transform, so the map
    is written out where memory allows.

    Parameters
    ----------
    dim, k : int
        Attributes and coordinates.
    seed : int
        Public seed.
    """

    max_column_l1 = 1
    sensitivity = Sensitivity.of_signs(1)

    def __init__(self, dim: int, k: int, seed: int) -> None:
        self.dim, self.k = dim, k
        self.padded = 1 << max(0, max(dim, k) - 1).bit_length()
        check_size(dim, k, 8 * self.padded)
        stream = PublicStream(seed, f"rotation/{dim}/{k}")
        self._signs = [stream.signs(self.padded).astype(np.float32) for _ in range(_ROUNDS)]
        self._places = np.sort(stream.permutation(self.padded)[:k])
        self.rms = 1.0
        self.scale = 1.0 / math.sqrt(k)
        self.inner_product_factor = max(0.0, 1.0 / k - 1.0 / self.padded)

    @cached_property
    def _matrix(self) -> npt.NDArray[np.float32] | None:
        """The map written out, shape (dim, k); None where that would take too much memory."""
        if self.dim > _MAX_WRITTEN:
            return None
        return self._transformed(np.eye(self.dim, dtype=np.float32))

    def apply(self, x: Floats) -> Floats:
        """Rotated rows up to a factor each, (n, dim) to (n, k), float32."""
        single = scaled_rows(x)
        return self._transformed(single) if self._matrix is None else single @ self._matrix

    def apply_sparse(self, x: sparse.csr_matrix) -> Floats:
        if self._matrix is not None:
            product: Any = _scaled_entries(x) @ self._matrix
            return np.asarray(product)
        step = max(1, _NUMBERS // self.padded)
        parts = [self.apply(x[i : i + step].toarray()) for i in range(0, x.shape[0], step)]
        return np.concatenate(parts)

    def _transformed(self, x: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        out = np.empty((len(x), self.k), dtype=np.float32)
        step = max(1, _NUMBERS // self.padded)
        for start in range(0, len(x), step):
            block = np.zeros((min(step, len(x) - start), self.padded), dtype=np.float64)
            block[:, : self.dim] = x[start : start + step]
            for signs in self._signs:
                block *= signs
                walsh_hadamard(block)
            # Two transforms stretch by padded; coordinates are brought to rms 1, not norm 1.
            block /= math.sqrt(self.padded)
            out[start : start + step] = block[:, self._places]
        return out
