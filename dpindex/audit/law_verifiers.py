"""One verifier for each kind of law: its exact check, and what it proves.

``VERIFIERS`` at the end is the one place where the audit tells laws apart: a new law is a class and
an entry there. A verifier computes everything from the integers that a law draws by (masses,
thresholds); it never asks the law for its moments or its likelihood.

How many signs one attribute can change is the part of delta that is a chance over the projection.
For a fixed vector û on the grid, a neighbour moves coordinate j by at most 2^b·max_i|w_ij|, so sign
j can change only where |w_j·û| is no more than that. Over random normal entries this has chance at
most P₊, independently for each j (Li & Li 2023, Lemma 4.3 and Prop. 4.5), and if at most N signs
change, N flips cost N times the loss of one. This is a statement about ideal normal entries,
rounded as ours are; that the published ones behave like them rests on SHAKE-256.
"""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.special import log_ndtr, ndtr

from dpindex.audit import exact_arithmetic as exact
from dpindex.audit.exact_arithmetic import UNIT
from dpindex.audit.record_verifiers import CapVerifier, CodebookVerifier, SoftmaxVerifier
from dpindex.audit.verdict import Check, Difference, LawVerifier, digits
from dpindex.base.arrays import AnyArray, Doubles
from dpindex.mechanism.noise.additive import TwoDigitLaplace
from dpindex.mechanism.noise.cap import CapResponse
from dpindex.mechanism.noise.cell_table import CellTable
from dpindex.mechanism.noise.gaussian import TwoDigitGaussian
from dpindex.mechanism.noise.response import FlipsByLevel, SquareWave
from dpindex.mechanism.noise.symbols import CodebookResponse, SoftmaxResponse
from dpindex.mechanism.papers.signs import IndividualFlips, IndividualGaussian
from dpindex.mechanism.spec import Spec


class AdditiveVerifier(LawVerifier):
    """Integer noise from a source of one class; subclasses know the source."""

    proves = "DP"

    def __init__(self, spec: Any, apart: Difference) -> None:
        super().__init__(spec, apart)
        self.source: Any = self.law.source
        self.bits = self.source.cell_bits
        self.cells = apart.cells(self.bits)
        self.dither = (
            f"for every fixed offset, 2^{apart.bits} grid steps move (x + offset) >> {self.bits} "
            f"by at most {self.cells} cells; mixtures over the offset lose nothing"
        )

    def step(self) -> exact.Ratio:
        """The largest ratio of the chances of two values one cell apart."""
        return exact.UNBOUNDED

    def normal(self) -> exact.Normal:
        """The rounded normal law that the source is next to."""
        return exact.NOT_NORMAL

    def check(self) -> Check:
        apart = self.apart
        if apart.delta:
            cells = apart.cells_l2(self.bits)
            return self._gaussian("law: Gaussian on the whole code", cells, self.normal())
        return self._ratio(
            "law: ratio of one cell",
            self.step() if apart.ball is None else exact.UNBOUNDED,
            apart.epsilon / (self.cells * apart.moves.l1),
            f"neighbours are at most Σ|w| = {apart.moves.l1} times {self.cells} cells apart in L1, "
            f"each costs at most ε over that many; {self.dither}",
        )

    def tables(self) -> list[tuple[CellTable, int]]:
        """The tables that a draw is the sum of, and how many cells one of their cells is."""
        return [(self.source, 1)]

    def likeliest(self) -> tuple[float, float]:
        # No value of a sum is likelier than the likeliest value of each of its parts.
        value = equal = 1.0
        for table, _ in self.tables():
            chances = _chances(table)
            value = min(value, chances.max())
            equal = min(equal, (chances**2).sum())
        return value, equal

    def spread(self) -> float | None:
        # Where the characteristic function has fallen to e^(−1/2), as a normal one does at 1/σ.
        times = np.geomspace(2.0**-30, 3.0, 400)
        has_fallen = self.characteristic(times) < math.exp(-0.5)
        return float(1 / times[np.argmax(has_fallen)])

    def characteristic(self, times: Doubles) -> Doubles:
        size = np.ones(len(times))
        for table, width in self.tables():
            size *= np.abs(_transform(table, times * width))
        return size


class TableVerifier(AdditiveVerifier):
    """One table of masses."""

    def step(self) -> exact.Ratio:
        return exact.worst_table_ratio(self.source, 1)

    def normal(self) -> exact.Normal:
        return exact.normal_of_table(self.source)

    def check(self) -> Check:
        """Where one coordinate moves by one beta, the table is compared with itself, shifted."""
        apart = self.apart
        if not apart.single:
            return super().check()
        if apart.delta == 0:
            return self._ratio(
                "law: ratio of neighbouring cells",
                exact.worst_table_ratio(self.source, self.cells),
                apart.epsilon,
                f"symmetric table with a self-similar tail, all pairs of cells; {self.dither}",
            )
        divergence = exact.hockey_stick(self.source, self.cells, apart.epsilon)
        return Check(
            "law: hockey-stick divergence",
            f"{digits(divergence)} at ε = {digits(apart.epsilon)}, worst of {self.cells} shifts",
            digits(apart.delta),
            f"Barthe & Olmedo 2013: (ε, δ) holds if E_(e^ε) ≤ δ for all neighbours; {self.dither}",
            divergence <= apart.delta,
        )


class TwoDigitGaussianVerifier(AdditiveVerifier):
    """Normal noise in two digits, each from a table: ``2^digit · coarse + fine``."""

    def tables(self) -> list[tuple[CellTable, int]]:
        source = self.source
        return [(source.coarse, 1 << source.digit), (source.fine, 1)]

    def normal(self) -> exact.Normal:
        return exact.normal_of_digits(self.source)


class TwoDigitLaplaceVerifier(AdditiveVerifier):
    """Laplace noise in two digits of its magnitude, each from a table."""

    def likeliest(self) -> tuple[float, float]:
        high = _chances(self.source.high)
        low = _chances(self.source.low)
        equal_high = (high**2).sum()
        equal_low = (low**2).sum()
        return high.max() * low.max(), equal_high * equal_low

    def characteristic(self, times: Doubles) -> Doubles:
        source = self.source
        high = _side(source.high, times * (1 << source.digit))
        low = _sums(_chances(source.low), times)
        return _mirrored(high * low, times)

    def step(self) -> exact.Ratio:
        return exact.worst_two_digit_step(self.source)


def _chances(table: CellTable) -> Doubles:
    """Return the chances of a table's cells.

    A tail counts as one cell, which makes equal draws no less likely.
    """
    return np.array([mass / (1 << table.bits) for mass in table.masses])


def _sums(chances: AnyArray, times: Doubles) -> AnyArray:
    """Return ``Σ p_m e^{itm}`` over m = 0, 1, …, for every t."""
    values = np.arange(len(chances))
    return np.array([np.exp(1j * t * values) @ chances for t in times])


def _side(table: CellTable, times: Doubles) -> AnyArray:
    """Return ``E e^{itm}`` of the magnitude of a table with tails, which begins again there."""
    half = len(table.masses) // 2
    sides = 2 * _chances(table)
    inner = _sums(sides[half:-1], times)
    again = sides[-1] * np.exp(1j * times * (half - 1))
    return np.asarray(inner / (1 - again))


def _mirrored(side: AnyArray, times: Doubles) -> Doubles:
    """Return ``|E e^{itz}|`` of a law symmetric about −½, from that of its magnitude."""
    other_side = np.exp(-1j * times) * np.conj(side)
    return np.asarray(np.abs(side + other_side) / 2)


def _transform(table: CellTable, times: Doubles) -> AnyArray:
    if table.tails:
        return _mirrored(_side(table, times), times)
    return _sums(_chances(table), times)


class SquareWaveVerifier(LawVerifier):
    """A window about the value and the rest of an interval, each uniform."""

    proves = "DP"

    def __init__(self, spec: Any, apart: Difference) -> None:
        super().__init__(spec, apart)
        self.window = 2 * self.law.half_width + 1

    def check(self) -> Check:
        law = self.law
        ratio = exact.UNBOUNDED
        if self.apart.single:
            inside = law.inside * law.cells
            outside = (UNIT - law.inside) * self.window
            ratio = exact.largest_ratio([(inside, outside)])
        return self._ratio(
            "law: ratio inside and outside the window",
            ratio,
            self.apart.epsilon,
            "every cell of the interval has the same two chances, so all pairs are covered",
        )

    def likeliest(self) -> tuple[float, float]:
        share = self.law.inside / UNIT
        inside = share / self.window
        outside = (1 - share) / self.law.cells
        chance = max(inside, outside)
        return chance, chance


_POINTS = 1 << 18
_FARTHEST = 9.0
_ROUNDOFF = 1e-9
_SCALE_BITS = 48
_ENTRY_BITS = 12
"""Our normal entries are multiples of 2^-12."""

_RARE = 8.0


def changes_check(spec: Spec, affordable: int) -> Check:
    """Do more signs change than epsilon can afford with at most the chance delta?

    ``affordable`` is how many flips of the law cost no more than epsilon together.
    """
    step = Fraction(spec.grid.step)
    # Half a step a coordinate where the norm is checked, half on the grid, and float errors.
    root = Fraction(math.sqrt(spec.dim))
    short = root * step * Fraction(1001, 1000)
    least = Fraction(spec.variant.min_norm or 0) - short
    ratio = math.inf
    if least > 0:
        change = step * (1 << spec.grid.bits)
        ratio = float(change / least) * (1 + 1e-12)
    chance = _rounded_chance(spec.dim, ratio)
    scale = 1 << _SCALE_BITS
    above = Fraction(math.ceil(chance * scale), scale)
    tail = binomial_tail(spec.code_length, above, affordable)
    return Check(
        "law: signs that can change",
        f"more than {affordable} of {spec.code_length} with chance {float(tail):.6g}, each with "
        f"chance {chance:.9g} at most",
        f"δ = {spec.delta!r}",
        "delta is over the projection (Li & Li 2023, Prop. 4.5): for one vector at a time and "
        "ideal normal entries; integral bounded from above, binomial tail in exact rationals",
        spec.variant.entries == "gaussian" and tail <= Fraction(spec.delta),
    )


def change_chance(dim: int, ratio: float) -> float:
    """``P(|g| ≤ r·max|g_i|)`` for dim + 1 independent standard normals, from above.

    Conditioned on s = |g| the chance ``1 − (2Φ(s/r) − 1)^dim`` falls with s, so its value at the
    near end of every interval, weighted with the chance of the interval, bounds it.

    >>> round(change_chance(784, 0.1), 4)
    0.2636
    """
    # Beyond nine deviations of the largest of them there is next to nothing left.
    farthest = _FARTHEST * min(1.0, ratio)
    ends = np.linspace(0.0, farthest, _POINTS + 1)
    between = np.diff(2.0 * ndtr(ends))
    above = 2.0 * ndtr(-ends[-1])
    weights = np.append(between, above)
    with np.errstate(divide="ignore"):
        # log(2Φ(t) − 1) = log1p(−2Φ(−t)), good to the last digits in the tail.
        tail = np.exp(log_ndtr(-ends / ratio))
        inside = np.log1p(-2.0 * tail)
        beyond = -np.expm1(dim * inside)
    return min(1.0, float(weights @ beyond) + _ROUNDOFF)


def _rounded_chance(dim: int, ratio: float) -> float:
    """Bound on :func:`change_chance` where entries were rounded to multiples of h = 2^-12.

    The largest entry moves by at most h/2, and ``w·u/‖u‖`` by at most ``min(√p, t)·h/2`` but for a
    chance ``2e^{−t²/2}`` (Hoeffding 1963). Where the largest entry is at least μ, this is a change
    of r by ``(r + t)·h/2μ``; it lies below μ with chance ``(2Φ(μ) − 1)^p``. Any μ is a bound.
    """
    if not math.isfinite(ratio):
        return 1.0
    half_step = 2.0**-_ENTRY_BITS / 2.0
    slack = (ratio + min(math.sqrt(dim), _RARE)) * half_step
    bound = 1.0
    for quarter in range(-12, 9):
        least = 2.0 ** (quarter / 4.0)  # the μ above
        below = (2.0 * float(ndtr(least)) - 1.0) ** dim
        bound = min(bound, change_chance(dim, ratio + slack / least) + below)
    hoeffding = 2.0 * math.exp(-(_RARE**2) / 2.0)
    return min(1.0, bound + hoeffding + dim * 2.0**-48)


def binomial_tail(count: int, chance: Fraction, limit: int) -> Fraction:
    """``P(Binomial(count, chance) > limit)``, exactly.

    >>> binomial_tail(3, Fraction(1, 2), 1)
    Fraction(1, 2)
    """
    hit = chance.numerator
    miss = chance.denominator - chance.numerator
    total = 0
    for hits in range(limit + 1, count + 1):
        total += math.comb(count, hits) * hit**hits * miss ** (count - hits)
    return Fraction(total, chance.denominator**count)


class FlipsVerifier(LawVerifier):
    """Flips of signs, one by one, with a chance that depends on the level of the coordinate."""

    proves = "DP"
    composition = "sequential, over the signs that change (Li & Li 2023, Thms 2.3 and 4.1)"

    def check(self) -> Check:
        """Chance of "+", in 2^-64, at zero and by level; neighbours are at most one level apart."""
        levels = self.law.thresholds
        widths = self.law.weights
        apart = self.apart
        # Chances of "+": a coin and a sign, opposite signs at level 1, and two levels of one sign.
        coin = UNIT // 2
        first = levels[0]
        pairs = [(coin, first), (UNIT - first, first), *pairwise(levels)]
        minus = [(UNIT - p, UNIT - q) for p, q in pairs]
        ratio = exact.largest_ratio(pairs + minus)
        if apart.delta:
            return changes_check(self.spec, self._affordable(ratio))
        # A coordinate that moves by w units crosses at most ⌈w / width⌉ levels.
        crossed = apart.moves.count
        if len(levels) > 1 and (widths < apart.largest).any():
            crossed = apart.moves.l1
        if apart.ball is not None or (widths < 1).any():
            ratio = exact.UNBOUNDED
        return self._ratio(
            "law: ratio of neighbouring levels",
            ratio,
            apart.epsilon / crossed,
            f"{len(levels)} levels, of which one attribute crosses at most {crossed} in all "
            "coordinates together; opposite signs meet at level 1 and at the coin of an exact zero "
            "only",
        )

    def _affordable(self, ratio: exact.Ratio) -> int:
        """How many flips of one and the same chance cost no more than epsilon together."""
        if len(self.law.thresholds) > 1:
            return 0
        for signs in range(self.spec.code_length, 0, -1):
            if exact.loss_within(ratio, self.apart.epsilon / signs):
                return signs
        return 0

    def likeliest(self) -> tuple[float, float]:
        """The public bounds limit the level, so no sign flips with less chance than there."""
        levels = self.law.thresholds
        grid = self.spec.grid
        narrowest = (1 << grid.bits) * float(self.law.weights.min())
        largest = (grid.reach / grid.step + 1) * grid.max_column_l1
        level = min(len(levels), math.ceil(largest / narrowest))
        flip = levels[level - 1] / UNIT
        return 1 - flip, 1 - 2 * flip * (1 - flip)


class _Individual(LawVerifier):
    """Noise inside the perturbed set A only, by the size of A."""

    proves = "iDP"
    composition = "the law's check composes over the perturbed set A (Li & Li 2023, Thm 6.2)"


class IndividualFlipsVerifier(_Individual):
    """Flips inside the perturbed set A."""

    def check(self) -> Check:
        count = self.apart.moves.count
        thresholds = self.law.table[2:].tolist()
        wrong = []
        for size, flip in enumerate(thresholds, 1):
            share = self.apart.epsilon / min(size, count)
            if not exact.loss_within((UNIT - flip, flip), share):
                wrong.append(size)
        return Check(
            "law: ratio of one flip, for every size N of A",
            f"{len(wrong)} of {len(thresholds)} sizes above ε/min(N, {count}): {wrong[:1]}",
            "0",
            "iDP only (Li & Li 2023, Def. 2.6, Thm 6.2): A is held fixed at the actual vector; at "
            f"most {count} of its N signs move, and their shares of flips compose to ε",
            not wrong and len(thresholds) == self.spec.code_length,
        )


class IndividualGaussianVerifier(_Individual):
    """Normal noise inside the perturbed set A."""

    def check(self) -> Check:
        # The largest L2 shift that any size of A makes; no more than ``count`` of A move.
        multipliers = self.law.multipliers.tolist()
        shift_squared = 0
        for size in range(1, self.spec.code_length + 1):
            moved = min(size, self.apart.moves.count)
            shift_squared = max(shift_squared, multipliers[size] ** 2 * moved)
        return self._gaussian(
            "law: Gaussian inside A, worst size of A",
            exact.above_root(Fraction(shift_squared)),
            exact.normal_of_table(self.law.table),
            "iDP only (Li & Li 2023, Def. 2.6, Thm 6.1), with A fixed at the actual vector; ",
        )


VERIFIERS: dict[type[Any], type[LawVerifier]] = {
    CellTable: TableVerifier,
    TwoDigitGaussian: TwoDigitGaussianVerifier,
    TwoDigitLaplace: TwoDigitLaplaceVerifier,
    FlipsByLevel: FlipsVerifier,
    SquareWave: SquareWaveVerifier,
    IndividualFlips: IndividualFlipsVerifier,
    IndividualGaussian: IndividualGaussianVerifier,
    CapResponse: CapVerifier,
    CodebookResponse: CodebookVerifier,
    SoftmaxResponse: SoftmaxVerifier,
}
"""By the class of a law, or of the source that an additive law draws from."""


def law_verifier_class(spec: Any) -> type[LawVerifier]:
    """The class that verifies the law of ``spec``; the base class for a law without one."""
    for kind, verifier in VERIFIERS.items():
        if isinstance(spec.law.drawn_from, kind):
            return verifier
    return LawVerifier


def law_verifier(spec: Any, apart: Difference) -> LawVerifier:
    """The verifier of the law of ``spec``."""
    return law_verifier_class(spec)(spec, apart)
