"""The collector: codes are accepted durably and put into an index; one thread writes.

A submission is answered when it is on disk, and all that wait share one sync. Accepted codes join
the search within about a second, and are saved with the index from time to time; then they are
forgotten here. HTTP is in :mod:`dpindex.integrations.server`.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

import numpy as np

from dpindex.base.errors import InputError, StorageError
from dpindex.index.private_index import PrivateIndex
from dpindex.integrations.accepted import Acceptance, Accepted, FullError, Submission
from dpindex.integrations.published import PublishedIndex
from dpindex.storage.code_store import rows_per_segment

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
