"""Hiding the whole vector: the realised operator norm beside Tu's two bounds.

    python bench/paper/improve_rows.py

Noise of one coordinate, in units of the radius B, after the projection's scale 1/√k. Tu's delta is
partly a probability over the projection; that of the realised norm is one over the noise alone, the
stronger promise.
"""

from __future__ import annotations

import math
from typing import Any

from common import DELTA, arguments, draw, epsilon_axis, read_csv, show, style, write_csv

import dpindex as dpi
from dpindex.base.errors import InputError

DIMS, KS, EPSILONS = (128, 784), (16, 64, 256), (0.1, 0.5, 1.0, 2.0, 5.0, 10.0)
METHODS = {
    "row-rp-g-composition": "Tu Thm 2 (composition)",
    "row-rp-g-direct": "Tu Thm 1 (direct)",
    "row-rp-g-opt": "realised norm (ours)",
    "row-oporp-g": "realised norm, OPORP (ours)",
}


def deviation(method: str, dim: int, k: int, epsilon: float) -> float | None:
    """None where the method has no guarantee."""
    try:
        spec = dpi.Spec(method, dim, k=k, epsilon=epsilon, delta=DELTA, adjacency=dpi.l2(1.0))
        law: Any = spec.law
    except InputError:
        return None
    return math.sqrt(law.moments.variance[0]) * spec.step


def measured() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for dim in DIMS:
        for k in KS:
            for method in METHODS:
                for epsilon in EPSILONS:
                    found = deviation(method, dim, k, epsilon) if k <= dim else None
                    if found is not None:
                        where = {"p": dim, "k": k, "method": method, "epsilon": epsilon}
                        rows.append({**where, "deviation": found})
    return rows


def main() -> None:
    chosen = arguments("Realised operator norm against Tu's bounds.")
    if not chosen.redraw:
        show(write_csv("improve_rows", measured()))
    table = read_csv("improve_rows")
    panels = [(dim, k) for dim in DIMS for k in KS if k <= dim]

    def fill(i: int, axes: Any) -> None:
        for j, (method, label) in enumerate(METHODS.items()):
            mine = [r for r in table if (r["p"], r["k"], r["method"]) == (*panels[i], method)]
            at = [row["epsilon"] for row in mine]
            axes.plot(at, [row["deviation"] for row in mine], label=label, **style(j))
        axes.set_yscale("log")
        epsilon_axis(axes, EPSILONS)

    titles = [f"p = {dim}, k = {k}" for dim, k in panels]
    label = "noise of a coordinate / B"
    draw("improve_rows.png", titles, fill, "ε for the whole vector", label, 3, 4)


if __name__ == "__main__":
    main()
