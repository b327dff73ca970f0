"""Laplace noise rounded down to the grid: pure epsilon under an L1 sensitivity."""

from __future__ import annotations

import math
from functools import lru_cache

import mpmath

from dpindex.noise.base import GRID_BITS, AdditiveNoise
from dpindex.noise.ladder import ladder_table

__all__ = ["laplace_noise"]

_CELLS_PER_DEVIATION = 32


@lru_cache(maxsize=64)
def laplace_noise(epsilon: float) -> AdditiveNoise:
    """Noise ``P(a) ∝ e^{−ε·a/N}`` on the magnitude a in cells, N cells per beta.

    Laplace mechanism (Dwork et al. 2006; Li & Li 2023, Thm 2.1) with L1 sensitivity beta, which
    under attribute adjacency raw data and OPORP both have. ``⌊Laplace⌋`` on an integer grid is
    post-processing of the continuous mechanism; the table keeps the ratio in exact integers.
    """
    cells = 1 << max(0, math.ceil(math.log2(_CELLS_PER_DEVIATION * epsilon / math.sqrt(2))))
    grid_bits = max(GRID_BITS, cells.bit_length() - 1)
    with mpmath.workprec(400):
        drop = mpmath.mpf(epsilon) / cells
    cell_bits = grid_bits - (cells.bit_length() - 1)
    return AdditiveNoise(ladder_table(drop, 1, 1, cell_bits), grid_bits)
