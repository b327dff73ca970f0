"""The collector: codes are accepted durably and put into a searcher; one thread writes.

A submission is answered when it is in the log on disk (:mod:`dpindex.serve.accepted_log`). No cost
of accepting grows with the index. Accepted codes join the search within about a second, and are
saved with the index from time to time; then the log begins anew.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from dpindex.base.arrays import AnyArray
from dpindex.base.errors import InputError
from dpindex.mechanism.codes import Codes
from dpindex.serve.accepted_log import AcceptedLog, Batch
from dpindex.serve.acceptor import Acceptor, Searcher, Submission
from dpindex.storage.code_store import rows_per_segment

_SAVE_SECONDS = 3600.0


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
