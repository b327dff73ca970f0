"""The collector: codes are accepted durably and put into a searcher; one thread writes.

A submission is answered when it is in the log on disk (:mod:`dpindex.serve.accepted_log`). All
submissions that wait are written together, so many share one fsync, and no cost of accepting grows
with the index. Accepted codes join the search within about a second, and are saved with the index
from time to time; then the log begins anew.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, Protocol

import numpy as np

from dpindex.base.arrays import AnyArray
from dpindex.base.errors import InputError
from dpindex.index.hits import Hits
from dpindex.mechanism.codes import Codes
from dpindex.mechanism.spec import Spec
from dpindex.serve.accepted_log import AcceptedLog, Batch
from dpindex.similarity.similarity import Metric
from dpindex.storage.code_store import rows_per_segment

Outcome = Literal["stored", "repeated", "taken"]

_WAITING_SUBMISSIONS = 1024
_GROUP_ROWS = 16384
_JOIN_SECONDS = 1.0
_SAVE_SECONDS = 3600.0
_RECEIPTS = 1 << 17


class UnavailableError(Exception):
    """Nothing can be accepted now: too many wait, or the log cannot be written."""


class Searcher(Protocol):
    """What searches the codes: a :class:`~dpindex.PrivateIndex`, or another one like it."""

    @property
    def spec(self) -> Spec:
        """What all codes are made under."""

    @property
    def query_spec(self) -> Spec:
        """What private queries are made under."""

    @property
    def metric(self) -> Metric:
        """What neighbours are ranked by."""

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


@dataclass(frozen=True, eq=False)
class Submission:
    """Checked codes under checked ids, and who waits for the outcome.

    Attributes
    ----------
    codes : Codes
        Of the searcher's spec.
    ids : array, shape (n,)
        Unique.
    receipt : bytes, optional
        32 bytes that a repeated submission has again, and that nobody else can know.
    """

    codes: Codes
    ids: AnyArray
    receipt: bytes | None = None
    outcome: Future[Outcome] = field(default_factory=Future)


class Collector:
    """The one writer of a searcher, with its log of accepted codes.

    Use it as a context: the thread that writes ends with the block, after everything that was
    accepted has been saved.

    Parameters
    ----------
    searcher : Searcher
        It is changed by nobody else.
    log : Path
        File of the log. What it holds already is put into the searcher first.
    save : callable
        Makes durable what the searcher holds; afterwards the log begins anew.

    Raises
    ------
    InputError
        If the log is damaged, or holds an id that the searcher has with another code; at the end of
        the block, if something could not be written.
    """

    def __init__(self, searcher: Searcher, log: Path, save: Callable[[], object]) -> None:
        self.searcher: Final = searcher
        self._save = save
        self._log = AcceptedLog(log)
        self._receipts: dict[bytes, None] = {}
        self._accepted: list[Batch] = []
        self._accepted_ids: set[Any] = set()
        self._unsaved = 0
        self._saved_at = self._joined_at = time.monotonic()
        self._queue: queue.Queue[Submission | None] = queue.Queue(_WAITING_SUBMISSIONS)
        self._closed = False
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._work, name="collector")
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

    def _recover(self) -> None:
        """Put into the searcher what was accepted before; what it has already was saved."""
        for batch in self._log.recovered:
            known = np.array([id in self.searcher for id in batch.ids.tolist()], bool)
            for row in np.flatnonzero(known):
                saved = self.searcher[batch.ids[row].item()]
                if not np.array_equal(saved.stored, batch.codes.stored[row : row + 1]):
                    raise InputError(
                        f"{self._log.path} holds a code that was accepted under an id which "
                        f"somebody has added to the index since, with another code; remove that id "
                        f"from the index ({batch.ids[row].item()!r}), or move the log away."
                    )
            new = np.flatnonzero(~known)
            if len(new):
                self.searcher.add_codes(batch.codes.take(new), batch.ids[new])
            self._remember(batch.receipts)
        if self._log.bytes:
            self._save()
            self._log.clear()

    def _work(self) -> None:
        """Until it is closed: take what waits, store it, answer."""
        try:
            going = True
            while going:
                going = self._store(*self._group())
                self._join_if_due()
            self._save_all()
        except Exception as error:  # whoever leaves the block is told
            self._failure = error
        finally:
            self._closed = True
            self._refuse_waiting()

    def _group(self) -> tuple[list[Submission], bool]:
        """The submissions that wait, and whether more may follow; waits for the first."""
        found: list[Submission] = []
        rows = 0
        idle = not self._accepted and not self._unsaved
        try:
            item = self._queue.get(timeout=None if idle else _JOIN_SECONDS)
            while item is not None:
                if item.outcome.set_running_or_notify_cancel():  # its sender still waits
                    found.append(item)
                    rows += len(item.ids)
                if rows >= _GROUP_ROWS:
                    return found, True
                item = self._queue.get_nowait()
        except queue.Empty:
            return found, True
        return found, False

    def _store(self, group: list[Submission], going: bool) -> bool:
        """Write what is new of a group with one fsync, then answer each; returns ``going``."""
        if not group:
            return going
        new: list[Submission] = []
        outcomes: list[Outcome] = []
        ids: set[Any] = set()
        receipts: set[bytes] = set()
        try:
            for one in group:
                names = one.ids.tolist()
                if one.receipt is not None and (
                    one.receipt in self._receipts or one.receipt in receipts
                ):
                    outcomes.append("repeated")
                elif any(self._is_taken(id) or id in ids for id in names):
                    outcomes.append("taken")
                else:
                    outcomes.append("stored")
                    new.append(one)
                    ids.update(names)
                    receipts.update(() if one.receipt is None else (one.receipt,))
            if new:
                batch = _batch(new)
                self._log.append(batch)
                self._accepted.append(batch)
                self._accepted_ids |= ids
                self._remember(batch.receipts)
        except BaseException:
            for one in group:
                one.outcome.set_exception(UnavailableError())
            raise
        for one, outcome in zip(group, outcomes, strict=True):
            one.outcome.set_result(outcome)
        return going

    def _is_taken(self, id: Any) -> bool:
        return id in self._accepted_ids or id in self.searcher

    def _remember(self, receipts: Iterable[bytes]) -> None:
        """Know these receipts again; the oldest of very many are forgotten."""
        self._receipts.update(dict.fromkeys(receipts))
        while len(self._receipts) > _RECEIPTS:
            del self._receipts[next(iter(self._receipts))]

    def _join_if_due(self) -> None:
        """Put accepted codes into the searcher, and save it, if it is time."""
        now = time.monotonic()
        rows = len(self._accepted_ids)
        if rows and (now - self._joined_at >= _JOIN_SECONDS or rows >= _GROUP_ROWS):
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

    def _refuse_waiting(self) -> None:
        """Answer what is left in the queue: it was not stored."""
        while True:
            try:
                one = self._queue.get_nowait()
            except queue.Empty:
                return
            if one is not None and one.outcome.set_running_or_notify_cancel():
                one.outcome.set_exception(UnavailableError())


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
