"""Search with a filter that keeps 1 %: its time over that of an unfiltered search, and its hits.

    python bench/filter.py [--rows 1000000] [--queries 100]

Both searches run in one process, in turn; the ratio is that of the medians. "found" is the share of
hits that leaving rows out of an unfiltered ranking has too, for queries for which that ranking is
deep enough to tell.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np

import dpindex as dpi

DIM, K, TIMES, DEEP = 128, 10, 5, 2000


def seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def measure(name: str, index: dpi.PrivateIndex, queries: np.ndarray, query: str) -> None:
    mask = np.random.default_rng(1).random(len(index)) < 0.01
    filters = {"mask": mask, "ids": np.flatnonzero(mask), "expression": "part == 7"}
    index.search(queries, k=K)
    deep = index.search(queries[:20], k=min(DEEP, len(index)))
    found = index.search(queries[:20], k=K, filter=mask)
    same = [
        np.isin(left_out, one.ids).mean()
        for one, full in zip(found, deep, strict=True)
        if len(left_out := full.ids[mask[full.ids]][:K])
    ]
    times: dict[str, list[float]] = {"": [], **{kind: [] for kind in filters}}
    for _ in range(TIMES):
        for kind in times:
            filter_ = filters.get(kind)
            times[kind].append(seconds(lambda f=filter_: index.search(queries, K, query, filter=f)))
    plain = statistics.median(times.pop(""))
    ratios = ", ".join(f"{kind} {statistics.median(t) / plain:.2f}" for kind, t in times.items())
    print(f"{name} ({query}): {plain:.3f} s unfiltered; ratio {ratios}; found {np.mean(same):.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--queries", type=int, default=100)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    base = rng.normal(size=(options.rows, 16)).astype(np.float32)
    base = base @ rng.normal(size=(16, DIM)).astype(np.float32)
    base /= np.linalg.norm(base, axis=1, keepdims=True)
    payload = {"part": np.arange(options.rows) % 100}
    specs = {
        "floats": dpi.Spec(
            "dp-oporp-staircase", DIM, k=64, epsilon=20.0, adjacency=dpi.attribute(1.0)
        ),
        "signs": dpi.Spec(
            "dp-signoporp-geometric", DIM, k=128, epsilon=20.0, adjacency=dpi.attribute(1.0)
        ),
        "symbols": dpi.Spec(
            "record-codebook",
            DIM,
            epsilon=8.0,
            adjacency=dpi.record(),
            codebook=dpi.Codebook(base[:1024] * 0.99),
        ),
    }
    for name, spec in specs.items():
        index = dpi.PrivateIndex(spec)
        index.add(base, payload=payload, skip_leak_check=True)
        for query in ("exact", "private"):
            measure(name, index, base[: options.queries], query)
        if name == "floats":
            index.fit_denoiser("linear")
            measure("floats, denoised", index, base[: options.queries], "exact")


if __name__ == "__main__":
    main()
