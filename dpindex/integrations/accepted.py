"""What a collector accepted: codes until they are in the saved index, and keys as long as it.

One SQLite file. A group of submissions is one transaction and one sync. It decides who was first,
too: an id, or the key of a submission, is there once.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from dpindex.base.arrays import AnyArray
from dpindex.base.errors import DamagedError, StorageError
from dpindex.base.files import OWN_FILE, sync_folder
from dpindex.mechanism.codes import Codes, codes_from_bytes

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
