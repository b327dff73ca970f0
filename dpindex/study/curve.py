"""Curves: the measured quality and exposure of private indexes by epsilon."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dpindex.base.display import text_table
from dpindex.base.errors import import_extra
from dpindex.decode.base import Metric
from dpindex.decode.fit import DenoiserKind
from dpindex.index.search import QueryMode
from dpindex.mechanism.spec import Spec
from dpindex.study.examples import Examples
from dpindex.study.reconstruction import EXPOSURE
from dpindex.study.specs import columns_of, common_adjacency, line_labels
from dpindex.study.trial import LINKED

MEASURES = (
    "recall@10",
    "precision@10",
    "recall@100",
    "rankings_per_second",
    "build_seconds",
    "bytes_per_vector",
    LINKED,
    *EXPOSURE,
)
"""What runs measure; the first three are shares in [0, 1]. See :meth:`Curve.full_name`."""

# Numbers of candidates: up to _MANY, or up to a share of the collection.
_LEVELS = (10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
_MANY = 100
_MAX_SHARE = 0.1


def recall_within(candidates: int) -> str:
    """Return the name of recall@10 after the first R answers were ordered by their vectors."""
    return f"recall@10 within {candidates}"


@dataclass(frozen=True)
class Run:
    """Measurements of one build of one spec in one query mode.

    Attributes
    ----------
    spec : Spec
    query : "private" or "exact"
    seed : int
        The public seed of the build.
    values : mapping from str to float
        What was measured, by name: see :attr:`Curve.measures`. Attacks, and more than 100
        candidates, are measured in the first run of each spec alone.
    denoised : bool
        Whether a denoiser was fitted.
    key : str
        Identifies the run in ``runs.csv``.

    >>> from dpindex import attribute
    >>> spec = Spec("dp-oporp", dim=8, epsilon=1.0, delta=1e-6, adjacency=attribute(1.0))
    >>> Run(spec, "exact", 0, {"recall@10": 0.5}).denoised
    False
    """

    spec: Spec
    query: QueryMode
    seed: int
    values: Mapping[str, float]
    denoised: bool = False
    key: str = ""


@dataclass(frozen=True)
class Point:
    """All runs of one spec and query mode: mean and sample standard deviation by measure.

    Attributes
    ----------
    spec : Spec
    query : "private" or "exact"
    runs : int
        How many there were.
    mean, std : mapping from str to float
        By the names of the measures; ``std`` is NaN if one run only measured it.
    denoised : bool
        Whether a denoiser was fitted in any run of this method at any epsilon.
    label : str
        The line of a chart that it is on: method, code length and what else tells specs apart, but
        epsilon.

    >>> from dpindex import attribute
    >>> spec = Spec("dp-oporp", dim=8, epsilon=1.0, delta=1e-6, adjacency=attribute(1.0))
    >>> Point(spec, "exact", 2, {"recall@10": 0.5}, {"recall@10": 0.1}).mean["recall@10"]
    0.5
    """

    spec: Spec
    query: QueryMode
    runs: int
    mean: Mapping[str, float]
    std: Mapping[str, float]
    denoised: bool = False
    label: str = ""


@dataclass(frozen=True)
class Curve:
    """What :func:`dpindex.evaluate` measured of specs whose epsilons can be compared.

    Attributes
    ----------
    runs : tuple of Run
        Every measurement, in the order taken.
    base, queries : (str, int)
        Name and number of vectors.
    dim, neighbours : int
        Attributes of a vector; true neighbours of a query.
    metric, index_type : str
        As given.
    query_epsilon : float or None
        Budget of a private query; None means that of the index.
    denoise : str or None
        The kind of denoiser that was fitted to every private index.
    examples : Examples, optional
        What some queries find, and what some records give back.

    >>> from dpindex import attribute, evaluate
    >>> base = np.random.default_rng(0).random((200, 12))
    >>> spec = Spec("none-oporp", dim=12, k=12, adjacency=attribute(1.0))
    >>> (curve,) = evaluate(base, base[:5], [spec], runs=1)
    >>> [(point.query, point.mean["recall@10"]) for point in curve.points]
    [('private', 1.0), ('exact', 1.0)]
    """

    runs: tuple[Run, ...]
    base: tuple[str, int]
    queries: tuple[str, int]
    dim: int
    neighbours: int
    metric: Metric
    index_type: str
    query_epsilon: float | None
    denoise: DenoiserKind | None = None
    examples: Examples | None = None

    def __str__(self) -> str:
        """Tables of what is found in each query mode, also among candidates, and of exposure."""
        found = {"recall": "recall@10", "precision": "precision@10"}
        found |= {f"R={level}": recall_within(level) for level in self.candidates[1:]}
        measures = f"{self.full_name('recall@10')}, {self.full_name('precision@10')},"
        more = "and recall@10 once the data holder re-ranks R candidates"
        tables = [
            self._table(f"{mode} queries: {measures}\n{more}", mode, found)
            for mode in self.query_modes
        ]
        linked = f"share of known vectors whose code an attacker finds among {self.base[1]},"
        exposed = f"{linked}\nand cosine of reconstructed vectors to the originals"
        columns = {"linked": LINKED, "cosine": "reconstruction_cosine"}
        tables.append(self._table(exposed, self.query_modes[0], columns))
        return "\n\n".join([self.adjacency, *tables])

    def _table(self, title: str, mode: QueryMode, columns: Mapping[str, str]) -> str:
        """Return measures of all points of a query mode, by their headings."""
        rows = []
        for name, line in self.series(mode).items():
            for point in line:
                epsilon = "–" if point.spec.epsilon is None else f"{point.spec.epsilon:g}"
                values = [f"{point.mean[measure]:.2f}" for measure in columns.values()]
                rows.append((name, epsilon, *values))
        return f"{title}\n{text_table(['', 'ε', *columns], rows)}"

    def to_pandas(self) -> Any:
        """Return a pandas frame with a line for each run: spec, query mode, and every measure.

        Raises
        ------
        InputError
            If pandas is missing.
        """
        pandas = import_extra("pandas", "a frame of a curve needs pandas", "eval")
        return pandas.DataFrame([self.line(run) for run in self.runs])

    @property
    def trial(self) -> dict[str, Any]:
        """How indexes are built and searched: keywords of :class:`dpindex.study.trial.Trial`."""
        names = ("metric", "index_type", "query_epsilon", "denoise")
        return {name: getattr(self, name) for name in names}

    @cached_property
    def points(self) -> tuple[Point, ...]:
        """Mean and spread for each spec and query mode, in the order of the specs."""
        groups: dict[tuple[Spec, QueryMode], list[Run]] = {}
        for run in self.runs:
            groups.setdefault((run.spec, run.query), []).append(run)
        labels = line_labels([spec for spec, _ in groups])
        denoised = {labels[run.spec] for run in self.runs if run.denoised}
        points = []
        for (spec, query), runs in groups.items():
            label = labels[spec]
            is_denoised = label in denoised
            if is_denoised:
                label += ", denoised"
            means = {}
            spreads = {}
            for name in self.measures:
                values = [run.values[name] for run in runs if name in run.values]
                if not values:
                    continue
                means[name] = statistics.fmean(values)
                spreads[name] = float(np.std(values, ddof=1)) if len(values) > 1 else math.nan
            points.append(Point(spec, query, len(runs), means, spreads, is_denoised, label))
        return tuple(points)

    @property
    def candidates(self) -> tuple[int, ...]:
        """Numbers of candidates R that recall@10 is measured at after exact ordering.

        Up to 100, or to a tenth of the vectors.
        """
        n = self.base[1]
        most = min(n, max(_MANY, round(_MAX_SHARE * n)))
        return tuple(level for level in _LEVELS if level <= most)

    @property
    def measures(self) -> tuple[str, ...]:
        """The names of what every run measures: ``MEASURES``, and recall within each R."""
        return (*MEASURES, *map(recall_within, self.candidates))

    def full_name(self, measure: str) -> str:
        """Return the measure with what it counts, as "recall@10 of the true 10"."""
        true = {"recall@10": 10, "precision@10": self.neighbours, "recall@100": self.neighbours}
        if measure in true:
            return f"{measure} of the true {true[measure]}"
        return measure

    def cells(self, measured: Run | Point) -> dict[str, Any]:
        """What tells runs apart: facts of ``measured`` as columns of a table."""
        spec = measured.spec
        query = measured.query
        private = query == "private" and spec.epsilon is not None
        return {
            **columns_of(spec),
            "denoiser": self.denoise if measured.denoised else None,
            "query": query,
            "query_epsilon": (self.query_epsilon or spec.epsilon) if private else None,
        }

    def line(self, run: Run) -> dict[str, Any]:
        """A run as a line of ``runs.csv``."""
        line = self.cells(run)
        line["seed"] = run.seed
        for name in self.measures:
            line[self.full_name(name)] = run.values.get(name)
        line["run"] = run.key
        return line

    def run_of(self, line: Mapping[str, str], spec: Spec, query: QueryMode) -> Run:
        """The inverse of :meth:`line`: the run of ``spec`` and ``query`` in a ``line``."""
        cells = {name: line[self.full_name(name)] for name in self.measures}
        values = {name: float(cell) for name, cell in cells.items() if cell}
        return Run(spec, query, int(line["seed"]), values, line["denoiser"] != "", line["run"])

    @property
    def query_modes(self) -> tuple[QueryMode, ...]:
        """The query modes measured."""
        return tuple(dict.fromkeys(run.query for run in self.runs))

    @property
    def epsilons(self) -> tuple[float, ...]:
        """The budgets measured, ascending, without the baselines."""
        budgets = {point.spec.budget for point in self.points}
        return tuple(sorted(budgets - {math.inf}))

    @property
    def adjacency(self) -> str:
        """Epsilon with its adjacency, as a heading or the label of an axis."""
        return f"ε under {common_adjacency([run.spec for run in self.runs])}"

    @property
    def runs_per_point(self) -> int:
        """Runs of each spec and query mode."""
        return max(point.runs for point in self.points)

    def series(self, query: QueryMode) -> dict[str, list[Point]]:
        """The points of one query mode by label, each list ascending in epsilon."""
        lines: dict[str, list[Point]] = {}
        for point in self.points:
            if point.query == query:
                lines.setdefault(point.label, []).append(point)
        for line in lines.values():
            line.sort(key=lambda point: point.spec.budget)
        return lines
