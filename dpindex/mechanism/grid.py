"""The whole numbers that attributes are rounded to, so that sums are exact, and windows on them.

A window is what an attribute is clipped to before its noise is calibrated:
``f_j(x) = clip((x_j − lo_j)/w_j, 0, 1)`` with public ``lo_j`` and ``w_j``. Whatever attribute j was
and becomes, ``f_j`` moves by at most 1 and no other coordinate of f moves, so everything that is
proved of vectors of which one attribute changes by one beta holds of f with 1 for beta: ``W f``
moves by at most ``‖W_:j‖₁`` in L1 (Laplace: Dwork et al. 2006), and scores of codewords move apart
by at most what their weights of j differ (bounded range: Durfee & Rogers 2019). A window narrower
than one beta makes the noise as narrow as the window. One that is wider than beta is divided by
beta, as an attribute is without a window.

In integers a window of at most one beta is ``2^bits`` steps whatever it spans: a rounded value is
clipped to 0 … 2^bits, so no rounding can lead beyond.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np

from dpindex.base.arrays import AnyArray, Doubles, Floats, Longs, row_blocks
from dpindex.base.checks import Fault, not_finite
from dpindex.base.errors import NoGuaranteeError

STEPS = 1 << 16
"""Whole steps in which windows are stated, to a beta."""

_FARTHEST = 1 << 60
_LEAST = STEPS >> 6
"""Narrower windows would blow up what hardly varies."""


@dataclass(frozen=True, eq=False)
class Windows:
    """One window for each attribute, in whole steps of ``beta/2^16``.

    Attributes
    ----------
    low, width : int64 arrays, shape (dim,)
        The window of attribute j is ``[low_j, low_j + width_j]`` steps; it is empty, and the
        attribute always the same, where ``width_j`` is not above 0.
    beta : float
        The change of a scaled attribute that they were made for.
    """

    low: Longs
    width: Longs
    beta: float

    @classmethod
    def about(
        cls,
        middle: Doubles,
        deviation: Doubles,
        span: tuple[AnyArray, AnyArray],
        half_width: float,
        beta: float,
    ) -> Windows:
        """Return windows of some deviations to either side of public middles, inside the span.

        Parameters
        ----------
        middle, deviation : arrays, shape (dim,)
            Of scaled attributes in public, in steps.
        span : two arrays, shape (dim,)
            The least and the largest public value of each, in steps.
        half_width : float
            Deviations, (0, ∞).
        """
        least = np.floor(span[0])
        largest = np.ceil(span[1])
        width = np.rint(2.0 * half_width * deviation)
        width = np.clip(width, _LEAST, np.maximum(largest - least, _LEAST))
        low = np.rint(middle) - width // 2
        low = np.maximum(np.minimum(low, largest - width), least)
        low, width = (np.clip(steps, -_FARTHEST, _FARTHEST) for steps in (low, width))
        return cls(low.astype(np.int64), width.astype(np.int64), beta)

    @classmethod
    def of_sample(cls, rows: Doubles, half_width: float, beta: float) -> Windows:
        """Return windows about the medians of public rows, shape (n, dim), the same everywhere.

        Medians pick values and sums are of integers: no machine comes to other ones.
        """
        steps = np.rint(rows / (beta / STEPS)).astype(np.int64)
        count = len(steps)
        mean = steps.sum(axis=0) / count
        square = (steps**2).sum(axis=0) / count
        deviation = np.sqrt(np.maximum(square - mean**2, 0.0))
        middle = np.floor(np.median(steps, axis=0))
        span = (steps.min(axis=0), steps.max(axis=0))
        return cls.about(middle, deviation, span, half_width, beta)

    def spread(self, attributes: AnyArray, dim: int) -> Windows:
        """Return windows of all ``dim`` attributes: these, and none for the other attributes."""
        low = np.zeros(dim, dtype=np.int64)
        width = np.zeros(dim, dtype=np.int64)
        low[attributes] = self.low
        width[attributes] = self.width
        return Windows(low, width, self.beta)

    def ends(self, bounds: tuple[float, float]) -> tuple[Doubles, Doubles]:
        """Return both ends of every window within the bounds, in units of scaled attributes."""
        step = self.beta / STEPS
        low = np.clip(self.low * step, *bounds)
        high = np.clip((self.low + self.width) * step, *bounds)
        return low, np.maximum(low, high)

    def clipped(self, x: Doubles) -> Doubles:
        """Return scaled attributes in their windows, in units of a window or, if less, of beta."""
        step = self.beta / STEPS
        low = self.low * step
        inside = np.clip(x, low, low + self.width * step) - low
        return inside / self._unit

    def placed(self, f: Doubles) -> Doubles:
        """Return the inverse of :meth:`clipped`: scaled attributes with such values of f."""
        return self.low * (self.beta / STEPS) + f * self._unit

    @property
    def _unit(self) -> Doubles:
        return np.minimum(self.width, STEPS) * (self.beta / STEPS)


SLACK = 1.0 - 2.0**-16
"""One beta spans this fraction of 2^bits steps, so that rounding cannot push it over 2^bits."""

GRID_BITS = 12
"""Grid bits per beta, unless a law needs a finer grid, or a projection a coarser one."""

_FLOAT32_EXACT = 2**24
_FLOAT32_REACH = 32
"""Largest |attribute|/beta for which float32 scaling stays within the slack (see ``Grid``)."""

_LEAST_WIDTH = 2.0**-20
"""Windows of a smaller share of a beta are empty."""

_BEYOND = 2.0**50
_CACHED = 1 << 16

_MIN_UNIT = 1e-30
_MAX_UNIT = 1e30
"""Where beta × scale must lie so that neither float type loses bits to under- or overflow."""


def grid_step(beta: float, bits: int) -> float:
    """Width of a grid step in units of the scaled attribute."""
    return beta / ((1 << bits) * SLACK)


def grid_point(value: float, beta: float, bits: int) -> int:
    """The grid integer of one public value of the scaled attribute."""
    return int(np.rint(value / grid_step(beta, bits)))


def neighbour_distance(
    radius: float,
    bits: int,
    bounds: tuple[float, float],
    dim: int,
) -> float:
    """Most grid steps (L2) between two rounded vectors that lay within ``radius`` of each other.

    ``2^bits`` for the radius and, for each of ``dim`` coordinates, one for rounding and the errors
    of the three float operations before it, in the float type that :class:`Grid` would use.
    """
    if radius < _MIN_UNIT:
        raise NoGuaranteeError(f"l2 must be at least {_MIN_UNIT:g}, not {radius:g}.")
    reach = max(abs(bounds[0]), abs(bounds[1]))
    roundoff = 2.0**-53
    if reach <= _FLOAT32_REACH * radius:
        roundoff = 2.0**-24
    errors = 2 * 3 * roundoff * reach / grid_step(radius, bits)
    of_rounding = math.sqrt(dim) * (1.0 + errors)
    return float(1 << bits) + of_rounding


class Placed(NamedTuple):
    """Windows as a grid rounds into them, by attribute; all in the floats of the grid.

    Attributes
    ----------
    factor : array, shape (dim,)
        Grid steps to a unit of an attribute before division by ``scale``.
    low, top : arrays of whole numbers, shape (dim,)
        ``rint(x·factor) − low`` is clipped to 0 … ``top``.
    """

    factor: Floats
    low: Floats
    top: Floats


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

    *With windows* it becomes ``clip(rint(u · c_j) − l_j, 0, t_j)``. A window of at most one beta
    has ``t_j = 2^bits`` and a factor that makes it so wide: it moves by no more, however floats
    round. A wider one has the c above, and clipping moves no two values apart.

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
    windows : Windows, optional
        What attributes are clipped to.
    """

    beta: float
    bits: int
    scale: float
    bounds: tuple[float, float]
    clip: bool
    max_column_l1: int
    windows: Windows | None = None

    @cached_property
    def step(self) -> float:
        """Width of a grid step in units of the scaled attribute."""
        return grid_step(self.beta, self.bits)

    @cached_property
    def reach(self) -> float:
        """Largest magnitude of a scaled attribute."""
        return max(abs(self.bounds[0]), abs(self.bounds[1]))

    @cached_property
    def dtype(self) -> type[np.float32] | type[np.float64]:
        """The float type whose integers hold every sum exactly, decided by public parameters."""
        narrow = self.reach <= _FLOAT32_REACH * self.beta and self._largest_sum < _FLOAT32_EXACT
        if narrow:
            return np.float32
        return np.float64

    @cached_property
    def _largest_sum(self) -> float:
        largest = self.reach / self.step + 1
        if self.windows is not None:
            low, high = self.windows.ends(self.bounds)
            widest = float((high - low).max())
            largest = max(float(1 << self.bits), widest / self.step + 1)
        return largest * self.max_column_l1

    @property
    def unit_step(self) -> float:
        """Width of a step of a rounded attribute: in units of windows, if there are some."""
        return self.step if self.windows is None else 1.0 / (1 << self.bits)

    @cached_property
    def placed(self) -> Placed:
        """The windows of a grid that has some."""
        if self.windows is None:
            raise TypeError("this grid has no windows")
        low, high = self.windows.ends(self.bounds)
        width = high - low
        whole = 1.0 / (self.step * self.scale)
        # An empty window lies beyond all values: each is clipped to 0.
        empty = width <= self.beta * _LEAST_WIDTH
        narrow = (width <= self.beta) & ~empty
        per_unit = np.full(len(width), whole)
        np.divide((1 << self.bits) / self.scale, width, out=per_unit, where=narrow)
        factor: Floats = per_unit.astype(self.dtype)
        scaled = factor.astype(np.float64) * self.scale
        first = np.where(empty, _BEYOND, np.rint(low * scaled))
        top = np.where(narrow | empty, 1 << self.bits, np.rint(width * scaled))
        return Placed(factor, first.astype(self.dtype), top.astype(self.dtype))

    @cached_property
    def zero(self) -> Floats:
        """What a grid with windows makes of attributes that are 0, shape (dim,)."""
        return self.round(np.zeros(len(self.placed.top), dtype=self.dtype))

    def check_unit(self) -> None:
        """Refuse a beta and a scale that strain the float types."""
        if not _MIN_UNIT <= self.beta * self.scale <= _MAX_UNIT:
            raise NoGuaranteeError(
                f"beta × scale must lie in [{_MIN_UNIT:g}, {_MAX_UNIT:g}], not "
                f"{self.beta * self.scale:g}."
            )

    def check_capacity(self, most: int) -> None:
        """Refuse parameters whose sums could reach ``most``, or that strain the float types.

        ``most`` is at most 2^46: below it, the roundings of float64 stay within the slack.
        """
        self.check_unit()
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
        return first_fault(x, self.bounds, self.scale, self.clip)

    @cached_property
    def limits(self) -> tuple[float, float]:
        return self.bounds[0] * self.scale, self.bounds[1] * self.scale

    def outside(self, x: AnyArray) -> int:
        """How many values lie outside the bounds."""
        low, high = _accepted(*self.limits, x.dtype)
        outside = (x < low) | (x > high)
        return int(np.count_nonzero(outside))

    def round(self, x: AnyArray, attributes: AnyArray | None = None) -> Floats:
        """Grid integers, held exactly in floats of ``dtype``, of faultless attributes ``x``.

        Parameters
        ----------
        x : array, shape (…, dim), or (m,) of stored entries of sparse rows
            Attributes before division by ``scale``, of any real dtype.
        attributes : int array, shape (m,), optional
            Where stored entries stand. With windows they become what they are above :attr:`zero`.
        """
        if self.windows is not None:
            return self.in_windows(x, attributes)
        rounded = self._rounded(x)
        accepted = _accepted(*self.limits, x.dtype)
        if self.clip or accepted != self.limits:
            # Each step of rounding is monotone: the same comes out as of clipping before it.
            low, high = self._rounded(np.array(self.limits))
            np.clip(rounded, low, high, out=rounded)
        return rounded

    def in_windows(self, x: AnyArray, attributes: AnyArray | None = None) -> Floats:
        """:meth:`round` of a grid with windows."""
        placed = self.placed
        if attributes is not None:
            placed = Placed(*(values[attributes] for values in placed))
        table = np.atleast_2d(x)
        rounded: Floats = np.empty(table.shape, dtype=self.dtype)
        zero = self.dtype(0)
        highest: Any = placed.top
        if highest.size and (highest == highest[0]).all():
            highest = highest[0]  # numpy clips to a single number in half the time
        # All steps of a few rows while they are in the cache.
        for rows in row_blocks(len(table), max(1, _CACHED // max(1, table.shape[1]))):
            part = rounded[rows]
            with np.errstate(over="ignore"):
                np.multiply(
                    table[rows],
                    placed.factor,
                    out=part,
                    dtype=self.dtype,
                    casting="unsafe",
                )
            np.rint(part, out=part)
            part -= placed.low
            np.clip(part, zero, highest, out=part)
        if attributes is not None:
            rounded -= self.zero[attributes]
        return rounded.reshape(x.shape)

    def _rounded(self, x: AnyArray) -> Floats:
        per_unit = 1.0 / (self.step * self.scale)
        factor = self.dtype(per_unit)
        with np.errstate(over="ignore"):
            rounded = np.multiply(x, factor, dtype=self.dtype, casting="unsafe")
        return np.rint(rounded, out=rounded)


def first_fault(x: AnyArray, bounds: tuple[float, float], scale: float, clip: bool) -> Fault | None:
    """Index of the first value that is not finite or, unless they are clipped, outside the bounds.

    With what is wrong with it.
    """
    if x.size == 0:
        return None
    low, high = _accepted(bounds[0] * scale, bounds[1] * scale, x.dtype)
    # min and max carry NaN along, so these two passes see every kind of fault.
    smallest = float(x.min())
    largest = float(x.max())
    if low <= smallest and largest <= high:
        return None
    fault = not_finite(x)
    if fault or clip:
        return fault
    # In float64 like the test above: float32 would compare with bounds rounded to float32.
    wide = x.astype(np.float64)
    outside = (wide < low) | (wide > high)
    place = tuple(np.argwhere(outside)[0].tolist())
    after = ""
    if scale != 1:
        after = f" after division by scale {scale:g}"
    remedy = "set scale or bounds to what is publicly known, or clip"
    if x.dtype == np.uint8 and scale == 1:
        remedy = "values of one byte lie within scale 255 and bounds 0 1"
    first, last = bounds
    return place, (f"lies outside the public bounds [{first:g}, {last:g}]{after}; {remedy}")


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
        nearest = np.array([low, high]).astype(dtype)
    nearest_low, nearest_high = nearest.tolist()
    if not np.isfinite(nearest).all():
        return low, high
    return min(low, nearest_low), max(high, nearest_high)
