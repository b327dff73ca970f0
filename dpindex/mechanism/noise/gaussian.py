"""Gaussian noise rounded to the grid: its tables, and the sigma for an epsilon and a delta.

The optimal sigma is that of Balle & Wang 2018, at the sensitivity of the map that is used. By their
Thm 8, noise ``N(0, σ²)`` on a query of L2 sensitivity 1 is (ε, δ)-DP exactly if
``Φ(−a) − e^ε Φ(−b) ≤ δ`` with ``a = εσ − 1/2σ`` and ``b = εσ + 1/2σ``. Levels that papers state for
a bound on the sensitivity are in :mod:`dpindex.mechanism.papers`.

*On which side this errs.* A search in high precision proposes a number, and only proposes it: the
number is returned once all of :func:`delta_interval` is at most δ. An error of the search can add
noise, never take any.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import Any

import mpmath
import numpy as np
from mpmath.ctx_iv import MPIntervalContext

from dpindex.base.arrays import Longs
from dpindex.mechanism.codes import NumberFormat
from dpindex.mechanism.grid import GRID_BITS, neighbour_distance
from dpindex.mechanism.noise.additive import AdditiveNoise, geometric_noise
from dpindex.mechanism.noise.base import Calibration, Law, check_deviation
from dpindex.mechanism.noise.cell_table import CellTable, Profile, binned_profile
from dpindex.mechanism.parameters import Parameters
from dpindex.mechanism.projections import Projection
from dpindex.mechanism.projections.dense import upper_tails
from dpindex.mechanism.public_random import BitSource
from dpindex.privacy.adjacency import Neighbouring

_DIGITS = 32
"""Significant bits of what is found: it exceeds the least number by at most 2⁻³¹ of it."""

_GUARD = 96
"""Bits beyond those that cancel."""


def least_sigma(epsilon: float, delta: float) -> float:
    """The least number of 32 significant bits that is proved to be an admissible sigma.

    >>> least_sigma(1.0, 1e-6)
    4.2246788907796144
    """
    return _least_proved(lambda sigma: (sigma, epsilon), delta)


def least_epsilon(sigma: float, delta: float) -> float:
    """The least epsilon of 32 significant bits that is proved for noise of this sigma, or 0.

    >>> least_epsilon(least_sigma(1.0, 1e-6), 1e-6)
    0.9999999997671694
    """
    if _proved(sigma, 0.0, delta):
        return 0.0
    return _least_proved(lambda epsilon: (sigma, epsilon), delta)


def _least_proved(
    noise_of: Callable[[float], tuple[float, float]],
    delta: float,
) -> float:
    """The least number that is proved, ``noise_of`` which gives a sigma and an epsilon."""
    number = _least(lambda number: bool(_delta_near(*noise_of(number), delta) <= delta))
    while not _proved(*noise_of(number), delta):
        number = _next(number)
    return number


def _proved(sigma: float, epsilon: float, delta: float) -> bool:
    # The comparison of an interval is True, False or, where delta lies inside, None.
    return bool(delta_interval(sigma, epsilon, delta) <= delta)


def delta_interval(sigma: float, epsilon: float, delta: float) -> Any:
    """An interval that contains Balle & Wang's delta, far shorter than ``delta``.

    With ``φ(a) = e^ε φ(b)``, as b² − a² = 2ε, and ``Φ(x) = ½ + φ(x)·S(x)``,
    ``S(x) = x + x³/3 + x⁵/(3·5) + …`` (Abramowitz & Stegun 26.2.11), the delta of Thm 8 is
    ``φ(a)·(S(b) − S(a)) − (e^ε − 1)/2``. Every operation rounds outward.
    """
    iv = MPIntervalContext()
    iv.prec = _precision(epsilon, delta)
    half = 1 / (2 * iv.mpf(sigma))
    middle = iv.mpf(epsilon) * iv.mpf(sigma)
    a = middle - half
    b = middle + half
    density = iv.exp(-a * a / 2) / iv.sqrt(2 * iv.pi)
    apart = _odd_series(iv, b) - _odd_series(iv, a)
    return density * apart - (iv.exp(iv.mpf(epsilon)) - 1) / 2


def _odd_series(iv: Any, x: Any) -> Any:
    """``S(x)`` as an interval.

    Where a ratio of neighbouring terms has fallen below ½ so are all later ones, so that what is
    left out is between 0 and the last term.
    """
    square = x * x
    term = total = x
    order = 1
    small = mpmath.ldexp(1, -iv.prec)
    while True:
        order += 2
        ratio = square / order
        term *= ratio
        total += term
        if ratio.b < 0.5 and abs(term).b < small * abs(total).b:
            return total + term * iv.mpf([0, 1])


def _delta_near(sigma: float, epsilon: float, delta: float) -> mpmath.mpf:
    """Balle & Wang's delta without a bound on its error."""
    with mpmath.workprec(_precision(epsilon, delta)):
        half = 1 / (2 * mpmath.mpf(sigma))
        middle = mpmath.mpf(epsilon) * sigma
        return mpmath.ncdf(half - middle) - mpmath.exp(epsilon) * mpmath.ncdf(-half - middle)


def _precision(epsilon: float, delta: float) -> int:
    """Bits that cancel, as terms are as large as e^ε and as small as delta; and the guard's."""
    return math.ceil(1.4427 * epsilon - math.log2(delta)) + _GUARD


def _least(enough: Callable[[float], bool]) -> float:
    """The least positive number of 32 significant bits with which a monotone test passes."""
    exponent = 0
    while not enough(math.ldexp(1.0, exponent)):
        exponent += 1
    while enough(math.ldexp(1.0, exponent - 1)):
        exponent -= 1
    # The test passes with 2^exponent and fails with half of it: the least number lies between.
    unit = exponent - _DIGITS
    low = 1 << _DIGITS - 1
    high = 1 << _DIGITS
    while high - low > 1:
        middle = (low + high) // 2
        if enough(math.ldexp(middle, unit)):
            high = middle
        else:
            low = middle
    return math.ldexp(high, unit)


def _next(number: float) -> float:
    """The next larger number of 32 significant bits."""
    digits, exponent = math.frexp(number)
    return math.ldexp(digits * 2.0**_DIGITS + 1, exponent - _DIGITS)


_CELLS_PER_DEVIATION = 32
_WIDEST_TABLE = 1024.0
"""Deviation in cells beyond which the noise is drawn in two digits."""

_FINE = 256
"""Under l2 adjacency the grid and the cells are so fine that rounding adds about 1/256 each."""

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
    """Smallest sigma of the Gaussian mechanism at L2 sensitivity 1, rounded up by 1.5e-9.

    Balle & Wang 2018, Thm 8 (Li & Li 2023, Thm 3.5): the smallest σ with
    ``Φ(1/2σ − εσ) − e^ε Φ(−1/2σ − εσ) ≤ δ``.

    >>> round(optimal_sigma(1.0, 1e-6), 6)
    4.224679
    """
    return safe_sigma(least_sigma(epsilon, safe_delta(delta)))


def gaussian_table(
    sigma: float,
    epsilon: float,
    delta: float,
    code_length: int,
    cell_bits: int,
) -> CellTable:
    """``round(N(0, σ²))`` with σ in cells, as exact integer masses.

    On integers ``round(x + N) = x + round(N)``, so the law is post-processing of the continuous
    mechanism and Balle & Wang's theorem holds for it in every dimension. Each mass is
    off by at most two units of 2^-bits; the bits are chosen such that this costs less than the
    share ``2⁻³⁰`` of delta that ``safe_delta`` held back, over all ``code_length`` coordinates.
    """
    bits = _table_bits(epsilon, delta, code_length)
    tails = upper_tails(sigma, bits, _reach(sigma, bits))
    # Masses are differences of upper tails beyond z − ½, symmetric exactly.
    side = [above - beyond for above, beyond in pairwise([*tails, 0])]
    return CellTable.symmetric(side, bits, cell_bits)


def _reach(sigma: float, bits: int) -> int:
    """Cells beyond which a normal law has less than 2^-bits."""
    return math.ceil(sigma * math.sqrt(2 * math.log(2) * bits)) + 1


def _table_bits(epsilon: float, delta: float, code_length: int) -> int:
    # δ·2⁻³⁰ over e^ε, over all coordinates, and 24 bits for the cells of one; as several releases
    # may add up to ε = 40 at δ = 1e-15, the table of each is at least as fine as that needs.
    epsilon = max(epsilon, 40.0)
    delta = min(delta, 1e-15)
    need = 1.4427 * epsilon + math.log2(1 / delta) + math.log2(code_length) + 30 + 24
    return 64 * math.ceil(need / 64)


def discrete_gaussian_table(sigma: float, bits: int) -> CellTable:
    """``P(c) ∝ e^{−c²/2σ²}`` on the integers, rounded to 2^-bits; what is left lies at 0."""
    work = bits + 64
    with mpmath.workprec(work):
        fall = int(mpmath.ldexp(mpmath.exp(-1 / (2 * mpmath.mpf(sigma) ** 2)), work))
    # From c to c + 1 a weight falls by e^(−(2c + 1)/2σ²), which falls by e^(−1/σ²) itself: what is
    # rounded off adds up to c² units of 2^-work.
    steeper = fall * fall >> work
    weight = 1 << work
    weights: list[int] = []
    for _ in range(_reach(sigma, bits)):
        weight = weight * fall >> work
        weights.append(weight)
        fall = fall * steeper >> work
    total = (1 << work) + 2 * sum(weights)
    side = [((weight << bits + 1) + total) // (2 * total) for weight in weights]
    return CellTable.symmetric(side, bits)


class TwoDigitGaussian:
    """``N(0, σ²)`` rounded to cells, σ² = 4^digit·σ₁² + σ₂²: discrete plus rounded Gaussian.

    *Why it is the Gaussian mechanism.* Let L = 2^digit, C discrete Gaussian on the integers and N
    continuous with deviation σ₂. Completing the square and Poisson summation give ``L·C + N`` the
    density of ``N(0, σ²)`` times a factor within ``1 ± 2.1·e^{−2π²(τ/L)²}``, ``τ = σ₂·Lσ₁/σ``
    (Micciancio & Regev 2007, Lemma 3.3; Peikert 2010, Thm 3.1). With ``σ₂ = 4L``, ``L ≥ 16`` and
    ``σ₁ ≥ .49σ₂`` it is ``τ ≥ 3.5L`` and the factor is within 10⁻¹⁰⁰ of 1, far below the share of
    delta held back for finite precision. On integers ``round(x + L·C + N) = x + L·C + round(N)``,
    so adding the two digits is post-processing of adding that continuous noise.
    """

    offset = 0.0

    def __init__(self, coarse: CellTable, fine: CellTable, digit: int) -> None:
        self.coarse = coarse
        self.fine = fine
        self.digit = digit
        self.cell_bits = fine.cell_bits

    def sample(self, count: int, stream: BitSource) -> Longs:
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
        coarse = coarse * base**2
        coarse_fourth = coarse_fourth * base**4
        return coarse + fine, coarse_fourth + 6 * coarse * fine + fine_fourth

    def profile(self) -> Profile:
        """The normal law of that deviation."""
        variance, _ = self.moments()
        return binned_profile(variance, lambda t: -(t**2) / 2)


def table_distance(law: Law) -> Fraction:
    """Bound on the distance of one coordinate's noise from a rounded normal, in total variation.

    Half the sum of what masses are off: those of a rounded law by a unit; those of a discrete law
    by half a unit, and that at 0, which has the rest, by as much as all others together.
    """
    source = law.drawn_from
    if isinstance(source, CellTable):
        return _distance(source)
    if isinstance(source, TwoDigitGaussian):
        of_tables = _distance(source.coarse) + _distance(source.fine)
        return of_tables + Fraction(1, 10**100)
    raise TypeError("this law is no rounded normal law")


def _distance(table: CellTable) -> Fraction:
    return Fraction(len(table.masses) + 1, 1 << table.bits)


@lru_cache(maxsize=64)
def gaussian_cells(
    sigma: float,
    epsilon: float,
    delta: float,
    code_length: int,
    cell_bits: int,
    grid_bits: int,
) -> AdditiveNoise:
    """Rounded Gaussian noise with ``sigma`` in cells of ``2^cell_bits`` grid steps."""
    check_deviation(sigma)
    if sigma <= _WIDEST_TABLE:
        table = gaussian_table(sigma, epsilon, delta, code_length, cell_bits)
        return AdditiveNoise(table, grid_bits)
    # Both digits of about √σ cells, so that both tables are short; σ₁ is then .49σ₂ or more.
    digit = round(math.log2(math.sqrt(sigma) / 2))
    base = 1 << digit
    fine_sigma = 4.0 * base
    coarse_sigma = math.sqrt(sigma**2 - fine_sigma**2) / base
    coarse_sigma *= 1 + 2.0**-40  # for the rounding of this line and the last
    bits = _table_bits(epsilon, delta, code_length)
    fine = gaussian_table(fine_sigma, epsilon, delta, code_length, cell_bits)
    coarse = discrete_gaussian_table(coarse_sigma, bits)
    return AdditiveNoise(TwoDigitGaussian(coarse, fine, digit), grid_bits)


def rounded_gaussian(
    sigma: float,
    epsilon: float,
    delta: float,
    code_length: int,
    least_bits: int = GRID_BITS,
) -> AdditiveNoise:
    """Rounded Gaussian noise with ``sigma`` in betas, for attribute adjacency.

    A beta is a whole number of cells, and every entry of the projection is an integer, so a change
    of at most one beta moves coordinate j by at most ``|w_ij|`` times that many whole cells,
    whatever the dither: rounding adds nothing to the sensitivity.
    """
    finest = math.ceil(math.log2(_CELLS_PER_DEVIATION / sigma))
    cells_bits = max(0, finest)
    grid_bits = max(least_bits, cells_bits)
    cell_bits = grid_bits - cells_bits
    cells = sigma * (1 << cells_bits)
    return gaussian_cells(cells, epsilon, delta, code_length, cell_bits, grid_bits)


# Attribute adjacency: a beta is a whole number of cells


def realised_noise(sigma: float, parameters: Parameters, projection: Projection) -> AdditiveNoise:
    """``sigma`` times the realised Δ₂, the largest row norm (Li & Li 2023, Eq. 13)."""
    return rounded_gaussian(
        sigma * math.sqrt(projection.sensitivity.l2_squared),
        parameters.budget,
        parameters.delta,
        projection.k,
        projection.grid_bits,
    )


def _optimal(parameters: Parameters, projection: Projection) -> AdditiveNoise:
    """Balle & Wang's σ (Li & Li 2023, Thm 3.5)."""
    return realised_noise(
        optimal_sigma(parameters.budget, parameters.delta), parameters, projection
    )


# l2 adjacency: every coordinate moves by a fraction of a cell


def ball_noise(
    parameters: Parameters,
    k: int,
    stretch: float,
    sigma: float,
    delta: float,
    moved: int,
) -> AdditiveNoise:
    """Gaussian noise for vectors that differ by the radius, in every coordinate a little.

    Parameters
    ----------
    k : int
        Length of a code.
    stretch : float
        Bound on how much longer the projected difference is than the difference itself.
    sigma : float
        Deviation wanted at sensitivity 1.
    delta : float
        What the noise alone may spend, for the precision of its table.
    moved : int
        Coordinates that the sensitivity is about: all, or 1 where coordinates compose.

    Attributes move by fractions of a cell here, so rounding counts twice: on the grid
    (``neighbour_distance``), and in the code, where for every fixed dither each coordinate moves by
    at most one cell more than its share: √moved cells in all.
    """
    radius = parameters.adjacency.size
    finest = math.ceil(math.log2(_FINE * math.sqrt(parameters.dim)))
    bits = max(GRID_BITS, finest)
    steps = neighbour_distance(radius, bits, parameters.bounds, parameters.dim)
    for_rounding = _FINE * math.sqrt(moved) / stretch
    for_shape = _CELLS_PER_DEVIATION / (sigma * stretch)
    cells_per_radius = max(for_rounding, for_shape)
    cells_bits = max(0, math.ceil(math.log2(cells_per_radius)))
    cell_bits = max(0, bits - cells_bits)
    moved_cells = stretch * steps / (1 << cell_bits)
    if cell_bits:
        moved_cells += math.sqrt(moved)
    return gaussian_cells(sigma * moved_cells, parameters.budget, delta, k, cell_bits, bits)


def _ball_optimal(parameters: Parameters, projection: Projection) -> AdditiveNoise:
    """Balle & Wang's σ at ``Δ₂ = B·‖W‖``, the realised operator norm (Balle & Wang 2018, Thm 8)."""
    k = projection.k
    sigma = optimal_sigma(parameters.budget, parameters.delta)
    return ball_noise(parameters, k, projection.operator_norm, sigma, parameters.delta, k)


def _raw(parameters: Parameters, projection: Projection) -> AdditiveNoise:
    """L2 sensitivity β or B: the raw coordinates themselves (Li & Li 2023, Thm 3.8)."""
    law = _optimal if parameters.adjacency.kind == "attribute" else _ball_optimal
    return law(parameters, projection)


OPTIMAL_GAUSSIAN = Calibration(
    _optimal,
    NumberFormat,
    delta="required",
    moves="any",
    deviation=optimal_sigma,
)
BALL_GAUSSIAN = replace(OPTIMAL_GAUSSIAN, law=_ball_optimal, adjacencies=("l2",))
RAW_GAUSSIAN = replace(OPTIMAL_GAUSSIAN, law=_raw, adjacencies=("attribute", "l2"))


CHANGES: dict[str, int] = {"add-remove": 1, "replace": 2}
"""Counts of a row that differ between neighbours, each by one."""


@lru_cache(maxsize=32)
def count_noise(
    epsilon: float,
    delta: float,
    rows: int,
    width: int,
    neighbouring: Neighbouring,
) -> AdditiveNoise:
    """Noise for a sketch of ``rows × width`` counts under one global (epsilon, delta).

    delta = 0: ``⌊Laplace(R/ε)⌋`` (Coleman & Shrivastava 2020, Alg. 1; R/ε doubled under replace):
    one count that moves by 1 costs ε/R, R of them cost ε.

    delta > 0: ``round(N(0, σ²))``, σ the optimal Gaussian sigma times √R (√(2R) under replace).

    Raises
    ------
    InputError
        If the noise of a count would be too wide for a table.
    """
    changed = rows * CHANGES[neighbouring]
    if delta > 0:
        sigma = optimal_sigma(epsilon, delta) * math.sqrt(changed)
        return gaussian_cells(sigma, epsilon, delta, rows * width, 0, 0)
    return geometric_noise(epsilon, changed)
