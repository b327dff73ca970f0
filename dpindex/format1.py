"""Readers of files of format 1, which are opened but no longer written."""

from __future__ import annotations

import hashlib
import struct
from typing import Any

import numpy as np

from dpindex.arrays import AnyArray
from dpindex.checks import MAX_ID_LENGTH
from dpindex.errors import InputError

__all__ = ["MAGIC_IDS", "codes_from_bytes_1", "ids_from_bytes_1"]

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


MAGIC_IDS = b"DPID"
_IDS = struct.Struct("<4sBxxxQ")
"""Magic, 0 for integers or 1 for strings, and the number of ids."""

_MAX_BYTES = 1 << 30


def ids_from_bytes_1(data: bytes) -> AnyArray:
    """Ids of an index: int64 numbers, or the lengths of strings in bytes and their UTF-8 text."""
    damaged = InputError("an ids file of the index is damaged.")
    if len(data) < _IDS.size:
        raise damaged
    magic, kind, count = _IDS.unpack_from(data)
    body = memoryview(data)[_IDS.size :]
    if magic != MAGIC_IDS or kind > 1 or count * (4 if kind else 8) > len(body):
        raise damaged
    if kind == 0:
        if count * 8 != len(body):
            raise damaged
        return np.frombuffer(body, "<i8").astype(np.int64)
    lengths, text = np.frombuffer(body[: count * 4], "<u4"), body[count * 4 :]
    ends = np.cumsum(lengths, dtype=np.int64).tolist()
    if int(lengths.sum()) != len(text):
        raise damaged
    try:
        spans = zip([0, *ends], ends, strict=False)
        texts = [str(text[start:end], "utf-8") for start, end in spans]
    except UnicodeDecodeError:
        raise damaged from None
    longest = max(map(len, texts), default=0)
    if longest > MAX_ID_LENGTH or 4 * count * longest > _MAX_BYTES:
        raise damaged
    if any(text.endswith("\0") for text in texts):
        raise damaged
    return np.array(texts, dtype=np.str_)
