"""Public vectors that the self-test releases, and their exact integers summed by itself."""

import numpy as np

from dpindex.audit.input_checks import unit_vectors
from dpindex.audit.law_verifiers import law_verifier_class
from dpindex.base.errors import InputError
from dpindex.mechanism.spec import Projector
from dpindex.privacy import Record

FEW_ENTRIES = 6
"""A sparse probe has at most so many entries."""

_KINDS = 48
_DTYPES = (np.float32, np.float16, np.uint8, np.int8, np.int64)
_SIZES = (1e-30, 1e-6, 3e3, 1e6, 1e30)
_NORM_ERROR = 0.008


def probe_rows(spec):
    """Public vectors: the corners of the bounds, ties of the grid, the origin, a few entries, none.

    Whole records are also tiny and huge. A least norm is kept, and a declared one nearly.
    """
    random = np.random.default_rng(1)
    low, high = (bound * spec.scale for bound in spec.bounds)
    if spec.norm is not None or spec.variant.min_norm is not None:
        return _rows_of_norm(spec, random)
    rows = random.uniform(low, high, (_KINDS, spec.dim))
    if isinstance(spec.adjacency, Record):
        sizes = np.resize((1.0, *_SIZES), _KINDS)
        return rows * sizes[:, None]
    rows[:8] = random.choice([low, high], (8, spec.dim))
    step = spec.grid.step * spec.scale
    ties = step * (np.rint(rows[8:16] / step) + 0.5)
    rows[8:16] = ties.clip(low, high)
    if low <= 0 <= high:
        vanish = random.random((8, spec.dim)) < 0.5
        rows[16:24] = np.where(vanish, 0.0, rows[16:24])
        kept = random.integers(0, spec.dim, (16, FEW_ENTRIES))
        entries = np.take_along_axis(rows[24:40], kept, axis=1)
        rows[24:40] = 0.0
        np.put_along_axis(rows[24:40], kept, entries, axis=1)
        rows[40] = 0.0
    if spec.clip:
        rows[41:44] *= 3.0
    return rows


def _rows_of_norm(spec, random):
    """Vectors of equal magnitudes, whose norm is the least one or about the declared one."""
    low, high = (bound * spec.scale for bound in spec.bounds)
    norm = spec.norm or 1.02 * (spec.variant.min_norm or 0.0)
    size = norm * spec.scale / np.sqrt(spec.dim)
    if size > max(-low, high):
        raise InputError("no vector within the bounds has the norm of this spec; widen them.")
    signs = 2 * random.integers(0, 2, (_KINDS, spec.dim)) - 1
    beyond = (signs * size > high) | (signs * size < low)
    rows = np.where(beyond, -signs, signs) * size
    if spec.norm is not None:
        sizes = random.uniform(1 - _NORM_ERROR, 1 + _NORM_ERROR, (_KINDS, 1))
        rows = (rows * sizes).clip(low, high)
    return rows


def typed_rows(spec, rows):
    """The probes in other types of numbers, where they lie within the bounds and keep the norm."""
    low, high = (bound * spec.scale for bound in spec.bounds)
    records = isinstance(spec.adjacency, Record)
    has_norm = spec.norm is not None or spec.variant.min_norm is not None
    for dtype in _DTYPES:
        whole = issubclass(dtype, np.integer)
        if has_norm and (whole or dtype == np.float16):  # which would round it away
            continue
        moderate = rows
        moderate = rows
        if records:
            sizes = np.abs(rows).max(axis=1, keepdims=True)
            smallest = np.finfo(np.float64).tiny
            moderate = 100.0 * rows / np.maximum(sizes, smallest)
        if whole:
            limits = np.iinfo(dtype)
            moderate = np.rint(moderate).clip(limits.min, limits.max)
        typed = moderate.astype(dtype)
        inside = (typed >= low) & (typed <= high)
        within = inside.all(axis=1) | records
        if within.any():
            yield typed[within]


def wrong_rows(spec, rows):
    """Vectors that must be refused, by what is wrong with them."""
    row = rows[0].copy()
    row[-1] = np.nan
    wrong = {"not a number": row}
    if not isinstance(spec.adjacency, Record) and not spec.clip:
        low, high = spec.bounds
        beyond = rows[0].copy()
        beyond[0] = spec.scale * (high + 0.02 * (high - low))
        wrong["beyond the bounds"] = beyond
        whole = np.zeros(spec.dim)
        whole[-1] = np.floor(spec.scale * high) + 1.0
        wrong["of whole numbers beyond the bounds"] = whole
    if spec.variant.min_norm is not None:
        wrong["shorter than min_norm"] = 0.97 * rows[0]
        largest = max(abs(bound) for bound in spec.bounds)
        if spec.clip and largest < spec.variant.min_norm:
            peak = np.zeros(spec.dim)
            peak[0] = 10.0 * spec.variant.min_norm * spec.scale
            wrong["shorter than min_norm once they are clipped"] = peak
    if spec.norm is not None:
        wrong["not of the declared norm"] = 0.8 * rows[0]
    return wrong


def exact_integers(spec, rows):
    """The projected grid integers of vectors, summed from the entries of the map.

    Laws of whole codes promise the same of any input, so there the encoder's map is believed.
    """
    if law_verifier_class(spec).whole_code:
        return np.asarray(Projector(spec).project(rows))
    grid = spec.grid
    low, high = (bound * grid.scale for bound in grid.bounds)
    factor = np.array(1.0 / (grid.step * grid.scale), dtype=grid.dtype)
    floats = rows.astype(np.float64).clip(low, high).astype(grid.dtype)
    whole = np.rint(floats * factor).astype(np.float64)
    total = np.zeros((len(rows), spec.projection.k))
    for attributes, unit in unit_vectors(spec):
        entries = np.asarray(spec.projection.apply(unit.toarray()))
        # Below 2^53 sums of integers are exact in any order.
        total += whole[:, attributes] @ entries.astype(np.float64)
    return total.astype(np.int64)
