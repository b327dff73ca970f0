"""Exact checks of the laws: every ratio between neighbours, in the integers that the samplers use.

All probabilities are integers over a power of two and ``e^ε`` is replaced by a rational lower
bound, so a check that passes is a proof and no rounding error can hide in it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import Any

import mpmath

from dpindex.audit.bounds import exp_below
from dpindex.audit.checks import Check, digits
from dpindex.audit.maps import RealisedMap
from dpindex.audit.rounded import gaussian_check, individual_gaussian_check
from dpindex.audit.signs import changes_check
from dpindex.noise.additive import AdditiveNoise
from dpindex.noise.individual import IndividualFlips, IndividualGaussian
from dpindex.noise.randomized_response import FlipsByLevel
from dpindex.noise.square_wave import SquareWave
from dpindex.noise.tables import CellTable
from dpindex.noise.two_digit import TwoDigitGaussian, TwoDigitLaplace
from dpindex.privacy import Attribute
from dpindex.spec import Spec

__all__ = ["PROVES", "Part", "hockey_stick", "law_checks", "worst_table_ratio"]

_ONE = 1 << 64
Ratio = tuple[int, int]


@dataclass(frozen=True)
class Part:
    """What the links before the law have shown.

    Attributes
    ----------
    found : RealisedMap
        The projection.
    share : Fraction
        Epsilon that one of ``found.count`` coordinates may cost by itself.
    distance : callable
        Bound on the L2 distance of two neighbours' codes, in cells of so many bits.
    """

    found: RealisedMap
    share: Fraction
    distance: Callable[[int], Fraction]


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
        return "∞" if ratio[1] == 0 else digits(mpmath.log(mpmath.mpf(ratio[0]) / ratio[1]))


def _ratio_check(name: str, ratio: Ratio, epsilon: Fraction, theorem: str) -> Check:
    return Check(
        name, f"largest loss {_loss(ratio)}", digits(epsilon), theorem, _within(ratio, epsilon)
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


def _cells(spec: Spec, cell_bits: int) -> tuple[int, str]:
    """Cells that one beta is, and why a beta moves a code by no more."""
    cells = -(-(1 << spec.grid.bits) >> cell_bits)
    return cells, (
        f"for every fixed offset, 2^{spec.grid.bits} grid steps move (x + offset) >> "
        f"{cell_bits} by at most {cells} cells; mixtures over the offset lose nothing"
    )


def _additive(spec: Spec, law: Any, part: Part) -> list[Check]:
    table, single = law.source, part.found.l1 == 1 and isinstance(spec.adjacency, Attribute)
    cells, dither = _cells(spec, table.cell_bits)
    if spec.guarantee.delta == 0 and not single:
        return _by_cell(spec, table.cell_bits, part.found, worst_table_ratio(table, 1))
    if spec.guarantee.delta == 0:
        theorem = f"symmetric table with a self-similar tail, all pairs of cells; {dither}"
        ratio = worst_table_ratio(table, cells)
        return [_ratio_check("law: ratio of neighbouring cells", ratio, part.share, theorem)]
    if not single:
        return [gaussian_check(spec, law, part.distance(table.cell_bits))]
    delta = Fraction(spec.guarantee.delta)
    # A table with tails is unbounded, which the sum below would not see.
    found = Fraction(1) if table.tails else _hockey_stick(table, cells, part.share)
    return [
        Check(
            "law: hockey-stick divergence",
            f"{digits(found)} at ε = {digits(part.share)}, worst of {cells} shifts",
            digits(delta),
            f"Barthe & Olmedo 2013: (ε, δ) holds when E_(e^ε) ≤ δ for all neighbours; {dither}",
            found <= delta,
        )
    ]


def _wide(spec: Spec, law: AdditiveNoise, part: Part) -> list[Check]:
    source: Any = law.source
    if spec.guarantee.delta == 0:
        ratio = _worst_step(source) if isinstance(source, TwoDigitLaplace) else (1, 0)
        return _by_cell(spec, source.cell_bits, part.found, ratio)
    return [gaussian_check(spec, law, part.distance(source.cell_bits))]


def _by_cell(spec: Spec, cell_bits: int, found: RealisedMap, ratio: Ratio) -> list[Check]:
    """An L1 bound: neighbours are at most so many cells apart, each of which may cost its share."""
    cells, dither = _cells(spec, cell_bits)
    share = Fraction(spec.guarantee.epsilon) / (cells * found.l1)
    attribute = isinstance(spec.adjacency, Attribute)
    return [
        _ratio_check(
            "law: ratio of one cell",
            ratio if attribute else (1, 0),
            share,
            f"codes of neighbours are at most Σ|w| × {cells} = {found.l1 * cells} cells apart in "
            f"L1, each costs at most ε over that many; {dither}",
        )
    ]


def _worst_step(source: TwoDigitLaplace) -> Ratio:
    """The largest ``P(z)/P(z ± 1)`` of a law in two digits, ``2^digit · high + low``.

    *Lemma.* A step stays within the low digit, or leads from its last value to 0 while the high
    digit grows by one; at −½ the law is symmetric. The high digit's table is symmetric with a
    self-similar tail, so its steps up to one period are all its steps.
    """
    high, low = source.high, source.low
    fits = (
        worst_table_ratio(high, 1)[1] > 0
        and (low.first, low.tails) == (0, False)
        and len(low.masses) == 1 << source.digit
        and high.cell_bits == 0
        and low.cell_bits == source.cell_bits
    )
    if not fits:
        return (1, 0)
    half, tail = 1 << (high.bits - 1), high.masses[-1]
    side = high.masses[len(high.masses) // 2 : -1]
    highs = [*(mass * half for mass in side), side[0] * tail]
    first, last = low.masses[0], low.masses[-1]
    inner = [(a, b) for p, q in pairwise(low.masses) for a, b in ((p, q), (q, p))]
    outer = [
        (a, b)
        for p, q in pairwise(highs)
        for a, b in ((p * last, q * first), (q * first, p * last))
    ]
    return _worst([*inner, *outer])


def _flips(spec: Spec, law: FlipsByLevel, part: Part) -> list[Check]:
    """Chance of "+", in 2^-64, at zero and by level; neighbours are at most one level apart."""
    levels = law.thresholds
    pairs = [(_ONE // 2, levels[0]), (_ONE - levels[0], levels[0])]
    pairs += list(pairwise(levels))
    wide_enough = len(levels) == 1 or bool((law.weights >= part.found.largest).all())
    ratio = _worst(
        ratio
        for p, q in pairs
        for a, b in ((p, q), (_ONE - p, _ONE - q))
        for ratio in ((a, b), (b, a))
    )
    if spec.guarantee.delta > 0:
        # Flips of one chance, of which so many cost epsilon; how many signs change is a chance.
        budget = Fraction(spec.guarantee.epsilon)
        afforded = (n for n in range(spec.code_length, 0, -1) if _within(ratio, budget / n))
        return [changes_check(spec, next(afforded, 0) if len(levels) == 1 else 0)]
    return [
        _ratio_check(
            "law: ratio of neighbouring levels",
            ratio if wide_enough else (1, 0),
            part.share,
            f"{len(levels)} levels, none narrower than what one attribute moves its coordinate, "
            "both outcomes, both directions; opposite signs meet at level 1 and at the coin of an "
            "exact zero only",
        )
    ]


def _square_wave(spec: Spec, law: SquareWave, part: Part) -> list[Check]:
    window = 2 * law.half_width + 1
    inside, outside = law.inside * law.cells, (_ONE - law.inside) * window
    ratio = _worst([(inside, outside), (outside, inside)])
    return [
        _ratio_check(
            "law: ratio inside and outside the window",
            ratio if part.found.l1 == 1 else (1, 0),
            part.share,
            "every cell of the interval has the same two chances, so all pairs are covered",
        ),
    ]


def _individual_flips(spec: Spec, law: IndividualFlips, part: Part) -> list[Check]:
    budget, moved = Fraction(spec.guarantee.epsilon), part.found.count
    thresholds = [int(q) for q in law.table[2:]]
    shares = [(budget / min(n, moved), q) for n, q in enumerate(thresholds, 1)]
    wrong = [n for n, (share, q) in enumerate(shares, 1) if not _within((_ONE - q, q), share)]
    return [
        Check(
            "law: ratio of one flip, for every size N of A",
            f"{len(wrong)} of {len(shares)} sizes above ε/min(N, {moved})"
            + (f", the first N = {wrong[0]}" if wrong else ""),
            "0",
            f"iDP only (Li & Li 2023, Def. 2.6, Thm 6.2): A is held fixed at the actual vector, of "
            f"its N signs at most {moved} move, and so many flips of their share compose to ε; on "
            f"a neighbour A may differ, so this is not DP",
            not wrong and len(shares) == spec.code_length,
        )
    ]


def _individual_gaussian(spec: Spec, law: IndividualGaussian, part: Part) -> list[Check]:
    return [individual_gaussian_check(spec, law, part.found.count)]


_CHECKS: dict[type[Any], Callable[[Spec, Any, Part], list[Check]]] = {
    CellTable: _additive,
    TwoDigitGaussian: _wide,
    TwoDigitLaplace: _wide,
    FlipsByLevel: _flips,
    SquareWave: _square_wave,
    IndividualFlips: _individual_flips,
    IndividualGaussian: _individual_gaussian,
}

PROVES: dict[type[Any], str] = {
    CellTable: "DP",
    TwoDigitGaussian: "DP",
    TwoDigitLaplace: "DP",
    FlipsByLevel: "DP",
    SquareWave: "DP",
    IndividualFlips: "iDP",
    IndividualGaussian: "iDP",
}
"""The strongest promise that a law can keep."""


def law_kind(law: object) -> type[Any] | None:
    """The known class of a law, or None if there is no exact check for it."""
    drawn = getattr(law, "source", law)  # an additive law is known by what it draws from
    return next((kind for kind in _CHECKS if isinstance(drawn, kind)), None)


def law_checks(spec: Spec, part: Part) -> list[Check]:
    """Checks of the law of ``spec`` against its part of the argument."""
    kind = law_kind(spec.law)
    return [] if kind is None else _CHECKS[kind](spec, spec.law, part)
