"""Laws of caps and of symbols, counted a second way: tables, draws and uniform shares.

Counts of a cap are digits of one large integer, ``Π(1 + X^a)`` at a power of two (Kronecker 1882),
not the recursion that the law uses.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate, pairwise

import numpy as np

from dpindex.audit import exact_arithmetic as exact
from dpindex.audit.exact_arithmetic import UNIT
from dpindex.audit.verdict import Check, Counts, LawVerifier
from dpindex.base.arrays import AnyArray, Floats, Longs
from dpindex.mechanism.codes import Codes
from dpindex.mechanism.public_random import PublicStream
from dpindex.privacy import VectorAdjacency, record

SHARE_BITS = 48
UNSEEN = -1
_MAX_SYMBOLS = 32

Shares = Longs


def cap_size(weights: Sequence[int], threshold: int) -> int:
    """How many subsets of the weights add up to the threshold or more.

    >>> cap_size([3, 2, 1], 4)
    3
    """
    counts = at_least(tuple(weights))
    least = min(max(0, threshold), len(counts) - 1)
    return int(counts[least])


@lru_cache(maxsize=8)
def at_least(weights: tuple[int, ...]) -> AnyArray:
    """How many subsets of the weights add up to 0, 1, … or more, and 0 at last."""
    size = len(weights) // 8 + 1  # bytes of X, wide enough for every coefficient
    product = 1
    for weight in weights:
        product += product << 8 * size * weight
    return _completions(weights, size, product)


def _completions(weights: Sequence[int], size: int, product: int) -> AnyArray:
    """Sums of the digits of a product, of ``size`` bytes each: see :func:`at_least`."""
    data = product.to_bytes(size * (sum(weights) + 1), "little")
    digits = []
    for start in range(0, len(data), size):
        digit = data[start : start + size]
        digits.append(int.from_bytes(digit, "little"))
    from_the_top = list(accumulate(reversed(digits), initial=0))
    return np.array(from_the_top[::-1], dtype=object)


def completions_by_side(
    at_least: AnyArray, need: AnyArray, weight: int
) -> tuple[tuple[AnyArray, AnyArray], tuple[AnyArray, AnyArray]]:
    """Completions with the minority sign, and all, outside and inside the cap."""
    whole = at_least[0]
    last = len(at_least) - 1
    disagree = at_least[np.clip(need, 0, last)]
    agree = at_least[np.clip(need - weight, 0, last)]
    inside = agree + disagree
    return (whole - agree, 2 * whole - inside), (disagree, inside)


@lru_cache(maxsize=4)
def minority_shares(weights: tuple[int, ...], threshold: int) -> Shares:
    """``⌊share · 2^48⌋`` of the minority sign by side, coordinate and sum, shape (2, k, sums).

    Side 1 is the inside, where the minority sign disagrees; outside it agrees. −1 where no draw can
    come.
    """
    k = len(weights)
    total = sum(weights)
    shares = np.full((2, k, total + 1), UNSEEN, dtype=np.int64)
    # Bit s of the i-th number: whether some of the first i weights add up to s.
    reached = [1]
    for weight in weights:
        reached.append(reached[-1] | reached[-1] << weight)
    size = k // 8 + 1
    product = 1  # of the weights after the i-th
    for i in range(k - 1, -1, -1):
        at_least = _completions(weights[i + 1 :], size, product)
        data = reached[i].to_bytes(total // 8 + 1, "little")
        bits = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")
        sums = np.flatnonzero(bits)
        sides = completions_by_side(at_least, threshold - sums, weights[i])
        for side, (few, either) in enumerate(sides):
            possible = either > 0
            numbers = (few[possible] << SHARE_BITS) // either[possible]
            shares[side, i, sums[possible]] = numbers.astype(np.int64)
        product += product << 8 * size * weights[i]
    return shares


class CapVerifier(LawVerifier):
    """Signs inside or outside the cap of a record."""

    proves = "DP"
    composition = (
        "a code is one draw, and its chances under any two records are compared as a whole"
    )
    whole_code = True

    def record_scores(self, near: Sequence[Floats]) -> tuple[Callable[[Codes], Counts], int]:
        """``⟨V, x̃′ − x̃⟩``, and every sign."""
        encoded = []
        for y in near:
            x = np.empty(len(y), dtype=np.int64)
            by_size = np.argsort(-np.abs(y), kind="stable")
            x[by_size] = self.law.cap.weights
            encoded.append(np.where(y >= 0, x, -x))
        first, second = encoded
        weights = (second - first).astype(np.float32)
        is_positive = near[1] >= 0
        towards = np.where(is_positive, 1, -1).astype(np.int8)

        def read(codes: Codes) -> Counts:
            signs = codes.format.coordinates(codes.stored)
            score = signs.astype(np.float32) @ weights  # whole numbers below 2^24
            return np.column_stack([score.astype(np.int64), signs * towards])

        return read, 1 + len(towards)

    def likeliest(self) -> tuple[float, float]:
        """The sign of the largest weight; how signs hang together is not bounded here."""
        cap = self.law.cap
        largest, *others = cap.weights
        half = 1 << len(others)  # codes of that sign
        kept = cap_size(others, cap.threshold - largest)  # and inside
        inside = Fraction(cap.inside * kept, UNIT * cap.size)
        left_out = (UNIT - cap.inside) * (half - kept)
        outside = Fraction(left_out, UNIT * (2 * half - cap.size))
        return float(inside + outside), 1.0

    def check(self) -> Check:
        cap = self.law.cap
        k = self.spec.code_length
        whole = 1 << k
        size = cap_size(cap.weights, cap.threshold)
        sound = len(cap.weights) == k and min(cap.weights) >= 0 and cap.threshold >= 0
        sound &= size == cap.size and 0 < size < whole and 0 < cap.inside < UNIT
        ratio = exact.UNBOUNDED
        if sound:
            inside = cap.inside * (whole - size)
            outside = (UNIT - cap.inside) * size
            ratio = exact.largest_ratio([(inside, outside)])
        return self._ratio(
            "law: ratio inside and outside the cap",
            ratio,
            self.apart.epsilon,
            "signs and ranks only permute {±1}^k, so the cap of every record has the same size N, "
            "counted here by another way; inside and outside a code is uniform",
        )

    def checks(self) -> Iterator[Check]:
        yield self.check()
        yield self._shares_check()

    def _shares_check(self) -> Check:
        """The tables that codes are drawn by."""
        cap = self.law.cap
        shares = minority_shares(cap.weights, cap.threshold)
        first, second = self.law.tables
        wrong = (first.astype(np.int64) << 32 | second) != shares
        return Check.none(
            "law: shares of the minority sign",
            wrong & (shares != UNSEEN),
            "others than counted",
            "drawn by the exact shares of completions, codes are uniform on either side; where 48 "
            "bits tie, the sampler reads further digits",
        )


class SymbolVerifier(LawVerifier):
    """Laws of symbols, with a uniform share."""

    proves = "DP"
    composition = "a code is one draw, whose chances under two neighbours are compared as a whole"

    def record_scores(self, near: Sequence[Floats]) -> tuple[Callable[[Codes], Counts], int]:
        """1 for the symbols likelier for the second vector, −1 for the first; and some of them."""
        first, second = self.law.chances(np.stack(near))
        gain = np.log(second / first)
        speaks_for = np.sign(gain) * (np.abs(gain) > 1e-9)
        for_first = int((speaks_for < 0).sum())
        for_second = int((speaks_for > 0).sum())
        columns = min(for_first, for_second, _MAX_SYMBOLS)
        table = np.zeros((len(gain), 1 + 2 * columns), dtype=np.int64)
        table[:, 0] = speaks_for
        start = 1
        for side in (-1, 1):
            strongest = np.argsort(-side * gain, kind="stable")[:columns]
            table[strongest, np.arange(start, start + columns)] = side
            start += columns

        def read(codes: Codes) -> Counts:
            counts: Counts = table[codes.stored[:, 0]]
            return counts

        return read, table.shape[1]

    def record_check(self, epsilon: Fraction, likely: int = 1) -> Check:
        """Return the check of the ratio of a symbol's chances under any two records.

        Beside the uniform share a record draws a symbol with a chance of at most 1/``likely``.

        Of 64-bit words w, ⌊2^64/limit⌋ or one more give an outcome ``⌊w·limit/2^64⌋``.
        """
        size = len(self.law.codebook)
        uniform = self.law.uniform
        ratio = exact.UNBOUNDED
        if size == self.law.size and 0 < likely < size and 0 < uniform < UNIT:
            least = uniform * (UNIT // size)
            most = (UNIT - uniform) * -(-UNIT // likely)
            most += uniform * -(-UNIT // size)
            ratio = exact.largest_ratio([(most, least)])
        return self._ratio(
            "law: least and largest chance of a symbol, whatever the record",
            ratio,
            epsilon,
            "the uniform share alone is a floor, and a vector draws no symbol more often than one "
            "of its likeliest; rounding of both draws is counted",
        )


class CodebookVerifier(SymbolVerifier):
    """A codeword near a record, or a uniform one."""

    whole_code = True

    def likeliest(self) -> tuple[float, float]:
        law = self.law
        uniform = law.uniform / UNIT
        chance = (1.0 - uniform) / law.subset + uniform / law.size
        return chance, chance

    def check(self) -> Check:
        return self.record_check(self.apart.epsilon, self.law.subset)


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
        """The lemma of :mod:`dpindex.mechanism.noise.symbols`, on the integers that are used."""
        law = self.law
        table = law.table.tolist()
        size = len(law.codebook)
        falls = table == sorted(table, reverse=True) and table[-1] > 0
        sound = falls and size == law.size == self.spec.projection.k
        sound &= size * table[0] < 1 << 63 and 0 <= law.uniform < UNIT and law.shift >= 0
        # The least weight is that of this share of the words.
        least = Fraction(table[-1] << 64, size * table[0])
        ratio = exact.UNBOUNDED
        steps = self.steps()
        if sound and least > 1:
            large, small = exact.largest_ratio(pairwise(table))
            weights = Fraction(large**steps, small**steps)
            loss = weights * (least + 1) / (least - 1)
            ratio = loss.numerator, loss.denominator
        return self._ratio(
            f"law: {steps} steps of the table, and the draw",
            ratio,
            self.apart.epsilon,
            f"scores move at most {float(self.apart.spread):.9g} apart: the range counts (Durfee & "
            "Rogers 2019); a uniform share is the same law on both sides",
        )

    def steps(self) -> int:
        """R': steps of the table that a symbol's weight and the sum of all can lose together."""
        moved = math.floor(self.apart.spread)
        if self.law.shift == 0:
            return moved
        return math.floor(Fraction(moved - 2, 1 << self.law.shift)) + 2

    def _enumerated(self) -> Check:
        """All words counted, for scores of two neighbours as far apart as they can be."""
        rows = self.scores(_PAIRS)
        moved = math.floor(self.apart.spread)
        signs = PublicStream(3, "audit/softmax").signs(rows.size)
        chosen = signs.reshape(rows.shape) > 0
        pairs: list[tuple[int, int]] = []
        for row, neighbour in zip(rows, rows + moved * chosen, strict=True):
            pairs += zip(self.words_of(row), self.words_of(neighbour), strict=True)
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
        (ends,) = self.ends(scores[None])
        weighted = _words_before([0, *ends.tolist()])
        uniform = _words_before(range(len(self.law.codebook) + 1))
        share = self.law.uniform
        chances = zip(np.diff(uniform), np.diff(weighted), strict=True)
        return [share * few + (UNIT - share) * others for few, others in chances]

    def ends(self, x: Counts) -> Counts:
        """Running sums of the weights, shape (n, K)."""
        table = self.law.table.astype(np.int64)
        scores = x + self.law.offsets.astype(np.int64)
        below = scores.max(axis=1, keepdims=True) - scores
        steps = np.minimum(below >> self.law.shift, len(table) - 1)
        ends: Counts = np.add.accumulate(table[steps], axis=1)
        return ends

    def scores(self, count: int) -> Counts:
        """Scores of different vectors: from all next to each other to spread over the table."""
        size = self.law.size
        span = len(self.law.table) << self.law.shift
        words = PublicStream(0, "audit/softmax").words(count * size, np.uint32)
        mixed: Counts = words.reshape(count, size).astype(np.int64)
        widths = 1 + np.arange(count) * span // count
        mixed %= widths[:, None]
        return mixed


def _words_before(places: Sequence[int]) -> AnyArray:
    """Of 2^64 words how many draw less than each place, the last of which is that of all."""
    whole = places[-1]
    counts = [-(-(place << 64) // whole) for place in places]  # rounded up
    return np.array(counts, dtype=object)
