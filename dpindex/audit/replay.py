"""Replay of samplers with prepared words, and an experiment on the stream of secret words.

A sampler is a fixed function of the words it reads. Words on either side of every threshold show
which outcome each of them leads to, so the table that was verified is the one that runs.
"""

from __future__ import annotations

import multiprocessing
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from dpindex.audit.verdict import Check
from dpindex.mechanism.noise.tables import CellTable
from dpindex.randomness import BitSource

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


def stream_check(stream: Callable[[], BitSource]) -> Check:
    """A second read of the stream, new threads and forked children all get other words.

    This is an experiment; 256 bits agree by chance with probability 2^-256.
    """

    def read() -> bytes:
        return stream().words(32, np.uint8).tobytes()

    reads = [read(), read()]
    for _ in range(2):  # two that are new: a shared first state shows whatever was read before
        thread = threading.Thread(target=lambda: reads.append(read()))
        thread.start()
        thread.join()
    if "fork" in multiprocessing.get_all_start_methods():
        reads += [_in_fork(read), _in_fork(read), read()]
    return Check.none(
        "stream: noise is used once",
        [word in reads[:i] for i, word in enumerate(reads)],
        "reads seen before (again, two threads, two forks)",
        "releases compose only if their noise is independent",
    )


def _in_fork(read: Callable[[], bytes]) -> bytes:
    """Return what a forked child reads."""
    process = multiprocessing.get_context("fork")
    receive, send = process.Pipe(duplex=False)
    child = process.Process(target=lambda: send.send_bytes(read()))
    with warnings.catch_warnings():
        # The child only reads the stream, so forking with threads about is harmless.
        warnings.simplefilter("ignore", DeprecationWarning)
        child.start()
    send.close()
    words = receive.recv_bytes()
    child.join()
    return words
