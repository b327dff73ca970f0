"""Variants: what one family of projections can be told and the others cannot."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from dpindex.base.checks import finite_number, whole_number
from dpindex.base.errors import InputError

ENTRIES = ("gaussian", "rademacher", "uniform", "very-sparse")
"""Entries that a dense projection may have (Li & Li 2023, Sec. 3.4)."""

_VERY_SPARSE = ENTRIES[-1]
_MAX_REPETITIONS = 1024
_MAX_BLOCKS = 1024
_MAX_INVERSE_DENSITY = 1 << 16
"""Very sparse entries: the law of the gaps between them is a table of four times that."""


@dataclass(frozen=True)
class Variant:
    """The variant of a method that has one form only, and what all variants are asked.

    Attributes
    ----------
    repetitions : int
        Independent projections that share epsilon and k equally.
    """

    repetitions = 1

    @property
    def entries(self) -> str | None:
        """The entries of a dense projection."""
        return None

    @property
    def sparsity(self) -> int | None:
        """How sparse a projection is, in the terms of its family."""
        return None

    @property
    def min_norm(self) -> float | None:
        """Public lower bound on the norm of every vector after scaling, where one is stated."""
        return None

    @property
    def for_any_dim(self) -> bool:
        """Whether the projection of millions of attributes takes little memory."""
        return False

    @property
    def words(self) -> tuple[str, ...]:
        """What tells it apart in charts."""
        return ()

    @property
    def parameters(self) -> str:
        """What it takes, in words; empty for a method of one form."""
        return ", ".join(field.name for field in fields(self))

    @property
    def forms(self) -> tuple[Variant, ...]:
        """Variants to test, one of each form, the default first."""
        return (self,)

    def of_kind(self, default: Variant, method: str) -> Variant:
        """Return the default with what is stated here; InputError for another kind of variant."""
        if type(self) is Variant:
            return default
        if type(self) is not type(default):
            names = " and no ".join(self._stated) or type(self).__name__
            raise InputError(f"{method} takes no {names} here; leave it out.", field="variant")
        return replace(default, **self._stated)

    @property
    def _stated(self) -> dict[str, Any]:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value is not None}

    def with_norm(self, min_norm: float | None) -> Variant:
        """Return it with another ``min_norm``, or without one, where it has such a parameter."""
        return self

    def resolved(self, dim: int, k: int) -> Variant:
        """Return it with what ``dim`` attributes and codes of length ``k`` resolve it to.

        Raises InputError if it does not fit them.
        """
        return self

    def to_dict(self) -> dict[str, Any]:
        """The fields in the JSON of a spec, where their defaults are written down too."""
        data: dict[str, Any] = {"repetitions": self.repetitions, "min_norm": self.min_norm}
        return data | self._stated


@dataclass(frozen=True)
class Repeated(Variant):
    """Several OPORPs of sign codes.

    Parameters
    ----------
    repetitions : int
        Independent OPORPs that share epsilon and k equally, [1, 1024].

    >>> from dpindex import Spec, attribute
    >>> Spec("dp-signoporp-rr", 24, 16, 2.0, adjacency=attribute(1.0), variant=Repeated(2)).k
    16
    """

    repetitions: int = 1

    def __post_init__(self) -> None:
        count = whole_number(self.repetitions, "repetitions", 1, _MAX_REPETITIONS)
        object.__setattr__(self, "repetitions", count)

    @property
    def forms(self) -> tuple[Repeated, ...]:
        return self, Repeated(3)

    @property
    def words(self) -> tuple[str, ...]:
        return (f"{self.repetitions} repetitions",) if self.repetitions > 1 else ()

    def resolved(self, dim: int, k: int) -> Repeated:
        if k % self.repetitions:
            raise InputError(f"k = {k} is not a multiple of repetitions = {self.repetitions}.")
        return self


@dataclass(frozen=True)
class Blocks(Variant):
    """A sparse Johnson-Lindenstrauss map.

    Parameters
    ----------
    sparsity : int, optional
        Coordinates that one attribute moves, one in each of as many equal blocks of a code:
        a divisor of k, [1, 1024]. By default the largest of 4, 3, 2 and 1 that divides k.

    >>> from dpindex import Spec, attribute
    >>> Spec("dp-sjlt-laplace", 24, 9, 2.0, adjacency=attribute(1.0)).variant
    Blocks(sparsity=3)
    """

    sparsity: int | None = None

    def __post_init__(self) -> None:
        if self.sparsity is not None:
            count = whole_number(self.sparsity, "sparsity", 1, _MAX_BLOCKS)
            object.__setattr__(self, "sparsity", count)

    @property
    def for_any_dim(self) -> bool:
        return True

    def resolved(self, dim: int, k: int) -> Blocks:
        sparsity = self.sparsity or next(s for s in (4, 3, 2, 1) if k % s == 0)
        if k % sparsity:
            raise InputError(
                f"k = {k} is not a multiple of sparsity = {sparsity}: every attribute moves one "
                f"coordinate in each of {sparsity} equal blocks."
            )
        return replace(self, sparsity=sparsity)


@dataclass(frozen=True)
class Dense(Variant):
    """A random projection whose entries may be chosen.

    Parameters
    ----------
    entries : str, optional
        "gaussian", "rademacher", "uniform" or "very-sparse"; by default the method's.
    sparsity : int, optional
        Of very sparse entries: 1 / density, [1, 2^16], √dim by default.
    min_norm : float, optional
        Public lower bound on the norm of every vector after scaling, (0, ∞), which
        ``dp-signrp-rr`` needs with a delta.

    >>> from dpindex import Spec, attribute
    >>> Spec("dp-rp-l", 24, 8, 2.0, adjacency=attribute(1.0), variant=Dense("uniform")).projection.k
    8
    """

    entries: str | None = None
    sparsity: int | None = None
    min_norm: float | None = None

    def __post_init__(self) -> None:
        if self.entries not in (None, *ENTRIES):
            names = ", ".join(ENTRIES)
            raise InputError(f"entries must be one of {names}, not {self.entries!r}.")
        if self.sparsity is not None:
            if self.entries != _VERY_SPARSE:
                raise InputError(
                    "sparsity is that of very-sparse entries; leave it out.", field="variant"
                )
            density = whole_number(self.sparsity, "sparsity", 1, _MAX_INVERSE_DENSITY)
            object.__setattr__(self, "sparsity", density)
        if self.min_norm is not None:
            norm = finite_number(self.min_norm, "min_norm", above=0.0)
            object.__setattr__(self, "min_norm", norm)

    @property
    def for_any_dim(self) -> bool:
        return self.entries == _VERY_SPARSE

    @property
    def words(self) -> tuple[str, ...]:
        return () if self.min_norm is None else (f"norm ≥ {self.min_norm:g}",)

    def with_norm(self, min_norm: float | None) -> Dense:
        return replace(self, min_norm=min_norm)

    def resolved(self, dim: int, k: int) -> Dense:
        if self.entries != _VERY_SPARSE:
            return self
        return replace(self, sparsity=self.sparsity or max(1, math.isqrt(dim)))

    @property
    def parameters(self) -> str:
        names = [form.entries for form in self.forms]
        return f"entries {', '.join(map(str, names))}"

    @property
    def forms(self) -> tuple[Dense, ...]:
        by_default = sorted(ENTRIES, key=lambda entries: entries != self.entries)
        return tuple(replace(self, entries=entries) for entries in by_default)


_KINDS = (Repeated, Blocks, Dense)
NAMES = tuple(dict.fromkeys(field.name for kind in _KINDS for field in fields(kind)))
"""Parameters of all variants."""


def variant_of(values: Mapping[str, Any]) -> Variant:
    """Return the variant that has all these parameters; those that are None or 1 state nothing.

    Raises
    ------
    InputError
        For parameters of different variants, and values outside their range.

    >>> variant_of({"repetitions": 2, "min_norm": None})
    Repeated(repetitions=2)
    """
    plain = {"repetitions": 1}
    stated = {
        name: value
        for name, value in values.items()
        if type(value) is not type(plain.get(name)) or value != plain.get(name)
    }
    if not stated:
        return Variant()
    for kind in _KINDS:
        if set(stated) <= {field.name for field in fields(kind)}:
            return kind(**stated)
    raise InputError(f"no method takes {' and '.join(stated)}.", field="variant")


def parse_variant(text: str) -> Variant:
    """Return the variant that ``name=value,…`` states; InputError if there is none.

    >>> parse_variant("entries=very-sparse,sparsity=3").sparsity
    3
    """
    values = {}
    for part in text.split(",") if text else ():
        name, _, value = part.partition("=")
        if name not in NAMES or not value:
            raise InputError(
                f"a variant is NAME=VALUE with a name of {', '.join(NAMES)}, not {part!r}.",
                field="variant",
            )
        if name in values:
            raise InputError(f"{name} is stated twice; state it once.", field="variant")
        values[name] = value if name == "entries" else _number(value)
    return variant_of(values)


def _number(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
