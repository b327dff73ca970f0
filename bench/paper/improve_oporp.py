"""Pure epsilon for OPORP: Laplace and staircase noise beside the paper's Gaussian.

    python bench/paper/improve_oporp.py

One attribute lies in one bin, so the L1 sensitivity of OPORP is beta like its L2 sensitivity. Left:
standard deviation of a coordinate, lines from the formulas, points measured on the noise that the
library draws. Right: what that makes of the variance of inner products (Thm 3.10), MNIST-like
norms.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from common import DELTA, arguments, draw, epsilon_axis, read_csv, show, style, write_csv

import dpindex as dpi
from dpindex.mechanism.noise.additive import min_variance_share
from dpindex.mechanism.noise.gaussian import optimal_sigma
from dpindex.mechanism.secret_random import secret_stream

EPSILONS = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0)
METHODS = {
    "dp-oporp": f"Gaussian, δ = {DELTA:g} (as published)",
    "dp-oporp-laplace": "Laplace, δ = 0",
    "dp-oporp-staircase": "staircase, δ = 0",
}
DIM, K, NORM_SQUARED, INNER = 784, 392, 85.0, 50.0
DRAWS = 1_000_000


def variance(method: str, epsilon: float) -> float:
    """Of one coordinate at beta = 1, from the law's formula."""
    if method == "dp-oporp":
        return optimal_sigma(epsilon, DELTA) ** 2
    if method == "dp-oporp-laplace":
        return 2.0 / epsilon**2
    # Geng & Viswanath 2014: levels j of mass ∝ b^j, of widths 2γ (level 0) and 2 (the others).
    b, share = math.exp(-epsilon), min_variance_share(epsilon)
    edges = share + np.arange(0, 4 + math.ceil(60 / epsilon))
    masses = b ** np.arange(len(edges))
    lower = np.concatenate([[0.0], edges[:-1]])
    second = masses @ (edges**3 - lower**3) / 3
    return float(second / (masses @ (edges - lower)))


def main() -> None:
    arguments("Pure epsilon for OPORP.")
    rows: list[dict[str, Any]] = []
    for method in METHODS:
        for epsilon in EPSILONS:
            delta = DELTA if method == "dp-oporp" else 0.0
            spec = dpi.Spec(
                method, DIM, k=K, epsilon=epsilon, delta=delta, adjacency=dpi.attribute(1.0)
            )
            law: Any = spec.law
            zeros = np.zeros((DRAWS // K, K), dtype=spec.grid.dtype)
            noise = (law.perturb(zeros, secret_stream()) + law.offset) * law.scale
            found, stated = float(np.var(noise * spec.grid.step)), variance(method, epsilon)
            inner = 2 * stated * NORM_SQUARED + K * stated**2
            inner += (DIM - K) / (DIM - 1) / K * (NORM_SQUARED**2 + INNER**2)
            rows.append(
                {
                    "method": method,
                    "epsilon": epsilon,
                    "deviation by formula": math.sqrt(stated),
                    "deviation measured": math.sqrt(found),
                    "Gaussian variance / this": optimal_sigma(epsilon, DELTA) ** 2 / stated,
                    "deviation of an inner product": math.sqrt(inner),
                }
            )
    show(write_csv("improve_oporp", rows))
    table = read_csv("improve_oporp")

    def fill(i: int, axes: Any) -> None:
        for j, (method, label) in enumerate(METHODS.items()):
            mine = [row for row in table if row["method"] == method]
            if i == 0:
                look = style(j, marker=None)
                axes.plot(EPSILONS, [row["deviation by formula"] for row in mine], **look)
                look = style(j, linestyle="")
                axes.plot(EPSILONS, [row["deviation measured"] for row in mine], **look)
            else:
                inner = [row["deviation of an inner product"] for row in mine]
                axes.plot(EPSILONS, inner, label=label, **style(j))
        axes.set_yscale("log")
        epsilon_axis(axes, EPSILONS)
        if i == 1:
            axes.axhline(INNER, color="#555555", linestyle=":", label="the inner product itself")

    titles = ["noise of one coordinate (points: measured)", f"inner product, p = {DIM}, k = {K}"]
    labels = ["standard deviation, in betas", "standard deviation, ‖u‖² = 85, ⟨u,v⟩ = 50"]
    draw("improve_oporp.png", titles, fill, "ε", labels, None, 2)


if __name__ == "__main__":
    main()
