"""Worst-case neighbours of a spec, and how a code is read to tell them apart.

One row holds many independent trials. Coordinates that different attributes move are noised
independently, each by a law that sees its own projected integer only. So in a row where *many*
attributes change, each in a coordinate of its own, every such coordinate is distributed as in the
adjacent pair that changes its attribute alone, and the coordinates are independent trials of it.
Of a law that hides whole records the pair is a record and its opposite, and a code is one trial.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from dpindex.audit.input_checks import code_checks, unit_vectors
from dpindex.audit.law_verifiers import law_verifier
from dpindex.audit.verdict import Counts
from dpindex.base.arrays import AnyArray, Doubles, Floats, Indices
from dpindex.base.errors import InputError
from dpindex.decode import decoder_of
from dpindex.mechanism.codes import Codes
from dpindex.mechanism.noise.base import SymbolLaw
from dpindex.mechanism.privatizer import Privatizer
from dpindex.mechanism.projections import Projection
from dpindex.mechanism.public_random import PublicStream
from dpindex.mechanism.spec import Spec
from dpindex.privacy import Attribute, Record

_MAX_POOLS = 3
_MAX_ATTRIBUTES = 1 << 16
_MAX_SIGNS = 1 << 28
_MAX_GROUPS = 8

_Moves = dict[int, Indices]


@dataclass(frozen=True)
class Pair:
    """Two neighbouring rows of attributes, and how a release is read to tell them apart.

    Attributes
    ----------
    name : str
        Where in the law the pair lies.
    rows : (array, array), each of shape (dim,)
        The neighbours.
    observe : callable
        Makes integers of n releases, shape (n, m), each larger for the second row.
    group : int array, shape (m,)
        Thresholds are chosen for each group of integers; the largest group number is that of
        all groups, which begin at 0.
    pools : dict of str to indices
        By name, observed integers that are trials of one event: if there are several, of
        independent ones, each of which keeps (ε, δ), and so do means.
    independent : bool
        Whether all integers of a release are independent trials.
    single : Pair, optional
        The adjacent pair proper, observed by its first integer, where rows differ in more than it.

    >>> rows = (np.zeros(2), np.ones(2))
    >>> group = np.zeros(1, np.intp)
    >>> pair = Pair("0 or 1", rows, lambda codes: codes[:, :1], group, {"the first": [0]})
    >>> pair.observe(np.array([[3, 4]])).tolist()
    [[3]]
    """

    name: str
    rows: tuple[Floats, Floats]
    observe: Callable[[Any], Counts]
    group: Indices
    pools: dict[str, Any]
    independent: bool = False
    single: Pair | None = None


def worst_pairs(spec: Spec) -> Sequence[Pair]:
    """The pairs to attack: across zero, and for flips that depend on size across two levels too."""
    if isinstance(spec.adjacency, Record):
        # A record and its opposite: their caps, or sets of codewords, have nothing in common.
        words = PublicStream(0, "audit/record").words(spec.dim, np.uint16)
        row = words - 2.0**15 + 0.5
        return [_whole_pair(spec, "a record and its opposite", (row, -row))]
    if not isinstance(spec.adjacency, Attribute):
        raise InputError(f"there is no attack under {spec.adjacency} yet.")
    if decoder_of(spec).by_symbol:
        # Mean codewords that differ in their first attribute, which moves half of all scores.
        mean = SymbolLaw.of(spec.law).codebook.stated.mean(axis=0) / spec.scale
        before = np.clip(mean, *spec.bounds)
        after = before.copy()
        before[0], after[0] = _ends(spec, 0)
        rows = (before * spec.scale, after * spec.scale)
        return [_whole_pair(spec, "one attribute of a mean codeword", rows)]
    if spec.variant.min_norm is not None:
        raise InputError(
            "there is no attack on vectors of a least norm yet; leave min_norm out.",
            field="variant",
        )
    columns = _columns(spec)
    moves = _moves(columns)
    # Everything moved, or a spec whose bins overlap over repetitions: no room to place helpers.
    helped = spec.variant.repetitions == 1 and len(moves) > 1
    targets = {"across zero": -0.5}  # in changes of one beta
    if helped and spec.law.depends_on_size:
        targets |= {"level 1 against 2": 1.0, "level 2 against 3": 2.0}
    pairs = []
    for name, target in targets.items():
        rows = _rows(spec, moves, columns, helped, target * spec.change)
        pairs.append(_pair(spec, name, moves, rows))
    return pairs


def _whole_pair(spec: Spec, name: str, rows: tuple[Floats, Floats]) -> Pair:
    """Two rows of which whole codes are compared.

    A release is one trial: it is read as a score, then as single numbers, none of which are pooled,
    as they need not be independent.
    """
    _, apart = code_checks(spec)
    verifier = law_verifier(spec, apart)
    read, count = verifier.record_scores(_projected(spec, rows))
    group = np.minimum(np.arange(count), 1)
    return Pair(name, rows, read, group, {f"{name}, the score of a code": [0]})


def _projected(spec: Spec, rows: tuple[Floats, Floats]) -> list[Floats]:
    """What a law is given of two rows."""
    privatizer = Privatizer(spec)
    return [privatizer.project(row)[0] for row in rows]


def _columns(spec: Spec) -> AnyArray:
    """Signs of the map, attribute by attribute, of the first attributes: shape (attributes, k)."""
    in_memory = max(1, _MAX_SIGNS // spec.code_length)
    count = min(spec.dim, _MAX_ATTRIBUTES, in_memory)
    signs = []
    for _, unit in unit_vectors(spec, count):
        image = spec.projection.apply_sparse(unit)
        signs.append(np.sign(image).astype(np.int8))
    return np.concatenate(signs)


def _moves(columns: AnyArray) -> _Moves:
    """Attributes that move no coordinate in common, and what each moves.

    Of maps whose attributes move more and less, only those that move the most.
    """
    free = np.ones(columns.shape[1], dtype=np.bool_)
    moves = {}
    counts = np.count_nonzero(columns, axis=1)
    widest = np.flatnonzero(counts == counts.max())
    for attribute in widest.tolist():
        places = np.flatnonzero(columns[attribute])
        if free[places].all():
            free[places] = False
            moves[attribute] = places
        if not free.any():
            break
    # In the order of what they move, so that whole codes are read without picking.
    in_order = sorted(moves, key=lambda attribute: int(moves[attribute][0]))
    return {attribute: moves[attribute] for attribute in in_order}


def _pair(spec: Spec, name: str, moves: _Moves, rows: tuple[Doubles, Doubles]) -> Pair:
    """Return the pair of rows in which all carriers move, and how releases of it are read."""
    before, after = _projected(spec, rows)
    coordinates = np.array(list(moves.values()))
    signs = np.sign(after - before).astype(np.int8)[coordinates]
    # Carriers whose projections end in the same two places are trials of one event.
    first = before[coordinates] * signs
    second = after[coordinates] * signs
    ends = np.hstack([first, second])
    _, kind, sizes = np.unique(ends, axis=0, return_inverse=True, return_counts=True)
    by_size = np.argsort(-sizes, kind="stable")
    rank = np.argsort(by_size)[kind.ravel()]
    # The largest group is 0; what is left over shares the last.
    group = np.minimum(rank, _MAX_GROUPS - 1)
    pools = {}
    groups = int(group.max()) + 1
    for number in range(min(_MAX_POOLS, groups)):
        members = np.flatnonzero(group == number)
        moved = f"{len(members)} × {coordinates.shape[1]} coordinates"
        pools[f"{name}, pool {number + 1} of {moved}"] = members
    return Pair(
        name,
        rows,
        partial(_moved, coordinates, signs),
        group,
        pools,
        independent=True,
        single=_single(name, rows, next(iter(moves)), coordinates[:1], signs[:1]),
    )


def _single(
    name: str,
    rows: tuple[Doubles, Doubles],
    carrier: int,
    coordinates: AnyArray,
    signs: AnyArray,
) -> Pair:
    """Return the pair in which one carrier moves."""
    one, other = rows
    alone = one.copy()
    alone[carrier] = other[carrier]
    read = partial(_moved, coordinates, signs)
    group = np.zeros(1, dtype=np.intp)
    return Pair(name, (one, alone), read, group, {name: [0]}, independent=True)


def _rows(
    spec: Spec, moves: _Moves, columns: AnyArray, helped: bool, target: float
) -> tuple[Doubles, Doubles]:
    """Carriers from end to end; if helped, the others of a coordinate bring it near ``target``."""
    low, high = spec.bounds
    base = min(max(0.0, low), high)
    one = np.full(spec.dim, base)
    other = one.copy()
    for carrier, places in moves.items():
        column = columns[:, places[0]]
        before, after = _ends(spec, carrier)
        # With one coordinate the projection grows from the first row to the second.
        if len(places) == 1 and column[carrier] <= 0:
            before, after = after, before
        helpers = []
        if helped:
            helpers = np.flatnonzero(column).tolist()
            helpers.remove(carrier)
        there = column[carrier] * before + base * column[helpers].sum()
        missing = target - there
        for helper in helpers:
            wanted = base + column[helper] * missing
            value = min(max(wanted, low), high)
            missing -= column[helper] * (value - base)
            one[helper] = value
            other[helper] = value
        one[carrier] = before
        other[carrier] = after
    return one * spec.scale, other * spec.scale


def _moved(coordinates: AnyArray, signs: AnyArray, codes: Codes) -> Counts:
    """One integer per row and carrier, shape (n, carriers), larger for the second row.

    The sum of what a carrier moved, shape (carriers, m), turned to one side by +1 where the second
    row's projection is the larger: the log-likelihood ratio is monotone in it, so a threshold on it
    is the best test.
    """
    values = codes.format.coordinates(codes.stored)
    moved = values[:, coordinates.ravel()].astype(np.int32)
    turned = (moved * signs.ravel()).reshape(-1, *coordinates.shape)
    observed: Counts = turned.sum(axis=2, dtype=np.int64)
    return observed


def _ends(spec: Spec, attribute: int) -> tuple[float, float]:
    """Two values of an attribute one beta apart, about zero where the bounds allow it.

    In a window its ends, or one beta from its low one.
    """
    low, high = spec.bounds
    windows = Projection.of(spec.projection).windows
    if windows is not None:
        lows, highs = windows.ends(spec.bounds)
        low = float(lows[attribute])
        return low, min(float(highs[attribute]), low + spec.change)
    half = spec.change / 2
    if low <= -half and half <= high:
        return -half, half
    top = min(high, low + spec.change)
    while Fraction(top) - Fraction(low) > Fraction(spec.change):
        top = float(np.nextafter(top, low))
    return low, top
