"""Public randomness: a portable function of a published seed, the same bits on every machine.

The stream is SHAKE-256 of ``"dpindex/1|<purpose>|<seed>|<block>"`` in blocks of 1 MiB, read as
little-endian words. It decides permutations and signs, never noise. Known-answer tests pin it.
"""

from __future__ import annotations

import hashlib
import math
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from dpindex.base.arrays import AnyArray, Doubles, Longs, row_blocks

BLOCK = 1 << 20


class BitSource(Protocol):
    """A source of uniform random integers for samplers (the seam that tests use)."""

    def words(self, count: int, dtype: type[np.unsignedinteger[Any]]) -> AnyArray:
        """``count`` independent uniform words of an unsigned integer ``dtype``."""
        ...


class PublicStream:
    """A deterministic stream of uniform bits for one ``purpose`` under one public ``seed``.

    >>> PublicStream(7, "example").words(2, np.uint32).tolist()
    [1049465579, 3230563125]
    """

    def __init__(self, seed: int, purpose: str) -> None:
        self._label = f"dpindex/1|{purpose}|{seed}|"
        self._block = 0
        self._read = 0
        self._known = b""

    def _bytes(self, count: int) -> bytearray:
        out = bytearray(count)
        done = 0
        while done < count:
            stop = min(self._read + count - done, BLOCK)
            if stop > len(self._known):
                # A shorter output of SHAKE begins a longer one: most streams need little of it.
                length = 1 << (stop - 1).bit_length()
                shake = hashlib.shake_256(f"{self._label}{self._block}".encode())
                self._known = shake.digest(length)
            part = memoryview(self._known)[self._read : stop]
            out[done : done + len(part)] = part
            done += len(part)
            self._read = stop
            if stop == BLOCK:
                self._block = self._block + 1
                self._read = 0
                self._known = b""
        return out

    def words(self, count: int, dtype: type[np.unsignedinteger[Any]]) -> AnyArray:
        """``count`` uniform words of an unsigned integer ``dtype``, shape (count,)."""
        little = np.dtype(dtype).newbyteorder("<")
        data = np.frombuffer(self._bytes(count * little.itemsize), dtype=little)
        return data.astype(dtype, copy=False)  # callers may write into it

    def uniform(self, *shape: int) -> Doubles:
        """Multiples of 2^−32 in [0, 1)."""
        words = self.words(math.prod(shape), np.uint32)
        return words.reshape(shape) / 2.0**32

    def signs(self, count: int) -> npt.NDArray[np.int8]:
        """``count`` independent fair signs, int8 in {−1, +1}."""
        data = self._bytes(-(-count // 8))
        packed = np.frombuffer(data, dtype=np.uint8)
        bits = np.unpackbits(packed, count=count, bitorder="little")
        return np.int8(1) - 2 * bits.astype(np.int8)

    def permutation(self, count: int) -> Longs:
        """A uniform permutation of 0 … count−1: the order of ``count`` random 64-bit keys."""
        keys = self.words(count, np.uint64)
        # Sorted as numbers whose last bits are places: a quarter of the time of an order.
        last_bits = np.uint64((1 << max(0, count - 1).bit_length()) - 1)
        packed = keys & ~last_bits
        # In blocks: of millions of attributes each array takes as much memory as a plan may.
        for block in row_blocks(count, BLOCK):
            packed[block] |= np.arange(block.start, block.stop, dtype=np.uint64)
        packed.sort()
        # Those that are equal but for their last bits stand in a row, and are put in order by all.
        tied = np.zeros(count + 1, dtype=np.bool_)
        for block in row_blocks(count - 1, BLOCK):
            first, last = block.start, block.stop
            apart = packed[first + 1 : last + 1] ^ packed[first:last]
            tied[first + 1 : last + 1] = apart <= last_bits
        packed &= last_bits
        order = packed.view(np.int64)
        unsure = np.flatnonzero(tied[1:] | tied[:-1])
        places = order[unsure]
        order[unsure] = places[np.lexsort((places, keys[places]))]
        return order
