"""Codes matched with vectors that an attacker knows: rankings, odds, and a map that is learned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy

from dpindex.base.arrays import Doubles, Floats, Integers, row_blocks, unit
from dpindex.decode import decoder_of
from dpindex.decode.base import CodeLikelihoods
from dpindex.mechanism.codes import Codes
from dpindex.mechanism.noise.moments import Likelihood
from dpindex.mechanism.privatizer import Privatizer
from dpindex.mechanism.spec import Spec
from dpindex.study.trial import log_odds

# Codes that are ranked, and that are compared, at a time.
_RANKED_CODES = 500
_CODES = 2048


@dataclass(frozen=True, eq=False)
class TruePlaces:
    """Places of true vectors in rankings of the same candidates.

    Attributes
    ----------
    better : int64 array, shape (codes,)
        Candidates with a higher score than the true vector; of ties the half.
    candidates : int
        Their number, the true vector included.

    >>> TruePlaces(np.array([0, 0, 3, 99]), 100).found(100)
    0.5
    """

    better: Integers
    candidates: int

    def found(self, among: int, places: int = 1) -> float:
        """Return the share of codes whose true vector is in the first ``places``.

        The candidates are then the true vector and ``among − 1`` of the others, sampled at random:
        the expected value over all samples.
        """
        better, counts = np.unique(self.better, return_counts=True)
        others = self.candidates - 1
        chances = scipy.stats.hypergeom.cdf(places - 1, others, better, among - 1)
        return float(np.average(chances, weights=counts))


def rank_by_scores(
    scores: Callable[[slice], Floats],
    own: Integers,
    candidates: int,
) -> TruePlaces:
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
    for codes in row_blocks(len(own), _RANKED_CODES):
        score = scores(codes)
        true = np.take_along_axis(score, own[codes, None], axis=1)
        above = (score > true).sum(axis=1)
        ties = (score == true).sum(axis=1) - 1  # without the true vector itself
        better[codes] = above + ties // 2
    return TruePlaces(better, candidates)


# Added to the scores of candidates that come before all that are ranked by cosine.
_ABOVE_ALL_COSINES = 3.0
_LEAST_LIKELIHOOD = 1e-12  # over the largest: more noise than a law ever adds
# Of a code of numbers, candidates of the highest cosines to it; the others come after them.
_SHORT_LIST = 1000
# Cells of the table of log-likelihoods.
_CELLS = 1 << 18


def rank_by_law(
    spec: Spec,
    codes: Codes,
    candidates: Floats,
    own: Integers,
) -> TruePlaces:
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
    if spec.law.adds_noise:
        projected = privatizer.project(candidates) * spec.step
        readings = codes.to_float().astype(np.float64)
        return _rank_numbers(spec.likelihood, readings, projected, own)
    likelihoods = decoder_of(spec).likelihoods(privatizer, candidates)
    directions = unit(candidates)

    def scores(rows: slice) -> Floats:
        chosen = codes.take(rows)
        logs = likelihoods.logs(chosen)[:-1].T
        if not spec.law.of_nearest:
            return logs
        # It has two levels: cosines order the ties.
        cosine = unit(chosen.to_float()) @ directions.T
        is_likely = logs > logs.min()
        return np.asarray(cosine + _ABOVE_ALL_COSINES * is_likely)

    return rank_by_scores(scores, own, len(candidates))


def _rank_numbers(
    likelihood: Likelihood,
    readings: Doubles,
    projected: Floats,
    own: Integers,
) -> TruePlaces:
    """Rank the candidates of the highest cosines by likelihood, and the others by cosine."""
    mean = projected.mean(axis=0)
    directions = unit(projected - mean)
    targets = unit(readings - mean)
    levels = likelihood.levels
    least = _LEAST_LIKELIHOOD * levels.max()
    logs = np.log(np.maximum(levels, least))
    # A table of equal cells is read five times as fast as the edges are searched.
    edges = likelihood.edges
    lowest = edges[0]
    width = (edges[-1] - lowest) / (_CELLS - 2)
    middles = lowest + width * (np.arange(_CELLS) - 0.5)  # the first is below all edges
    cells = np.searchsorted(edges, middles)
    table = logs[cells]
    places = (projected / width).astype(np.float32)
    starts = (likelihood.locate(readings) - lowest) / width + 1.0
    starts = starts.astype(np.float32)
    short = min(_SHORT_LIST, len(projected))

    def scores(codes: slice) -> Floats:
        score = (targets[codes] @ directions.T).astype(np.float64)
        for row, start in zip(score, starts[codes], strict=True):
            likely = np.argpartition(-row, short - 1)[:short]
            cells = np.clip(start - places[likely], 0, _CELLS - 1)
            logs = table.take(cells.astype(np.int32))
            fits = logs.sum(axis=1)
            row[likely] = _ABOVE_ALL_COSINES + fits - fits.min()
        return score

    return rank_by_scores(scores, own, len(projected))


_PENALTIES = 10.0 ** np.arange(-6, 5)
_LEAST_REST = 1e-9


def learned_map(readings: Floats, values: Floats) -> Callable[[Floats], Doubles]:
    """Return the linear map with an intercept that predicts values it has not seen best.

    Of eleven penalties the one with the least squared error counts, each pair left out in turn
    (Golub, Heath & Wahba 1979).

    Parameters
    ----------
    readings : array, shape (pairs, k)
        Decoded codes.
    values : array, shape (pairs, p)
        What they stand for: vectors, or labels as 0 and 1.

    >>> x = np.array([[0.0], [1.0], [2.0], [3.0]])
    >>> learned_map(x, 2 * x + 1)(np.array([[5.0]])).round(2).tolist()
    [[11.0]]
    """
    centre = readings.mean(axis=0, dtype=np.float64)
    mean = values.mean(axis=0, dtype=np.float64)
    left, sizes, right = np.linalg.svd(readings - centre, full_matrices=False)
    squares = np.square(sizes)
    scale = float(squares.mean()) or 1.0
    deviations = values - mean
    projected = left.T @ deviations

    def shrinkage(penalty: float) -> Doubles:
        return np.asarray(squares / (squares + penalty * scale))

    def left_out_error(penalty: float) -> float:
        kept = shrinkage(penalty)
        predicted = left @ (kept[:, None] * projected)
        residual = deviations - predicted
        # What a pair adds to its own prediction.
        leverage = np.square(left) @ kept + 1.0 / len(left)
        rest = np.maximum(1.0 - leverage, _LEAST_REST)
        left_out = residual / rest[:, None]
        return float(np.square(left_out).sum())

    best = min(_PENALTIES, key=left_out_error)
    inverse = shrinkage(best) / np.where(sizes > 0, sizes, np.inf)
    weights = right.T @ (inverse[:, None] * projected)

    def predict(new: Floats) -> Doubles:
        return np.asarray(mean + (new - centre) @ weights)

    return predict


def best_odds(likelihoods: CodeLikelihoods, codes: Codes) -> Doubles:
    """Return the highest log-odds of each vector against the others for any code, shape (m,)."""
    best = []
    for block in row_blocks(len(codes), _CODES):
        logs = likelihoods.logs(codes.take(block))
        # The last row is of no known vector.
        best.append(log_odds(logs, len(logs) - 1).max(axis=1))
    return np.asarray(np.max(best, axis=0))


def true_positive_rate(members: Doubles, others: Doubles, false_positives: float) -> float:
    """Return the share of members above the threshold that ``false_positives`` of others exceed.

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
    falling = -np.sort(-others)
    threshold = falling[allowed]
    return float((members > threshold).mean())
