"""Posterior means and deviations of cosines, which selection does not bias.

Among many candidates the best estimates are those with the luckiest noise, so an unbiased estimate
of a *selected* similarity is too high. A posterior mean is right on average whatever was selected
(Efron 2011, "Tweedie's formula and selection bias", JASA 106). The prior is the collection's own
distribution of cosines, learned from noisy observations of pairs: its logarithm is a cubic spline,
its density is blurred by the known law of the observations, and the penalised likelihood is
maximised (Eilers 2007, penalised composite link model; Efron 2016, "Empirical Bayes deconvolution
estimates"). The penalty prefers a normal density, of a default deviation: so where the noise hides
the shape, the prior is normal, and where it hides the width too, it is the default.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.interpolate import BSpline
from scipy.special import ndtr

from dpindex.arrays import Doubles

_CELLS, _SEGMENTS = 128, 16

EDGES = np.linspace(-1.0, 1.0, _CELLS + 1)
GRID = (EDGES[1:] + EDGES[:-1]) / 2
"""Cosines at which densities are kept, shape (128,)."""

_DEFAULT_DEVIATION = 0.125
"""Of the cosines of a collection, if its codes do not tell."""

_TRUSTED_PAIRS = 1e5
"""Pairs count as so many at most: laws of observations are known to a few parts in a thousand."""

_BINS, _CLASSES, _MAX_STEPS = 64, 16, 60
_VALUES, _SCALES = 512, 2.0 ** np.linspace(-4.0, 4.0, 33)

_KNOTS = -1.0 + 2.0 / _SEGMENTS * np.arange(-3, _SEGMENTS + 4)
_BASIS: Doubles = BSpline.design_matrix(GRID, _KNOTS, 3).toarray()
_SPLINES = _BASIS.shape[1]


def _difference(order: int) -> Doubles:
    difference = np.diff(np.eye(_SPLINES), order, axis=0)
    return np.asarray(difference.T @ difference)


# Third differences, which a normal density does not have; and, in units of the default density's
# second differences, a departure from it.
_SMOOTH = _difference(3)
_WEAK = _difference(2) / (2.0 / _SEGMENTS / _DEFAULT_DEVIATION) ** 4 + 1e-4 * np.eye(_SPLINES)


@dataclass(frozen=True, eq=False)
class ObservationLaw:
    """How an observation depends on the true cosine: normal, with these moments on :data:`GRID`.

    Attributes
    ----------
    expected : float64 array, shape (128,)
        Mean of the observation, increasing.
    own, common : float64 arrays, shape (128,)
        The variance of an observation of scale s is ``s·own + common``; s is about 1.
    step : float
        Distance of possible observations, 0 for real numbers.
    """

    expected: Doubles
    own: Doubles
    common: Doubles
    step: float = 0.0

    def variance(self, scale: Doubles) -> Doubles:
        """Variances of observations of these scales, shape (…, 128)."""
        return np.asarray(np.maximum(scale[..., None] * self.own + self.common, 1e-20))

    def chances(self, edges: Doubles, scale: float) -> Doubles:
        """Chances of the bins between edges, shape (128, bins)."""
        deviation = np.sqrt(self.variance(np.asarray(scale)))
        return np.diff(ndtr((edges - self.expected[:, None]) / deviation[:, None]), axis=1)


class Prior:
    """A distribution of true cosines.

    Parameters
    ----------
    coefficients : float64 array
        Of the log density, a cubic spline.
    elsewhere : float
        Chance of a vector that is unlike all others: it may have any cosine.
    """

    def __init__(self, coefficients: Doubles, elsewhere: float) -> None:
        self.coefficients = coefficients
        self.density = (1 - elsewhere) * _density(coefficients) + elsewhere / _CELLS

    @classmethod
    def learn(cls, value: Doubles, scale: Doubles, law: ObservationLaw, rows: int) -> Prior:
        """From observations of pairs among so many rows; of none, the default about 0."""
        mean = float(np.interp(value.mean(), law.expected, GRID)) if len(value) else 0.0
        log_normal = -0.5 * ((GRID - mean) / _DEFAULT_DEVIATION) ** 2
        start = np.asarray(np.linalg.lstsq(_BASIS, log_normal, rcond=None)[0], np.float64)
        if len(value):
            counts, chances = _histogram(value, scale, law)
            start = _penalised_fit(start, counts, chances)
        return cls(start, 1.0 / (rows + 1))


def _density(coefficients: Doubles) -> Doubles:
    log_density = _BASIS @ coefficients
    density = np.exp(log_density - log_density.max())
    return np.asarray(density / density.sum())


def _histogram(value: Doubles, scale: Doubles, law: ObservationLaw) -> tuple[Doubles, Doubles]:
    """Counts in bins of value and classes of scale, and the chances of these given the cosine."""
    low, high = float(value.min()), float(value.max())
    width = max((high - low) / _BINS, 1e-9)
    if law.step:  # bins hold equally many of the possible values
        width, low = law.step * np.ceil(width / law.step), low - law.step / 2
    bins = int((high - low) / width) + 1
    edges = low + width * np.arange(bins + 1, dtype=np.float64)
    edges[0], edges[-1] = -np.inf, np.inf
    levels = np.quantile(scale[:: max(1, len(scale) >> 16)], np.arange(1, _CLASSES) / _CLASSES)
    group = np.searchsorted(np.unique(levels), scale)
    place = np.minimum((value - low) / width, bins - 1).astype(np.intp) + bins * group
    share = np.bincount(group) / len(group)
    scales = np.bincount(group, scale) / np.maximum(np.bincount(group), 1)
    counts = np.bincount(place, minlength=bins * len(share)).astype(np.float64)
    parts = [s * law.chances(edges, a) for s, a in zip(share, scales, strict=True)]
    counts *= min(1.0, _TRUSTED_PAIRS / len(value))
    return counts, np.concatenate(parts, axis=1) + 1e-30


def _penalised_fit(start: Doubles, counts: Doubles, chances: Doubles) -> Doubles:
    """The coefficients of largest penalised likelihood, by damped scoring from ``start``."""
    total, damping, current = counts.sum(), 1e-3, start

    def objective(a: Doubles) -> float:
        off = a - start
        likelihood = counts @ np.log(_density(a) @ chances)
        return float(likelihood - (a @ _SMOOTH @ a + off @ _WEAK @ off) / 2)

    reached = objective(current)
    for _ in range(_MAX_STEPS):
        density = _density(current)
        binned = density @ chances
        slope = _BASIS.T @ (density * (chances @ (counts / binned)) - total * density)
        slope -= _SMOOTH @ current + _WEAK @ (current - start)
        jacobian = (chances.T * density) @ _BASIS - np.outer(binned, density @ _BASIS)
        curvature = (jacobian.T * (total / binned)) @ jacobian + _SMOOTH + _WEAK
        curvature += damping * np.diag(np.diag(curvature))
        tried = current + np.linalg.solve(curvature, slope)
        gain = objective(tried) - reached
        if gain >= 0:
            current, reached, damping = tried, reached + gain, damping / 5
        else:
            damping *= 20
        if 0 <= gain < 1e-4 or damping > 1e12:
            break
    return current


class PosteriorTable:
    """Posterior means and deviations of cosines by what is observed: one prior, one law.

    Parameters
    ----------
    prior : Prior
    law : ObservationLaw
    """

    def __init__(self, prior: Prior, law: ObservationLaw) -> None:
        self._prior, self._law = prior, law

    @cached_property
    def _table(self) -> tuple[Doubles, Doubles, Doubles]:
        """Values, and corrections of the mean and deviations for these and the scales."""
        law = self._law
        scales = _SCALES if law.own.any() else np.ones(1)
        reach = 8.0 * np.sqrt(law.variance(np.ones(1)).max())
        value = np.linspace(law.expected[0] - reach, law.expected[-1] + reach, _VALUES)
        parts = [self._exact(value, np.full(_VALUES, scale)) for scale in scales]
        # Means rise with the observation, but for impossible ones under a variance that falls.
        mean = np.maximum.accumulate(np.stack([part[0] for part in parts]), axis=1)
        return value, mean - self._plain(value), np.stack([part[1] for part in parts])

    def _plain(self, value: Doubles) -> Doubles:
        """The cosines of which observations are the expected ones, beyond ±1 on a line."""
        low, high = self._law.expected[0], self._law.expected[-1]
        beyond = (np.minimum(value - low, 0) + np.maximum(value - high, 0)) * (2 / (high - low))
        return np.asarray(np.interp(value, self._law.expected, GRID) + beyond)

    def _exact(self, value: Doubles, scale: Doubles) -> tuple[Doubles, Doubles]:
        law = self._law
        variance = law.variance(scale)
        # A law finer than the grid is widened to it, and what that adds is taken off again.
        least = (0.75 * np.gradient(law.expected)) ** 2
        wide = np.maximum(variance, least)
        log_weight = -0.5 * ((value[:, None] - law.expected) ** 2 / wide + np.log(wide))
        log_weight += np.log(self._prior.density)
        weight = np.exp(log_weight - log_weight.max(axis=1, keepdims=True))
        weight /= weight.sum(axis=1, keepdims=True)
        mean, plain = weight @ GRID, np.clip(self._plain(value), -1.0, 1.0)
        spread = np.sqrt(np.maximum(weight @ GRID**2 - mean**2, 0.0))
        kept = np.einsum("ng,ng->n", weight, variance / wide)
        return plain + (mean - plain) * kept, spread * np.sqrt(kept)

    def __call__(self, value: Doubles, scale: Doubles) -> tuple[Doubles, Doubles]:
        """Means and deviations for observations and their scales, of one shape."""
        values, shift, deviation = self._table
        column = (value - values[0]) / (values[1] - values[0])
        column = np.clip(column, 0.0, _VALUES - 1 - 1e-9)
        row = np.zeros(value.shape)
        if len(shift) > 1:
            row = np.interp(np.log2(np.maximum(scale, 1e-300)), np.log2(_SCALES), np.arange(33.0))
        i, j = row.astype(np.intp), column.astype(np.intp)
        down, right = row - i, column - j
        below = np.minimum(i + 1, len(shift) - 1)

        def between(table: Doubles) -> Doubles:
            upper = table[i, j] * (1 - right) + table[i, j + 1] * right
            lower = table[below, j] * (1 - right) + table[below, j + 1] * right
            return np.asarray(upper * (1 - down) + lower * down)

        return np.clip(self._plain(value) + between(shift), -1.0, 1.0), between(deviation)
