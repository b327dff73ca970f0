"""Exact checks of what happens before the noise, and of the release of a sketch.

Of codes: the grid and the projection, which is read entry by entry as it is applied, so no
sensitivity is taken on trust. Of a sketch: the hashes, and how far one record moves the counts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from copy import copy
from dataclasses import astuple, dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse

from dpindex.audit.exact_arithmetic import above_root
from dpindex.audit.verdict import Check, Difference
from dpindex.audit.window_checks import centre_of, windows_check
from dpindex.base.arrays import AnyArray, Doubles, Longs, row_blocks
from dpindex.base.errors import InputError
from dpindex.base.files import unpack
from dpindex.decode import decoder_of
from dpindex.mechanism.grid import Grid
from dpindex.mechanism.projections import Projection, Sensitivity
from dpindex.mechanism.public_parts import Design
from dpindex.mechanism.public_random import BitSource, PublicStream
from dpindex.mechanism.spec import Spec
from dpindex.privacy import Record
from dpindex.race import PStable, RaceSketch, SketchSpec
from dpindex.race.hashes import MAX_SUM

_MAX_ENTRIES = 1 << 32
_MAX_GRAM = 96
_SCALE_BITS = 40
_PROBES = 12
_PAIRS = 1 << 22
_DIRECTION_BITS = 16
_MAX_OFFSET = 1 << 28


@dataclass(frozen=True)
class RealisedMap:
    """The map W as it was read, one row an attribute.

    Attributes
    ----------
    moves : Sensitivity
        The most non-zero entries, the largest ``Σ|w|`` and ``Σw²`` of any row.
    largest : int array, shape (k,)
        The largest ``|w|`` of each coordinate.
    max_column_l1 : int
        The largest ``Σ|w|`` of any coordinate.
    sound : bool
        Whether all entries are integers, and the dense and the sparse route agree on them.
    spread : int
        The most by which one attribute, changed by one, moves two coordinates apart.
    entries : int array, shape (dim, k), optional
        The map itself, where whole vectors may move.
    """

    moves: Sensitivity
    largest: Longs
    max_column_l1: int
    sound: bool
    spread: int
    entries: Longs | None


def code_checks(spec: Spec) -> tuple[list[Check], Difference]:
    """Checks of the grid and the projection, and how far apart they leave two neighbours."""
    epsilon = Fraction(spec.guarantee.epsilon)
    delta = Fraction(spec.guarantee.delta)
    if isinstance(spec.adjacency, Record):
        any_input = Check(
            "input: any two vectors",
            "floats decide what is encoded",
            "whatever the law is given",
            "the check of the law is about all inputs of the law, so nothing before it can matter",
            True,
        )
        return [any_input], Difference(epsilon, delta, Sensitivity.of_signs(1))
    realised_map = read_map(spec)
    checks, steps = grid_checks(spec, realised_map)
    checks.append(_projection_check(spec, realised_map))
    moves = realised_map.moves
    apart = Difference(epsilon, delta, moves, spec.grid.bits, realised_map.largest)
    if decoder_of(spec).by_symbol:
        # Such a law rests on the difference of two scores.
        checks.append(_offsets_check(spec, realised_map))
        spread = Fraction(realised_map.spread)
        if realised_map.entries is not None:
            spread = above_root(Fraction(_largest_distance(realised_map.entries)))
        return checks, replace(apart, spread=spread * steps)
    if isinstance(spec.public, Design):
        checks.append(_design_check(spec, spec.public))
    if realised_map.entries is not None:
        operator_norm = Fraction(float(Projection.of(spec.projection).operator_norm))
        square = operator_norm**2
        checks.append(_norm_check(realised_map.entries, square))
        moves = replace(moves, count=spec.code_length)
        apart = replace(apart, moves=moves, ball=above_root(square) * steps)
    return checks, apart


def _offsets_check(spec: Spec, realised_map: RealisedMap) -> Check:
    """Scores with their offsets, and differences of two of them."""
    law: Any = spec.law
    offsets = law.offsets
    bits = np.finfo(spec.grid.dtype).nmant + 1
    largest = int(np.abs(offsets).max())
    rounding = _rounding(spec.grid)
    whole = False
    found = "offsets that are no integers"
    if rounding is not None:
        whole = bool((offsets == np.rint(offsets)).all())
        integer = _largest_integer(spec.grid, rounding)
        largest += integer * realised_map.max_column_l1
    if whole:
        found = f"at most {2 * largest}"
    return Check(
        "scores: sums and differences are exact integers",
        found,
        f"2^{bits}",
        "two scores are compared by their difference",
        whole and 2 * largest <= 1 << bits,
    )


def _largest_distance(entries: Longs) -> int:
    """The largest squared distance of two columns, in exact integers."""
    squares = (entries**2).sum(axis=0)
    largest = 0
    for rows in row_blocks(len(squares), _PAIRS // len(squares)):
        products = entries[:, rows].T @ entries
        distances = squares[rows, None] + squares - 2 * products
        largest = max(largest, int(distances.max()))
    return largest


def read_map(spec: Spec) -> RealisedMap:
    """Apply both routes (dense and sparse) of the projection to every unit vector."""
    dim = spec.dim
    k = spec.projection.k
    whole_vectors = spec.adjacency.kind == "l2"
    needs_norm = whole_vectors and not decoder_of(spec).by_symbol
    if dim * k > _MAX_ENTRIES or (needs_norm and min(dim, k) > _MAX_GRAM):
        raise InputError(
            f"the verifier reads at most {_MAX_ENTRIES} entries of a projection, and proves an "
            f"operator norm for at most {_MAX_GRAM} attributes or coordinates, not for {dim} × "
            f"{k}; verify a smaller spec of the same method and epsilon."
        )
    largest = np.zeros(k, dtype=np.int64)
    sums = np.zeros(k, dtype=np.int64)
    sound = True
    spread = 0
    norms = [0, 0, 0]  # L0, L1 and squared L2 of the attribute that moves the most
    blocks = []
    for _, unit in unit_vectors(spec):
        image = np.asarray(spec.projection.apply(unit.toarray()))
        by_sparse_route = spec.projection.apply_sparse(unit)
        sizes = np.abs(image).astype(np.int64)
        sound &= np.array_equal(image, by_sparse_route)
        sound &= np.array_equal(np.abs(image), sizes)
        apart = np.ptp(image, axis=1)
        spread = max(spread, int(apart.max()))
        for norm, powers in enumerate((sizes > 0, sizes, sizes**2)):
            largest_sum = int(powers.sum(axis=1).max())
            norms[norm] = max(norms[norm], largest_sum)
        largest = np.maximum(largest, sizes.max(axis=0))
        sums += sizes.sum(axis=0)
        if whole_vectors:
            blocks.append(image.astype(np.int64))
    entries = None
    if whole_vectors:
        entries = np.concatenate(blocks)
    max_column_l1 = int(sums.max())
    moves = Sensitivity(*norms)
    return RealisedMap(moves, largest, max_column_l1, sound, spread, entries)


def grid_checks(spec: Spec, realised_map: RealisedMap) -> tuple[list[Check], Fraction]:
    """A change of one beta moves one grid integer by at most 2^bits, in the floats that run.

    *Lemma.* The grid integer is ``rint(fl(fl(x)·c))`` with c the factor as rounded. With unit
    roundoff u, least subnormal η and |x| ≤ X, what is rounded differs from ``x·c`` by at most
    ``e = c(uX + η) + u·c(X(1+u) + η) + η``, provided nothing overflows. Neighbours are at most
    β·scale apart, with the width of the bounds for β where that is less; so their values before
    rint differ by at most ``c·β·scale + 2e``. Rounding to even is monotone and commutes with even
    integers; so if that is at most 2^bits, the integers differ by at most 2^bits. One more roundoff
    2⁻⁵³ covers clipping, whose limits are products in float64.

    Under l2 adjacency a coordinate that changes by d changes by at most ``c·d + 2e + 1`` steps, so
    all dim of them by ``c·radius·scale + √dim·(1 + 2e)`` in L2 (triangle inequality).

    Also returns the grid steps, in L2, between two neighbours.
    """
    grid = spec.grid
    reach = Fraction(1 << grid.bits)
    lemma = "monotone rounding commutes with even integers; float errors bounded in rationals"
    name = "grid: steps of one beta"
    bound = f"2^{grid.bits} = {reach}"
    rounding = _rounding(grid)
    if rounding is None:
        return [Check(name, "overflow of the float type", bound, lemma, False)], reach
    # As the spec and as the guarantee state it, in the units of the data.
    stated = Fraction(spec.adjacency.size) * Fraction(grid.scale)
    promised = spec.adjacency.in_data_units(grid.scale)
    distance = max(stated, Fraction(promised.size))
    if spec.adjacency.kind == "attribute":
        low, high = map(Fraction, grid.bounds)
        distance = min(distance, (high - low) * Fraction(grid.scale))
    steps = rounding.factor * distance + 2 * rounding.error
    passed = steps <= reach and 1 <= grid.bits == spec.law.grid_bits
    if realised_map.entries is not None:
        name = "grid: steps of the radius"
        lemma = "each coordinate is rounded: triangle inequality"
        of_one_coordinate = 1 + 2 * rounding.error
        reach += above_root(Fraction(spec.dim)) * of_one_coordinate
        bound = f"2^{grid.bits} + √dim·(1 + errors) = {float(reach):.8f}"
    checks = [Check(name, f"at most {float(steps):.8f}", bound, lemma, passed)]
    windows = windows_check(spec, distance, partial(_window_error, grid))
    if windows is not None:
        checks.append(windows)
    column_l1 = max(grid.max_column_l1, realised_map.max_column_l1)
    checks.append(_exactness_check(spec, _largest_integer(grid, rounding) * column_l1))
    return checks, reach


class _Rounding(NamedTuple):
    """The lemma's c and e, and the largest grid integer."""

    factor: Fraction
    error: Fraction
    largest_integer: int


def _largest_integer(grid: Grid, rounding: _Rounding) -> int:
    """The largest integer that is projected: in windows, their widest."""
    if grid.windows is None:
        return rounding.largest_integer
    return int(grid.placed.top.max())


def _window_error(grid: Grid, factor: float) -> Fraction | None:
    """The lemma's e for a factor; None where integers are too large to subtract exactly."""
    rounding = _rounding(grid, factor)
    if rounding is None or rounding.largest_integer > 1 << np.finfo(grid.dtype).nmant:
        return None
    return rounding.error


def _rounding(grid: Grid, factor: float | None = None) -> _Rounding | None:
    """Return how far floats of the grid's type are from real numbers; None if they overflow."""
    info = np.finfo(grid.dtype)
    roundoff = Fraction(float(info.eps)) / 2
    least = Fraction(float(info.smallest_subnormal))
    ends = [Fraction(float(bound) * grid.scale) for bound in grid.bounds]
    largest = max(map(abs, ends))
    largest *= 1 + Fraction(1, 1 << 53)
    with np.errstate(over="ignore", under="ignore"):
        if factor is None:
            steps_per_unit = 1.0 / (grid.step * grid.scale)
            factor = float(grid.dtype(steps_per_unit))
    overflow = largest * (1 + roundoff) >= Fraction(float(info.max))
    if overflow or not 0 < factor < float(info.max):
        return None
    c = Fraction(factor)
    input_error = roundoff * largest + least
    error = c * input_error + roundoff * c * (largest + input_error) + least
    error += c * largest / (1 << 53)
    return _Rounding(c, error, int(c * largest + error) + 1)


def _exactness_check(spec: Spec, largest_sum: int) -> Check:
    """Sums of grid integers, and the noise that is added to them, are exact."""
    grid = spec.grid
    bits = np.finfo(grid.dtype).nmant + 1
    exact = 1 << bits
    if spec.law.adds_noise:
        # Sums held in float32 get their noise in 32 bits; others in 64, and then lose low bits.
        lost = 0
        if grid.dtype != np.float32:
            lost = spec.law.cell_bits
        exact = min(exact, ((1 << 31) - 1) << lost)
    return Check(
        "grid: sums are exact integers",
        f"at most {largest_sum}",
        str(exact),
        f"integers below 2^{bits} add exactly in any order, and so does the noise",
        largest_sum <= exact,
    )


def _projection_check(spec: Spec, realised_map: RealisedMap) -> Check:
    """The sensitivities that the law was calibrated for are those of the map that is applied."""
    map_ = Projection.of(spec.projection)
    moves = astuple(realised_map.moves)
    claimed = astuple(map_.sensitivity)
    within = all(a <= b for a, b in zip(moves, claimed, strict=True))
    within &= realised_map.max_column_l1 <= map_.max_column_l1
    within &= bool((realised_map.largest <= map_.largest).all())
    count, l1, l2_squared = moves
    found = f"{count} of {map_.k} coordinates, Σ|w| = {l1}, Σw² = {l2_squared}"
    if not realised_map.sound:
        found += ", entries or routes that do not agree"
    return Check(
        "projection: what one attribute moves",
        found,
        ", ".join(map(str, claimed)),
        "all attributes are read, dense and sparse; other coordinates have the same law on both",
        realised_map.sound and within,
    )


def _design_check(spec: Spec, design: Design) -> Check:
    """The columns of the design that is used, from its bytes, as it is applied, and its centre.

    A centre moves all vectors alike; it has to be subtracted in whole steps, before the noise.
    """
    data = design.to_bytes()
    _, arrays = unpack(data, "design")
    entries = arrays["entries"].T
    used = arrays["attributes"].astype(np.intp)
    power = design.norm
    heaviest = 0
    for column in entries.tolist():
        weight = sum(abs(int(entry)) ** power for entry in column)
        heaviest = max(heaviest, weight)
    stated_map = np.zeros((spec.dim, spec.code_length))
    stated_map[used] = entries
    centre = centre_of(spec, arrays["centre"], used) @ stated_map
    off = np.abs(stated_map).sum(axis=0)  # a step of each attribute
    offset = spec.offset
    inside = False
    if offset is not None:
        is_whole = bool((offset == np.rint(offset)).all())
        inside = is_whole and bool((np.abs(offset - centre) <= off).all())
    same = design.digest == hashlib.sha256(data).hexdigest()
    for attributes, unit in unit_vectors(spec):
        applied = spec.projection.apply(unit.toarray())
        same &= np.array_equal(stated_map[attributes], applied)
    found = f"Σ|w|{'²' if power == 2 else ''} = {heaviest} of a column, centre "
    if inside:
        found += "as stated, in whole steps"
    else:
        found += "NOT the stated one on the grid"
    if not same:
        found += ", NOT the map that is applied"
    return Check(
        "design: columns of the matrix, and the centre on the grid",
        found,
        f"2^{8 * power} = {1 << 8 * power}",
        "read from the bytes of the design that is used, whatever it states of itself; a public "
        "shift of all vectors in whole steps moves no neighbours apart",
        heaviest <= 1 << 8 * power and inside and same,
    )


def _norm_check(entries: Longs, square: Fraction) -> Check:
    dim, k = entries.shape
    gram = entries.T @ entries if k <= dim else entries @ entries.T
    proved = norm_at_most(gram, square)
    return Check(
        "projection: operator norm",
        f"‖W‖² at most {float(square):.12g}: {'proved' if proved else 'NOT'}",
        "an upper bound",
        "t·I − WᵀW is positive semidefinite (Sylvester: all leading minors, in exact integers)",
        proved,
    )


def norm_at_most(gram: Longs, square: Fraction) -> bool:
    """Whether no eigenvalue of a symmetric integer matrix exceeds ``square``, in exact integers."""
    diagonal = np.diag(gram)
    if np.array_equal(gram, np.diag(diagonal)):
        return int(diagonal.max()) <= square
    # Rounded down: a slightly smaller bound is proved.
    bound = int(square * (1 << _SCALE_BITS))
    rows = bound * np.eye(len(gram), dtype=np.int64).astype(object)
    rows -= gram.astype(object) << _SCALE_BITS
    # Bareiss 1968: without fractions every pivot is a leading minor of the matrix.
    before = 1
    while len(rows):
        pivot = rows[0, 0]
        if pivot <= 0:
            return False
        eliminated = np.outer(rows[1:, 0], rows[0, 1:])
        rows = (rows[1:, 1:] * pivot - eliminated) // before
        before = pivot
    return True


def sketch_checks(spec: SketchSpec) -> tuple[list[Check], Difference]:
    """Checks of the hashes and the release, and how far apart two neighbours' counts are."""
    moved = spec.rows
    if spec.neighbouring == "replace":
        moved = 2 * spec.rows
    moves = Sensitivity.of_signs(moved)
    apart = Difference(Fraction(spec.epsilon), Fraction(spec.delta), moves)
    return [_sums_check(spec), _sensitivity_check(spec), _release_check(spec)], apart


def _sums_check(spec: SketchSpec) -> Check:
    """``|Σ a_j x_j| ≤ max|a_j|·Σ|x_j|``; the hasher refuses or scales what has a larger Σ|x_j|."""
    directions = spec.hasher.directions * 2.0**_DIRECTION_BITS
    whole = bool((directions == np.rint(directions)).all())
    steepest = int(np.abs(directions).max())
    largest_sum = steepest * int(MAX_SUM) + _MAX_OFFSET
    found = "directions that are no integers"
    if whole:
        found = f"at most {largest_sum}"
    return Check(
        "hash: sums are exact integers",
        found,
        f"2^53 = {1 << 53}",
        "sums of integers below 2^53 are exact: a record's columns depend on that record alone",
        whole and largest_sum <= 1 << 53,
    )


def _sensitivity_check(spec: SketchSpec) -> Check:
    """An experiment on the code that counts: each probe is left out, also from itself alone."""
    probes = probe_records(spec)
    pairs = [(probes[:1], probes[:0])]
    for left_out in range(len(probes)):
        pairs.append((probes, np.delete(probes, left_out, axis=0)))
    wrong = []
    for more, fewer in pairs:
        counts = with_draws(spec, more, 0).counts.astype(np.int64)
        moved = counts - with_draws(spec, fewer, 0).counts
        falls = (moved < 0).any(axis=1)
        wrong.append(falls | (moved.sum(axis=1) != 1))
    return Check.none(
        "sensitivity: what one record moves",
        wrong,
        "rows in which a record moves other than one count by 1",
        f"Coleman & Shrivastava 2020, Thm 3: {spec.rows} in L1, √{spec.rows} in L2 for a record "
        "more or less; a replaced one moves twice as many counts",
    )


def _release_check(spec: SketchSpec) -> Check:
    counts = spec.rows * spec.columns
    draws = np.arange(1, counts + 1, dtype=np.int32)
    probes = probe_records(spec)
    noisy = with_draws(spec, probes, draws)
    exact = with_draws(spec, probes, 0)
    noise = noisy.counts.astype(np.int64) - exact.counts
    bare = noise.ravel() != draws
    return Check.none(
        "release: noise on every count, and the promise that goes with it",
        bare | (noisy.guarantee != spec.guarantee),
        f"counts without a draw of their own and the promise {spec.guarantee}",
        "the counts are independent given the records, so their losses add up",
    )


def with_draws(spec: SketchSpec, records: AnyArray, draws: AnyArray | int) -> RaceSketch:
    """A released sketch whose law draws prepared numbers, or the same one everywhere."""
    draws = np.broadcast_to(np.int32(draws), spec.rows * spec.columns)
    prepared = copy(spec)
    law: Any = copy(spec.law)
    law.source = Dealt(draws)
    object.__setattr__(prepared, "law", law)
    return RaceSketch(prepared).fit(records).release()


class Dealt:
    """In place of a source of noise: deals out prepared draws."""

    cell_bits = 0

    def __init__(self, draws: npt.ArrayLike) -> None:
        self._draws = np.array(draws, dtype=np.int32)

    def sample(self, count: int, stream: BitSource) -> npt.NDArray[np.int32]:
        return self._draws.copy()  # the caller may write over it

    def moments(self) -> tuple[float, float]:
        return 0.0, 0.0


def probe_records(spec: SketchSpec) -> Doubles:
    """Public records: common ones, the origin, one that is twice the same, tiny and huge ones."""
    uniform = PublicStream(0, "race/probes").uniform(_PROBES, spec.dim)
    probes = (2.0 * uniform - 1.0) * 3.0
    if isinstance(spec.hash, PStable):
        probes *= spec.hash.bandwidth
    probes[0] = 0.0
    probes[1] = probes[2]
    probes[3] *= 1e-9
    probes[4] *= 2.0**18 / spec.dim  # PStable hashes as they are up to 2^21 bandwidths
    probes[5] *= 2.0**30
    probes[6] = 1e300
    return probes


_CHUNK_ENTRIES = 1 << 22


def unit_vectors(spec: Spec, count: int | None = None) -> Iterator[tuple[slice, Any]]:
    """Yield the first ``count`` unit vectors, or all, some at a time: their attributes, and a CSR.

    >>> from dpindex import attribute
    >>> spec = Spec("dp-oporp-staircase", dim=3, k=3, epsilon=1.0, adjacency=attribute(1.0))
    >>> [(attributes, unit.toarray().tolist()) for attributes, unit in unit_vectors(spec, 2)]
    [(slice(0, 2, None), [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])]
    """
    if count is None:
        count = spec.dim
    width = max(spec.dim, spec.projection.k)
    for rows in row_blocks(count, _CHUNK_ENTRIES // width):
        size = rows.stop - rows.start
        unit = sparse.eye(size, spec.dim, rows.start, np.float32, "csr")
        yield rows, unit
