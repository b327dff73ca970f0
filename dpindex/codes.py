"""Private codes: what is published, and its bytes. Made, packed and compared without Faiss."""

from __future__ import annotations

import hashlib
import math
import struct
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from bitarray import bitarray
from bitarray.util import count_xor

from dpindex.arrays import Bytes, Integers
from dpindex.errors import InputError

__all__ = ["BitCodes", "Codes", "FloatCodes", "codes_from_bytes", "narrowest"]

_MAGIC = b"DPIX"
_VERSION = 1
_HEADER = struct.Struct("<4sBBHIQdd16s16s")
_DIGEST = 16
_KINDS: dict[int, str] = {0: "bits", 1: "<i1", 2: "<i2", 4: "<i4"}


def narrowest(values: Integers) -> Integers:
    """The same integers in the smallest of int8, int16 and int32 that holds them all."""
    if values.size:
        least, most = int(values.min()), int(values.max())
        for dtype in (np.int8, np.int16):
            if np.iinfo(dtype).min <= least and most <= np.iinfo(dtype).max:
                return values.astype(dtype, copy=False)
    return values.astype(np.int32, copy=False)


@dataclass(frozen=True, eq=False)
class BitCodes:
    """Private sign codes: k bits a vector, packed eight to a byte, first bit lowest.

    Attributes
    ----------
    packed : uint8 array, shape (n, ⌈k/8⌉)
        Bit 1 stands for +1; unused bits of the last byte are 0.
    k : int
        Bits a vector.
    fingerprint : bytes
        Sixteen bytes that name the spec they were made under.
    """

    packed: Bytes
    k: int
    fingerprint: bytes

    def __len__(self) -> int:
        return len(self.packed)

    @property
    def stored(self) -> Bytes:
        """The array that an index keeps, shape (n, ⌈k/8⌉)."""
        return self.packed

    @classmethod
    def from_signs(cls, positive: npt.NDArray[np.bool_], fingerprint: bytes) -> BitCodes:
        """Pack signs, True for +1, shape (n, k)."""
        packed = np.packbits(positive, axis=1, bitorder="little")
        return cls(packed, positive.shape[1], fingerprint)

    def to_signs(self) -> npt.NDArray[np.int8]:
        """±1, int8, shape (n, k)."""
        bits = np.unpackbits(self.packed, axis=1, count=self.k, bitorder="little")
        return (2 * bits.astype(np.int8) - 1).astype(np.int8)

    def to_float(self) -> npt.NDArray[np.float32]:
        """±1 as float32, shape (n, k)."""
        return self.to_signs().astype(np.float32)

    def row(self, i: int) -> bitarray:
        """One code as a bitarray of k bits."""
        bits = bitarray(endian="little")
        bits.frombytes(self.packed[i].tobytes())
        return bits[: self.k]

    def hamming(self, other: BitCodes) -> npt.NDArray[np.int64]:
        """Differing bits of every pair, shape (len(self), len(other))."""
        if self.k != other.k or self.fingerprint != other.fingerprint:
            raise InputError("these codes were made under different specs and cannot be compared.")
        theirs = [other.row(j) for j in range(len(other))]
        pairs = [[count_xor(self.row(i), code) for code in theirs] for i in range(len(self))]
        return np.array(pairs, dtype=np.int64).reshape(len(self), len(other))

    def take(self, rows: slice | npt.NDArray[np.intp]) -> BitCodes:
        """The codes of some rows."""
        return BitCodes(self.packed[rows], self.k, self.fingerprint)

    def to_bytes(self) -> bytes:
        """A self-describing byte string: see :func:`codes_from_bytes`."""
        return _pack(0, self.k, len(self), 1.0, 0.0, self.fingerprint, self.packed)


@dataclass(frozen=True, eq=False)
class FloatCodes:
    """Private number codes: small integers, and the two public numbers that decode them.

    Attributes
    ----------
    values : int8, int16 or int32 array, shape (n, k)
        The noisy grid integers: this is what is published, bit for bit.
    gain, offset : float
        ``(values + offset) · gain`` is unbiased for the projected vector (of scaled attributes).
    fingerprint : bytes
        Sixteen bytes that name the spec they were made under.
    """

    values: Integers
    gain: float
    offset: float
    fingerprint: bytes

    def __len__(self) -> int:
        return len(self.values)

    @property
    def stored(self) -> Integers:
        """The array that an index keeps, shape (n, k)."""
        return self.values

    @property
    def k(self) -> int:
        """Numbers a vector."""
        return int(self.values.shape[1])

    def to_float(self) -> npt.NDArray[np.float32]:
        """Unbiased estimates of the projected vectors, float32, shape (n, k)."""
        decoded = self.values.astype(np.float64)
        decoded += self.offset
        decoded *= self.gain
        return decoded.astype(np.float32)

    def to_signs(self) -> npt.NDArray[np.int8]:
        """Signs of the decoded numbers, ±1 (0 counts as +1), int8, shape (n, k)."""
        return np.where(self.values + self.offset >= 0, 1, -1).astype(np.int8)

    def take(self, rows: slice | npt.NDArray[np.intp]) -> FloatCodes:
        """The codes of some rows."""
        return FloatCodes(self.values[rows], self.gain, self.offset, self.fingerprint)

    def to_bytes(self) -> bytes:
        """A self-describing byte string: see :func:`codes_from_bytes`."""
        values = narrowest(self.values)
        little = values.astype(values.dtype.newbyteorder("<"), copy=False)
        kind = values.dtype.itemsize
        return _pack(kind, self.k, len(self), self.gain, self.offset, self.fingerprint, little)


Codes = BitCodes | FloatCodes


def _pack(
    kind: int, k: int, n: int, gain: float, offset: float, fingerprint: bytes, payload: Integers
) -> bytes:
    body = np.ascontiguousarray(payload).tobytes()
    fields = (_MAGIC, _VERSION, kind, 0, k, n, gain, offset, fingerprint)
    digest = hashlib.sha256(_HEADER.pack(*fields, bytes(_DIGEST)) + body).digest()[:_DIGEST]
    return _HEADER.pack(*fields, digest) + body


def codes_from_bytes(data: bytes | bytearray | memoryview) -> Codes:
    """Read codes written by ``to_bytes``: the only parser of foreign bytes, so it trusts nothing.

    Length and digest are checked before anything is interpreted; no size is taken on faith.

    Raises
    ------
    InputError
        If the bytes are cut off, changed, of another version, or not codes at all.

    >>> codes = BitCodes.from_signs(np.array([[True, False, True]]), bytes(16))
    >>> codes_from_bytes(codes.to_bytes()).to_signs().tolist()
    [[1, -1, 1]]
    """
    data = bytes(data)
    if len(data) < _HEADER.size or data[:4] != _MAGIC:
        raise InputError("these bytes are not dpindex codes.")
    _, version, kind, reserved, k, n, gain, offset, mark, digest = _HEADER.unpack_from(data)
    if version != _VERSION:
        raise InputError(f"these codes have format version {version}; this is version {_VERSION}.")
    body = memoryview(data)[_HEADER.size :]
    blank = data[: _HEADER.size - _DIGEST] + bytes(_DIGEST)
    hasher = hashlib.sha256(blank)
    hasher.update(body)
    if hasher.digest()[:_DIGEST] != digest:
        raise InputError("these codes are damaged: their checksum does not match.")
    if kind not in _KINDS or reserved or k < 1 or not math.isfinite(gain) or not gain > 0:
        raise InputError("these codes have a header that no dpindex writes.")
    if not math.isfinite(offset):
        raise InputError("these codes have a header that no dpindex writes.")
    row_bytes = -(-k // 8) if kind == 0 else k * kind
    if n * row_bytes != len(body):
        raise InputError(f"these codes declare {n} rows of {row_bytes} bytes and hold {len(body)}.")
    if kind == 0:
        packed = np.frombuffer(body, dtype=np.uint8).reshape(n, row_bytes)
        if k % 8 and n and (packed[:, -1] >> (k % 8)).any():
            raise InputError("these codes have stray bits beyond their length.")
        return BitCodes(packed, k, mark)
    values = np.frombuffer(body, dtype=_KINDS[kind]).reshape(n, k)
    return FloatCodes(values.astype(values.dtype.newbyteorder("=")), gain, offset, mark)
