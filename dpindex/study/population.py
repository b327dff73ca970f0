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
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np
import scipy

from dpindex.base.arrays import (
    AnyArray,
    Bools,
    Doubles,
    Floats,
    Integers,
    Vectors,
    issparse,
    row_norms,
    spaced,
    unit,
)
from dpindex.decode.base import Metric
from dpindex.mechanism.public_random import PublicStream
from dpindex.study.target import FOUND, NEIGHBOURS
from dpindex.study.truth import TIE

# Ranks of the sample that near ranks replace: with ten, rare topics were promised .08 too much, as
# the sample has fewer vectors of them. And how fast the exponent may change with the rank, as a
# power of it: a choice.
_REPLACED = 5
_STEEPEST = 0.2
# Nearest vectors that tell how much a query's exponent differs from that of others: a choice.
_OWN = 10
# By how much norms that are equal may differ, and turns in which made vectors get one.
_SAME_NORM = 1e-2
_TURNS = 10
# By how much near ranks grow behind those of true neighbours, which have one each: with 1.07 .03
# too much was promised. Where specs are compared those behind the tenth grow, in half the time.
_GROWTH = 1.03
_COARSE_GROWTH = 1.1
# Different values of all attributes up to which near vectors have no others. Sums of bits are often
# zero, and of fractions never: .25 was promised of their signs, and .06 found. With eight values,
# pictures were promised .10 too little.
_FEW_VALUES = 5
# Or if so few are this share of all, as of counts: .79 was promised of signs of their sums, and .10
# found. Of pictures of eight values they are .96.
_FEW_ARE = 0.99
# Numbers that are looked at for it.
_COUNTED_NUMBERS = 1 << 18
# The same of tables of few columns, whose rows tie: of seven values .69 was promised, 1.00 found.
_FEW_OF_TABLE = 32
_FEW_COLUMNS = 64
# Nearest vectors towards which near vectors are made. Towards the very nearest there lies what a
# query and its neighbours have in common: with 4 to 16 behind, a tenth less was promised of
# codebooks.
_SOURCES = 30
# Nearest vectors by which it is known how near ones differ, principal directions in which, where
# bands of them begin, and vectors whose directions these are.
_ALIKE = 10
_DIRECTIONS = 128
_BANDS = (0, 4, 8, 16, 32, 64)
_FOR_DIRECTIONS = 500
# Queries for which vectors are made as near as those of the sample.
_TESTED = 300
# Blocks of dense near vectors that are kept: all by which specs are first compared, 8 MB each.
_KEPT = 4
# Steps in which near vectors take attributes of farther ones.
_STEPS = 256
_TINY = 1e-30


_Near: TypeAlias = tuple[Any, Integers]

_Compared: TypeAlias = tuple[Floats, Floats]


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
    is_crossed : bool
        Whether near vectors have each attribute of a query or of a farther vector.
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
        self._norms = row_norms(self.vectors)
        self._on_sphere = bool(np.ptp(self._norms) <= _SAME_NORM)
        self.is_crossed = issparse(self.vectors) or _has_few_values(self.vectors)
        self._by_direction = metric == "cosine" or self._on_sphere
        self._asked_norms = row_norms(self.queries)
        unseen = self.asked_labels[:, None] == self.labels
        self.distances = np.where(unseen, np.inf, self._distances())
        self._floor = max(1e-6 * float(np.median(self.distances)), _TINY)
        self.vectors_per_row = n / float((~unseen).sum(axis=1).mean())
        order = np.argsort(self.distances, axis=1, kind="stable")
        rising = np.take_along_axis(self.distances, order, axis=1)
        self._add_near_ranks(order, rising)
        self._weigh(order, rising)
        self.lists: dict[tuple[str, str], Integers] = {}
        self._made: dict[tuple[bytes, bytes], _Near] = {}

    def _distances(self) -> Doubles:
        """Return the distances of all queries and all vectors, (q, m)."""
        inner: Any = self.queries.astype(np.float64) @ self.vectors.T.astype(np.float64)
        if issparse(inner):
            inner = inner.toarray()
        return self._apart(inner, self._asked_norms[:, None], self._norms)

    def _apart(self, inner: Doubles, first: Doubles, second: Doubles) -> Doubles:
        """Return distances of vectors of such inner products and norms."""
        if self._by_direction:
            apart = 1.0 - inner / np.maximum(first * second, _TINY)
        else:
            apart = (first**2 + second**2) / 2 - inner
        return np.asarray(np.maximum(apart, 0.0))

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
            if self.is_crossed:
                # Towards no vector that is nearer: of attributes of two vectors none would be made.
                least = (rising[:, None, :last] < self.near[:, :, None]).sum(axis=2)
            else:
                # A repetition of the query lies in no direction from it.
                least = (rising[:, :last] <= self._floor).sum(axis=1, keepdims=True)
            places = np.maximum(places, least)
        self._nearest = order[:, :_ALIKE]
        self._farther_shares = scipy.special.digamma(1.0 + places)
        # Drawn here once: threads make near vectors at the same time.
        self._coins = self._stream.words(self.near.size, np.uint32).reshape(self.near.shape)
        self._sources = np.take_along_axis(order, places, axis=1)
        if self.is_crossed and self.near.size:
            self._cross(rising[:, :_SOURCES])

    def _cross(self, rising: Doubles) -> None:
        """Give near vectors as many attributes of a farther one as their distances take.

        They are put at the nearest distance that the sample knows, nearest first: distances of
        vectors of few values tie, and what ties with a true neighbour is true, too.
        """
        every = np.arange(self.near.shape[1])
        chances = self._stream.uniform(*self.near.shape)
        reached = np.empty_like(self.near)
        self._share = np.empty_like(self.near)
        for row, coins in enumerate(self._coins):
            ends = self._ends(np.full(len(every), row), self._sources[row])
            self._share[row], reached[row] = self._taken(*ends, coins, self.near[row], chances[row])
        known = np.unique(rising)
        places = np.searchsorted((known[1:] + known[:-1]) / 2, reached)
        reached = np.minimum(known[places], rising[:, [_REPLACED]])
        order = np.argsort(reached, axis=1)
        self.near, self._share, self._coins, self._sources = (
            np.take_along_axis(each, order, axis=1)
            for each in (reached, self._share, self._coins, self._sources)
        )

    def _ends(self, asked: Integers, sources: Integers) -> tuple[Any, Any]:
        """Return queries, and vectors that near ones lie towards, as CSR matrices."""
        first = scipy.sparse.csr_matrix(self.queries[asked])
        return first, scipy.sparse.csr_matrix(self.vectors[sources])

    def _taken(
        self, first: Any, second: Any, coins: Integers, near: Doubles, chances: Doubles
    ) -> tuple[Doubles, Doubles]:
        """Return shares of attributes of the first, to be so near, and distances reached.

        Each is one of two that enclose what is wanted, which it is on average: with shares of
        coins alone the nearest of many were too near, and .05 to .12 too much was promised of bits.
        """
        inner, squares = _steps(first, second, coins)
        norms = row_norms(first)[:, None]
        steps = self._apart(inner, norms, np.sqrt(np.maximum(squares, 0.0)))
        highest = np.maximum.accumulate(steps, axis=1)
        after = np.minimum((highest <= near[:, None]).sum(axis=1), _STEPS)
        rows = np.arange(len(near))
        low, high = highest[rows, after - 1], highest[rows, after]
        is_before = near - low < chances * (high - low)
        taken = after - is_before
        return 1.0 - taken / _STEPS, steps[rows, taken]

    def _crossed_vectors(self, rows: Integers, ranks: Integers) -> Any:
        """Return near vectors that have attributes of two others, as a CSR matrix."""
        chosen = np.ix_(rows, ranks)
        asked = np.repeat(rows, len(ranks))
        first, second = self._ends(asked, self._sources[chosen].ravel())
        made = _crossed(first, second, self._share[chosen].ravel(), self._coins[chosen].ravel())
        # Others keep their values: longer rows of bits would have values beyond them.
        if self._on_sphere and abs(float(self._norms[0]) - 1.0) <= _SAME_NORM:
            scale = self._asked_norms[asked] / np.maximum(row_norms(made), _TINY)
            made.data *= np.repeat(scale, np.diff(made.indptr)).astype(np.float32)
        return made

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
        spacings = spacings[:, :_REPLACED].mean(axis=0) / number
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
        # No farther than the first vector that is left, be that a repetition of the query.
        near = np.exp(logarithms[:, [_REPLACED]] - own[:, None] * fall)
        near = np.minimum(near, rising[:, [_REPLACED]])
        repeated = (rising[:, :_REPLACED] <= self._floor).sum(axis=1, keepdims=True)
        near[self._edges[1:] <= repeated * self.vectors_per_row] = 0.0
        return np.asarray(near)

    def _farther_places(self, last: int) -> Integers:
        """Return the place of the vector that each near rank is made towards, at most ``last``.

        It is as many behind the first as there are vectors nearer than the rank: as many groups as
        by Poisson's law. Where vectors are codewords, what is reported depends on it.
        """
        chance = self._stream.uniform(*self.near.shape)
        size = len(self.labels) / len(np.unique(self.labels))
        nearer = self._edges[1:] / self.vectors_per_row / size
        upto = scipy.special.pdtr(np.arange(last)[:, None], nearer)
        groups = (upto[:, None] < chance).sum(axis=0)
        return np.asarray(np.minimum(groups * size, last).astype(np.intp))

    def near_vectors(self, rows: Integers, ranks: Integers) -> _Near:
        """Return near vectors of some queries, and the groups that they lie towards.

        The last ones are kept: specs are compared by the same queries.
        """
        key = (rows.tobytes(), ranks.tobytes())
        made = self._made.get(key)
        if made is None:
            made = self._new_near_vectors(rows, ranks)
            last = [] if issparse(self.vectors) else [*self._made.items()][1 - _KEPT :]
            self._made = {**dict(last), key: made}
        return made

    def _new_near_vectors(self, rows: Integers, ranks: Integers) -> _Near:
        """Return the vectors of some near ranks of some queries.

        Values stay within those of the sample, and norms if they are equal, which a spec may state.
        A sparse vector, or one of few values, has each attribute of the query or of a farther
        vector: it has no others, and noise may depend on how large they are.
        """
        chosen = np.ix_(rows, ranks)
        sources = self._sources[chosen].ravel()
        if self.is_crossed:
            made = self._crossed_vectors(rows, ranks)
            return made if issparse(self.vectors) else made.toarray(), self.labels[sources]
        asked = np.repeat(rows, len(ranks))
        shares = self._near_shares[ranks] - self._farther_shares[chosen]
        made = self._between(asked, sources, self.near[chosen].ravel(), shares.reshape(-1, 1))
        return made, self.labels[sources]

    def _between(self, asked: Integers, sources: Integers, near: Doubles, shares: Doubles) -> Any:
        """Return dense vectors that lie so near to queries, towards vectors that lie farther.

        ``shares`` are the logarithms of how much nearer their ranks are, shape (b, 1).
        """
        made = self._placed(asked, sources, near[:, None], shares)
        norms = self._asked_norms[asked]
        if self._by_direction:
            # Lengths go on to differ from the query's as those of near vectors do.
            factors = np.exp(shares.ravel() * self._length_slope / 2)
            lengths = norms * (np.maximum(self._norms[sources], _TINY) / norms) ** factors
            made *= lengths[:, None].astype(np.float32)
        return self._kept_within(made, norms)

    def sources(self, rows: Integers) -> Integers:
        """Return the vectors that near ones of some queries are made towards, query by query."""
        return self._sources[rows].ravel()

    def tested(self) -> tuple[Any, Any, Any, Any]:
        """Return queries, vectors near to them, farther ones, and vectors made between, (n, dim).

        These lie towards the farther ones, as near as the near ones do.
        """
        rows = spaced(len(self.distances), _TESTED)
        real, sources = (part.ravel() for part in np.split(self._nearest[rows].T, 2))
        asked = np.tile(rows, _REPLACED)
        near = self.distances[asked, real]
        if self.is_crossed:
            ends = self._ends(asked, sources)
            stream = PublicStream(0, "plan tested")
            coins, chances = stream.words(len(asked), np.uint32), stream.uniform(len(asked))
            made: Any = _crossed(*ends, self._taken(*ends, coins, near, chances)[0], coins)
            made = made if issparse(self.vectors) else made.toarray()
        else:
            places = scipy.special.digamma(1.0 + np.arange(_ALIKE))
            nearer = np.repeat(places[:_REPLACED] - places[_REPLACED:], len(rows))
            made = self._between(asked, sources, near, nearer[:, None])
        return self.queries[asked], self.vectors[real], self.vectors[sources], made

    def _kept_within(self, made: Floats, norms: Doubles) -> Floats:
        """Return dense vectors with values within those of the sample, and norms if all have one.

        Shares that are square roots of frequencies have a norm and no values below zero, so that
        rows are clipped and brought to their norm in turns, until both nearly hold.
        """
        low, high = self.vectors.min(), self.vectors.max()
        for _ in range(_TURNS if self._on_sphere else 0):
            outside = np.flatnonzero((made.min(axis=1) < low) | (made.max(axis=1) > high))
            if not outside.size:
                break
            clipped = made[outside].clip(low, high)
            lengths = norms[outside] / np.maximum(row_norms(clipped), _TINY)
            made[outside] = clipped * lengths[:, None].astype(np.float32)
        return np.clip(made, low, high, out=made)

    def _placed(self, asked: Integers, sources: Integers, near: Doubles, shares: Doubles) -> Any:
        """Return dense vectors at some distances from queries, as they are compared.

        They lie towards vectors of the sample, but differ where near vectors do: a query and its
        nearest agree most where vectors vary most, and codes of designs keep nothing else.
        """
        centre = self._compared[1][asked]

        def from_queries(vectors: Floats, queries: Floats) -> Any:
            return vectors[sources] - queries[asked]

        inside = from_queries(*self._inside)
        factors = np.exp(shares * self._slopes / 2)
        apart = self._bands.scaled(from_queries(*self._compared), inside, factors)
        across = 2.0 * near
        if self._by_direction:  # on an arc: half a squared distance is a cosine's
            across = near * (2.0 - near)
            apart -= np.einsum("bd,bd->b", apart, centre)[:, None] * centre
            centre = centre * (1.0 - near).astype(np.float32)
        squares = np.einsum("bd,bd->b", apart, apart)[:, None]
        apart *= np.sqrt(across / np.maximum(squares, _TINY)).astype(np.float32)
        return centre + apart

    @cached_property
    def _bands(self) -> Bands:
        vectors, _ = self._compared
        return Bands(vectors)

    @cached_property
    def _inside(self) -> _Compared:
        """Vectors and queries in principal directions, for which products are at hand."""
        vectors, queries = (some @ self._bands.directions.T for some in self._compared)
        return vectors, queries

    @cached_property
    def _slopes(self) -> Doubles:
        """Exponents of differences in each band and in the rest.

        The mean squared difference of a query and its k-th nearest is taken to be a power of the
        share that k is.
        """
        vectors, queries = self._inside
        apart = vectors[self._nearest] - queries[:, None]
        whole = np.take_along_axis(self.distances, self._nearest, axis=1).mean(axis=0)
        return _exponents(self._bands.squares(apart, 2.0 * whole))

    @cached_property
    def _length_slope(self) -> float:
        """Exponent of the mean square of logarithms by which lengths of near vectors differ."""
        norms = np.maximum(self._norms[self._nearest], _TINY)
        squares = np.square(np.log(norms / self._asked_norms[:, None])).mean(axis=0)
        return float(_exponents(np.maximum(squares, _TINY)))

    @cached_property
    def _compared(self) -> _Compared:
        """Vectors and queries, of norm 1 if they are compared by their directions."""
        if self._by_direction:
            return unit(self.vectors), unit(self.queries)
        return self.vectors, self.queries

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
        tied = rising - TIE if self._by_direction else rising * (1.0 - TIE)
        before = np.cumsum(weight, axis=1) - weight
        for row, distances in enumerate(rising):
            last = distances[np.searchsorted(before[row], NEIGHBOURS) - 1]
            count = np.searchsorted(tied[row], last, side="right")
            first = np.searchsorted(distances, tied[row, :count])
            self._nearer[row, columns[row, :count]] = before[row, first]

    def codewords_of(self, labels: Integers) -> Bools:
        """Return which codewords are of the groups of these labels, (n, K)."""
        return np.asarray((labels[:, None, None] == self.codewords).any(axis=1))

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
            Of each query with each code of each vector, or their places in an order from 0 as
            int16. Those that it does not see become −∞, or −1.
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
        are_places = scores.dtype == np.int16
        np.copyto(scores, -1 if are_places else -np.inf, where=~seen)
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
        # Places are sorted by their digits, in a fifth of the time that scores take.
        kind: Literal["stable"] | None = "stable" if are_places else None
        for query, rising in enumerate(-scores.reshape(len(rows), -1)):
            # Behind the largest number nothing is found, so that only what comes before is sorted.
            last = int(numbers[:, query].max() / of_code[query]) + 1
            if not are_places and last < len(rising):
                rising = rising[rising <= np.partition(rising, last)[last]]
            codes = np.sort(rising, kind=kind)
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


class Bands:
    """Bands of principal directions of some vectors, and the rest: differences have parts in each.

    ``directions`` has shape (c, k) for vectors of shape (m, k).
    """

    def __init__(self, vectors: Floats) -> None:
        some = vectors[spaced(len(vectors), _FOR_DIRECTIONS)]
        some = some - some.mean(axis=0)
        values, combined = np.linalg.eigh(some @ some.T)
        count = min(_DIRECTIONS, int((values > 1e-6 * values[-1]).sum()))
        self.directions: Floats = unit((combined.T @ some)[::-1][:count])
        self._starts = [start for start in _BANDS if start < count]
        self._band_of = np.searchsorted(self._starts, np.arange(count), side="right") - 1

    def squares(self, inside: Floats, whole: Doubles) -> Doubles:
        """Return mean squares of the parts of differences, (…, bands + 1).

        They are ``inside`` in these directions, (n, …, c), and their mean squares are ``whole``.
        """
        mean_squares = (inside.astype(np.float64) ** 2).mean(axis=0)
        squares = np.add.reduceat(mean_squares, self._starts, axis=-1)
        whole = whole[..., None]
        rest = whole - squares.sum(axis=-1, keepdims=True)
        every = np.concatenate([squares, rest], axis=-1)
        return np.asarray(np.maximum(every, 1e-6 * whole + _TINY))

    def scaled(self, apart: Floats, inside: Floats, factors: Doubles) -> Any:
        """Return differences, which are overwritten, with factors of shape (n, bands + 1)."""
        factors = factors.astype(np.float32)
        rest = factors[:, -1:]
        inside = (factors[:, :-1] - rest).take(self._band_of, axis=1) * inside
        apart *= rest
        apart += inside @ self.directions
        return apart


def _exponents(squares: Doubles) -> Doubles:
    """Return powers of the shares that ranks are by which mean squares grow, rank by rank."""
    shares = scipy.special.digamma(1.0 + np.arange(len(squares)))
    return np.asarray(np.polyfit(shares, np.log(squares), 1)[0])


def _has_few_values(vectors: Floats) -> bool:
    """Return whether dense vectors have few values, or hardly others than a few."""
    some = vectors[spaced(len(vectors), 1 + _COUNTED_NUMBERS // vectors.shape[1])]
    counts = np.unique(some, return_counts=True)[1]
    if vectors.shape[1] <= _FEW_COLUMNS:
        return len(counts) <= _FEW_OF_TABLE
    common = np.sort(counts)[-_FEW_VALUES:].sum()
    return bool(common >= _FEW_ARE * some.size)


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


def _steps(first: Any, second: Any, words: Integers) -> tuple[Doubles, Doubles]:
    """Return inner products with the first, and squares, as rows become those of the second.

    Both have shape (n, 1 + steps). In each step it takes attributes of the coins of a bin.
    """
    count = first.shape[0]

    def sums(part: Any, values: AnyArray) -> Doubles:
        bins = np.floor((1.0 - _coins_of(part, words)) * _STEPS).astype(np.intp)
        rows = np.repeat(np.arange(count), np.diff(part.indptr))
        places = rows * _STEPS + np.minimum(bins, _STEPS - 1)
        added = np.bincount(places, weights=values, minlength=count * _STEPS)
        every: Doubles = np.cumsum(added.reshape(count, _STEPS), axis=1)
        return np.pad(every, ((0, 0), (1, 0)))

    common = scipy.sparse.csr_matrix(first.multiply(second))
    given = sums(first, np.square(first.data, dtype=np.float64))
    left = given[:, -1:] - given
    taken = sums(second, np.square(second.data, dtype=np.float64))
    return left + sums(common, common.data), left + taken


def _coins_of(part: Any, words: Integers) -> Doubles:
    """Return a coin from 0 to 1 for each entry of a CSR matrix, by its row and its attribute."""
    mixed = part.indices.astype(np.uint32) ^ np.repeat(words, np.diff(part.indptr))
    mixed = mixed * np.uint32(2654435761)
    coins = (mixed ^ mixed >> np.uint32(15)) * np.uint32(2246822519) / 2.0**32
    return np.asarray(coins)


def _crossed(first: Any, second: Any, share: Doubles, words: Integers) -> Any:
    """Return rows that have each attribute of one CSR matrix or of another, by a coin for each."""

    def kept(part: Any, inside: bool) -> Any:
        entries = np.diff(part.indptr)
        left = part.copy()
        left.data[(_coins_of(part, words) < np.repeat(share, entries)) != inside] = 0
        left.eliminate_zeros()
        return left

    return kept(first, True) + kept(second, False)
