"""Plans for neighbours that differ in an attribute or within a radius, by simulation."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from dpindex.base.arrays import idle_cores, share_cores
from dpindex.base.errors import NoGuaranteeError
from dpindex.mechanism.noise.additive import AdditiveNoise
from dpindex.mechanism.noise.signs import FlipsByLevel
from dpindex.mechanism.privatizer import Privatizer
from dpindex.mechanism.spec import Spec
from dpindex.study.exposure import Exposure, Prior, predicted_exposure
from dpindex.study.planner.attribute_specs import attribute_specs
from dpindex.study.planner.collection_model import CollectionModel
from dpindex.study.planner.neighbourhood import MAX_EPSILON, Neighbourhood, Request, Stage
from dpindex.study.planner.plan_result import Ranking, Row, best_by_method, nearby
from dpindex.study.planner.public_sample import Facts, Sample
from dpindex.study.planner.simulated_attack import simulated_exposure
from dpindex.study.planner.simulation import Simulation
from dpindex.study.specs import SpecGrid

__all__ = ["AttributeNeighbourhood"]

# Vectors of the sample that are used: more of a table, whose near vectors differ little.
_MIN_ROWS = 2000
_MAX_ROWS = 1 << 15
_SAMPLE_NUMBERS = 1 << 20
# All specs are compared on few queries and codes, and those within so many standard errors of the
# best, as if a query found all or nothing, on the whole model.
_SCREENING_QUERIES = 50
_SCREENING_ROUNDS = 2
_MARGIN = 1.5
_ROUNDS = 4
# Codes, and numbers in them, that the denoiser of a finalist is fitted to: with three times as many
# no prediction moved by more than its own deviation of 0.01.
_FITTED_CODES = 10_000
_FITTED_NUMBERS = 3 << 21
_FINALISTS = 2
# Codes of less signal tell less than half a nat about a vector (Shannon 1948), where one among a
# hundred takes five: they find nothing, and are simulated only if all are such.
_MIN_SNR = 1.0
# If one finds more than this in the screening, no denoisers are fitted to more codes.
_ENOUGH = 0.99
# Among predictions that differ by less than this share, the shortest code is recommended.
_EVEN = 0.01

_MIN_EPSILON = 0.05
_MIDDLE_EPSILON = 4.0
_QUICK_STEPS = 6
_REFINED_SPAN = 4.0
_REFINED_STEPS = 4
_CONTENDERS = 5
# A denoiser finds such a share of what is missed without it, or a quarter more, or it is left out:
# on tables, luck in its fit moves as much.
_WORTH_OF_MISSED = 0.06
_WORTH_OF_FOUND = 0.25

_T = TypeVar("_T")
_R = TypeVar("_R")


class AttributeNeighbourhood(Neighbourhood):
    """A simulated collection, in which synthetic vectors are the neighbourhood of a query."""

    def __init__(self, request: Request) -> None:
        super().__init__(request)
        options = request.options
        first = self._grid(options.epsilon or MAX_EPSILON).specs[0]
        neighbour_cosine = None
        if isinstance(request.public, Facts):
            vectors = np.clip(request.public.sample(options.dim), *first.bounds)
            sample = Sample.ungrouped(vectors * np.float32(first.scale))
            neighbour_cosine = request.public.neighbour_cosine
        else:
            rows = min(max(_SAMPLE_NUMBERS // options.dim, _MIN_ROWS), _MAX_ROWS)
            sample = request.sample(request.public, rows)
            Privatizer(first).check(sample.vectors)
        limits = (first.bounds[0] * first.scale, first.bounds[1] * first.scale)
        if first.clip:
            sample = sample.clipped(*limits)
        self._model = CollectionModel(sample, options.n, limits, neighbour_cosine, options.metric)
        self._screen = self._model.of_queries(_SCREENING_QUERIES)
        self._workers = idle_cores()

    def ranked(self, epsilon: float) -> tuple[Row, ...]:
        """Return a row for each spec, best first.

        All specs are screened; those near the best are simulated on the whole model, and the best
        methods with denoisers fitted to more codes.
        """
        value = self._request.value
        grid = self._grid(epsilon)
        screened, unfit = self._rows(grid.specs, self._screen, _SCREENING_ROUNDS)
        self.refused = (*grid.refused, *unfit)
        best_screened = value(screened[0])
        promising = [row for row in screened if value(row) > 0.0] or screened
        # Denoisers of the kind "score" are worth more codes.
        denoisable = best_by_method(
            row for row in promising if "score" in row.spec.format_type.denoisers
        )
        finalists = self._request.ranked(denoisable)[:_FINALISTS]
        least = best_screened - _screening_margin(best_screened)
        leaders = [row for row in promising if value(row) >= least and row not in finalists]
        rows = [row for row in screened if row not in (*leaders, *finalists)]

        def simulated_again(row: Row) -> Row:
            if row in finalists and best_screened <= _ENOUGH:
                return self._refined(row)
            return self._best_row(self._simulation(row.spec, self._model, _ROUNDS), row.ranking)

        self._request.progress(len(rows), len(grid.specs), "the best of them, denoised")
        rows += self._parallel(simulated_again, [*finalists, *leaders])  # longest first
        rows = self._request.ranked(rows)
        even = [row for row in rows if value(row) >= (1 - _EVEN) * value(rows[0])]
        best = min(even, key=lambda row: row.bytes_per_vector)
        return (best, *(row for row in rows if row is not best))

    def quick_best(self, epsilon: float) -> Row:
        return self._simulated([spec.with_epsilon(epsilon) for spec in self._contenders])[0]

    def stages(self) -> tuple[Stage, ...]:
        """Return two: the best method, then how much less it needs with a better denoiser."""

        def quick(epsilon: float, best: Row) -> Row:
            return self.quick_best(epsilon)

        def refined(epsilon: float, best: Row) -> Row:
            return self._refined(replace(best, spec=best.spec.with_epsilon(epsilon)))

        return (
            Stage(quick, MAX_EPSILON / _MIN_EPSILON, _QUICK_STEPS),
            Stage(refined, _REFINED_SPAN, _REFINED_STEPS),
        )

    def curves(self, rows: Sequence[Row]) -> tuple[tuple[Row, ...], ...]:
        leaders = self._request.ranked(best_by_method(rows))[:_CONTENDERS]
        return tuple(self._curve(row) for row in leaders)

    def exposure(self, spec: Spec) -> Exposure:
        prior = Prior.of_sample(self._model.sampled, spec)
        predicted = predicted_exposure(spec, self._request.options.n, prior)
        return simulated_exposure(spec, self._model, self._rounds_to_fit(spec), predicted)

    def _grid(self, epsilon: float) -> SpecGrid:
        request = self._request
        return attribute_specs(request.options, request.methods, epsilon, request.terms)

    @cached_property
    def _contenders(self) -> list[Spec]:
        """The best specs of a middle epsilon, which stand for all in the search for another."""
        specs = self._grid(_MIDDLE_EPSILON).specs
        rows, _ = self._rows(specs, self._screen, _SCREENING_ROUNDS)
        return [row.spec for row in rows[:_CONTENDERS]]

    def _curve(self, row: Row) -> tuple[Row, ...]:
        """Return the row and others of its spec at other epsilons whose noise a code can hold."""
        points = []
        for epsilon in nearby(row.spec.budget):
            if epsilon == row.spec.budget:
                points.append(row)
                continue
            try:
                points += self._simulated([row.spec.with_epsilon(epsilon)])
            except NoGuaranteeError:  # noise that no code can hold
                continue
        return tuple(points)

    def _simulated(self, specs: Sequence[Spec]) -> list[Row]:
        """Return rows of the specs whose codes fit on the whole model, best first."""
        rows, _ = self._rows(specs, self._model, _ROUNDS)
        return rows

    def _rows(
        self, specs: Sequence[Spec], model: CollectionModel, rounds: int
    ) -> tuple[list[Row], tuple[str, ...]]:
        """Return rows of the specs whose codes fit, best first, with linear denoisers of few codes.

        Of codes that differ in their noise alone, those with the least are denoised. The second
        value has a sentence for each spec whose noise no code can hold.

        Raises
        ------
        NoGuaranteeError
            If no spec is left.
        """

        def simulation(spec: Spec) -> Simulation | str:
            try:
                return self._simulation(spec, model, rounds)
            except NoGuaranteeError as error:  # noise that no code can hold
                return f"{spec.method}, k = {spec.code_length}: {error}"

        simulations: list[Simulation] = []
        refused: dict[str, None] = {}
        for outcome in self._parallel(simulation, specs):
            if isinstance(outcome, str):
                refused[outcome] = None
            elif self._request.fits(outcome.bytes_per_vector):
                simulations.append(outcome)
        least = min(_MIN_SNR, max((s.snr for s in simulations), default=0.0))
        rows = [s.found_nothing() for s in simulations if s.snr < least]
        heard = [s for s in simulations if s.snr >= least]
        for predicted in self._parallel(self._predicted, _alike(heard)):
            spec = predicted[0].spec
            task = f"{spec.method}, k = {spec.code_length}, ε = {spec.budget:.3g}"
            self._request.progress(len(rows), len(specs), task)
            rows += [row for row in predicted if self._request.fits(row.bytes_per_vector)]
        if not rows:
            for sentence in refused:
                raise NoGuaranteeError(f"no method is left at this epsilon: {sentence}")
            raise self._request.none_fits()
        return self._request.ranked(rows), tuple(refused)

    def _simulation(self, spec: Spec, model: CollectionModel, rounds: int) -> Simulation:
        return Simulation(spec, model, rounds, self._request.options)

    def _predicted(self, alike: Sequence[Simulation]) -> list[Row]:
        """Return rows of simulations that differ in their noise; the first has the least."""
        rows = [self._best_row(alike[0], "plain", "linear")]
        return rows + [self._best_row(simulation, "plain") for simulation in alike[1:]]

    def _parallel(self, work: Callable[[_T], _R], tasks: Iterable[_T]) -> Iterator[_R]:
        """Yield what ``work`` returns for each task, in order."""
        with ThreadPoolExecutor(self._workers, initializer=share_cores) as pool:
            yield from pool.map(work, tasks)

    def _refined(self, row: Row) -> Row:
        """Return the row with the denoiser that ``fit_denoiser()`` would choose, or without any."""
        simulation = self._simulation(row.spec, self._model, self._rounds_to_fit(row.spec))
        return self._best_row(simulation, "plain", "auto")

    def _rounds_to_fit(self, spec: Spec) -> int:
        """Return how many codes of each sampled vector a denoiser is fitted to."""
        codes: int = min(_FITTED_CODES, _FITTED_NUMBERS // spec.code_length)
        rounds: int = min(codes // self._model.sampled.shape[0], int(self._model.vectors_per_row))
        return max(1, rounds)

    def _best_row(self, simulation: Simulation, *rankings: Ranking) -> Row:
        """Return the row of the first ranking, or of another that is worth its denoiser."""
        value = self._request.value
        first, *others = simulation.predict(rankings)
        plain = value(first)
        gain = min(_WORTH_OF_MISSED * (1.0 - plain), _WORTH_OF_FOUND * plain)
        worth = [row for row in others if value(row) > plain + gain]
        return max(worth, key=value, default=first)


def _alike(simulations: Iterable[Simulation]) -> Iterable[list[Simulation]]:
    """Return groups of simulations that differ in their noise, longest codes and least noise first.

    These are specs whose codes differ by the deviation of additive noise, or the share of flips.
    """
    groups: dict[Any, list[Simulation]] = defaultdict(list)
    for simulation in sorted(simulations, key=lambda s: (-s.spec.code_length, s.noise)):
        spec = simulation.spec
        noise: object = spec.method
        if isinstance(spec.law, AdditiveNoise | FlipsByLevel):
            noise = type(spec.law)
        group = (noise, type(spec.projection), spec.code_length, spec.repetitions)
        groups[group].append(simulation)
    return groups.values()


def _screening_margin(best: float) -> float:
    """Return how far below the best screened recall a spec may be that is better in truth."""
    chance = (best * _SCREENING_QUERIES + 1.0) / (_SCREENING_QUERIES + 2.0)
    return _MARGIN * math.sqrt(chance * (1.0 - chance) / _SCREENING_QUERIES)
