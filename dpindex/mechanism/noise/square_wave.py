"""Square-wave noise for values of an interval: any two of them are neighbours."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property, lru_cache

import numpy as np

from dpindex.base.arrays import Floats, Indices, Integers, Ints, Longs
from dpindex.mechanism.codes import NumberFormat
from dpindex.mechanism.grid import GRID_BITS, grid_point
from dpindex.mechanism.noise.base import ONE, Calibration, NumberLaw, two_level_chance
from dpindex.mechanism.noise.moments import Likelihood, NoiseMoments
from dpindex.mechanism.noise.signs import draw_flips
from dpindex.mechanism.parameters import Parameters
from dpindex.mechanism.public_random import BitSource

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
