"""A public codebook: vectors of a public sample that private records are compared with."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from contextlib import nullcontext
from dataclasses import Field, dataclass, field, fields, replace
from functools import cached_property, lru_cache
from typing import Any, Protocol, TypeVar

import numpy as np

from dpindex.base.arrays import (
    MAX_TEXT,
    AnyArray,
    Fault,
    Floats,
    Singles,
    checked_epsilon,
    checked_fields,
    finite_number,
    in_units_of_largest,
    issparse,
    json_value,
    not_finite,
    real_matrix,
    spaced,
    unit,
    whole_number,
)
from dpindex.base.display import facts_html
from dpindex.base.errors import InputError, NoGuaranteeError
from dpindex.base.files import pack, parse_file, unpack
from dpindex.data import as_source, dense_rows, open_vectors
from dpindex.mechanism.design import Design
from dpindex.privacy import VectorAdjacency, adjacency_from_dict

MIN_SIZE = 2
MAX_SIZE = 1 << 16
RADIUS = 4095.0
"""Norm of a vector on the integer grid: inner products stay below 2^24 and are exact in float32."""

_STEPS = float(1 << 20)
_DIGEST = re.compile(r"[0-9a-f]{64}")


def on_sphere_grid(vectors: Floats) -> Singles:
    """Directions of vectors as integers of norm about 4095, float32; a zero vector stays zero.

    ``Σ|u_i c_i| ≤ ‖u‖‖c‖ ≤ 2^24`` for two such vectors, so their inner product is exact in float32
    in any order: which codeword is nearest does not depend on the machine or the batch.
    """
    # Whole numbers first: their squares add exactly for up to 8192 attributes, and square root and
    # division are correctly rounded, so the grid is the same on every machine.
    wide = np.rint(in_units_of_largest(vectors) * _STEPS)
    norms = np.sqrt(np.einsum("ij,ij->i", wide, wide))[:, None]
    np.divide(wide * RADIUS, norms, out=wide, where=norms > 0)
    # Towards zero: rounding must not make a vector longer.
    return np.trunc(wide).astype(np.float32)


class Codebook:
    """Codewords c_1 … c_K, chosen without looking at the private vectors.

    Two codebooks are equal if their codewords as given are, bit for bit as float32. A spec read
    from JSON names its codebook by size and digest only (:meth:`named`) until it is given.

    Parameters
    ----------
    vectors : array, shape (K, dim), or path of a file of vectors
        K in [2, 65536]; directions count, lengths do not; no codeword may be zero.

    Raises
    ------
    InputError
        For anything else, NaN or infinite values, and zero codewords.

    >>> book = Codebook(np.eye(4))
    >>> len(book), book.dim
    (4, 4)
    """

    def __init__(self, vectors: Any) -> None:
        if isinstance(vectors, str | os.PathLike):
            vectors = _loaded(vectors)
        table = vectors if issparse(vectors) else np.asanyarray(vectors)
        rows = real_matrix(table, table.shape[-1] if table.ndim else 0, "codewords")
        if issparse(rows):
            raise InputError("codewords must be a dense array.")
        if not MIN_SIZE <= len(rows) <= MAX_SIZE:
            raise InputError(f"a codebook has {MIN_SIZE} to {MAX_SIZE} codewords, not {len(rows)}.")
        with np.errstate(over="ignore"):
            given = np.array(rows, dtype=np.float32)
        if not np.isfinite(given).all():
            row = int(np.argwhere(~np.isfinite(given))[0, 0])
            raise InputError(f"codeword {row} has a value that is not finite in 32 bits.")
        self._stated: Singles | None = given
        if (zero := np.flatnonzero(~given.any(axis=1))).size:
            raise InputError(f"codeword {int(zero[0])} is zero and has no direction.")
        self.size, self.dim = given.shape
        shape = f"{self.size}x{self.dim}|".encode()
        self.digest = hashlib.sha256(shape + given.astype("<f4").tobytes()).hexdigest()

    @classmethod
    def spaced(cls, vectors: Any, size: int) -> Codebook:
        """The codebook of ``size`` of the vectors, evenly spaced; all of them if there are so many.

        Which ones depends on their number alone.
        """
        opened = isinstance(vectors, str | os.PathLike)
        with open_vectors(vectors) if opened else nullcontext(as_source(vectors)) as source:
            return cls(dense_rows(source, spaced(source.shape[0], size)))

    @classmethod
    def named(cls, data: Any) -> Codebook:
        """The codebook that ``data`` of :meth:`to_dict` described, without its codewords.

        Raises InputError for anything else.
        """
        book = cls.__new__(cls)
        facts = {}
        if isinstance(data, dict):
            facts = data
        digest = facts.get("sha256")
        if set(facts) != {"sha256", "size", "dim"} or not _DIGEST.fullmatch(str(digest)):
            raise InputError("codebook must be {sha256: …, size: …, dim: …}.")
        book._stated = None
        book.digest = str(digest)
        book.size = whole_number(facts["size"], "the size of a codebook", MIN_SIZE, MAX_SIZE)
        book.dim = whole_number(facts["dim"], "dim of a codebook", 1, (1 << 31) - 1)
        return book

    def to_dict(self) -> dict[str, Any]:
        """Size and digest, for JSON."""
        return {"sha256": self.digest, "size": self.size, "dim": self.dim}

    @property
    def stated(self) -> Singles:
        """The codewords as they were given, float32, shape (K, dim); InputError if not here."""
        if self._stated is None:
            raise InputError(
                f"the codebook {self.digest[:12]}… of {self.size} codewords is not here: give the "
                f"file it was made from (in Python also Spec.with_public).",
                field="codebook",
            )
        return self._stated

    @cached_property
    def vectors(self) -> Singles:
        """The codewords at norm 1, float32, shape (K, dim)."""
        return unit(in_units_of_largest(self.stated))

    def to_bytes(self) -> bytes:
        """The codewords in the common container: see :meth:`from_bytes`."""
        return pack("codebook", {}, {"vectors": self.stated})

    @classmethod
    def from_bytes(cls, data: bytes) -> Codebook:
        """The inverse of :meth:`to_bytes`; InputError if ``data`` is anything else."""
        _, arrays = unpack(data, "codebook")
        if set(arrays) != {"vectors"} or arrays["vectors"].dtype != np.float32:
            raise InputError("this codebook has a header that no dpindex writes.")
        return cls(arrays["vectors"])

    def __reduce__(self) -> Any:
        # What is made of the codewords is made again where it is needed.
        if self._stated is None:
            return Codebook.named, (self.to_dict(),)
        return Codebook, (self._stated,)

    def __len__(self) -> int:
        return int(self.size)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Codebook) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"<Codebook: {self.size} codewords of {self.dim} attributes, {self.digest[:12]}>"

    @cached_property
    def grid(self) -> Singles:
        """The codewords on the integer grid, transposed: shape (dim, K)."""
        return np.ascontiguousarray(on_sphere_grid(self.stated).T)


def _loaded(path: str | os.PathLike[str]) -> AnyArray:
    with open_vectors(path) as source:
        if source.shape[0] > MAX_SIZE:
            raise InputError(
                f"{os.fspath(path)} has {source.shape[0]} vectors; a codebook has at most "
                f"{MAX_SIZE} codewords; make a smaller one of them (dpindex codebook)."
            )
        return dense_rows(source, np.arange(source.shape[0]))


_FORMAT = 1
_Stated = TypeVar("_Stated", bound="Parameters")


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
        for name in ("min_norm", "norm"):
            if (value := getattr(self, name)) is not None:
                values[name] = finite_number(value, name, above=0.0)
        if self.subset is not None:
            values["subset"] = whole_number(self.subset, "subset", 1, 1 << 16)
        if not isinstance(self.codebook, Codebook | None):
            raise InputError("codebook must be a dpindex.Codebook.")
        if not isinstance(self.design, Design | None):
            raise InputError("design must be a dpindex.Design.")
        if not isinstance(self.clip, bool):
            raise InputError(f"clip must be true or false, not {self.clip!r}.")
        if not isinstance(self.adjacency, VectorAdjacency):
            raise InputError(
                "adjacency must be dpindex.attribute(…), dpindex.l2(…) or dpindex.record()."
            )
        self._set(values)

    def __repr__(self) -> str:
        stated = [f.name for f in fields(self) if is_stated(self, f)]
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in stated)
        return f"{type(self).__name__}({values})"

    def _repr_html_(self) -> str:
        """For notebooks: the fields that are not the default."""
        stated = {f.name: getattr(self, f.name) for f in fields(self) if is_stated(self, f)}
        return facts_html(type(self).__name__, stated)

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
    def public_words(self) -> Codebook:
        """:attr:`codebook` of a method that has one; InputError for others."""
        if self.codebook is None:
            raise InputError(f"{self.method} needs a codebook.", field="codebook")
        return self.codebook

    @cached_property
    def fingerprint(self) -> bytes:
        """Sixteen bytes that codes carry, so that codes of another spec are noticed."""
        return hashlib.sha256(self.to_json().encode()).digest()[:16]

    def with_epsilon(self: _Stated, epsilon: float) -> _Stated:
        """Return this spec under another budget, with the same projection (for private queries).

        A set of nearest codewords grows by as much as their odds shrink, to be reported as often.
        """
        made = replace(self, epsilon=epsilon)
        if self.subset is None or self.codebook is None:
            return made
        grown = round(self.subset * math.exp(self.budget - made.budget))
        largest = max(self.subset, self.codebook.size // 2)
        return replace(made, subset=max(1, min(grown, largest)))

    @property
    def public_parts(self) -> dict[str, Codebook | Design]:
        """The codebook or the design by the name of its field, if there is one."""
        parts = {"codebook": self.codebook, "design": self.design}
        return {name: part for name, part in parts.items() if part is not None}

    def with_public(self: _Stated, part: Codebook | Design) -> _Stated:
        """Return this spec with the codewords of its codebook, or with the matrix of its design.

        InputError if it names another one.
        """
        name = "design" if isinstance(part, Design) else "codebook"
        if part != getattr(self, name):
            raise InputError(f"this is another {name} than the one that the spec names.")
        changes: dict[str, Any] = {name: part}
        return replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain JSON values."""
        data: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(self)}
        # Left out where unused, so that the text of a spec says what it uses.
        for name in ("entries", "sparsity", "codebook", "subset", "design", "record_epsilon"):
            if data[name] is None:
                del data[name]
        for name in ("codebook", "design"):
            if name in data:
                data[name] = data[name].to_dict()
        adjacency = self.adjacency.to_dict()
        bounds = list(self.bounds)
        return {**data, "adjacency": adjacency, "bounds": bounds, "format": _FORMAT}

    @classmethod
    def from_dict(cls: type[_Stated], data: Any) -> _Stated:
        """The inverse of :meth:`to_dict`; raises InputError on anything that is not a spec."""
        if not isinstance(data, dict) or data.get("format") != _FORMAT:
            raise InputError(f"the spec is not a dpindex spec of format {_FORMAT}.")
        without_format = {name: value for name, value in data.items() if name != "format"}
        values = checked_fields(without_format, cls, "the spec")
        values["adjacency"] = adjacency_from_dict(values["adjacency"])
        if values.get("codebook") is not None:
            values["codebook"] = Codebook.named(values["codebook"])
        if values.get("design") is not None:
            values["design"] = Design.named(values["design"])
        return cls(**values)

    def to_json(self) -> str:
        """Canonical JSON: equal specs give equal text."""
        return json.dumps(self.to_dict(), sort_keys=True)

    @classmethod
    def from_json(cls: type[_Stated], text: str | bytes) -> _Stated:
        """The inverse of :meth:`to_json`; raises InputError on anything that is not a spec."""
        return cls.from_dict(json_value(text, "the spec"))

    @classmethod
    def read(cls: type[_Stated], path: str | os.PathLike[str]) -> _Stated:
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

    @cached_property
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


class Rounding(Protocol):
    """How attributes become the numbers that are projected: a :class:`Grid`, or :class:`NoGrid`."""

    @property
    def step(self) -> float:
        """Width of a step in units of the scaled attribute."""

    @property
    def bits(self) -> int:
        """Bits of a beta."""

    def check_capacity(self, most: int) -> None:
        """Refuse parameters whose projected sums could reach ``most``."""

    def first_fault(self, x: AnyArray) -> Fault | None:
        """Index of the first value that may not be privatized, and what is wrong with it."""

    def round(self, x: AnyArray) -> AnyArray:
        """The numbers that are projected."""


@dataclass(frozen=True)
class NoGrid:
    """For methods whose guarantee holds for any vectors: any finite numbers, as they are."""

    step: float = 1.0
    bits: int = 0

    def check_capacity(self, most: int) -> None:
        """Any input fits."""

    def first_fault(self, x: AnyArray) -> Fault | None:
        """Index of the first value that is not finite in 64 bits, and what is wrong with it."""
        with np.errstate(over="ignore"):
            return not_finite(x.astype(np.float64, copy=False))

    def round(self, x: AnyArray) -> AnyArray:
        """The numbers as they are."""
        return x
