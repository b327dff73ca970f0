"""Similarities of vectors to the codewords of a public codebook, exact on an integer grid."""

from __future__ import annotations

import numpy as np
import scipy

from dpindex.base.arrays import Floats, row_blocks
from dpindex.mechanism.codebook import RADIUS, Codebook, on_sphere_grid
from dpindex.mechanism.projections.base import Projection, Sensitivity

_SPARSE_ROWS = 1024


class CodewordMap(Projection):
    """Inner products of a vector's direction with all codewords: shape (n, dim) to (n, K).

    Directions and codewords are whole numbers, so the inner products are exact in any order and on
    any machine; times ``scale`` they are cosines.
    """

    max_column_l1 = 1
    sensitivity = Sensitivity.of_signs(1)
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
        return on_sphere_grid(x) @ self.codebook.grid

    def apply_sparse(self, x: scipy.sparse.csr_matrix) -> Floats:
        blocks = row_blocks(x.shape[0], _SPARSE_ROWS)
        return np.concatenate([self.apply(x[rows].toarray()) for rows in blocks])
