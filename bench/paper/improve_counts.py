"""The exact binomial quantile beside the Chernoff bound for N₊ (Li & Li 2023, Prop. 4.5).

    python bench/paper/improve_counts.py

For DP-SignRP-RR with a norm bound m = ‖u‖, delta = 1e-6, k = 512 signs of p = 784 attributes. Left:
how many signs may change; right: the signal 1 - 2q that is left at ε = 50.
"""

from __future__ import annotations

import math
from typing import Any

from common import DELTA, arguments, draw, read_csv, show, style, write_csv
from published import chernoff_count

from dpindex.mechanism.papers.signs import change_probability, quantile_count

DIM, K, EPSILON = 784, 512, 50.0
NORMS = (2.0, 3.0, 5.0, 8.0, 12.0, 20.0, 50.0, 100.0)
COUNTS = {
    "all k (δ = 0)": lambda k, chance, delta: k,
    "Chernoff (as published)": chernoff_count,
    "exact quantile (ours)": quantile_count,
}


def main() -> None:
    arguments("Chernoff against exact quantile.")
    rows: list[dict[str, Any]] = []
    for name, count in COUNTS.items():
        for norm in NORMS:
            signs = count(K, change_probability(DIM, 1.0 / norm), DELTA)
            signal = math.tanh(EPSILON / signs / 2)  # 1 − 2/(1 + e^x)
            rows.append({"count": name, "norm": norm, "signs": signs, "signal": signal})
    show(write_csv("improve_counts", rows))
    table = read_csv("improve_counts")

    def fill(i: int, axes: Any) -> None:
        for j, name in enumerate(COUNTS):
            mine = [row for row in table if row["count"] == name]
            axes.plot(NORMS, [row[("signs", "signal")[i]] for row in mine], label=name, **style(j))
        axes.set_xscale("log")
        axes.set_xticks(NORMS, [f"{norm:g}" for norm in NORMS])
        axes.minorticks_off()
        axes.set_ylim(bottom=0)

    titles = [f"k = {K}, p = {DIM}, δ = {DELTA:g}", f"ε = {EPSILON:g}"]
    draw("improve_counts.png", titles, fill, "m / beta", ["N₊", "signal 1 − 2q"])


if __name__ == "__main__":
    main()
