"""What a plan predicts of one spec: with little effort to compare it, with all for a promise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from dpindex.base.arrays import spaced
from dpindex.decode import decoder_of
from dpindex.decode.fit import DenoiserKind
from dpindex.mechanism.spec import Spec
from dpindex.study.goal import Goal
from dpindex.study.population import Population
from dpindex.study.prediction import (
    COUNTED_ROUNDS,
    Denoisers,
    Prediction,
    information,
    noise_share,
    predicted_rows,
)
from dpindex.study.row import AttackFigures, Row, SelfTest
from dpindex.study.sample import Sample, is_compared
from dpindex.study.trial import Trial

# Queries of a self-test, and of what is promised of codes whose near ranks take long to denoise or
# to compare with public vectors; such codes are tried on half of the queries of others.
QUERIES = 300
# Queries of what is promised.
ALL_QUERIES = 600
# Codes that a denoiser is fitted to: for each coordinate, at least, and at most numbers in them.
# With 10 to 13 of each coordinate of a picture .11 too little was promised, with 38 .03 too much:
# they are codes of few vectors, which a denoiser comes to know.
_FITTED_PER_COORDINATE = 25
_FITTED_CODES = 10_000
_FITTED_NUMBERS = 1 << 24
# Codes of so few coordinates, as of tables, are denoised at once: all methods are, on all queries.
FEW = 64
# Codes that are denoised in little time.
_SHORT = 32
# A denoiser finds such a share of what is missed without it, or a quarter more, or it is left out:
# on tables, luck in its fit moves as much. That of a design, which has few coordinates, need only
# find a little more of many queries: fitted to a collection of digits it gains twice as much.
_WORTH_OF_MISSED = 0.06
_WORTH_OF_FOUND = 0.25
_WORTH_OF_DESIGN = 0.02
# Of few codes less is found than in the end, and by long codes without a public part always, as
# denoisers have learned of few others: digits at epsilon 2 were promised .93 and found .96,
# photographs .90 and .92, counts .52 and .54. So much of what is found times what is missed is
# added when specs are compared, at most, and none of it is promised.
_LOST_OF_OTHERS = 0.25
# Vectors that tell how much information codes have.
_INFORMING = 1000


class Effort(NamedTuple):
    """How much a spec is tried.

    Attributes
    ----------
    queries : int
    rounds : int
        Codes of each vector.
    fitted : int
        Codes that a denoiser is fitted to, at most.
    """

    queries: int
    rounds: int
    fitted: int = _FITTED_NUMBERS

    def halved(self) -> Effort:
        """Return it with half of the queries, and half of the codes."""
        return self._replace(queries=self.queries // 2, rounds=self.rounds // 2)


# Specs are compared on few queries and codes first. Those within a few standard errors of the
# best, as if a query found all or nothing, are predicted from more, and again. Whole records vary
# much from query to query, and codes of them less: with 250 other queries each and 12 codes of each
# vector a plan took codebooks that find up to .05 less.
SCREENING = Effort(50, 2)
FIRST = Effort(150, 4, fitted=4000)
LAST = Effort(300, 6)
CONTRAST = Effort(QUERIES, COUNTED_ROUNDS)


class Predictor:
    """Predictions for specs on a sample.

    Denoisers are kept, if they are learned of other vectors than those that are searched.
    """

    def __init__(self, goal: Goal, sample: Sample) -> None:
        self._goal = goal
        self._sample = sample
        self._learned: Denoisers = {}

    def noise(self, spec: Spec) -> float:
        """Return how much of codes is noise: see :attr:`Row.noise`."""
        return noise_share(spec, self._sample.vectors[: SCREENING.queries])

    def information(self, row: Row) -> float:
        """Return how much a code tells about its vector, in nats: see :func:`information`."""
        vectors = self._sample.vectors
        return information(row.spec, row.noise, vectors[spaced(vectors.shape[0], _INFORMING)])

    def row(
        self, spec: Spec, noise: float, effort: Effort, kind: DenoiserKind | None = None
    ) -> Row:
        """Return the row of codes as they are, or of denoised ones if those are worth it."""
        goal = self._goal
        asking = max(FIRST.queries, effort.queries)
        population = self._sample.population_of(spec, asking, True, denoised=kind is not None)
        rows = predicted_rows(
            spec, population, effort.rounds, goal.ladder, noise, kind,
            queries=effort.queries, on_average=goal.on_average,
            fitted=codes_to_fit(spec, kind, effort), learned=self._learned,
        )  # fmt: skip
        return replace(self._worthwhile(rows), centroids=self._sample.has_centroids(spec))

    def tried(
        self, spec: Spec, noise: float, effort: Effort, kind: DenoiserKind | None = None
    ) -> Row:
        """Return the row of an effort, with half of its queries where each takes long."""
        less = effort.halved() if takes_long(spec, kind) else effort
        return self.row(spec, noise, less, kind)

    def again(self, row: Row, effort: Effort, kind: DenoiserKind | None = None) -> Row:
        """Return the row from more trials, with another denoiser than it has if one is named."""
        return self.tried(row.spec, row.noise, effort, kind or row.denoiser)

    def expected(self, row: Row) -> float:
        """Return what a row finds once its denoiser, if any, has learned of a whole collection."""
        found = self._goal.value(row)
        if row.denoiser == "auto" and row.spec.public is None and row.k > FEW:
            found += _LOST_OF_OTHERS * found * (1.0 - found)
        return found

    def found_by_both(self, row: Row) -> float:
        """Return what a row is compared by, and precision: .01 of the first alone says little."""
        return self._goal.value(row) + row.found(self._goal.query).precision

    def promised(self, row: Row) -> Row:
        """Return what is predicted of all queries, with the last denoiser if that is worth it."""
        population = self.promised_of(row, self._sample)
        promised = self._counted(row, population)
        test = self._self_test(row, self._asking(row, population))
        other = self._sample.otherwise
        if other is not None:
            query = self._goal.query
            found = self._counted(row, self.promised_of(row, other)).found(query)
            higher = float((found.log_odds - promised.found(query).log_odds).mean())
            test = replace(test, otherwise=higher)
        if population.codewords is not None and population.near.size:
            # Where near vectors lie among codewords is a model; it misses as it does in a test.
            promised = replace(
                promised,
                private=promised.private.corrected(test.missed),
                exact=promised.exact.corrected(test.missed),
            )
        return replace(promised, centroids=row.centroids, test=test)

    def promised_of(self, row: Row, sample: Sample) -> Population:
        """Return the population, with all its queries, from which a row is promised."""
        return sample.population_of(row.spec, ALL_QUERIES, denoised=row.denoiser is not None)

    def _counted(self, row: Row, population: Population) -> Row:
        """Return what is predicted of all queries of a population."""
        kind = kind_at_last(row)
        rows = predicted_rows(
            row.spec, population, _rounds_of(row), self._goal.ladder, row.noise, kind,
            queries=self._asking(row, population), plain=kind != row.denoiser,
            on_average=self._goal.on_average, fitted=codes_to_fit(row.spec, kind),
            learned=self._learned,
        )  # fmt: skip
        return self._worthwhile(rows)

    def _asking(self, row: Row, population: Population) -> int:
        """Return how many queries a row is promised of."""
        most = QUERIES if takes_long(row.spec, kind_at_last(row)) else ALL_QUERIES
        return min(int(population.queries.shape[0]), most)

    def attacks(self, row: Row) -> AttackFigures:
        """Return what attacks on codes of public vectors find, with the denoiser of the promise."""
        spec, vectors = self._sample.attacked(row.spec)
        known = self._learned.get((spec, row.denoiser or "auto", codes_to_fit(spec, row.denoiser)))
        trial = Trial(spec, vectors, metric=self._goal.metric, denoise=known or "auto")
        return AttackFigures.of(trial)

    def _worthwhile(self, rows: Sequence[Row]) -> Row:
        """Return the row of denoised codes, the last one, if it is worth it, else the first."""
        plain, denoised = rows[0], rows[-1]
        if plain is denoised:
            return plain
        values = self._goal.value(plain), self._goal.value(denoised)
        return denoised if is_worth_denoising(*values, is_informed(plain.spec)) else plain

    def _self_test(self, row: Row, queries: int) -> SelfTest:
        """Return how well a quarter of the population predicts the others, of codes as they are.

        ``queries`` is how many the prediction has that is tested.
        """
        tested, *populations = self._sample.tests_of(row.spec, QUERIES)
        ladder = self._goal.tested_ladder(populations[0].n)
        mode = self._goal.query
        shares = []
        for population in populations:
            every = np.arange(population.queries.shape[0])
            prediction = Prediction(tested, population, _rounds_of(row))
            (found,) = prediction.found(ladder, every, modes=(mode,))
            shares.append(found[mode])
        vectors = sum(population.vectors.shape[0] for population in populations)
        return SelfTest.of(queries, vectors, *shares)


def _rounds_of(row: Row) -> int:
    """Return how many codes of each vector a row is promised of."""
    takes_half = takes_long(row.spec, kind_at_last(row))
    return COUNTED_ROUNDS // 2 if takes_half else COUNTED_ROUNDS


def codes_to_fit(spec: Spec, kind: DenoiserKind | None, effort: Effort = LAST) -> int:
    """Return how many codes a denoiser is fitted to; 0 for those that are counted."""
    if kind != "auto":
        return 0
    length = spec.code_length
    codes = max(_FITTED_CODES, _FITTED_PER_COORDINATE * length)
    return min(codes, _FITTED_NUMBERS // length, effort.fitted)


def takes_long(spec: Spec, kind: DenoiserKind | None) -> bool:
    """Return whether each query takes long: near ranks are denoised or compared with vectors."""
    return (kind == "auto" and spec.code_length > _SHORT) or is_compared(spec)


def has_scores(spec: Spec) -> bool:
    """Return whether codes of a spec have a denoiser that reads each by the law of its noise."""
    return "score" in spec.format_type.denoisers


def is_informed(spec: Spec) -> bool:
    """Return whether codes find what public vectors have in common before they are denoised."""
    return decoder_of(spec).informed


def kind_at_last(row: Row) -> DenoiserKind | None:
    """Return which denoiser a row has in the end: designs, which find much as they are, get one."""
    return "auto" if is_informed(row.spec) and has_scores(row.spec) else row.denoiser


def is_worth_denoising(plain: float, denoised: float, informed: bool = False) -> bool:
    """Return whether recall with a denoiser is so much better that it should be fitted.

    >>> is_worth_denoising(0.9, 0.901), is_worth_denoising(0.9, 0.95)
    (False, True)
    """
    of_found = _WORTH_OF_DESIGN if informed else _WORTH_OF_FOUND
    return denoised > plain + min(_WORTH_OF_MISSED * (1.0 - plain), of_found * plain)
