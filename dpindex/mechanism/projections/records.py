"""Record encoders: a public rotation, for cap codes, and inner products with codewords."""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np

from dpindex.base.arrays import Doubles, Floats, Singles, matrix_product, row_blocks
from dpindex.mechanism.projections import RecordEncoder, check_size
from dpindex.mechanism.projections.sparse import walsh_hadamard
from dpindex.mechanism.public_parts import RADIUS, Codebook, on_sphere_grid
from dpindex.mechanism.public_random import PublicStream

_NUMBERS = 1 << 18
_STEPS = 1 << 20
_ROUNDS = 2
_MAX_WRITTEN = 1 << 12
"""Attributes up to which the map is written out as a matrix, which takes their square of work."""


def on_grid(x: Floats) -> Singles:
    """Rows as whole multiples of 2^-20 of their largest magnitude, held in float32.

    Division is correctly rounded, and for values that float32 holds it makes no difference that
    wider ones are divided in float64 first (Figueroa 1995), so the grid is the same everywhere.
    """
    wide = x if x.dtype == np.float32 else x.astype(np.float64)
    largest = np.maximum(wide.max(axis=1, keepdims=True), -wide.min(axis=1, keepdims=True))
    largest[largest == 0] = 1
    single: Singles = (wide / largest).astype(np.float32)
    single *= np.float32(_STEPS)
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
        self.padded = 1 << max(0, max(dim, k) - 1).bit_length()
        check_size(dim, k, 8 * self.padded)
        stream = PublicStream(seed, f"rotation/{dim}/{k}")
        self._signs = [stream.signs(self.padded).astype(np.float32) for _ in range(_ROUNDS)]
        self._places = np.sort(stream.permutation(self.padded)[:k])
        self.rms = 1.0
        self.scale = 1.0 / math.sqrt(k)
        self.inner_product_factor = max(0.0, 1.0 / k - 1.0 / self.padded)

    @cached_property
    def _matrix(self) -> Doubles | None:
        """The map written out, shape (dim, k); None where that would take too much memory."""
        if self.dim > _MAX_WRITTEN:
            return None
        return self._transformed(np.eye(self.dim))

    def apply(self, x: Floats) -> Floats:
        """Rotated rows up to a factor each, (n, dim) to (n, k), float32.

        Sums of whole numbers below 2^53 are exact in float64 in any order, so a row has the same
        coordinates alone, in any batch and on any machine.
        """
        out = np.empty((len(x), self.k), dtype=np.float32)
        for block in row_blocks(len(x), _NUMBERS // self.padded):
            grid = on_grid(x[block]).astype(np.float64)
            if self._matrix is None:
                exact = self._transformed(grid)
            else:
                exact = matrix_product(grid, self._matrix)
            out[block] = exact * (1.0 / (_STEPS * math.sqrt(self.padded)))
        return out

    def _transformed(self, x: Doubles) -> Doubles:
        """The k places of two transforms, which stretch a vector by ``padded``."""
        block = np.zeros((len(x), self.padded))
        block[:, : self.dim] = x
        for signs in self._signs:
            block *= signs
            walsh_hadamard(block)
        return block[:, self._places]


class CodewordMap(RecordEncoder):
    """Inner products of a vector's direction with all codewords: shape (n, dim) to (n, K).

    Directions and codewords are whole numbers, so the inner products are exact in any order and on
    any machine; times ``scale`` they are cosines.
    """

    scale = 1.0 / RADIUS**2
    rms = 1.0
    inner_product_factor = 0.0
    block_numbers = 1 << 22  # all codewords are read for every block

    def __init__(self, codebook: Codebook) -> None:
        self.codebook = codebook
        self.dim = codebook.dim
        self.k = len(codebook)

    def apply(self, x: Floats) -> Floats:
        """Whole numbers held exactly in float32, shape (n, K)."""
        return matrix_product(on_sphere_grid(x), self.codebook.grid)
