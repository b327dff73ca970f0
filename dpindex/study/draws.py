"""Codes of a population under a spec: of its vectors, of its queries and of its near ranks.

No vector is encoded by a codeword of its own group. Sets of nearest codewords of all sizes are read
off lists, which all specs of one codebook share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

import numpy as np

from dpindex.base.arrays import AnyArray, Bools, Floats, Integers, Vectors, row_blocks
from dpindex.decode.kinds import decoder_of
from dpindex.mechanism.codes import Codes
from dpindex.mechanism.noise.base import ONE, SymbolLaw
from dpindex.mechanism.noise.symbols import CodebookResponse
from dpindex.mechanism.privatizer import Privatizer
from dpindex.mechanism.public_random import PublicStream
from dpindex.mechanism.spec import Spec, block_rows
from dpindex.study.population import Population

# Near ranks that share the scores of codewords.
_SHARED = 8
# Scores of codewords that are held at a time.
_MAX_SCORES = 1 << 20
# Codewords in a list: as many as the largest set that is tried.
_LISTED = 96

_Scored: TypeAlias = tuple[Floats, Bools]


def draws_of(spec: Spec, population: Population) -> NoisyProjections | SymbolDraws:
    """Return what draws codes of a population under a spec."""
    if not decoder_of(spec).by_symbol:
        return NoisyProjections(spec, population)
    if SymbolLaw.of(spec.law).of_nearest:
        return NearestDraws(spec, population)
    return SymbolDraws(spec, population)


class NoisyProjections:
    """Numbers and signs: vectors are projected once, whatever the number of codes."""

    def __init__(self, spec: Spec, population: Population) -> None:
        self._population = population
        self._privatizer = Privatizer(spec)

    def of_vectors(self, rounds: int) -> Codes:
        """Return ``rounds`` codes of each vector: of all in a first round, then in a second one."""
        return noisy_codes(self._privatizer, self._population.vectors, rounds)

    def of_queries(self, rows: Integers) -> Codes:
        """Return a code of each of some queries."""
        return self._privatizer.privatize(self._population.queries[rows])

    def of_near(self, rows: Integers) -> Codes:
        """Return a code of each near rank of some queries, query by query."""
        every = np.arange(self._population.near.shape[1])
        made, _ = self._population.near_vectors(rows, every)
        return self._privatizer.privatize(made)


def noisy_codes(privatizer: Privatizer, vectors: Vectors, rounds: int) -> Codes:
    """Return ``rounds`` codes of each vector, with fresh noise each."""
    spec = privatizer.spec
    exact = privatizer.project(vectors)
    drawn = []
    for _ in range(rounds):
        for rows in row_blocks(len(exact), block_rows(spec, sparse=True)):
            noisy = spec.law.perturb(exact[rows], privatizer.stream())
            drawn.append(spec.format.pack(noisy))
    return spec.format.codes(spec.format.concatenate(drawn))


class SymbolDraws:
    """Symbols that are drawn by the scores of all codewords.

    Parameters
    ----------
    spec : Spec
    population : Population
    """

    def __init__(self, spec: Spec, population: Population) -> None:
        self._law = SymbolLaw.of(spec.law)
        self._format = spec.format
        self._population = population
        self._project = Privatizer(spec).project
        self._stream = PublicStream(0, "plan symbols")
        ranks = population.near.shape[1]
        shared = _SHARED * np.arange(-(-ranks // _SHARED))
        self._middle = np.minimum(shared + _SHARED // 2, ranks - 1)

    def of_vectors(self, rounds: int) -> Codes:
        """Return ``rounds`` codes of each vector: of all in a first round, then in a second one."""
        population = self._population
        scored = self._scored(
            population.labels, lambda some: self._project(population.vectors[some])
        )
        return self._codes(self._drawn("vectors", scored, rounds).T)

    def of_queries(self, rows: Integers) -> Codes:
        """Return a code of each of some queries."""
        population = self._population
        queries = population.queries[rows]
        scored = self._scored(
            population.asked_labels[rows], lambda some: self._project(queries[some])
        )
        return self._codes(self._drawn(f"queries {rows.tolist()}", scored, 1))

    def of_near(self, rows: Integers) -> Codes:
        """Return a code of each near rank of some queries, query by query.

        Scores of all codewords take the time, and draws none: eight ranks share the middle one.
        """
        drawn = self._drawn(f"near {rows.tolist()}", self._scored_near(rows), _SHARED)
        of_queries = drawn.reshape(len(rows), -1)
        return self._codes(of_queries[:, : self._population.near.shape[1]])

    def _scored(self, labels: Integers, scores: Callable[[slice], Floats]) -> Iterator[_Scored]:
        """Yield scores of all codewords, and which are of the group of what is scored, (n, K)."""
        for rows in row_blocks(len(labels), _MAX_SCORES // self._law.size):
            yield scores(rows), self._are_of(labels[rows])

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
        groups = self._population.codewords
        if groups is None:
            return np.zeros((len(labels), self._law.size), dtype=np.bool_)
        return np.asarray((labels[:, None, None] == groups).any(axis=1))

    def _drawn(self, name: str, scored: Iterable[_Scored], rounds: int) -> Integers:
        """Return symbols of each vector that is scored, shape (n, rounds)."""
        drawn = []
        for scores, own in scored:
            sums = np.cumsum(self._law.chances_without(scores, own), axis=1)
            places = self._stream.uniform(len(sums), rounds) * sums[:, -1:]
            drawn.append(np.stack([*map(np.searchsorted, sums, places)]))
        return np.concatenate(drawn)

    def _codes(self, symbols: AnyArray) -> Codes:
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
