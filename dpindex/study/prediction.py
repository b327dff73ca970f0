"""Prediction for one spec: a trial on public vectors, with ranks scaled to the collection.

Codes of the vectors of a population (:mod:`dpindex.study.population`), and of those that are made
for its near ranks, are drawn and scored as an index draws and scores them. Each counts for as many
vectors of the collection as it stands for.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from dpindex.base.arrays import (
    AnyArray,
    Bools,
    Doubles,
    Integers,
    Vectors,
    row_blocks,
    spaced,
    stacked,
    unit,
)
from dpindex.decode.base import Decoder, PrivateQueries, Queries
from dpindex.decode.denoiser import Denoiser
from dpindex.decode.fit import DenoiserKind, fit_denoiser, fit_if_possible
from dpindex.decode.guided import guide_of, worth_of
from dpindex.decode.kinds import decoder_of
from dpindex.mechanism.codes import Codes
from dpindex.mechanism.noise.base import SymbolLaw
from dpindex.mechanism.privatizer import Privatizer
from dpindex.mechanism.public_random import PublicStream
from dpindex.mechanism.spec import Spec
from dpindex.study.population import Population
from dpindex.study.target import FoundShares, Row

# Codes of each vector that are counted. With 5 precision is .01 to .02 too high, as each stands for
# more vectors of the collection.
COUNTED_ROUNDS = 12
# Near ranks that share the scores of codewords.
_SHARED = 8
# Numbers in vectors, codes or likelihoods of symbols that are held at a time.
_MAX_NUMBERS = 1 << 22
# Noise share below which no denoiser is tried.
_NO_NOISE = 1e-3


def noise_share(spec: Spec, vectors: Vectors) -> float:
    """Return how much of codes is noise: see :attr:`Row.noise`."""
    if spec.symbols:
        return SymbolLaw.of(spec.law).random_share
    privatizer = Privatizer(spec)
    exact = privatizer.project(vectors) * spec.step
    return spec.format.noise_share(privatizer.privatize(vectors).to_float(), exact)


def predicted_rows(
    spec: Spec,
    population: Population,
    rounds: int,
    ladder: Sequence[int],
    noise: float,
    denoise: DenoiserKind | None = None,
    *,
    queries: int | None = None,
    plain: bool = True,
    on_average: int | None = None,
) -> list[Row]:
    """Return the row of codes as they are, and one of denoised codes if a denoiser can be fitted.

    Parameters
    ----------
    spec, population, rounds
        As of :class:`Prediction`.
    ladder
        As of :meth:`Population.found`.
    noise : float
        See :attr:`Row.noise`.
    denoise : "auto" or "linear", optional
        Kind of the denoiser.
    queries : int, optional
        How many of the population's ask, at most; by default all.
    plain : bool
        Predict codes as they are even if there is a denoiser.
    on_average : int, optional
        As of :meth:`Prediction.found`.
    """
    prediction = Prediction(spec, population, rounds)
    size = prediction.codes.stored[0].nbytes
    denoisers: list[Denoiser | None] = [None]
    if denoise is not None and noise >= _NO_NOISE:
        fit = partial(fit_denoiser, prediction.codes_to_learn_from, spec)
        denoiser = fit_if_possible(fit, spec, denoise)
        if denoiser is not None:
            denoisers = [None, denoiser] if plain else [denoiser]
    every = population.queries.shape[0]
    asked = spaced(every, every if queries is None else queries)
    found = prediction.found(ladder, asked, denoisers, on_average)
    return [
        Row(spec, None if denoiser is None else denoise, *shares, size, noise)
        for denoiser, shares in zip(denoisers, found, strict=True)
    ]


class Prediction:
    """The codes of a population under one spec, with fresh noise.

    Parameters
    ----------
    spec : Spec
    population : Population
    rounds : int
        Codes of each vector, at most. A denoiser is fitted to all, and twelve are counted.

    Attributes
    ----------
    codes : Codes
        Of all vectors in a first round, then of all in a second one, and so on.
    """

    def __init__(self, spec: Spec, population: Population, rounds: int) -> None:
        self._spec = spec
        self._population = population
        self._privatizer = Privatizer(spec)
        self._plain = decoder_of(spec)
        self._stream = PublicStream(0, "plan symbols")
        # A collection has no more codes than vectors.
        self._drawn = max(1, min(rounds, int(population.vectors_per_row)))
        self._rounds = min(self._drawn, COUNTED_ROUNDS)
        self.codes = self._privatized(population.vectors, self._drawn, population.labels)

    def _privatized(
        self,
        vectors: Vectors,
        rounds: int,
        labels: Integers,
        between: tuple[Vectors, Integers] | None = None,
    ) -> Codes:
        """Return ``rounds`` codes of each vector, of no codeword of its group, (rounds·n, k).

        Parameters
        ----------
        labels : int array, shape (n,)
            Groups of the vectors.
        between : vectors, shape (n, dim), and int array, shape (n,), optional
            Of near ranks: the queries that they were made from, and the groups of the vectors that
            they were made towards.
        """
        spec = self._spec
        groups = self._population.codewords
        if groups is None:
            return self._privatizer.privatize(stacked([vectors] * rounds))
        law = SymbolLaw.of(spec.law)
        drawn = []
        for rows in row_blocks(vectors.shape[0], _MAX_NUMBERS // law.size):
            scores = self._privatizer.project(vectors[rows])
            own = labels[rows, None] == groups
            if between is not None:
                queries, towards = between
                of_queries = self._privatizer.project(queries[rows])
                scores = _as_beside(scores, of_queries, towards[rows, None] == groups, own)
            sums = np.cumsum(law.chances_without(scores, own), axis=1)
            places = self._stream.uniform(len(sums), rounds) * sums[:, -1:]
            drawn.append(np.stack([*map(np.searchsorted, sums, places)]))
        symbols = np.concatenate(drawn).T.ravel()
        return spec.format.codes(spec.format.pack(symbols))

    @property
    def codes_to_learn_from(self) -> Codes:
        """Codes that a denoiser is fitted to: of others, if there are any, as many of each."""
        others = self._population.others
        if others is None:
            return self.codes
        return self._privatizer.privatize(stacked([others] * self._drawn))

    def found(
        self,
        ladder: Sequence[int],
        asked: Integers,
        denoisers: Sequence[Denoiser | None] = (None,),
        on_average: int | None = None,
    ) -> list[tuple[FoundShares, FoundShares]]:
        """Return what private and exact queries find, with each denoiser, or of codes as they are.

        Parameters
        ----------
        ladder
            As of :meth:`Population.found`.
        asked : int array
            Queries of the population.
        on_average : int, optional
            A number of the ladder that is a mean: with a guide each query takes what it needs.
        """
        population = self._population
        guided = None if guide_of(self._spec) is None else on_average
        decoders = [decoder_of(self._spec, population.metric, fitted) for fitted in denoisers]
        counted = self.codes.take(slice(self._rounds * population.vectors.shape[0]))
        items = [self._items(decoder, counted) for decoder in decoders]
        sums = np.zeros((len(decoders), 2, 1 + len(ladder)))
        for block in row_blocks(len(asked), self._queries_at_once):
            rows = asked[block]
            queries = self._queries(rows)
            near = self._near_codes(rows)
            absent = self._own_codewords(counted, rows)
            for number, decoder in enumerate(decoders):
                near_items = self._items(decoder, near)
                for mode, asking in enumerate(queries):
                    vectors = self._query_vectors(decoder, asking)
                    scores = self._scores(vectors, items[number], near_items)
                    found = population.found(rows, *scores, ladder[0], ladder, absent)
                    if guided is not None:
                        both = (items[number], near_items)
                        scores, taken = self._guided(asking, *both, ladder[0], guided)
                        among = population.found(rows, *scores, ladder[0], (taken,), absent)
                        found[:, 1 + ladder.index(guided)] = among[:, -1]
                    sums[number, mode] += found.sum(axis=0)
        return [
            (_shares(private, ladder), _shares(exact, ladder))
            for private, exact in sums / len(asked)
        ]

    @property
    def _queries_at_once(self) -> int:
        """Queries whose near ranks and scores are held at a time."""
        population = self._population
        width = max(min(population.vectors.shape[1], _MAX_NUMBERS), self._spec.code_length)
        of_near = population.near.shape[1] * width
        counted = self._rounds * population.vectors.shape[0]
        return int(max(1, _MAX_NUMBERS // max(of_near, counted)))

    def _queries(self, asked: Integers) -> tuple[Queries, Queries]:
        """Return private and exact queries; a private one is one code of its vector."""
        population = self._population
        vectors = population.queries[asked]
        codes = self._privatized(vectors, 1, population.asked_labels[asked])
        exact = self._plain.exact_queries(self._privatizer, vectors)
        return PrivateQueries(codes, self._spec), exact

    def _scores(
        self, queries: AnyArray, items: AnyArray, near_items: AnyArray
    ) -> tuple[AnyArray, AnyArray]:
        """Return the scores of queries with all codes, (b, rounds, m), and each with its near."""
        count = len(queries)
        near = near_items.reshape(count, -1, *near_items.shape[1:])
        if self._plain.by_symbol:
            scores = queries[:, items]
            near_scores = np.take_along_axis(queries, near, axis=1)
        else:
            scores = queries @ items.T
            near_scores = np.einsum("qsk,qk->qs", near, queries)
            if self._plain.by_hamming:  # equal ones differ by rounding errors
                scores = scores.round(5)
                near_scores = near_scores.round(5)
        return scores.reshape(count, self._rounds, -1), near_scores

    def _guided(
        self, queries: Queries, items: AnyArray, near_items: AnyArray, at: int, wanted: int
    ) -> tuple[tuple[AnyArray, AnyArray], Doubles]:
        """Return scores by what cells are worth, and how many candidates each query takes, (b,)."""
        sizes = np.bincount(items, minlength=len(self._spec.codewords))
        counts = np.rint(sizes * (self._population.n / len(items))).astype(np.int64)
        worth = worth_of(self._spec, queries, counts, wanted)
        assert worth is not None
        least = np.minimum(worth.least, worth.scores.max(axis=1, keepdims=True))
        taken = np.clip((worth.scores >= least) @ counts, at, worth.most)
        return self._scores(worth.scores.astype(np.float32), items, near_items), taken

    def _near_codes(self, rows: Integers) -> Codes:
        """Return a code of each near rank of some queries, query by query."""
        population = self._population
        if population.near.size == 0:
            return self.codes.take(slice(0))
        made = population.near_vectors(rows)
        if population.codewords is None:
            return self._privatizer.privatize(made.vectors)
        # Scores of all codewords take the time, and draws none: eight ranks share the middle one.
        ranks = population.near.shape[1]
        shared = np.arange(-(-ranks // _SHARED))
        middle = np.minimum(_SHARED * shared + _SHARED // 2, ranks - 1)
        first = np.arange(0, made.vectors.shape[0], ranks)[:, None]
        chosen = (first + middle).ravel()
        asked = np.repeat(rows, len(shared))
        between = (population.queries[asked], made.towards[chosen])
        labels = population.asked_labels[asked]
        codes = self._privatized(made.vectors[chosen], _SHARED, labels, between)
        place = np.arange(ranks)
        of_query = np.arange(len(first))[:, None] * len(shared) + place // _SHARED
        return codes.take((place % _SHARED * len(chosen) + of_query).ravel())

    def _items(self, decoder: Decoder, codes: Codes) -> AnyArray:
        """Return symbols, (n,), or vectors whose products with queries codes are ranked by."""
        if self._plain.by_symbol:
            symbols: AnyArray = codes.stored.ravel()
            return symbols
        return self._vectors(decoder, codes)

    def _vectors(self, decoder: Decoder, codes: Codes) -> AnyArray:
        vectors = decoder.vectors(codes)
        if self._population.metric == "l2":
            # |q − x|² falls as q·x − |x|²/2 grows: a last coordinate, which is 1 in queries.
            half_squares = np.einsum("nk,nk->n", vectors, vectors) / 2
            return np.column_stack([vectors, -half_squares])
        return vectors if decoder.shrunken else unit(vectors)

    def _query_vectors(self, decoder: Decoder, queries: Queries) -> AnyArray:
        """Return queries as they are compared with items, float32: similarities of all symbols."""
        if self._plain.by_symbol:
            similarities: AnyArray = decoder.query_items(queries).astype(np.float32)
            return similarities
        asked = decoder.query_vectors(queries)
        if self._population.metric == "l2":
            asked = np.column_stack([asked, np.ones(len(asked))])
        else:
            asked = unit(asked)
        return asked.astype(np.float32)

    def _own_codewords(self, codes: Codes, rows: Integers) -> Bools | None:
        """Which codes name a codeword of the own group of some queries, (b, rounds, m)."""
        population = self._population
        if population.codewords is None:
            return None
        named: Integers = population.codewords[codes.stored.reshape(self._rounds, -1)]
        return np.asarray(named == population.asked_labels[rows, None, None])


def _as_beside(scores: Any, of_queries: Any, towards: Bools, own: Bools) -> AnyArray:
    """Return scores of codewords for near ranks that lie beside a vector, and not towards it.

    A near rank that is made towards a codeword is too near to it, and without that codeword few
    report what is nearest to the query. So that gets the score of one that is about as near to the
    query, and as much more as it is nearer.

    Parameters
    ----------
    scores, of_queries : arrays, shape (n, K)
        Of all codewords for near ranks, and for their queries.
    towards, own : bool arrays, shape (n, K)
        Codewords of the groups of the vectors that near ranks are made towards, and of queries.
    """
    level = np.where(towards, of_queries, -np.inf).max(axis=1, keepdims=True)
    apart = np.abs(np.where(towards | own, np.inf, of_queries) - level)
    alike = apart.argmin(axis=1)[:, None]
    beside = np.take_along_axis(scores, alike, axis=1)
    nearer = level - np.take_along_axis(of_queries, alike, axis=1)
    return np.asarray(np.where(towards, beside + nearer, scores))


def _shares(means: Doubles, ladder: Sequence[int]) -> FoundShares:
    """Return shares in the order of :meth:`Population.found`."""
    precision, *within = map(float, means)
    return FoundShares(precision, dict(zip(ladder, within, strict=True)))
