"""The collector: codes are accepted durably and put into an index; one thread writes.

A submission is answered when it is on disk, in one SQLite file: a group of submissions is one
transaction, and all that wait share one sync. It decides who was first, too: an id, or the key of a
submission, is there once. Accepted codes join the search within about a second, and are saved with
the index from time to time; then they are forgotten here, but for keys, which are kept as long as
the index. HTTP is in :mod:`dpindex.integrations.server`.
"""

from __future__ import annotations

import os
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from dpindex.base.arrays import AnyArray
from dpindex.base.errors import DamagedError, InputError, StorageError
from dpindex.base.files import OWN_FILE, sync_folder
from dpindex.index.private_index import PrivateIndex
from dpindex.integrations.published import PublishedIndex
from dpindex.mechanism.codes import Codes, codes_from_bytes
from dpindex.storage.code_store import rows_per_segment

Acceptance = Literal["stored", "repeated", "reused", "taken"]

_TABLES = """
    CREATE TABLE IF NOT EXISTS codes (place INTEGER PRIMARY KEY, id UNIQUE, code BLOB);
    CREATE TABLE IF NOT EXISTS receipts (receipt BLOB PRIMARY KEY, key BLOB UNIQUE) WITHOUT ROWID;
"""
_LOG_PAGES = 64
"""Pages of the log that are copied into the file together. A full disk needs room for both before
anything is accepted again; a thousand pages, as by default, are 4 MB."""
_FULL = "database or disk is full"


@dataclass(frozen=True, eq=False)
class Submission:
    """Checked codes under checked ids.

    Attributes
    ----------
    codes : Codes
        Of the index's spec.
    ids : int64 or unicode array, shape (n,)
        Unique.
    receipt : bytes, optional
        Of a submission with an Idempotency-Key a hash of key, ids and codes: a repeated submission
        has the same, and nobody without the key can compute it.
    key : bytes, optional
        A hash of that key alone: another submission under it is refused.
    """

    codes: Codes
    ids: AnyArray
    receipt: bytes | None = None
    key: bytes | None = None

    @classmethod
    def joined(cls, parts: Sequence[Submission]) -> Submission:
        """Codes and ids of several as one."""
        format_ = parts[0].codes.format
        stored = format_.concatenate([part.codes.stored for part in parts])
        return cls(format_.codes(stored), np.concatenate([part.ids for part in parts]))


class FullError(Exception):
    """The disk has no room, and nothing of a group was kept."""


class Accepted:
    """The file of accepted codes and keys, made when it is opened.

    What was confirmed to a sender is on the disk. One process may have it open: the caller holds
    the index's lock.

    Parameters
    ----------
    path : Path
        A symbolic link there, or at the files that SQLite keeps beside it, is refused.

    Raises
    ------
    InputError
        If the file cannot be written, or is damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        for ending in ("", "-wal", "-journal"):
            if os.path.islink(f"{path}{ending}"):  # SQLite would write through it
                raise StorageError(f"{path}{ending} is a symbolic link; move it away.")
        try:
            with suppress(FileExistsError):  # made here: SQLite would let other users read it
                os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | OWN_FILE, 0o600))
            sync_folder(path.parent)
        except OSError as error:
            raise StorageError(f"{path} cannot be written: {error.strerror}.") from None
        with self._reading():
            self._db = sqlite3.connect(
                f"{path.absolute().as_uri()}?mode=rw",
                uri=True,
                isolation_level=None,
                check_same_thread=False,  # made by one thread, then used by the collector's alone
            )
        try:
            with self._reading():
                # One process: no memory is shared, in which a full disk would end it by a signal.
                self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
                self._db.execute("PRAGMA journal_mode = WAL")
                self._db.execute("PRAGMA synchronous = FULL")  # a commit is one sync
                self._db.execute(f"PRAGMA wal_autocheckpoint = {_LOG_PAGES}")
                self._db.executescript(_TABLES)
        except BaseException:
            self.close()
            raise

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            raise StorageError(f"{self.path} cannot be written: {error}.") from None
        except sqlite3.DatabaseError:
            raise self._damaged() from None

    def _damaged(self) -> DamagedError:
        return DamagedError(
            f"{self.path} is damaged: it may hold accepted codes that are not in the index yet; "
            f"restore it from a copy, or move it away to go on without them."
        )

    def add(self, submissions: Sequence[Submission], known: Any) -> list[Acceptance]:
        """Keep what is new of a group; it is on the disk when this returns.

        Parameters
        ----------
        submissions : sequence of Submission
        known : container
            Of the ids that the index has.

        Raises
        ------
        FullError
            If the disk has no room: nothing was kept, and the same group may come again.
        sqlite3.Error
            If it is unknown what is on the disk: the file must be opened again.
        """
        outcomes: list[Acceptance] = []
        try:
            self._db.execute("BEGIN IMMEDIATE")
            for submission in submissions:
                outcomes.append(self._outcome(submission, known))
            self._db.execute("COMMIT")
        except sqlite3.OperationalError as error:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            if str(error) == _FULL:
                raise FullError from None
            raise
        return outcomes

    def _outcome(self, submission: Submission, known: Any) -> Acceptance:
        """Decide about one submission, in the transaction of its group."""
        receipt = submission.receipt
        if self._has("receipt", receipt):
            return "repeated"
        if self._has("key", submission.key):
            return "reused"
        ids = submission.ids.tolist()
        if any(id in known for id in ids):
            return "taken"
        self._db.execute("SAVEPOINT one")
        added = 0
        for row, id in enumerate(ids):
            # A container of one code, which has a hash: SQLite's pages have none.
            code = submission.codes.take(slice(row, row + 1)).to_bytes()
            cursor = self._db.execute(
                "INSERT INTO codes (id, code) VALUES (?, ?) ON CONFLICT DO NOTHING", (id, code)
            )
            added += cursor.rowcount
        if added < len(ids):
            self._db.execute("ROLLBACK TO one")
            return "taken"
        if receipt is not None:
            self._db.execute("INSERT INTO receipts VALUES (?, ?)", (receipt, submission.key))
        return "stored"

    def _has(self, column: Literal["receipt", "key"], value: bytes | None) -> bool:
        """Return whether a receipt or a key is there; NULL, as None is, equals nothing."""
        rows = self._db.execute(f"SELECT 1 FROM receipts WHERE {column} = ?", (value,))
        return rows.fetchone() is not None

    def codes(self) -> list[Submission]:
        """Codes that were accepted and not forgotten, one by one, as they came."""
        found = []
        with self._reading():
            rows = self._db.execute("SELECT id, code FROM codes ORDER BY place").fetchall()
        for id, code in rows:
            try:
                found.append(Submission(codes_from_bytes(code), np.array([id])))
            except DamagedError:
                raise self._damaged() from None
        return found

    def forget_codes(self) -> None:
        """Forget all codes: they are in the saved index. Keys stay."""
        with self._reading():
            self._db.execute("DELETE FROM codes")

    def close(self) -> None:
        """Close the file."""
        self._db.close()


_SAVE_SECONDS = 3600.0


class UnavailableError(Exception):
    """Nothing can be accepted now: too many wait, or codes cannot be written."""


_Waiting: TypeAlias = tuple[Submission, "Future[Acceptance]"]
"""A submission, and where its sender waits for the outcome."""


class Collector:
    """The one writer of an index, with the file of what it accepted.

    Use it as a context: its thread ends with the block, after everything that was accepted is in
    the index, and saved.

    Without room on the disk submissions are refused, and accepted again once there is room. Any
    other failure to write ends it for good, as nobody knows then what is on the disk.

    Parameters
    ----------
    index : PrivateIndex or PublishedIndex
        It is changed by nobody else.
    accepted : Path
        File of accepted codes and keys. Codes in it already are put into the index first.
    save : callable
        Makes durable what the index holds; afterwards the file forgets the codes.
    join_seconds : float
        Seconds until accepted codes join the search, about, [0, ∞).
    retry_seconds : float
        Seconds until an index is saved again after the disk was full, [0, ∞).
    max_waiting : int
        Submissions that may wait; more are refused.
    group_rows : int
        Most codes that are written, or join the search, together.

    Raises
    ------
    InputError
        If the file is damaged, or holds an id that the index has with another code; at the end of
        the block, if something could not be written.
    """

    def __init__(
        self,
        index: PrivateIndex | PublishedIndex,
        accepted: Path,
        save: Callable[[], object],
        *,
        join_seconds: float = 1.0,
        retry_seconds: float = 10.0,
        max_waiting: int = 1024,
        group_rows: int = 16384,
    ) -> None:
        self.index = index
        self._save = save
        self._join_seconds = join_seconds
        self._retry_seconds = retry_seconds
        self._group_rows = group_rows
        self._queue: queue.Queue[_Waiting | None] = queue.Queue(max_waiting)
        self._closed = False
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._work, name="collector")
        self._accepted = Accepted(accepted)
        self._new: list[Submission] = []  # accepted, and not in the index yet
        self._unsaved = 0
        self._has_room = True
        self._retry_at = 0.0
        self._saved_at = self._joined_at = time.monotonic()
        try:
            self._recover()
        except BaseException:
            self._accepted.close()
            raise

    def __enter__(self) -> Collector:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed = True
        self._queue.put(None)
        self._thread.join()
        self._accepted.close()
        if self._failure is not None:
            raise InputError(
                f"{self._accepted.path} or the index could not be written, and nothing was "
                f"accepted since; what was accepted before is there, and the next start saves it."
            ) from self._failure

    @property
    def accepts(self) -> bool:
        """Whether submissions are accepted; False for good once a write has failed."""
        return self._thread.is_alive() and not self._closed

    @property
    def has_room(self) -> bool:
        """Whether the last write found room on the disk."""
        return self._has_room

    def submit(self, submission: Submission) -> Future[Acceptance]:
        """Hand over a submission; its outcome comes when it is durable.

        The outcome is "stored"; "repeated" if a submission with this receipt was stored before;
        "reused" if another one had its key, and "taken" if one of its ids belongs to another one:
        nothing of it is stored then.

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
        found = self._accepted.codes()
        new = []
        for one in found:
            (id,) = one.ids.tolist()
            if id not in self.index:
                new.append(one)
            elif not np.array_equal(self.index[id].stored, one.codes.stored):
                raise InputError(
                    f"{self._accepted.path} holds a code that was accepted under an id which "
                    f"somebody has added to the index since, with another code; remove that id "
                    f"from the index ({id!r}), or move the file away."
                )
        if new:
            joined = Submission.joined(new)
            self.index.add_codes(joined.codes, joined.ids)
        if found:
            self._save()
            self._accepted.forget_codes()

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
        wait = None
        if self._new or self._unsaved:
            wait = self._join_seconds
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
        submissions = [submission for submission, _ in group]
        try:
            outcomes = self._accepted.add(submissions, self.index)
        except FullError:
            self._has_room = False
            for _, future in group:
                future.set_exception(UnavailableError())
            return
        except BaseException:  # nothing is accepted any more, so that nothing is taken back
            for _, future in group:
                future.set_exception(UnavailableError())
            raise
        self._has_room = True
        for (submission, future), outcome in zip(group, outcomes, strict=True):
            if outcome == "stored":
                self._new.append(submission)
            future.set_result(outcome)

    def _tend(self) -> None:
        """Put accepted codes into the index, and save it, if it is time."""
        now = time.monotonic()
        rows = sum(len(one.ids) for one in self._new)
        is_due = now - self._joined_at >= self._join_seconds
        if rows >= self._group_rows or (rows and is_due):
            self._join()
        full = self._unsaved >= rows_per_segment(self.index.spec)
        is_due = full or (self._unsaved > 0 and now - self._saved_at >= _SAVE_SECONDS)
        if is_due and now >= self._retry_at:
            try:
                self._save_all()
            except StorageError:  # what was accepted is safe where it is, until there is room
                self._has_room = False
                self._retry_at = now + self._retry_seconds

    def _join(self) -> None:
        """Put accepted codes into the index, where searches find them."""
        if self._new:
            joined = Submission.joined(self._new)
            self.index.add_codes(joined.codes, joined.ids)
            self._unsaved += len(joined.ids)
            self._new = []
        self._joined_at = time.monotonic()

    def _save_all(self) -> None:
        self._join()
        if self._unsaved:
            self._save()
            self._accepted.forget_codes()
            self._unsaved = 0
        self._saved_at = time.monotonic()

    def _refuse_waiting(self) -> None:
        """Answer what is left in the queue: it was not stored."""
        with suppress(queue.Empty):
            while True:
                item = self._queue.get_nowait()
                if item is not None and item[1].set_running_or_notify_cancel():
                    item[1].set_exception(UnavailableError())
