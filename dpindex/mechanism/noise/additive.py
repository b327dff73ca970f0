"""Additive noise from any source of integer draws, and the baseline that adds none."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from dpindex.base.arrays import Floats
from dpindex.mechanism.codes import NumberFormat
from dpindex.mechanism.noise.law import (
    Calibration,
    Likelihood,
    NoiseMoments,
    NumberLaw,
    check_deviation,
)
from dpindex.mechanism.noise.tables import Profile
from dpindex.randomness import BitSource

_NEGLIGIBLE = 1e-7
_NARROW = 2**30


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
        # Rounding x to whole cells by the offset adds f(1−f) cells², 1/6 on average.
        dither, dither_fourth = (1 / 6, 1 / 15) if self.source.cell_bits else (0.0, 0.0)
        fourth = fourth + 6 * variance * dither + dither_fourth
        return NoiseMoments.additive((variance + dither) * self.scale**2, fourth * self.scale**4)

    @cached_property
    def likelihood(self) -> Likelihood:
        values, masses, width = self.source.profile()
        outer = np.cumsum(masses)
        kept = (outer > _NEGLIGIBLE) & (outer < outer[-1] - _NEGLIGIBLE)
        values = values[kept]
        masses = masses[kept]
        jumps = np.diff(masses, prepend=0.0, append=0.0)
        edges = np.append(values, values[-1] + 1) - 0.5
        real = np.abs(jumps) > 1e-9 * masses.max()  # a level of a staircase is one step, not many
        cell = width * self.scale
        return Likelihood(edges[real] * cell, jumps[real] / cell, cell)

    def perturb(self, x: Floats, stream: BitSource) -> npt.NDArray[np.int32]:
        noise = self.source.sample(x.size, stream).reshape(x.shape)
        # Sums held in float64 may pass 2^31 before their low bits are dropped.
        small = x.dtype == np.float32 or -_NARROW < x.min(initial=0) <= x.max(initial=0) < _NARROW
        narrow = small and noise.dtype == np.int32
        noisy: npt.NDArray[Any] = x.astype(np.int32 if narrow else np.int64)
        noisy += noise
        noisy >>= self.source.cell_bits
        return noisy.astype(np.int32, copy=False)


class NoNoise(NumberLaw):
    """No noise, for the baselines: codes are the exact integers."""

    moments = NoiseMoments.additive(0.0, 0.0)
    likelihood = Likelihood(np.array([-0.5, 0.5]), np.array([1.0, -1.0]))

    def perturb(self, x: Floats, stream: BitSource) -> npt.NDArray[np.int32]:
        return x.astype(np.int32)


NO_NOISE = Calibration(lambda parameters, projection: NoNoise(), NumberFormat, "none")
