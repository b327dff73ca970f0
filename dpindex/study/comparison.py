"""The rounds in which specs are compared on a sample: in each fewer, on more queries and codes."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from functools import cached_property, partial
from itertools import chain
from typing import TypeVar

from dpindex.base.display import Progress
from dpindex.base.errors import NoGuaranteeError
from dpindex.base.threads import idle_cores
from dpindex.decode import decoder_of
from dpindex.decode.fit import DenoiserKind
from dpindex.mechanism.privatizer import Privatizer
from dpindex.mechanism.spec import Spec
from dpindex.study.candidates import SpecsToTry
from dpindex.study.goal import Goal
from dpindex.study.predictor import (
    CONTRAST,
    FEW,
    FIRST,
    LAST,
    SCREENING,
    Effort,
    Predictor,
    has_scores,
    is_informed,
    kind_at_last,
    takes_long,
)
from dpindex.study.row import FoundShares, Row
from dpindex.study.sample import Sample
from dpindex.study.trial import in_threads

MAX_EPSILON = 64.0
# The lowest epsilon of a spec.
_LOWEST_EPSILON = 0.001
_MIDDLE_EPSILON = 4.0
_CONTENDERS = 5
_FINALISTS = 3
# Codes of less signal tell less than half a nat about a vector (Shannon 1948), where one among a
# hundred takes five: they find nothing, and are tried only if all are such.
_MIN_SNR = 1.0
# Nats that a code has for each of the answers that it finds among all, over those that an answer
# takes: .15 of digits at epsilon 1 with 15 nats, of the 9 that one among 5750 takes, .60 at 2
# with 45, and of sentences .33 with 16 of 7. A denoiser adds none.
_NATS_OF_ANSWER = 6.0
# Among predictions that differ by less than this share, the shortest code is recommended.
_EVEN = 0.01
# Standard errors within which others may be the best, and how many are compared at last.
_MARGIN = 1.0
_COMPARED = 4

_Item = TypeVar("_Item")


class Comparison:
    """Candidates that are tried on a sample.

    Attributes
    ----------
    to_try : SpecsToTry
    predictor : Predictor
    """

    def __init__(self, goal: Goal, to_try: SpecsToTry, sample: Sample, progress: Progress) -> None:
        self._goal = goal
        self.to_try = to_try
        self.predictor = Predictor(goal, sample)
        self._sample = sample
        self._progress = progress
        self._workers = idle_cores()
        # Kept: a projection of millions of attributes takes seconds, and specs share it.
        self._first = to_try.specs(goal.epsilon or _MIDDLE_EPSILON)[0]
        Privatizer(self._first).check(sample.vectors)

    def ranked(self, epsilon: float) -> tuple[Row, ...]:
        """Return a row for each spec, best first.

        All are predicted from few trials, those that the best denoisers may help from more, then
        those near the best, and the last ones from even more. The best is predicted once more, for
        what is promised.
        """
        screened = self._screened_at(epsilon)
        self._progress(0, len(screened), "the best of them, in more detail")
        # What is no better denoised keeps its row: it was tried on other queries than those that it
        # is compared with.
        tried = self._again(self._denoisable(screened), FIRST, "auto")
        denoised = [row for row in tried if row.denoiser]
        rows = _latest(screened, denoised)
        plain = [row for row in self._near_best(rows) if row not in denoised]
        signs = [row for row in plain if row.signs and not is_informed(row.spec)]
        leaders = [
            *denoised,
            *self._again((row for row in plain if row not in signs), FIRST),
            *self._again(signs, FIRST, "linear"),
        ]
        rows = _latest(rows, leaders)
        near = self._near_best(leaders, FIRST.queries)[:_COMPARED]
        waves = self._denoised_waves(near, rows)
        if waves:
            best_wave = max(waves, key=self.predictor.found_by_both)
            near = [best_wave, *(row for row in near if not _is_wave(row))]
        self._sample.forget()
        compared = self._compared_at_last(near)
        best = self._best_of(compared)
        self._sample.forget()
        rows = _latest(rows, waves, compared)
        rest = [row for row in rows if row.spec != best.spec]
        # The best of many predictions is too high: it is promised what further queries find.
        return (self.predictor.promised(best), *self._goal.ranked(rest))

    def _again(
        self, rows: Iterable[Row], effort: Effort, kind: DenoiserKind | None = None
    ) -> list[Row]:
        again = partial(self.predictor.again, effort=effort, kind=kind)
        return [*in_threads(again, rows, self._workers)]

    def _compared_at_last(self, rows: Sequence[Row]) -> list[Row]:
        """Return rows from the most trials, all on the same queries, with what comes last.

        Denoisers of designs come last, and points between the codewords of a codebook.
        """
        kinds = {row.spec: kind_at_last(row) for row in rows}
        is_long = any(takes_long(spec, kind) for spec, kind in kinds.items())
        effort = LAST.halved() if is_long else LAST

        def compared(row: Row) -> Row:
            return self.predictor.row(row.spec, row.noise, effort, kinds[row.spec])

        if len(rows) > 1 or self.to_try.grown(rows[0].spec):
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
            return waves + self._again(others, FIRST, "auto")
        return []

    def _best_of(self, rows: Sequence[Row]) -> Row:
        """Return the shortest of the codes that find as much as the best ones, within chance."""
        highest = max(map(self.predictor.expected, rows))
        even = [row for row in rows if self.predictor.expected(row) >= (1 - _EVEN) * highest]
        return min(even, key=lambda row: (row.bytes_per_vector, -self.predictor.found_by_both(row)))

    def _screened_at(self, epsilon: float) -> list[Row]:
        """Return rows of the specs of an epsilon that may be best, best first."""
        rows = self.screened(self.to_try.specs(epsilon))
        tried = {row.spec for row in rows}
        while True:
            beside = [self.to_try.beside(row.spec) for row in self._near_best(rows)]
            untried = [spec for spec in chain.from_iterable(beside) if spec not in tried]
            if not untried:
                break
            rows += self._tried(untried, [])
            tried.update(untried)
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
        """Return rows of specs, of codes as they are, and 0 where nothing is found.

        Why none is left is added to ``refusals``.
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
        above_noise.sort(key=lambda spec: -spec.code_length)

        def predicted(spec: Spec) -> Row:
            return self.predictor.tried(spec, noises[spec], SCREENING)

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
                return self.predictor.noise(spec)
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

    def _near_best(self, rows: Collection[Row], queries: int = SCREENING.queries) -> list[Row]:
        """Return rows that may be the best in truth, best first.

        Of a query that finds all or nothing, by luck.
        """
        value = self.predictor.expected
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
        few = self._goal.dim <= FEW
        tried = [row for row in rows if self._goal.value(row) > 0.0] or rows
        if few:  # but for those that noise leaves nothing of
            tried = [row for row in rows if row.spec.format.signal_to_noise(row.noise) >= _MIN_SNR]
        with_scores = [row for row in tried if has_scores(row.spec) and not is_informed(row.spec)]
        if few:
            return _first_of_each(with_scores, lambda row: row.method)
        kinds: dict[type, list[Row]] = {}
        for row in with_scores:
            kinds.setdefault(type(row.spec.projection), []).append(row)
        helped = [*map(self._helped_most, [*kinds.values()][:_FINALISTS])]
        of_answer = math.log(self._goal.n / self._goal.counted_candidates)
        needed = _NATS_OF_ANSWER * of_answer * max(map(self._goal.value, rows))
        return [row for row in helped if self.predictor.information(row) >= needed]

    def _helped_most(self, rows: Sequence[Row]) -> Row:
        """Return the row that a denoiser may help most: a wave, if one may be the best.

        Of digits at epsilon 2 staircases find .12 as they are and .47 denoised, waves .16 and .55.
        """
        near = self._near_best(rows)
        return next(filter(_is_wave, near), near[0])

    def _with_grown(self, rows: Sequence[Row], effort: Effort) -> list[Row]:
        """Return rows, with the best softmax codebook of vectors grown if that finds more.

        It takes four times as long, so one is tried, with the best window, and the other windows
        are left out then. All that is found counts: .01 of the nearest ten alone says little.
        """
        ranked = self._goal.ranked(rows)
        for row in ranked:
            spec = self.to_try.grown(row.spec)
            if spec is not None:
                grown = self.predictor.row(spec, row.noise, effort, row.denoiser)
                if self.predictor.found_by_both(grown) > self.predictor.found_by_both(row):
                    book = row.spec.codebook
                    return [grown, *(other for other in ranked if other.spec.codebook != book)]
                break
        return ranked

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
                elif _LOWEST_EPSILON <= epsilon <= MAX_EPSILON:
                    with suppress(NoGuaranteeError):  # noise that no code can hold
                        alike = self.to_try.like(leader.spec, epsilon)
                        best = self.screened(alike)[0]
                        if leader.denoiser == "auto":
                            best = self.predictor.again(best, FIRST, "auto")
                        line.append(best)
            lines.append(tuple(line))
        return tuple(lines)

    def contrast(self, epsilon: float) -> tuple[Row, ...]:
        """Return rows under another adjacency, to compare with."""
        spec = self.to_try.contrast(epsilon)
        if spec is None:
            return ()
        return (self.predictor.row(spec, self.predictor.noise(spec), CONTRAST),)

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
