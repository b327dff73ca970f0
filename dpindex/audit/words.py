"""Words: a second reading of secret ones, and prepared ones for the samplers.

From the words and a law's integers follows what must be released. Nothing of that reading calls a
sampler. Where one of them looks up a bucket, the draw is found here by counting the boundaries
below a 64-bit number, so a sampler and its decoder agree only if both follow the masses. The
decoder must ask for the same words, in the same order and the same number; otherwise
:class:`UnexplainedError` says that something else was drawn.

A sampler is a fixed function of the words it reads. Prepared words on either side of every
threshold show which outcome each of them leads to, so the table that was verified is the one that
runs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from functools import lru_cache
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from dpindex.base.arrays import AnyArray
from dpindex.mechanism.noise.additive import CellTable
from dpindex.mechanism.public_random import BitSource

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


ONE = 1 << 64
"""The chance 1 in the 64-bit integers that laws draw by."""

THIRD = 0x5555_5555_5555_5555
_LOW48 = (1 << 48) - 1
_Ints = Sequence[int]


class Fixed:
    """A bit source that gives the same word to every draw of a width in bytes."""

    def __init__(self, words: Mapping[int, int]) -> None:
        self._words = words

    def words(self, count: int, dtype: type[np.unsignedinteger[Any]]) -> npt.NDArray[Any]:
        return np.full(count, self._words[np.dtype(dtype).itemsize], dtype=dtype)


class Constant(Fixed):
    """A bit source that gives the same 64-bit number to every draw: 16 bits first, then 48.

    ``word`` is what it gives where 32 bits are asked for; by default the first 16 bits and zeros.
    """

    def __init__(self, number: int, word: int | None = None) -> None:
        top = number >> 48
        word = top << 16 if word is None else word
        super().__init__({1: top >> 8, 2: top, 4: word, 8: (number & _LOW48) << 16})


class Listed:
    """A bit source that deals out prepared words, by their width in bytes, and zeros at last."""

    def __init__(self, words: Mapping[int, Sequence[int] | npt.NDArray[Any]]) -> None:
        self._left = {size: np.array(given, dtype=f"u{size}") for size, given in words.items()}

    def words(self, count: int, dtype: type[np.unsignedinteger[Any]]) -> npt.NDArray[Any]:
        size = np.dtype(dtype).itemsize
        left = self._left.get(size, np.empty(0, dtype=dtype))
        given, self._left[size] = np.split(left, [count])
        words = np.zeros(count, dtype=dtype)
        words[: len(given)] = given
        return words


class Refused(Constant):
    """Zeros first where 32 bits are asked for, which a fair draw below a limit refuses."""

    _zeros = True

    def words(self, count: int, dtype: type[np.unsignedinteger[Any]]) -> npt.NDArray[Any]:
        if np.dtype(dtype).itemsize != 4 or not self._zeros:
            return super().words(count, dtype)
        self._zeros = False
        return np.zeros(count, dtype=dtype)


class Script(Listed):
    """A bit source in which draw i reads ``numbers[i]``: 16 bits first, more where it must ask.

    Parameters
    ----------
    numbers : sequence of int
        Of ``bits`` bits each, in the order of the draws.
    cuts : sequence of int
        The thresholds that the sampler is believed to have: a draw asks for more bits where the
        first ones do not decide on which side of a threshold it lies. A sampler with other
        thresholds asks for other counts and gets words that lead to wrong outcomes.
    bits : int
        Bits of a number, at least 64.
    offset : int
        Low bits of every 32-bit word.
    tails : bool
        Whether numbers below the first threshold, or from the last one on, ask for more too.
    """

    def __init__(
        self, numbers: _Ints, cuts: _Ints, bits: int = 64, offset: int = 0, tails: bool = False
    ) -> None:
        low = bits - 16
        lowest = bits - 64
        split = {cut >> low for cut in cuts if cut & ((1 << low) - 1)}
        ties = {cut >> lowest for cut in cuts}
        tops = [n >> low for n in numbers]
        undecided = [
            n for n in numbers if n >> low in split or (tails and not cuts[0] <= n < cuts[-1])
        ]
        self._lows = iter([n & ((1 << lowest) - 1) for n in numbers if n >> lowest in ties])
        super().__init__(
            {
                2: tops,
                4: [top << 16 | offset for top in tops],
                8: [(n >> lowest & _LOW48) << 16 for n in undecided],
            }
        )

    def words(self, count: int, dtype: type[np.unsignedinteger[Any]]) -> npt.NDArray[Any]:
        if np.dtype(dtype).itemsize == 1:
            return np.frombuffer(next(self._lows, 0).to_bytes(count, "little"), dtype=np.uint8)
        return super().words(count, dtype)


class Dealt:
    """In place of a source of noise: deals out prepared draws, one list at each call."""

    def __init__(self, *draws: npt.ArrayLike, cell_bits: int = 0) -> None:
        self._draws = list(draws)
        self.cell_bits = cell_bits

    def sample(self, count: int, stream: BitSource) -> npt.NDArray[np.int32]:
        return np.array(self._draws.pop(0), dtype=np.int32)[:count]

    def moments(self) -> tuple[float, float]:
        return 0.0, 0.0


def table_faults(table: CellTable) -> npt.NDArray[np.bool_]:
    """Which draws at both ends of every cell, at the largest offset inside it, come out wrong."""
    ends = list(accumulate(table.masses))
    last = len(ends) - 1
    top = (1 << table.cell_bits) - 1
    values = [((table.first + i) << table.cell_bits) + top for i in range(len(ends))]
    again = []
    if table.tails:
        # A tail draws once more: here the cell of value 0, which moves out by one period.
        beyond = (table.period << table.cell_bits) + top
        values[0], values[last] = ~beyond, beyond
        again = 4 * [ends[-table.first - 1]]
    cells = [i for i, mass in enumerate(table.masses) if mass]
    numbers = [n for i in cells for n in (ends[i] - table.masses[i], ends[i] - 1)]
    source = Script([*numbers, *again], ends[:-1], table.bits, top, table.tails)
    expected = np.repeat([values[i] for i in cells], 2)
    return np.asarray(table.sample(len(numbers), source) != expected)
