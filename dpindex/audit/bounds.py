"""Bounds of e^x and √x in exact integers: they err on the safe side of every check."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

__all__ = ["above_root", "exp_below", "loss_within"]

_BITS = 384
_ROOT_BITS = 320


@lru_cache(maxsize=4096)
def exp_below(x: Fraction) -> tuple[int, int]:
    """Integers ``(m, w)`` with ``m / 2^w ≤ e^x`` for a rational x ≥ 0, tight to about 2^-384.

    Taylor's series of ``e^(x/2^s)`` with x/2^s below 1, squared s times. Every term is positive and
    every division rounds down, so the result is a lower bound whatever the precision; integers
    only, and nothing shared with the code that calibrates the laws.

    >>> m, w = exp_below(Fraction(1))
    >>> m / 2**w
    2.718281828459045
    """
    squarings = max(0, math.ceil(x)).bit_length()
    work = _BITS + 2 * squarings + 32
    argument = (x.numerator << work) // (x.denominator << squarings)
    total = term = 1 << work
    order = 1
    while term:
        term = (term * argument >> work) // order
        total += term
        order += 1
    for _ in range(squarings):
        total = total * total >> work
    return total, work


def loss_within(ratio: tuple[int, int], epsilon: Fraction) -> bool:
    """Whether ``ratio[0] / ratio[1] ≤ e^ε``, decided in integers against a lower bound of e^ε.

    >>> loss_within((271, 100), Fraction(1)), loss_within((272, 100), Fraction(1))
    (True, False)
    """
    below, shift = exp_below(epsilon)
    return ratio[0] << shift <= below * ratio[1]


def above_root(x: Fraction) -> Fraction:
    """Square root of x ≥ 0, rounded up by at most 2^-319."""
    return Fraction(math.isqrt(int(x * (1 << 2 * _ROOT_BITS))) + 1, 1 << _ROOT_BITS)
