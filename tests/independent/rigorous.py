"""Powers of e from rigorous intervals, for checks in exact arithmetic."""

from fractions import Fraction
from functools import lru_cache

import mpmath

_WORK = 1200


def exp_below(x, bits):
    """``⌊2^bits · e^x⌋``, or one less."""
    return _scaled(x, bits)[0]


def exp_between(x):
    """Rational numbers on either side of e^x, 2^-600 apart."""
    low, high = _scaled(x, 600)
    return Fraction(low, 1 << 600), Fraction(high + 1, 1 << 600)


@lru_cache(maxsize=64)
def _scaled(x, bits):
    exact = Fraction(x)
    before = mpmath.iv.prec
    mpmath.iv.prec = _WORK
    try:
        power = mpmath.iv.exp(mpmath.iv.mpf(exact.numerator) / exact.denominator)
        with mpmath.workprec(_WORK):
            ends = (mpmath.floor(mpmath.ldexp(mpmath.mpf(end), bits)) for end in (power.a, power.b))
            low, high = (int(end) for end in ends)
    finally:
        mpmath.iv.prec = before
    return low, high


def gaussian_delta(sigma, epsilon):
    """Delta of noise of so many times the sensitivity (Balle & Wang 2018, Thm 8).

    To the digits that mpmath works with, by its own normal law.
    """
    half = 1 / (2 * mpmath.mpf(sigma))
    middle = mpmath.mpf(epsilon) * sigma
    return mpmath.ncdf(half - middle) - mpmath.exp(epsilon) * mpmath.ncdf(-half - middle)
