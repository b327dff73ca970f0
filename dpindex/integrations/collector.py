"""The collector: codes are accepted durably and put into a searcher; one thread writes.

A submission is answered when it is in the log on disk . No cost of accepting grows with the
index. Accepted codes join the search within about a second, and are saved with the index from time
to time; then the log begins anew.
"""

from __future__ import annotations

import os
import queue
import struct
import threading
import time
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

import numpy as np

from dpindex.base.arrays import AnyArray, row_blocks
from dpindex.base.errors import DamagedError, InputError, StorageError
from dpindex.base.files import OWN_FILE, pack, read_file, sync_folder, unpack
from dpindex.index.hits import Hits
from dpindex.mechanism.codes import Codes, codes_from_bytes
from dpindex.mechanism.spec import Spec
from dpindex.similarity.similarity import Metric
from dpindex.storage.code_store import rows_per_segment
from dpindex.storage.ids import ids_from_bytes, ids_to_bytes
from dpindex.storage.shuffled_file import Shuffle

_SAVE_SECONDS = 3600.0


Outcome = Literal["stored", "repeated", "taken"]
_Acceptor = TypeVar("_Acceptor", bound="Acceptor")

_RECEIPTS = 1 << 17


class UnavailableError(Exception):
    """Nothing can be accepted now: too many wait, or the log cannot be written."""


@dataclass(frozen=True, eq=False)
class Submission:
    """Checked codes under checked ids, and who waits for the outcome.

    Attributes
    ----------
    codes : Codes
        Of the searcher's spec.
    ids : array, shape (n,)
        Unique; empty where ids are refused.
    receipt : bytes, optional
        32 bytes that a repeated submission has again, and that nobody else can know.
    """

    codes: Codes
    ids: AnyArray
    receipt: bytes | None = None
    outcome: Future[Outcome] = field(default_factory=Future)


class Searcher(Protocol):
    """A searcher of the codes: a :class:`~dpindex.PrivateIndex`, or another one like it."""

    @property
    def spec(self) -> Spec:
        """The spec of all codes."""

    @property
    def query_spec(self) -> Spec:
        """The spec of private queries."""

    @property
    def metric(self) -> Metric:
        """The measure that neighbours are ranked by."""

    @property
    def is_shuffled(self) -> bool:
        """Whether its codes are a published shuffle, to which none is added."""

    def __len__(self) -> int:
        """How many codes there are."""

    def __contains__(self, id: object) -> bool:
        """Whether there is a code under that id."""

    def __getitem__(self, id: Any) -> Codes:
        """The code under an id, as codes of one row."""

    def add_codes(self, codes: Codes, ids: Any) -> None:
        """Add codes under new ids."""

    def search(self, Q: Any, k: int) -> Hits:
        """The k nearest neighbours of each query, vectors or codes; called by many threads."""


class Acceptor(ABC):
    """A thread that stores submissions in a file, and answers each.

    Use it as a context: the thread ends with the block, after everything was stored.

    Parameters
    ----------
    path : Path
        The file, for the error at the end of the block.
    max_waiting : int
        Submissions that may wait; more are refused.
    group_rows : int
        Codes that are written together, if so many wait.

    Attributes
    ----------
    searcher : Searcher
        Whose codes are submitted.
    shuffle : Shuffle, optional
        What senders are promised, where ids are refused and searches too.

    Raises
    ------
    InputError
        At the end of the block, if something could not be written.
    """

    searcher: Searcher
    shuffle: Shuffle | None = None

    def __init__(self, path: Path, max_waiting: int = 1024, group_rows: int = 16384) -> None:
        self._path = path
        self._group_rows = group_rows
        self._receipts: dict[bytes, None] = {}
        self._queue: queue.Queue[Submission | None] = queue.Queue(max_waiting)
        self._closed = False
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._work, name="collector")

    def __enter__(self: _Acceptor) -> _Acceptor:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed = True
        self._queue.put(None)
        self._thread.join()
        self._close()
        if self._failure is not None:
            raise InputError(
                f"{self._path} or the index could not be written, and nothing was accepted "
                f"since; what was accepted before is in the log, and the next start saves it."
            ) from self._failure

    @property
    def accepts(self) -> bool:
        """Whether submissions are accepted; False for good once a write has failed."""
        return self._thread.is_alive() and not self._closed

    def submit(self, submission: Submission) -> Future[Outcome]:
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
        try:
            self._queue.put_nowait(submission)
        except queue.Full:
            raise UnavailableError from None
        if not self._thread.is_alive():  # it ended in the meantime, perhaps without seeing this
            self._refuse_waiting()
        return submission.outcome

    @abstractmethod
    def _store(self, new: list[Submission]) -> None:
        """Write submissions, durably."""

    def _is_taken(self, id: Any) -> bool:
        """True if an id belongs to another submission."""
        return False

    @abstractmethod
    def _finish(self) -> None:
        """Do what is left once everything was stored."""

    @abstractmethod
    def _close(self) -> None:
        """Close the file."""

    @property
    def _wait_seconds(self) -> float | None:
        """How long the thread waits for a submission; None for ever."""
        return None

    @abstractmethod
    def _tend(self) -> None:
        """Do what is due after a group, and after every wait."""

    def _work(self) -> None:
        """Until it is closed: take what waits, store it, answer."""
        try:
            going = True
            while going:
                group, going = self._group()
                if group:
                    self._answer(group)
                self._tend()
            self._finish()
        except Exception as error:  # whoever leaves the block is told
            self._failure = error
        finally:
            self._closed = True
            self._refuse_waiting()

    def _group(self) -> tuple[list[Submission], bool]:
        """The submissions that wait, and whether more may follow; waits for the first."""
        group: list[Submission] = []
        rows = 0
        try:
            item = self._queue.get(timeout=self._wait_seconds)
            while item is not None:
                if item.outcome.set_running_or_notify_cancel():  # its sender still waits
                    group.append(item)
                    rows += len(item.codes)
                if rows >= self._group_rows:
                    return group, True
                item = self._queue.get_nowait()
        except queue.Empty:
            return group, True
        return group, False

    def _answer(self, group: list[Submission]) -> None:
        """Store a group, then answer each of its submissions."""
        try:
            outcomes = self._outcomes(group)
        except BaseException:
            for submission in group:
                submission.outcome.set_exception(UnavailableError())
            raise
        for submission, outcome in zip(group, outcomes, strict=True):
            submission.outcome.set_result(outcome)

    def _outcomes(self, group: list[Submission]) -> list[Outcome]:
        """Store what is new of a group, and return the outcome of each submission."""
        outcomes: list[Outcome] = []
        new: list[Submission] = []
        ids: set[Any] = set()
        receipts: dict[bytes, None] = {}
        for submission in group:
            names = submission.ids.tolist()
            receipt = submission.receipt
            if receipt in self._receipts or receipt in receipts:
                outcomes.append("repeated")
            elif any(name in ids or self._is_taken(name) for name in names):
                outcomes.append("taken")
            else:
                outcomes.append("stored")
                new.append(submission)
                ids.update(names)
                if receipt is not None:
                    receipts[receipt] = None
        if new:
            self._store(new)
            self._remember(receipts)
        return outcomes

    def _remember(self, receipts: Iterable[bytes]) -> None:
        """Know these receipts again; the oldest of very many are forgotten."""
        self._receipts.update(dict.fromkeys(receipts))
        while len(self._receipts) > _RECEIPTS:
            del self._receipts[next(iter(self._receipts))]

    def _refuse_waiting(self) -> None:
        """Answer what is left in the queue: it was not stored."""
        while True:
            try:
                submission = self._queue.get_nowait()
            except queue.Empty:
                return
            if submission is not None and submission.outcome.set_running_or_notify_cancel():
                submission.outcome.set_exception(UnavailableError())


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


class Collector(Acceptor):
    """The one writer of a searcher, with its log of accepted codes.

    Everything that was accepted is in the searcher, and saved, when the block ends.

    Parameters
    ----------
    searcher : Searcher
        It is changed by nobody else.
    log : Path
        File of the log. What it holds already is put into the searcher first.
    save : callable
        Makes durable what the searcher holds; afterwards the log begins anew.
    join_seconds : float
        Accepted codes join the search about so many seconds later, [0, ∞).
    max_waiting : int
        Submissions that may wait; more are refused.
    group_rows : int
        Codes that are written together, if so many wait; so many join the search at once.

    Raises
    ------
    InputError
        If the log is damaged, or holds an id that the searcher has with another code; at the end of
        the block, if something could not be written.
    """

    def __init__(
        self,
        searcher: Searcher,
        log: Path,
        save: Callable[[], object],
        *,
        join_seconds: float = 1.0,
        max_waiting: int = 1024,
        group_rows: int = 16384,
    ) -> None:
        super().__init__(log, max_waiting, group_rows)
        self.searcher = searcher
        self._save = save
        self._join_seconds = join_seconds
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

    def _recover(self) -> None:
        """Put into the searcher what was accepted before; what it has already was saved."""
        for batch in self._log.recovered:
            is_saved = np.array([id in self.searcher for id in batch.ids.tolist()], bool)
            for row in np.flatnonzero(is_saved):
                saved = self.searcher[batch.ids[row].item()]
                if not np.array_equal(saved.stored, batch.codes.stored[row : row + 1]):
                    raise InputError(
                        f"{self._log.path} holds a code that was accepted under an id which "
                        f"somebody has added to the index since, with another code; remove that id "
                        f"from the index ({batch.ids[row].item()!r}), or move the log away."
                    )
            new = np.flatnonzero(~is_saved)
            if len(new):
                self.searcher.add_codes(batch.codes.take(new), batch.ids[new])
            self._remember(batch.receipts)
        if self._log.bytes:
            self._save()
            self._log.clear()

    @property
    def _wait_seconds(self) -> float | None:
        if self._accepted or self._unsaved:
            return self._join_seconds
        return None

    def _store(self, new: list[Submission]) -> None:
        batch = _batch(new)
        self._log.append(batch)
        self._accepted.append(batch)
        self._accepted_ids.update(batch.ids.tolist())

    def _is_taken(self, id: Any) -> bool:
        return id in self._accepted_ids or id in self.searcher

    def _tend(self) -> None:
        """Put accepted codes into the searcher, and save it, if it is time."""
        now = time.monotonic()
        rows = len(self._accepted_ids)
        if rows and (now - self._joined_at >= self._join_seconds or rows >= self._group_rows):
            self._join()
        full = self._unsaved >= rows_per_segment(self.searcher.spec)
        if full or (self._unsaved and now - self._saved_at >= _SAVE_SECONDS):
            self._save_all()

    def _join(self) -> None:
        """Put accepted codes into the searcher, where searches find them."""
        if self._accepted:
            self.searcher.add_codes(*_joined(self._accepted))
            self._unsaved += len(self._accepted_ids)
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

    def _finish(self) -> None:
        self._save_all()

    def _close(self) -> None:
        self._log.close()


def _batch(submissions: list[Submission]) -> Batch:
    """One batch of several submissions."""
    receipts = [one.receipt for one in submissions if one.receipt is not None]
    parts = [Batch(one.codes, one.ids, []) for one in submissions]
    return Batch(*_joined(parts), receipts)


def _joined(batches: list[Batch]) -> tuple[Codes, AnyArray]:
    """Codes and ids of several batches."""
    format_ = batches[0].codes.format
    stored = format_.concatenate([batch.codes.stored for batch in batches])
    return format_.codes(stored), np.concatenate([batch.ids for batch in batches])
