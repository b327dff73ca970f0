"""Gaussian noise for an epsilon and a delta as first published.

The published levels are ``σ = sensitivity · kenthapadi_sigma(ε', δ')``; they differ in the bound on
the sensitivity and in how epsilon and delta are shared out. Where the bound holds with high
probability over the *projection* only, so does the guarantee (``delta_over = "projection"``).

Our Gaussian projections have their entries rounded to multiples of h. A rounded Gaussian has the
moment generating function ``e^{t²/2}·sinh(th/2)/(th/2)`` up to e^{−2π²/h²}, so it is sub-Gaussian
with variance 1 + h²/12, to which the entries are scaled: the tail bound of Laurent & Massart 2000
that the papers use holds for it unchanged (Hsu, Kakade & Zhang 2012, Thm 2.1).
"""

from __future__ import annotations

import math
from dataclasses import replace

from dpindex.base.errors import NoGuaranteeError
from dpindex.mechanism.codes import NumberFormat
from dpindex.mechanism.noise.additive import (
    AdditiveNoise,
)
from dpindex.mechanism.noise.base import Calibration
from dpindex.mechanism.noise.gaussian import (
    OPTIMAL_GAUSSIAN,
    ball_noise,
    realised_noise,
    rounded_gaussian,
    safe_delta,
    safe_sigma,
)
from dpindex.mechanism.parameters import Parameters
from dpindex.mechanism.projections import Projection


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
    square = k + 2.0 * math.sqrt(k * surprise) + 2.0 * surprise
    return math.sqrt(square)


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
    slope = math.sqrt(2.0 * k * math.log(2.0 / delta))
    discriminant = math.sqrt(slope**2 + 8.0 * k * epsilon)
    # (√(s² + 8kε) − s)/4k, without the cancellation.
    return 2.0 * epsilon / (discriminant + slope)


def _kenthapadi(parameters: Parameters, projection: Projection) -> AdditiveNoise:
    """Kenthapadi's σ (Li & Li 2023, Alg. 1, Thm 3.1)."""
    return realised_noise(
        kenthapadi_sigma(parameters.budget, parameters.delta), parameters, projection
    )


def _analytic(parameters: Parameters, projection: Projection) -> AdditiveNoise:
    """``√(2(log(1/δ) + ε))/ε`` times the bound of Lemma 3.3 (Li & Li 2023, Thm 3.4)."""
    k = projection.k
    half = parameters.delta / 2  # of the noise; the other half of the projection
    sensitivity = projection.rms * analytic_sensitivity(parameters.dim, k, parameters.delta)
    sigma = sensitivity * kenthapadi_sigma(parameters.budget, half)
    return rounded_gaussian(sigma, parameters.budget, half, k)


def _ball_direct(parameters: Parameters, projection: Projection) -> AdditiveNoise:
    """``B√(k + 2√(k log(2/δ)) + 2 log(2/δ))·√(2(log(1/δ) + ε))/ε`` (Tu, Thm 1, corrected).

    Tu prints log(1/2δ) under the second root; the proof spends δ/2 there, which gives log(1/δ).
    """
    k = projection.k
    half = parameters.delta / 2
    stretch = projection.rms * direct_sensitivity(k, parameters.delta)
    sigma = kenthapadi_sigma(parameters.budget, half)
    return ball_noise(parameters, k, stretch, sigma, half, k)


def _ball_composition(parameters: Parameters, projection: Projection) -> AdditiveNoise:
    """Each coordinate (ε₁, δ/2k)-private by itself, all together by composition (Tu, Thm 2)."""
    k = projection.k
    share = parameters.delta / (4 * k)
    epsilon = composition_epsilon(parameters.budget, parameters.delta, k)
    if epsilon > 1:
        raise NoGuaranteeError(
            f"Tu's composition needs an epsilon of at most 1 for each coordinate, which here is "
            f"{epsilon:.3g}; lower epsilon, raise k, or use row-rp-g-opt."
        )
    stretch = projection.rms * column_sensitivity(k, parameters.delta)
    sigma = kenthapadi_sigma(epsilon, share)
    return ball_noise(parameters, k, stretch, sigma, share, 1)


KENTHAPADI_GAUSSIAN = replace(
    OPTIMAL_GAUSSIAN,
    law=_kenthapadi,
    max_delta=0.5,
    deviation=kenthapadi_sigma,
)

ANALYTIC_GAUSSIAN = Calibration(
    _analytic,
    NumberFormat,
    delta="required",
    delta_over="projection",
    moves="any",
)

BALL_DIRECT = replace(ANALYTIC_GAUSSIAN, law=_ball_direct, adjacencies=("l2",))

BALL_COMPOSITION = replace(BALL_DIRECT, law=_ball_composition, exact=False)
