"""Kernel density: relative error of the kernel sum against epsilon, beside the noiseless sketch.

    python bench/race/density.py

Truth is the exact sum of the same LSH kernel over all records that were sketched, at 1000 records
held out. Pure noise and approximate noise (delta = 1e-6) are released from the same counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from common import (
    Array,
    Filled,
    arguments,
    ceiling,
    draw,
    line,
    load,
    percent,
    show,
    split,
    write_csv,
)

from dpindex.race import Hash, PStable

EPSILONS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
METHODS: dict[str, dict[str, Any]] = {"pure": {}, "delta = 1e-6": {"delta": 1e-6}}
HELD_OUT = 1000


def data() -> Iterator[tuple[str, Array, Hash, int, int]]:
    """Name, records, hash, rows, width. The bandwidths are those of Coleman & Shrivastava's Table 2
    (a scale of 5000 dollars) and, for skin, the bucket width of 20 that the project's target names.
    """
    yield "skin", load("tab_skin")["X"].astype(float), PStable(20.0, hashes=2), 1000, 1000
    pay, hash = load("tab_salaries"), PStable(5000.0)
    yield "NYC pay", pay["nyc_fy2016_regular_gross"][:, None].astype(float), hash, 300, 500
    yield "Chicago pay", pay["chicago_annual"][:, None].astype(float), hash, 300, 500


def exact(hash: Hash, base: Array, queries: Array) -> Array:
    """The kernel sum, over distinct records with their multiplicities."""
    kinds, times = np.unique(base, axis=0, return_counts=True)
    return np.concatenate(
        [hash.kernel(kinds, part) @ times for part in np.array_split(queries, 40)]
    )


def main() -> None:
    chosen = arguments("Kernel density against epsilon.", repetitions=5)
    rows: list[dict[str, object]] = []
    for name, x, hash, r, width in data():
        inside, outside = split(len(x), HELD_OUT, seed=0)
        truth = exact(hash, x[inside], x[outside])
        dense = truth >= np.median(truth)
        found: dict[tuple[str, float], list[tuple[float, float]]] = {}
        for seed in range(chosen.repetitions):
            filled = Filled.of(x[inside], r, width, hash, seed)
            releases = [("no noise", 0.0, filled.release(None))]
            releases += [
                (method, epsilon, filled.release(epsilon, **options))
                for method, options in METHODS.items()
                for epsilon in EPSILONS
            ]
            for method, epsilon, sketch in releases:
                error = np.abs(sketch.count(x[outside]) - truth) / truth
                found.setdefault((method, epsilon), []).append((error.mean(), error[dense].mean()))
        for (method, epsilon), errors in found.items():
            mean, upper = np.mean(errors, axis=0)
            rows.append(
                {
                    "data": name,
                    "method": method,
                    "epsilon": epsilon,
                    "mean": float(mean),
                    "spread": float(np.std([e[0] for e in errors])),
                    "upper half of density": float(upper),
                }
            )
    show(rows)
    write_csv(chosen.output / "density.csv", rows)
    names = list(dict.fromkeys(str(row["data"]) for row in rows))

    def fill(i: int, axes: Any) -> None:
        mine = [row for row in rows if row["data"] == names[i]]
        ceiling(axes, float(str(mine[0]["mean"])), "the same sketch without noise")
        for j, method in enumerate(METHODS):
            line(axes, mine, "epsilon", method, j)
        axes.set_xscale("log")
        percent(axes)

    draw(
        chosen.output / "density.png",
        [f"{name} (1000 held-out queries)" for name in names],
        fill,
        "epsilon, for one record added or removed",
        "mean relative error of the kernel sum",
    )


if __name__ == "__main__":
    main()
