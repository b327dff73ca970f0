"""Prediction for one spec: a trial on public vectors, with ranks scaled to the collection.

The codes of public vectors are built and searched as the evaluator builds and searches an index,
and counted by what each stands for (:mod:`dpindex.study.planner.population`). Near ranks have no
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

import numpy as np
from scipy.special import ndtri

from dpindex.base.arrays import AnyArray, Doubles, Integers, Vectors, row_blocks, stacked, unit
from dpindex.denoise import Denoiser, Kind, fit_denoiser, fit_if_possible
from dpindex.mechanism.codes import Codes, SignFormat
from dpindex.mechanism.noise import SymbolLaw
from dpindex.mechanism.privatizer import Privatizer
from dpindex.mechanism.public_random import PublicStream
from dpindex.mechanism.spec import Spec
from dpindex.similarity.designed import decoded, decoded_queries, exact_coordinates
from dpindex.similarity.similarity import ExactQueries, PrivateQueries, Queries
from dpindex.study.planner.population import NEIGHBOURS, Population
from dpindex.study.planner.rows import FOUND, Found, Row, never_falling

# Codes of each query's own vector.
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
# Best codes that are counted besides those that hold the most candidates.
_BEST = 64
# Scores that differ by less are equal, up to rounding.
_TIE = 2e-6
_TINY = 1e-30


class Prediction:
    """The codes of a population under one spec, with fresh noise.

    Parameters
    ----------
    spec : Spec
    population : Population
    rounds : int
        Codes of each vector, at most.
    """

    def __init__(self, spec: Spec, population: Population, rounds: int) -> None:
        self._spec = spec
        self._population = population
        # A collection has no more codes than vectors.
        self._rounds = max(1, min(rounds, int(population.vectors_per_row)))
        self._privatizer = privatizer = Privatizer(spec)
        self.codes = self._privatized(population.vectors, self._rounds, population.labels)
        asked = population.queries
        # Those serve near ranks alone.
        own_codes = _OWN_CODES if population.near.size else 1
        own_and_asked = self._privatized(asked, own_codes + 1, population.asked_labels)
        self._own = own_and_asked.take(slice(asked.shape[0], None))
        self._private = PrivateQueries(own_and_asked.take(slice(asked.shape[0])), spec)
        self._exact = ExactQueries(privatizer.asked(asked), spec, exact_coordinates(asked, spec))

    @cached_property
    def _own_codewords(self) -> AnyArray:
        """Which codes of the collection name a codeword of a query's own group, (q, rounds·n)."""
        groups = self._population.codewords
        if groups is None:
            return np.zeros((1, 1), dtype=np.bool_)
        named: Integers = groups[self.codes.stored[:, 0]]
        return np.asarray(named == self._population.asked_labels[:, None])

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
    ) -> tuple[Found, Found]:
        """Return what private and exact queries find, of codes as they are or denoised.

        Parameters
        ----------
        at : int
            Answers, and true neighbours, that recall counts.
        ladder : sequence of int
            Numbers of candidates among which true neighbours are counted too.
        """
        codes = self._decoded(self.codes, denoiser)
        own = self._decoded(self._own, denoiser)

        def found(queries: Queries) -> Found:
            asked = self._asked(queries, denoiser)
            return self._counted(asked, codes, own, at, ladder, denoiser is not None)

        return found(self._private), found(self._exact)

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

    def _counted(
        self,
        asked: AnyArray,
        codes: AnyArray,
        own: AnyArray,
        at: int,
        ladder: Sequence[int],
        denoised: bool,
    ) -> Found:
        """Return the shares of true neighbours among the best codes and near ranks."""
        population = self._population
        rows = population.vectors.shape[0]
        own_by_query = own.reshape(-1, len(asked), own.shape[1])
        scores = asked @ codes.T
        own_scores = np.einsum("qk,rqk->qr", asked, own_by_query)
        if population.metric == "l2":
            scores -= np.einsum("nk,nk->n", codes, codes) / 2
            own_scores -= np.einsum("rqk,rqk->qr", own_by_query, own_by_query) / 2
        lead = (own_scores.mean(axis=1) - scores.mean(axis=1)) / np.maximum(
            scores.std(axis=1), _TINY
        )
        if denoised and lead.mean() < _MIN_LEAD:
            return Found.by_chance(at, ladder, population.n)
        signs = issubclass(self._spec.format_type, SignFormat)
        # Cosines of numbers with noise end at 1: near ranks lie between their angles.
        as_decoded = self._spec.design is not None or not (denoised or signs)
        by_angle = population.metric == "cosine" and as_decoded
        drawn = scores.reshape(len(asked), -1, rows)
        if not population.near.size:
            near = population.near
        elif isinstance(self._spec.law, SymbolLaw):
            scores = scores.round(5)
            near = self._near_symbols(scores.reshape(drawn.shape), own_scores.round(5))
        elif by_angle:
            angles = np.arcsin(np.clip(drawn, -1.0, 1.0))
            near = np.sin(self._near_scores(angles, np.arcsin(np.clip(own_scores, -1.0, 1.0))))
        else:
            near = self._near_scores(drawn, own_scores)
        if not isinstance(self._spec.law, SymbolLaw):
            # Codes of few directions crowd at a cosine of 1, where no normal law has its tail: near
            # ranks score no more than the best of the query's own codes.
            near = np.minimum(near, own_scores.max(axis=1, keepdims=True))
        if self._spec.design is None and signs:
            # Scores of signs tie: near ranks get one of theirs, at random around their own. No
            # cosine of k signs but 1 is above 1 − 2/k.
            scores = scores.round(5)
            near = self._among(scores, np.minimum(near, 1.0 - 1.0 / self._spec.code_length))
        every = np.hstack([scores, near])
        stream = PublicStream(0, "plan ties")
        every += _TIE * (stream.words(every.size, np.uint16).reshape(every.shape) / 2.0**16)
        # The codes of one vector share what it stands for; what stands for nothing is not there.
        columns = np.append(np.tile(np.arange(rows), self._rounds), rows + np.arange(near.shape[1]))
        there = population.weight[:, columns] > 0
        there[:, : len(codes)] &= ~self._own_codewords
        codes_there = there[:, : rows * self._rounds].reshape(len(asked), -1, rows).sum(axis=1)
        shares = np.hstack([np.tile(codes_there, self._rounds), np.ones_like(near)])
        every[~there] = -np.inf
        codes_per_row = self._rounds / population.vectors_per_row
        needed = min(_BEST + math.ceil(ladder[-1] * codes_per_row), every.shape[1])
        best = np.argpartition(-every, needed - 1, axis=1)[:, :needed]
        order = np.argsort(-np.take_along_axis(every, best, axis=1), axis=1)
        best = np.take_along_axis(best, order, axis=1)
        shares = np.maximum(np.take_along_axis(shares, best, axis=1), 1)
        weight = np.take_along_axis(population.weight, columns[best], axis=1) / shares
        before = np.cumsum(weight, axis=1) - weight
        true = {
            neighbours: np.take_along_axis(population.true(neighbours), columns[best], axis=1)
            / shares
            for neighbours in (at, NEIGHBOURS)
        }

        def share(answers: int, neighbours: int) -> float:
            # The last answer counts in part.
            counted = np.clip(answers - before, 0.0, weight) / np.maximum(weight, _TINY)
            possible = min(answers, neighbours)
            found = (counted * true[neighbours]).sum(axis=1)
            return float(np.minimum(found, possible).mean() / possible)

        within = {candidates: share(candidates, at) for candidates in ladder}
        return Found(share(FOUND, NEIGHBOURS), share(at, at), never_falling(within))

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
        words = PublicStream(0, "plan noise").words(population.near.size, np.uint32)
        normal = ndtri((words + 0.5) / 2.0**32).reshape(population.near.shape)
        deviation = own_scores.std(axis=1, ddof=1, keepdims=True)
        if self._rounds > 1:
            variance = np.take_along_axis(drawn, nearest[:, None], axis=2).var(axis=1, ddof=1)
            of_nearest = np.sqrt(variance.mean(axis=1, keepdims=True))
            deviation = deviation + ratio * (of_nearest - deviation)
        loss = own - np.take_along_axis(scores, population.sources, axis=1)
        # Means of few codes are noisy themselves: so much less noise is added.
        already = (1 - ratio) ** 2 / _OWN_CODES + ratio**2 / self._rounds
        noise = np.sqrt(np.maximum(1 - already, 0.0)) * deviation * normal
        other = loss - level * farther**exponent
        return np.asarray(own - level * closer**exponent - ratio * other + noise)

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
        if population.codewords is not None:
            # What names the query's own codeword would name another, as the query's codes do.
            others = own_scores[:, np.arange(self._rounds) % _OWN_CODES, None]
            drawn = np.where(self._own_codewords.reshape(drawn.shape), others, drawn)
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
    denoise: Kind | None = None,
) -> list[Row]:
    """Return the row of codes as they are, and one of denoised codes if a denoiser can be fitted.

    Parameters
    ----------
    spec, population, rounds
        As of :class:`Prediction`.
    at, ladder
        As of :meth:`Prediction.found`.
    denoise : "auto" or "linear", optional
        Kind of the denoiser.
    """
    noise = noise_share(spec, population.queries)
    prediction = Prediction(spec, population, rounds)
    codes = prediction.codes
    size = codes.stored[0].nbytes
    rows = [Row(spec, None, *prediction.found(at, ladder), size, noise)]
    if denoise is not None and noise >= _NO_NOISE:
        denoiser = fit_if_possible(partial(fit_denoiser, codes, spec), spec, denoise)
        if denoiser is not None:
            rows.append(Row(spec, denoise, *prediction.found(at, ladder, denoiser), size, noise))
    return rows
