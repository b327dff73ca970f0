"""The methods that papers name, for comparison, and Gaussian noise as first published.

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
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from dpindex.base.errors import NoGuaranteeError
from dpindex.mechanism.codes import NumberFormat
from dpindex.mechanism.families import REPEATED_OPORP, SIGN_OPORP, always, shared_map
from dpindex.mechanism.method import Family, Length, Method
from dpindex.mechanism.noise import additive, gaussian
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
from dpindex.mechanism.noise.response import GEOMETRIC_FLIPS
from dpindex.mechanism.papers.projections import (
    FINE_ENTRY_BITS,
    FastJL,
    Gaussian,
    Rademacher,
    SparseJL,
    Uniform,
    VerySparse,
)
from dpindex.mechanism.papers.signs import (
    EXACT_RESPONSE,
    INDIVIDUAL_FLIPS,
    INDIVIDUAL_GAUSSIAN,
    NO_FLIPS,
    SMOOTH_FLIPS,
)
from dpindex.mechanism.parameters import Parameters
from dpindex.mechanism.projections import Encoder, Projection
from dpindex.mechanism.variants import Blocks, Dense


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


_numbers = always(128)
_signs = always(512)

_BY_ENTRIES = {
    "gaussian": partial(shared_map, Gaussian),
    "rademacher": partial(shared_map, Rademacher),
    "uniform": partial(shared_map, Uniform),
    "very-sparse": partial(shared_map, VerySparse),
}


def _dense(default: str, length: Length, **changed: Callable[[Parameters], Encoder]) -> Family:
    """A random projection whose entries may be chosen (Li & Li 2023, Sec. 3.4), with a default."""
    makers = _BY_ENTRIES | changed
    return Family(
        make=lambda parameters: makers[parameters.variant.entries or default](parameters),
        default_length=length,
        variant=Dense(default),
    )


RADEMACHER = Family(partial(shared_map, Rademacher), _numbers, moves="units")

SIGN_RADEMACHER = Family(partial(shared_map, Rademacher), _signs, moves="units")

GAUSSIAN = Family(partial(shared_map, Gaussian), _numbers)

SPARSE_JL = Family(partial(shared_map, SparseJL), _numbers, variant=Blocks(), moves="units")

FAST_JL = Family(partial(shared_map, FastJL), _numbers)

DENSE_NUMBERS = _dense("gaussian", _numbers)

DENSE_SIGNS = _dense("rademacher", _signs)

_fine = partial(shared_map, partial(Gaussian, bits=FINE_ENTRY_BITS))

FINE_DENSE_SIGNS = _dense("gaussian", _signs, gaussian=_fine)
"""Normal entries rounded to multiples of 2^-12 instead of 2^-4."""


# fmt: off
METHODS = (
    Method("dp-rp-g", DENSE_NUMBERS, KENTHAPADI_GAUSSIAN,
        "random projection with Gaussian noise as first published",
        "Kenthapadi et al. 2013 Lemma 1; Li & Li 2023 Alg. 1, Thm 3.1"),
    Method("dp-rp-g-analytic", GAUSSIAN, ANALYTIC_GAUSSIAN,
        "random projection, noise from a bound on the sensitivity; dp-rp-g-opt takes the real one",
        "Li & Li 2023 Thm 3.4"),
    Method("dp-rp-g-opt", DENSE_NUMBERS, gaussian.OPTIMAL_GAUSSIAN,
        "random projection with optimal Gaussian noise for its realised sensitivity",
        "Li & Li 2023 Alg. 1, Thm 3.5; Balle & Wang 2018 Thm 8"),
    Method("dp-rp-l", DENSE_NUMBERS, additive.LAPLACE,
        "random projection with Laplace noise for its realised L1 sensitivity",
        "Li & Li 2023 Alg. 2, Thm 2.1"),
    Method("dp-rp-g-opt-b", RADEMACHER, gaussian.OPTIMAL_GAUSSIAN,
        "random projection by fair signs, whose L2 sensitivity is beta exactly",
        "Li & Li 2023 Alg. 3, Thms 3.5 and 3.9; Balle & Wang 2018 Thm 8"),
    Method("dp-sjlt-laplace", SPARSE_JL, additive.LAPLACE,
        "sparse Johnson-Lindenstrauss map with Laplace noise",
        "Stausholm 2021; Kane & Nelson 2014 (block construction); Dwork et al. 2006"),
    Method("dp-sjlt-gaussian", SPARSE_JL, gaussian.OPTIMAL_GAUSSIAN,
        "sparse Johnson-Lindenstrauss map with optimal Gaussian noise",
        "Stausholm 2021; Kane & Nelson 2014 (block construction); Balle & Wang 2018 Thm 8"),
    Method("dp-fjlt-gaussian", FAST_JL, gaussian.OPTIMAL_GAUSSIAN,
        "fast Johnson-Lindenstrauss transform with optimal Gaussian noise",
        "Stausholm 2021; Ailon & Chazelle 2009; Balle & Wang 2018 Thm 8"),
    Method("row-rp-g-direct", GAUSSIAN, BALL_DIRECT,
        "random projection hiding one pair of vectors; row-rp-g-opt hides every pair",
        "Tu, Thm 1 (corrected); Kenthapadi et al. 2013 Lemma 1"),
    Method("row-rp-g-composition", GAUSSIAN, BALL_COMPOSITION,
        "the same, coordinate by coordinate; row-rp-g-opt hides every pair",
        "Tu, Thm 2; Dwork, Rothblum & Vadhan 2010"),
    Method("row-rp-g-opt", GAUSSIAN, gaussian.BALL_GAUSSIAN,
        "random projection hiding the whole vector, by its realised operator norm",
        "Balle & Wang 2018 Thm 8"),
    Method("dp-signrp-rr", FINE_DENSE_SIGNS, EXACT_RESPONSE,
        "signs of a random projection under randomized response; pure, or better with a norm bound",
        "Li & Li 2023 Alg. 6, Thm 4.1, Remark 4.1; N+ by exact binomial quantile"),
    Method("dp-signrp-rr-smooth", DENSE_SIGNS, SMOOTH_FLIPS,
        "signs of a random projection, flipped less the further from zero",
        "Li & Li 2023 Alg. 7, Thm 4.7"),
    Method("dp-signrp-geometric", DENSE_SIGNS, GEOMETRIC_FLIPS,
        "signs of a random projection under geometric flips, never more than the smooth ones",
        "Ghosh, Roughgarden & Sundararajan 2009"),
    Method("dp-signoporp-rr-smooth", REPEATED_OPORP, SMOOTH_FLIPS,
        "signs of OPORP, flipped less the further from zero",
        "Li & Li 2023 Alg. 8, Thm 4.8"),
    Method("idp-signrp-rr", SIGN_RADEMACHER, INDIVIDUAL_FLIPS,
        "signs of a dense projection; only signs a neighbour could change are flipped",
        "Li & Li 2023 Alg. 11, Thm 6.2"),
    Method("idp-signrp-g", SIGN_RADEMACHER, INDIVIDUAL_GAUSSIAN,
        "signs of a dense projection; Gaussian noise where a neighbour could change the sign",
        "Li & Li 2023 Alg. 9, Thm 6.1"),
    Method("idp-signoporp-rr", SIGN_OPORP, INDIVIDUAL_FLIPS,
        "signs of OPORP; only signs a neighbour could change are flipped",
        "Li & Li 2023 Sec. 6 (Alg. 11 over OPORP); one bin moves, so none shares the budget"),
    Method("idp-signoporp-g", SIGN_OPORP, INDIVIDUAL_GAUSSIAN,
        "signs of OPORP; Gaussian noise where a neighbour could change the sign",
        "Li & Li 2023 Sec. 6 (Alg. 9 over OPORP)"),
    Method("none-signrp", SIGN_RADEMACHER, NO_FLIPS,
        "signs of a dense projection without flips: a baseline, not private",
        "Charikar 2002; Li & Li 2023 Eq. (6)"),
)
# fmt: on
"""Rows of the table of methods."""
