"""Membership: is this vector in the index, from the code that fits it best."""

from __future__ import annotations

import numpy as np

from dpindex.base.arrays import Doubles, Floats, unit
from dpindex.mechanism.codes import Codes
from dpindex.study.attacks.code_chances import CodeChances
from dpindex.study.attacks.linkage import log_odds

__all__ = ["best_odds", "best_scores", "true_positive_rate"]

_BLOCK = 500
_CODES = 2048


def best_scores(queries: Floats, codes: Floats) -> Doubles:
    """Return the highest cosine of each query to any code, shape (m,)."""
    directions = unit(codes)
    blocks = np.array_split(unit(queries), -(-len(queries) // _BLOCK))
    return np.concatenate([(block @ directions.T).max(axis=1) for block in blocks])


def best_odds(chances: CodeChances, codes: Codes) -> Doubles:
    """Return the highest log-odds of each vector against the others for any code, shape (m,)."""
    best = []
    for start in range(0, len(codes), _CODES):
        logs = chances.logs(codes.take(slice(start, start + _CODES)))
        best.append(log_odds(logs, len(logs) - 1).max(axis=1))
    return np.asarray(np.max(best, axis=0))


def true_positive_rate(members: Doubles, others: Doubles, false_positives: float) -> float:
    """Return the share of members above the threshold that so many of the others are above.

    Parameters
    ----------
    members, others : float64 arrays
        Scores of vectors that are in the index, and of vectors of the kind that are not.
    false_positives : float
        Share of the others that may be above, (0, 1).

    >>> true_positive_rate(np.array([0.5, 0.9]), np.linspace(0, 0.8, 100), 0.01)
    0.5
    """
    allowed = int(false_positives * len(others))
    threshold = np.sort(others)[len(others) - 1 - allowed]
    return float((members > threshold).mean())
