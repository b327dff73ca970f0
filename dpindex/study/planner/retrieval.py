"""Ranking in both models of a neighbourhood: the best candidates, ties, and shares found."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from dpindex.base.arrays import Doubles, Floats, Integers
from dpindex.mechanism.public_random import PublicStream
from dpindex.study.plan_options import FOUND, NEIGHBOURS
from dpindex.study.planner.plan_result import Found

__all__ = ["best_columns", "shares_found", "tie_breaks"]

# Cosines that differ by less are equal, up to rounding.
_TIE = 2e-6
_TINY = 1e-30


def tie_breaks(count: int) -> Doubles:
    """Return numbers in [0, 2e-6) that put equal scores in a public random order."""
    words = PublicStream(0, "plan ties").words(count, np.uint16)
    return np.asarray(_TIE * (words / 2.0**16))


def best_columns(scores: Floats, count: int) -> Integers:
    """Return where the highest scores stand along the last axis, best first, shape (…, count)."""
    best = np.argpartition(-scores, count - 1, axis=-1)[..., :count]
    order = np.argsort(-np.take_along_axis(scores, best, axis=-1), axis=-1)
    return np.take_along_axis(best, order, axis=-1)


def shares_found(
    weight: Doubles, true_weight: Callable[[int], Doubles], at: int, ladder: Sequence[int]
) -> Found:
    """Return the shares of true neighbours among the best; the last answer counts in part.

    Parameters
    ----------
    weight : float64 array, shape (q, c) or (1, c)
        Vectors of the collection that each candidate stands for, best first.
    true_weight : callable
        For a number of neighbours, how many of these vectors are among them, shape (q, c).
    at : int
        Answers, and true neighbours, that recall counts.
    ladder : sequence of int
        Numbers of candidates among which true neighbours are counted too.
    """
    before = np.cumsum(weight, axis=1) - weight

    def share(answers: int, neighbours: int) -> float:
        counted = np.clip(answers - before, 0.0, weight) / np.maximum(weight, _TINY)
        true = (counted * true_weight(neighbours)).sum(axis=1)
        possible = min(answers, neighbours)
        return float(np.minimum(true, possible).mean() / possible)

    within = {candidates: share(candidates, at) for candidates in ladder}
    return Found(share(FOUND, NEIGHBOURS), share(at, at), within)
