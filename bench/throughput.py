"""How fast is it, as ratios against the alternative measured in the same run.

    python bench/throughput.py

Absolute figures depend on the machine; ratios travel. Every pair is timed in turn, several times,
and the median ratio is printed with the spread.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import time
from collections.abc import Callable

import faiss
import numpy as np
from threadpoolctl import threadpool_limits

from dpindex import PrivateIndex, Privatizer, Spec
from dpindex.noise.geometric import staircase_noise
from dpindex.noise.randomized_response import draw_flips, randomized_response
from dpindex.randomness.secret import secret_stream

ROUNDS = 15


def seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def compare(
    what: str, ours: Callable[[], object], theirs: Callable[[], object], wanted: float, unit: str
) -> None:
    """Print how many times faster ``ours`` is: median of rounds, both timed in every round."""
    ours(), theirs()
    ratios, best = [], float("inf")
    for _ in range(ROUNDS):
        mine, other = seconds(ours), seconds(theirs)
        ratios.append(other / mine)
        best = min(best, mine)
    low, middle, high = min(ratios), statistics.median(ratios), max(ratios)
    verdict = "ok  " if middle >= wanted else "LOW "
    spread = f"({low:.2f} to {high:.2f}; wanted {wanted:g})"
    print(f"{verdict} {what:<60} {middle:6.2f} x  {spread}  {unit.format(1 / best)}")


def noise() -> None:
    count = 1 << 15
    stream, generator = secret_stream(), np.random.default_rng()
    law = staircase_noise(1.0)
    unit = f"{{0:.3g}} x {count} a second"
    compare(
        "staircase noise / Generator.laplace",
        lambda: [law.source.sample(count, stream) for _ in range(32)],
        lambda: [generator.laplace(size=count) for _ in range(32)],
        3.0,
        unit,
    )
    thresholds = np.array([randomized_response(1.0).thresholds[0]], dtype=np.uint64)
    index = np.zeros(count, dtype=np.intp)
    compare(
        "flips / (Generator.random(n) < q)",
        lambda: [draw_flips(thresholds, index, stream) for _ in range(32)],
        lambda: [generator.random(count) < 0.27 for _ in range(32)],
        1.0,
        unit,
    )


def ingest(rows: int) -> None:
    x = np.random.default_rng(0).uniform(-1, 1, (rows, 768)).astype(np.float32)
    privatizer = Privatizer(Spec(method="dp-oporp-staircase", dim=768, k=256, epsilon=2.0))
    matrix = np.random.default_rng(1).choice([-1.0, 1.0], (768, 256)).astype(np.float32)
    generator = np.random.default_rng()

    def gemm_and_laplace() -> object:
        return x @ matrix + generator.laplace(size=(rows, 256))

    unit = f"{{0:.3g}} x {rows} vectors a second"
    one = lambda: privatizer.privatize(x, threads=1)  # noqa: E731
    compare("ingest 768 -> 256 / (GEMM + Generator.laplace)", one, gemm_and_laplace, 2.0, unit)
    compare("ingest 768 -> 256 / plain copy of the array", one, lambda: x.copy(), 0.2, unit)
    compare("two threads / one", lambda: privatizer.privatize(x, threads=2), one, 1.7, unit)


_worker: tuple[Privatizer, np.ndarray]


def _prepare(rows: int) -> None:
    global _worker
    x = np.random.default_rng(0).uniform(-1, 1, (rows, 768)).astype(np.float32)
    _worker = Privatizer(Spec(method="dp-oporp-staircase", dim=768, k=256, epsilon=2.0)), x


def _ingest_once(_: int) -> None:
    privatizer, x = _worker
    privatizer.privatize(x, threads=1)


def two_processes(rows: int) -> None:
    """What two cores of this machine can do at most: two processes that share nothing."""
    with multiprocessing.get_context("spawn").Pool(2, _prepare, (rows,)) as pool:
        pool.map(_ingest_once, range(8), chunksize=1)
        compare(
            "two processes / one (what the machine allows)",
            lambda: pool.map(_ingest_once, range(2), chunksize=1),
            lambda: [pool.map(_ingest_once, range(1)), pool.map(_ingest_once, range(1))],
            0.0,
            f"{{0:.3g}} x {2 * rows} vectors a second",
        )


def search(rows: int) -> None:
    k, queries = 256, 256
    generator = np.random.default_rng(2)
    x = generator.normal(size=(rows, k)).clip(-3, 3).astype(np.float32) / 3
    spec = Spec(method="dp-signoporp-rr", dim=k, k=k, epsilon=2.0)
    index = PrivateIndex(spec)
    index.add(x)
    codes = index.codes
    asked = Privatizer(spec).privatize(x[:queries])
    bare = faiss.IndexBinaryFlat(k)
    bare.add(codes.stored)

    def hamming() -> object:
        return [bare.search(asked.stored[i : i + 64], 10) for i in range(0, queries, 64)]

    unit = f"{{0:.3g}} x {queries} queries a second"
    compare(
        f"private sign search / bare IndexBinaryFlat, {rows} x {k} bits",
        lambda: index.search(asked, k=10),
        hamming,
        0.9,
        unit,
    )
    compare(
        "asymmetric sign search / bare Hamming, same size",
        lambda: index.search(x[:queries], k=10, query="exact"),
        hamming,
        0.7,
        unit,
    )
    some = x[:32]
    exact = Privatizer(spec).project(some).astype(np.float64) @ codes.to_signs().T.astype(float)
    order = np.lexsort((np.broadcast_to(np.arange(rows), exact.shape), -exact), axis=1)[:, :100]
    same = np.array_equal(order, index.search(some, k=100).ids)
    print(f"{'ok  ' if same else 'LOW '} asymmetric ranking identical to NumPy's: {same}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=20_000, help="vectors in the ingest benchmark")
    parser.add_argument("--codes", type=int, default=200_000, help="codes in the search benchmark")
    options = parser.parse_args()
    with threadpool_limits(1):  # one thread for BLAS and Faiss: ratios of work, not of cores
        noise()
        ingest(options.rows)
        two_processes(options.rows)
        search(options.codes)


if __name__ == "__main__":
    main()
