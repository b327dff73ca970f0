"""Bounds from counts that are exact for every number of trials, and for normal noise."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import optimize, special


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The least epsilon at which normal noise of deviation ``shift/mu`` is (ε, δ), [0, ∞).

    Balle & Wang 2018, Thm 8: ``δ(ε) = Φ(μ/2 − ε/μ) − e^ε·Φ(−μ/2 − ε/μ)``, decreasing in ε.

    >>> round(gaussian_epsilon(1 / 4.22467889, 1e-6), 6)
    1.0
    """

    def excess(epsilon: float) -> float:
        first, second = (special.log_ndtr(s * mu / 2 - epsilon / mu) for s in (1, -1))
        return math.exp(first) - math.exp(epsilon + second) - delta

    # At this epsilon the first term alone is delta.
    upper = mu**2 / 2 - mu * float(special.ndtri(delta))
    if excess(0.0) > 0:
        return float(optimize.brentq(excess, 0.0, upper))
    return 0.0


def binomial_bounds(hits: Any, trials: Any, alpha: float) -> tuple[Any, Any]:
    """Lower and upper bound of a probability, each wrong with probability at most ``alpha``.

    Clopper & Pearson 1934: exact for every number of trials, never approximate. Numbers or arrays.

    >>> low, high = binomial_bounds(0, 1000, 0.001)
    >>> float(low), round(float(high), 5)
    (0.0, 0.00688)
    """
    hits = np.asarray(hits, dtype=np.float64)
    trials = np.asarray(trials, dtype=np.float64)
    missed = trials - hits
    # Not a number where there are no hits, or nothing else.
    low = np.nan_to_num(special.betaincinv(hits, missed + 1, alpha), nan=0.0)
    return low, np.nan_to_num(special.betainccinv(hits + 1, missed, alpha), nan=1.0)


def epsilon_lower_bound(hits: Any, trials: Any, delta: float, alpha: float) -> Any:
    """The least epsilon that counts of one event allow, in [0, ∞), wrong at most ``alpha``.

    ``hits[i]`` of ``trials[i]`` releases of neighbour i fell into the event. Under (ε, δ)
    ``P₀ ≤ e^ε·P₁ + δ``, so ``ε ≥ log((P₀ − δ) / P₁)``; alpha is halved between the two bounds.

    >>> round(float(epsilon_lower_bound((7500, 2500), (10000, 10000), 0.0, 0.001)), 2)
    1.02
    """
    low, _ = binomial_bounds(hits[0], trials[0], alpha / 2)
    _, high = binomial_bounds(hits[1], trials[1], alpha / 2)
    return np.log(np.maximum((low - delta) / high, 1.0))
