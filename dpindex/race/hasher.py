"""From records to columns: the public hash functions of a sketch, in exact integers.

*Why integers, though the hashes are public.* The proof needs that a record's columns depend on that
record alone. In floats they do not: a matrix product sums in an order that depends on how many rows
are multiplied at once, so adding one record could move *another* record over a bucket's edge, and
the sketch would change by more than its sensitivity. Here records and directions are rounded to
integers first, and every product and sum stays below 2⁵³, where float64 is exact in any order, on
any machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.special import ndtri

from dpindex.errors import InputError
from dpindex.race.hashes import L2, Doubles, Hash, PairedSRP
from dpindex.randomness import PublicStream

__all__ = ["Hasher"]

_DIRECTION_BITS = 16
"""Fraction bits of a Gaussian direction; entries stay below 2^20 as |a| < 8.3."""

_STEP_BITS = 12
"""Grid steps per bandwidth, as a power of two."""

_BUCKET = 2.0 ** -(_DIRECTION_BITS + _STEP_BITS)
_MAX_SUM = 2.0**33
"""Largest L1 norm of a rounded record: times 2^20 it stays at 2^53."""

_ROWS_AT_ONCE = 8192
_BLOCK_NUMBERS = 1 << 23
"""Numbers in one matrix product: 64 MB."""

_TILE_NUMBERS = 1 << 16
"""Numbers a core works on at a time: half a megabyte, so that a tile stays in L2."""


class Hasher:
    """The ``rows`` hash functions of one sketch: a pure function of its public parameters.

    Parameters
    ----------
    hash : SRP, PairedSRP or L2
        The family.
    dim, rows, width : int
        Attributes of a record, hash functions, and columns a function maps to.
    seed : int
        Public seed.
    """

    def __init__(self, hash: Hash, dim: int, rows: int, width: int, seed: int) -> None:
        self.hash = hash
        self.dim = dim
        self.rows = rows
        self.width = width
        self.rehashed = hash.codes is None or hash.codes > width
        """Whether codes are hashed again to the columns, which adds 1/width to the collisions."""
        total = rows * hash.directions
        label = f"{hash.kind}/{dim}/{rows}/{hash.directions}"
        words = PublicStream(seed, f"race/directions/{label}").words(total * dim, np.uint64)
        # The midpoint rule never reaches 0 or 1. Another machine's ndtri may differ in its last
        # bit; after rounding, one direction in 2^36 moves by 2^-16. Privacy does not depend on it.
        normal = ndtri(((words >> np.uint64(11)) + 0.5) * 2.0**-53)
        normal *= 2.0**_DIRECTION_BITS
        self._directions: Doubles = np.rint(normal, out=normal).reshape(total, dim)
        public = PublicStream(seed, f"race/rehash/{label}")
        shifts = public.words(total, np.uint32) >> np.uint32(32 - _DIRECTION_BITS - _STEP_BITS)
        self._offsets: Doubles = shifts.astype(np.float64).reshape(rows, -1, 1)
        parts = hash.directions if isinstance(hash, L2) else 1
        self._factors = public.words(rows * parts, np.uint64).reshape(rows, parts)
        self._addends = public.words(rows, np.uint64)

    @property
    def directions(self) -> Doubles:
        """The random directions, nearly standard normal, shape (rows · directions, dim)."""
        return self._directions * 2.0**-_DIRECTION_BITS

    def each(
        self, block: Any, use: Callable[[slice, npt.NDArray[np.int64]], None], pool: Executor
    ) -> None:
        """Call ``use(rows, columns)``, columns of shape (rows, n), for all rows, a few at a time.

        ``block`` comes from ``blocks``. One matrix product for the whole block, on the threads of
        BLAS; what follows it runs on the pool.
        """
        if sparse.issparse(block):
            product: Any = (block @ self._directions.T).T
            projected = np.ascontiguousarray(product)
        else:
            projected = self._directions @ block.T
        projected = projected.reshape(self.rows, self.hash.directions, -1)
        step = max(1, _TILE_NUMBERS // max(1, projected[0].size))
        tiles = [slice(r, min(r + step, self.rows)) for r in range(0, self.rows, step)]
        list(pool.map(lambda rows: use(rows, self._columns(projected[rows], rows)), tiles))

    def _columns(self, projected: Doubles, rows: slice) -> npt.NDArray[np.int64]:
        if isinstance(self.hash, L2):
            projected += self._offsets[rows]
            projected *= _BUCKET
            buckets = np.floor(projected, out=projected).astype(np.int32)
            parts = buckets.view(np.uint32)
        else:
            parts = self._sign_codes(projected)
        return self._rehash(parts, rows) if self.rehashed else parts[:, 0].astype(np.int64)

    def _sign_codes(self, projected: Doubles) -> npt.NDArray[np.uint32]:
        codes = (projected[:, 0] >= 0).astype(np.uint32)
        for bit in range(1, self.hash.directions):
            codes |= (projected[:, bit] >= 0).astype(np.uint32) << np.uint32(bit)
        if isinstance(self.hash, PairedSRP):
            # Of a code and its complement the one with top bit 0 stands for both.
            all_ones = np.uint32((1 << self.hash.bits) - 1)
            codes ^= np.where(codes > all_ones >> np.uint32(1), all_ones, np.uint32(0))
        return codes[:, None]

    def _rehash(self, parts: npt.NDArray[np.uint32], rows: slice) -> npt.NDArray[np.int64]:
        """Vector multiply-add-shift (Dietzfelbinger 1996): two codes meet with chance 1/width."""
        factors = self._factors[rows]
        mixed = parts[:, 0] * factors[:, :1]
        for part in range(1, parts.shape[1]):
            mixed += parts[:, part] * factors[:, part : part + 1]
        mixed += self._addends[rows, None]
        mixed >>= np.uint64(32)
        mixed *= np.uint64(self.width)
        mixed >>= np.uint64(32)
        columns: npt.NDArray[np.int64] = mixed.view(np.int64)
        return columns

    def blocks(self, x: Any, first_row: int = 0) -> Iterator[tuple[int, Any]]:
        """Checked records, a block at a time, rounded to exact integers held in float64.

        Raises InputError for NaN, infinities and records too far out, naming the row.
        """
        widest = max(self.dim, len(self._directions))
        step = max(64, min(_ROWS_AT_ONCE, _BLOCK_NUMBERS // widest))
        for start in range(0, x.shape[0], step):
            yield start, self._rounded(x[start : start + step], first_row + start)

    def _rounded(self, block: Any, first_row: int) -> Any:
        wide = block.astype(np.float64)
        if not np.isfinite(wide.data if sparse.issparse(wide) else wide).all():
            raise InputError(
                f"row {first_row + _first_bad_row(wide)} holds NaN or infinity; every value must "
                f"be a finite number."
            )
        if isinstance(self.hash, L2):
            with np.errstate(over="ignore"):  # what overflows is refused below
                wide *= 2.0**_STEP_BITS / self.hash.bandwidth
        else:
            self._scale_rows(wide)
        data = wide.data if sparse.issparse(wide) else wide
        np.rint(data, out=data)
        if isinstance(self.hash, L2):
            sums = np.asarray(abs(wide).sum(axis=1)).ravel()
            if not (sums <= _MAX_SUM).all():
                bad = int(np.flatnonzero(~(sums <= _MAX_SUM))[0])
                reach = int(_MAX_SUM) >> _STEP_BITS
                raise InputError(
                    f"row {first_row + bad} lies more than {reach} bandwidths from the origin; "
                    f"centre the data or widen the bandwidth."
                )
        return wide

    def _scale_rows(self, wide: Any) -> None:
        """Only direction matters to signs: scale each row by a power of two to full precision."""
        bits = min(30, 33 - max(0, (self.dim - 1).bit_length()))
        magnitudes = abs(wide).max(axis=1)
        if sparse.issparse(wide):
            exponents = np.frexp(magnitudes.toarray().ravel())[1]
            wide.data = np.ldexp(wide.data, bits - np.repeat(exponents, np.diff(wide.indptr)))
        else:
            np.ldexp(wide, (bits - np.frexp(magnitudes)[1])[:, None], out=wide)


def _first_bad_row(block: Any) -> int:
    if sparse.issparse(block):
        place = int(np.flatnonzero(~np.isfinite(block.data))[0])
        return int(np.searchsorted(block.indptr, place, side="right")) - 1
    return int(np.flatnonzero(~np.isfinite(block).all(axis=1))[0])
