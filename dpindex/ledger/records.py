"""The ledger as bytes: sealed records, appended durably, each verified as it is read."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from dpindex.errors import InputError
from dpindex.spec import Spec

__all__ = [
    "CHECK_BYTES",
    "DIGEST_BYTES",
    "MAGIC",
    "PLAIN",
    "Digests",
    "Record",
    "Records",
    "append",
    "opened",
    "packed",
    "read",
    "same",
    "sync_folder",
]

MAGIC = b"DPLG\x01\x00\x00\x00"
DIGEST_BYTES = CHECK_BYTES = 16
PLAIN = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
_START = len(MAGIC) + CHECK_BYTES
_HEADER = struct.Struct("<IQ")
_SEAL_BYTES = 32
_MAX_BYTES = 1 << 33
_MAX_TEXT = 1 << 16

Digests = npt.NDArray[np.bytes_]


@dataclass(frozen=True)
class Record:
    """An entry as it is read: its text, and what the ids have become."""

    text: dict[str, Any]
    digests: Digests


class Records:
    """The records of an open ledger, each verified as it is read; knows where the last one ends.

    A record is a header with its own check, JSON, digests, and a seal over all of it and the seal
    before. What a writer that died left unfinished at the end was never released and is passed
    over; anything else that does not fit is damage.
    """

    def __init__(self, file: IO[bytes], path: Path) -> None:
        self._file, self._path = file, path
        self.end = _START
        self.seal = b""

    def __iter__(self) -> Iterator[Record]:
        size = os.fstat(self._file.fileno()).st_size
        if size > _MAX_BYTES:
            raise InputError(f"{self._path} is larger than a ledger may be ({size} bytes).")
        self._file.seek(0)
        if read(self._file, len(MAGIC)) != MAGIC or size < _START:
            raise InputError(f"{self._path} is not a ledger, or what is left of one.")
        head_bytes = _HEADER.size + CHECK_BYTES
        while size - self.end >= head_bytes:
            self._file.seek(self.end)
            head = read(self._file, head_bytes)
            header, check = head[: _HEADER.size], head[_HEADER.size :]
            if hashlib.sha256(self.seal + header).digest()[:CHECK_BYTES] != check:
                raise self._damaged()
            text_bytes, count = _HEADER.unpack(header)
            body_bytes = text_bytes + count * DIGEST_BYTES
            if text_bytes > _MAX_TEXT or not count:
                raise self._damaged()
            if size - self.end < head_bytes + body_bytes + _SEAL_BYTES:
                return
            body, seal = read(self._file, body_bytes), read(self._file, _SEAL_BYTES)
            if hashlib.sha256(head + body).digest() != seal:
                raise self._damaged()
            self.end += head_bytes + body_bytes + _SEAL_BYTES
            self.seal = seal
            digests = np.frombuffer(body, dtype=f"S{DIGEST_BYTES}", offset=text_bytes)
            yield Record(self._parsed(body[:text_bytes]), digests)

    def _parsed(self, text: bytes) -> dict[str, Any]:
        try:
            data = json.loads(text)
            if {key: type(value) for key, value in data.items()} != {
                "spec": str, "token": str, "when": str,
            }:  # fmt: skip
                raise ValueError("fields")
        except (ValueError, AttributeError, RecursionError):
            raise self._damaged() from None
        return dict(data)

    def _damaged(self) -> InputError:
        return InputError(f"{self._path} is damaged; restore it from a copy.")


def packed(spec: Spec, digests: Digests, token: str, seal: bytes) -> bytes:
    """A record as bytes; its header is sealed to the record before, its seal to its header."""
    when = datetime.now(timezone.utc).isoformat(timespec="seconds")
    data = {"spec": spec.to_json(), "token": token, "when": when}
    text = json.dumps(data, sort_keys=True).encode()
    header = _HEADER.pack(len(text), len(digests))
    head = header + hashlib.sha256(seal + header).digest()[:CHECK_BYTES]
    body = head + text + digests.tobytes()
    return body + hashlib.sha256(body).digest()


def append(file: IO[bytes], data: bytes, end: int) -> None:
    """Write at ``end``, durably, or leave the file as it was."""
    try:
        file.truncate(end)
        file.seek(end)
        rest = memoryview(data)
        while rest:
            rest = rest[file.write(rest) :]
        os.fsync(file.fileno())
    except BaseException:
        file.truncate(end)
        raise


def read(file: IO[bytes], count: int) -> bytes:
    """``count`` bytes, fewer only at the end of the file."""
    parts = []
    while count and (part := file.read(count)):
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def same(record: Record, spec: Spec, digests: Digests) -> bool:
    return record.text["spec"] == spec.to_json() and np.array_equal(record.digests, digests)


@contextmanager
def opened(path: Path, flags: int, what: str) -> Iterator[IO[bytes]]:
    """A plain file that exists."""
    try:
        handle = os.open(path, flags | PLAIN)
    except OSError as error:
        raise InputError(f"the {what} {path} cannot be opened: {error.strerror}.") from None
    # Unbuffered: nothing that failed to be written may be written later, when the file is closed.
    with open(handle, "rb" if flags == os.O_RDONLY else "r+b", buffering=0) as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise InputError(f"the {what} {path} is not a plain file.")
        yield file


def sync_folder(folder: Path) -> None:
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
