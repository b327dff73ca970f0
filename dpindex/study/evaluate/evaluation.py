"""Measuring: private indexes are built with fresh noise, searched, and attacked."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, get_args

import numpy as np

from dpindex.base.arrays import AnyArray, row_norms
from dpindex.base.errors import InputError
from dpindex.base.progress import Progress, no_progress
from dpindex.base.threads import limited_threads
from dpindex.data import VectorSource, as_source
from dpindex.denoise import Denoiser, Kind, fit_if_possible
from dpindex.index.private_index import PrivateIndex
from dpindex.index.queries import QueryMode
from dpindex.mechanism.privatizer import Privatizer
from dpindex.mechanism.spec import Spec
from dpindex.privacy import record
from dpindex.storage.leak_check import LeakCheck, refuse_leaks
from dpindex.study.evaluate.curve import (
    Curve,
    Run,
    candidate_levels,
    common_adjacency,
    recall_within,
)
from dpindex.study.evaluate.grid import ANY_OF_NORM_1, label
from dpindex.study.evaluate.ground_truth import GroundTruth, ground_truth
from dpindex.study.evaluate.measured_exposure import measured_exposure
from dpindex.study.evaluate.runs_file import RunsFile, kept_in, run_key
from dpindex.study.measure_options import MeasureOptions

__all__ = ["MODES", "Evaluation", "fit_where_possible", "new_index", "recall_curve"]

MODES: tuple[QueryMode, ...] = ("private", "exact")
"""The query modes that are measured if no others are named."""

_FOUND = 100
_NORM_TOLERANCE = 0.01
# Fields that all specs of one curve must agree in, so that their epsilons can be compared.
_SHARED = ("scale", "bounds", "clip", "norm", "seed")


def recall_curve(
    base: Any,
    queries: Any,
    specs: Iterable[Spec],
    *,
    query_modes: Sequence[QueryMode] = MODES,
    report: str | os.PathLike[str] | None = None,
    replace_report: bool = False,
    progress: Progress | None = None,
    **options: Any,
) -> Curve:
    """Measure how well private indexes answer, for each spec and with fresh noise in each run.

    Run number i builds an index under the public seed ``spec.seed + i`` and searches it with all
    queries. It records recall@10 of the true 10 (ann-benchmarks), precision@10 and recall@100 of
    the true ``neighbours`` (Li & Li 2023, Sec. 5.1: 50), recall@10 after the first R answers were
    ordered by their vectors, queries per second that :meth:`dpindex.PrivateIndex.nearest` answers,
    build time, the size of a published code, how often a known vector picks out its own code among
    all (:class:`dpindex.study.linkage.Linkage`, or the index's own exact search, whichever
    finds more), and how much of the vectors an attacker can reconstruct who also has other vectors
    of the base (:class:`dpindex.study.reconstruction.Reconstructor`).

    BLAS and OpenMP use no more threads than there are idle processors when it begins:
    :func:`dpindex.base.threads.limited_threads`.

    The codes are discarded, so nothing private is published by measuring. A published curve,
    however, is a statistic of the data without any guarantee.

    Parameters
    ----------
    base, queries : array, scipy sparse matrix or VectorSource
        Shapes (n, p) and (nq, p). The base is read in chunks; the queries are held in memory.
    specs : iterable of Spec
        What to measure; ``none-*`` baselines show the limit without privacy. See
        :func:`dpindex.study.evaluate.spec_grid`.
    query_modes : sequence of "private" and "exact"
        Whether queries are privatized.
    report : path, optional
        Directory of a report. Runs are appended to ``runs.csv`` in it as they end, and runs of the
        same evaluation that are there already are not measured again, so that an interrupted
        evaluation goes on, and one with more specs or runs extends it.
    replace_report : bool
        Discard what the directory holds of another evaluation.
    progress : callable, optional
        Called before every build with (builds done, builds in all, label).
    **options
        Fields of :class:`dpindex.study.evaluate.MeasureOptions`: runs, neighbours, metric,
        index_type, query_epsilon, denoise, max_queries, skip_leak_check. A denoiser is fitted to
        every private index where one can be; the build time includes it.

    Raises
    ------
    InputError
        If there is nothing to measure, the widths differ, the vectors violate a spec's bounds, the
        directory holds a report of another evaluation, or an option is unknown.

    >>> from dpindex import attribute
    >>> base = np.random.default_rng(0).random((200, 12))
    >>> spec = Spec(method="none-oporp", dim=12, k=12, adjacency=attribute(1.0))
    >>> curve = recall_curve(base, base[:5], [spec], runs=1, query_modes=["exact"])
    >>> curve.points[0].mean["recall@10"]
    1.0
    """
    terms = MeasureOptions.of(options)
    evaluation = Evaluation(
        as_source(base, "base"), as_source(queries, "queries"), specs, query_modes, terms
    )
    with kept_in(report, evaluation.keys, replace=replace_report) as kept:
        return evaluation.measure(kept, progress)


@dataclass(frozen=True)
class _Build:
    """One build of one spec, with the key of its run in each query mode."""

    spec: Spec
    seed: int
    keys: dict[QueryMode, str]


class Evaluation:
    """Specs to be measured on one base with one set of queries, all checked.

    Parameters
    ----------
    base, queries : VectorSource
        The queries are held in memory.
    specs : iterable of Spec
    query_modes : sequence of "private" and "exact"
    options : MeasureOptions

    Raises
    ------
    InputError
        For what cannot be measured.
    """

    def __init__(
        self,
        base: VectorSource,
        queries: VectorSource,
        specs: Iterable[Spec],
        query_modes: Sequence[QueryMode],
        options: MeasureOptions,
    ) -> None:
        self.specs = tuple(dict.fromkeys(specs))
        self.modes = tuple(dict.fromkeys(query_modes))
        self._options = options
        self._base = base
        _check(self.specs, self.modes)
        if options.max_queries is not None:
            _, first = next(queries.chunks(options.max_queries))
            queries = as_source(first, queries.name)
        self._queries = queries
        count, width = base.shape
        self._curve = Curve(
            runs=(),
            base=(base.name, count),
            queries=(queries.name, queries.shape[0]),
            dim=width,
            neighbours=options.neighbours,
            metric=options.metric,
            index_type=options.index_type,
            query_epsilon=options.query_epsilon,
            denoise=options.denoise,
        )
        for spec in self.specs:  # refuse what cannot be measured before the first build
            if spec.dim != width:
                raise InputError(
                    f"{base.name} has {width} columns where a spec says dim = {spec.dim}."
                )
            new_index(spec, self._curve)
        _check_norms(self.specs, base)
        _check_norms(self.specs, queries)
        for book in {spec.codebook for spec in self.specs}:
            if book is not None and not options.skip_leak_check:
                refuse_leaks(book, LeakCheck(book, count).evidence(base.chunks()))

    @cached_property
    def _builds(self) -> list[_Build]:
        """The builds in their order: runs of the first spec, of the second, and so on."""
        sources = [_identity(source) for source in (self._base, self._queries)]
        options = self._options
        terms = (
            self._curve.measures,
            options.neighbours,
            options.metric,
            options.index_type,
            options.query_epsilon,
            options.denoise,
            *sources,
        )
        builds = []
        for spec in self.specs:
            for seed in range(spec.seed, spec.seed + options.runs):
                text = replace(spec, seed=seed).to_json()
                keys = {mode: run_key(spec=text, query=mode, terms=terms) for mode in self.modes}
                builds.append(_Build(spec, seed, keys))
        return builds

    @property
    def keys(self) -> set[str]:
        """The keys of all runs, as in ``runs.csv``."""
        return {key for build in self._builds for key in build.keys.values()}

    def measure(self, kept: RunsFile, progress: Progress | None = None) -> Curve:
        """Measure the runs that are not kept yet, and return the curve of all."""
        tell = progress or no_progress
        runs: list[Run] = []
        with limited_threads():
            truth = ground_truth(
                self._base, self._queries, self._options.neighbours, self._curve.metric
            )
            for done, build in enumerate(self._builds):
                tell(done, len(self._builds), _task(build.spec))
                if not set(build.keys.values()) <= kept.lines.keys():
                    measured = self._measured(build, truth)
                    missing = [run for run in measured if run.key not in kept.lines]
                    kept.append([self._curve.line(run) for run in missing])
                for mode, key in build.keys.items():
                    runs.append(self._curve.run_of(kept.lines[key], build.spec, mode))
            tell(len(self._builds), len(self._builds), "done")
        return replace(self._curve, runs=tuple(runs))

    def _measured(self, build: _Build, truth: GroundTruth) -> Iterator[Run]:
        """Build an index, and yield its run in each query mode."""
        index = new_index(replace(build.spec, seed=build.seed), self._curve)
        cost, denoiser = _build(index, self._base, self._curve.denoise)
        queries = self._queries.read()
        # Attacks and many candidates take long, and runs differ in the projection alone.
        is_first = build.seed == build.spec.seed
        if is_first:
            cost |= measured_exposure(index, self._base, denoiser)
        for mode, key in build.keys.items():
            values = cost | _search(index, queries, mode, truth)
            if is_first:
                values |= _deep_search(index, queries, mode, truth)
            yield Run(build.spec, mode, build.seed, values, denoiser is not None, key)


def new_index(spec: Spec, curve: Curve) -> PrivateIndex:
    """Return an empty index of a spec with the settings of a curve."""
    budget = None
    if spec.epsilon is not None:
        budget = curve.query_epsilon
    return PrivateIndex(
        spec, metric=curve.metric, index_type=curve.index_type, query_epsilon=budget
    )


def _task(spec: Spec) -> str:
    if spec.epsilon is None:
        return label(spec)
    return f"{label(spec)}, ε = {spec.epsilon:g}"


def _identity(source: VectorSource) -> dict[str, Any]:
    """Return what tells vectors apart: of files their time of change, of arrays their content."""
    facts = source.fingerprint()
    if facts["mtime_ns"]:
        return dict(facts)
    content = hashlib.blake2b(digest_size=8)
    for _, chunk in source.chunks():
        parts = (chunk.indptr, chunk.indices, chunk.data) if source.is_sparse else (chunk,)
        for part in parts:
            content.update(np.ascontiguousarray(part).data)
    return {**facts, "content": content.hexdigest()}


def _check(specs: Sequence[Spec], modes: Sequence[QueryMode]) -> None:
    if not specs:
        raise InputError("there is nothing to evaluate: give at least one spec.")
    for name in _SHARED:
        values = list(dict.fromkeys(getattr(spec, name) for spec in specs if _takes(spec, name)))
        if len(values) > 1:
            raise InputError(
                f"the specs of one curve must agree in {name}, not have {values[0]} and "
                f"{values[1]}; measure them separately."
            )
    common_adjacency(specs)
    if not modes or not set(modes) <= set(get_args(QueryMode)):
        raise InputError(f"query_modes must name 'private', 'exact' or both, not {list(modes)!r}.")


def _takes(spec: Spec, name: str) -> bool:
    """Return whether a field counts for a spec.

    Record-level methods take any vectors, and none of the shared fields but the seed; a norm
    matters to noise only, and baselines have none.
    """
    rounded = spec.method_row.calibration.rounded
    private = spec.method_row.private
    return name == "seed" or (rounded and (private or name != "norm"))


def _check_norms(specs: Sequence[Spec], vectors: VectorSource) -> None:
    """Refuse vectors that Gaussian noise of radius 2 would not hide, where it is compared."""
    if not {record(), ANY_OF_NORM_1} <= {spec.adjacency for spec in specs}:
        return
    for first, chunk in vectors.chunks():
        wrong = np.flatnonzero(np.abs(row_norms(chunk) - 1.0) > _NORM_TOLERANCE)
        if wrong.size:
            raise InputError(
                f"{vectors.name}: row {first + int(wrong[0])} is not of norm 1, and "
                f"{ANY_OF_NORM_1} hides any two vectors of norm 1 only; normalise the vectors, or "
                f"leave the methods out that have no guarantee under {record()}."
            )


def _build(
    index: PrivateIndex, base: VectorSource, denoise: Kind | None
) -> tuple[dict[str, float], Denoiser | None]:
    """Fill the index; return what that costs, and the denoiser of its codes."""
    privatizer = Privatizer(index.spec, allow_unprotected=True)  # discarded, never published
    width = 0
    start = time.perf_counter()
    for first, chunk in base.chunks():
        codes = privatizer.privatize(chunk, first_row=first)
        index.add_codes(codes)
        width = max(width, codes.stored[0].nbytes)
    denoiser = fit_where_possible(index, denoise)
    seconds = time.perf_counter() - start
    return {"build_seconds": seconds, "bytes_per_vector": float(width)}, denoiser


def fit_where_possible(index: PrivateIndex, denoise: Kind | None) -> Denoiser | None:
    """Fit a denoiser of that kind ("linear" for sign codes); None if the index goes without."""
    if denoise is None:
        return None
    return fit_if_possible(index.fit_denoiser, index.spec, denoise)


def _search(
    index: PrivateIndex, queries: Any, mode: QueryMode, truth: GroundTruth
) -> dict[str, float]:
    """Return the quality and the speed of a search, by measure."""
    nearest = partial(index.nearest, query=mode, allow_unprotected=True)
    nearest(queries[:1], k=1)  # the first search builds the search structure
    start = time.perf_counter()
    found = nearest(queries, k=min(_FOUND, len(index)))
    seconds = time.perf_counter() - start
    values = {
        "precision@10": float(truth.precision(found, 10, truth.depth).mean()),
        "recall@100": float(truth.recall(found, _FOUND, truth.depth).mean()),
        "recall@10": float(truth.recall(found, 10, 10).mean()),
        "rankings_per_second": len(found) / max(seconds, 1e-9),
    }
    few = [level for level in candidate_levels(len(index)) if level <= _FOUND]
    return values | _recalls_within(few, found, truth)


def _deep_search(
    index: PrivateIndex, queries: Any, mode: QueryMode, truth: GroundTruth
) -> dict[str, float]:
    """Return recall@10 within more candidates than are searched for by default."""
    many = [level for level in candidate_levels(len(index)) if level > _FOUND]
    if not many:
        return {}
    found = index.nearest(queries, k=many[-1], query=mode, allow_unprotected=True)
    return _recalls_within(many, found, truth)


def _recalls_within(levels: Sequence[int], found: AnyArray, truth: GroundTruth) -> dict[str, float]:
    """Return recall@10 after the first candidates are ordered by their vectors, by measure.

    The true neighbours among them are then the first answers.
    """
    among_ten = truth.relevant(found, 10)
    values = {}
    for level in levels:
        recall = np.minimum(among_ten[:, :level].sum(axis=1), 10) / 10
        values[recall_within(level)] = float(recall.mean())
    return values
