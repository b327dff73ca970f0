"""The public fields of a spec, each checked by itself, and the grid that attributes lie on."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import Field, dataclass, field, fields, replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np

from dpindex.base.arrays import AnyArray, Floats, row_blocks
from dpindex.base.checks import (
    MAX_TEXT,
    Fault,
    checked_epsilon,
    checked_fields,
    finite_number,
    json_value,
    not_finite,
    whole_number,
)
from dpindex.base.display import facts_html
from dpindex.base.errors import InputError, NoGuaranteeError
from dpindex.base.files import AnyPath, parse_file
from dpindex.data import Ranges
from dpindex.mechanism.public_parts import PARTS, Codebook, Design, PublicPart
from dpindex.mechanism.windows import Windows
from dpindex.privacy import VectorAdjacency, adjacency_from_dict

_FORMAT = 1
_OBJECTS: dict[str, Callable[[Any], Any]] = {
    "codebook": Codebook.named,
    "design": Design.named,
    "ranges": Ranges.from_dict,
}
"""Fields that are objects of their own, and how they are read from JSON."""

_Stated = TypeVar("_Stated", bound="Parameters")
_Part = TypeVar("_Part", bound=PublicPart)


@dataclass(frozen=True, repr=False)
class Parameters:
    """The public fields of a spec, described in :class:`dpindex.Spec`, each checked by itself.

    Raises
    ------
    InputError
        One sentence for a field of a wrong type or outside its range.
    """

    method: str
    dim: int
    k: int | None = None
    epsilon: float | None = None
    delta: float = 0.0
    adjacency: VectorAdjacency = field(kw_only=True)
    repetitions: int = 1
    scale: float = 1.0
    ranges: Ranges | None = None
    bounds: tuple[float, float] = (-1.0, 1.0)
    clip: bool = False
    min_norm: float | None = None
    norm: float | None = None
    seed: int = 0
    entries: str | None = None
    sparsity: int | None = None
    codebook: Codebook | None = None
    subset: int | None = None
    design: Design | None = None
    record_epsilon: float | None = None
    window: float | None = None

    def __post_init__(self) -> None:
        values: dict[str, Any] = {
            "dim": whole_number(self.dim, "dim", 1, 2**31 - 1),
            "repetitions": whole_number(self.repetitions, "repetitions", 1, 1024),
            "seed": whole_number(self.seed, "seed", 0, 2**63 - 1),
            "scale": finite_number(self.scale, "scale", above=0.0),
            "delta": finite_number(self.delta, "delta"),
            "bounds": _interval(self.bounds),
        }
        if self.k is not None:
            max_length = max(1 << 20, values["dim"] * values["repetitions"])
            values["k"] = whole_number(self.k, "k", 1, max_length)
        if self.epsilon is not None:
            values["epsilon"] = checked_epsilon(self.epsilon)
        if self.record_epsilon is not None:
            values["record_epsilon"] = checked_epsilon(self.record_epsilon)
        for name in ("min_norm", "norm", "window"):
            if (value := getattr(self, name)) is not None:
                values[name] = finite_number(value, name, above=0.0)
        if self.subset is not None:
            values["subset"] = whole_number(self.subset, "subset", 1, 1 << 16)
        for kind, part in PARTS.items():
            if not isinstance(getattr(self, kind), part | None):
                raise InputError(f"{kind} must be a dpindex.{part.__name__}.")
        if not isinstance(self.ranges, Ranges | None):
            raise InputError("ranges must be a dpindex.Ranges.")
        if self.ranges is not None:
            self.ranges.check_columns(self.dim, "the spec")
        if not isinstance(self.clip, bool):
            raise InputError(f"clip must be true or false, not {self.clip!r}.")
        if not isinstance(self.adjacency, VectorAdjacency) or self.adjacency.units != "data":
            raise InputError(
                "adjacency must be dpindex.attribute(…), dpindex.l2(…) or dpindex.record()."
            )
        self._set(values)

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={value!r}" for name, value in self._stated().items())
        return f"{type(self).__name__}({values})"

    def _repr_html_(self) -> str:
        """For notebooks: the fields that are not the default."""
        return facts_html(type(self).__name__, self._stated())

    def _stated(self) -> dict[str, Any]:
        stated = [f.name for f in fields(self) if is_stated(self, f)]
        return {name: getattr(self, name) for name in stated}

    def _set(self, values: dict[str, Any]) -> None:
        """Replace fields while the object is being made."""
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def budget(self) -> float:
        """``epsilon`` of a private method, as a plain float (infinite for the baselines)."""
        if self.epsilon is None:
            return math.inf
        return self.epsilon

    @property
    def change(self) -> float:
        """The largest change that epsilon pays for, after division by ``scale``.

        Under ``attribute(β)`` it is β, or the width of the bounds where that is less: two values
        that are clipped to the bounds, or refused beyond them, are never further apart.
        """
        return self.adjacency.largest_change(self.bounds)

    def grid_of(self, bits: int, max_column_l1: int, windows: Windows | None) -> Grid:
        """Return how attributes are rounded before they are summed."""
        return Grid(
            beta=self.change,
            bits=bits,
            scale=self.scale,
            bounds=self.bounds,
            clip=self.clip,
            max_column_l1=max_column_l1,
            windows=windows,
        )

    @property
    def compared_limits(self) -> tuple[float, float] | None:
        """Limits, before division by ``scale``, to which vectors are clipped to be compared.

        None for vectors that are compared as they are: without ``clip``, and where the bounds are
        narrower than a change. Such bounds are there for the noise alone.
        """
        if not self.clip or self.change < self.adjacency.size:
            return None
        low, high = self.bounds
        return low * self.scale, high * self.scale

    @property
    def public(self) -> PublicPart | None:
        """The codebook or the design, if there is one."""
        return self.codebook or self.design

    @property
    def symbols(self) -> int | None:
        """How many symbols a code is one of; None where codes have coordinates."""
        return None if self.codebook is None else len(self.codebook)

    @property
    def is_designed(self) -> bool:
        """True if the projection was fitted to public vectors."""
        return self.design is not None

    def part(self, kind: type[_Part]) -> _Part:
        """Return :attr:`public` of a method that has one of that kind; InputError for others."""
        if not isinstance(self.public, kind):
            raise InputError(
                f"{self.method} needs a {kind.kind}, made of public vectors of the same kind.",
                field=kind.kind,
            )
        return self.public

    @cached_property
    def codewords(self) -> Codebook:
        """The codebook as vectors are compared with it, after :attr:`ranges`."""
        book = self.part(Codebook)
        return book if self.ranges is None else book.scaled(self.ranges)

    def without_ranges(self: _Stated) -> _Stated:
        """Return this spec for vectors that were brought to 0 … 1 before."""
        if self.ranges is None:
            return self
        codebook = None if self.codebook is None else self.codewords
        return replace(self, ranges=None, codebook=codebook)

    def with_ranges(self: _Stated, ranges: Ranges) -> _Stated:
        """Return this spec for vectors that are brought to 0 … 1 by ranges."""
        codebook = None
        if self.codebook is not None:
            codebook = Codebook(ranges.unscale(self.codebook.stated))
        return replace(self, ranges=ranges, codebook=codebook)

    @cached_property
    def fingerprint(self) -> bytes:
        """Sixteen bytes that codes carry, so that codes of another spec are noticed."""
        digest = hashlib.sha256(self.to_json().encode()).digest()
        return digest[:16]

    def with_epsilon(self: _Stated, epsilon: float) -> _Stated:
        """Return this spec under another budget, with the same projection (for private queries).

        A set of nearest codewords grows by as much as their odds shrink, to be reported as often.
        """
        made = replace(self, epsilon=epsilon)
        if self.subset is None or self.codebook is None:
            return made
        growth = math.exp(self.budget - made.budget)
        grown = round(self.subset * growth)
        largest = max(self.subset, self.codebook.size // 2)
        return replace(made, subset=max(1, min(grown, largest)))

    def with_public(self: _Stated, part: PublicPart | AnyPath) -> _Stated:
        """Return this spec with all of the codebook or design that it names.

        Parameters
        ----------
        part : Codebook, Design or path of its file

        Raises
        ------
        InputError
            If the spec names another one, or none.
        """
        if self.public is None:
            raise InputError(f"{self.method} takes no codebook and no design.")
        if not isinstance(part, PublicPart):
            part = type(self.public).read(part)
        if part != self.public:
            kind = self.public.kind
            raise InputError(f"this is another {kind} than the one that the spec names.")
        changes: dict[str, Any] = {part.kind: part}
        return replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain JSON values."""
        data: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(self)}
        # Left out where unused, so that the text of a spec says what it uses.
        optional = ("entries", "sparsity", "subset", "record_epsilon", "window")
        for name in (*optional, *_OBJECTS):
            if data[name] is None:
                del data[name]
            elif name in _OBJECTS:
                data[name] = data[name].to_dict()
        data["adjacency"] = self.adjacency.to_dict()
        data["bounds"] = list(self.bounds)
        data["format"] = _FORMAT
        return data

    @classmethod
    def from_dict(cls: type[_Stated], data: Any) -> _Stated:
        """The inverse of :meth:`to_dict`; raises InputError on anything that is not a spec."""
        if not isinstance(data, dict) or data.get("format") != _FORMAT:
            raise InputError(f"the spec is not a dpindex spec of format {_FORMAT}.")
        without_format = {name: value for name, value in data.items() if name != "format"}
        values = checked_fields(without_format, cls, "the spec")
        values["adjacency"] = adjacency_from_dict(values["adjacency"])
        for name, read in _OBJECTS.items():
            if values.get(name) is not None:
                values[name] = read(values[name])
        return cls(**values)

    def to_json(self) -> str:
        """Canonical JSON: equal specs give equal text."""
        return json.dumps(self.to_dict(), sort_keys=True)

    @classmethod
    def from_json(cls: type[_Stated], text: str | bytes) -> _Stated:
        """The inverse of :meth:`to_json`; raises InputError on anything that is not a spec."""
        return cls.from_dict(json_value(text, "the spec"))

    @classmethod
    def read(cls: type[_Stated], path: AnyPath) -> _Stated:
        """The spec in a file; raises InputError, which begins with the path, if there is none."""
        return parse_file(path, MAX_TEXT, cls.from_json)


def is_stated(parameters: Parameters, field: Field[Any]) -> bool:
    """Whether a field has another value than its default."""
    return bool(getattr(parameters, field.name) != field.default)


def _interval(value: Any) -> tuple[float, float]:
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise InputError(f"bounds must be a pair (low, high), not {value!r}.")
    low = finite_number(value[0], "the lower bound")
    high = finite_number(value[1], "the upper bound")
    if low >= high:
        raise InputError(f"bounds must have low < high, not ({low:g}, {high:g}).")
    return low, high


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
        low, high = _accepted(*self.limits, x.dtype)
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
        outside = (wide < low) | (wide > high)
        place = tuple(np.argwhere(outside)[0].tolist())
        after = ""
        if self.scale != 1:
            after = f" after division by scale {self.scale:g}"
        remedy = "set scale or bounds to what is publicly known, or clip"
        if x.dtype == np.uint8 and self.scale == 1:
            remedy = "values of one byte lie within scale 255 and bounds 0 1"
        first, last = self.bounds
        return place, (f"lies outside the public bounds [{first:g}, {last:g}]{after}; {remedy}")

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


@dataclass(frozen=True)
class NoGrid:
    """For methods whose guarantee holds for any vectors: any finite numbers, as they are."""

    step: float = 1.0
    unit_step: float = 1.0
    bits: int = 0

    def check_capacity(self, most: int) -> None:
        """Any input fits."""

    def first_fault(self, x: AnyArray) -> Fault | None:
        """Index of the first value that is not finite in 64 bits, and what is wrong with it."""
        with np.errstate(over="ignore"):
            return not_finite(x.astype(np.float64, copy=False))

    def outside(self, x: AnyArray) -> int:
        return 0

    def round(self, x: AnyArray, attributes: AnyArray | None = None) -> AnyArray:
        """The numbers as they are."""
        return x


Rounding: TypeAlias = Grid | NoGrid
"""How attributes become the numbers that are projected."""
