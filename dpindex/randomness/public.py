"""Public randomness: a portable function of a published seed, the same bits on every machine.

The stream is SHAKE-256 of ``"dpindex/1|<purpose>|<seed>|<block>"`` in blocks of 1 MiB, read as
little-endian words. It decides permutations and signs, never noise. Known-answer tests pin it.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["PublicStream"]

_BLOCK = 1 << 20


class PublicStream:
    """A deterministic stream of uniform bits for one ``purpose`` under one public ``seed``.

    Think of it as a very long random table in a book, where seed and purpose name the page.

    >>> PublicStream(7, "example").words(2, np.uint32).tolist()
    [1049465579, 3230563125]
    """

    def __init__(self, seed: int, purpose: str) -> None:
        self._label = f"dpindex/1|{purpose}|{seed}|"
        self._block = 0
        self._buffer = b""

    def _bytes(self, count: int) -> bytes:
        parts = [self._buffer]
        have = len(self._buffer)
        while have < count:
            parts.append(hashlib.shake_256(f"{self._label}{self._block}".encode()).digest(_BLOCK))
            self._block += 1
            have += _BLOCK
        data = b"".join(parts)
        self._buffer = data[count:]
        return data[:count]

    def words(self, count: int, dtype: type[np.unsignedinteger[Any]]) -> npt.NDArray[Any]:
        """``count`` uniform words of an unsigned integer ``dtype``, shape (count,)."""
        little = np.dtype(dtype).newbyteorder("<")
        data = np.frombuffer(self._bytes(count * little.itemsize), dtype=little)
        return data.astype(dtype, copy=False)

    def signs(self, count: int) -> npt.NDArray[np.int8]:
        """``count`` independent fair signs, int8 in {−1, +1}."""
        packed = np.frombuffer(self._bytes(-(-count // 8)), dtype=np.uint8)
        bits = np.unpackbits(packed, count=count, bitorder="little")
        return (1 - 2 * bits.astype(np.int8)).astype(np.int8)

    def permutation(self, count: int) -> npt.NDArray[np.int64]:
        """A uniform permutation of 0 … count−1: the order of ``count`` random 64-bit keys."""
        keys = self.words(count, np.uint64)
        return np.argsort(keys, kind="stable").astype(np.int64)
