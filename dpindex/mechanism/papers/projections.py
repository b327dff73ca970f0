"""Projections that papers name: random ones, dense or sparse, and two fast transforms.

Each coordinate of a dense one sums all attributes with random weights. The sparse ones are Kane &
Nelson's map and very sparse entries, with which sparse input never becomes dense in ``dim``; the
transforms are FastJL and a rotation.

Entries are integers, the same on every machine: public words are compared with integer thresholds,
never with the results of floating point functions, whose last bits differ between machines.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy

from dpindex.base.arrays import (
    AnyArray,
    Doubles,
    Floats,
    Integers,
    Ints,
    Longs,
    Words,
    row_blocks,
)
from dpindex.base.errors import NoGuaranteeError
from dpindex.mechanism.projections import (
    TRANSFORMED,
    Projection,
    RealisedSizes,
    Sensitivity,
    check_size,
    scatter,
    walsh_hadamard,
)
from dpindex.mechanism.projections.dense import Matrix, upper_tails
from dpindex.mechanism.public_random import PublicStream

NORMAL_BITS = 4
"""Normal entries are rounded to multiples of 2^-4 and kept as integers, which fit into a byte."""

FINE_ENTRY_BITS = 12
"""Normal entries are rounded this finely where a proof is about real normals (Prop. 4.5)."""

_WORD_BITS = 63
_PIECE = 1 << 20
_ENTRY_BYTES = 4


def normal_second_moment(bits: int) -> float:
    """``E w²`` of an integer entry ``w = round(2^bits · N(0, 1))``: 4^bits + 1/12.

    Rounding to a lattice adds the variance of a uniform, up to e^{−2π²·4^bits} (Sheppard).
    """
    return 4.0**bits + 1.0 / 12.0


@lru_cache(maxsize=4)
def _normal_thresholds(bits: int) -> Words:
    """``2^63·P(|w| ≥ n)`` for n = 1, 2, …, ascending."""
    deviation = 1 << bits
    # Beyond 9.5 deviations the chance is below 2^-63.
    tails = upper_tails(float(deviation), _WORD_BITS + 1, int(9.5 * deviation))
    ascending = [tail for tail in reversed(tails) if tail]
    return np.array(ascending, dtype=np.uint64)


def normal_integers(count: int, bits: int, stream: PublicStream) -> Ints:
    """``round(2^bits · N(0, 1))``, independent, int32, shape (count,)."""
    thresholds = _normal_thresholds(bits)
    entries = np.empty(count, dtype=np.int32)
    for piece in row_blocks(count, _PIECE):
        words = stream.words(piece.stop - piece.start, np.uint64)
        sign = words & np.uint64(1)
        below = np.searchsorted(thresholds, words >> np.uint64(1), side="right")
        size = (len(thresholds) - below).astype(np.int32)
        entries[piece] = np.where(sign, -size, size)
    return entries


class RandomMatrix(Matrix):
    """``x = W^T u`` with independent integer entries of mean 0.

    Parameters
    ----------
    entries : integer array, shape (dim, k)
    second_moment : float
        ``E w²``, which ``scale`` divides out.
    """

    def __init__(self, entries: Integers, second_moment: float) -> None:
        super().__init__(entries)
        self.rms = math.sqrt(second_moment)
        self.scale = 1.0 / (math.sqrt(self.k) * self.rms)
        self.inner_product_factor = 1.0 / self.k


def _entry_stream(
    kind: str,
    dim: int,
    k: int,
    seed: int,
) -> PublicStream:
    """Return the stream of a dense map's entries, if they are not too many."""
    check_size(dim, k, _ENTRY_BYTES * dim * k)
    return PublicStream(seed, f"{kind}/{dim}/{k}")


class Rademacher(RandomMatrix):
    """Independent fair signs ``W_ij`` (Li & Li 2023, Alg. 3 and 11).

    Changing one attribute by β moves *every* coordinate by β (before ``scale`` = 1/√k).
    """

    def __init__(self, dim: int, k: int, seed: int) -> None:
        stream = _entry_stream("rademacher", dim, k, seed)
        entries = stream.signs(dim * k).reshape(dim, k)
        super().__init__(entries, second_moment=1.0)


class Gaussian(RandomMatrix):
    """Normal entries, rounded to multiples of ``2^-bits`` and kept as integers (Li & Li, Alg. 1).

    Rounding makes sums and sensitivities exact and costs nothing: the entries keep mean 0,
    independence and, after ``scale``, variance 1.
    """

    def __init__(
        self,
        dim: int,
        k: int,
        seed: int,
        bits: int = NORMAL_BITS,
    ) -> None:
        stream = _entry_stream(f"gaussian/{bits}", dim, k, seed)
        entries: Integers = normal_integers(dim * k, bits, stream).reshape(dim, k)
        # 9.5 deviations of 2^4 are 152: the entries beyond a byte, one in 10^14, need two.
        if np.abs(entries).max() <= np.iinfo(np.int8).max:
            entries = entries.astype(np.int8)
        super().__init__(entries, normal_second_moment(bits))


class Uniform(RandomMatrix):
    """Entries uniform on the odd integers from −63 to 63 (Li & Li 2023, Sec. 3.4: √3·U[−1, 1])."""

    def __init__(self, dim: int, k: int, seed: int) -> None:
        stream = _entry_stream("uniform", dim, k, seed)
        words = stream.words(dim * k, np.uint8) & np.uint8(63)
        odd = 2 * words.astype(np.int8) - np.int8(63)
        super().__init__(odd.reshape(dim, k), second_moment=(64.0**2 - 1.0) / 3.0)


_PLACE_BYTES = 4
_SPARSE_ENTRY_BYTES = 32
_MIXED_ENTRY_BYTES = 16
"""Memory of a place of SparseJL, and of an entry of VerySparse and of FastJL."""


_MAX_REALISED = 1 << 31
"""Entries of ``P·H·D``, all of which are looked at once for its sensitivity: some minutes."""


def sparse_places(total: int, s: int, stream: PublicStream) -> Longs:
    """The places among ``total`` that are chosen when each is, independently, with chance 1/s.

    Ascending. Jumps from one to the next are geometric; a jump longer than 4s, which the table of
    thresholds leaves out, is a step of 4s that chooses nothing.
    """
    thresholds = _jump_thresholds(s)
    parts = []
    at = -1
    while at < total:
        expected = 64 + (total - at) // s
        words = stream.words(min(_PIECE, expected), np.uint64)
        jumps = np.searchsorted(thresholds, words, side="right")
        chosen = jumps < len(thresholds)
        steps = np.where(chosen, jumps + 1, len(thresholds))
        ends = at + np.cumsum(steps)
        at = int(ends[-1])
        parts.append(ends[chosen])
    places = np.concatenate(parts)
    return places[places < total]


@lru_cache(maxsize=8)
def _jump_thresholds(s: int) -> Words:
    """``2^64·P(jump ≤ n)``, ``P(jump > n) = (1 − 1/s)^n``, for n = 1 … 4s."""
    largest = (1 << 64) - 1
    left = 1 << 128
    thresholds = []
    for _ in range(4 * s):
        left -= left // s
        threshold = (1 << 64) - (left >> 64)
        thresholds.append(min(largest, threshold))
    return np.array(thresholds, dtype=np.uint64)


def _random_matrix(
    rows: int,
    columns: int,
    s: int,
    stream: PublicStream,
    draw: Callable[[int], AnyArray],
) -> scipy.sparse.csr_matrix:
    """Return a matrix with entries of ``draw(count)`` at places chosen with chance 1/s each."""
    places = sparse_places(rows * columns, s, stream)
    row, column = np.divmod(places, columns)
    starts = np.searchsorted(row, np.arange(rows + 1))
    entries = (draw(len(places)), column.astype(np.int32), starts)
    return scipy.sparse.csr_matrix(entries, (rows, columns))


class _Sparse(Projection):
    """A map kept as a sparse matrix."""

    _matrix: scipy.sparse.csr_matrix

    def apply(self, x: Floats) -> Floats:
        return np.asarray(x @ self._matrix, order="C")

    def apply_sparse(self, x: scipy.sparse.csr_matrix) -> Floats:
        return np.asarray((x @ self._matrix).toarray())


class SparseJL(_Sparse):
    """``s`` blocks of ``k/s`` coordinates; each attribute has one ±1 in every block.

    Kane & Nelson 2014 (the block construction), as made private by Stausholm 2021. After ``scale``,
    1/√s, entries are ±1/√s. Changing one attribute by β moves s coordinates by β: before the scale
    the L1 sensitivity is sβ and the L2 sensitivity √s·β.

    Parameters
    ----------
    dim, k : int
        Attributes and coordinates.
    seed : int
        Public seed.
    sparsity : int
        Blocks s, a divisor of k.
    """

    def __init__(
        self,
        dim: int,
        k: int,
        seed: int,
        sparsity: int,
    ) -> None:
        check_size(dim, k, _PLACE_BYTES * dim * sparsity)
        self.dim = dim
        self.k = k
        self.sparsity = sparsity
        self.scale = 1.0 / math.sqrt(sparsity)
        self.rms = math.sqrt(sparsity / k)
        self.inner_product_factor = 1.0 / k
        self.sensitivity = Sensitivity.of_signs(sparsity)
        self._width = k // sparsity
        # 2·place + sign, in the smallest integers that hold it: 2s bytes an attribute as a rule.
        narrow = 2 * self._width <= 1 << 16
        dtype = np.uint16 if narrow else np.uint32
        self._packed: AnyArray = np.empty((dim, sparsity), dtype=dtype)
        counts = np.zeros((sparsity, self._width), dtype=np.int64)
        for block in range(sparsity):
            stream = PublicStream(seed, f"sparse-jl/{dim}/{k}/{sparsity}/{block}")
            for piece in row_blocks(dim, _PIECE):
                words = stream.words(piece.stop - piece.start, np.uint32)
                uniform = (words >> np.uint32(1)).astype(np.int64)
                place = uniform * self._width >> 31
                counts[block] += np.bincount(place, minlength=self._width)
                self._packed[piece, block] = 2 * place + (words & 1)
        self.max_column_l1 = int(counts.max())

    def _entries(self, attributes: Any) -> tuple[Ints, npt.NDArray[np.int8]]:
        """Coordinates and signs of some attributes, shape (len, s) each."""
        packed = self._packed[attributes]
        blocks = np.arange(self.sparsity, dtype=np.int32)
        places = (packed >> 1).astype(np.int32)
        places += blocks * np.int32(self._width)
        negative = (packed & 1).astype(np.int8)
        return places, np.int8(1) - 2 * negative

    @cached_property
    def _matrix(self) -> scipy.sparse.csr_matrix:
        places, signs = self._entries(slice(None))
        starts = np.arange(self.dim + 1) * self.sparsity
        values = signs.ravel().astype(np.float32)
        entries = (values, places.ravel(), starts)
        return scipy.sparse.csr_matrix(entries, (self.dim, self.k))

    def apply_sparse(self, x: scipy.sparse.csr_matrix) -> Floats:
        places, signs = self._entries(x.indices)
        return scatter(x, places, signs, self.k)


class VerySparse(_Sparse):
    """Independent entries ±1 with chance 1/2s each, else 0 (Li & Li 2023, Eq. 18).

    Very sparse random projections (Li, Hastie & Church 2006). After ``scale`` = √(s/k) the entries
    are ±√s. The sensitivity is that of the fullest row.

    Parameters
    ----------
    dim, k : int
        Attributes and coordinates.
    seed : int
        Public seed.
    sparsity : int
        One entry in s is not zero, [1, ∞); √dim is customary.

    Raises
    ------
    InputError
        If more than 2^25 entries would have to be kept.
    """

    def __init__(
        self,
        dim: int,
        k: int,
        seed: int,
        sparsity: int,
    ) -> None:
        advice = f"raise sparsity, for example to {math.isqrt(dim)}, or use dp-oporp"
        check_size(dim, k, _SPARSE_ENTRY_BYTES * (dim * k // sparsity), advice)
        self.dim = dim
        self.k = k
        self.sparsity = sparsity
        self.rms = 1.0 / math.sqrt(sparsity)
        self.scale = math.sqrt(sparsity / k)
        self.inner_product_factor = 1.0 / k
        stream = PublicStream(seed, f"very-sparse/{dim}/{k}/{sparsity}")
        signs = _random_matrix(dim, k, sparsity, stream, stream.signs)
        self._matrix = signs.astype(np.float32)  # once: a product would convert it every time
        rows = np.diff(self._matrix.indptr)
        columns = np.bincount(self._matrix.indices, minlength=k)
        fullest = max(1, int(rows.max()))
        self.sensitivity = Sensitivity.of_signs(fullest)
        self.max_column_l1 = max(1, int(columns.max()))


class FastJL(Projection):
    """``x = P·H·D·u`` (Ailon & Chazelle 2009; private as suggested by Stausholm 2021).

    D are random signs; H is the Walsh–Hadamard matrix of the next power of two, with entries ±1;
    P has rounded normal entries where a coin of chance ``q = 1/s ≈ log²p/p`` says so, else 0. All
    three are integers, so is the map, and ``scale`` divides the scales out. Any single attribute is
    spread over all coordinates: the sensitivities are those of the realised dense map.

    H mixes all attributes, so sparse rows become dense, a few at a time.
    """

    def __init__(self, dim: int, k: int, seed: int) -> None:
        self.dim = dim
        self.k = k
        self.padded = 1 << max(0, dim - 1).bit_length()
        self._step = TRANSFORMED // self.padded
        # Ailon & Chazelle 2009, Sec. 2: q = min(1, Θ(log²n/d)), with p itself for n.
        logarithm = max(1.0, math.log(self.padded))
        inverse = max(1, round(self.padded / logarithm**2))
        size = _MIXED_ENTRY_BYTES * (k * self.padded // inverse)
        check_size(dim, k, size, "lower dim or k, or use dp-sjlt-gaussian")
        if k * self.padded > _MAX_REALISED:
            raise NoGuaranteeError(
                f"a {dim} × {k} transform has more than 2^31 entries to take the sensitivity of; "
                f"lower dim or k, or use dp-sjlt-gaussian."
            )
        stream = PublicStream(seed, f"fast-jl/{NORMAL_BITS}/{dim}/{k}")
        self._signs = stream.signs(dim).astype(np.float64)

        def normal(count: int) -> Doubles:
            return normal_integers(count, NORMAL_BITS, stream).astype(np.float64)

        self._sparse = _random_matrix(k, self.padded, inverse, stream, normal)
        # Sums inside P reach this; a coordinate itself stays far below.
        row_sums = abs(self._sparse).sum(axis=1)
        self.max_column_l1 = max(1, int(row_sums.max())) * self.padded
        per_row = self.padded / inverse
        self.rms = math.sqrt(per_row * normal_second_moment(NORMAL_BITS))
        self.scale = 1.0 / (math.sqrt(k) * self.rms)
        # The kurtosis 3s of P's entries adds 3(s − 1)/p to the variance of a dense normal map.
        variance = 1.0 + 3.0 * (inverse - 1.0) / self.padded
        self.inner_product_factor = variance / k

    @cached_property
    def _sizes(self) -> RealisedSizes:
        """Row by row of P: the entries of the realised map are ``P·H·D``."""
        sizes = RealisedSizes(self.dim, self.k)
        for coordinates in row_blocks(self.k, self._step):
            rows: Any = self._sparse[coordinates].toarray()
            mixed = walsh_hadamard(rows)[:, : self.dim]
            sizes.add(mixed.T, slice(None), coordinates)
        return sizes

    @cached_property
    def sensitivity(self) -> Sensitivity:
        return self._sizes.sensitivity

    @cached_property
    def largest(self) -> Longs:
        return self._sizes.largest

    def apply(self, x: Floats) -> Floats:
        out = np.empty((len(x), self.k), dtype=x.dtype)
        for block in row_blocks(len(x), self._step):
            rows = x[block]
            mixed = np.zeros((len(rows), self.padded))
            np.multiply(rows, self._signs, out=mixed[:, : self.dim])
            walsh_hadamard(mixed)
            out[block] = (self._sparse @ mixed.T).T
        return out
