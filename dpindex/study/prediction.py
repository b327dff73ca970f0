"""Prediction for one spec: a trial on public vectors, with ranks scaled to the collection.

Codes of the vectors of a population (:mod:`dpindex.study.population`), and of those that are made
for its near ranks, are drawn and scored as an index draws and scores them. Each counts for as many
vectors of the collection as it stands for.

No vector is encoded by a codeword of its own group.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TypeAlias

import numpy as np

from dpindex.base.arrays import (
    AnyArray,
    Doubles,
    Integers,
    Vectors,
    row_blocks,
    spaced,
    stacked,
)
from dpindex.decode import decoder_of
from dpindex.decode.base import PrivateQueries, Queries
from dpindex.decode.denoiser import Denoiser
from dpindex.decode.fit import DenoiserKind, fit_denoiser, fit_if_possible
from dpindex.decode.guided import guide_of, worth_of
from dpindex.index.search import QueryMode
from dpindex.mechanism.codes import Codes
from dpindex.mechanism.noise.base import SymbolLaw
from dpindex.mechanism.privatizer import Privatizer
from dpindex.mechanism.spec import Spec
from dpindex.study.draws import asked_of, draws_of, items_of, noisy_codes, own_scores
from dpindex.study.population import Population
from dpindex.study.row import FoundShares, Row

# Codes of each vector that are counted. With 5 precision is .01 to .02 too high, as each stands for
# more vectors of the collection.
COUNTED_ROUNDS = 12
Denoisers: TypeAlias = dict[tuple[Spec, DenoiserKind, int], Denoiser | None]
"""Those of a plan, by spec, kind and number of codes, that learned from some other vectors."""

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


def information(spec: Spec, noise: float, vectors: Vectors) -> float:
    """Return how much a code of numbers tells about its vector, in nats.

    That is of normal vectors in normal noise: ½ log det(1 + S/N) (Shannon 1949).
    """
    exact = Privatizer(spec).project(vectors) * spec.step
    deviation = noise * float(exact.std(axis=0).mean())
    ratios = np.cov(exact / max(deviation, 1e-30), rowvar=False)
    return float(np.linalg.slogdet(np.eye(spec.code_length) + ratios)[1] / 2)


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
    fitted: int = 0,
    learned: Denoisers | None = None,
) -> list[Row]:
    """Return the row of codes as they are, and one of denoised codes if a denoiser can be fitted.

    Parameters
    ----------
    spec, population, rounds, fitted
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
    learned : dict, optional
        Denoisers by their spec, kind and number of codes, kept here if they are learned from
        other vectors: they are as good for other queries.
    """
    prediction = Prediction(spec, population, rounds, fitted)
    size = prediction.codes.stored[0].nbytes
    denoisers: list[Denoiser | None] = [None]
    if denoise is not None and noise >= _NO_NOISE:
        known: Denoisers = {} if learned is None or population.others is None else learned
        key = (spec, denoise, fitted or rounds)
        if key not in known:
            fit = partial(fit_denoiser, prediction.codes_to_learn_from, spec)
            known[key] = fit_if_possible(fit, spec, denoise)
        denoiser = known[key]
        if denoiser is not None:
            denoisers = [None, denoiser] if plain else [denoiser]
    every = population.queries.shape[0]
    asked = spaced(every, every if queries is None else queries)
    found = prediction.found(ladder, asked, denoisers, on_average)
    rows = []
    for denoiser, shares in zip(denoisers, found, strict=True):
        used = None if denoiser is None else denoise
        rows.append(Row(spec, used, shares["private"], shares["exact"], size, noise))
    return rows


class Prediction:
    """The codes of a population under one spec, with fresh noise.

    Parameters
    ----------
    spec : Spec
    population : Population
    rounds : int
        Codes of each vector that are counted, at most.
    fitted : int
        Codes that a denoiser is fitted to; by default so many of each vector.

    Attributes
    ----------
    codes : Codes
        Of all vectors in a first round, then of all in a second one, and so on.
    """

    def __init__(self, spec: Spec, population: Population, rounds: int, fitted: int = 0) -> None:
        self._spec = spec
        self._population = population
        self._privatizer = Privatizer(spec)
        self._plain = decoder_of(spec)
        self._draws = draws_of(spec, population)
        # A collection has no more codes than vectors.
        most = max(1, int(population.vectors_per_row))
        self._rounds = min(rounds, most)
        each = rounds
        if fitted:
            each = max(1, fitted // population.vectors.shape[0])
        self._fitted = min(each, most)
        drawn = self._fitted if population.others is None else 0
        self.codes = self._draws.of_vectors(max(self._rounds, drawn))

    @property
    def codes_to_learn_from(self) -> Codes:
        """Codes that a denoiser is fitted to: of others too, if there are any, half of each one's.

        A denoiser of digits that was fitted to codes of a thousand others alone gained a third of
        what one of a whole collection did, and one of two thousand vectors a half. Codes without a
        public part have others if they are long: then these alone.
        """
        population = self._population
        if population.others is None:
            return self.codes.take(slice(self._fitted * population.vectors.shape[0]))
        every, rounds = population.others, self._fitted
        if self._spec.public is not None:
            every = stacked([every, population.vectors])
            rounds = max(1, rounds // 2)
        return noisy_codes(self._privatizer, self._privatizer.project(every), rounds)

    def found(
        self,
        ladder: Sequence[int],
        asked: Integers,
        denoisers: Sequence[Denoiser | None] = (None,),
        on_average: int | None = None,
        modes: Sequence[QueryMode] = ("private", "exact"),
    ) -> list[dict[QueryMode, FoundShares]]:
        """Return what queries find in each mode, with each denoiser, or of codes as they are.

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
        items = [items_of(decoder, counted, population.metric) for decoder in decoders]
        powers = [dict.fromkeys(modes, 0.0) for _ in decoders]
        if population.near.size:
            powers = [self._draws.powers(decoder, modes) for decoder in decoders]
        sums = np.zeros((len(decoders), len(modes), 1 + len(ladder)))
        for block in row_blocks(len(asked), self._queries_at_once):
            rows = asked[block]
            absent = None
            if population.codewords is not None:
                own = population.codewords_of(population.asked_labels[rows])
                absent = own[:, counted.stored.reshape(self._rounds, -1)]
            queries = [self._queries(mode, rows) for mode in modes]
            near = {} if population.near.size else {0.0: counted.take(slice(0))}
            for number, decoder in enumerate(decoders):
                # To denoise near ranks takes most of the time, and both modes mostly share them.
                items_near: dict[float, AnyArray] = {}
                for place, power in enumerate(powers[number].values()):
                    if power not in near:
                        near[power] = self._draws.of_near(rows, power)
                    if power not in items_near:
                        items_near[power] = items_of(decoder, near[power], population.metric)
                    near_items = items_near[power]
                    vectors = asked_of(decoder, queries[place], population.metric)
                    scores = self._scores(vectors, items[number], near_items)
                    found = population.found(rows, *scores, ladder[0], ladder, absent)
                    if guided is not None:
                        both = (items[number], near_items)
                        scores, taken = self._guided(queries[place], *both, ladder[0], guided)
                        among = population.found(rows, *scores, ladder[0], (taken,), absent)
                        found[:, 1 + ladder.index(guided)] = among[:, -1]
                    sums[number, place] += found.sum(axis=0)
        means = sums / len(asked)
        return [
            {mode: _shares(mean, ladder) for mode, mean in zip(modes, of_modes, strict=True)}
            for of_modes in means
        ]

    def _queries(self, mode: QueryMode, rows: Integers) -> Queries:
        """Return some queries of the population, as they are or privatized."""
        if mode == "private":
            return PrivateQueries(self._draws.of_queries(rows), self._spec)
        return self._plain.exact_queries(self._privatizer, self._population.queries[rows])

    @property
    def _queries_at_once(self) -> int:
        """Queries whose near ranks and scores are held at a time."""
        population = self._population
        rows = population.vectors.shape[0]
        # A near rank has the entries of two vectors, and more for each one that is taken by a coin.
        entries = 8 if population.ends.are_crossed else 2
        stored = entries * population.vectors.size // rows
        of_near = population.near.shape[1] * max(stored, self._spec.code_length)
        return int(_MAX_NUMBERS // max(of_near, self._rounds * rows))

    def _scores(
        self, queries: AnyArray, items: AnyArray, near_items: AnyArray
    ) -> tuple[AnyArray, AnyArray]:
        """Return the scores of queries with all codes, (b, rounds, m), and each with its near."""
        count = len(queries)
        scores = queries[:, items] if self._plain.by_symbol else queries @ items.T
        near_scores = own_scores(self._plain, queries, near_items)
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


def _shares(means: Doubles, ladder: Sequence[int]) -> FoundShares:
    """Return shares in the order of :meth:`Population.found`."""
    precision, *within = map(float, means)
    return FoundShares(precision, dict(zip(ladder, within, strict=True)))
