"""As many candidates as a query needs: cells are taken while they are worth their size.

For a query let ``P(y)`` be the chance that a true neighbour *reports* y. Cells are taken in the
order of ``P(y)/count(y)`` while that reaches one public threshold, so easy queries get few
candidates and hard ones many. The threshold is set on the public vectors that a codebook's guide
holds, such that they take the wanted number on average, and no query more than twice that.
Everything here reads public parameters and codes: it costs no budget.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dpindex.base.arrays import Doubles, Longs
from dpindex.decode.base import PrivateQueries, Queries
from dpindex.decode.symbols import codeword_similarities
from dpindex.mechanism.guide import Guide
from dpindex.mechanism.noise.symbols import CodebookResponse
from dpindex.mechanism.spec import Spec

MOST = 2
"""Candidates of a query, at most, for each one that is wanted on average."""

_ROUNDS = 50


class Worth(NamedTuple):
    """What cells are worth to queries.

    Attributes
    ----------
    scores : float64 array, shape (nq, K)
        Neighbours to be expected for each candidate of a cell.
    least : float
        Cells of at least so much are taken; the best one always.
    """

    scores: Doubles
    least: float

    def taken(self, scores: Doubles) -> int:
        """Return how many of a query's candidates are taken, given their scores, best first."""
        if not len(scores):
            return 0
        return int(np.count_nonzero(scores >= min(self.least, scores[0])))


def worth_of(spec: Spec, queries: Queries, counts: Longs, wanted: float) -> Worth | None:
    """Return what cells are worth to queries; None without a guide.

    Parameters
    ----------
    spec : Spec
        Of the codes that are searched.
    queries : Queries
    counts : int array, shape (K,)
        Codes of each symbol in the collection.
    wanted : float
        Candidates of a query, on average.
    """
    guide = guide_of(spec)
    if guide is None:
        return None
    sizes = np.maximum(counts, 1)
    if isinstance(queries, PrivateQueries):
        if guide_of(queries.spec) is None:
            return None  # they report one of several near codewords
        by_report, shares = guide.of_reports(_channel(queries.spec))
        reported = _reporting(spec, by_report)
        players = reported / sizes
        scores = players[queries.codes.stored[:, 0]]
    else:
        shares = np.full(len(guide.players), 1 / len(guide.players))
        players = _reporting(spec, guide.of_cosines(guide.players)) / sizes
        cosines = codeword_similarities(queries)
        scores = _reporting(spec, guide.of_cosines(cosines)) / sizes
    return Worth(scores, _threshold(players, shares, counts, wanted))


def guide_of(spec: Spec) -> Guide | None:
    """Return the guide of a spec whose reports are of the nearest codeword, if it has one."""
    if not isinstance(spec.law, CodebookResponse) or spec.law.subset != 1:
        return None
    return spec.codewords.guide


def _channel(spec: Spec) -> Doubles:
    """Chances of reports for a query in each cell, shape (K, K)."""
    law = CodebookResponse.of(spec.law)
    others = (1.0 - law.chance_inside) / (law.size - 1)
    channel = np.full((law.size, law.size), others)
    np.fill_diagonal(channel, law.chance_inside)
    return channel


def _reporting(spec: Spec, chances: Doubles) -> Doubles:
    """Chances of reports, given chances of cells, shape (n, K)."""
    return np.asarray(chances @ _channel(spec))


def _threshold(players: Doubles, shares: Doubles, counts: Longs, wanted: float) -> float:
    """Return the threshold at which public queries take ``wanted`` candidates on average."""
    order = np.argsort(-players, axis=1, kind="stable")
    worth = np.take_along_axis(players, order, axis=1)
    sizes = np.cumsum(counts[order], axis=1)
    within = np.minimum(sizes, MOST * wanted)

    def taken(least: float) -> float:
        cells = np.maximum((worth >= least).sum(axis=1), 1)
        numbers = np.take_along_axis(within, cells[:, None] - 1, axis=1)[:, 0]
        return float(shares @ numbers)

    low = 0.0
    high = float(worth.max())
    for _ in range(_ROUNDS):
        middle = (low + high) / 2
        if taken(middle) > wanted:
            low = middle
        else:
            high = middle
    return high
