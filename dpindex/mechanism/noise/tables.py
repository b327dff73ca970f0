"""The table sampler: exact integer laws from uniform secret words, at the speed of a look-up.

A law is a list of integer *masses* that add up to a power of two, one for each of a run of
neighbouring cells; its probabilities are those integers over that power. A draw
reads one 32-bit word. Its top 16 bits name a bucket; a bucket that lies inside one cell is answered
by a look-up, and the few that hold a cell boundary are refined with fresh bits until the cell is
certain. The low bits of the same word give a uniform offset inside the cell.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from dpindex.base.arrays import AnyArray
from dpindex.randomness import BitSource

_BUCKET_BITS = 16
_KEY_BITS = 64
_REFINE = np.iinfo(np.int32).min
"""Marks a bucket that holds a boundary (or a tail) and must be refined."""

_BINS_PER_DEVIATION = 32
_DEVIATIONS = 12

Profile = tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], float]
"""A law as a histogram: bin centres, one apart, chances, and cells that a bin is wide."""


class CellTable:
    """An integer law over cells ``first, first+1, …`` with exact probabilities ``mass / 2^bits``.

    Parameters
    ----------
    masses : sequence of int
        Non-negative, the last one positive, adding up to ``2^bits``, bits ≥ 64.
    first : int
        Value of the first cell.
    cell_bits : int
        Draws are ``value · 2^cell_bits + uniform offset``, cell_bits in [0, 16].
    tails : bool
        When true the first and the last cell are not values: they mean "move ``period`` cells
        outwards and draw the magnitude again", which continues a law whose masses fall by a
        constant factor every ``period`` cells for ever. Such a law is symmetric about −½.
    """

    def __init__(
        self,
        masses: Sequence[int],
        first: int,
        *,
        bits: int = _KEY_BITS,
        cell_bits: int = 0,
        tails: bool = False,
    ) -> None:
        if sum(masses) != 1 << bits or min(masses) < 0 or bits < _KEY_BITS:
            raise ValueError("masses must be non-negative and add up to 2^bits, bits ≥ 64")
        if not masses[-1]:
            raise ValueError("the last of the masses must be positive")
        if not 0 <= cell_bits <= _BUCKET_BITS:
            raise ValueError("cell_bits must lie in [0, 16]")
        self.masses = tuple(masses)
        self.first = first
        self.bits = bits
        self.cell_bits = cell_bits
        self.tails = tails
        self.period = len(masses) // 2 - 1 if tails else 0
        # What centres the law on zero: one with tails is symmetric about −½.
        self.offset = 0.5 if tails else 0.0
        self._boundaries = list(accumulate(self.masses))[:-1]
        low_bits = bits - _KEY_BITS
        self._keys = np.array([b >> low_bits for b in self._boundaries], dtype=np.uint64)
        values = (first + np.arange(len(masses), dtype=np.int64)) << cell_bits
        self._values = values.astype(np.int32)
        self._buckets = self._bucket_table()

    @classmethod
    def symmetric(cls, side: Sequence[int], bits: int, cell_bits: int = 0) -> CellTable:
        """A law symmetric about 0 with these masses at 1, 2, …; the rest of 2^bits lies at 0."""
        side = side[: max(place for place, mass in enumerate(side, 1) if mass)]
        masses = [*reversed(side), (1 << bits) - 2 * sum(side), *side]
        return cls(masses, first=-len(side), bits=bits, cell_bits=cell_bits)

    def _bucket_table(self) -> npt.NDArray[np.int32]:
        shift = self.bits - _BUCKET_BITS
        starts = np.array([-(-b >> shift) for b in self._boundaries], dtype=np.int64)
        buckets = np.arange(1 << _BUCKET_BITS)
        cells = np.searchsorted(starts, buckets, side="right")
        table = self._values[cells].copy()
        split = [b >> shift for b in self._boundaries if b & ((1 << shift) - 1)]
        table[split] = _REFINE
        if self.tails:
            table[(cells == 0) | (cells == len(self.masses) - 1)] = _REFINE
        return table

    def sample(self, count: int, stream: BitSource) -> npt.NDArray[np.int32]:
        """``count`` independent draws, int32, shape (count,)."""
        words = stream.words(count, np.uint32)
        top = np.right_shift(words, 32 - _BUCKET_BITS).astype(np.intp)
        draws: npt.NDArray[np.int32] = np.take(self._buckets, top, mode="wrap")  # all in range
        refine = np.flatnonzero(draws == _REFINE)
        offsets = words.view(np.int32)
        offsets &= (1 << self.cell_bits) - 1
        if self.cell_bits:
            draws += offsets
        if refine.size:
            draws[refine] = self._refined(top[refine], offsets[refine], stream)
        return draws

    def _refined(self, buckets: AnyArray, offsets: AnyArray, stream: BitSource) -> AnyArray:
        count = len(buckets)
        fresh = stream.words(count, np.uint64) >> np.uint64(_BUCKET_BITS)
        keys = (buckets.astype(np.uint64) << np.uint64(_KEY_BITS - _BUCKET_BITS)) | fresh
        cells = np.searchsorted(self._keys, keys, side="right")
        if self.bits > _KEY_BITS:
            self._settle_ties(keys, cells, stream)
        draws = self._values[cells] + offsets
        if self.tails:
            self._extend_tails(draws, cells, stream)
        return draws

    def _settle_ties(self, keys: AnyArray, cells: AnyArray, stream: BitSource) -> None:
        """Where 64 bits equal a boundary's first 64, read the rest: about once in 2⁶⁴ draws."""
        low_bits = self.bits - _KEY_BITS
        tied = np.flatnonzero((cells > 0) & (self._keys[cells - 1] == keys))
        for i in tied:
            low = int.from_bytes(stream.words(-(-low_bits // 8), np.uint8).tobytes(), "little")
            low >>= -low_bits % 8
            cells[i] = bisect_right(self._boundaries, (int(keys[i]) << low_bits) | low)

    def _extend_tails(self, draws: AnyArray, cells: AnyArray, stream: BitSource) -> None:
        """Replace tail draws: the sign stays, the magnitude is ``period`` cells plus a new one."""
        last = len(self.masses) - 1
        for cell in (0, last):
            where = np.flatnonzero(cells == cell)
            if where.size:
                again = self.sample(where.size, stream)
                # The law is symmetric about −½, where ~z = −1 − z mirrors z.
                magnitude = np.where(again < 0, ~again, again) + (self.period << self.cell_bits)
                draws[where] = magnitude if cell == last else ~magnitude

    def profile(self) -> Profile:
        """The values, centred, their chances and the width of one; tails are left out."""
        values = self.first + self.offset + np.arange(len(self.masses), dtype=np.float64)
        masses = np.array([mass / (1 << self.bits) for mass in self.masses])
        inner = slice(1, -1) if self.tails else slice(None)
        return values[inner], masses[inner], 1.0

    def moments(self) -> tuple[float, float]:
        """Variance and fourth central moment of a draw, in squared (fourth-power) cells.

        Of the cell alone, without the offset inside; the centre is −½ for a law with tails, else 0.
        """
        values, weights, _ = self.profile()
        if not self.tails:
            return float(weights @ values**2), float(weights @ values**4)
        # E|m|^i over a magnitude that restarts at ``period`` with the tail's probability.
        tail = sum(self.masses[end] / (1 << self.bits) for end in (0, -1))
        raw = [float(weights @ np.abs(values) ** i) for i in range(5)]
        moment = [1.0]
        period = float(self.period)
        for order in range(1, 5):
            terms = (math.comb(order, i) * period ** (order - i) * moment[i] for i in range(order))
            moment.append((raw[order] + tail * sum(terms)) / (1.0 - tail))
        return moment[2], moment[4]


def binned_profile(variance: float, log_density: Callable[[AnyArray], AnyArray]) -> Profile:
    """The continuous law behind a source, in bins of 1/32 deviation out to twelve deviations."""
    reach = _BINS_PER_DEVIATION * _DEVIATIONS
    values = np.arange(-reach, reach + 1.0)
    masses = np.exp(log_density(values / _BINS_PER_DEVIATION))
    return values, masses / masses.sum(), math.sqrt(variance) / _BINS_PER_DEVIATION
