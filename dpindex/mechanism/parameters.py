"""The public fields of a spec, each checked by itself, and the grid that attributes lie on."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import Field, dataclass, field, fields, replace
from functools import cached_property
from typing import Any, TypeVar

from dpindex.base.checks import (
    MAX_TEXT,
    checked_epsilon,
    checked_fields,
    finite_number,
    json_value,
    whole_number,
)
from dpindex.base.display import facts_html
from dpindex.base.errors import InputError
from dpindex.base.files import AnyPath, parse_file
from dpindex.data import Ranges
from dpindex.mechanism.codebooks import Codebook
from dpindex.mechanism.grid import Grid, Windows
from dpindex.mechanism.public_parts import Design, PublicPart
from dpindex.mechanism.variants import NAMES, Variant, variant_of
from dpindex.privacy import VectorAdjacency, adjacency_from_dict

PARTS: dict[str, type[PublicPart]] = {"codebook": Codebook, "design": Design}
"""Every kind of public part, by its name."""

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
    scale: float = 1.0
    ranges: Ranges | None = None
    bounds: tuple[float, float] = (-1.0, 1.0)
    clip: bool = False
    norm: float | None = None
    seed: int = 0
    variant: Variant = Variant()  # noqa: RUF009 (frozen)
    codebook: Codebook | None = None
    subset: int | None = None
    design: Design | None = None
    record_epsilon: float | None = None
    window: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.variant, Variant):
            raise InputError("variant must be a dpindex.Dense, dpindex.Blocks or dpindex.Repeated.")
        values: dict[str, Any] = {
            "dim": whole_number(self.dim, "dim", 1, 2**31 - 1),
            "seed": whole_number(self.seed, "seed", 0, 2**63 - 1),
            "scale": finite_number(self.scale, "scale", above=0.0),
            "delta": finite_number(self.delta, "delta"),
            "bounds": _interval(self.bounds),
        }
        if self.k is not None:
            # A stranger's spec may state any length: no method makes longer codes than this.
            max_length = max(1 << 20, values["dim"] * self.variant.repetitions)
            values["k"] = whole_number(self.k, "k", 1, max_length)
        if self.epsilon is not None:
            values["epsilon"] = checked_epsilon(self.epsilon)
        if self.record_epsilon is not None:
            values["record_epsilon"] = checked_epsilon(self.record_epsilon)
        for name in ("norm", "window"):
            if (value := getattr(self, name)) is not None:
                values[name] = finite_number(value, name, above=0.0)
        if self.subset is not None:
            values["subset"] = whole_number(self.subset, "subset", 1, 1 << 16)
        kinds: dict[str, type] = {**PARTS, "ranges": Ranges}
        for name, kind in kinds.items():
            if not isinstance(getattr(self, name), kind | None):
                raise InputError(f"{name} must be a dpindex.{kind.__name__}.")
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

    @cached_property
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

    @property
    def compared_part(self) -> PublicPart | None:
        """:attr:`public` as vectors are compared with it, after :attr:`ranges`."""
        return self.design if self.codebook is None else self.codewords

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
            book = self.codebook
            codebook = Codebook(ranges.unscale(book.stated), book.guide)
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
        optional = ("subset", "record_epsilon", "window")
        for name in (*optional, *_OBJECTS):
            if data[name] is None:
                del data[name]
            elif name in _OBJECTS:
                data[name] = data[name].to_dict()
        data |= data.pop("variant").to_dict()
        data["adjacency"] = self.adjacency.to_dict()
        data["bounds"] = list(self.bounds)
        data["format"] = _FORMAT
        return data

    @classmethod
    def from_dict(cls: type[_Stated], data: Any) -> _Stated:
        """The inverse of :meth:`to_dict`; raises InputError on anything that is not a spec."""
        if not isinstance(data, dict) or data.get("format") != _FORMAT:
            raise InputError(f"the spec is not a dpindex spec of format {_FORMAT}.")
        if "variant" in data:
            raise InputError("the spec has an unknown field 'variant'.")
        plain = {name: value for name, value in data.items() if name not in ("format", *NAMES)}
        values = checked_fields(plain, cls, "the spec")
        values["variant"] = variant_of({name: data[name] for name in NAMES if name in data})
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
