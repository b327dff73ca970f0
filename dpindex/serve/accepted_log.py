"""The log of accepted codes: what has been promised to a sender and is not in the index yet.

It is a file of batches. A batch is a length, a CRC-32 of the length, and one container with its own
SHA-256; it is written by one append and one fsync. A process that is killed leaves at most the last
batch incomplete, which nobody was told of.
"""

from __future__ import annotations

import os
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dpindex.base.arrays import AnyArray, row_blocks
from dpindex.base.errors import DamagedError, InputError, StorageError
from dpindex.base.files import OWN_FILE, pack, read_file, sync_folder, unpack
from dpindex.mechanism.codes import Codes, codes_from_bytes
from dpindex.storage.ids import ids_from_bytes, ids_to_bytes

RECEIPT_BYTES = 32

_KIND = "accepted"
_PREFIX = struct.Struct("<QI")
"""Bytes of the container that follows, and their CRC-32."""
_MAX_BYTES = 1 << 33


@dataclass(frozen=True, eq=False)
class Batch:
    """Codes that were accepted together.

    Attributes
    ----------
    codes : Codes
    ids : int64 or unicode array, shape (n,)
    receipts : list of bytes
        What the submissions are recognised by when they are sent again, 32 bytes each.
    """

    codes: Codes
    ids: AnyArray
    receipts: list[bytes]

    def to_bytes(self) -> bytes:
        """A container."""
        arrays: dict[str, AnyArray] = {
            "codes": np.frombuffer(self.codes.to_bytes(), np.uint8),
            "ids": np.frombuffer(ids_to_bytes(self.ids), np.uint8),
            "receipts": np.frombuffer(b"".join(self.receipts), np.uint8),
        }
        return pack(_KIND, {}, arrays)

    @classmethod
    def from_bytes(cls, data: bytes) -> Batch:
        """The inverse of :meth:`to_bytes`; InputError for anything else."""
        _, arrays = unpack(data, _KIND)
        try:
            codes = codes_from_bytes(arrays["codes"].tobytes())
            ids = ids_from_bytes(arrays["ids"].tobytes())
            receipts = arrays["receipts"].tobytes()
        except KeyError:
            raise DamagedError("this accepted batch lacks a part; the file is damaged.") from None
        if len(ids) != len(codes) or len(receipts) % RECEIPT_BYTES:
            raise DamagedError("this accepted batch contradicts itself; the file is damaged.")
        places = row_blocks(len(receipts), RECEIPT_BYTES)
        return cls(codes, ids, [receipts[place] for place in places])


class AcceptedLog:
    """An append-only file of batches at ``path``; made when it is opened.

    One process may have it open: the caller holds the index's lock.

    Parameters
    ----------
    path : Path
        A symbolic link there is refused.

    Attributes
    ----------
    recovered : list of Batch
        What an earlier process accepted and did not put into the index.
    bytes : int
        Length of the file.

    Raises
    ------
    InputError
        If the file cannot be written, or is damaged anywhere but at its end.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | OWN_FILE, 0o600)
        except OSError as error:
            raise StorageError(f"{path} cannot be written: {error.strerror}.") from None
        try:
            self.recovered, self.bytes = self._read()
            os.ftruncate(self._file, self.bytes)
            os.fsync(self._file)
            sync_folder(path.parent)
        except BaseException:
            os.close(self._file)
            raise

    def append(self, batch: Batch) -> None:
        """Write a batch; it is on the disk when this returns.

        An OSError leaves it unknown what is on the disk: the log must be opened again then.
        """
        data = batch.to_bytes()
        length = len(data).to_bytes(8, "little")
        record = memoryview(_PREFIX.pack(len(data), zlib.crc32(length)) + data)
        self.bytes += len(record)
        while record:
            record = record[os.write(self._file, record) :]
        os.fsync(self._file)

    def clear(self) -> None:
        """Forget all batches: they are in the index."""
        os.ftruncate(self._file, 0)
        os.fsync(self._file)
        self.bytes = 0

    def close(self) -> None:
        """Close the file; remove it if it is empty."""
        os.close(self._file)
        if self.bytes == 0:
            self.path.unlink()
            sync_folder(self.path.parent)

    def _read(self) -> tuple[list[Batch], int]:
        """The batches, and where they end."""
        data = read_file(self.path, _MAX_BYTES, links=False)
        batches: list[Batch] = []
        start = 0
        while start + _PREFIX.size <= len(data):
            length, crc = _PREFIX.unpack_from(data, start)
            stop = start + _PREFIX.size + length
            if zlib.crc32(data[start : start + 8]) != crc:
                if not any(data[start:]):  # a power failure may leave zeros at the end
                    break
                raise self._damaged(start)
            if stop > len(data):
                break
            try:
                batches.append(Batch.from_bytes(data[start + _PREFIX.size : stop]))
            except DamagedError:
                if stop == len(data):
                    break
                raise self._damaged(start) from None
            start = stop
        return batches, start

    def _damaged(self, start: int) -> InputError:
        return DamagedError(
            f"{self.path} is damaged at byte {start}: it holds accepted codes that are not in the "
            f"index yet; restore it from a copy, or move it away to go on without them."
        )
