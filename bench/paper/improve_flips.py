"""Geometric flips beside Li & Li's smooth flips (Alg. 7 and 8), at equal pure epsilon.

    python bench/paper/improve_flips.py

Both are ε₀-DP for a coordinate; the chance of a flip falls with the level L = ⌈|x|/Δ⌉. Left: the
signal 1 - 2q that is left by level, as drawn by the library's integer thresholds. Right: the mean
signal of a SignOPORP coordinate that is normal with the deviation of MNIST's (k = 128: 1.5 beta).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from common import arguments, draw, epsilon_axis, read_csv, show, style, write_csv
from scipy.special import ndtr

from dpindex.mechanism.noise.response import geometric_thresholds
from dpindex.mechanism.papers.signs import smooth_thresholds

BUDGETS = (0.1, 0.5, 2.0)
EPSILONS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
SPREADS = (1.5, 5.0)
MAX_LEVEL = 20
LAWS = {
    "smooth (as published)": smooth_thresholds,
    "geometric (ours)": geometric_thresholds,
}


def flips(law: str, epsilon: float, levels: int) -> Any:
    """Chance of a flip for L = 1 … levels; the last threshold goes on for ever."""
    thresholds = LAWS[law](epsilon)
    return np.array([thresholds[min(i, len(thresholds) - 1)] for i in range(levels)]) / 2.0**64


def main() -> None:
    arguments("Geometric against smooth flips.")
    rows: list[dict[str, Any]] = []
    for law in LAWS:
        for epsilon in EPSILONS:
            levels = np.arange(1, 400)
            chances = flips(law, epsilon, len(levels))
            for spread in SPREADS:
                mass = 2 * (ndtr(levels / spread) - ndtr((levels - 1) / spread))
                signal = float(mass @ (1 - 2 * chances))
                where = {"law": law, "epsilon": epsilon, "spread": spread}
                rows.append({**where, "level": "mean", "signal": signal})
        for epsilon in BUDGETS:
            for level, chance in enumerate(flips(law, epsilon, MAX_LEVEL), start=1):
                where = {"law": law, "epsilon": epsilon, "spread": 0.0}
                rows.append({**where, "level": level, "signal": 1 - 2 * float(chance)})
    write_csv("improve_flips", rows)
    table = read_csv("improve_flips")
    show([row for row in table if row["level"] == "mean"])

    def fill(i: int, axes: Any) -> None:
        for law, dashes in zip(LAWS, ("--", "-"), strict=True):
            mine = [row for row in table if row["law"] == law]
            if i == 0:
                for j, epsilon in enumerate(BUDGETS):
                    line = [r for r in mine if r["epsilon"] == epsilon and r["level"] != "mean"]
                    axes.plot(
                        [row["level"] for row in line],
                        [row["signal"] for row in line],
                        label=f"ε₀ = {epsilon:g}, {law}",
                        **style(j, linestyle=dashes, markersize=3),
                    )
            else:
                for j, spread in enumerate(SPREADS):
                    line = [r for r in mine if r["spread"] == spread and r["level"] == "mean"]
                    axes.plot(
                        EPSILONS,
                        [row["signal"] for row in line],
                        label=f"deviation {spread:g} beta, {law}",
                        **style(4 + j, linestyle=dashes),
                    )
        if i == 0:
            axes.set_xticks(range(0, MAX_LEVEL + 1, 5))
        else:
            epsilon_axis(axes, EPSILONS)
        axes.set_ylim(0, 1.02)

    titles = ["by level", "mean over a normal coordinate"]
    at = ["level L", "ε₀ of a coordinate"]
    draw("improve_flips.png", titles, fill, at, "signal 1 − 2q", None, 2)


if __name__ == "__main__":
    main()
