"""Each calibrated noise level, with the sensitivity recomputed by brute force on a realised map.

Every attribute is moved by one beta (and by less), from several starting points, both ways; the
codes' cells are counted for every dither; what the noise was made for must cover the worst found,
and with 5 % less noise it would not.
"""

import math

import mpmath
import numpy as np
import pytest
from helpers.common import ROOT, folded, needed, unit
from independent.rigorous import gaussian_delta
from numpy.random import default_rng

from dpindex import Spec, l2, methods
from dpindex.mechanism.noise.gaussian import optimal_sigma
from dpindex.mechanism.papers import kenthapadi_sigma

EPSILON = 1.3
DELTA = 1e-6
DIM = 9
ROWS = [
    row
    for row in methods()
    if row.codes == "numbers" and row.definition == "DP" and not row.calibration.bounded
]
ATTRIBUTE = [row for row in ROWS if "attribute" in row.adjacencies]
BALL = [row for row in ROWS if "l2" in row.adjacencies]
SHAPES = [
    pytest.param(row, variant, id=f"{row.name}-{variant.entries}")
    for row in ATTRIBUTE
    for variant in row.family.variant.forms
]


def _spec(row, **changes):
    k = DIM if row.family.keeps_all else 8
    stated = {"dim": DIM, "k": k, "epsilon": EPSILON, "seed": 5}
    return Spec(**{**needed(row, DIM), **stated, **changes})


def _moves(spec, changes):
    """The most cells each coordinate moves, over every dither, for each change of attributes."""
    scale = int(spec.law.scale)
    x = default_rng(0).integers(-4000, 4001, (1, DIM)).astype(np.float64)
    before = spec.projection.apply(x).astype(np.int64)
    after = spec.projection.apply(x + changes).astype(np.int64)
    most = np.zeros(after.shape, dtype=np.int64)
    for dither in range(scale):
        cells = (after + dither) // scale - (before + dither) // scale
        np.maximum(most, np.abs(cells), out=most)
    return most


def _unit_changes(spec):
    beta = 1 << spec.grid.bits
    sizes = [beta, -beta, beta - 1, beta // 2 + 1, -(beta // 3), 1]
    return np.concatenate([size * np.eye(DIM) for size in sizes])


def _sigma_in_cells(spec):
    """The deviation of the noise without the dither's share."""
    law = spec.law
    dither = 1 / 6 if law.scale > 1 else 0.0
    in_cells = law.moments.variance[0] / law.scale**2
    return math.sqrt(in_cells - dither)


def _delta(mu, epsilon):
    """Delta spent by a Gaussian whose shift is mu deviations."""
    with mpmath.workdps(60):
        return float(gaussian_delta(1 / mpmath.mpf(mu), epsilon))


@pytest.mark.parametrize("row, variant", SHAPES)
def test_attribute_noise_covers_the_worst_change(row, variant):
    spec = _spec(row, variant=variant)
    cells = _moves(spec, _unit_changes(spec))
    if row.kind.startswith("pure"):
        worst = cells.sum(axis=1).max()
        scale = _sigma_in_cells(spec) / math.sqrt(2)
        if "staircase" in row.name:  # not an L1 law: one cell law for one coordinate
            assert np.count_nonzero(cells, axis=1).max() == 1
            return
        # Laplace of scale b loses worst/b; the variance of the rounded law is 2b² + 1/6 or so.
        assert worst / scale == pytest.approx(EPSILON, rel=2e-3)
        return
    squares = cells.astype(np.float64) ** 2
    worst = math.sqrt(squares.sum(axis=1).max())
    mu = worst / _sigma_in_cells(spec)
    assert _delta(mu, EPSILON) <= DELTA * (1 + 1e-9)
    levels = {"dp-rp-g": kenthapadi_sigma(EPSILON, DELTA)}
    if row.name != "dp-rp-g-analytic":
        wanted = levels.get(row.name, optimal_sigma(EPSILON, DELTA))
        # Exactly the level of the theorem (rounding to cells adds 1/12 cell² to the variance), so
        # 5 % less would not do.
        assert 1 / mu == pytest.approx(wanted, rel=1e-3)
        assert 1 / mu >= wanted * (1 - 1e-9)


@pytest.mark.parametrize("row", BALL, ids=lambda row: row.name)
def test_ball_noise_covers_the_worst_direction(row):
    """Vectors moved by the radius, rounded: random directions, and the one that W stretches most.

    Where the promise is about the projection too, any one direction must be covered.
    """
    radius = 0.5
    spec = _spec(row, adjacency=l2(radius), epsilon=0.9)
    matrix = spec.projection.apply(np.eye(DIM))
    rng = default_rng(1)
    directions = rng.normal(size=(40, DIM))
    if row.calibration.delta_over == "noise":
        _, _, right = np.linalg.svd(matrix.T)
        directions = np.concatenate([directions, right[:1]])
    directions = radius * unit(directions)
    base = rng.uniform(-0.4, 0.4, (1, DIM))
    grid = spec.grid
    start = grid.round(base)
    moved = grid.round(base + directions)
    scale = int(spec.law.scale)
    before = spec.projection.apply(start).astype(np.int64)
    after = spec.projection.apply(moved).astype(np.int64)
    most = 0.0
    for dithers in rng.integers(0, scale, (300, 1, spec.code_length)):
        cells = (after + dithers) // scale - (before + dithers) // scale
        squares = cells.astype(float) ** 2
        most = max(most, math.sqrt(squares.sum(axis=1).max()))
    mu = most / _sigma_in_cells(spec)
    assert _delta(mu, 0.9) <= DELTA
    if row.calibration.delta_over == "noise":
        assert _delta(mu / 0.95, 0.9) > DELTA
        assert 1 / mu <= 1.02 * optimal_sigma(0.9, DELTA)  # rounding costs less than 2 %


def test_the_ball_reaches_every_pair_on_the_grid():
    """``neighbour_distance`` against the worst rounding of many pairs at exactly the radius."""
    from dpindex.mechanism.grid import neighbour_distance

    rng = default_rng(2)
    for dim in (1, 4, 50):
        spec = Spec(
            "raw-gaussian",
            dim,
            epsilon=1.0,
            delta=DELTA,
            adjacency=l2(0.7),
        )
        promised = neighbour_distance(0.7, spec.grid.bits, spec.bounds, dim)
        step = rng.normal(size=(4000, dim))
        step = 0.7 * unit(step)
        base = rng.uniform(-0.3, 0.3, (4000, dim))
        start = spec.grid.round(base).astype(float)
        moved = spec.grid.round(base + step).astype(float)
        worst = np.linalg.norm(moved - start, axis=1).max()
        assert 0.98 * promised <= worst <= promised


@pytest.mark.slow
def test_finding_7_the_top_direction_of_a_published_map():
    """The figures in guarantees.md: a delta over the projection fails there, the realised norm
    holds; both by Balle & Wang 2018, Thm 8, from the matrix and the deviation of the noise.
    """
    found = {}
    for method in ("row-rp-g-direct", "row-rp-g-opt"):
        spec = Spec(
            method,
            784,
            k=128,
            epsilon=1.0,
            delta=1e-6,
            adjacency=l2(2.0),
        )
        matrix = spec.projection.apply(np.eye(784)) * spec.projection.scale
        norm = float(np.linalg.norm(matrix, 2))
        variance = float(spec.law.moments.variance[0])
        deviation = math.sqrt(variance) * spec.step
        found[method] = _delta(2.0 * norm / deviation, 1.0)
    assert found["row-rp-g-direct"] == pytest.approx(0.0039, abs=5e-5)
    assert 0.8e-6 < found["row-rp-g-opt"] <= 1e-6  # the grid's own roundings take the rest
    text = (ROOT / "docs" / "guarantees.md").read_text()
    assert "δ = 0.0039 at ε = 1" in text


# The noise of Kenthapadi et al. keeps what it promises; that it is theirs says the oracle


@folded("epsilon", [0.01, 0.1, 1.0, 5.0, 20.0, 64.0])
@folded("delta", [1e-12, 1e-6, 1e-3, 0.1, 0.3, 0.49])
def test_kenthapadi_is_sound_and_wasteful(epsilon, delta):
    """It holds for every δ < ½, as claimed; and the optimal sigma is never larger."""
    sigma = kenthapadi_sigma(epsilon, delta)
    with mpmath.workdps(80):
        assert gaussian_delta(sigma, epsilon) <= delta
    assert optimal_sigma(epsilon, delta) <= sigma
