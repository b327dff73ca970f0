"""Candidate ranking: which of many vectors is behind a code."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.stats

from dpindex.base.arrays import Floats, Integers, unit

__all__ = ["Ranking", "rank_candidates"]

_BLOCK = 500


@dataclass(frozen=True, eq=False)
class Ranking:
    """Places of true vectors in rankings of the same candidates.

    Attributes
    ----------
    better : int64 array, shape (codes,)
        Candidates with a higher score than the true vector; of ties the half.
    candidates : int
        Their number, the true vector included.

    >>> Ranking(np.array([0, 0, 3, 99]), 100).found(100)
    0.5
    """

    better: Integers
    candidates: int

    def found(self, among: int, places: int = 1) -> float:
        """Return the share of codes whose true vector is in the first ``places``.

        The candidates are then the true vector and ``among − 1`` of the others, drawn at random:
        the expected value over all draws.
        """
        chances = scipy.stats.hypergeom.cdf(places - 1, self.candidates - 1, self.better, among - 1)
        return float(chances.mean())


def rank_candidates(estimates: Floats, candidates: Floats, own: Integers) -> Ranking:
    """Rank candidates by their cosines to estimates of the vectors behind codes.

    Parameters
    ----------
    estimates : array, shape (codes, p)
        Less what is expected without a code.
    candidates : array, shape (n, p)
        Less the same.
    own : int64 array, shape (codes,)
        Rows of the true vectors among the candidates.
    """
    directions = unit(candidates)
    better = np.empty(len(estimates), dtype=np.int64)
    for start in range(0, len(estimates), _BLOCK):
        scores = unit(estimates[start : start + _BLOCK]) @ directions.T
        rows = own[start : start + _BLOCK]
        true = scores[np.arange(len(rows)), rows][:, None]
        above = (scores > true).sum(axis=1)
        ties = (scores == true).sum(axis=1) - 1
        better[start : start + _BLOCK] = above + ties // 2
    return Ranking(better, len(candidates))
