"""The Gaussian curve against 60 digits, Arb's balls and dp-accounting; what is found is least."""

import mpmath
import numpy as np
import pytest
from dp_accounting import get_sigma_gaussian
from flint import arb, ctx
from helpers.common import attribute_spec, folded
from hypothesis import given, settings
from hypothesis import strategies as st
from independent.rigorous import gaussian_delta

from dpindex import compose
from dpindex.mechanism.noise.gaussian import (
    delta_interval,
    least_epsilon,
    least_sigma,
    optimal_sigma,
)

EPSILONS = (1e-4, 0.003, 0.1, 1.0, 8.0, 40.0)
DELTAS = (1e-15, 1e-10, 1e-6, 0.001, 0.1)
ABOVE = 1 + 1e-6

epsilons = st.floats(1e-4, 40.0)
log_deltas = st.floats(-15.0, -1.0)


@pytest.fixture(autouse=True, scope="module")
def digits():
    before = ctx.prec
    ctx.prec = 400
    with mpmath.workdps(60):
        yield
    ctx.prec = before


def in_balls(sigma, epsilon):
    """The same by Arb: an enclosure, by other people's code in another language."""
    half = 1 / (2 * arb(sigma))
    middle = arb(epsilon) * arb(sigma)
    root = arb(2).sqrt()
    near = ((middle - half) / root).erfc()
    far = ((middle + half) / root).erfc()
    return (near - arb(epsilon).exp() * far) / 2


def is_least_sigma(sigma, epsilon, delta):
    with mpmath.workdps(60):
        below = mpmath.mpf(sigma) / ABOVE
        return bool(gaussian_delta(sigma, epsilon) <= delta < gaussian_delta(below, epsilon))


def is_least_epsilon(epsilon, sigma, delta):
    with mpmath.workdps(60):
        below = mpmath.mpf(epsilon) / ABOVE
        return bool(gaussian_delta(sigma, epsilon) <= delta < gaussian_delta(sigma, below))


@pytest.mark.slow
@folded("epsilon", EPSILONS)
@folded("delta", DELTAS)
def test_sigma_is_never_below_the_least_and_at_most_a_millionth_above(epsilon, delta):
    assert is_least_sigma(least_sigma(epsilon, delta), epsilon, delta)
    assert is_least_sigma(optimal_sigma(epsilon, delta), epsilon, delta)


@pytest.mark.slow
@settings(max_examples=30)
@given(epsilons, log_deltas)
def test_sigma_is_least_anywhere(epsilon, log_delta):
    assert is_least_sigma(optimal_sigma(epsilon, 10**log_delta), epsilon, 10**log_delta)


@pytest.mark.slow
@folded("epsilon", EPSILONS)
@folded("delta", DELTAS)
def test_the_interval_holds_the_ball_of_arb(epsilon, delta):
    sigma = least_sigma(epsilon, delta)
    interval = delta_interval(sigma, epsilon, delta)
    ball = in_balls(sigma, epsilon)
    with mpmath.workdps(100):
        low = mpmath.mpf(interval.a)
        high = mpmath.mpf(interval.b)
        lower = mpmath.mpf(ball.lower().str(90, radius=False))
        upper = mpmath.mpf(ball.upper().str(90, radius=False))
        assert low <= upper
        assert lower <= high
        assert high - low <= 1e-15 * delta


@folded("epsilon", EPSILONS)
@folded("delta", [1e-15, 1e-6, 0.1])
def test_dp_accounting_finds_the_same(epsilon, delta):
    with np.errstate(divide="ignore"):
        sigma = get_sigma_gaussian(epsilon=epsilon, delta=delta)
    assert least_sigma(epsilon, delta) == pytest.approx(sigma, rel=1e-7)
    found = least_epsilon(sigma, delta)
    assert found == pytest.approx(epsilon, rel=1e-5, abs=1e-9)


def test_noise_that_needs_no_epsilon_has_none():
    assert least_epsilon(1e3, 0.1) == 0.0


@pytest.mark.slow
@settings(max_examples=30)
@given(epsilons, log_deltas)
def test_epsilon_is_least_anywhere(epsilon, log_delta):
    delta = 10**log_delta
    sigma = least_sigma(epsilon, delta) * 0.75
    assert is_least_epsilon(least_epsilon(sigma, delta), mpmath.mpf(sigma), delta)


@pytest.mark.slow
@folded("epsilon", [0.001, 0.1, 1.0, 8.0])
@folded("delta", DELTAS)
@folded("times", [2, 9])
def test_composed_releases_are_never_below_the_least_and_at_most_a_millionth_above(
    epsilon, delta, times
):
    """So many Gaussian releases are one, of that much less noise (Dong, Roth & Su 2022)."""
    spec = attribute_spec("dp-oporp", 8, k=4, epsilon=epsilon, delta=delta)
    found = compose([spec] * times, delta=delta).epsilon
    with mpmath.workdps(60):
        sigma = optimal_sigma(epsilon, delta) / mpmath.sqrt(times)
        assert is_least_epsilon(found, sigma, delta)


@pytest.mark.slow
@pytest.mark.parametrize(
    "epsilon, own, times, delta",
    [
        (10.69, 1e-15, 10, 1e-15),
        (26.41, 1e-15, 2, 1e-15),
        (10.07, 1e-10, 10, 1e-10),
        (1.795, 0.1, 10, 1e-15),
        (21.59, 0.1, 2, 0.1),
    ],
)
def test_tables_are_so_fine_that_nothing_shows_up_to_40(epsilon, own, times, delta):
    """Each release has a table for its own epsilon and delta, and all promise other ones."""
    spec = attribute_spec(
        "dp-oporp",
        1024,
        k=1024,
        epsilon=epsilon,
        delta=own,
    )
    found = compose([spec] * times, delta=delta).epsilon
    assert 39 < found < 40
    with mpmath.workdps(60):
        sigma = optimal_sigma(epsilon, own) / mpmath.sqrt(times)
        assert is_least_epsilon(found, sigma, delta)
