"""Tail probabilities of the normal law as integers, for secret noise and public projections."""

from __future__ import annotations

import mpmath

__all__ = ["upper_tails"]

_GUARD_BITS = 64


def upper_tails(sigma: float, bits: int, reach: int) -> list[int]:
    """``2^bits · P(N(0, σ²) > z − ½)`` for z = 1 … reach, each within one unit.

    erfc in high precision is slow, so it is evaluated eight times a deviation only; in between
    Taylor's series ``Q(x+t) = Q(x) − φ(x) Σ (−1)^n He_n(x) t^{n+1}/(n+1)!`` runs in integers.
    """
    block = max(1, int(sigma / 8))
    work = bits + _GUARD_BITS
    tails: list[int] = []
    with mpmath.workprec(work + _GUARD_BITS):
        for first in range(1, reach + 1, block):
            centre = first + block // 2
            x = (centre - mpmath.mpf(0.5)) / sigma
            start = int(mpmath.ldexp(mpmath.erfc(x / mpmath.sqrt(2)) / 2, work))
            series = _taylor(x, block / mpmath.mpf(sigma), work) if block > 1 else []
            for z in range(first, min(first + block, reach + 1)):
                offset, total = z - centre, 0
                for coefficient in reversed(series):
                    total = (total + coefficient) * offset // block
                tails.append((start + total + (1 << (_GUARD_BITS - 1))) >> _GUARD_BITS)
    return tails


def _taylor(x: mpmath.mpf, width: mpmath.mpf, work: int) -> list[int]:
    """Coefficients of ``Q(x + u·width) − Q(x)`` in powers u, u², … for |u| ≤ ½, times 2^work."""
    factor = -mpmath.exp(-x * x / 2) / mpmath.sqrt(2 * mpmath.pi) * width
    hermite, before = mpmath.mpf(1), mpmath.mpf(0)
    series: list[int] = []
    order = 0
    while len(series) < 2 or any(abs(c) >> (len(series) // 2) for c in series[-2:]):
        series.append(int(mpmath.ldexp(factor * hermite, work)))
        hermite, before = x * hermite - order * before, hermite
        order += 1
        factor *= -width / (order + 1)
    return series
