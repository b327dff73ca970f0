"""Prediction for one spec: a trial on public vectors, with ranks scaled to the collection.

Codes of the vectors of a population (:mod:`dpindex.study.population`), and of those that are made
for its near ranks, are drawn and scored as an index draws and scores them. Each counts for as many
vectors of the collection as it stands for.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

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
from dpindex.mechanism.spec import Spec
from dpindex.study.draws import draws_of, noisy_codes
from dpindex.study.population import Population
from dpindex.study.target import FoundShares, Row

# Codes of each vector that are counted. With 5 precision is .01 to .02 too high, as each stands for
# more vectors of the collection.
COUNTED_ROUNDS = 12
# Numbers in vectors or codes that are held at a time.
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
        self._draws = draws_of(spec, population)
        # A collection has no more codes than vectors.
        self._drawn = max(1, min(rounds, int(population.vectors_per_row)))
        self._rounds = min(self._drawn, COUNTED_ROUNDS)
        self.codes = self._draws.of_vectors(self._drawn)

    @property
    def codes_to_learn_from(self) -> Codes:
        """Codes that a denoiser is fitted to: of others too, if there are any, half of each one's.

        A denoiser of digits that was fitted to codes of a thousand others alone gained a third of
        what one of a whole collection did, and one of two thousand vectors a half. Codes without a
        public part have others if they are long: then these alone.
        """
        population = self._population
        if population.others is None:
            return self.codes
        if self._spec.public is None:
            return noisy_codes(self._privatizer, population.others, self._drawn)
        every = stacked([population.others, population.vectors])
        return noisy_codes(self._privatizer, every, max(1, self._drawn // 2))

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
        rows = population.vectors.shape[0]
        stored = 2 * population.vectors.size // rows  # a near rank has the entries of two vectors
        of_near = population.near.shape[1] * max(stored, self._spec.code_length)
        return int(_MAX_NUMBERS // max(of_near, self._rounds * rows))

    def _queries(self, asked: Integers) -> tuple[Queries, Queries]:
        """Return private and exact queries; a private one is one code of its vector."""
        vectors = self._population.queries[asked]
        exact = self._plain.exact_queries(self._privatizer, vectors)
        return PrivateQueries(self._draws.of_queries(asked), self._spec), exact

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
            if self._spec.format_type.are_signs:  # those of equal codes differ by rounding errors
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
        if self._population.near.size == 0:
            return self.codes.take(slice(0))
        return self._draws.of_near(rows)

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
        named: Integers = population.codewords[:, codes.stored.reshape(self._rounds, -1)]
        asked = population.asked_labels[rows, None, None, None]
        return np.asarray((named == asked).any(axis=1))


def _shares(means: Doubles, ladder: Sequence[int]) -> FoundShares:
    """Return shares in the order of :meth:`Population.found`."""
    precision, *within = map(float, means)
    return FoundShares(precision, dict(zip(ladder, within, strict=True)))
