"""Prediction for one spec: a trial on public vectors, with ranks scaled to the collection.

Codes of the vectors of a population (:mod:`dpindex.study.population`), and of those that are made
for its near ranks, are drawn and scored as an index draws and scores them. Each counts for as many
vectors of the collection as it stands for.

No vector is encoded by a codeword of its own group. Sets of nearest codewords of all sizes are read
off lists, which all specs of one codebook share.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, partial
from typing import TypeAlias

import numpy as np

from dpindex.base.arrays import (
    AnyArray,
    Bools,
    Doubles,
    Floats,
    Integers,
    Vectors,
    row_blocks,
    spaced,
    stacked,
    unit,
)
from dpindex.decode.base import Decoder, Metric, PrivateQueries, Queries
from dpindex.decode.denoiser import Denoiser
from dpindex.decode.fit import DenoiserKind, fit_denoiser, fit_if_possible
from dpindex.decode.guided import guide_of, worth_of
from dpindex.decode.kinds import decoder_of
from dpindex.mechanism.codes import Codes
from dpindex.mechanism.noise.base import ONE, SymbolLaw
from dpindex.mechanism.noise.symbols import CodebookResponse
from dpindex.mechanism.privatizer import Privatizer
from dpindex.mechanism.public_random import PublicStream
from dpindex.mechanism.spec import Spec, block_rows
from dpindex.study.population import Population
from dpindex.study.target import FoundShares, Row

# Codes of each vector that are counted. With 5 precision is .01 to .02 too high, as each stands for
# more vectors of the collection.
COUNTED_ROUNDS = 12
Denoisers: TypeAlias = dict[tuple[Spec, DenoiserKind, int], Denoiser | None]
"""Those of a plan, by spec, kind and number of codes, that learned from some other vectors."""

# Numbers in vectors or codes that are held at a time.
_MAX_NUMBERS = 1 << 22
# Noise share below which no denoiser is tried.
_NO_NOISE = 1e-3
# Near ranks that share the scores of codewords.
_SHARED = 8
# Scores of codewords that are held at a time.
_MAX_SCORES = 1 << 20
# Codewords in a list: as many as the largest set that is tried.
_LISTED = 96
# How far on real near vectors may be, compared with made ones, and the least difference.
_FARTHEST = 5.0
_LEAST = 1e-9

_Scored: TypeAlias = tuple[Floats, Bools]


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
        items = [_items(decoder, counted, population.metric) for decoder in decoders]
        sums = np.zeros((len(decoders), 2, 1 + len(ladder)))
        for block in row_blocks(len(asked), self._queries_at_once):
            rows = asked[block]
            exact = self._plain.exact_queries(self._privatizer, population.queries[rows])
            private = PrivateQueries(self._draws.of_queries(rows), self._spec)
            queries: tuple[Queries, ...] = (private, exact)
            near = counted.take(slice(0))
            if population.near.size:
                near = self._draws.of_near(rows)
            absent = None
            if population.codewords is not None:
                own = population.codewords_of(population.asked_labels[rows])
                absent = own[:, counted.stored.reshape(self._rounds, -1)]
            for number, decoder in enumerate(decoders):
                near_items = _items(decoder, near, population.metric)
                for mode, asking in enumerate(queries):
                    vectors = _asking(decoder, asking, population.metric)
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

    def _scores(
        self, queries: AnyArray, items: AnyArray, near_items: AnyArray
    ) -> tuple[AnyArray, AnyArray]:
        """Return the scores of queries with all codes, (b, rounds, m), and each with its near."""
        count = len(queries)
        near = near_items.reshape(count, -1, *near_items.shape[1:])
        if self._plain.by_symbol:
            if len(items) > 16 * queries.shape[1]:
                # Few different scores: their places in their order are sorted in less time.
                places = [np.sort(row).searchsorted(row) for row in queries]
                queries = np.array(places, dtype=np.int16)
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


def _items(decoder: Decoder, codes: Codes, metric: Metric) -> AnyArray:
    """Return symbols, (n,), or vectors whose products with queries codes are ranked by."""
    if decoder.by_symbol:
        return np.ravel(codes.stored)
    vectors = decoder.vectors(codes)
    if metric == "l2":
        # |q − x|² falls as q·x − |x|²/2 grows: a last coordinate, which is 1 in queries.
        half_squares = np.einsum("nk,nk->n", vectors, vectors) / 2
        return np.column_stack([vectors, -half_squares])
    return vectors if decoder.shrunken else unit(vectors)


def _asking(decoder: Decoder, queries: Queries, metric: Metric) -> AnyArray:
    """Return queries as they are compared with items, float32: similarities of all symbols."""
    if decoder.by_symbol:
        return np.asarray(decoder.query_items(queries), dtype=np.float32)
    asked = decoder.query_vectors(queries)
    if metric == "l2":
        return np.column_stack([asked, np.ones(len(asked))]).astype(np.float32)
    return unit(asked)


def _shares(means: Doubles, ladder: Sequence[int]) -> FoundShares:
    """Return shares in the order of :meth:`Population.found`."""
    precision, *within = map(float, means)
    return FoundShares(precision, dict(zip(ladder, within, strict=True)))


def draws_of(spec: Spec, population: Population) -> NoisyProjections | SymbolDraws:
    """Return what draws codes of a population under a spec."""
    if spec.is_designed or spec.format_type.are_signs:
        return TestedDraws(spec, population)
    if not decoder_of(spec).by_symbol:
        return NoisyProjections(spec, population)
    if SymbolLaw.of(spec.law).of_nearest:
        return NearestDraws(spec, population)
    return SymbolDraws(spec, population)


class NoisyProjections:
    """Numbers and signs: vectors are projected once, whatever the number of codes.

    Parameters
    ----------
    spec : Spec
    population : Population
    """

    def __init__(self, spec: Spec, population: Population) -> None:
        self._population = population
        self._privatizer = Privatizer(spec)
        self._stream = PublicStream(0, "plan draws")

    def of_vectors(self, rounds: int) -> Codes:
        """Return ``rounds`` codes of each vector: of all in a first round, then in a second one."""
        population = self._population
        return self._codes("vectors", population.vectors, population.labels, rounds)

    def of_queries(self, rows: Integers) -> Codes:
        """Return a code of each of some queries."""
        population = self._population
        name = f"queries {rows.tolist()}"
        return self._codes(name, population.queries[rows], population.asked_labels[rows], 1)

    def of_near(self, rows: Integers) -> Codes:
        """Return a code of each near rank of some queries, query by query."""
        every = np.arange(self._population.near.shape[1])
        made, towards = self._population.near_vectors(rows, every)
        return self._codes("near", made, towards, 1)

    def _codes(self, name: str, vectors: Vectors, labels: Integers, rounds: int) -> Codes:
        """Return codes of vectors of some groups, which have one name in all draws."""
        return noisy_codes(self._privatizer, self._privatizer.project(vectors), rounds)


def noisy_codes(privatizer: Privatizer, exact: Floats, rounds: int) -> Codes:
    """Return ``rounds`` codes of each projected vector, with fresh noise each."""
    spec = privatizer.spec
    drawn = []
    for _ in range(rounds):
        for rows in row_blocks(len(exact), block_rows(spec, sparse=True)):
            noisy = spec.law.perturb(exact[rows], privatizer.stream())
            drawn.append(spec.format.pack(noisy))
    return spec.format.codes(spec.format.concatenate(drawn))


class TestedDraws(NoisyProjections):
    """Designs and signs, of which near vectors are found as often as real ones are.

    Vectors that are made share with a query what near ones do not, as the rare words of a text, and
    lie between others where there is hardly any, as pixels are black or white: of texts .13 too
    much was promised, of digits .10 too little. So projections are moved, back to those of farther
    vectors or on to those of queries, by how much nearer real ones of the sample are found.
    """

    def of_vectors(self, rounds: int) -> Codes:
        """Return ``rounds`` codes of each vector: of all in a first round, then in a second one."""
        return noisy_codes(self._privatizer, self._projected, rounds)

    def of_near(self, rows: Integers) -> Codes:
        """Return a code of each near rank of some queries, query by query."""
        population = self._population
        ranks = np.arange(population.near.shape[1])
        project = self._privatizer.project
        own = np.repeat(project(population.queries[rows]), len(ranks), axis=0)
        made = project(population.near_vectors(rows, ranks)[0])
        farther = self._projected[population.sources(rows)]
        return noisy_codes(self._privatizer, self._moved(own, made, farther), 1)

    @cached_property
    def _projected(self) -> Floats:
        return self._privatizer.project(self._population.vectors)

    def _moved(self, own: Floats, made: Floats, farther: Floats) -> Floats:
        """Return projections of near vectors, as much nearer than farther ones as real ones are."""
        way = self._way
        start, reached = self._apart(own, farther), self._apart(own, made)
        ratio = np.maximum(start - way * (start - reached), 0.0) / np.maximum(reached, _LEAST)
        if not self._privatizer.spec.format_type.are_signs:
            return np.rint(own + np.sqrt(ratio).astype(np.float32) * (made - own))
        coins = self._stream.uniform(*made.shape)
        if way > 1.0:
            moved = np.where(coins < ratio, made, own)
        else:
            moved = np.where(coins < way, made, farther)
        # What is equal in both is so in a real one, as the edge of a picture is.
        return np.where(own == farther, own, moved)

    def _apart(self, own: Floats, others: Floats) -> Doubles:
        """Return the squares of differences of projections, or how many signs differ, (n, 1)."""
        if self._privatizer.spec.format_type.are_signs:
            differ: AnyArray = (own > 0) != (others > 0)
        else:
            differ = np.square(own - others, dtype=np.float64)
        return np.asarray(differ.sum(axis=1, keepdims=True), dtype=np.float64)

    @cached_property
    def _way(self) -> float:
        """The share of the way from farther vectors to made ones that real ones are on.

        It is that of their mean scores, by exact queries of codes as they are.
        """
        population, privatizer = self._population, self._privatizer
        asked, *others = population.tested()
        metric = population.metric
        decoder = decoder_of(privatizer.spec, metric)
        asking = _asking(decoder, decoder.exact_queries(privatizer, asked), metric)

        def score(vectors: Vectors) -> float:
            # All get the same noise, which cancels: a code of each vector is as good as four.
            stream = PublicStream(0, "plan tested codes")
            alike = Privatizer(privatizer.spec, stream=lambda: stream)
            codes = noisy_codes(alike, privatizer.project(vectors), 1)
            return float(np.einsum("nk,nk->n", _items(decoder, codes, metric), asking).mean())

        near, farther, made = map(score, others)
        way = (near - farther) / max(made - farther, _LEAST)
        return min(max(way, 0.0), _FARTHEST)


class SymbolDraws(NoisyProjections):
    """Symbols that are drawn by the scores of all codewords."""

    def __init__(self, spec: Spec, population: Population) -> None:
        super().__init__(spec, population)
        self._law = SymbolLaw.of(spec.law)
        self._format = spec.format
        self._project = self._privatizer.project
        ranks = population.near.shape[1]
        shared = _SHARED * np.arange(-(-ranks // _SHARED))
        self._middle = np.minimum(shared + _SHARED // 2, ranks - 1)

    def of_near(self, rows: Integers) -> Codes:
        """Return a code of each near rank of some queries, query by query.

        Scores of all codewords take the time, and draws none: eight ranks share the middle one.
        """
        drawn = self._drawn(f"near {rows.tolist()}", self._scored_near(rows), _SHARED)
        of_queries = drawn.reshape(len(rows), -1)
        return self._packed(of_queries[:, : self._population.near.shape[1]])

    def _codes(self, name: str, vectors: Vectors, labels: Integers, rounds: int) -> Codes:
        scored = (
            (self._project(vectors[some]), self._are_of(labels[some]))
            for some in row_blocks(len(labels), _MAX_SCORES // self._law.size)
        )
        return self._packed(self._drawn(name, scored, rounds).T)

    def _scored_near(self, rows: Integers) -> Iterator[_Scored]:
        population = self._population
        shared = len(self._middle)
        for block in row_blocks(len(rows), _MAX_SCORES // self._law.size // shared):
            asked = rows[block]
            of_queries = self._project(population.queries[asked])
            made, towards = population.near_vectors(asked, self._middle)
            scores = self._project(made)
            of_asked = self._are_of(population.asked_labels[asked])
            own = np.repeat(of_asked, shared, axis=0)
            if population.codewords is not None:
                of_queries[of_asked] = of_queries.min()
                falling = np.repeat(np.argsort(-of_queries, axis=1), shared, axis=0)
                # What a codeword has in common with the query stays, and the rest moves up.
                alike = 1.0 - population.near[asked][:, self._middle].reshape(-1, 1)
                common = alike.astype(np.float32) * np.repeat(of_queries, shared, axis=0)
                rest = _without(scores - common, falling, self._are_of(towards) | own)
                scores = common + rest
            yield scores, own

    def _are_of(self, labels: Integers) -> Bools:
        """Return which codewords are of the groups of these labels, (n, K)."""
        if self._population.codewords is None:
            return np.zeros((len(labels), self._law.size), dtype=np.bool_)
        return self._population.codewords_of(labels)

    def _drawn(self, name: str, scored: Iterable[_Scored], rounds: int) -> Integers:
        """Return symbols of each vector that is scored, shape (n, rounds)."""
        drawn = []
        for scores, own in scored:
            sums = np.cumsum(self._law.chances_without(scores, own), axis=1)
            places = self._stream.uniform(len(sums), rounds) * sums[:, -1:]
            drawn.append(np.stack([*map(np.searchsorted, sums, places)]))
        return np.concatenate(drawn)

    def _packed(self, symbols: AnyArray) -> Codes:
        return self._format.codes(self._format.pack(symbols.ravel()))


class NearestDraws(SymbolDraws):
    """Symbols that are one of the nearest codewords, or any."""

    def _drawn(self, name: str, scored: Iterable[_Scored], rounds: int) -> Integers:
        known = self._population.lists
        key = (self._law.codebook.digest, name)
        if key not in known:
            known[key] = np.concatenate([_nearest(scores, own) for scores, own in scored])
        lists = known[key]
        subset = CodebookResponse.of(self._law).subset
        size = (len(lists), rounds)
        places = (subset * self._stream.uniform(*size)).astype(np.intp)
        random = (self._law.size * self._stream.uniform(*size)).astype(np.intp)
        is_random = self._stream.uniform(*size) < self._law.uniform / ONE
        return np.where(is_random, random, np.take_along_axis(lists, places, axis=1))


def _nearest(scores: Floats, own: Bools) -> Integers:
    """Return the codewords of the highest scores that are not the own, the best first, (n, L)."""
    falling = np.where(own, np.inf, -scores)
    count = min(_LISTED, falling.shape[1])
    columns = np.argpartition(falling, count - 1, axis=1)[:, :count]
    order = np.take_along_axis(falling, columns, axis=1).argsort(axis=1)
    return np.take_along_axis(columns, order, axis=1).astype(np.int32)


def _without(scores: Floats, falling: Integers, absent: Bools) -> Floats:
    """Return scores of codewords for vectors that were made towards some that are absent.

    What remains is moved up: the best codeword for a query that is there stands for the best, and
    so on. A codebook has as many words near a query and a vector whatever this was made towards.

    Parameters
    ----------
    scores : array, shape (n, K)
        Of all codewords for the vectors.
    falling : int array, shape (n, K)
        All codewords, the best for the query of each vector first.
    absent : bool array, shape (n, K)
        Codewords of the groups of the vectors that they were made towards, and of the queries.
    """
    left = ~np.take_along_axis(absent, falling, axis=1)
    ordered = np.take_along_axis(scores, falling, axis=1)
    moved = np.repeat(scores.min(axis=1, keepdims=True), scores.shape[1], axis=1)
    moved[np.arange(scores.shape[1]) < left.sum(axis=1, keepdims=True)] = ordered[left]
    out = np.empty_like(scores)
    np.put_along_axis(out, falling, moved, axis=1)
    return out
