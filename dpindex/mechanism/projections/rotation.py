"""A rotation by fast transforms, which spreads a vector over all coordinates."""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np

from dpindex.base.arrays import (
    Doubles,
    Floats,
    Singles,
    matrix_product,
    row_blocks,
)
from dpindex.mechanism.projections import (
    RecordEncoder,
    check_size,
)
from dpindex.mechanism.public_random import PublicStream

TRANSFORMED = 1 << 22
_ROTATED = 1 << 18
"""Numbers that are transformed at a time, and that are rotated: fewer fit the cache."""

MAX_WRITTEN = 1 << 12
"""Attributes up to which the map is written out as a matrix, which takes their square of work."""

_GRID_STEPS = 1 << 20
_ROUNDS = 2


def walsh_hadamard(x: Doubles) -> Doubles:
    """``x @ H`` in place, H the ±1 Walsh–Hadamard matrix, rows of a power of two numbers.

    >>> walsh_hadamard(np.array([[1.0, 0, 0, 0], [1, 2, 3, 4]])).tolist()
    [[1.0, 1.0, 1.0, 1.0], [10.0, -2.0, -4.0, 0.0]]
    """
    n, size = x.shape
    half = 1
    while half < size:
        blocks = size // (2 * half)
        pairs = x.reshape(n, blocks, 2, half)
        low = pairs[:, :, 0]
        high = pairs[:, :, 1]
        low += high
        high *= -2.0
        high += low
        half *= 2
    return x


def on_grid(x: Floats) -> Singles:
    """Rows as whole multiples of 2^-20 of their largest magnitude, held in float32.

    Division is correctly rounded, and for values that float32 holds it makes no difference that
    wider ones are divided in float64 first (Figueroa 1995), so the grid is the same everywhere.
    """
    wide = x
    if x.dtype != np.float32:
        wide = x.astype(np.float64)
    highest = wide.max(axis=1, keepdims=True)
    lowest = wide.min(axis=1, keepdims=True)
    largest = np.maximum(highest, -lowest)
    largest[largest == 0] = 1
    single: Singles = (wide / largest).astype(np.float32)
    single *= np.float32(_GRID_STEPS)
    np.rint(single, out=single)
    return single


class Rotation(RecordEncoder):
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

    def __init__(self, dim: int, k: int, seed: int) -> None:
        self.dim = dim
        self.k = k
        self.padded = 1 << (max(dim, k) - 1).bit_length()
        check_size(dim, k, 8 * self.padded)
        stream = PublicStream(seed, f"rotation/{dim}/{k}")
        self._signs = [stream.signs(self.padded).astype(np.float32) for _ in range(_ROUNDS)]
        chosen = stream.permutation(self.padded)[:k]
        self._places = np.sort(chosen)
        self.rms = 1.0
        self.scale = 1.0 / math.sqrt(k)
        self.inner_product_factor = max(0.0, 1.0 / k - 1.0 / self.padded)

    @cached_property
    def _matrix(self) -> Doubles | None:
        """The map written out, shape (dim, k); None where that would take too much memory."""
        if self.dim > MAX_WRITTEN:
            return None
        return self._transformed(np.eye(self.dim))

    def apply(self, x: Floats) -> Floats:
        """Rotated rows up to a factor each, (n, dim) to (n, k), float32.

        Sums of whole numbers below 2^53 are exact in float64 in any order, so a row has the same
        coordinates alone, in any batch and on any machine.
        """
        out = np.empty((len(x), self.k), dtype=np.float32)
        factor = 1.0 / (_GRID_STEPS * math.sqrt(self.padded))
        for block in row_blocks(len(x), _ROTATED // self.padded):
            grid = on_grid(x[block]).astype(np.float64)
            if self._matrix is None:
                exact = self._transformed(grid)
            else:
                exact = matrix_product(grid, self._matrix)
            out[block] = exact * factor
        return out

    def _transformed(self, x: Doubles) -> Doubles:
        """The k places of two transforms, which stretch a vector by ``padded``."""
        block = np.zeros((len(x), self.padded))
        block[:, : self.dim] = x
        for signs in self._signs:
            block *= signs
            walsh_hadamard(block)
        return block[:, self._places]
