"""The staircase law: the pure-epsilon noise of least variance for one coordinate."""

from __future__ import annotations

import math
from functools import lru_cache

import mpmath

from dpindex.noise.base import GRID_BITS, AdditiveNoise
from dpindex.noise.ladder import ladder_table

__all__ = ["staircase_noise"]

_INNER_CELLS = 8.0
_MOST_CELLS_BITS = 14


@lru_cache(maxsize=64)
def staircase_noise(epsilon: float) -> AdditiveNoise:
    """Staircase noise (Geng & Viswanath 2014) for a shift of one beta in one coordinate.

    Level 0 reaches h cells to either side of −½, ``h ≈ N/(1+e^{ε/2})`` with N cells per beta, and
    every further N cells lose a factor e^ε. Any h is ε-DP for shifts up to N *in one coordinate*.
    Unlike Laplace noise, a small shift may cost the whole epsilon, so a change spread over many
    coordinates costs epsilon for each, however small: the guarantee is not one for L1 balls.
    """
    best = 1.0 / (1.0 + math.exp(epsilon / 2))
    # Below ε = ½ the law is close to Laplace's and a coarser h costs nothing.
    inner_cells = min(_INNER_CELLS, max(1.0, 16 * epsilon))
    cell_count_bits = math.ceil(math.log2(inner_cells / best))
    cell_count_bits = min(cell_count_bits, _MOST_CELLS_BITS)
    cells = 1 << cell_count_bits
    inner = max(1, round(best * cells))
    grid_bits = max(GRID_BITS, cell_count_bits)
    table = ladder_table(mpmath.mpf(epsilon), cells, inner, grid_bits - cell_count_bits)
    return AdditiveNoise(table, grid_bits)
