"""Recall by epsilon: what each budget buys, measured on the data holder's own vectors."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from dpindex.errors import InputError
from dpindex.estimators.denoise import Denoiser, Kind
from dpindex.evaluate.curve import MEASURES, Curve, QueryMode, Run, label
from dpindex.evaluate.exposure import Exposed
from dpindex.evaluate.ground_truth import GroundTruth, ground_truth, source_of
from dpindex.index import Metric, PrivateIndex
from dpindex.privatizer import Privatizer
from dpindex.spec import Spec
from dpindex.vectors import VectorSource

__all__ = ["Progress", "recall_curve"]

Progress: TypeAlias = Callable[[int, int, str], None]
"""Called with (builds done, builds in all, what is built now)."""

_FOUND = 100
_NUMBERS = 1 << 22
_SPARSE_ROWS = 8192
_SHARED = ("adjacency", "scale", "bounds", "clip", "norm", "seed")
"""What lines on one axis must have in common for that axis to mean one thing."""


def recall_curve(
    base: Any,
    queries: Any,
    specs: Iterable[Spec],
    *,
    repetitions: int = 10,
    query_modes: Sequence[QueryMode] = ("private", "exact"),
    neighbours: int = 50,
    metric: Metric = "cosine",
    storage: str = "f32",
    query_epsilon: float | None = None,
    denoise: Kind | None = None,
    progress: Progress | None = None,
) -> Curve:
    """Measure how well private indexes answer, each spec with fresh projections and fresh noise.

    Every repetition builds an index under the public seed ``spec.seed + repetition`` and asks it
    all queries. Beside an exact ground truth it records precision@10 and recall@100 against the
    true ``neighbours`` (Li & Li 2023, Sec. 5.1: 50), recall@10 against the exact ten
    (ann-benchmarks), queries a second, build time and the size of a published code; and what the
    best attack here rebuilds of the vectors (see :mod:`dpindex.evaluate.exposure`).

    This spends the budget of the vectors in a laboratory sense only: the codes are thrown away,
    but a published curve is a statistic of the data and carries no guarantee itself.

    Parameters
    ----------
    base, queries : array, scipy sparse matrix or VectorSource
        Shapes (n, p) and (nq, p). The base is streamed; the queries are held.
    specs : iterable of Spec
        What to measure; ``none-*`` baselines are the ceilings. See :func:`spec_grid`.
    repetitions : int
        Builds of each spec, [1, ∞).
    query_modes : sequence of "private" and "exact"
        Whether the query is privatized too.
    neighbours : int
        How many true neighbours a query has, [10, n].
    metric, storage : str
        Passed on to :class:`dpindex.PrivateIndex`.
    query_epsilon : float, optional
        Budget of private queries; that of the index by default.
    denoise : "auto", "linear" or "score", optional
        Fit a denoiser to every index (but the baselines) before asking; building time includes it.
        Where there is nothing to learn from, codes are searched as they are.
    progress : callable, optional
        Called before every run with (done, total, label).

    Raises
    ------
    InputError
        If there is nothing to measure, the widths differ, or the vectors break a spec's bounds.

    >>> import numpy as np
    >>> base = np.random.default_rng(0).random((200, 12))
    >>> spec = Spec(method="none-oporp", dim=12, k=12)
    >>> curve = recall_curve(base, base[:5], [spec], repetitions=1, query_modes=["exact"])
    >>> curve.points[0].mean["recall@10"]
    1.0
    """
    specs, modes = tuple(dict.fromkeys(specs)), tuple(dict.fromkeys(query_modes))
    _check(specs, modes, repetitions, neighbours)
    base, queries = source_of(base, "base"), source_of(queries, "queries")

    def new_index(spec: Spec) -> PrivateIndex:
        budget = None if spec.epsilon is None else query_epsilon
        return PrivateIndex(spec, metric=metric, index_type=storage, query_epsilon=budget)

    for spec in specs:  # what cannot be measured is refused now, not after an hour
        if spec.dim != base.shape[1]:
            raise InputError(
                f"{base.name} has {base.shape[1]} columns where a spec says dim = {spec.dim}."
            )
        new_index(spec)
    truth = ground_truth(base, queries, neighbours, metric)
    asked = queries.read()
    total, runs = len(specs) * repetitions, list[Run]()
    for done in range(total):
        spec, repetition = specs[done // repetitions], done % repetitions
        if progress:
            progress(done, total, _task(spec))
        index = new_index(replace(spec, seed=spec.seed + repetition))
        cost = _build(index, base, denoise)
        for mode in modes:
            values = {**_ask(index, asked, mode, truth), **cost}
            runs.append(Run(spec, mode, index.spec.seed, {name: values[name] for name in MEASURES}))
    if progress:
        progress(total, total, "done")
    return Curve(
        runs=tuple(runs),
        base=(base.name, base.shape[0]),
        queries=(queries.name, queries.shape[0]),
        dim=base.shape[1],
        neighbours=neighbours,
        metric=metric,
        storage=storage,
        query_epsilon=query_epsilon,
        denoise=denoise,
    )


def _check(
    specs: Sequence[Spec], modes: Sequence[QueryMode], repetitions: int, neighbours: int
) -> None:
    if not specs:
        raise InputError("there is nothing to evaluate: give at least one spec.")
    for name in _SHARED:
        values = list(dict.fromkeys(getattr(spec, name) for spec in specs))
        if len(values) > 1:
            raise InputError(
                f"the specs of one curve must agree in {name}, not have {values[0]} and "
                f"{values[1]}; measure them apart."
            )
    if not modes or not set(modes) <= {"private", "exact"}:
        raise InputError(f"query_modes must name 'private', 'exact' or both, not {list(modes)!r}.")
    if repetitions < 1:
        raise InputError(f"repetitions must be at least 1, not {repetitions!r}.")
    if neighbours < 10:
        raise InputError(
            f"neighbours must be at least 10, for precision@10 to be able to reach 1, not "
            f"{neighbours!r}."
        )


def _task(spec: Spec) -> str:
    return label(spec) + ("" if spec.epsilon is None else f", ε = {spec.epsilon:g}")


def _build(index: PrivateIndex, base: VectorSource, denoise: Kind | None) -> dict[str, float]:
    """Fill the index and report what that cost, and what it gives away."""
    rows = _SPARSE_ROWS if base.is_sparse else max(1, _NUMBERS // base.shape[1])
    privatizer, exposed = Privatizer(index.spec), Exposed(index.spec)
    largest, seconds = 0, 0.0
    for first, chunk in base.chunks(rows):
        start = time.perf_counter()
        codes = privatizer.privatize(chunk, first_row=first)
        index.add_codes(codes)
        seconds += time.perf_counter() - start
        exposed.see(chunk, codes)
        published = codes.stored
        largest = max(largest, published.itemsize * published.shape[1])
    start = time.perf_counter()
    denoiser = _denoiser(index, denoise)
    seconds += time.perf_counter() - start
    cost = {"build_seconds": seconds, "bytes_per_vector": float(largest)}
    return cost | exposed.measure(denoiser)


def _denoiser(index: PrivateIndex, denoise: Kind | None) -> Denoiser | None:
    if denoise is None or not index.spec.mechanism.private:
        return None
    kind = "linear" if index.spec.mechanism.codes == "signs" else denoise
    try:
        return index.fit_denoiser(kind)
    except InputError:  # too few codes, or all noise: searched as they are, as documented
        return None


def _ask(
    index: PrivateIndex, queries: Any, mode: QueryMode, truth: GroundTruth
) -> dict[str, float]:
    index.search(queries[:1], k=1, query=mode)  # the first search prepares what all others use
    start = time.perf_counter()
    found = index.search(queries, k=min(_FOUND, len(index)), query=mode).ids
    seconds = time.perf_counter() - start
    return {
        "precision@10": float(truth.precision(found, 10, truth.depth).mean()),
        "recall@100": float(truth.recall(found, _FOUND, truth.depth).mean()),
        "recall@10": float(truth.recall(found, 10, 10).mean()),
        "queries_per_second": len(found) / max(seconds, 1e-9),
    }
