"""Cap response: pure-epsilon sign codes of a rotated vector that hide the whole record.

A record enters through the signs of its rotated coordinates and the ranks of their magnitudes
alone: ``x̃_i = sign(y_i)·a_rank(i)`` with public integers ``a_1 ≥ … ≥ a_k ≥ 0``. With probability p
the code is uniform on the cap ``{v ∈ {±1}^k : ⟨v, x̃⟩ ≥ τ}``, else uniform on the rest.

*Why it is pure ε for any two records.* Changing signs and permuting coordinates maps {±1}^k onto
itself, so the cap of *every* record holds the same number N of codes, and a code has probability
p/N or (1−p)/(2^k−N) under every record: the ratio is at most
``max(p/N, (1−p)/(2^k−N)) / min(…) ≤ e^ε``. It is PrivUnit (Bhowmick et al. 2018) on signs with
magnitudes; of all mechanisms with two levels it is the one that is optimal on the sphere (Asi,
Feldman & Talwar 2022).

*Finite precision.* N is counted in exact integers. The code is drawn coordinate by coordinate in
the order of ranks, where its law is the same for all records: coordinate i falls on the minority
side with the exact share of completions that stay on the side of the cap chosen. A draw compares
random bits with the binary expansion of that rational number and reads as many as it takes, so
codes are exactly uniform on either side; the one rounded number is p, an integer over 2^64.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy

from dpindex.base.arrays import Bools, Doubles, Floats, Indices, row_blocks
from dpindex.mechanism.codes import SignFormat
from dpindex.mechanism.noise.base import ONE, Calibration, SignLaw, two_level_chance
from dpindex.mechanism.public_random import BitSource

_LEVELS = 31
_ROWS = 4096
"""Codes drawn together, so that tables and sums stay in the cache."""


def rank_weights(k: int) -> tuple[int, ...]:
    """The public weights a_1 ≥ … ≥ a_k: quantiles of |N(0, 1)| rounded to 31 levels.

    >>> rank_weights(8)
    (31, 22, 17, 13, 10, 7, 4, 1)
    """
    shares = (np.arange(k)[::-1] + 0.5) / (2 * k)
    quantiles = scipy.special.ndtri(0.5 + shares)
    levels = quantiles * _LEVELS / quantiles[0]
    return tuple(int(a) for a in np.rint(levels))


@dataclass(frozen=True)
class Cap:
    """The cap of every record, counted exactly.

    Attributes
    ----------
    weights : tuple of int
        a_1 ≥ … ≥ a_k ≥ 0, in rank order.
    threshold : int
        T: a code is inside if the weights of its coordinates that agree in sign add up to ≥ T.
    size : int
        N, the number of codes inside.
    inside : int
        Chance of the inside, times 2^64.
    """

    weights: tuple[int, ...]
    threshold: int
    size: int
    inside: int

    @property
    def others(self) -> int:
        """The number of codes outside."""
        return (1 << len(self.weights)) - self.size

    def ratio(self) -> Fraction:
        """The largest ratio of the probabilities of one code under two records, exactly."""
        inside = Fraction(self.inside, self.size)
        outside = Fraction(ONE - self.inside, self.others)
        return max(inside, outside) / min(inside, outside)


def agreeing_sums(weights: tuple[int, ...]) -> list[int]:
    """Return how many subsets of the weights add up to 0, 1, 2, …: exact counts."""
    counts = np.zeros(sum(weights) + 1, dtype=object)
    counts[0] = 1
    top = 0
    for weight in weights:
        shifted = counts[: top + 1].copy()
        top += weight
        counts[weight : top + 1] += shifted
    return [int(count) for count in counts]


def best_cap(weights: tuple[int, ...], epsilon: float) -> Cap:
    """The cap and the chance of its inside with the largest ``E⟨V, x̃⟩`` at that epsilon.

    The chance is rounded down, so that the ratio is at most e^ε in integers.
    """
    counts = agreeing_sums(weights)
    total = sum(weights)
    whole = 1 << len(weights)
    best: tuple[float, Cap] | None = None
    size = moment = 0
    for threshold in range(total, -1, -1):
        # Codes of at least this sum: a lower threshold takes in all of a higher one.
        size += counts[threshold]
        moment += counts[threshold] * (2 * threshold - total)
        if not counts[threshold]:
            continue
        if size == whole or 2 * threshold < total:
            break  # from here on a cap holds codes that point away from the record
        outside = whole - size
        inside = two_level_chance(epsilon, size, outside)
        if inside * outside < (ONE - inside) * size:
            continue  # a cap so small that rounding made its codes the less likely ones
        # Sums of ⟨V, x̃⟩ over the inside and over the outside are opposite.
        of_inside = Fraction(moment, size) * inside
        of_outside = Fraction(-moment, outside) * (ONE - inside)
        value = float((of_inside + of_outside) / ONE)
        if best is None or value > best[0]:
            best = value, Cap(weights, threshold, size, inside)
    if best is None:
        raise ValueError("the weights leave no cap")
    return best[1]


def by_size(rows: Floats) -> Indices:
    """Places of the largest magnitude in float32, the second largest, …, ties by place.

    Bits of non-negative floats are in their order, so one sort of whole numbers does it.
    """
    sizes = np.abs(rows.astype(np.float32)).view(np.uint32)
    keys = (~sizes).astype(np.uint64)
    keys <<= np.uint64(32)
    # The place in the low half breaks ties by index, so ranks do not depend on the machine's sort.
    keys |= np.arange(rows.shape[1], dtype=np.uint64)
    keys.sort(axis=1)
    return (keys & np.uint64(0xFFFF_FFFF)).astype(np.intp)


class CapResponse(SignLaw):
    """Draws codes from a :class:`Cap`; see the module.

    ``perturb`` takes rotated coordinates, of which signs and ranks of magnitudes count: ties go by
    index, and the sign of 0 is +.
    """

    grid_bits = 0
    depends_on_size = True
    scale_free = True
    flips_together = True

    def __init__(self, cap: Cap) -> None:
        self.cap = cap
        self._coin = np.uint64(cap.inside)

    @cached_property
    def tables(self) -> tuple[npt.NDArray[np.uint16], npt.NDArray[np.uint32]]:
        """Shares of the minority sign, shape (2, k, sums): their first 16 bits, and the 32 next.

        Side 1 is the inside, where the minority sign disagrees; outside it agrees. Entry (i, u) is
        for coordinate i after a sum of u. It is a half where the side is certain already.
        """
        weights = self.cap.weights
        need = self.cap.threshold
        k = len(weights)
        sums = [0, *accumulate(weights)]
        total = sums[-1]
        first = np.full((2, k, total + 1), 1 << 15, dtype=np.uint16)
        second = np.zeros(first.shape, dtype=np.uint32)
        # Completions that end inside, by the sum so far, from the last coordinate backwards.
        inside = np.zeros(total + 1 + weights[0], dtype=object)
        inside[need:] = 1
        for i in range(k - 1, -1, -1):
            whole = 1 << (k - 1 - i)
            # The sums that can be met here and leave both sides possible.
            low = max(0, need - (total - sums[i]))
            high = min(sums[i], need - 1) + 1
            stay = inside[low:high]
            move = inside[low + weights[i] : high + weights[i]]
            both = stay + move
            outside = 2 * whole - both
            for side, minority, either in ((0, whole - move, outside), (1, stay, both)):
                bits = ((minority << 48) // either).astype(np.uint64)
                first[side, i, low:high] = bits >> np.uint64(32)
                second[side, i, low:high] = bits.astype(np.uint32)
            inside[low:high] = both
            inside[need:] = 2 * whole
        return first, second

    def perturb(self, x: Floats, stream: BitSource) -> Bools:
        out = np.empty(x.shape, dtype=np.bool_)
        for block in row_blocks(len(x), _ROWS):
            rows = x[block]
            order = by_size(rows)
            agrees = self.agreements(len(rows), stream)
            positive = np.take_along_axis(rows, order, axis=1) >= 0
            np.put_along_axis(out[block], order, agrees == positive, axis=1)
        return out

    def agreements(self, count: int, stream: BitSource) -> Bools:
        """Draw which coordinates, in rank order, keep their signs, shape (count, k)."""
        first, second = self.tables
        k, width = first.shape[1:]
        majority = stream.words(count, np.uint64) < self._coin  # on the inside
        words = stream.words(count * k, np.uint16).reshape(k, count)
        if count == 1:
            alone = self._of_one(bool(majority[0]), words[:, 0].tolist())
            if alone:
                return np.array([alone])
        agrees = np.empty((k, count), dtype=np.bool_)
        places = majority * (k * width)  # in the table: the side, the coordinate and the sum so far
        first = first.ravel()
        second = second.ravel()
        coordinates = zip(self.cap.weights, words, agrees, strict=True)
        # Each sign by the share of completions that it leaves: all codes of the side are as likely.
        for i, (weight, word, minority) in enumerate(coordinates):
            share = first[places]
            np.less(word, share, out=minority)
            equal = word == share
            if np.count_nonzero(equal):
                tied = np.flatnonzero(equal)
                minority[tied] = self.settled(
                    second[places[tied]],
                    majority,
                    tied,
                    i,
                    agrees,
                    stream,
                )
            minority ^= majority
            places += minority * weight
            places += width
        return agrees.T

    def _of_one(self, inside: bool, words: list[int]) -> list[bool]:
        """The same for one code, in a third of the time; empty where a draw ties."""
        shares, _ = self.tables
        first = memoryview(shares[int(inside)])
        agrees: list[bool] = []
        total = 0
        for i, (weight, word) in enumerate(zip(self.cap.weights, words, strict=True)):
            share = first[i, total]
            if word == share:
                return []
            agrees.append((word < share) != inside)
            total += weight * agrees[-1]
        return agrees

    def settled(
        self,
        share: Any,
        inside: Any,
        tied: Any,
        i: int,
        agrees: Any,
        stream: Any,
    ) -> Any:
        words = stream.words(tied.size, np.uint32)
        minority = words < share
        for place in np.flatnonzero(words == share):  # once in 2^48 draws
            before = agrees[:i, tied[place]]
            minority[place] = self._exactly(before, i, bool(inside[tied[place]]), stream)
        return minority

    def _exactly(
        self,
        before: Bools,
        i: int,
        inside: bool,
        stream: BitSource,
    ) -> bool:
        """Settle a draw whose 48 bits tie: further bits against the exact share of completions."""
        weights = self.cap.weights
        so_far = sum(w for w, kept in zip(weights, before, strict=False) if kept)
        need = self.cap.threshold - so_far
        counts = agreeing_sums(weights[i + 1 :])
        need_after = need - weights[i]
        stay = sum(counts[max(0, need) :])
        move = sum(counts[max(0, need_after) :])
        minority = stay
        if not inside:
            stay = sum(counts) - stay
            move = sum(counts) - move
            minority = move
        remainder = (minority << 48) % (stay + move)
        while remainder:
            remainder *= 1 << 16
            digit, remainder = divmod(remainder, stay + move)
            word = int(stream.words(1, np.uint16)[0])
            if word != digit:
                return word < digit
        return False

    @cached_property
    def kept(self) -> Doubles:
        """``E[V_i·sign(y_i)]`` by rank, shape (k,)."""
        first, second = self.tables
        bits = first.astype(np.float64) * 2.0**32 + second
        shares = bits / 2.0**48
        chance = np.zeros((2, shares.shape[2]))
        chance[:, 0] = 1.0
        agree = np.empty((2, len(self.cap.weights)))
        for i, weight in enumerate(self.cap.weights):
            agreeing = np.stack([shares[0, i], 1.0 - shares[1, i]])
            plus = agreeing * chance
            agree[:, i] = plus.sum(axis=1)
            chance = chance - plus
            if weight:
                chance[:, weight:] += plus[:, :-weight]
            else:
                chance += plus
        p = self.cap.inside / ONE
        chance_to_agree = p * agree[1] + (1.0 - p) * agree[0]
        return np.asarray(2.0 * chance_to_agree - 1.0)

    def flip_probability(self, x: Floats, rms: float | Doubles) -> Doubles:
        """By the rank that a magnitude has among normal coordinates."""
        k = len(self.cap.weights)
        size = np.asarray(x, dtype=np.float64) / rms
        above = 2.0 * scipy.special.ndtr(-size)
        rank = above * k - 0.5
        kept = np.interp(rank, np.arange(k), self.kept)
        return np.asarray((1.0 - kept) / 2.0)


@lru_cache(maxsize=32)
def cap_response(k: int, epsilon: float) -> CapResponse:
    """The law for codes of k signs at that epsilon."""
    return CapResponse(best_cap(rank_weights(k), epsilon))


CAP_RESPONSE = Calibration(
    lambda parameters, projection: cap_response(projection.k, parameters.budget),
    SignFormat,
    adjacencies=("record",),
    rounded=False,
)
