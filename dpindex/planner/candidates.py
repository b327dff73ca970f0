"""Which methods and code lengths come into question: read off the table of methods."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from dpindex.errors import InputError
from dpindex.evaluate.specs import SpecGrid, spec_grid
from dpindex.method_table import Method, find_method, methods

__all__ = ["candidates"]

_SHARES = (1, 2, 4, 8, 16)
"""Attributes in a bin of OPORP; with one in each, numbers are those of a raw method."""

_MIN_BINS = 8
_FLOAT_LENGTHS, _BIT_LENGTHS = (128, 256, 512), (512, 1024)
"""Lengths of codes of dense projections, which do not depend on the number of attributes."""

_CODE_BYTES = (1, 2)


def candidates(
    dim: int, names: Iterable[str] | None, epsilon: float, max_bytes: int | None, **common: Any
) -> SpecGrid:
    """Specs of every DP method that has a guarantee under these terms, at a ladder of lengths.

    Parameters
    ----------
    names : iterable of str, optional
        Methods to consider; by default all that give DP. Individual DP is weaker and no default.
    max_bytes : int, optional
        Bytes that a code may have; lengths that just fit are tried too.
    **common
        Fields that all specs share: adjacency, delta, scale, bounds, clip, norm.
    """
    rows = [row for row in methods() if row.definition == "DP"]
    if names is not None:
        rows = [find_method(name) for name in dict.fromkeys(names)]
        if bare := [row.name for row in rows if row.definition == "none"]:
            raise InputError(f"{bare[0]} is not private, so there is nothing to plan with it.")
    grids = [
        spec_grid(dim, [row.name], [epsilon], _lengths(row, dim, max_bytes), **common)
        for row in rows
    ]
    return SpecGrid(
        tuple(spec for grid in grids for spec in grid.specs),
        tuple(sentence for grid in grids for sentence in grid.refused),
    )


def _lengths(row: Method, dim: int, max_bytes: int | None) -> Sequence[int | None]:
    if row.family.keeps_all:
        return (None,)
    bits = row.codes == "signs"
    if row.family.bins:
        shares = _SHARES if bits else _SHARES[1:]
        lengths = {dim // share for share in shares if dim // share >= _MIN_BINS} or {dim}
    else:
        lengths = set(_BIT_LENGTHS if bits else _FLOAT_LENGTHS)
    if max_bytes is not None:
        fitting = {8 * max_bytes} if bits else {max_bytes // size for size in _CODE_BYTES}
        most = 8 * max_bytes if bits else max_bytes
        lengths = {
            k for k in lengths | fitting if 0 < k <= (min(most, dim) if row.family.bins else most)
        }
    return sorted(lengths, reverse=True)
