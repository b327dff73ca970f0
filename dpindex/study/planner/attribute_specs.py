"""The specs that a plan for neighbours in an attribute, or within a radius, compares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dpindex.mechanism.codes import CodeFormat, SignFormat, for_format
from dpindex.mechanism.spec import Spec
from dpindex.study.plan_options import PlanOptions
from dpindex.study.planner.neighbourhood import methods_to_try, require_method
from dpindex.study.planner.public_sample import MAX_DENSE_DIM
from dpindex.study.specs import SpecGrid, spec_grid

__all__ = ["attribute_specs"]

_WIDE_LENGTHS = {256, 512, 1024}
# Code lengths of dense projections, whatever the number of attributes.
_LENGTHS: dict[type[object], set[int]] = {CodeFormat: {128, 256, 512}, SignFormat: {512, 1024}}
# Attributes in a bin of OPORP. Numbers with one attribute in each bin are those of a raw method.
_SHARES: dict[type[object], tuple[int, ...]] = {
    CodeFormat: (2, 4, 8, 16),
    SignFormat: (1, 2, 4, 8, 16),
}
_MIN_BINS = 8


def attribute_specs(
    options: PlanOptions, names: Sequence[str] | None, epsilon: float, terms: Mapping[str, Any]
) -> SpecGrid:
    """Return specs of all methods with a guarantee under these terms, at several code lengths.

    Without names they are those that give DP for the published projection.

    Raises
    ------
    InputError
        If there is none.
    """
    specs: list[Spec] = []
    refused: list[str] = []
    for method in methods_to_try(names):
        if names is None and method.definition != "DP":
            continue
        if options.metric not in method.calibration.format.metrics:
            refused.append(f"{method.name} has no codes that are ranked by {options.metric}.")
            continue
        sparse = method.family.bins or method.family.blocks
        sparse = sparse or terms.get("entries") == "very-sparse"
        if options.dim > MAX_DENSE_DIM and not sparse:
            refused.append(f"{method.name} is not planned above {MAX_DENSE_DIM} attributes.")
            continue
        grid = spec_grid(options.dim, [method.name], [epsilon], **terms)
        overs = {spec.guarantee.delta_over for spec in grid.specs}
        if names is None and "projection" in overs:
            continue
        if grid.specs:
            lengths = _lengths(grid.specs[0], options.max_bytes)
            grid = spec_grid(options.dim, [method.name], [epsilon], lengths, **terms)
        specs += grid.specs
        refused += grid.refused
    require_method(specs, refused)
    return SpecGrid(tuple(specs), tuple(refused))


def _lengths(spec: Spec, max_bytes: int | None) -> list[int]:
    """Return code lengths to try for a method, of which ``spec`` has the default length.

    A raw method has no other length, and :func:`spec_grid` ignores these.
    """
    kind = spec.format_type
    in_bins = spec.method_row.family.bins
    if spec.dim > MAX_DENSE_DIM:
        lengths = _WIDE_LENGTHS
    elif in_bins:
        bins = {spec.dim // share for share in for_format(_SHARES, kind)}
        lengths = {k for k in bins if k >= _MIN_BINS} or {spec.dim}
    else:
        lengths = for_format(_LENGTHS, kind)
    if max_bytes is not None:
        fitting = {8 * max_bytes // bits for bits in kind.coordinate_bits}
        longest = max(fitting)
        if in_bins:
            longest = min(longest, spec.dim)
        lengths = {k for k in lengths | fitting if 0 < k <= longest}
    return sorted(lengths, reverse=True)
