"""Priors: distributions of true cosines, learned from noisy observations of pairs.

The logarithm of a prior's density is a cubic spline on the grid of cosines, and its coefficients
are fitted by penalised maximum likelihood. See :mod:`dpindex.similarity` for the model.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from dpindex.base.arrays import AnyArray, Doubles
from dpindex.similarity.observation_law import CELLS, GRID, ObservationLaw

_SEGMENTS = 16
"""Segments of the splines on [−1, 1]."""

_DEFAULT_DEVIATION = 0.125
"""Deviation of the cosines of a collection whose codes do not tell it."""

_SCALE_GROUPS = 16
"""Groups into which observations of different scales are sorted."""

_SCALES_SAMPLED = 1 << 16
_MAX_STEPS = 60
_MIN_CHANCE = 1e-30


def _spline_basis() -> Doubles:
    """Return cubic B-splines on a uniform grid, shape (128, splines)."""
    centres = -1.0 + 2.0 / _SEGMENTS * np.arange(-1, _SEGMENTS + 2)
    distance = np.abs(GRID[:, None] - centres) * (_SEGMENTS / 2)
    inner = 2 / 3 - distance**2 + distance**3 / 2
    outer = np.maximum(2 - distance, 0) ** 3 / 6
    return np.where(distance < 1, inner, outer)


_BASIS = _spline_basis()
_SPLINES = _BASIS.shape[1]
_TO_SPLINES: Doubles = np.asarray(np.linalg.pinv(_BASIS), np.float64)


def _squared_differences(order: int) -> Doubles:
    """Return the matrix of the sum of squared differences of the coefficients."""
    difference = np.diff(np.eye(_SPLINES), order, axis=0)
    return np.asarray(difference.T @ difference)


def _penalty() -> Doubles:
    """Return the penalty on a departure from the coefficients that a fit starts from.

    Third differences, which a normal density does not have; and weakly any departure, in units of
    the default density's second differences.
    """
    default_curvature = 2.0 / _SEGMENTS / _DEFAULT_DEVIATION
    weak = _squared_differences(2) / default_curvature**4 + 1e-4 * np.eye(_SPLINES)
    return np.asarray(_squared_differences(3) + weak)


_PENALTY = _penalty()


class Priors:
    """Distributions of true cosines, one for each query, or one for all.

    Parameters
    ----------
    coefficients : float64 array, shape (n, splines)
        Of the log densities, cubic splines.
    elsewhere : float
        Chance of a vector that is unlike all others, [0, 1]: it may have any cosine.

    Attributes
    ----------
    density : float64 array, shape (n, 128)
        Chances of the cells of the grid of cosines.
    """

    def __init__(self, coefficients: Doubles, elsewhere: float) -> None:
        self.coefficients = coefficients
        self.elsewhere = elsewhere
        self.density = (1 - elsewhere) * _density(coefficients) + elsewhere / CELLS

    @classmethod
    def _default(cls, mean: float, rows: int) -> Priors:
        """Return a normal prior about a mean, for a collection of so many rows."""
        log_normal = -0.5 * ((GRID - mean) / _DEFAULT_DEVIATION) ** 2
        coefficients = np.asarray(np.linalg.lstsq(_BASIS, log_normal, rcond=None)[0], np.float64)
        return cls(coefficients[None], 1.0 / (rows + 1))

    @classmethod
    def of_counts(cls, counts: Doubles, law: ObservationLaw, rows: int) -> Priors:
        """Return the prior of a collection, from a histogram of the observations of its pairs.

        Parameters
        ----------
        counts : float64 array, shape (1, bins)
            Pairs in each bin of the law.
        law : ObservationLaw
            Of observations of scale 1.
        rows : int
            Codes in the collection.
        """
        total = counts.sum()
        if not total:
            return cls._default(0.0, rows)
        mean = counts[0] @ law.centres / total
        trust = min(1.0, law.trusted / total)
        return cls._default(law.cosine(mean), rows)._fitted(trust * counts, law.chances(1.0))

    @classmethod
    def of_pairs(cls, value: AnyArray, scale: Doubles, law: ObservationLaw, rows: int) -> Priors:
        """Return the prior of a collection, from observations of its pairs and their scales.

        Parameters
        ----------
        value, scale : arrays, shape (pairs,)
            Without pairs the prior is the default.
        law : ObservationLaw
        rows : int
            Codes in the collection.
        """
        if not len(value):
            return cls._default(0.0, rows)
        sampled = scale[:: max(1, len(scale) // _SCALES_SAMPLED)]
        levels = np.quantile(sampled, np.arange(1, _SCALE_GROUPS) / _SCALE_GROUPS)
        group = np.searchsorted(np.unique(levels), scale)
        size = np.bincount(group)
        mean_scale = np.bincount(group, scale) / np.maximum(size, 1)
        counts = []
        chances = []
        for number, share in enumerate(size / len(group)):
            counts.append(law.count(value[None, group == number]))
            chances.append(share * law.chances(mean_scale[number]))
        trust = min(1.0, law.trusted / len(value))
        start = cls._default(law.cosine(value.mean(dtype=float)), rows)
        return start._fitted(
            trust * np.concatenate(counts, axis=1), np.concatenate(chances, axis=1) + _MIN_CHANCE
        )

    def of_queries(self, value: Doubles, law: ObservationLaw) -> Priors:
        """Return the prior of each query, near these, from its observations of the sample.

        ``value`` holds observations of scale 1, shape (nq, items).
        """
        return self._fitted(law.count(value), law.chances(1.0))

    def of_moments(self, seen: Doubles, law: ObservationLaw, rows: int) -> Priors:
        """Return the prior of each query that explains its moments and is nearest to this one.

        Nearest in relative entropy: this density times the exponential of a combination of what the
        two moments are given each cosine (exponential tilting), each query's alone.

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
        off_centre = law.expected - centre
        given = np.stack([off_centre, off_centre**2 + law.variance(np.ones(()))], axis=1)
        mean = seen[:, 0] - centre
        square = seen[:, 1] - centre * (2 * seen[:, 0] - centre)
        usual_square = start[0] @ given[:, 1]
        error = np.diag([usual_square, 2 * usual_square**2]) / rows
        tilt = _tilts(start, given, np.stack([mean, square], axis=1), error)
        return Priors(self.coefficients + tilt @ (_TO_SPLINES @ given).T, self.elsewhere)

    def _fitted(self, counts: Doubles, chances: Doubles) -> Priors:
        start = np.broadcast_to(self.coefficients, (len(counts), _SPLINES))
        return Priors(_penalised_fit(start, counts, chances), self.elsewhere)


def _density(coefficients: Doubles) -> Doubles:
    log_density = coefficients @ _BASIS.T
    density = np.exp(log_density - log_density.max(axis=1, keepdims=True))
    return np.asarray(density / density.sum(axis=1, keepdims=True))


def _tilts(start: Doubles, given: Doubles, moments: Doubles, error: Doubles) -> Doubles:
    """Return for each row the tilt of a density that explains its moments.

    Newton's method with step halving on the dual of the relative entropy, each row by itself.

    Parameters
    ----------
    start : float64 array, shape (1, 128)
        The density that is tilted.
    given : float64 array, shape (128, 2)
        The moments given each cosine.
    moments : float64 array, shape (n, 2)
        The moments to explain.
    error : float64 array, shape (2, 2)
        Covariance of their errors.
    """

    def dual(tilt: Doubles, targets: Doubles) -> tuple[Doubles, Doubles]:
        """Return the objective, shape (n,), and the tilted densities."""
        exponent = tilt @ given.T
        largest = exponent.max(axis=1)
        density = start * np.exp(exponent - largest[:, None])
        total = density.sum(axis=1)
        gained = np.sum(tilt * (targets - tilt @ error / 2), axis=1)
        return gained - largest - np.log(total), density / total[:, None]

    tilt = np.zeros_like(moments)
    step_size = np.ones((len(moments), 1))
    active = np.arange(len(moments))
    reached, density = dual(tilt, moments)
    for _ in range(_MAX_STEPS):
        mean = density[active] @ given
        apart = given - mean[:, None]
        curvature = (apart * density[active, :, None]).swapaxes(1, 2) @ apart + error
        slope = moments[active] - mean - tilt[active] @ error
        step = np.linalg.solve(curvature, slope[..., None])[..., 0]
        tried = tilt[active] + step_size[active] * step
        value, tried_density = dual(tried, moments[active])
        gain = value - reached[active]
        better = gain >= 0
        improved = active[better]
        tilt[improved] = tried[better]
        reached[improved] = value[better]
        density[improved] = tried_density[better]
        step_size[active] = np.where(better[:, None], 1.0, step_size[active] / 4)
        unfinished = np.where(better, gain >= 1e-5, step_size[active, 0] > 1e-6)
        active = active[unfinished]
        if not len(active):
            break
    return tilt


def _penalised_fit(start: Doubles, counts: Doubles, chances: Doubles) -> Doubles:
    """Return the coefficients of largest penalised likelihood, each row by itself.

    Scoring with Levenberg's damping: a step that does not raise the objective is tried again with
    more damping.

    Parameters
    ----------
    start : float64 array, shape (n, splines)
        Coefficients from which a departure is penalised.
    counts : float64 array, shape (n, bins)
        Observations in each bin.
    chances : float64 array, shape (128, bins)
        Chance of each bin given each cosine.
    """
    fitted = start.copy()
    total = counts.sum(axis=1)
    damping = np.full(len(start), 1e-3)
    active = np.arange(len(start))
    objective = _objective(start, counts, chances)
    reached = objective(fitted, active)
    for _ in range(_MAX_STEPS):
        current = fitted[active]
        size = total[active, None]
        density = _density(current)
        expected = density @ chances
        slope = (density * ((counts[active] / expected) @ chances.T - size)) @ _BASIS
        slope -= (current - start[active]) @ _PENALTY
        jacobian = np.matmul(chances.T * density[:, None, :], _BASIS)
        jacobian -= expected[..., None] * (density @ _BASIS)[:, None, :]
        weighted = jacobian * (size / expected)[..., None]
        curvature = np.matmul(weighted.transpose(0, 2, 1), jacobian)
        curvature += _PENALTY
        diagonal = np.einsum("nss->ns", curvature)
        diagonal += damping[active, None] * diagonal
        tried = current + np.linalg.solve(curvature, slope[..., None])[..., 0]
        gain = objective(tried, active) - reached[active]
        better = gain >= 0
        improved = active[better]
        fitted[improved] = tried[better]
        reached[improved] += gain[better]
        damping[active] = np.where(better, damping[active] / 5, damping[active] * 20)
        active = active[(gain >= 1e-4) | (~better & (damping[active] <= 1e12))]
        if not len(active):
            break
    return fitted


def _objective(
    start: Doubles, counts: Doubles, chances: Doubles
) -> Callable[[Doubles, npt.NDArray[np.intp]], Doubles]:
    """Return the penalised log-likelihood as a function of coefficients of some of the rows."""

    def objective(coefficients: Doubles, rows: npt.NDArray[np.intp]) -> Doubles:
        departure = coefficients - start[rows]
        log_expected = np.log(_density(coefficients) @ chances)
        likelihood = np.einsum("nb,nb->n", counts[rows], log_expected)
        penalty = np.einsum("ns,ns->n", departure @ _PENALTY, departure)
        return np.asarray(likelihood - penalty / 2)

    return objective
