"""Additive noise from any source of integer draws, and the baseline that adds none."""

from __future__ import annotations

import math
from functools import cached_property, lru_cache
from typing import Any, Protocol

import mpmath
import numpy as np
import numpy.typing as npt

from dpindex.base.arrays import AnyArray, Floats, Ints, Longs
from dpindex.mechanism.codes import NumberFormat
from dpindex.mechanism.grid import GRID_BITS
from dpindex.mechanism.noise.base import Calibration, NumberLaw, check_deviation
from dpindex.mechanism.noise.cell_table import CellTable, Profile, binned_profile
from dpindex.mechanism.noise.moments import Likelihood, NoiseMoments
from dpindex.mechanism.parameters import Parameters
from dpindex.mechanism.projections import Projection
from dpindex.mechanism.public_random import BitSource

_NEGLIGIBLE = 1e-7
"""Chance of tails that likelihoods leave out."""

_NARROW = 2**30
"""Sums below it get their noise in 32 bits."""

_BITS = 64
_RATIO_BITS = 320
_FINE_BITS = 384
"""Bits of masses, of the ratio of neighbouring ones, and of that ratio within a low digit."""

_CELLS_PER_DEVIATION = 32
_INNER_CELLS = 8.0
_MAX_CELLS_BITS = 14
_MIN_DROP = 2.0**-10
"""Below this loss a cell, Laplace noise is drawn in two digits."""

_TAIL = 2.0**-20
"""A table covers all but about this much; beyond it the law repeats itself, shifted."""


class NoiseSource(Protocol):
    """An integer law over cells of ``2^cell_bits`` grid steps, with a uniform offset inside."""

    cell_bits: int
    offset: float
    """Offset that centres the law on zero: ½ if it is symmetric about −½, else 0."""

    def sample(self, count: int, stream: BitSource) -> npt.NDArray[np.signedinteger[Any]]:
        """``count`` independent draws in grid steps, int32 or int64."""

    def moments(self) -> tuple[float, float]:
        """Variance and fourth central moment in cells, without the offset inside the cell."""

    def profile(self) -> Profile:
        """The law as a histogram: bin centres, one apart, chances, and cells that a bin is wide."""


class AdditiveNoise(NumberLaw):
    """Adds a cell law: ``code = (x + noise) >> cell_bits``.

    The law is constant on cells of ``2^cell_bits`` grid steps, and its uniform offset inside the
    cell acts as a dither: the sum's low bits carry nothing and are dropped, the code is a small
    integer, and its mean is still exactly linear in x. Privacy is that of the cell law: for every
    fixed offset, moving x by d grid steps moves ``(x + offset) >> cell_bits`` by at most
    ``⌈|d| / 2^cell_bits⌉`` whole cells.
    """

    interchangeable = True

    def __init__(self, source: NoiseSource, grid_bits: int) -> None:
        self.source = source
        self.grid_bits = grid_bits
        self.cell_bits = source.cell_bits
        self.scale = float(1 << source.cell_bits)
        self.offset = source.offset
        variance, _ = source.moments()
        check_deviation(math.sqrt(variance))

    @property
    def drawn_from(self) -> NoiseSource:
        return self.source

    @cached_property
    def moments(self) -> NoiseMoments:
        variance, fourth = self.source.moments()
        if self.source.cell_bits:
            # Rounding x to whole cells by the offset adds f(1−f) cells², 1/6 on average.
            dither, dither_fourth = 1 / 6, 1 / 15
            fourth = fourth + 6 * variance * dither + dither_fourth
            variance = variance + dither
        return NoiseMoments.additive(variance * self.scale**2, fourth * self.scale**4)

    @cached_property
    def likelihood(self) -> Likelihood:
        values, masses, width = self.source.profile()
        below = np.cumsum(masses)
        before = below - masses
        kept = (below > _NEGLIGIBLE) & (before < below[-1] - _NEGLIGIBLE)
        values = values[kept]
        masses = masses[kept]
        jumps = np.diff(masses, prepend=0.0, append=0.0)
        edges = np.append(values, values[-1] + 1) - 0.5
        real = np.abs(jumps) > 1e-9 * masses.max()  # a level of a staircase is one step, not many
        cell = width * self.scale
        return Likelihood(
            edges=edges[real] * cell,
            jumps=jumps[real] / cell,
            cell=cell,
        )

    def perturb(self, x: Floats, stream: BitSource) -> Ints:
        noise = self.source.sample(x.size, stream).reshape(x.shape)
        narrow = noise.dtype == np.int32
        if narrow and x.dtype != np.float32:
            # Sums held in float64 may pass 2^31 before their low bits are dropped.
            narrow = bool(x.min(initial=0) > -_NARROW and x.max(initial=0) < _NARROW)
        noisy: AnyArray = x.astype(np.int32 if narrow else np.int64)
        noisy += noise
        # A shift floors the exact sum, also below 0: post-processing, which costs nothing.
        noisy >>= self.source.cell_bits
        return noisy.astype(np.int32, copy=False)


class NoNoise(NumberLaw):
    """No noise, for the baselines: codes are the exact integers."""

    moments = NoiseMoments.additive(0.0, 0.0)
    likelihood = Likelihood(
        edges=np.array([-0.5, 0.5]),
        jumps=np.array([1.0, -1.0]),
    )

    def perturb(self, x: Floats, stream: BitSource) -> Ints:
        return x.astype(np.int32)


NO_NOISE = Calibration(lambda parameters, projection: NoNoise(), NumberFormat, "none")


def chained(
    first: int,
    ratio: int,
    bits: int,
    count: int,
) -> list[int]:
    """``first`` and ``count`` more, each ``ratio / 2^bits`` times the one before, rounded up."""
    masses = [first]
    for _ in range(count):
        masses.append(-(-masses[-1] * ratio >> bits))
    return masses


def geometric_table(
    drop: mpmath.mpf,
    width: int,
    inner: int,
    cell_bits: int,
) -> CellTable:
    """The two-sided law by levels as a table, rounded so that its ratio e^drop holds in integers.

    Parameters
    ----------
    drop : mpf
        Natural logarithm of the fall from one level to the next, (0, ∞).
    width, inner : int
        Cells on a level, and on level 0 (each side), 1 ≤ inner ≤ width.
    cell_bits : int
        Width of a cell, passed on to the sampler.

    Every mass is at least ``e^−drop`` times the one a level above it, and the tail restarts the
    table at no less than the level it replaces, and at most e^drop times that. So
    ``P(z) ≤ e^drop · P(z')`` holds for the implemented integers whenever z and z' are at most
    ``width`` cells apart; where 64 bits are too coarse for that, ValueError.
    """
    with mpmath.workprec(_RATIO_BITS + 64):
        ratio = mpmath.exp(-mpmath.mpf(drop))
        ratio_up = int(mpmath.ceil(mpmath.ldexp(ratio, _RATIO_BITS)))
        half = 1 << (_BITS - 1)
        # The mass of a cell on level 0, if all levels went on for ever.
        exact = half * (1 - ratio) / (inner + (width - inner) * ratio)
        start = int(mpmath.floor(exact))
    levels = math.ceil(-math.log(_TAIL) / float(drop))
    cells_on = [inner] + [width] * (levels - 1) + [width - inner]
    slack = 1
    while True:
        # Rounded up at every level, so that no mass falls faster than the ratio.
        by_level = chained(start - slack, ratio_up, _RATIO_BITS, levels)
        side = [mass for cells, mass in zip(cells_on, by_level, strict=True) for _ in range(cells)]
        tail = half - sum(side)
        # The restarted level 0 has mass by_level[0]·tail/half and must not fall short of level K.
        missing = by_level[levels] * half - tail * by_level[0]
        if missing <= 0:
            break
        # A unit of slack adds (half − tail)/by_level[0] to the tail: no more than needed, for a
        # tail too heavy would break the ratio from below.
        slack += -(-missing // (half - tail))
    if tail * by_level[0] * ratio_up > by_level[levels] * half << _RATIO_BITS:
        raise ValueError(f"masses of {_BITS} bits are too coarse for a drop of {float(drop):g}")
    # Symmetric about −½: the magnitudes of −1 and 0 are both the first cell of a side.
    masses = [tail, *reversed(side), *side, tail]
    return CellTable(
        masses,
        first=-len(side) - 1,
        bits=_BITS,
        cell_bits=cell_bits,
        tails=True,
    )


class TwoDigitLaplace:
    """``P(a) ∝ e^{−drop·a}`` on the magnitude a of a law symmetric about −½, in two digits.

    ``a = 2^digit·b + c``: for a geometric law the digits are independent. Masses of the low digit
    fall by at most e^drop from one to the next; the high digit falls by at most
    ``e^drop·P(c=0)/P(c=last)``, so the step from ``(b, last)`` to ``(b+1, 0)`` loses at most e^drop
    too: the ratio holds for the implemented integers at every step, hence over any distance.
    """

    offset = 0.5

    def __init__(self, drop: mpmath.mpf, cell_bits: int) -> None:
        self.drop = drop
        self.cell_bits = cell_bits
        # Half of the bits to each digit, so that neither table is longer than it need be.
        self.digit = math.ceil(-math.log2(float(drop)) / 2)
        low = _falling(drop, 1 << self.digit)
        self.low = CellTable(low, first=0, cell_bits=cell_bits)
        with mpmath.workprec(_FINE_BITS):
            fall = drop + mpmath.log(mpmath.mpf(low[0]) / low[-1])
            fall *= 1 - mpmath.ldexp(1, 64 - _FINE_BITS)  # for the rounding of this precision
            self.high = geometric_table(fall, 1, 1, 0)

    def sample(self, count: int, stream: BitSource) -> Longs:
        """``count`` independent draws, int64, with a uniform offset inside each cell."""
        high: AnyArray = self.high.sample(count, stream).astype(np.int64)
        # Signs come from the high digit alone, and ~z = −1 − z mirrors magnitudes.
        magnitude = np.where(high < 0, ~high, high)
        magnitude <<= self.digit + self.cell_bits
        magnitude += self.low.sample(count, stream)
        return np.where(high < 0, ~magnitude, magnitude)

    def moments(self) -> tuple[float, float]:
        """Variance and fourth central moment of a draw, in squared (fourth-power) cells.

        Those of Laplace's law, which is as near as 4e-8 where the drop is 2^-10.
        """
        scale = 1.0 / float(self.drop)
        return 2.0 * scale**2, 24.0 * scale**4

    def profile(self) -> Profile:
        """Laplace's law of that deviation."""
        variance, _ = self.moments()
        return binned_profile(variance, lambda t: -math.sqrt(2) * np.abs(t))


def _falling(drop: mpmath.mpf, count: int) -> list[int]:
    """``count`` masses adding up to 2^64, each at least ``e^−drop`` times the one before."""
    with mpmath.workprec(_FINE_BITS + 64):
        ratio = mpmath.exp(-drop)
        ratio_up = int(mpmath.ceil(mpmath.ldexp(ratio, _FINE_BITS)))
        exact = mpmath.ldexp(1 - ratio, _BITS) / (1 - ratio**count)
        start = int(mpmath.floor(exact))
    slack = 1
    # Masses that are rounded up may add up to more than 2^64: then all begin a little lower.
    while True:
        masses = chained(start - slack, ratio_up, _FINE_BITS, count - 1)
        left = (1 << _BITS) - sum(masses)
        if left >= 0:
            break
        slack *= 2
    masses[-1] += left  # a larger last mass only brings it closer to the one before
    return masses


def geometric_noise(
    epsilon: float,
    moved: int,
    cell_bits: int = 0,
    grid_bits: int = 0,
) -> AdditiveNoise:
    """Noise ``P(a) ∝ e^{−ε·a/moved}`` on the magnitude a in cells, for shifts of ``moved``."""
    check_deviation(math.sqrt(2) * moved / epsilon)
    with mpmath.workprec(400):
        drop = mpmath.mpf(epsilon) / moved
    if drop < _MIN_DROP:
        return AdditiveNoise(TwoDigitLaplace(drop, cell_bits), grid_bits)
    return AdditiveNoise(geometric_table(drop, 1, 1, cell_bits), grid_bits)


@lru_cache(maxsize=64)
def laplace_noise(
    epsilon: float,
    sensitivity: int = 1,
    least_bits: int = GRID_BITS,
) -> AdditiveNoise:
    """Noise ``P(a) ∝ e^{−ε·a/(N·sensitivity)}`` on the magnitude a in cells, N cells per beta.

    Laplace mechanism (Dwork et al. 2006; Li & Li 2023, Thm 2.1) with an L1 sensitivity in
    betas: 1 for raw data and OPORP under attribute adjacency, else the largest row sum
    ``Σ_j|w_ij|`` of the projection's integers. A beta is N whole cells, so coordinate j moves by at
    most ``N·|w_ij|`` cells whatever the dither, and all together by ``N·sensitivity``: rounding
    adds nothing. ``⌊Laplace⌋`` on an integer grid is post-processing of the continuous mechanism;
    the tables keep the ratio in exact integers.
    """
    finest = _CELLS_PER_DEVIATION * epsilon / (math.sqrt(2) * sensitivity)
    cells_bits = max(0, math.ceil(math.log2(finest)))
    cells = 1 << cells_bits
    grid_bits = max(least_bits, cells_bits)
    return geometric_noise(epsilon, cells * sensitivity, grid_bits - cells_bits, grid_bits)


def _calibrated(parameters: Parameters, projection: Projection) -> AdditiveNoise:
    """``Lap(Δ₁/ε)``, Δ₁ the largest row sum of the realised map (Li & Li 2023, Alg. 2, Eq. 12)."""
    return laplace_noise(parameters.budget, projection.sensitivity.l1, projection.grid_bits)


LAPLACE = Calibration(_calibrated, NumberFormat, moves="any")


def min_variance_share(epsilon: float) -> float:
    """h/N of the staircase law with the least variance, in (0, ½).

    Geng & Viswanath 2014 (the optimal γ for noise power), with b = e^−ε:
    ``γ = −b/(1−b) + (b − 2b² + 2b⁴ − b⁵)^⅓ / (2^⅓ (1−b)²)``. The better known
    ``1/(1+e^{ε/2})`` is the best for E|noise| instead; at ε = 5 its variance is 25 % larger, at
    ε = 10 2.7 times. In double precision the formula cancels below ε = 0.05, where both are ½.

    >>> round(min_variance_share(5.0), 4)
    0.1445
    """
    if epsilon < 0.05:
        return 1.0 / (1.0 + math.exp(epsilon / 2))
    b = math.exp(-epsilon)
    cube = (b - 2 * b**2 + 2 * b**4 - b**5) / 2
    root = math.pow(cube, 1 / 3)
    return root / (1 - b) ** 2 - b / (1 - b)


@lru_cache(maxsize=64)
def staircase_noise(epsilon: float) -> AdditiveNoise:
    """Staircase noise (Geng & Viswanath 2014) for a shift of one beta in one coordinate.

    Level 0 reaches h cells to either side of −½, and every further N cells (one beta) lose a factor
    e^ε. Any h is ε-DP for shifts up to N *in one coordinate*; :func:`min_variance_share` gives
    the best h/N. Unlike Laplace noise, a small shift may cost the whole epsilon, so a change spread
    over many coordinates costs epsilon for each, however small: the guarantee is not one for L1
    balls.
    """
    best = min_variance_share(epsilon)
    # Below ε = ½ the law is close to Laplace's and a coarser h costs nothing.
    inner_cells = min(_INNER_CELLS, max(1.0, 16 * epsilon))
    finest = math.ceil(math.log2(inner_cells / best))
    cells_bits = min(finest, _MAX_CELLS_BITS)
    cells = 1 << cells_bits
    grid_bits = max(GRID_BITS, cells_bits)
    inner = max(1, round(best * cells))
    drop = mpmath.mpf(epsilon)
    table = geometric_table(drop, cells, inner, grid_bits - cells_bits)
    return AdditiveNoise(table, grid_bits)


STAIRCASE = Calibration(
    lambda parameters, projection: staircase_noise(parameters.budget),
    NumberFormat,
)
"""For maps that move one coordinate only: the staircase has no guarantee for L1 balls."""
