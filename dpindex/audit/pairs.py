"""Worst-case neighbours of a spec, and how a code is read to tell them apart.

One row holds many independent trials. Coordinates that different attributes move are noised
independently, each by a law that sees its own projected integer only. So in a row where *many*
attributes change, each in a coordinate of its own, every such coordinate is distributed as in the
adjacent pair that changes its attribute alone, and the coordinates are independent trials of it.
Of a law that hides whole records the pair is a record and its opposite, and a code is one trial.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from dpindex.audit.input_checks import unit_vectors
from dpindex.base.arrays import AnyArray, Floats
from dpindex.base.errors import InputError
from dpindex.mechanism.codes import BitCodes, Codes, SignFormat, SymbolFormat, for_format
from dpindex.mechanism.noise import SignLaw
from dpindex.mechanism.noise.symbols import CapResponse
from dpindex.mechanism.privatizer import Privatizer
from dpindex.mechanism.public_random import PublicStream
from dpindex.mechanism.spec import Spec
from dpindex.privacy import Attribute, Record

_MAX_POOLS = 3
_MAX_ATTRIBUTES = 1 << 16
_MAX_GROUPS = 8
_MAX_SYMBOLS = 32

_Moves = dict[int, npt.NDArray[np.intp]]
Counts = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Pair(ABC):
    """Two neighbouring rows of attributes, and how a code is read to tell them apart.

    Attributes
    ----------
    name : str
        Where in the law the pair lies.
    rows : (array, array), each of shape (dim,)
        The neighbours.
    group : int array, shape (m,)
        What is observed of a code is m integers; thresholds are chosen for each group of them.

    >>> from dpindex import Spec, attribute
    >>> spec = Spec("raw-laplace", dim=2, epsilon=1.0, bounds=(0, 1), adjacency=attribute(1.0))
    >>> [pair.name for pair in worst_pairs(spec)]
    ['across zero']
    """

    name: str
    rows: tuple[Floats, Floats]
    group: npt.NDArray[np.intp]

    unit: ClassVar[str]
    """What one row differs in from the other, for ``single``."""

    @abstractmethod
    def observe(self, codes: Any) -> Counts:
        """Integers of every one of n ``codes``, shape (n, m), each larger for the second row."""

    @abstractmethod
    def single(self) -> Pair:
        """The adjacent pair proper, observed by its first integer."""

    @abstractmethod
    def pools(self) -> Iterator[tuple[str, Booleans]]:
        """Observed integers that are independent trials of one event, by name."""

    @abstractmethod
    def equal(self, one: Counts, other: Counts) -> Booleans:
        """Independent comparisons of what was observed of codes, ``one`` and ``other``."""


@dataclass(frozen=True)
class AttributePair(Pair):
    """Rows that differ in every carrier, by at most beta · scale.

    Attributes
    ----------
    group : int array, shape (carriers,)
        Carriers with equal projected values before and after share a group, the largest is 0; what
        is left over shares the last. Pooling any of them is sound: each keeps (ε, δ), so do means.
    carriers : tuple of int
        Attributes that differ; ``single`` leaves only the first of them different.
    coordinates : int array, shape (carriers, m)
        What each carrier moves.
    signs : int8 array, same shape
        +1 where the second row's projection is the larger.
    """

    carriers: tuple[int, ...]
    coordinates: npt.NDArray[np.intp]
    signs: npt.NDArray[np.int8]

    unit = "one attribute"

    def observe(self, codes: Codes) -> Counts:
        """One integer per row and carrier, shape (n, carriers), larger for the second row.

        For numbers it is the code, for signs the sum of those that moved, turned to one side: the
        log-likelihood ratio is monotone in it, so a threshold on it is the best test.
        """
        values = codes.to_signs() if isinstance(codes, BitCodes) else codes.stored
        moved = values[:, self.coordinates.ravel()].astype(np.int32) * self.signs.ravel()
        observed: Counts = moved.reshape(-1, *self.coordinates.shape).sum(axis=2, dtype=np.int64)
        return observed

    def single(self) -> AttributePair:
        """The adjacent pair proper: only the first carrier differs."""
        other = self.rows[0].copy()
        other[self.carriers[0]] = self.rows[1][self.carriers[0]]
        fields = ("carriers", "coordinates", "signs", "group")
        first: dict[str, Any] = {name: getattr(self, name)[:1] for name in fields}
        return replace(self, rows=(self.rows[0], other), **first)

    def pools(self) -> Iterator[tuple[str, Booleans]]:
        for group, size in enumerate(np.bincount(self.group)[:_MAX_POOLS].tolist()):
            moved = f"{size} × {self.coordinates.shape[1]} coordinates"
            yield f"{self.name}, pool {group + 1} of {moved}", self.group == group

    def equal(self, one: Counts, other: Counts) -> Booleans:
        return np.equal(one, other)


@dataclass(frozen=True)
class ScoredPair(Pair):
    """Neighbours of which a release is one trial: it is read as scores, then as single numbers.

    Numbers of one release need not be independent, so none are pooled.

    Attributes
    ----------
    read : callable
        What is observed of releases.
    scores : tuple of str
        Names of the first integers that are observed, each a score of the whole release.

    name, rows, group
        As of :class:`Pair`.

    >>> rows = (np.zeros(2), np.ones(2))
    >>> group = np.zeros(1, np.intp)
    >>> pair = ScoredPair("0 or 1", rows, group, lambda codes: codes[:, :1], ("first",))
    >>> pair.observe(np.array([[3, 4]])).tolist()
    [[3]]
    """

    read: Callable[[Any], Counts]
    scores: tuple[str, ...]

    unit = "one record"

    def observe(self, codes: Any) -> Counts:
        return self.read(codes)

    def single(self) -> ScoredPair:
        return self

    def pools(self) -> Iterator[tuple[str, Booleans]]:
        for place, score in enumerate(self.scores):
            yield f"{self.name}, {score}", np.arange(len(self.group)) == place

    def equal(self, one: Counts, other: Counts) -> Booleans:
        same: Booleans = np.logical_and.reduce(np.equal(one, other), axis=1)
        return same


def worst_pairs(spec: Spec) -> Sequence[Pair]:
    """The pairs to attack: across zero, and for flips that depend on size across two levels too."""
    if isinstance(spec.adjacency, Record):
        return [_record_pair(spec)]
    if not isinstance(spec.adjacency, Attribute):
        raise InputError(f"there is no attack under {spec.adjacency} yet.")
    if spec.min_norm is not None:
        raise InputError(
            "there is no attack on vectors of a least norm yet; leave min_norm out.",
            field="min_norm",
        )
    columns = _columns(spec)
    moves = _moves(columns)
    # Everything moved, or a spec whose bins overlap over repetitions: no room to place helpers.
    helped = spec.repetitions == 1 and len(moves) > 1
    targets = {"across zero": -0.5}
    if helped and isinstance(spec.law, SignLaw) and spec.law.depends_on_size:
        targets |= {f"level {level} against {level + 1}": float(level) for level in (1, 2)}
    near = {name: spec.adjacency.size * place for name, place in targets.items()}
    return [_pair(spec, name, moves, columns, helped, target) for name, target in near.items()]


_RecordScores: TypeAlias = Callable[[Spec, Sequence[Floats]], tuple[Callable[[Codes], Counts], int]]


def _record_pair(spec: Spec) -> ScoredPair:
    """A record and its opposite: their caps, or sets of codewords, have nothing in common."""
    words = PublicStream(0, "audit/record").words(spec.dim, np.uint16)
    row = words - 2.0**15 + 0.5
    rows = row, -row
    near = [Privatizer(spec).project(one)[0] for one in rows]
    score = for_format(_RECORD_SCORES, spec.format_type)
    read, count = score(spec, near)
    group = np.minimum(np.arange(count), 1)
    scores = ("the score of a code",)
    return ScoredPair("a record and its opposite", rows, group, read, scores)


def _sign_score(spec: Spec, near: Sequence[Floats]) -> tuple[Callable[[Codes], Counts], int]:
    """``⟨V, x̃′ − x̃⟩``, and every sign."""
    if not isinstance(spec.law, CapResponse):
        raise InputError(f"there is no attack on the records of {spec.method} yet.")
    encoded = []
    for y in near:
        x = np.empty(len(y), dtype=np.int64)
        x[np.argsort(-np.abs(y), kind="stable")] = spec.law.cap.weights
        encoded.append(np.where(y >= 0, x, -x))
    weights = (encoded[1] - encoded[0]).astype(np.float32)
    towards = np.where(near[1] >= 0, 1, -1).astype(np.int8)

    def read(codes: Codes) -> Counts:
        signs = codes.to_signs()
        score = signs.astype(np.float32) @ weights  # whole numbers below 2^24
        return np.column_stack([score.astype(np.int64), signs * towards])

    return read, 1 + len(towards)


def _symbol_score(spec: Spec, near: Sequence[Floats]) -> tuple[Callable[[Codes], Counts], int]:
    """1 for the symbols near the second record, −1 near the first, and some of them each."""
    subset = spec.symbol_law.subset
    columns = min(subset, _MAX_SYMBOLS)
    table = np.zeros((len(near[0]), 1 + 2 * columns), dtype=np.int64)
    for side, sign in enumerate((-1, 1)):
        symbols = np.argsort(-near[side], kind="stable")[:subset]
        table[symbols, 0] += sign
        first = 1 + side * columns
        table[symbols[:columns], np.arange(first, first + columns)] = sign

    def read(codes: Codes) -> Counts:
        counts: Counts = table[codes.stored[:, 0]]
        return counts

    return read, table.shape[1]


_RECORD_SCORES: dict[type[object], _RecordScores] = {
    SignFormat: _sign_score,
    SymbolFormat: _symbol_score,
}
"""By code format: what is counted in the codes of a record and its opposite."""


def _columns(spec: Spec) -> AnyArray:
    """Signs of the map, attribute by attribute, of the first attributes: shape (attributes, k)."""
    count = min(spec.dim, _MAX_ATTRIBUTES, max(1, (1 << 28) // spec.code_length))
    images = (spec.projection.apply_sparse(unit) for _, unit in unit_vectors(spec, count))
    return np.concatenate([np.sign(image).astype(np.int8) for image in images])


def _moves(columns: AnyArray) -> _Moves:
    """Attributes that move no coordinate in common, and what each moves.

    Of maps whose attributes move more and less, only those that move the most.
    """
    free = np.ones(columns.shape[1], dtype=np.bool_)
    moves = {}
    counts = np.count_nonzero(columns, axis=1)
    for attribute in np.flatnonzero(counts == counts.max()).tolist():
        places = np.flatnonzero(columns[attribute])
        if free[places].all():
            free[places] = False
            moves[attribute] = places
        if not free.any():
            break
    # In the order of what they move, so that whole codes are read without picking.
    return dict(sorted(moves.items(), key=lambda item: int(item[1][0])))


def _pair(
    spec: Spec, name: str, moves: _Moves, columns: AnyArray, helped: bool, target: float
) -> AttributePair:
    """Carriers from end to end; if helped, the others of a coordinate bring it near ``target``."""
    low, high = spec.bounds
    first, second = _ends(spec)
    base = min(max(0.0, low), high)
    one = np.full(spec.dim, base)
    other = one.copy()
    for carrier, places in moves.items():
        column = columns[:, places[0]]
        # With one coordinate the projection grows from the first row to the second.
        rising = len(places) > 1 or column[carrier] > 0
        before, after = (first, second) if rising else (second, first)
        helpers = [a for a in np.flatnonzero(column).tolist() if helped and a != carrier]
        missing = target - column[carrier] * before - base * column[helpers].sum()
        for helper in helpers:
            value = min(max(base + column[helper] * missing, low), high)
            missing -= column[helper] * (value - base)
            one[helper] = other[helper] = value
        one[carrier], other[carrier] = before, after
    one = one * spec.scale
    other = other * spec.scale
    projected = [Privatizer(spec).project(row)[0] for row in (one, other)]
    coordinates = np.array(list(moves.values()))
    signs = np.sign(projected[1] - projected[0]).astype(np.int8)[coordinates]
    ends = np.concatenate([(row[coordinates] * signs) for row in projected], axis=1)
    _, kind, sizes = np.unique(ends, axis=0, return_inverse=True, return_counts=True)
    rank = np.argsort(np.argsort(-sizes, kind="stable"))[kind.ravel()]
    group = np.minimum(rank, _MAX_GROUPS - 1)
    return AttributePair(name, (one, other), group, tuple(moves), coordinates, signs)


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
