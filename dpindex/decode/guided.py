"""As many candidates as a query needs: cells are taken while they are worth their size.

For a query let ``P(y)`` be the chance that a true neighbour *reports* y. Cells are taken in the
order of ``P(y)/count(y)`` while that reaches one public threshold, so easy queries get few
candidates and hard ones many. The threshold is set on the public vectors that a codebook's guide
holds, such that they take the wanted number on average, and no query more than twice that. Where
the best cells alone are larger than that, all queries take at most as many as gives that mean.
Everything here reads public parameters and codes: it costs no budget.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from dpindex.base.arrays import Doubles, Longs
from dpindex.decode.base import PrivateQueries, Queries
from dpindex.decode.symbols import codeword_similarities
from dpindex.mechanism.codebooks import Guide
from dpindex.mechanism.noise.base import SymbolLaw
from dpindex.mechanism.noise.symbols import CodebookResponse
from dpindex.mechanism.spec import Spec

_MOST = 2
"""Candidates of a query, at most, for each one that is wanted on average."""

_ROUNDS = 50
_ROUNDED = 1 + 1e-9


class Worth(NamedTuple):
    """What cells are worth to queries.

    Attributes
    ----------
    scores : float64 array, shape (nq, K)
        Neighbours to be expected for each candidate of a cell.
    least : float
        Cells of at least so much are taken; the best one always.
    most : int
        Candidates that a query takes at most.
    """

    scores: Doubles
    least: float
    most: int

    def taken(self, scores: Doubles) -> int:
        """Return how many of a query's candidates are taken, given their scores, best first."""
        return int(np.count_nonzero(scores >= np.minimum(self.least, scores[:1])))


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
    channel = _channel(spec)
    if isinstance(queries, PrivateQueries):
        if guide_of(queries.spec) is None:
            return None  # they report one of several near codewords
        by_report, shares = guide.of_reports(_channel(queries.spec))
        players = by_report @ channel / sizes
        scores = players[queries.codes.stored[:, 0]]
    else:
        shares = np.full(len(guide.players), 1 / len(guide.players))
        players = guide.of_cosines(guide.players) @ channel / sizes
        cosines = codeword_similarities(queries)
        scores = guide.of_cosines(cosines) @ channel / sizes
    return Worth(scores, *_limits(players, shares, counts, wanted))


def guide_of(spec: Spec) -> Guide | None:
    """Return the guide of a spec whose reports are of the nearest codeword, if it has one."""
    if not isinstance(spec.law, CodebookResponse) or spec.law.subset != 1:
        return None
    return spec.codewords.guide


def _channel(spec: Spec) -> Doubles:
    """Chances of reports for a query in each cell, shape (K, K)."""
    law = SymbolLaw.of(spec.law)
    return law.chances(np.eye(law.size))


def _limits(players: Doubles, shares: Doubles, counts: Longs, wanted: float) -> tuple[float, int]:
    """Return the least worth and the most candidates by which public queries take ``wanted``."""
    order = np.argsort(-players, axis=1, kind="stable")
    worth = np.take_along_axis(players, order, axis=1)
    sizes = np.cumsum(counts[order], axis=1)

    def few_enough(least: float, most: float) -> bool:
        cells = np.maximum((worth >= least).sum(axis=1), 1)
        numbers = np.take_along_axis(sizes, cells[:, None] - 1, axis=1)[:, 0]
        return bool(shares @ np.minimum(numbers, most) <= _ROUNDED * wanted)

    most = _MOST * wanted
    least = _first(lambda middle: few_enough(middle, most), float(worth.max()))
    return least, round(most - _first(lambda cut: few_enough(least, most - cut), most))


def _first(holds: Callable[[float], bool], high: float) -> float:
    """Return the least number from 0 to ``high`` from which on something holds, by bisection."""
    low = 0.0
    if holds(low):
        return low
    for _ in range(_ROUNDS):
        middle = (low + high) / 2
        if holds(middle):
            high = middle
        else:
            low = middle
    return high
