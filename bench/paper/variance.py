"""Variance of inner products: Li & Li 2023, Thms 3.8 to 3.10 by simulation, and Fig. 3.

    python bench/paper/variance.py

Every draw of the simulation is a projection under a seed of its own and fresh secret noise, made by
the library on integers; the theorems are evaluated from their formulas alone.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from common import DELTA, arguments, draw, read_csv, show, style, write_csv

import dpindex as dpi
from dpindex.mechanism import public_random as public
from dpindex.mechanism.noise.gaussian import optimal_sigma
from dpindex.mechanism.secret_random import secret_stream

THEOREMS = {"raw-gaussian": "Thm 3.8", "dp-rp-g-opt-b": "Thm 3.9", "dp-oporp": "Thm 3.10"}
EPSILONS = (2.0, 8.0, 32.0)
DIM, K = 48, 12
SIGMAS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
LENGTHS = (1_000, 10_000, 100_000)
FIGURE_KS = (100, 1_000)


def theorem(method: str, sigma: float, u: Any, v: Any, p: int, k: int) -> float:
    """Variance of ⟨x̃, ỹ⟩ at noise sigma (beta = 1)."""
    uu, vv, uv = float(u @ u), float(v @ v), float(u @ v)
    if method == "raw-gaussian":
        return sigma**2 * (uu + vv) + p * sigma**4
    projection = (uu * vv + uv**2 - 2 * float((u**2 * v**2).sum())) / k
    if method == "dp-oporp":
        projection *= (p - k) / (p - 1)
    return sigma**2 * (uu + vv) + k * sigma**4 + projection


def simulated(spec: dpi.Spec, u: Any, v: Any, draws: int) -> tuple[float, float]:
    """Mean and variance over draws of projection and noise."""
    law: Any = spec.law
    rows = spec.grid.round(np.stack([u, v]))
    fresh = [replace(spec, seed=seed).projection.apply(rows) for seed in range(draws)]
    exact = np.concatenate(fresh)
    codes = law.perturb(exact, secret_stream())
    decoded = ((codes + law.offset) * law.scale * spec.step).reshape(draws, 2, -1)
    products = (decoded[:, 0] * decoded[:, 1]).sum(axis=1)
    return float(products.mean()), float(products.var())


def theorems(draws: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    u, other = rng.uniform(-1, 1, (2, DIM))
    v = 0.6 * u + 0.4 * other
    rows = []
    for method, name in THEOREMS.items():
        for epsilon in EPSILONS:
            k = DIM if method == "raw-gaussian" else K
            spec = dpi.Spec(
                method, DIM, k=k, epsilon=epsilon, delta=DELTA, adjacency=dpi.attribute(1.0)
            )
            stated = theorem(method, optimal_sigma(epsilon, DELTA), u, v, DIM, k)
            mean, variance = simulated(spec, u, v, draws)
            error = math.sqrt(stated / draws)
            rows.append(
                {
                    "theorem": name,
                    "method": method,
                    "epsilon": epsilon,
                    "draws": draws,
                    "true inner product": float(u @ v),
                    "simulated mean": mean,
                    "variance by the theorem": stated,
                    "simulated variance": variance,
                    "ratio": variance / stated,
                    "standard errors of the mean": (mean - float(u @ v)) / error,
                }
            )
    return rows


def ratios() -> list[dict[str, Any]]:
    """Fig. 3, Eq. (23): raw over DP-RP for unit vectors of inner product 0.5, against sigma; and
    the sigma below which raw data are better, from (p − k)σ⁴ = (1 + ρ²)/k."""
    rows = []
    for p in LENGTHS:
        for k in FIGURE_KS:
            equal = float(((1 + 0.5**2) / k / (p - k)) ** 0.25) if p > k else math.inf
            for sigma in np.geomspace(SIGMAS[0], SIGMAS[-1], 25):
                raw = 2 * sigma**2 + p * sigma**4
                projected = 2 * sigma**2 + k * sigma**4 + (1 + 0.5**2) / k
                ratio = float(raw / projected)
                rows.append(
                    {"p": p, "k": k, "sigma": float(sigma), "ratio": ratio, "equal at": equal}
                )
    return rows


def main() -> None:
    chosen = arguments("Variances of inner products.", draws=20_000)
    public.BLOCK = 256  # a shorter prefix of the same streams: many small projections, faster
    if not chosen.redraw:
        show(write_csv("thm3_8_to_3_10", theorems(chosen.draws)))
        write_csv("fig3_ratio", ratios())
    checked, rows = read_csv("thm3_8_to_3_10"), read_csv("fig3_ratio")

    def fill(i: int, axes: Any) -> None:
        for j, p in enumerate(LENGTHS):
            mine = [row for row in rows if (row["p"], row["k"]) == (p, FIGURE_KS[i])]
            axes.plot(
                [row["sigma"] for row in mine],
                [row["ratio"] for row in mine],
                label=f"p = {p}",
                **style(j, marker=None),
            )
        axes.axhline(1.0, color="black", linewidth=0.8)
        axes.set_xscale("log")
        axes.set_yscale("log")

    titles = [f"k = {k}" for k in FIGURE_KS]
    draw("fig3_ratio.png", titles, fill, "σ (beta = 1)", "Var(raw) / Var(DP-RP)")

    def compare(i: int, axes: Any) -> None:
        for j, method in enumerate(THEOREMS):
            mine = [row for row in checked if row["method"] == method]
            at = [row["epsilon"] * 1.06 ** (j - 1) for row in mine]
            error = math.sqrt(2.0 / mine[0]["draws"])
            axes.errorbar(
                at,
                [row["ratio"] for row in mine],
                3 * error,
                label=f"{THEOREMS[method]}, {method}",
                **style(j, linestyle=""),
            )
        axes.axhspan(0.95, 1.05, color="#0072B2", alpha=0.08)
        axes.axhline(1.0, color="black", linewidth=0.8)
        axes.set_xscale("log")
        axes.set_xticks(EPSILONS, [f"{epsilon:g}" for epsilon in EPSILONS])
        axes.minorticks_off()
        axes.set_ylim(0.9, 1.1)

    title = f"{checked[0]['draws']} draws, p = {DIM}, k = {K} (bars: three standard errors)"
    draw("thm3_8_to_3_10.png", [title], compare, "ε", "simulated variance / theorem", None, 1)


if __name__ == "__main__":
    main()
