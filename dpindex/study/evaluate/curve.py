"""Recall curves: measured quality of private indexes by epsilon, and grids of specs to compare."""

from __future__ import annotations

import hashlib
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias, get_args

import numpy as np

from dpindex.base.checks import whole_number
from dpindex.base.errors import InputError
from dpindex.base.threads import limited_threads
from dpindex.denoise import Denoiser, Kind, fit_if_possible
from dpindex.index.private_index import PrivateIndex
from dpindex.index.queries import QueryMode
from dpindex.mechanism.method_table import Method, find_method
from dpindex.mechanism.privatizer import Privatizer
from dpindex.mechanism.spec import Spec
from dpindex.privacy import Adjacency, l2, record
from dpindex.similarity.similarity import Metric
from dpindex.storage.leak_check import refuse_shared_rows
from dpindex.study.evaluate.ground_truth import GroundTruth, ground_truth
from dpindex.study.evaluate.inversion import EXPOSURE, exposure
from dpindex.study.evaluate.linkage import LINKED, Linkage
from dpindex.study.evaluate.runs_file import kept_in, run_key
from dpindex.vectors import VectorSource, as_source

Progress: TypeAlias = Callable[[int, int, str], None]
"""Called with (steps done, steps in all, what is done now)."""

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
"""What every run measures; the first three are shares in [0, 1]. See :meth:`Curve.full_name`."""

_FOUND = 100
_TOLERANCE = 0.01
# Vectors that attacks reconstruct and recognise, and codes that a denoiser is fitted to, at least.
_ATTACKED = 500
_KNOWN = 250
_FITTED = 8192
_ANY_OF_NORM_1 = l2(2.0)
# Fields that all specs of one curve must agree in, so that their epsilons can be compared.
_SHARED = ("scale", "bounds", "clip", "norm", "seed")


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
        What was measured, by its name in ``MEASURES``.
    denoised : bool
        Whether a denoiser was fitted.
    key : str
        Identifies the run in ``runs.csv``.

    >>> spec = Spec("dp-oporp", dim=8, epsilon=1.0, delta=1e-6)
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
        By the names in ``MEASURES``; ``std`` is NaN if there was one run only.
    denoised : bool
        Whether a denoiser was fitted in any run of this method at any epsilon.

    >>> spec = Spec("dp-oporp", dim=8, epsilon=1.0, delta=1e-6)
    >>> Point(spec, "exact", 2, {"recall@10": 0.5}, {"recall@10": 0.1}).mean["recall@10"]
    0.5
    """

    spec: Spec
    query: QueryMode
    runs: int
    mean: Mapping[str, float]
    std: Mapping[str, float]
    denoised: bool = False

    @property
    def label(self) -> str:
        """Method, code length and the other parameters that tell specs apart, without epsilon."""
        return label(self.spec) + (", denoised" if self.denoised else "")


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

    >>> base = np.random.default_rng(0).random((200, 12))
    >>> curve = recall_curve(base, base[:5], [Spec("none-oporp", dim=12, k=12)], runs=1)
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
    denoise: Kind | None = None

    @cached_property
    def points(self) -> tuple[Point, ...]:
        """Mean and spread for each spec and query mode, in the order of the specs."""
        groups: dict[tuple[Spec, QueryMode], list[Run]] = {}
        for run in self.runs:
            groups.setdefault((run.spec, run.query), []).append(run)
        denoised = {label(run.spec) for run in self.runs if run.denoised}
        return tuple(
            Point(
                *key,
                len(runs),
                _by_measure(statistics.fmean, runs),
                _by_measure(_std, runs),
                label(key[0]) in denoised,
            )
            for key, runs in groups.items()
        )

    def full_name(self, measure: str) -> str:
        """The measure with what it counts, as "recall@10 of the true 10"."""
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
            "method": spec.method,
            "definition": spec.guarantee.definition,
            "adjacency": str(spec.guarantee.adjacency),
            "epsilon": spec.epsilon,
            "delta": spec.delta,
            "k": spec.code_length,
            "codewords": None if spec.codebook is None else len(spec.codebook),
            "subset": spec.subset,
            "repetitions": spec.repetitions,
            "denoiser": self.denoise if measured.denoised else None,
            "query": query,
            "query_epsilon": (self.query_epsilon or spec.epsilon) if private else None,
        }

    def line(self, run: Run) -> dict[str, Any]:
        """A run as a line of ``runs.csv``."""
        values = {self.full_name(name): run.values[name] for name in MEASURES}
        return {**self.cells(run), "seed": run.seed, **values, "run": run.key}

    def run_of(self, line: Mapping[str, str], spec: Spec, query: QueryMode) -> Run:
        """The inverse of :meth:`line`: the run of ``spec`` and ``query`` in a ``line``."""
        values = {name: float(line[self.full_name(name)]) for name in MEASURES}
        return Run(spec, query, int(line["seed"]), values, line["denoiser"] != "", line["run"])

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
    if len(values) > 1:
        return float(np.std(values, ddof=1))
    return math.nan


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

    >>> grid = spec_grid(64, ["dp-oporp-staircase"], [1, 2], [32])
    >>> len(grid.specs), grid.refused
    (2, ())
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

    Raw methods keep all coordinates and enter once for each epsilon. Baselines have no epsilon and
    enter once for each k that a private method has here, as the limit of its recall.

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
     ('none-oporp', 128, None, 0.0), ('none-oporp', 784, None, 0.0)]
    >>> print(*spec_grid(64, ["dp-oporp"], [1, 2], [128]).refused)
    dp-oporp with k = 128: dp-oporp needs k / repetitions ≤ dim:
    128 bins cannot be filled by 64 attributes.
    """
    rows = [find_method(method) for method in methods]
    made: dict[str, dict[Spec, None]] = {row.name: {} for row in rows}
    refused: dict[str, None] = {}
    for row in sorted(rows, key=lambda row: not row.private):  # baselines have the others' lengths
        fields = _used(row, common)
        lengths = list(ks)
        if row.family.keeps_all:
            lengths = [None]
        private = [s.code_length for specs in made.values() for s in specs if not s.codebook]
        if not row.private and private:
            lengths = [*(k for k in ks if k is not None), *private]
        for k in dict.fromkeys(lengths):
            for epsilon in epsilons if row.private else (None,):
                try:
                    spec = Spec(
                        method=row.name,
                        dim=dim,
                        k=k,
                        epsilon=epsilon,
                        delta=delta if row.needs_delta or fields.get("min_norm") else 0.0,
                        repetitions=repetitions if row.family.repeats else 1,
                        **fields,
                    )
                except InputError as error:
                    if k in ks:
                        length = ""
                        if k is not None:
                            length = f" with k = {k}"
                        refused[f"{row.name}{length}: {error}"] = None
                else:
                    made[row.name][spec] = None
    return SpecGrid(tuple(chain.from_iterable(made.values())), tuple(refused))


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
    report: str | os.PathLike[str] | None = None,
    replace_report: bool = False,
    progress: Progress | None = None,
) -> Curve:
    """Measure how well private indexes answer, for each spec and with fresh noise in each run.

    Run number i builds an index under the public seed ``spec.seed + i`` and searches it with all
    queries. It records recall@10 of the true 10 (ann-benchmarks), precision@10 and recall@100 of
    the true ``neighbours`` (Li & Li 2023, Sec. 5.1: 50), queries per second that
    :meth:`dpindex.PrivateIndex.nearest` answers, build time, the size of a published code, how
    often a known vector picks out its own code among all
    (:class:`dpindex.study.evaluate.linkage.Linkage`), and how much of the vectors an attacker can
    reconstruct (:func:`dpindex.study.evaluate.inversion.exposure`).

    BLAS and OpenMP use no more threads than there are idle processors when it begins:
    :func:`dpindex.base.threads.limited_threads`.

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
    report : path, optional
        Directory of a report. Runs are appended to ``runs.csv`` in it as they end, and runs of the
        same evaluation that are there already are not measured again, so that an interrupted
        evaluation goes on, and one with more specs or runs extends it.
    replace_report : bool
        Discard what the directory holds of another evaluation.
    progress : callable, optional
        Called before every build with (builds done, builds in all, label).

    Raises
    ------
    InputError
        If there is nothing to measure, the widths differ, the vectors violate a spec's bounds, or
        the directory holds a report of another evaluation.

    >>> base = np.random.default_rng(0).random((200, 12))
    >>> spec = Spec(method="none-oporp", dim=12, k=12)
    >>> curve = recall_curve(base, base[:5], [spec], runs=1, query_modes=["exact"])
    >>> curve.points[0].mean["recall@10"]
    1.0
    """
    specs = tuple(dict.fromkeys(specs))
    modes = tuple(dict.fromkeys(query_modes))
    _check(specs, modes, runs, neighbours)
    base = as_source(base, "base")
    queries = as_source(queries, "queries")
    if max_queries is not None:
        _, first = next(queries.chunks(whole_number(max_queries, "max_queries", 1, sys.maxsize)))
        queries = as_source(first, queries.name)

    def new_index(spec: Spec) -> PrivateIndex:
        budget = None
        if spec.epsilon is not None:
            budget = query_epsilon
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
    tell = progress or (lambda done, total, task: None)
    curve = Curve(
        runs=(),
        base=(base.name, count),
        queries=(queries.name, queries.shape[0]),
        dim=width,
        neighbours=neighbours,
        metric=metric,
        index_type=index_type,
        query_epsilon=query_epsilon,
        denoise=denoise,
    )
    sources = [{**source.fingerprint(), **_digest(source)} for source in (base, queries)]

    def key(spec: Spec, seed: int, mode: QueryMode) -> str:
        terms = (MEASURES, neighbours, metric, index_type, query_epsilon, denoise, *sources)
        return run_key(spec=replace(spec, seed=seed).to_json(), query=mode, terms=terms)

    builds = [(spec, spec.seed + run) for spec in specs for run in range(runs)]
    keys = {key(*build, mode) for build in builds for mode in modes}
    measured: list[Run] = []
    with (
        limited_threads(),
        kept_in(None if report is None else Path(report), keys, replace=replace_report) as kept,
    ):
        truth = ground_truth(base, queries, neighbours, metric)
        asked = queries.read()
        for done, (spec, seed) in enumerate(builds):
            budget = ""
            if spec.epsilon is not None:
                budget = f", ε = {spec.epsilon:g}"
            tell(done, len(builds), label(spec) + budget)
            wanted = {mode: key(spec, seed, mode) for mode in modes}
            missing = {mode: key for mode, key in wanted.items() if key not in kept.lines}
            if missing:
                index = new_index(replace(spec, seed=seed))
                cost, denoised = _build(index, base, denoise)
                lines = []
                for mode, name in missing.items():
                    values = _search(index, asked, mode, truth) | cost
                    lines.append(curve.line(Run(spec, mode, seed, values, denoised, name)))
                kept.append(lines)
            measured += [curve.run_of(kept.lines[wanted[mode]], spec, mode) for mode in modes]
        tell(len(builds), len(builds), "done")
    return replace(curve, runs=tuple(measured))


def _digest(source: VectorSource) -> dict[str, str]:
    """What tells vectors in memory apart; files have a time of change."""
    if source.fingerprint()["mtime_ns"]:
        return {}
    content = hashlib.blake2b(digest_size=8)
    for _, chunk in source.chunks():
        parts = (chunk.indptr, chunk.indices, chunk.data) if source.is_sparse else (chunk,)
        for part in parts:
            content.update(np.ascontiguousarray(part).data)
    return {"content": content.hexdigest()}


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
    rounded = spec.method_row.calibration.rounded
    private = spec.method_row.private
    return name == "seed" or (rounded and (private or name != "norm"))


def _build(
    index: PrivateIndex, base: VectorSource, denoise: Kind | None
) -> tuple[dict[str, float], bool]:
    """Fill the index; what that cost and what the codes reveal, and whether they are denoised."""
    privatizer = Privatizer(index.spec, allow_unprotected=True)  # discarded, never published
    width = 0
    seconds = 0.0
    seen = []
    linkage = None
    for first, chunk in base.chunks():
        start = time.perf_counter()
        codes = privatizer.privatize(chunk, first_row=first)
        index.add_codes(codes)
        seconds += time.perf_counter() - start
        width = max(width, codes.stored[0].nbytes)
        linkage = linkage or Linkage(privatizer, chunk[:_KNOWN], codes)
        linkage.count(codes)
        if first < _FITTED:
            seen.append(codes.stored)
    start = time.perf_counter()
    denoiser = fit_where_possible(index, denoise)
    seconds += time.perf_counter() - start
    _, vectors = next(iter(base.chunks(min(_ATTACKED, len(index)))))
    codes = privatizer.spec.format.codes(np.concatenate(seen))
    exposed = exposure(index.spec, vectors, codes, denoiser)
    linked = math.nan if linkage is None else linkage.share
    cost = {"build_seconds": seconds, "bytes_per_vector": float(width), LINKED: linked, **exposed}
    return cost, denoiser is not None


def fit_where_possible(index: PrivateIndex, denoise: Kind | None) -> Denoiser | None:
    """Fit a denoiser of that kind ("linear" for sign codes); None if the index goes without."""
    if denoise is None:
        return None
    return fit_if_possible(index.fit_denoiser, index.spec, denoise)


def _search(
    index: PrivateIndex, queries: Any, mode: QueryMode, truth: GroundTruth
) -> dict[str, float]:
    nearest = partial(index.nearest, query=mode, allow_unprotected=True)
    nearest(queries[:1], k=1)  # the first search builds the search structure
    start = time.perf_counter()
    found = nearest(queries, k=min(_FOUND, len(index)))
    seconds = time.perf_counter() - start
    return {
        "precision@10": float(truth.precision(found, 10, truth.depth).mean()),
        "recall@100": float(truth.recall(found, _FOUND, truth.depth).mean()),
        "recall@10": float(truth.recall(found, 10, 10).mean()),
        "rankings_per_second": len(found) / max(seconds, 1e-9),
    }
