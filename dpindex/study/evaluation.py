"""The evaluator: private indexes are built with fresh noise, searched, and attacked."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, get_args

import numpy as np
from scipy import sparse

from dpindex.base.arrays import row_norms
from dpindex.base.checks import whole_number
from dpindex.base.display import Progress, no_progress
from dpindex.base.errors import InputError
from dpindex.base.files import AnyPath
from dpindex.base.threads import idle_cores, limited_threads
from dpindex.data import VectorSource, as_source
from dpindex.decode.base import Metric
from dpindex.decode.fit import DenoiserKind
from dpindex.index.private_index import PrivateIndex
from dpindex.index.search import BATCH_QUERIES, QueryMode
from dpindex.mechanism.spec import Spec
from dpindex.storage.leak_check import LeakCheck, LeakEvidence, refuse_leaks
from dpindex.study.curve import Curve, Run, recall_within
from dpindex.study.examples import ExampleBuild, Gallery
from dpindex.study.runs_file import RunsFile, identity_of, kept_in, run_key
from dpindex.study.specs import agreed, common_adjacency, hides_records, in_ranges, label
from dpindex.study.trial import LINKED, Trial, in_threads
from dpindex.study.truth import GroundTruth, ground_truth, recall_of

_MAX_COUNT = 2**31 - 1
# Answers that every run finds for each query.
_FOUND = 100
# The curve of specs that hide whole records; their vectors are brought to norm 1, unless norms
# differ from it by less than this.
_RECORD = "record"
_SAME_NORM = 1e-3
# Fields that all specs of one curve must agree in, so that their epsilons can be compared.
_SHARED = ("scale", "bounds", "clip", "norm", "seed")


def evaluate(
    base: Any,
    queries: Any,
    specs: Iterable[Spec],
    *,
    runs: int = 10,
    neighbours: int = 50,
    query_modes: Sequence[QueryMode] = ("private", "exact"),
    metric: Metric = "cosine",
    index_type: str = "f32",
    query_epsilon: float | None = None,
    denoise: DenoiserKind | None = None,
    max_queries: int | None = None,
    examples: int = 0,
    report: AnyPath | None = None,
    replace_report: bool = False,
    skip_leak_check: bool = False,
    progress: Progress | None = None,
) -> list[Curve]:
    """Measure how well private indexes answer and what they reveal, with fresh noise each time.

    Run number i builds an index under the public seed ``spec.seed + i`` and searches it with all
    queries. It records recall@10 of the true 10 (ann-benchmarks), precision@10 and recall@100 of
    the true ``neighbours`` (Li & Li 2023, Sec. 5.1: 50), recall@10 after the first R answers were
    ordered by their vectors, queries per second that :meth:`dpindex.PrivateIndex.search` answers,
    build time, the size of a published code, how often a known vector picks out its own code among
    all (:class:`dpindex.study.trial.Linkage`), and how much of the vectors an attacker can
    reconstruct who also has other vectors of the base
    (:class:`dpindex.study.reconstruction.Reconstructor`). Attacks, and more than 100 candidates,
    are measured in the first run of each spec alone.

    As many builds are measured at once as processors are idle when it begins, so times are those
    of one thread beside others.

    The codes are discarded, so nothing private is published by measuring. A published curve,
    however, is a statistic of the data without any guarantee.

    Parameters
    ----------
    base, queries : array, scipy sparse matrix or VectorSource
        Shapes (n, dim) and (nq, dim). The base is read in chunks; the queries are held in memory.
    specs : iterable of Spec
        What to measure; ``none-*`` baselines show the limit without privacy. See
        :func:`dpindex.study.spec_grid`.
    runs : int
        Builds of each spec, each with a new seed and new noise, [1, ∞).
    neighbours : int
        Number of true neighbours of a query, [10, n].
    query_modes : sequence of "private" and "exact"
        Whether queries are privatized.
    metric, index_type : str
        As of :class:`dpindex.PrivateIndex`.
    query_epsilon : float, optional
        Budget of private queries; default that of the index.
    denoise : "auto", "linear" or "score", optional
        Fit a denoiser of this kind to every private index ("linear" for sign codes); the build time
        includes it. If it cannot be fitted, the codes are searched without it.
    max_queries : int, optional
        Use only this many of the first queries, [1, ∞).
    examples : int
        Queries and records to take examples of, evenly spaced, [0, ∞): what is found and what is
        reconstructed, in the first build of each spec.
    report : path, optional
        Directory of a report. Runs are appended to ``runs.csv`` in it as they end, and runs of the
        same evaluation that are there already are not measured again, so that an interrupted
        evaluation goes on, and one with more specs or runs extends it.
    replace_report : bool
        Discard what the directory holds of another evaluation.
    skip_leak_check : bool
        Accept a public part made of the base.
    progress : callable, optional
        Called before every build with (builds done, builds in all, label).

    Returns
    -------
    list of Curve
        One for each kind of adjacency, in the order of the specs. Specs that protect whole records
        (``record()``, or ``l2(2)`` at norm 1) share one, for which all vectors are brought to norm
        1.

    Raises
    ------
    InputError
        If there is nothing to measure, the widths differ, the vectors violate a spec's bounds, a
        vector to be brought to norm 1 is zero, or the directory holds a report of another
        evaluation.

    >>> base = np.random.default_rng(0).random((200, 12))
    >>> from dpindex import attribute
    >>> spec = Spec(method="none-oporp", dim=12, k=12, adjacency=attribute(1.0))
    >>> (curve,) = evaluate(base, base[:5], [spec], runs=1, query_modes=["exact"])
    >>> curve.points[0].mean["recall@10"]
    1.0
    """
    whole_number(runs, "runs", 1, _MAX_COUNT)
    whole_number(examples, "examples", 0, _MAX_COUNT)
    specs, (base, queries) = in_ranges(
        specs,
        as_source(base, "base"),
        as_source(queries, "queries"),
    )
    if max_queries is not None:
        whole_number(max_queries, "max_queries", 1, _MAX_COUNT)
        _, first = next(queries.chunks(max_queries))
        queries = as_source(first, queries.name)
    curve = Curve(
        runs=(),
        base=(base.name, base.shape[0]),
        queries=(queries.name, queries.shape[0]),
        dim=base.shape[1],
        neighbours=neighbours,
        metric=metric,
        index_type=index_type,
        query_epsilon=query_epsilon,
        denoise=denoise,
    )
    groups: dict[str, list[Spec]] = {}
    for spec in dict.fromkeys(specs):
        kind = _RECORD if hides_records(spec) else spec.adjacency.kind
        groups.setdefault(kind, []).append(spec)
    _check_request(curve, groups, query_modes)
    # Whatever cannot be measured is refused before the first build of the first curve.
    tasks = []
    for kind, group in groups.items():
        sources = (base, queries)
        if kind == _RECORD:
            sources = (at_norm_1(base), at_norm_1(queries))
        _check_specs(curve, group)
        if not skip_leak_check:
            _check_public_parts(group, sources[0])
        builds = _builds(curve, group, sources, runs, query_modes)
        tasks.append(_Task(curve, *sources, builds))
    keys = {key for task in tasks for build in task.builds for key in build.keys.values()}
    workers = idle_cores()
    progress = progress or no_progress
    with kept_in(report, keys, replace=replace_report) as kept, limited_threads():
        return [_measured(task, kept, examples, workers, progress) for task in tasks]


@dataclass(frozen=True)
class _Build:
    """One build of one spec, with the key of its run in each query mode."""

    spec: Spec
    seed: int
    keys: dict[QueryMode, str]

    @property
    def is_first(self) -> bool:
        """Whether it is the first build of its spec, which alone is attacked and shown."""
        return self.seed == self.spec.seed


@dataclass(frozen=True)
class _Task:
    """A curve to be measured: its settings, its vectors, and its builds in their order."""

    curve: Curve
    base: VectorSource
    queries: VectorSource
    builds: list[_Build]


def _check_request(
    curve: Curve,
    groups: Mapping[str, Sequence[Spec]],
    modes: Sequence[QueryMode],
) -> None:
    if not groups:
        raise InputError("there is nothing to evaluate: give at least one spec.")
    if not modes or not set(modes) <= set(get_args(QueryMode)):
        raise InputError(f"query_modes must name 'private', 'exact' or both, not {list(modes)!r}.")
    if curve.neighbours < 10:
        raise InputError(
            f"neighbours must be at least 10, so that precision@10 can reach 1, not "
            f"{curve.neighbours!r}."
        )


def _check_specs(curve: Curve, specs: Sequence[Spec]) -> None:
    """Refuse specs of other vectors, that cannot be compared, or that no index can have."""
    for name in _SHARED:
        agreed(name, [getattr(spec, name) for spec in specs if _takes(spec, name)])
    common_adjacency(specs)
    for spec in specs:
        if spec.dim != curve.dim:
            raise InputError(
                f"{curve.base[0]} has {curve.dim} columns where a spec says dim = {spec.dim}."
            )
        PrivateIndex(spec, metric=curve.metric, index_type=curve.index_type)


def _takes(spec: Spec, name: str) -> bool:
    """Return whether a field counts for a spec.

    Record-level methods take any vectors, and none of the shared fields but the seed; a norm
    matters to noise only, and baselines have none.
    """
    if name == "seed":
        return True
    if name == "norm" and not spec.method_row.private:
        return False
    return spec.method_row.calibration.rounded


def _check_public_parts(specs: Sequence[Spec], base: VectorSource) -> None:
    for check in {LeakCheck.of(spec, base.shape[0]) for spec in specs}:
        if check is not None:
            evidence = [check.evidence(first, chunk) for first, chunk in base.chunks()]
            refuse_leaks(check.part, LeakEvidence.joined(evidence))


def at_norm_1(source: VectorSource) -> VectorSource:
    """Return the vectors at norm 1, made chunk by chunk: the source itself if they are.

    Raises InputError for a zero vector, which has no direction.
    """
    unchanged = True
    for first, chunk in source.chunks():
        norms = row_norms(chunk)
        if not norms.all():
            raise InputError(
                f"{source.name}: row {first + int(np.argmin(norms))} is the zero vector, which has "
                f"no direction; leave it out, or leave the methods for whole records out."
            )
        unchanged &= bool(np.abs(norms - 1.0).max() < _SAME_NORM)
    if unchanged:
        return source
    return source.mapped(
        lambda chunk: sparse.diags(1.0 / row_norms(chunk)) @ chunk, np.dtype(np.float64)
    )


def _builds(
    curve: Curve,
    specs: Sequence[Spec],
    sources: Iterable[VectorSource],
    runs: int,
    modes: Sequence[QueryMode],
) -> list[_Build]:
    """Return the builds in their order: runs of the first spec, of the second, and so on."""
    facts = [curve.measures, curve.neighbours, curve.trial, *map(identity_of, sources)]
    builds = []
    for spec in specs:
        for seed in range(spec.seed, spec.seed + runs):
            text = replace(spec, seed=seed).to_json()
            keys = {mode: run_key(spec=text, query=mode, terms=facts) for mode in modes}
            builds.append(_Build(spec, seed, keys))
    return builds


def _measured(
    task: _Task,
    kept: RunsFile,
    examples: int,
    workers: int,
    progress: Progress,
) -> Curve:
    """Measure the runs of one curve that are not kept yet, and return the curve of all."""
    curve = task.curve
    queries = task.queries.read()
    truth = ground_truth(task.base, task.queries, curve.neighbours, curve.metric)
    gallery = None
    if examples:
        gallery = Gallery(task.base, task.queries, curve.metric, curve.candidates, examples)

    def measure(build: _Build) -> tuple[list[Run], ExampleBuild | None]:
        is_known = kept.lines.keys() >= set(build.keys.values())
        shown_in = gallery if build.is_first else None
        if is_known and shown_in is None:
            return [], None
        spec = replace(build.spec, seed=build.seed)
        trial = Trial(spec, task.base, **curve.trial)
        measured = [] if is_known else list(_runs(trial, curve, build, queries, truth))
        example = None if shown_in is None else shown_in.of_build(trial, build.keys)
        return measured, example

    runs: list[Run] = []
    shown: list[ExampleBuild] = []
    with closing(in_threads(measure, task.builds, workers)) as results:
        for done, build in enumerate(task.builds):
            name = label(build.spec)
            if build.spec.epsilon is not None:
                name += f", ε = {build.spec.epsilon:g}"
            progress(done, len(task.builds), name)
            measured, example = next(results)
            fresh = [run for run in measured if run.key not in kept.lines]
            kept.append([curve.line(run) for run in fresh])
            for mode, key in build.keys.items():
                if key in kept.lines:
                    runs.append(curve.run_of(kept.lines[key], build.spec, mode))
            runs += fresh
            if example is not None:
                shown.append(example)
    progress(len(task.builds), len(task.builds), "done")
    if gallery is not None:
        curve = replace(curve, examples=gallery.examples(shown))
    return replace(curve, runs=tuple(runs))


def _runs(
    trial: Trial,
    curve: Curve,
    build: _Build,
    queries: Any,
    truth: GroundTruth,
) -> Iterator[Run]:
    """Yield the run of a build in each query mode."""
    values: dict[str, float] = {
        "build_seconds": trial.build_seconds,
        "bytes_per_vector": float(trial.bytes_per_vector),
    }
    candidates = curve.candidates
    if build.is_first:
        values |= trial.reconstruction()
        values[LINKED] = trial.linkage().share
    else:  # attacks and many candidates take long, and runs differ in the projection alone
        candidates = tuple(level for level in candidates if level <= _FOUND)
    for mode, key in build.keys.items():
        found = _retrieval(trial, queries, mode, truth, candidates)
        denoised = trial.denoiser is not None
        yield Run(build.spec, mode, build.seed, values | found, denoised, key)


def _retrieval(
    trial: Trial,
    queries: Any,
    mode: QueryMode,
    truth: GroundTruth,
    candidates: Sequence[int],
) -> dict[str, float]:
    """Return the quality and the speed of a search, by measure."""
    trial.nearest(queries[:1], 1, mode)  # the first search builds the search structure
    is_deep = candidates[-1] > _FOUND
    timed = queries[:BATCH_QUERIES] if is_deep else queries
    start = time.perf_counter()
    found = trial.nearest(timed, _FOUND, mode)
    rate = len(found) / max(time.perf_counter() - start, 1e-9)
    if is_deep:  # one noise for all: more candidates find more
        found = trial.nearest(queries, candidates[-1], mode)
    near = truth.relevant(found[:, :_FOUND], truth.depth)
    nearest = truth.relevant(found, 10)
    shares = {
        "precision@10": near[:, :10],
        "recall@100": recall_of(near, truth.depth),
        "recall@10": recall_of(nearest[:, :10], 10),
    }
    for level in candidates:
        # The holder orders the first R answers exactly: the true ten among them come first.
        shares[recall_within(level)] = recall_of(nearest[:, :level], 10)
    means = {name: float(share.mean()) for name, share in shares.items()}
    return {"rankings_per_second": rate, **means}
