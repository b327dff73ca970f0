"""Released sketches as bytes: a short header of public facts, then the counts. No pickle."""

from __future__ import annotations

import hashlib
import json
import math
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpindex.arrays import Integers
from dpindex.errors import InputError
from dpindex.race.spec import SketchSpec

__all__ = ["MAGIC", "MAX_BYTES", "Release", "pack", "unpack"]

MAGIC = b"DPRS"
"""First bytes of every sketch."""

_VERSION = 1
_FRAME = struct.Struct("<4sHHQ32s")
"""Magic, version, bytes of the header, bytes of the counts, SHA-256 of all that follows."""

_MAX_HEADER = 2048
MAX_BYTES = 1 << 30
"""No sketch is longer: 2^27 counts of seven bytes, and the header."""

_FACTS = {"spec", "epsilon", "delta", "offset", "variance", "least", "bytes"}


@dataclass(frozen=True, eq=False)
class Release:
    """What is public once the noise has been added.

    Attributes
    ----------
    counts : integers, shape (rows, width)
        The noisy counts.
    epsilon, delta : float
        What they cost: the spec's budget, or the sum of several after a merge.
    offset, variance : float
        Added to a count on reading; variance of its noise.
    """

    counts: Integers
    epsilon: float
    delta: float
    offset: float
    variance: float


def pack(spec: SketchSpec, release: Release) -> bytes:
    """The bytes of a released sketch: counts less their least, in the fewest whole bytes."""
    least = int(release.counts.min())
    shifted = (release.counts.astype(np.int64) - least).astype("<u8")
    size = max(1, -(-int(shifted.max()).bit_length() // 8))
    body = np.ascontiguousarray(shifted.reshape(-1, 1).view(np.uint8)[:, :size]).tobytes()
    facts = {
        "spec": spec.to_json(),
        "epsilon": release.epsilon,
        "delta": release.delta,
        "offset": release.offset,
        "variance": release.variance,
        "least": least,
        "bytes": size,
    }
    header = json.dumps(facts, separators=(",", ":"), allow_nan=False).encode()
    digest = hashlib.sha256(header + body).digest()
    return _FRAME.pack(MAGIC, _VERSION, len(header), len(body), digest) + header + body


def unpack(data: bytes | bytearray | memoryview) -> tuple[SketchSpec, Release]:
    """The inverse of ``pack``. Lengths and digest are checked before anything is interpreted.

    Raises InputError if the bytes are cut off, changed, of another version, or not a sketch.
    """
    data = bytes(data)
    if len(data) < _FRAME.size or data[:4] != MAGIC:
        raise InputError("these bytes are not a dpindex sketch.")
    _, version, header_size, body_size, digest = _FRAME.unpack_from(data)
    if version != _VERSION:
        raise InputError(f"this sketch has format version {version}; this is version {_VERSION}.")
    if header_size > _MAX_HEADER or _FRAME.size + header_size + body_size != len(data):
        raise InputError("this sketch is cut off or has bytes too many.")
    if hashlib.sha256(memoryview(data)[_FRAME.size :]).digest() != digest:
        raise InputError("this sketch is damaged: its checksum does not match.")
    try:
        facts = json.loads(data[_FRAME.size : _FRAME.size + header_size])
    except (ValueError, RecursionError):
        raise InputError("this sketch has a header that no dpindex writes.") from None
    if not isinstance(facts, dict) or set(facts) != _FACTS or not _sane(facts):
        raise InputError("this sketch has a header that no dpindex writes.")
    spec = SketchSpec.from_json(facts["spec"])
    size = facts["bytes"]
    if body_size != spec.rows * spec.columns * size:
        raise InputError(
            f"this sketch declares {spec.rows} × {spec.columns} counts of {size} bytes and holds "
            f"{body_size} bytes."
        )
    wide = np.zeros((spec.rows * spec.columns, 8), dtype=np.uint8)
    wide[:, :size] = np.frombuffer(data, np.uint8, offset=len(data) - body_size).reshape(-1, size)
    counts = wide.view("<u8").astype(np.int64).reshape(spec.rows, spec.columns) + facts["least"]
    numbers = [float(facts[name]) for name in ("epsilon", "delta", "offset", "variance")]
    return spec, Release(smallest(counts), *numbers)


def smallest(counts: Integers) -> Integers:
    """The same integers as int32 where they fit."""
    limits = np.iinfo(np.int32)
    fits = limits.min <= int(counts.min()) and int(counts.max()) <= limits.max
    return counts.astype(np.int32) if fits else counts


def _sane(facts: dict[str, Any]) -> bool:
    for name in ("epsilon", "delta", "offset", "variance"):
        value = facts[name]
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        if not 0 <= value <= 1e300 or not math.isfinite(value):
            return False
    whole = all(type(facts[name]) is int for name in ("least", "bytes"))
    return whole and 1 <= facts["bytes"] <= 7 and abs(facts["least"]) < 1 << 56
