"""How many signs one attribute can change: Li & Li 2023, Lemma 4.3 (Fig. 4), Prop. 4.5 (Fig. 5).

    python bench/paper/sign_changes.py

Fig. 4 sets the bound beside a simulation with a normal that is independent of the others (where it
is exact) and with the projection of a real vector (all weight on one attribute, or on all alike).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from common import DELTA, arguments, draw, read_csv, style, write_csv
from published import chernoff_count

from dpindex.mechanism.papers.signs import change_probability, quantile_count

RATIOS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
SIZES = (100, 1_000, 10_000, 100_000)
SIMULATED = 1_000
DIM = 1_000
NORMS = (1.5, 2.0, 3.0, 5.0, 8.0, 12.0, 20.0, 50.0)
KS = (128, 256, 512)
CASES = ("independent", "one attribute", "all alike")


def probabilities(draws: int) -> list[dict[str, Any]]:
    rows = [
        {"kind": "bound", "p": p, "ratio": ratio, "chance": change_probability(p, ratio)}
        for p in SIZES
        for ratio in RATIOS
    ]
    rng = np.random.default_rng(0)
    hits = np.zeros((len(CASES), len(RATIOS)))
    for _ in range(draws // 1000):
        w = np.abs(rng.standard_normal((1000, SIMULATED), dtype=np.float32))
        largest, signs = w.max(axis=1), rng.choice([-1.0, 1.0], w.shape)
        others = (
            np.abs(rng.standard_normal(1000)),
            w[:, 0],
            np.abs((signs * w).sum(axis=1)) / math.sqrt(SIMULATED),
        )
        hits += [[np.mean(r * largest > other) for r in RATIOS] for other in others]
    for case, line in zip(CASES, hits / (draws // 1000), strict=True):
        for ratio, chance in zip(RATIOS, line, strict=True):
            row = {"kind": case, "p": SIMULATED, "ratio": ratio, "chance": float(chance)}
            rows.append(row)
    return rows


def counts() -> list[dict[str, Any]]:
    rows = []
    for k in KS:
        for norm in NORMS:
            chance = change_probability(DIM, 1.0 / norm)
            rows.append(
                {
                    "k": k,
                    "norm": norm,
                    "chance": chance,
                    "Chernoff": chernoff_count(k, chance, DELTA),
                    "exact": quantile_count(k, chance, DELTA),
                }
            )
    return rows


def main() -> None:
    chosen = arguments("Signs that one attribute can change.", draws=100_000)
    if not chosen.redraw:
        write_csv("fig4_lemma_4_3", probabilities(chosen.draws))
        write_csv("fig5_prop_4_5", counts())
    first, second = read_csv("fig4_lemma_4_3"), read_csv("fig5_prop_4_5")

    def fill(i: int, axes: Any) -> None:
        for j, p in enumerate(SIZES):
            mine = [row for row in first if (row["kind"], row["p"]) == ("bound", p)]
            look = style(j, marker=None)
            axes.plot(RATIOS, [row["chance"] for row in mine], label=f"(26), p = {p}", **look)
        for j, case in enumerate(CASES):
            mine = [row for row in first if row["kind"] == case]
            look = {"marker": "o^x"[j], "color": "black", "linestyle": "", "markersize": 5}
            label = f"simulated, p = {SIMULATED}, {case}"
            axes.plot(RATIOS, [row["chance"] for row in mine], label=label, **look)
        axes.set_xscale("log")

    title = "Lemma 4.3 (Fig. 4)"
    draw("fig4_lemma_4_3.png", [title], fill, "r = beta / norm", "P₊", None, 1)

    def bounds(i: int, axes: Any) -> None:
        for j, k in enumerate(KS):
            mine = [row for row in second if row["k"] == k]
            for name, dashes in (("Chernoff", "-"), ("exact", "--")):
                axes.plot(
                    NORMS,
                    [row[name] for row in mine],
                    label=f"k = {k}, {name}",
                    **style(j, linestyle=dashes),
                )
        axes.set_xscale("log")
        axes.set_xticks(NORMS, [f"{norm:g}" for norm in NORMS])
        axes.minorticks_off()

    title = f"Prop. 4.5 (Fig. 5): p = {DIM}, beta = 1, δ = {DELTA:g}"
    draw("fig5_prop_4_5.png", [title], bounds, "‖u‖", "N₊")


if __name__ == "__main__":
    main()
