"""Laws of two digits: the exact law of the sum, against the law that one table would have."""

import math
from fractions import Fraction

import mpmath
import pytest

from dpindex.audit.exact_arithmetic import loss_within, worst_two_digit_step
from dpindex.mechanism.noise.additive import TwoDigitLaplace
from dpindex.mechanism.noise.gaussian import (
    TwoDigitGaussian,
    discrete_gaussian_table,
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


@pytest.mark.parametrize("drop", [0.3, 0.01, 2.0**-12])
def test_every_step_of_the_wide_laplace_loses_at_most_the_drop(drop):
    """And no less than 99.9 % of it is used; by the audit, which is compared with all pairs."""
    worst = worst_two_digit_step(TwoDigitLaplace(mpmath.mpf(drop), 0))
    assert loss_within(worst, Fraction(drop))
    assert math.log(Fraction(*worst)) == pytest.approx(drop, rel=1e-3)
