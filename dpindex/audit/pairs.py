"""Worst-case neighbours of a spec, laid out so that one row is many independent trials.

Coordinates that different attributes move are noised independently, each by a law that sees its
own projected integer only. So in a row where *many* attributes change, each in a coordinate of its
own, every such coordinate is distributed as in the adjacent pair that changes its attribute alone,
and the coordinates are independent trials of it. Two tests do without that premise: each coordinate
is also tested by itself, and the command line is attacked with pairs that differ in one attribute.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from dpindex.arrays import Floats
from dpindex.codes import BitCodes, Codes
from dpindex.errors import InputError
from dpindex.privacy import Attribute
from dpindex.privatizer import Privatizer
from dpindex.spec import Spec

__all__ = ["Counts", "Pair", "worst_pairs"]

_CHUNK_ENTRIES = 1 << 22
_MAX_ATTRIBUTES = 1 << 16
_MAX_GROUPS = 8

Counts = npt.NDArray[np.int64]


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

    def observe(self, codes: Codes) -> Counts:
        """One integer per row and carrier, shape (n, carriers), larger for the second row.

        For numbers it is the code, for signs the sum of those that moved, turned to one side: the
        log-likelihood ratio is monotone in it, so a threshold on it is the best test.
        """
        values = codes.to_signs() if isinstance(codes, BitCodes) else codes.stored
        moved = values[:, self.coordinates.ravel()].astype(np.int32) * self.signs.ravel()
        observed: Counts = moved.reshape(-1, *self.coordinates.shape).sum(axis=2, dtype=np.int64)
        return observed

    def single(self) -> Pair:
        """The adjacent pair proper: only the first carrier differs."""
        other = self.rows[0].copy()
        other[self.carriers[0]] = self.rows[1][self.carriers[0]]
        fields = ("carriers", "coordinates", "signs", "group")
        first: dict[str, Any] = {name: getattr(self, name)[:1] for name in fields}
        return replace(self, rows=(self.rows[0], other), **first)


def worst_pairs(spec: Spec) -> list[Pair]:
    """The pairs to attack: across zero, and for flips that depend on size across two levels too."""
    if not isinstance(spec.adjacency, Attribute):
        raise InputError(f"there is no attack under {spec.adjacency} yet.")
    if spec.min_norm is not None:
        raise InputError("there is no attack on vectors of a least norm yet; leave min_norm out.")
    columns = _columns(spec)
    moves = _moves(columns)
    # Everything moved, or a spec whose bins overlap over repetitions: no room to place helpers.
    helped = spec.repetitions == 1 and len(moves) > 1
    targets = {"across zero": -0.5}
    if helped and getattr(spec.law, "depends_on_size", False):
        targets |= {f"level {level} against {level + 1}": float(level) for level in (1, 2)}
    near = {name: spec.adjacency.size * place for name, place in targets.items()}
    return [_pair(spec, name, moves, columns, helped, target) for name, target in near.items()]


def _columns(spec: Spec) -> npt.NDArray[np.int8]:
    """Signs of the map, attribute by attribute, of the first attributes: shape (attributes, k)."""
    count = min(spec.dim, _MAX_ATTRIBUTES, max(1, (1 << 28) // spec.code_length))
    rows = max(1, _CHUNK_ENTRIES // spec.code_length)
    parts = []
    for start in range(0, count, rows):
        unit = sparse.eye(min(rows, count - start), spec.dim, start, np.float32, "csr")
        parts.append(np.sign(spec.projection.apply_sparse(unit)).astype(np.int8))
    return np.concatenate(parts)


def _moves(columns: npt.NDArray[np.int8]) -> dict[int, npt.NDArray[np.intp]]:
    """Attributes that move no coordinate in common, and what each moves.

    Of maps whose attributes move more and less, only those that move the most.
    """
    free = np.ones(columns.shape[1], dtype=np.bool_)
    found = {}
    counts = np.count_nonzero(columns, axis=1)
    for attribute in np.flatnonzero(counts == counts.max()).tolist():
        places = np.flatnonzero(columns[attribute])
        if free[places].all():
            free[places] = False
            found[attribute] = places
        if not free.any():
            break
    # In the order of what they move, so that whole codes are read without picking.
    return dict(sorted(found.items(), key=lambda item: int(item[1][0])))


def _pair(
    spec: Spec,
    name: str,
    moves: dict[int, npt.NDArray[np.intp]],
    columns: npt.NDArray[np.int8],
    helped: bool,
    target: float,
) -> Pair:
    """Carriers from end to end; if helped, the others of a coordinate bring it near ``target``."""
    low, high = spec.bounds
    first, second = _ends(spec)
    rest = min(max(0.0, low), high)
    one = np.full(spec.dim, rest)
    other = one.copy()
    for carrier, places in moves.items():
        column = columns[:, places[0]]
        # With one coordinate the projection grows from the first row to the second.
        rising = len(places) > 1 or column[carrier] > 0
        before, after = (first, second) if rising else (second, first)
        helpers = [a for a in np.flatnonzero(column).tolist() if helped and a != carrier]
        missing = target - column[carrier] * before - rest * column[helpers].sum()
        for helper in helpers:
            value = min(max(rest + column[helper] * missing, low), high)
            missing -= column[helper] * (value - rest)
            one[helper] = other[helper] = value
        one[carrier], other[carrier] = before, after
    one, other = one * spec.scale, other * spec.scale
    projected = [Privatizer(spec).project(row)[0] for row in (one, other)]
    coordinates = np.array(list(moves.values()))
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
