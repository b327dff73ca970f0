"""Pure against approximate noise at equal epsilon: what √R buys.

    python bench/race/gain.py

Left: standard error that the noise alone brings into the mean of R rows, in records, measured on
empty sketches and as the laws say. Right: relative error of the kernel sum on skin, noise and
partition together.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from common import (
    COLOURS,
    MARKERS,
    Filled,
    arguments,
    draw,
    line,
    load,
    percent,
    show,
    split,
    write_csv,
)
from density import exact

from dpindex.mechanism.noise.gaussian import count_noise
from dpindex.race import PStable

ROWS = (10, 30, 100, 300, 1000, 3000)
EPSILON = 0.1
LAWS: dict[str, float] = {"pure": 0.0, "delta = 1e-6": 1e-6}
WIDTH = 500


def main() -> None:
    chosen = arguments("The square root of R.", repetitions=5)
    x = load("tab_skin")["X"].astype(float)
    hash = PStable(20.0, hashes=2)
    inside, outside = split(len(x), 1000, seed=0)
    base, queries = x[inside][::5], x[outside]
    truth = exact(hash, base, queries)
    rows: list[dict[str, object]] = []
    for r in ROWS:
        fills = [Filled.of(base, r, WIDTH, hash, seed) for seed in range(chosen.repetitions)]
        for method, delta in LAWS.items():
            law = count_noise(EPSILON, delta, r, WIDTH, "add-remove")
            released = [filled.release(EPSILON, delta=delta) for filled in fills]
            noise = np.concatenate(
                [
                    (sketch.counts - filled.counts).mean(axis=0)
                    for sketch, filled in zip(released, fills, strict=True)
                ]
            )
            errors = [np.median(np.abs(s.count(queries) - truth) / truth) for s in released]
            rows.append(
                {
                    "rows": r,
                    "method": method,
                    "noise of the mean, stated": math.sqrt(law.moments.variance[0] / r),
                    "noise of the mean, measured": float(noise.std()),
                    "mean": float(np.mean(errors)),
                    "spread": float(np.std(errors)),
                }
            )
    show(rows)
    write_csv(chosen.output / "gain.csv", rows)

    def fill(i: int, axes: Any) -> None:
        for j, method in enumerate(LAWS):
            mine = [row for row in rows if row["method"] == method]
            at = [row["rows"] for row in mine]
            if i == 0:
                axes.plot(at, [row["noise of the mean, stated"] for row in mine], color=COLOURS[j])
                measured = [row["noise of the mean, measured"] for row in mine]
                axes.plot(at, measured, MARKERS[j], color=COLOURS[j], markersize=5)
            else:
                line(axes, rows, "rows", method, j)
        axes.set_xscale("log")
        if i == 0:
            axes.set_yscale("log")
            axes.set_ylabel("noise of the mean, in records")
        else:
            percent(axes)
            axes.set_ylabel("median relative error of the kernel sum")

    draw(
        chosen.output / "gain.png",
        [
            f"noise alone, epsilon = {EPSILON:g} (lines: the law; points: measured)",
            f"skin, every fifth record ({len(base)}), epsilon = {EPSILON:g}",
        ],
        fill,
        "rows R",
        "",
    )


if __name__ == "__main__":
    main()
