"""Readers of format 1, which preceded the common container; nothing writes it any more."""

from __future__ import annotations

import hashlib
import json
import struct
from typing import Any

import numpy as np

from dpindex.arrays import AnyArray
from dpindex.errors import InputError

__all__ = ["SKETCH_MAGIC_1", "sketch_from_bytes_1"]

SKETCH_MAGIC_1 = b"DPRS"
_SKETCH = struct.Struct("<4sHHQ32s")
_MAX_SKETCH_HEADER = 2048


def sketch_from_bytes_1(
    data: bytes | bytearray | memoryview,
) -> tuple[dict[str, Any], dict[str, AnyArray]] | None:
    """Facts and arrays of a sketch of format 1, or None if the bytes are of another format."""
    data = bytes(data)
    if data[:4] != SKETCH_MAGIC_1 or len(data) < _SKETCH.size:
        return None
    _, version, header_bytes, body_bytes, digest = _SKETCH.unpack_from(data)
    start = _SKETCH.size + header_bytes
    if header_bytes > _MAX_SKETCH_HEADER or start + body_bytes != len(data):
        raise InputError("this sketch is cut off or has bytes too many.")
    if hashlib.sha256(memoryview(data)[_SKETCH.size :]).digest() != digest:
        raise InputError("this sketch is damaged: the checksum does not match.")
    try:
        if version != 1:
            raise ValueError(version)
        facts = json.loads(data[_SKETCH.size : start])
        hash_, size = facts["spec"]["hash"], facts.pop("bytes")
        if hash_["kind"] == "l2":
            hash_["kind"] = "p-stable"
        if type(size) is not int or not 1 <= size <= 7:
            raise ValueError(size)
        counts = np.frombuffer(data, np.uint8, offset=start).reshape(-1, size)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise InputError("this sketch has a header that no dpindex writes.") from None
    return facts, {"counts": counts}
