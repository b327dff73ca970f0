"""Gaussian noise rounded to the grid, with the optimal sigma of Balle & Wang (2018)."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise

import mpmath
import numpy as np
import numpy.typing as npt

from dpindex.noise.additive import AdditiveNoise
from dpindex.noise.law import GRID_BITS, check_deviation
from dpindex.noise.tables import CellTable, Profile, binned_profile
from dpindex.normal import upper_tails
from dpindex.randomness import BitSource

__all__ = [
    "TwoDigitGaussian", "discrete_gaussian_table", "gaussian_cells", "gaussian_table",
    "optimal_sigma", "rounded_gaussian", "safe_delta", "safe_sigma", "table_distance",
]  # fmt: skip

_CELLS_PER_DEVIATION = 32
_WIDEST_TABLE = 1024.0
"""Deviation in cells beyond which the noise is drawn in two digits."""

_SAFETY = 1e-9
_DELTA_FOR_ROUNDING = 2.0**-30
"""Share of delta that is left for the finite precision of the table."""


def safe_delta(delta: float) -> float:
    """The part of delta that a calibration may spend; the rest pays for the table's precision."""
    return delta * (1.0 - _DELTA_FOR_ROUNDING)


def safe_sigma(sigma: float) -> float:
    """``sigma`` rounded up by 1e-9, so that rounding errs on the safe side."""
    return sigma * (1.0 + _SAFETY)


@lru_cache(maxsize=256)
def optimal_sigma(epsilon: float, delta: float) -> float:
    """Smallest sigma of the Gaussian mechanism at L2 sensitivity 1, rounded up by 1e-9.

    Balle & Wang 2018, Thm 8 (Li & Li 2023, Thm 3.5): the smallest σ with
    ``Φ(1/2σ − εσ) − e^ε Φ(−1/2σ − εσ) ≤ δ``.

    >>> round(optimal_sigma(1.0, 1e-6), 6)
    4.224679
    """
    from dp_accounting import get_sigma_gaussian  # here: the import alone takes two seconds

    return safe_sigma(float(get_sigma_gaussian(epsilon=epsilon, delta=safe_delta(delta))))


def gaussian_table(
    sigma: float, epsilon: float, delta: float, code_length: int, cell_bits: int
) -> CellTable:
    """``round(N(0, σ²))`` with σ in cells, as exact integer masses.

    On integers ``round(x + N) = x + round(N)``, so the law is post-processing of the continuous
    mechanism and Balle & Wang's theorem holds for it in every dimension. Each mass is
    off by at most two units of 2^-bits; the bits are chosen such that this costs less than the
    share ``2⁻³⁰`` of delta that ``safe_delta`` held back, over all ``code_length`` coordinates.
    """
    bits = _table_bits(epsilon, delta, code_length)
    reach = math.ceil(sigma * math.sqrt(2 * math.log(2) * bits)) + 1
    # Masses are differences of upper tails beyond z − ½, symmetric exactly.
    side = [above - beyond for above, beyond in pairwise([*upper_tails(sigma, bits, reach), 0])]
    return _symmetric(side, bits, cell_bits)


def _symmetric(side: list[int], bits: int, cell_bits: int = 0) -> CellTable:
    """The table with masses ``side`` at 1, 2, …, the same at −1, −2, …, and the rest at 0."""
    while side[-1] == 0:
        side.pop()
    masses = [*reversed(side), (1 << bits) - 2 * sum(side), *side]
    return CellTable(masses, first=-len(side), bits=bits, cell_bits=cell_bits)


def _table_bits(epsilon: float, delta: float, code_length: int) -> int:
    need = 1.4427 * epsilon + math.log2(1 / delta) + math.log2(code_length) + 30 + 24
    return 64 * math.ceil(need / 64)


def discrete_gaussian_table(sigma: float, bits: int) -> CellTable:
    """``P(c) ∝ e^{−c²/2σ²}`` on the integers, each mass within two units of 2^-bits."""
    reach = math.ceil(sigma * math.sqrt(2 * math.log(2) * bits)) + 1
    with mpmath.workprec(bits + 64):
        scale = -1 / (2 * mpmath.mpf(sigma) ** 2)
        weights = [mpmath.exp(scale * (c * c)) for c in range(1, reach + 1)]
        unit = mpmath.ldexp(1, bits) / (1 + 2 * mpmath.fsum(weights))
        return _symmetric([int(mpmath.nint(unit * weight)) for weight in weights], bits)


class TwoDigitGaussian:
    """``N(0, σ²)`` rounded to cells, σ² = 4^digit·σ₁² + σ₂²: discrete plus rounded Gaussian.

    *Why it is the Gaussian mechanism.* Let L = 2^digit, C discrete Gaussian on the integers and N
    continuous with deviation σ₂. Completing the square and Poisson summation give ``L·C + N`` the
    density of ``N(0, σ²)`` times a factor within ``1 ± 2.1·e^{−2π²(τ/L)²}``, ``τ = σ₂·Lσ₁/σ``
    (Micciancio & Regev 2007, Lemma 3.3; Peikert 2010, Thm 3.1). With ``σ₂ = 4L`` and σ₁ ≥ σ₂/2 it
    is ``τ ≥ 3.5L`` and the factor is within 10⁻¹⁰⁰ of 1, far below the share of delta held back
    for finite precision. On integers ``round(x + L·C + N) = x + L·C + round(N)``, so adding the two
    digits is post-processing of adding that continuous noise.
    """

    offset = 0.0

    def __init__(self, coarse: CellTable, fine: CellTable, digit: int) -> None:
        self.coarse, self.fine, self.digit = coarse, fine, digit
        self.cell_bits = fine.cell_bits

    def sample(self, count: int, stream: BitSource) -> npt.NDArray[np.int64]:
        """``count`` independent draws, int64, with a uniform offset inside each cell."""
        draws = self.coarse.sample(count, stream).astype(np.int64)
        draws <<= self.digit + self.cell_bits
        draws += self.fine.sample(count, stream)
        return draws

    def moments(self) -> tuple[float, float]:
        """Variance and fourth central moment of a draw, in squared (fourth-power) cells."""
        base = float(1 << self.digit)
        coarse, coarse_fourth = self.coarse.moments()
        fine, fine_fourth = self.fine.moments()
        coarse, coarse_fourth = coarse * base**2, coarse_fourth * base**4
        return coarse + fine, coarse_fourth + 6 * coarse * fine + fine_fourth

    def profile(self) -> Profile:
        """The normal law of that deviation."""
        return binned_profile(self.moments()[0], lambda t: -(t**2) / 2)


def table_distance(law: object) -> Fraction:
    """Bound on the distance of one coordinate's noise from a rounded normal, in total variation.

    Half the sum of what masses are off, two units at most, and the tails cut off, below one unit.
    """
    source = getattr(law, "source", None)
    if isinstance(source, CellTable):
        return Fraction(len(source.masses) + 1, 1 << source.bits)
    if isinstance(source, TwoDigitGaussian):
        tables = (source.coarse, source.fine)
        return sum((Fraction(len(t.masses) + 1, 1 << t.bits) for t in tables), Fraction(1, 10**100))
    raise TypeError("this law is no rounded normal law")


def gaussian_cells(
    sigma: float, epsilon: float, delta: float, code_length: int, *, cell_bits: int, grid_bits: int
) -> AdditiveNoise:
    """Rounded Gaussian noise with ``sigma`` in cells of ``2^cell_bits`` grid steps."""
    check_deviation(sigma)
    if sigma <= _WIDEST_TABLE:
        table = gaussian_table(sigma, epsilon, delta, code_length, cell_bits)
        return AdditiveNoise(table, grid_bits)
    digit = max(1, round(math.log2(math.sqrt(sigma) / 2)))
    fine_sigma = 4.0 * (1 << digit)
    coarse_sigma = math.sqrt(sigma**2 - fine_sigma**2) / (1 << digit) * (1 + 2.0**-40)
    bits = _table_bits(epsilon, delta, code_length)
    fine = gaussian_table(fine_sigma, epsilon, delta, code_length, cell_bits)
    coarse = discrete_gaussian_table(coarse_sigma, bits)
    return AdditiveNoise(TwoDigitGaussian(coarse, fine, digit), grid_bits)


@lru_cache(maxsize=64)
def rounded_gaussian(sigma: float, epsilon: float, delta: float, code_length: int) -> AdditiveNoise:
    """Rounded Gaussian noise with ``sigma`` in betas, for attribute adjacency.

    A beta is a whole number of cells, and every entry of the projection is an integer, so a change
    of at most one beta moves coordinate j by at most ``|w_ij|`` times that many whole cells,
    whatever the dither: rounding adds nothing to the sensitivity.
    """
    cells_bits = max(0, math.ceil(math.log2(_CELLS_PER_DEVIATION / sigma)))
    grid_bits = max(GRID_BITS, cells_bits)
    cell_bits = grid_bits - cells_bits
    cells, bits = sigma * (1 << cells_bits), {"cell_bits": cell_bits, "grid_bits": grid_bits}
    return gaussian_cells(cells, epsilon, delta, code_length, **bits)
