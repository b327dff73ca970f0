"""The one path on which vectors are released: check, begin, draw, record what is drawn, publish.

1. *Check*: every vector is read and checked, and tagged under a key. A fault costs no budget.
2. *Begin*: the mark of the release is created in a private journal, then the ledger is told of
   every id under the token of the mark. No noise is drawn before that.
3. *Draw*: an engine draws the segments, as often as it likes. The driver keeps each once.
4. *Drawn*: the hash of all codes is recorded, in the journal and in the ledger. Nothing is drawn
   under this token from then on: what is missing was published or removed.
5. *Publish*: the target publishes what was drawn, in one step that can be repeated.

One driver at a time leads a release: it holds the lock of the journal from before the check to the
end. Whoever runs the same release again after a crash goes on with it: nothing is drawn twice
visibly, and nothing is charged twice. Nothing at a target but codes is a function of vectors.
"""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

import numpy as np

from dpindex.base.arrays import AnyArray, row_blocks
from dpindex.base.display import Progress, no_progress
from dpindex.base.errors import (
    DamagedError,
    InputError,
    StorageError,
    naming,
)
from dpindex.data.dataset import Dataset
from dpindex.mechanism.codes import Codes, codes_from_bytes
from dpindex.mechanism.spec import Spec
from dpindex.storage.code_store import rows_per_segment
from dpindex.storage.history import History, Terms, warn_of_clipping
from dpindex.storage.ids import StoredIds
from dpindex.storage.journal import Journal, unpublished_path
from dpindex.storage.leak_check import LeakCheck, LeakEvidence, refuse_leaks
from dpindex.storage.manifest import FileMark, file_path, put_files
from dpindex.storage.shards import (
    Attempt,
    Checked,
    CodeCheck,
    CodeDraw,
    Engine,
    Segment,
    Shard,
    shards_of,
    without_found,
)

if TYPE_CHECKING:  # devices keep no ledger
    from dpindex.accounting.ledger import Released

_MAX_HEADER_BYTES = 1 << 16
IDS_AT_ONCE = 1 << 22

Files: TypeAlias = Mapping[str, FileMark]
"""Files of a segment by their paths; none where segments are not kept by themselves."""

Published = TypeVar("Published")


def _spent(journal: Journal) -> InputError:
    return InputError(
        f"this release is complete, but its codes are gone from {journal.target}: they were moved "
        f"or removed. Releasing the same vectors again costs their epsilon once more: allow that "
        f"with a ledger, or remove {journal.folder.path} if there is none.",
        field="allow_rerelease",
    )


@dataclass(frozen=True)
class Drawn:
    """A release of which everything is drawn.

    Attributes
    ----------
    segments : sequence of Segment
        All of them, in the order of rows.
    files : Files
        What the journal has of them.
    rows : int
        Vectors that this attempt drew; an earlier one may have drawn others.
    history : History
        By what these vectors are known again.
    """

    segments: Sequence[Segment]
    files: Files
    rows: int
    history: History


class Target(ABC, Generic[Published]):
    """Where a release goes. A new kind says where its journal is and how it is published.

    Attributes
    ----------
    spec : Spec or SketchSpec
        What is released.
    path : Path, optional
        The file or folder that is made or grows, in which no ledger may lie; None in a store.
    """

    spec: Released
    path: Path | None = None

    @property
    def facts(self) -> dict[str, Any]:
        """Options that a resumed release must share, as plain JSON values by name."""
        return {"spec": self.spec.to_json()}

    def leak_check(self, rows: int) -> LeakCheck | None:
        """Return what compares ``rows`` vectors with the public part; None if there is none."""
        return None

    def check(self, dataset: Dataset) -> None:
        """Refuse what cannot be released here, before any vector is read."""
        if dataset.columns != self.spec.dim:
            raise InputError(
                f"{dataset.name} has {dataset.columns} columns where the spec says {self.spec.dim}."
            )
        if self.spec.ranges is not None:
            self.spec.ranges.check_order(dataset.attributes, dataset.name)

    def segment_rows(self, dataset: Dataset) -> int:
        """Return how many rows are drawn together."""
        return dataset.rows_at_a_time

    def journal(self) -> Journal:
        """Return the journal, which nobody holds yet: beside the path."""
        assert self.path is not None
        return Journal(unpublished_path(self.path), str(self.path))

    def refuse_taken(self, journal: Journal) -> None:
        """Refuse a target that is there, unless its release is unfinished."""
        if not journal.begun and self.path is not None and os.path.lexists(self.path):
            raise InputError(f"{self.path} already exists; choose another name.")

    @abstractmethod
    def checking(self, key: bytes, leak_check: LeakCheck | None) -> Callable[[Shard], Checked]:
        """Return what checks a shard."""

    @abstractmethod
    def drawing(self, key: bytes, threads: int | None) -> Callable[[Shard], Attempt]:
        """Return what draws a shard whose content was tagged under a key."""

    @abstractmethod
    def found(self, journal: Journal, segments: Sequence[Segment]) -> dict[str, Files]:
        """Return what the journal has of segments by their numbers, as far as they are drawn."""

    @abstractmethod
    def digest(self, journal: Journal, drawn: Drawn) -> str:
        """End the drawing; return the SHA-256 of all that was drawn, in hex."""

    @abstractmethod
    def publish(self, journal: Journal, drawn: Drawn) -> Published:
        """Publish what was drawn, in one step that can be repeated, and end the journal."""


class CodeTarget(Target[Published]):
    """A target of codes.

    Attributes
    ----------
    with_labels : bool
        Whether ids and payload are published with the codes.
    tagging : bool
        Whether the vectors are to be known again, by tags.
    """

    spec: Spec
    with_labels = True
    tagging = False

    def segment_rows(self, dataset: Dataset) -> int:
        return min(rows_per_segment(self.spec), super().segment_rows(dataset))

    def leak_check(self, rows: int) -> LeakCheck | None:
        return LeakCheck.of(self.spec, rows)

    def checking(self, key: bytes, leak_check: LeakCheck | None) -> Callable[[Shard], Checked]:
        history = None
        if self.tagging:
            history = History(key)
        return CodeCheck(self.spec, key, leak_check, history)

    def drawing(self, key: bytes, threads: int | None) -> Callable[[Shard], Attempt]:
        return CodeDraw(self.spec, key, self.with_labels, threads)

    def codes(self, journal: Journal, segments: Iterable[Segment]) -> Codes:
        """Return the codes of segments that were drawn, one below the other.

        Raises
        ------
        DamagedError
            If some were removed or changed.
        """
        format_ = self.spec.format
        stored = []
        for segment in segments:
            max_bytes = segment.rows * format_.max_row_bytes + _MAX_HEADER_BYTES
            data = journal.get(file_path("codes", segment.number), max_bytes)
            if data is None:
                raise DamagedError(
                    f"the staged segment {segment.number} was removed; run it again."
                )
            codes = codes_from_bytes(data)
            if codes.fingerprint != format_.fingerprint or len(codes) != segment.rows:
                raise DamagedError(
                    f"the staged segment {segment.number} is not of this release; it was changed."
                )
            stored.append(codes.stored)
        return format_.codes(format_.concatenate(stored))

    def found(self, journal: Journal, segments: Sequence[Segment]) -> dict[str, Files]:
        found: dict[str, Files] = {}
        for segment in segments:
            files = {}
            for kind in ("codes", "ids", "payload"):
                path = file_path(kind, segment.number)
                data = journal.get(path)
                if data is not None:
                    files[path] = FileMark.of(data)
            if file_path("codes", segment.number) in files:  # it came last
                self.codes(journal, [segment])  # refuses others than were drawn
                found[segment.number] = files
        return found

    def digest(self, journal: Journal, drawn: Drawn) -> str:
        paths = [file_path("codes", segment.number) for segment in drawn.segments]
        hashes = "".join(drawn.files[path].sha256 for path in paths)
        return hashlib.sha256(hashes.encode()).hexdigest()


@dataclass(frozen=True)
class Outcome(Generic[Published]):
    """The outcome of a release.

    Attributes
    ----------
    rows : int
        Vectors in all.
    drawn : int
        Vectors that this call privatized.
    clipped : float
        Share of the values that lay outside the bounds and were clipped, [0, 1].
    published : object
        What the target gives.
    """

    rows: int
    drawn: int
    clipped: float
    published: Published


def release(
    dataset: Dataset,
    target: Target[Published],
    terms: Terms | None = None,
    *,
    engine: Engine = map,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Outcome[Published]:
    """Release a dataset into a target, or go on with the same release.

    Parameters
    ----------
    dataset : Dataset
    target : Target
    terms : Terms, optional
    engine : callable
        Runs the shards; default one after the other in this process.
    threads : int, optional
        Threads of one task; default all cores.
    progress : callable, optional
        Called with the rows that are done, all rows, and "checking" or "privatizing".

    Raises
    ------
    BusyError
        If another driver leads the release into this target.
    InputError
        For bad vectors, ids or payload, ids that the ledger knows, a codebook that holds private
        vectors, codes that were published already, and what the target refuses. A fault in the
        last vector costs no budget.
    """
    progress = progress or no_progress
    return ReleaseRun(dataset, target, terms or Terms(), engine, threads, progress).release()


@dataclass(frozen=True)
class ReleaseRun(Generic[Published]):
    """One attempt at a release."""

    dataset: Dataset
    target: Target[Published]
    terms: Terms
    engine: Engine
    threads: int | None
    progress: Progress

    def release(self) -> Outcome[Published]:
        """Check, begin, draw, record what is drawn, and publish, under the lock of the journal."""
        target = self.target
        ledger = self.terms.ledger
        target.check(self.dataset)
        if ledger is not None and target.path is not None:
            ledger.refuse_inside(target.path)
        shards = shards_of(self.dataset, target.segment_rows(self.dataset))
        with naming(f"the ids of {self.dataset.name}"):
            ids = _unique_ids(shards)
        journal = target.journal()
        with journal.held():
            target.refuse_taken(journal)
            if not journal.begun:
                # Before the vectors are read: ids that are known cost no time.
                self._refuse_known(ids)
            shards, history, clipped = self._check(journal, shards)
            found = self._begin(journal, shards, ids)
            if ledger is not None:
                history = history.with_ledger(ledger)
            # The ledger was told: should anything fail from here on, epsilon counts as spent.
            drawn = self.draw(journal, shards, found, history)
            digest = target.digest(journal, drawn)
            # From here on nothing is drawn under this token. The journal tells whoever goes on;
            # the ledger remembers it where the journal is an older copy of itself.
            journal.drawn(digest)
            if ledger is not None:
                ledger.record_drawn(journal.token, digest)
            published = target.publish(journal, drawn)
        warn_of_clipping(clipped)
        return Outcome(self.dataset.rows, drawn.rows, clipped, published)

    def _check(
        self,
        journal: Journal,
        shards: list[Shard],
    ) -> tuple[list[Shard], History, float]:
        """Check every vector; return the shards with their tags, those of the vectors by themselves
        if they are wanted, and the share that is clipped.
        """
        leak_check = None
        if not self.terms.skip_leak_check:
            leak_check = self.target.leak_check(self.dataset.rows)
        check = self.target.checking(journal.key, leak_check)
        checked: dict[int, Checked] = {}
        rows = {shard.first_row: shard.part.rows for shard in shards}
        total = self.dataset.rows
        done = 0
        self.progress(done, total, "checking")
        for result in self.engine(check, shards):
            checked[result.first_row] = result
            done += rows.pop(result.first_row, 0)  # the same shard may come again
            self.progress(done, total, "checking")
        if rows:
            raise InputError(f"the engine gave nothing for rows from {min(rows)} on; run it again.")
        results = [checked[shard.first_row] for shard in shards]
        if leak_check is not None:
            leaks = chain.from_iterable(result.leaks for result in results)
            refuse_leaks(leak_check.part, LeakEvidence.joined(leaks))
        tagged = [
            replace(shard, segments=result.segments)
            for shard, result in zip(shards, results, strict=True)
        ]
        of_rows = [result.rows for result in results if result.rows is not None]
        history = History(journal.key)
        if of_rows:
            history = history.with_rows(np.concatenate(of_rows))
        clipped = sum(result.clipped for result in results)
        return tagged, history, clipped / total

    def _begin(
        self,
        journal: Journal,
        shards: list[Shard],
        ids: StoredIds | None,
    ) -> dict[str, Files]:
        """Begin the release, or go on with it; return the files of segments that it has drawn.

        Its token is known to the ledger then. What is missing may be drawn, as it never is after
        all was recorded as drawn: such a token is spent.
        """
        ledger = self.terms.ledger
        segments = [segment for shard in shards for segment in shard.segments]
        tags = b"".join(segment.tag for segment in segments)
        facts = {
            **self.target.facts,
            "number of rows": self.dataset.rows,
            "ledger": ledger is not None,
            "vectors, ids or payload": hashlib.sha256(tags).hexdigest(),
        }
        if journal.begun:
            journal.refuse_other(facts)
            self.tell_ledger(journal.token, ids)
            found = self.target.found(journal, segments)
            digest = journal.digest()
            if digest is None and ledger is not None:
                digest = ledger.digest_of(journal.token)
            if digest is None or len(found) == len(segments):
                return found
            if not self.terms.allow_rerelease:
                raise _spent(journal)
            journal.end()  # this token is spent; the ledger is told of a new one
        journal.begin(facts)
        try:
            self.tell_ledger(journal.token, ids)
        except StorageError:
            raise  # it may have been told: whoever goes on tells it again, under the same token
        except InputError:
            journal.end()  # nothing was drawn
            raise
        return {}

    def draw(
        self,
        journal: Journal,
        shards: list[Shard],
        found: dict[str, Files],
        history: History,
    ) -> Drawn:
        """Draw what was not found in the journal, and keep it there; return all that is drawn."""
        segments = [segment for shard in shards for segment in shard.segments]
        rows = {segment.number: segment.rows for segment in segments}
        files = dict(found)
        draw = self.target.drawing(journal.key, self.threads)
        # An engine gets every shard, though nothing of it be left to do: it may know their number.
        left = [without_found(shard, found) for shard in shards]
        total = self.dataset.rows
        before = sum(rows[number] for number in found)
        done = before
        self.progress(0, total, "privatizing")
        for attempt in self.engine(draw, left):
            for number, made in attempt.items():
                if number not in files:  # else another attempt was first: this one is discarded
                    files[number] = put_files(journal.put, made)
                    done += rows[number]
            self.progress(done, total, "privatizing")
        missing = sorted(rows.keys() - files.keys())
        if missing:
            raise InputError(f"the engine gave nothing for segment {missing[0]}; run it again.")
        marks: dict[str, FileMark] = {}
        for number in rows:
            marks.update(files[number])
        return Drawn(segments, marks, total - before, history)

    def _refuse_known(self, ids: StoredIds | None) -> None:
        ledger = self.terms.ledger
        if ledger is not None:
            for batch in _batches(ids):
                ledger.check(batch, allow_rerelease=self.terms.allow_rerelease)

    def tell_ledger(self, token: str, ids: StoredIds | None) -> None:
        """Tell the ledger of every id, durably; what it knows by this token it counts once."""
        ledger = self.terms.ledger
        if ledger is not None:
            for batch in _batches(ids):
                ledger.record(
                    self.target.spec,
                    batch,
                    allow_rerelease=self.terms.allow_rerelease,
                    token=token,
                )


def _unique_ids(shards: list[Shard]) -> StoredIds | None:
    """Return the ids of all shards, None if one has none; refuse one that is given twice."""
    blocks = [shard.ids for shard in shards if shard.ids is not None]
    if len(blocks) < len(shards):
        return None
    return StoredIds(blocks)


def _batches(ids: StoredIds | None) -> Iterator[AnyArray | None]:
    """Yield all ids, as many at a time as the ledger is told at once; None for none."""
    if ids is None:
        yield None
        return
    for rows in row_blocks(len(ids), IDS_AT_ONCE):
        yield ids[rows]
