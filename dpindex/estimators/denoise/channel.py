"""What a code says about the coordinate behind it: the public law, seen from the code's side."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.signal import fftconvolve
from scipy.special import ndtr

from dpindex.arrays import Integers
from dpindex.codes import CodeFormat
from dpindex.errors import InputError
from dpindex.noise.law import Likelihood, NumberLaw
from dpindex.spec import Spec

__all__ = ["Channel", "ScoreTable", "channel_of"]

Doubles = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]

_NEGLIGIBLE = 1e-7
_VARIANCES = 64
_MAX_POINTS = 4096


@dataclass(frozen=True, eq=False)
class Channel:
    """How the codes of a spec are decoded, how they scatter, and their likelihood.

    Decoded codes y are unbiased for x. Units are those of the data.

    Attributes
    ----------
    format : CodeFormat
        Decodes stored codes.
    variance : three floats
        ``Var(y | x) = v₀ + v₁x + v₂x²``.
    likelihood : Likelihood
        Without edges for sign codes, of which no more than the variance is used.
    """

    format: CodeFormat
    variance: tuple[float, ...]
    likelihood: Likelihood = Likelihood()

    @property
    def has_shape(self) -> bool:
        """Whether the likelihood's shape is known, and not its variance alone."""
        return bool(self.likelihood.edges.size)

    def decode(self, stored: Integers) -> Singles:
        """Unbiased estimates, float32, shape (n, k), of codes in their stored form."""
        return self.format.decode(stored)

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
        slope, shift = np.float32(self.likelihood.slope), np.float32(self.likelihood.shift)
        return np.asarray(y * slope + shift, dtype=np.float32)


class ScoreTable:
    """The score ``g = d log P(code | prediction) / d prediction`` for predictions of any variance.

    A coordinate is predicted as N(m, v); then ``E[x | code] = m + v·g``, and the Fisher information
    ``E[g²]`` says how much the code tells: as much as Gaussian noise of variance ``1/E[g²] − v``.
    For Laplace, staircase and square-wave noise that falls far below the noise's own variance as v
    falls. Tables over u = (code − m) for 64 variances, a constant factor apart.
    """

    def __init__(self, likelihood: Likelihood, most: float) -> None:
        self.most = most
        # Edges lie on the lattice of half cells; a law of very many is put on a coarser one.
        widest = float(np.abs(likelihood.edges).max()) + 3 * math.sqrt(most)
        step = likelihood.cell / 2
        step *= max(1, math.ceil(2 * widest / step / _MAX_POINTS))
        self._half = math.ceil(widest / step)
        self._per_unit = 1 / step
        least = (step / 2) ** 2
        self._log_min = math.log(least)
        self.variances = np.geomspace(least, max(most, 4 * least), _VARIANCES)
        self._log_step = math.log(self.variances[1] / self.variances[0])
        points = 2 * self._half + 1
        jumps = np.zeros(points)
        np.add.at(
            jumps, np.rint(likelihood.edges / step).astype(np.intp) + self._half, likelihood.jumps
        )
        t = step * np.arange(-points + 1, points)
        self.scores = np.empty((_VARIANCES, points), dtype=np.float32)
        self.information = np.empty(_VARIANCES)
        # Rounding to cells is a dither of variance cell²/6; the width of a step is half of that.
        for i, variance in enumerate(self.variances):
            deviation = math.sqrt(variance + likelihood.cell**2 / 12)
            density = np.exp(-((t / deviation) ** 2) / 2) / (deviation * math.sqrt(2 * math.pi))
            chance = likelihood.base + fftconvolve(jumps, ndtr(t / deviation), mode="valid")
            chance = np.maximum(chance, _NEGLIGIBLE**2 * chance.max())
            score = -fftconvolve(jumps, density, mode="valid") / chance
            self.scores[i] = score
            self.information[i] = np.sum(score**2 * chance) * step

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
    if not spec.mechanism.private:
        raise InputError(f"{spec.method} adds no noise: there is nothing to denoise.")
    law = spec.law
    if isinstance(law, NumberLaw):
        moments = law.moments.in_units(spec.step)
        return Channel(spec.format, moments.variance_of_x, law.likelihood.in_units(spec.step))
    # Signs as numbers ±1: what is left of a sign near zero bounds the signal from below.
    kept = 1.0 - 2.0 * float(law.flip_probability(np.full(1, 0.5), 0.5)[0])
    return Channel(spec.format, (1.0 - kept**2, 0.0, 0.0))
