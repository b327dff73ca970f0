"""Gaussian noise rounded to the grid, with the optimal sigma of Balle & Wang (2018)."""

from __future__ import annotations

import math
from functools import lru_cache

import mpmath

from dpindex.noise.base import GRID_BITS, AdditiveNoise
from dpindex.noise.tables import CellTable

__all__ = ["gaussian_noise", "gaussian_table", "optimal_sigma"]

_CELLS_PER_DEVIATION = 32
_SAFETY = 1e-9
_DELTA_FOR_ROUNDING = 2.0**-30
"""Share of delta that is left for the finite precision of the table."""


@lru_cache(maxsize=256)
def optimal_sigma(epsilon: float, delta: float) -> float:
    """Smallest sigma of the Gaussian mechanism at L2 sensitivity 1, rounded up by 1e-9.

    Balle & Wang 2018, Thm 8 (Li & Li 2023, Thm 3.5): the smallest σ with
    ``Φ(1/2σ − εσ) − e^ε Φ(−1/2σ − εσ) ≤ δ``.

    >>> round(optimal_sigma(1.0, 1e-6), 6)
    4.224679
    """
    from dp_accounting import get_sigma_gaussian  # here: the import alone takes two seconds

    sigma = get_sigma_gaussian(epsilon=epsilon, delta=delta * (1.0 - _DELTA_FOR_ROUNDING))
    return float(sigma) * (1.0 + _SAFETY)


def gaussian_table(
    sigma: float, epsilon: float, delta: float, dims: int, cell_bits: int
) -> CellTable:
    """``round(N(0, σ²))`` with σ in cells, as exact integer masses.

    On integers ``round(x + N) = x + round(N)``, so the law is post-processing of the continuous
    mechanism and Balle & Wang's theorem holds for it in every dimension (METHODS 3). Each mass is
    off by at most one unit of 2^-bits; the bits are chosen such that this costs less than the
    share ``2⁻³⁰`` of delta that ``optimal_sigma`` held back, over all ``dims`` coordinates.
    """
    need = 1.4427 * epsilon + math.log2(1 / delta) + math.log2(dims) + 30 + 24
    bits = 64 * math.ceil(need / 64)
    reach = math.ceil(sigma * math.sqrt(2 * math.log(2) * bits)) + 1
    with mpmath.workprec(bits + 64):
        scale = mpmath.mpf(sigma) * mpmath.sqrt(2)
        # Upper tails beyond z − ½, as integers: masses are their differences, symmetric exactly.
        tails = [
            int(mpmath.nint(mpmath.ldexp(mpmath.erfc((z - 0.5) / scale) / 2, bits)))
            for z in range(1, reach + 1)
        ]
    side = [above - beyond for above, beyond in zip(tails, [*tails[1:], 0], strict=True)]
    while side[-1] == 0:
        side.pop()
    masses = [*reversed(side), (1 << bits) - 2 * tails[0], *side]
    return CellTable(masses, first=-len(side), bits=bits, cell_bits=cell_bits)


@lru_cache(maxsize=64)
def gaussian_noise(epsilon: float, delta: float, sensitivity: float, dims: int) -> AdditiveNoise:
    """Optimal Gaussian noise for an L2 sensitivity given in betas, over ``dims`` coordinates."""
    sigma = optimal_sigma(epsilon, delta) * sensitivity
    cells_bits = max(0, math.ceil(math.log2(_CELLS_PER_DEVIATION / sigma)))
    grid_bits = max(GRID_BITS, cells_bits)
    table = gaussian_table(sigma * (1 << cells_bits), epsilon, delta, dims, grid_bits - cells_bits)
    return AdditiveNoise(table, grid_bits)
