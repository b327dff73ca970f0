"""A public sample that stands for a larger collection: who is near, and what scores find.

Each of m public vectors stands for n/m vectors of the collection, so that a rank in the sample is a
share of the collection. That is too coarse for the nearest: the ten nearest of n are all nearer
than most of a sample. So the five nearest of the sample give way to *near ranks*: vectors that are
made between the query and a sampled one, as near as the nearest of n are.

Around every query the share of the collection within a distance d is taken to grow as a power of d
(Hill 1975; Amsaleg et al. 2015, local intrinsic dimension). Its exponent changes nearer as it does
among the nearest of a sample, on average over all queries, and differs from query to query as their
nearest do: with one for all, private queries of sentences were promised .89, and found .83.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy

from dpindex.base.arrays import (
    AnyArray,
    Bools,
    Doubles,
    Integers,
    Vectors,
    row_blocks,
    spaced,
)
from dpindex.decode.base import Metric
from dpindex.mechanism.public_random import PublicStream
from dpindex.study.between import Between, Ends
from dpindex.study.goal import FOUND, NEIGHBOURS
from dpindex.study.truth import TIE

# Ranks of the sample that near ranks replace: with ten, rare topics were promised .08 too much, as
# the sample has fewer vectors of them. And how fast the exponent may change with the rank, as a
# power of it: a choice.
_REPLACED = 5
_STEEPEST = 0.2
# Nearest vectors that tell how much a query's exponent differs from that of others: a choice.
_OWN = 10
# By how much near ranks grow behind those of true neighbours, which have one each: with 1.07 .03
# too much was promised. Where specs are compared those behind the tenth grow, in half the time.
_GROWTH = 1.03
_COARSE_GROWTH = 1.2
# Nearest vectors towards which near vectors are made. Towards the very nearest there lies what a
# query and its neighbours have in common: with 4 to 16 behind, a tenth less was promised of
# codebooks.
_SOURCES = 30
# Nearest vectors, of which the nearer half is compared with what is made towards the other one.
_ALIKE = 10
# Queries for which vectors are made as near as those of the sample, fewer where specs are compared.
# With 150, signs of counts were promised .13 and found .22.
_TESTED = 300
_COARSE_TESTED = 50
# Near ranks that are put where attributes allow it at a time.
_CROSSED = 1 << 9
_TINY = 1e-30


class Population:
    """Public vectors that stand for a collection of n, as some queries see them.

    Parameters
    ----------
    vectors : float32 array or CSR matrix, shape (m, dim)
        Public vectors; at most n of them are used.
    n : int
        Vectors in the collection.
    queries : int or vectors
        How many of the vectors play queries, at most; or queries, shape (q, dim).
    asked_labels : int array, shape (q,), optional
        The groups of given queries, which do not see theirs; by default they are of none.
    groups : int array, shape (m,), optional
        Vectors of one group, such as captions of one picture, resemble each other more than others
        do. A vector that plays a query does not see itself nor others of its group.
    metric : "cosine" or "l2"
        What neighbours are ranked by.
    codewords : int array, shape (K,) or (2, K), optional
        The groups of codewords of a codebook that is tried on the vectors, or those of both vectors
        that each lies between. No vector is encoded by one of its own group, and no query sees one
        of its own.
    others : as the vectors, shape (o, dim), optional
        Vectors of whose codes a denoiser is learned beside those that it is tried on. It comes to
        know vectors of which it has seen many codes, where in a collection each has one.
    coarse : bool
        Make few near ranks, of which the farther ones stand for several neighbours each.

    Attributes
    ----------
    queries : as the vectors, shape (q, dim)
    labels, asked_labels : int arrays, shapes (m,) and (q,)
        The groups of vectors and queries; −1 for queries of no group.
    distances : float64 array, shape (q, m)
        One less the cosine, or half the squared distance of vectors of different norms; infinite
        where a vector is not seen.
    near : float64 array, shape (q, s)
        Distances of the near ranks.
    weight : float64 array, shape (q, m + s)
        Vectors of the collection that each vector and each near rank stands for.
    coarse : bool
        As given.
    ends : Ends
        The queries and the vectors, between which near vectors are made.
    lists : dict
        Nearest codewords, by the digest of their codebook and what they are near to.

    >>> population = Population(np.random.default_rng(0).normal(size=(800, 6)), 8000, 100)
    >>> population.weight.sum(axis=1).round(6).tolist() == [8000.0] * 100
    True
    """

    def __init__(
        self,
        vectors: Vectors,
        n: int,
        queries: int | Vectors,
        *,
        asked_labels: Integers | None = None,
        groups: Integers | None = None,
        metric: Metric = "cosine",
        codewords: Integers | None = None,
        others: Vectors | None = None,
        coarse: bool = False,
    ) -> None:
        chosen = spaced(vectors.shape[0], n)
        self.vectors: Any = vectors[chosen]
        self.n = n
        self.metric = metric
        self.coarse = coarse
        self.codewords = None if codewords is None else np.atleast_2d(codewords)
        self.others = others
        self._stream = PublicStream(0, "plan population")
        rows = len(chosen)
        self.labels = np.arange(rows) if groups is None else groups[chosen]
        if isinstance(queries, int):
            asked = spaced(rows, queries)
            self.queries = self.vectors[asked]
            self.asked_labels = self.labels[asked]
        else:
            self.queries = queries
            self.asked_labels = np.full(queries.shape[0], -1)
            if asked_labels is not None:
                self.asked_labels = asked_labels
        self.ends = Ends(self.queries, self.vectors, metric)
        unseen = self.asked_labels[:, None] == self.labels
        self.distances = np.where(unseen, np.inf, self.ends.distances())
        self._floor = max(1e-6 * float(np.median(self.distances)), _TINY)
        self.vectors_per_row = n / float((~unseen).sum(axis=1).mean())
        order = np.argsort(self.distances, axis=1, kind="stable")
        rising = np.take_along_axis(self.distances, order, axis=1)
        self._add_near_ranks(order, rising)
        self._weigh(order, rising)
        self.lists: dict[tuple[str, str], Integers] = {}

    def _add_near_ranks(self, order: Integers, rising: Doubles) -> None:
        """Place near ranks between the query and farther vectors, if n is much above m."""
        self._edges = _near_edges(self.vectors_per_row, self.coarse)
        ranks = (self._edges[1:] + self._edges[:-1]) / 2
        self._near_shares = np.log(ranks / self.vectors_per_row)
        self.near = np.empty((len(order), 0))
        places: Integers = np.empty((len(order), 0), dtype=np.intp)
        if len(self._edges) > 1:
            self.near = self._near_distances(rising)
            last = min(_SOURCES, rising.shape[1]) - 1
            places = self._farther_places(last)
            if self.ends.are_crossed:
                # Towards no vector that is nearer: of attributes of two vectors none would be made.
                least = (rising[:, None, :last] < self.near[:, :, None]).sum(axis=2)
            else:
                # A repetition of the query lies in no direction from it.
                least = (rising[:, :last] <= self._floor).sum(axis=1, keepdims=True)
            places = np.maximum(places, least)
        self._nearest = order[:, :_ALIKE]
        self._coins = self._stream.words(self.near.size, np.uint32).reshape(self.near.shape)
        self._sources = np.take_along_axis(order, places, axis=1)
        if self.ends.are_crossed and self.near.size:
            self._put_where_attributes_allow(rising[:, :_SOURCES])

    def _put_where_attributes_allow(self, rising: Doubles) -> None:
        """Put near ranks at distances that vectors with attributes of two others have.

        That is the nearest distance that the sample knows, as distances of vectors of few values
        tie, and what ties with a true neighbour is true, too.
        """
        every = np.arange(self.near.shape[1])
        rows = np.arange(len(self.near))
        blocks = row_blocks(len(rows), max(1, _CROSSED // len(every)))
        reached = [self.ends.reached(self.between(rows[block], every)) for block in blocks]
        known = np.unique(rising)
        distances = np.concatenate(reached).reshape(self.near.shape)
        places = np.searchsorted((known[1:] + known[:-1]) / 2, distances)
        near = np.minimum(known[places], rising[:, [_REPLACED]])
        order = np.argsort(near, axis=1)
        self.near, self._coins, self._sources = (
            np.take_along_axis(each, order, axis=1) for each in (near, self._coins, self._sources)
        )

    def _near_distances(self, rising: Doubles) -> Doubles:
        """Return the distances of near ranks, (q, s), from those of vectors, nearest first.

        Where the share within a distance is a power of it, spacings of its logarithm times their
        ranks are one over its exponent on average (Rényi 1953). How that changes from the fifth
        rank of the sample to the first, as a power of the rank, goes on nearer.
        """
        logarithms = np.log(np.maximum(rising[:, : 1 + _OWN], self._floor))
        number = np.arange(1.0, 1 + _OWN)
        spacings = number * np.diff(logarithms, axis=1)
        # A few messages have copies, which say nothing of how near the nearest of others are: no
        # spacing is more than the largest of as many that are alike. Those of ties are none.
        positive = spacings[spacings > number * TIE]
        if positive.size:
            typical = float(np.median(positive)) / math.log(2.0)
            spacings = np.minimum(spacings, typical * math.log(spacings.size))
        own = _own_rates(spacings)
        number = number[:_REPLACED]
        clipped = spacings[:, :_REPLACED]
        spacings = clipped.mean(axis=0) / number
        rates = np.log(np.maximum(number * spacings, _TINY))
        slope, first = np.polyfit(np.log(number), rates, 1)
        slope = np.clip(slope, -_STEEPEST, _STEEPEST)
        # How far below the last each rank of the sample is expected, and where: a rank k has the
        # share of a gamma law, whose logarithm is ψ(k) on average.
        below = np.append(np.cumsum(spacings[::-1])[::-1], 0.0)
        places = scipy.special.digamma(np.arange(1, 2 + _REPLACED))
        nearer = np.maximum(places[0] - self._near_shares, 0.0)
        fall = np.interp(self._near_shares, places, below)
        fall += np.exp(first) * nearer * scipy.special.exprel(-slope * nearer)
        relative = clipped / np.maximum(clipped.mean(axis=0) * own[:, None], _TINY)
        fallen = own[:, None] * _at_random(fall, relative)
        # No farther than the first vector that is left, be that a repetition of the query.
        near = np.exp(logarithms[:, [_REPLACED]] - fallen)
        near = np.minimum(near, rising[:, [_REPLACED]])
        repeated = (rising[:, :_REPLACED] <= self._floor).sum(axis=1, keepdims=True)
        near[self._edges[1:] <= repeated * self.vectors_per_row] = 0.0
        return np.asarray(near)

    def _farther_places(self, last: int) -> Integers:
        """Return the place of the vector that each near rank is made towards, at most ``last``.

        It is as many behind the first as there are vectors nearer than the rank, by Poisson's law.
        Where vectors are codewords, what is reported depends on it.
        """
        chance = self._stream.uniform(*self.near.shape)
        nearer = self._edges[1:] / self.vectors_per_row
        upto = scipy.special.pdtr(np.arange(last)[:, None], nearer)
        return np.asarray((upto[:, None] < chance).sum(axis=0))

    def between(self, rows: Integers, ranks: Integers) -> Between:
        """Return where near ranks of some queries lie, query by query."""
        chosen = np.ix_(rows, ranks)
        asked = np.repeat(rows, len(ranks))
        sources, near, coins = (
            part[chosen].ravel() for part in (self._sources, self.near, self._coins)
        )
        return self._places(asked, sources, near, coins)

    def _places(
        self, asked: Integers, sources: Integers, near: Doubles, coins: Integers
    ) -> Between:
        return Between(asked, sources, near, self.distances[asked, sources], coins)

    def tested(self) -> tuple[Integers, Between, Between]:
        """Return queries, vectors near to them, and places that are as near, (n,).

        These lie towards farther vectors; there are as many of each for each query.
        """
        rows = spaced(len(self.distances), _COARSE_TESTED if self.coarse else _TESTED)
        real, farther = (part.ravel() for part in np.split(self._nearest[rows], 2, axis=1))
        asked = np.repeat(rows, _ALIKE // 2)
        near = self.distances[asked, real]
        coins = PublicStream(0, "plan tested").words(len(asked), np.uint32)
        real_places = self._places(asked, real, near, coins)
        return rows, real_places, self._places(asked, farther, near, coins)

    def _weigh(self, order: Integers, rising: Doubles) -> None:
        """Share the collection among near ranks, which replace five vectors, and other vectors.

        How much is nearer is noted for each that may be a true neighbour. Ties are left out:
        repeated vectors are common in tables of few columns.
        """
        queries, vectors = order.shape
        if self.near.size:
            order = order[:, _REPLACED:]
            rising = rising[:, _REPLACED:]
        seen = np.isfinite(rising)
        rest = (self.n - self._edges[-1]) / seen.sum(axis=1, keepdims=True)
        of_near = np.broadcast_to(np.diff(self._edges), self.near.shape)
        weight = np.hstack([of_near, seen * rest])
        ranks = vectors + np.arange(self.near.shape[1])
        columns = np.hstack([np.tile(ranks, (queries, 1)), order])
        self.weight = np.zeros((queries, vectors + len(ranks)))
        np.put_along_axis(self.weight, columns, weight, axis=1)
        self._nearer = np.full_like(self.weight, np.inf)
        rising = np.hstack([self.near, rising])
        tied = rising - TIE if self.ends.by_direction else rising * (1.0 - TIE)
        before = np.cumsum(weight, axis=1) - weight
        for row, distances in enumerate(rising):
            last = distances[np.searchsorted(before[row], NEIGHBOURS) - 1]
            count = np.searchsorted(tied[row], last, side="right")
            first = np.searchsorted(distances, tied[row, :count])
            self._nearer[row, columns[row, :count]] = before[row, first]

    def codewords_of(self, labels: Integers) -> Bools:
        """Return which codewords are of the groups of these labels, (n, K)."""
        return np.asarray((labels[:, None, None] == self.codewords).any(axis=1))

    def times_of(self, labels: Integers) -> Doubles:
        """Return how many codewords each stands for, without those of these groups, (n, K).

        Without a vector, other points would lie between those near it: for each point of its own
        that is lost, the other end counts once more.
        """
        assert self.codewords is not None
        first, second = self.codewords
        times = np.ones((len(labels), len(first)))
        vectors = np.flatnonzero(first == second)
        order = vectors[np.argsort(first[vectors], kind="stable")]
        for own, other in ((first, second), (second, first)):
            rows, lost = np.nonzero((labels[:, None] == own) & (own != other))
            ends = order[np.searchsorted(first[order], other[lost])]
            np.add.at(times, (rows, ends), 1.0)
        return times

    def true(self, neighbours: int, rows: Integers | slice = slice(None)) -> Doubles:
        """Return how many true neighbours each vector and each near rank stands for, (q, m + s).

        What is as near as the last of the ``neighbours`` counts too. With ``rows``, for these
        queries.
        """
        return np.asarray(np.clip(neighbours - self._nearer[rows], 0.0, self.weight[rows]))

    def found(
        self,
        rows: Integers,
        scores: AnyArray,
        near: AnyArray,
        neighbours: int,
        ladder: Sequence[int | Doubles],
        absent: Bools | None = None,
    ) -> Doubles:
        """Return the shares of true neighbours among the best codes, (b, 1 + len(ladder)).

        First that of the true 50 among ten answers, then that of ``neighbours`` among each
        number of the ladder.

        Parameters
        ----------
        rows : int array, shape (b,)
            Queries.
        scores : float array, shape (b, rounds, m)
            Of each query with each code of each vector. Those that it does not see become −∞.
        near : float array, shape (b, s)
            Of each query with a code of each of its near ranks.
        ladder : sequence of int or float64 array, shape (b,)
            Numbers of answers among which true neighbours are counted: of each query, or of all.
        absent : bool array, shape (b, rounds, m), optional
            Codes that a query does not see.
        """
        true = np.stack([self.true(number, rows) for number in (NEIGHBOURS, neighbours)])
        weight = self.weight[rows]
        vectors = self.vectors.shape[0]
        seen = np.broadcast_to((weight[:, None, :vectors] > 0), scores.shape)
        if absent is not None:
            seen = seen & ~absent
        np.copyto(scores, -np.inf, where=~seen)
        codes_seen = seen.sum(axis=1)
        of_code = weight[:, :vectors].sum(axis=1) / np.maximum(codes_seen.sum(axis=1), 1)
        order = np.argsort(-near, axis=1)
        falling = np.take_along_axis(-near, order, axis=1)
        of_near = np.take_along_axis(weight[:, vectors:], order, axis=1)
        near_before = np.pad(np.cumsum(of_near, axis=1), ((0, 0), (1, 0)))
        numbers = np.stack([np.broadcast_to(answers, len(rows)) for answers in (FOUND, *ladder)])
        possible = np.minimum(numbers, neighbours)
        possible[0] = np.minimum(FOUND, NEIGHBOURS)
        shares = np.empty((len(rows), len(numbers)))
        whole = np.array([NEIGHBOURS, neighbours], dtype=np.float64)
        # Query by query: where many vectors tie, many times as many are right to find.
        for query, rising in enumerate(-scores.reshape(len(rows), -1)):
            # Behind the largest number nothing is found, so that only what comes before is sorted.
            last = int(numbers[:, query].max() / of_code[query]) + 1
            if last < len(rising):
                rising = rising[rising <= np.partition(rising, last)[last]]
            codes = np.sort(rising)
            # Codes that are right to find: what they are of, their scores and what each counts for.
            right = np.flatnonzero(true[:, query, :vectors].any(axis=0))
            each = true[:, query, right] / np.maximum(codes_seen[query, right], 1)
            of_codes = each.repeat(scores.shape[1], axis=1)
            counts = np.concatenate([of_codes, true[:, query, vectors:]], axis=1)
            # True neighbours none of whose codes is seen are not missed: the others count for them.
            unseen = true[:, query, right] @ (codes_seen[query, right] == 0)
            counts *= (whole / np.maximum(whole - unseen, 1.0))[:, None]
            score = -np.concatenate([scores[query].T[right].ravel(), near[query]])
            # As many answers come before, and as many tie: of these, chance decides.
            before, upto = (
                of_code[query] * codes.searchsorted(score, side)
                + near_before[query].take(falling[query].searchsorted(score, side))
                for side in ("left", "right")
            )
            tied = np.maximum(upto - before, _TINY)
            reached = np.clip((numbers[:, query, None] - before) / tied, 0.0, 1.0)
            among = reached @ counts[1]
            among[0] = reached[0] @ counts[0]
            shares[query] = np.minimum(among / possible[:, query], 1.0)
        return shares


def _own_rates(spacings: Doubles) -> Doubles:
    """Return one over each query's exponent, relative to the mean, (q,), from spacings, (q, s).

    Spacings are exponential, so their means vary more than the exponents do, and are shrunk towards
    the mean of all by as much.

    >>> alike = np.random.default_rng(0).exponential(size=(1000, 10))
    >>> float(_own_rates(alike).std().round(1))
    0.1
    """
    count = spacings.shape[1]
    own = (spacings / np.maximum(spacings.mean(axis=0), _TINY)).mean(axis=1)
    variance = max(float(own.var()), _TINY)
    true = max(variance - 1.0 / count, 0.0) / (1.0 + 1.0 / count)
    return np.asarray(1.0 + math.sqrt(true / variance) * (own - 1.0))


def _at_random(fall: Doubles, relative: Doubles) -> Doubles:
    """Return falls of as many queries as there are rows of relative spacings, (q, s).

    Each step has a spacing of some query, drawn at random. With the mean of all, trigrams were
    promised .02 more, and precision of small samples .02: steps of a few queries that have copies
    are large, and those of others small.

    >>> drawn = _at_random(np.array([3.0, 2.0, 1.0]), np.full((2, 5), 7.0))
    >>> drawn.tolist()
    [[3.0, 2.0, 1.0], [3.0, 2.0, 1.0]]
    """
    every = relative.ravel() / max(float(relative.mean()), _TINY)
    chance = PublicStream(0, "plan spacings").uniform(len(relative), len(fall))
    steps = -np.diff(fall, append=0.0) * every[(len(every) * chance).astype(np.intp)]
    return np.asarray(np.cumsum(steps[:, ::-1], axis=1)[:, ::-1])


def _near_edges(vectors_per_row: float, coarse: bool) -> Doubles:
    """Return edges of the ranks in the collection that near ranks stand for."""
    if vectors_per_row < 2.0:
        return np.zeros(1)
    last = _REPLACED * vectors_per_row
    singles, growth = (FOUND, _COARSE_GROWTH) if coarse else (NEIGHBOURS, _GROWTH)
    if last <= singles:
        return np.append(np.arange(math.ceil(last)), last)
    steps = math.ceil(math.log(last / singles, growth))
    behind = np.geomspace(singles, last, 1 + steps)
    return np.append(np.arange(singles), behind)
