"""One verifier for each kind of law: its exact check, the replay of its sampler, what it proves.

``VERIFIERS`` is the one place where the audit tells laws apart: a new law is a class and an entry
here. A verifier computes everything from the integers that a law draws by (masses, thresholds); it
never asks the law for its moments or its likelihood.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from fractions import Fraction
from itertools import accumulate, pairwise, product, takewhile
from typing import Any, ClassVar

import mpmath
import numpy as np
import numpy.typing as npt

from dpindex.audit import exact_arithmetic as exact
from dpindex.audit.decoding import (
    Ints,
    Replay,
    Words,
    flips,
    magnitude,
    table_draws,
    uniform_below,
)
from dpindex.audit.record_checks import (
    cap_codes,
    cap_faults,
    cap_size,
    symbol_faults,
    symbols,
    words_of_outcomes,
)
from dpindex.audit.replay import THIRD, Constant, Dealt, Fixed, Refused, Script, table_faults
from dpindex.audit.sign_changes import changes_check
from dpindex.audit.verdict import Check, Difference, digits
from dpindex.base.arrays import AnyArray
from dpindex.mechanism.noise.cap import CapResponse
from dpindex.mechanism.noise.codebook_response import CodebookResponse
from dpindex.mechanism.noise.counts import TwoSidedGeometric
from dpindex.mechanism.noise.gaussian import TwoDigitGaussian
from dpindex.mechanism.noise.geometric import TwoDigitLaplace
from dpindex.mechanism.noise.individual import IndividualFlips, IndividualGaussian
from dpindex.mechanism.noise.randomized_response import FlipsByLevel
from dpindex.mechanism.noise.square_wave import SquareWave
from dpindex.mechanism.noise.tables import CellTable

_ONE = 1 << 64
_WORD = THIRD >> 32
_Draws = tuple[str, Sequence[int]]


class LawVerifier:
    """Verifies the law of one spec; the base class is that of unknown laws, and proves nothing.

    Parameters
    ----------
    spec : Spec or SketchSpec
        Whose law it is.
    apart : Difference
        What the law has to hide.
    """

    proves: ClassVar[str] = "nothing, as it is unknown"
    """The strongest promise that the law can keep: "DP" or "iDP"."""

    composition: ClassVar[str] = "the law's check is about all of them, by their L1 or L2 distance"
    """Why the losses of the coordinates that differ add up to epsilon."""

    whole_code: ClassVar[bool] = False
    """Whether the law's check compares whole codes, so that nothing is composed."""

    words: ClassVar[tuple[Fixed, Fixed]] = (Constant(THIRD), Constant(2 * THIRD))
    """Two sources that must lead to different outcomes at the grid integer ``start``."""

    start: int = 0

    def __init__(self, spec: Any, apart: Difference) -> None:
        self.spec = spec
        self.law = spec.law
        self.apart = apart

    def check(self) -> Check:
        """The exact check of the law."""
        return Check("law", "a law of an unknown kind", "", "there is no check of it", False)

    def replay(self) -> Iterator[Any]:
        """Whether outcomes of words at both ends of every probability were wrong, in arrays."""
        yield True

    def replay_check(self) -> Check:
        """The sampler follows the integers of the law."""
        return Check.none(
            "sampler: outcomes of replayed words",
            np.concatenate([np.ravel(faults) for faults in self.replay()]),
            "wrong",
            "words at both ends of every probability give the outcome that it belongs to",
        )

    def outcomes(self, x: Ints, words: Replay) -> AnyArray:
        """What must be released of exact integers ``x`` under these words, shape (n, k).

        Subclasses decode the words themselves. Where there is no decoder, the sampler is believed.
        """
        released: AnyArray = self.law.perturb(x.astype(np.float64), words)
        return released

    def rows_drawn(self, x: Ints, reads: Sequence[Words]) -> list[int]:
        """How many rows of ``x`` may have had their noise from these reads, the likeliest first."""
        same = takewhile(lambda read: read.dtype == reads[0].dtype, reads)
        counts = [total // x.shape[1] for total in accumulate(map(len, same))]
        return [count for count in reversed(counts) if 0 < count <= len(x)]

    def likeliest(self) -> tuple[float, float]:
        """Bounds on the chance of one value of a coordinate, and of two coordinates being equal."""
        return 1.0, 1.0

    def spread(self) -> float | None:
        """The deviation of additive noise in cells; None of other laws."""
        return None

    def characteristic(self, times: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """``|E e^{itz}|`` of additive noise z in cells."""
        return np.ones(len(times))

    def coverage_check(self) -> Check:
        """No coordinate of a code is left without noise."""
        x = np.full((3, self.spec.projection.k), float(self.start))
        one, other = (self.law.perturb(x.copy(), source) for source in self.words)
        return Check.none(
            "sampler: noise on every coordinate",
            (one == other).any(axis=0),
            "without",
            "two words that lead to different outcomes must change every coordinate",
        )

    def _ratio(self, name: str, ratio: exact.Ratio, epsilon: Fraction, theorem: str) -> Check:
        """The loss ``log(ratio)`` is at most ``epsilon``."""
        with mpmath.workprec(512):
            loss = "∞"
            if ratio[1] != 0:
                loss = digits(mpmath.log(mpmath.mpf(ratio[0]) / ratio[1]))
        passed = exact.loss_within(ratio, epsilon)
        return Check(name, f"largest loss {loss}", digits(epsilon), theorem, passed)

    def _gaussian(self, name: str, cells: Fraction, law: exact.Normal, note: str = "") -> Check:
        """(ε, δ) where all coordinates that differ move by ``cells`` in L2.

        *Reduction.* On integers ``x + round(N) = round(x + N)``: if the noise were a rounded
        normal, a code would be post-processing of ``x + N`` in all its coordinates, and Balle &
        Wang 2018, Thm 8, holds for it in any dimension. The table is not quite a rounded normal:
        for every coordinate that differs, ``(1 + e^ε)`` times its distance from one adds to delta.
        """
        deviation, distance = law
        epsilon = self.apart.epsilon
        delta = self.apart.delta
        shift = cells / deviation
        with mpmath.workprec(320):
            e, mu = (mpmath.mpf(x.numerator) / x.denominator for x in (epsilon, shift))
            power = mpmath.exp(e)
            normal = mpmath.ncdf(mu / 2 - e / mu) - power * mpmath.ncdf(-mu / 2 - e / mu)
            apart = self.apart.moves.count * mpmath.mpf(distance.numerator) / distance.denominator
            # ncdf is good to nearly 320 bits; 2^-200 of slack covers that many times over.
            found = normal + (1 + power) * apart + mpmath.ldexp(1, -200)
            passed = bool(found <= mpmath.mpf(delta.numerator) / delta.denominator)
        return Check(
            name,
            f"δ = {digits(found)} at ε = {digits(epsilon)}, shift of {float(shift):.9g} deviations",
            digits(delta),
            f"{note}Balle & Wang 2018, Thm 8, plus (1 + e^ε) times the distance from a normal law",
            passed,
        )


class _Additive(LawVerifier):
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

    def draws(self, count: int, words: Replay) -> Ints:
        """What so many draws of the source are, in grid steps."""
        return table_draws(self.source, count, words)

    def tables(self) -> list[tuple[CellTable, int]]:
        """The tables that a draw is the sum of, and how many cells one of their cells is."""
        return [(self.source, 1)]

    def likeliest(self) -> tuple[float, float]:
        chances = [np.array(_chances(table)) for table, _ in self.tables()]
        return min(c.max() for c in chances), min((c**2).sum() for c in chances)

    def spread(self) -> float | None:
        # Where the characteristic function has fallen to e^(−1/2), as a normal one does at 1/σ.
        times = np.geomspace(2.0**-30, 3.0, 400)
        return float(1 / times[np.argmax(self.characteristic(times) < math.exp(-0.5))])

    def characteristic(self, times: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        parts = [np.abs(_transform(table, times * width)) for table, width in self.tables()]
        return np.asarray(np.prod(parts, axis=0))

    def outcomes(self, x: Ints, words: Replay) -> AnyArray:
        codes: AnyArray = (x + self.draws(x.size, words).reshape(x.shape)) >> self.bits
        return codes

    def replay(self) -> Iterator[Any]:
        """A code must be the sum of the grid integer and the draw, without its low bits."""
        law = copy(self.law)
        draws = np.array([-5, -1, 0, 1, 3, 77]) << self.bits
        x = np.array([[-9, 0, 5, 6, 7, 4096]])
        for dtype in (np.float32, np.float64):
            law.source = Dealt(draws, cell_bits=self.bits)
            yield law.perturb(x.astype(dtype), Constant(0)) != (x + draws) >> self.bits

    def _joined(self, join: Callable[..., int], *draws: _Draws) -> Iterator[AnyArray]:
        """The tables of a source by themselves, and what ``join`` says is made of their draws."""
        cases = list(product(*(values for _, values in draws)))
        prepared = defaultdict(list)
        for (name, _), column in zip(draws, zip(*cases, strict=True), strict=True):
            prepared[name].append(column)
        source = copy(self.source)
        for name, columns in prepared.items():
            yield table_faults(getattr(source, name))
            setattr(source, name, Dealt(*columns))
        yield source.sample(len(cases), Constant(0)) != np.array([join(*case) for case in cases])
        yield from _Additive.replay(self)


class _Table(_Additive):
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
        found = exact.hockey_stick(self.source, self.cells, apart.epsilon)
        return Check(
            "law: hockey-stick divergence",
            f"{digits(found)} at ε = {digits(apart.epsilon)}, worst of {self.cells} shifts",
            digits(apart.delta),
            f"Barthe & Olmedo 2013: (ε, δ) holds if E_(e^ε) ≤ δ for all neighbours; {self.dither}",
            found <= apart.delta,
        )

    def replay(self) -> Iterator[Any]:
        yield table_faults(self.source)
        yield from super().replay()


class _TwoSidedGeometric(_Additive):
    """Of two magnitudes the difference has ``P(k) = Σ_b g(k+b)·g(b)`` for k ≥ 0, the same below:
    a ratio of g between neighbours holds for P, term by term."""

    def step(self) -> exact.Ratio:
        return exact.worst_table_ratio(self.source.table, 1)

    def draws(self, count: int, words: Replay) -> Ints:
        one, other = (magnitude(table_draws(self.source.table, count, words)) for _ in range(2))
        return one - other

    def replay(self) -> Iterator[Any]:
        # a and −1−a have the same magnitude.
        draws = ("table", range(-4, 4))
        return self._joined(lambda a, b: max(a, ~a) - max(b, ~b), draws, draws)


class _TwoDigitGaussian(_Additive):
    def tables(self) -> list[tuple[CellTable, int]]:
        return [(self.source.coarse, 1 << self.source.digit), (self.source.fine, 1)]

    def normal(self) -> exact.Normal:
        return exact.normal_of_digits(self.source)

    def draws(self, count: int, words: Replay) -> Ints:
        shift: int = self.source.digit + self.bits
        coarse = table_draws(self.source.coarse, count, words)
        return (coarse << shift) + table_draws(self.source.fine, count, words)

    def replay(self) -> Iterator[Any]:
        base = 1 << self.source.digit + self.bits
        fine = ("fine", (-base, -1, 0, 1, base - 1))
        return self._joined(lambda h, n: h * base + n, ("coarse", range(-3, 3)), fine)


class _TwoDigitLaplace(_Additive):
    def likeliest(self) -> tuple[float, float]:
        high, low = (np.array(_chances(t)) for t in (self.source.high, self.source.low))
        return high.max() * low.max(), (high**2).sum() * (low**2).sum()

    def characteristic(self, times: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        high = _side(self.source.high, times * (1 << self.source.digit))
        return _mirrored(high * _sums(_chances(self.source.low), times), times)

    def step(self) -> exact.Ratio:
        return exact.worst_two_digit_step(self.source)

    def draws(self, count: int, words: Replay) -> Ints:
        high = table_draws(self.source.high, count, words)
        low = table_draws(self.source.low, count, words)
        shift: int = self.source.digit + self.bits
        size = (magnitude(high) << shift) + low
        return np.where(high < 0, -1 - size, size)

    def replay(self) -> Iterator[Any]:
        base: int = 1 << self.source.digit + self.bits

        def join(high: int, low: int) -> int:
            """A magnitude about −½: −1 − h is the mirror of h."""
            if high >= 0:
                return high * base + low
            return ~(~high * base + low)

        return self._joined(join, ("high", range(-3, 3)), ("low", (0, 1, base - 1)))


class _Signs(LawVerifier):
    """Sign codes: at one grid step above zero a word decides between the sign and its opposite."""

    words: ClassVar[tuple[Fixed, Fixed]] = (Constant(0), Constant(_ONE - 1))
    start = 1


class _Flips(_Signs):
    proves = "DP"
    composition = "sequential, over the signs that change (Li & Li 2023, Thms 2.3 and 4.1)"

    def check(self) -> Check:
        """Chance of "+", in 2^-64, at zero and by level; neighbours are at most one level apart."""
        levels = self.law.thresholds
        apart = self.apart
        pairs = [(_ONE // 2, levels[0]), (_ONE - levels[0], levels[0]), *pairwise(levels)]
        wide_enough = len(levels) == 1 or bool((self.law.weights >= apart.largest).all())
        ratio = exact.largest_ratio([*pairs, *((_ONE - p, _ONE - q) for p, q in pairs)])
        if apart.delta:
            # Flips of one chance, of which so many cost epsilon; how many signs change is a chance.
            signs = range(self.spec.code_length if len(levels) == 1 else 0, 0, -1)
            afforded = (n for n in signs if exact.loss_within(ratio, apart.epsilon / n))
            return changes_check(self.spec, next(afforded, 0))
        return self._ratio(
            "law: ratio of neighbouring levels",
            ratio if wide_enough and apart.ball is None else exact.UNBOUNDED,
            apart.epsilon / apart.moves.count,
            f"{len(levels)} levels, none narrower than what one attribute moves its coordinate; "
            "opposite signs meet at level 1 and at the coin of an exact zero only",
        )

    def likeliest(self) -> tuple[float, float]:
        """The public bounds limit the level, so no sign flips with less chance than there."""
        grid = self.spec.grid
        width = 1 << self.spec.grid.bits
        most = (grid.reach / grid.step + 1) * self.spec.projection.max_column_l1
        level = math.ceil(most / (width * float(self.law.weights.min())))
        flip = self.law.thresholds[min(level, len(self.law.thresholds)) - 1] / _ONE
        return 1 - flip, 1 - 2 * flip * (1 - flip)

    def outcomes(self, x: Ints, words: Replay) -> AnyArray:
        width = self.law.weights.astype(np.int64) << self.spec.grid.bits
        level = np.clip(-(-np.abs(x) // width), 1, len(self.law.thresholds))
        chances = np.array(self.law.thresholds, dtype=np.uint64)[level - 1]
        chances[x == 0] = _ONE // 2
        return (x > 0) ^ flips(chances, words)

    def replay(self) -> Iterator[Any]:
        """At both ends of every level of every coordinate, which may have levels of its own."""
        law = self.law
        width = law.weights[None, :] * (1 << self.apart.bits)
        first = np.arange(len(law.thresholds), dtype=np.float64)[:, None] * width + 1
        final = first + width - 1
        final[-1] *= 2  # the last level goes on for ever
        x = np.concatenate([first, final, -first, -final, np.zeros_like(width)])
        limits = [limit for limit in (*law.thresholds * 4, _ONE // 2) for _ in range(width.size)]
        for below in (1, 0):
            source = Script([limit - below for limit in limits], limits)
            yield (law.perturb(x.copy(), source) != (x > 0)) != bool(below)


class _Individual(_Signs):
    """Noise inside the perturbed set A only, by the size of A."""

    proves = "iDP"
    composition = "the law's check composes over the perturbed set A (Li & Li 2023, Thm 6.2)"

    def rows(self) -> Iterator[tuple[int, AnyArray, AnyArray]]:
        """Sizes of A; a row with such an A, one beta and −1 inside it in turn; what lies in A."""
        length = self.spec.code_length
        width = float(1 << self.apart.bits)
        for size in sorted({1, 2, length // 2, length} & set(range(1, length + 1))):
            inside = np.arange(length) < size
            near = np.where(np.arange(length) % 2, -1, width)
            yield size, np.where(inside, near, width + 1)[None, :], inside


class _IndividualFlips(_Individual):
    def check(self) -> Check:
        count = self.apart.moves.count
        thresholds = [int(q) for q in self.law.table[2:]]
        wrong = [
            n
            for n, q in enumerate(thresholds, 1)
            if not exact.loss_within((_ONE - q, q), self.apart.epsilon / min(n, count))
        ]
        return Check(
            "law: ratio of one flip, for every size N of A",
            f"{len(wrong)} of {len(thresholds)} sizes above ε/min(N, {count}): {wrong[:1]}",
            "0",
            "iDP only (Li & Li 2023, Def. 2.6, Thm 6.2): A is held fixed at the actual vector; at "
            f"most {count} of its N signs move, and so many flips of their share compose to ε",
            not wrong and len(thresholds) == self.spec.code_length,
        )

    def outcomes(self, x: Ints, words: Replay) -> AnyArray:
        near = np.abs(x) <= 1 << self.spec.grid.bits
        by_size = self.law.table[1 + np.count_nonzero(near, axis=1)]
        chances = np.where(near, by_size[:, None], np.uint64(0))
        chances[x == 0] = _ONE // 2
        return (x > 0) ^ flips(chances, words)

    def replay(self) -> Iterator[Any]:
        for size, x, inside in self.rows():
            threshold = int(self.law.table[1 + size])
            for number in (threshold - 1, threshold):
                flipped = self.law.perturb(x, Constant(number)) != (x > 0)
                yield flipped != (inside & (number < threshold))


class _IndividualGaussian(_Individual):
    words = LawVerifier.words
    start = 0

    def check(self) -> Check:
        # The largest L2 shift that any size of A makes; no more than ``count`` of A move.
        sizes = range(1, self.spec.code_length + 1)
        times = self.law.multipliers.tolist()
        most = max(times[n] ** 2 * min(n, self.apart.moves.count) for n in sizes)
        return self._gaussian(
            "law: Gaussian inside A, worst size of A",
            exact.above_root(Fraction(most)),
            exact.normal_of_table(self.law.table),
            "iDP only (Li & Li 2023, Def. 2.6, Thm 6.1), with A fixed at the actual vector; ",
        )

    def outcomes(self, x: Ints, words: Replay) -> AnyArray:
        bits = self.spec.grid.bits
        near = np.abs(x) <= 1 << bits
        sizes = np.count_nonzero(near, axis=1)
        magnified = (x * np.array(self.law.multipliers)[sizes][:, None])[near]
        dither = words.take(len(magnified), np.uint16).astype(np.int64) % (1 << bits)
        noisy = (magnified + dither >> bits) + table_draws(self.law.table, len(magnified), words)
        coins = words.take(len(magnified), np.uint8) % 2 == 1
        signs = x > 0
        signs[near] = (noisy > 0) | ((noisy == 0) & coins)
        return signs

    def rows_drawn(self, x: Ints, reads: Sequence[Words]) -> list[int]:
        """Those after which as many coordinates lay inside A as were dithered."""
        inside = np.cumsum(np.count_nonzero(np.abs(x) <= 1 << self.spec.grid.bits, axis=1))
        fits = np.flatnonzero(inside == len(reads[0])) + 1
        return [int(count) for count in reversed(fits[-4:])]

    def replay(self) -> Iterator[Any]:
        """The table; then draws that undo, or just not, what one beta is multiplied by."""
        yield table_faults(self.law.table)
        law = copy(self.law)
        for size, x, inside in self.rows():
            for above in (0, 1):
                law.table = Dealt([above - int(law.multipliers[size])] * size)
                yield law.perturb(x, Constant(0)) != (x > 0) & (~inside | bool(above))


class _SquareWave(LawVerifier):
    proves = "DP"
    words = (Constant(0, _WORD), Constant(_ONE - 1, _WORD))

    def __init__(self, spec: Any, apart: Difference) -> None:
        super().__init__(spec, apart)
        self.start = int(self.law.low)
        self.window = 2 * self.law.half_width + 1

    def check(self) -> Check:
        law = self.law
        chances = law.inside * law.cells, (_ONE - law.inside) * self.window
        ratio = exact.largest_ratio([chances])
        return self._ratio(
            "law: ratio inside and outside the window",
            ratio if self.apart.single else exact.UNBOUNDED,
            self.apart.epsilon,
            "every cell of the interval has the same two chances, so all pairs are covered",
        )

    def likeliest(self) -> tuple[float, float]:
        inside = self.law.inside / _ONE
        most = max(inside / self.window, (1 - inside) / self.law.cells)
        return most, most

    def outcomes(self, x: Ints, words: Replay) -> AnyArray:
        law = self.law
        bits = self.law.cell_bits
        dither = words.take(x.size, np.uint8).reshape(x.shape).astype(np.int64) % (1 << bits)
        cell = np.minimum(np.maximum(x - law.low + dither >> bits, 0), law.cells)
        inside = flips(np.full(x.shape, law.inside, dtype=np.uint64), words)
        drawn = uniform_below(np.where(inside, self.window, law.cells), words)
        # Points left free by the window are counted from below, over the window.
        return drawn + np.where(inside, cell, np.where(drawn < cell, 0, self.window))

    def replay(self) -> Iterator[Any]:
        law = self.law
        ends = np.array([[law.low, law.low + (law.cells << law.cell_bits)]], dtype=np.float64)
        sources = (Constant(number, _WORD) for number in (law.inside - 1, law.inside))
        inside, outside = (law.perturb(ends[:, :1], source) for source in sources)
        yield [inside >= self.window, outside < self.window]
        # Rounding may leave the interval by a step; no dither may make an outcome of that.
        for number in (0, 0x1F << 56):  # the least and the largest dither
            source = Constant(number, _WORD)
            yield law.perturb(ends + np.array([[-1, 1]]), source) != law.perturb(ends, source)
        # A word whose product falls short is refused, or the first outcomes were likelier.
        for number in (law.inside - 1, law.inside):
            if (1 << 32) % (self.window if number < law.inside else law.cells):
                again = law.perturb(ends, Refused(number, _WORD))
                yield again != law.perturb(ends, Constant(number, _WORD))


def _chances(table: CellTable) -> list[float]:
    """Of the cells of a table; a tail counts as one, which makes equal draws no less likely."""
    return [mass / (1 << table.bits) for mass in table.masses]


def _sums(chances: AnyArray | list[float], times: npt.NDArray[np.float64]) -> AnyArray:
    """``Σ p_m e^{itm}`` over m = 0, 1, …, for every t."""
    powers = np.arange(len(chances))
    return np.array([np.exp(1j * t * powers) @ chances for t in times])


def _side(table: CellTable, times: npt.NDArray[np.float64]) -> AnyArray:
    """``E e^{itm}`` of the magnitude of a table with tails, which begins again in its tail."""
    half = len(table.masses) // 2
    inner = 2 * np.array(_chances(table)[half:-1])
    tail = 2 * table.masses[-1] / (1 << table.bits)
    return np.asarray(_sums(inner, times) / (1 - tail * np.exp(1j * times * (half - 1))))


def _mirrored(side: AnyArray, times: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Of a law symmetric about −½ with that magnitude."""
    return np.asarray(np.abs(side + np.exp(-1j * times) * np.conj(side)) / 2)


def _transform(table: CellTable, times: npt.NDArray[np.float64]) -> AnyArray:
    if table.tails:
        return _mirrored(_side(table, times), times)
    return _sums(_chances(table), times)


class _WholeCode(LawVerifier):
    """Laws of whole codes: two chances, whatever the record."""

    proves = "DP"
    composition = (
        "a code is one draw, and its chances under any two records are compared as a whole"
    )
    whole_code = True


class _Cap(_WholeCode):
    # Inside and all signs kept, outside and none.
    words = (
        Fixed({8: 0, 2: 0xFFFF, 4: 0xFFFF_FFFF}),
        Fixed({8: _ONE - 1, 2: 0xFFFF, 4: 0xFFFF_FFFF}),
    )
    start = 1

    def outcomes(self, x: Ints, words: Replay) -> AnyArray:
        return cap_codes(self.law.cap, x, words)

    def rows_drawn(self, x: Ints, reads: Sequence[Words]) -> list[int]:
        total = sum(len(read) for read in reads if read.dtype == np.uint16)
        if 0 < total <= x.size:
            return [total // x.shape[1]]
        return []

    def likeliest(self) -> tuple[float, float]:
        """The sign of the largest weight; how signs hang together is not bounded here."""
        cap = self.law.cap
        rest = cap.weights[1:]
        half = 1 << len(cap.weights) - 1
        kept = cap_size(rest, cap.threshold - cap.weights[0])
        chances = Fraction(cap.inside * kept, _ONE * cap.size)
        chances += Fraction((_ONE - cap.inside) * (half - kept), _ONE * (2 * half - cap.size))
        return float(chances), 1.0

    def check(self) -> Check:
        cap = self.law.cap
        k = self.spec.code_length
        whole = 1 << k
        size = cap_size(cap.weights, cap.threshold)
        sound = len(cap.weights) == k and min(cap.weights) >= 0 and cap.threshold >= 0
        sound &= size == cap.size and 0 < size < whole and 0 < cap.inside < _ONE
        chances = cap.inside * (whole - size), (_ONE - cap.inside) * size
        return self._ratio(
            "law: ratio inside and outside the cap",
            exact.largest_ratio([chances]) if sound else exact.UNBOUNDED,
            self.apart.epsilon,
            "signs and ranks only permute {±1}^k, so the cap of every record has the same size N, "
            "counted here by another way; inside and outside a code is uniform",
        )

    def replay(self) -> Iterator[Any]:
        return cap_faults(self.law)


class _Codebook(_WholeCode):
    words = (Fixed({8: 0}), Fixed({8: _ONE - 1}))

    def outcomes(self, x: Ints, words: Replay) -> AnyArray:
        return symbols(self.law, x, words)

    def rows_drawn(self, x: Ints, reads: Sequence[Words]) -> list[int]:
        if 0 < len(reads[0]) <= len(x):
            return [len(reads[0])]
        return []

    def likeliest(self) -> tuple[float, float]:
        law = self.law
        inside = law.inside * max(words_of_outcomes(law.subset))
        outside = (_ONE - law.inside) * max(words_of_outcomes(law.size - law.subset))
        most = max(inside, outside) / _ONE**2
        return most, most

    def check(self) -> Check:
        law = self.law
        size = len(law.codebook)
        subset = law.subset
        sound = size == law.size and 0 < subset < size and 0 < law.inside < _ONE
        chances = [law.inside * words for words in words_of_outcomes(subset)]
        chances += [(_ONE - law.inside) * words for words in words_of_outcomes(size - subset)]
        ratio = exact.largest_ratio([(max(chances), min(chances))])
        return self._ratio(
            "law: ratio of a symbol's chances",
            ratio if sound else exact.UNBOUNDED,
            self.apart.epsilon,
            "under every record a symbol has one of these chances, rounding of both uniform draws "
            "included: all pairs of records are covered",
        )

    def replay(self) -> Iterator[Any]:
        return symbol_faults(self.law)


VERIFIERS: dict[type[Any], type[LawVerifier]] = {
    CellTable: _Table,
    TwoDigitGaussian: _TwoDigitGaussian,
    TwoDigitLaplace: _TwoDigitLaplace,
    TwoSidedGeometric: _TwoSidedGeometric,
    FlipsByLevel: _Flips,
    SquareWave: _SquareWave,
    IndividualFlips: _IndividualFlips,
    IndividualGaussian: _IndividualGaussian,
    CapResponse: _Cap,
    CodebookResponse: _Codebook,
}
"""By the class of a law, or of the source that an additive law draws from."""


def law_verifier_class(spec: Any) -> type[LawVerifier]:
    """The class that verifies the law of ``spec``; the base class for a law without one."""
    drawn = spec.law.drawn_from
    found = (verifier for kind, verifier in VERIFIERS.items() if isinstance(drawn, kind))
    return next(found, LawVerifier)


def law_verifier(spec: Any, apart: Difference) -> LawVerifier:
    """The verifier of the law of ``spec``."""
    return law_verifier_class(spec)(spec, apart)
