"""The softmax codebook's law: its table, its draws and its uniform share, enumerated."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise

import numpy as np

from dpindex.audit import exact_arithmetic as exact
from dpindex.audit.exact_arithmetic import ONE
from dpindex.audit.record_verifiers import SymbolVerifier
from dpindex.audit.verdict import Check, Counts
from dpindex.mechanism.public_random import PublicStream
from dpindex.privacy import VectorAdjacency, record

_PAIRS = 24


class SoftmaxVerifier(SymbolVerifier):
    """A symbol drawn by whole-number weights, or a uniform one."""

    @property
    def proves_too(self) -> list[tuple[VectorAdjacency, float, float]]:
        if self.spec.record_epsilon is None:
            return []
        return [(record(), self.spec.record_epsilon, 0.0)]

    def checks(self) -> Iterator[Check]:
        yield self.check()
        yield self._enumerated()
        if self.spec.record_epsilon is not None:
            yield self.record_check(Fraction(self.spec.record_epsilon))

    def check(self) -> Check:
        """The lemma of :mod:`dpindex.mechanism.noise.softmax`, on the integers that are used."""
        law = self.law
        table = law.table.tolist()
        size = len(law.codebook)
        falls = all(weight >= following > 0 for weight, following in pairwise([*table, table[-1]]))
        sound = falls and size == law.size == self.spec.projection.k
        sound &= size * table[0] < 1 << 63 and 0 <= law.uniform < ONE and law.shift >= 0
        # The least weight is that of so many of the words.
        least = Fraction(table[-1] << 64, size * table[0])
        ratio = exact.UNBOUNDED
        steps = self._steps()
        if sound and least > 1:
            large, small = exact.largest_ratio(pairwise(table))
            loss = Fraction(large**steps, small**steps) * (least + 1) / (least - 1)
            ratio = loss.numerator, loss.denominator
        return self._ratio(
            f"law: {steps} steps of the table, and the draw",
            ratio,
            self.apart.epsilon,
            f"scores move at most {float(self.apart.spread):.9g} apart: the range counts (Durfee & "
            "Rogers 2019); a uniform share is the same law on both sides",
        )

    def _steps(self) -> int:
        """R': steps of the table that a symbol's weight and the sum of all can lose together."""
        moved = math.floor(self.apart.spread)
        if self.law.shift == 0:
            return moved
        return math.floor(Fraction(moved - 2, 1 << self.law.shift)) + 2

    def _enumerated(self) -> Check:
        """All words counted, for scores of two neighbours as far apart as they can be."""
        rows = self.scores(_PAIRS)
        moved = math.floor(self.apart.spread)
        choices = PublicStream(3, "audit/softmax").words(rows.size, np.uint8).reshape(rows.shape)
        pairs: list[tuple[int, int]] = []
        for row, chosen in zip(rows, choices.astype(np.int64) % 2, strict=True):
            one, other = (self.words_of(scores) for scores in (row, row + moved * chosen))
            pairs += zip(one, other, strict=True)
        return self._ratio(
            "law: words of every symbol, enumerated",
            exact.largest_ratio(pairs),
            self.apart.epsilon,
            f"exact chances of {_PAIRS} pairs of neighbours that differ by the whole range",
        )

    def words_of(self, scores: Counts) -> list[int]:
        """Chances of all symbols, times 2^128, given scores without offsets, shape (K,).

        A word w is at place ``⌊w·S/2^64⌋``: below place C are ``⌈C·2^64/S⌉`` of them.
        """
        law = self.law
        ends = [0, *self.ends(scores[None])[0].tolist()]
        before = [-(-(end << 64) // ends[-1]) for end in ends]
        size = len(law.codebook)
        uniform = [-(-(symbol << 64) // size) for symbol in range(size + 1)]
        return [
            law.uniform * (last - first) + (ONE - law.uniform) * (stop - start)
            for (first, last), (start, stop) in zip(
                pairwise(uniform), pairwise(before), strict=True
            )
        ]

    def ends(self, x: Counts) -> Counts:
        """Running sums of the weights, shape (n, K)."""
        scores = x + self.law.offsets.astype(np.int64)
        below = scores.max(axis=1)[:, None] - scores >> self.law.shift
        weights = self.law.table.astype(np.int64)[np.minimum(below, len(self.law.table) - 1)]
        ends: Counts = np.add.accumulate(weights, axis=1)
        return ends

    def scores(self, count: int) -> Counts:
        """Scores of different vectors: from all next to each other to spread over the table."""
        size = self.law.size
        span = len(self.law.table) << self.law.shift
        words = PublicStream(0, "audit/softmax").words(count * size, np.uint32)
        mixed: Counts = words.reshape(count, size).astype(np.int64)
        mixed %= (1 + np.arange(count) * span // count)[:, None]
        return mixed
