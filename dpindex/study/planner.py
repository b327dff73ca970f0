"""Predict what each method finds at an epsilon, by trials on public vectors, and recommend one."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial
from itertools import chain
from typing import Any, NamedTuple, TypeVar

from dpindex.base.display import Progress, no_progress
from dpindex.base.errors import InputError, NoGuaranteeError
from dpindex.base.threads import idle_cores, limited_threads
from dpindex.data import Ranges, as_source
from dpindex.decode.base import Metric
from dpindex.decode.fit import DenoiserKind
from dpindex.decode.kinds import decoder_of
from dpindex.index.search import QueryMode
from dpindex.mechanism.privatizer import Privatizer
from dpindex.mechanism.spec import Spec
from dpindex.mechanism.variants import Variant
from dpindex.privacy import VectorAdjacency
from dpindex.study.candidates import SpecsToTry
from dpindex.study.plan_result import Plan, plan_png
from dpindex.study.population import Population
from dpindex.study.prediction import COUNTED_ROUNDS, Denoisers, noise_share, predicted_rows
from dpindex.study.sample import Sample, checked_queries, checked_sample, is_compared, new_sample
from dpindex.study.target import (
    FOUND,
    AttackFigures,
    FoundShares,
    Goal,
    Measure,
    Row,
    SelfTest,
)
from dpindex.study.trial import Trial, in_threads

__all__ = ["FoundShares", "Measure", "Plan", "Row", "plan", "plan_png"]

_MAX_EPSILON = 64.0
_MIN_EPSILON = 0.05
# The lowest epsilon of a spec.
_LOWEST_EPSILON = 0.001
# Bisections of epsilon: the ratio of the ends, their number, and whether denoisers are fitted.
_BISECTIONS = ((_MAX_EPSILON / _MIN_EPSILON, 6, False), (4.0, 6, True))
_MIDDLE_EPSILON = 4.0
# Queries of a self-test, and of what is promised of codes whose near ranks take long to denoise or
# to compare with public vectors; such codes are tried on half of the queries of others.
QUERIES = 300
# Queries of what is promised.
ALL_QUERIES = 600
_CONTENDERS = 5
# Codes that a denoiser is fitted to: for each coordinate, at least, and at most numbers in them.
# With 10 to 13 of each coordinate of a picture .11 too little was promised, with 38 .03 too much:
# they are codes of few vectors, which a denoiser comes to know.
_FITTED_PER_COORDINATE = 25
_FITTED_CODES = 10_000
_FITTED_NUMBERS = 1 << 24
_FINALISTS = 3
# Of few codes less is found than in the end, and by long codes without a public part always, as
# denoisers have learned of few others: digits at epsilon 2 were promised .93 and found .96,
# photographs .90 and .92, counts .52 and .54. So much of what is found times what is missed is
# added when specs are compared, at most, and none of it is promised.
_LOST_OF_OTHERS = 0.25
# Codes of so few coordinates, as of tables, are denoised at once: all methods are, on all queries.
_FEW = 64
# A denoiser finds such a share of what is missed without it, or a quarter more, or it is left out:
# on tables, luck in its fit moves as much. That of a design, which has few coordinates, need only
# find a little more of many queries: fitted to a collection of digits it gains twice as much.
_WORTH_OF_MISSED = 0.06
_WORTH_OF_FOUND = 0.25
_WORTH_OF_DESIGN = 0.02
# Codes of less signal tell less than half a nat about a vector (Shannon 1948), where one among a
# hundred takes five: they find nothing, and are tried only if all are such.
_MIN_SNR = 1.0
# Among predictions that differ by less than this share, the shortest code is recommended.
_EVEN = 0.01


class _Effort(NamedTuple):
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

    def halved(self) -> _Effort:
        """Return it with half of the queries."""
        return self._replace(queries=self.queries // 2)


# Specs are compared on few queries and codes first. Those within a few standard errors of the
# best, as if a query found all or nothing, are predicted from more, and again. Whole records vary
# much from query to query, and codes of them less: with 250 other queries each and 12 codes of each
# vector a plan took codebooks that find up to .05 less.
_SCREENING = _Effort(50, 2)
_FIRST = _Effort(150, 4, fitted=4000)
_LAST = _Effort(300, 6)
_CONTRAST = _Effort(QUERIES, COUNTED_ROUNDS)
_MARGIN = 1.0
_COMPARED = 4

_Item = TypeVar("_Item")


@limited_threads(1)  # several specs at once use the processors better than BLAS does
def plan(
    public: Any,
    *,
    n: int,
    adjacency: VectorAdjacency,
    epsilon: float | None = None,
    recall: float | None = None,
    candidates: int | str | None = None,
    at: int = FOUND,
    query: QueryMode = "exact",
    metric: Metric = "cosine",
    max_bytes: int | None = None,
    methods: Sequence[str] | None = None,
    groups: Any | None = None,
    public_queries: Any | None = None,
    scale: float = 1.0,
    ranges: Ranges | None = None,
    bounds: tuple[float, float] = (-1.0, 1.0),
    clip: bool = False,
    norm: float | None = None,
    delta: float = 0.0,
    record_epsilon: float | None = None,
    seed: int = 0,
    variant: Variant = Variant(),  # noqa: B008 (frozen)
    curves: bool = False,
    skip_leak_check: bool = False,
    progress: Progress | None = None,
) -> Plan:
    """Predict what each method would find in a collection, and recommend one.

    Codes of public vectors are built and searched as the evaluator does it with the vectors
    themselves, which are never looked at. Whoever passes vectors as ``public`` states that they
    are: parameters that are chosen by looking at private data reveal something about them.

    Parameters
    ----------
    public : array, sparse matrix or VectorSource, shape (m, dim)
        At least 500 public vectors of the collection's kind, with dim in [2, 2^31), or at most 4096
        under ``record()``. Up to 2000 of them are used, and of less than 524 attributes as many as
        have a million numbers, up to 8192. Under ``adjacency=record()`` up to 65 536 of them may
        become codewords.
    n : int
        Vectors in the collection, [500, 2^40].
    adjacency : Attribute, L2 or Record
        What neighbouring vectors may differ in: the promise.
    epsilon : float, optional
        Target epsilon.
    recall : float, optional
        Target recall@k of the true k, (0, 1), with k = ``at``. Instead of an epsilon: the plan is
        for the smallest epsilon that reaches it. With an epsilon: for the fewest candidates that
        do.
    candidates : int or str, optional
        Answers of the codes that the holder is to put in order, [k, n], or a share of the
        collection such as "5%": see ``search(candidates=…)``. Recall is counted after that. Default
        under ``record()`` 1000, or 5 % of the collection if that is less; otherwise k, a search of
        codes alone.
    at : int
        k: answers, and true neighbours, that recall counts, [1, 50]. Methods are ranked by it.
    query : "exact" or "private"
        The query mode to plan for. Both are predicted.
    metric : "cosine" or "l2"
        What neighbours are ranked by, of the vectors and of their codes. The two orders differ
        where lengths do, as in tables. "l2" takes a dense public sample.
    max_bytes : int, optional
        Maximum size of a published code, [1, 2^20].
    methods : sequence of str, optional
        Methods to consider; default all that give DP for the published projection. What only
        papers name (``dpindex methods --all``), and what promises less, a delta over the projection
        too or individual DP, must be named.
    groups : array, shape (m,), optional
        A label of each public vector. Vectors of one label resemble each other more than others do,
        such as captions of one picture. Queries are taken to have no siblings in the collection,
        and to be like the vector in the middle of a group. At least 100 groups.
    public_queries : array, sparse matrix or VectorSource, optional
        Public vectors like the queries, where those differ from vectors of the collection.
    ranges, scale, bounds, clip, norm, delta, record_epsilon, seed, variant : optional
        As of :class:`dpindex.Spec`. With ``clip`` neighbours are those of the clipped vectors. With
        a delta of 0 methods that need one are not considered. Under ``record()`` the delta is for
        Gaussian noise of radius 2, which is shown for contrast, and the others must be left out.
    curves : bool
        Predict the best methods at other epsilons too, from a quarter of the plan's to four times
        as much, for a plot.
    skip_leak_check : bool
        Accept a sample that looks like the private vectors themselves.
    progress : callable, optional
        Called with (predictions done, predictions in all, what is predicted now).

    Raises
    ------
    InputError
        For contradictory options, terms that no method can meet, a sample that is too small or
        looks private, and a recall that no epsilon up to 64 reaches.

    >>> import numpy as np
    >>> from dpindex import attribute
    >>> public = np.random.default_rng(0).uniform(-1, 1, (600, 16))
    >>> outcome = plan(public, n=5000, epsilon=60.0, adjacency=attribute(1.0),
    ...                methods=["raw-staircase", "dp-signoporp-rr"])
    >>> outcome.spec.method
    'raw-staircase'
    """
    source = as_source(public, "the public sample")
    dim = source.shape[1]
    goal = Goal(
        dim, n, adjacency, epsilon, recall, candidates, at, query, metric, max_bytes, methods
    )
    terms = {
        "scale": scale, "bounds": bounds, "clip": clip, "norm": norm,
        "delta": delta, "record_epsilon": record_epsilon, "seed": seed, "variant": variant,
    }  # fmt: skip
    checked_sample(source, n, skip_leak_check)
    sources = [source]
    if public_queries is not None:
        sources.append(checked_queries(public_queries, dim))
    deciding: tuple[tuple[str, float], ...] = ()
    if ranges is not None:
        deciding = tuple(ranges.deciding(source))
        sources = [ranges.source(each) for each in sources]
    if clip and adjacency.largest_change(bounds) == adjacency.size:
        sources = [each.clipped(scale * bounds[0], scale * bounds[1]) for each in sources]
    sample = new_sample(goal, groups, *sources)
    planner = _Planner(
        goal, SpecsToTry(goal, terms, sources[0], sample), sample, progress or no_progress
    )
    chosen = epsilon or _smallest_epsilon(planner, goal)
    rows = planner.ranked(chosen)
    if epsilon is not None and recall is not None:
        fewest = _fewest_candidates(rows, goal)
        goal = replace(goal, recall=None, candidates=fewest)
        rows = tuple(goal.ranked(rows))
    best = rows[0]
    tried = planner.promised_of(best).vectors.shape[0]
    sample.forget()
    published = (replace(best, spec=planner.to_try.published(best.spec)), *rows[1:])
    if ranges is not None:  # a promise counts in ranges, and not in the units of the data
        published = tuple(replace(row, spec=row.spec.with_ranges(ranges)) for row in published)
    return Plan(
        rows=published,
        query=query,
        n=n,
        at=at,
        metric=metric,
        candidates=goal.counted_candidates,
        share=goal.candidates if isinstance(goal.candidates, str) else None,
        shown_candidates=goal.shown_candidates,
        refused=tuple(planner.to_try.refused),
        contrast=planner.contrast(chosen),
        sample_rows=source.shape[0],
        curves=planner.curves(rows) if curves else (),
        attacks=planner.attacks(best),
        narrowed=best.spec.bounds != bounds,
        tried=tried,
        largest=sample.played,
        told=groups is not None or public_queries is not None,
        embeddings=sample.at_norm_1,
        deciding=deciding,
    )


class _Planner:
    """Candidates that are tried on a sample.

    Attributes
    ----------
    to_try : SpecsToTry
    """

    def __init__(self, goal: Goal, to_try: SpecsToTry, sample: Sample, progress: Progress) -> None:
        self._goal = goal
        self.to_try = to_try
        self._sample = sample
        self._progress = progress
        self._workers = idle_cores()
        self._learned: Denoisers = {}
        # Kept: a projection of millions of attributes takes seconds, and specs share it.
        self._first = to_try.specs(goal.epsilon or _MIDDLE_EPSILON)[0]
        Privatizer(self._first).check(sample.vectors)

    def ranked(self, epsilon: float) -> tuple[Row, ...]:
        """Return a row for each spec, best first.

        All are predicted from few trials, those near the best of them from more, and the last ones
        from even more, with their denoisers. The best is predicted once more, for what is promised.
        """
        screened = self._screened_at(epsilon)
        self._progress(0, len(screened), "the best of them, in more detail")
        tried = self._tried_again(self._denoisable(screened), _FIRST, "auto")
        # What is no better denoised keeps its row: it was tried on other queries than those that it
        # is compared with.
        denoised = [row for row in tried if row.denoiser]
        rows = _latest(screened, denoised)
        plain = [row for row in self._near_best(rows) if row not in denoised]
        leaders = [*denoised, *self._tried_again(plain, _FIRST)]
        near = self._near_best(leaders, _FIRST.queries)[:_COMPARED]
        waves = self._denoised_waves(near, _latest(rows, leaders))
        if waves:
            best_wave = max(waves, key=self._found_by_both)
            near = [best_wave, *(row for row in near if not _is_wave(row))]
        self._sample.forget()
        compared = self._compared_at_last(near)
        best = self._best_of(compared)
        self._sample.forget()
        rows = _latest(rows, leaders, waves, compared)
        rest = [row for row in rows if row.spec != best.spec]
        # The best of many predictions is too high: it is promised what further queries find.
        return (self.promised(best), *self._goal.ranked(rest))

    def _tried_again(
        self, rows: Iterable[Row], effort: _Effort, kind: DenoiserKind | None = None
    ) -> list[Row]:
        work = partial(self.refined, effort=effort, kind=kind)
        return [*in_threads(work, rows, self._workers)]

    def _compared_at_last(self, rows: Sequence[Row]) -> list[Row]:
        """Return rows from the most trials, all on the same queries, with what comes last.

        Denoisers of designs come last, and points between the codewords of a codebook.
        """
        kinds = {row.spec: _kind_at_last(row) for row in rows}
        takes_long = any(_takes_long(spec, kind) for spec, kind in kinds.items())
        effort = _LAST.halved() if takes_long else _LAST

        def compared(row: Row) -> Row:
            return self._row(row.spec, row.noise, effort, kinds[row.spec])

        first = rows[0]
        if len(rows) > 1 or kinds[first.spec] != first.denoiser or self.to_try.grown(first.spec):
            rows = [*in_threads(compared, rows, self._workers)]
        return self._with_grown(rows, effort)

    def _denoised_waves(self, near: Sequence[Row], rows: Sequence[Row]) -> list[Row]:
        """Return both widths of square waves denoised, if one is near the best; else none.

        Which is better as they are, luck decides, and not which is better denoised: at epsilon 2
        the narrow one finds .85 of gray photographs and the other .79, of digits .81 and .86.
        Denoisers of few codes show it.
        """
        waves = [row for row in near if _is_wave(row)]
        others = [row for row in rows if _is_wave(row) and not row.denoiser]
        if others and any(row.denoiser for row in waves):
            return waves + self._tried_again(others, _FIRST, "auto")
        return []

    def _best_of(self, rows: Sequence[Row]) -> Row:
        """Return the shortest of the codes that find as much as the best ones, within chance."""
        highest = max(map(self._expected, rows))
        even = [row for row in rows if self._expected(row) >= (1 - _EVEN) * highest]
        return min(even, key=lambda row: (row.bytes_per_vector, -self._found_by_both(row)))

    def _screened_at(self, epsilon: float) -> list[Row]:
        """Return rows of the specs of an epsilon that may be best, best first."""
        rows = self.screened(self.to_try.specs(epsilon))
        tried = {row.spec for row in rows}
        longer = chain.from_iterable(self.to_try.longer(row.spec) for row in self._near_best(rows))
        rows += self._tried([spec for spec in longer if spec not in tried], [])
        return self._goal.ranked(rows)

    def screened(self, specs: Sequence[Spec]) -> list[Row]:
        """Return rows of the specs that may be best and whose codes fit, best first.

        Every third spec of each method is tried, the longest signs, and then those beside one that
        is near the best.

        Raises
        ------
        NoGuaranteeError
            If no spec is left.
        """
        lines: dict[str, list[Spec]] = {}
        for spec in specs:
            lines.setdefault(spec.method, []).append(spec)
        refusals: list[str] = []
        rows: list[Row] = []
        tried: set[Spec] = set()
        some = [spec for line in lines.values() for spec in line[1::3] or line]
        # Signs of single attributes find .78 of sentences where those of two find .56.
        some += [line[0] for line in lines.values() if decoder_of(line[0]).by_hamming and line[1:]]
        while some:
            rows += self._tried(some, refusals)
            tried.update(some)
            # If no code can hold the noise of a spec, codes of the spec beside it may.
            near = tried - {row.spec for row in rows}
            near.update(row.spec for row in self._near_best(rows))
            some = [
                spec
                for line in lines.values()
                for place, spec in enumerate(line)
                if spec not in tried and near.intersection(line[max(0, place - 1) : place + 2])
            ]
        if not rows:
            raise NoGuaranteeError(refusals[0])
        return self._goal.ranked(rows)

    def _tried(self, specs: Sequence[Spec], refusals: list[str]) -> list[Row]:
        """Return rows of specs, with linear denoisers of signs, and 0 where nothing is found.

        Of signs that differ in their noise alone, those with the least are denoised. Why none is
        left is added to ``refusals``.
        """
        goal = self._goal
        noises = self._noises(specs, refusals)
        ratios = {spec: spec.format.signal_to_noise(noise) for spec, noise in noises.items()}
        least = min(_MIN_SNR, max(ratios.values(), default=0.0))
        nothing = FoundShares(0.0, dict.fromkeys(goal.ladder, 0.0))
        rows = [
            Row(spec, None, nothing, nothing, spec.format.max_row_bytes, noise)
            for spec, noise in noises.items()
            if ratios[spec] < least
        ]
        above_noise = [spec for spec in noises if ratios[spec] >= least]
        above_noise.sort(key=lambda spec: (-spec.code_length, noises[spec]))
        denoised = set(_first_of_each(above_noise, _but_for_noise))

        def predicted(spec: Spec) -> Row:
            # What a score finds is not told by what a linear denoiser does, and designs denoise.
            linear_only = spec in denoised and not (has_scores(spec) or is_informed(spec))
            kind: DenoiserKind | None = "linear" if linear_only else None
            return self._tried_with(spec, noises[spec], _SCREENING, kind)

        for row in in_threads(predicted, above_noise, self._workers):
            rows.append(row)
            task = f"{row.method}, k = {row.k}, ε = {row.spec.budget:.3g}"
            self._progress(len(rows), len(specs), task)
        most = goal.max_bytes
        fitting = [row for row in rows if most is None or row.bytes_per_vector <= most]
        if rows and not fitting:
            refusals.append(f"no method makes codes of at most {most} bytes.")
        return fitting

    def _noises(self, specs: Sequence[Spec], refusals: list[str]) -> dict[Spec, float]:
        """Return the noise of specs, and note why others are refused: no code can hold theirs."""

        def noise_of(spec: Spec) -> float | str:
            try:
                return noise_share(spec, self._sample.vectors[: _SCREENING.queries])
            except NoGuaranteeError as error:
                return f"{spec.method}, k = {spec.code_length}: {error}"

        noises = {}
        unfit = []
        found = in_threads(noise_of, specs, self._workers)
        for spec, noise in zip(specs, found, strict=True):
            if isinstance(noise, str):
                unfit.append(noise)
            else:
                noises[spec] = noise
        refused = self.to_try.refused
        refused += [sentence for sentence in unfit if sentence not in refused]
        if unfit and not noises:
            refusals.append(f"no method is left at this epsilon: {unfit[0]}")
        return noises

    def _near_best(self, rows: Collection[Row], queries: int = _SCREENING.queries) -> list[Row]:
        """Return rows that may be the best in truth, best first.

        Of a query that finds all or nothing, by luck.
        """
        value = self._expected
        finding = [row for row in self._goal.ranked(rows) if value(row) > 0.0] or [*rows]
        highest = max(map(value, finding), default=0.0)
        chance = (highest * queries + 1.0) / (queries + 2.0)
        margin = _MARGIN * math.sqrt(chance * (1.0 - chance) / queries)
        return [row for row in finding if value(row) >= highest - margin]

    def _denoisable(self, rows: Collection[Row]) -> list[Row]:
        """Return those rows that the best denoisers may help most, one of each projection.

        Methods that differ by their noise alone are helped nearly alike, so one is enough where
        that takes long. Raw codes lose most to the noise and keep all of the vector: they find
        little as they are, and the most when denoised. How much more they find is not told by what
        they find: of gray pictures .04 became .5, of 16 attributes .01 became .07.
        Designs find much as they are: those that are left in the end are denoised.
        """
        few = self._goal.dim <= _FEW
        tried = [row for row in rows if self._goal.value(row) > 0.0] or rows
        if few:  # but for those that noise leaves nothing of
            tried = [row for row in rows if row.spec.format.signal_to_noise(row.noise) >= _MIN_SNR]
        with_scores = [row for row in tried if has_scores(row.spec) and not is_informed(row.spec)]
        if few:
            return _first_of_each(with_scores, lambda row: row.method)
        return _first_of_each(with_scores, lambda row: type(row.spec.projection))[:_FINALISTS]

    def _with_grown(self, rows: Sequence[Row], effort: _Effort) -> list[Row]:
        """Return rows, with the best softmax codebook of vectors grown if that finds more.

        It takes four times as long, so one is tried, with the best window, and the other windows
        are left out then. All that is found counts: .01 of the nearest ten alone says little.
        """
        ranked = self._goal.ranked(rows)
        for row in ranked:
            spec = self.to_try.grown(row.spec)
            if spec is not None:
                grown = self._row(spec, row.noise, effort, row.denoiser)
                if self._found_by_both(grown) > self._found_by_both(row):
                    book = row.spec.codebook
                    return [grown, *(other for other in ranked if other.spec.codebook != book)]
                break
        return ranked

    def _expected(self, row: Row) -> float:
        """Return what a row finds once its denoiser, if any, has learned of a whole collection."""
        found = self._goal.value(row)
        if row.denoiser == "auto" and row.spec.public is None and row.k > _FEW:
            found += _LOST_OF_OTHERS * found * (1.0 - found)
        return found

    def _found_by_both(self, row: Row) -> float:
        return self._goal.value(row) + row.found(self._goal.query).precision

    def refined(self, row: Row, kind: DenoiserKind | None = None, effort: _Effort = _LAST) -> Row:
        """Return the row from more trials, with another denoiser than it has if one is named."""
        return self._tried_with(row.spec, row.noise, effort, kind or row.denoiser)

    def promised(self, row: Row) -> Row:
        """Return what is predicted of all queries."""
        spec = row.spec
        population = self.promised_of(row)
        most = QUERIES if _takes_long(spec, row.denoiser) else ALL_QUERIES
        queries = min(population.queries.shape[0], most)
        (promised,) = predicted_rows(
            spec, population, COUNTED_ROUNDS, self._goal.ladder, row.noise, row.denoiser,
            queries=queries, plain=False, on_average=self._goal.on_average,
            fitted=_fitted(spec, row.denoiser), learned=self._learned,
        )  # fmt: skip
        test = self._self_test(spec, queries)
        if population.codewords is not None and population.near.size:
            # Where near vectors lie among codewords is a model; it misses as it does in a test.
            promised = replace(
                promised,
                private=promised.private.corrected(test.missed),
                exact=promised.exact.corrected(test.missed),
            )
        return replace(promised, centroids=row.centroids, test=test)

    def promised_of(self, row: Row) -> Population:
        """Return the population, with all its queries, from which a row is promised."""
        return self._sample.population_of(row.spec, ALL_QUERIES, denoised=row.denoiser is not None)

    def _self_test(self, spec: Spec, queries: int) -> SelfTest:
        """Return how well a quarter of the population predicts the others, of codes as they are.

        ``queries`` is how many the prediction has that is tested.
        """
        tested, *populations = self._sample.tests_of(spec, QUERIES)
        ladder = self._goal.tested_ladder(populations[0].n)
        shares = [
            predicted_rows(tested, population, COUNTED_ROUNDS, ladder, 0.0)[0].found(
                self._goal.query
            )
            for population in populations
        ]
        vectors = sum(population.vectors.shape[0] for population in populations)
        return SelfTest.of(queries, vectors, *shares)

    def _tried_with(
        self, spec: Spec, noise: float, effort: _Effort, kind: DenoiserKind | None
    ) -> Row:
        """Return the row of an effort, with half of its queries where each takes long."""
        return self._row(spec, noise, effort.halved() if _takes_long(spec, kind) else effort, kind)

    def _row(
        self,
        spec: Spec,
        noise: float,
        effort: _Effort,
        kind: DenoiserKind | None,
    ) -> Row:
        """Return the row of codes as they are, or of denoised ones if those are worth it."""
        goal = self._goal
        asking = max(_FIRST.queries, effort.queries)
        population = self._sample.population_of(spec, asking, True, denoised=kind is not None)
        rows = predicted_rows(
            spec, population, effort.rounds, goal.ladder, noise, kind,
            queries=effort.queries, on_average=goal.on_average,
            fitted=_fitted(spec, kind, effort), learned=self._learned,
        )  # fmt: skip
        plain, denoised = rows[0], rows[-1]
        values = goal.value(plain), goal.value(denoised)
        row = denoised if is_worth_denoising(*values, informed=is_informed(spec)) else plain
        return replace(row, centroids=self._sample.has_centroids(spec))

    def curves(self, rows: Sequence[Row]) -> tuple[tuple[Row, ...], ...]:
        """Return for each of the best methods its rows from a quarter of the epsilon to 4 times."""
        of_methods = _first_of_each(rows, lambda row: row.method)
        planned = rows[0].spec.budget
        lines = []
        for leader in self._goal.ranked(of_methods)[:_CONTENDERS]:
            line = []
            for epsilon in (planned * 2.0**i for i in range(-2, 3)):
                if epsilon == planned:
                    line.append(leader)
                elif _LOWEST_EPSILON <= epsilon <= _MAX_EPSILON:
                    with suppress(NoGuaranteeError):  # noise that no code can hold
                        alike = self.to_try.like(leader.spec, epsilon)
                        best = self.screened(alike)[0]
                        if leader.denoiser == "auto":
                            best = self.refined(best, "auto", _FIRST)
                        line.append(best)
            lines.append(tuple(line))
        return tuple(lines)

    def contrast(self, epsilon: float) -> tuple[Row, ...]:
        """Return rows under another adjacency, to compare with."""
        spec = self.to_try.contrast(epsilon)
        if spec is None:
            return ()
        noise = noise_share(spec, self._sample.vectors[: _SCREENING.queries])
        return (self._row(spec, noise, _CONTRAST, None),)

    def attacks(self, row: Row) -> AttackFigures:
        """Return what attacks on codes of public vectors find, with the denoiser of the promise."""
        spec, vectors = self._sample.attacked(row.spec)
        known = self._learned.get((spec, row.denoiser or "auto", _fitted(spec, row.denoiser)))
        trial = Trial(spec, vectors, metric=self._goal.metric, denoise=known or "auto")
        return AttackFigures.of(trial)

    def quick_best(self, epsilon: float) -> Row:
        """Return the best of the methods and lengths that are promising at a middle epsilon."""
        alike = [self.to_try.like(spec, epsilon) for spec in self._contenders]
        return self.screened([*chain.from_iterable(alike)])[0]

    @cached_property
    def _contenders(self) -> list[Spec]:
        """The best specs of a middle epsilon, one of each method, length and codebook."""
        rows = self._screened_at(_MIDDLE_EPSILON)
        different = _first_of_each(rows, lambda row: (row.method, row.k, row.spec.codebook))
        return [row.spec for row in different[:_CONTENDERS]]


def _fitted(spec: Spec, kind: DenoiserKind | None, effort: _Effort = _LAST) -> int:
    """Return how many codes a denoiser is fitted to; 0 for those that are counted."""
    if kind != "auto":
        return 0
    length = spec.code_length
    codes = max(_FITTED_CODES, _FITTED_PER_COORDINATE * length)
    return min(codes, _FITTED_NUMBERS // length, effort.fitted)


def _takes_long(spec: Spec, kind: DenoiserKind | None) -> bool:
    """Return whether each query takes long: near ranks are denoised or compared with vectors."""
    return (kind == "auto" and spec.code_length > _FEW) or is_compared(spec)


def _kind_at_last(row: Row) -> DenoiserKind | None:
    """Return which denoiser a row has in the end: designs, which find much as they are, get one."""
    return "auto" if is_informed(row.spec) and has_scores(row.spec) else row.denoiser


def _is_wave(row: Row) -> bool:
    """Return whether a row's noise is that of values of an interval."""
    return row.spec.method_row.calibration.bounded


def _latest(*several: Iterable[Row]) -> list[Row]:
    """Return the last row of each spec, where its first one is."""
    return [*{row.spec: row for row in chain(*several)}.values()]


def _first_of_each(items: Iterable[_Item], kind: Callable[[_Item], object]) -> list[_Item]:
    """Return the first item of each kind."""
    first: dict[object, _Item] = {}
    for item in items:
        first.setdefault(kind(item), item)
    return list(first.values())


def _but_for_noise(spec: Spec) -> object:
    """Return what codes of equal length have in common whose noise alone differs."""
    if spec.law.interchangeable:
        return type(spec.law), type(spec.projection), spec.code_length, spec.variant.repetitions
    return spec


def has_scores(spec: Spec) -> bool:
    """Return whether codes of a spec have a denoiser that reads each by the law of its noise."""
    return "score" in spec.format_type.denoisers


def is_informed(spec: Spec) -> bool:
    """Return whether codes find what public vectors have in common before they are denoised."""
    return decoder_of(spec).informed


def is_worth_denoising(plain: float, denoised: float, informed: bool = False) -> bool:
    """Return whether recall with a denoiser is so much better that it should be fitted.

    >>> is_worth_denoising(0.9, 0.901), is_worth_denoising(0.9, 0.95)
    (False, True)
    """
    of_found = _WORTH_OF_DESIGN if informed else _WORTH_OF_FOUND
    return denoised > plain + min(_WORTH_OF_MISSED * (1.0 - plain), of_found * plain)


def _fewest_candidates(rows: Sequence[Row], goal: Goal) -> int:
    """Return the fewest candidates among which the best spec finds the recall.

    Raises
    ------
    InputError
        If a quarter of the collection is too few.
    """
    recall = goal.recall or 0.0
    every = [row.found(goal.query).candidates_for(recall) for row in rows]
    enough = [number for number in every if number is not None]
    if not enough:
        most = goal.ladder[-1]
        of_most = replace(goal, recall=None, candidates=most)
        best = of_most.ranked(rows)[0]
        predicted = of_most.value(best)
        raise InputError(
            f"a recall@{goal.at} of {recall:g} is out of reach at epsilon = "
            f"{goal.epsilon:g}: among {most} candidates the prediction for {best.method} is "
            f"{predicted:.2f}; ask for less, or for a larger epsilon."
        )
    return max(min(enough), goal.at)


def _smallest_epsilon(planner: _Planner, goal: Goal) -> float:
    """Return the smallest epsilon at which the best method reaches the recall, to two digits.

    Raises
    ------
    InputError
        If no epsilon does.
    """
    recall = goal.recall or 0.0
    smallest = _MAX_EPSILON
    best = planner.quick_best(smallest)
    if goal.value(best) < recall:
        raise InputError(
            f"a recall@{goal.at} of {recall:g} is out of reach: at epsilon = {_MAX_EPSILON:g} "
            f"the prediction for {best.method} is {goal.value(best):.2f}; ask for less."
        )
    for span, steps, denoise in _BISECTIONS:
        too_small = smallest / span
        for _ in range(steps):
            middle = math.sqrt(too_small * smallest)
            value = 0.0
            with suppress(NoGuaranteeError):  # noise that no code can hold
                best = planner.quick_best(middle)
                value = goal.value(planner.refined(best, "auto" if denoise else None))
            if value >= recall:
                smallest = middle
            else:
                too_small = middle
    digits = 10.0 ** (1 - math.floor(math.log10(smallest)))
    return math.ceil(smallest * digits) / digits
