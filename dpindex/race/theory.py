"""What a sketch's answers are worth: Theorem 4 and Corollary 1 of Coleman & Shrivastava (2020)."""

from __future__ import annotations

import math

from dpindex.arrays import Floats
from dpindex.errors import InputError
from dpindex.privacy.adjacency import Neighbouring, Records
from dpindex.race.checks import number
from dpindex.race.noise import CHANGES

__all__ = ["error_bound", "mean_groups", "optimal_rows"]


def optimal_rows(
    expected_count: float, epsilon: float, neighbouring: Neighbouring = "add-remove"
) -> int:
    """Rows that make the error bound least under pure epsilon: Corollary 1.

    ``R = ⌈f̃ ε/√2⌉`` with ``f̃ = Σ_x √k(x, q)`` at a typical query, which must be *publicly* known:
    choosing it from the data would spend budget that nobody counted. Under replace a record costs
    twice, so ε/2 takes the place of ε. With delta > 0 there is no such optimum: the noise of the
    mean does not grow with R, and every further row helps.

    >>> optimal_rows(1000, 1.0)
    708
    """
    count = number(expected_count, "expected_count", above=0.0)
    changes = CHANGES[Records(neighbouring).neighbouring]
    return max(1, math.ceil(count * number(epsilon, "epsilon", above=0.0) / changes / math.sqrt(2)))


def mean_groups(rows: int, failure: float) -> int:
    """Groups of the median of means, ``⌈8 log(1/δ')⌉`` for a failure probability δ' (Lemma 2)."""
    if number(failure, "failure", above=0.0) >= 1:
        raise InputError(f"failure must lie in (0, 1), not {failure!r}.")
    groups = math.ceil(8 * math.log(1 / failure))
    if groups > rows:
        raise InputError(
            f"a median of means that fails with probability {failure:g} needs {groups} rows; "
            f"this sketch has {rows}: use the mean, or allow failure more often."
        )
    return groups


def error_bound(
    root_kernel_sum: Floats, rows: int, noise_variance: float, failure: float
) -> Floats:
    """Bound on the error of the median of means that holds with probability 1 − ``failure``.

    Theorem 4: one row has variance at most ``σ² = f̃² + noise``. The mean of the smallest group, of
    ``m = ⌊R/groups⌋`` rows, misses by more than ``2σ/√m`` with probability at most ¼ (Chebyshev),
    and the median of the groups with at most ``failure`` (Hoeffding). Where the groups divide R
    this is the paper's ``√(f̃²/R + 2R/ε²) √(32 log 1/δ')``.
    """
    smallest = rows // mean_groups(rows, failure)
    bound: Floats = 2.0 * (root_kernel_sum**2 + noise_variance) ** 0.5 / math.sqrt(smallest)
    return bound
