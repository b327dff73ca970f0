"""Functions of both models of a neighbourhood: noise of codes, ties, rankings, shares found."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dpindex.base.arrays import Doubles, Floats, Integers
from dpindex.mechanism.spec import Spec
from dpindex.randomness import PublicStream
from dpindex.study.plan_options import FOUND, NEIGHBOURS
from dpindex.study.planner.plan_result import Found

__all__ = ["best_columns", "noise_share", "shares_found", "signal_to_noise", "tie_breaks"]

# Cosines that differ by less are equal, up to rounding.
_TIE = 2e-6
_TINY = 1e-30


def noise_share(spec: Spec, noisy: Floats, exact: Floats) -> float:
    """Return how much of decoded codes is noise, given their exact projections, both (n, k).

    The deviation of the noise over that of a coordinate, [0, ∞); for signs the share that is
    flipped, [0, 1].
    """
    if spec.mechanism.codes == "signs":
        return float(np.mean((noisy > 0) != (exact > 0)))
    deviation = float(exact.std(axis=0).mean())
    return float((noisy - exact).std() / max(deviation, _TINY))


def signal_to_noise(spec: Spec, noise: float) -> float:
    """Return the signal-to-noise ratio of a code, [0, ∞), summed over its coordinates.

    ``noise`` is the :func:`noise_share`. For signs the ratio is that of a vote of all.
    """
    if spec.mechanism.codes == "signs":
        return spec.code_length * (1 - 2 * noise) ** 2
    return spec.code_length / max(noise, 1e-9) ** 2


def tie_breaks(count: int) -> Doubles:
    """Return numbers in [0, 2e-6) that put equal scores in a public random order."""
    words = PublicStream(0, "plan ties").words(count, np.uint16)
    return np.asarray(_TIE * (words / 2.0**16))


def best_columns(scores: Floats, count: int) -> Integers:
    """Return where the highest scores stand along the last axis, best first, shape (…, count)."""
    best = np.argpartition(-scores, count - 1, axis=-1)[..., :count]
    order = np.argsort(-np.take_along_axis(scores, best, axis=-1), axis=-1)
    return np.take_along_axis(best, order, axis=-1)


def shares_found(weight: Doubles, true_weight: Callable[[int], Doubles], at: int) -> Found:
    """Return the shares of true neighbours among the best; the last answer counts in part.

    Parameters
    ----------
    weight : float64 array, shape (q, c) or (1, c)
        Vectors of the collection that each candidate stands for, best first.
    true_weight : callable
        For a number of neighbours, how many of these vectors are among them, shape (q, c).
    at : int
        Answers, and true neighbours, that recall counts.
    """
    before = np.cumsum(weight, axis=1) - weight

    def share(answers: int, neighbours: int) -> float:
        counted = np.clip(answers - before, 0.0, weight) / np.maximum(weight, _TINY)
        true = (counted * true_weight(neighbours)).sum(axis=1)
        return float(np.minimum(true, answers).mean() / answers)

    return Found(share(FOUND, NEIGHBOURS), share(at, at))
