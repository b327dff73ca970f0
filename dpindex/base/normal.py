"""The normal law: tails as integers, for secret noise and public projections, and quantiles.

And tails of cosines. All without ``scipy.special``, which takes a quarter of a second to import.
"""

from __future__ import annotations

import math
from functools import cache, lru_cache
from statistics import NormalDist

import mpmath
import numpy as np

from dpindex.base.arrays import Doubles

_GUARD_BITS = 64
# Exp-sinh quadrature: points and weights of integrals over [0, ∞).
_STEP = 0.125
_SINH_POINTS = _STEP * np.arange(-26, 27)
_POINTS = np.exp(np.pi / 2 * np.sinh(_SINH_POINTS))
_WEIGHTS = _STEP * np.pi / 2 * np.cosh(_SINH_POINTS) * _POINTS


@cache
def quantiles(count: int) -> Doubles:
    """Standard normal quantiles of the probabilities (i + ½)/count, shape (count,).

    >>> quantiles(2).round(4)
    array([-0.6745,  0.6745])
    """
    inverse = NormalDist().inv_cdf
    values = np.array([inverse((i + 0.5) / count) for i in range(count)])
    values.flags.writeable = False  # it is shared
    return values


def cosine_tails(cosines: Doubles, dim: float) -> Doubles:
    """Chance that two random directions have a cosine above each of these, to one in a million.

    With t = tanh u the density ``(1 − t²)^((dim−3)/2)`` becomes ``sech(u)^(dim−1)``, which falls
    off like an exponential and is integrated by the exp-sinh rule (Takahasi & Mori 1974).

    Parameters
    ----------
    cosines : array, shape (n,)
        In [−1, 1].
    dim : float
        Dimensions, (1, ∞), need not be whole; to one in ten thousand below 1.5.

    >>> cosine_tails(np.array([-1.0, 0.0, 0.5, 1.0]), 3).round(6)
    array([1.  , 0.5 , 0.25, 0.  ])
    """
    power = dim - 1.0
    start = np.arctanh(np.minimum(np.abs(cosines), 1.0 - 2.0**-53))[:, None]
    scale = 1.0 / (power * np.tanh(start) + math.sqrt(power))  # of the decay
    u = start + scale * _POINTS
    log_cosh = np.logaddexp(u, -u) - math.log(2.0)
    half = math.exp(math.lgamma(power / 2 + 0.5) - math.lgamma(power / 2)) / math.sqrt(math.pi)
    tails = half * (scale * np.exp(-power * log_cosh) @ _WEIGHTS[:, None])[:, 0]
    return np.asarray(np.where(cosines > 0, tails, 1.0 - tails))


@lru_cache(maxsize=8)  # an index and its queries, or several of one spec, have the same law
def upper_tails(sigma: float, bits: int, reach: int) -> tuple[int, ...]:
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
            series = []
            if block > 1:
                series = _taylor(x, block / mpmath.mpf(sigma), work)
            for z in range(first, min(first + block, reach + 1)):
                offset = z - centre
                total = 0
                for coefficient in reversed(series):
                    total = (total + coefficient) * offset // block
                tails.append((start + total + (1 << (_GUARD_BITS - 1))) >> _GUARD_BITS)
    return tuple(tails)


def _taylor(x: mpmath.mpf, width: mpmath.mpf, work: int) -> list[int]:
    """Coefficients of ``Q(x + u·width) − Q(x)`` in powers u, u², … for |u| ≤ ½, times 2^work.

    They follow from ``He_{n+1}(x) = x He_n(x) − n He_{n−1}(x)``, each with its power of the width
    and its factorial.
    """
    step, square = (int(mpmath.ldexp(factor, work)) for factor in (x * width, width * width))
    density = mpmath.exp(-x * x / 2) / mpmath.sqrt(2 * mpmath.pi)
    term = -int(mpmath.ldexp(density * width, work))
    before = 0
    series: list[int] = []
    while len(series) < 2 or any(abs(c) >> (len(series) // 2) for c in series[-2:]):
        series.append(term)
        n = len(series)
        change = step * term + (n - 1) * square // n * before
        term, before = -(change >> work) // (n + 1), term
    return series
