"""How long one waits for one answer, and how long one may: a part of ``bench/speed.py``.

A search of one query is timed for every kind of code, with one thread, with two, and with two
beside a process that keeps a core busy; then the first search after ``open``, ``add`` and
``remove``, ``add`` of one vector in memory and with a ledger, and similarities of many denoised
hits. A time is the least of many: what the code costs, and not what else the machine did. A search
may take 1.5 times what bare Faiss takes with one thread, with which it is never slower, and 0.3 ms.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

import faiss
import numpy as np
from threadpoolctl import threadpool_limits

import dpindex as dpi

DIM, NEIGHBOURS, ROUNDS = 128, 10, 3
SIZES = (20_000, 200_000)
RNG = np.random.default_rng(0)
SPREAD = RNG.normal(size=(16, DIM)) / 8
SETTINGS = {"one thread": 1, "two threads": 2, "two, a core busy": 2}

Action = Callable[[], object]


class Wait(NamedTuple):
    """Seconds that something took, and may take, by round."""

    what: str
    taken: list[float]
    allowed: list[float]


def seconds(action: Action) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def least(action: Action, budget: float = 0.03) -> float:
    """Least seconds of an action that is repeated for so many seconds, and twice."""
    end = time.perf_counter() + budget
    times = [seconds(action) for _ in range(2)]
    while time.perf_counter() < end:
        times.append(seconds(action))
    return min(times)


@contextmanager
def busy_process() -> Iterator[None]:
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        time.sleep(0.1)
        yield
    finally:
        process.kill()
        process.wait()


def made(rows: int) -> Any:
    return np.tanh(RNG.normal(size=(rows, 16)) @ SPREAD).astype(np.float32)


def specs() -> dict[str, dpi.Spec]:
    """One of every kind of code."""
    public = made(1000)
    attribute, whole = dpi.attribute(1.0), dpi.record()
    design = dpi.design(public, epsilon=2.0, code_length=64)
    return {
        "numbers": dpi.Spec("dp-oporp-staircase", DIM, k=64, epsilon=3.0, adjacency=attribute),
        "signs": dpi.Spec("dp-signoporp-geometric", DIM, k=64, epsilon=3.0, adjacency=attribute),
        "cap": dpi.Spec("record-cap", DIM, k=128, epsilon=10.0, adjacency=whole),
        "codebook": dpi.Spec(
            "record-codebook", DIM, epsilon=8.0, adjacency=whole, codebook=dpi.Codebook(public)
        ),
        "design": dpi.Spec(
            "dp-designed-laplace", DIM, design=design, epsilon=2.0, adjacency=attribute
        ),
    }


def bare_search(index: dpi.PrivateIndex) -> Action:
    """A search of Faiss alone among the same codes: flat, or binary flat; a symbol is 16 bits."""
    stored = index.codes.stored
    if index.spec.codebook is None and stored.dtype != np.uint8:
        vectors = np.ascontiguousarray(index.codes.to_float(), dtype=np.float32)
        faiss.normalize_L2(vectors)
        flat: Any = faiss.IndexFlatIP(vectors.shape[1])
    else:
        vectors = np.ascontiguousarray(stored).view(np.uint8)
        flat = faiss.IndexBinaryFlat(8 * vectors.shape[1])
    flat.add(vectors)
    return lambda: flat.search(vectors[:1], NEIGHBOURS)


def of_kind(name: str, spec: dpi.Spec, vectors: Any) -> Iterator[Wait]:
    rows = len(vectors)
    one = vectors[:1]
    others = iter(np.clip(vectors + 1e-4, -1, 1)[:, None])  # none is released twice
    index = dpi.PrivateIndex(spec)
    index.add(vectors)
    code = dpi.Privatizer(spec).privatize(one)
    bare = bare_search(index)
    searches: dict[str, Action] = {
        "exact": lambda: index.search(one),
        "private": lambda: index.search(code),
    }
    with threadpool_limits(1):
        allowed = [1.5 * least(bare) + 0.3e-3 for _ in range(ROUNDS)]
    for setting, threads in SETTINGS.items():
        with threadpool_limits(threads), busy_process() if "busy" in setting else nullcontext():
            for mode, search in searches.items():
                taken = [least(search) for _ in range(ROUNDS)]
                yield Wait(f"{name}, {rows} codes, {mode}, {setting}", taken, allowed)
    with threadpool_limits(1):
        taken = [least(lambda: index.add(next(others))) for _ in range(ROUNDS)]
        yield Wait(f"{name}, {rows} codes, add of one", taken, [0.3e-3] * ROUNDS)
        first = [10 * least(searches["exact"]) + 0.02] * ROUNDS
        with tempfile.TemporaryDirectory() as folder:
            index.save(f"{folder}/index")
            opened = [dpi.open(f"{folder}/index") for _ in range(ROUNDS)]
            taken = [seconds(lambda each=each: each.search(one)) for each in opened]
        yield Wait(f"{name}, {rows} codes, first after open", taken, first)
        for change in ("add", "remove"):
            taken = []
            for _ in range(ROUNDS):
                index.add(next(others)) if change == "add" else index.remove(index.ids[-1:])
                taken.append(seconds(searches["exact"]))
            yield Wait(f"{name}, {rows} codes, first after {change}", taken, first)


def with_a_ledger(vectors: Any) -> Wait:
    """On the disk of temporary files: an fsync, of which there are 29, is most of it."""
    index = dpi.PrivateIndex(specs()["numbers"])
    with tempfile.TemporaryDirectory() as folder:
        index.save(f"{folder}/index")
        ledger = dpi.Ledger(f"{folder}/ledger")
        add = lambda i: index.add(vectors[i : i + 1], ids=[i], ledger=ledger)  # noqa: E731
        add(0)  # makes the ledger
        taken = [seconds(lambda i=i: add(i)) for i in range(1, 10)]
    return Wait("numbers, add of one with a ledger", taken, [0.02] * len(taken))


def many_hits(rows: int = 60_000, dim: int = 784, count: int = 600) -> Iterator[Wait]:
    """Denoised codes of pictures' size, of vectors of rank 64, and their similarities."""
    spec = dpi.Spec(
        "raw-square-wave", dim, epsilon=2.0, bounds=(0, 1), adjacency=dpi.attribute(1.0)
    )
    spread = RNG.normal(size=(64, dim)).astype(np.float32) / 40
    vectors = 0.5 + RNG.standard_normal((rows, 64), dtype=np.float32) @ spread
    np.clip(vectors, 0, 1, out=vectors)
    queries = vectors[:200]
    index = dpi.PrivateIndex(spec)
    index.add(vectors)
    denoiser = index.fit_denoiser("linear")
    index.calibrate()
    flat = faiss.IndexFlatIP(dim)
    flat.add(denoiser.to_rank(index.codes))
    index.search(queries[:1])
    allowed = [2 * seconds(lambda: flat.search(queries, count)) for _ in range(ROUNDS)]
    what = f"{len(queries)} queries, k = {count}, {rows} denoised codes of {dim}"
    taken = [seconds(lambda: index.search(queries, count)) for _ in range(ROUNDS)]
    yield Wait(what, taken, allowed)
    taken = [seconds(lambda: index.search(queries, count).similarity) for _ in range(ROUNDS)]
    yield Wait(f"{what}, similarities", taken, allowed)


def reranked(vectors: Any, candidates: int = 1000) -> Iterator[Wait]:
    """100 queries, whose candidates the owner orders, over a search and reading the rows."""
    queries = vectors[:100]
    for name in ("numbers", "signs"):
        index = dpi.PrivateIndex(specs()[name])
        index.add(vectors)
        index.search(queries[:1])
        plain = lambda: vectors[index.search(queries, candidates).ids.ravel()]  # noqa: B023, E731
        ours = lambda: index.search(queries, candidates=candidates, rerank=vectors)  # noqa: B023, E731
        allowed = [3 * seconds(plain) for _ in range(ROUNDS)]
        what = f"{name}, {len(vectors)} codes, {candidates} candidates ordered"
        yield Wait(what, [seconds(ours) for _ in range(ROUNDS)], allowed)


def in_batches(vectors: Any, rows: int = 1000) -> Wait:
    """``add`` of many vectors, a thousand at a time, over one ``add``."""

    def added(step: int) -> None:
        index = dpi.PrivateIndex(specs()["numbers"])
        for start in range(0, len(vectors), step):
            index.add(vectors[start : start + step])

    allowed = [2 * seconds(lambda: added(len(vectors))) for _ in range(ROUNDS)]
    taken = [seconds(lambda: added(rows)) for _ in range(ROUNDS)]
    return Wait(f"numbers, {len(vectors)} vectors in batches of {rows}", taken, allowed)


def waits() -> Iterator[Wait]:
    for rows in SIZES:
        vectors = made(rows)
        for name, spec in specs().items():
            yield from of_kind(name, spec, vectors)
    yield with_a_ledger(vectors)
    with threadpool_limits(1):
        yield from many_hits()
        yield from reranked(vectors)
        yield in_batches(vectors)
