"""Dense projections: every coordinate sums all attributes with random weights.

Entries are integers, the same on every machine: public words are compared with integer thresholds,
never with the results of floating point functions, whose last bits differ between machines.
"""

from __future__ import annotations

import math
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import numpy as np
import scipy

from dpindex.base.arrays import (
    AnyArray,
    Doubles,
    Floats,
    Indices,
    Integers,
    Singles,
    on_sphere_grid,
    row_blocks,
)
from dpindex.base.errors import NoGuaranteeError
from dpindex.mechanism.codebooks import Codebook
from dpindex.mechanism.grid import Windows
from dpindex.mechanism.projections import (
    Projection,
    RealisedSizes,
    Sensitivity,
    check_size,
    scatter,
)
from dpindex.mechanism.public_parts import ENTRY_BITS, Design
from dpindex.mechanism.public_random import PublicStream

if TYPE_CHECKING:
    import mpmath


_PIECE = 1 << 20
_ROWS = 4096
_BLOCK_ENTRIES = 1 << 20
_ENTRY_BYTES = 4
_MAX_GRAM = 1 << 13
_GUARD_BITS = 64
_HALF = 1 << (_GUARD_BITS - 1)


@lru_cache(maxsize=8)  # an index and its queries, or several of one spec, have the same law
def upper_tails(
    sigma: float,
    bits: int,
    reach: int,
) -> tuple[int, ...]:
    """``2^bits · P(N(0, σ²) > z − ½)`` for z = 1 … reach, each within one unit.

    erfc in high precision is slow, so wide laws evaluate it once. From there Taylor's series
    ``Q(x+t) = Q(x) − φ(x) Σ (−1)^n He_n(x) t^{n+1}/(n+1)!`` runs in integers, from the middle of
    each block of an eighth of a deviation at most to its other points and to the next middle.
    """
    # Here: a search of codes draws no normal entries.
    import mpmath

    work = bits + _GUARD_BITS
    bend = max(0, math.frexp(sigma / 8)[1] - 1)
    block = 1 << bend
    with mpmath.workprec(work + _GUARD_BITS):

        def fixed(value: mpmath.mpf) -> int:
            return int(mpmath.ldexp(value, work))

        def point(z: int) -> mpmath.mpf:
            return (z - mpmath.mpf(0.5)) / sigma

        def tail(z: int) -> int:
            return fixed(mpmath.erfc(point(z) / mpmath.sqrt(2)) / 2)

        if sigma < 8:
            return tuple(tail(z) + _HALF >> _GUARD_BITS for z in range(1, reach + 1))
        middle = 1 + block // 2
        width = block / mpmath.mpf(sigma)
        x = point(middle)
        chance = tail(middle)
        density = fixed(width * mpmath.npdf(x))
        # The next density is so much lower, and this ratio falls from one middle to the next.
        ratio = fixed(mpmath.exp(-width * (x + width / 2)))
        fall = fixed(mpmath.exp(-width * width))
        step = fixed(x * width)
        square = fixed(width * width)
    tails: list[int] = []
    # What rounding adds in all these steps stays below 2^40 of the 2^64 that make a unit.
    for first in range(1, reach + 1, block):
        series = _taylor(step, square, density, work)
        for offset in range(first - middle, first - middle + block):
            total = 0
            for coefficient in reversed(series):
                total = (total + coefficient) * offset >> bend
            tails.append(chance + total + _HALF >> _GUARD_BITS)
        middle += block
        chance += sum(series)
        density = density * ratio >> work
        ratio = ratio * fall >> work
        step += square
    return tuple(tails[:reach])


def _taylor(
    step: int,
    square: int,
    density: int,
    work: int,
) -> list[int]:
    """Coefficients of ``Q(x + u·width) − Q(x)`` in powers u, u², … for |u| ≤ 1, times 2^work.

    They follow from ``He_{n+1}(x) = x He_n(x) − n He_{n−1}(x)``, each with its power of the width
    and its factorial; ``step`` is x·width, ``square`` width², and ``density`` φ(x)·width.
    """
    before = 0
    term = -density
    series: list[int] = []
    while term or before:
        series.append(term)
        n = len(series)
        change = step * term + (n - 1) * square // n * before
        before = term
        term = -(change >> work) // (n + 1)
    return series


class Matrix(Projection):
    """A map that is kept whole.

    Parameters
    ----------
    entries : array of whole numbers, shape (dim, k)
    """

    scale = 1.0
    inner_product_factor = 0.0

    def __init__(self, entries: AnyArray) -> None:
        self.dim, self.k = entries.shape
        self.entries = entries
        sizes = RealisedSizes(self.dim, self.k)
        for attributes in row_blocks(self.dim, _BLOCK_ENTRIES // self.k):
            sizes.add(entries[attributes], attributes, slice(None))
        self.sensitivity = sizes.sensitivity
        self.max_column_l1 = max(1, int(sizes.columns.max()))
        self.largest = sizes.largest

    @cached_property
    def operator_norm(self) -> float:
        return operator_norm(self.entries)

    @cached_property
    def single(self) -> Singles:
        return self.entries.astype(np.float32)

    @cached_property
    def _double(self) -> Doubles:
        return self.entries.astype(np.float64)

    def apply(self, x: Floats) -> Floats:
        return x @ (self.single if x.dtype == np.float32 else self._double)

    def apply_sparse(self, x: scipy.sparse.csr_matrix) -> Floats:
        return np.asarray(x.astype(np.float64) @ self._double)


class Designed(Matrix):
    """W of a design. Its centre is subtracted where vectors are projected, before the noise.

    Inner products of projected vectors estimate nothing: they are compared once decoded
    (:mod:`dpindex.decode.designed`).
    """

    scale = 2.0**-ENTRY_BITS
    # With entries of 8 bits most sums then stay below 2^24, where float32 is exact. Rounding adds
    # β²/786432 for each attribute: less than 1 % of the noise up to an epsilon of 32.
    grid_bits = 8

    def __init__(self, design: Design) -> None:
        design.require()
        size = _ENTRY_BYTES * design.entries.size
        check_size(design.dim, design.code_length, size, "take a design of fewer attributes")
        super().__init__(design.entries.T)
        self.dim = design.dim
        self._attributes = design.attributes
        if design.windows is not None:
            self.windows = design.windows.spread(design.attributes, design.dim)
        used = len(self._attributes) / self.dim
        mean_square = float(np.mean(self._double**2)) * used
        self.rms = math.sqrt(mean_square)

    def apply(self, x: Floats) -> Floats:
        if 2 * len(self._attributes) < self.dim:
            return super().apply(x[:, self._attributes])
        # Sums are of integers and exact, so zeros for the others change none. To take columns out
        # of rows would take a fifth of the time of an encoder.
        return x @ (self._of_all if x.dtype == np.float32 else self._of_all.astype(np.float64))

    @cached_property
    def _of_all(self) -> Singles:
        """Entries of all attributes, 0 where the design uses none, shape (dim, k)."""
        entries = np.zeros((self.dim, self.k), dtype=np.float32)
        entries[self._attributes] = self.entries
        return entries

    def apply_sparse(self, x: scipy.sparse.csr_matrix) -> Floats:
        return super().apply_sparse(x[:, self._attributes])


_LEVELS = 31
"""Largest entry of weights that are no signs."""


class CodewordScores(Matrix):
    """Scores of all codewords, without their offsets: a linear map to K whole numbers.

    For one attribute ``w_ic`` is 1 where codeword c lies above the public median of attribute i,
    else 0: every attribute has all of the range that epsilon pays for, and a change by beta moves
    two scores apart by one beta. For a ball the weights are the codeword itself, rounded: there the
    distance of two codewords counts.

    Parameters
    ----------
    codebook : Codebook
    signs : bool
        Whether the weights are 0 and 1.
    windows : float and float, optional
        Half the width of windows about the medians, in deviations of the codewords, and beta.
    scale : float
        Divisor of attributes, and so of the codewords, before they are clipped.
    """

    rms = 1.0
    block_numbers = 1 << 22  # all weights are read for every block

    def __init__(
        self,
        codebook: Codebook,
        signs: bool,
        windows: tuple[float, float] | None = None,
        scale: float = 1.0,
    ) -> None:
        if signs:
            medians = np.median(codebook.stated, axis=0)
            weights = (codebook.stated > medians).astype(np.float32)
        else:
            grid = on_sphere_grid(codebook.stated)
            largest = np.abs(grid).max()
            weights = np.rint(grid * np.float32(_LEVELS) / largest)
        super().__init__(np.ascontiguousarray(weights.T))
        if windows is not None:
            words = codebook.stated.astype(np.float64) / scale
            self.windows = Windows.of_sample(words, *windows)
        self.max_column_l1 *= 4  # an offset, no larger than a score can be, and a difference of two

    @cached_property
    def spread(self) -> int:
        """The most that two scores move apart when one attribute changes by one, at least 1."""
        apart = np.ptp(self.single, axis=1)
        return max(1, int(apart.max()))

    @cached_property
    def distance(self) -> float:
        """The most that two scores move apart in a unit ball: ``max ‖w_c − w_c'‖₂``, at least 1."""
        wide = self._double
        squares = np.einsum("ij,ij->j", wide, wide)
        largest = 1.0
        for block in row_blocks(self.k, _BLOCK_ENTRIES // self.k):  # whole numbers: sums are exact
            products = wide[:, block].T @ wide
            apart = squares[block, None] + squares - 2.0 * products
            largest = max(largest, float(apart.max()))
        return math.nextafter(math.sqrt(largest), math.inf)


codeword_scores = lru_cache(maxsize=8)(CodewordScores)
"""The map of a codebook, which all specs that name it share."""


def operator_norm(entries: Integers) -> float:
    """A rigorous upper bound on the largest singular value, above it by less than 1e-8.

    The Gram matrix G of integers is exact in float64. For a t just above its largest eigenvalue the
    Cholesky factorisation of ``t·I − G`` is run: if it succeeds in floating point, the exact matrix
    is positive semidefinite up to ``2(n+2)·u·tr`` (Rump 2006, Thm 2.3), so no eigenvalue exceeds
    t by more than that.
    """
    narrow = entries
    if entries.shape[1] > entries.shape[0]:
        narrow = entries.T
    size = narrow.shape[1]
    if size > _MAX_GRAM:
        raise NoGuaranteeError(
            f"the norm of a {entries.shape[0]} × {entries.shape[1]} map takes too long to bound; "
            f"lower dim or k to {_MAX_GRAM}, or use row-oporp-g."
        )
    gram = np.zeros((size, size))
    for rows in row_blocks(len(narrow), _ROWS):
        block = narrow[rows].astype(np.float64)
        gram += block.T @ block
    *_, largest = np.linalg.eigvalsh(gram).tolist()
    top = max(1.0, largest)
    margin = 1e-9
    while True:
        bound = top * (1.0 + margin)
        try:
            np.linalg.cholesky(bound * np.eye(size) - gram)
        except np.linalg.LinAlgError:
            margin *= 2.0
            continue
        slack = 4.0 * (size + 2) * 2.0**-53 * size * bound
        return math.sqrt(bound + slack) * (1.0 + 1e-15)


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

    def __init__(
        self,
        dim: int,
        k: int,
        seed: int,
        repetitions: int = 1,
    ) -> None:
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
        variance = (padded - self.bins) / max(1, padded - 1)
        self.inner_product_factor = variance / k
        self.sensitivity = Sensitivity.of_signs(repetitions)
        self._bins = np.empty((repetitions, dim), dtype=np.int32)
        self.signs = np.empty((repetitions, dim), dtype=np.int8)
        fullest = 0
        for repetition in range(repetitions):
            stream = PublicStream(seed, f"oporp/{dim}/{self.bins}/{repetition}")
            places = stream.permutation(padded)
            # The attribute places[j·L + l] lies in bin j; padding attributes are left out.
            bin_of = np.empty(padded, dtype=np.int32)
            bin_of[places] = np.repeat(np.arange(self.bins, dtype=np.int32), self.max_column_l1)
            self._bins[repetition] = bin_of[:dim]
            self.signs[repetition] = stream.signs(dim)
            # Columns of one OPORP are orthogonal: the bin with the least padding decides.
            padding = np.bincount(bin_of[dim:], minlength=self.bins)
            fullest += self.max_column_l1 - int(padding.min())
        self.operator_norm = math.nextafter(math.sqrt(fullest), math.inf)

    @cached_property
    def _layout(self) -> tuple[Indices, Singles]:
        """Attributes and their signs by place, shape (repetitions, L, bins); sign 0 for padding."""
        shape = (self.repetitions, self.max_column_l1, self.bins)
        columns = np.zeros(shape, dtype=np.intp)
        signs = np.zeros(shape, dtype=np.float32)
        for repetition, bins in enumerate(self._bins):
            order = np.argsort(bins, kind="stable")
            sorted_bins = bins[order]
            starts = np.searchsorted(sorted_bins, np.arange(self.bins))
            slot = np.arange(self.dim) - starts[sorted_bins]
            columns[repetition, slot, sorted_bins] = order
            signs[repetition, slot, sorted_bins] = self.signs[repetition, order]
        return columns, signs

    def apply(self, x: Floats) -> Floats:
        columns, signs = self._layout
        out = np.empty((len(x), self.k), dtype=x.dtype)
        for repetition in range(self.repetitions):
            first = repetition * self.bins
            terms = np.take(x, columns[repetition].ravel(), axis=1, mode="wrap")
            terms = terms.reshape(len(x), self.max_column_l1, self.bins)
            target = out[:, first : first + self.bins]
            np.einsum("nlb,lb->nb", terms, signs[repetition], out=target)
        return out

    def apply_sparse(self, x: scipy.sparse.csr_matrix) -> Floats:
        first_bins = np.arange(self.repetitions, dtype=np.int32) * np.int32(self.bins)
        places = self._bins[:, x.indices].T + first_bins
        signs = self.signs[:, x.indices].T
        return scatter(x, places, signs, self.k)
