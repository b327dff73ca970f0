"""Acceptors: one thread writes what is submitted, and answers when it is on the disk.

All submissions that wait are written together, so many share one fsync.
"""

from __future__ import annotations

import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

from dpindex.base.arrays import AnyArray
from dpindex.base.errors import InputError
from dpindex.index.hits import Hits
from dpindex.mechanism.codes import Codes
from dpindex.mechanism.spec import Spec
from dpindex.similarity.similarity import Metric
from dpindex.storage.shuffled_file import Shuffle

__all__ = ["Acceptor", "Outcome", "Searcher", "Submission", "UnavailableError"]

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
