"""Types of projection: Li & Li 2023, Figs. 2 (sensitivity), 7 and 8 (collision), 9 (levels L_j).

    python bench/paper/projections.py

The projections are the library's own. Data of Figs. 7 to 9: uniform on [-1, 1], as in the paper.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from common import arguments, draw, read_csv, style, write_csv
from scipy.special import ndtr

from dpindex.mechanism.papers.projections import Gaussian, Rademacher, Uniform, VerySparse
from dpindex.mechanism.papers.signs import change_probability

TYPES: dict[str, Callable[[int, int, int], Any]] = {
    "Gaussian": Gaussian,
    "uniform": Uniform,
    "s = 1 (Rademacher)": Rademacher,
    "s = 3": lambda p, k, seed: VerySparse(p, k, seed, 3),
    "s = 10": lambda p, k, seed: VerySparse(p, k, seed, 10),
}
BOUNDS = {"(31)": ":", "(32)": "--"}
SIZES = (10, 50, 100, 200, 400, 600, 800, 1000)
BETAS = (1.0, 0.1)
LEVEL_SIZES = (100, 1000)
KS = (256, 512)


def sensitivity(repetitions: int) -> list[dict[str, Any]]:
    """Fig. 2: the largest row norm, Eq. (13), at beta = 1."""
    rows = []
    for name, make in TYPES.items():
        for k in KS:
            for p in SIZES:
                maps = [make(p, k, seed) for seed in range(repetitions)]
                norms = [math.sqrt(m.sensitivity.l2_squared) * m.scale for m in maps]
                mean, spread = float(np.mean(norms)), float(np.std(norms, ddof=1))
                rows.append({"type": name, "k": k, "p": p, "l2": mean, "std": spread})
    return rows


def entries_of(map: Any, p: int) -> Any:
    """W, its rows those of unit vectors, in units in which entries have variance 1."""
    return map.apply(np.eye(p, dtype=np.float32)) * np.float32(map.scale * math.sqrt(map.k))


def collisions(repetitions: int, draws: int) -> list[dict[str, Any]]:
    """Figs. 7, 8: P(β max|w_i| > |w·u|) over projections w, Eq. (30), with (31) and (32)."""
    rows = []
    for p in SIZES:
        data = np.random.default_rng(p).uniform(-1, 1, (repetitions, p))
        norms = np.linalg.norm(data, axis=1)
        for beta in BETAS:
            normal = float(np.mean(2 * ndtr(beta / norms) - 1))
            bound = float(np.mean([change_probability(p, beta / norm) for norm in norms]))
            for name, values in (("(31)", normal), ("(32)", bound)):
                rows.append({"type": name, "p": p, "beta": beta, "chance": values})
        for name, make in TYPES.items():
            hits = np.zeros(len(BETAS))
            for seed, u in enumerate(data):
                w = entries_of(make(p, draws, seed), p)
                size, largest = np.abs(u.astype(np.float32) @ w), np.abs(w).max(axis=0)
                hits += [float(np.mean(beta * largest > size)) for beta in BETAS]
            for beta, chance in zip(BETAS, hits / repetitions, strict=True):
                rows.append({"type": name, "p": p, "beta": beta, "chance": chance})
    return rows


def levels(repetitions: int) -> list[dict[str, Any]]:
    """Fig. 9: shares of L_j = max(1, ⌈|x_j|/(β max_i|w_ij|)⌉), Alg. 7, k = 512, beta = 1."""
    rows = []
    for p in LEVEL_SIZES:
        for name, make in TYPES.items():
            found = []
            for seed in range(repetitions):
                u = np.random.default_rng(seed).uniform(-1, 1, p).astype(np.float32)
                w = entries_of(make(p, 512, seed), p)
                largest = np.maximum(np.abs(w).max(axis=0), 1e-9)
                found.append(np.maximum(1, np.ceil(np.abs(u @ w) / largest)).astype(int))
            counts = np.bincount(np.concatenate(found))
            for level, count in enumerate(counts[1:], start=1):
                rows.append({"type": name, "p": p, "L": level, "share": count / counts.sum()})
    return rows


def lines(axes: Any, rows: list[dict[str, Any]], names: Any, x: str, y: str, **where: Any) -> None:
    for j, name in enumerate(names):
        wanted = {"type": name, **where}
        mine = [row for row in rows if all(row[key] == value for key, value in wanted.items())]
        look = style(j) if name in TYPES else {"color": "black", "linestyle": BOUNDS[name]}
        axes.plot([row[x] for row in mine], [row[y] for row in mine], label=name, **look)


def main() -> None:
    chosen = arguments("Types of projection.", repetitions=10, draws=10_000)
    if not chosen.redraw:
        write_csv("fig2_sensitivity", sensitivity(chosen.repetitions))
        write_csv("fig9_levels", levels(5 * chosen.repetitions))
        write_csv("fig7_8_collision", collisions(chosen.repetitions, chosen.draws))
    first, second, third = map(read_csv, ("fig2_sensitivity", "fig7_8_collision", "fig9_levels"))
    draw(
        "fig2_sensitivity.png",
        [f"k = {k}, beta = 1" for k in KS],
        lambda i, axes: lines(axes, first, TYPES, "p", "l2", k=KS[i]),
        "p",
        "l2-sensitivity",
    )
    draw(
        "fig7_8_collision.png",
        [f"beta = {beta:g}" for beta in BETAS],
        lambda i, axes: lines(axes, second, (*TYPES, *BOUNDS), "p", "chance", beta=BETAS[i]),
        "p",
        "P(a neighbour may change a sign)",
        legend_columns=4,
    )

    def fill(i: int, axes: Any) -> None:
        lines(axes, third, TYPES, "L", "share", p=LEVEL_SIZES[i])
        axes.set_xlim(0.5, (8.5, 25.5)[i])

    draw("fig9_levels.png", [f"p = {p}, k = 512" for p in LEVEL_SIZES], fill, "L_j", "share")


if __name__ == "__main__":
    main()
