"""What maps vectors to coordinates: linear projections, exact in integers, and record encoders.

One of these encoders is a rotation by fast transforms, which spreads a vector over all coordinates.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy

from dpindex.base.arrays import (
    RADIUS,
    AnyArray,
    Doubles,
    Floats,
    Integers,
    Longs,
    Singles,
    matrix_product,
    on_sphere_grid,
    row_blocks,
)
from dpindex.base.checks import Narrowed
from dpindex.base.errors import NoGuaranteeError
from dpindex.mechanism.codebooks import Codebook
from dpindex.mechanism.grid import GRID_BITS, Windows
from dpindex.mechanism.public_random import PublicStream

MAX_BYTES = 1 << 30
"""What the tables of one projection may take; making them takes up to three times that."""

_DENSE_NUMBERS = 1 << 20

_MAX_WHOLE = 1 << 16
"""Attributes of a vector that can be kept one by one."""


def check_size(
    dim: int,
    k: int,
    size: int,
    advice: str = "lower dim or k, or use dp-oporp",
) -> None:
    """Refuse, before anything is allocated, a projection whose tables would take ``size`` bytes.

    A spec of a hundred bytes may declare any ``dim`` and ``k``: whoever opens one from a stranger
    must not lose more than this to it.
    """
    if max(size, 8 * dim, 8 * k) > MAX_BYTES:
        raise NoGuaranteeError(
            f"this {dim} × {k} projection would take more than 1 GB (2^30 bytes), which is all "
            f"that a projection may; {advice}."
        )


@dataclass(frozen=True)
class Sensitivity:
    """The most that one attribute, changed by one, moves a projected vector: exact, of this map.

    Attributes
    ----------
    count : int
        Coordinates moved: the most non-zero entries of any row of W.
    l1, l2_squared : int
        The largest ``Σ_j |w_ij|`` and ``Σ_j w_ij²`` over attributes i (Li & Li 2023, Eqs. 12, 13).
    """

    count: int
    l1: int
    l2_squared: int

    @classmethod
    def of_signs(cls, count: int) -> Sensitivity:
        """Return the sensitivity of a map whose entries are −1, 0 and +1."""
        return cls(count, count, count)


class RealisedSizes:
    """Row and column sizes of a realised map, added up block by block.

    Parameters
    ----------
    dim, k : int
        Attributes and coordinates.

    Attributes
    ----------
    rows : int64 array, shape (3, dim)
        Of each attribute how many entries are not 0, their L1 norm and their squared L2 norm.
    columns, largest : int64 arrays, shape (k,)
        ``Σ_i |w_ij|`` and ``max(1, max_i |w_ij|)`` of each coordinate.
    """

    def __init__(self, dim: int, k: int) -> None:
        self.rows = np.zeros((3, dim), dtype=np.int64)
        self.columns = np.zeros(k, dtype=np.int64)
        self.largest = np.ones(k, dtype=np.int64)

    def add(self, block: AnyArray, attributes: slice, coordinates: slice) -> None:
        """Count the entries of some attributes in some coordinates, shape (len, len)."""
        sizes = np.abs(block.astype(np.int64))
        rows = self.rows[:, attributes]
        rows[0] += np.count_nonzero(sizes, axis=1)
        rows[1] += sizes.sum(axis=1)
        rows[2] += (sizes**2).sum(axis=1)
        self.columns[coordinates] += sizes.sum(axis=0)
        largest = self.largest[coordinates]
        np.maximum(largest, sizes.max(axis=0), out=largest)

    @property
    def sensitivity(self) -> Sensitivity:
        """The sensitivity of the map; at least 1, where few entries all came out 0."""
        largest = self.rows.max(axis=1, initial=1)
        return Sensitivity(*largest.tolist())


class Encoder(Narrowed, ABC):
    """A public map from vectors to the numbers that a law turns into codes.

    Attributes
    ----------
    dim, k : int
        Attributes and coordinates.
    scale : float
        Factor that makes inner products of mapped vectors unbiased for the originals'.
    rms : float
        Root mean square of a coordinate (before ``scale``) of a unit vector.
    inner_product_factor : float
        c such that ``Var⟨x,y⟩ ≈ c·(‖u‖²‖v‖² + ⟨u,v⟩²)`` over the choice of the map.
    block_numbers : int
        Numbers of vectors that it is fastest to map at a time: few for the cache, many for threads,
        which wait for each other between steps.
    windows : Windows, optional
        What attributes are clipped to before they are mapped.
    """

    dim: int
    k: int
    scale: float
    rms: float
    inner_product_factor: float
    block_numbers = 1 << 20
    windows: Windows | None = None

    def map(self, rows: Any) -> Floats:
        """Map dense or CSR rows."""
        return self.apply(rows) if isinstance(rows, np.ndarray) else self.apply_sparse(rows)

    @abstractmethod
    def apply(self, x: Floats) -> Floats:
        """Map rows, shape (n, dim) to (n, k), exactly."""

    def apply_sparse(self, x: scipy.sparse.csr_matrix) -> Floats:
        """Map CSR rows: made dense, a few at a time, where a subclass knows no better."""
        count = max(1, _DENSE_NUMBERS // self.dim)
        blocks = row_blocks(x.shape[0], count)
        mapped = [self.apply(x[rows].toarray()) for rows in blocks]
        return np.concatenate(mapped)


class RecordEncoder(Encoder):
    """A map for laws that hide whole records: it takes vectors as they are.

    It states no sensitivity, so no noise can be calibrated to it: the guarantee of such a law does
    not rest on what a vector maps to.
    """


class CodewordMap(RecordEncoder):
    """Inner products of a vector's direction with all codewords: shape (n, dim) to (n, K).

    Directions and codewords are whole numbers, so the inner products are exact in any order and on
    any machine; times ``scale`` they are cosines.
    """

    scale = 1.0 / RADIUS**2
    rms = 1.0
    inner_product_factor = 0.0
    block_numbers = 1 << 22  # all codewords are read for every block

    def __init__(self, codebook: Codebook) -> None:
        self.codebook = codebook
        self.dim = codebook.dim
        self.k = len(codebook)

    def apply(self, x: Floats) -> Floats:
        """Whole numbers held exactly in float32, shape (n, K)."""
        return matrix_product(on_sphere_grid(x), self.codebook.grid)


class Projection(Encoder):
    """A public linear map W with integer entries, applied to grid integers held in floats.

    Entries that are real in the papers are integers times ``scale``; so sums are exact in any order
    and on any machine, and the sensitivity is known exactly.

    Attributes
    ----------
    max_column_l1 : int
        The largest ``Σ_i |w_ij|``: bounds a coordinate, and every sum on the way to it.
    grid_bits : int
        Grid bits per beta that attributes need: fewer where entries are fractions of one.
    """

    max_column_l1: int
    grid_bits = GRID_BITS

    @cached_property
    def sensitivity(self) -> Sensitivity:
        """The most that one attribute moves a projected vector."""
        raise NotImplementedError

    @cached_property
    def operator_norm(self) -> float:
        """Upper bound on ``‖W‖``, the L2 sensitivity under l2 adjacency; of some maps only."""
        raise NotImplementedError

    @cached_property
    def largest(self) -> Longs:
        """The most that one attribute, changed by one, moves each coordinate, shape (k,), ≥ 1."""
        return np.ones(self.k, dtype=np.int64)


class Identity(Projection):
    """No projection: the raw coordinates themselves, k = dim."""

    scale = operator_norm = 1.0
    inner_product_factor = 0.0
    max_column_l1 = 1
    sensitivity = Sensitivity.of_signs(1)

    def __init__(self, dim: int) -> None:
        check_size(dim, dim, 0)
        if dim > _MAX_WHOLE:
            raise NoGuaranteeError(
                f"raw-* methods make a code of all {dim} attributes, which takes too much memory "
                f"above {_MAX_WHOLE}; use dp-oporp-staircase, which adds attributes up in bins."
            )
        self.dim = self.k = dim
        self.rms = 1.0 / math.sqrt(dim)

    def apply(self, x: Floats) -> Floats:
        return x


def scatter(
    x: scipy.sparse.csr_matrix,
    places: Integers,
    signs: Integers,
    k: int,
) -> Floats:
    """Rows of a sparse product whose every entry lands in a few known coordinates.

    Parameters
    ----------
    x : CSR matrix, shape (n, dim)
    places, signs : arrays of shape (nnz, s)
        For every stored entry of ``x`` the coordinates it lands in, and its sign there.

    Returns
    -------
    array of shape (n, k); memory is that of the result and of ``places``, whatever ``dim`` is.
    """
    per_entry = places.shape[1]
    data = x.data[:, None] * signs
    entries = (data.ravel(), places.ravel(), x.indptr * per_entry)
    # Entries with the same place add up when the matrix is made dense.
    landed = scipy.sparse.csr_matrix(entries, (x.shape[0], k))
    return np.asarray(landed.toarray())


TRANSFORMED = 1 << 22
_ROTATED = 1 << 18
"""Numbers that are transformed at a time, and that are rotated: fewer fit the cache."""

MAX_WRITTEN = 1 << 12
"""Attributes up to which the map is written out as a matrix, which takes their square of work."""

_GRID_STEPS = 1 << 20
_ROUNDS = 2


def walsh_hadamard(x: Doubles) -> Doubles:
    """``x @ H`` in place, H the ±1 Walsh–Hadamard matrix, rows of a power of two numbers.

    >>> walsh_hadamard(np.array([[1.0, 0, 0, 0], [1, 2, 3, 4]])).tolist()
    [[1.0, 1.0, 1.0, 1.0], [10.0, -2.0, -4.0, 0.0]]
    """
    n, size = x.shape
    half = 1
    while half < size:
        blocks = size // (2 * half)
        pairs = x.reshape(n, blocks, 2, half)
        low = pairs[:, :, 0]
        high = pairs[:, :, 1]
        low += high
        high *= -2.0
        high += low
        half *= 2
    return x


def on_grid(x: Floats) -> Singles:
    """Rows as whole multiples of 2^-20 of their largest magnitude, held in float32.

    Division is correctly rounded, and for values that float32 holds it makes no difference that
    wider ones are divided in float64 first (Figueroa 1995), so the grid is the same everywhere.
    """
    wide = x
    if x.dtype != np.float32:
        wide = x.astype(np.float64)
    highest = wide.max(axis=1, keepdims=True)
    lowest = wide.min(axis=1, keepdims=True)
    largest = np.maximum(highest, -lowest)
    largest[largest == 0] = 1
    single: Singles = (wide / largest).astype(np.float32)
    single *= np.float32(_GRID_STEPS)
    np.rint(single, out=single)
    return single


class Rotation(RecordEncoder):
    """k coordinates of ``H·D₂·H·D₁·u``: two rounds of random signs and a Walsh–Hadamard transform.

    The vector is padded with zeros to the next power of two that holds both dim and k. Two rounds
    bring the coordinates of any fixed vector close to normal (Ailon & Chazelle 2009 for one round);
    k of them are taken at random places. A matrix product is faster than the transform, so the map
    is written out where memory allows.

    Parameters
    ----------
    dim, k : int
        Attributes and coordinates.
    seed : int
        Public seed.
    """

    def __init__(self, dim: int, k: int, seed: int) -> None:
        self.dim = dim
        self.k = k
        self.padded = 1 << (max(dim, k) - 1).bit_length()
        check_size(dim, k, 8 * self.padded)
        stream = PublicStream(seed, f"rotation/{dim}/{k}")
        self._signs = [stream.signs(self.padded).astype(np.float32) for _ in range(_ROUNDS)]
        chosen = stream.permutation(self.padded)[:k]
        self._places = np.sort(chosen)
        self.rms = 1.0
        self.scale = 1.0 / math.sqrt(k)
        self.inner_product_factor = 1.0 / k - 1.0 / self.padded

    @cached_property
    def _matrix(self) -> Doubles | None:
        """The map written out, shape (dim, k); None where that would take too much memory."""
        if self.dim > MAX_WRITTEN:
            return None
        return self._transformed(np.eye(self.dim))

    def apply(self, x: Floats) -> Floats:
        """Rotated rows up to a factor each, (n, dim) to (n, k), float32.

        Sums of whole numbers below 2^53 are exact in float64 in any order, so a row has the same
        coordinates alone, in any batch and on any machine.
        """
        out = np.empty((len(x), self.k), dtype=np.float32)
        factor = 1.0 / (_GRID_STEPS * math.sqrt(self.padded))
        for block in row_blocks(len(x), _ROTATED // self.padded):
            grid = on_grid(x[block]).astype(np.float64)
            if self._matrix is None:
                exact = self._transformed(grid)
            else:
                exact = matrix_product(grid, self._matrix)
            out[block] = exact * factor
        return out

    def _transformed(self, x: Doubles) -> Doubles:
        """The k places of two transforms, which stretch a vector by ``padded``."""
        block = np.zeros((len(x), self.padded))
        block[:, : self.dim] = x
        for signs in self._signs:
            block *= signs
            walsh_hadamard(block)
        return block[:, self._places]
