"""The verifier of the square wave: an interval of which every cell has one of two chances."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from dpindex.audit import exact_arithmetic as exact
from dpindex.audit.decoding import Ints, Replay, flips, replay_faults, uniform_below
from dpindex.audit.law_verifiers.base import LawVerifier
from dpindex.audit.replay import ONE, THIRD, Constant, Listed, Refused
from dpindex.audit.verdict import Check, Difference
from dpindex.base.arrays import AnyArray

_WORD = THIRD >> 32
_HIGH_WORD = 0xF000_0001


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
        chance = max(inside / self.window, (1 - inside) / self.law.cells)
        return chance, chance

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
        """At both ends of the interval, and a step beyond, which rounding may lead to.

        The least and the largest dither, and the numbers next to the chance of the window. A word
        whose product falls short is refused, or the first outcomes were likelier: all of them, and
        some between others, inside the window and outside.
        """
        law = self.law
        x = law.low + np.array([[-1, 0, law.cells << law.cell_bits]])
        x = np.append(x, x[:, -1:] + 1, axis=1)
        for number in (0, 0x1F << 56, law.inside - 1, law.inside):
            for source in (Constant(number, _WORD), Refused(number, _WORD)):
                yield replay_faults(law, x, source, self.outcomes)
        some = {2: [0, 0xFFFF, 0, 0], 4: [0, _WORD, _WORD, 0, _HIGH_WORD, _HIGH_WORD]}
        yield replay_faults(law, x, Listed(some), self.outcomes)
