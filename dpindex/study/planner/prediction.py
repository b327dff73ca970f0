"""Prediction for one spec: a trial on public vectors, with ranks scaled to the collection.

The codes of public vectors are built and searched as the evaluator builds and searches an index,
and counted by what each stands for (:mod:`dpindex.study.planner.population`). Near ranks have no
vectors. Their scores lie between those of a farther vector's codes and those of the query's own
codes, which are also drawn: a score falls behind the own one by a power of the distance, whose
exponent is that of the sampled vectors: near 1/2 for signs, and above 1 where neighbours differ in
directions that a denoiser removes. The noise is that of an own code.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from dpindex.base.arrays import AnyArray, Doubles, Vectors, stacked, unit
from dpindex.denoise import Denoiser, Kind
from dpindex.mechanism.codes import Codes, SignFormat
from dpindex.mechanism.noise import SymbolLaw
from dpindex.mechanism.privatizer import Privatizer
from dpindex.mechanism.public_random import PublicStream
from dpindex.mechanism.spec import Spec
from dpindex.similarity.designed import decoded, decoded_queries, exact_coordinates
from dpindex.similarity.similarity import ExactQueries, PrivateQueries, Queries
from dpindex.study.planner.plan_result import FOUND, Found, Ranking, Row
from dpindex.study.planner.population import NEIGHBOURS, Population
from dpindex.study.trial import Trial

# Codes of each query's own vector.
_OWN_CODES = 16
# Ranks of the sampled vectors whose scores give the exponent, and its range.
_FITTED = 50
_EXPONENTS = (0.25, 2.0)
# Noise share below which no denoiser is tried.
_NO_NOISE = 1e-3
# Best codes that are counted besides those that hold the most candidates.
_BEST = 64
# Scores that differ by less are equal, up to rounding.
_TIE = 2e-6


class Prediction:
    """The codes of a population under one spec, with fresh noise.

    Parameters
    ----------
    spec : Spec
    population : Population
    rounds : int
        Codes of each vector, at most.
    denoise : "auto" or "linear", optional
        Fit a denoiser of this kind to all codes, where one can be.

    Attributes
    ----------
    trial : Trial
    """

    def __init__(
        self, spec: Spec, population: Population, rounds: int, denoise: Kind | None = None
    ) -> None:
        self._spec = spec
        self._population = population
        # A collection has no more codes than vectors.
        self._rounds = max(1, min(rounds, int(population.vectors_per_row)))
        base = stacked([population.vectors] * self._rounds)
        self.trial = Trial(spec, base, metric=population.metric, denoise=denoise)
        privatizer = Privatizer(spec)
        asked = population.queries
        # Those serve near ranks alone.
        own_codes = _OWN_CODES if population.near.size else 1
        self._own = privatizer.privatize(stacked([asked] * own_codes))
        self._private = PrivateQueries(privatizer.privatize(asked), spec)
        self._exact = ExactQueries(privatizer.asked(asked), spec, exact_coordinates(asked, spec))

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
        codes = self._decoded(self.trial.index.codes, denoiser)
        own = self._decoded(self._own, denoiser)
        signs = issubclass(self._spec.format_type, SignFormat)
        as_decoded = self._spec.design is not None or (denoiser is None and not signs)
        by_angle = self._population.metric == "cosine" and as_decoded

        def found(queries: Queries) -> Found:
            asked = self._asked(queries, denoiser)
            return self._counted(asked, codes, own, at, ladder, by_angle)

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
        by_angle: bool,
    ) -> Found:
        """Return the shares of true neighbours among the best codes and near ranks.

        ``by_angle`` tells that scores are cosines of numbers with noise, which end at 1: near ranks
        are then interpolated between their angles.
        """
        population = self._population
        rows = population.vectors.shape[0]
        own_by_query = own.reshape(-1, len(asked), own.shape[1])
        scores = asked @ codes.T
        own_scores = np.einsum("qk,rqk->qr", asked, own_by_query)
        if population.metric == "l2":
            scores -= np.einsum("nk,nk->n", codes, codes) / 2
            own_scores -= np.einsum("rqk,rqk->qr", own_by_query, own_by_query) / 2
        if by_angle:
            angles = np.arcsin(np.clip(scores, -1.0, 1.0)).reshape(len(asked), -1, rows)
            own_angles = np.arcsin(np.clip(own_scores, -1.0, 1.0))
            near = np.sin(self._near_scores(angles.mean(axis=1), own_angles))
        else:
            means = scores.reshape(len(asked), -1, rows).mean(axis=1)
            near = self._near_scores(means, own_scores)
        single = population.metric == "cosine" and self._spec.code_length == 1
        signs = issubclass(self._spec.format_type, SignFormat)
        if self._spec.design is None and (single or signs):
            # Scores of signs tie, and so do those of single numbers: near ranks get one of theirs,
            # at random around their own. No cosine of k signs but 1 is above 1 − 2/k.
            scores = scores.round(5)
            near = self._among(scores, np.minimum(near, 1.0 - 1.0 / self._spec.code_length))
        every = np.hstack([scores, near])
        stream = PublicStream(0, "plan ties")
        every += _TIE * (stream.words(every.size, np.uint16).reshape(every.shape) / 2.0**16)
        # The codes of one vector share what it stands for; what stands for nothing is not there.
        columns = np.append(np.tile(np.arange(rows), self._rounds), rows + np.arange(near.shape[1]))
        shares = np.where(columns < rows, self._rounds, 1)
        every[population.weight[:, columns] == 0] = -np.inf
        codes_per_row = self._rounds / population.vectors_per_row
        needed = min(_BEST + math.ceil(ladder[-1] * codes_per_row), every.shape[1])
        best = np.argpartition(-every, needed - 1, axis=1)[:, :needed]
        order = np.argsort(-np.take_along_axis(every, best, axis=1), axis=1)
        best = np.take_along_axis(best, order, axis=1)
        weight = np.take_along_axis(population.weight, columns[best], axis=1) / shares[best]
        before = np.cumsum(weight, axis=1) - weight
        true = {
            neighbours: np.take_along_axis(population.true(neighbours), columns[best], axis=1)
            / shares[best]
            for neighbours in (at, NEIGHBOURS)
        }

        def share(answers: int, neighbours: int) -> float:
            # The last answer counts in part.
            counted = np.clip(answers - before, 0.0, weight) / np.maximum(weight, 1e-30)
            possible = min(answers, neighbours)
            found = (counted * true[neighbours]).sum(axis=1)
            return float(np.minimum(found, possible).mean() / possible)

        within = {candidates: share(candidates, at) for candidates in ladder}
        return Found(share(FOUND, NEIGHBOURS), share(at, at), within)

    def _near_scores(self, scores: AnyArray, own_scores: AnyArray) -> Doubles:
        """Return a score of each near rank, (q, s), from mean scores of the vectors, (q, m)."""
        population = self._population
        nearest = population.order[:, :_FITTED]
        own = own_scores.mean(axis=1, keepdims=True)
        losses = (own - np.take_along_axis(scores, nearest, axis=1)).mean(axis=0)
        distances = np.take_along_axis(population.distances, nearest, axis=1).mean(axis=0)
        exponent = 1.0
        if (losses > 0).all() and distances[0] > 0:
            exponent = float(np.polyfit(np.log(distances), np.log(losses), 1)[0])
        exponent = float(np.clip(exponent, *_EXPONENTS))
        farther = np.take_along_axis(population.distances, population.sources, axis=1)
        ratio = np.minimum(population.near / np.maximum(farther, 1e-30), 1.0) ** exponent
        words = PublicStream(0, "plan noise").words(population.near.size, np.uint32)
        drawn = (words % _OWN_CODES).astype(np.intp).reshape(population.near.shape)
        loss = own - np.take_along_axis(scores, population.sources, axis=1)
        # Means of few codes are noisy themselves: so much less noise is added.
        already = (1 - ratio) ** 2 / _OWN_CODES + ratio**2 / self._rounds
        share = np.sqrt(np.maximum(1 - already, 0.0) / (1 - 1 / _OWN_CODES))
        noise = share * np.take_along_axis(own_scores - own, drawn, axis=1)
        return np.asarray(own - ratio * loss + noise)

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
    denoise: Literal["linear", "auto"] | None = None,
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
    prediction = Prediction(spec, population, rounds, denoise if noise >= _NO_NOISE else None)
    trial = prediction.trial
    rankings: list[tuple[Ranking, Denoiser | None]] = [("plain", None)]
    if denoise is not None and trial.denoiser is not None:
        rankings.append((denoise, trial.denoiser))
    return [
        Row(spec, ranking, *prediction.found(at, ladder, denoiser), trial.bytes_per_vector, noise)
        for ranking, denoiser in rankings
    ]
