"""Linkage: how often a known vector picks out its own code among all, measured.

The attacker knows a vector, others of its kind, and everything public. Every code gets a score: the
log-odds that it is of the vector and not of one of the others, by Bayes' rule from the public law
of the noise. No other test finds more at as many false alarms (Neyman & Pearson 1933) if the others
stand for the crowd. A search by cosines finds fewer, denoised or not: of 10 000 pictures at epsilon
1 for a pixel it finds .50, and this test .90.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpindex.base.arrays import Doubles, Floats, Vectors, row_blocks, stacked, unit
from dpindex.index.kinds import kind_of
from dpindex.mechanism.codes import Codes
from dpindex.mechanism.spec import Projector
from dpindex.similarity.likelihoods import CodeLikelihoods
from dpindex.storage.ids import Rows

LINKED = "linked"
"""The name of this measure: the share of known vectors whose own code fits best among all."""

_TIE = 1e-5
# Log-odds that are held at a time.
_MAX_SCORES = 1 << 22
# Queries and codes that are compared at a time.
_QUERIES = 500
_CODES = 2048


@dataclass(frozen=True, eq=False)
class Linkage:
    """How many codes fit known vectors better than their own, and how many as well.

    Attributes
    ----------
    better, tied : int64 arrays, shape (m,)
        For each known vector; its own code is one of those that tie.
    """

    better: Rows
    tied: Rows

    @property
    def share(self) -> float:
        """Share of known vectors whose own code fits best; ties are broken at random."""
        return float(np.mean((self.better == 0) / np.maximum(self.tied, 1)))


def measure_linkage(
    projector: Projector, known: Vectors, own: Codes, codes: Codes, crowd: Vectors | None = None
) -> Linkage:
    """Return how well known vectors pick out their own codes.

    Parameters
    ----------
    projector : Projector
        Of the spec of the codes.
    known : array or sparse matrix, shape (m, dim)
        Original vectors, of which the attacker looks for one, and knows the others.
    own : Codes
        Their codes, shape (m, k).
    codes : Codes
        All codes of the collection, those of the known vectors too.
    crowd : array or sparse matrix, shape (c, dim), optional
        Further vectors that the attacker knows; see ``crowd_size`` of
        :class:`dpindex.similarity.likelihoods.CodeLikelihoods`.
    """
    count = known.shape[0]
    everyone = known if crowd is None else stacked([known, crowd])
    likelihoods = kind_of(projector.spec).likelihoods(projector, everyone)
    own_odds = np.diagonal(log_odds(likelihoods.logs(own), count))[:, None]
    margin = _TIE * np.maximum(np.abs(own_odds), 1.0)
    better = np.zeros(count, dtype=np.int64)
    tied = np.zeros(count, dtype=np.int64)
    for block in row_blocks(len(codes), max(1, _MAX_SCORES // everyone.shape[0])):
        lead = log_odds(likelihoods.logs(codes.take(block)), count) - own_odds
        better += (lead > margin).sum(axis=1)
        tied += (np.abs(lead) <= margin).sum(axis=1)
    return Linkage(better, tied)


def log_odds(logs: Floats, rows: int) -> Doubles:
    """Return the log-odds of the first rows in each column, all rows alike beforehand.

    Parameters
    ----------
    logs : array, shape (m, n)
        Log-likelihoods of the columns under the rows, m > 1, each column up to a constant.
    rows : int
        Rows whose odds are returned, [1, m].

    >>> log_odds(np.log([[0.1, 0.3], [0.1, 0.1], [0.4, 0.1]]), 3).round(3)
    array([[-1.609,  0.405],
           [-1.609, -1.386],
           [ 0.693, -1.386]])
    """
    likeliest = logs.argmax(axis=0)
    columns = np.arange(logs.shape[1])
    first = logs[likeliest, columns].astype(np.float64)
    rest = logs.copy()
    rest[likeliest, columns] = -np.inf
    second = rest.max(axis=0)
    rest -= second
    others = second + np.log(np.exp(rest, out=rest).sum(axis=0, dtype=np.float64))
    wanted = logs[:rows].astype(np.float64)
    # Others of the likeliest row are known to full precision: 1 − p would lose it.
    share = np.exp(wanted - np.logaddexp(first, others))
    is_likeliest = likeliest == np.arange(rows)[:, None]
    share[is_likeliest] = 0.0
    odds: Doubles = wanted - np.logaddexp(first, others) - np.log1p(-share)
    odds[is_likeliest] = np.broadcast_to(first - others, odds.shape)[is_likeliest]
    return odds


def best_scores(queries: Floats, codes: Floats) -> Doubles:
    """Return the highest cosine of each query to any code, shape (m,)."""
    directions = unit(codes)
    blocks = np.array_split(unit(queries), -(-len(queries) // _QUERIES))
    return np.concatenate([(block @ directions.T).max(axis=1) for block in blocks])


def best_odds(likelihoods: CodeLikelihoods, codes: Codes) -> Doubles:
    """Return the highest log-odds of each vector against the others for any code, shape (m,)."""
    best = []
    for block in row_blocks(len(codes), _CODES):
        logs = likelihoods.logs(codes.take(block))
        # The last row is of no known vector.
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
