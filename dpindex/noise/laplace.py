"""Laplace noise rounded down to the grid: pure epsilon under an L1 sensitivity."""

from __future__ import annotations

import math
from functools import lru_cache

import mpmath

from dpindex.codes import NumberFormat
from dpindex.noise.additive import AdditiveNoise
from dpindex.noise.geometric import geometric_table
from dpindex.noise.law import GRID_BITS, Calibration, check_deviation
from dpindex.noise.two_digit import TwoDigitLaplace
from dpindex.parameters import Parameters
from dpindex.projections import Projection

__all__ = ["LAPLACE", "laplace_noise"]

_CELLS_PER_DEVIATION = 32
_MIN_DROP = 2.0**-10
"""Below this loss a cell, the noise is drawn in two digits."""


@lru_cache(maxsize=64)
def laplace_noise(epsilon: float, sensitivity: int = 1) -> AdditiveNoise:
    """Noise ``P(a) ∝ e^{−ε·a/(N·sensitivity)}`` on the magnitude a in cells, N cells per beta.

    Laplace mechanism (Dwork et al. 2006; Li & Li 2023, Thm 2.1) with an L1 sensitivity of so many
    betas: 1 for raw data and OPORP under attribute adjacency, else the largest row sum
    ``Σ_j|w_ij|`` of the projection's integers. A beta is N whole cells, so coordinate j moves by at
    most ``N·|w_ij|`` cells whatever the dither, and all together by ``N·sensitivity``: rounding
    adds nothing. ``⌊Laplace⌋`` on an integer grid is post-processing of the continuous mechanism;
    the tables keep the ratio in exact integers.
    """
    finest = _CELLS_PER_DEVIATION * epsilon / (math.sqrt(2) * sensitivity)
    cells = 1 << max(0, math.ceil(math.log2(finest)))
    check_deviation(cells * math.sqrt(2) * sensitivity / epsilon)
    grid_bits = max(GRID_BITS, cells.bit_length() - 1)
    with mpmath.workprec(400):
        drop = mpmath.mpf(epsilon) / (cells * sensitivity)
    cell_bits = grid_bits - (cells.bit_length() - 1)
    if drop < _MIN_DROP:
        return AdditiveNoise(TwoDigitLaplace(drop, cell_bits), grid_bits)
    return AdditiveNoise(geometric_table(drop, 1, 1, cell_bits), grid_bits)


def _calibrated(stated: Parameters, projection: Projection) -> AdditiveNoise:
    """``Lap(Δ₁/ε)``, Δ₁ the largest row sum of the realised map (Li & Li 2023, Alg. 2, Eq. 12)."""
    return laplace_noise(stated.budget, projection.sensitivity.l1)


LAPLACE = Calibration(_calibrated, NumberFormat)
