"""Stated numbers that know on which side of the truth they are: bounds are rounded to that side."""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import ClassVar

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
