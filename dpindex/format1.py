"""Readers of format 1, which was written before the common container; nothing writes it any more."""

from __future__ import annotations

import hashlib
import struct
from typing import Any

import numpy as np

from dpindex.arrays import AnyArray
from dpindex.errors import InputError

__all__ = ["codes_from_bytes_1", "manifest_from_1"]

_CODES = struct.Struct("<4sBBHIQdd16s16s")
_DIGEST = 16
_DTYPES = {0: "|u1", 1: "|i1", 2: "<i2", 4: "<i4"}


def codes_from_bytes_1(
    data: bytes | bytearray | memoryview,
) -> tuple[dict[str, Any], dict[str, AnyArray]] | None:
    """Facts and arrays of codes of format 1, or None if the bytes are of another format."""
    data = bytes(data)
    if data[:5] != b"DPIX\x01" or len(data) < _CODES.size:
        return None
    _, _, size, reserved, k, n, scale, offset, mark, digest = _CODES.unpack_from(data)
    blank = data[: _CODES.size - _DIGEST] + bytes(_DIGEST)
    if hashlib.sha256(blank + data[_CODES.size :]).digest()[:_DIGEST] != digest:
        raise InputError("these codes are damaged: their checksum does not match.")
    facts = {"format": "numbers", "code_length": k, "fingerprint": mark.hex()}
    facts |= {"scale": scale, "offset": offset} if size else {"format": "signs"}
    width = k if size else -(-k // 8)
    if size not in _DTYPES or reserved or len(data) - _CODES.size != n * width * max(size, 1):
        raise InputError("these codes have a header that no dpindex writes.")
    body = np.frombuffer(data, _DTYPES[size], offset=_CODES.size)
    return facts, {"stored": body.reshape(n, width)}


def manifest_from_1(data: dict[str, Any]) -> dict[str, Any]:
    """The manifest of an index directory of format 1 in the words of format 2."""
    return {**data, "index_type": data["storage"]}
