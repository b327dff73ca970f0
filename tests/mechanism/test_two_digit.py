"""Laws of two digits: the exact law of the sum, against the law that one table would have."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from helpers.streams import Seeded

from dpindex.audit.exact_arithmetic import loss_within, worst_two_digit_step
from dpindex.mechanism.noise.additive import TwoDigitLaplace, laplace_noise
from dpindex.mechanism.noise.gaussian import (
    TwoDigitGaussian,
    discrete_gaussian_table,
    gaussian_cells,
    gaussian_table,
)


def _law(source):
    """Masses of ``L·C + F`` from the two tables, over 2^(bits + bits), and the first value."""
    step = 1 << source.digit
    first = source.coarse.first * step + source.fine.first
    length = (len(source.coarse.masses) - 1) * step + len(source.fine.masses)
    law = [0] * length
    for c, high in enumerate(source.coarse.masses):
        for f, low in enumerate(source.fine.masses):
            law[c * step + f] += high * low
    return law, first


def test_two_digits_have_the_law_of_one_rounded_gaussian():
    """σ = 40 with L = 4: every mass within 10^-30 of the rounded N(0, σ²), relatively, near the
    centre, and absolutely everywhere within the tables' precision."""
    digit = 2
    bits = 192
    fine_sigma = 16.0
    coarse_sigma = math.sqrt(40.0**2 - 16.0**2) / 4
    source = TwoDigitGaussian(
        discrete_gaussian_table(coarse_sigma, bits),
        gaussian_table(fine_sigma, 60.0, 1e-12, 1000, 0),
        digit,
    )
    law, first = _law(source)
    total = 1 << (bits + source.fine.bits)
    assert sum(law) == total
    with mpmath.workprec(500):
        sigma = mpmath.sqrt(16 * mpmath.mpf(coarse_sigma) ** 2 + fine_sigma**2)
        for z in (0, 1, 2, 3, 17, 40, 100, 200):
            edges = [(z + half) / (sigma * mpmath.sqrt(2)) for half in (-0.5, 0.5)]
            wanted = (mpmath.erfc(edges[0]) - mpmath.erfc(edges[1])) / 2
            for signed in (z, -z):
                found = mpmath.mpf(law[signed - first]) / total
                assert abs(found / wanted - 1) < mpmath.mpf(10) ** -30


def test_wide_gaussian_draws_and_moments():
    """2^19 seeded draws: variance, fourth moment and a few tail counts within 6 deviations."""
    noise = gaussian_cells(3000.0, 1.0, 1e-6, 64, cell_bits=3, grid_bits=12)
    count = 1 << 19
    codes = noise.perturb(np.full((count // 64, 64), 12345.0), Seeded(3)).ravel()
    estimate = (codes + noise.offset) * noise.scale - 12345.0
    variance = noise.moments.variance[0]
    assert math.sqrt(variance) / 8 == pytest.approx(3000.0, rel=1e-6)
    assert noise.moments.squared[0] + variance**2 == pytest.approx(3 * variance**2, rel=1e-6)
    z = estimate / math.sqrt(variance)
    assert abs(z.mean()) < 6 / math.sqrt(count)
    assert abs((z**2).mean() - 1) < 6 * math.sqrt(2 / count)
    for edge in (0.5, 1.0, 2.0, 3.0):
        chance = math.erfc(edge / math.sqrt(2))
        seen = np.count_nonzero(np.abs(z) > edge) / count
        assert abs(seen - chance) < 6 * math.sqrt(chance / count)


@pytest.mark.parametrize("drop", [0.3, 0.01, 2.0**-12])
def test_every_step_of_the_wide_laplace_loses_at_most_the_drop(drop):
    """And no less than 99.9 % of it is used; by the audit, which is compared with all pairs."""
    worst = worst_two_digit_step(TwoDigitLaplace(mpmath.mpf(drop), 0))
    assert loss_within(worst, Fraction(drop))
    assert math.log(Fraction(*worst)) == pytest.approx(drop, rel=1e-3)


def test_wide_laplace_draws_and_moments():
    noise = laplace_noise(0.5, 4000)
    assert isinstance(noise.source, TwoDigitLaplace)
    count = 1 << 19
    scale = 4000 / 0.5 * 4096
    draws = noise.source.sample(count, Seeded(5)) + 0.5
    size = np.abs(draws)
    assert abs((draws > 0).mean() - 0.5) < 6 * 0.5 / math.sqrt(count)
    for edge in (0.1, 1.0, 3.0, 8.0):
        chance = math.exp(-edge)
        assert abs((size > edge * scale).mean() - chance) < 6 * math.sqrt(chance / count)
    variance = noise.moments.variance[0]
    assert variance == pytest.approx(2 * scale**2, rel=1e-6)
    assert noise.moments.squared[0] + variance**2 == pytest.approx(24 * scale**4, rel=1e-6)
    codes = noise.perturb(np.full((64, 64), 7.0e6), Seeded(6))
    error = math.sqrt(noise.moments.variance[0] / codes.size)
    decoded = (codes + noise.offset) * noise.scale
    assert abs(decoded.mean() - 7.0e6) < 6 * error
