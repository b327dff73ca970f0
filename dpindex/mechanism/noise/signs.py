"""Randomized response for sign codes: uniform, smooth and geometric flips.

A flip compares a uniform 64-bit integer with an integer threshold; its probability is exactly
``threshold / 2^64``. Sixteen bits decide nearly always, the other 48 are read when they tie. An
exact zero (an empty bin) has threshold 2^63: it comes out as a fair secret coin.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache, partial
from itertools import chain, islice, repeat

import mpmath
import numpy as np

from dpindex.base.arrays import Bools, Bytes, Doubles, Floats, Indices, Words
from dpindex.mechanism.codes import SignFormat
from dpindex.mechanism.grid import GRID_BITS
from dpindex.mechanism.noise.base import (
    ONE,
    Calibration,
    SignLaw,
    two_level_chance,
)
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
