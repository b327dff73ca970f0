"""A second reading of secret words: from the words and a law's integers to what must be released.

Nothing here calls a sampler. Where one of them looks up a bucket, the draw is found here by
counting the boundaries below a 64-bit number, so a sampler and its decoder agree only if both
follow the masses. The decoder must ask for the same words, in the same order and the same number;
otherwise :class:`UnexplainedError` says that something else was drawn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from copy import deepcopy
from functools import lru_cache
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from dpindex.base.arrays import AnyArray
from dpindex.mechanism.noise.tables import CellTable
from dpindex.randomness import BitSource

Ints = npt.NDArray[np.int64]
Words = npt.NDArray[Any]

_FLOATS = (np.float64, np.float32)
"""What a grid holds its integers in."""


class UnexplainedError(Exception):
    """Words were read that the law does not ask for."""


class Recorder:
    """A stream that passes on the words of another and keeps a copy of them.

    The words stay as secret and as random as they were; only the audit, which released nothing but
    vectors of its own, has them.
    """

    def __init__(self, stream: BitSource) -> None:
        self._stream = stream
        self.reads: list[Words] = []

    def words(self, count: int, dtype: type[np.unsignedinteger[Any]]) -> Words:
        words = self._stream.words(count, dtype)
        if count:
            self.reads.append(words.copy())
        return words


class Replay:
    """Recorded words, taken again in the order in which they were read."""

    def __init__(self, reads: Iterable[Words]) -> None:
        self._left = deque(reads)

    def take(self, count: int, dtype: type[np.unsignedinteger[Any]]) -> Words:
        """The next words, which must be so many of that type."""
        parts = [np.empty(0, dtype)]
        while count > 0:
            if not self._left or self._left[0].dtype != dtype or len(self._left[0]) > count:
                raise UnexplainedError
            parts.append(self._left.popleft())
            count -= len(parts[-1])
        return np.concatenate(parts)

    words = take
    """So that a replay can stand in for a stream."""

    @property
    def ahead(self) -> int:
        """How many words the next read has."""
        if not self._left:
            raise UnexplainedError
        return len(self._left[0])

    @property
    def spent(self) -> bool:
        """Whether every recorded word was taken."""
        return not self._left


def replay_faults(
    law: Any, x: AnyArray, source: BitSource, outcomes: Callable[[AnyArray, Replay], AnyArray]
) -> AnyArray | bool:
    """Return where a law makes other outcomes of prepared words than their second reading does.

    The law runs in each type of float that holds ``x``: rounding differs, and a grid takes either.

    Parameters
    ----------
    law : law of noise
    x : array of whole numbers, shape (n, k)
    source : BitSource
        Gives the words.
    outcomes : callable
        The second reading, of ``x`` and the words that the law has read.
    """
    faults: AnyArray | bool = False
    for floats in _FLOATS:
        held = x.astype(floats)
        if not np.array_equal(held, x):
            continue
        recorder = Recorder(deepcopy(source))
        released = law.perturb(held, recorder)
        words = Replay(recorder.reads)
        try:
            expected = outcomes(x, words)
        except UnexplainedError:
            return True
        differs: AnyArray = np.not_equal(released, expected)
        faults = faults | differs | (not words.spent)
    return faults


@lru_cache(maxsize=8)
def _layout(table: CellTable) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.bool_]]:
    """Where the cells of a table end among 64-bit numbers, and which top 16 bits are undecided."""
    # A number n decides for the cells whose ends are at most n: ends are rounded up to 64 bits. A
    # table of more bits reads them where 64 do not decide, about once in 2^64 draws.
    low = table.bits - 64
    high = table.bits - 16
    ends = list(accumulate(table.masses))[:-1]
    split = np.zeros(1 << 16, dtype=np.bool_)
    split[[end >> high for end in ends if end & ((1 << high) - 1)]] = True
    keys = [min(-(-end >> low), (1 << 64) - 1) for end in ends]
    return np.array(keys, dtype=np.uint64), split


def table_draws(table: CellTable, count: int, words: Replay) -> Ints:
    """Return ``count`` draws from a table: a cell, an offset inside, and tails drawn again."""
    ends, split = _layout(table)
    last = len(table.masses) - 1
    first = words.take(count, np.uint32)
    top = (first >> np.uint32(16)).astype(np.uint64)
    number = top << np.uint64(48)
    cell = np.searchsorted(ends, number, side="right")
    unclear = split[top.astype(np.intp)]
    if table.tails:
        unclear = unclear | (cell == 0) | (cell == last)
    where = np.flatnonzero(unclear)
    number[where] |= words.take(len(where), np.uint64) >> np.uint64(16)
    cell[where] = np.searchsorted(ends, number[where], side="right")
    offset = (first & np.uint32((1 << table.cell_bits) - 1)).astype(np.int64)
    draws: Ints = ((table.first + cell) << table.cell_bits) + offset
    if table.tails:
        period = (last - 1) // 2 << table.cell_bits
        for end in (0, last):
            where = np.flatnonzero(cell == end)
            if len(where):
                beyond = period + magnitude(table_draws(table, len(where), words))
                draws[where] = beyond if end else -1 - beyond
    return draws


def magnitude(draws: Ints) -> Ints:
    """How far a draw of a law symmetric about −½ lies from its middle: a and −1 − a alike."""
    return np.where(draws < 0, -1 - draws, draws)


def flips(thresholds: npt.NDArray[np.uint64], words: Replay) -> npt.NDArray[np.bool_]:
    """Whether a 64-bit number lies below its threshold; 48 bits are read where 16 do not decide."""
    flat = thresholds.ravel()
    number = words.take(flat.size, np.uint16).astype(np.uint64) << np.uint64(48)
    where = np.flatnonzero(number >> np.uint64(48) == flat >> np.uint64(48))
    number[where] |= words.take(len(where), np.uint64) >> np.uint64(16)
    return (number < flat).reshape(thresholds.shape)


def uniform_below(limits: Ints, words: Replay) -> Ints:
    """Uniform integers below limits: of ``w·limit`` the upper 32 bits, unless the lower are few."""
    limit = limits.ravel().astype(np.uint64)
    span = np.uint64(1 << 32)
    drawn = np.zeros(limit.size, dtype=np.uint64)
    open_ = np.arange(limit.size)
    while len(open_):
        product = words.take(len(open_), np.uint32).astype(np.uint64) * limit[open_]
        drawn[open_] = product // span
        open_ = open_[product % span < span % limit[open_]]
    return drawn.astype(np.int64).reshape(limits.shape)
