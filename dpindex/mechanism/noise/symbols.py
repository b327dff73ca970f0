"""Cap response: pure-epsilon sign codes that hide the whole record.

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

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy

from dpindex.base.arrays import Bools, Doubles, Floats, Indices, Integers, Ints, Longs, row_blocks
from dpindex.mechanism.codes import NumberFormat, SignFormat, SymbolFormat
from dpindex.mechanism.noise import (
    ONE,
    Calibration,
    Likelihood,
    NoiseMoments,
    NumberLaw,
    SignLaw,
    SymbolLaw,
    draw_uniform,
    two_level_chance,
    uniform_share,
)
from dpindex.mechanism.noise.signs import draw_flips
from dpindex.mechanism.parameters import GRID_BITS, Parameters, grid_point
from dpindex.mechanism.projections import RecordEncoder
from dpindex.mechanism.public_parts import Codebook
from dpindex.mechanism.public_random import BitSource

_LEVELS = 31
_ROWS = 4096
"""Codes drawn together, so that tables and sums stay in the cache."""


def rank_weights(k: int) -> tuple[int, ...]:
    """The public weights a_1 ≥ … ≥ a_k: quantiles of |N(0, 1)| rounded to 31 levels.

    >>> rank_weights(8)
    (31, 22, 17, 13, 10, 7, 4, 1)
    """
    quantiles = scipy.special.ndtri(0.5 + (np.arange(k)[::-1] + 0.5) / (2 * k))
    return tuple(int(a) for a in np.rint(quantiles * _LEVELS / quantiles[0]))


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
        chances = Fraction(self.inside, self.size), Fraction(ONE - self.inside, self.others)
        return max(chances) / min(chances)


@lru_cache(maxsize=8)  # draws that tie at one coordinate ask for the same counts
def agreeing_sums(weights: tuple[int, ...]) -> tuple[int, ...]:
    """Return how many subsets of the weights add up to 0, 1, 2, …: exact counts."""
    counts = np.zeros(sum(weights) + 1, dtype=object)
    counts[0] = 1
    top = 0
    for weight in weights:
        shifted = counts[: top + 1].copy()
        top += weight
        counts[weight : top + 1] += shifted
    return tuple(int(count) for count in counts)


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
        size += counts[threshold]
        moment += counts[threshold] * (2 * threshold - total)
        if not counts[threshold]:
            continue
        if size == whole or 2 * threshold < total:
            break
        outside = whole - size
        inside = two_level_chance(epsilon, size, outside)
        if inside * outside < (ONE - inside) * size:
            continue  # a cap so small that rounding made its codes the less likely ones
        within = Fraction(moment, size) * inside - Fraction(moment, outside) * (ONE - inside)
        value = float(within / ONE)
        if best is None or value > best[0]:
            best = value, Cap(weights, threshold, size, inside)
    if best is None:
        raise ValueError("the weights leave no cap")
    return best[1]


def by_size(rows: Floats) -> Indices:
    """Places of the largest magnitude in float32, the second largest, …, ties by place.

    Bits of non-negative floats are in their order, so one sort of whole numbers does it.
    """
    keys = (~np.abs(rows.astype(np.float32)).view(np.uint32)).astype(np.uint64)
    keys <<= np.uint64(32)
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

    def __init__(self, cap: Cap) -> None:
        self.cap = cap
        self._coin = np.uint64(cap.inside)

    @cached_property
    def _tables(self) -> tuple[npt.NDArray[np.uint16], npt.NDArray[np.uint32]]:
        """Shares of the minority sign, shape (2, k, sums): their first 16 bits, and the 32 next.

        Side 1 is the inside, where the minority sign disagrees; outside it agrees. Entry (i, u) is
        for coordinate i after a sum of u. It is a half where the side is certain already.
        """
        weights = self.cap.weights
        need = self.cap.threshold
        k = len(self.cap.weights)
        sums = [0, *accumulate(weights)]
        first = np.full((2, k, sums[-1] + 1), 1 << 15, dtype=np.uint16)
        second = np.zeros(first.shape, dtype=np.uint32)
        inside = np.zeros(sums[-1] + 1 + weights[0], dtype=object)  # completions, by the sum so far
        inside[need:] = 1
        for i in range(k - 1, -1, -1):
            whole = 1 << (k - 1 - i)
            # The sums that can be met here and leave both sides possible.
            low = max(0, need - (sums[-1] - sums[i]))
            high = min(sums[i], need - 1) + 1
            stay = inside[low:high]
            move = inside[low + weights[i] : high + weights[i]]
            both = stay + move
            for side, minority, either in ((0, whole - move, 2 * whole - both), (1, stay, both)):
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
            agrees = self._agreements(len(rows), stream)
            positive = np.take_along_axis(rows, order, axis=1) >= 0
            np.put_along_axis(out[block], order, agrees == positive, axis=1)
        return out

    def _agreements(self, count: int, stream: BitSource) -> Bools:
        """Draw which coordinates, in rank order, keep their signs, shape (count, k)."""
        first, second = self._tables
        k, width = first.shape[1:]
        majority = stream.words(count, np.uint64) < self._coin  # on the inside
        words = stream.words(count * k, np.uint16).reshape(k, count)
        if count == 1 and (alone := self._of_one(bool(majority[0]), words[:, 0].tolist())):
            return np.array([alone])
        agrees = np.empty((k, count), dtype=np.bool_)
        places = majority * (k * width)  # in the table: the side, the coordinate and the sum so far
        first, second = first.ravel(), second.ravel()
        for i, (weight, word, minority) in enumerate(
            zip(self.cap.weights, words, agrees, strict=True)
        ):
            share = first[places]
            np.less(word, share, out=minority)
            equal = word == share
            if np.count_nonzero(equal):
                tied = np.flatnonzero(equal)
                minority[tied] = self._settled(
                    second[places[tied]], majority, tied, i, agrees, stream
                )
            minority ^= majority
            places += minority * weight
            places += width
        return agrees.T

    def _of_one(self, inside: bool, words: list[int]) -> list[bool]:
        """The same for one code, in a third of the time; empty where a draw ties."""
        first = memoryview(self._tables[0][int(inside)])
        agrees: list[bool] = []
        total = 0
        for i, (weight, word) in enumerate(zip(self.cap.weights, words, strict=True)):
            share = first[i, total]
            if word == share:
                return []
            agrees.append((word < share) != inside)
            total += weight * agrees[-1]
        return agrees

    def _settled(self, share: Any, inside: Any, tied: Any, i: int, agrees: Any, stream: Any) -> Any:
        words = stream.words(tied.size, np.uint32)
        minority = words < share
        for place in np.flatnonzero(words == share):  # once in 2^48 draws
            before = agrees[:i, tied[place]]
            minority[place] = self._exactly(before, i, bool(inside[tied[place]]), stream)
        return minority

    def _exactly(self, before: Bools, i: int, inside: bool, stream: BitSource) -> bool:
        """Settle a draw whose 48 bits tie: further bits against the exact share of completions."""
        weights = self.cap.weights
        need = self.cap.threshold - sum(w for w, kept in zip(weights, before, strict=False) if kept)
        counts = agreeing_sums(weights[i + 1 :])
        stay = sum(counts[max(0, need) :])
        move = sum(counts[max(0, need - weights[i]) :])
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
        first, second = self._tables
        shares = (first.astype(np.float64) * 2.0**32 + second) / 2.0**48
        chance = np.zeros((2, shares.shape[2]))
        chance[:, 0] = 1.0
        agree = np.empty((2, len(self.cap.weights)))
        for i, weight in enumerate(self.cap.weights):
            plus = np.stack([shares[0, i], 1.0 - shares[1, i]]) * chance
            agree[:, i] = plus.sum(axis=1)
            chance = chance - plus
            if weight:
                chance[:, weight:] += plus[:, :-weight]
            else:
                chance += plus
        p = self.cap.inside / ONE
        return np.asarray(2.0 * (p * agree[1] + (1.0 - p) * agree[0]) - 1.0)

    def flip_probability(self, x: Floats, rms: float) -> Doubles:
        """By the rank that a magnitude has among normal coordinates."""
        k = len(self.cap.weights)
        above = 2.0 * scipy.special.ndtr(-np.asarray(x, dtype=np.float64) / rms)
        place = above * k - 0.5
        return np.asarray((1.0 - np.interp(place, np.arange(k), self.kept)) / 2.0)


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


_REPEATED = 32
"""Sets of at most so many are found by taking the largest again and again."""


def nearest(similarity: Floats, count: int) -> Longs:
    """Columns of the ``count`` largest of each row, ties to the smaller one, shape (n, count)."""
    rows = np.arange(len(similarity))
    if count <= _REPEATED:
        remaining = similarity.copy() if count > 1 else similarity
        columns = np.empty((len(remaining), count), dtype=np.int64)
        for i in range(count):
            columns[:, i] = remaining.argmax(axis=1)  # the first of equals
            if i + 1 < count:
                remaining[rows, columns[:, i]] = -np.inf
        return columns
    order = np.argsort(-similarity, axis=1, kind="stable")
    return order[:, :count]


class CodebookResponse(SymbolLaw):
    """Draws one of the nearest codewords; the map of a vector is its similarities to all, (n, K).

    Parameters
    ----------
    codebook : Codebook
        What the symbols stand for.
    subset : int
        w, the number of nearest codewords, 1 ≤ w < K.
    uniform : int
        Chance of a uniform symbol, times 2^64.
    """

    grid_bits = 0

    def __init__(self, codebook: Codebook, subset: int, uniform: int) -> None:
        self.codebook = codebook
        self.subset = subset
        self.uniform = uniform

    @property
    def chance_inside(self) -> float:
        """Chance that a symbol is one of the nearest codewords, [0, 1]."""
        share = self.uniform / ONE
        return 1.0 - share * (1.0 - self.subset / self.size)

    @property
    def drawn_by(self) -> str:
        if self.subset == 1:
            return "a symbol is the nearest codeword"
        return f"a symbol is one of the {self.subset} nearest codewords"

    def draw(self, x: Floats, stream: BitSource) -> Longs:
        near = nearest(x, self.subset)
        chosen: Longs = near[np.arange(len(x)), draw_uniform(self.subset, len(x), stream)]
        return chosen

    def draw_chances(self, x: Floats) -> Doubles:
        chances = np.zeros(x.shape)
        np.put_along_axis(chances, nearest(x, self.subset), 1.0 / self.subset, 1)
        return chances

    def seen(self, codewords: Integers) -> Floats:
        return self.codebook.vectors[codewords] @ self.codebook.vectors.T


def _calibrated(parameters: Parameters, encoder: RecordEncoder) -> CodebookResponse:
    book = parameters.codewords
    subset = parameters.subset or 1
    return CodebookResponse(book, subset, uniform_share(len(book), parameters.budget, subset))


CODEBOOK_RESPONSE = Calibration(_calibrated, SymbolFormat, adjacencies=("record",), rounded=False)


_CELL_BITS = 5
_NARROW = 0.5
"""Half-width of the narrow square wave over the one of least variance: see bench/denoise."""


def draw_below(limits: Integers, stream: BitSource) -> Longs:
    """Exactly uniform integers below limits in [1, 2^31), by rejection (Lemire 2019)."""
    limits = limits.astype(np.uint64)
    product = stream.words(limits.size, np.uint32).astype(np.uint64) * limits
    unfair = np.uint64(1 << 32) % limits
    low = np.uint64((1 << 32) - 1)
    while (again := np.flatnonzero((product & low) < unfair)).size:
        product[again] = stream.words(again.size, np.uint32).astype(np.uint64) * limits[again]
    return (product >> np.uint64(32)).astype(np.int64)


class SquareWave(NumberLaw):
    """Square wave on G+1 grid points with half-width B (Li et al. 2020).

    A value x in 0 … G becomes y in 0 … G+2B: each of the 2B+1 points within B of x + B has
    probability p, each of the other G points ``q ≥ p·e^−ε``. Since every pair of values in the
    interval is adjacent, nothing better can be spent on tails.

    Parameters
    ----------
    inside : int
        Chance of the window times 2^64.
    half_width : int
        B in cells.
    low, cells : int
        First grid integer of the interval, and G.
    """

    cell_bits = _CELL_BITS

    def __init__(self, inside: int, half_width: int, low: int, cells: int) -> None:
        self.inside = inside
        self.half_width = half_width
        self.low = low
        self.cells = cells
        self._threshold = np.array([inside], dtype=np.uint64)
        at_zero, _ = self._mean_and_variance(0.0)
        self.slope = self._mean_and_variance(1.0)[0] - at_zero
        self.scale = (1 << _CELL_BITS) / self.slope
        self.offset = low / self.scale - at_zero

    def perturb(self, x: Floats, stream: BitSource) -> Ints:
        offsets = stream.words(x.size, np.uint8).reshape(x.shape) & np.uint8((1 << _CELL_BITS) - 1)
        cell = (x.astype(np.int64) - self.low + offsets) >> _CELL_BITS
        # Next to a bound that is nearly a tie, float32 may have rounded x one step past it.
        cell = cell.clip(0, self.cells)
        inside = draw_flips(self._threshold, np.zeros(x.shape, dtype=np.intp), stream)
        window = 2 * self.half_width + 1
        drawn = draw_below(np.where(inside, window, self.cells).ravel(), stream).reshape(x.shape)
        # Outside: the drawn point, counted among the G points that the window leaves free.
        outside = np.where(drawn < cell, drawn, drawn + window)
        return np.where(inside, cell + drawn, outside).astype(np.int32)

    def _mean_and_variance(self, cell: float) -> tuple[float, float]:
        """Mean and variance of y given x = cell."""
        chance = self.inside / ONE
        half = self.half_width
        cells = self.cells
        window = 2 * half + 1
        top = cells + 2 * half
        centre = cell + half
        first_in = centre
        second_in = centre**2 + half * (half + 1) / 3
        first_out = (top * (top + 1) / 2 - window * first_in) / cells
        second_out = (top * (top + 1) * (2 * top + 1) / 6 - window * second_in) / cells
        mean = chance * first_in + (1 - chance) * first_out
        return mean, chance * second_in + (1 - chance) * second_out - mean**2

    @cached_property
    def moments(self) -> NoiseMoments:
        # Rounding x to cells adds f(1−f) cells², 1/6 on average; the curvature makes it 1/slope.
        dither = (1 << _CELL_BITS) ** 2 / (6.0 * self.slope)
        middle = self._mean_and_variance(self.cells / 2)[1] * self.scale**2 + dither
        centre = self.low + self.cells / 2 * (1 << _CELL_BITS)
        widest = self.slope * (centre - self.offset * self.scale)
        return NoiseMoments.window(self.slope, centre, widest, middle)

    @cached_property
    def likelihood(self) -> Likelihood:
        """A window on a constant floor, about where the code would be without noise."""
        inside = self.inside / ONE
        window = 2 * self.half_width + 1
        cell = 1 << _CELL_BITS
        within = inside / window / cell
        without = (1 - inside) / self.cells / cell
        half = window / 2 * cell
        return Likelihood(
            edges=np.array([-half, half]),
            jumps=np.array([within - without, without - within]),
            cell=float(cell),
            slope=self.slope,
            shift=self.low - cell * (self.offset + self.half_width),
            base=without,
        )


@lru_cache(maxsize=64)
def square_wave(epsilon: float, low: int, high: int, share: float = 1.0) -> SquareWave:
    """The square wave over grid integers ``low … high`` whose half-width has the least variance.

    The variance is averaged over the interval; the width is a public choice, any is ε-DP. A
    ``share`` below 1 of that half-width has more variance, and says more about a value that is
    roughly known already: whether the code lies in the window or not.
    """
    cells = max(1, -(-(high - low) >> _CELL_BITS))
    laws = (_with_half_width(epsilon, half, low, cells) for half in range(cells + 1))

    def average_variance(law: SquareWave) -> float:
        constant, first, second = law.moments.variance_of_x
        places = np.linspace(low, high, 9)
        return float(np.mean(constant + first * places + second * places**2))

    best = min(laws, key=average_variance)
    if share == 1.0:
        return best
    return _with_half_width(epsilon, round(share * best.half_width), low, cells)


def _with_half_width(epsilon: float, half: int, low: int, cells: int) -> SquareWave:
    inside = two_level_chance(epsilon, 2 * half + 1, cells)
    return SquareWave(inside, half, low, cells)


def _over_bounds(parameters: Parameters, share: float = 1.0) -> SquareWave:
    low, high = (grid_point(bound, parameters.change, GRID_BITS) for bound in parameters.bounds)
    return square_wave(parameters.budget, low, high, share)


SQUARE_WAVE = Calibration(
    lambda parameters, _: _over_bounds(parameters), NumberFormat, bounded=True
)
NARROW_SQUARE_WAVE = replace(
    SQUARE_WAVE, law=lambda parameters, _: _over_bounds(parameters, _NARROW)
)
