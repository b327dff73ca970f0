"""Flips of signs that papers name: smooth ones, those of a bound on norms, and individual ones."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import replace
from functools import lru_cache, partial
from itertools import pairwise

import mpmath
import numpy as np
import scipy

from dpindex.base.arrays import Bools, Doubles, Floats, Indices
from dpindex.base.errors import InputError, NoGuaranteeError
from dpindex.mechanism.codes import SignFormat
from dpindex.mechanism.grid import GRID_BITS, grid_step
from dpindex.mechanism.noise.base import (
    ONE,
    Calibration,
    SignLaw,
    check_deviation,
)
from dpindex.mechanism.noise.gaussian import gaussian_table, optimal_sigma
from dpindex.mechanism.noise.response import (
    COIN,
    MAX_LEVELS,
    POWER_BITS,
    RANDOMIZED_RESPONSE,
    FlipsByLevel,
    by_level,
    draw_flips,
    fair_coins,
    geometric_thresholds,
    randomized_response,
    respond,
    response_threshold,
)
from dpindex.mechanism.papers.projections import FINE_ENTRY_BITS
from dpindex.mechanism.parameters import Parameters
from dpindex.mechanism.projections import Projection
from dpindex.mechanism.public_random import BitSource
from dpindex.mechanism.variants import Variant

_STEPS = 1 << GRID_BITS

_MARGIN = 1e-9

_RARE = 8.0
"""Standard deviations beyond which the rounding of a projection may lie: 2e-14."""


def smooth_thresholds(epsilon: float) -> list[int]:
    """Flips ``1/(1+e^{Lε})`` of Li & Li 2023, Algs. 7 and 8 (Thms 4.7, 4.8).

    Rounding each threshold up by itself would break the ratio between neighbours, so
    each is also kept at e^−ε of the one before.
    """
    levels = min(MAX_LEVELS, math.ceil(46.0 / epsilon) + 1)
    with mpmath.workprec(2 * POWER_BITS):
        ratio = int(mpmath.ldexp(mpmath.exp(mpmath.mpf(epsilon)), POWER_BITS))
    unit = 1 << POWER_BITS
    power = unit
    thresholds = []
    for _ in range(levels):
        power = power * ratio >> POWER_BITS  # never above e^{Lε}
        thresholds.append(-(-(ONE << POWER_BITS) // (unit + power)))
    return geometric_thresholds(epsilon, thresholds)


@lru_cache(maxsize=64)
def smooth_flips(
    epsilon: float,
    weights: tuple[int, ...] = (1,),
    grid_bits: int = GRID_BITS,
) -> FlipsByLevel:
    """Li & Li's smooth flips: see :func:`smooth_thresholds`."""
    return FlipsByLevel(smooth_thresholds(epsilon), weights, grid_bits)


class NoFlips(SignLaw):
    """Exact signs; an exact zero gets a fair coin so that empty bins do not lean to one side."""

    def perturb(self, x: Floats, stream: BitSource) -> Bools:
        coins = fair_coins(x.size, stream).reshape(x.shape)
        return np.where(x == 0, coins, x > 0)

    def flip_probability(self, x: Floats, rms: float | Doubles) -> Doubles:
        return np.zeros(np.shape(x), dtype=np.float64)


def norm_slack(parameters: Parameters) -> float:
    """Return the most that rounding to the grid can shorten a vector by: √dim/2 steps."""
    step = grid_step(parameters.change, GRID_BITS)
    return step * math.sqrt(parameters.dim) / 2


def min_norm_on_grid(parameters: Parameters) -> float:
    """Return ``min_norm`` less two slacks: vectors may fall short of it by one."""
    return (parameters.variant.min_norm or 0.0) - 2.001 * norm_slack(parameters)


def change_probability(dim: int, ratio: float) -> float:
    """``P₊ = ∫₀^∞ 2p(2Φ(t)−1)^{p−1}(2Φ(rt)−1)φ(t) dt``, rounded up by 1e-9.

    Bounds the chance that one attribute, moved by at most β, can change a sign: that r = β/m times
    the largest of p standard normals exceeds another, however they depend (Li & Li, Lemma 4.3).

    >>> round(change_probability(784, 0.1), 4)
    0.2636
    """

    def density(t: float) -> float:
        below = max(2.0 * float(scipy.special.ndtr(t)) - 1.0, 0.0)
        others_below = math.pow(below, dim - 1)
        within = math.erf(ratio * t / math.sqrt(2.0))
        bell = math.exp(-t * t / 2.0) / math.sqrt(2.0 * math.pi)
        return 2.0 * dim * others_below * within * bell

    # The largest of p normals lies near √(2 log p): the pieces keep quad from missing it.
    middle = math.sqrt(2.0 * math.log(2.0 * dim))
    ends = (0.0, middle, middle + 2.0, middle + 12.0)
    total = 0.0
    for low, high in pairwise(ends):
        piece, *_ = scipy.integrate.quad(density, low, high, epsabs=1e-12, limit=200)
        total += piece
    return min(1.0, total + _MARGIN)


def rounded_change_probability(dim: int, ratio: float, width: float) -> float:
    """``P₊`` for a projection whose normal entries were rounded to multiples of ``width``.

    Rounding moves the largest entry by at most h/2, and ``w·u/‖u‖`` by at most ``√p·h/2``, and with
    probability ``1 − 2e^{−t²/2}`` by at most ``t·h/2`` (Hoeffding 1963). Where the largest entry is
    at least μ, an absolute change c is one of r by c/μ; any μ gives a bound, the least is taken.
    """
    slack = (ratio + min(math.sqrt(dim), _RARE)) * width / 2.0
    rare = 2.0 * math.exp(-(_RARE**2) / 2.0) + dim * 2.0**-48  # and the 64 bits of an entry
    best = 1.0
    for step in range(-40, 11):
        least = 2.0 ** (step / 4.0)
        one_below = 2.0 * float(scipy.special.ndtr(least)) - 1.0
        all_below = one_below**dim
        change = change_probability(dim, ratio + slack / least)
        best = min(best, change + all_below)
    return min(1.0, best + rare)


def quantile_count(k: int, probability: float, delta: float) -> int:
    """The least N with ``P(Binomial(k, P₊) > N) ≤ δ``; below the Chernoff bound of Prop. 4.5.

    >>> quantile_count(512, 0.25, 1e-6)
    176
    """

    def is_rare(count: int) -> bool:
        chance = scipy.special.bdtrc(count, k, probability)
        return bool(chance * (1.0 + _MARGIN) <= delta)

    return max(1, bisect_left(range(k), True, key=is_rare))  # k itself is never exceeded


def _exact_response(parameters: Parameters, projection: Projection) -> FlipsByLevel:
    """ε over the N₊ signs that can change: an exact binomial quantile, or all if delta is 0."""
    if parameters.delta == 0:
        return respond(parameters, projection)
    # On the grid one beta is 2^bits steps, a little more than beta itself.
    ratio = grid_step(parameters.change, GRID_BITS) * _STEPS / min_norm_on_grid(parameters)
    chance = rounded_change_probability(parameters.dim, ratio, 2.0**-FINE_ENTRY_BITS)
    most_changed = quantile_count(projection.k, chance, parameters.delta)
    return randomized_response(parameters.budget, most_changed)


def check_norm(parameters: Parameters, variant: Variant) -> None:
    """Refuse variants of which the bound on signs that change does not hold for all vectors."""
    method = parameters.method
    if parameters.delta == 0:
        if variant.min_norm is not None:
            raise InputError(
                f"{method} does not use min_norm with delta 0; leave it out.", field="variant"
            )
        return
    if variant.entries != "gaussian":
        raise NoGuaranteeError(
            f"{method} with a delta needs gaussian entries, not {variant.entries}: for others no "
            f"bound on the signs that can change holds for all vectors."
        )
    if variant.min_norm is None:
        raise NoGuaranteeError(
            f"{method} with a delta needs min_norm: a public lower bound on the norm of every "
            f"vector.",
            field="variant",
        )
    if min_norm_on_grid(parameters) <= parameters.change:
        raise NoGuaranteeError(
            f"{method} needs a min_norm above beta = {parameters.change:g}, not "
            f"{variant.min_norm:g}.",
            field="variant",
        )


SMOOTH_FLIPS = Calibration(partial(by_level, smooth_flips), SignFormat, moves="any")

EXACT_RESPONSE = replace(
    RANDOMIZED_RESPONSE,
    delta="optional",
    delta_over="projection",
    law=_exact_response,
    check_norm=check_norm,
)

NO_FLIPS = replace(
    RANDOMIZED_RESPONSE,
    law=lambda parameters, projection: NoFlips(),
    definition="none",
)


def perturbed_set(x: Floats) -> tuple[Bools, Indices]:
    """``A = {j : |x_j| ≤ β}`` of Li & Li Alg. 10, and its size in each row."""
    near = np.abs(x) <= _STEPS
    return near, np.count_nonzero(near, axis=1)


class _Individual(SignLaw):
    """A law of the signs in A alone.

    Parameters
    ----------
    code_length : int
        Signs.
    changes : int, optional
        The most coordinates that one attribute moves; all by default. OPORP: one, so that the
        signs of A need not share the budget.
    """

    depends_on_size = True

    def __init__(self, code_length: int, changes: int | None) -> None:
        self.code_length = code_length
        self.changes = changes or code_length

    def sharing(self, rms: float | Doubles) -> Doubles:
        """Signs that share the budget, by the mean of ``|A|`` for normal coordinates."""
        within = scipy.special.erf(1.0 / (rms * math.sqrt(2)))
        size = np.maximum(1.0, self.code_length * within)
        return np.asarray(np.minimum(self.changes, size))


class IndividualFlips(_Individual):
    """iDP-SignRP-RR (Li & Li 2023, Alg. 11, Thm 6.2): only signs a neighbour could change flip.

    ``A`` is computed on the actual vector, so this is iDP and not DP: on a neighbour ``A`` may
    differ, and a bit outside it is never flipped.

    Parameters
    ----------
    epsilon : float
        Budget of all signs together.
    code_length, changes
        As of :class:`_Individual`.
    """

    def __init__(self, epsilon: float, code_length: int, changes: int | None = None) -> None:
        super().__init__(code_length, changes)
        self.epsilon = epsilon
        if self.changes > MAX_LEVELS:
            raise NoGuaranteeError(f"a budget is shared by at most {MAX_LEVELS} signs; lower k.")
        shared = [response_threshold(epsilon, size) for size in range(1, self.changes + 1)]
        by_size = shared + [shared[-1]] * (code_length - self.changes)
        # 0: an exact zero (a coin); 1: outside A (never); 1 + N: one of N in A.
        self.table = np.array([COIN, 0, *by_size], dtype=np.uint64)

    def perturb(self, x: Floats, stream: BitSource) -> Bools:
        near, size = perturbed_set(x)
        index = np.where(near, 1 + size[:, None], 1)
        index[x == 0] = 0
        return (x > 0) ^ draw_flips(self.table, index, stream)

    def flip_probability(self, x: Floats, rms: float | Doubles) -> Doubles:
        inside = 1.0 / (1.0 + np.exp(self.epsilon / self.sharing(rms)))
        return np.where(x <= 1.0, inside, 0.0)


class IndividualGaussian(_Individual):
    """iDP-SignRP-G (Li & Li 2023, Alg. 9, Thm 6.1): Gaussian noise before the sign, inside A only.

    The noise needed is ``σ·β·√N_A`` with σ optimal at sensitivity 1 and N_A different for every
    vector (at most ``changes``, as for :class:`IndividualFlips`). One table at a fixed deviation S
    serves all: coordinates are multiplied by the integer ``m = ⌊S / (σ√N_A)⌋`` and divided by a
    beta with a uniform dither, so that a neighbour moves each by at most m, all of A by at most
    ``m√N_A ≤ S/σ``.
    """

    def __init__(
        self,
        epsilon: float,
        delta: float,
        code_length: int,
        changes: int | None = None,
    ) -> None:
        super().__init__(code_length, changes)
        self.sigma = optimal_sigma(epsilon, delta)
        self.deviation = max(1024.0, self.sigma * math.sqrt(self.changes))
        check_deviation(self.deviation, MAX_LEVELS)
        self.table = gaussian_table(self.deviation, epsilon, delta, code_length, 0)
        sizes = np.clip(np.arange(code_length + 1), 1, self.changes)
        needed = self.sigma * np.sqrt(sizes)
        self.multipliers = np.floor(self.deviation / needed).astype(np.int64)

    def perturb(self, x: Floats, stream: BitSource) -> Bools:
        near, size = perturbed_set(x)
        rows, _ = np.nonzero(near)
        inside = x[near].astype(np.int64) * self.multipliers[size[rows]]
        dither = stream.words(inside.size, np.uint16) & np.uint16(_STEPS - 1)
        noisy = (inside + dither) >> GRID_BITS
        noisy += self.table.sample(inside.size, stream)
        coins = fair_coins(inside.size, stream)
        signs = x > 0
        signs[near] = np.where(noisy == 0, coins, noisy > 0)
        return signs

    def flip_probability(self, x: Floats, rms: float | Doubles) -> Doubles:
        deviation = self.sigma * np.sqrt(self.sharing(rms))
        standardised = np.asarray(x, dtype=np.float64) / deviation
        return np.where(x <= 1.0, scipy.special.ndtr(-standardised), 0.0)


def _individual(parameters: Parameters, projection: Projection) -> SignLaw:
    """Gaussian noise for a spec with a delta, flips for one without."""
    budget = parameters.budget
    size = (projection.k, projection.sensitivity.count)
    if parameters.delta > 0:
        return IndividualGaussian(budget, parameters.delta, *size)
    return IndividualFlips(budget, *size)


INDIVIDUAL_FLIPS = Calibration(_individual, SignFormat, "iDP", moves="units")

INDIVIDUAL_GAUSSIAN = replace(INDIVIDUAL_FLIPS, delta="required")
