"""What a method is: a family of projections and a calibrated law, and the parameters they take."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, get_args

from dpindex.base.checks import checked_delta, whole_number
from dpindex.base.errors import InputError, NoGuaranteeError
from dpindex.mechanism.codebooks import Codebook
from dpindex.mechanism.noise.base import Calibration, Moves
from dpindex.mechanism.parameters import Parameters, is_stated
from dpindex.mechanism.projections import Encoder
from dpindex.mechanism.public_parts import Design, PublicPart
from dpindex.mechanism.variants import Variant
from dpindex.privacy import attribute, l2, record

Length = Callable[[Parameters], int]
"""A default code length."""

EXAMPLE_ADJACENCIES = {"attribute": attribute(1.0), "l2": l2(1.0), "record": record()}
"""An adjacency of each kind."""

_EXAMPLE_LENGTH = 8

_KINDS = {
    "zero": "pure",
    "optional": "pure or approximate",
    "required": "approximate",
}
"""Kinds of guarantee, by what becomes of a delta."""

_REMEDIES: defaultdict[tuple[str, ...], str] = defaultdict(
    str,
    {("record",): "; state --record (dpindex.record())"},
)


def _refuse_unused(parameters: Parameters, **taken: bool) -> None:
    """Raise InputError for the first parameter that is stated and not taken."""
    for parameter in fields(parameters):
        if not taken.get(parameter.name, True) and is_stated(parameters, parameter):
            raise InputError(
                f"{parameters.method} takes no {parameter.name} here; leave it out.",
                field=parameter.name,
            )


@dataclass(frozen=True)
class Family:
    """A family of projections: how one is made, and which parameters it takes.

    Attributes
    ----------
    make : callable
        From parameters in which ``k`` and ``variant`` are resolved.
    default_length : callable
        Code length where none is given.
    variant : Variant
        The default of the variants that it has.
    keeps_all : bool
        The code length is dim.
    bins : bool
        Every coordinate of a repetition needs an attribute of its own: k / repetitions ≤ dim.
    lengths : range, optional
        The code lengths that it takes; by default any.
    public : type of PublicPart, optional
        The public part that it needs.
    subset : bool
        Takes ``subset``.
    windows : bool
        Takes ``window``.
    moves : "one", "units" or "any"
        What one attribute does to a projected vector: see
        :class:`dpindex.mechanism.noise.base.Calibration`.
    example : callable, optional
        Makes the public part of an example, from dim and a delta.
    """

    make: Callable[[Parameters], Encoder]
    default_length: Length
    variant: Variant = Variant()  # noqa: RUF009 (frozen)
    keeps_all: bool = False
    bins: bool = False
    lengths: range | None = None
    public: type[PublicPart] | None = None
    subset: bool = False
    windows: bool = False
    moves: Moves = "any"
    example: Callable[[int, float], PublicPart] | None = None

    def length_near(self, wanted: int) -> int | None:
        """Return the code length next to one that is wanted; None where it has only one."""
        has_one = self.lengths is not None and len(self.lengths) == 1
        if has_one or self.keeps_all or self.public is Design:
            return None
        return wanted if self.lengths is None else max(wanted, self.lengths[0])

    def resolved(self, parameters: Parameters) -> dict[str, Any]:
        """``k``, ``variant`` and ``subset``, checked, with defaults filled in."""
        _refuse_unused(
            parameters,
            subset=self.subset,
            window=self.windows,
            codebook=self.public is Codebook,
            design=self.public is Design,
        )
        variant = parameters.variant.of_kind(self.variant, parameters.method)
        self._check_public(parameters)
        k = parameters.k or self.default_length(parameters)
        if self.keeps_all and k != parameters.dim:
            raise InputError(
                f"{parameters.method} keeps every coordinate: k must be dim = {parameters.dim}."
            )
        variant = variant.resolved(parameters.dim, k)
        bins = k // variant.repetitions
        if self.bins and bins > parameters.dim:
            raise InputError(
                f"{parameters.method} needs k / repetitions ≤ dim: {bins} bins cannot be "
                f"filled by {parameters.dim} attributes."
            )
        if self.lengths is not None and k not in self.lengths:
            lengths = self.lengths
            if len(lengths) == 1:
                raise InputError(f"{parameters.method} has codes of one length; leave k out.")
            raise InputError(
                f"k of {parameters.method} must be a multiple of {lengths.step} from {lengths[0]} "
                f"to {lengths[-1]}, not {k}."
            )
        return {"k": k, "variant": variant, "subset": self._subset(parameters)}

    def _check_public(self, parameters: Parameters) -> None:
        if self.public is None:
            return
        given = parameters.part(self.public)
        if given.dim != parameters.dim:
            raise InputError(
                f"the {given.kind} is of vectors of {given.dim} attributes, and these have "
                f"{parameters.dim}; make one of public vectors of the same kind."
            )
        if not isinstance(given, Design):
            return
        if parameters.k not in (None, given.code_length):
            raise InputError(f"k is that of the design, {given.code_length}; leave it out.")
        stated = (parameters.adjacency.size, parameters.change)
        if given.windows is not None and given.windows.beta not in stated:
            raise InputError(
                f"the windows of this design were made for beta = {given.windows.beta:g}, not "
                f"{parameters.adjacency.size:g}; make one for this.",
                field="design",
            )
        if given.norm != (2 if parameters.delta > 0 else 1):
            remedy = "with" if parameters.delta > 0 else "without"
            raise InputError(
                f"the columns of this design suit other noise; make one {remedy} a delta.",
                field="design",
            )

    def _subset(self, parameters: Parameters) -> int | None:
        if not self.subset:
            return None
        size = len(parameters.part(Codebook))
        subset = parameters.subset or _informative_subset(size, parameters.budget)
        return whole_number(subset, "subset", 1, size - 1)


def _informative_subset(size: int, epsilon: float) -> int:
    """Return how many nearest codewords make a report carry the most information.

    The information about a record's cell is largest near ``w·e^ε/K = ε − 1``, from an epsilon of
    about 3 on; below it, sets of ``2K/e^ε`` keep two of three reports inside.
    """
    finite = min(epsilon, 700.0)
    subset = size * math.exp(-finite) * max(2.0, finite - 1.0)
    whole = math.ceil(subset)
    return max(1, min(size // 2, whole))


@dataclass(frozen=True)
class Method:
    """One row: what a method is made of and where it comes from.

    Attributes
    ----------
    name : str
        The name used everywhere.
    family : Family
        The projections it uses: :mod:`dpindex.mechanism.method_table`.
    calibration : Calibration
        Its noise, what that needs and promises: :class:`dpindex.mechanism.noise.base.Calibration`.
    summary, source : str
        One line each: what it does, and the paper, algorithm and theorem behind it.
    """

    name: str
    family: Family
    calibration: Calibration
    summary: str
    source: str

    def __post_init__(self) -> None:
        law = self.calibration
        if law.rounded and self.private:
            least_first = get_args(Moves)
            # A law that counts on smaller moves than the map makes would hide less than it states.
            if least_first.index(self.family.moves) > least_first.index(law.moves):
                raise TypeError(f"the law of {self.name} has no guarantee for such a projection")

    @property
    def definition(self) -> str:
        """The kind of promise that its epsilon is: "DP", "iDP" or "none"."""
        return self.calibration.definition

    @property
    def private(self) -> bool:
        """False for the ``none-*`` baselines."""
        return self.calibration.definition != "none"

    @property
    def codes(self) -> str:
        """The name of its code format, such as "signs", "numbers" or "symbols"."""
        return self.calibration.format.name

    @property
    def needs_delta(self) -> bool:
        """True for approximate methods; pure ones take delta 0."""
        return self.calibration.delta == "required"

    @property
    def adjacencies(self) -> tuple[str, ...]:
        """Kinds of adjacency that it has a proof for."""
        return self.calibration.adjacencies

    @property
    def needs(self) -> str:
        """Parameters that must be stated beyond dim and epsilon, in words; empty if none."""
        needs = []
        if self.needs_delta:
            needs.append("delta below 1/2" if self.calibration.max_delta == 0.5 else "delta")
        if "attribute" not in self.adjacencies:
            needs.append(" or ".join(self.adjacencies))
        if self.calibration.bounded:
            needs.append("bounds no wider than beta")
        if self.family.public is not None:
            needs.append(f"a {self.family.public.kind}")
        return " and ".join(needs)

    def example(self, dim: int) -> dict[str, Any]:
        """Return fields of a small spec: all that the method needs, at ordinary values.

        Vectors have ``dim`` attributes.
        """
        delta = 1e-6 if self.needs_delta else 0.0
        low = 0.0 if self.calibration.bounded else -1.0
        fields: dict[str, Any] = {
            "method": self.name,
            "dim": dim,
            "k": self.family.length_near(min(dim, _EXAMPLE_LENGTH)),
            "epsilon": 2.0 if self.private else None,
            "delta": delta,
            "adjacency": EXAMPLE_ADJACENCIES[self.adjacencies[0]],
            "bounds": (low, 1.0),
        }
        if self.family.example is not None:
            part = self.family.example(dim, delta)
            fields[part.kind] = part
        return fields

    @property
    def delta_over(self) -> str:
        """The randomness that a delta is about: "noise", "projection", or "" without one."""
        if self.calibration.delta == "zero":
            return ""
        return self.calibration.delta_over

    @property
    def kind(self) -> str:
        """The kind of its guarantee: "pure", "approximate", "pure or approximate" or "none"."""
        return _KINDS[self.calibration.delta] if self.private else "none"

    def to_dict(self) -> dict[str, Any]:
        """Return the properties that a user chooses by, as plain JSON values."""
        return {
            "name": self.name,
            "codes": self.codes,
            "definition": self.definition,
            "kind": self.kind,
            "delta_over": self.delta_over,
            "adjacency": ", ".join(self.adjacencies) if self.private else "none",
            "needs": self.needs,
            "variants": self.family.variant.parameters,
            "exact": self.calibration.exact and self.private,
            "summary": self.summary,
            "source": self.source,
        }

    def resolved(self, parameters: Parameters) -> dict[str, Any]:
        """The parameters that have defaults, filled in, once all are known to fit together.

        Raises
        ------
        InputError
            One sentence for any combination that has no guarantee.
        """
        self._check_guarantee(parameters)
        values = self.family.resolved(parameters)
        self._check_min_norm(parameters, values["variant"])
        size = parameters.adjacency.size
        low, high = parameters.bounds
        if self.calibration.bounded and high - low > size:
            raise NoGuaranteeError(
                f"{self.name} needs bounds no wider than beta = {size:g}, not [{low:g}, "
                f"{high:g}]; state the public range of an attribute."
            )
        return values

    def _check_guarantee(self, parameters: Parameters) -> None:
        law = self.calibration
        _refuse_unused(
            parameters,
            epsilon=self.private,
            delta=law.delta != "zero",
            record_epsilon=law.joint,
            scale=law.rounded,
            bounds=law.rounded,
            clip=law.rounded,
            norm=law.rounded,
        )
        if not self.private:
            return
        if parameters.epsilon is None:
            raise InputError(f"{self.name} needs an epsilon.", field="epsilon")
        if self.needs_delta or parameters.delta != 0:
            checked_delta(parameters.delta, self.name, law.max_delta)
        if parameters.adjacency.kind not in self.adjacencies:
            raise NoGuaranteeError(
                f"{self.name} has no guarantee under {parameters.adjacency}: it is analysed for "
                f"{' and '.join(self.adjacencies)} adjacency only{_REMEDIES[self.adjacencies]}."
            )

    def _check_min_norm(self, parameters: Parameters, variant: Variant) -> None:
        if self.calibration.check_norm is not None:
            self.calibration.check_norm(parameters, variant)
        elif variant.min_norm is not None:
            raise InputError(f"{self.name} does not use min_norm; leave it out.", field="variant")
