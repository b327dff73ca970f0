"""The fast Johnson–Lindenstrauss transform: random signs, Walsh–Hadamard, sparse normal entries."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from dpindex.arrays import Floats
from dpindex.errors import InputError
from dpindex.projections.base import Projection, Sensitivity, check_size
from dpindex.projections.entries import (
    NORMAL_BITS,
    normal_integers,
    normal_second_moment,
    sparse_places,
)
from dpindex.randomness import PublicStream

__all__ = ["FastJL", "walsh_hadamard"]

_NUMBERS = 1 << 22
_ENTRY_BYTES = 16
_MAX_REALISED = 1 << 31
"""Entries of ``P·H·D``, all of which are looked at once for its sensitivity: some minutes."""


def walsh_hadamard(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """``x @ H`` in place, H the ±1 Walsh–Hadamard matrix, rows of a power of two numbers.

    >>> walsh_hadamard(np.array([[1.0, 0, 0, 0], [1, 2, 3, 4]])).tolist()
    [[1.0, 1.0, 1.0, 1.0], [10.0, -2.0, -4.0, 0.0]]
    """
    n, size = x.shape
    half = 1
    while half < size:
        pairs = x.reshape(n, size // (2 * half), 2, half)
        low, high = pairs[:, :, 0], pairs[:, :, 1]
        low += high
        high *= -2.0
        high += low
        half *= 2
    return x


class FastJL(Projection):
    """``x = P·H·D·u`` (Ailon & Chazelle 2009; private as suggested by Stausholm 2021).

    D are random signs; H is the Walsh–Hadamard matrix of the next power of two, with entries ±1;
    P has rounded normal entries where a coin of chance ``q = 1/s ≈ log²p/p`` says so, else 0. All
    three are integers, so is the map, and ``scale`` divides the scales out. Any single attribute is
    spread over all coordinates: the sensitivities are those of the realised dense map.

    H mixes all attributes, so sparse rows become dense, a few at a time.
    """

    def __init__(self, dim: int, k: int, seed: int) -> None:
        self.dim, self.k = dim, k
        self.padded = 1 << max(0, dim - 1).bit_length()
        # Ailon & Chazelle 2009, Sec. 2: q = min(1, Θ(log²n/d)), with p itself for n.
        inverse = max(1, round(self.padded / max(1.0, math.log(self.padded)) ** 2))
        size = _ENTRY_BYTES * (k * self.padded // inverse)
        check_size(dim, k, size, "lower dim or k, or use dp-sjlt-gaussian")
        if k * self.padded > _MAX_REALISED:
            raise InputError(
                f"a {dim} × {k} transform has more than 2^31 entries to take the sensitivity of; "
                f"lower dim or k, or use dp-sjlt-gaussian."
            )
        stream = PublicStream(seed, f"fast-jl/{NORMAL_BITS}/{dim}/{k}")
        self._signs = stream.signs(dim).astype(np.float64)
        places = sparse_places(k * self.padded, inverse, stream)
        entries = normal_integers(len(places), NORMAL_BITS, stream).astype(np.float64)
        rows, columns = np.divmod(places, self.padded)
        starts = np.searchsorted(rows, np.arange(k + 1))
        self._sparse = sparse.csr_matrix((entries, columns, starts), shape=(k, self.padded))
        # Sums inside P reach this; a coordinate itself stays far below.
        self.max_column_l1 = max(1, int(abs(self._sparse).sum(axis=1).max())) * self.padded
        self.rms = math.sqrt(self.padded / inverse * normal_second_moment(NORMAL_BITS))
        self.scale = 1.0 / (math.sqrt(k) * self.rms)
        # The kurtosis 3s of P's entries adds 3(s − 1)/p to the variance of a dense normal map.
        self.inner_product_factor = (1.0 + 3.0 * (inverse - 1.0) / self.padded) / k

    @cached_property
    def _sizes(self) -> tuple[Sensitivity, npt.NDArray[np.int64]]:
        """Row by row of P: the entries of the realised map are ``P·H·D``."""
        counts = np.zeros(self.dim, dtype=np.int64)
        l1, l2_squared = counts.copy(), counts.copy()
        largest = np.ones(self.k, dtype=np.int64)
        step = max(1, _NUMBERS // self.padded)
        for start in range(0, self.k, step):
            rows: Any = self._sparse[start : start + step].toarray()
            block = np.abs(walsh_hadamard(rows)[:, : self.dim]).astype(np.int64)
            counts += np.count_nonzero(block, axis=0)
            l1 += block.sum(axis=0)
            l2_squared += (block**2).sum(axis=0)
            largest[start : start + step] = np.maximum(block.max(axis=1), 1)
        sizes = Sensitivity(*(max(1, int(size.max())) for size in (counts, l1, l2_squared)))
        return sizes, largest

    @cached_property
    def sensitivity(self) -> Sensitivity:
        return self._sizes[0]

    @cached_property
    def largest(self) -> npt.NDArray[np.int64]:
        return self._sizes[1]

    def apply(self, x: Floats) -> Floats:
        out = np.empty((len(x), self.k), dtype=x.dtype)
        step = max(1, _NUMBERS // self.padded)
        for start in range(0, len(x), step):
            rows = x[start : start + step]
            mixed = np.zeros((len(rows), self.padded))
            np.multiply(rows, self._signs, out=mixed[:, : self.dim])
            out[start : start + step] = (self._sparse @ walsh_hadamard(mixed).T).T
        return out

    def apply_sparse(self, x: sparse.csr_matrix) -> Floats:
        step = max(1, _NUMBERS // self.padded)
        starts = range(0, x.shape[0], step)
        return np.concatenate([self.apply(x[start : start + step].toarray()) for start in starts])
