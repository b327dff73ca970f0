"""Laws of what codes show of cosines, kept on a grid of cosines."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dpindex.base.arrays import Doubles, Floats

CELLS = 128
EDGES = np.linspace(-1.0, 1.0, CELLS + 1)
GRID = (EDGES[1:] + EDGES[:-1]) / 2
"""Cosines at which densities and laws are kept, shape (128,)."""

_BINS = 64
_REACH = 5.0
_STANDARD = np.linspace(-25.0, 25.0, 25_601)
"""Deviations from the mean at which a distribution function is kept; beyond them it is 0 or 1."""


def _zeta(order: int, start: Doubles) -> Doubles:
    """Return ``Σ (start + n)^−order`` over n = 0, 1, … by Euler and Maclaurin, to 1e-9.

    Of order 2 it is ψ₁(start), of order 4 it is ψ₃(start)/6; ``scipy.special``, which has them,
    takes a quarter of a second to import.
    """
    first = sum((start + n) ** -order for n in range(16))
    end = start + 16
    beyond = end / (order - 1) + 0.5 + order / (12 * end)
    return np.asarray(first + beyond * end**-order)


def _log_logistic(off: Doubles, alpha: float) -> Doubles:
    """Return the log density of the logit of a beta variable at |off|, over that at 0."""
    # log cosh in a form that does not overflow
    return np.asarray(-2 * alpha * (off / 2 + np.log1p(np.exp(-off)) - math.log(2)))


@dataclass(frozen=True, eq=False)
class ObservationLaw:
    """The law of an observation given the true cosine: moments on :data:`GRID`.

    The law is a symmetric generalised logistic one (the logit of a beta variable) of these moments,
    nearly normal where ``excess`` is 0. Its density is log-concave, so that posterior means rise
    with the observation.

    Attributes
    ----------
    expected : float64 array, shape (128,)
        Mean of the observation, increasing.
    own, common : float64 arrays, shape (128,)
        The variance of an observation of scale s is ``s·own + common``; s is about 1.
    excess : float
        Excess kurtosis, [0, 3).
    trusted : float
        Pairs count as so many at most, as the law is known to a few parts in a thousand.
    """

    expected: Doubles
    own: Doubles
    common: Doubles
    excess: float = 0.0
    trusted: float = 1e6

    @cached_property
    def _shape(self) -> tuple[float, float]:
        """Both parameters α of the beta variable, and the deviation of its logit."""
        shapes = np.geomspace(0.1, 1e4, 200)
        excess = 3 * _zeta(4, shapes) / _zeta(2, shapes) ** 2
        alpha = float(np.interp(-self.excess, -excess, shapes))
        return alpha, float(np.sqrt(2 * _zeta(2, np.array(alpha))))

    @cached_property
    def _distribution(self) -> Doubles:
        """The distribution function of an observation at :data:`_STANDARD`."""
        alpha, deviation = self._shape
        density = np.exp(_log_logistic(np.abs(_STANDARD) * deviation, alpha))
        sums = np.cumsum(density) - density / 2  # by the trapezoidal rule
        return np.asarray(sums / density.sum())

    def variance(self, scale: Doubles) -> Doubles:
        """Variances of observations of these scales, shape (…, 128)."""
        return np.asarray(np.maximum(scale[..., None] * self.own + self.common, 1e-20))

    def log_likelihood(self, value: Doubles, scale: Doubles) -> tuple[Doubles, Doubles]:
        """Return log-likelihoods of values given each cosine, up to a constant, shape (…, 128).

        A law finer than the grid is widened to it; the second array is the share of the variance
        that is the law's own.
        """
        variance = self.variance(scale)
        wide = np.maximum(variance, (0.75 * np.gradient(self.expected)) ** 2)
        return self.log_density(value, wide), variance / wide

    def log_density(self, value: Doubles, variance: Doubles) -> Doubles:
        """Return log densities of values of these variances given each cosine, up to a constant."""
        alpha, deviation = self._shape
        off = np.abs(value[..., None] - self.expected) * (deviation / np.sqrt(variance))
        return np.asarray(_log_logistic(off, alpha) - np.log(variance) / 2)

    def inverse(self, value: Doubles) -> Doubles:
        """The cosines of which observations are the expected ones, beyond ±1 on a line."""
        low = self.expected[0]
        high = self.expected[-1]
        beyond = (np.minimum(value - low, 0) + np.maximum(value - high, 0)) * (2 / (high - low))
        return np.asarray(np.interp(value, self.expected, GRID) + beyond)

    def cosine(self, mean: float) -> float:
        """The cosine, [-1, 1], of which observations have this mean."""
        return float(np.clip(self.inverse(np.array(mean)), -1, 1))

    @cached_property
    def edges(self) -> Doubles:
        """Edges of the bins in which observations are counted; the outermost are infinite."""
        reach = _REACH * np.sqrt(self.variance(np.ones(())).max())
        low = self.expected[0] - reach
        high = self.expected[-1] + reach
        width = (high - low) / _BINS
        edges = low + width * np.arange(int((high - low) / width) + 2, dtype=np.float64)
        edges[0] = -np.inf
        edges[-1] = np.inf
        return np.asarray(edges)

    @property
    def centres(self) -> Doubles:
        """The middle of each bin, the outermost taken to be as wide as the others."""
        first, second = self.edges[1:3]
        return np.asarray(first + (second - first) * (np.arange(len(self.edges) - 1) - 0.5))

    def chances(self, scale: float) -> Doubles:
        """Chances of the bins, shape (128, bins)."""
        deviation = np.sqrt(self.variance(np.asarray(scale)))
        off = (self.edges - self.expected[:, None]) / deviation[:, None]
        below = np.interp(off, _STANDARD, self._distribution)
        return np.asarray(np.diff(below, axis=1) + 1e-30)

    def count(self, value: Floats) -> Doubles:
        """Count the values of each row that fall in each bin, shape (n, bins)."""
        bins = len(self.edges) - 1
        low, high = self.edges[1:3]
        place = np.clip((value - low) / (high - low) + 1, 0, bins - 1).astype(np.intp)
        place += bins * np.arange(len(value))[:, None]
        counts = np.bincount(place.ravel(), minlength=bins * len(value))
        return counts.reshape(-1, bins).astype(np.float64)


@dataclass(frozen=True, eq=False)
class AgreementLaw(ObservationLaw):
    """The law of ``Σ_j s_j t_j`` of two private codes: signs that agree, less those that do not.

    The number of signs that agree is binomial. Its skewness and kurtosis would pass for those of
    the collection if it were taken to be normal: near neighbours are the collection's skewness.
    Where ``common`` is below the binomial variance, the likelihood is raised to their ratio.

    Attributes
    ----------
    bits : int
        Signs of a code.
    """

    bits: int = 1

    @property
    def values(self) -> Doubles:
        """Possible observations, shape (bits + 1,)."""
        return np.arange(-self.bits, self.bits + 1, 2, dtype=np.float64)

    @cached_property
    def edges(self) -> Doubles:
        return np.append(self.values, self.bits + 2) - 1.0

    def _raised(self, value: Doubles, variance: Doubles) -> Doubles:
        """Binomial log probabilities, over the ratio of the variance to theirs."""
        bits = self.bits
        agree = np.rint((bits + value[..., None]) / 2).astype(np.intp)
        chance = np.clip((1 + self.expected / bits) / 2, 1e-9, 1 - 1e-9)
        log = agree * np.log(chance) + (bits - agree) * np.log(1 - chance)
        log_factorials = np.cumsum(np.log(np.maximum(np.arange(bits + 1), 1)))
        log -= log_factorials[agree] + log_factorials[bits - agree]
        return np.asarray(log * (4 * bits * chance * (1 - chance) / variance))

    def log_density(self, value: Doubles, variance: Doubles) -> Doubles:
        one = variance.reshape(-1, CELLS)[0]  # observations have no scales
        total = np.logaddexp.reduce(self._raised(self.values, one), axis=0)
        return np.asarray(self._raised(value, one) - total)

    def chances(self, scale: float) -> Doubles:
        log_chances = self.log_density(self.values, self.variance(np.asarray(scale)))
        return np.asarray(np.exp(log_chances).T + 1e-30)
