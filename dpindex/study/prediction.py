"""Prediction for one spec: a trial on public vectors, with ranks scaled to the collection.

Codes of the vectors of a population (:mod:`dpindex.study.population`), and of those that are made
for its near ranks, are drawn and scored as an index draws and scores them. Each counts for as many
vectors of the collection as it stands for.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np

from dpindex.base.arrays import AnyArray, Bools, Integers, Vectors, row_blocks, stacked, unit
from dpindex.decode.base import Decoder, PrivateQueries, Queries
from dpindex.decode.denoiser import Denoiser
from dpindex.decode.fit import DenoiserKind, fit_denoiser, fit_if_possible
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
    plain: bool = True,
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
    plain : bool
        Predict codes as they are even if there is a denoiser.
    """
    prediction = Prediction(spec, population, rounds)
    size = prediction.codes.stored[0].nbytes
    denoiser = None
    if denoise is not None and noise >= _NO_NOISE:
        fit = partial(fit_denoiser, prediction.codes_to_learn_from, spec)
        denoiser = fit_if_possible(fit, spec, denoise)
    rows = []
    if plain or denoiser is None:
        rows.append(Row(spec, None, *prediction.found(ladder), size, noise))
    if denoiser is not None:
        rows.append(Row(spec, denoise, *prediction.found(ladder, denoiser), size, noise))
    return rows


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
        # A collection has no more codes than vectors.
        self._drawn = max(1, min(rounds, int(population.vectors_per_row)))
        self._rounds = min(self._drawn, COUNTED_ROUNDS)
        self.codes = self._privatized(population.vectors, self._drawn, population.labels[:, None])
        # A private query is one code of its vector.
        queries = population.queries
        of_queries = self._privatized(queries, 1, population.asked_labels[:, None])
        self._queries: tuple[Queries, Queries] = (
            PrivateQueries(of_queries, spec),
            self._plain.exact_queries(self._privatizer, queries),
        )

    def _privatized(self, vectors: Vectors, rounds: int, labels: Integers) -> Codes:
        """Return so many codes of each vector, of no codeword of its groups, (rounds·n, k)."""
        spec = self._spec
        groups = self._population.codewords
        if groups is None:
            return self._privatizer.privatize(stacked([vectors] * rounds))
        law = SymbolLaw.of(spec.law)
        stream = PublicStream(0, "plan symbols")
        drawn = []
        for rows in row_blocks(vectors.shape[0], _MAX_NUMBERS // law.size):
            scores = self._privatizer.project(vectors[rows])
            own = (labels[rows, :, None] == groups).any(axis=1)
            likelihoods = law.chances_without(scores, own)
            sums = np.cumsum(likelihoods, axis=1)
            places = stream.uniform(len(sums), rounds) * sums[:, -1:]
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
        self, ladder: Sequence[int], denoiser: Denoiser | None = None
    ) -> tuple[FoundShares, FoundShares]:
        """Return what private and exact queries find, of codes as they are or denoised.

        Parameters
        ----------
        ladder
            As of :meth:`Population.found`.
        """
        population = self._population
        decoder = decoder_of(self._spec, population.metric, denoiser)
        counted = slice(self._rounds * population.vectors.shape[0])
        vectors = self._vectors(decoder, self.codes.take(counted))
        asked = [self._query_vectors(decoder, queries) for queries in self._queries]
        of_near = self._near_scores(decoder, asked)
        both = []
        for queries, near in zip(asked, of_near, strict=True):
            scores = self._rounded(queries @ vectors.T)
            scores = scores.reshape(len(queries), self._rounds, -1)
            both.append(population.found(scores, near, ladder, self._own_codewords))
        private, exact = both
        return private, exact

    def _near_scores(self, decoder: Decoder, asked: Sequence[AnyArray]) -> list[AnyArray]:
        """Return the scores of queries with a code of each near rank, (q, s) in each mode."""
        population = self._population
        queries, ranks = population.near.shape
        scores = np.zeros((len(asked), queries, ranks), dtype=np.float32)
        numbers = max(population.vectors.shape[1], self._spec.code_length)
        of_a_query = ranks * min(numbers, _MAX_NUMBERS)
        if ranks == 0:
            return list(scores)
        for rows in row_blocks(queries, max(1, _MAX_NUMBERS // of_a_query)):
            vectors = self._vectors(decoder, self._near_codes(rows))
            vectors = vectors.reshape(-1, ranks, vectors.shape[1])
            for mode, of_queries in enumerate(asked):
                products = np.einsum("qsk,qk->qs", vectors, of_queries[rows])
                scores[mode, rows] = self._rounded(products)
        return list(scores)

    def _near_codes(self, rows: slice) -> Codes:
        """Return a code of each near rank of some queries, query by query."""
        population = self._population
        made = population.near_vectors(rows)
        if population.codewords is None:
            return self._privatized(made.vectors, 1, made.labels)
        # Scores of all codewords take the time, and draws none: eight ranks share the middle one.
        ranks = population.near.shape[1]
        shared = np.arange(-(-ranks // _SHARED))
        middle = np.minimum(_SHARED * shared + _SHARED // 2, ranks - 1)
        first = np.arange(0, made.vectors.shape[0], ranks)[:, None]
        chosen = (first + middle).ravel()
        codes = self._privatized(made.vectors[chosen], _SHARED, made.labels[chosen])
        place = np.arange(ranks)
        of_query = np.arange(len(first))[:, None] * len(shared) + place // _SHARED
        return codes.take((place % _SHARED * len(chosen) + of_query).ravel())

    def _rounded(self, scores: Any) -> Any:
        """Return scores, of which equal ones differ by rounding errors where there are few."""
        if self._plain.by_symbol or self._plain.by_hamming:
            return scores.round(5)
        return scores

    def _vectors(self, decoder: Decoder, codes: Codes) -> AnyArray:
        """Return vectors whose inner products with queries an index ranks codes by, (n, k)."""
        vectors = decoder.vectors(codes)
        if self._population.metric == "l2":
            # |q − x|² falls as q·x − |x|²/2 grows: a last coordinate, which is 1 in queries.
            half_squares = np.einsum("nk,nk->n", vectors, vectors) / 2
            return np.column_stack([vectors, -half_squares])
        return vectors if decoder.shrunken else unit(vectors)

    def _query_vectors(self, decoder: Decoder, queries: Queries) -> AnyArray:
        """Return queries as they are compared with those vectors, float32, (q, k)."""
        asked: AnyArray
        if self._plain.by_symbol and not queries.is_private:
            asked = self._population.queries
        else:
            asked = decoder.query_vectors(queries)
        if self._population.metric == "l2":
            asked = np.column_stack([asked, np.ones(len(asked))])
        else:
            asked = unit(asked)
        return asked.astype(np.float32)

    @cached_property
    def _own_codewords(self) -> Bools | None:
        """Which counted codes name a codeword of a query's own group, (q, rounds, m)."""
        population = self._population
        if population.codewords is None:
            return None
        counted = self.codes.stored[: self._rounds * population.vectors.shape[0]]
        named: Integers = population.codewords[counted.reshape(self._rounds, -1)]
        return np.asarray(named == population.asked_labels[:, None, None])
