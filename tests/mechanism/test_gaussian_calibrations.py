"""The published noise levels against mpmath, and whether they keep what they promise."""

import mpmath
from helpers.specs import folded

from dpindex.mechanism.noise.gaussian import optimal_sigma
from dpindex.mechanism.papers.gaussian import (
    analytic_sensitivity,
    column_sensitivity,
    composition_epsilon,
    direct_sensitivity,
    kenthapadi_sigma,
)

EPSILONS = (0.1, 0.5, 1.0, 2.0, 5.0, 20.0)
CASES = [(784, 128, 1e-6), (10, 512, 1e-9), (1, 1, 0.1), (1 << 20, 64, 1e-5)]


def _close(found, wanted):
    """Never below, as rounding may only add noise, and within 1e-7."""
    assert wanted * (1 - mpmath.mpf(10) ** -15) <= found <= wanted * (1 + mpmath.mpf(10) ** -7)


@folded("epsilon", EPSILONS)
@folded("delta", [1e-9, 1e-6, 0.01, 0.4])
def test_kenthapadi(epsilon, delta):
    with mpmath.workdps(40):
        spent = mpmath.log(1 / (2 * mpmath.mpf(delta))) + epsilon
        _close(kenthapadi_sigma(epsilon, delta), mpmath.sqrt(2 * spent) / epsilon)


@folded(("dim", "k", "delta"), CASES)
@folded("epsilon", EPSILONS)
def test_analytic_li_and_li_theorem_3_4(dim, k, delta, epsilon):
    with mpmath.workdps(40):
        d = mpmath.mpf(delta)
        log = mpmath.log(2 * dim / d)
        norm = mpmath.sqrt(1 + 2 * mpmath.sqrt(log / k) + 2 * log / k)
        sigma = norm * mpmath.sqrt(2 * (mpmath.log(1 / d) + epsilon)) / epsilon
        found = analytic_sensitivity(dim, k, delta) * kenthapadi_sigma(epsilon, delta / 2)
        _close(found / float(mpmath.sqrt(k)), sigma)


@folded(("dim", "k", "delta"), CASES)
@folded("epsilon", EPSILONS)
def test_tu_theorem_1(dim, k, delta, epsilon):
    with mpmath.workdps(40):
        d = mpmath.mpf(delta)
        log = mpmath.log(2 / d)
        norm = mpmath.sqrt(k + 2 * mpmath.sqrt(k * log) + 2 * log)
        sigma = norm * mpmath.sqrt(2 * (mpmath.log(1 / d) + epsilon)) / epsilon
        _close(direct_sensitivity(k, delta) * kenthapadi_sigma(epsilon, delta / 2), sigma)


@folded(("dim", "k", "delta"), CASES)
@folded("epsilon", EPSILONS)
def test_tu_theorem_2(dim, k, delta, epsilon):
    with mpmath.workdps(40):
        d = mpmath.mpf(delta)
        e = mpmath.mpf(epsilon)
        spread = mpmath.sqrt(2 * k * mpmath.log(2 / d))
        e1 = (mpmath.sqrt(2 * k * mpmath.log(2 / d) + 8 * k * e) - spread) / (4 * k)
        norm = mpmath.sqrt(2 * mpmath.log(4 * k / d))
        sigma = norm * mpmath.sqrt(2 * (mpmath.log(2 * k / d) + e1)) / e1
        share = composition_epsilon(epsilon, delta, k)
        _close(column_sensitivity(k, delta) * kenthapadi_sigma(share, delta / (4 * k)), sigma)
        # What composes back (Dwork, Rothblum & Vadhan): at most epsilon, where ε₁ is at most 1.
        if e1 <= 1:
            assert spread * e1 + k * e1 * mpmath.expm1(e1) <= e * (1 + mpmath.mpf(10) ** -30)


def _spent(sigma, epsilon):
    """Delta of a Gaussian of sensitivity 1 (Balle & Wang 2018, Thm 8)."""
    e = mpmath.mpf(epsilon)
    near = 1 / (2 * sigma) - e * sigma
    far = -1 / (2 * sigma) - e * sigma
    return mpmath.ncdf(near) - mpmath.exp(e) * mpmath.ncdf(far)


@folded("epsilon", [0.01, 0.1, 1.0, 5.0, 20.0, 64.0])
@folded("delta", [1e-12, 1e-6, 1e-3, 0.1, 0.3, 0.49])
def test_kenthapadi_is_sound_and_wasteful(epsilon, delta):
    """It holds for every δ < ½, as claimed; and the optimal sigma is never larger."""
    sigma = kenthapadi_sigma(epsilon, delta)
    with mpmath.workdps(80):
        assert _spent(mpmath.mpf(sigma), epsilon) <= delta
    assert optimal_sigma(epsilon, delta) <= sigma
