"""Candidate ranking by the exact law of a code, which no other ranking beats.

Candidates that are equally likely beforehand are as likely afterwards as the code is for them, by
Bayes' rule. The noise of the coordinates of a code is taken as independent.
"""

from __future__ import annotations

import numpy as np

from dpindex.base.arrays import Floats, Integers, unit
from dpindex.index.kinds import kind_of
from dpindex.mechanism.codes import Codes
from dpindex.mechanism.noise import Likelihood, NumberLaw, SymbolLaw
from dpindex.mechanism.privatizer import Privatizer
from dpindex.mechanism.spec import Spec
from dpindex.study.attacks.ranking import Ranking, rank_by_scores

__all__ = ["rank_by_law"]

_ABOVE_ALL_COSINES = 3.0
_LEAST_LIKELIHOOD = 1e-12  # over the largest: more noise than a law ever adds
# Of a code of numbers, candidates of the highest cosines to it; the others come after them.
_SHORT_LIST = 1000


def rank_by_law(spec: Spec, codes: Codes, candidates: Floats, own: Integers) -> Ranking:
    """Rank candidates by the likelihood of codes under their public law.

    Parameters
    ----------
    spec : Spec
        Of the codes.
    codes : Codes
    candidates : array, shape (n, dim)
    own : int64 array, shape (codes,)
        Rows of the true vectors among the candidates.
    """
    privatizer = Privatizer(spec, allow_unprotected=True)
    if isinstance(spec.law, NumberLaw):
        projected = privatizer.project(candidates) * spec.step
        readings = codes.to_float().astype(np.float64)
        likelihood = spec.number_law.likelihood.in_units(spec.step)
        return _rank_numbers(likelihood, readings, projected, own)
    chances = kind_of(privatizer.spec).likelihoods(privatizer, candidates)
    directions = unit(candidates)

    def scores(rows: slice) -> Floats:
        chosen = codes.take(rows)
        logs = chances.logs(chosen)[:-1].T
        if isinstance(spec.law, SymbolLaw):  # has two levels: cosines order the ties
            cosine = unit(chosen.to_float()) @ directions.T
            return np.asarray(cosine + _ABOVE_ALL_COSINES * (logs > logs.min()))
        return logs

    return rank_by_scores(scores, own, len(candidates))


def _rank_numbers(
    likelihood: Likelihood, readings: Floats, projected: Floats, own: Integers
) -> Ranking:
    """Rank the candidates of the highest cosines by likelihood, and the others by cosine."""
    mean = projected.mean(axis=0)
    directions = unit(projected - mean)
    targets = unit(readings - mean)
    levels = likelihood.base + np.concatenate([[0.0], np.cumsum(likelihood.jumps)])
    logs = np.log(np.maximum(levels, _LEAST_LIKELIHOOD * levels.max()))

    def scores(codes: slice) -> Floats:
        cosine = (targets[codes] @ directions.T).astype(np.float64)
        for row, reading in zip(cosine, readings[codes], strict=True):
            likely = np.argsort(-row)[:_SHORT_LIST]
            distance = likelihood.slope * reading + likelihood.shift - projected[likely]
            fits = logs[np.searchsorted(likelihood.edges, distance)].sum(axis=1)
            row[likely] = _ABOVE_ALL_COSINES + fits - fits.min()
        return cosine

    return rank_by_scores(scores, own, len(projected))
