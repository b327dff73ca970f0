"""Verifiers of integer noise that is added to the code, by the source that it is drawn from."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from dpindex.audit import exact_arithmetic as exact
from dpindex.audit.decoding import Ints, Replay, magnitude, table_draws
from dpindex.audit.law_verifiers.base import LawVerifier
from dpindex.audit.replay import Constant, Dealt, table_faults
from dpindex.audit.verdict import Check, Difference, digits
from dpindex.base.arrays import AnyArray
from dpindex.mechanism.noise.tables import CellTable

_Draws = tuple[str, Sequence[int]]


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

    def draws(self, count: int, words: Replay) -> Ints:
        """Return so many draws of the source, in grid steps."""
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
        yield from AdditiveVerifier.replay(self)


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

    def replay(self) -> Iterator[Any]:
        yield table_faults(self.source)
        yield from super().replay()


class TwoSidedGeometricVerifier(AdditiveVerifier):
    """The difference of two magnitudes: ``P(k) = Σ_b g(k+b)·g(b)`` for k ≥ 0, the same below.

    A ratio of g between neighbours holds for P, term by term.
    """

    def step(self) -> exact.Ratio:
        return exact.worst_table_ratio(self.source.table, 1)

    def draws(self, count: int, words: Replay) -> Ints:
        one, other = (magnitude(table_draws(self.source.table, count, words)) for _ in range(2))
        return one - other

    def replay(self) -> Iterator[Any]:
        # a and −1−a have the same magnitude.
        draws = ("table", range(-4, 4))
        return self._joined(lambda a, b: max(a, ~a) - max(b, ~b), draws, draws)


class TwoDigitGaussianVerifier(AdditiveVerifier):
    """Normal noise in two digits, each from a table: ``2^digit · coarse + fine``."""

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


class TwoDigitLaplaceVerifier(AdditiveVerifier):
    """Laplace noise in two digits of its magnitude, each from a table."""

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


def _chances(table: CellTable) -> list[float]:
    """Return the chances of a table's cells.

    A tail counts as one cell, which makes equal draws no less likely.
    """
    return [mass / (1 << table.bits) for mass in table.masses]


def _sums(chances: AnyArray | list[float], times: npt.NDArray[np.float64]) -> AnyArray:
    """Return ``Σ p_m e^{itm}`` over m = 0, 1, …, for every t."""
    powers = np.arange(len(chances))
    return np.array([np.exp(1j * t * powers) @ chances for t in times])


def _side(table: CellTable, times: npt.NDArray[np.float64]) -> AnyArray:
    """Return ``E e^{itm}`` of the magnitude of a table with tails, which begins again there."""
    half = len(table.masses) // 2
    inner = 2 * np.array(_chances(table)[half:-1])
    tail = 2 * table.masses[-1] / (1 << table.bits)
    return np.asarray(_sums(inner, times) / (1 - tail * np.exp(1j * times * (half - 1))))


def _mirrored(side: AnyArray, times: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return ``|E e^{itz}|`` of a law symmetric about −½, from that of its magnitude."""
    return np.asarray(np.abs(side + np.exp(-1j * times) * np.conj(side)) / 2)


def _transform(table: CellTable, times: npt.NDArray[np.float64]) -> AnyArray:
    if table.tails:
        return _mirrored(_side(table, times), times)
    return _sums(_chances(table), times)
