"""OPORP: one permutation, fixed-length bins, one vector of random signs (Li & Li 2023, Alg. 4)."""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np
import numpy.typing as npt
import scipy

from dpindex.base.arrays import Floats
from dpindex.mechanism.projections.base import Projection, Sensitivity, check_size, scatter
from dpindex.randomness import PublicStream

_ATTRIBUTE_BYTES = 16
"""Bin and sign of an attribute; dense input needs the column and the sign of every place too."""


class Oporp(Projection):
    """``x_j = Σ_{i in bin j} w_i u_i`` with w_i = ±1; every attribute lies in exactly one bin.

    Changing one attribute by β changes one bin by β, so the L1 and the L2 sensitivity are both β.
    ``repetitions`` independent OPORPs of ``k / repetitions`` bins are concatenated; each is a
    mechanism of its own and gets an equal share of the budget.

    Parameters
    ----------
    dim : int
        Number of attributes p; padded with zeros to a multiple of the bins before permuting.
    k : int
        Total number of bins, a multiple of ``repetitions``, with k / repetitions ≤ dim.
    seed : int
        Public seed.
    """

    def __init__(self, dim: int, k: int, seed: int, repetitions: int = 1) -> None:
        check_size(dim, k, _ATTRIBUTE_BYTES * dim * repetitions)
        self.dim = dim
        self.k = k
        self.repetitions = repetitions
        self.bins = k // repetitions
        self.max_column_l1 = -(-dim // self.bins)
        self.scale = 1.0 / math.sqrt(repetitions)
        self.rms = 1.0 / math.sqrt(self.bins)
        # Li & Li 2023, Thm 3.10: fixed-length bins bring the factor (p−k)/(p−1), p after padding.
        padded = self.bins * self.max_column_l1
        self.inner_product_factor = (padded - self.bins) / max(1, padded - 1) / k
        self.sensitivity = Sensitivity.of_signs(repetitions)
        self._bins = np.empty((repetitions, dim), dtype=np.int32)
        self._signs = np.empty((repetitions, dim), dtype=np.int8)
        for repetition in range(repetitions):
            stream = PublicStream(seed, f"oporp/{dim}/{self.bins}/{repetition}")
            places = stream.permutation(self.bins * self.max_column_l1)
            # The attribute places[j·L + l] lies in bin j; padding attributes are left out.
            bin_of = np.empty(len(places), dtype=np.int32)
            bin_of[places] = np.arange(len(places)) // self.max_column_l1
            self._bins[repetition] = bin_of[:dim]
            self._signs[repetition] = stream.signs(dim)
        # Columns of one OPORP are orthogonal: the fullest bin decides.
        fullest = sum(int(np.bincount(bins).max()) for bins in self._bins)
        self.operator_norm = math.nextafter(math.sqrt(fullest), math.inf)

    @cached_property
    def _layout(self) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.float32]]:
        """Attributes and their signs by place, shape (repetitions, L, bins); sign 0 for padding."""
        columns = np.zeros((self.repetitions, self.max_column_l1, self.bins), dtype=np.intp)
        signs = np.zeros(columns.shape, dtype=np.float32)
        for repetition, bins in enumerate(self._bins):
            order = np.argsort(bins, kind="stable")
            sorted_bins = bins[order]
            starts = np.searchsorted(sorted_bins, np.arange(self.bins))
            slot = np.arange(self.dim) - starts[sorted_bins]
            columns[repetition, slot, sorted_bins] = order
            signs[repetition, slot, sorted_bins] = self._signs[repetition, order]
        return columns, signs

    def apply(self, x: Floats) -> Floats:
        columns, signs = self._layout
        out = np.empty((len(x), self.k), dtype=x.dtype)
        for repetition in range(self.repetitions):
            terms = np.take(x, columns[repetition].ravel(), axis=1, mode="wrap")
            terms = terms.reshape(len(x), self.max_column_l1, self.bins)
            target = out[:, repetition * self.bins : (repetition + 1) * self.bins]
            np.einsum("nlb,lb->nb", terms, signs[repetition], out=target)
        return out

    def apply_sparse(self, x: scipy.sparse.csr_matrix) -> Floats:
        offsets = np.arange(self.repetitions, dtype=np.int32) * np.int32(self.bins)
        places = self._bins[:, x.indices].T + offsets
        return scatter(x, places, self._signs[:, x.indices].T, self.k)
