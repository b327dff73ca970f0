"""Verifiers of sign codes whose signs are flipped one by one."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from copy import copy
from fractions import Fraction
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from dpindex.audit import exact_arithmetic as exact
from dpindex.audit.decoding import Ints, Replay, Words, flips, replay_faults, table_draws
from dpindex.audit.law_verifiers.base import LawVerifier
from dpindex.audit.replay import ONE, Constant, Dealt, Fixed, Script, table_faults
from dpindex.audit.sign_changes import changes_check
from dpindex.audit.verdict import Check
from dpindex.base.arrays import AnyArray


class _Signs(LawVerifier):
    """Sign codes: at one grid step above zero a word decides between the sign and its opposite."""

    words: ClassVar[tuple[Fixed, Fixed]] = (Constant(0), Constant(ONE - 1))
    start = 1


class FlipsVerifier(_Signs):
    """Flips of signs, one by one, with a chance that depends on the level of the coordinate."""

    proves = "DP"
    composition = "sequential, over the signs that change (Li & Li 2023, Thms 2.3 and 4.1)"

    def check(self) -> Check:
        """Chance of "+", in 2^-64, at zero and by level; neighbours are at most one level apart."""
        levels = self.law.thresholds
        apart = self.apart
        pairs = [(ONE // 2, levels[0]), (ONE - levels[0], levels[0]), *pairwise(levels)]
        wide_enough = len(levels) == 1 or bool((self.law.weights >= apart.largest).all())
        ratio = exact.largest_ratio([*pairs, *((ONE - p, ONE - q) for p, q in pairs)])
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
        largest = (grid.reach / grid.step + 1) * self.spec.projection.max_column_l1
        level = math.ceil(largest / (width * float(self.law.weights.min())))
        flip = self.law.thresholds[min(level, len(self.law.thresholds)) - 1] / ONE
        return 1 - flip, 1 - 2 * flip * (1 - flip)

    def outcomes(self, x: Ints, words: Replay) -> AnyArray:
        width = self.law.weights.astype(np.int64) << self.spec.grid.bits
        level = np.clip(-(-np.abs(x) // width), 1, len(self.law.thresholds))
        chances = np.array(self.law.thresholds, dtype=np.uint64)[level - 1]
        chances[x == 0] = ONE // 2
        return (x > 0) ^ flips(chances, words)

    def replay(self) -> Iterator[Any]:
        """At both ends of every level of every coordinate, which may have levels of its own."""
        law = self.law
        width = law.weights.astype(np.int64)[None, :] << self.apart.bits
        first = np.arange(len(law.thresholds))[:, None] * width + 1
        final = first + width - 1
        final[-1] *= 2  # the last level goes on for ever
        x = np.concatenate([first, final, -first, -final, np.zeros_like(width)])
        limits = [limit for limit in (*law.thresholds * 4, ONE // 2) for _ in range(width.size)]
        for below in (1, 0):
            source = Script([limit - below for limit in limits], limits)
            yield replay_faults(law, x, source, self.outcomes)


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


class IndividualFlipsVerifier(_Individual):
    """Flips inside the perturbed set A."""

    def check(self) -> Check:
        count = self.apart.moves.count
        thresholds = [int(q) for q in self.law.table[2:]]
        wrong = [
            n
            for n, q in enumerate(thresholds, 1)
            if not exact.loss_within((ONE - q, q), self.apart.epsilon / min(n, count))
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
        chances[x == 0] = ONE // 2
        return (x > 0) ^ flips(chances, words)

    def replay(self) -> Iterator[Any]:
        for size, x, _ in self.rows():
            threshold = int(self.law.table[1 + size])
            for number in (threshold - 1, threshold):
                yield replay_faults(self.law, x, Constant(number), self.outcomes)


class IndividualGaussianVerifier(_Individual):
    """Normal noise inside the perturbed set A."""

    words = LawVerifier.words
    start = 0

    def check(self) -> Check:
        # The largest L2 shift that any size of A makes; no more than ``count`` of A move.
        sizes = range(1, self.spec.code_length + 1)
        times = self.law.multipliers.tolist()
        shift_squared = max(times[n] ** 2 * min(n, self.apart.moves.count) for n in sizes)
        return self._gaussian(
            "law: Gaussian inside A, worst size of A",
            exact.above_root(Fraction(shift_squared)),
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
