"""Codes of a population under one spec, drawn and scored as an index draws and scores them.

A near rank has no vector, but a place between a query and a farther vector. Numbers and signs are
drawn of a vector that is made there, symbols by similarities to codewords between those of both.

Such a point shares with the query what near vectors do not, as the rare words of a text, and lies
between others where there is hardly any vector, as pixels are black or white. So it is moved until
points that are as near as real vectors of the sample score as these do. How far is found for each
spec and denoiser, as a power of how much nearer than the farther vector it lies: of texts .13 too
much was promised without it, of digits .10 too little. A share of the way in place of a power puts
the nearest of a collection on the query itself: of codebooks for groups .09 too much was promised.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from functools import cache, cached_property
from typing import TypeAlias

import numpy as np

from dpindex.base.arrays import AnyArray, Bools, Floats, Integers, row_blocks, unit
from dpindex.decode import decoder_of
from dpindex.decode.base import Decoder, Metric, PrivateQueries, Queries
from dpindex.index.search import QueryMode
from dpindex.mechanism.codes import Codes
from dpindex.mechanism.noise.base import ONE, SymbolLaw
from dpindex.mechanism.noise.symbols import CodebookResponse
from dpindex.mechanism.privatizer import Privatizer
from dpindex.mechanism.public_random import PublicStream
from dpindex.mechanism.spec import Spec, block_rows
from dpindex.study.between import Between
from dpindex.study.population import Population
from dpindex.study.sample import is_compared

# The largest power by which places move, and the least difference.
_LARGEST_POWER = 5.0
_LEAST = 1e-9
# Steps in which that is found: with one .06 too much was promised of a design for black and white.
_POWER_STEPS = 2
# Near ranks that share the scores of codewords.
_SHARED = 8
# Codewords in a list: as many as the largest set that is tried.
_LISTED = 96
# Scores of codewords that are held at a time.
_MAX_SCORES = 1 << 20


_Similarities: TypeAlias = tuple[Floats, Bools, AnyArray]
"""Similarities of n vectors to all codewords, (n, K); which codewords are absent for each vector,
(n, K); and how many codewords each one stands for, (n, K), or (1,) where that is one for all."""


def draws_of(spec: Spec, population: Population) -> Draws:
    """Return what draws codes of a population under a spec."""
    if not decoder_of(spec).by_symbol:
        return NumberDraws(spec, population)
    if SymbolLaw.of(spec.law).of_nearest:
        return NearestDraws(spec, population)
    return SymbolDraws(spec, population)


class Draws(ABC):
    """Codes of vectors, queries and near ranks, with fresh noise.

    Parameters
    ----------
    spec : Spec
    population : Population
    """

    def __init__(self, spec: Spec, population: Population) -> None:
        self._population = population
        self._privatizer = Privatizer(spec)
        self._stream = PublicStream(0, "plan draws")
        self._plain = decoder_of(spec, population.metric)
        self._powers: dict[Decoder, dict[QueryMode, float]] = {}

    @cached_property
    def _vectors(self) -> Floats:
        """All vectors as codes are drawn of them: projected, or similar to codewords, (m, k)."""
        return self._privatizer.project(self._population.vectors)

    @cached_property
    def _queries(self) -> Floats:
        """All queries, as the vectors, (q, k)."""
        return self._privatizer.project(self._population.queries)

    @abstractmethod
    def of_vectors(self, rounds: int) -> Codes:
        """Return ``rounds`` codes of each vector: of all in a first round, then in a second one."""

    @abstractmethod
    def of_queries(self, rows: Integers) -> Codes:
        """Return a code of each of some queries."""

    @abstractmethod
    def of_near(self, rows: Integers, power: float) -> Codes:
        """Return a code of each near rank of some queries, query by query, so far moved."""

    @abstractmethod
    def _to_compare(self, name: str, places: Between) -> Codes:
        """Return as many codes of each place, query by query, whose scores are to be compared."""

    def powers(self, decoder: Decoder, modes: Iterable[QueryMode]) -> dict[QueryMode, float]:
        """Return the powers by which places move to where they score as real near vectors do.

        That is by mean scores of exact queries, and by those of private ones where codes of both
        sides are compared with public vectors: of digits places score 1.4 times as far by these.
        Where specs are compared all share one. Scores are nearly linear in the power, but for what
        a window cuts off or a set of codewords hides, so few steps find it.
        """
        population = self._population
        if population.others is None:
            # A denoiser that has learned of the same vectors knows real ones, and not what is made
            # between them: of bits .15 too much was promised of a square wave.
            decoder = self._plain
        have_own = is_compared(self._privatizer.spec) and not population.coarse
        asking: dict[QueryMode, QueryMode] = {mode: mode if have_own else "exact" for mode in modes}
        known = self._powers.setdefault(decoder, {})
        if not known.keys() >= {*asking.values()}:
            known.update(self._new_powers(decoder, dict.fromkeys(asking.values())))
        return {mode: known[as_mode] for mode, as_mode in asking.items()}

    def _new_powers(self, decoder: Decoder, modes: Iterable[QueryMode]) -> dict[QueryMode, float]:
        population = self._population
        rows, real, places = population.tested()

        @cache
        def items(power: float | None) -> AnyArray:
            """Return codes of moved places, and of real vectors without a power."""
            some = real if power is None else places.moved(power)
            codes = self._to_compare(str(power), some)
            return items_of(decoder, codes, population.metric)

        def power_of(mode: QueryMode) -> float:
            queries: Queries
            if mode == "private":
                queries = PrivateQueries(self.of_queries(rows), self._privatizer.spec)
            else:
                queries = decoder.exact_queries(self._privatizer, population.queries[rows])
            asking = asked_of(decoder, queries, population.metric)

            def score(power: float | None) -> float:
                return float(own_scores(decoder, asking, items(power)).mean())

            farther = score(0.0)
            wanted = score(None) - farther
            power = 1.0
            for _ in range(_POWER_STEPS):
                power *= wanted / max(score(power) - farther, _LEAST)
                power = min(max(power, 0.0), _LARGEST_POWER)
            return power

        return {mode: power_of(mode) for mode in modes}


class NumberDraws(Draws):
    """Numbers and signs."""

    def of_vectors(self, rounds: int) -> Codes:
        """Return ``rounds`` codes of each vector: of all in a first round, then in a second one."""
        return noisy_codes(self._privatizer, self._vectors, rounds)

    def of_queries(self, rows: Integers) -> Codes:
        """Return a code of each of some queries."""
        return noisy_codes(self._privatizer, self._queries[rows], 1)

    def of_near(self, rows: Integers, power: float) -> Codes:
        """Return a code of each near rank of some queries, query by query, so far moved."""
        every = np.arange(self._population.near.shape[1])
        places = self._population.between(rows, every).moved(power)
        return noisy_codes(self._privatizer, self._at(places), 1)

    def _to_compare(self, name: str, places: Between) -> Codes:
        # All get the same noise, which cancels: a code of each is as good as four.
        stream = PublicStream(0, "plan tested codes")
        privatizer = Privatizer(self._privatizer.spec, stream=lambda: stream)
        return noisy_codes(privatizer, self._at(places), 1)

    def _at(self, places: Between) -> Floats:
        """Return what lies at some places, projected, (n, k)."""
        if np.array_equal(places.near, places.far):
            return self._vectors[places.sources]
        return self._privatizer.project(self._population.ends.vectors_at(places))


def noisy_codes(privatizer: Privatizer, exact: Floats, rounds: int) -> Codes:
    """Return ``rounds`` codes of each projected vector, with fresh noise each."""
    spec = privatizer.spec
    drawn = []
    for _ in range(rounds):
        for rows in row_blocks(len(exact), block_rows(spec, sparse=True)):
            noisy = spec.law.perturb(exact[rows], privatizer.stream())
            drawn.append(spec.format.pack(noisy))
    return spec.format.codes(spec.format.concatenate(drawn))


class SymbolDraws(Draws):
    """Symbols that are drawn by similarities to all codewords.

    Vectors are encoded by no codeword of their own groups, and near ranks by none of the groups
    of the two that they lie between.
    """

    def __init__(self, spec: Spec, population: Population) -> None:
        super().__init__(spec, population)
        self._law = SymbolLaw.of(spec.law)
        self._format = spec.format

    def of_vectors(self, rounds: int) -> Codes:
        """Return ``rounds`` codes of each vector: of all in a first round, then in a second one."""
        labels = self._population.labels

        def similar(some: slice) -> _Similarities:
            own = labels[some]
            return self._vectors[some], self._are_of(own), self._times(own)

        return self._packed(self._symbols("vectors", len(labels), similar, rounds).T)

    def of_queries(self, rows: Integers) -> Codes:
        """Return a code of each of some queries."""
        labels = self._population.asked_labels[rows]

        def similar(some: slice) -> _Similarities:
            own = labels[some]
            return self._queries[rows[some]], self._are_of(own), self._times(own)

        return self._packed(self._symbols(f"queries {rows.tolist()}", len(rows), similar, 1))

    def of_near(self, rows: Integers, power: float) -> Codes:
        """Return a code of each near rank of some queries, query by query, so far moved.

        Similarities to all codewords take the time, and draws none: eight ranks share the middle
        one.
        """
        ranks = self._population.near.shape[1]
        shared = _SHARED * np.arange(-(-ranks // _SHARED))
        middle = np.minimum(shared + _SHARED // 2, ranks - 1)
        places = self._population.between(rows, middle).moved(power)
        symbols = self._symbols_at(f"near {rows.tolist()}", places, _SHARED)
        return self._packed(symbols.reshape(len(rows), -1)[:, :ranks])

    def _to_compare(self, name: str, places: Between) -> Codes:
        return self._packed(self._symbols_at(f"compared {name}", places, _SHARED))

    def _symbols_at(self, name: str, places: Between, rounds: int) -> Integers:
        """Return symbols of what lies at some places, (n, rounds)."""
        population = self._population
        ways = np.sqrt(np.minimum(population.ends.squares(places), 1.0)).astype(np.float32)

        def similar(some: slice) -> _Similarities:
            way = ways[some, None]
            is_vector = way == 1.0
            asked, own = np.unique(places.asked[some], return_inverse=True)
            sources = places.sources[some]
            queries, vectors = self._queries[asked], self._vectors[sources]
            absent = self._are_of(population.asked_labels[asked])
            theirs = self._are_of(population.labels[sources])
            queries[absent] = queries.min()
            if population.codewords is not None and not is_vector.all():
                falling = np.argsort(-queries, axis=1)[own]  # sorted once for each query
                replaced = _without(vectors, falling, absent[own] | theirs)
                vectors = np.where(is_vector, vectors, replaced)
            queries, absent = queries[own], absent[own] | theirs & is_vector
            times = self._times(population.asked_labels[places.asked[some]])
            times = times + self._times(population.labels[sources]) - 1
            return queries + way * (vectors - queries), absent, times

        return self._symbols(name, len(ways), similar, rounds)

    def _are_of(self, labels: Integers) -> Bools:
        """Return which codewords are of the groups of these labels, (n, K)."""
        if self._population.codewords is None:
            return np.zeros((len(labels), self._law.size), dtype=np.bool_)
        return self._population.codewords_of(labels)

    def _times(self, labels: Integers) -> AnyArray:
        """Return how many codewords each stands for, where those of these labels are absent."""
        words = self._population.codewords
        are_grown = words is not None and len(words) == 2
        return self._population.times_of(labels) if are_grown else np.ones(1)

    def _symbols(
        self, name: str, count: int, similar: Callable[[slice], _Similarities], rounds: int
    ) -> Integers:
        """Return symbols of what has a name in all draws, (count, rounds)."""
        drawn = []
        for some in row_blocks(count, _MAX_SCORES // self._law.size):
            scores, absent, times = similar(some)
            chances = self._law.chances_without(scores, absent)
            sums = np.cumsum(chances * times, axis=1)
            places = self._stream.uniform(len(sums), rounds) * sums[:, -1:]
            drawn.append(np.stack([*map(np.searchsorted, sums, places)]))
        return np.concatenate(drawn)

    def _packed(self, symbols: AnyArray) -> Codes:
        return self._format.codes(self._format.pack(symbols.ravel()))


class NearestDraws(SymbolDraws):
    """Symbols that are one of the nearest codewords, or any.

    Sets of nearest codewords of all sizes are read off lists, which all specs of one codebook
    share: places are compared by the nearest codeword alone.
    """

    def _to_compare(self, name: str, places: Between) -> Codes:
        return self._packed(self._symbols_at(f"compared {name}", places, 0))

    def _symbols(
        self, name: str, count: int, similar: Callable[[slice], _Similarities], rounds: int
    ) -> Integers:
        known = self._population.lists
        key = (self._law.codebook.digest, name)
        if key not in known:
            blocks = row_blocks(count, _MAX_SCORES // self._law.size)
            most = _LISTED if rounds else 1
            known[key] = np.concatenate([_nearest(*similar(some)[:2], most) for some in blocks])
        lists = known[key]
        if not rounds:
            return lists
        subset = CodebookResponse.of(self._law).subset
        size = (len(lists), rounds)
        places = (subset * self._stream.uniform(*size)).astype(np.intp)
        random = (self._law.size * self._stream.uniform(*size)).astype(np.intp)
        is_random = self._stream.uniform(*size) < self._law.uniform / ONE
        return np.where(is_random, random, np.take_along_axis(lists, places, axis=1))


def _nearest(scores: Floats, absent: Bools, most: int) -> Integers:
    """Return the codewords of the highest scores that are not absent, the best first, (n, L)."""
    falling = np.where(absent, np.inf, -scores)
    if most == 1:
        return np.asarray(falling.argmin(axis=1)[:, None])
    count = min(most, falling.shape[1])
    columns = np.argpartition(falling, count - 1, axis=1)[:, :count]
    order = np.take_along_axis(falling, columns, axis=1).argsort(axis=1)
    return np.take_along_axis(columns, order, axis=1).astype(np.int32)


def items_of(decoder: Decoder, codes: Codes, metric: Metric) -> AnyArray:
    """Return symbols, (n,), or vectors whose products with queries codes are ranked by."""
    if decoder.by_symbol:
        return np.ravel(codes.stored)
    vectors = decoder.vectors(codes)
    if metric == "l2":
        # |q − x|² falls as q·x − |x|²/2 grows: a last coordinate, which is 1 in queries.
        half_squares = np.einsum("nk,nk->n", vectors, vectors) / 2
        return np.column_stack([vectors, -half_squares])
    return vectors if decoder.shrunken else unit(vectors)


def asked_of(decoder: Decoder, queries: Queries, metric: Metric) -> AnyArray:
    """Return queries as they are compared with items, float32: similarities of all symbols."""
    if decoder.by_symbol:
        return np.asarray(decoder.query_items(queries), dtype=np.float32)
    asked = decoder.query_vectors(queries)
    if metric == "l2":
        return np.column_stack([asked, np.ones(len(asked))]).astype(np.float32)
    return unit(asked)


def own_scores(decoder: Decoder, queries: AnyArray, items: AnyArray) -> AnyArray:
    """Return the scores of each query with its own items, which are as many for each, (q, s)."""
    items = items.reshape(len(queries), -1, *items.shape[1:])
    if decoder.by_symbol:
        return np.take_along_axis(queries, items, axis=1)
    return np.asarray(np.einsum("qsk,qk->qs", items, queries))


def _without(scores: Floats, falling: Integers, absent: Bools) -> Floats:
    """Return scores of codewords for vectors whose own codewords are absent.

    What remains is moved up: the best codeword for a query that is there stands for the best, and
    so on. A codebook has as many words near a query and a vector whatever this lies towards.

    Parameters
    ----------
    scores : array, shape (n, K)
        Of all codewords for the vectors.
    falling : int array, shape (n, K)
        All codewords, the best for the query of each vector first.
    absent : bool array, shape (n, K)
        Codewords of the groups of the vectors and of the queries.
    """
    left = ~np.take_along_axis(absent, falling, axis=1)
    ordered = np.take_along_axis(scores, falling, axis=1)
    moved = np.repeat(scores.min(axis=1, keepdims=True), scores.shape[1], axis=1)
    moved[np.arange(scores.shape[1]) < left.sum(axis=1, keepdims=True)] = ordered[left]
    out = np.empty_like(scores)
    np.put_along_axis(out, falling, moved, axis=1)
    return out
