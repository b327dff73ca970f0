"""Public random entries of projections as integers, the same on every machine.

Everything is decided by comparing public 64-bit words with integer thresholds, never by floating
point functions, whose last bits differ between machines.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from dpindex.normal import upper_tails
from dpindex.randomness import PublicStream

__all__ = [
    "FINE_ENTRY_BITS", "NORMAL_BITS", "normal_integers", "normal_second_moment",
    "sparse_places",
]  # fmt: skip

NORMAL_BITS = 4
"""Normal entries are rounded to multiples of 2^-4 and kept as integers, which fit into a byte."""

FINE_ENTRY_BITS = 12
"""Normal entries are rounded this finely where a proof is about real normals (Prop. 4.5)."""

_PIECE = 1 << 20
_WORD_BITS = 63


def normal_second_moment(bits: int) -> float:
    """``E w²`` of an integer entry ``w = round(2^bits · N(0, 1))``: 4^bits + 1/12.

    Rounding to a lattice adds the variance of a uniform, up to e^{−2π²·4^bits} (Sheppard).
    """
    return 4.0**bits + 1.0 / 12.0


@lru_cache(maxsize=4)
def _normal_thresholds(bits: int) -> npt.NDArray[np.uint64]:
    """``2^63·P(|w| ≥ n)`` for n = 1, 2, …, ascending."""
    # Beyond 9.5 deviations the chance is below 2^-63.
    tails = upper_tails(float(1 << bits), _WORD_BITS + 1, int(9.5 * (1 << bits)))
    return np.array([tail for tail in reversed(tails) if tail], dtype=np.uint64)


def normal_integers(count: int, bits: int, stream: PublicStream) -> npt.NDArray[np.int32]:
    """``round(2^bits · N(0, 1))``, independent, int32, shape (count,)."""
    thresholds = _normal_thresholds(bits)
    entries = np.empty(count, dtype=np.int32)
    for start in range(0, count, _PIECE):
        words = stream.words(min(_PIECE, count - start), np.uint64)
        below = np.searchsorted(thresholds, words >> np.uint64(1), side="right")
        size = (len(thresholds) - below).astype(np.int32)
        entries[start : start + len(size)] = np.where(words & np.uint64(1), -size, size)
    return entries


def sparse_places(total: int, s: int, stream: PublicStream) -> npt.NDArray[np.int64]:
    """The places among ``total`` that are chosen when each is, independently, with chance 1/s.

    Ascending. Jumps from one to the next are geometric; a jump longer than 4s, which the table of
    thresholds leaves out, is a step of 4s that chooses nothing.
    """
    thresholds = _jump_thresholds(s)
    parts, at = [], -1
    while at < total:
        words = stream.words(min(_PIECE, 64 + (total - at) // s), np.uint64)
        jumps = np.searchsorted(thresholds, words, side="right")
        chosen = jumps < len(thresholds)
        ends = at + np.cumsum(np.where(chosen, jumps + 1, len(thresholds)))
        at = int(ends[-1])
        parts.append(ends[chosen])
    places = np.concatenate(parts)
    return places[places < total]


@lru_cache(maxsize=8)
def _jump_thresholds(s: int) -> npt.NDArray[np.uint64]:
    """``2^64·P(jump ≤ n)``, ``P(jump > n) = (1 − 1/s)^n``, for n = 1 … 4s."""
    left, thresholds = 1 << 128, []
    for _ in range(4 * s):
        left -= left // s
        thresholds.append(min((1 << 64) - 1, (1 << 64) - (left >> 64)))
    return np.array(thresholds, dtype=np.uint64)
