"""Moments of noise, as polynomials, against the laws themselves.

Each moment is compared at 5 standard errors plus what the grid rounds away; the words are seeded,
so a comparison passes always or never.
"""

import numpy as np
import pytest
from helpers.specs import folded
from helpers.streams import Seeded

from dpindex.mechanism.grid import GRID_BITS
from dpindex.mechanism.noise.additive import laplace_noise, staircase_noise
from dpindex.mechanism.noise.gaussian import optimal_sigma, rounded_gaussian
from dpindex.mechanism.noise.moments import NoiseMoments
from dpindex.mechanism.noise.square_wave import square_wave

UNIT = 1.0 / 2**GRID_BITS
LAWS = {
    "gaussian": rounded_gaussian(optimal_sigma(1.0, 1e-6), 1.0, 1e-6, 1),
    "laplace": laplace_noise(1.0),
    "staircase": staircase_noise(3.0),
    "square wave, 1": square_wave(1.0, 0, 4096),
    "square wave, 3": square_wave(3.0, -2048, 2048),
    "square wave, 6": square_wave(6.0, 1024, 5120),
}
DRAWS = 200_000


def _at(polynomial, z):
    return float(sum(factor * z**power for power, factor in enumerate(polynomial)))


def _close(sample, expected, rounding):
    allowed = 5 * sample.std() / np.sqrt(len(sample)) + rounding
    assert abs(sample.mean() - expected) < allowed


@folded("name", LAWS)
@folded("place", [0.0, 0.31, 1.0])
def test_moments_are_those_of_the_law(name, place):
    law = LAWS[name]
    low = getattr(law, "low", 0)
    x = np.full(DRAWS, np.rint(low + place * 4096), dtype=np.float32)
    code = law.perturb(x, Seeded(8))
    estimate = (code + law.offset) * law.scale * UNIT
    moments = law.moments.in_units(UNIT)
    true = float(x[0]) * UNIT
    z = estimate - moments.centre
    true_z = true - moments.centre
    square = moments.weight * (z**2 - moments.variance[0])
    square += 2 * moments.centre * z + moments.centre**2
    # Rounding to cells is averaged over places in a cell: a quarter of a cell squared is allowed.
    cell2 = (law.scale * UNIT) ** 2 * (1 + 2 * abs(true))
    _close(estimate, true, 1e-9)
    _close((estimate - true) ** 2, _at(moments.variance, true_z), cell2 / 4)
    _close(square, true**2, cell2 / 4)
    size = _at(moments.squared, true_z)
    _close((estimate - true) * (square - true**2), _at(moments.mixed, true_z), 0.01 * size**0.75)
    _close((square - true**2) ** 2, size, 0.02 * size + cell2 / 4)


def test_other_units_scale_every_moment_with_its_order():
    moments = NoiseMoments(2.0, 3.0, 0.5, (1.0, 2.0, 3.0), (1.0, 1.0, 1.0, 1.0), (5.0, 4, 3, 2, 1))
    there = moments.in_units(10.0)
    assert (there.centre, there.reach, there.weight) == (20.0, 30.0, 0.5)
    assert there.variance == (100.0, 20.0, 3.0)
    assert there.mixed == (1000.0, 100.0, 10.0, 1.0)
    assert there.squared == (50_000.0, 4000.0, 300.0, 20.0, 1.0)


def test_variance_in_terms_of_the_coordinate_itself():
    moments = NoiseMoments(2.0, 3.0, 0.5, (1.0, 2.0, 3.0), (0.0,) * 4, (0.0,) * 5)
    for x in (-1.0, 0.0, 0.5, 2.0):
        assert _at(moments.variance_of_x, x) == pytest.approx(_at(moments.variance, x - 2.0))


def test_additive_noise_has_the_moments_of_its_square():
    """x̃ = x + e with symmetric e: Cov(x̃, x̃²) = 2σ²x and Var(x̃²) = m₄ − σ⁴ + 4σ²x²."""
    moments = NoiseMoments.additive(2.0, 10.0)
    assert moments.variance == (2.0, 0.0, 0.0)
    assert moments.mixed == (0.0, 4.0, 0.0, 0.0)
    assert moments.squared == (6.0, 0.0, 8.0, 0.0, 0.0)


@folded("weight", [0.2, 0.7, 0.99])
@folded("z", [-0.5, 0.0, 0.3])
def test_a_window_has_the_moments_of_its_mixture(weight, z):
    """Uniform within b of z with chance w, else within a of 0, all over w: by integration."""
    a = 1.0
    b = 0.4
    centre = 0.25
    constant = (weight * b**2 + (1 - weight) * a**2) / (3 * weight**2)
    moments = NoiseMoments.window(weight, centre, a, constant)
    assert moments.reach == pytest.approx(a - b)
    nodes, weights = np.polynomial.legendre.leggauss(8)
    # Both uniforms at once: nodes of the window, then of the floor; the code is the draw over w.
    code = np.concatenate([z + b * nodes, a * nodes]) / weight
    chance = np.concatenate([weight * weights, (1 - weight) * weights]) / 2
    square = weight * (code**2 - constant) + 2 * centre * code + centre**2
    mean = chance @ code
    true = (z + centre) ** 2
    assert mean == pytest.approx(z)
    assert chance @ square == pytest.approx(true)
    assert chance @ (code - z) ** 2 == pytest.approx(_at(moments.variance, z))
    assert chance @ ((code - z) * (square - true)) == pytest.approx(_at(moments.mixed, z))
    assert chance @ (square - true) ** 2 == pytest.approx(_at(moments.squared, z))
