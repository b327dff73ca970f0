"""Linkage: how often a known vector picks out its own code among all, measured.

The attacker knows a vector, others of its kind, and everything public. Every code gets a score: the
log-odds that it is of the vector and not of one of the others, by Bayes' rule from the public law
of the noise. No other test finds more at as many false alarms (Neyman & Pearson 1933) if the others
stand for the crowd. A search by cosines finds fewer, denoised or not: of 10 000 pictures at epsilon
1 for a pixel it finds .50, and this test .90.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dpindex.base.arrays import Doubles, Floats, Vectors, stacked, unit
from dpindex.index.kinds import kind_of
from dpindex.mechanism.codes import Codes
from dpindex.mechanism.spec import Projector
from dpindex.similarity.likelihoods import CodeLikelihoods

LINKED = "linked"
"""The name of this measure: the share of known vectors whose own code fits best among all."""

Flags = npt.NDArray[np.bool_]

_TIE = 1e-5
# Scores that are held at a time.
_MAX_SCORES = 1 << 22


class Linkage:
    """Counts, chunk by chunk, how many codes fit known vectors at least as well as their own.

    Parameters
    ----------
    projector : Projector
        Of the spec of the codes.
    known : array or sparse matrix, shape (m, dim)
        Original vectors, of which the attacker looks for one, and knows the others.
    codes : Codes
        Those of the known vectors first, and after them others, shape (n, k), n ≥ m.
    crowd : array or sparse matrix, shape (c, dim), optional
        Further vectors that the attacker knows; see
        ``crowd_size`` of :class:`dpindex.similarity.likelihoods.CodeLikelihoods`.
    """

    def __init__(
        self, projector: Projector, known: Vectors, codes: Codes, crowd: Vectors | None = None
    ) -> None:
        self._count = known.shape[0]
        everyone = known if crowd is None else stacked([known, crowd])
        self._chances = kind_of(projector.spec).likelihoods(projector, everyone)
        self._block = max(1, _MAX_SCORES // everyone.shape[0])
        self._own = np.diagonal(self._scores(codes.take(slice(self._count))))
        self._above = np.zeros(self._count, dtype=np.int64)
        self._tied = np.zeros(self._count, dtype=np.int64)

    def count(self, codes: Codes) -> None:
        """Compare with further codes; every code of the collection is counted once."""
        above, tied = self.compare(codes)
        self._above += above.sum(axis=1)
        self._tied += tied.sum(axis=1)

    def compare(self, codes: Codes) -> tuple[Flags, Flags]:
        """Which codes fit each known vector better than its own, and as well, (m, n) each."""
        lead = self.lead(codes)
        above = lead > 0
        return above, (lead >= 0) & ~above

    def lead(self, codes: Codes, own: bool = False) -> Floats:
        """Return how much better than its own each code fits a known vector, shape (m, n).

        It is 0 for a tie. With ``own`` the first n/m codes are compared with the first known
        vector, and so on: (m, n/m).
        """
        scores = self._scores(codes)
        if own:
            rows = np.arange(self._count)
            scores = scores.reshape(self._count, self._count, -1)[rows, rows]
        lead = scores - self._own[:, None]
        margin = _TIE * np.maximum(np.abs(self._own), 1.0)
        lead[np.abs(lead) <= margin[:, None]] = 0.0
        return lead

    @property
    def share(self) -> float:
        """Share of known vectors whose own code fits best; ties are broken at random."""
        return self.share_within(1)

    def share_within(self, candidates: int) -> float:
        """Return the share of known vectors whose own code is among that many that fit best.

        Ties are broken at random.
        """
        places = (candidates - self._above) / np.maximum(self._tied, 1)
        return float(np.clip(places, 0.0, 1.0).mean())

    def _scores(self, codes: Codes) -> Floats:
        scores = np.empty((self._count, len(codes)))
        for start in range(0, len(codes), self._block):
            block = slice(start, start + self._block)
            scores[:, block] = log_odds(self._chances.logs(codes.take(block)), self._count)
        return scores


def log_odds(logs: Floats, rows: int) -> Doubles:
    """Return the log-odds of the first rows in each column, all rows alike beforehand.

    Parameters
    ----------
    logs : array, shape (m, n)
        Log-likelihoods of the columns under the rows, m > 1, each column up to a constant.
    rows : int
        Rows that are asked about, [1, m].

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
    asked = logs[:rows].astype(np.float64)
    share = np.exp(asked - np.logaddexp(first, others))
    is_likeliest = likeliest == np.arange(rows)[:, None]
    share[is_likeliest] = 0.0
    odds: Doubles = asked - np.logaddexp(first, others) - np.log1p(-share)
    odds[is_likeliest] = np.broadcast_to(first - others, odds.shape)[is_likeliest]
    return odds


_BLOCK = 500
_CODES = 2048


def best_scores(queries: Floats, codes: Floats) -> Doubles:
    """Return the highest cosine of each query to any code, shape (m,)."""
    directions = unit(codes)
    blocks = np.array_split(unit(queries), -(-len(queries) // _BLOCK))
    return np.concatenate([(block @ directions.T).max(axis=1) for block in blocks])


def best_odds(chances: CodeLikelihoods, codes: Codes) -> Doubles:
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
