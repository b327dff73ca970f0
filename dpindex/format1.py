"""Readers of files of format 1, which are opened but no longer written."""

from __future__ import annotations

import hashlib
import json
import math
import struct
from itertools import pairwise
from typing import Any

import numpy as np

from dpindex.base.arrays import AnyArray
from dpindex.base.checks import id_array
from dpindex.base.errors import InputError
from dpindex.base.files import Buffer, Contents

_CODES = struct.Struct("<4sBBHIQdd16s16s")
_DIGEST = 16
_DTYPES = {0: "|u1", 1: "|i1", 2: "<i2", 4: "<i4"}


def codes_from_bytes_1(data: Buffer) -> Contents | None:
    """Facts and arrays of codes of format 1, or None if the bytes are of another format."""
    if data[:5] != b"DPIX\x01" or len(data) < _CODES.size:
        return None
    data = bytes(data)
    _, _, size, reserved, k, n, scale, offset, mark, digest = _CODES.unpack_from(data)
    blank = data[: _CODES.size - _DIGEST] + bytes(_DIGEST)
    if hashlib.sha256(blank + data[_CODES.size :]).digest()[:_DIGEST] != digest:
        raise InputError("these codes are damaged: their checksum does not match.")
    facts = {"format": "numbers", "code_length": k, "fingerprint": mark.hex()}
    facts |= {"scale": scale, "offset": offset} if size else {"format": "signs"}
    width = k if size else -(-k // 8)
    fits = k > 0 and len(data) - _CODES.size == n * width * max(size, 1)
    if size not in _DTYPES or reserved or not fits:
        raise InputError("these codes have a header that no dpindex writes.")
    body = np.frombuffer(data, _DTYPES[size], offset=_CODES.size)
    return facts, {"stored": body.reshape(n, width)}


MAGIC_IDS = b"DPID"
_IDS = struct.Struct("<4sBxxxQ")
"""Magic, 0 for integers or 1 for strings, and the number of ids."""


def ids_from_bytes_1(data: Buffer) -> AnyArray:
    """Ids of an index: int64 numbers, or the lengths of strings in bytes and their UTF-8 text."""
    damaged = InputError("an ids file of the index is damaged.")
    if len(data) < _IDS.size or data[:4] != MAGIC_IDS:
        raise damaged
    _, kind, count = _IDS.unpack_from(data)
    body = memoryview(data)[_IDS.size :]
    if kind == 0 and 8 * count == len(body):
        return np.frombuffer(body, "<i8").astype(np.int64)
    if kind != 1 or 4 * count > len(body):
        raise damaged
    lengths, text = np.frombuffer(body[: 4 * count], "<u4"), body[4 * count :]
    ends = np.cumsum(lengths, dtype=np.int64).tolist()
    if int(lengths.sum()) != len(text):
        raise damaged
    try:
        texts = [str(text[start:end], "utf-8") for start, end in pairwise([0, *ends])]
    except UnicodeDecodeError:
        raise damaged from None
    return id_array(texts, lambda sentence: damaged)


SKETCH_MAGIC_1 = b"DPRS"
_SKETCH = struct.Struct("<4sHHQ32s")
_MAX_SKETCH_HEADER = 2048


def sketch_from_bytes_1(data: Buffer) -> Contents | None:
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
        facts = json.loads(data[_SKETCH.size : start])
        hash_, size = facts["spec"]["hash"], facts.pop("bytes")
        if hash_["kind"] == "l2":
            hash_["kind"] = "p-stable"
        if version != 1 or type(size) is not int or not 1 <= size <= 7:
            raise ValueError("version or size")
        counts = np.frombuffer(data, np.uint8, offset=start).reshape(-1, size)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise InputError("this sketch has a header that no dpindex writes.") from None
    return facts, {"counts": counts}


_DENOISER_HEADER = 1 << 20
_FILTER = (
    "mean", "noise", "basis", "prior.log_weight", "prior.mean", "prior.filters", "prior.roots",
    "prior.gains", "leverage", "mixing_leverage",
)  # fmt: skip
"""Arrays of a filter in the order in which they were written."""


def denoiser_from_bytes_1(data: bytes) -> Contents | None:
    """Facts and arrays of a denoiser of format 1, or None if the bytes are of another format.

    It is a line of JSON and then float32 arrays. Sizes are checked here, shapes by the caller.

    Raises
    ------
    ValueError, LookupError, TypeError, ArithmeticError, RecursionError
        If the bytes are malformed.
    """
    if data[:1] != b"{":
        return None
    line, end, _ = data[:_DENOISER_HEADER].partition(b"\n")
    header = json.loads(line)
    stages, shapes = header["stages"], header["shapes"]
    names = [f"linear.{name}" for name in _FILTER]
    for number in range(len(stages)):
        names += [f"{number}.filter.{name}" for name in _FILTER]
        names += [f"{number}.bins.offset", f"{number}.bins.variance"]
    body = np.frombuffer(data, "<f4", offset=len(line) + len(end))
    arrays: dict[str, AnyArray] = {}
    start = 0
    for name, shape in zip(names, shapes, strict=True):
        if not all(type(side) is int and side >= 0 for side in shape):
            raise ValueError("shape")
        stop = start + math.prod(shape)
        arrays[name] = body[start:stop].reshape(shape)
        start = stop
    if start != len(body) or header["format"] != 1:
        raise ValueError("size")
    for name in list(arrays):
        if name.endswith("log_weight"):
            arrays[name] = arrays[name].astype("<f8")
        elif name.endswith("gains"):  # the leading columns were never used
            full = arrays[name.replace("gains", "filters")].shape[1]
            arrays[name] = arrays[name][:, full:]
    for number, ranges in enumerate(stages):
        arrays[f"{number}.bins.ranges"] = np.array(ranges, "<f8")
    arrays["error_variance"] = np.array(header.get("spread", []), "<f8")
    facts = {"error": header["error"], "rows": header["rows"], "iterations": len(stages)}
    return {**facts, "max_variance": header["most"]}, arrays


def manifest_from_1(data: dict[str, Any]) -> dict[str, Any]:
    """The manifest of an index directory of format 1 in the words of format 2."""
    segments = {entry["name"]: entry["count"] for entry in data["segments"]}
    if len(segments) < len(data["segments"]):
        raise ValueError("segments")
    renamed = {"index_type": data["storage"], "next_number": data["next_segment"]}
    return {"denoiser": None, "input": None, **data, **renamed, "segments": segments}
