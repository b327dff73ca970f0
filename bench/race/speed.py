"""Speed: one pass over skin (245 057 × 3) and MNIST (60 000 × 784) at R = 1000, then queries.

python bench/race/speed.py

CPU seconds are of all threads together: on an idle machine with two cores a pass takes half of
them, and on a busy one they say what the wall clock cannot.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import numpy as np
from common import Array, arguments, load, show, write_csv

from dpindex.race import SRP, Hash, PStable, RaceSketch, SketchSpec


def seconds(action: Callable[[], object]) -> tuple[float, float]:
    """Of the wall clock, and of all cores."""
    start, worked = time.perf_counter(), time.process_time()
    action()
    return time.perf_counter() - start, time.process_time() - worked


def main() -> None:
    chosen = arguments("Vectors and queries a second.", repetitions=1)
    skin: Array = load("tab_skin")["X"]
    mnist: Array = load("mnist")["X_train"]
    cases: list[tuple[str, Array, Hash, int]] = [
        ("skin", skin, PStable(20.0, hashes=2), 1000),
        ("MNIST", mnist, PStable(1500.0, hashes=2), 1000),
        ("MNIST", mnist, SRP(8), 256),
    ]
    rows: list[dict[str, object]] = []
    for name, x, hash, width in cases:
        best: dict[str, tuple[float, float]] = {}
        for _ in range(chosen.repetitions):
            sketch = RaceSketch(SketchSpec(x.shape[1], 1000, width, hash, epsilon=1.0))
            queries = x[np.random.default_rng(0).integers(0, len(x), 10_000)]
            for part, action in (
                ("fit", lambda sketch=sketch, x=x: sketch.fit(x)),
                ("release", sketch.release),
                ("query", lambda sketch=sketch, queries=queries: sketch.count(queries)),
            ):
                best[part] = min(best.get(part, (math.inf, math.inf)), seconds(action))
        rows.append(
            {
                "data": name,
                "hash": str(hash),
                "vectors": len(x),
                "fit, s": best["fit"][0],
                "fit, CPU s": best["fit"][1],
                "vectors per CPU s": len(x) / best["fit"][1],
                "release, CPU s": best["release"][1],
                "queries per CPU s, batched": 10_000 / best["query"][1],
                "bytes": len(sketch.to_bytes()),
            }
        )
    show(rows)
    write_csv(chosen.output / "speed.csv", rows)


if __name__ == "__main__":
    main()
