"""Moments of noise, as polynomials: their units, and those of laws without a file of their own.

That they are the moments of what is drawn is held by ``test_law.py``, for every law.
"""

import numpy as np
import pytest
from helpers.specs import folded

from dpindex.mechanism.noise.moments import NoiseMoments


def _at(polynomial, z):
    return float(sum(factor * z**power for power, factor in enumerate(polynomial)))


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
