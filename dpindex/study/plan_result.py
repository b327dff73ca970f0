"""The result of planning: predictions for each spec, the recommended one, and why."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dpindex.base.display import (
    COLOURS,
    MARKERS,
    epsilon_axis,
    legend_below,
    new_figure,
    table_html,
    text_table,
    tidy,
    to_png,
)
from dpindex.base.files import AnyPath, create_file
from dpindex.decode.base import Metric
from dpindex.decode.fit import DenoiserKind
from dpindex.index.search import QueryMode
from dpindex.mechanism.promises import information_lines, quality_warnings
from dpindex.mechanism.spec import Spec
from dpindex.privacy import Attribute
from dpindex.study.saved_plan import SavedPlan
from dpindex.study.target import (
    PRECISION,
    AttackFigures,
    Measure,
    Row,
    recall_measure,
    reranked,
)

_POOR = 0.2
_SHOWN = 10  # rows in a notebook, and in print
_PRINTED = 12
_NAMED = 5  # columns
_UNLIKE = (
    "Codebooks find less if your vectors are unlike the sample: half of what was predicted, on "
    "sentence embeddings of other topics."
)
_BY_COSINE = (
    "Neighbours are ranked by cosine, which ignores lengths. If lengths count, as in tables, plan "
    "and build with the metric l2."
)
# Columns that a table has at most, for that note.
_TABLE_COLUMNS = 50
_NO_SECRET = (
    " One coordinate of an embedding is nobody's secret: for embeddings plan with --record "
    "(adjacency=dpindex.record()), which hides whole records."
)
_MADE_OF_SAMPLE = (
    "One attribute is hidden, not the vector: attributes are correlated, so a code reveals more "
    "about the vector as a whole. The codebook or design is published and holds parts of the "
    "sample, which must be public."
)
_NARROWED = (
    "Values are clipped to {low:g} … {high:g}, the middle three quarters of the sample's, so less "
    "noise is needed. Stated cosines are those of clipped vectors; neighbours are those of the "
    "originals."
)
_OF_CLIPPED = "Neighbours are counted on vectors that are clipped to the bounds."
_FROM_SAMPLE = "Predictions assume that the collection resembles the sample."
_UNTESTED = (
    "Each vector of the sample stands for {ratio:.0f} of the collection, and plans were tested up "
    "to {most}, so a search may find more or less than the range says. "
)
_MORE_VECTORS = "{enough} public vectors would do."
_NO_SAMPLE = "A plan tries specs on {tried} vectors at most."
# Vectors of the collection for each vector that is tried, up to which ranges were compared with
# what was found.
_TESTED = 60
_UNGROUPED = (
    "The plan assumes that queries resemble the sample. If the sample has near-copies, such as "
    "captions of one picture, and queries have none, name the groups: a search then finds less."
)
_GROUPED = (
    "Rows of the sample come in groups of near-copies, such as captions of one picture, and the "
    "plan assumes that queries have none in the collection: those that do find more."
)


@dataclass(frozen=True, repr=False)
class Plan:
    """The result of :func:`dpindex.plan`.

    Attributes
    ----------
    rows : tuple of Row
        Best first.
    query : "private" or "exact"
        The query mode that was planned for.
    metric : "cosine" or "l2"
        What neighbours are ranked by.
    deciding : tuple of (str, float)
        Columns with ranges that decide which rows of the sample are near, each with its share.
    narrowed : bool
        The bounds of the recommended spec hold the middle three quarters of the sample's values.
    n, at : int
        Vectors in the collection; answers and true neighbours that recall counts.
    candidates : int
        Answers of the codes that the holder of the vectors is to order; k if nobody does.
    share : str, optional
        The share of the collection on average, such as "5%", if candidates were stated so.
    shown_candidates : tuple of int
        Numbers of candidates for which the recall of the recommended spec is shown.
    refused : tuple of str
        One sentence for each method or code length that has no guarantee under these terms.
    contrast : tuple of Row
        Methods of another adjacency, shown to compare with.
    sample_rows : int
        Vectors of the public sample that codewords were chosen among.
    told : bool
        Groups of the sample or public queries were stated, so that queries are known to be unlike
        vectors of the collection.
    grouped : bool
        Groups were not stated, and were seen in the sample.
    tried : int
        Vectors of the sample that the recommended spec was tried on.
    largest : int
        Vectors that a plan tries specs on, at most.
    embeddings : bool
        The vectors of the sample have norm 1, as embeddings have.
    attacks : AttackFigures or None
        What attacks on codes of public vectors under the recommended spec find.
    curves : tuple of tuple of Row
        Predictions for the best methods at several epsilons, if they were asked for.
    """

    rows: tuple[Row, ...]
    query: QueryMode
    n: int
    at: int
    candidates: int
    share: str | None
    shown_candidates: tuple[int, ...]
    refused: tuple[str, ...]
    contrast: tuple[Row, ...] = ()
    sample_rows: int = 0
    told: bool = False
    grouped: bool = False
    tried: int = 0
    largest: int = 0
    embeddings: bool = False
    attacks: AttackFigures | None = None
    curves: tuple[tuple[Row, ...], ...] = ()
    metric: Metric = "cosine"
    narrowed: bool = False
    deciding: tuple[tuple[str, float], ...] = ()

    def __repr__(self) -> str:
        return f"<Plan: {len(self.rows)} specs for {self.n} vectors; {self.best.method} is best>"

    def _repr_html_(self) -> str:
        """For notebooks: the predictions, best first."""
        header = ("method", "code", "denoiser", "private", "exact", "bytes", "guarantee")
        rows: list[tuple[object, ...]] = []
        measure = self.measures[0]
        for row in self.rows[:_SHOWN]:
            private = f"{measure.of(row.private):.2f}"
            exact = f"{measure.of(row.exact):.2f}"
            sizes = (row.bytes_per_vector, row.guarantee)
            rows.append((row.method, row.size, row.denoiser or "–", private, exact, *sizes))
        title = f"{self.why} Predicted {measure}:"
        return table_html(title, header, rows)

    def __str__(self) -> str:
        """A line of at most 80 columns for each spec, what is recommended, and notes."""
        measures = self.measures
        heads = "".join(f"{measure.kind:>15}" for measure in measures)
        terms = "".join(f"{measure.terms:>17}" for measure in measures)
        modes = "".join(f"{'private':>9}{'exact':>6}" for _ in measures)
        lines = [
            f"Predicted for {self.n} vectors",
            f"{'':44}{heads}",
            f"{'':42}{terms}",
            f"{'method':22} {'k':12}{'denoiser':9}{modes}{'bytes':>6}",
        ]
        for row in (*self.rows[:_PRINTED], *self.contrast):
            code = f"{row.method:22} {row.size}"
            shares = ""
            for measure in measures:
                shares += f"{measure.of(row.private):9.2f}{measure.of(row.exact):6.2f}"
            lines.append(f"{code:35}{row.denoiser or '–':9}{shares}{row.bytes_per_vector:6}")
        if any(row.spec.codebook for row in self.rows):
            lines.append("K: codewords; C: centroids of public vectors; w: --subset; u: --window")
        lines.append(f"under {self.best.guarantee}")
        for row in self.contrast:
            lines.append(f"{row.method}, for contrast: {row.guarantee}, any two vectors of norm 1")
        if len(self.rows) > _PRINTED:
            lines.append(f"and {len(self.rows) - _PRINTED} more.")
        lines += [f"Recommended: {self.why}", self.expected, self._candidate_table()]
        lines += ["What it protects:", *(f"  - {line}" for line in self.protection)]
        lines += [f"Note: {line}" for line in self.remarks]
        return "\n".join(lines)

    def _candidate_table(self) -> str:
        """Return how recall grows with the candidates that the data holder re-ranks."""
        numbers = sorted({*self.shown_candidates, self.candidates})
        rows = [("", *(f"{number / self.n:.2%}" for number in numbers))]
        for mode, found in (("private", self.best.private), ("exact", self.best.exact)):
            rows.append((mode, *(f"{found.recall_within(number):.2f}" for number in numbers)))
        table = text_table(["R", *map(str, numbers)], rows)
        return f"recall@{self.at} once the data holder re-ranks the first R answers:\n{table}"

    @property
    def measures(self) -> tuple[Measure, ...]:
        """What is shown for each spec; specs are ranked by the first."""
        recall = recall_measure(self.at)
        if self.candidates > self.at:
            return (reranked(self.at, self.candidates), recall)
        return (recall, PRECISION)

    @property
    def best(self) -> Row:
        """Recommended row; ``fit_denoiser(best.denoiser)`` unless its denoiser is None."""
        return self.rows[0]

    @property
    def spec(self) -> Spec:
        """The recommended spec, with its codebook or design: all that an index needs."""
        return self.best.spec

    @property
    def denoiser(self) -> DenoiserKind | None:
        """The denoiser that the prediction counts on, as of ``fit_denoiser``; None without one."""
        return self.best.denoiser

    @property
    def choice(self) -> str:
        """One sentence: what was chosen, and what a query should find."""
        best = self.best
        code = f"{best.contents} ({best.bytes_per_vector} bytes a vector)"
        return f"Chosen: {best.method} with {code}; {self._expected(self.measures[:1])}."

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
        create_file(path, self.saved({}).to_bytes())

    def saved(self, stated: Mapping[str, str]) -> SavedPlan:
        """Return what a build needs of it; ``stated`` are the options that the build was given."""
        return SavedPlan(
            spec=self.spec,
            metric=self.metric,
            denoiser=self.denoiser,
            at=self.at,
            candidates=self.candidates,
            share=self.share,
            query=self.query,
            choice=self.choice,
            stated=stated,
        )

    @property
    def why(self) -> str:
        """One sentence on the recommendation."""
        best = self.best
        other: QueryMode = "exact" if self.query == "private" else "private"
        expected = []
        for measure in self.measures:
            planned = measure.of(best.found(self.query))
            others = measure.of(best.found(other))
            expected.append(f"{measure} = {planned:.2f} ({other} queries: {others:.2f})")
        denoiser = " and a denoiser" if best.denoiser else ""
        sentence = (
            f"{best.method} with {best.contents} ({best.bytes_per_vector} bytes){denoiser} is "
            f"predicted to reach {' and '.join(expected)} at {best.guarantee}"
        )
        rival = next((row for row in self.rows if row.method != best.method), None)
        if rival is None:
            return f"{sentence}; it is the only method that was tried."
        sentence = f"{sentence}: {_advantage(best, rival)}"
        first = self.measures[0]
        found = first.of(rival.found(self.query))
        if found >= first.of(best.found(self.query)):
            return f"{sentence}; {rival.method} with {rival.contents} is about as good."
        return (
            f"{sentence}; the {first.kind} predicted for the next method, {rival.method} with "
            f"{rival.contents}, is {found:.2f}."
        )

    def range_of(self, measure: Measure) -> tuple[float, float]:
        """Return between which shares of a measure the recommended spec finds, nine times in ten.

        It is for the query mode of the plan, and comes from a self-test: a quarter of the sample
        predicts what is counted in the rest, in the way in which the plan predicts a collection.
        """
        share = measure.of(self.best.found(self.query))
        if self.best.test is None:
            return share, share
        return self.best.test.range_of(share)

    @property
    def expected(self) -> str:
        """One sentence on what will be found, with its range."""
        sentence = self._expected(self.measures)
        return f"{sentence[0].upper()}{sentence[1:]}."

    def _expected(self, measures: Sequence[Measure]) -> str:
        parts = []
        for measure in measures:
            low, high = (f"{share:.0%}".removesuffix("%") for share in self.range_of(measure))
            share = f"{high} %" if low == high else f"{low} to {high} %"
            parts.append(measure.sentence.format(share))
        article = "an" if self.query == "exact" else "a"
        return f"{article} {self.query} query should {' and '.join(parts)}"

    @property
    def protection(self) -> tuple[str, ...]:
        """Protection by the recommended spec, in numbers, one sentence each."""
        odds = self.best.guarantee.odds()
        if self.attacks is None:
            return (odds,)
        return (odds, *self.attacks.lines())

    @property
    def remarks(self) -> tuple[str, ...]:
        """Caveats, one sentence each."""
        best = self.best
        lines = []
        if self.measures[0].of(best.found(self.query)) < _POOR:
            lines.append(
                "At this epsilon no method finds many neighbours; state a recall instead to see "
                "which epsilon it needs."
            )
        if isinstance(best.spec.adjacency, Attribute):
            if best.spec.public is not None:
                lines.append(_MADE_OF_SAMPLE)
            if not best.guarantee.also:
                dim = best.spec.dim
                line = (
                    f"This epsilon hides one attribute, not a record: all {dim} attributes "
                    f"together cost up to {best.guarantee.whole(dim)}."
                )
                if self.embeddings:
                    line += _NO_SECRET
                lines.append(line)
        if self.metric == "cosine" and best.spec.dim <= _TABLE_COLUMNS and not self.embeddings:
            lines.append(_BY_COSINE)
        if self.narrowed:
            low, high = (bound * best.spec.scale for bound in best.spec.bounds)
            lines.append(_NARROWED.format(low=low, high=high))
        elif best.spec.compared_limits is not None:
            lines.append(_OF_CLIPPED)
        lines += [f"{sentence}." for sentence in quality_warnings(best.spec, self.n)]
        lines += information_lines(best.spec, self.n)
        if best.spec.symbols:
            lines.append(_UNLIKE)
        if self.grouped:
            lines.append(_GROUPED)
        elif self.embeddings and not self.told:
            lines.append(_UNGROUPED)
        if self.deciding:
            columns = ", ".join(f"{name} ({share:.0%})" for name, share in self.deciding[:_NAMED])
            if len(self.deciding) > _NAMED:
                columns += f" and {len(self.deciding) - _NAMED} more"
            lines.append(f"These columns decide which rows of the sample are near: {columns}.")
        lines.append(_FROM_SAMPLE)
        if self.tried and self.n > _TESTED * self.tried:
            lines.append(self._beyond_test())
        return tuple(lines)

    def _beyond_test(self) -> str:
        """Say that the sample is small for the collection, and which would do."""
        share = self.tried / self.sample_rows
        enough = math.ceil(self.n / _TESTED / min(share, 1.0))
        remedy = _MORE_VECTORS.format(enough=enough)
        if enough > self.largest:
            remedy = _NO_SAMPLE.format(tried=self.largest)
        return _UNTESTED.format(ratio=self.n / self.tried, most=_TESTED) + remedy

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain JSON values."""
        measures = list(dict.fromkeys((*self.measures, PRECISION)))
        return {
            "recommended": {"spec": self.best.spec.to_dict(), "denoiser": self.best.denoiser},
            "why": self.why,
            "ranges": {str(measure): list(self.range_of(measure)) for measure in measures},
            "expected": self.expected,
            "protection": list(self.protection),
            "attacks": self.attacks and self.attacks.to_dict(),
            "remarks": list(self.remarks),
            "query": self.query,
            "metric": self.metric,
            "n": self.n,
            "at": self.at,
            "candidates": self.candidates,
            "rows": [row.to_dict(measures) for row in self.rows],
            "curves": [[row.to_dict(measures) for row in line] for line in self.curves],
            "contrast": [row.to_dict(measures) for row in self.contrast],
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


def plan_png(outcome: Plan) -> bytes:
    """A panel for recall and one for precision, the recommended point marked by a ring.

    The lines are the plan's ``curves``, for the query mode of the plan.

    Parameters
    ----------
    outcome : Plan
        What :func:`dpindex.plan` returned, with ``curves``.

    Raises
    ------
    InputError
        If Matplotlib is missing.

    >>> import numpy as np
    >>> import dpindex as dpi
    >>> public = np.random.default_rng(0).uniform(-1, 1, (500, 8))
    >>> terms = {"epsilon": 4.0, "adjacency": dpi.attribute(1.0), "methods": ["raw-staircase"]}
    >>> plan_png(dpi.plan(public, n=2000, **terms, curves=True))[1:4]
    b'PNG'
    """
    lines = outcome.curves
    rows = -(-(len(lines) + 1) // 2)
    figure = new_figure(11.2, 4.4 + 0.24 * rows)
    ticks = sorted({row.spec.budget for line in lines for row in line})
    handles = []
    for panel, measure in zip(figure.subplots(1, 2), outcome.measures, strict=True):
        handles = [
            _draw(panel, line, outcome, measure, number) for number, line in enumerate(lines)
        ]
        best = outcome.best
        handles.append(
            panel.plot(
                best.spec.budget, measure.of(best.found(outcome.query)), "o",
                markersize=15, markerfacecolor="none", markeredgecolor="black",
                markeredgewidth=1.6, linestyle="none", clip_on=False,
                label=f"recommended: {best.method}, {best.contents}, "
                f"ε = {best.spec.budget:g}",
            )[0]
        )  # fmt: skip
        panel.set(
            title=str(measure), ylim=(0.0, 1.02), ylabel=f"predicted, {outcome.query} queries"
        )
        epsilon_axis(panel, ticks, f"ε under {best.guarantee.adjacency}")
        tidy(panel)
    legend_below(figure, handles, [handle.get_label() for handle in handles])
    return to_png(figure)


def _draw(panel: Any, line: Sequence[Row], outcome: Plan, measure: Measure, number: int) -> Any:
    shares = [measure.of(row.found(outcome.query)) for row in line]
    denoised = ", denoised" if any(row.denoiser for row in line) else ""
    codes = {row.contents for row in line}
    contents = "the best code at each ε"
    if len(codes) == 1:
        contents = line[0].contents
    return panel.plot(
        [row.spec.budget for row in line], shares, color=COLOURS[number % len(COLOURS)],
        marker=MARKERS[number % len(MARKERS)], markersize=5, linewidth=1.8,
        label=f"{line[0].method}, {contents}{denoised}",
    )[0]  # fmt: skip
