"""What two neighbouring vectors may differ in: the unit in which an epsilon is counted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias, get_args

from dpindex.checks import finite_number
from dpindex.errors import InputError

__all__ = [
    "L2",
    "Adjacency",
    "Attribute",
    "Neighbouring",
    "Records",
    "adjacency_from_json",
    "attribute",
    "l2",
]

Neighbouring: TypeAlias = Literal["add-remove", "replace"]


@dataclass(frozen=True)
class Attribute:
    """Two vectors are neighbours when they differ in *one* coordinate, by at most ``beta``.

    This is Definition 2.3 of Li & Li (2023). It is not the L1 ball of radius ``beta``: a change
    spread over many coordinates is many changes, and costs epsilon for each.
    """

    beta: float
    kind: ClassVar[str] = "attribute"

    def __post_init__(self) -> None:
        object.__setattr__(self, "beta", finite_number(self.beta, "beta", above=0.0))

    def __str__(self) -> str:
        return f"attribute(beta={self.beta:g})"

    @property
    def size(self) -> float:
        """The change that the grid is laid out for, in units of the scaled attribute."""
        return self.beta

    def describe(self) -> str:
        """The unit of protection in plain words."""
        return f"one attribute (coordinate) of one vector, changed by at most {self.beta:g}"

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "beta": self.beta}


@dataclass(frozen=True)
class L2:
    """Two vectors are neighbours when their Euclidean distance is at most ``radius``.

    Radius 2 on unit-norm vectors makes every two vectors neighbours: the whole record is hidden.
    """

    radius: float
    kind: ClassVar[str] = "l2"

    def __post_init__(self) -> None:
        radius = finite_number(self.radius, "the l2 radius", above=0.0)
        object.__setattr__(self, "radius", radius)

    def __str__(self) -> str:
        return f"l2(radius={self.radius:g})"

    @property
    def size(self) -> float:
        """The distance that the grid is laid out for, in units of the scaled attribute."""
        return self.radius

    def describe(self) -> str:
        """The unit of protection in plain words."""
        return f"one whole vector, moved by at most {self.radius:g} in Euclidean distance"

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "radius": self.radius}


@dataclass(frozen=True)
class Records:
    """Two *collections* are neighbours when they differ in one whole record.

    ``"add-remove"``: one of them holds one record more (how many there are is protected too).
    ``"replace"``: both hold equally many and one record differs, so every count may change twice.
    The adjacency of sketches, which speak about a collection; codes speak about one vector.
    """

    neighbouring: Neighbouring
    kind: ClassVar[str] = "records"

    def __post_init__(self) -> None:
        if self.neighbouring not in get_args(Neighbouring):
            choices = " or ".join(repr(choice) for choice in get_args(Neighbouring))
            raise InputError(f"neighbouring must be {choices}, not {self.neighbouring!r}.")

    def __str__(self) -> str:
        return f"records({self.neighbouring})"

    def describe(self) -> str:
        """The unit of protection in plain words."""
        change = {"add-remove": "added or removed", "replace": "replaced by any other"}
        return f"one whole record of the collection, {change[self.neighbouring]}"

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "neighbouring": self.neighbouring}


Adjacency: TypeAlias = Attribute | L2
"""What codes of single vectors are calibrated for; :class:`Records` belongs to sketches."""


def attribute(beta: float = 1.0) -> Attribute:
    """Neighbours differ in one coordinate by at most ``beta`` (after the public ``scale``).

    >>> attribute(0.5)
    Attribute(beta=0.5)
    """
    return Attribute(beta)


def l2(radius: float) -> L2:
    """Neighbours lie within Euclidean distance ``radius`` (after the public ``scale``).

    >>> l2(2)
    L2(radius=2.0)
    """
    return L2(radius)


def adjacency_from_json(data: Any) -> Adjacency:
    """The inverse of ``to_json``; raises InputError on anything else."""
    if isinstance(data, dict):
        if set(data) == {"kind", "beta"} and data["kind"] == Attribute.kind:
            return Attribute(data["beta"])
        if set(data) == {"kind", "radius"} and data["kind"] == L2.kind:
            return L2(data["radius"])
    raise InputError("adjacency must be {kind: attribute, beta: …} or {kind: l2, radius: …}.")
