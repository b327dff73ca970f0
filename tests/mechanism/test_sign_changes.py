"""N₊ of Li & Li's Proposition 4.5, against mpmath, exact sums and realised projections."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from specs import folded

import dpindex as dpi
from dpindex.mechanism.noise.signs import (
    change_probability,
    min_norm_on_grid,
    quantile_count,
    rounded_change_probability,
)


@pytest.mark.parametrize("dim", [1, 10, 784, 100_000])
@pytest.mark.parametrize("ratio", [0.001, 0.1, 0.5, 0.99])
def test_change_probability(dim: int, ratio: float) -> None:
    """Above mpmath's integral by 1e-9, the margin, and no more; rounding costs little."""

    def density(t: mpmath.mpf) -> mpmath.mpf:
        below = (2 * mpmath.ncdf(t) - 1) ** (dim - 1)
        return 2 * dim * below * mpmath.erf(ratio * t / mpmath.sqrt(2)) * mpmath.npdf(t)

    wanted = float(mpmath.quad(density, [0, 1, 2, 3, 4, 5, 6, 8, 14]))
    found = change_probability(dim, ratio)
    assert wanted < found < wanted + 2e-9
    rounded = rounded_change_probability(dim, ratio, 2.0**-12)
    assert found < rounded < found + 0.006 + (0.03 if dim == 1 else 0.0)


@folded("k", [1, 8, 512])
@folded("chance", [0.001, 0.2, 0.7, 1.0])
@folded("delta", [1e-9, 1e-6, 0.1])
def test_counts(k: int, chance: float, delta: float) -> None:
    """By exact sums: N is enough and N − 1 is not."""
    with mpmath.workdps(60):

        def exceeds(n: int) -> mpmath.mpf:
            p = mpmath.mpf(chance)
            return mpmath.fsum(
                mpmath.binomial(k, j) * p**j * (1 - p) ** (k - j) for j in range(n + 1, k + 1)
            )

        n = quantile_count(k, chance, delta)
        assert 1 <= n <= k
        assert exceeds(n) <= delta
        assert n == 1 or exceeds(n - 1) > delta


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["flat", "one", "half"])
def test_realised_projections_change_no_more_signs(shape: str) -> None:
    """For vectors of the least norm: how often |x_j| ≤ Δ_j over 40 projections of 512 columns.

    Each column is one with chance at most P₊: the total exceeds its mean by more than 6 deviations
    with probability 1e-9; a single projection exceeds N₊ with probability δ = 1e-6. Seeds fixed.
    """
    dim, min_norm = 60, 4.0
    u = {"flat": np.ones(dim), "one": np.eye(dim)[0], "half": (np.arange(dim) < 8) * 1.0}[shape]
    u = u / np.linalg.norm(u) * min_norm
    total = 0
    for seed in range(40):
        spec = dpi.Spec(
            "dp-signrp-rr", dim, k=512, epsilon=1.0, delta=1e-6, min_norm=min_norm, seed=seed,
            bounds=(0, 4),
            adjacency=dpi.attribute(1.0),
        )  # fmt: skip
        x = dpi.Privatizer(spec).project(u)[0]
        near = int(np.count_nonzero(np.abs(x) <= spec.projection.largest * (1 << spec.grid.bits)))
        total += near
        chance = rounded_change_probability(
            dim, 1.0 / min_norm_on_grid(spec) * (1 + 2**-16), 2.0**-12
        )
        assert near <= quantile_count(512, chance, 1e-6)
    trials = 40 * 512
    assert total <= trials * chance + 6 * math.sqrt(trials * chance * (1 - chance))


def test_flips_are_shared_by_the_signs_that_can_change() -> None:
    common = {
        "adjacency": dpi.attribute(1.0),
        "dim": 100,
        "k": 256,
        "epsilon": 3.0,
        "entries": "gaussian",
    }
    pure = dpi.Spec("dp-signrp-rr", **common)
    exact = dpi.Spec("dp-signrp-rr", **common, delta=1e-6, min_norm=8.0)
    chances = [spec.law.flip_probability(np.ones(1), 1.0)[0] for spec in (pure, exact)]
    shares = [math.log(1 / q - 1) for q in chances]
    assert shares[0] == pytest.approx(3.0 / 256)
    chance = change_probability(100, 1 / 8)
    assert 3.0 / shares[1] == pytest.approx(quantile_count(256, chance, 1e-6), abs=2)
    assert pure.guarantee.delta_over == "noise"
    assert exact.guarantee.delta_over == "projection"
