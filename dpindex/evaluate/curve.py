"""The outcome of an evaluation: runs, their means and spread, and the files that show them."""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from dpindex.evaluate.output import curve_csv, runs_csv, write_file
from dpindex.evaluate.plots import curve_png
from dpindex.evaluate.report import Picture, report_html
from dpindex.index.private_index import QueryMode
from dpindex.index.scoring import Metric
from dpindex.index.stores import Storage
from dpindex.spec import Spec

__all__ = ["MEASURES", "Curve", "Point", "QueryMode", "Run", "label"]

MEASURES = (
    "precision@10",
    "recall@100",
    "recall@10",
    "queries_per_second",
    "build_seconds",
    "bytes_per_vector",
)
"""What every run measures; the first three are shares in [0, 1]."""

_CHARTED = ("precision@10", "recall@100")


@dataclass(frozen=True)
class Run:
    """One build of one spec, asked in one query mode, under the public seed ``seed``."""

    spec: Spec
    query: QueryMode
    seed: int
    values: Mapping[str, float]


@dataclass(frozen=True)
class Point:
    """All runs of one spec and query mode: mean and standard deviation by measure.

    ``std`` is the sample deviation over runs, NaN where there was only one.
    """

    spec: Spec
    query: QueryMode
    runs: int
    mean: Mapping[str, float]
    std: Mapping[str, float]

    @property
    def label(self) -> str:
        """Method, code length and what else tells it from its neighbours, without epsilon."""
        return label(self.spec)


@dataclass(frozen=True)
class Curve:
    """The outcome of :func:`recall_curve`.

    Attributes
    ----------
    runs : tuple of Run
        Every measurement, in the order taken.
    base, queries : (str, int)
        Name and number of vectors.
    dim, neighbours : int
        Attributes of a vector; true neighbours of a query.
    metric, storage : str
        As given.
    query_epsilon : float or None
        Budget of a private query; None means that of the index.
    """

    runs: tuple[Run, ...]
    base: tuple[str, int]
    queries: tuple[str, int]
    dim: int
    neighbours: int
    metric: Metric
    storage: Storage
    query_epsilon: float | None

    @cached_property
    def points(self) -> tuple[Point, ...]:
        """Means and deviations, one for each spec and query mode, in the order of the specs."""
        groups: dict[tuple[Spec, QueryMode], list[Run]] = {}
        for run in self.runs:
            groups.setdefault((run.spec, run.query), []).append(run)
        return tuple(_point(spec, query, runs) for (spec, query), runs in groups.items())

    @property
    def query_modes(self) -> tuple[QueryMode, ...]:
        return tuple(dict.fromkeys(point.query for point in self.points))

    @property
    def epsilons(self) -> tuple[float, ...]:
        """The budgets measured, ascending, without the baselines."""
        return tuple(sorted({e for p in self.points if (e := p.spec.epsilon) is not None}))

    @property
    def adjacency(self) -> str:
        """What epsilon counts, in the words that stand beside every epsilon."""
        return f"ε under {self.runs[0].spec.adjacency}"

    @property
    def repetitions(self) -> int:
        """Runs of each spec and query mode."""
        return max(point.runs for point in self.points)

    def write(
        self,
        directory: str | os.PathLike[str],
        *,
        title: str = "What each epsilon buys",
        notes: Iterable[str] = (),
        pictures: Iterable[Picture] = (),
    ) -> Path:
        """Write the curve as files; returns the path of the report.

        ``curve.csv`` has one line for each spec, query mode and measure, with mean and standard
        deviation; ``runs.csv`` one for each single repetition; ``curve.png`` is the picture of
        precision@10 and ``report.html`` holds everything. Each file appears whole or not at all.

        Parameters
        ----------
        directory : path
            Made if missing; files of these names in it are replaced.
        title : str
            Headline of the report.
        notes : iterable of str
            Sentences on what was left out, e.g. ``SpecGrid.refused``.
        pictures : iterable of Picture
            Further pictures for the report.

        Raises
        ------
        InputError
            If matplotlib is missing (the CSV files are written first) or the directory cannot be
            written.
        """
        folder = Path(directory)
        write_file(folder / "curve.csv", curve_csv(self).encode())
        write_file(folder / "runs.csv", runs_csv(self).encode())
        charts = [Picture(curve_png(self, name), _caption(self, name)) for name in _CHARTED]
        html = report_html(self, charts, title=title, notes=notes, pictures=pictures)
        write_file(folder / "curve.png", charts[0].png)
        write_file(folder / "report.html", html.encode())
        return folder / "report.html"

    def series(self, query: QueryMode) -> dict[str, list[Point]]:
        """Points of one query mode by label, ascending in epsilon: the lines of the picture."""
        lines: dict[str, list[Point]] = {}
        for point in self.points:
            if point.query == query:
                lines.setdefault(point.label, []).append(point)
        return {name: sorted(line, key=lambda p: p.spec.budget) for name, line in lines.items()}


def label(spec: Spec) -> str:
    """What a spec is called beside others: everything that tells it apart but its epsilon."""
    parts = [f"{spec.method}, k = {spec.dims}"]
    if spec.repetitions > 1:
        parts.append(f"{spec.repetitions} repetitions")
    if spec.delta > 0:
        parts.append(f"δ = {spec.delta:g}")
    if spec.min_norm is not None:
        parts.append(f"norm ≥ {spec.min_norm:g}")
    return ", ".join(parts) + (" (iDP)" if spec.row.definition == "iDP" else "")


def _caption(curve: Curve, measure: str) -> str:
    words = [
        f"{measure} by epsilon (logarithmic axis): mean over {curve.repetitions} repetitions, "
        f"with a band of one standard deviation."
    ]
    if any(point.spec.epsilon is None for point in curve.points):
        words.append("Dashed: the same projection without privacy, the ceiling of its kind.")
    if any(point.spec.row.definition == "iDP" for point in curve.points):
        words.append("Dotted: iDP, whose epsilon promises less than that of DP.")
    return " ".join(words)


def _point(spec: Spec, query: QueryMode, runs: Sequence[Run]) -> Point:
    columns = {name: [run.values[name] for run in runs] for name in MEASURES}
    return Point(
        spec=spec,
        query=query,
        runs=len(runs),
        mean={name: statistics.fmean(column) for name, column in columns.items()},
        std={
            name: statistics.stdev(column) if len(column) > 1 else math.nan
            for name, column in columns.items()
        },
    )
