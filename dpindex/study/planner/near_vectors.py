"""Synthetic vectors that are nearer to a query than every vector of a public sample.

Near vectors agree with the query first in the directions in which vectors differ most. If a
Gaussian with variances λ is weighted by ``exp(−τ‖x − q‖²/2)``, the difference of its mean to q is
divided by ``1 + τλ`` in each direction. The difference of a sampled vector to the query is shrunk
in the same way, with the τ that gives the target cosine. Otherwise predictions for denoisers, which
keep the directions of large variance, are too low. Attributes with gaps, such as counts, are
rounded at random to values that they have in the sample.

A sparse vector is moved by replacing attributes by those of the query, in random order, until
cosine and length are right: counts stay counts, and what is empty in both stays empty.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse

from dpindex.base.arrays import (
    AnyArray,
    Doubles,
    Integers,
    Singles,
    Vectors,
    issparse,
    row_norms,
    unit,
)
from dpindex.mechanism.public_random import PublicStream

__all__ = [
    "Placement", "cosines_between", "cosines_within", "near_by_distance", "near_vectors",
    "squared_distances",
]  # fmt: skip

_LOG_TAU = np.linspace(-8.0, 12.0, 61, dtype=np.float32)
_TINY = 1e-30
_MIN_COSINE = 1e-3
# An attribute is rounded if this share of the vectors has one value, and the next value lies
# farther than so many deviations of the attribute.
_FREQUENT = 0.05
_GAP = 0.1


@dataclass(frozen=True)
class Placement:
    """Where the s near vectors of each of q queries lie.

    Attributes
    ----------
    sources : integer array, shape (q, s)
        Rows of the sampled vectors that are moved towards the query.
    cosines : float64 array, shape (q, s)
        Target cosines to the query.
    lengths : float64 array, shape (q, s)
        Target norms.
    """

    sources: Integers
    cosines: Doubles
    lengths: Doubles


def near_vectors(
    queries: Vectors,
    sampled: Vectors,
    placement: Placement,
    anchors: Integers,
    limits: tuple[float, float],
    stream: PublicStream,
) -> Any:
    """Return vectors at the target cosines and lengths, shape (q·s, p), in the form of the sample.

    Parameters
    ----------
    queries, sampled : float32 arrays or CSR matrices, shapes (q, p) and (m, p)
    placement : Placement
    anchors : integer array, shape (q, a)
        Rows of the sampled vectors whose differences to the query give the directions.
    limits : (float, float)
        Range of an attribute; dense vectors are clipped to it.
    stream : PublicStream
    """
    if issparse(sampled):
        return _with_replaced_attributes(queries, sampled, placement, stream)
    near = _moved_towards(queries, sampled, placement, anchors, stream)
    return np.clip(near, *limits, out=near)


def near_by_distance(
    queries: Singles,
    sampled: Singles,
    sources: Integers,
    squares: Doubles,
    limits: tuple[float, float],
) -> Singles:
    """Return dense vectors at squared distances from their queries, shape (q·s, p).

    Parameters
    ----------
    queries, sampled : float32 arrays, shapes (q, p) and (m, p)
    sources : integer array, shape (q, s)
        Rows of the sampled vectors that are moved straight towards the query.
    squares : float64 array, shape (q, s)
        Target distances, squared.
    limits : (float, float)
        Range of an attribute, to which vectors are clipped.
    """
    differences = sampled[sources] - queries[:, None]
    reached = np.einsum("qsp,qsp->qs", differences, differences)
    shares = np.sqrt(squares / np.maximum(reached, _TINY)).astype(np.float32)
    near = queries[:, None] + np.minimum(shares, 1)[..., None] * differences
    return np.asarray(np.clip(near.reshape(-1, queries.shape[1]), *limits))


def squared_distances(queries: Singles, vectors: Singles) -> Doubles:
    """Return the squared Euclidean distances of all queries and all vectors, shape (q, m)."""
    wide = queries.astype(np.float64)
    others = vectors.astype(np.float64)
    inner = wide @ others.T
    sums = (wide**2).sum(axis=1)[:, None] + (others**2).sum(axis=1)
    return np.asarray(np.maximum(sums - 2 * inner, 0.0))


def cosines_between(queries: Vectors, sampled: Vectors) -> Singles:
    """Return the cosines of all queries and all sampled vectors, shape (q, m)."""
    if not issparse(queries):
        return np.asarray(unit(queries) @ unit(sampled).T)
    inner = (queries @ sampled.T).toarray()
    norms = np.outer(row_norms(queries), row_norms(sampled))
    return np.asarray(inner / np.maximum(norms, _TINY), dtype=np.float32)


def cosines_within(queries: Any, near: Any) -> Singles:
    """Return the cosines of each query and its own near vectors, (q·s, p): shape (q, s)."""
    count = queries.shape[0]
    per_query = near.shape[0] // count
    rows = []
    for i in range(count):
        near_query = near[per_query * i : per_query * (i + 1)]
        rows.append(cosines_between(queries[i : i + 1], near_query)[0])
    return np.stack(rows)


def _moved_towards(
    queries: Singles,
    sampled: Singles,
    placement: Placement,
    anchors: Integers,
    stream: PublicStream,
) -> Singles:
    """Return dense near vectors."""
    dim = sampled.shape[1]
    shape = placement.cosines.shape
    directions = unit(sampled)
    heads = unit(queries)
    differences = (directions[anchors] - heads[:, None]).reshape(-1, dim)
    variance, basis = _principal_axes(differences)
    rotated = directions @ basis
    rotated_heads = heads @ basis
    roundings = _roundings(sampled, placement.cosines.size, stream)
    near = np.empty((*shape, dim), dtype=np.float32)
    target = placement.cosines

    def place() -> None:
        for i, head in enumerate(rotated_heads):
            difference = rotated[placement.sources[i]] - head
            moved = _moved_to(head, difference, variance, target[i])
            near[i] = unit(moved @ basis.T) * placement.lengths[i][:, None]
        for column, (values, chance) in roundings.items():
            near[..., column] = _rounded(near[..., column], values, chance.reshape(shape))

    if roundings:  # a first round shows how far rounding moves the cosines
        place()
        norms = np.maximum(np.linalg.norm(near, axis=2), _TINY)
        reached = np.matmul(near, heads[..., None])[..., 0] / norms
        target = target + placement.cosines - reached
    place()
    return near.reshape(-1, dim)


def _principal_axes(differences: Singles) -> tuple[Singles, Singles]:
    """Return the variances of the differences, of mean 1, and their directions as columns."""
    moment = differences.T @ differences / np.float32(len(differences))
    variance, basis = np.linalg.eigh(moment.astype(np.float64))
    variance = np.maximum(variance / max(variance.mean(), _TINY), 0.0)
    return variance.astype(np.float32), basis.astype(np.float32)


def _moved_to(head: Singles, difference: Singles, variance: Singles, target: Doubles) -> Singles:
    """Return ``head + difference/(1 + τ·variance)``, shape (s, p), with the τ for each cosine.

    τ is interpolated between the values of a grid; cosines grow with it.
    """
    kept = 1 / (1 + np.exp(_LOG_TAU)[:, None] * variance)
    square = head @ head
    along = (difference * head) @ kept.T
    moved_squares = square + 2 * along + difference**2 @ (kept**2).T
    norms = np.sqrt(square * moved_squares)
    cosine = (square + along) / np.maximum(norms, _TINY)
    reached = cosine[:, 1:] >= target[:, None]
    reached[:, -1] = True
    after = 1 + np.argmax(reached, axis=1)
    rows = np.arange(len(target))
    low = cosine[rows, after - 1]
    high = cosine[rows, after]
    share = np.clip((target - low) / np.maximum(high - low, _TINY), 0, 1)
    spacing = _LOG_TAU[1] - _LOG_TAU[0]
    tau = np.exp(_LOG_TAU[after - 1] + share * spacing).astype(np.float32)
    moved = head + difference / (1 + tau[:, None] * variance)
    return np.asarray(moved, dtype=np.float32)


def _roundings(
    sampled: Singles, count: int, stream: PublicStream
) -> dict[int, tuple[Singles, Singles]]:
    """Return, for columns with a gap beside a frequent value, all values and ``count`` chances.

    No word occurs a tenth of a time. A code of signs would tell that from a word that does not
    occur, and near vectors would be found far too often.
    """
    roundings = {}
    gap = _GAP * sampled.std(axis=0)
    for column in range(sampled.shape[1]):
        values, counts = np.unique(sampled[:, column], return_counts=True)
        frequent = int(np.argmax(counts))
        if len(values) == 1 or counts[frequent] < _FREQUENT * len(sampled):
            continue
        nearest_gap = np.abs(np.delete(values, frequent) - values[frequent]).min()
        if nearest_gap > gap[column]:
            words = stream.words(count, np.uint16)
            roundings[column] = (values, np.ldexp(words, -16, dtype=np.float32))
    return roundings


def _rounded(column: Singles, values: Singles, chance: Singles) -> Singles:
    """Return the column rounded up or down to one of ``values``, its mean unchanged."""
    above = np.clip(np.searchsorted(values, column), 1, len(values) - 1)
    low = values[above - 1]
    high = values[above]
    return np.where(column - low > chance * (high - low), high, low)


def _with_replaced_attributes(
    queries: Any, sampled: Any, placement: Placement, stream: PublicStream
) -> scipy.sparse.csr_matrix:
    """Return sparse near vectors: so many attributes are the query's that the cosine is right."""
    rows: list[tuple[Integers, Singles]] = []
    words = stream.words(2 * placement.cosines.size, np.uint16)
    chances = words.reshape(*placement.cosines.shape, 2) / 2.0**16
    for i, head in enumerate(queries):
        for j, cosine in enumerate(np.maximum(placement.cosines[i], _MIN_COSINE)):
            row = sampled[placement.sources[i, j]]
            further = sampled[placement.sources[i, j - 1]]
            mix = _SparseMix(head, row, further, stream)
            rows.append(mix.at(cosine, placement.lengths[i, j], chances[i, j]))
    columns, entries = map(np.concatenate, zip(*rows, strict=True))
    ends = np.cumsum([0, *(len(columns_of_row) for columns_of_row, _ in rows)])
    shape = (len(rows), sampled.shape[1])
    near = scipy.sparse.csr_matrix((entries, columns, ends), shape)
    near.sort_indices()
    return near


class _SparseMix:
    """A sparse vector whose attributes are replaced by a query's, one after the other.

    Parameters
    ----------
    head, row, further : CSR matrices of one row
        The query; the vector that is moved; another one, whose attributes are added if those of the
        row are too few for the length.
    stream : PublicStream
        Of the order.
    """

    def __init__(self, head: Any, row: Any, further: Any, stream: PublicStream) -> None:
        self._stream = stream
        self._head = head
        shared = np.isin(row.indices, head.indices)
        foreign = ~np.isin(further.indices, np.append(head.indices, row.indices))
        self._values = np.zeros_like(head.data)
        """Values of the row in the attributes of the query."""
        places = np.searchsorted(head.indices, row.indices[shared])
        self._values[places] = row.data[shared]
        self._differing = self._shuffled(np.flatnonzero(self._values != head.data))
        self._columns = np.append(row.indices, further.indices)
        self._data = np.append(row.data, further.data)
        unshared = self._shuffled(np.flatnonzero(~shared))
        added = self._shuffled(len(shared) + np.flatnonzero(foreign))
        self._others = np.append(unshared, added)
        """Attributes that the query lacks: the row's, then the further vector's."""

    def at(self, cosine: float, length: float, chance: Doubles) -> tuple[Integers, Singles]:
        """Return columns and entries of the vector with that cosine and length.

        ``chance`` holds two numbers in [0, 1), which round the numbers of attributes.
        """
        goal = self._head.data
        values = self._values.copy()
        norm = max(float(row_norms(self._head)[0]), _TINY)
        inner = _running_sums(goal @ values, (goal * (goal - values))[self._differing])
        square = _running_sums(values @ values, (goal**2 - values**2)[self._differing])
        missing = (inner / (cosine * norm)) ** 2 - square
        fewest = int(np.argmax((missing >= 0) & (inner > 0)))
        replaced = max(fewest, int(_position(inner, cosine * norm * length) + chance[0]))
        values[self._differing[:replaced]] = goal[self._differing[:replaced]]
        squares = _running_sums(0.0, self._data[self._others] ** 2)
        kept = self._others[: int(_position(squares, missing[replaced]) + chance[1])]
        columns = np.append(self._head.indices[values != 0], self._columns[kept])
        return columns, np.append(values[values != 0], self._data[kept])

    def _shuffled(self, items: AnyArray) -> AnyArray:
        return items[np.argsort(self._stream.words(len(items), np.uint32))]


def _running_sums(start: float, terms: Singles) -> Doubles:
    """Return ``start`` plus the first 0, 1, … terms."""
    return start + np.cumsum(np.append(0.0, terms), dtype=np.float64)


def _position(ascending: Doubles, target: float) -> float:
    """Return the fractional index at which the numbers reach the target."""
    ascending = np.maximum.accumulate(ascending)
    return float(np.interp(target, ascending, np.arange(len(ascending))))
