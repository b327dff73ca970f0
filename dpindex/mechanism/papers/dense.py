"""Random projections: every coordinate sums all attributes with random weights.

Entries are integers, the same on every machine: public words are compared with integer thresholds,
never with the results of floating point functions, whose last bits differ between machines.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from dpindex.base.arrays import (
    Integers,
    Ints,
    Words,
    row_blocks,
)
from dpindex.mechanism.projections import (
    check_size,
)
from dpindex.mechanism.projections.dense import Matrix, upper_tails
from dpindex.mechanism.public_random import PublicStream

NORMAL_BITS = 4
"""Normal entries are rounded to multiples of 2^-4 and kept as integers, which fit into a byte."""

FINE_ENTRY_BITS = 12
"""Normal entries are rounded this finely where a proof is about real normals (Prop. 4.5)."""

_WORD_BITS = 63
_PIECE = 1 << 20
_ENTRY_BYTES = 4


def normal_second_moment(bits: int) -> float:
    """``E w²`` of an integer entry ``w = round(2^bits · N(0, 1))``: 4^bits + 1/12.

    Rounding to a lattice adds the variance of a uniform, up to e^{−2π²·4^bits} (Sheppard).
    """
    return 4.0**bits + 1.0 / 12.0


@lru_cache(maxsize=4)
def _normal_thresholds(bits: int) -> Words:
    """``2^63·P(|w| ≥ n)`` for n = 1, 2, …, ascending."""
    deviation = 1 << bits
    # Beyond 9.5 deviations the chance is below 2^-63.
    tails = upper_tails(float(deviation), _WORD_BITS + 1, int(9.5 * deviation))
    ascending = [tail for tail in reversed(tails) if tail]
    return np.array(ascending, dtype=np.uint64)


def normal_integers(count: int, bits: int, stream: PublicStream) -> Ints:
    """``round(2^bits · N(0, 1))``, independent, int32, shape (count,)."""
    thresholds = _normal_thresholds(bits)
    entries = np.empty(count, dtype=np.int32)
    for piece in row_blocks(count, _PIECE):
        words = stream.words(piece.stop - piece.start, np.uint64)
        sign = words & np.uint64(1)
        below = np.searchsorted(thresholds, words >> np.uint64(1), side="right")
        size = (len(thresholds) - below).astype(np.int32)
        entries[piece] = np.where(sign, -size, size)
    return entries


class RandomMatrix(Matrix):
    """``x = W^T u`` with independent integer entries of mean 0.

    Parameters
    ----------
    entries : integer array, shape (dim, k)
    second_moment : float
        ``E w²``, which ``scale`` divides out.
    """

    def __init__(self, entries: Integers, second_moment: float) -> None:
        super().__init__(entries)
        self.rms = math.sqrt(second_moment)
        self.scale = 1.0 / (math.sqrt(self.k) * self.rms)
        self.inner_product_factor = 1.0 / self.k


def _entry_stream(
    kind: str,
    dim: int,
    k: int,
    seed: int,
) -> PublicStream:
    """Return the stream of a dense map's entries, if they are not too many."""
    check_size(dim, k, _ENTRY_BYTES * dim * k)
    return PublicStream(seed, f"{kind}/{dim}/{k}")


class Rademacher(RandomMatrix):
    """Independent fair signs ``W_ij`` (Li & Li 2023, Alg. 3 and 11).

    Changing one attribute by β moves *every* coordinate by β (before ``scale`` = 1/√k).
    """

    def __init__(self, dim: int, k: int, seed: int) -> None:
        stream = _entry_stream("rademacher", dim, k, seed)
        entries = stream.signs(dim * k).reshape(dim, k)
        super().__init__(entries, second_moment=1.0)


class Gaussian(RandomMatrix):
    """Normal entries, rounded to multiples of ``2^-bits`` and kept as integers (Li & Li, Alg. 1).

    Rounding makes sums and sensitivities exact and costs nothing: the entries keep mean 0,
    independence and, after ``scale``, variance 1.
    """

    def __init__(
        self,
        dim: int,
        k: int,
        seed: int,
        bits: int = NORMAL_BITS,
    ) -> None:
        stream = _entry_stream(f"gaussian/{bits}", dim, k, seed)
        entries: Integers = normal_integers(dim * k, bits, stream).reshape(dim, k)
        # 9.5 deviations of 2^4 are 152: the entries beyond a byte, one in 10^14, need two.
        if np.abs(entries).max() <= np.iinfo(np.int8).max:
            entries = entries.astype(np.int8)
        super().__init__(entries, normal_second_moment(bits))


class Uniform(RandomMatrix):
    """Entries uniform on the odd integers from −63 to 63 (Li & Li 2023, Sec. 3.4: √3·U[−1, 1])."""

    def __init__(self, dim: int, k: int, seed: int) -> None:
        stream = _entry_stream("uniform", dim, k, seed)
        words = stream.words(dim * k, np.uint8) & np.uint8(63)
        odd = 2 * words.astype(np.int8) - np.int8(63)
        super().__init__(odd.reshape(dim, k), second_moment=(64.0**2 - 1.0) / 3.0)
