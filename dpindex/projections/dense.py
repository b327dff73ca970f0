"""Dense Rademacher projection: every coordinate sums all attributes with random signs."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from dpindex.arrays import Floats
from dpindex.randomness import PublicStream

__all__ = ["Rademacher"]


class Rademacher:
    """``x = W^T u`` with independent fair signs ``W_ij`` (Li & Li 2023, Alg. 3 and 11).

    Changing one attribute by β moves *every* coordinate by β (before ``gain`` = 1/√k). On grid
    integers the float product is exact in any order, as sums stay below 2^24 (float32) or 2^53.
    """

    def __init__(self, dim: int, k: int, seed: int) -> None:
        self.dim = dim
        self.k = k
        self.fan_in = dim
        self.gain = 1.0 / math.sqrt(k)
        self.spread = 1.0
        self.inner_product_factor = 1.0 / k
        stream = PublicStream(seed, f"rademacher/{dim}/{k}")
        self._signs = stream.signs(dim * k).reshape(dim, k)

    @cached_property
    def _single(self) -> npt.NDArray[np.float32]:
        return self._signs.astype(np.float32)

    @cached_property
    def _double(self) -> npt.NDArray[np.float64]:
        return self._signs.astype(np.float64)

    def apply(self, x: Floats) -> Floats:
        return x @ (self._single if x.dtype == np.float32 else self._double)

    def apply_sparse(self, x: sparse.csr_matrix) -> Floats:
        product: Any = x.astype(np.float64) @ self._double
        return np.asarray(product)
