"""What a code says about the coordinate behind it: the public law, seen from the code's side."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.signal import fftconvolve
from scipy.special import ndtr

from dpindex.arrays import Integers
from dpindex.errors import InputError
from dpindex.noise import AdditiveNoise, Decoder
from dpindex.noise.square_wave import SquareWave
from dpindex.privatizer import Privatizer
from dpindex.spec import Spec

__all__ = ["Channel", "ScoreTable", "channel_of"]

Doubles = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]

_NEGLIGIBLE = 1e-7
_CELLS_PER_DEVIATION = 32
_DEVIATIONS = 12
_VARIANCES = 64
_MAX_POINTS = 4096


@dataclass(frozen=True, eq=False)
class Channel:
    """``P(code | x)`` for one coordinate, as a step function of the distance from the code to x.

    Decoded codes y are unbiased for x. The likelihood depends on x through ``slope·y + shift − x``
    alone: with that distance u it is ``base + Σ jumps[edges < u]``. Units are those of the data.

    Attributes
    ----------
    gain, offset : float
        ``y = (value + offset) · gain`` for float codes; signs decode to ``±gain``.
    variance : three floats
        ``Var(y | x) = v₀ + v₁x + v₂x²``.
    slope, shift, cell : float
        Where the likelihood sits, and the width of a cell of the law, over which the code's
        rounding is spread.
    edges, jumps : arrays, shape (m,)
        Empty for sign codes, whose likelihood is not used beyond its variance.
    base : float
        The likelihood far to the left.
    """

    gain: float
    offset: float
    variance: tuple[float, float, float]
    slope: float = 1.0
    shift: float = 0.0
    cell: float = 1.0
    base: float = 0.0
    edges: Doubles = field(default_factory=lambda: np.empty(0))
    jumps: Doubles = field(default_factory=lambda: np.empty(0))
    bits: int = 0

    @property
    def has_shape(self) -> bool:
        """Whether the likelihood's shape is known, and not its variance alone."""
        return bool(self.edges.size)

    def decode(self, stored: Integers) -> Singles:
        """Unbiased estimates, float32, shape (n, k), of codes in their stored form."""
        if self.bits:
            signs = np.unpackbits(
                stored.astype(np.uint8, copy=False), axis=1, count=self.bits, bitorder="little"
            )
            return (signs * np.float32(2) - np.float32(1)) * np.float32(self.gain)
        decoded = stored.astype(np.float32)
        decoded += np.float32(self.offset)
        decoded *= np.float32(self.gain)
        return decoded

    def noise(self, y: Singles) -> Singles:
        """Unbiased for ``Var(y | x)``, element by element."""
        constant, first, second = self.variance
        scale = 1.0 / (1.0 + second)
        return np.asarray(
            (np.float32(second * scale) * y + np.float32(first * scale)) * y
            + np.float32(constant * scale),
            dtype=np.float32,
        )

    def noise_at(self, x: Singles) -> Doubles:
        """``Var(y | x)``."""
        constant, first, second = self.variance
        wide = x.astype(np.float64)
        return np.asarray(constant + first * wide + second * wide**2)

    def locate(self, y: Singles) -> Singles:
        """Where on the axis of x the likelihood of each code sits."""
        return np.asarray(y * np.float32(self.slope) + np.float32(self.shift), dtype=np.float32)


class ScoreTable:
    """The score ``g = d log P(code | prediction) / d prediction`` for predictions of any variance.

    A coordinate is predicted as N(m, v); then ``E[x | code] = m + v·g``, and the Fisher information
    ``E[g²]`` says how much the code tells: as much as Gaussian noise of variance ``1/E[g²] − v``.
    For Laplace, staircase and square-wave noise that falls far below the noise's own variance as v
    falls. Tables over u = (code − m) for 64 variances, a constant factor apart.
    """

    def __init__(self, channel: Channel, most: float) -> None:
        self.most = most
        # Edges lie on the lattice of half cells; a law of very many is put on a coarser one.
        widest = float(np.abs(channel.edges).max()) + 3 * math.sqrt(most)
        step = channel.cell / 2
        step *= max(1, math.ceil(2 * widest / step / _MAX_POINTS))
        self._half = math.ceil(widest / step)
        self._per_unit = 1 / step
        least = (step / 2) ** 2
        self._log_min = math.log(least)
        self.variances = np.geomspace(least, max(most, 4 * least), _VARIANCES)
        self._log_step = math.log(self.variances[1] / self.variances[0])
        points = 2 * self._half + 1
        jumps = np.zeros(points)
        np.add.at(jumps, np.rint(channel.edges / step).astype(np.intp) + self._half, channel.jumps)
        t = step * np.arange(-points + 1, points)
        self.scores = np.empty((_VARIANCES, points), dtype=np.float32)
        self.information = np.empty(_VARIANCES)
        # Rounding to cells is a dither of variance cell²/6; the width of a step is half of that.
        for i, variance in enumerate(self.variances):
            deviation = math.sqrt(variance + channel.cell**2 / 12)
            density = np.exp(-((t / deviation) ** 2) / 2) / (deviation * math.sqrt(2 * math.pi))
            likelihood = channel.base + fftconvolve(jumps, ndtr(t / deviation), mode="valid")
            likelihood = np.maximum(likelihood, _NEGLIGIBLE**2 * likelihood.max())
            score = -fftconvolve(jumps, density, mode="valid") / likelihood
            self.scores[i] = score
            self.information[i] = np.sum(score**2 * likelihood) * step

    def row(self, variance: Doubles) -> npt.NDArray[np.intp]:
        """The table's row for each variance."""
        place = (np.log(np.maximum(variance, 1e-300)) - self._log_min) / self._log_step
        return np.clip(np.rint(place), 0, _VARIANCES - 1).astype(np.intp)

    def equivalent(self, row: npt.NDArray[np.intp]) -> Doubles:
        """Variance of the Gaussian noise that would tell as much as the code does."""
        information = np.maximum(self.information[row], 1e-300)
        return np.asarray(np.maximum(1 / information - self.variances[row], self.variances[0]))

    def look_up(self, row: npt.NDArray[Any], distance: Singles) -> Singles:
        """Scores at distances u, float32."""
        place = np.rint(distance * np.float32(self._per_unit))
        np.clip(place, -self._half, self._half, out=place)
        index = place.astype(np.int32)
        index += (row * self.scores.shape[1] + self._half).astype(np.int32)
        return np.asarray(np.take(self.scores.ravel(), index))


def channel_of(spec: Spec) -> Channel:
    """The channel of a spec: a function of public parameters alone.

    Raises
    ------
    InputError
        If the spec adds no noise.
    """
    if spec.row.definition == "none":
        raise InputError(f"{spec.method} adds no noise: there is nothing to denoise.")
    law: Any = spec.law
    if spec.row.kind == "bits":
        return _signs(law, spec.code_length)
    privatizer = Privatizer(spec)
    step, decoder = privatizer.step, privatizer.decoder
    if isinstance(law, SquareWave):
        return _square(law, decoder, step)
    if isinstance(law, AdditiveNoise):
        masses = np.array([mass / (1 << law.table.bits) for mass in law.table.masses])
        values = law.table.first + np.arange(len(masses)) + decoder.offset
        if law.table.tails:  # the outermost two are no values
            masses, values = masses[1:-1], values[1:-1]
        return _additive(values, masses, decoder, decoder.gain * step, step)
    return _smooth(decoder, step)


def _numbers(decoder: Decoder, step: float, **shape: Any) -> Channel:
    constant, first, second = decoder.variance
    variance = (float(constant) * step**2, float(first) * step, float(second))
    return Channel(decoder.gain * step, decoder.offset, variance, **shape)


def _additive(
    values: Doubles, masses: Doubles, decoder: Decoder, cell: float, step: float
) -> Channel:
    """A law of cells: ``values`` and their chances, in cells."""
    outer = np.cumsum(masses)
    kept = (outer > _NEGLIGIBLE) & (outer < outer[-1] - _NEGLIGIBLE)
    values, masses = values[kept], masses[kept]
    jumps = np.diff(masses, prepend=0.0, append=0.0)
    edges = np.append(values, values[-1] + 1) - 0.5
    real = np.abs(jumps) > 1e-9 * masses.max()  # a level of a staircase is one step, not many
    return _numbers(decoder, step, cell=cell, edges=edges[real] * cell, jumps=jumps[real] / cell)


def _smooth(decoder: Decoder, step: float) -> Channel:
    """A law that is known by its moments: Laplace's if its tails are that heavy, else Gaussian."""
    variance = decoder.variance[0]
    heavy = decoder.fourth > 4.5 * variance**2  # 3 for a Gaussian, 6 for Laplace
    values = np.arange(
        -_DEVIATIONS * _CELLS_PER_DEVIATION, _DEVIATIONS * _CELLS_PER_DEVIATION + 1.0
    )
    t = values / _CELLS_PER_DEVIATION
    masses = np.exp(-math.sqrt(2) * np.abs(t)) if heavy else np.exp(-(t**2) / 2)
    cell = math.sqrt(variance) * step / _CELLS_PER_DEVIATION
    return _additive(values, masses / masses.sum(), decoder, cell, step)


def _square(law: SquareWave, decoder: Decoder, step: float) -> Channel:
    """A window on a constant floor, about where the code would be without noise."""
    inside, window = law.inside / 2.0**64, 2 * law.half_width + 1
    # The decoder's gain is the cell over the slope of E[code | x]; the slope gives the cell back.
    slope = inside - (1 - inside) * window / law.cells
    cell = decoder.gain * slope * step
    within, without = inside / window / cell, (1 - inside) / law.cells / cell
    half = window / 2 * cell
    return _numbers(
        decoder,
        step,
        slope=slope,
        shift=law.low * step - cell * (decoder.offset + law.half_width),
        cell=cell,
        base=without,
        edges=np.array([-half, half]),
        jumps=np.array([within - without, without - within]),
    )


def _signs(law: Any, code_length: int) -> Channel:
    """Signs as numbers ``±1``: what is left of a sign near zero bounds the signal from below."""
    kept = 1.0 - 2.0 * float(law.flip_probability(np.full(1, 0.5), 0.5)[0])
    return Channel(1.0, 0.0, (1.0 - kept**2, 0.0, 0.0), bits=code_length)
