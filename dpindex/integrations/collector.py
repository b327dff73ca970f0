"""The collector: codes are accepted durably and put into an index; one thread writes.

A submission is answered when it is in the log on disk, and all that wait share one fsync. No cost
of accepting grows with the index. Accepted codes join the search within about a second, and are
saved with the index from time to time; then the log begins anew. HTTP is in
:mod:`dpindex.integrations.server`.
"""

from __future__ import annotations

import os
import queue
import struct
import threading
import time
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from dpindex.base.arrays import AnyArray, row_blocks
from dpindex.base.errors import DamagedError, InputError, StorageError
from dpindex.base.files import OWN_FILE, pack, read_file, sync_folder, unpack
from dpindex.index.private_index import PrivateIndex
from dpindex.integrations.published import PublishedIndex
from dpindex.mechanism.codes import Codes, codes_from_bytes
from dpindex.storage.code_store import rows_per_segment
from dpindex.storage.ids import ids_from_bytes, ids_to_bytes

RECEIPT_BYTES = 32
Acceptance = Literal["stored", "repeated", "taken"]

_KIND = "accepted"
_PREFIX = struct.Struct("<QI")
"""Bytes of the container that follows, and their CRC-32."""
_MAX_BYTES = 1 << 33
_RECEIPTS = 1 << 17
_SAVE_SECONDS = 3600.0


class UnavailableError(Exception):
    """Nothing can be accepted now: too many wait, or the log cannot be written."""


@dataclass(frozen=True, eq=False)
class Batch:
    """Checked codes under checked ids: a submission, or several that the log keeps together.

    Attributes
    ----------
    codes : Codes
        Of the index's spec.
    ids : int64 or unicode array, shape (n,)
        Unique.
    receipts : sequence of bytes
        For each submission with an Idempotency-Key 32 bytes, a hash of key, ids and codes: a
        repeated submission has the same, and nobody without the key can compute it.
    """

    codes: Codes
    ids: AnyArray
    receipts: Sequence[bytes] = ()

    @classmethod
    def joined(cls, parts: Sequence[Batch]) -> Batch:
        """Several batches as one."""
        format_ = parts[0].codes.format
        stored = format_.concatenate([part.codes.stored for part in parts])
        ids = np.concatenate([part.ids for part in parts])
        receipts = [receipt for part in parts for receipt in part.receipts]
        return cls(format_.codes(stored), ids, receipts)

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


_Waiting: TypeAlias = tuple[Batch, "Future[Acceptance]"]
"""A submission, and where its sender waits for the outcome."""


class AcceptedLog:
    """The log of accepted codes: what was confirmed to a sender and is not in the saved index yet.

    An append-only file of batches, made when it is opened. A batch is a length, a CRC-32 of the
    length, and one container with its own SHA-256; it is written by one append and one fsync. A
    process that is killed leaves at most the last batch incomplete, which was not confirmed. One
    process may have it open: the caller holds the index's lock.

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
        prefix = _PREFIX.pack(len(data), zlib.crc32(length))
        left = memoryview(prefix + data)
        self.bytes += len(left)
        while left:
            written = os.write(self._file, left)
            left = left[written:]
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
            begin = start + _PREFIX.size
            stop = begin + length
            if zlib.crc32(data[start : start + 8]) != crc:
                if not any(data[start:]):  # a power failure may leave zeros at the end
                    break
                raise self._damaged(start)
            if stop > len(data):
                break
            try:
                batch = Batch.from_bytes(data[begin:stop])
            except DamagedError:
                if stop == len(data):
                    break
                raise self._damaged(start) from None
            batches.append(batch)
            start = stop
        return batches, start

    def _damaged(self, start: int) -> InputError:
        return DamagedError(
            f"{self.path} is damaged at byte {start}: it holds accepted codes that are not in the "
            f"index yet; restore it from a copy, or move it away to go on without them."
        )


class Collector:
    """The one writer of an index, with its log of accepted codes.

    Use it as a context: its thread ends with the block, after everything that was accepted is in
    the index, and saved.

    Parameters
    ----------
    index : PrivateIndex or PublishedIndex
        It is changed by nobody else.
    log : Path
        File of the log. What it holds already is put into the index first.
    save : callable
        Makes durable what the index holds; afterwards the log begins anew.
    join_seconds : float
        Accepted codes join the search about so many seconds later, [0, ∞).
    max_waiting : int
        Submissions that may wait; more are refused.
    group_rows : int
        Codes that are written together, if so many wait; so many join the search at once.

    Raises
    ------
    InputError
        If the log is damaged, or holds an id that the index has with another code; at the end of
        the block, if something could not be written.
    """

    def __init__(
        self,
        index: PrivateIndex | PublishedIndex,
        log: Path,
        save: Callable[[], object],
        *,
        join_seconds: float = 1.0,
        max_waiting: int = 1024,
        group_rows: int = 16384,
    ) -> None:
        self.index = index
        self._save = save
        self._join_seconds = join_seconds
        self._group_rows = group_rows
        self._receipts: dict[bytes, None] = {}
        self._queue: queue.Queue[_Waiting | None] = queue.Queue(max_waiting)
        self._closed = False
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._work, name="collector")
        self._log = AcceptedLog(log)
        self._accepted: list[Batch] = []
        self._accepted_ids: set[Any] = set()
        self._unsaved = 0
        self._saved_at = self._joined_at = time.monotonic()
        try:
            self._recover()
        except BaseException:
            self._log.close()
            raise

    def __enter__(self) -> Collector:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed = True
        self._queue.put(None)
        self._thread.join()
        self._log.close()
        if self._failure is not None:
            raise InputError(
                f"{self._log.path} or the index could not be written, and nothing was accepted "
                f"since; what was accepted before is in the log, and the next start saves it."
            ) from self._failure

    @property
    def accepts(self) -> bool:
        """Whether submissions are accepted; False for good once a write has failed."""
        return self._thread.is_alive() and not self._closed

    def submit(self, submission: Batch) -> Future[Acceptance]:
        """Hand over a submission; its outcome comes when it is durable.

        The outcome is "stored"; "repeated" if a submission with this receipt was stored before; or
        "taken" if one of its ids belongs to another submission, and nothing of it is stored.

        Raises
        ------
        UnavailableError
            If too many submissions wait, or writing has failed before; also as the outcome.
        """
        if not self.accepts:
            raise UnavailableError
        outcome: Future[Acceptance] = Future()
        try:
            self._queue.put_nowait((submission, outcome))
        except queue.Full:
            raise UnavailableError from None
        if not self._thread.is_alive():  # it ended in the meantime, perhaps without seeing this
            self._refuse_waiting()
        return outcome

    def _recover(self) -> None:
        """Put into the index what was accepted before; what it has already was saved."""
        for batch in self._log.recovered:
            new = []
            for row, id in enumerate(batch.ids.tolist()):
                if id not in self.index:
                    new.append(row)
                elif not np.array_equal(self.index[id].stored[0], batch.codes.stored[row]):
                    raise InputError(
                        f"{self._log.path} holds a code that was accepted under an id which "
                        f"somebody has added to the index since, with another code; remove that id "
                        f"from the index ({id!r}), or move the log away."
                    )
            if new:
                rows = np.array(new)
                self.index.add_codes(batch.codes.take(rows), batch.ids[rows])
            self._receipts.update(dict.fromkeys(batch.receipts))
        if self._log.bytes:
            self._save()
            self._log.clear()

    def _work(self) -> None:
        """Until it is closed: take what waits, store it, answer, and do what is due."""
        try:
            going = True
            while going:
                group, going = self._group()
                if group:
                    self._answer(group)
                self._tend()
            self._save_all()
        except Exception as error:  # raised where the block ends
            self._failure = error
        finally:
            self._closed = True
            self._refuse_waiting()

    def _group(self) -> tuple[list[_Waiting], bool]:
        """The submissions that wait, and whether more may follow; waits for the first."""
        group: list[_Waiting] = []
        rows = 0
        wait = self._join_seconds if self._accepted or self._unsaved else None
        try:
            item = self._queue.get(timeout=wait)
            while item is not None:
                submission, outcome = item
                if outcome.set_running_or_notify_cancel():  # its sender still waits
                    group.append(item)
                    rows += len(submission.codes)
                if rows >= self._group_rows:
                    return group, True
                item = self._queue.get_nowait()
        except queue.Empty:
            return group, True
        return group, False

    def _answer(self, group: list[_Waiting]) -> None:
        """Store what is new of a group, then answer each of its submissions."""
        new: list[Batch] = []
        try:
            outcomes = [self._outcome(submission, new) for submission, _ in group]
            if new:
                batch = Batch.joined(new)
                self._log.append(batch)
                self._accepted.append(batch)
                while len(self._receipts) > _RECEIPTS:  # the oldest are forgotten
                    del self._receipts[next(iter(self._receipts))]
        except BaseException:  # nothing is accepted any more, so that nothing is taken back
            for _, future in group:
                future.set_exception(UnavailableError())
            raise
        for (_, future), outcome in zip(group, outcomes, strict=True):
            future.set_result(outcome)

    def _outcome(self, submission: Batch, new: list[Batch]) -> Acceptance:
        """Decide about a submission, and append it to the new ones if it is to be stored."""
        if not self._receipts.keys().isdisjoint(submission.receipts):
            return "repeated"
        ids = submission.ids.tolist()
        if any(id in self._accepted_ids or id in self.index for id in ids):
            return "taken"
        new.append(submission)
        self._accepted_ids.update(ids)
        self._receipts.update(dict.fromkeys(submission.receipts))
        return "stored"

    def _tend(self) -> None:
        """Put accepted codes into the index, and save it, if it is time."""
        now = time.monotonic()
        rows = len(self._accepted_ids)
        is_due = now - self._joined_at >= self._join_seconds
        if rows >= self._group_rows or (rows and is_due):
            self._join()
        full = self._unsaved >= rows_per_segment(self.index.spec)
        if full or (self._unsaved and now - self._saved_at >= _SAVE_SECONDS):
            self._save_all()

    def _join(self) -> None:
        """Put accepted codes into the index, where searches find them."""
        if self._accepted:
            batch = Batch.joined(self._accepted)
            self.index.add_codes(batch.codes, batch.ids)
            self._unsaved += len(batch.ids)
            self._accepted = []
            self._accepted_ids = set()
        self._joined_at = time.monotonic()

    def _save_all(self) -> None:
        self._join()
        if self._unsaved:
            self._save()
            self._log.clear()
            self._unsaved = 0
        self._saved_at = time.monotonic()

    def _refuse_waiting(self) -> None:
        """Answer what is left in the queue: it was not stored."""
        with suppress(queue.Empty):
            while True:
                item = self._queue.get_nowait()
                if item is not None and item[1].set_running_or_notify_cancel():
                    item[1].set_exception(UnavailableError())
