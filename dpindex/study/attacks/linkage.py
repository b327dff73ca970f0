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
import scipy.special

from dpindex.base.arrays import Doubles, Floats, Vectors, stacked
from dpindex.mechanism.codes import Codes
from dpindex.mechanism.projector import Projector
from dpindex.study.attacks.code_chances import chances_for

__all__ = ["LINKED", "Flags", "Linkage", "crowd_size", "log_odds"]

LINKED = "linked"
"""The name of this measure: the share of known vectors whose own code fits best among all."""

Flags = npt.NDArray[np.bool_]

_TIE = 1e-5
_CROWD = (250, 2000)
_COMPARISONS = 1 << 31
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
        Further vectors that the attacker knows; see :func:`crowd_size`.
    """

    def __init__(
        self, projector: Projector, known: Vectors, codes: Codes, crowd: Vectors | None = None
    ) -> None:
        self._count = known.shape[0]
        everyone = known if crowd is None else stacked([known, crowd])
        self._chances = chances_for(projector, everyone)
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
            logs = self._chances.logs(codes.take(block)).astype(np.float64)
            scores[:, block] = log_odds(logs)[: self._count]
        return scores


def crowd_size(codes: int, code_length: int) -> int:
    """Return how many vectors to know, [250, 2000]: as many as are compared in a few seconds.

    The more the attacker knows of the crowd, the better the own code stands out, above all where
    codes are short.

    >>> crowd_size(1000, 16), crowd_size(10_000, 784)
    (2000, 273)
    """
    return int(np.clip(_COMPARISONS // max(codes * code_length, 1), *_CROWD))


def log_odds(logs: Doubles) -> Doubles:
    """Return the log-odds of each row in its column, all rows alike beforehand.

    Parameters
    ----------
    logs : array, shape (m, n)
        Log-likelihoods of the columns under the rows, m > 1, each column up to a constant.

    >>> log_odds(np.log([[0.1, 0.3], [0.1, 0.1], [0.4, 0.1]])).round(3)
    array([[-1.609,  0.405],
           [-1.609, -1.386],
           [ 0.693, -1.386]])
    """
    is_likeliest = np.zeros(logs.shape, dtype=bool)
    np.put_along_axis(is_likeliest, logs.argmax(axis=0)[None], True, axis=0)
    others = scipy.special.logsumexp(np.where(is_likeliest, -np.inf, logs), axis=0)
    total = np.logaddexp(logs.max(axis=0), others)
    share = np.minimum(np.exp(logs - total), 0.5)
    odds = logs - total - np.log1p(-share)
    return np.asarray(np.where(is_likeliest, logs - others, odds))
