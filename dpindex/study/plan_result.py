"""The result of planning: predictions for each spec, the recommended one, and why; and its file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpindex.base.display import table_html, text_table
from dpindex.base.errors import DamagedError
from dpindex.base.files import AnyPath, create_file, pack, parse_file, unpack
from dpindex.decode.base import Metric
from dpindex.decode.fit import DenoiserKind
from dpindex.index.search import QueryMode
from dpindex.mechanism.parameters import PARTS
from dpindex.mechanism.spec import Spec
from dpindex.study.goal import PRECISION, Goal, Measure
from dpindex.study.row import AttackFigures, Row

_KIND = "plan"
_MAX_PLAN_BYTES = 1 << 31
# Rows that are shown, and query modes in the order of columns.
_SHOWN = 12
_MODES: tuple[QueryMode, ...] = ("private", "exact")
# Of the table: measures above their columns, and the columns.
_HEADS = "{:>58}{:>15}"
_LINE = "{:22} {:13}{:8}{:>8}{:>6}{:>9}{:>6}{:>6}"


@dataclass(frozen=True)
class SavedPlan:
    """What a build needs of a plan, so that it can be resumed as planned. All of it is public.

    Attributes
    ----------
    spec : Spec
        With its codebook or design.
    metric, denoiser
        What neighbours are ranked by; the kind of denoiser that the plan counts on, or None.
    at, candidates, query
        What a search is asked for: k, how many answers are re-ranked or a share such as "5%", and
        the query mode.
    choice : str
        One sentence on what was chosen.
    stated : mapping
        Options that a build was given, by which it is known again; empty for ``Plan.save``.
    """

    spec: Spec
    metric: Metric
    denoiser: DenoiserKind | None
    at: int
    candidates: int | str | None
    query: QueryMode
    choice: str
    stated: Mapping[str, str]

    @classmethod
    def read(cls, path: AnyPath) -> SavedPlan:
        """Return the plan in a file; InputError, which begins with the path, if there is none."""
        return parse_file(path, _MAX_PLAN_BYTES, cls._parsed)

    @classmethod
    def _parsed(cls, data: bytes) -> SavedPlan:
        facts, arrays = unpack(data, _KIND)
        try:
            spec = Spec.from_dict(facts["spec"])
            if spec.public is not None:
                part = PARTS[spec.public.kind].from_bytes(arrays["public"].tobytes())
                spec = spec.with_public(part)
            return cls(**{**facts, "spec": spec})
        except (KeyError, TypeError):
            raise DamagedError("the plan has fields that no dpindex writes.") from None

    def to_bytes(self) -> bytes:
        """Return the plan in the common container."""
        arrays = {}
        if self.spec.public is not None:
            arrays["public"] = np.frombuffer(self.spec.public.to_bytes(), np.uint8)
        return pack(_KIND, {**vars(self), "spec": self.spec.to_dict()}, arrays)


@dataclass(frozen=True, repr=False)
class Plan:
    """The result of :func:`dpindex.plan`.

    Attributes
    ----------
    goal : Goal
        What was planned for: ``goal.n``, ``goal.query`` and other terms of :func:`dpindex.plan`,
        and ``goal.measures``, the shares that are shown of each spec.
    rows : tuple of Row
        Best first.
    refused : tuple of str
        One sentence for each method or code length that has no guarantee under these terms.
    remarks : tuple of str
        Caveats, one sentence each.
    contrast : tuple of Row
        Methods of another adjacency, shown to compare with.
    attacks : AttackFigures or None
        What attacks on codes of public vectors under the recommended spec find.
    curves : tuple of tuple of Row
        Predictions for the best methods at several epsilons, if they were asked for.

    >>> from dpindex import attribute
    >>> from dpindex.study.row import FoundShares
    >>> spec = Spec("raw-staircase", dim=8, epsilon=4.0, adjacency=attribute(1.0))
    >>> found = FoundShares(0.5, {10: 0.3})
    >>> row = Row(spec, None, found, found, bytes_per_vector=8, noise=0.2)
    >>> print(Plan(Goal(8, 1000, spec.adjacency, spec.epsilon), (row,)).choice)
    Chosen: raw-staircase with 8 numbers (8 bytes a vector); an exact query should find 30 % of the
    10 nearest in its first 10 answers.
    """

    goal: Goal
    rows: tuple[Row, ...]
    refused: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    contrast: tuple[Row, ...] = ()
    attacks: AttackFigures | None = None
    curves: tuple[tuple[Row, ...], ...] = ()

    def __repr__(self) -> str:
        specs = f"{len(self.rows)} specs for {self.goal.n} vectors"
        return f"<Plan: {specs}; {self.best.method} is best>"

    def _repr_html_(self) -> str:
        """For notebooks: the predictions, best first."""
        shares = [f"{measure}, {mode}" for measure in self.goal.measures for mode in _MODES]
        header = ("method", "k", "denoiser", *shares, "bytes")
        return table_html(self.why, header, map(self._cells, self.rows[:_SHOWN]))

    def __str__(self) -> str:
        """A line of at most 80 columns for each spec, what is recommended, and notes."""
        lines = [f"Predicted for {self.goal.n} vectors", *self._table()]
        if any(row.spec.codebook for row in self.rows):
            lines.append("K: codewords; C: centroids of public vectors; w: --subset; u: --window")
        lines.append(f"under {self.best.guarantee}")
        for row in self.contrast:
            lines.append(f"{row.method}, for contrast: {row.guarantee}, any two vectors of norm 1")
        if len(self.rows) > _SHOWN:
            lines.append(f"and {len(self.rows) - _SHOWN} more.")
        lines += [f"Recommended: {self.why}", self.expected, self._candidate_table()]
        lines += ["What it protects:", *(f"  - {line}" for line in self.protection)]
        lines += [f"Note: {line}" for line in self.remarks]
        return "\n".join(lines)

    def _table(self) -> Iterator[str]:
        """Yield the lines of the table of specs."""
        measures = self.goal.measures
        yield _HEADS.format(*(measure.kind for measure in measures))
        yield _HEADS.format(*(measure.terms for measure in measures))
        yield _LINE.format("method", "k", "denoiser", *len(measures) * _MODES, "bytes")
        for row in (*self.rows[:_SHOWN], *self.contrast):
            yield _LINE.format(*self._cells(row))

    def _cells(self, row: Row) -> list[str]:
        """Return a line of the table: the code, each measure by query mode, and the size."""
        shares = [
            f"{measure.of(row.found(mode)):.2f}"
            for measure in self.goal.measures
            for mode in _MODES
        ]
        return [row.method, row.size, row.denoiser or "–", *shares, str(row.bytes_per_vector)]

    def _candidate_table(self) -> str:
        """Return how recall grows with the candidates that the data holder re-ranks."""
        goal = self.goal
        numbers = sorted({*goal.shown_candidates, goal.counted_candidates})
        rows = [("", *(f"{number / goal.n:.2%}" for number in numbers))]
        for mode in _MODES:
            found = self.best.found(mode)
            rows.append((mode, *(f"{found.recall_within(number):.2f}" for number in numbers)))
        table = text_table(["R", *map(str, numbers)], rows)
        return f"recall@{goal.at} once the data holder re-ranks the first R answers:\n{table}"

    @property
    def best(self) -> Row:
        """Recommended row; ``fit_denoiser(best.denoiser)`` unless its denoiser is None."""
        return self.rows[0]

    @property
    def spec(self) -> Spec:
        """The recommended spec, with its codebook or design: all that an index needs."""
        return self.best.spec

    @property
    def metric(self) -> Metric:
        """What neighbours are ranked by."""
        return self.goal.metric

    @property
    def denoiser(self) -> DenoiserKind | None:
        """The denoiser that the prediction counts on, as of ``fit_denoiser``; None without one."""
        return self.best.denoiser

    def save(self, path: AnyPath) -> None:
        """Write what ``dpindex build --plan`` needs to a new file.

        Parameters
        ----------
        path : path

        Raises
        ------
        InputError
            If the file exists or cannot be written.
        """
        create_file(path, self.saved().to_bytes())

    def saved(self, **stated: str) -> SavedPlan:
        """Return what a build needs of it; ``stated`` are the options that the build was given."""
        goal = self.goal
        candidates = goal.counted_candidates if goal.on_average is None else goal.candidates
        return SavedPlan(
            self.spec,
            self.metric,
            self.denoiser,
            goal.at,
            candidates,
            goal.query,
            self.choice,
            stated,
        )

    def share(self, row: Row, measure: Measure) -> float:
        """Return a measure of what a row finds in the query mode that was planned for."""
        return measure.of(row.found(self.goal.query))

    @property
    def choice(self) -> str:
        """One sentence: what was chosen, and what a query should find."""
        return f"Chosen: {self._chosen}; {self._expected(self.goal.measures[:1])}."

    @property
    def why(self) -> str:
        """One sentence on the recommendation."""
        best = self.best
        first = self.goal.measures[0]
        found = self.share(best, first)
        denoiser = " and a denoiser" if best.denoiser else ""
        sentence = (
            f"{self._chosen}{denoiser} is predicted to reach {first} = {found:.2f} at "
            f"{best.guarantee}"
        )
        rival = next((row for row in self.rows if row.method != best.method), None)
        if rival is None:
            return f"{sentence}; it is the only method that was tried."
        sentence = f"{sentence}: {_advantage(best, rival)}"
        next_best = f"{rival.method} with {rival.contents}"
        rivals = self.share(rival, first)
        if rivals >= found:
            return f"{sentence}; {next_best} is about as good."
        return (
            f"{sentence}; the {first.kind} predicted for the next method, {next_best}, is "
            f"{rivals:.2f}."
        )

    @property
    def _chosen(self) -> str:
        best = self.best
        return f"{best.method} with {best.contents} ({best.bytes_per_vector} bytes a vector)"

    def range_of(self, measure: Measure) -> tuple[float, float]:
        """Return between which shares of a measure the recommended spec finds, nine times in ten.

        It is for the query mode of the plan, and comes from a self-test: a quarter of the sample
        predicts what is counted in the rest, in the way in which the plan predicts a collection.
        """
        share = self.share(self.best, measure)
        if self.best.test is None:
            return share, share
        return self.best.test.range_of(share)

    @property
    def expected(self) -> str:
        """One sentence on what will be found, with its range."""
        sentence = self._expected(self.goal.measures)
        return f"{sentence[0].upper()}{sentence[1:]}."

    def _expected(self, measures: Sequence[Measure]) -> str:
        parts = []
        for measure in measures:
            low, high = (f"{share:.0%}".removesuffix("%") for share in self.range_of(measure))
            share = f"{high} %" if low == high else f"{low} to {high} %"
            parts.append(measure.sentence.format(share))
        query = "an exact" if self.goal.query == "exact" else "a private"
        return f"{query} query should {' and '.join(parts)}"

    @property
    def protection(self) -> tuple[str, ...]:
        """Protection by the recommended spec, in numbers, one sentence each."""
        odds = self.best.guarantee.odds()
        if self.attacks is None:
            return (odds,)
        return (odds, *self.attacks.lines())

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain JSON values."""
        goal = self.goal
        measures = dict.fromkeys((*goal.measures, PRECISION))
        return {
            "recommended": {"spec": self.spec.to_dict(), "denoiser": self.denoiser},
            "why": self.why,
            "ranges": {str(measure): list(self.range_of(measure)) for measure in measures},
            "expected": self.expected,
            "protection": list(self.protection),
            "attacks": self.attacks and self.attacks.to_dict(),
            "remarks": list(self.remarks),
            "query": goal.query,
            "metric": goal.metric,
            "n": goal.n,
            "at": goal.at,
            "candidates": goal.counted_candidates,
            "rows": [row.to_dict() for row in self.rows],
            "curves": [[row.to_dict() for row in line] for line in self.curves],
            "contrast": [row.to_dict() for row in self.contrast],
            "refused": list(self.refused),
        }


def _advantage(best: Row, rival: Row) -> str:
    """Return why the best row beats the best of another method."""
    if best.spec.symbols:
        if best.spec.subset is None:
            return "its one symbol describes the vector as a whole"
        near = f"one of the {best.spec.subset} nearest codewords"
        if best.spec.subset == 1:
            near = "the nearest codeword"
        return f"{1 - best.noise:.0%} of its reports name {near}, the others are random"
    if best.signs:
        return f"{best.noise:.0%} of its signs are flipped, and a sign takes one bit"
    noise = f"the standard deviation of its noise is {best.noise:.2g} times that of a coordinate"
    if not rival.signs and best.noise < 0.97 * rival.noise:
        return f"{noise}, against {rival.noise:.2g} for the next method"
    if best.denoiser:
        return f"{noise}, much of which a denoiser removes because coordinates are correlated"
    if best.k > rival.k:
        return f"{noise}, and its {best.k} coordinates keep more of a vector"
    return noise
