"""Exact checks of windows: how far one attribute moves in its window, and that vectors lie in it.

A value is rounded by the factor of its attribute, moved by the window's low end and clipped to 0 …
t. So it moves by at most t, and by at most what its factor and the lemma of
:func:`dpindex.audit.input_checks.grid_checks` allow a change of one beta: the less of both counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import numpy as np
from scipy import sparse

from dpindex.audit.verdict import Check
from dpindex.base.arrays import AnyArray, Doubles
from dpindex.base.files import unpack
from dpindex.mechanism.grid import Grid, Windows
from dpindex.mechanism.projections import Projection
from dpindex.mechanism.public_parts import Design
from dpindex.mechanism.public_random import PublicStream
from dpindex.mechanism.spec import Projector, Spec

_RANDOM = 8
_NARROWEST = 2.0**-20


def windows_of(spec: Spec) -> Windows | None:
    """Return the windows that a spec states: of a design those in its bytes."""
    if not isinstance(spec.public, Design):
        return Projection.of(spec.projection).windows
    facts, arrays = unpack(spec.part(Design).to_bytes(), "design")
    if not len(arrays["width"]):
        return None
    windows = Windows(arrays["low"], arrays["width"], float(facts["beta"]))
    return windows.spread(arrays["attributes"], spec.dim)


def windows_check(
    spec: Spec,
    distance: Fraction,
    error_of: Callable[[float], Fraction | None],
) -> Check | None:
    """Return the check of the windows, if there are some.

    Parameters
    ----------
    spec : Spec
    distance : Fraction
        Of two neighbours' attributes, before division by ``scale``.
    error_of : callable
        How far the lemma lets rounded floats be from real numbers, given a factor; None if floats
        are too narrow for it.
    """
    stated = windows_of(spec)
    grid = spec.grid
    if stated is None:
        if grid.windows is None:
            return None
        return _check("vectors are clipped to windows that nobody states", Fraction(0), grid, False)
    if grid.windows is None:
        return _check("no vector is clipped", Fraction(0), grid, False)
    moved = Fraction(0)
    factors = grid.placed.factor.tolist()
    tops = grid.placed.top.tolist()
    for factor, top in set(zip(factors, tops, strict=True)):
        steps = Fraction(top)
        error = error_of(factor)
        if error is not None:
            steps = min(steps, Fraction(factor) * distance + 2 * error)
        moved = max(moved, steps)
    rows = _probes(spec, stated)
    found = "as they are stated"
    if not _in_place(spec, stated, rows):
        found = "NOT those that are stated"
    elif not _same_by_both_routes(spec, rows):
        found = "NOT the same of sparse rows"
    return _check(found, moved, grid, found == "as they are stated")


def _check(found: str, moved: Fraction, grid: Grid, sound: bool) -> Check:
    return Check(
        "windows: steps of one attribute",
        f"at most {float(moved):.8f}, {found}",
        f"2^{grid.bits} = {1 << grid.bits}",
        "an attribute is clipped to a public window, and moves by no more than that is wide, nor "
        "by more than one beta: max_j min(β, w_j)·Σ_i|W_ij| is what the columns of W allow",
        sound and moved <= 1 << grid.bits,
    )


def _probes(spec: Spec, windows: Windows) -> Doubles:
    """Rows with every attribute at, beside, inside and far beyond the ends of its window."""
    low, high = windows.ends(spec.bounds)
    width = np.maximum(high - low, 1e-9)
    shares = [-9.0, -0.5, -1e-3, 0.0, 1e-3, 0.25, 0.5, 0.75, 0.999, 1.0, 1.001, 1.5, 9.0]
    rows = [low + share * width for share in shares]
    mixed = PublicStream(0, "audit/windows").uniform(_RANDOM, spec.dim)
    rows += [*(low + (2 * mixed - 0.5) * width)]
    return np.clip(rows, *spec.bounds)


def _steps(spec: Spec, windows: Windows | None, rows: Doubles) -> Doubles:
    """Return what real numbers make of rows, in grid steps, shape (n, dim)."""
    grid = spec.grid
    if windows is None:
        return rows / grid.step
    low, high = windows.ends(spec.bounds)
    unit = np.minimum(high - low, spec.change)
    inside = np.clip(rows, low, high) - low
    share = np.divide(inside, unit, out=np.zeros_like(inside), where=unit > 0)
    return share * (1 << grid.bits)


def _in_place(spec: Spec, windows: Windows, rows: Doubles) -> bool:
    """Whether rounded probes are where real numbers say, to a step, and in whole steps."""
    grid = spec.grid
    low, high = windows.ends(spec.bounds)
    exact = _steps(spec, windows, rows)
    rounded = grid.round(rows * spec.scale).astype(np.float64)
    # One step for two values that are rounded, the 2^-16 that is held back where a window is wider
    # than beta, and the errors of floats.
    finest = np.maximum(high - low, spec.change * _NARROWEST)
    floats = 4 * np.finfo(grid.dtype).eps * (1 << grid.bits) * grid.reach / finest
    slack = 1 + exact * 2.0**-15 + floats
    whole = bool((rounded == np.rint(rounded)).all() and (rounded >= 0).all())
    inside = bool((rounded <= grid.placed.top).all())
    return whole and inside and bool((np.abs(rounded - exact) <= slack).all())


def _same_by_both_routes(spec: Spec, rows: Doubles) -> bool:
    low, high = spec.bounds
    if not low <= 0 <= high:
        return True  # sparse rows hold zeros, and are refused
    rows = rows.copy()
    rows[::2, ::3] = 0.0
    projector = Projector(replace(spec.without_ranges(), norm=None))
    scaled: AnyArray = rows * spec.scale
    dense = projector.project(scaled)
    return np.array_equal(dense, projector.project(sparse.csr_matrix(scaled)))


def centre_of(spec: Spec, centre: AnyArray, attributes: AnyArray) -> Doubles:
    """Return what real numbers make of a design's centre, in grid steps, shape (dim,)."""
    row = np.zeros((1, spec.dim))
    row[0, attributes] = np.clip(centre.astype(np.float64), *spec.bounds)
    return np.asarray(_steps(spec, windows_of(spec), row)[0])
