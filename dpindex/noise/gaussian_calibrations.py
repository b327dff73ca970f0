"""Which Gaussian noise an epsilon and a delta ask for: optimal, and as the papers published it.

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

from dpindex.codes import NumberFormat
from dpindex.errors import InputError
from dpindex.grid import neighbour_distance
from dpindex.noise.additive import AdditiveNoise
from dpindex.noise.gaussian import (
    gaussian_cells,
    optimal_sigma,
    rounded_gaussian,
    safe_delta,
    safe_sigma,
)
from dpindex.noise.law import GRID_BITS, Calibration
from dpindex.parameters import Parameters
from dpindex.projections import Projection

__all__ = [
    "ANALYTIC_GAUSSIAN", "BALL_COMPOSITION", "BALL_DIRECT", "BALL_GAUSSIAN",
    "KENTHAPADI_GAUSSIAN", "OPTIMAL_GAUSSIAN", "RAW_GAUSSIAN", "analytic_sensitivity",
    "column_sensitivity", "composition_epsilon", "direct_sensitivity", "kenthapadi_sigma",
]  # fmt: skip

_FINE = 256
"""Under l2 adjacency the grid and the cells are so fine that rounding adds about 1/256 each."""


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
    root = math.sqrt(2.0 * k * math.log(2.0 / delta))
    # (√(s² + 8kε) − s)/4k, without the cancellation.
    return 2.0 * epsilon / (math.sqrt(root**2 + 8.0 * k * epsilon) + root)


# Attribute adjacency: a beta is a whole number of cells


def _realised(sigma: float, stated: Parameters, projection: Projection) -> AdditiveNoise:
    """``sigma`` times the realised Δ₂, the largest row norm (Li & Li 2023, Eq. 13)."""
    sigma *= math.sqrt(projection.sensitivity.l2_squared)
    return rounded_gaussian(sigma, stated.budget, stated.delta, projection.k)


def _optimal(stated: Parameters, projection: Projection) -> AdditiveNoise:
    """Balle & Wang's σ (Li & Li 2023, Thm 3.5)."""
    return _realised(optimal_sigma(stated.budget, stated.delta), stated, projection)


def _kenthapadi(stated: Parameters, projection: Projection) -> AdditiveNoise:
    """Kenthapadi's σ (Li & Li 2023, Alg. 1, Thm 3.1)."""
    return _realised(kenthapadi_sigma(stated.budget, stated.delta), stated, projection)


def _analytic(stated: Parameters, projection: Projection) -> AdditiveNoise:
    """``√(2(log(1/δ) + ε))/ε`` times the bound of Lemma 3.3 (Li & Li 2023, Thm 3.4)."""
    sigma = projection.rms * analytic_sensitivity(stated.dim, projection.k, stated.delta)
    sigma *= kenthapadi_sigma(stated.budget, stated.delta / 2)
    return rounded_gaussian(sigma, stated.budget, stated.delta / 2, projection.k)


# l2 adjacency: every coordinate moves by a fraction of a cell


def _ball(
    stated: Parameters, k: int, stretch: float, sigma: float, delta: float, moved: int
) -> AdditiveNoise:
    """Gaussian noise for vectors that differ by the radius, in every coordinate a little.

    Parameters
    ----------
    k : int
        Length of a code.
    stretch : float
        Bound on how much longer the projected difference is than the difference itself.
    sigma : float
        Deviation wanted at sensitivity 1.
    delta : float
        What the noise alone may spend, for the precision of its table.
    moved : int
        Coordinates that the sensitivity is about: all, or 1 where coordinates compose.

    Attributes move by fractions of a cell here, so rounding counts twice: on the grid
    (``neighbour_distance``), and in the code, where for every fixed dither each coordinate moves by
    at most one cell more than its share: √moved cells in all.
    """
    bits = max(GRID_BITS, math.ceil(math.log2(_FINE * math.sqrt(stated.dim))))
    steps = neighbour_distance(stated.adjacency.size, bits, stated.bounds, stated.dim)
    wanted = max(_FINE * math.sqrt(moved) / stretch, 32.0 / (sigma * stretch))
    cell_bits = max(0, bits - max(0, math.ceil(math.log2(wanted))))
    moved_cells = stretch * steps / (1 << cell_bits)
    if cell_bits:
        moved_cells += math.sqrt(moved)
    return gaussian_cells(
        sigma * moved_cells, stated.budget, delta, k, cell_bits=cell_bits, grid_bits=bits
    )


def _ball_optimal(stated: Parameters, projection: Projection) -> AdditiveNoise:
    """Balle & Wang's σ at ``Δ₂ = B·‖W‖``, the realised operator norm (Balle & Wang 2018, Thm 8)."""
    k, sigma = projection.k, optimal_sigma(stated.budget, stated.delta)
    return _ball(stated, k, projection.operator_norm, sigma, stated.delta, k)


def _ball_direct(stated: Parameters, projection: Projection) -> AdditiveNoise:
    """``B√(k + 2√(k log(2/δ)) + 2 log(2/δ))·√(2(log(1/δ) + ε))/ε`` (Tu, Thm 1, corrected).

    Tu prints log(1/2δ) under the second root; the proof spends δ/2 there, which gives log(1/δ).
    """
    k = projection.k
    stretch = projection.rms * direct_sensitivity(k, stated.delta)
    sigma = kenthapadi_sigma(stated.budget, stated.delta / 2)
    return _ball(stated, k, stretch, sigma, stated.delta / 2, k)


def _ball_composition(stated: Parameters, projection: Projection) -> AdditiveNoise:
    """Each coordinate (ε₁, δ/2k)-private by itself, all together by composition (Tu, Thm 2)."""
    k = projection.k
    share = stated.delta / (4 * k)
    epsilon = composition_epsilon(stated.budget, stated.delta, k)
    if epsilon > 1:
        raise InputError(
            f"Tu's composition needs an epsilon of at most 1 for each coordinate, which here is "
            f"{epsilon:.3g}; lower epsilon, raise k, or use row-rp-g-opt."
        )
    stretch = projection.rms * column_sensitivity(k, stated.delta)
    return _ball(stated, k, stretch, kenthapadi_sigma(epsilon, share), share, 1)


def _raw(stated: Parameters, projection: Projection) -> AdditiveNoise:
    """L2 sensitivity β or B: the raw coordinates themselves (Li & Li 2023, Thm 3.8)."""
    law = _optimal if stated.adjacency.kind == "attribute" else _ball_optimal
    return law(stated, projection)


OPTIMAL_GAUSSIAN = Calibration(_optimal, NumberFormat, delta="required", deviation=optimal_sigma)
KENTHAPADI_GAUSSIAN = replace(
    OPTIMAL_GAUSSIAN, law=_kenthapadi, max_delta=0.5, deviation=kenthapadi_sigma
)
ANALYTIC_GAUSSIAN = Calibration(_analytic, NumberFormat, delta="required", delta_over="projection")
BALL_GAUSSIAN = replace(OPTIMAL_GAUSSIAN, law=_ball_optimal, adjacencies=("l2",))
BALL_DIRECT = replace(ANALYTIC_GAUSSIAN, law=_ball_direct, adjacencies=("l2",))
BALL_COMPOSITION = replace(BALL_DIRECT, law=_ball_composition, exact=False)
RAW_GAUSSIAN = replace(OPTIMAL_GAUSSIAN, law=_raw, adjacencies=("attribute", "l2"))
