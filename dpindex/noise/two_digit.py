"""Laws too wide for one table, drawn in two digits: ``2^digit · coarse + fine``.

Cells must be fine where many coordinates move at once, and the deviation is then thousands of them.
Two small tables give such a law exactly as one large table would.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import numpy.typing as npt

from dpindex.arrays import AnyArray
from dpindex.noise.geometric import geometric_table
from dpindex.noise.tables import CellTable
from dpindex.randomness import BitSource

__all__ = ["TwoDigitGaussian", "TwoDigitLaplace", "discrete_gaussian_table"]

_KEY_BITS = 64
_RATIO_BITS = 384
_BINS_PER_DEVIATION, _DEVIATIONS = 32, 12

Profile = tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], float]


def discrete_gaussian_table(sigma: float, bits: int) -> CellTable:
    """``P(c) ∝ e^{−c²/2σ²}`` on the integers, each mass within two units of 2^-bits."""
    reach = math.ceil(sigma * math.sqrt(2 * math.log(2) * bits)) + 1
    with mpmath.workprec(bits + 64):
        scale = -1 / (2 * mpmath.mpf(sigma) ** 2)
        weights = [mpmath.exp(scale * (c * c)) for c in range(1, reach + 1)]
        unit = mpmath.ldexp(1, bits) / (1 + 2 * mpmath.fsum(weights))
        side = [int(mpmath.nint(unit * weight)) for weight in weights]
    return CellTable.symmetric(side, bits)


def _profile(variance: float, log_density: Callable[[AnyArray], AnyArray]) -> Profile:
    """The continuous law behind a source, in bins of 1/32 deviation out to twelve deviations."""
    reach = _BINS_PER_DEVIATION * _DEVIATIONS
    values = np.arange(-reach, reach + 1.0)
    masses = np.exp(log_density(values / _BINS_PER_DEVIATION))
    return values, masses / masses.sum(), math.sqrt(variance) / _BINS_PER_DEVIATION


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
        return _profile(self.moments()[0], lambda t: -(t**2) / 2)


class TwoDigitLaplace:
    """``P(a) ∝ e^{−drop·a}`` on the magnitude a of a law symmetric about −½, in two digits.

    ``a = 2^digit·b + c``: for a geometric law the digits are independent. Masses of the low digit
    fall by at most e^drop from one to the next; the high digit falls by at most
    ``e^drop·P(c=0)/P(c=last)``, so the step from ``(b, last)`` to ``(b+1, 0)`` loses at most e^drop
    too: the ratio holds for the implemented integers at every step, hence over any distance.
    """

    offset = 0.5

    def __init__(self, drop: mpmath.mpf, cell_bits: int) -> None:
        self.drop = drop
        self.cell_bits = cell_bits
        self.digit = math.ceil(-math.log2(float(drop)) / 2)
        low = _falling(drop, 1 << self.digit)
        self.low = CellTable(low, first=0, cell_bits=cell_bits)
        with mpmath.workprec(_RATIO_BITS):
            fall = drop + mpmath.log(mpmath.mpf(low[0]) / low[-1])
            self.high = geometric_table(fall * (1 - mpmath.ldexp(1, 64 - _RATIO_BITS)), 1, 1, 0)

    def sample(self, count: int, stream: BitSource) -> npt.NDArray[np.int64]:
        """``count`` independent draws, int64, with a uniform offset inside each cell."""
        high: npt.NDArray[Any] = self.high.sample(count, stream).astype(np.int64)
        magnitude = np.where(high < 0, ~high, high) << (self.digit + self.cell_bits)
        magnitude += self.low.sample(count, stream)
        return np.where(high < 0, ~magnitude, magnitude)

    def moments(self) -> tuple[float, float]:
        """Variance and fourth central moment of a draw, in squared (fourth-power) cells."""
        with mpmath.workprec(_RATIO_BITS):
            q, rest = mpmath.exp(-self.drop), -mpmath.expm1(-self.drop)
            # Moments of the geometric law, about 0 and then about −½.
            m1, m2 = q / rest, q * (1 + q) / rest**2
            m3, m4 = q * (1 + 4 * q + q**2) / rest**3, q * (1 + 11 * q + 11 * q**2 + q**3) / rest**4
            fourth = m4 + 2 * m3 + 3 * m2 / 2 + m1 / 2 + mpmath.mpf(1) / 16
            return float(m2 + m1 + mpmath.mpf(1) / 4), float(fourth)

    def profile(self) -> Profile:
        """Laplace's law of that deviation."""
        return _profile(self.moments()[0], lambda t: -math.sqrt(2) * np.abs(t))


def _falling(drop: mpmath.mpf, count: int) -> list[int]:
    """``count`` masses adding up to 2^64, each at least ``e^−drop`` times the one before."""
    with mpmath.workprec(_RATIO_BITS + 64):
        ratio = mpmath.exp(-drop)
        ratio_up = int(mpmath.ceil(mpmath.ldexp(ratio, _RATIO_BITS)))
        start = int(mpmath.floor(mpmath.ldexp(1 - ratio, _KEY_BITS) / (1 - ratio**count)))
    slack = 1
    while True:
        masses = [start - slack]
        for _ in range(count - 1):
            masses.append(-(-masses[-1] * ratio_up >> _RATIO_BITS))
        left = (1 << _KEY_BITS) - sum(masses)
        if left >= 0:
            break
        slack *= 2
    masses[-1] += left  # a larger last mass only brings it closer to the one before
    return masses
