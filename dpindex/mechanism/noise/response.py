"""Randomized response: uniform, smooth and geometric flips of signs, a square wave for values.

A flip compares a uniform 64-bit integer with an integer threshold; its probability is exactly
``threshold / 2^64``. Sixteen bits decide nearly always, the other 48 are read when they tie. An
exact zero (an empty bin) has threshold 2^63: it comes out as a fair secret coin.

A square wave is for values of an interval, of which any two are neighbours: a value is answered by
a point near it, or by any other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property, lru_cache, partial
from itertools import chain, islice, repeat

import mpmath
import numpy as np

from dpindex.base.arrays import Bools, Bytes, Doubles, Floats, Indices, Integers, Ints, Longs, Words
from dpindex.mechanism.codes import NumberFormat, SignFormat
from dpindex.mechanism.grid import GRID_BITS, grid_point
from dpindex.mechanism.noise.base import (
    ONE,
    Calibration,
    NumberLaw,
    SignLaw,
    two_level_chance,
)
from dpindex.mechanism.noise.moments import Likelihood, NoiseMoments
from dpindex.mechanism.parameters import Parameters
from dpindex.mechanism.projections import Projection
from dpindex.mechanism.public_random import BitSource

COIN = 1 << 63
MAX_LEVELS = 1 << 16
POWER_BITS = 256


def draw_flips(thresholds: Words, index: Indices, stream: BitSource) -> Bools:
    """True with probability ``thresholds[index] / 2^64``, independently; the shape of ``index``."""
    flat = index.ravel()
    top = (thresholds >> np.uint64(48)).astype(np.uint16)
    words = stream.words(flat.size, np.uint16)
    limit = np.take(top, flat, mode="wrap")  # every index is in range
    flips = words < limit
    # A word that equals the first bits of its threshold decides nothing: 48 more bits do.
    tied = np.flatnonzero(words == limit)
    if tied.size:
        further = stream.words(tied.size, np.uint64) >> np.uint64(16)
        rest = thresholds & np.uint64((1 << 48) - 1)
        flips[tied] = further < rest[flat[tied]]
    return flips.reshape(index.shape)


def response_threshold(epsilon: float, signs: int = 1) -> int:
    """``⌈2^64 / (1 + e^{ε/N})⌉`` for N signs that share ε; rounding up keeps (1−q)/q ≤ e^{ε/N}.

    Warner 1965; Li & Li 2023, Alg. 8.
    """
    with mpmath.workprec(POWER_BITS):
        return ONE - two_level_chance(mpmath.mpf(epsilon) / signs, 1, 1)


def geometric_thresholds(epsilon: float, lower_bounds: Sequence[int] = ()) -> list[int]:
    """Flips ``e^{−(L−1)ε}/(1+e^ε)``: two-sided geometric noise on the signed cell number.

    Ghosh, Roughgarden & Sundararajan 2009 (geometric noise) and post-processing. Thresholds for
    L = 1, 2, …, each at least e^−ε times the one before and its lower bound, until they
    stay put.
    """
    with mpmath.workprec(2 * POWER_BITS):
        ratio = mpmath.exp(-mpmath.mpf(epsilon))
        ratio_up = int(mpmath.ceil(mpmath.ldexp(ratio, POWER_BITS)))
    thresholds = [response_threshold(epsilon)]
    bounds = chain(lower_bounds[1:], repeat(0))
    for least in islice(bounds, MAX_LEVELS - 1):
        follow = -(-thresholds[-1] * ratio_up >> POWER_BITS)
        if follow == thresholds[-1]:
            break  # rounded up to itself, as it would be for ever
        thresholds.append(max(follow, least))
    return thresholds


class FlipsByLevel(SignLaw):
    """Flips by ``L = max(1, ⌈|x_j|/Δ_j⌉)`` alone; the last level goes on for ever.

    ``Δ_j = β·max_i|w_ij|`` is the most that one attribute moves coordinate j, so between neighbours
    L moves by at most one. Quotients of integers below 2^53 (2^24 in float32) are rounded
    correctly, so ⌈·⌉ is exact.

    Parameters
    ----------
    thresholds : list of int
        Chance of a flip by level, times 2^64.
    weights : sequence of int
        Largest ``|w_ij|`` of each coordinate, or one for all.
    """

    interchangeable = True

    def __init__(
        self,
        thresholds: list[int],
        weights: Sequence[int] = (1,),
        grid_bits: int = GRID_BITS,
    ) -> None:
        self.thresholds = tuple(thresholds)
        self.grid_bits = grid_bits
        self.depends_on_size = len(thresholds) > 1
        self.weights = np.array(weights, dtype=np.float64)
        # Index 0 is x = 0 exactly: sign −1, flipped by a fair coin.
        self.table = np.array([COIN, *thresholds], dtype=np.uint64)

    def perturb(self, x: Floats, stream: BitSource) -> Bools:
        largest_move = self.weights * (1 << self.grid_bits)
        level = np.abs(x)
        level /= largest_move.astype(x.dtype)
        np.ceil(level, out=level)
        np.minimum(level, len(self.thresholds), out=level)
        return (x > 0) ^ draw_flips(self.table, level.astype(np.intp), stream)

    def flip_probability(self, x: Floats, rms: float | Doubles) -> Doubles:
        weights, counts = np.unique(self.weights, return_counts=True)
        shares = counts / len(self.weights)
        chances = np.zeros(np.shape(x), dtype=np.float64)
        for weight, share in zip(weights, shares, strict=True):
            level = np.asarray(x / weight)
            np.ceil(level, out=level)
            np.clip(level, 1, len(self.thresholds), out=level)
            chances += (self.table * (share / ONE)).take(level.astype(np.intp))
        return chances


@lru_cache(maxsize=64)
def randomized_response(epsilon: float, signs: int = 1) -> FlipsByLevel:
    """Every sign flipped with ``1/(1+e^{ε/N})``, N signs sharing ε: Li & Li 2023, Algs. 6 and 8."""
    return FlipsByLevel([response_threshold(epsilon, signs)])


@lru_cache(maxsize=64)
def geometric_flips(
    epsilon: float,
    weights: tuple[int, ...] = (1,),
    grid_bits: int = GRID_BITS,
) -> FlipsByLevel:
    """Geometric flips: see :func:`geometric_thresholds`."""
    return FlipsByLevel(geometric_thresholds(epsilon), weights, grid_bits)


def fair_coins(count: int, stream: BitSource) -> Bools:
    """True with probability ½, independently, shape (count,)."""
    words: Bytes = stream.words(count, np.uint8)
    return (words & np.uint8(1)).astype(np.bool_)


# The signs that one attribute can change, N₊ of Li & Li 2023, Prop. 4.5. The randomness is that of
# the public projection, not of the noise: with probability 1 − δ over the projection, for a given
# vector of norm at least m, no neighbour differs in more than N₊ signs.


def share(parameters: Parameters, count: int) -> float:
    """Budget of one of ``count`` equal parts of a change: sequential composition.

    Those are the coordinates that one attribute moves: all k of a dense projection, one of each
    repetition of OPORP (Li & Li 2023, Thm 2.3).
    """
    part = parameters.budget / count
    # The shares may not add up to more than the budget, not even in the last bit.
    if Fraction(part) * count > parameters.budget:
        return math.nextafter(part, 0.0)
    return part


def by_level(
    flips: Callable[..., FlipsByLevel],
    parameters: Parameters,
    projection: Projection,
) -> FlipsByLevel:
    """Flips at each coordinate's share, its levels as wide as an attribute moves it."""
    largest = tuple(projection.largest.tolist())
    weights = largest[:1] if len(set(largest)) == 1 else largest
    ratio = share(parameters, projection.sensitivity.count)
    return flips(ratio, weights, projection.grid_bits)


def _proportional(parameters: Parameters, projection: Projection) -> FlipsByLevel:
    """Geometric flips whose levels are one unit wide, so that w units cost w of Δ₁ shares.

    An attribute that moves coordinate j by w_j units moves it by w_j levels, and each costs ε/Δ₁:
    ``Σ_j |w_j|·ε/Δ₁ ≤ ε``, as it would be for Laplace noise. Levels as wide as an attribute moves a
    coordinate cost a whole share each, however little it moves the others: they flip least where
    there are no others.
    """
    if projection.sensitivity.count == 1:
        return by_level(geometric_flips, parameters, projection)
    ratio = share(parameters, projection.sensitivity.l1)
    return geometric_flips(ratio, grid_bits=projection.grid_bits)


def respond(parameters: Parameters, projection: Projection) -> FlipsByLevel:
    """ε over the signs that one attribute moves."""
    return randomized_response(share(parameters, projection.sensitivity.count))


RANDOMIZED_RESPONSE = Calibration(respond, SignFormat, moves="any")
GEOMETRIC_FLIPS = Calibration(partial(by_level, geometric_flips), SignFormat, moves="any")
PROPORTIONAL_FLIPS = Calibration(_proportional, SignFormat, moves="any")


_CELL_BITS = 5
_NARROW = 0.5
"""Half-width of the narrow square wave over the one of least variance: see bench/denoise."""


def draw_below(limits: Integers, stream: BitSource) -> Longs:
    """Exactly uniform integers below limits in [1, 2^31), by rejection (Lemire 2019)."""
    limits = limits.astype(np.uint64)
    drawn = stream.words(limits.size, np.uint32).astype(np.uint64) * limits
    low = np.uint64((1 << 32) - 1)

    def unfair(places: Indices) -> Indices:
        rest = np.uint64(1 << 32) % limits[places]
        return places[(drawn[places] & low) < rest]

    # A rest is below its limit, so few divisions, which take long, are needed.
    again = unfair(np.flatnonzero((drawn & low) < limits))
    while again.size:
        words = stream.words(again.size, np.uint32).astype(np.uint64)
        drawn[again] = words * limits[again]
        again = unfair(again)
    drawn >>= np.uint64(32)
    return drawn.view(np.int64)


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

    def __init__(
        self,
        inside: int,
        half_width: int,
        low: int,
        cells: int,
    ) -> None:
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
        mask = np.uint8((1 << _CELL_BITS) - 1)
        offsets = stream.words(x.size, np.uint8).reshape(x.shape) & mask
        cell = (x.astype(np.int64) - self.low + offsets) >> _CELL_BITS
        # Next to a bound that is nearly a tie, float32 may have rounded x one step past it.
        cell = cell.clip(0, self.cells)
        one_threshold = np.zeros(x.shape, dtype=np.intp)
        inside = draw_flips(self._threshold, one_threshold, stream)
        window = 2 * self.half_width + 1
        points = np.where(inside, window, self.cells)
        drawn = draw_below(points.ravel(), stream).reshape(x.shape)
        # Outside: the drawn point, counted among the G points that the window leaves free.
        skipped = np.where(inside, cell, window * (drawn >= cell))
        return (drawn + skipped).astype(np.int32)

    def _mean_and_variance(self, cell: float) -> tuple[float, float]:
        """Mean and variance of y given x = cell."""
        chance = self.inside / ONE
        half = self.half_width
        cells = self.cells
        window = 2 * half + 1
        top = cells + 2 * half
        centre = cell + half
        # First and second moments inside the window, and of all points less those inside.
        first_in = centre
        second_in = centre**2 + half * (half + 1) / 3
        first_all = top * (top + 1) / 2
        second_all = top * (top + 1) * (2 * top + 1) / 6
        first_out = (first_all - window * first_in) / cells
        second_out = (second_all - window * second_in) / cells
        mean = chance * first_in + (1 - chance) * first_out
        mean_square = chance * second_in + (1 - chance) * second_out
        return mean, mean_square - mean**2

    @cached_property
    def moments(self) -> NoiseMoments:
        # Rounding x to cells adds f(1−f) cells², 1/6 on average; the curvature makes it 1/slope.
        dither = (1 << _CELL_BITS) ** 2 / (6.0 * self.slope)
        _, variance = self._mean_and_variance(self.cells / 2)
        centre = self.low + self.cells / 2 * (1 << _CELL_BITS)
        return NoiseMoments.window(
            weight=self.slope,
            centre=centre,
            widest=self.slope * (centre - self.offset * self.scale),
            constant=variance * self.scale**2 + dither,
        )

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
            interval=(self.low, self.low + self.cells * cell),
        )


@lru_cache(maxsize=64)
def square_wave(
    epsilon: float,
    low: int,
    high: int,
    share: float = 1.0,
) -> SquareWave:
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
        variances = constant + first * places + second * places**2
        return float(np.mean(variances))

    best = min(laws, key=average_variance)
    if share == 1.0:
        return best
    return _with_half_width(epsilon, round(share * best.half_width), low, cells)


def _with_half_width(
    epsilon: float,
    half: int,
    low: int,
    cells: int,
) -> SquareWave:
    inside = two_level_chance(epsilon, 2 * half + 1, cells)
    return SquareWave(inside, half, low, cells)


def _over_bounds(parameters: Parameters, share: float = 1.0) -> SquareWave:
    ends = [grid_point(bound, parameters.change, GRID_BITS) for bound in parameters.bounds]
    return square_wave(parameters.budget, *ends, share)


SQUARE_WAVE = Calibration(
    lambda parameters, _: _over_bounds(parameters),
    NumberFormat,
    bounded=True,
)
NARROW_SQUARE_WAVE = replace(
    SQUARE_WAVE,
    law=lambda parameters, _: _over_bounds(parameters, _NARROW),
)
