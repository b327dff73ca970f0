"""Recall curves: measured quality of private indexes by epsilon, and grids of specs to compare."""

from __future__ import annotations

import math
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, TypeAlias, get_args

import numpy as np

from dpindex.checks import whole_number
from dpindex.errors import InputError
from dpindex.estimators.denoise import Denoiser, Kind
from dpindex.evaluate.ground_truth import GroundTruth, ground_truth
from dpindex.evaluate.inversion import EXPOSURE, exposure
from dpindex.index import Metric, PrivateIndex, QueryMode
from dpindex.index.leak_check import refuse_shared_rows
from dpindex.method_table import Method, find_method
from dpindex.privacy import Adjacency, l2, record
from dpindex.privatizer import Privatizer
from dpindex.spec import Spec
from dpindex.vectors import VectorSource, as_source

Progress: TypeAlias = Callable[[int, int, str], None]
"""Called with (steps done, steps in all, what is done now)."""

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

_FOUND = 100
_TOLERANCE = 0.01
# Vectors that the attack reconstructs, and codes that its denoiser is fitted to, at least.
_ATTACKED, _FITTED = 500, 8192
_ANY_OF_NORM_1 = l2(2.0)
# Fields that all specs of one curve must agree in, so that their epsilons can be compared.
_SHARED = ("scale", "bounds", "clip", "norm", "seed")


@dataclass(frozen=True)
class Run:
    """Measurements of one build of one spec in one query mode, under the public seed ``seed``."""

    spec: Spec
    query: QueryMode
    seed: int
    values: Mapping[str, float]


@dataclass(frozen=True)
class Point:
    """All runs of one spec and query mode: mean and sample standard deviation by measure.

    ``std`` is NaN if there was one run only.
    """

    spec: Spec
    query: QueryMode
    runs: int
    mean: Mapping[str, float]
    std: Mapping[str, float]

    @property
    def label(self) -> str:
        """Method, code length and the other parameters that tell specs apart, without epsilon."""
        return label(self.spec)


@dataclass(frozen=True)
class Curve:
    """The result of :func:`recall_curve`.

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
    """

    runs: tuple[Run, ...]
    base: tuple[str, int]
    queries: tuple[str, int]
    dim: int
    neighbours: int
    metric: Metric
    index_type: str
    query_epsilon: float | None
    denoise: Kind | None = None

    @cached_property
    def points(self) -> tuple[Point, ...]:
        """Mean and spread for each spec and query mode, in the order of the specs."""
        groups: dict[tuple[Spec, QueryMode], list[Run]] = {}
        for run in self.runs:
            groups.setdefault((run.spec, run.query), []).append(run)
        return tuple(
            Point(*key, len(runs), _by_measure(statistics.fmean, runs), _by_measure(_std, runs))
            for key, runs in groups.items()
        )

    @property
    def query_modes(self) -> tuple[QueryMode, ...]:
        """The query modes measured."""
        return tuple(dict.fromkeys(run.query for run in self.runs))

    @property
    def epsilons(self) -> tuple[float, ...]:
        """The budgets measured, ascending, without the baselines."""
        return tuple(sorted({e for p in self.points if (e := p.spec.epsilon) is not None}))

    @property
    def adjacency(self) -> str:
        """Epsilon with its adjacency, as a heading or the label of an axis."""
        return f"ε under {_common_adjacency([run.spec for run in self.runs])}"

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
        return {name: sorted(line, key=lambda p: p.spec.budget) for name, line in lines.items()}


def _by_measure(statistic: Callable[[list[float]], float], runs: Sequence[Run]) -> dict[str, float]:
    return {name: statistic([run.values[name] for run in runs]) for name in MEASURES}


def _std(values: Sequence[float]) -> float:
    return float(np.std(values, ddof=1)) if len(values) > 1 else math.nan


def _common_adjacency(specs: Sequence[Spec]) -> Adjacency:
    """The adjacency of all specs, so that their epsilons can be compared.

    ``record()`` and ``l2(2)`` are one, for vectors of norm 1. InputError for others that differ.
    """
    kinds = list(dict.fromkeys(spec.guarantee.adjacency for spec in specs))
    if set(kinds) == {record(), _ANY_OF_NORM_1}:
        return record()
    if len(kinds) > 1:
        raise InputError(
            f"the specs of one curve must agree in adjacency, not have {kinds[0]} and {kinds[1]}; "
            f"measure them separately."
        )
    return kinds[0]


def _check_norms(specs: Sequence[Spec], vectors: VectorSource) -> None:
    """Refuse vectors that Gaussian noise of radius 2 would not hide, where it is compared."""
    if not {record(), _ANY_OF_NORM_1} <= {spec.adjacency for spec in specs}:
        return
    for first, chunk in vectors.chunks():
        wide = chunk.astype(np.float64)
        squares = (wide.power(2) if vectors.is_sparse else np.square(wide)).sum(axis=1)
        wrong = np.flatnonzero(np.abs(np.sqrt(np.asarray(squares).ravel()) - 1.0) > _TOLERANCE)
        if wrong.size:
            raise InputError(
                f"{vectors.name}: row {first + int(wrong[0])} is not of norm 1, and "
                f"{_ANY_OF_NORM_1} hides any two vectors of norm 1 only; normalise the vectors, or "
                f"leave the methods out that have no guarantee under {record()}."
            )


@dataclass(frozen=True)
class SpecGrid:
    """The admissible specs of a grid, and the reasons why the others are not admissible.

    Attributes
    ----------
    specs : tuple of Spec
        Without duplicates, in the order of the methods as given.
    refused : tuple of str
        One sentence for each method and code length that has no guarantee under these parameters.
    """

    specs: tuple[Spec, ...]
    refused: tuple[str, ...]


def spec_grid(
    dim: int,
    methods: Iterable[str],
    epsilons: Sequence[float],
    ks: Sequence[int | None] = (None,),
    *,
    delta: float = 1e-6,
    repetitions: int = 1,
    **common: Any,
) -> SpecGrid:
    """Specs of all combinations of methods, epsilons and code lengths.

    Baselines have no epsilon and enter once for each k. Raw methods keep all coordinates and enter
    once for each epsilon.

    Parameters
    ----------
    dim : int
        Number of attributes of a vector.
    methods : iterable of str
        Names from :func:`dpindex.methods`.
    epsilons : sequence of float
        Budgets, each in [0.001, 64].
    ks : sequence of int or None
        Code lengths; None is the method's default.
    delta : float
        For the methods that need a delta, or take one with ``min_norm``; the others get 0.
    repetitions : int
        For the methods that repeat their projection; the others get 1.
    **common
        Other fields of :class:`dpindex.Spec`: adjacency, scale, bounds, clip, seed, …; methods
        that take no ``min_norm``, ``entries``, ``sparsity``, ``codebook`` or ``subset`` get none.
        Under ``record()`` methods that are analysed for ``l2`` only get ``l2(2)``, which is any two
        vectors of norm 1.

    Raises
    ------
    InputError
        For an unknown method.

    >>> grid = spec_grid(784, ["dp-oporp-staircase", "raw-gaussian", "none-oporp"], [1, 2], [128])
    >>> [(s.method, s.k, s.epsilon, s.delta) for s in grid.specs]
    [('dp-oporp-staircase', 128, 1.0, 0.0), ('dp-oporp-staircase', 128, 2.0, 0.0),
     ('raw-gaussian', 784, 1.0, 1e-06), ('raw-gaussian', 784, 2.0, 1e-06),
     ('none-oporp', 128, None, 0.0)]
    >>> print(*spec_grid(64, ["dp-oporp"], [1, 2], [128]).refused)
    dp-oporp with k = 128: dp-oporp needs k / repetitions ≤ dim:
    128 bins cannot be filled by 64 attributes.
    """
    specs: dict[Spec, None] = {}
    refused: dict[str, None] = {}
    for method in methods:
        row = find_method(method)
        fields = _used(row, common)
        for k in (None,) if row.family.keeps_all else ks:
            for epsilon in (None,) if row.definition == "none" else epsilons:
                try:
                    spec = Spec(
                        method=method,
                        dim=dim,
                        k=k,
                        epsilon=epsilon,
                        delta=delta if row.needs_delta or fields.get("min_norm") else 0.0,
                        repetitions=repetitions if row.family.repeats else 1,
                        **fields,
                    )
                except InputError as error:
                    refused[f"{method}{'' if k is None else f' with k = {k}'}: {error}"] = None
                else:
                    specs[spec] = None
    return SpecGrid(tuple(specs), tuple(refused))


def _used(row: Method, stated: dict[str, Any]) -> dict[str, Any]:
    """The fields without those that the method does not take."""
    entries = bool(row.family.entries)
    used = {
        "min_norm": row.calibration.norm_bound,
        "entries": entries,
        "sparsity": row.family.blocks or (entries and stated.get("entries") == "very-sparse"),
        "codebook": row.family.codebook,
        "subset": row.family.codebook,
    }
    fields = {name: value for name, value in stated.items() if used.get(name, True)}
    kinds = row.adjacencies if row.private else ()
    if stated.get("adjacency") == record() and "l2" in kinds and "record" not in kinds:
        fields.update(adjacency=_ANY_OF_NORM_1, norm=1.0)
    return fields


def label(spec: Spec) -> str:
    """Method, code length and the other parameters that tell specs apart, without epsilon."""
    book = spec.codebook
    size = f"k = {spec.code_length}" if book is None else f"K = {len(book)}"
    parts = [f"{spec.method}, {size}"]
    if spec.adjacency == _ANY_OF_NORM_1:
        parts.append("any two vectors of norm 1")
    if spec.repetitions > 1:
        parts.append(f"{spec.repetitions} repetitions")
    if spec.delta > 0:
        parts.append(f"δ = {spec.delta:g}")
    if spec.min_norm is not None:
        parts.append(f"norm ≥ {spec.min_norm:g}")
    return ", ".join(parts) + (" (iDP)" if spec.guarantee.definition == "iDP" else "")


def recall_curve(
    base: Any,
    queries: Any,
    specs: Iterable[Spec],
    *,
    runs: int = 10,
    query_modes: Sequence[QueryMode] = ("private", "exact"),
    neighbours: int = 50,
    metric: Metric = "cosine",
    index_type: str = "f32",
    query_epsilon: float | None = None,
    denoise: Kind | None = None,
    max_queries: int | None = None,
    skip_leak_check: bool = False,
    progress: Progress | None = None,
) -> Curve:
    """Measure how well private indexes answer, for each spec and with fresh noise in each run.

    Run number i builds an index under the public seed ``spec.seed + i`` and searches it with all
    queries. It records precision@10 and recall@100 against the true ``neighbours`` (Li & Li 2023,
    Sec. 5.1: 50), recall@10 against the ten nearest (ann-benchmarks), queries per second, build
    time, the size of a published code, and how much of the vectors an attacker can reconstruct
    (:func:`dpindex.evaluate.inversion.exposure`).

    The codes are discarded, so nothing private is published by measuring. A published curve,
    however, is a statistic of the data without any guarantee.

    Parameters
    ----------
    base, queries : array, scipy sparse matrix or VectorSource
        Shapes (n, p) and (nq, p). The base is read in chunks; the queries are held in memory.
    specs : iterable of Spec
        What to measure; ``none-*`` baselines show the limit without privacy. See :func:`spec_grid`.
    runs : int
        Builds of each spec, [1, ∞).
    query_modes : sequence of "private" and "exact"
        Whether queries are privatized.
    neighbours : int
        Number of true neighbours of a query, [10, n].
    metric, index_type : str
        As in :class:`dpindex.PrivateIndex`.
    query_epsilon : float, optional
        Budget of private queries; default that of the index.
    denoise : "auto", "linear" or "score", optional
        Fit a denoiser of this kind to every private index ("linear" for sign codes). The build time
        includes it. If it cannot be fitted, the codes are searched without it.
    max_queries : int, optional
        Use the first so many queries only, [1, ∞).
    skip_leak_check : bool
        Accept a codebook that shares rows with the base, which finds those rows exactly.
    progress : callable, optional
        Called before every build with (builds done, builds in all, label).

    Raises
    ------
    InputError
        If there is nothing to measure, the widths differ, or the vectors violate a spec's bounds.

    >>> base = np.random.default_rng(0).random((200, 12))
    >>> spec = Spec(method="none-oporp", dim=12, k=12)
    >>> curve = recall_curve(base, base[:5], [spec], runs=1, query_modes=["exact"])
    >>> curve.points[0].mean["recall@10"]
    1.0
    """
    specs, modes = tuple(dict.fromkeys(specs)), tuple(dict.fromkeys(query_modes))
    _check(specs, modes, runs, neighbours)
    base, queries = as_source(base, "base"), as_source(queries, "queries")
    if max_queries is not None:
        _, first = next(queries.chunks(whole_number(max_queries, "max_queries", 1, sys.maxsize)))
        queries = as_source(first, queries.name)

    def new_index(spec: Spec) -> PrivateIndex:
        budget = None if spec.epsilon is None else query_epsilon
        return PrivateIndex(spec, metric=metric, index_type=index_type, query_epsilon=budget)

    count, width = base.shape
    for spec in specs:  # refuse what cannot be measured before the first build
        if spec.dim != width:
            raise InputError(f"{base.name} has {width} columns where a spec says dim = {spec.dim}.")
        new_index(spec)
    _check_norms(specs, base)
    _check_norms(specs, queries)
    for book in {spec.codebook for spec in specs} - {None}:
        if not skip_leak_check:
            refuse_shared_rows(book, base.chunks())  # type: ignore[arg-type]
    truth = ground_truth(base, queries, neighbours, metric)
    asked = queries.read()
    report = progress or (lambda done, total, task: None)
    measured: list[Run] = []
    for i, spec in enumerate(specs):
        budget = "" if spec.epsilon is None else f", ε = {spec.epsilon:g}"
        for run in range(runs):
            report(i * runs + run, len(specs) * runs, label(spec) + budget)
            seed = spec.seed + run
            index = new_index(replace(spec, seed=seed))
            cost = _build(index, base, denoise)
            for mode in modes:
                values = {**_search(index, asked, mode, truth), **cost}
                measured.append(Run(spec, mode, seed, {name: values[name] for name in MEASURES}))
    report(len(specs) * runs, len(specs) * runs, "done")
    return Curve(
        runs=tuple(measured),
        base=(base.name, count),
        queries=(queries.name, queries.shape[0]),
        dim=width,
        neighbours=neighbours,
        metric=metric,
        index_type=index_type,
        query_epsilon=query_epsilon,
        denoise=denoise,
    )


def _check(specs: Sequence[Spec], modes: Sequence[QueryMode], runs: int, neighbours: int) -> None:
    if not specs:
        raise InputError("there is nothing to evaluate: give at least one spec.")
    for name in _SHARED:
        values = list(dict.fromkeys(getattr(spec, name) for spec in specs if _takes(spec, name)))
        if len(values) > 1:
            raise InputError(
                f"the specs of one curve must agree in {name}, not have {values[0]} and "
                f"{values[1]}; measure them separately."
            )
    _common_adjacency(specs)
    if not modes or not set(modes) <= set(get_args(QueryMode)):
        raise InputError(f"query_modes must name 'private', 'exact' or both, not {list(modes)!r}.")
    if runs < 1:
        raise InputError(f"runs must be at least 1, not {runs!r}.")
    if neighbours < 10:
        raise InputError(
            f"neighbours must be at least 10, so that precision@10 can reach 1, not {neighbours!r}."
        )


def _takes(spec: Spec, name: str) -> bool:
    """Whether that field counts: record-level methods take any vectors, and none of these fields
    but the seed; a norm matters to noise only, and baselines have none.
    """
    rounded, private = spec.mechanism.calibration.rounded, spec.mechanism.private
    return name == "seed" or (rounded and (private or name != "norm"))


def _build(index: PrivateIndex, base: VectorSource, denoise: Kind | None) -> dict[str, float]:
    """Fill the index; what that cost, and what the codes reveal."""
    privatizer = Privatizer(index.spec, allow_unprotected=True)  # discarded, never published
    width, seconds, seen = 0, 0.0, []
    for first, chunk in base.chunks():
        start = time.perf_counter()
        codes = privatizer.privatize(chunk, first_row=first)
        index.add_codes(codes)
        seconds += time.perf_counter() - start
        width = max(width, codes.stored[0].nbytes)
        if first < _FITTED:
            seen.append(codes.stored)
    start, denoiser = time.perf_counter(), fit_where_possible(index, denoise)
    seconds += time.perf_counter() - start
    _, vectors = next(iter(base.chunks(min(_ATTACKED, len(index)))))
    codes = privatizer.spec.format.codes(np.concatenate(seen))
    exposed = exposure(index.spec, vectors, codes, denoiser)
    return {"build_seconds": seconds, "bytes_per_vector": float(width), **exposed}


def fit_where_possible(index: PrivateIndex, denoise: Kind | None) -> Denoiser | None:
    """Fit a denoiser of that kind ("linear" for sign codes); None if the index goes without."""
    if denoise is not None and index.spec.epsilon is not None:
        with suppress(InputError):  # too few codes, or nothing but noise
            signs = index.spec.mechanism.codes == "signs"
            return index.fit_denoiser("linear" if signs else denoise)
    return None


def _search(
    index: PrivateIndex, queries: Any, mode: QueryMode, truth: GroundTruth
) -> dict[str, float]:
    search = partial(index.search, query=mode, allow_unprotected=True)
    search(queries[:1], k=1)  # the first search builds the search structure
    start = time.perf_counter()
    found = search(queries, k=min(_FOUND, len(index))).ids
    seconds = time.perf_counter() - start
    return {
        "precision@10": float(truth.precision(found, 10, truth.depth).mean()),
        "recall@100": float(truth.recall(found, _FOUND, truth.depth).mean()),
        "recall@10": float(truth.recall(found, 10, 10).mean()),
        "queries_per_second": len(found) / max(seconds, 1e-9),
    }
