"""How long one waits for one answer, over bare Faiss of the same codes.

    python bench/speed.py latency

A search of one query is timed for every kind of code, with one thread, with two, and with two
beside a process that keeps a core busy; then the first search after ``open``, ``add`` and
``remove``, ``add`` of one vector, and similarities of many denoised hits. A time is the least of
many: what the code costs, and not what else the machine did. Bare Faiss has one thread, with which
it is never slower.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import faiss
import numpy as np
from threadpoolctl import threadpool_limits

import dpindex as dpi

DIM, NEIGHBOURS, FEW = 128, 10, 5
SIZES = (20_000, 200_000)
RNG = np.random.default_rng(0)
SPREAD = RNG.normal(size=(16, DIM)) / 8
SETTINGS = {"one thread": 1, "two threads": 2, "two, a core busy": 2}

Action = Callable[[], object]


def seconds(action: Action) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def least(action: Action, budget: float = 0.15) -> float:
    """Least seconds of an action that is repeated for so many seconds, and thrice."""
    end = time.perf_counter() + budget
    times = [seconds(action) for _ in range(3)]
    while time.perf_counter() < end:
        times.append(seconds(action))
    return min(times)


def say(what: str, ours: float, wanted: float, theirs: float) -> None:
    verdict = "ok  " if ours <= wanted else "LOW "
    figures = f"{1e3 * ours:8.3f} ms, {ours / theirs:7.2f} x, wanted {1e3 * wanted:.3f} ms"
    print(f"{verdict} {what:<62} {figures}", flush=True)


def _spin() -> None:
    while True:
        pass


@contextmanager
def busy_process() -> Iterator[None]:
    process = multiprocessing.get_context("spawn").Process(target=_spin, daemon=True)
    process.start()
    try:
        time.sleep(0.3)
        yield
    finally:
        process.kill()
        process.join()


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


def of_kind(name: str, spec: dpi.Spec, vectors: Any) -> None:
    rows = len(vectors)
    one, other = vectors[:1], vectors[1:2]
    index = dpi.PrivateIndex(spec)
    index.add(vectors)
    code = dpi.Privatizer(spec).privatize(one)
    bare = bare_search(index)
    searches: dict[str, Action] = {
        "exact": lambda: index.search(one),
        "private": lambda: index.search(code),
    }
    with threadpool_limits(1):
        theirs = least(bare)
    for setting, threads in SETTINGS.items():
        with threadpool_limits(threads), busy_process() if "busy" in setting else nullcontext():
            for mode, search in searches.items():
                what = f"{name}, {rows} codes, {mode}, {setting}"
                say(what, least(search), 1.5 * theirs + 0.3e-3, theirs)
    with threadpool_limits(1):
        say(f"{name}, {rows} codes, add of one", least(lambda: index.add(other)), 0.3e-3, theirs)
        later = least(searches["exact"])
        with tempfile.TemporaryDirectory() as folder:
            index.save(f"{folder}/index")
            opened = [dpi.open(f"{folder}/index") for _ in range(FEW)]
            firsts = {"open": [seconds(lambda each=each: each.search(one)) for each in opened]}
        for change in ("add", "remove"):
            firsts[change] = []
            for _ in range(FEW):
                index.add(other) if change == "add" else index.remove(index.ids[-1:])
                firsts[change].append(seconds(searches["exact"]))
        for change, times in firsts.items():
            say(f"{name}, {rows} codes, first after {change}", min(times), 10 * later + 0.02, later)


def many_hits(rows: int = 60_000, dim: int = 784, count: int = 600) -> None:
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
    theirs = least(lambda: flat.search(queries, count))
    what = f"{len(queries)} queries, k = {count}, {rows} denoised codes of {dim}"
    say(what, least(lambda: index.search(queries, count)), 2 * theirs, theirs)
    similar = least(lambda: index.search(queries, count).similarity)
    say(f"{what}, similarities", similar, 2 * theirs, theirs)


def main() -> None:
    for rows in SIZES:
        vectors = made(rows)
        for name, spec in specs().items():
            of_kind(name, spec, vectors)
    with threadpool_limits(1):
        many_hits()


if __name__ == "__main__":
    main()
