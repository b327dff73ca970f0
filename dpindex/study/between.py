"""Vectors that are made between queries and vectors of a sample, as near as others would be.

Each is a point of the line from a query to another vector, mostly one that lies farther. A sparse
vector, or one of few values, has each attribute of the query or of the other one: it has no values
between, and noise may depend on how large they are.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy

from dpindex.base.arrays import (
    AnyArray,
    Bools,
    Doubles,
    Floats,
    Integers,
    issparse,
    row_norms,
    spaced,
)
from dpindex.decode.base import Metric

# By how much norms that are equal may differ, and turns in which made vectors get one.
_SAME_NORM = 1e-2
_TURNS = 10
# Different values of all attributes up to which near vectors have no others. Sums of bits are often
# zero, and of fractions never: .25 was promised of their signs, and .06 found. With eight values,
# pictures were promised .10 too little.
_FEW_VALUES = 5
# Or if so few are this share of all, as of counts: .79 was promised of signs of their sums, and .10
# found. Of pictures of eight values they are .96.
_FEW_ARE = 0.99
# Numbers that are looked at for it.
_COUNTED_NUMBERS = 1 << 18
# The same of tables of few columns, whose rows tie: of seven values .69 was promised, 1.00 found.
_FEW_OF_TABLE = 32
_FEW_COLUMNS = 64
# Steps in which near vectors take attributes of farther ones: each attribute has one of them, which
# the first bits of a word tell.
_STEPS = 256
_SHIFT = 24
# Squared differences from a query beyond a vector, as shares of that of the vector.
_FARTHEST = 4.0
_TINY = 1e-30


class Between(NamedTuple):
    """Places at some distances from queries, towards vectors of a population that lie farther.

    Attributes
    ----------
    asked, sources : int arrays, shape (n,)
        Queries and vectors.
    near, far : float64 arrays, shape (n,)
        Distances from the queries, of the places and of the vectors.
    coins : uint32 array, shape (n,)
        What attributes are drawn by, where each is one of the query or of the vector.
    """

    asked: Integers
    sources: Integers
    near: Doubles
    far: Doubles
    coins: Integers

    def moved(self, power: float) -> Between:
        """Return places nearer by a power, where they are nearer than the vectors: with 0 at these.

        A share of the way would put the nearest on the query.
        """
        nearer = self.near / np.maximum(self.far, _TINY)
        return self._replace(near=np.where(nearer < 1.0, self.far * nearer**power, self.near))


class Ends:
    """Queries and vectors of a sample, their distances, and what is made between them.

    Parameters
    ----------
    queries, vectors : float32 arrays or CSR matrices, shapes (q, dim) and (m, dim)
    metric : "cosine" or "l2"
        What neighbours are ranked by.

    Attributes
    ----------
    by_direction : bool
        Whether they are compared by their directions: by cosine, or with vectors of one norm.
    are_crossed : bool
        Whether what is made has each attribute of the one or of the other.
    """

    def __init__(self, queries: Any, vectors: Any, metric: Metric) -> None:
        self._queries = queries
        self._vectors = vectors
        self._norms = row_norms(vectors)
        self._asked_norms = row_norms(queries)
        self._on_sphere = bool(np.ptp(self._norms) <= _SAME_NORM)
        self.by_direction = metric == "cosine" or self._on_sphere
        self.are_crossed = issparse(vectors) or _has_few_values(vectors)

    def distances(self) -> Doubles:
        """Return the distances of all queries and all vectors, (q, m)."""
        inner: Any = self._queries.astype(np.float64) @ self._vectors.T.astype(np.float64)
        if issparse(inner):
            inner = inner.toarray()
        return self._apart(inner, self._asked_norms[:, None], self._norms)

    def _apart(self, inner: Doubles, first: Doubles, second: Doubles) -> Doubles:
        """Return distances of vectors of such inner products and norms."""
        if self.by_direction:
            apart = 1.0 - inner / np.maximum(first * second, _TINY)
        else:
            apart = (first**2 + second**2) / 2 - inner
        return np.asarray(np.maximum(apart, 0.0))

    def squares(self, places: Between) -> Doubles:
        """Return where places lie on lines from queries to vectors, beyond these at most twice.

        As the squared difference from the query, as a share of that of the vector.
        """
        near, far = places.near, places.far
        if self.by_direction:
            # On the arc of their directions, and on the line, as the ends may differ in length.
            towards = np.sqrt(near * (2.0 - near) / np.maximum(far * (2.0 - far), _TINY))
            staying = 1.0 - near - towards * (1.0 - far)
            towards /= np.maximum(self._norms[places.sources], _TINY)
            staying /= np.maximum(self._asked_norms[places.asked], _TINY)
            squares = np.square(towards / np.maximum(towards + staying, _TINY))
        else:
            squares = near / np.maximum(far, _TINY)
        return np.asarray(np.minimum(squares, _FARTHEST))

    def vectors_at(self, places: Between) -> Any:
        """Return vectors at some places: points of segments between queries and vectors.

        Values stay within those of the sample, and norms if they are equal, which a spec may state.
        A sparse vector, or one of few values, has each attribute of the query or of a farther
        vector: it has no others, and noise may depend on how large they are.
        """
        norms = self._asked_norms[places.asked]
        if self.are_crossed:
            crossing, taken, _ = self._crossing(places)
            made = crossing.at(taken)
            # Others keep their values: longer rows of bits would have values beyond them.
            if self._on_sphere and abs(float(self._norms[0]) - 1.0) <= _SAME_NORM:
                scale = norms / np.maximum(row_norms(made), _TINY)
                made.data *= np.repeat(scale, np.diff(made.indptr)).astype(np.float32)
            return made if issparse(self._vectors) else made.toarray()
        ways = np.sqrt(self.squares(places)).astype(np.float32)[:, None]
        asked = self._queries[places.asked]
        made = asked + ways * (self._vectors[places.sources] - asked)
        if self._on_sphere:
            made *= (norms / np.maximum(row_norms(made), _TINY)).astype(np.float32)[:, None]
        return self._kept_within(made, norms)

    def reached(self, places: Between) -> Doubles:
        """Return the distances at which vectors with attributes of two others are made."""
        return self._crossing(places)[2]

    def _crossing(self, places: Between) -> tuple[_Crossing, Integers, Doubles]:
        """Return rows that take attributes of farther ones, in how many steps they are so far.

        And the distances that are reached: with shares of coins alone the nearest of many were too
        near, and .05 to .12 too much was promised of bits.
        """
        first = scipy.sparse.csr_matrix(self._queries[places.asked])
        second = scipy.sparse.csr_matrix(self._vectors[places.sources])
        crossing = _Crossing(first, second, places.coins)
        inner, squares = crossing.sums()
        norms = self._asked_norms[places.asked, None]
        steps = self._apart(inner, norms, np.sqrt(np.maximum(squares, 0.0)))
        taken = np.abs(steps - places.near[:, None]).argmin(axis=1)
        return crossing, taken, steps[np.arange(len(taken)), taken]

    def _kept_within(self, made: Floats, norms: Doubles) -> Floats:
        """Return dense vectors with values within those of the sample, and norms if all have one.

        Shares that are square roots of frequencies have a norm and no values below zero, so that
        rows are clipped and brought to their norm in turns, until both nearly hold.
        """
        low, high = self._vectors.min(), self._vectors.max()
        for _ in range(_TURNS if self._on_sphere else 0):
            outside = np.flatnonzero((made.min(axis=1) < low) | (made.max(axis=1) > high))
            if not outside.size:
                break
            clipped = made[outside].clip(low, high)
            lengths = norms[outside] / np.maximum(row_norms(clipped), _TINY)
            made[outside] = clipped * lengths[:, None].astype(np.float32)
        return np.clip(made, low, high, out=made)


def _has_few_values(vectors: Floats) -> bool:
    """Return whether dense vectors have few values, or hardly others than a few."""
    some = vectors[spaced(len(vectors), 1 + _COUNTED_NUMBERS // vectors.shape[1])]
    counts = np.unique(some, return_counts=True)[1]
    if vectors.shape[1] <= _FEW_COLUMNS:
        return len(counts) <= _FEW_OF_TABLE
    common = np.sort(counts)[-_FEW_VALUES:].sum()
    return bool(common >= _FEW_ARE * some.size)


class _Crossing:
    """Rows that take the attributes of others, step by step, each as a coin says.

    Parameters
    ----------
    first, second : CSR matrices, shape (n, dim)
        What rows are before the first step and after the last one.
    words : uint32 array, shape (n,)
        What the coins of each row are made of.
    """

    def __init__(self, first: Any, second: Any, words: Integers) -> None:
        self._first = first
        self._second = second
        self._words = words

    def sums(self) -> tuple[Doubles, Doubles]:
        """Return inner products with the first, and squares, before and after each step.

        Both have shape (n, 1 + steps).
        """
        first, second = self._first, self._second
        given = self._summed(first, np.square(first.data, dtype=np.float64))
        left = given[:, -1:] - given
        taken = self._summed(second, np.square(second.data, dtype=np.float64))
        common = scipy.sparse.csr_matrix(first.multiply(second))
        return left + self._summed(common, common.data), left + taken

    def _summed(self, part: Any, values: AnyArray) -> Doubles:
        rows, steps = self._steps(part)
        count = part.shape[0]
        added = np.bincount(rows * _STEPS + steps, weights=values, minlength=count * _STEPS)
        sums = np.zeros((count, 1 + _STEPS))
        np.cumsum(added.reshape(count, _STEPS), axis=1, out=sums[:, 1:])
        return sums

    def at(self, taken: Integers) -> Any:
        """Return the rows after so many steps each, CSR."""
        rows, steps = self._steps(self._first)
        others, their_steps = self._steps(self._second)
        left = _kept(self._first, steps >= taken[rows])
        return left + _kept(self._second, their_steps < taken[others])

    def _steps(self, part: Any) -> tuple[Integers, Integers]:
        """Return the row of each entry of a CSR matrix, and the step in which it is taken."""
        rows = np.repeat(np.arange(part.shape[0]), np.diff(part.indptr))
        mixed = part.indices.astype(np.uint32) ^ self._words[rows]
        mixed *= np.uint32(2654435761)
        mixed ^= mixed >> np.uint32(15)
        mixed *= np.uint32(2246822519)
        return rows, (mixed >> np.uint32(_SHIFT)).astype(np.intp)


def _kept(part: Any, chosen: Bools) -> Any:
    """Return a CSR matrix with these of its entries alone."""
    before = np.append(0, np.cumsum(chosen))
    kept = part.data[chosen], part.indices[chosen], before[part.indptr]
    return scipy.sparse.csr_matrix(kept, shape=part.shape)
