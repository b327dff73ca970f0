"""Flips for sign codes: randomized response, smooth and geometric flips, and the iDP variants.

A flip compares a uniform 64-bit integer with an integer threshold; its probability is exactly
``threshold / 2^64``. Sixteen bits decide nearly always, the other 48 are read when they tie. An
exact zero (an empty bin) has threshold 2^63: it comes out as a fair secret coin.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import mpmath
import numpy as np
import numpy.typing as npt

from dpindex.arrays import Floats
from dpindex.errors import InputError
from dpindex.noise.base import GRID_BITS, check_deviation
from dpindex.noise.gaussian import gaussian_table, optimal_sigma
from dpindex.randomness import BitSource

__all__ = [
    "FlipsByLevel",
    "IndividualFlips",
    "IndividualGaussian",
    "draw_flips",
    "geometric_flips",
    "geometric_thresholds",
    "randomized_response",
    "response_threshold",
    "smooth_flips",
    "smooth_thresholds",
]

_ONE = 1 << 64
_COIN = 1 << 63
_MAX_LEVELS = 1 << 16
_STEPS = 1 << GRID_BITS


def draw_flips(
    thresholds: npt.NDArray[np.uint64], index: npt.NDArray[np.intp], stream: BitSource
) -> npt.NDArray[np.bool_]:
    """True with probability ``thresholds[index] / 2^64``, independently; the shape of ``index``."""
    flat = index.ravel()
    top = (thresholds >> np.uint64(48)).astype(np.uint16)
    words = stream.words(flat.size, np.uint16)
    limit = np.take(top, flat, mode="wrap")  # every index is in range
    flips = words < limit
    tied = np.flatnonzero(words == limit)
    if tied.size:
        rest = stream.words(tied.size, np.uint64) >> np.uint64(16)
        flips[tied] = rest < (thresholds[flat[tied]] & np.uint64((1 << 48) - 1))
    return flips.reshape(index.shape)


def response_threshold(epsilon: float, signs: int = 1) -> int:
    """``⌈2^64 / (1 + e^{ε/N})⌉`` for N signs that share ε; rounding up keeps (1−q)/q ≤ e^{ε/N}.

    Warner 1965; Li & Li 2023, Alg. 8.
    """
    with mpmath.workprec(256):
        return int(mpmath.ceil(_ONE / (1 + mpmath.exp(mpmath.mpf(epsilon) / signs))))


def _chained(epsilon: float, wanted: list[int] | None) -> list[int]:
    """Thresholds for L = 1, 2, …, each at least e^−ε times the one before, until they stay put."""
    with mpmath.workprec(512):
        ratio_up = int(mpmath.ceil(mpmath.ldexp(mpmath.exp(-mpmath.mpf(epsilon)), 256)))
    chain = [response_threshold(epsilon)]
    while len(chain) < _MAX_LEVELS:
        follow = -(-chain[-1] * ratio_up >> 256)
        if follow == chain[-1]:
            break  # rounded up to itself, as it would be for ever
        level = len(chain)
        if wanted is not None and level < len(wanted):
            follow = max(follow, wanted[level])
        chain.append(follow)
    return chain


def geometric_thresholds(epsilon: float) -> list[int]:
    """Flips ``e^{−(L−1)ε}/(1+e^ε)``: two-sided geometric noise on the signed cell number.

    Ghosh, Roughgarden & Sundararajan 2009 (geometric noise) and post-processing (METHODS 4).
    """
    return _chained(epsilon, None)


def smooth_thresholds(epsilon: float) -> list[int]:
    """Flips ``1/(1+e^{Lε})`` of Li & Li 2023, Algs. 7 and 8 (Thms 4.7, 4.8).

    Rounding each threshold up by itself would break the ratio between neighbours (METHODS 4), so
    each is also kept at e^−ε of the one before.
    """
    levels = min(_MAX_LEVELS, math.ceil(46.0 / epsilon) + 1)
    with mpmath.workprec(256):
        ratio = mpmath.exp(mpmath.mpf(epsilon))
        power, wanted = ratio, []
        for _ in range(levels):
            wanted.append(int(mpmath.ceil(_ONE / (1 + power))))
            power *= ratio
    return _chained(epsilon, wanted)


class FlipsByLevel:
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

    grid_bits = GRID_BITS

    def __init__(self, thresholds: list[int], weights: Sequence[int] = (1,)) -> None:
        self.thresholds = tuple(thresholds)
        self.depends_on_size = len(thresholds) > 1
        self._weights = np.array(weights, dtype=np.float64)
        # Index 0 is x = 0 exactly: sign −1, flipped by a fair coin.
        self._table = np.array([_COIN, *thresholds], dtype=np.uint64)

    def perturb(self, x: Floats, stream: BitSource) -> npt.NDArray[np.bool_]:
        level = np.abs(x)
        level /= (self._weights * _STEPS).astype(x.dtype)
        np.ceil(level, out=level)
        np.minimum(level, len(self.thresholds), out=level)
        return (x > 0) ^ draw_flips(self._table, level.astype(np.intp), stream)

    def flip_probability(self, x: Floats, spread: float) -> npt.NDArray[np.float64]:
        weights, counts = np.unique(self._weights, return_counts=True)
        chances = np.zeros(np.shape(x), dtype=np.float64)
        for weight, count in zip(weights, counts, strict=True):
            level = np.clip(np.ceil(x / weight), 1, len(self.thresholds)).astype(np.intp)
            chances += self._table[level] * (count / len(self._weights) / float(_ONE))
        return chances


@lru_cache(maxsize=64)
def randomized_response(epsilon: float, signs: int = 1) -> FlipsByLevel:
    """Every sign flipped with ``1/(1+e^{ε/N})``, N signs sharing ε: Li & Li 2023, Algs. 6 and 8."""
    return FlipsByLevel([response_threshold(epsilon, signs)])


@lru_cache(maxsize=64)
def smooth_flips(epsilon: float, weights: tuple[int, ...] = (1,)) -> FlipsByLevel:
    """Li & Li's smooth flips: see :func:`smooth_thresholds`."""
    return FlipsByLevel(smooth_thresholds(epsilon), weights)


@lru_cache(maxsize=64)
def geometric_flips(epsilon: float, weights: tuple[int, ...] = (1,)) -> FlipsByLevel:
    """Geometric flips: see :func:`geometric_thresholds`."""
    return FlipsByLevel(geometric_thresholds(epsilon), weights)


def _perturbed_set(x: Floats) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.intp]]:
    """``A = {j : |x_j| ≤ β}`` of Li & Li Alg. 10, and its size in each row."""
    near = np.abs(x) <= _STEPS
    return near, np.count_nonzero(near, axis=1)


def _expected_size(code_length: int, spread: float) -> float:
    """Mean of ``|A|`` when coordinates are normal with deviation ``spread`` (in betas)."""
    return max(1.0, code_length * math.erf(1.0 / (spread * math.sqrt(2))))


class IndividualFlips:
    """iDP-SignRP-RR (Li & Li 2023, Alg. 11, Thm 6.2): only signs a neighbour could change flip.

    ``A`` is computed on the actual vector, so this is iDP and not DP: on a neighbour ``A`` may
    differ, and a bit outside it is never flipped.

    Parameters
    ----------
    epsilon : float
        Budget of all signs together.
    code_length : int
        Signs.
    changes : int, optional
        The most coordinates that one attribute moves; all by default. OPORP: one, so that the
        signs of A need not share the budget.
    """

    grid_bits = GRID_BITS
    depends_on_size = True

    def __init__(self, epsilon: float, code_length: int, changes: int | None = None) -> None:
        self.epsilon = epsilon
        self.code_length = code_length
        self.changes = changes or code_length
        if self.changes > _MAX_LEVELS:
            raise InputError(f"a budget is shared by at most {_MAX_LEVELS} signs; lower k.")
        shared = [response_threshold(epsilon, size) for size in range(1, self.changes + 1)]
        by_size = shared + [shared[-1]] * (code_length - self.changes)
        # 0: an exact zero (a coin); 1: outside A (never); 1 + N: one of N in A.
        self._table = np.array([_COIN, 0, *by_size], dtype=np.uint64)

    def perturb(self, x: Floats, stream: BitSource) -> npt.NDArray[np.bool_]:
        near, size = _perturbed_set(x)
        index = np.where(near, 1 + size[:, None], 1)
        index[x == 0] = 0
        return (x > 0) ^ draw_flips(self._table, index, stream)

    def flip_probability(self, x: Floats, spread: float) -> npt.NDArray[np.float64]:
        signs = min(self.changes, _expected_size(self.code_length, spread))
        inside = 1.0 / (1.0 + math.exp(self.epsilon / signs))
        return np.where(x <= 1.0, inside, 0.0)


class IndividualGaussian:
    """iDP-SignRP-G (Li & Li 2023, Alg. 9, Thm 6.1): Gaussian noise before the sign, inside A only.

    The noise needed is ``σ·β·√N_A`` with σ optimal at sensitivity 1 and N_A different for every
    vector (at most ``changes``, as for :class:`IndividualFlips`). One table at a fixed deviation S
    serves all: coordinates are multiplied by the integer ``m = ⌊S / (σ√N_A)⌋`` and divided by a
    beta with a uniform dither, so that a neighbour moves each by at most m, all of A by at most
    ``m√N_A ≤ S/σ``.
    """

    grid_bits = GRID_BITS
    depends_on_size = True

    def __init__(
        self, epsilon: float, delta: float, code_length: int, changes: int | None = None
    ) -> None:
        self.code_length = code_length
        self.changes = changes or code_length
        self._sigma = optimal_sigma(epsilon, delta)
        least = self._sigma * math.sqrt(self.changes)
        self._deviation = max(1024.0, least)
        check_deviation(self._deviation, _MAX_LEVELS)
        self._table = gaussian_table(self._deviation, epsilon, delta, code_length, 0)

    def perturb(self, x: Floats, stream: BitSource) -> npt.NDArray[np.bool_]:
        near, size = _perturbed_set(x)
        multiplier = np.floor(
            self._deviation / (self._sigma * np.sqrt(np.clip(size, 1, self.changes)))
        ).astype(np.int64)
        rows, _ = np.nonzero(near)
        inside = x[near].astype(np.int64) * multiplier[rows]
        dither = stream.words(inside.size, np.uint16) & np.uint16(_STEPS - 1)
        noisy = ((inside + dither) >> GRID_BITS) + self._table.sample(inside.size, stream)
        coins = (stream.words(inside.size, np.uint8) & np.uint8(1)).astype(np.bool_)
        signs = x > 0
        signs[near] = np.where(noisy == 0, coins, noisy > 0)
        return signs

    def flip_probability(self, x: Floats, spread: float) -> npt.NDArray[np.float64]:
        from scipy.special import ndtr

        deviation = self._sigma * math.sqrt(
            min(self.changes, _expected_size(self.code_length, spread))
        )
        return np.where(x <= 1.0, ndtr(-np.asarray(x, dtype=np.float64) / deviation), 0.0)
