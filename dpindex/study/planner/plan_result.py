"""The result of planning: predictions for each spec, the recommended one, and why."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from dpindex.base.arrays import Doubles
from dpindex.base.display import (
    COLOURS,
    MARKERS,
    epsilon_axis,
    legend_below,
    new_figure,
    table_html,
    tidy,
    to_png,
)
from dpindex.denoise import Kind
from dpindex.index.search import QueryMode
from dpindex.mechanism.codes import SignFormat
from dpindex.mechanism.spec import Spec, quality_warnings
from dpindex.privacy import Attribute, Guarantee
from dpindex.similarity.similarity import Metric
from dpindex.study.bounds import information_lines
from dpindex.study.planner.population import NEIGHBOURS
from dpindex.study.trial import Trial

# How codes are ranked: as they are, or after ``fit_denoiser`` of that kind.
Ranking: TypeAlias = Literal["plain", "linear", "auto"]

FOUND = 10
"""Answers that precision counts (Li & Li 2023, Sec. 5.1)."""

_POOR = 0.2
_SHOWN = 10
_UNLIKE = (
    "Codebooks find less where vectors are unlike the sample: half of what is predicted was "
    "measured on sentence embeddings of other topics."
)
_IN_GROUPS = (
    "Most vectors of the sample have near duplicates in it, and the prediction counts "
    "them as neighbours: for queries without such siblings it is far too high. State the groups of "
    "the sample, and give public queries."
)
_BY_COSINE = (
    "Neighbours are ranked by cosine, which knows no lengths; where these count, as in tables, "
    "plan and build with the metric l2."
)
_MADE_OF_SAMPLE = (
    "One attribute is hidden, not the vector: neighbours are found because codes tell more about a "
    "vector as a whole. What is made of the sample is published, so the sample must be public."
)
_NARROWED = (
    "Values are clipped to {low:g} … {high:g}, which holds three quarters of the sample's: no "
    "change of an attribute is wider, so the noise need not be. Stated cosines are those of "
    "clipped vectors; neighbours are those of the vectors as they are."
)
_OF_CLIPPED = "Neighbours are those of the vectors as they are clipped to the bounds."
_FROM_SAMPLE = (
    "Predictions assume that the collection resembles the sample, and vary by about 0.04 from one "
    "plan to the next."
)


@dataclass(frozen=True)
class Found:
    """Expected shares of true neighbours in one query mode.

    Attributes
    ----------
    precision : float
        precision@10 of the true 50: share of the first ten answers that are among the 50 nearest.
    recall : float
        recall@k of the true k: share of the k nearest that are among the first k answers, for the
        plan's k. It is never easier than precision where k is 10.
    within : mapping of int to float
        Recall by numbers of candidates: share of the k nearest that are among the first so many
        answers of the codes, which is recall@k once the owner of the vectors has ordered them.

    >>> found = Found(precision=0.5, recall=0.3, within={10: 0.3, 1000: 0.9})
    >>> round(found.recall_within(100), 3), found.candidates_for(0.6)
    (0.6, 100)
    """

    precision: float
    recall: float
    within: Mapping[int, float] = field(default_factory=dict)

    def recall_within(self, candidates: int) -> float:
        """Return recall after ordering so many candidates, between the numbers that are known."""
        numbers = np.log(list(self.within))
        return float(np.interp(math.log(candidates), numbers, list(self.within.values())))

    def candidates_for(self, recall: float) -> int | None:
        """Return the fewest candidates that reach a recall, to two digits; None if none do."""
        reached = list(self.within.values())
        if reached[-1] < recall:
            return None
        number = math.exp(np.interp(recall, reached, np.log(list(self.within))))
        unit = 10.0 ** max(0, math.floor(math.log10(number)) - 1)
        return math.ceil(round(number / unit, 6)) * int(unit)

    def to_array(self) -> Doubles:
        """Return precision, recall, and recall within each number of candidates."""
        return np.array([self.precision, self.recall, *self.within.values()])

    @classmethod
    def from_array(cls, shares: Sequence[float], ladder: Sequence[int]) -> Found:
        """Return the inverse of :meth:`to_array`, of ``shares`` with numbers of candidates.

        ``ladder`` names the numbers of candidates.
        """
        precision, recall, *within = shares
        # Where predictions fall, that for fewer candidates was too high.
        rising = np.minimum.accumulate(within[::-1])[::-1].tolist()
        return cls(precision, recall, dict(zip(ladder, rising, strict=True)))

    @classmethod
    def by_chance(cls, at: int, ladder: Sequence[int], n: int) -> Found:
        """Return what random answers find: ``at`` of ``n``, and each number of a ``ladder``."""
        return cls(NEIGHBOURS / n, at / n, {number: number / n for number in ladder})


@dataclass(frozen=True)
class Row:
    """The predictions for one spec.

    Attributes
    ----------
    spec : Spec
        Method, code length, epsilon and everything else that is public.
    ranking : "plain", "linear" or "auto"
        How codes would be ranked: as they are, or after ``fit_denoiser(kind)``, whichever has the
        higher prediction. "auto" is tried for the most promising specs only.
    private, exact : Found
        What is expected to be found, by query mode; 0 where noise leaves next to nothing of a code.
    bytes_per_vector : int
        Size of a published code.
    noise : float
        Standard deviation of the noise relative to that of a coordinate; for signs, the share that
        is flipped; for symbols, the share outside the set of nearest codewords.
    centroids : bool
        Codewords are centroids of the sample, as of ``fit_codebook``, not vectors of it.

    >>> from dpindex import attribute
    >>> spec = Spec("dp-oporp-staircase", dim=8, epsilon=1.0, adjacency=attribute(1.0))
    >>> row = Row(spec, "plain", Found(0.2, 0.1), Found(0.5, 0.3), bytes_per_vector=16, noise=0.4)
    >>> row.found("exact").recall
    0.3
    """

    spec: Spec
    ranking: Ranking
    private: Found
    exact: Found
    bytes_per_vector: int
    noise: float
    centroids: bool = False

    @classmethod
    def found_nothing(cls, spec: Spec, noise: float, ladder: Sequence[int]) -> Row:
        """Return the row of a spec whose noise leaves next to nothing of a code.

        Parameters
        ----------
        spec : Spec
        noise : float
            Deviation of the noise of a coordinate, over that of the coordinate.
        ladder : sequence of int
            Numbers of candidates.
        """
        nothing = Found(0.0, 0.0, dict.fromkeys(ladder, 0.0))
        return cls(spec, "plain", nothing, nothing, spec.format.max_row_bytes, noise)

    @property
    def method(self) -> str:
        return self.spec.method

    @property
    def k(self) -> int:
        return self.spec.code_length

    @property
    def signs(self) -> bool:
        return issubclass(self.spec.format_type, SignFormat)

    @property
    def size(self) -> str:
        """Coordinates of a code, or w and the number of codewords: C if they are centroids."""
        if self.spec.codebook is None:
            return str(self.k)
        letter = "C" if self.centroids else "K"
        size = f"{letter}={len(self.spec.codebook)}"
        return size if self.spec.subset is None else f"{size} w={self.spec.subset}"

    @property
    def contents(self) -> str:
        """Contents of a code, in words."""
        if self.spec.codebook is None:
            return self.spec.format.contents
        kind = "centroids" if self.centroids else "codewords"
        size = f"{len(self.spec.codebook)} {kind}"
        return size if self.spec.subset is None else f"{size} and w = {self.spec.subset}"

    @property
    def denoiser(self) -> Kind | None:
        """Kind of the denoiser that is predicted for; None if codes are ranked as they are.

        Another kind may find much less than this row says.
        """
        if self.ranking == "plain":
            return None
        return self.ranking

    @property
    def guarantee(self) -> Guarantee:
        return self.spec.guarantee

    def found(self, query: QueryMode) -> Found:
        """Return what is expected to be found in that query mode."""
        if query == "private":
            return self.private
        return self.exact

    def to_dict(self, measures: Sequence[Measure]) -> dict[str, Any]:
        """Return the row as plain JSON values, with the shares that ``measures`` name."""
        shares = {}
        for measure in measures:
            for mode in get_args(QueryMode):
                share = measure.of(self.found(mode))
                shares[f"{measure}, {mode} queries"] = round(share, 4)
        return {
            "method": self.method,
            "k": self.k,
            "codewords": self.spec.codebook and len(self.spec.codebook),
            "centroids": self.centroids,
            "subset": self.spec.subset,
            "epsilon": self.spec.budget,
            "denoiser": self.denoiser,
            **shares,
            "bytes_per_vector": self.bytes_per_vector,
            "noise": round(self.noise, 4),
            "candidates": {
                mode: {str(number): round(share, 4) for number, share in found.within.items()}
                for mode, found in (("private", self.private), ("exact", self.exact))
            },
            "guarantee": self.guarantee.to_dict(),
        }


@dataclass(frozen=True)
class AttackFigures:
    """What attacks find in codes of public vectors under a spec, by one who has others of the kind.

    Attributes
    ----------
    codes : int
        How many codes there were.
    linked : float
        Share of known vectors whose own code fits best among them, [0, 1]: fewer among more codes.
    reconstruction_error : float
        Mean squared error of reconstructed vectors over that of the best guess without codes.
    reconstruction_cosine, guess_cosine : float
        Cosine of reconstructed vectors, and of that guess, to the originals. These three are NaN
        for a projection that is too large to invert.
    """

    codes: int
    linked: float
    reconstruction_error: float
    reconstruction_cosine: float
    guess_cosine: float

    @classmethod
    def of(cls, trial: Trial) -> AttackFigures:
        """Return the figures of attacks on a trial."""
        return cls(len(trial.index), trial.linkage().share, **trial.reconstruction())

    def to_dict(self) -> dict[str, float | None]:
        """Return the fields, numbers to four decimals, None in place of NaN."""
        numbers = asdict(self).items()
        return {name: None if math.isnan(value) else round(value, 4) for name, value in numbers}

    def lines(self) -> list[str]:
        """Return how close a reconstruction comes, and how often a known vector is linked."""
        lines = []
        if not math.isnan(self.reconstruction_cosine):
            lines.append(
                f"Who has public vectors of the kind reconstructs a vector from its code to cosine "
                f"{self.reconstruction_cosine:.2f}; the best guess without the code has "
                f"{self.guess_cosine:.2f}."
            )
        linked = f"{self.linked:.0%}".replace("%", " %")
        if not 0.01 <= self.linked <= 0.99:
            linked = "under 1 %" if self.linked < 0.5 else "over 99 %"
        lines.append(
            f"Who knows a vector and others of its kind finds its code among {self.codes} in "
            f"{linked} of cases (by chance in 1 of {self.codes}), and in fewer among more."
        )
        return lines


@dataclass(frozen=True)
class Measure:
    """A share that a plan shows for each spec.

    Attributes
    ----------
    kind : str
        ``recall@10``, say.
    terms : str
        What is counted.
    of : callable
        From what is found to the share.

    >>> print(recall_of(10))
    recall@10 of the true 10
    """

    kind: str
    terms: str
    of: Callable[[Found], float]

    def __str__(self) -> str:
        return f"{self.kind} {self.terms}"


def recall_of(at: int) -> Measure:
    """Return recall@k of the first k answers of the codes."""
    return Measure(f"recall@{at}", f"of the true {at}", lambda found: found.recall)


def reranked(at: int, candidates: int) -> Measure:
    """Return recall@k after the owner of the vectors has ordered so many candidates."""
    terms = f"of {candidates} reranked"
    return Measure(f"recall@{at}", terms, lambda found: found.recall_within(candidates))


PRECISION = Measure(
    f"precision@{FOUND}", f"of the true {NEIGHBOURS}", lambda found: found.precision
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
    narrowed : bool
        The bounds of the recommended spec hold the middle three quarters of the sample's values.
    n, at : int
        Vectors in the collection; answers and true neighbours that recall counts.
    candidates : int
        Answers of the codes that the owner of the vectors is to order; k if nobody does.
    shown_candidates : tuple of int
        Numbers of candidates for which the recall of the recommended spec is shown.
    refused : tuple of str
        One sentence for each method or code length that has no guarantee under these terms.
    contrast : tuple of Row
        Methods of another adjacency, shown to compare with.
    sample_rows : int
        Vectors of the public sample that codewords were chosen among.
    sample_in_groups : bool
        Most vectors of the public sample have near duplicates in it.
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
    shown_candidates: tuple[int, ...]
    refused: tuple[str, ...]
    contrast: tuple[Row, ...] = ()
    sample_rows: int = 0
    sample_in_groups: bool = False
    attacks: AttackFigures | None = None
    curves: tuple[tuple[Row, ...], ...] = ()
    metric: Metric = "cosine"
    narrowed: bool = False

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
            rows.append((row.method, row.size, row.ranking, private, exact, *sizes))
        title = f"{self.why} Predicted {measure}:"
        return table_html(title, header, rows)

    @property
    def measures(self) -> tuple[Measure, ...]:
        """What is shown for each spec; specs are ranked by the first."""
        recall = recall_of(self.at)
        if self.candidates > self.at:
            return (reranked(self.at, self.candidates), recall)
        return (recall, PRECISION)

    @property
    def best(self) -> Row:
        """Recommended row; ``fit_denoiser(best.denoiser)`` unless its denoiser is None."""
        return self.rows[0]

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
        return (
            f"{sentence}: {_advantage(best, rival)}; the {self.measures[0].kind} predicted for the "
            f"next method, {rival.method} with {rival.contents}, is "
            f"{self.measures[0].of(rival.found(self.query)):.2f}."
        )

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
            if best.spec.design is not None or best.spec.codebook is not None:
                lines.append(_MADE_OF_SAMPLE)
            lines.append(
                f"This epsilon hides one attribute, not a record: all {best.spec.dim} attributes "
                f"together cost up to {best.guarantee.group(best.spec.dim):g}. One coordinate of "
                f"an embedding is nobody's secret: for embeddings plan with --record "
                f"(adjacency=dpindex.record()), which hides whole records."
            )
        if self.metric == "cosine" and best.spec.norm is None and best.spec.codebook is None:
            lines.append(_BY_COSINE)
        if self.narrowed:
            low, high = (bound * best.spec.scale for bound in best.spec.bounds)
            lines.append(_NARROWED.format(low=low, high=high))
        elif best.spec.clip:
            lines.append(_OF_CLIPPED)
        lines += [f"{sentence}." for sentence in quality_warnings(best.spec, self.n)]
        if self.sample_in_groups:
            lines.insert(0, _IN_GROUPS)
        lines += information_lines(best.spec, self.n)
        if best.spec.codebook is not None:
            lines.append(_UNLIKE)
        lines.append(_FROM_SAMPLE)
        return tuple(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain JSON values."""
        measures = list(dict.fromkeys((*self.measures, PRECISION)))
        return {
            "recommended": {"spec": self.best.spec.to_dict(), "denoiser": self.best.denoiser},
            "why": self.why,
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
    if best.spec.codebook is not None:
        if best.spec.subset is None:
            return "its one symbol tells of a vector as a whole"
        near = f"{best.spec.subset} nearest ones"
        if best.spec.subset == 1:
            near = "nearest codeword"
        return f"{1 - best.noise:.0%} of its reports are of the {near}, the others are random"
    if best.signs:
        return f"{best.noise:.0%} of its signs are flipped, and a sign takes one bit"
    noise = f"the standard deviation of its noise is {best.noise:.2g} times that of a coordinate"
    if not rival.signs and best.noise < 0.97 * rival.noise:
        return f"{noise}, against {rival.noise:.2g} for the next method"
    if best.denoiser:
        return f"{noise}, much of which a denoiser removes because coordinates are correlated"
    return f"{noise}, and its {best.k} coordinates keep more of a vector"


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
    >>> plan_png(dpi.plan(public, dim=8, n=2000, **terms, curves=True))[1:4]
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
                markeredgewidth=1.6, linestyle="none",
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
