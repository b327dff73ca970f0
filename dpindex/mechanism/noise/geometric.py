"""Laplace and staircase laws: pure epsilon, masses that fall by a constant factor, exact integers.

On either side of −½ a magnitude a = 0, 1, 2, … lies on level 0 for its first ``inner`` cells and
on level j for the j-th ``width`` cells after those; ``P(a) ∝ e^{−drop·level(a)}``. With ``width``
equal to the sensitivity this is the staircase law (Geng & Viswanath 2014), with
``width = inner = 1`` the Laplace law rounded down to the grid.
"""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import accumulate, repeat
from typing import Any

import mpmath
import numpy as np
import numpy.typing as npt

from dpindex.mechanism.codes import NumberFormat
from dpindex.mechanism.noise.additive import AdditiveNoise
from dpindex.mechanism.noise.law import GRID_BITS, Calibration, check_deviation
from dpindex.mechanism.noise.tables import CellTable, Profile, binned_profile
from dpindex.mechanism.parameters import Parameters
from dpindex.mechanism.projections import Projection
from dpindex.randomness import BitSource

_BITS = 64
_RATIO_BITS = 320
_FINE_BITS = 384
_CELLS_PER_DEVIATION = 32
_INNER_CELLS = 8.0
_MAX_CELLS_BITS = 14
_MIN_DROP = 2.0**-10
"""Below this loss a cell, Laplace noise is drawn in two digits."""

_TAIL = 2.0**-20
"""A table covers all but about this much; beyond it the law repeats itself, shifted."""


def _chained(first: int, ratio: int, bits: int, count: int) -> list[int]:
    """``first`` and ``count`` more, each ``ratio / 2^bits`` times the one before, rounded up."""
    return list(accumulate(repeat(ratio, count), lambda m, r: -(-m * r >> bits), initial=first))


def geometric_table(drop: mpmath.mpf, width: int, inner: int, cell_bits: int) -> CellTable:
    """The two-sided law by levels as a table, rounded so that its ratio e^drop holds in integers.

    Parameters
    ----------
    drop : mpf
        Natural logarithm of the fall from one level to the next, (0, ∞).
    width, inner : int
        Cells on a level, and on level 0 (each side), 1 ≤ inner ≤ width.
    cell_bits : int
        Width of a cell, passed on to the sampler.

    Every mass is at least ``e^−drop`` times the one a level above it, and the tail restarts the
    table at no less than the level it replaces, and at most e^drop times that. So
    ``P(z) ≤ e^drop · P(z')`` holds for the implemented integers whenever z and z' are at most
    ``width`` cells apart; where 64 bits are too coarse for that, ValueError.
    """
    with mpmath.workprec(_RATIO_BITS + 64):
        ratio = mpmath.exp(-mpmath.mpf(drop))
        ratio_up = int(mpmath.ceil(mpmath.ldexp(ratio, _RATIO_BITS)))
        half = 1 << (_BITS - 1)
        start = int(mpmath.floor(half * (1 - ratio) / (inner + (width - inner) * ratio)))
    levels = max(1, math.ceil(-math.log(_TAIL) / float(drop)))
    cells_on = [inner] + [width] * (levels - 1) + [width - inner]
    slack = 1
    while True:
        by_level = _chained(start - slack, ratio_up, _RATIO_BITS, levels)
        tail = half - sum(cells * mass for cells, mass in zip(cells_on, by_level, strict=True))
        # The restarted level 0 has mass by_level[0]·tail/half and must not fall short of level K.
        missing = by_level[levels] * half - tail * by_level[0]
        if missing <= 0:
            break
        # A unit of slack adds (half − tail)/by_level[0] to the tail: no more than needed, for a
        # tail too heavy would break the ratio from below.
        slack += -(-missing // (half - tail))
    if tail * by_level[0] * ratio_up > by_level[levels] * half << _RATIO_BITS:
        raise ValueError(f"masses of {_BITS} bits are too coarse for a drop of {float(drop):g}")
    side = [mass for cells, mass in zip(cells_on, by_level, strict=True) for _ in range(cells)]
    masses = [tail, *reversed(side), *side, tail]
    return CellTable(masses, first=-len(side) - 1, bits=_BITS, cell_bits=cell_bits, tails=True)


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
        with mpmath.workprec(_FINE_BITS):
            fall = drop + mpmath.log(mpmath.mpf(low[0]) / low[-1])
            self.high = geometric_table(fall * (1 - mpmath.ldexp(1, 64 - _FINE_BITS)), 1, 1, 0)

    def sample(self, count: int, stream: BitSource) -> npt.NDArray[np.int64]:
        """``count`` independent draws, int64, with a uniform offset inside each cell."""
        high: npt.NDArray[Any] = self.high.sample(count, stream).astype(np.int64)
        magnitude = np.where(high < 0, ~high, high) << (self.digit + self.cell_bits)
        magnitude += self.low.sample(count, stream)
        return np.where(high < 0, ~magnitude, magnitude)

    def moments(self) -> tuple[float, float]:
        """Variance and fourth central moment of a draw, in squared (fourth-power) cells."""
        with mpmath.workprec(_FINE_BITS):
            q = mpmath.exp(-self.drop)
            complement = -mpmath.expm1(-self.drop)
            # Moments of the geometric law, about 0 and then about −½.
            m1 = q / complement
            m2 = q * (1 + q) / complement**2
            m3 = q * (1 + 4 * q + q**2) / complement**3
            m4 = q * (1 + 11 * q + 11 * q**2 + q**3) / complement**4
            fourth = m4 + 2 * m3 + 3 * m2 / 2 + m1 / 2 + mpmath.mpf(1) / 16
            return float(m2 + m1 + mpmath.mpf(1) / 4), float(fourth)

    def profile(self) -> Profile:
        """Laplace's law of that deviation."""
        return binned_profile(self.moments()[0], lambda t: -math.sqrt(2) * np.abs(t))


def _falling(drop: mpmath.mpf, count: int) -> list[int]:
    """``count`` masses adding up to 2^64, each at least ``e^−drop`` times the one before."""
    with mpmath.workprec(_FINE_BITS + 64):
        ratio = mpmath.exp(-drop)
        ratio_up = int(mpmath.ceil(mpmath.ldexp(ratio, _FINE_BITS)))
        start = int(mpmath.floor(mpmath.ldexp(1 - ratio, _BITS) / (1 - ratio**count)))
    slack = 1
    while True:
        masses = _chained(start - slack, ratio_up, _FINE_BITS, count - 1)
        left = (1 << _BITS) - sum(masses)
        if left >= 0:
            break
        slack *= 2
    masses[-1] += left  # a larger last mass only brings it closer to the one before
    return masses


@lru_cache(maxsize=64)
def laplace_noise(epsilon: float, sensitivity: int = 1) -> AdditiveNoise:
    """Noise ``P(a) ∝ e^{−ε·a/(N·sensitivity)}`` on the magnitude a in cells, N cells per beta.

    Laplace mechanism (Dwork et al. 2006; Li & Li 2023, Thm 2.1) with an L1 sensitivity of so many
    betas: 1 for raw data and OPORP under attribute adjacency, else the largest row sum
    ``Σ_j|w_ij|`` of the projection's integers. A beta is N whole cells, so coordinate j moves by at
    most ``N·|w_ij|`` cells whatever the dither, and all together by ``N·sensitivity``: rounding
    adds nothing. ``⌊Laplace⌋`` on an integer grid is post-processing of the continuous mechanism;
    the tables keep the ratio in exact integers.
    """
    finest = _CELLS_PER_DEVIATION * epsilon / (math.sqrt(2) * sensitivity)
    cells_bits = max(0, math.ceil(math.log2(finest)))
    cells = 1 << cells_bits
    grid_bits = max(GRID_BITS, cells_bits)
    check_deviation(cells * math.sqrt(2) * sensitivity / epsilon)
    with mpmath.workprec(400):
        drop = mpmath.mpf(epsilon) / (cells * sensitivity)
    cell_bits = grid_bits - cells_bits
    if drop < _MIN_DROP:
        return AdditiveNoise(TwoDigitLaplace(drop, cell_bits), grid_bits)
    return AdditiveNoise(geometric_table(drop, 1, 1, cell_bits), grid_bits)


def _calibrated(parameters: Parameters, projection: Projection) -> AdditiveNoise:
    """``Lap(Δ₁/ε)``, Δ₁ the largest row sum of the realised map (Li & Li 2023, Alg. 2, Eq. 12)."""
    return laplace_noise(parameters.budget, projection.sensitivity.l1)


LAPLACE = Calibration(_calibrated, NumberFormat)


def min_variance_share(epsilon: float) -> float:
    """h/N of the staircase law with the least variance, in (0, ½).

    Geng & Viswanath 2014 (the optimal γ for noise power), with b = e^−ε:
    ``γ = −b/(1−b) + (b − 2b² + 2b⁴ − b⁵)^⅓ / (2^⅓ (1−b)²)``. The better known
    ``1/(1+e^{ε/2})`` is the best for E|noise| instead; at ε = 5 its variance is 25 % larger, at
    ε = 10 2.7 times. In double precision the formula cancels below ε = 0.05, where both are ½.

    >>> round(min_variance_share(5.0), 4)
    0.1445
    """
    if epsilon < 0.05:
        return 1.0 / (1.0 + math.exp(epsilon / 2))
    b = math.exp(-epsilon)
    root = ((b - 2 * b**2 + 2 * b**4 - b**5) / 2) ** (1 / 3)
    return float(root / (1 - b) ** 2 - b / (1 - b))


@lru_cache(maxsize=64)
def staircase_noise(epsilon: float) -> AdditiveNoise:
    """Staircase noise (Geng & Viswanath 2014) for a shift of one beta in one coordinate.

    Level 0 reaches h cells to either side of −½, and every further N cells (one beta) lose a factor
    e^ε. Any h is ε-DP for shifts up to N *in one coordinate*; :func:`min_variance_share` gives
    the best h/N. Unlike Laplace noise, a small shift may cost the whole epsilon, so a change spread
    over many coordinates costs epsilon for each, however small: the guarantee is not one for L1
    balls.
    """
    best = min_variance_share(epsilon)
    # Below ε = ½ the law is close to Laplace's and a coarser h costs nothing.
    inner_cells = min(_INNER_CELLS, max(1.0, 16 * epsilon))
    cells_bits = min(math.ceil(math.log2(inner_cells / best)), _MAX_CELLS_BITS)
    cells = 1 << cells_bits
    grid_bits = max(GRID_BITS, cells_bits)
    inner = max(1, round(best * cells))
    table = geometric_table(mpmath.mpf(epsilon), cells, inner, grid_bits - cells_bits)
    return AdditiveNoise(table, grid_bits)


STAIRCASE = Calibration(
    lambda parameters, projection: staircase_noise(parameters.budget), NumberFormat
)
"""For maps that move one coordinate only: the staircase has no guarantee for L1 balls."""
