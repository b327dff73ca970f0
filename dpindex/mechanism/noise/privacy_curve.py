"""The Gaussian mechanism's delta at an epsilon, and the least sigma and epsilon for a delta.

Balle & Wang 2018, Thm 8: noise ``N(0, σ²)`` on a query of L2 sensitivity 1 is (ε, δ)-DP exactly if
``Φ(−a) − e^ε Φ(−b) ≤ δ`` with ``a = εσ − 1/2σ`` and ``b = εσ + 1/2σ``.

*On which side this errs.* A search in high precision proposes a number, and only proposes it: the
number is returned once all of :func:`delta_interval` is at most δ. An error of the search can add
noise, never take any.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mpmath
from mpmath.ctx_iv import MPIntervalContext

_DIGITS = 32
"""Significant bits of what is found: it exceeds the least number by at most 2⁻³¹ of it."""

_GUARD = 96
"""Bits beyond those that cancel."""


def least_sigma(epsilon: float, delta: float) -> float:
    """The least number of 32 significant bits that is proved to be an admissible sigma.

    >>> least_sigma(1.0, 1e-6)
    4.2246788907796144
    """
    return _least_proved(lambda sigma: (sigma, epsilon), delta)


def least_epsilon(sigma: float, delta: float) -> float:
    """The least epsilon of 32 significant bits that is proved for noise of this sigma, or 0.

    >>> least_epsilon(least_sigma(1.0, 1e-6), 1e-6)
    0.9999999997671694
    """
    if _proved(sigma, 0.0, delta):
        return 0.0
    return _least_proved(lambda epsilon: (sigma, epsilon), delta)


def _least_proved(
    noise_of: Callable[[float], tuple[float, float]],
    delta: float,
) -> float:
    """The least number that is proved, ``noise_of`` which gives a sigma and an epsilon."""
    number = _least(lambda number: bool(_delta_near(*noise_of(number), delta) <= delta))
    while not _proved(*noise_of(number), delta):
        number = _next(number)
    return number


def _proved(sigma: float, epsilon: float, delta: float) -> bool:
    # The comparison of an interval is True, False or, where delta lies inside, None.
    return bool(delta_interval(sigma, epsilon, delta) <= delta)


def delta_interval(sigma: float, epsilon: float, delta: float) -> Any:
    """An interval that contains Balle & Wang's delta, far shorter than ``delta``.

    With ``φ(a) = e^ε φ(b)``, as b² − a² = 2ε, and ``Φ(x) = ½ + φ(x)·S(x)``,
    ``S(x) = x + x³/3 + x⁵/(3·5) + …`` (Abramowitz & Stegun 26.2.11), the delta of Thm 8 is
    ``φ(a)·(S(b) − S(a)) − (e^ε − 1)/2``. Every operation rounds outward.
    """
    iv = MPIntervalContext()
    iv.prec = _precision(epsilon, delta)
    half = 1 / (2 * iv.mpf(sigma))
    middle = iv.mpf(epsilon) * iv.mpf(sigma)
    a = middle - half
    b = middle + half
    density = iv.exp(-a * a / 2) / iv.sqrt(2 * iv.pi)
    apart = _odd_series(iv, b) - _odd_series(iv, a)
    return density * apart - (iv.exp(iv.mpf(epsilon)) - 1) / 2


def _odd_series(iv: Any, x: Any) -> Any:
    """``S(x)`` as an interval.

    Where a ratio of neighbouring terms has fallen below ½ so are all later ones, so that what is
    left out is between 0 and the last term.
    """
    square = x * x
    term = total = x
    order = 1
    small = mpmath.ldexp(1, -iv.prec)
    while True:
        order += 2
        ratio = square / order
        term *= ratio
        total += term
        if ratio.b < 0.5 and abs(term).b < small * abs(total).b:
            return total + term * iv.mpf([0, 1])


def _delta_near(sigma: float, epsilon: float, delta: float) -> mpmath.mpf:
    """Balle & Wang's delta without a bound on its error."""
    with mpmath.workprec(_precision(epsilon, delta)):
        half = 1 / (2 * mpmath.mpf(sigma))
        middle = mpmath.mpf(epsilon) * sigma
        return mpmath.ncdf(half - middle) - mpmath.exp(epsilon) * mpmath.ncdf(-half - middle)


def _precision(epsilon: float, delta: float) -> int:
    """Bits that cancel, as terms are as large as e^ε and as small as delta; and the guard's."""
    return math.ceil(1.4427 * epsilon - math.log2(delta)) + _GUARD


def _least(enough: Callable[[float], bool]) -> float:
    """The least positive number of 32 significant bits with which a monotone test passes."""
    exponent = 0
    while not enough(math.ldexp(1.0, exponent)):
        exponent += 1
    while enough(math.ldexp(1.0, exponent - 1)):
        exponent -= 1
    # The test passes with 2^exponent and fails with half of it: the least number lies between.
    unit = exponent - _DIGITS
    low = 1 << _DIGITS - 1
    high = 1 << _DIGITS
    while high - low > 1:
        middle = (low + high) // 2
        if enough(math.ldexp(middle, unit)):
            high = middle
        else:
            low = middle
    return math.ldexp(high, unit)


def _next(number: float) -> float:
    """The next larger number of 32 significant bits."""
    digits, exponent = math.frexp(number)
    return math.ldexp(digits * 2.0**_DIGITS + 1, exponent - _DIGITS)
