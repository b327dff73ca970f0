"""Speed: one pass over skin (245 057 × 3) and MNIST (60 000 × 784) at R = 1000, then queries.

python bench/race/speed.py
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from common import Array, arguments, load, show, write_csv

from dpindex.race import L2, SRP, Hash, RaceSketch


def seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def main() -> None:
    chosen = arguments("Vectors and queries a second.", repetitions=1)
    skin: Array = load("tab_skin")["X"]
    mnist: Array = load("mnist")["X_train"]
    cases: list[tuple[str, Array, Hash, int]] = [
        ("skin", skin, L2(20.0, hashes=2), 1000),
        ("MNIST", mnist, L2(1500.0, hashes=2), 1000),
        ("MNIST", mnist, SRP(8), 256),
    ]
    rows: list[dict[str, object]] = []
    for name, x, hash, width in cases:
        best: dict[str, float] = {}
        for _ in range(chosen.repetitions):
            sketch = RaceSketch(x.shape[1], 1000, width, hash, epsilon=1.0)
            queries = x[np.random.default_rng(0).integers(0, len(x), 10_000)]
            for part, action in (
                ("fit", lambda sketch=sketch, x=x: sketch.fit(x)),
                ("release", sketch.release),
                ("query", lambda sketch=sketch, queries=queries: sketch.count(queries)),
            ):
                best[part] = min(best.get(part, float("inf")), seconds(action))
        rows.append(
            {
                "data": name,
                "hash": str(hash),
                "vectors": len(x),
                "fit, s": best["fit"],
                "vectors/s": len(x) / best["fit"],
                "release, s": best["release"],
                "queries/s, batched": 10_000 / best["query"],
                "bytes": len(sketch.to_bytes()),
            }
        )
    show(rows)
    write_csv(chosen.output / "speed.csv", rows)


if __name__ == "__main__":
    main()
