"""Candidate ranking: which of many vectors is behind a code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy

from dpindex.base.arrays import Floats, Integers, row_blocks, unit

__all__ = ["Ranking", "rank_by_scores", "rank_candidates"]

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
    targets = unit(estimates)
    return rank_by_scores(lambda codes: targets[codes] @ directions.T, own, len(candidates))


def rank_by_scores(scores: Callable[[slice], Floats], own: Integers, candidates: int) -> Ranking:
    """Rank candidates by scores of theirs.

    Parameters
    ----------
    scores : callable
        From a slice of the codes to their scores, shape (codes of the slice, candidates).
    own : int64 array, shape (codes,)
        Rows of the true vectors among the candidates.
    candidates : int
    """
    better = np.empty(len(own), dtype=np.int64)
    for codes in row_blocks(len(own), _BLOCK):
        score = scores(codes)
        rows = own[codes]
        true = score[np.arange(len(rows)), rows][:, None]
        above = (score > true).sum(axis=1)
        ties = (score == true).sum(axis=1) - 1
        better[codes] = above + ties // 2
    return Ranking(better, candidates)
