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

from functools import lru_cache
from typing import Any

import numpy as np
import scipy

from dpindex.base.arrays import AnyArray, Doubles
from dpindex.similarity.observation_law import CELLS, GRID, AgreementLaw, ObservationLaw

_SEGMENTS = 16

_DEFAULT_DEVIATION = 0.125
"""Of the cosines of a collection, if its codes do not tell."""

_CLASSES = 16
_MAX_STEPS = 60
_VALUES = 512
_SCALES = 2.0 ** np.linspace(-4.0, 4.0, 33)

_CENTRES = -1.0 + 2.0 / _SEGMENTS * np.arange(-1, _SEGMENTS + 2)
_AWAY = np.abs(GRID[:, None] - _CENTRES) * (_SEGMENTS / 2)
# Cubic B-splines on a uniform grid.
_BASIS: Doubles = np.where(
    _AWAY < 1, 2 / 3 - _AWAY**2 + _AWAY**3 / 2, np.maximum(2 - _AWAY, 0) ** 3 / 6
)
_SPLINES = _BASIS.shape[1]
_TO_SPLINES: Doubles = np.asarray(np.linalg.pinv(_BASIS), np.float64)


def _difference(order: int) -> Doubles:
    difference = np.diff(np.eye(_SPLINES), order, axis=0)
    return np.asarray(difference.T @ difference)


# Third differences, which a normal density does not have; and, in units of the default density's
# second differences, a departure from where the fit starts.
_WEAK = _difference(2) / (2.0 / _SEGMENTS / _DEFAULT_DEVIATION) ** 4 + 1e-4 * np.eye(_SPLINES)
_PENALTY = _difference(3) + _WEAK


class Priors:
    """Distributions of true cosines, one for each query, or one for all.

    Parameters
    ----------
    coefficients : float64 array, shape (n, splines)
        Of the log densities, cubic splines.
    elsewhere : float
        Chance of a vector that is unlike all others: it may have any cosine.
    """

    def __init__(self, coefficients: Doubles, elsewhere: float) -> None:
        self.coefficients = coefficients
        self.elsewhere = elsewhere
        self.density = (1 - elsewhere) * _density(coefficients) + elsewhere / CELLS
        self.of_agreements = lru_cache(self._of_agreements)

    def _of_agreements(self, law: AgreementLaw) -> tuple[Doubles, Doubles]:
        """Posterior means and deviations given each possible agreement of one prior."""
        values = law.values[None]
        mean, error = _posterior(self, law, values, np.ones_like(values))
        return mean[0], error[0]

    def of(self, query: int) -> Priors:
        """Of one query alone."""
        return Priors(self.coefficients[query : query + 1], self.elsewhere)

    @classmethod
    def _default(cls, mean: float, rows: int) -> Priors:
        """The default prior about a mean, for so many rows."""
        log_normal = -0.5 * ((GRID - mean) / _DEFAULT_DEVIATION) ** 2
        start = np.asarray(np.linalg.lstsq(_BASIS, log_normal, rcond=None)[0], np.float64)
        return cls(start[None], 1.0 / (rows + 1))

    @classmethod
    def of_counts(cls, counts: Doubles, law: ObservationLaw, rows: int) -> Priors:
        """From how many pairs among so many rows fall in each bin of the law, shape (1, bins)."""
        if not (total := counts.sum()):
            return cls._default(0.0, rows)
        start = cls._default(law.cosine(counts[0] @ law.centres / total), rows)
        return start._fitted(min(1.0, law.trusted / total) * counts, law.chances(1.0))

    @classmethod
    def of_pairs(cls, value: AnyArray, scale: Doubles, law: ObservationLaw, rows: int) -> Priors:
        """From observations of pairs among so many rows, of these scales; of none, the default."""
        if not len(value):
            return cls._default(0.0, rows)
        levels = np.quantile(scale[:: max(1, len(scale) >> 16)], np.arange(1, _CLASSES) / _CLASSES)
        group = np.searchsorted(np.unique(levels), scale)
        share = np.bincount(group) / len(group)
        scales = np.bincount(group, scale) / np.maximum(np.bincount(group), 1)
        grouped = [law.count(value[None, group == g]) for g in range(len(share))]
        chances = [s * law.chances(a) for s, a in zip(share, scales, strict=True)]
        trust = min(1.0, law.trusted / len(value))
        return cls._default(law.cosine(value.mean(dtype=float)), rows)._fitted(
            trust * np.concatenate(grouped, 1), np.concatenate(chances, 1) + 1e-30
        )

    def of_queries(self, value: Doubles, law: ObservationLaw) -> Priors:
        """Each query's own, near these, given observations of scale 1, shape (nq, items)."""
        return self._fitted(law.count(value), law.chances(1.0))

    def of_moments(self, seen: Doubles, law: ObservationLaw, rows: int) -> Priors:
        """Each query's own: of those that explain its moments, the nearest in relative entropy.

        That is this density times the exponential of a combination of what the two moments are
        given each cosine (exponential tilting), each query's alone.

        Parameters
        ----------
        seen : float64 array, shape (nq, 2)
            Mean and mean square of a query's observations of scale 1.
        law : ObservationLaw
        rows : int
            Observations of a query: the moments err by as much.
        """
        start = _density(self.coefficients)
        centre = start[0] @ law.expected
        off = law.expected - centre
        given = np.stack([off, off**2 + law.variance(np.ones(()))], axis=1)
        moments = np.stack([seen[:, 0], seen[:, 1] - centre * (2 * seen[:, 0] - centre)], axis=1)
        moments[:, 0] -= centre
        usual = start[0] @ given[:, 1]
        error = np.diag([usual, 2 * usual**2]) / rows

        def objective(tilt: Doubles, of: Doubles) -> tuple[Doubles, Doubles]:
            exponent = tilt @ given.T
            top = exponent.max(axis=1)
            density = start * np.exp(exponent - top[:, None])
            total = density.sum(axis=1)
            reached = np.sum(tilt * (of - tilt @ error / 2), axis=1) - top - np.log(total)
            return reached, density / total[:, None]

        tilt = np.zeros_like(moments)
        size = np.ones((len(moments), 1))
        active = np.arange(len(moments))
        reached, density = objective(tilt, moments)
        for _ in range(_MAX_STEPS):
            mean = density[active] @ given
            away = given - mean[:, None]
            curvature = (away * density[active, :, None]).swapaxes(1, 2) @ away + error
            slope = moments[active] - mean - tilt[active] @ error
            step = np.linalg.solve(curvature, slope[..., None])[..., 0]
            tried = tilt[active] + size[active] * step
            value, changed = objective(tried, moments[active])
            gain = value - reached[active]
            better = gain >= 0
            taken = active[better]
            tilt[taken] = tried[better]
            reached[taken] = value[better]
            density[taken] = changed[better]
            size[active] = np.where(better[:, None], 1.0, size[active] / 4)
            active = active[np.where(better, gain >= 1e-5, size[active, 0] > 1e-6)]
            if not len(active):
                break
        return Priors(self.coefficients + tilt @ (_TO_SPLINES @ given).T, self.elsewhere)

    def _fitted(self, counts: Doubles, chances: Doubles) -> Priors:
        start = np.broadcast_to(self.coefficients, (len(counts), _SPLINES))
        return Priors(_penalised_fit(start, counts, chances), self.elsewhere)


def _density(coefficients: Doubles) -> Doubles:
    log_density = coefficients @ _BASIS.T
    density = np.exp(log_density - log_density.max(axis=1, keepdims=True))
    return np.asarray(density / density.sum(axis=1, keepdims=True))


def _penalised_fit(start: Doubles, counts: Doubles, chances: Doubles) -> Doubles:
    """The coefficients of largest penalised likelihood, by damped scoring, each row alone."""
    current = start.copy()
    total = counts.sum(axis=1)
    damping = np.full(len(start), 1e-3)
    active = np.arange(len(start))

    def objective(a: Doubles, rows: Any) -> Doubles:
        off = a - start[rows]
        likelihood = np.einsum("nb,nb->n", counts[rows], np.log(_density(a) @ chances))
        return np.asarray(likelihood - np.einsum("ns,ns->n", off @ _PENALTY, off) / 2)

    reached = objective(current, active)
    for _ in range(_MAX_STEPS):
        a = current[active]
        n = total[active, None]
        density = _density(a)
        binned = density @ chances
        slope = (density * ((counts[active] / binned) @ chances.T - n)) @ _BASIS
        slope -= (a - start[active]) @ _PENALTY
        jacobian = np.matmul(chances.T * density[:, None, :], _BASIS)
        jacobian -= binned[..., None] * (density @ _BASIS)[:, None, :]
        curvature = np.matmul((jacobian * (n / binned)[..., None]).transpose(0, 2, 1), jacobian)
        curvature += _PENALTY
        diagonal = np.einsum("nss->ns", curvature)
        diagonal += damping[active, None] * diagonal
        tried = a + np.linalg.solve(curvature, slope[..., None])[..., 0]
        gain = objective(tried, active) - reached[active]
        better = gain >= 0
        taken = active[better]
        current[taken] = tried[better]
        reached[taken] = reached[taken] + gain[better]
        damping[active] = np.where(better, damping[active] / 5, damping[active] * 20)
        active = active[(gain >= 1e-4) | (~better & (damping[active] <= 1e12))]
        if not len(active):
            break
    return current


def posterior(
    priors: Priors, law: ObservationLaw, value: Doubles, scale: Doubles
) -> tuple[Doubles, Doubles]:
    """Posterior means and deviations of cosines given observations and their scales, (nq, count).

    ``priors`` are one for each query, or one for all. Many observations are looked up in a table.
    """
    if isinstance(law, AgreementLaw):
        means, errors = priors.of_agreements(law)
        place = ((value + law.bits) / 2).astype(np.intp)
        return means[place], errors[place]
    if value.shape[1] <= _VALUES:
        return _posterior(priors, law, value, scale)
    scales = _SCALES if law.own.any() and np.ptp(scale) else np.ones(1)
    reach = 8.0 * np.sqrt(law.variance(np.ones(())).max())
    grid = np.linspace(law.expected[0] - reach, law.expected[-1] + reach, _VALUES)
    shape = (len(scales), _VALUES)
    queries = range(len(value))
    known = [np.broadcast_to(x, shape).reshape(1, -1) for x in (grid, scales[:, None])]
    parts = [_posterior(priors.of(q), law, *known) for q in range(len(priors.density))]
    means, errors = (np.reshape(part, (-1, *shape)) for part in zip(*parts, strict=True))
    plain = law.inverse(grid)  # the correction is looked up, not to blur exact observations
    column = (value - grid[0]) / (grid[1] - grid[0])
    row = np.zeros(value.shape)
    if len(scales) > 1:
        logs = np.log2(np.maximum(scale, 1e-300))
        row = np.interp(logs, np.log2(scales), np.arange(len(scales)))
    shift, error = (
        np.stack(
            [
                scipy.ndimage.map_coordinates(
                    table[q % len(table)], (row[q], column[q]), order=1, mode="nearest"
                )
                for q in queries
            ]
        )
        for table in (means - plain, errors)
    )
    return np.clip(law.inverse(value) + shift, -1.0, 1.0), error


def _posterior(
    priors: Priors, law: ObservationLaw, value: Doubles, scale: Doubles
) -> tuple[Doubles, Doubles]:
    log_weight, own = law.log_likelihood(value, scale)
    log_weight = log_weight + np.log(priors.density)[:, None]
    weight = np.exp(log_weight - log_weight.max(axis=2, keepdims=True))
    weight /= weight.sum(axis=2, keepdims=True)
    mean = weight @ GRID
    plain = np.clip(law.inverse(value), -1.0, 1.0)
    spread = np.sqrt(np.maximum(weight @ GRID**2 - mean**2, 0.0))
    kept = np.sum(weight * own, axis=2)  # what widening the law added is taken off again
    return plain + (mean - plain) * kept, spread * np.sqrt(kept)


def in_ranking_order(cosine: Doubles, error: Doubles) -> tuple[Doubles, Doubles]:
    """Estimates that nowhere rise along the ranking, shape (nq, count).

    Neighbours whose order the codes do not bear out share their mean (isotonic regression by
    pooling adjacent violators), and their spread is added to the error.

    >>> in_ranking_order(np.array([[0.9, 0.5, 0.7]]), np.zeros((1, 3)))[0].round(3).tolist()
    [[0.9, 0.6, 0.6]]
    """
    cosine = cosine.copy()
    error = error.copy()
    for q in np.flatnonzero((np.diff(cosine, axis=1) > 0).any(axis=1)):
        pools: list[tuple[float, int]] = []  # sums and sizes
        for value in cosine[q].tolist():
            total = value
            size = 1
            while pools and total * pools[-1][1] >= pools[-1][0] * size:
                total = total + pools[-1][0]
                size = size + pools.pop()[1]
            pools.append((total, size))
        sizes = np.array([size for _, size in pools])
        pooled = np.repeat([total / size for total, size in pools], sizes)
        squares = error[q] ** 2 + (cosine[q] - pooled) ** 2
        starts = np.cumsum(sizes) - sizes
        error[q] = np.sqrt(np.repeat(np.add.reduceat(squares, starts) / sizes, sizes))
        cosine[q] = pooled
    return cosine, error
