"""The noise levels of the papers as they are published, for comparison with the optimal one.

Every one is ``σ = sensitivity · kenthapadi_sigma(ε', δ')``; what differs is the bound on the
sensitivity and how epsilon and delta are shared out. Where the bound holds with high probability
over the *projection* only, so does the guarantee (``delta_over = "projection"``).

Our Gaussian projections have their entries rounded to multiples of h. A rounded Gaussian has the
moment generating function ``e^{t²/2}·sinh(th/2)/(th/2)`` up to e^{−2π²/h²}, so it is sub-Gaussian
with variance 1 + h²/12, to which the entries are scaled: the tail bound of Laurent & Massart 2000
that the papers use holds for it unchanged (Hsu, Kakade & Zhang 2012, Thm 2.1).
"""

from __future__ import annotations

import math

from dpindex.noise.gaussian import safe_delta, safe_sigma

__all__ = [
    "analytic_sensitivity",
    "column_sensitivity",
    "composition_epsilon",
    "direct_sensitivity",
    "kenthapadi_sigma",
]


def kenthapadi_sigma(epsilon: float, delta: float) -> float:
    """``√(2(log(1/2δ) + ε))/ε`` at L2 sensitivity 1, for δ < ½, rounded up by 1e-9.

    Kenthapadi et al. 2013, Lemma 1 (Li & Li 2023, Thm 3.1).

    >>> round(kenthapadi_sigma(1.0, 1e-6), 6)
    5.314577
    """
    spent = math.log(1.0 / (2.0 * safe_delta(delta))) + epsilon
    return safe_sigma(math.sqrt(2.0 * spent) / epsilon)


def _chi(k: int, surprise: float) -> float:
    """Bound on the norm of k standard normals, exceeded with probability e^−surprise.

    Laurent & Massart 2000, Lemma 1 (Li & Li 2023, Lemma 3.2).
    """
    return math.sqrt(k + 2.0 * math.sqrt(k * surprise) + 2.0 * surprise)


def analytic_sensitivity(dim: int, k: int, delta: float) -> float:
    """L2 norm that no row of a dim × k standard normal matrix exceeds, with probability 1 − δ/2.

    Li & Li 2023, Lemma 3.3 as used in Thm 3.4, before the scale 1/√k.
    """
    return _chi(k, math.log(2.0 * dim / delta))


def direct_sensitivity(k: int, delta: float) -> float:
    """Norm of a unit vector's image in k dimensions, with probability 1 − δ/2 (Tu, Lemma 1)."""
    return _chi(k, math.log(2.0 / delta))


def column_sensitivity(k: int, delta: float) -> float:
    """Size of one coordinate of a unit vector's image, with probability 1 − δ/4k (Tu, Lemma 4)."""
    return math.sqrt(2.0 * math.log(4.0 * k / delta))


def composition_epsilon(epsilon: float, delta: float, k: int) -> float:
    """Epsilon of each of k coordinates such that all compose to (ε, δ/2-fold) (Tu, Thm 2).

    The root of ``√(2k log(2/δ))·ε₁ + 2kε₁² = ε``; the proof needs ``e^ε₁ ≤ 1 + 2ε₁``, which holds
    up to ε₁ = 1.
    """
    spread = math.sqrt(2.0 * k * math.log(2.0 / delta))
    # (√(s² + 8kε) − s)/4k, without the cancellation.
    return 2.0 * epsilon / (math.sqrt(spread**2 + 8.0 * k * epsilon) + spread)
