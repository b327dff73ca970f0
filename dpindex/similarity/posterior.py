"""Posterior means and deviations of cosines, which selection does not bias.

See :mod:`dpindex.similarity` for the model.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import scipy

from dpindex.base.arrays import Doubles
from dpindex.similarity.observation_law import GRID, AgreementLaw, ObservationLaw
from dpindex.similarity.prior import Priors

_TABLE_VALUES = 512
"""Observations for which posteriors are tabulated where there are more."""

_LEAST_LOG = -600.0
_TABLE_SCALES = 2.0 ** np.linspace(-4.0, 4.0, 33)
_REACH = 8.0
"""Deviations beyond the extreme expected observations up to which posteriors are tabulated."""


def posterior(
    priors: Priors, law: ObservationLaw, value: Doubles, scale: Doubles
) -> tuple[Doubles, Doubles]:
    """Return posterior means and deviations of cosines given observations and their scales.

    Many observations are looked up in a table.

    Parameters
    ----------
    priors : Priors
        One for each query, or one for all.
    law : ObservationLaw
    value, scale : float64 arrays, shape (nq, count)
    """
    if isinstance(law, AgreementLaw):
        means, errors = _of_agreements(priors, law)
        place = ((value + law.bits) / 2).astype(np.intp)
        return means[place], errors[place]
    if value.shape[1] <= _TABLE_VALUES:
        return _computed(priors, law, value, scale)
    return _looked_up(priors, law, value, scale)


@lru_cache(maxsize=128)
def _of_agreements(priors: Priors, law: AgreementLaw) -> tuple[Doubles, Doubles]:
    """Return posterior means and deviations given each possible agreement, under one prior."""
    values = law.values[None]
    mean, error = _computed(priors, law, values, np.ones_like(values))
    return mean[0], error[0]


def _computed(
    priors: Priors, law: ObservationLaw, value: Doubles, scale: Doubles
) -> tuple[Doubles, Doubles]:
    """Return what :func:`posterior` does, by sums over the grid of cosines."""
    log_weight, own_share = law.log_likelihood(value, scale)
    log_weight = log_weight + np.log(priors.density)[:, None]
    weight = np.exp(log_weight - log_weight.max(axis=2, keepdims=True))
    weight /= weight.sum(axis=2, keepdims=True)
    mean = weight @ GRID
    plain = np.clip(law.inverse(value), -1.0, 1.0)
    spread = np.sqrt(np.maximum(weight @ GRID**2 - mean**2, 0.0))
    # What widening the law to the grid added is taken off again.
    kept = np.sum(weight * own_share, axis=2)
    return plain + (mean - plain) * kept, spread * np.sqrt(kept)


def _looked_up(
    priors: Priors, law: ObservationLaw, value: Doubles, scale: Doubles
) -> tuple[Doubles, Doubles]:
    """Return what :func:`posterior` does, by linear interpolation in a table for each prior."""
    scales = np.ones(1)
    if law.own.any() and np.ptp(scale):
        scales = _TABLE_SCALES
    reach = _REACH * np.sqrt(law.variance(np.ones(())).max())
    values = np.linspace(law.expected[0] - reach, law.expected[-1] + reach, _TABLE_VALUES)
    shape = (len(scales), _TABLE_VALUES)
    all_values = np.broadcast_to(values, shape).ravel()
    all_scales = np.broadcast_to(scales[:, None], shape).ravel()
    means, errors = _under_each(priors, law, all_values, all_scales)
    column = (value - values[0]) / (values[1] - values[0])
    row = np.zeros(value.shape)
    if len(scales) > 1:
        log_scale = np.log2(np.maximum(scale, 1e-300))
        row = np.interp(log_scale, np.log2(scales), np.arange(len(scales)))
    # The correction of the plain estimate is tabulated, not to blur exact observations.
    plain = law.inverse(values)
    shift = np.empty(value.shape)
    error = np.empty(value.shape)
    for query in range(len(value)):
        prior = query % len(means)
        places = (row[query], column[query])
        shift[query] = _interpolated(means[prior].reshape(shape) - plain, places)
        error[query] = _interpolated(errors[prior].reshape(shape), places)
    return np.clip(law.inverse(value) + shift, -1.0, 1.0), error


def _under_each(
    priors: Priors, law: ObservationLaw, value: Doubles, scale: Doubles
) -> tuple[Doubles, Doubles]:
    """Return what :func:`posterior` does of the same observations under each prior.

    Likelihoods do not depend on the prior: they are computed once, and sums over the grid are
    products of matrices.

    Parameters
    ----------
    priors : Priors
    law : ObservationLaw
    value, scale : float64 arrays, shape (count,)
    """
    log_likelihood, own_share = law.log_likelihood(value, scale)
    log_likelihood -= log_likelihood.max(axis=1, keepdims=True)
    likelihood = np.exp(np.maximum(log_likelihood, _LEAST_LOG))  # no sum below is 0
    density = priors.density
    total = density @ likelihood.T
    mean = (density * GRID) @ likelihood.T / total
    square = (density * GRID**2) @ likelihood.T / total
    likelihood *= own_share
    kept = density @ likelihood.T / total
    plain = np.clip(law.inverse(value), -1.0, 1.0)
    spread = np.sqrt(np.maximum(square - mean**2, 0.0))
    return plain + (mean - plain) * kept, spread * np.sqrt(kept)


def _interpolated(table: Doubles, places: tuple[Doubles, Doubles]) -> Doubles:
    """Return a table's values at fractional rows and columns."""
    return np.asarray(scipy.ndimage.map_coordinates(table, places, order=1, mode="nearest"))


def in_ranking_order(cosine: Doubles, error: Doubles) -> tuple[Doubles, Doubles]:
    """Return estimates that nowhere rise along the ranking, shape (nq, count), and their errors.

    Neighbours whose order the codes do not bear out share their mean (isotonic regression by
    pooling adjacent violators), and their spread is added to the error.

    >>> in_ranking_order(np.array([[0.9, 0.5, 0.7]]), np.zeros((1, 3)))[0].round(3).tolist()
    [[0.9, 0.6, 0.6]]
    """
    cosine = cosine.copy()
    error = error.copy()
    rising = (np.diff(cosine, axis=1) > 0).any(axis=1)
    for query in np.flatnonzero(rising):
        pools: list[tuple[float, int]] = []  # sums and sizes
        for value in cosine[query].tolist():
            total = value
            size = 1
            while pools and total * pools[-1][1] >= pools[-1][0] * size:
                other_total, other_size = pools.pop()
                total += other_total
                size += other_size
            pools.append((total, size))
        sizes = np.array([size for _, size in pools])
        pooled = np.repeat([total / size for total, size in pools], sizes)
        squares = error[query] ** 2 + (cosine[query] - pooled) ** 2
        starts = np.cumsum(sizes) - sizes
        mean_squares = np.add.reduceat(squares, starts) / sizes
        error[query] = np.sqrt(np.repeat(mean_squares, sizes))
        cosine[query] = pooled
    return cosine, error
