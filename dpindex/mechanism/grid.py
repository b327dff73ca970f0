"""The integer grid: real attributes become exact integers, whose sensitivity is known exactly.

Floating-point noise on floating-point data leaks through the low bits (Mironov 2012; Haney et al.
2022). So attributes are rounded to integers first, every projection has integer entries and is
therefore exact in any order and on any machine, and noise is drawn in integers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from dpindex.base.arrays import AnyArray, Floats
from dpindex.base.checks import Fault, not_finite
from dpindex.base.errors import NoGuaranteeError

__all__ = ["AnyNumbers", "Grid", "grid_point", "grid_step", "neighbour_distance"]

_SLACK = 1.0 - 2.0**-16
"""One beta spans this fraction of 2^bits steps, so that rounding cannot push it over 2^bits."""

_FLOAT32_EXACT = 2**24
_FLOAT32_REACH = 32
"""Largest |attribute|/beta for which float32 scaling stays within the slack (see ``Grid``)."""

_MIN_UNIT = 1e-30
_MAX_UNIT = 1e30
"""Where beta × scale must lie so that neither float type loses bits to under- or overflow."""


def grid_step(beta: float, bits: int) -> float:
    """Width of a grid step in units of the scaled attribute."""
    return beta / ((1 << bits) * _SLACK)


def grid_point(value: float, beta: float, bits: int) -> int:
    """The grid integer of one public value of the scaled attribute."""
    return int(np.rint(value / grid_step(beta, bits)))


def neighbour_distance(radius: float, bits: int, bounds: tuple[float, float], dim: int) -> float:
    """Most grid steps (L2) between two rounded vectors that lay within ``radius`` of each other.

    ``2^bits`` for the radius and, for each of ``dim`` coordinates, one for rounding and the errors
    of the three float operations before it, in the float type that :class:`Grid` would use.
    """
    reach = max(abs(bounds[0]), abs(bounds[1]))
    roundoff = 2.0**-24 if reach <= _FLOAT32_REACH * radius else 2.0**-53
    errors = 2 * 3 * roundoff * reach / grid_step(radius, bits)
    return float(1 << bits) + math.sqrt(dim) * (1.0 + errors)


@dataclass(frozen=True)
class Grid:
    """Rounds attributes to integers such that a change of one beta moves one of them by ≤ 2^bits.

    An attribute ``u = x / scale`` becomes ``rint(u · c)`` with ``c = 2^bits · (1 − 2⁻¹⁶) / beta``.

    *Why the sensitivity is exactly* ``2^bits``. Rounding to even is monotone and commutes with
    even integers, so a real change of at most ``2^bits`` steps changes the result by at most
    ``2^bits``. Computing ``u·c`` in floats (conversion, factor, product: three roundings) moves
    each of two neighbours by at most ``3·2⁻²⁴·|u·c|`` in float32; with ``|u| ≤ 32·beta`` that is
    together less than the ``2⁻¹⁶·2^bits`` steps held back. Beyond that reach, or where sums could
    pass 2²⁴ and stop being exact, float64 is used, within the limits of ``check_capacity``. The
    choice depends on public parameters only, never on the input's dtype, so a phone and a server
    produce the same bits.

    Parameters
    ----------
    beta : float
        The neighbouring step in units of the scaled attribute, (0, ∞).
    bits : int
        Grid bits per beta, [1, 24].
    scale : float
        Public divisor of every attribute, (0, ∞).
    bounds : (float, float)
        Public range of a scaled attribute; values outside are refused, or clipped.
    clip : bool
        Clip to the bounds instead of refusing.
    max_column_l1 : int
        The most attributes that one projected coordinate sums.
    """

    beta: float
    bits: int
    scale: float
    bounds: tuple[float, float]
    clip: bool
    max_column_l1: int

    @property
    def step(self) -> float:
        """Width of a grid step in units of the scaled attribute."""
        return grid_step(self.beta, self.bits)

    @property
    def reach(self) -> float:
        """Largest magnitude of a scaled attribute."""
        return max(abs(self.bounds[0]), abs(self.bounds[1]))

    @property
    def dtype(self) -> type[np.float32] | type[np.float64]:
        """The float type whose integers hold every sum exactly, decided by public parameters."""
        narrow = self.reach <= _FLOAT32_REACH * self.beta and self._largest_sum < _FLOAT32_EXACT
        if narrow:
            return np.float32
        return np.float64

    @property
    def _largest_sum(self) -> float:
        return (self.reach / self.step + 1) * self.max_column_l1

    def check_capacity(self, most: int) -> None:
        """Refuse parameters whose sums could reach ``most``, or that strain the float types.

        ``most`` is at most 2^46: below it, the roundings of float64 stay within the slack.
        """
        if not _MIN_UNIT <= self.beta * self.scale <= _MAX_UNIT:
            raise NoGuaranteeError(
                f"beta × scale must lie in [{_MIN_UNIT:g}, {_MAX_UNIT:g}], not "
                f"{self.beta * self.scale:g}."
            )
        if self._largest_sum >= most:
            raise NoGuaranteeError(
                f"bounds {self.bounds} are too wide for beta = {self.beta:g}: sums over "
                f"{self.max_column_l1} attributes would not be exact; narrow the bounds or raise "
                f"beta."
            )

    def first_fault(self, x: AnyArray) -> Fault | None:
        """Index of the first value that may not be privatized, and what is wrong with it.

        The value itself is private and never shown.
        """
        if x.size == 0:
            return None
        low, high = _accepted(*self._limits, x.dtype)
        # min and max carry NaN along, so these two passes see every kind of fault.
        smallest = float(x.min())
        largest = float(x.max())
        if low <= smallest and largest <= high:
            return None
        fault = not_finite(x)
        if fault or self.clip:
            return fault
        # In float64 like the test above: float32 would compare with bounds rounded to float32.
        wide = x.astype(np.float64)
        place = tuple(int(i) for i in np.argwhere((wide < low) | (wide > high))[0])
        after = ""
        if self.scale != 1:
            after = f" after division by scale {self.scale:g}"
        remedy = "set scale or bounds to what is publicly known, or clip"
        if x.dtype == np.uint8 and self.scale == 1:
            remedy = "values of one byte lie within scale 255 and bounds 0 1"
        return place, (
            f"lies outside the public bounds [{self.bounds[0]:g}, {self.bounds[1]:g}]{after}; "
            f"{remedy}"
        )

    @property
    def _limits(self) -> tuple[float, float]:
        return self.bounds[0] * self.scale, self.bounds[1] * self.scale

    def round(self, x: AnyArray) -> Floats:
        """Grid integers, held exactly in floats of ``dtype``, of faultless attributes ``x``.

        ``x`` holds attributes before division by ``scale``, of any shape and real dtype.
        """
        if self.clip or _accepted(*self._limits, x.dtype) != self._limits:
            x = np.clip(x.astype(np.float64), *self._limits)
        factor = self.dtype(1.0 / (self.step * self.scale))
        out = np.multiply(x, factor, dtype=self.dtype, casting="unsafe")
        return np.rint(out, out=out)


@lru_cache(maxsize=64)
def _accepted(low: float, high: float, dtype: np.dtype[Any]) -> tuple[float, float]:
    """The limits, or where they come to lie in the data's own floats if that is further out.

    float32(0.1) lies above 0.1, and is what 0.1 becomes in float32. ``Grid.round`` moves such a
    value back to the limit. Clipping never moves two vectors apart, and it leaves all within the
    bounds, so neither the sensitivity nor the capacity of the grid depends on this.
    """
    if dtype.kind != "f" or dtype.itemsize >= 8:
        return low, high
    with np.errstate(over="ignore"):
        nearest = np.array([low, high]).astype(dtype).astype(np.float64)
    if not np.isfinite(nearest).all():
        return low, high
    return min(low, float(nearest[0])), max(high, float(nearest[1]))


class AnyNumbers:
    """In place of a grid, for methods whose guarantee holds for any input: finite numbers."""

    step = 1.0
    bits = 0

    def check_capacity(self, most: int) -> None:
        """Any input fits."""

    def first_fault(self, x: AnyArray) -> Fault | None:
        """Index of the first value that is not finite in 64 bits, and what is wrong with it."""
        with np.errstate(over="ignore"):
            return not_finite(x.astype(np.float64, copy=False))

    def round(self, x: AnyArray) -> AnyArray:
        """The numbers as they are."""
        return x
