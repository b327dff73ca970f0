"""The verifier of the square wave: an interval of which every cell has one of two chances."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from dpindex.audit import exact_arithmetic as exact
from dpindex.audit.decoding import Ints, Replay, flips, uniform_below
from dpindex.audit.law_verifiers.base import LawVerifier
from dpindex.audit.replay import ONE, THIRD, Constant, Refused
from dpindex.audit.verdict import Check, Difference
from dpindex.base.arrays import AnyArray

_WORD = THIRD >> 32


class SquareWaveVerifier(LawVerifier):
    """A window about the value and the rest of an interval, each uniform."""

    proves = "DP"
    words = (Constant(0, _WORD), Constant(ONE - 1, _WORD))

    def __init__(self, spec: Any, apart: Difference) -> None:
        super().__init__(spec, apart)
        self.start = int(self.law.low)
        self.window = 2 * self.law.half_width + 1

    def check(self) -> Check:
        law = self.law
        chances = law.inside * law.cells, (ONE - law.inside) * self.window
        ratio = exact.largest_ratio([chances])
        return self._ratio(
            "law: ratio inside and outside the window",
            ratio if self.apart.single else exact.UNBOUNDED,
            self.apart.epsilon,
            "every cell of the interval has the same two chances, so all pairs are covered",
        )

    def likeliest(self) -> tuple[float, float]:
        inside = self.law.inside / ONE
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
