"""The outcome of an evaluation: runs, their means and their spread."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from dpindex.estimators.denoise import Kind
from dpindex.evaluate.exposure import EXPOSURE
from dpindex.index import Metric, QueryMode
from dpindex.spec import Spec

__all__ = ["MEASURES", "Curve", "Point", "QueryMode", "Run", "label"]

MEASURES = (
    "precision@10",
    "recall@100",
    "recall@10",
    "queries_per_second",
    "build_seconds",
    "bytes_per_vector",
    *EXPOSURE,
)
"""What every run measures; the first three are shares in [0, 1]."""


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
    denoise : str or None
        The kind of denoiser that was fitted to every private index.
    """

    runs: tuple[Run, ...]
    base: tuple[str, int]
    queries: tuple[str, int]
    dim: int
    neighbours: int
    metric: Metric
    storage: str
    query_epsilon: float | None
    denoise: Kind | None = None

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

    def series(self, query: QueryMode) -> dict[str, list[Point]]:
        """Points of one query mode by label, ascending in epsilon: the lines of the picture."""
        lines: dict[str, list[Point]] = {}
        for point in self.points:
            if point.query == query:
                lines.setdefault(point.label, []).append(point)
        return {name: sorted(line, key=lambda p: p.spec.budget) for name, line in lines.items()}


def label(spec: Spec) -> str:
    """What a spec is called beside others: everything that tells it apart but its epsilon."""
    parts = [f"{spec.method}, k = {spec.code_length}"]
    if spec.repetitions > 1:
        parts.append(f"{spec.repetitions} repetitions")
    if spec.delta > 0:
        parts.append(f"δ = {spec.delta:g}")
    if spec.min_norm is not None:
        parts.append(f"norm ≥ {spec.min_norm:g}")
    return ", ".join(parts) + (" (iDP)" if spec.mechanism.definition == "iDP" else "")


def _point(spec: Spec, query: QueryMode, runs: Sequence[Run]) -> Point:
    columns = {name: [run.values[name] for run in runs] for name in MEASURES}
    return Point(
        spec=spec,
        query=query,
        runs=len(runs),
        mean={name: statistics.fmean(column) for name, column in columns.items()},
        std={name: _deviation(column) for name, column in columns.items()},
    )


def _deviation(column: Sequence[float]) -> float:
    unknown = len(column) < 2 or any(math.isnan(value) for value in column)
    return math.nan if unknown else statistics.stdev(column)
