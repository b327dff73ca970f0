"""Laws that hide whole records, counted and replayed a second way.

Counts of a cap are digits of one large integer, ``Π(1 + X^a)`` at a power of two (Kronecker 1882),
not the recursion that the law uses. Samplers are given prepared words, whose outcomes follow from
those counts and from ranks that are sorted here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import lru_cache, partial
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dpindex.audit import exact_arithmetic as exact
from dpindex.audit.verdict import Check, LawVerifier
from dpindex.audit.words import (
    ONE,
    Fixed,
    Ints,
    Listed,
    Replay,
    UnexplainedError,
    Words,
    replay_faults,
)
from dpindex.base.arrays import AnyArray, spaced
from dpindex.mechanism.public_random import PublicStream

_SHARE_BITS = 48
_ROWS = 256
_MAX_NUMBERS = 1 << 22
_UNSEEN = -1

Shares = npt.NDArray[np.int64]


def cap_size(weights: Sequence[int], threshold: int) -> int:
    """How many subsets of the weights add up to the threshold or more.

    >>> cap_size([3, 2, 1], 4)
    3
    """
    return sum(_digits(_product(weights), len(weights), sum(weights))[max(0, threshold) :])


def _product(weights: Sequence[int]) -> int:
    """``Π(1 + X^a)`` at ``X = 2^(8·bytes)``, wide enough for every coefficient."""
    width = 8 * _bytes(len(weights))
    product = 1
    for weight in weights:
        product += product << width * weight
    return product


def _bytes(count: int) -> int:
    return count // 8 + 1


def _digits(product: int, count: int, degree: int) -> list[int]:
    size = _bytes(count)
    data = product.to_bytes(size * (degree + 1), "little")
    return [int.from_bytes(data[i : i + size], "little") for i in range(0, len(data), size)]


def _completions(weights: Sequence[int], start: int, count: int, product: int) -> AnyArray:
    """How many subsets of ``weights[start:]`` add up to 0, 1, … or more, and 0 at last."""
    digits = _digits(product, count, sum(weights[start:]))
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
    width = 8 * _bytes(k)
    product = 1
    for i in range(k - 1, -1, -1):
        at_least = _completions(weights, i + 1, k, product)
        bits = np.frombuffer(met[i].to_bytes(total // 8 + 1, "little"), np.uint8)
        sums = np.flatnonzero(np.unpackbits(bits, bitorder="little"))
        for side, (few, either) in enumerate(_sides(at_least, threshold - sums, weights[i])):
            possible = either > 0
            numbers = (few[possible] << _SHARE_BITS) // either[possible]
            shares[side, i, sums[possible]] = numbers.astype(np.int64)
        product += product << width * weights[i]
    return shares


def cap_faults(law: Any) -> Iterator[AnyArray]:
    """Whether the tables, and outcomes of words next to their entries, are wrong, in arrays."""
    cap = law.cap
    shares = _shares(cap.weights, cap.threshold)
    first, second = law._tables
    tables = first.astype(np.int64) << 32 | second
    yield (tables != shares) & (shares != _UNSEEN)
    stream = PublicStream(0, "audit/cap")
    agrees, words = _walks(shares, cap, stream)
    # The words lead where they are meant to: inside at the threshold or above it.
    yield (agrees @ np.array(cap.weights) >= cap.threshold) != _inside_rows()
    for x in _records(len(cap.weights), stream):
        yield law.perturb(x.copy(), Listed(words)) != _outcomes(x, agrees)
    yield from _tie_faults(law, shares)


def _inside_rows() -> npt.NDArray[np.bool_]:
    return np.equal(np.arange(_ROWS) % 2, 1)


def _walks(
    shares: Shares, cap: Any, stream: PublicStream
) -> tuple[npt.NDArray[np.bool_], dict[int, list[int]]]:
    """Signs kept, in rank order, where every word lies next to a threshold; and those words."""
    inside = _inside_rows()
    side = inside.astype(np.intp)
    sums = np.zeros(_ROWS, dtype=np.int64)
    agrees = np.empty((_ROWS, len(cap.weights)), dtype=np.bool_)
    tops = []
    lows = []
    for i, weight in enumerate(cap.weights):
        share = shares[side, i, sums]
        # Seldom in the second half of the rows, so that sums stay near the threshold.
        rarely = stream.words(_ROWS, np.uint8) < np.where(np.arange(_ROWS) < _ROWS // 2, 128, 16)
        minority = rarely & (share > 0)
        number = share + np.where(minority, -1, 1)
        tops.append(number >> 32)
        lows.append((number & 0xFFFF_FFFF)[number >> 32 == share >> 32])
        agrees[:, i] = minority != inside
        sums += weight * agrees[:, i]
    coins = [cap.inside - 1 if within else cap.inside for within in inside]
    return agrees, {8: coins, 2: np.concatenate(tops).tolist(), 4: np.concatenate(lows).tolist()}


def _records(k: int, stream: PublicStream) -> Iterator[AnyArray]:
    """Coordinates of different records: sorted, in any order and size, tied, and zero."""
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
    """The signs that recorded words make of coordinates, shape (n, k).

    A draw that 48 bits do not decide, one in 2^48, is called unexplained.
    """
    shares = _shares(tuple(cap.weights), cap.threshold)
    weights = cap.weights
    parts = []
    while len(x):
        inside = words.take(min(words.ahead, len(x)), np.uint64) < np.uint64(cap.inside)
        rows = x[: len(inside)]
        x = x[len(inside) :]
        parts.append(_outcomes(rows, _kept(shares, weights, inside, words)))
    return np.concatenate(parts)


def _kept(
    shares: Shares, weights: Sequence[int], inside: npt.NDArray[np.bool_], words: Replay
) -> npt.NDArray[np.bool_]:
    """Whether signs are kept, in rank order, shape (n, k)."""
    count = len(inside)
    k = len(weights)
    tops = words.take(count * k, np.uint16).reshape(k, count).astype(np.int64)
    side = inside.astype(np.intp)
    sums = np.zeros(count, dtype=np.int64)
    agrees = np.empty((count, k), dtype=np.bool_)
    for i, weight in enumerate(weights):
        share = shares[side, i, sums]
        number = tops[i] << 32
        close = np.flatnonzero(tops[i] == share >> 32)
        number[close] |= words.take(len(close), np.uint32)
        if (share == number)[close].any() or (share == _UNSEEN).any():
            raise UnexplainedError
        agrees[:, i] = (number < share) != inside
        sums += weight * agrees[:, i]
    return agrees


def symbols(law: Any, x: AnyArray, words: Replay) -> npt.NDArray[np.int64]:
    """The symbols that recorded words make of similarities, shape (n,)."""
    count = len(x)
    inside = words.take(count, np.uint64) < np.uint64(law.inside)
    near, other = (
        (_object(words.take(count, np.uint64).tolist()) * limit >> 64).astype(np.intp)
        for limit in (law.subset, law.size - law.subset)
    )
    order = _descending(x)
    free = np.sort(order[:, law.subset :], axis=1)
    rows = np.arange(count)
    drawn: npt.NDArray[np.int64] = np.where(inside, order[rows, near], free[rows, other])
    return drawn


class _Path(NamedTuple):
    """The draws in which the majority comes every time, and words that lead along them.

    Attributes
    ----------
    shares : list of int
        Of the minority, times 2^48, by coordinate.
    sums : list of int
        The sum of the weights that agree, before each coordinate.
    words : list of (int, list of int)
        The 16 bits of each coordinate, and the 32 that are asked for after them, if any are.
    """

    shares: list[int]
    sums: list[int]
    words: list[tuple[int, list[int]]]


def _majority_path(shares: Shares, weights: Sequence[int], side: int) -> _Path:
    path = _Path([], [], [])
    total = 0
    for i, weight in enumerate(weights):
        share = int(shares[side, i, total])
        top = share + 1 >> 32
        low = [share + 1 & 0xFFFF_FFFF] if top == share >> 32 else []
        path.shares.append(share)
        path.sums.append(total)
        path.words.append((top, low))
        total += weight * side
    return path


def _further_digits(left: Fraction) -> Iterator[tuple[list[int], bool]]:
    """Words of 16 bits next to the further digits of a share, and whether the minority follows."""
    first = int(left * 2**16)
    second = int(left * 2**32) & 0xFFFF
    if first < 0xFFFF:
        yield [first + 1], False
    if first:
        yield [first - 1], True
    if second:
        yield [first, second - 1], True
    if left * 2**16 != first and second < 0xFFFF:
        yield [first, second + 1], False


def _tie_faults(law: Any, shares: Shares) -> Iterator[AnyArray]:
    """Draws whose first 48 bits tie are decided by the further digits of the exact share."""
    cap = law.cap
    k = len(cap.weights)
    x = np.arange(k, 0, -1.0)[None, :]
    paths = [_majority_path(shares, cap.weights, side) for side in (0, 1)]
    for i in sorted({0, 1, k // 3, k // 2, k - 2}):
        later = cap.weights[i + 1 :]
        at_least = _completions(cap.weights, i + 1, len(later), _product(later))
        for side, path in enumerate(paths):
            need = np.array([cap.threshold - path.sums[i]])
            (few,), (either,) = _sides(at_least, need, cap.weights[i])[side]
            tied = path.shares[i]
            before = path.words[:i]
            for digits, minority in _further_digits(Fraction(few << _SHARE_BITS, either) - tied):
                tops = [top for top, _ in before]
                lows = [low for _, after in before for low in after]
                words = {
                    8: [cap.inside - side],
                    2: [*tops, tied >> 32, *[0xFFFF] * (k - 1 - i), *digits],
                    4: [*lows, tied & 0xFFFF_FFFF],
                }
                kept = law.perturb(x.copy(), Listed(words))[0]
                expected = np.full(i + 1, bool(side))
                expected[i] ^= minority
                yield kept[: i + 1] != expected


def symbol_faults(law: Any) -> Iterator[AnyArray | bool]:
    """Whether words at both ends of every outcome's range lead to another symbol, in arrays.

    Of a large codebook, outcomes evenly spaced.
    """
    size = law.size
    subset = law.subset
    stream = PublicStream(0, "audit/codebook")
    max_outcomes = max(8, _MAX_NUMBERS // size // 4)
    inside = []
    drawn = []
    for within, limit in ((True, subset), (False, size - subset)):
        for outcome in spaced(limit, max_outcomes).tolist():
            first = -(-(outcome << 64) // limit)
            last = -(-(outcome + 1 << 64) // limit) - 1
            drawn += [first, last]
            inside += [within, within]
    coins = [law.inside - within for within in inside]
    idle = _object([(ONE - 1) * (i % 3 > 0) for i in range(len(drawn))])
    near = np.where(inside, _object(drawn), idle)
    other = np.where(inside, idle, _object(drawn))
    words = [*coins, *near, *other]
    for x in _similarities(size, stream):
        rows = np.tile(x, (len(drawn), 1))
        yield replay_faults(law, rows, Listed({8: words}), partial(symbols, law))


def _object(values: Sequence[int]) -> AnyArray:
    return np.array(values, dtype=object)


def _similarities(size: int, stream: PublicStream) -> Iterator[Ints]:
    """Similarities to all codewords, whole numbers: all tied, sorted, some tied, far apart."""
    words = stream.words(size, np.uint32).astype(np.int64)
    yield np.zeros(size, dtype=np.int64)
    yield np.arange(size)
    yield words % 5 - 2
    yield words % (1 << 24) - (1 << 23)


class _WholeCode(LawVerifier):
    """Laws of whole codes: two chances, whatever the record."""

    proves = "DP"
    composition = (
        "a code is one draw, and its chances under any two records are compared as a whole"
    )
    whole_code = True


class CapVerifier(_WholeCode):
    """Signs inside or outside the cap of a record."""

    # Inside and all signs kept, outside and none.
    words = (
        Fixed({8: 0, 2: 0xFFFF, 4: 0xFFFF_FFFF}),
        Fixed({8: ONE - 1, 2: 0xFFFF, 4: 0xFFFF_FFFF}),
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

    def replay(self) -> Iterator[Any]:
        return cap_faults(self.law)


class CodebookVerifier(_WholeCode):
    """A codeword near a record, or another one."""

    words = (Fixed({8: 0}), Fixed({8: ONE - 1}))

    def outcomes(self, x: Ints, words: Replay) -> AnyArray:
        return symbols(self.law, x, words)

    def rows_drawn(self, x: Ints, reads: Sequence[Words]) -> list[int]:
        if 0 < len(reads[0]) <= len(x):
            return [len(reads[0])]
        return []

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

    def replay(self) -> Iterator[Any]:
        return symbol_faults(self.law)
