"""Laws that hide whole records, counted and replayed a second way.

Counts of a cap are digits of one large integer, ``Π(1 + X^a)`` at a power of two (Kronecker 1882),
not the recursion that the law uses. Samplers are given prepared words, whose outcomes follow from
those counts and from ranks that are sorted here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from dpindex.audit import exact_arithmetic as exact
from dpindex.audit.verdict import Check, Counts, LawVerifier
from dpindex.audit.words import (
    ONE,
    Ints,
    Replay,
    UnexplainedError,
)
from dpindex.base.arrays import AnyArray, Floats, spaced
from dpindex.mechanism.codes import Codes
from dpindex.mechanism.public_random import PublicStream

_SHARE_BITS = 48
_ROWS = 64
_MAX_NUMBERS = 1 << 22
_UNSEEN = -1
_MAX_SYMBOLS = 32

Shares = npt.NDArray[np.int64]


def cap_size(weights: Sequence[int], threshold: int) -> int:
    """How many subsets of the weights add up to the threshold or more.

    >>> cap_size([3, 2, 1], 4)
    3
    """
    return int(_at_least(tuple(weights))[min(max(0, threshold), sum(weights) + 1)])


@lru_cache(maxsize=8)
def _at_least(weights: tuple[int, ...]) -> AnyArray:
    """How many subsets of the weights add up to 0, 1, … or more, and 0 at last."""
    size = len(weights) // 8 + 1
    return _completions(weights, size, _product(weights, size))


def _product(weights: Sequence[int], size: int) -> int:
    """``Π(1 + X^a)`` at ``X = 2^(8·size)``, wide enough for every coefficient."""
    product = 1
    for weight in weights:
        product += product << 8 * size * weight
    return product


def _completions(weights: Sequence[int], size: int, product: int) -> AnyArray:
    """Sums of the digits of a product, of ``size`` bytes each: see :func:`_at_least`."""
    data = product.to_bytes(size * (sum(weights) + 1), "little")
    digits = [int.from_bytes(data[i : i + size], "little") for i in range(0, len(data), size)]
    return _object([*list(accumulate(reversed(digits)))[::-1], 0])


def _sides(
    at_least: AnyArray, need: AnyArray, weight: int
) -> tuple[tuple[AnyArray, AnyArray], tuple[AnyArray, AnyArray]]:
    """Completions with the minority sign, and all, outside and inside: see :func:`_shares`."""
    whole = at_least[0]
    last = len(at_least) - 1
    disagree, agree = (at_least[np.clip(need - added, 0, last)] for added in (0, weight))
    return (whole - agree, 2 * whole - agree - disagree), (disagree, agree + disagree)


@lru_cache(maxsize=4)
def _shares(weights: tuple[int, ...], threshold: int) -> Shares:
    """``⌊share · 2^48⌋`` of the minority sign by side, coordinate and sum, shape (2, k, sums).

    Side 1 is the inside, where the minority sign disagrees; outside it agrees. −1 where no draw can
    come.
    """
    k = len(weights)
    total = sum(weights)
    shares = np.full((2, k, total + 1), _UNSEEN, dtype=np.int64)
    met = list(accumulate(weights, lambda bits, weight: bits | bits << weight, initial=1))
    size = k // 8 + 1
    product = 1
    for i in range(k - 1, -1, -1):
        at_least = _completions(weights[i + 1 :], size, product)
        bits = np.frombuffer(met[i].to_bytes(total // 8 + 1, "little"), np.uint8)
        sums = np.flatnonzero(np.unpackbits(bits, bitorder="little"))
        for side, (few, either) in enumerate(_sides(at_least, threshold - sums, weights[i])):
            possible = either > 0
            numbers = (few[possible] << _SHARE_BITS) // either[possible]
            shares[side, i, sums[possible]] = numbers.astype(np.int64)
        product += product << 8 * size * weights[i]
    return shares


def cap_probes(k: int) -> Iterator[AnyArray]:
    """Coordinates of different records: sorted, in any order and size, tied, and zero."""
    stream = PublicStream(0, "audit/cap")
    ordered = np.tile(np.arange(k, 0, -1.0), (_ROWS, 1))
    yield ordered
    keys = stream.words(_ROWS * k, np.uint32).reshape(_ROWS, k)
    signs = stream.signs(_ROWS * k).reshape(_ROWS, k)
    mixed = np.take_along_axis(ordered, np.argsort(keys, axis=1), axis=1)
    yield (signs * 2.0 ** (mixed % 120 - 60)).astype(np.float32)
    yield (signs * (keys % 4)).astype(np.float32)
    yield np.zeros((_ROWS, k)) * signs


def _outcomes(x: AnyArray, agrees: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Signs by coordinate: magnitudes rank from the largest, ties by index; 0 is positive."""
    kept = np.empty_like(agrees)
    np.put_along_axis(kept, _descending(np.abs(x)), agrees, axis=1)
    return np.equal(kept, x >= 0)


def _descending(values: AnyArray) -> npt.NDArray[np.intp]:
    """Columns of each row from the largest value on, ties by column."""
    columns = np.broadcast_to(np.arange(values.shape[1]), values.shape)
    return np.lexsort((columns, -values.astype(np.float64)), axis=1)


def cap_codes(cap: Any, x: AnyArray, words: Replay) -> npt.NDArray[np.bool_]:
    """The signs that words make of coordinates, shape (n, k)."""
    parts = []
    while len(x):
        rows = min(words.ahead, len(x))
        coins = words.take(rows, np.uint64, words.beside(np.full(rows, cap.inside, np.uint64)))
        inside = coins < np.uint64(cap.inside)
        parts.append(_outcomes(x[:rows], _kept(cap, inside, words)))
        x = x[rows:]
    return np.concatenate(parts)


def _kept(cap: Any, inside: npt.NDArray[np.bool_], words: Replay) -> npt.NDArray[np.bool_]:
    """Whether signs are kept, in rank order, shape (n, k)."""
    shares = _shares(tuple(cap.weights), cap.threshold)
    count = len(inside)
    k = len(cap.weights)
    tied = {0, 1, k // 3, k // 2, k - 2}
    tops = words.take(count * k, np.uint16).reshape(k, count)
    side = inside.astype(np.intp)
    sums = np.zeros(count, dtype=np.int64)
    agrees = np.empty((count, k), dtype=np.bool_)
    for i, weight in enumerate(cap.weights):
        share = shares[side, i, sums]
        if (share == _UNSEEN).any():
            raise UnexplainedError
        # Next to the share; seldom at it, where further digits decide, which takes long.
        aim = np.abs(2 * words.beside(share + 1) - share - 1)  # 1 beside 0
        if i in tied:
            aim[i % count] = share[i % count]
        if words.aims:
            tops[i] = aim >> 32
        number = tops[i].astype(np.int64) << 32
        close = np.flatnonzero(tops[i] == share >> 32)
        number[close] |= words.take(len(close), np.uint32, aim[close] & 0xFFFF_FFFF)
        minority = number < share
        for row in close[number[close] == share[close]]:
            # The exact share of the minority sign, by counts of completions.
            at_least = _at_least(tuple(cap.weights[i + 1 :]))
            sides = _sides(at_least, np.array([cap.threshold - sums[row]]), weight)
            (few,), (either,) = sides[side[row]]
            minority[row] = _below(Fraction(few << _SHARE_BITS, either) % 1, words)
        agrees[:, i] = minority != inside
        sums += weight * agrees[:, i]
    return agrees


def _below(left: Fraction, words: Replay) -> bool:
    """Whether further words of 16 bits lie below further digits; the first that differs decides."""
    tied = 0
    while left:
        digit = int(left * 2**16)
        aimed = None
        if tied < 2:  # or a share without end is never decided
            aimed = np.clip(words.beside(np.array([digit])), 0, None)
        word = int(words.take(1, np.uint16, aimed)[0])
        if word != digit:
            return word < digit
        left = left * 2**16 - digit
        tied += 1
    return False


def uniform_draws(limit: int, count: int, words: Replay) -> npt.NDArray[np.intp]:
    """``⌊word·limit/2^64⌋`` of words."""
    # The first word that leads to each of the outcomes, evenly spaced if there are too many.
    outcomes = _object(np.resize(spaced(limit, count), count).tolist())
    aim = np.maximum(words.beside(-(-(outcomes << 64) // limit)), 0)
    drawn = _object(words.take(count, np.uint64, aim).tolist()) * limit >> 64
    return drawn.astype(np.intp)


def symbols(law: Any, x: AnyArray, words: Replay) -> npt.NDArray[np.int64]:
    """The symbols that words make of similarities, shape (n,)."""
    count = len(x)
    coins = words.take(count, np.uint64, words.beside(np.full(count, law.inside, np.uint64)))
    inside = coins < np.uint64(law.inside)
    near, other = (
        uniform_draws(limit, count, words) for limit in (law.subset, law.size - law.subset)
    )
    order = _descending(x)
    free = np.sort(order[:, law.subset :], axis=1)
    rows = np.arange(count)
    found: npt.NDArray[np.int64] = np.where(inside, order[rows, near], free[rows, other])
    return found


def symbol_probes(size: int) -> Iterator[Ints]:
    """Similarities to all codewords, whole numbers: all tied, sorted, some tied, far apart."""
    count = max(8, min(2 * size, _MAX_NUMBERS // size))
    words = PublicStream(0, "audit/codebook").words(size, np.uint32).astype(np.int64)
    for x in (0 * words, np.arange(size), words % 5 - 2, words % (1 << 24) - (1 << 23)):
        yield np.tile(x, (count, 1))


def _object(values: Sequence[int]) -> AnyArray:
    return np.array(values, dtype=object)


class _WholeCode(LawVerifier):
    """Laws of whole codes: two chances, whatever the record."""

    proves = "DP"
    composition = (
        "a code is one draw, and its chances under any two records are compared as a whole"
    )
    whole_code = True


class CapVerifier(_WholeCode):
    """Signs inside or outside the cap of a record."""

    def outcomes(self, x: Ints, words: Replay) -> AnyArray:
        return cap_codes(self.law.cap, x, words)

    def record_scores(self, near: Sequence[Floats]) -> tuple[Callable[[Codes], Counts], int]:
        """``⟨V, x̃′ − x̃⟩``, and every sign."""
        encoded = []
        for y in near:
            x = np.empty(len(y), dtype=np.int64)
            x[np.argsort(-np.abs(y), kind="stable")] = self.law.cap.weights
            encoded.append(np.where(y >= 0, x, -x))
        weights = (encoded[1] - encoded[0]).astype(np.float32)
        towards = np.where(near[1] >= 0, 1, -1).astype(np.int8)

        def read(codes: Codes) -> Counts:
            signs = codes.format.coordinates(codes.stored)
            score = signs.astype(np.float32) @ weights  # whole numbers below 2^24
            return np.column_stack([score.astype(np.int64), signs * towards])

        return read, 1 + len(towards)

    def likeliest(self) -> tuple[float, float]:
        """The sign of the largest weight; how signs hang together is not bounded here."""
        cap = self.law.cap
        others = cap.weights[1:]
        half = 1 << len(cap.weights) - 1
        kept = cap_size(others, cap.threshold - cap.weights[0])
        chances = Fraction(cap.inside * kept, ONE * cap.size)
        chances += Fraction((ONE - cap.inside) * (half - kept), ONE * (2 * half - cap.size))
        return float(chances), 1.0

    def check(self) -> Check:
        cap = self.law.cap
        k = self.spec.code_length
        whole = 1 << k
        size = cap_size(cap.weights, cap.threshold)
        sound = len(cap.weights) == k and min(cap.weights) >= 0 and cap.threshold >= 0
        sound &= size == cap.size and 0 < size < whole and 0 < cap.inside < ONE
        chances = cap.inside * (whole - size), (ONE - cap.inside) * size
        return self._ratio(
            "law: ratio inside and outside the cap",
            exact.largest_ratio([chances]) if sound else exact.UNBOUNDED,
            self.apart.epsilon,
            "signs and ranks only permute {±1}^k, so the cap of every record has the same size N, "
            "counted here by another way; inside and outside a code is uniform",
        )

    def probes(self) -> Iterator[AnyArray]:
        return cap_probes(len(self.law.cap.weights))

    def replay_check(self) -> Check:
        """The tables of the law, counted another way, too."""
        cap = self.law.cap
        shares = _shares(cap.weights, cap.threshold)
        first, second = self.law._tables
        tables = first.astype(np.int64) << 32 | second
        check = super().replay_check()
        same = not ((tables != shares) & (shares != _UNSEEN)).any()
        return replace(check, passed=check.passed and same)


class SymbolVerifier(LawVerifier):
    """Laws of symbols."""

    def record_scores(self, near: Sequence[Floats]) -> tuple[Callable[[Codes], Counts], int]:
        """1 for the symbols likelier for the second vector, −1 for the first; and some of them."""
        first, second = self.law.chances(np.stack(near))
        gain = np.log(second / first)
        columns = int(min((gain > 1e-9).sum(), (gain < -1e-9).sum(), _MAX_SYMBOLS))
        table = np.zeros((len(gain), 1 + 2 * columns), dtype=np.int64)
        for side, sign in enumerate((-1, 1)):
            table[sign * gain > 1e-9, 0] = sign
            start = 1 + side * columns
            likeliest = np.argsort(-sign * gain, kind="stable")[:columns]
            table[likeliest, np.arange(start, start + columns)] = sign

        def read(codes: Codes) -> Counts:
            counts: Counts = table[codes.stored[:, 0]]
            return counts

        return read, table.shape[1]


class CodebookVerifier(_WholeCode, SymbolVerifier):
    """A codeword near a record, or another one."""

    def outcomes(self, x: Ints, words: Replay) -> AnyArray:
        return symbols(self.law, x, words)

    def likeliest(self) -> tuple[float, float]:
        law = self.law
        chance = max(self._chances(law.size)) / ONE**2
        return chance, chance

    def check(self) -> Check:
        law = self.law
        size = len(law.codebook)
        subset = law.subset
        sound = size == law.size and 0 < subset < size and 0 < law.inside < ONE
        ratio = exact.UNBOUNDED
        if sound:
            chances = self._chances(size)
            ratio = exact.largest_ratio([(max(chances), min(chances))])
        return self._ratio(
            "law: ratio of a symbol's chances",
            ratio,
            self.apart.epsilon,
            "under every record a symbol has one of these chances, rounding of both uniform draws "
            "included: all pairs of records are covered",
        )

    def _chances(self, size: int) -> list[int]:
        """Return the least and the largest chance of a symbol inside and outside, times 2^128.

        Of 64-bit words w, ⌊2^64/limit⌋ or one more give an outcome ``⌊w·limit/2^64⌋``.
        """
        law = self.law
        sides = ((law.inside, law.subset), (ONE - law.inside, size - law.subset))
        return [
            chance * words for chance, limit in sides for words in (ONE // limit, -(-ONE // limit))
        ]

    def probes(self) -> Iterator[AnyArray]:
        return symbol_probes(self.law.size)
