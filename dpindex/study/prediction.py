"""Prediction for one spec: a trial on public vectors, with ranks scaled to the collection.

The codes of public vectors are built and searched as the evaluator builds and searches an index,
and counted by what each stands for (:mod:`dpindex.study.population`). Near ranks have no
vectors. Their scores lie between those of a farther vector's codes and those of the query's own
codes, which are also drawn: a mean score falls behind the own one by a power of the distance, whose
exponent is that of the sampled vectors: near 1/2 for signs, and above 1 where neighbours differ in
directions that a decoder or a denoiser removes. What single vectors differ by from that mean falls
no faster than the distance. The noise is normal, for few draws have no tail, and the best of many
codes are in the tail; of symbols each near rank has one that was drawn for either vector.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np
from scipy.special import ndtri

from dpindex.base.arrays import (
    AnyArray,
    Bools,
    Doubles,
    Integers,
    Vectors,
    row_blocks,
    stacked,
    unit,
)
from dpindex.denoise import Denoiser, DenoiserKind, fit_denoiser, fit_if_possible
from dpindex.mechanism.codes import Codes, SignFormat
from dpindex.mechanism.noise import SymbolLaw
from dpindex.mechanism.privatizer import Privatizer
from dpindex.mechanism.public_random import PublicStream
from dpindex.mechanism.spec import Spec
from dpindex.similarity.designed import decoded, decoded_queries, exact_coordinates
from dpindex.similarity.similarity import ExactQueries, PrivateQueries, Queries
from dpindex.study.population import NEIGHBOURS, Population
from dpindex.study.target import FOUND, FoundShares, Row, never_falling

# Codes of each vector that are counted, and codes of each query's own vector.
COUNTED_ROUNDS = 12
_OWN_CODES = 16
# Ranks of the sampled vectors whose scores give the exponent, and its range.
_FITTED = 50
_EXPONENTS = (0.25, 2.0)
# Chances of symbols that are held at a time.
_MAX_NUMBERS = 1 << 22
# Deviations of all scores that those of a query's own codes lead by, below which a denoiser has
# learned noise: its scores end where it is sure, and no normal noise does.
_MIN_LEAD = 1.0
# Noise share below which no denoiser is tried.
_NO_NOISE = 1e-3
# Scores that differ by less are equal, up to rounding.
_TIE = 2e-6
_APART = 64
_TINY = 1e-30


class Prediction:
    """The codes of a population under one spec, with fresh noise.

    Parameters
    ----------
    spec : Spec
    population : Population
    rounds : int
        Codes of each vector, at most. A denoiser is fitted to all, and twelve are counted.
    """

    def __init__(self, spec: Spec, population: Population, rounds: int) -> None:
        self._spec = spec
        self._population = population
        # A collection has no more codes than vectors.
        self._drawn = max(1, min(rounds, int(population.vectors_per_row)))
        self._rounds = min(self._drawn, COUNTED_ROUNDS)
        self._privatizer = privatizer = Privatizer(spec)
        self.codes = self._privatized(population.vectors, self._drawn, population.labels)
        asked = population.queries
        # Those serve near ranks alone.
        own_codes = _OWN_CODES if population.near.size else 1
        own_and_asked = self._privatized(asked, own_codes + 1, population.asked_labels)
        self._own = own_and_asked.take(slice(asked.shape[0], None))
        self._private = PrivateQueries(own_and_asked.take(slice(asked.shape[0])), spec)
        self._exact = ExactQueries(privatizer.asked(asked), spec, exact_coordinates(asked, spec))
        self._has_symbols = isinstance(spec.law, SymbolLaw)
        self._has_signs = spec.design is None and issubclass(spec.format_type, SignFormat)

    @property
    def _counted(self) -> Codes:
        return self.codes.take(slice(self._rounds * self._population.vectors.shape[0]))

    @cached_property
    def _own_codewords(self) -> Bools | None:
        """Which counted codes name a codeword of a query's own group, (q, rounds, m)."""
        groups = self._population.codewords
        if groups is None:
            return None
        named: Integers = groups[self._counted.stored.reshape(self._rounds, -1)]
        return np.asarray(named == self._population.asked_labels[:, None, None])

    @property
    def codes_to_learn_from(self) -> Codes:
        """Codes that a denoiser is fitted to: of others, if there are any, as many of each."""
        others = self._population.others
        if others is None:
            return self.codes
        return self._privatizer.privatize(stacked([others] * self._drawn))

    def _privatized(self, vectors: Vectors, rounds: int, labels: Integers) -> Codes:
        """Return so many codes of each vector, of no codeword of its own group, (rounds·n, k)."""
        spec = self._spec
        groups = self._population.codewords
        if groups is None:
            return self._privatizer.privatize(stacked([vectors] * rounds))
        stream = PublicStream(0, "plan symbols")
        drawn = []
        for rows in row_blocks(vectors.shape[0], _MAX_NUMBERS // spec.symbol_law.size):
            scores = self._privatizer.project(vectors[rows])
            own = labels[rows, None] == groups
            sums = np.cumsum(spec.symbol_law.chances_without(scores, own), axis=1)
            words = stream.words(rounds * len(sums), np.uint32).reshape(-1, rounds)
            places = words / 2.0**32 * sums[:, -1:]
            drawn.append(np.stack([*map(np.searchsorted, sums, places)]))
        return spec.format.codes(spec.format.pack(np.concatenate(drawn).T.ravel()))

    def found(
        self, at: int, ladder: Sequence[int], denoiser: Denoiser | None = None
    ) -> tuple[FoundShares, FoundShares]:
        """Return what private and exact queries find, of codes as they are or denoised.

        Parameters
        ----------
        at : int
            Answers, and true neighbours, that recall counts.
        ladder : sequence of int
            Numbers of candidates among which true neighbours are counted too.
        """
        codes = self._decoded(self._counted, denoiser)
        own = self._decoded(self._own, denoiser)
        private, exact = (
            self._found(self._asked(queries, denoiser), codes, own, at, ladder, denoiser)
            for queries in (self._private, self._exact)
        )
        return private, exact

    def _decoded(self, codes: Codes, denoiser: Denoiser | None) -> AnyArray:
        """Return the vectors that an index of the metric ranks codes by, (n, k)."""
        by_cosine = self._population.metric == "cosine"
        if self._spec.design is not None:
            vectors = decoded(codes, self._spec, denoiser)
        elif denoiser is not None:
            return denoiser.to_rank(codes) if by_cosine else denoiser(codes)
        else:
            vectors = codes.to_float()
        return unit(vectors) if by_cosine else vectors

    def _asked(self, queries: Queries, denoiser: Denoiser | None) -> AnyArray:
        """Return the vectors that codes are compared with, (q, k)."""
        if self._spec.design is not None:
            asked: AnyArray = decoded_queries(queries, denoiser)[:, :-1]
        elif isinstance(queries, PrivateQueries):
            if denoiser is not None:
                asked = denoiser(queries.codes, queries.spec)
            else:
                asked = self._decoded(queries.codes, None)
        elif self._spec.codebook is not None:
            asked = self._population.queries
        else:
            asked = queries.to_float()
        if self._population.metric == "cosine":
            asked = unit(asked)
        return asked.astype(np.float32)

    def _found(
        self,
        asked: AnyArray,
        codes: AnyArray,
        own: AnyArray,
        at: int,
        ladder: Sequence[int],
        denoiser: Denoiser | None,
    ) -> FoundShares:
        """Return what is found by scores of codes and of a query's own, and by those of near ranks.

        Parameters
        ----------
        asked, codes, own : arrays
            As they are compared: q queries, the counted codes, and codes of the queries' vectors.
        """
        population = self._population
        scores = asked @ codes.T
        own = own.reshape(-1, len(asked), own.shape[1])
        own_scores = np.einsum("qk,rqk->qr", asked, own)
        if population.metric == "l2":
            scores -= np.einsum("nk,nk->n", codes, codes) / 2
            own_scores -= np.einsum("rqk,rqk->qr", own, own) / 2
        if denoiser is not None:
            spread = np.maximum(scores.std(axis=1), _TINY)
            lead = (own_scores.mean(axis=1) - scores.mean(axis=1)) / spread
            if lead.mean() < _MIN_LEAD:
                return FoundShares.by_chance(at, ladder, population.n)
        if self._has_symbols or self._has_signs:  # equal ones differ by rounding errors
            scores = scores.round(5)
            own_scores = own_scores.round(5)
        scores = scores.reshape(len(asked), self._rounds, -1)
        near = population.near
        if near.size:
            near = self._near(scores, own_scores, denoiser is not None)
        return counted(population, scores, near, at, ladder, self._own_codewords)

    def _near(self, scores: AnyArray, own_scores: AnyArray, denoised: bool) -> Doubles:
        """Return a score of each near rank, (q, s), by the kind of code."""
        if self._has_symbols:
            return self._near_symbols(scores, own_scores)
        as_decoded = self._spec.design is not None or not (denoised or self._has_signs)
        if as_decoded and self._population.metric == "cosine":
            # Cosines of numbers with noise end at 1: near ranks lie between their angles.
            angles = np.arcsin(np.clip(scores, -1.0, 1.0))
            near = np.sin(self._near_scores(angles, np.arcsin(np.clip(own_scores, -1.0, 1.0))))
        else:
            near = self._near_scores(scores, own_scores)
        # Codes of few directions crowd at a cosine of 1, where no normal law has its tail: near
        # ranks score no more than the best of the query's own codes.
        near = np.asarray(np.minimum(near, own_scores.max(axis=1, keepdims=True)))
        if self._has_signs:
            # Scores of signs tie: near ranks get one of theirs, at random around their own. No
            # cosine of k signs but 1 is above 1 − 2/k.
            near = np.minimum(near, 1.0 - 1.0 / self._spec.code_length)
            return self._among(scores.reshape(len(near), -1), near)
        return near

    def _near_scores(self, drawn: AnyArray, own_scores: AnyArray) -> Doubles:
        """Return a score of each near rank, (q, s), from scores of the vectors, (q, rounds, m)."""
        population = self._population
        nearest = population.order[:, :_FITTED]
        scores = drawn.mean(axis=1)
        own = own_scores.mean(axis=1, keepdims=True)
        losses = own - np.take_along_axis(scores, nearest, axis=1)
        exponent = self._exponent(losses)
        powers = np.take_along_axis(population.distances, nearest, axis=1) ** exponent
        level = losses.sum(axis=1, keepdims=True) / np.maximum(
            powers.sum(axis=1, keepdims=True), _TINY
        )
        farther = np.take_along_axis(population.distances, population.sources, axis=1)
        closer = np.minimum(population.near, farther)
        # What directions differ by shrinks no faster than distances, whatever the mean does.
        ratio = (closer / np.maximum(farther, _TINY)) ** min(exponent, 1.0)
        loss = own - np.take_along_axis(scores, population.sources, axis=1)
        other = loss - level * farther**exponent
        expected = own - level * closer**exponent - ratio * other
        return np.asarray(expected + self._near_noise(drawn, own_scores, ratio))

    def _near_noise(self, drawn: AnyArray, own_scores: AnyArray, ratio: Doubles) -> Doubles:
        """Return the noise in scores of near ranks, (q, s), between own codes and the farther's."""
        population = self._population
        words = PublicStream(0, "plan noise").words(population.near.size, np.uint32)
        normal = ndtri((words + 0.5) / 2.0**32).reshape(population.near.shape)
        deviation = own_scores.std(axis=1, ddof=1, keepdims=True)
        if self._rounds > 1:
            nearest = population.order[:, None, :_FITTED]
            variance = np.take_along_axis(drawn, nearest, axis=2).var(axis=1, ddof=1)
            of_nearest = np.sqrt(variance.mean(axis=1, keepdims=True))
            deviation = deviation + ratio * (of_nearest - deviation)
        # Means of few codes are noisy themselves: so much less noise is added.
        already = (1 - ratio) ** 2 / _OWN_CODES + ratio**2 / self._rounds
        return np.asarray(np.sqrt(np.maximum(1 - already, 0.0)) * deviation * normal)

    def _exponent(self, losses: AnyArray) -> float:
        """Return the power of the distance that mean losses of the nearest, (q, 50), grow as."""
        population = self._population
        nearest = population.order[:, :_FITTED]
        means = losses.mean(axis=0)
        distances = np.take_along_axis(population.distances, nearest, axis=1).mean(axis=0)
        exponent = 1.0
        if (means > 0).all() and distances[0] > 0:
            exponent = float(np.polyfit(np.log(distances), np.log(means), 1)[0])
        return float(np.clip(exponent, *_EXPONENTS))

    def _near_symbols(self, drawn: AnyArray, own_scores: AnyArray) -> Doubles:
        """Return a score of each near rank, (q, s): of an own code, or of a farther vector's.

        The chances of symbols lie between those of the two vectors.
        """
        population = self._population
        shape = population.near.shape
        if self._own_codewords is not None:
            # What names the query's own codeword would name another, as the query's codes do.
            others = own_scores[:, np.arange(self._rounds) % _OWN_CODES, None]
            drawn = np.where(self._own_codewords, others, drawn)
        own = own_scores.mean(axis=1, keepdims=True)
        nearest = population.order[:, :_FITTED]
        losses = own - np.take_along_axis(drawn.mean(axis=1), nearest, axis=1)
        farther = np.take_along_axis(population.distances, population.sources, axis=1)
        ratio = np.minimum(population.near / np.maximum(farther, _TINY), 1.0)
        words = PublicStream(0, "plan symbols").words(2 * population.near.size, np.uint32)
        chance, code = (words / 2.0**32).reshape(2, *shape)
        query = np.arange(shape[0])[:, None]
        of_farther = drawn[query, (code * drawn.shape[1]).astype(np.intp), population.sources]
        of_own = np.take_along_axis(own_scores, (code * _OWN_CODES).astype(np.intp), axis=1)
        return np.where(chance < ratio ** self._exponent(losses), of_farther, of_own)

    def _among(self, scores: AnyArray, near: Doubles) -> Doubles:
        """Return near scores, (q, s), each as one of the scores of its query next to it."""
        chances = PublicStream(0, "plan signs").words(near.size, np.uint32) / 2.0**32
        moved = np.empty_like(near)
        for row, chance in enumerate(chances.reshape(near.shape)):
            levels = np.unique(scores[row])
            after = np.clip(np.searchsorted(levels, near[row]), 1, len(levels) - 1)
            low, high = levels[after - 1], levels[after]
            moved[row] = np.where(near[row] - low > chance * (high - low), high, low)
        return moved


def counted(
    population: Population,
    scores: AnyArray,
    near: AnyArray,
    at: int,
    ladder: Sequence[int],
    absent: Bools | None = None,
) -> FoundShares:
    """Return the shares of true neighbours among the best codes and near ranks.

    Parameters
    ----------
    population : Population
    scores : float array, shape (q, rounds, m)
        Of each query with so many codes of each vector.
    near : float array, shape (q, s)
        Of each query with near ranks.
    at, ladder
        As of :meth:`Prediction.found`.
    absent : bool array, shape (q, rounds, m), optional
        Codes that a query does not see.
    """
    queries, rounds, rows = scores.shape
    # What each code or near rank is of, among vectors and near ranks.
    of = np.append(np.tile(np.arange(rows), rounds), rows + np.arange(near.shape[1]))
    seen = (population.weight > 0)[:, of]
    codes_seen: Any = rounds
    if absent is not None:
        seen[:, : rounds * rows] &= ~absent.reshape(queries, -1)
        codes_seen = np.maximum(rounds - absent.sum(axis=1), 1)
    most = math.ceil(ladder[-1] * rounds / population.vectors_per_row)
    needed = min(near.shape[1] + most + 1, len(of))
    best = _best_first(np.hstack([scores.reshape(queries, -1), near]), seen, needed)

    def of_best(values: Doubles) -> Doubles:
        """Return values of the best codes, which share that of their vector, and near ranks."""
        shared = np.hstack([values[:, :rows] / codes_seen, values[:, rows:]])
        return np.take_along_axis(shared, of[best], axis=1)

    weight = of_best(population.weight)
    before = np.cumsum(weight, axis=1) - weight

    def shares(neighbours: int, numbers: Sequence[int]) -> list[float]:
        """Return the share of true neighbours among each number of answers."""
        true = of_best(population.true(neighbours))
        query, place = np.nonzero(true)
        true = true[query, place]
        nearer = before[query, place]
        width = weight[query, place]
        found = []
        for answers in numbers:
            # The last answer counts in part.
            part = np.clip((answers - nearer) / width, 0.0, 1.0)
            by_query = np.bincount(query, part * true, minlength=queries)
            possible = min(answers, neighbours)
            found.append(float(np.minimum(by_query, possible).mean() / possible))
        return found

    (precision,) = shares(NEIGHBOURS, [FOUND])
    recall, *within = shares(at, [at, *ladder])
    return FoundShares(precision, recall, never_falling(dict(zip(ladder, within, strict=True))))


def _best_first(scores: AnyArray, seen: Bools, count: int) -> Integers:
    """Return the columns of the highest scores among those seen, ties at random, (q, count)."""
    queries, columns = scores.shape
    # Each query has a part of one list of random numbers, some way behind that of the one before.
    words = PublicStream(0, "plan ties").words(columns + _APART * queries, np.uint16)
    ties = (_TIE * (words / 2.0**16)).astype(np.float32)
    every = scores.astype(np.float32)
    every += np.lib.stride_tricks.sliding_window_view(ties, columns)[:-_APART:_APART]
    every[~seen] = -np.inf
    best = np.argpartition(every, columns - count, axis=1)[:, columns - count :]
    falling = np.argsort(-np.take_along_axis(every, best, axis=1), axis=1)
    return np.take_along_axis(best, falling, axis=1)


def noise_share(spec: Spec, vectors: Vectors) -> float:
    """Return how much of codes is noise: see :attr:`Row.noise`."""
    if isinstance(spec.law, SymbolLaw):
        return spec.law.random_share
    privatizer = Privatizer(spec)
    exact = privatizer.project(vectors) * spec.step
    return spec.format.noise_share(privatizer.privatize(vectors).to_float(), exact)


def predicted_rows(
    spec: Spec,
    population: Population,
    rounds: int,
    at: int,
    ladder: Sequence[int],
    noise: float,
    denoise: DenoiserKind | None = None,
) -> list[Row]:
    """Return the row of codes as they are, and one of denoised codes if a denoiser can be fitted.

    Parameters
    ----------
    spec, population, rounds
        As of :class:`Prediction`.
    at, ladder
        As of :meth:`Prediction.found`.
    noise : float
        See :attr:`Row.noise`.
    denoise : "auto" or "linear", optional
        Kind of the denoiser.
    """
    prediction = Prediction(spec, population, rounds)
    size = prediction.codes.stored[0].nbytes
    rows = [Row(spec, None, *prediction.found(at, ladder), size, noise)]
    if denoise is not None and noise >= _NO_NOISE:
        fit = partial(fit_denoiser, prediction.codes_to_learn_from, spec)
        denoiser = fit_if_possible(fit, spec, denoise)
        if denoiser is not None:
            rows.append(Row(spec, denoise, *prediction.found(at, ladder, denoiser), size, noise))
    return rows
