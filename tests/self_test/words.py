"""Words of noise: a second reading of them, which samplers must agree with.

From the words and a law's integers follows what must be released. Nothing of that reading calls a
sampler. Where one of them looks up a bucket, the draw is found here by counting the boundaries
below a 64-bit number, so a sampler and its decoder agree only if both follow the masses. The
decoder must ask for the same words, in the same order and the same number; otherwise
:class:`UnexplainedError` says that something else was drawn.

A sampler is a fixed function of the words it reads. A reading that may choose its words
(:class:`Aimed`) takes them on either side of its own thresholds; the sampler is then given the same
words and must come to the same outcomes. So the table that was verified is the one that runs.
"""

from bisect import bisect_right
from collections import deque
from functools import lru_cache
from itertools import accumulate, product

import numpy as np

from dpindex.mechanism.public_random import PublicStream

_FLOATS = (np.float64, np.float32)
"""What a grid holds its integers in."""

_LOW = np.uint64(48)
_TOP = np.uint64(16)
_SPREAD = np.uint64(40503)
_AIMED_TRIES = 3


class UnexplainedError(Exception):
    """Words were read that the law does not ask for."""


class Recorder:
    """A stream that passes on the words of another and keeps a copy of them.

    The words stay as secret and as random as they were; only the audit, which released nothing but
    vectors of its own, has them.
    """

    def __init__(self, stream):
        self._stream = stream
        self.reads = []

    def words(self, count, dtype):
        words = self._stream.words(count, dtype)
        if count:
            self.reads.append(words.copy())
        return words


class Replay:
    """Recorded words, taken again in the order in which they were read."""

    aims = False
    """Whether the words are chosen by whoever reads them."""

    def __init__(self, reads):
        self._left = deque(reads)

    def take(self, count, dtype, aim=None):
        """The next words, which must be so many of that type; what was aimed at is ignored."""
        parts = [np.empty(0, dtype)]
        while count > 0:
            first = self._left[0] if self._left else None
            if first is None or first.dtype != dtype or len(first) > count:
                raise UnexplainedError
            parts.append(self._left.popleft())
            count -= len(parts[-1])
        return np.concatenate(parts)

    words = take
    """So that a replay can stand in for a stream."""

    def beside(self, numbers):
        """The numbers, or just below them: what a reading aims at, given its thresholds."""
        return numbers

    @property
    def ahead(self):
        """How many words the next read has."""
        if not self._left:
            raise UnexplainedError
        return len(self._left[0])

    @property
    def spent(self):
        """Whether every recorded word was taken."""
        return not self._left


class Aimed(Replay):
    """Words that are chosen as they are read: what is aimed at, or else public random ones.

    Parameters
    ----------
    below : int
        How many of 256 thresholds are missed by one, the others are met.

    Attributes
    ----------
    reads : list of arrays
        What was chosen so far. An array may be changed until it is given to a sampler.
    """

    aims = True
    ahead = 1 << 62

    def __init__(self, below):
        super().__init__(())
        self._below = below
        self._public = PublicStream(below, "audit/words")
        self.reads = []

    def take(self, count, dtype, aim=None):
        words = self._public.words(count, dtype) if aim is None else aim
        chosen = np.array(words, dtype=dtype)
        if count:
            self.reads.append(chosen)
        return chosen

    def beside(self, numbers):
        drawn = self._public.words(numbers.size, np.uint8)
        below = drawn.reshape(numbers.shape) < self._below
        return numbers - below.astype(numbers.dtype)


def replay_faults(law, x, outcomes):
    """Where a law makes other outcomes of words than their second reading does, in an array.

    All thresholds are met by the words, then all missed by one, then some of them. The law runs in
    each type of float that holds ``x``: rounding differs, and a grid takes either.

    Parameters
    ----------
    law : law of noise
    x : array of whole numbers, shape (n, k)
    outcomes : callable
        The second reading of ``x`` and of words; it chooses them.
    """
    faults = False
    for floats, below in product(_FLOATS, (0, 16, 128, 256)):
        held = x.astype(floats)
        if not np.array_equal(held, x):
            continue
        aimed = Aimed(below)
        expected = outcomes(x, aimed)
        words = Replay(aimed.reads)
        try:
            differs = np.not_equal(law.perturb(held, words), expected)
        except UnexplainedError:
            return True
        faults = faults | differs | (not words.spent)
    return faults


@lru_cache(maxsize=8)
def _layout(table):
    """Where the cells of a table end, the first 64 bits of it, and undecided first 16 bits."""
    low = table.bits - 64
    high = table.bits - 16
    ends = list(accumulate(table.masses))[:-1]
    split = np.zeros(1 << 16, dtype=np.bool_)
    rest = (1 << high) - 1
    split[[end >> high for end in ends if end & rest]] = True
    keys = [end >> low for end in ends]
    return ends, np.array(keys, dtype=np.uint64), split


def table_draws(table, count, words, cells=None):
    """Return ``count`` draws from a table: a cell, an offset inside, and tails drawn again.

    The ends of ``cells`` are aimed at; by default those of all cells in turn.
    """
    ends, keys, split = _layout(table)
    last = len(table.masses) - 1
    turns = np.arange(count)
    if cells is None:
        cells = turns
    near = keys[cells % len(keys)]
    aim = words.beside(near)
    low_bits = table.bits - 64
    if low_bits:  # 64 bits that tie take long: above the end, but for a sixteenth
        aim[(aim == near) & (turns % 16 > 0)] += np.uint64(1)
    offsets = turns.astype(np.uint64) * _SPREAD & np.uint64(0xFFFF)
    aimed = aim >> _LOW << np.uint64(16) | offsets
    first = words.take(count, np.uint32, aimed)
    top = (first >> np.uint32(16)).astype(np.uint64)
    number = top << _LOW
    cell = np.searchsorted(keys, number, side="right")
    unclear = split[top.astype(np.intp)]
    if table.tails:
        unclear = unclear | (cell == 0) | (cell == last)
    where = np.flatnonzero(unclear)
    number[where] |= _lower(words, aim[where])
    cell[where] = np.searchsorted(keys, number[where], side="right")
    if low_bits:
        # The rest of the bits is read where 64 of them do not decide, about once in 2^64 draws.
        ties = (cell[where] > 0) & (keys[cell[where] - 1] == number[where])
        for i in where[ties]:
            size = -(-low_bits // 8)
            left_over = -low_bits % 8
            rest = (ends[cell[i] - 1] << left_over) % (1 << 8 * size) - int(i) % 2
            aimed = np.frombuffer(max(rest, 0).to_bytes(size, "little"), np.uint8)
            read = int.from_bytes(words.take(size, np.uint8, aimed).tobytes(), "little")
            read >>= left_over
            whole = int(number[i]) << low_bits | read
            cell[i] = bisect_right(ends, whole)
    of_a_cell = np.uint32((1 << table.cell_bits) - 1)
    offset = (first & of_a_cell).astype(np.int64)
    draws = ((table.first + cell) << table.cell_bits) + offset
    if table.tails:
        period = (last - 1) // 2 << table.cell_bits
        for end in (0, last):
            where = np.flatnonzero(cell == end)
            if len(where):
                # Aim at the middle, or tails are drawn again for ever.
                middle = np.arange(len(where)) + last // 2
                drawn = table_draws(table, len(where), words, middle)
                beyond = period + magnitude(drawn)
                draws[where] = beyond if end else -1 - beyond
    return draws


def _lower(words, aim):
    """The lower 48 bits of numbers whose upper 16 were read; these are aimed at."""
    return words.take(len(aim), np.uint64, aim << np.uint64(16)) >> _TOP


def magnitude(draws):
    """How far a draw of a law symmetric about −½ lies from its middle: a and −1 − a alike."""
    return np.where(draws < 0, -1 - draws, draws)


def flips(thresholds, words):
    """Whether a 64-bit number lies below its threshold; 48 bits are read where 16 do not decide."""
    flat = thresholds.ravel()
    aim = words.beside(flat)
    number = words.take(flat.size, np.uint16, aim >> _LOW).astype(np.uint64) << _LOW
    where = np.flatnonzero(number >> _LOW == flat >> _LOW)
    number[where] |= _lower(words, aim[where])
    return (number < flat).reshape(thresholds.shape)


def uniform_below(limits, words):
    """Uniform integers below limits: of ``w·limit`` the upper 32 bits, unless the lower are few."""
    limit = limits.ravel().astype(np.int64)
    drawn = np.zeros(limit.size, dtype=np.int64)
    left = np.arange(limit.size)
    tries = 0
    while len(left):
        bound = limit[left]
        aim = None
        if tries < _AIMED_TRIES:
            # The least word of an outcome: its product is the first to be refused.
            outcome = (left + tries) % bound
            aim = words.beside(-(-(outcome << 32) // bound))
        word = words.take(len(left), np.uint32, aim).astype(np.uint64)
        product_ = word * bound.astype(np.uint64)
        lower = (product_ & np.uint64(0xFFFF_FFFF)).astype(np.int64)
        drawn[left] = (product_ >> np.uint64(32)).astype(np.int64)
        left = left[lower < (1 << 32) % bound]
        tries += 1
    return drawn.reshape(limits.shape)
