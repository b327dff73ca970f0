"""The noise of a sketch: every ratio in exact integers, and no room for a law 5 % too weak."""

from fractions import Fraction

import pytest
from helpers.common import refuses

from dpindex.audit.exact_arithmetic import (
    loss_within,
    worst_table_ratio,
    worst_two_digit_step,
)
from dpindex.mechanism.noise.additive import (
    TwoDigitLaplace,
    geometric_noise,
)
from dpindex.mechanism.noise.gaussian import TwoDigitGaussian, count_noise

PURE = [
    (0.1, 100, "add-remove"),
    (1.0, 1, "add-remove"),
    (1.0, 1000, "add-remove"),
    (1.0, 1000, "replace"),
    (2.0, 7, "replace"),
    (10.0, 333, "add-remove"),
    (40.0, 1, "add-remove"),
]
CHANGED = {"add-remove": 1, "replace": 2}


def passes(source, epsilon, changed):
    """Whether ``changed`` counts, each moved by 1, cost at most epsilon: exactly, in integers."""
    if isinstance(source, TwoDigitLaplace):
        worst = worst_two_digit_step(source)
    else:
        worst = worst_table_ratio(source, 1)
    return loss_within(worst, Fraction(epsilon) / changed)


def variance(delta, rows):
    """The variance of a mean of counts over ``rows`` rows."""
    law = count_noise(1.0, delta, rows, 50, "add-remove")
    return law.moments.variance[0] / rows


@pytest.mark.parametrize("epsilon, rows, neighbouring", PURE)
def test_pure_law_is_exact(epsilon, rows, neighbouring):
    law = count_noise(epsilon, 0.0, rows, 50, neighbouring)
    changed = rows * CHANGED[neighbouring]
    assert passes(law.source, epsilon, changed)
    # The same law with 5 % less noise fails, and so does the claim of a 5 % smaller epsilon.
    assert not passes(geometric_noise(1.05 * epsilon, changed).source, epsilon, changed)
    assert not passes(law.source, epsilon * 0.95, changed)


def test_root_r_gain():
    """Noise of the mean over R rows: √R/ε·√2 when pure, independent of R with a delta."""
    pure = variance(0.0, 400) / variance(0.0, 100)
    slack = variance(1e-6, 400) / variance(1e-6, 100)
    assert pure == pytest.approx(4, rel=1e-3)
    assert slack == pytest.approx(1, rel=1e-3)


def test_what_cannot_be_released_is_refused():
    wide = count_noise(0.001, 0.0, 1000, 50, "add-remove")
    assert isinstance(wide.source, TwoDigitLaplace)
    with refuses("raise epsilon, or lower k or rows"):
        count_noise(0.001, 0.0, 1 << 20, 50, "add-remove")


@pytest.mark.slow
def test_the_widest_gaussian_noise_is_drawn_in_two_digits():
    """At the least budget, and the most rows, that a sketch may have."""
    law = count_noise(0.001, 1e-30, 1 << 20, 50, "replace")
    assert isinstance(law.source, TwoDigitGaussian)
