"""An exact sampler of integers: a table of masses, and how a law looks as a histogram."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate

import numpy as np

from dpindex.base.arrays import AnyArray, Doubles, Ints
from dpindex.mechanism.public_random import BitSource

_BUCKET_BITS = 16
_KEY_BITS = 64
_REFINE = np.iinfo(np.int32).min
"""Marks a bucket that holds a boundary (or a tail) and must be refined."""

_BINS_PER_DEVIATION = 32
_DEVIATIONS = 12

Profile = tuple[Doubles, Doubles, float]
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
        self.boundaries = list(accumulate(self.masses))[:-1]
        low_bits = bits - _KEY_BITS
        self.keys = np.array([b >> low_bits for b in self.boundaries], dtype=np.uint64)
        cells = first + np.arange(len(masses), dtype=np.int64)
        self.values = (cells << cell_bits).astype(np.int32)
        self._buckets = self.bucket_table()

    @classmethod
    def symmetric(
        cls,
        side: Sequence[int],
        bits: int,
        cell_bits: int = 0,
    ) -> CellTable:
        """A law symmetric about 0 with these masses at 1, 2, …; the rest of 2^bits lies at 0."""
        last = max(place for place, mass in enumerate(side, 1) if mass)
        side = side[:last]
        middle = (1 << bits) - 2 * sum(side)
        masses = [*reversed(side), middle, *side]
        return cls(masses, first=-last, bits=bits, cell_bits=cell_bits)

    def bucket_table(self) -> Ints:
        shift = self.bits - _BUCKET_BITS
        size = 1 << shift
        # A cell starts with the first bucket that lies in it wholly.
        starts = np.array([-(-b >> shift) for b in self.boundaries], dtype=np.int64)
        buckets = np.arange(1 << _BUCKET_BITS)
        cells = np.searchsorted(starts, buckets, side="right")
        table = self.values[cells].copy()
        split = [b >> shift for b in self.boundaries if b % size]
        table[split] = _REFINE
        if self.tails:
            last = len(self.masses) - 1
            table[(cells == 0) | (cells == last)] = _REFINE
        return table

    def sample(self, count: int, stream: BitSource) -> Ints:
        """``count`` independent draws, int32, shape (count,)."""
        words = stream.words(count, np.uint32)
        # High bits choose the bucket, low ones the place in a cell: no bit is used twice.
        top = np.right_shift(words, 32 - _BUCKET_BITS).astype(np.intp)
        draws: Ints = np.take(self._buckets, top, mode="wrap")  # all in range
        refine = np.flatnonzero(draws == _REFINE)
        offsets = words.view(np.int32)
        offsets &= (1 << self.cell_bits) - 1
        if self.cell_bits:
            draws += offsets
        if refine.size:
            draws[refine] = self.refined(top[refine], offsets[refine], stream)
        return draws

    def refined(self, buckets: AnyArray, offsets: AnyArray, stream: BitSource) -> AnyArray:
        count = len(buckets)
        # A uniform key, given its bucket: the bits that chose that, and 48 fresh ones.
        fresh = stream.words(count, np.uint64) >> np.uint64(_BUCKET_BITS)
        known = buckets.astype(np.uint64) << np.uint64(_KEY_BITS - _BUCKET_BITS)
        keys = known | fresh
        cells = np.searchsorted(self.keys, keys, side="right")
        if self.bits > _KEY_BITS:
            self.settle_ties(keys, cells, stream)
        draws = self.values[cells] + offsets
        if self.tails:
            self.extend_tails(draws, cells, stream)
        return draws

    def settle_ties(self, keys: AnyArray, cells: AnyArray, stream: BitSource) -> None:
        """Read all bits of draws whose first 64 equal those of a boundary: about one in 2⁶⁴."""
        low_bits = self.bits - _KEY_BITS
        low_bytes = -(-low_bits // 8)
        equal = self.keys[cells - 1] == keys
        for i in np.flatnonzero((cells > 0) & equal):
            further = stream.words(low_bytes, np.uint8).tobytes()
            low = int.from_bytes(further, "little") >> -low_bits % 8
            key = (int(keys[i]) << low_bits) | low
            cells[i] = bisect_right(self.boundaries, key)

    def extend_tails(self, draws: AnyArray, cells: AnyArray, stream: BitSource) -> None:
        """Replace tail draws: the sign stays, the magnitude is ``period`` cells plus a new one."""
        last = len(self.masses) - 1
        for cell in (0, last):
            where = np.flatnonzero(cells == cell)
            if where.size:
                again = self.sample(where.size, stream)
                # The law is symmetric about −½, where ~z = −1 − z mirrors z.
                magnitude = np.where(again < 0, ~again, again)
                magnitude += self.period << self.cell_bits
                draws[where] = magnitude if cell == last else ~magnitude

    def profile(self) -> Profile:
        """The values, centred, their chances and the width of one; tails are left out."""
        cells = np.arange(len(self.masses), dtype=np.float64)
        values = self.first + self.offset + cells
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
        tail = 2 * (self.masses[0] / (1 << self.bits))
        sizes = np.abs(values)
        period = float(self.period)
        moment = [1.0]
        for order in range(1, 5):
            inner = float(weights @ sizes**order)
            restarted = 0.0
            for i in range(order):
                restarted += math.comb(order, i) * period ** (order - i) * moment[i]
            moment.append((inner + tail * restarted) / (1.0 - tail))
        return moment[2], moment[4]


def binned_profile(variance: float, log_density: Callable[[AnyArray], AnyArray]) -> Profile:
    """The continuous law behind a source, in bins of 1/32 deviation out to twelve deviations."""
    reach = _BINS_PER_DEVIATION * _DEVIATIONS
    values = np.arange(-reach, reach + 1.0)
    masses = np.exp(log_density(values / _BINS_PER_DEVIATION))
    width = math.sqrt(variance) / _BINS_PER_DEVIATION
    return values, masses / masses.sum(), width
