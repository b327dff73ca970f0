"""DP-SignRP-RR as it was published: the Chernoff bound for N₊, and the flips that follow from it.

The library takes the exact binomial quantile in its place, which is never larger.
"""

from __future__ import annotations

import math

import dpindex as dpi
from dpindex.mechanism.noise.response import FlipsByLevel, randomized_response
from dpindex.mechanism.papers.signs import change_probability

__all__ = ["chernoff_count", "published_flips"]


def chernoff_count(k: int, probability: float, delta: float) -> int:
    """``min(k, ⌈kP₊ + (ℓ + √(ℓ² + 8kP₊ℓ))/2⌉)``, ``ℓ = log(1/δ)`` (Li & Li 2023, Prop. 4.5).

    >>> chernoff_count(512, 0.25, 1e-6)
    195
    """
    surprise = math.log(1.0 / delta)
    mean = k * probability
    bound = mean + (surprise + math.sqrt(surprise**2 + 8.0 * mean * surprise)) / 2.0
    return max(1, min(k, math.ceil(bound)))


def published_flips(spec: dpi.Spec) -> FlipsByLevel:
    """The law of Li & Li 2023, Alg. 6, for a spec of ``dp-signrp-rr`` with delta and min_norm."""
    if spec.variant.min_norm is None:
        raise ValueError("the published bound needs min_norm")
    chance = change_probability(spec.dim, spec.adjacency.size / spec.variant.min_norm)
    return randomized_response(spec.budget, chernoff_count(spec.code_length, chance, spec.delta))
