"""Exact arithmetic: what a table of integers loses between neighbours, how far it is from normal.

All probabilities are integers over a power of two and ``e^ε`` is replaced by a rational lower
bound, so what is found here is exact, or rounded to the safe side. Nothing is shared with the code
that calibrates the laws.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import Any

import mpmath
import numpy as np

from dpindex.base.arrays import AnyArray
from dpindex.mechanism.noise.additive import TwoDigitLaplace
from dpindex.mechanism.noise.cell_table import CellTable
from dpindex.mechanism.noise.gaussian import TwoDigitGaussian

UNIT = 1 << 64
"""The chance 1 in the 64-bit integers that laws draw by."""

Ratio = tuple[int, int]
UNBOUNDED: Ratio = (1, 0)
"""The ratio of a law whose form the lemmas do not cover."""

_BITS = 384
_ROOT_BITS = 320
_WORK = 64
_SHEPPARD = 16
"""Variance from which a rounded normal has a variance larger by 1/12, but for e^{−2π²·16}."""

Normal = tuple[Fraction, Fraction]
"""A deviation in cells, and the distance of some noise from the rounded normal law that has it."""

NOT_NORMAL: Normal = (Fraction(1), Fraction(1))
"""The entry of any other law: the largest distance from normal."""


@lru_cache(maxsize=4096)
def exp_below(x: Fraction) -> tuple[int, int]:
    """Integers ``(m, w)`` with ``m / 2^w ≤ e^x`` for a rational x ≥ 0, tight to about 2^-384.

    Taylor's series of ``e^(x/2^s)`` with x/2^s below 1, squared s times. Every term is positive and
    every division rounds down, so the result is a lower bound whatever the precision; integers
    only, and nothing shared with the code that calibrates the laws.

    >>> m, w = exp_below(Fraction(1))
    >>> m / 2**w
    2.718281828459045
    """
    squarings = max(0, math.ceil(x)).bit_length()
    work = _BITS + 2 * squarings + 32
    argument = (x.numerator << work) // (x.denominator << squarings)
    total = term = 1 << work
    order = 1
    while term:
        term = (term * argument >> work) // order
        total += term
        order += 1
    for _ in range(squarings):
        total = total * total >> work
    return total, work


def loss_within(ratio: tuple[int, int], epsilon: Fraction) -> bool:
    """Whether ``ratio[0] / ratio[1] ≤ e^ε``, decided in integers against a lower bound of e^ε.

    >>> loss_within((271, 100), Fraction(1)), loss_within((272, 100), Fraction(1))
    (True, False)
    """
    below, shift = exp_below(epsilon)
    return ratio[0] << shift <= below * ratio[1]


def above_root(x: Fraction) -> Fraction:
    """Square root of x ≥ 0, rounded up by at most 2^-319."""
    scaled = int(x * (1 << 2 * _ROOT_BITS))
    return Fraction(math.isqrt(scaled) + 1, 1 << _ROOT_BITS)


def as_mpf(x: Fraction) -> mpmath.mpf:
    """A rational in mpmath's present precision."""
    return mpmath.mpf(x.numerator) / x.denominator


def _above(x: mpmath.mpf, bits: int) -> Fraction:
    """A number of ``bits`` bits after the point, above x and what mpmath may have rounded off."""
    return Fraction(int(mpmath.ldexp(x, bits)) + 2, 1 << bits)


def largest_ratio(pairs: Iterable[tuple[int, int]]) -> Ratio:
    """The largest ratio of two non-negative integers, in either order; n / 0 is infinite."""
    largest: Ratio = (1, 1)
    for one, other in pairs:
        above = max(one, other)
        below = min(one, other)
        if above * largest[1] > largest[0] * below:
            largest = (above, below)
    return largest


def worst_table_ratio(table: CellTable, shift: int) -> Ratio:
    """The largest ``P(z)/P(z')`` of an unbounded table over *all* cells at most ``shift`` apart.

    *Lemma.* Let P be symmetric about −½ (``P(z) = P(−1−z)``), and let the sampler's restart make
    ``P(a + period) = τ·P(a)`` for a ≥ 0 with τ = tail/2^(bits−1). Then all pairs are covered by
    magnitudes a in [0, period) and b in (a, a + shift], both ways round: cells on opposite sides,
    z = a and z' = −1−b, are a + b + 1 apart, so their magnitudes differ by less; and a pair with
    both magnitudes beyond the period has the ratio of the pair one period inwards.

    The premises are checked here, in integers; if one fails the ratio is reported as infinite.
    """
    half = 1 << (table.bits - 1)
    tail = table.masses[-1]
    period = table.period
    side = table.masses[len(table.masses) // 2 : -1]
    mirrored = table.tails and table.masses == table.masses[::-1]
    in_place = len(side) == period == -table.first - 1 > 0
    if not (mirrored and in_place and min(side) > 0 and tail > 0):
        return UNBOUNDED
    rounds = (period + shift) // period
    magnitudes: list[int] = []  # period by period, times half**rounds
    for times in range(rounds + 1):
        power = tail**times * half ** (rounds - times)
        magnitudes += [mass * power for mass in side]
    masses = np.array(magnitudes[: period + shift], dtype=object)
    # Each of the first ``period`` magnitudes against all that are no farther away.
    pairs: list[tuple[int, int]] = []
    for pick in (np.minimum, np.maximum):
        pairs += zip(masses, _windows(masses, shift, pick), strict=False)
    return largest_ratio(pairs)


def _windows(values: AnyArray, width: int, pick: Callable[[Any, Any], Any]) -> AnyArray:
    """The least or largest of ``values[a : a + width + 1]`` for every full window."""
    span = 1
    while 2 * span <= width + 1:
        values = pick(values[:-span], values[span:])
        span = 2 * span
    shift = width + 1 - span
    extremes: AnyArray = pick(values[: len(values) - shift], values[shift:])
    return extremes


def worst_two_digit_step(source: TwoDigitLaplace) -> Ratio:
    """The largest ``P(z)/P(z ± 1)`` of a law in two digits, ``2^digit · high + low``.

    *Lemma.* A step stays within the low digit, or leads from its last value to 0 while the high
    digit grows by one; at −½ the law is symmetric. The high digit's table is symmetric with a
    self-similar tail, so its steps up to one period are all its steps.
    """
    high = source.high
    low = source.low
    in_place = low.first == 0 and len(low.masses) == 1 << source.digit
    in_cells = high.cell_bits == 0 and low.cell_bits == source.cell_bits
    if low.tails or not (in_place and in_cells and worst_table_ratio(high, 1)[1]):
        return UNBOUNDED
    half = 1 << (high.bits - 1)
    tail = high.masses[-1]
    side = high.masses[len(high.masses) // 2 : -1]
    highs = [mass * half for mass in side]
    highs.append(side[0] * tail)  # the period begins again
    first = low.masses[0]
    last = low.masses[-1]
    steps = list(pairwise(low.masses))
    steps += [(p * last, q * first) for p, q in pairwise(highs)]
    return largest_ratio(steps)


@lru_cache(maxsize=64)  # raw and OPORP methods share a law
def hockey_stick(table: CellTable, shift: int, epsilon: Fraction) -> Fraction:
    """``max_{1≤s≤shift} Σ_z max(0, P(z) − e^ε P(z∓s))`` of a bounded table, rounded up.

    Every shift and both directions are summed in integers, no lemma needed; 1 for a table with
    tails, which is unbounded.
    """
    if table.tails:
        return Fraction(1)
    below, power = exp_below(epsilon)
    largest = 0
    for masses in {table.masses, table.masses[::-1]}:
        scaled = [mass << power for mass in masses]
        costs = [below * mass for mass in masses]
        for s in range(1, shift + 1):
            total = sum(scaled[:s])  # these cells have no counterpart at all
            for mass, cost in zip(scaled[s:], costs, strict=False):
                if mass > cost:
                    total += mass - cost
            largest = max(largest, total)
    return Fraction(largest, 1 << (power + table.bits))


def normal_of_table(table: CellTable) -> Normal:
    """The rounded normal law next to a bounded table that is symmetric about 0."""
    if not _is_bell(table):
        return NOT_NORMAL
    deviation = _deviation(table)
    return deviation, distance_to_rounded(table, deviation)


def normal_of_digits(source: TwoDigitGaussian) -> Normal:
    """The rounded normal law next to ``2^digit · coarse + fine``; distances add up."""
    if not (_is_bell(source.coarse) and _is_bell(source.fine)):
        return NOT_NORMAL
    coarse = above_root(_variance(source.coarse))
    fine = _deviation(source.fine)
    coarse_in_cells = coarse * (1 << source.digit)
    deviation = above_root(coarse_in_cells**2 + fine**2)
    # L·C + N has the density of N(0, σ²) times 1 ± 5·e^{−2π²s²}, s = σ₁σ₂/σ: see TwoDigitGaussian.
    with mpmath.workprec(128):
        s = as_mpf(coarse * fine / deviation)
        wave = 5 * mpmath.exp(-2 * mpmath.pi**2 * s**2)
    apart = _above(wave, 512)
    apart += _distance_to_discrete(source.coarse, coarse)
    apart += distance_to_rounded(source.fine, fine)
    return deviation, apart


def _is_bell(table: CellTable) -> bool:
    """Whether a table is bounded, symmetric about 0, and has mass there and elsewhere."""
    masses = table.masses
    reach = len(masses) // 2
    bounded = table.first == -reach and not table.tails
    return bounded and masses == masses[::-1] and reach > 0 and masses[reach] > 0


def _variance(table: CellTable) -> Fraction:
    total = 0
    for value, mass in enumerate(table.masses, table.first):
        total += value * value * mass
    return Fraction(total, 1 << table.bits)


def _deviation(table: CellTable) -> Fraction:
    """Deviation of the normal law behind a table: by its variance, or by ``P(0) = erf(1/√8σ)``."""
    variance = _variance(table)
    if variance >= _SHEPPARD:
        return above_root(variance - Fraction(1, 12))
    with mpmath.workprec(table.bits + _WORK):
        centre = mpmath.ldexp(table.masses[-table.first], -table.bits)
        deviation = 1 / (mpmath.sqrt(8) * mpmath.erfinv(centre))
        return _above(deviation, table.bits)


@lru_cache(maxsize=32)
def distance_to_rounded(table: CellTable, deviation: Fraction) -> Fraction:
    """Total variation between a symmetric table and the rounded normal law, in exact 2^-bits."""
    cells = len(table.masses) + table.first  # from 0 on
    with mpmath.workprec(table.bits + _WORK):
        sigma = as_mpf(deviation)
        beyond = mpmath.erfc((cells - 0.5) / (mpmath.sqrt(2) * sigma)) / 2
        return _variation(table, _rounded_normal(sigma, cells), beyond)


def _rounded_normal(sigma: mpmath.mpf, cells: int) -> list[mpmath.mpf]:
    """``P(round(N(0, σ²)) = c)`` for c from 0 on, twenty times as fast as by ``erfc``.

    With ``a = 1/2σ²``, the integral of ``e^{−a(c + t)²}`` for t from −½ to ½ is ``e^{−ac²}``
    times the sum of ``(2ac)^{2j}/(2j)!·M_j``, where ``M_j`` is that of ``t^{2j}·e^{−at²}``. Every
    term is positive, so that none cancels another, and ``M_{j+1} ≤ M_j/4`` bounds what is left
    out.
    """
    a = 1 / (2 * sigma**2)
    reach = a * cells
    bits = mpmath.mp.prec + 16
    count = int(reach) + 1
    while 2 * count * mpmath.log(reach) - mpmath.loggamma(2 * count + 1) > -bits * mpmath.log(2):
        count += 1
    # Downwards, (2j + 1)·M_j = 2a·M_{j+1} + 4^−j·e^{−a/4} forgets that it began with 0.
    edge = mpmath.exp(-a / 4)
    moment = mpmath.mpf(0)
    terms = []
    for j in reversed(range(count + bits + int(a))):
        moment = (2 * a * moment + mpmath.ldexp(edge, -2 * j)) / (2 * j + 1)
        if j < count:
            terms.append(moment / mpmath.factorial(2 * j))
    # In fixed point: what is rounded off a term grows with its power of 2ac, and each cell adds
    # at most c² units to the factor before it.
    work = bits + 64 + 2 * count * max(0, math.frexp(2 * reach)[1])
    with mpmath.workprec(work):

        def fixed(value: mpmath.mpf) -> int:
            return int(mpmath.ldexp(value, work))

        coefficients = [fixed(term) for term in terms]
        square = fixed((2 * a) ** 2)
        factor = fixed(mpmath.sqrt(a / mpmath.pi))
        # From c to c + 1 the factor e^(−ac²) falls by this, which falls by e^(−2a) itself.
        fall = fixed(mpmath.exp(-a))
        steeper = fixed(mpmath.exp(-2 * a))
    masses = []
    for c in range(cells):
        argument = square * c * c
        total = 0
        for coefficient in coefficients:
            total = (total * argument >> work) + coefficient
        masses.append(mpmath.ldexp(factor * total >> work, -work))
        factor = factor * fall >> work
        fall = fall * steeper >> work
    return masses


@lru_cache(maxsize=32)
def _distance_to_discrete(table: CellTable, deviation: Fraction) -> Fraction:
    """Total variation between a table and the discrete normal law ``P(c) ∝ e^{−c²/2σ²}``."""
    count = len(table.masses) + table.first
    with mpmath.workprec(table.bits + _WORK):
        scale = -1 / (2 * as_mpf(deviation) ** 2)
        weights = [mpmath.exp(scale * (c * c)) for c in range(count)]
        # Beyond the table the weights fall faster than a geometric series.
        first_beyond = mpmath.exp(scale * count**2)
        beyond = first_beyond / -mpmath.expm1(scale * (2 * count + 1))
        side = mpmath.fsum(weights[1:]) + beyond
        whole = weights[0] + 2 * side
        ideal = [weight / whole for weight in weights]
        return _variation(table, ideal, 2 * beyond / whole)


def _variation(table: CellTable, ideal: Sequence[mpmath.mpf], beyond: mpmath.mpf) -> Fraction:
    """Half the sum of what the masses are off, rounded up; ``beyond`` lies past either end."""
    differences = []
    for mass, chance in zip(table.masses[-table.first :], ideal, strict=True):
        stored = mpmath.ldexp(mass, -table.bits)
        differences.append(abs(stored - chance))
    centre, *side = differences
    total = centre + 2 * (mpmath.fsum(side) + beyond)
    return _above(total / 2, table.bits + 1)
