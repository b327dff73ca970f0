"""Does the sampler read the integers that were checked? Replayed with words chosen to tell.

A sampler is a fixed function of the words it reads. Words on either side of every threshold show
which outcome each takes, so the table that was verified is the one that runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from dpindex.audit.checks import Check
from dpindex.noise.additive import AdditiveNoise
from dpindex.noise.individual import IndividualFlips, IndividualGaussian
from dpindex.noise.randomized_response import FlipsByLevel
from dpindex.noise.square_wave import _CELL_BITS, SquareWave
from dpindex.noise.tables import CellTable
from dpindex.noise.two_digit import TwoDigitGaussian, TwoDigitLaplace
from dpindex.spec import Spec

__all__ = ["Constant", "replay_checks"]

_ONE = 1 << 64
_LOW48 = (1 << 48) - 1
_THIRD = 0x5555_5555_5555_5555


class Constant:
    """A bit source that says the same 64-bit number to every draw: 16 bits first, then 48."""

    def __init__(self, number: int) -> None:
        self._number = number

    def words(self, count: int, dtype: type[np.unsignedinteger[Any]]) -> npt.NDArray[Any]:
        top, low = self._number >> 48, self._number & _LOW48
        word = {1: top >> 8, 2: top, 4: top << 16, 8: low << 16}[np.dtype(dtype).itemsize]
        return np.full(count, word, dtype=dtype)


class _Script:
    """A source in which draw i reads ``numbers[i]``, the rest of it only where a draw must ask.

    ``cuts`` are the thresholds that the sampler is believed to have: they say which draws ask for
    more. A sampler with others asks for other counts and is given words that show it.
    """

    def __init__(
        self, numbers: Sequence[int], cuts: Sequence[int], bits: int, offset: int = 0
    ) -> None:
        self._tops = np.array([n >> (bits - 16) for n in numbers], dtype=np.uint32)
        low = bits - 16
        split = {cut >> low for cut in cuts if cut & ((1 << low) - 1)}
        middle = [n >> (bits - 64) & _LOW48 for n in numbers if n >> low in split]
        self._rest = np.array(middle, dtype=np.uint64) << np.uint64(16)
        self._low_bits = bits - 64
        ties = {cut >> self._low_bits for cut in cuts}
        mask = (1 << self._low_bits) - 1
        self._lows = iter([n & mask for n in numbers if n >> self._low_bits in ties])
        self._offset = np.uint32(offset)
        self._read = {2: 0, 4: 0, 8: 0}

    def words(self, count: int, dtype: type[np.unsignedinteger[Any]]) -> npt.NDArray[Any]:
        size = np.dtype(dtype).itemsize
        if size == 1:
            low = next(self._lows, 0)
            return np.frombuffer(low.to_bytes(count, "little"), dtype=np.uint8)
        source = self._rest if size == 8 else self._tops
        words = np.zeros(count, dtype=dtype)
        start, self._read[size] = self._read[size], self._read[size] + count
        given = source[start : start + count].astype(dtype)
        words[: len(given)] = given if size != 4 else given << np.uint32(16) | self._offset
        return words


class _Tail:
    """A source of one draw that lands in a tail, and after that draws ``again``."""

    def __init__(self, tail: int, again: int, bits: int) -> None:
        self._first, self._again, self._bits = tail, again, bits
        self._current = 0

    def words(self, count: int, dtype: type[np.unsignedinteger[Any]]) -> npt.NDArray[Any]:
        if np.dtype(dtype).itemsize == 4:
            self._current, self._first = self._first, self._again
        return Constant(self._current >> (self._bits - 64)).words(count, dtype)


def _table_faults(table: CellTable) -> tuple[int, int]:
    """How many replayed draws there were, and how many came out wrong."""
    ends = list(accumulate(table.masses))
    last, top = len(ends) - 1, (1 << table.cell_bits) - 1
    inner = range(1, last) if table.tails else range(last + 1)
    cells = [i for i in inner if table.masses[i]]
    numbers = [n for i in cells for n in (ends[i] - table.masses[i], ends[i] - 1)]
    wanted = np.repeat([((table.first + i) << table.cell_bits) + top for i in cells], 2)
    source = _Script(numbers, ends[:-1], table.bits, top)
    tried, wrong = len(numbers), int((table.sample(len(numbers), source) != wanted).sum())
    if table.tails:
        zero = ends[-table.first - 1]  # starts the cell of value 0
        beyond = table.period << table.cell_bits
        cases = ((0, ~beyond), (ends[0] - 1, ~beyond), (ends[-2], beyond), (ends[-1] - 1, beyond))
        for number, value in cases:
            drawn = int(table.sample(1, _Tail(number, zero, table.bits))[0])
            tried, wrong = tried + 1, wrong + (drawn != value)
    return tried, wrong


class _Wide:
    """A table that answers every call with the same draws."""

    def __init__(self, draws: Sequence[int]) -> None:
        self._draws = np.array(draws, dtype=np.int32)

    def sample(self, count: int, stream: Any) -> npt.NDArray[np.int32]:
        return self._draws[:count].copy()


def _wide_faults(spec: Spec, law: AdditiveNoise) -> tuple[int, int]:
    """Both tables by themselves, and then whether their draws are put together as two digits."""
    source: Any = law.source
    names = ("high", "low") if isinstance(source, TwoDigitLaplace) else ("coarse", "fine")
    faults = [_table_faults(getattr(source, name)) for name in names]
    base, cell = 1 << source.digit, 1 << source.cell_bits
    pairs = [(h, n) for h in (-3, -2, -1, 0, 1, 2) for n in (0, 1, cell, base * cell - 1)]
    if isinstance(source, TwoDigitLaplace):  # a magnitude about −½: −1 − h is the mirror of h
        wanted = [(~h if h < 0 else h) * base * cell + n for h, n in pairs]
        wanted = [~w if h < 0 else w for (h, _), w in zip(pairs, wanted, strict=True)]
    else:
        pairs += [(h, -n) for h, n in pairs]
        wanted = [h * base * cell + n for h, n in pairs]
    joined = copy(source)
    for name, draws in zip(names, zip(*pairs, strict=True), strict=True):
        setattr(joined, name, _Wide(draws))
    got = joined.sample(len(pairs), Constant(0))
    faults.append((len(pairs), int((got != np.array(wanted)).sum())))
    tried, wrong = (sum(column) for column in zip(*faults, strict=True))
    return tried, wrong


def _flip_faults(spec: Spec, law: FlipsByLevel) -> tuple[int, int]:
    """At both ends of every level of every coordinate; coordinates may have levels of their own."""
    levels = len(law.thresholds)
    width = law.weights[None, :] * (1 << spec.grid.bits)
    first = np.arange(levels, dtype=np.float64)[:, None] * width + 1
    final = first + width - 1
    final[-1] *= 2  # the last level goes on for ever
    x = np.concatenate([first, final, -first, -final, np.zeros_like(width)])
    limits = [limit for limit in (*law.thresholds * 4, _ONE // 2) for _ in range(width.size)]
    wrong = 0
    for below in (1, 0):
        source = _Script([limit - below for limit in limits], limits, 64)
        flipped = law.perturb(x.copy(), source) != (x > 0)
        wrong += int(np.count_nonzero(flipped != bool(below)))
    return 2 * x.size, wrong


def _individual_faults(spec: Spec, law: IndividualFlips) -> tuple[int, int]:
    tried = wrong = 0
    width = 1 << spec.grid.bits
    for size in sorted(
        {1, 2, spec.code_length // 2, spec.code_length} & set(range(1, spec.code_length + 1))
    ):
        x = np.full((1, spec.code_length), float(width + 1))
        x[0, :size] = np.where(np.arange(size) % 2, width, -1)
        threshold = int(law.table[1 + size])
        for number in (threshold - 1, threshold):
            flipped = law.perturb(x, Constant(number)) != (x > 0)
            expected = (np.arange(spec.code_length) < size) & (number < threshold)
            tried += x.size
            wrong += int(np.count_nonzero(flipped[0] != expected))
    return tried, wrong


class _ThenThird(Constant):
    """Says a number to the coin and a third of the range to the uniform draw that follows."""

    def words(self, count: int, dtype: type[np.unsignedinteger[Any]]) -> npt.NDArray[Any]:
        source = Constant(_THIRD) if np.dtype(dtype).itemsize == 4 else Constant(self._number)
        return source.words(count, dtype)


def _window_faults(spec: Spec, law: SquareWave) -> tuple[int, int]:
    x = np.full((1, 1), float(law.low))
    inside, outside = (
        int(law.perturb(x, _ThenThird(n))[0, 0]) for n in (law.inside - 1, law.inside)
    )
    window = 2 * law.half_width + 1
    wrong = int(inside >= window) + int(outside < window)
    # Rounding may leave the interval by a step; no dither may turn that into an outcome of its own.
    ends = np.array([[law.low, law.low + (law.cells << _CELL_BITS)]], dtype=np.float64)
    past = ends + np.array([[-1.0, 1.0]])
    for number in (0, 0x1F << 56):  # the least and the largest dither
        outcome, clamped = (law.perturb(x, _ThenThird(number)) for x in (past, ends))
        wrong += int(np.count_nonzero(outcome != clamped))
    return 6, wrong


_Faults = Callable[[Spec, Any], tuple[int, int]]
_Pair = tuple[Constant, Constant]
_THIRDS: _Pair = Constant(_THIRD), Constant(2 * _THIRD)
_ENDS: _Pair = Constant(0), Constant(_ONE - 1)
_REPLAYS: dict[type[Any], tuple[_Faults, _Pair, int]] = {
    CellTable: (lambda spec, law: _table_faults(law.source), _THIRDS, 0),
    TwoDigitGaussian: (_wide_faults, _THIRDS, 0),
    TwoDigitLaplace: (_wide_faults, _THIRDS, 0),
    IndividualGaussian: (lambda spec, law: _table_faults(law.table), _THIRDS, 0),
    FlipsByLevel: (_flip_faults, _ENDS, 1),
    IndividualFlips: (_individual_faults, _ENDS, 1),
    SquareWave: (_window_faults, (_ThenThird(0), _ThenThird(_ONE - 1)), 0),
}
"""By law: its replay, two sources that must lead to different outcomes, and from which value."""


def replay_checks(spec: Spec) -> list[Check]:
    """The sampler follows the table, and no coordinate of a code is left without noise."""
    law: Any = spec.law
    drawn = getattr(law, "source", law)
    kind = next((kind for kind in _REPLAYS if isinstance(drawn, kind)), None)
    if kind is None:
        return []
    faults, sources, place = _REPLAYS[kind]
    tried, wrong = faults(spec, law)
    x = np.full(
        (3, spec.code_length), float(place + (law.low if isinstance(law, SquareWave) else 0))
    )
    one, other = (law.perturb(x.copy(), source) for source in sources)
    bare = int(np.count_nonzero(~(one != other).all(axis=0)))
    return [
        Check(
            "sampler: outcomes of replayed words",
            f"{wrong} wrong of {tried}",
            "0 wrong",
            "words at both ends of every probability give the outcome that it belongs to",
            wrong == 0,
        ),
        Check(
            "sampler: noise on every coordinate",
            f"{bare} of {spec.code_length} without",
            "0 without",
            "two words that lead to different outcomes must change every coordinate",
            bare == 0,
        ),
    ]
