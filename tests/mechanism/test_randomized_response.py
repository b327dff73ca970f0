"""Flips: the ratio e^ε between all adjacent integers, exactly, and flips of exactly that chance."""

import math

import mpmath
import numpy as np
import pytest
from helpers.common import attribute_spec, folded, projected
from independent.rigorous import exp_between

from dpindex import Dense
from dpindex.mechanism.noise.response import (
    geometric_flips,
    randomized_response,
)
from dpindex.mechanism.papers.signs import (
    change_probability,
    min_norm_on_grid,
    quantile_count,
    rounded_change_probability,
    smooth_flips,
)

BETA = 4096
ONE = 1 << 64
LAWS = {
    "rr": randomized_response,
    "smooth": smooth_flips,
    "geometric": geometric_flips,
}
EPSILONS = (0.01, 0.1, 0.5, 1.0, 2.0, 3.7, 8.0, 16.0, 40.0, 64.0)


def _plus(law, x, beta=BETA):
    """Chance of +1 given the integer x, times 2^64: the definition, apart from the code."""
    if x == 0:
        return ONE // 2
    level = max(1, -(-abs(x) // beta))
    levels = law.thresholds
    flip = levels[min(level, len(levels)) - 1]
    return ONE - flip if x > 0 else flip


def _alike(p, q, bound):
    """Whether neither outcome is more than ``bound`` times as likely under one as the other."""
    pairs = ((p, q), (q, p), (ONE - p, ONE - q), (ONE - q, ONE - p))
    most, of = bound.as_integer_ratio()
    return all(a * of <= b * most for a, b in pairs)


def _keeps(law, epsilon):
    """All pairs of integers up to one beta apart. The law is constant on (Lβ, (L+1)β], so the edges
    stand for all, and −x mirrors x."""
    bound = exp_between(epsilon)[0]
    for level in range(len(law.thresholds) + 2):
        for x in (level * BETA, level * BETA + 1):
            one = _plus(law, x)
            for y in (x - BETA, x - 1, x + BETA):
                if not _alike(one, _plus(law, y), bound):
                    return False
    return True


@folded("epsilon", EPSILONS)
@folded("name", LAWS)
def test_neighbours_differ_by_at_most_e_to_the_epsilon(name, epsilon):
    law = LAWS[name](epsilon)
    assert min(law.thresholds) >= 1
    assert _keeps(law, epsilon)


# N₊ of Li & Li's Proposition 4.5, against mpmath, exact sums and realised projections


@pytest.mark.parametrize("dim", [1, 10, 784, 100_000])
@pytest.mark.parametrize("ratio", [0.001, 0.1, 0.5, 0.99])
def test_change_probability(dim, ratio):
    """Above mpmath's integral by 1e-9, the margin, and no more; rounding costs little."""

    def density(t):
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
def test_counts(k, chance, delta):
    """By exact sums: N is enough and N − 1 is not."""
    with mpmath.workdps(60):
        p = mpmath.mpf(chance)

        def chance_of(j):
            return mpmath.binomial(k, j) * p**j * (1 - p) ** (k - j)

        def exceeds(n):
            return mpmath.fsum(map(chance_of, range(n + 1, k + 1)))

        n = quantile_count(k, chance, delta)
        assert 1 <= n <= k
        assert exceeds(n) <= delta
        assert n == 1 or exceeds(n - 1) > delta


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["flat", "one", "half"])
def test_realised_projections_change_no_more_signs(shape):
    """For vectors of the least norm: how often |x_j| ≤ Δ_j over 40 projections of 512 columns.

    Each column is one with chance at most P₊: the total exceeds its mean by more than 6 deviations
    with probability 1e-9; a single projection exceeds N₊ with probability δ = 1e-6. Seeds fixed.
    """
    dim = 60
    min_norm = 4.0
    u = {"flat": np.ones(dim), "one": np.eye(dim)[0], "half": np.arange(dim) < 8}[shape]
    u = u / np.linalg.norm(u) * min_norm
    total = 0
    for seed in range(40):
        spec = attribute_spec(
            "dp-signrp-rr", dim, k=512, epsilon=1.0, delta=1e-6, seed=seed,
            variant=Dense(min_norm=min_norm),
            bounds=(0, 4),
        )  # fmt: skip
        x = projected(spec, u)[0]
        most = spec.projection.largest * (1 << spec.grid.bits)
        near = int(np.count_nonzero(np.abs(x) <= most))
        total += near
        ratio = 1.0 / min_norm_on_grid(spec) * (1 + 2**-16)
        chance = rounded_change_probability(dim, ratio, 2.0**-12)
        assert near <= quantile_count(512, chance, 1e-6)
    trials = 40 * 512
    deviation = math.sqrt(trials * chance * (1 - chance))
    assert total <= trials * chance + 6 * deviation
