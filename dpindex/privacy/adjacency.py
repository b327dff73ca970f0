"""Adjacencies: what two neighbouring inputs may differ in, the unit in which epsilon is counted."""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias, TypeVar, get_args

from dpindex.base.checks import finite_number, from_kind
from dpindex.base.display import LowerBound
from dpindex.base.errors import InputError

Neighbouring: TypeAlias = Literal["add-remove", "replace"]
Unit: TypeAlias = Literal["vector", "person"]
_DATA = "data"
_DIGEST = re.compile(r"[0-9a-f]{16}")
_Vectors = TypeVar("_Vectors", bound="VectorAdjacency")


@dataclass(frozen=True)
class Adjacency(ABC):
    """The difference between neighbours, and the sentences about it that a guarantee is made of.

    A subclass is a small frozen dataclass whose fields are the parameters of its definition.

    Attributes
    ----------
    kind : str
        Its name in JSON and in messages.
    published : str
        What is released, in the sentence "whoever holds …".
    against : str
        The sentences that say against whom the guarantee holds.
    several : str
        What several changes at once cost, with fields to be filled in as in :meth:`visible`.

    >>> Attribute(0.5).to_dict()
    {'kind': 'attribute', 'beta': 0.5}
    """

    kind: ClassVar[str]

    @property
    @abstractmethod
    def published(self) -> str: ...

    @property
    @abstractmethod
    def against(self) -> str: ...

    @property
    def several(self) -> str:
        return "several such changes: m of them cost m × {epsilon:g} (group privacy{growth})"

    @abstractmethod
    def describe(self) -> str:
        """The unit of protection in plain words."""

    @abstractmethod
    def visible(self) -> list[str]:
        """Return what stays visible, one line each.

        A guarantee fills in the fields, ``{epsilon}``, the ``{dim}`` attributes of an input,
        ``{whole}`` for what all of them cost, and ``{growth}`` of delta under group privacy.
        """

    def steps(self, change: Adjacency) -> int | None:
        """Return how many changes of this adjacency make any change of another; None if unknown.

        A promise speaks of every pair of neighbours (Dwork & Roth 2014, Def. 2.4). Where a change
        leads from any input to one of its neighbours, ``steps`` is 1: the pairs that it leads to
        are some of those, so the promise holds for it as it stands. Where it takes m steps between
        neighbours it holds m times, by group privacy (Thm 2.2 there).
        """
        if change == self:
            return 1
        if isinstance(change, Group):
            each = self.steps(change.of)
            if each is not None:
                return each * change.changes
        return None

    def to_dict(self) -> dict[str, Any]:
        """Kind and parameters as plain JSON values."""
        return {"kind": self.kind, **asdict(self)}


class VectorAdjacency(Adjacency):
    """Neighbouring *vectors*: what the codes of single vectors are calibrated for."""

    published = "the published codes, the projection and all parameters"
    against = (
        "Every vector is privatized on its own with its own secret noise, so this holds against "
        "everyone who sees the codes, including the operator of the search server."
    )
    units: str = _DATA
    """Of sizes: "data", or the digest of the public ranges of columns of which they are shares."""

    @property
    @abstractmethod
    def size(self) -> float:
        """The largest change between neighbours: of scaled attributes in a spec's adjacency, of the
        data in a guarantee's.
        """

    def largest_change(self, bounds: tuple[float, float]) -> float:
        """Return the largest change between neighbours whose attributes all lie within bounds."""
        return self.size

    def in_data_units(self: _Vectors, scale: float, ranges: str | None = None) -> _Vectors:
        """Return this adjacency before attributes were divided by ``scale``.

        With the digest of ranges it is stated in these: a change counts differently in others.

        Sizes are rounded to twelve digits, so that 255 × (1/255) is 1. The grid holds back 2⁻¹⁶ of
        a change for roundings, of which this takes less than 10⁻¹².

        >>> attribute(1.0).in_data_units(0.01)
        Attribute(beta=0.01)
        """
        changed: dict[str, Any] = {}
        if scale != 1:
            for name, size in self._sizes.items():
                changed[name] = float(f"{size * scale:.12g}")
        if ranges is not None:
            changed["units"] = ranges
        return replace(self, **changed)

    @property
    def _sizes(self) -> dict[str, float]:
        fields = asdict(self)
        fields.pop("units", None)
        return fields

    def to_dict(self) -> dict[str, Any]:
        """Kind, sizes and, where they are not those of the data, units."""
        facts = super().to_dict()
        if self.units == _DATA:
            facts.pop("units", None)
        return facts

    def steps(self, change: Adjacency) -> int | None:
        """Return the ratio of a ``change`` of the same kind to this one, rounded up."""
        if change == self or not isinstance(change, type(self)) or change.units != self.units:
            return super().steps(change)
        ratio = Fraction(change.size) / Fraction(self.size)
        return math.ceil(ratio)

    def visible(self) -> list[str]:
        return [
            "ids, and anything written into ids",
            "how many vectors there are, and when they were added",
            "that a record exists",
            "exact queries: in query mode 'exact' whoever runs the search sees the query itself, "
            "so keep it on your own machine",
            "correlated records: facts that can be learnt from other people's records",
            "a second release of the same vector: epsilons and deltas add up",
        ]

    def _check(self, field_name: str, words: str) -> None:
        """Refuse a size that is not above 0, and unknown units; ``words`` name the size."""
        if self.units != _DATA and not _DIGEST.fullmatch(str(self.units)):
            raise InputError("units must be those of the data, or the digest of ranges.")
        size = finite_number(getattr(self, field_name), words, above=0.0)
        object.__setattr__(self, field_name, LowerBound(size))

    @property
    def _in_units(self) -> str:
        if self.units == _DATA:
            return "in the units of the data"
        return "where the public range of each column is 1"

    def __str__(self) -> str:
        sizes = [f"{name}={value:g}" for name, value in self._sizes.items()]
        text = ", ".join(sizes)
        if self.units != _DATA:
            text += f" of ranges {self.units[:8]}"
        return f"{self.kind}({text})"


@dataclass(frozen=True)
class Attribute(VectorAdjacency):
    """Two vectors are neighbours when they differ in *one* coordinate, by at most ``beta``.

    This is Definition 2.3 of Li & Li (2023). It is not the L1 ball of radius ``beta``: a change
    spread over many coordinates is many changes, and costs epsilon for each. ``units`` names the
    ranges of columns that ``beta`` counts in, by their digest, if it is not those of the data.

    >>> Attribute(0.5)
    Attribute(beta=0.5)
    """

    beta: float
    units: str = field(default=_DATA, repr=False)
    kind = "attribute"

    def __post_init__(self) -> None:
        self._check("beta", "beta")

    @property
    def size(self) -> float:
        return self.beta

    def largest_change(self, bounds: tuple[float, float]) -> float:
        low, high = bounds
        return min(self.beta, high - low)

    def describe(self) -> str:
        return (
            f"one attribute (coordinate) of one vector, changed by at most {self.beta:g} "
            f"{self._in_units}"
        )

    several = (
        "more than one attribute at once: a change of m attributes costs m × {epsilon:g}, and a "
        "whole record of {dim} attributes, each changed by at most {beta:g}, up to {whole} (group "
        "privacy{growth}): an attribute-level epsilon is not a record-level one"
    )

    def visible(self) -> list[str]:
        return [
            *super().visible(),
            "if the vectors are embeddings, whose they are: one coordinate is nobody's secret "
            "there; methods for whole records (adjacency record) hide that",
        ]


@dataclass(frozen=True)
class L2(VectorAdjacency):
    """Two vectors are neighbours when their Euclidean distance is at most ``radius``.

    Radius 2 on unit-norm vectors makes every two vectors neighbours: the whole record is hidden.
    ``units`` names the ranges of columns that ``radius`` counts in, as in :class:`Attribute`.

    >>> L2(2.0)
    L2(radius=2.0)
    """

    radius: float
    units: str = field(default=_DATA, repr=False)
    kind = "l2"

    def __post_init__(self) -> None:
        self._check("radius", "the l2 radius")

    @property
    def size(self) -> float:
        return self.radius

    def steps(self, change: Adjacency) -> int | None:
        """Return the ratio of a change to this one, rounded up.

        One coordinate that changes by beta moves the vector by beta in Euclidean distance.
        """
        if isinstance(change, Attribute):
            return super().steps(L2(change.beta, change.units))
        return super().steps(change)

    def describe(self) -> str:
        return (
            f"one whole vector, moved by at most {self.radius:g} in Euclidean distance, "
            f"{self._in_units}"
        )

    several = (
        "a change beyond the radius: m times {radius:g} costs m × {epsilon:g} (group "
        "privacy{growth})"
    )


@dataclass(frozen=True)
class Record(VectorAdjacency):
    """Any two vectors are neighbours: the whole record is hidden, whatever it holds.

    The adjacency of local differential privacy (Duchi, Jordan & Wainwright 2013).

    Parameters
    ----------
    unit : "vector" or "person"
        Whose record it is. ``"person"`` says that every person has one vector in the release, made
        of all that this person gave (:func:`dpindex.data.one_per_person`). It changes no number.

    Raises
    ------
    InputError
        For any other text.

    >>> Record().describe()
    'one whole vector, replaced by any other (any two vectors)'
    >>> Record("person").describe()
    "all of one person's vectors, replaced by any others (one release a person)"
    """

    unit: Unit = "vector"
    kind = "record"

    def __post_init__(self) -> None:
        _one_of(self.unit, Unit, "the unit of a record")

    @property
    def size(self) -> float:
        return 1.0

    def to_dict(self) -> dict[str, Any]:
        if self.unit == "vector":
            return {"kind": self.kind}
        return super().to_dict()

    def in_data_units(self, scale: float, ranges: str | None = None) -> Record:
        return self

    def steps(self, change: Adjacency) -> int | None:
        """Return 1 for any change of a vector: any two are neighbours."""
        one = change.of if isinstance(change, Group) else change
        if isinstance(one, Attribute | L2):
            return 1
        return super().steps(change)

    def __str__(self) -> str:
        return f"record ({_RECORDS[self.unit].pairs})"

    def describe(self) -> str:
        return _RECORDS[self.unit].change

    @property
    def several(self) -> str:
        return _RECORDS[self.unit].several


class _Sentences(NamedTuple):
    """What records of one unit are: the pairs of neighbours, their change, and several of them."""

    pairs: str
    change: str
    several: str


_RECORDS = {
    "vector": _Sentences(
        "any two vectors",
        "one whole vector, replaced by any other (any two vectors)",
        "one person's several vectors: m of them cost m × {epsilon:g} (group privacy{growth})",
    ),
    "person": _Sentences(
        "any two persons, one vector each",
        "all of one person's vectors, replaced by any others (one release a person)",
        "a person who appears under two names or in two releases: epsilons and deltas add up",
    ),
}


@dataclass(frozen=True)
class Records(Adjacency):
    """Two *collections* are neighbours when they differ in one whole record.

    Parameters
    ----------
    neighbouring : "add-remove" or "replace"
        ``"add-remove"``: one of them holds one record more (how many there are is protected too).
        ``"replace"``: both hold equally many and one record differs, so every count may change
        twice.

    The adjacency of sketches, which speak about a collection; codes speak about one vector.

    Raises
    ------
    InputError
        For any other text.

    >>> Records("replace")
    Records(neighbouring='replace')
    """

    neighbouring: Neighbouring
    kind = "records"
    published = "the released sketch, its hash functions and all parameters"
    against = (
        "This holds for all queries together, however many are asked. The guarantee is central: it "
        "holds against everyone who sees the sketch, not against whoever built it."
    )
    several = "one person's several records: m of them cost m × {epsilon:g} (group privacy{growth})"

    def __post_init__(self) -> None:
        _one_of(self.neighbouring, Neighbouring, "neighbouring")

    def __str__(self) -> str:
        return f"records({self.neighbouring})"

    def describe(self) -> str:
        change = {"add-remove": "added or removed", "replace": "replaced by any other"}
        return f"one whole record of the collection, {change[self.neighbouring]}"

    def visible(self) -> list[str]:
        lines = [
            "the collection against whoever builds the sketch: that party sees the records",
            "a second sketch of the same records: epsilons and deltas add up",
            "facts that can be learnt from other people's records",
            "parameters chosen by looking at the records (bandwidth, scaling, class labels)",
            "queries: whoever answers them sees them",
        ]
        if self.neighbouring == "replace":
            lines.append("how many records there are")
        return lines


@dataclass(frozen=True)
class Group(Adjacency):
    """Several changes at once, each between neighbours under one adjacency.

    Attributes
    ----------
    changes : int
    of : Adjacency
        Of each change.

    >>> print(Group(10, Attribute(0.5)))
    10 × attribute(beta=0.5)
    """

    changes: int
    of: Adjacency
    kind = "group"

    @property
    def published(self) -> str:
        return self.of.published

    @property
    def against(self) -> str:
        return self.of.against

    @property
    def several(self) -> str:
        return self.of.several

    def __str__(self) -> str:
        return f"{self.changes} × {self.of}"

    def describe(self) -> str:
        return f"{self.changes} changes at once, each of {self.of.describe()}"

    def visible(self) -> list[str]:
        return self.of.visible()

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "changes": self.changes, "of": self.of.to_dict()}


def attribute(beta: float) -> Attribute:
    """Neighbours differ in one coordinate by at most ``beta`` (a spec's: after its ``scale``).

    >>> attribute(0.5)
    Attribute(beta=0.5)
    """
    return Attribute(beta)


def l2(radius: float) -> L2:
    """Neighbours lie within Euclidean distance ``radius`` (a spec's: after its ``scale``).

    >>> l2(2)
    L2(radius=2.0)
    """
    return L2(radius)


def record(unit: Unit = "vector") -> Record:
    """All pairs of vectors are neighbours: one whole record is hidden.

    With ``unit="person"`` every person has one vector in the release, and the person is hidden.

    >>> print(record())
    record (any two vectors)
    """
    return Record(unit)


def _one_of(value: str, kind: Any, name: str) -> None:
    """Refuse a text that the literal type ``kind`` does not list."""
    choices = get_args(kind)
    if value not in choices:
        stated = " or ".join(map(repr, choices))
        raise InputError(f"{name} must be {stated}, not {value!r}.")


_KINDS: dict[str, type[VectorAdjacency]] = {
    "attribute": Attribute,
    "l2": L2,
    "record": Record,
}


def adjacency_from_dict(data: Any) -> VectorAdjacency:
    """The inverse of ``to_dict`` for vectors; InputError if ``data`` is anything else.

    >>> adjacency_from_dict({"kind": "l2", "radius": 0.5})
    L2(radius=0.5)
    """
    return from_kind(data, _KINDS, "adjacency")
