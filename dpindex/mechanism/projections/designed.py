"""The projection of a design, in whole numbers."""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np
import scipy

from dpindex.base.arrays import Floats
from dpindex.mechanism.projections import Projection, RealisedSizes
from dpindex.mechanism.public_parts import ENTRY_BITS, Design


class Designed(Projection):
    """W of a design. Its centre is subtracted where vectors are projected, before the noise.

    Inner products of projected vectors estimate nothing: they are compared once decoded
    (:mod:`dpindex.similarity.designed`).
    """

    scale = 2.0**-ENTRY_BITS
    inner_product_factor = 0.0

    def __init__(self, design: Design) -> None:
        design.require()
        self.dim = design.dim
        self.k = design.code_length
        self._attributes = design.attributes
        self._entries = design.entries.astype(np.float64).T
        sizes = RealisedSizes(*self._entries.shape)
        sizes.add(design.entries.T, slice(None), slice(None))
        self.sensitivity = sizes.sensitivity
        self.largest = sizes.largest
        self.max_column_l1 = max(1, int(sizes.columns.max()))
        self.rms = math.sqrt(float(np.sum(self._entries**2)) / (self.dim * self.k))

    @cached_property
    def _single(self) -> Floats:
        return self._entries.astype(np.float32)

    def apply(self, x: Floats) -> Floats:
        used = x if len(self._attributes) == self.dim else x[:, self._attributes]
        return used @ (self._single if x.dtype == np.float32 else self._entries)

    def apply_sparse(self, x: scipy.sparse.csr_matrix) -> Floats:
        return np.asarray(x[:, self._attributes].astype(np.float64) @ self._entries)
