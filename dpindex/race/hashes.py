"""Locality-sensitive hashes whose collision probability is a known kernel, in exact integers.

The kernel of a hash *is* the question a sketch answers: it estimates ``Σ_x k(x, q)``. Choose
:class:`SRP` where direction matters and length does not (embeddings), :class:`PStable` where
distance matters (measurements, pixels), :class:`PairedSRP` where x and −x mean the same
(regression).

*Why integers, though the hashes are public.* The proof needs that a record's columns depend on that
record alone. In floats they do not: a matrix product sums in an order that depends on how many rows
are multiplied at once, so adding one record could move *another* record over a bucket's edge, and
the sketch would change by more than its sensitivity. Here records and directions are rounded to
integers first, and every product and sum stays below 2⁵³, where float64 is exact in any order, on
any machine.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.spatial.distance import cdist
from scipy.special import ndtr, ndtri

from dpindex.base.arrays import Doubles, Longs, row_blocks
from dpindex.base.checks import check_values, finite_number, whole_number
from dpindex.base.errors import InputError
from dpindex.mechanism.public_random import PublicStream

HashCodes: TypeAlias = npt.NDArray[np.uint32]

MAX_SUM = 2.0**33
"""Largest L1 norm of a rounded record: times 2^20 it stays at 2^53."""

_DIRECTION_BITS = 16
"""Fraction bits of a Gaussian direction; entries stay below 2^20 as |a| < 8.3."""

_STEP_BITS = 12
"""Grid steps per bandwidth, as a power of two."""

_KERNEL_PAIRS = 1 << 22
_ROWS_AT_ONCE = 8192
_HASHED_NUMBERS = 1 << 23
"""Numbers in one matrix product: 64 MB."""

_TILE_NUMBERS = 1 << 16
"""Numbers a core works on at a time: half a megabyte, so that a tile stays in the level 2 cache."""


class Hash(ABC):
    """A family of hash functions: a frozen dataclass of its parameters.

    Attributes
    ----------
    kind : str
        Its name in JSON.
    label : str
        Its name in the public stream; the functions of a seed never change, so neither does this.

    >>> SRP(4).to_dict()
    {'kind': 'srp', 'bits': 4}
    """

    kind: ClassVar[str]
    label: ClassVar[str]

    @property
    @abstractmethod
    def directions(self) -> int:
        """Random directions that one hash value needs."""

    @property
    def codes(self) -> int | None:
        """Number of codes; None if there is no bound."""
        return None

    @abstractmethod
    def kernel(self, x: Any, q: Any) -> Doubles:
        """Return the collision probability of every pair, shape (len(q), len(x)), in [0, 1]."""

    @abstractmethod
    def scaled(self, records: Any) -> Any:
        """Return records in the units of their rounding; the float64 ``records`` may be changed."""

    @abstractmethod
    def codes_of(self, projected: Doubles, offsets: Doubles) -> HashCodes:
        """Return the codes of projected records, shape (rows, parts, n).

        Parameters
        ----------
        projected : array, shape (rows, directions, n)
            Exact products of rounded integers.
        offsets : array, shape (rows, directions, 1)
            Uniform in a bucket of ``PStable``.
        """

    def to_dict(self) -> dict[str, Any]:
        """Return kind and parameters as plain JSON values."""
        return {"kind": self.kind, **asdict(self)}  # type: ignore[call-overload]


@dataclass(frozen=True)
class SRP(Hash):
    """Signed random projections: ``bits`` signs of Gaussian projections, concatenated.

    ``k(x, q) = (1 − θ/π)^bits``, θ the angle between x and q (Charikar 2002). More bits make a
    narrower kernel, [1, 31]. Lengths do not matter; a zero vector gets the code of all ones.

    >>> SRP(2).kernel([[1.0, 0.0]], [[5.0, 0.0], [0.0, 1.0]]).tolist()
    [[1.0], [0.25]]
    """

    bits: int
    kind = label = "srp"
    _min_bits: ClassVar[int] = 1

    def __post_init__(self) -> None:
        bits = whole_number(self.bits, "bits", self._min_bits, 31)
        object.__setattr__(self, "bits", bits)

    @property
    def directions(self) -> int:
        return self.bits

    @property
    def codes(self) -> int | None:
        return 1 << self.bits

    def kernel(self, x: Any, q: Any) -> Doubles:
        turns = _angles(x, q) / math.pi
        return (1.0 - turns) ** self.bits

    def scaled(self, records: Any) -> Any:
        """Return records times powers of two, for full precision: only directions matter."""
        carries = (records.shape[1] - 1).bit_length()  # of a sum of all attributes
        bits = min(30, 33 - carries)
        magnitudes = abs(records).max(axis=1)
        if sparse.issparse(records):
            _, exponents = np.frexp(magnitudes.toarray().ravel())
            shifts = bits - exponents
            entries = np.diff(records.indptr)  # of each row
            records.data = np.ldexp(records.data, np.repeat(shifts, entries))
            return records
        _, exponents = np.frexp(magnitudes)
        shifts = bits - exponents
        return np.ldexp(records, shifts[:, None], out=records)

    def codes_of(self, projected: Doubles, offsets: Doubles) -> HashCodes:
        signs = (projected >= 0).astype(np.uint32)
        codes = signs[:, :1]
        for bit in range(1, self.bits):
            sign = signs[:, bit : bit + 1]
            codes |= sign << np.uint32(bit)
        return codes


class PairedSRP(SRP):
    """SRP of x and −x at once: two vectors collide when their codes are equal or opposite.

    ``k(x, q) = (1 − θ/π)^bits + (θ/π)^bits``, least where q is orthogonal to x: the surrogate of
    the squared inner product that Coleman & Shrivastava (2020, Sec. 4) get by hashing x and −x.
    Hashing both adds two counts a row for each record, a sensitivity of 2R. But the code of −x is
    the complement of the code of x, so the two counts always say the same: folding complementary
    codes into one column keeps the loss and halves the sensitivity, to one count a row. ``bits``
    lies in [2, 31].

    >>> PairedSRP(2).kernel([[1.0, 0.0]], [[-1.0, 0.0], [0.0, 1.0]]).tolist()
    [[1.0], [0.5]]
    """

    kind = label = "paired-srp"
    _min_bits = 2  # one bit would give the constant kernel 1

    @property
    def codes(self) -> int | None:
        return 1 << (self.bits - 1)

    def kernel(self, x: Any, q: Any) -> Doubles:
        turns = _angles(x, q) / math.pi
        return (1.0 - turns) ** self.bits + turns**self.bits

    def codes_of(self, projected: Doubles, offsets: Doubles) -> HashCodes:
        codes = super().codes_of(projected, offsets)
        # Of a code and its complement the one with top bit 0 stands for both.
        all_ones = np.uint32((1 << self.bits) - 1)
        has_top_bit = codes > all_ones >> np.uint32(1)
        codes[has_top_bit] ^= all_ones
        return codes


@dataclass(frozen=True)
class PStable(Hash):
    """The p-stable hash of Euclidean distance: ``⌊(a·x + b)/bandwidth⌋``, ``hashes`` concatenated.

    With c = ‖x − q‖ and w the bandwidth, in the units of the data,
    ``k = (1 − 2Φ(−w/c) − 2c/(√(2π) w) · (1 − e^{−w²/2c²}))^hashes`` (Datar et al. 2004). More
    hashes, [1, 16], make lighter tails; at a distance of one bandwidth one hash still collides with
    probability 0.37. The bandwidth lies in (0, ∞).

    >>> PStable(20.0).kernel([[0.0, 0.0]], [[0.0, 0.0], [0.0, 20.0]]).round(2).tolist()
    [[1.0], [0.37]]
    """

    bandwidth: float
    hashes: int = 1
    kind = "p-stable"
    label = "l2"

    def __post_init__(self) -> None:
        bandwidth = finite_number(self.bandwidth, "bandwidth", above=0.0)
        object.__setattr__(self, "bandwidth", bandwidth)
        hashes = whole_number(self.hashes, "hashes", 1, 16)
        object.__setattr__(self, "hashes", hashes)

    @property
    def directions(self) -> int:
        return self.hashes

    def kernel(self, x: Any, q: Any) -> Doubles:
        c = np.maximum(cdist(q, x) / self.bandwidth, 1e-12)
        edge = np.expm1(-0.5 / c**2)
        near = math.sqrt(2.0 / math.pi) * c * edge
        single = 1.0 - 2.0 * ndtr(-1.0 / c) + near
        return np.asarray(single**self.hashes)

    def scaled(self, records: Any) -> Any:
        """Return records in grid steps, 4096 a bandwidth."""
        with np.errstate(over="ignore"):  # what overflows has an infinite sum
            records *= 2.0**_STEP_BITS / self.bandwidth
        return records

    def codes_of(self, projected: Doubles, offsets: Doubles) -> HashCodes:
        projected += offsets
        projected *= 2.0 ** -(_DIRECTION_BITS + _STEP_BITS)
        np.floor(projected, out=projected)
        return projected.astype(np.int32).view(np.uint32)


FAMILIES: dict[str, type[Hash]] = {cls.kind: cls for cls in (SRP, PairedSRP, PStable)}
"""Families of hash functions by their names in JSON."""


class Hasher:
    """The ``rows`` hash functions of one sketch: a pure function of its public parameters.

    Parameters
    ----------
    hash : SRP, PairedSRP or PStable
        The family.
    dim, rows, width : int
        Attributes of a record, hash functions, and columns a function maps to.
    seed : int
        Public seed.
    """

    def __init__(
        self,
        hash: Hash,
        dim: int,
        rows: int,
        width: int,
        seed: int,
    ) -> None:
        self.hash = hash
        self.dim = dim
        self.rows = rows
        self.width = width
        self.rehashed = hash.codes is None or hash.codes > width
        """Whether codes are hashed again to the columns, which adds 1/width to the collisions."""
        total = rows * hash.directions
        label = f"{hash.label}/{dim}/{rows}/{hash.directions}"
        stream = PublicStream(seed, f"race/directions/{label}")
        # Another machine's ndtri may differ in its last bit; after rounding, one direction in 2^36
        # moves by 2^-16. Privacy does not depend on it.
        normal = ndtri(uniform(stream, total * dim))
        normal *= 2.0**_DIRECTION_BITS
        np.rint(normal, out=normal)
        self.whole_directions: Doubles = normal.reshape(total, dim)
        public = PublicStream(seed, f"race/rehash/{label}")
        unused = np.uint32(32 - _DIRECTION_BITS - _STEP_BITS)
        shifts = public.words(total, np.uint32) >> unused
        offsets = shifts.astype(np.float64)
        self._offsets: Doubles = offsets.reshape(rows, -1, 1)
        parts = 1
        if hash.codes is None:
            parts = hash.directions
        factors = public.words(rows * parts, np.uint64)
        self._factors = factors.reshape(rows, parts)
        self._addends = public.words(rows, np.uint64)

    @property
    def directions(self) -> Doubles:
        """The random directions, nearly standard normal, shape (rows · directions, dim)."""
        return self.whole_directions * 2.0**-_DIRECTION_BITS

    def blocks(
        self,
        x: Any,
        first_row: int = 0,
        *,
        clip: bool = False,
    ) -> Iterator[Any]:
        """Yield blocks of checked records, rounded to exact integers held in float64.

        Parameters
        ----------
        x : array or sparse matrix
        first_row : int
            Number of the first row of ``x``, for messages.
        clip : bool
            Records too far out for exact sums are refused, or with ``clip`` moved, each to the
            nearest point of a box that only ``dim`` determines: columns depend on one record alone.

        Raises
        ------
        InputError
            For NaN, infinities and what is refused, with the row.
        """
        limit = MAX_SUM // self.dim
        widest = max(self.dim, len(self.whole_directions))
        step = max(64, min(_ROWS_AT_ONCE, _HASHED_NUMBERS // widest))
        for rows in row_blocks(x.shape[0], step):
            block = x[rows].astype(np.float64)
            row = first_row + rows.start
            check_values(block, row)
            block = self.hash.scaled(block)
            values = block
            if sparse.issparse(block):
                values = block.data
            np.rint(values, out=values)
            # Exact up to 2^53 in any order, and above MAX_SUM in any order beyond.
            sums = np.asarray(abs(block).sum(axis=1)).ravel()
            far = ~(sums <= MAX_SUM)  # NaN is far too
            if far.any():
                if not clip:
                    raise _too_far(row + int(far.argmax()))
                if sparse.issparse(block):
                    far = np.repeat(far, np.diff(block.indptr))
                values[far] = np.clip(values[far], -limit, limit)
            yield block

    def each(
        self,
        block: Any,
        use: Callable[[slice, Longs], None],
        pool: Executor,
    ) -> None:
        """Call ``use(rows, columns)``, columns of shape (rows, n), for all rows, a few at a time.

        ``block`` comes from ``blocks``. One matrix product for the whole block, on the threads of
        BLAS; what follows it runs on the pool.
        """
        if sparse.issparse(block):
            products: Any = block @ self.whole_directions.T
            projected = np.ascontiguousarray(products.T)
        else:
            projected = self.whole_directions @ block.T
        projected = projected.reshape(self.rows, self.hash.directions, -1)
        size = _TILE_NUMBERS // max(1, projected[0].size)

        def use_tile(rows: slice) -> None:
            use(rows, self._columns(projected[rows], rows))

        list(pool.map(use_tile, row_blocks(self.rows, size)))

    def _columns(self, projected: Doubles, rows: slice) -> Longs:
        parts = self.hash.codes_of(projected, self._offsets[rows])
        if not self.rehashed:
            return parts[:, 0].astype(np.int64)
        # Vector multiply-add-shift (Dietzfelbinger 1996): two codes meet with chance 1/width.
        mixed = np.einsum("rpn,rp->rn", parts, self._factors[rows], dtype=np.uint64)
        mixed += self._addends[rows, None]
        mixed >>= np.uint64(32)
        mixed *= np.uint64(self.width)
        mixed >>= np.uint64(32)
        return np.asarray(mixed.view(np.int64))


def uniform(stream: PublicStream, count: int) -> Doubles:
    """Public numbers strictly between 0 and 1, by the midpoint rule, shape (count,)."""
    words = stream.words(count, np.uint64)
    return np.asarray(((words >> np.uint64(11)) + 0.5) * 2.0**-53)


def kernel_sum(hash: Hash, x: Any, q: Any) -> Doubles:
    """Return ``Σ_x k(x, q)`` for every query, computed exactly from all records: *not private*.

    A sketch estimates it; this is for tests and for tuning on public data. Memory is bounded, time
    is n · nq · dim.

    Parameters
    ----------
    hash : Hash
        The family of hash functions; its collision probability is the kernel k.
    x, q : array, shapes (n, dim) and (nq, dim)
        Records and queries.

    Returns
    -------
    float64 array, shape (nq,)

    >>> kernel_sum(SRP(2), np.eye(2), np.array([[1.0, 0.0]])).tolist()
    [1.25]
    """
    x = np.atleast_2d(np.asarray(x))
    q = np.atleast_2d(np.asarray(q))
    total = np.zeros(len(q))
    size = _KERNEL_PAIRS // max(1, len(q))
    for rows in row_blocks(len(x), size):
        near = hash.kernel(x[rows], q)
        total += near.sum(axis=1)
    return total


def _too_far(row: int) -> InputError:
    return InputError(
        f"row {row} lies more than {int(MAX_SUM) >> _STEP_BITS} bandwidths from the origin; centre "
        f"the data or widen the bandwidth."
    )


def _angles(x: Any, q: Any) -> Doubles:
    """Angles of every pair, shape (len(q), len(x)); a zero vector is orthogonal to all."""
    cosines = 1.0 - cdist(q, x, "cosine")
    known = np.nan_to_num(cosines).clip(-1.0, 1.0)
    return np.asarray(np.arccos(known))
