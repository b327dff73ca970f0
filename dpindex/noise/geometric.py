"""Pure-epsilon laws whose masses fall by a constant factor from level to level, in exact integers.

On either side of −½ a magnitude a = 0, 1, 2, … lies on level 0 for its first ``inner`` cells and
on level j for the j-th ``width`` cells after those; ``P(a) ∝ e^{−drop·level(a)}``. With ``width``
equal to the sensitivity this is the staircase law (Geng & Viswanath 2014), with
``width = inner = 1`` the Laplace law rounded down to the grid.
"""

from __future__ import annotations

import math

import mpmath

from dpindex.noise.tables import CellTable

__all__ = ["geometric_table"]

_BITS = 64
_RATIO_BITS = 320
_TAIL = 2.0**-20
"""A table covers all but about this much; beyond it the law repeats itself, shifted."""


def geometric_table(drop: mpmath.mpf, width: int, inner: int, cell_bits: int) -> CellTable:
    """The two-sided law by levels as a table, rounded so that its ratio e^drop holds in integers.

    Parameters
    ----------
    drop : mpf
        Natural logarithm of the fall from one level to the next, (0, ∞).
    width, inner : int
        Cells on a level, and on level 0 (each side), 1 ≤ inner ≤ width.
    cell_bits : int
        Width of a cell, passed on to the sampler.

    Every mass is at least ``e^−drop`` times the one a level above it, and the tail restarts the
    table at no less than the level it replaces, and at most e^drop times that. So
    ``P(z) ≤ e^drop · P(z')`` holds for the implemented integers whenever z and z' are at most
    ``width`` cells apart; where 64 bits are too coarse for that, ValueError.
    """
    with mpmath.workprec(_RATIO_BITS + 64):
        ratio = mpmath.exp(-mpmath.mpf(drop))
        ratio_up = int(mpmath.ceil(mpmath.ldexp(ratio, _RATIO_BITS)))
        half = 1 << (_BITS - 1)
        start = int(mpmath.floor(half * (1 - ratio) / (inner + (width - inner) * ratio)))
    levels = max(1, math.ceil(-math.log(_TAIL) / float(drop)))
    cells_on = [inner] + [width] * (levels - 1) + [width - inner]
    slack = 1
    while True:
        by_level = [start - slack]
        for _ in range(levels):
            by_level.append(-(-by_level[-1] * ratio_up >> _RATIO_BITS))
        tail = half - sum(cells * mass for cells, mass in zip(cells_on, by_level, strict=True))
        # The restarted level 0 has mass by_level[0]·tail/half and must not fall short of level K.
        missing = by_level[levels] * half - tail * by_level[0]
        if missing <= 0:
            break
        # A unit of slack adds (half − tail)/by_level[0] to the tail: no more than needed, for a
        # tail too heavy would break the ratio from below.
        slack += -(-missing // (half - tail))
    if tail * by_level[0] * ratio_up > by_level[levels] * half << _RATIO_BITS:
        raise ValueError(f"masses of {_BITS} bits are too coarse for a drop of {float(drop):g}")
    side = [mass for cells, mass in zip(cells_on, by_level, strict=True) for _ in range(cells)]
    masses = [tail, *reversed(side), *side, tail]
    return CellTable(masses, first=-len(side) - 1, bits=_BITS, cell_bits=cell_bits, tails=True)
