"""Secret orthogonal maps found from codes: with known pairs, and from two samples alone."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.linalg import orthogonal_procrustes
from scipy.optimize import linear_sum_assignment

Array = npt.NDArray[Any]

_QUANTILES = (np.arange(32) + 0.5) / 32
_ROUNDS = 40
_ATTEMPTS = 5


def rotation_from_pairs(readings: Array, vectors: Array) -> Array:
    """Return the orthogonal matrix that brings readings nearest to their vectors."""
    return np.asarray(orthogonal_procrustes(readings, vectors)[0])


def order_from_pairs(readings: Array, vectors: Array) -> Array:
    """Return the permutation matrix that brings readings nearest to their vectors."""
    correlation = _standard(vectors).T @ _standard(readings)
    return _permutation(linear_sum_assignment(-correlation)[1])


def order_from_samples(readings: Array, imitate: Callable[[], Array]) -> Array:
    """Return the permutation matrix that brings the law of the readings nearest to a sample's.

    ``imitate`` draws vectors with noise like that of the readings. Of five attempts the one counts
    that leaves the covariances nearest to each other.
    """
    observed = np.cov(readings.T)
    attempts = [_order_by_moments(imitate(), readings, observed) for _ in range(_ATTEMPTS)]
    return _permutation(min(attempts, key=itemgetter(1))[0])


def _order_by_moments(sample: Array, readings: Array, observed: Array) -> tuple[Array, float]:
    """Return an order and the squared difference of covariances that it leaves.

    Coordinates are matched by their quantiles at first, and then by their covariances with those
    matched best, of which there are more in every round.
    """
    covariance = np.cov(sample.T)
    cost = _distances(
        np.quantile(sample, _QUANTILES, axis=0).T, np.quantile(readings, _QUANTILES, axis=0).T
    )
    rows = np.arange(len(cost))
    order = linear_sum_assignment(cost)[1]
    for share in np.linspace(0.1, 1.0, _ROUNDS):
        matched = cost[rows, order]
        cost[rows, order] = np.inf
        margin = cost.min(axis=1) / (matched + 1e-12)
        seeds = np.argsort(-margin)[: max(10, int(share * len(rows)))]
        cost = _distances(covariance[:, seeds], observed[:, order[seeds]])
        order = linear_sum_assignment(cost)[1]
    difference = covariance - observed[np.ix_(order, order)]
    return order, float(np.square(difference).sum())


def _permutation(order: Array) -> Array:
    return np.eye(len(order), dtype=np.float32)[:, order]


def _distances(left: Array, right: Array) -> Array:
    squares = np.square(left).sum(axis=1)[:, None] + np.square(right).sum(axis=1)
    return np.asarray(squares - 2.0 * left @ right.T)


def _standard(table: Array) -> Array:
    spread = table.std(axis=0)
    return np.asarray((table - table.mean(axis=0)) / np.where(spread > 0, spread, 1.0))
