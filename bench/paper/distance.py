"""Euclidean distance from the private SJLT (Stausholm 2021): Laplace against Gaussian by delta.

    python bench/paper/distance.py

First table: the delta below which Laplace noise has the lower variance, by epsilon and sparsity s:
``2s/ε² = σ²(ε, δ)``, solved to six digits. Second: variance of the unbiased squared distance
``‖x̃ − ỹ‖² − 2kσ²``, both sides private, over fresh maps and fresh noise, against its formula.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from common import arguments, draw, read_csv, show, style, write_csv
from scipy.optimize import brentq

import dpindex as dpi
from dpindex.mechanism import public_random as public
from dpindex.mechanism.noise.gaussian import optimal_sigma
from dpindex.mechanism.secret_random import secret_stream

EPSILONS = (0.1, 0.5, 1.0, 2.0, 5.0)
SPARSITIES = (1, 2, 4, 8, 16)
DELTAS = tuple(10.0**-exponent for exponent in range(1, 16))
DIM, K, SPARSITY = 64, 16, 4
LAWS = ("laplace", "gaussian")


def excess(log_delta: float, epsilon: float, sparsity: int) -> float:
    """Variance of Gaussian over Laplace noise, less 1."""
    return optimal_sigma(epsilon, math.exp(log_delta)) ** 2 * epsilon**2 / (2 * sparsity) - 1


def crossover(epsilon: float, sparsity: int) -> float:
    """The delta at which both laws cost the same; below it Laplace is better. 0 if none above
    1e-30."""
    low, high = math.log(1e-30), math.log(0.5)
    if excess(low, epsilon, sparsity) < 0:
        return 0.0
    if excess(high, epsilon, sparsity) > 0:
        return 0.5
    return math.exp(brentq(excess, low, high, args=(epsilon, sparsity), xtol=1e-7))


def variances() -> list[dict[str, Any]]:
    """Noise variance of one coordinate of the SJLT after its scale, beta = 1."""
    return [
        {
            "epsilon": epsilon,
            "delta": delta,
            "gaussian": optimal_sigma(epsilon, delta) ** 2,
            **{f"laplace s={s}": 2 * s / epsilon**2 for s in SPARSITIES},
        }
        for epsilon in EPSILONS
        for delta in DELTAS
    ]


def simulated(law_name: str, epsilon: float, delta: float, draws: int) -> dict[str, Any]:
    """The variance of the squared distance estimate, and what the formula says of it.

    For d = u − v and n, the difference of two noises of variance σ²:
    ``2(‖d‖⁴ − Σd⁴)/k + 8σ²‖d‖² + k·Var(n²)``, as each pair of attributes meets in each of s blocks
    with chance s/k, with entries ±1/√s.
    """
    rng = np.random.default_rng(0)
    u, v = rng.uniform(-1, 1, (2, DIM))
    spent = delta if law_name == "gaussian" else 0.0
    spec = dpi.Spec(
        f"dp-sjlt-{law_name}",
        DIM,
        k=K,
        epsilon=epsilon,
        delta=spent,
        variant=dpi.Blocks(SPARSITY),
        adjacency=dpi.attribute(1.0),
    )
    law: Any = spec.law
    rows = spec.grid.round(np.stack([u, v]))
    d = (rows[0] - rows[1]).astype(float) * spec.grid.step
    exact = np.concatenate(
        [replace(spec, seed=seed).projection.apply(rows) for seed in range(draws)]
    )
    codes = law.perturb(exact, secret_stream())
    x = ((codes + law.offset) * law.scale * spec.step).reshape(draws, 2, K)
    noise = optimal_sigma(epsilon, delta) ** 2 if spent else 2 * SPARSITY / epsilon**2
    estimates = ((x[:, 0] - x[:, 1]) ** 2).sum(axis=1) - 2 * K * noise
    fourth = (3 if spent else 6) * noise**2
    square = float(d @ d)
    stated = 2 / K * (square**2 - float((d**4).sum())) + 4 * 2 * noise * square
    stated += K * (2 * fourth + 6 * noise**2 - 4 * noise**2)
    return {
        "law": law_name,
        "epsilon": epsilon,
        "delta": spent,
        "draws": draws,
        "true squared distance": square,
        "simulated mean": float(estimates.mean()),
        "simulated variance": float(estimates.var()),
        "variance by formula": stated,
        "ratio": float(estimates.var()) / stated,
    }


def main() -> None:
    chosen = arguments("Laplace against Gaussian for the SJLT.", draws=20_000)
    public.BLOCK = 256  # a shorter prefix of the same streams: many small projections, faster
    if not chosen.redraw:
        table: list[dict[str, Any]] = [
            {"epsilon": e, **{f"s={s}": crossover(e, s) for s in SPARSITIES}} for e in EPSILONS
        ]
        show(write_csv("stausholm_crossover", table))
        write_csv("stausholm_variance_by_delta", variances())
        cases = [(law, epsilon) for law in LAWS for epsilon in (1.0, 5.0, 20.0)]
        rows = [simulated(law, epsilon, 1e-6, chosen.draws) for law, epsilon in cases]
        show(write_csv("stausholm_simulation", rows))
    by_delta = read_csv("stausholm_variance_by_delta")
    shown = (0.5, 1.0, 5.0)

    def fill(i: int, axes: Any) -> None:
        mine = [row for row in by_delta if row["epsilon"] == shown[i]]
        at = [row["delta"] for row in mine]
        gaussian = {**style(7, marker="o"), "linewidth": 2}
        axes.plot(at, [row["gaussian"] for row in mine], label="Gaussian", **gaussian)
        for j, s in enumerate(SPARSITIES):
            look = style(j, marker=None, linestyle="--")
            axes.plot(
                at, [row[f"laplace s={s}"] for row in mine], label=f"Laplace, s = {s}", **look
            )
        axes.set_xscale("log")
        axes.set_yscale("log")

    titles = [f"ε = {epsilon:g}" for epsilon in shown]
    draw("stausholm_crossover.png", titles, fill, "δ", "noise variance of a coordinate, beta²")


if __name__ == "__main__":
    main()
