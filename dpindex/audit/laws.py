"""Exact checks of the laws: every ratio between neighbours, in the integers that the samplers use.

All probabilities are integers over a power of two and ``e^ε`` is replaced by a rational lower
bound, so a check that passes is a proof and no rounding error can hide in it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import Any

import mpmath
import numpy as np

from dpindex.audit.bounds import exp_below
from dpindex.audit.checks import Check
from dpindex.noise.base import AdditiveNoise
from dpindex.noise.flips import FlipsByLevel, IndividualFlips, IndividualGaussian
from dpindex.noise.square_wave import SquareWave
from dpindex.noise.tables import CellTable
from dpindex.spec import Spec

__all__ = ["PROVES", "hockey_stick", "law_checks", "worst_table_ratio"]

_ONE = 1 << 64
Ratio = tuple[int, int]


def _worst(ratios: Iterable[Ratio]) -> Ratio:
    """The largest of ratios of non-negative integers; n / 0 with n > 0 is infinite."""
    most: Ratio = (1, 1)
    for ratio in ratios:
        if ratio[0] * most[1] > most[0] * ratio[1]:
            most = ratio
    return most


def _within(ratio: Ratio, epsilon: Fraction) -> bool:
    """Whether ``ratio ≤ e^ε``, decided in integers against a lower bound of e^ε."""
    below, shift = exp_below(epsilon)
    return ratio[0] << shift <= below * ratio[1]


def _loss(ratio: Ratio) -> str:
    with mpmath.workprec(512):
        return "∞" if ratio[1] == 0 else _digits(mpmath.log(mpmath.mpf(ratio[0]) / ratio[1]))


def _digits(x: Any) -> str:
    with mpmath.workprec(512):
        value = mpmath.mpf(x.numerator) / x.denominator if isinstance(x, Fraction) else x
        return str(mpmath.nstr(value, 22))


def _ratio_check(name: str, ratio: Ratio, epsilon: Fraction, theorem: str) -> Check:
    return Check(
        name, f"largest loss {_loss(ratio)}", _digits(epsilon), theorem, _within(ratio, epsilon)
    )


def worst_table_ratio(table: CellTable, shift: int) -> Ratio:
    """The largest ``P(z)/P(z')`` of an unbounded table over *all* cells at most ``shift`` apart.

    *Lemma.* Let P be symmetric about −½ (``P(z) = P(−1−z)``), and let the sampler's restart make
    ``P(a + period) = τ·P(a)`` for a ≥ 0 with τ = tail/2^(bits−1). Then all pairs are covered by
    magnitudes a in [0, period) and b in (a, a + shift], both ways round: cells on opposite sides,
    z = a and z' = −1−b, are a + b + 1 apart, so their magnitudes differ by less; and a pair with
    both magnitudes beyond the period has the ratio of the pair one period inwards.

    The premises are checked here, in integers; if one fails the ratio is reported as infinite.
    """
    half, tail, period = 1 << (table.bits - 1), table.masses[-1], table.period
    side = table.masses[len(table.masses) // 2 : -1]
    premises = (
        table.tails
        and table.masses == table.masses[::-1]
        and table.first == -period - 1
        and len(side) == period
        and min(side, default=0) > 0
        and tail > 0
    )
    if not premises:
        return (1, 0)
    rounds = (period + shift) // period
    masses = [
        side[rest] * tail**times * half ** (rounds - times)
        for times, rest in (divmod(a, period) for a in range(period + shift))
    ]
    least, most = (_extremes(masses, shift, sign) for sign in (1, -1))
    return _worst(
        ratio
        for mass, low, high in zip(masses, least, most, strict=False)
        for ratio in ((mass, low), (high, mass))
    )


def _extremes(values: list[int], width: int, sign: int) -> list[int]:
    """The least (sign 1) or largest (−1) of ``values[a : a + width + 1]`` for every full window."""
    window: deque[int] = deque()
    found = []
    for i, value in enumerate(values):
        while window and (values[window[-1]] - value) * sign >= 0:
            window.pop()
        window.append(i)
        if window[0] < i - width:
            window.popleft()
        if i >= width:
            found.append(values[window[0]])
    return found


def hockey_stick(table: CellTable, shift: int, epsilon: Fraction) -> Fraction:
    """``max_{1≤s≤shift} Σ_z max(0, P(z) − e^ε P(z∓s))`` of a bounded table, rounded up.

    Every shift and both directions are summed in integers, no lemma needed.
    """
    below, power = exp_below(epsilon)
    most = 0
    for masses in {table.masses, table.masses[::-1]}:
        scaled = [mass << power for mass in masses]
        costs = [below * mass for mass in masses]
        for s in range(1, shift + 1):
            # The first s cells have no counterpart at all.
            total = sum(scaled[:s])
            total += sum(p - q for p, q in zip(scaled[s:], costs, strict=False) if p > q)
            most = max(most, total)
    return Fraction(most, 1 << (power + table.bits))


_hockey_stick = lru_cache(maxsize=64)(hockey_stick)  # raw and OPORP methods share a law


def _additive(spec: Spec, law: AdditiveNoise, epsilon: Fraction) -> list[Check]:
    table = law.table
    cells = -(-(1 << spec.grid.bits) >> table.cell_bits)
    dither = (
        f"for every fixed offset, 2^{spec.grid.bits} grid steps move (x + offset) >> "
        f"{table.cell_bits} by at most {cells} cells; mixtures over the offset lose nothing"
    )
    if spec.guarantee.delta == 0:
        theorem = f"symmetric table with a self-similar tail, all pairs of cells; {dither}"
        ratio = worst_table_ratio(table, cells) if table.tails else (1, 0)
        return [_ratio_check("law: ratio of neighbouring cells", ratio, epsilon, theorem)]
    delta = Fraction(spec.guarantee.delta)
    # A table with tails is unbounded, which the sum below would not see.
    found = Fraction(1) if table.tails else _hockey_stick(table, cells, epsilon)
    return [
        Check(
            "law: hockey-stick divergence",
            f"{_digits(found)} at ε = {_digits(epsilon)}, worst of {cells} shifts",
            _digits(delta),
            f"Barthe & Olmedo 2013: (ε, δ) holds when E_(e^ε) ≤ δ for all neighbours; {dither}",
            found <= delta,
        )
    ]


def _flips(spec: Spec, law: FlipsByLevel, epsilon: Fraction) -> list[Check]:
    """Chance of "+", in 2^-64, at zero and by level; neighbours are at most one level apart."""
    levels = law.thresholds
    pairs = [(_ONE // 2, levels[0]), (_ONE - levels[0], levels[0])]
    pairs += list(pairwise(levels))
    ratio = _worst(
        ratio
        for p, q in pairs
        for a, b in ((p, q), (_ONE - p, _ONE - q))
        for ratio in ((a, b), (b, a))
    )
    return [
        _ratio_check(
            "law: ratio of neighbouring levels",
            ratio,
            epsilon,
            f"{len(levels)} levels of one beta, both outcomes, both directions; opposite signs "
            "meet at level 1 and at the coin of an exact zero only",
        )
    ]


def _square_wave(spec: Spec, law: SquareWave, epsilon: Fraction) -> list[Check]:
    window = 2 * law.half_width + 1
    inside, outside = law.inside * law.cells, (_ONE - law.inside) * window
    ratio = _worst([(inside, outside), (outside, inside)])
    return [
        _ratio_check(
            "law: ratio inside and outside the window",
            ratio,
            epsilon,
            "every cell of the interval has the same two chances, so all pairs are covered",
        ),
    ]


def _individual_flips(spec: Spec, law: IndividualFlips, epsilon: Fraction) -> list[Check]:
    thresholds = [int(q) for q in law._table[2:]]
    shares = [(Fraction(spec.guarantee.epsilon) / n, q) for n, q in enumerate(thresholds, 1)]
    wrong = [n for n, (share, q) in enumerate(shares, 1) if not _within((_ONE - q, q), share)]
    return [
        Check(
            "law: ratio of one flip, for every size N of A",
            f"{len(wrong)} of {len(shares)} sizes above ε/N"
            + (f", the first N = {wrong[0]}" if wrong else ""),
            "0",
            "iDP only (Li & Li 2023, Def. 2.6, Thm 6.2): A is held fixed at the actual vector, N "
            "flips of ε/N compose to ε; on a neighbour A may differ, so this is not DP",
            not wrong and len(shares) == spec.dims,
        )
    ]


@lru_cache(maxsize=8)
def _distance_to_gaussian(masses: tuple[int, ...], bits: int, deviation: float) -> Fraction:
    """Total variation between a symmetric table and the rounded normal law, in exact 2^-bits."""
    reach = len(masses) // 2
    with mpmath.workprec(bits + 64):
        scale = mpmath.mpf(deviation) * mpmath.sqrt(2)
        upper = [mpmath.ldexp(mpmath.erfc((z - 0.5) / scale), bits - 1) for z in range(reach + 2)]
        off = [abs(masses[reach + z] - (upper[z] - upper[z + 1])) for z in range(1, reach + 1)]
        centre = abs(masses[reach] - (mpmath.ldexp(1, bits) - 2 * upper[1]))
        total = 2 * (mpmath.fsum(off) + upper[reach + 1]) + centre
        return Fraction(int(mpmath.ceil(total)), 1 << (bits + 1))


def _individual_gaussian(spec: Spec, law: IndividualGaussian, epsilon: Fraction) -> list[Check]:
    budget, delta = Fraction(spec.guarantee.epsilon), Fraction(spec.guarantee.delta)
    table, deviation = law._table, Fraction(law._deviation)
    sizes = np.arange(1, spec.dims + 1)
    multipliers = np.floor(law._deviation / (law._sigma * np.sqrt(sizes))).astype(np.int64)
    most = max(int(m) ** 2 * n for n, m in enumerate(multipliers, 1))
    with mpmath.workprec(320):
        # Balle & Wang 2018, Thm 8, at the largest L2 shift in deviations that any size of A makes.
        mu = mpmath.sqrt(most) / (mpmath.mpf(deviation.numerator) / deviation.denominator)
        e = mpmath.mpf(float(budget))
        continuous = mpmath.ncdf(mu / 2 - e / mu) - mpmath.exp(e) * mpmath.ncdf(-mu / 2 - e / mu)
        distance = _distance_to_gaussian(table.masses, table.bits, law._deviation)
        rounding = spec.dims * (1 + mpmath.exp(e)) * mpmath.mpf(distance.numerator)
        found = continuous + rounding / distance.denominator
        passed = bool(found <= mpmath.mpf(float(delta)))
    return [
        Check(
            "law: Gaussian inside A, worst size of A",
            f"δ = {_digits(found)} at ε = {_digits(budget)}",
            _digits(delta),
            "iDP only (Li & Li 2023, Def. 2.6, Thm 6.1): A is held fixed at the actual vector; "
            "Balle & Wang 2018 Thm 8 in 320 bits plus the table's distance from the normal law",
            passed and table.masses == table.masses[::-1],
        )
    ]


_CHECKS: dict[type[Any], Callable[[Spec, Any, Fraction], list[Check]]] = {
    AdditiveNoise: _additive,
    FlipsByLevel: _flips,
    SquareWave: _square_wave,
    IndividualFlips: _individual_flips,
    IndividualGaussian: _individual_gaussian,
}

PROVES: dict[type[Any], str] = {
    AdditiveNoise: "DP",
    FlipsByLevel: "DP",
    SquareWave: "DP",
    IndividualFlips: "iDP",
    IndividualGaussian: "iDP",
}
"""The strongest promise that a law can keep."""


def law_kind(law: object) -> type[Any] | None:
    """The known class of a law, or None if there is no exact check for it."""
    return next((kind for kind in _CHECKS if isinstance(law, kind)), None)


def law_checks(spec: Spec, epsilon: Fraction) -> list[Check]:
    """Checks of the law of ``spec`` against ``epsilon``, the share of one coordinate."""
    kind = law_kind(spec.law)
    return [] if kind is None else _CHECKS[kind](spec, spec.law, epsilon)
