"""Grids of specs to compare: the admissible combinations of methods, epsilons and code lengths."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from dpindex.base.errors import InputError
from dpindex.data import VectorSource
from dpindex.mechanism.method import Method
from dpindex.mechanism.method_table import find_method
from dpindex.mechanism.parameters import PARTS
from dpindex.mechanism.spec import Spec
from dpindex.mechanism.variants import Variant
from dpindex.privacy import Adjacency, l2, record

ANY_OF_NORM_1 = l2(2.0)
"""The adjacency of any two vectors of norm 1."""


@dataclass(frozen=True)
class SpecGrid:
    """The admissible specs of a grid, and the reasons why the others are not admissible.

    Attributes
    ----------
    specs : tuple of Spec
        Without duplicates, in the order of the methods as given.
    refused : tuple of str
        One sentence for each method and code length that has no guarantee under these parameters.

    >>> from dpindex import attribute
    >>> grid = spec_grid(64, ["dp-oporp-staircase"], [1, 2], [32], adjacency=attribute(1.0))
    >>> len(grid.specs), grid.refused
    (2, ())
    """

    specs: tuple[Spec, ...]
    refused: tuple[str, ...]


def spec_grid(
    dim: int,
    methods: Iterable[str],
    epsilons: Sequence[float],
    ks: Sequence[int | None] = (None,),
    *,
    delta: float = 1e-6,
    **common: Any,
) -> SpecGrid:
    """Specs of all combinations of methods, epsilons and code lengths.

    Raw methods keep all coordinates and enter once for each epsilon. Baselines have no epsilon and
    enter once for each stated k, or once with the longest code of the private methods.

    Parameters
    ----------
    dim : int
        Number of attributes of a vector.
    methods : iterable of str
        Names from :func:`dpindex.methods`.
    epsilons : sequence of float
        Budgets, each in [0.001, 64].
    ks : sequence of int or None
        Code lengths; None is the method's default.
    delta : float
        For the methods that need a delta, or take one with ``min_norm``; the others get 0.
    **common
        Other fields of :class:`dpindex.Spec`: adjacency, scale, bounds, clip, seed, …; methods
        that take no such ``variant``, ``codebook``, ``subset`` or ``window`` get none. Under
        ``record()`` methods that are analysed for ``l2`` only get ``l2(2)``: any two vectors of
        norm 1.

    Raises
    ------
    InputError
        For an unknown method.

    >>> from dpindex import attribute
    >>> grid = spec_grid(784, ["dp-oporp-staircase", "raw-gaussian", "none-oporp"], [1, 2], [128],
    ...     adjacency=attribute(1.0))
    >>> [(s.method, s.k, s.epsilon, s.delta) for s in grid.specs]
    [('dp-oporp-staircase', 128, 1.0, 0.0), ('dp-oporp-staircase', 128, 2.0, 0.0),
     ('raw-gaussian', 784, 1.0, 1e-06), ('raw-gaussian', 784, 2.0, 1e-06),
     ('none-oporp', 128, None, 0.0)]
    >>> print(*spec_grid(64, ["dp-oporp"], [1, 2], [128], adjacency=attribute(1.0)).refused)
    dp-oporp with k = 128: dp-oporp needs k / repetitions ≤ dim:
    128 bins cannot be filled by 64 attributes.
    """
    rows = [find_method(method) for method in methods]
    made: dict[str, dict[Spec, None]] = {row.name: {} for row in rows}
    refused: dict[str, None] = {}
    for row in sorted(rows, key=lambda row: not row.private):  # baselines have the others' lengths
        fields = _used(row, common)
        bounded = row.calibration.check_norm and fields.get("variant", Variant()).min_norm
        if row.needs_delta or bounded:
            fields["delta"] = delta
        used = [spec.code_length for line in made.values() for spec in line if not spec.codebook]
        budgets = epsilons if row.private else (None,)
        for k in _lengths(row, dim, ks, used):
            for epsilon in budgets:
                try:
                    spec = Spec(row.name, dim, k, epsilon, **fields)
                except InputError as error:
                    if k in ks:
                        length = f" with k = {k}" if k is not None else ""
                        refused[f"{row.name}{length}: {error}"] = None
                else:
                    made[row.name][spec] = None
    return SpecGrid(tuple(chain.from_iterable(made.values())), tuple(refused))


def _lengths(
    row: Method, dim: int, ks: Sequence[int | None], used: Sequence[int]
) -> list[int | None]:
    """Return the code lengths of a method; a baseline without one has the longest of the others."""
    if row.family.keeps_all:
        return [None]
    lengths = list(dict.fromkeys(ks))
    if not row.private and lengths == [None] and used:
        lengths = [max((k for k in used if k <= dim), default=None)]
    return lengths


def _used(row: Method, common: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that the method takes."""
    variant = common.get("variant", Variant())
    if not row.calibration.check_norm:
        variant = variant.with_norm(None)
    common = {**common, "variant": variant}
    used = {
        "variant": type(variant) is type(row.family.variant),
        "subset": row.family.subset,
        "window": row.family.windows,
    } | {kind: row.family.public is part for kind, part in PARTS.items()}
    fields = {name: value for name, value in common.items() if used.get(name, True)}
    kinds = row.adjacencies if row.private else ()
    if common.get("adjacency") == record() and "l2" in kinds and "record" not in kinds:
        fields.update(adjacency=ANY_OF_NORM_1, norm=1.0)
    return fields


def line_labels(specs: Iterable[Spec]) -> dict[Spec, str]:
    """Return the names of specs in charts; one name where the code length follows epsilon.

    >>> from dpindex import attribute
    >>> terms = {"dim": 784, "adjacency": attribute(1.0)}
    >>> specs = [Spec("dp-oporp-staircase", epsilon=e, **terms) for e in (3.0, 10.0)]
    >>> set(line_labels(specs).values())
    {'dp-oporp-staircase, k = 320 to 784'}
    """
    lines: dict[str, list[Spec]] = {}
    for spec in dict.fromkeys(specs):
        lines.setdefault(label(spec, "k"), []).append(spec)
    names: dict[Spec, str] = {}
    for line in lines.values():
        lengths = [spec.code_length for spec in line]
        size = ""
        if len({spec.epsilon for spec in line}) == len(line) and min(lengths) < max(lengths):
            size = f"k = {min(lengths)} to {max(lengths)}"
        names |= {spec: label(spec, size) for spec in line}
    return names


def label(spec: Spec, size: str = "") -> str:
    """Return a spec's name in charts: what tells it apart from others, without epsilon.

    ``size`` replaces the code length.

    >>> from dpindex import attribute
    >>> label(Spec("dp-oporp-staircase", dim=64, k=32, epsilon=1.0, adjacency=attribute(1.0)))
    'dp-oporp-staircase, k = 32'
    """
    if not size:
        size = f"k = {spec.code_length}"
    if spec.symbols:
        size = f"K = {spec.symbols}"
    parts = [f"{spec.method}, {size}"]
    if spec.adjacency == ANY_OF_NORM_1:
        parts.append("any two vectors of norm 1")
    if spec.delta > 0:
        parts.append(f"δ = {spec.delta:g}")
    parts += spec.variant.words
    name = ", ".join(parts)
    if spec.guarantee.definition == "iDP":
        name += " (iDP)"
    return name


def columns_of(spec: Spec) -> dict[str, Any]:
    """What tells a spec apart, as columns of a table."""
    return {
        "method": spec.method,
        "definition": spec.guarantee.definition,
        "adjacency": str(spec.guarantee.adjacency),
        "epsilon": spec.epsilon,
        "delta": spec.delta,
        "k": spec.code_length,
        "codewords": spec.symbols,
        "subset": spec.subset,
        "window": spec.window,
        "repetitions": spec.variant.repetitions,
    }


def common_adjacency(specs: Sequence[Spec]) -> Adjacency:
    """The adjacency of all specs, so that their epsilons can be compared.

    ``record()`` and ``l2(2)`` are one, for vectors of norm 1. InputError for others that differ.
    """
    kinds = {spec.guarantee.adjacency for spec in dict.fromkeys(specs)}
    if kinds == {record(), ANY_OF_NORM_1}:
        return record()
    agreed("adjacency", [spec.guarantee.adjacency for spec in specs])
    return kinds.pop()


def agreed(name: str, values: Iterable[Any]) -> None:
    """InputError unless all specs of one curve have one value in the field ``name``."""
    value, *others = dict.fromkeys(values) or [None]
    if others:
        raise InputError(
            f"the specs of one curve must agree in {name}, not have {value} and {others[0]}; "
            f"measure them separately."
        )


def hides_records(spec: Spec) -> bool:
    """Return whether any two vectors are neighbours, once they are at norm 1."""
    any_of_norm_1 = spec.adjacency == ANY_OF_NORM_1 and spec.norm == 1.0
    return spec.adjacency == record() or any_of_norm_1


def in_ranges(
    specs: Iterable[Spec], *sources: VectorSource
) -> tuple[list[Spec], list[VectorSource]]:
    """Return vectors brought to 0 … 1 by the ranges of specs, and the specs for such vectors.

    Raises InputError for specs of several ranges, whose vectors cannot be compared.
    """
    several = list(specs)
    ranges, *others = {spec.ranges for spec in several} or {None}
    if others:
        raise InputError("all specs need the same ranges, or none: distances are compared in them.")
    if ranges is None:
        return several, list(sources)
    return [spec.without_ranges() for spec in several], [ranges.source(s) for s in sources]
