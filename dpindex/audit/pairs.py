"""Worst-case neighbours of a spec, laid out so that one row is many independent trials.

Coordinates that different attributes move are noised independently, each by a law that sees its
own projected integer only. So in a row where *many* attributes change, each in a coordinate of its
own, every such coordinate is distributed as in the adjacent pair that changes its attribute alone,
and the coordinates are independent trials of it. Two tests do without that premise: each coordinate
is also tested by itself, and the command line is attacked with pairs that differ in one attribute.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from dpindex.arrays import Floats
from dpindex.codes import BitCodes, Codes
from dpindex.errors import InputError
from dpindex.privacy import Attribute
from dpindex.privatizer import Privatizer
from dpindex.spec import Spec

__all__ = ["Pair", "worst_pairs"]

_CHUNK_ENTRIES = 1 << 22
_MAX_ATTRIBUTES = 1 << 16
_MAX_GROUPS = 8


@dataclass(frozen=True)
class Pair:
    """Two rows of attributes, and how a code is read to tell them apart.

    Attributes
    ----------
    name : str
        Where in the law the pair lies.
    rows : (array, array), each of shape (dim,)
        They differ in every carrier, by at most beta · scale.
    carriers : tuple of int
        Attributes that differ; ``single`` leaves only the first of them different.
    coordinates : int array, shape (carriers, m)
        What each carrier moves.
    signs : int8 array, same shape
        +1 where the second row's projection is the larger.
    group : int array, shape (carriers,)
        Carriers with equal projected values before and after share a group, the largest is 0; what
        is left over shares the last. Pooling any of them is sound: each keeps (ε, δ), so do means.
    """

    name: str
    rows: tuple[Floats, Floats]
    carriers: tuple[int, ...]
    coordinates: npt.NDArray[np.intp]
    signs: npt.NDArray[np.int8]
    group: npt.NDArray[np.intp]

    def observe(self, codes: Codes) -> npt.NDArray[Any]:
        """One integer per row and carrier, shape (n, carriers), larger for the second row.

        For numbers it is the code, for signs the sum of those that moved, turned to one side: the
        log-likelihood ratio is monotone in it, so a threshold on it is the best test.
        """
        values: npt.NDArray[Any] = codes.to_signs() if isinstance(codes, BitCodes) else codes.stored
        count, moved = self.coordinates.shape
        places = self.coordinates.ravel()
        if not np.array_equal(places, np.arange(values.shape[1])):
            values = values[:, places]
        if (self.signs < 0).any():
            values = values.astype(np.int32) * self.signs.ravel()
        return values.reshape(-1, count, moved).sum(axis=2) if moved > 1 else values

    def single(self) -> Pair:
        """The adjacent pair proper: only the first carrier differs."""
        first = self.carriers[0]
        other = self.rows[0].copy()
        other[first] = self.rows[1][first]
        return Pair(
            self.name,
            (self.rows[0], other),
            self.carriers[:1],
            self.coordinates[:1],
            self.signs[:1],
            np.zeros(1, dtype=np.intp),
        )


def worst_pairs(spec: Spec) -> list[Pair]:
    """The pairs to attack: across zero, and for flips that depend on size across two levels too."""
    if not isinstance(spec.adjacency, Attribute):
        raise InputError(f"there is no attack under {spec.adjacency} yet.")
    if spec.min_norm is not None:
        raise InputError("there is no attack on vectors of a least norm yet; leave min_norm out.")
    moves = _moves(spec)
    # Everything moved, or a spec whose bins overlap over repetitions: no room to place helpers.
    members = _members(spec, moves) if spec.repetitions == 1 and len(moves) > 1 else {}
    pairs = [_pair(spec, "across zero", moves, members, -spec.adjacency.size / 2)]
    if members and getattr(spec.law, "depends_on_size", False):
        for level in (1, 2):
            name = f"level {level} against {level + 1}"
            pairs.append(_pair(spec, name, moves, members, level * spec.adjacency.size))
    return pairs


def _columns(spec: Spec) -> npt.NDArray[np.int8]:
    """Signs of the map, attribute by attribute, of the first attributes: shape (attributes, k)."""
    count = min(spec.dim, _MAX_ATTRIBUTES, max(1, (1 << 28) // spec.code_length))
    rows = max(1, _CHUNK_ENTRIES // spec.dim)
    parts = []
    for start in range(0, count, rows):
        unit = np.zeros((min(rows, count - start), spec.dim), dtype=np.float32)
        unit[np.arange(len(unit)), start + np.arange(len(unit))] = 1
        parts.append(np.sign(spec.projection.apply(unit)).astype(np.int8))
    return np.concatenate(parts)


def _moves(spec: Spec) -> dict[int, tuple[npt.NDArray[np.intp], npt.NDArray[np.int8]]]:
    """Attributes that move no coordinate in common, and what each moves with which sign.

    Of maps whose attributes move more and less, only those that move the most.
    """
    free = np.ones(spec.code_length, dtype=np.bool_)
    found = {}
    columns = _columns(spec)
    most = np.count_nonzero(columns, axis=1).max()
    for attribute, column in enumerate(columns):
        places = np.flatnonzero(column)
        if len(places) == most and free[places].all():
            free[places] = False
            found[attribute] = (places, column[places])
        if not free.any():
            break
    # In the order of what they move, so that whole codes are read without picking.
    return dict(sorted(found.items(), key=lambda item: int(item[1][0][0])))


def _members(spec: Spec, moves: object) -> dict[int, list[tuple[int, int]]]:
    """By coordinate: the attributes it sums, with their signs."""
    members: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for attribute, place in np.argwhere(columns := _columns(spec)):
        members[int(place)].append((int(attribute), int(columns[attribute, place])))
    return members


def _pair(
    spec: Spec,
    name: str,
    moves: dict[int, tuple[npt.NDArray[np.intp], npt.NDArray[np.int8]]],
    members: dict[int, list[tuple[int, int]]],
    target: float,
) -> Pair:
    low, high = spec.bounds
    first, second = _ends(spec)
    rest = min(max(0.0, low), high)
    one = np.full(spec.dim, rest)
    other = one.copy()
    for carrier, (places, signs) in moves.items():
        # With one coordinate the projection grows from the first row to the second.
        before, after = (first, second) if len(places) > 1 or signs[0] > 0 else (second, first)
        helpers = [m for m in members.get(int(places[0]), []) if m[0] != carrier]
        missing = target - signs[0] * before - sum(sign * rest for _, sign in helpers)
        for helper, sign in helpers:
            value = min(max(rest + sign * missing, low), high)
            missing -= sign * (value - rest)
            one[helper] = other[helper] = value
        one[carrier], other[carrier] = before, after
    one, other = one * spec.scale, other * spec.scale
    projected = [Privatizer(spec).project(row)[0] for row in (one, other)]
    coordinates = np.array([places for places, _ in moves.values()])
    signs = np.sign(projected[1] - projected[0]).astype(np.int8)[coordinates]
    ends = np.concatenate([(row[coordinates] * signs) for row in projected], axis=1)
    _, kind, sizes = np.unique(ends, axis=0, return_inverse=True, return_counts=True)
    rank = np.argsort(np.argsort(-sizes, kind="stable"))[kind.ravel()]
    group = np.minimum(rank, _MAX_GROUPS - 1)
    return Pair(name, (one, other), tuple(moves), coordinates, signs, group)


def _ends(spec: Spec) -> tuple[float, float]:
    """Two values of an attribute one beta apart, about zero where the bounds allow it."""
    low, high = spec.bounds
    half = spec.adjacency.size / 2
    if low <= -half and half <= high:
        return -half, half
    top = min(high, low + spec.adjacency.size)
    while Fraction(top) - Fraction(low) > Fraction(spec.adjacency.size):
        top = float(np.nextafter(top, low))
    return low, top
