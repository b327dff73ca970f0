"""The projection of a design, in whole numbers."""

from __future__ import annotations

import math

import numpy as np
import scipy

from dpindex.base.arrays import Floats
from dpindex.mechanism.projections.dense import Matrix
from dpindex.mechanism.public_parts import ENTRY_BITS, Design


class Designed(Matrix):
    """W of a design. Its centre is subtracted where vectors are projected, before the noise.

    Inner products of projected vectors estimate nothing: they are compared once decoded
    (:mod:`dpindex.similarity.designed`).
    """

    scale = 2.0**-ENTRY_BITS
    # With entries of 8 bits most sums then stay below 2^24, where float32 is exact. Rounding adds
    # β²/786432 for each attribute: less than 1 % of the noise up to an epsilon of 32.
    grid_bits = 8

    def __init__(self, design: Design) -> None:
        design.require()
        super().__init__(design.entries.T)
        self.dim = design.dim
        self._attributes = design.attributes
        self.rms = math.sqrt(float(np.mean(self._double**2)) * len(self._attributes) / self.dim)

    def apply(self, x: Floats) -> Floats:
        return super().apply(x if len(self._attributes) == self.dim else x[:, self._attributes])

    def apply_sparse(self, x: scipy.sparse.csr_matrix) -> Floats:
        return super().apply_sparse(x[:, self._attributes])
