"""Numbers rounded to a known side: stated bounds, and tails of the normal law as integers.

All without ``scipy.special``, which takes a quarter of a second to import.
"""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from functools import cache, lru_cache
from statistics import NormalDist
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from dpindex.base.arrays import Doubles

if TYPE_CHECKING:
    import mpmath

_GUARD_BITS = 64
_HALF = 1 << (_GUARD_BITS - 1)
_PRECISION = re.compile(r"(?:\.(\d+))?([gf%])")
_DIGITS = 400
"""More than any float needs."""


class _Bound(float):
    """A float that formats as a number on the safe side of it."""

    __slots__ = ()
    _rounding: ClassVar[str]

    def __format__(self, form: str) -> str:
        precision = _PRECISION.fullmatch(form)
        number = Decimal(repr(float(self)))
        if precision is None or not number.is_finite():
            return float.__format__(self, form)
        digits = int(precision[1] or 6)
        if precision[2] == "g":
            number = Context(max(1, digits), self._rounding).plus(number)
        else:
            places = digits + 2 * (precision[2] == "%")
            number = number.quantize(Decimal(1).scaleb(-places), self._rounding, Context(_DIGITS))
        return float.__format__(float(number), form)


class UpperBound(_Bound):
    """A number that is never exceeded: what an epsilon, a delta or a rate of success is at most.

    >>> f"{UpperBound(0.1234561):g}", f"{UpperBound(0.4):.0%}", f"{UpperBound(1.001):.1f}"
    ('0.123457', '40%', '1.1')
    """

    __slots__ = ()
    _rounding = ROUND_CEILING


class LowerBound(_Bound):
    """A number that is never fallen short of: the change that an epsilon pays for.

    >>> f"{LowerBound(2 / 3):g}"
    '0.666666'
    """

    __slots__ = ()
    _rounding = ROUND_FLOOR


@cache
def quantiles(count: int) -> Doubles:
    """Standard normal quantiles of the probabilities (i + ½)/count, shape (count,).

    >>> quantiles(2).round(4)
    array([-0.6745,  0.6745])
    """
    inverse = NormalDist().inv_cdf
    probabilities = [(i + 0.5) / count for i in range(count)]
    values = np.array(list(map(inverse, probabilities)))
    values.flags.writeable = False  # it is shared
    return values


@lru_cache(maxsize=8)  # an index and its queries, or several of one spec, have the same law
def upper_tails(
    sigma: float,
    bits: int,
    reach: int,
) -> tuple[int, ...]:
    """``2^bits · P(N(0, σ²) > z − ½)`` for z = 1 … reach, each within one unit.

    erfc in high precision is slow, so it is evaluated eight times a deviation only; in between
    Taylor's series ``Q(x+t) = Q(x) − φ(x) Σ (−1)^n He_n(x) t^{n+1}/(n+1)!`` runs in integers.
    """
    # here: bounds are printed by commands that draw no noise
    import mpmath

    block = max(1, int(sigma / 8))
    work = bits + _GUARD_BITS
    tails: list[int] = []
    with mpmath.workprec(work + _GUARD_BITS):
        for first in range(1, reach + 1, block):
            centre = first + block // 2
            x = (centre - mpmath.mpf(0.5)) / sigma
            tail = mpmath.erfc(x / mpmath.sqrt(2)) / 2
            start = int(mpmath.ldexp(tail, work))
            series = []
            if block > 1:
                series = _taylor(x, block / mpmath.mpf(sigma), work)
            for z in range(first, min(first + block, reach + 1)):
                offset = z - centre
                total = 0
                for coefficient in reversed(series):
                    total = (total + coefficient) * offset // block
                tail = start + total + _HALF
                tails.append(tail >> _GUARD_BITS)
    return tuple(tails)


def _taylor(
    x: mpmath.mpf,
    width: mpmath.mpf,
    work: int,
) -> list[int]:
    """Coefficients of ``Q(x + u·width) − Q(x)`` in powers u, u², … for |u| ≤ ½, times 2^work.

    They follow from ``He_{n+1}(x) = x He_n(x) − n He_{n−1}(x)``, each with its power of the width
    and its factorial.
    """
    import mpmath

    step = int(mpmath.ldexp(x * width, work))
    square = int(mpmath.ldexp(width * width, work))
    density = mpmath.exp(-x * x / 2) / mpmath.sqrt(2 * mpmath.pi)
    term = -int(mpmath.ldexp(density * width, work))
    before = 0
    series: list[int] = []
    while len(series) < 2 or any(abs(c) >> (len(series) // 2) for c in series[-2:]):
        series.append(term)
        n = len(series)
        change = step * term + (n - 1) * square // n * before
        before = term
        term = -(change >> work) // (n + 1)
    return series
