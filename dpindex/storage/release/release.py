"""The protocol of a release, the same for every target and every engine."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic

import numpy as np

from dpindex.base.arrays import AnyArray, row_blocks
from dpindex.base.display import Progress, no_progress
from dpindex.base.errors import DamagedError, InputError
from dpindex.data.dataset import Dataset
from dpindex.storage.leak_check import LeakCheck, LeakEvidence, refuse_leaks
from dpindex.storage.manifest import segment_number
from dpindex.storage.release.engine import Engine, one_by_one
from dpindex.storage.release.target import Drawn, Published, Space, Target
from dpindex.storage.release.work import Receipt, Segment, Shard
from dpindex.storage.release.workspace import ReleaseMark

if TYPE_CHECKING:  # devices keep no ledger
    from dpindex.accounting.ledger import Ledger

__all__ = ["Outcome", "Terms", "release"]


@dataclass(frozen=True)
class Terms:
    """Terms of a release, which the holder of the vectors sets.

    Parameters
    ----------
    ledger : Ledger, optional
        Where the release of every id is written down before its noise is drawn.
    allow_rerelease : bool
        Allow ids that the ledger knows, at the price of one more epsilon each.
    skip_leak_check : bool
        Accept a codebook made of the vectors: see :mod:`dpindex.storage.leak_check`.
    ids_at_once : int
        How many ids the ledger is told in one step, if one part does not hold more.

    Raises
    ------
    InputError
        For ``allow_rerelease`` without a ledger.
    """

    ledger: Ledger | None = None
    allow_rerelease: bool = False
    skip_leak_check: bool = False
    ids_at_once: int = 1 << 22

    def __post_init__(self) -> None:
        if self.ledger is None and self.allow_rerelease:
            raise InputError(
                "a release is repeated only where a ledger counts it; name the ledger.",
                field="ledger",
            )


@dataclass(frozen=True)
class Outcome(Generic[Published]):
    """The outcome of a release.

    Attributes
    ----------
    rows : int
        Vectors in all.
    drawn : int
        Vectors that this call privatized.
    published : object
        What the target gives.
    """

    rows: int
    drawn: int
    published: Published


def release(
    dataset: Dataset,
    target: Target[Space, Published],
    terms: Terms | None = None,
    *,
    engine: Engine = one_by_one,
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
    InputError
        For bad vectors, ids or payload, ids that the ledger knows, a codebook that holds private
        vectors, and what the target refuses. A fault in the last vector costs no budget.
    """
    run = _Run(dataset, target, terms or Terms(), engine, progress or no_progress)
    return run.release(threads)


class _Run(Generic[Space, Published]):
    """One attempt at a release."""

    def __init__(
        self,
        dataset: Dataset,
        target: Target[Space, Published],
        terms: Terms,
        engine: Engine,
        progress: Progress,
    ) -> None:
        self._dataset = dataset
        self._target = target
        self._terms = terms
        self._engine = engine
        self._progress = progress
        self._ids = _ReleasedIds(dataset, terms.ids_at_once)

    def release(self, threads: int | None) -> Outcome[Published]:
        target = self._target
        ledger = self._terms.ledger
        target.check(self._dataset)
        if ledger is not None and target.path is not None:
            ledger.refuse_inside(target.path)
        self._ids.refuse_duplicates()
        space = target.workspace(ledger)
        if space.is_new:
            self._refuse_known_ids()
        shards = self._checked(_shards(self._dataset, target.segment_rows(self._dataset)), space)
        token = self._begun(shards, space)
        receipts = self._drawn(shards, target.drawing(space, token, threads))
        drawn = Drawn(shards, receipts, self._engine)
        published = target.commit(space, token, drawn)
        return Outcome(drawn.rows, sum(receipt.drawn for receipt in receipts), published)

    def _checked(self, shards: list[Shard], space: Space) -> list[Shard]:
        """Check every vector; return the shards in order, with their tags."""
        codebook = self._target.codebook
        leak_check = None
        if codebook is not None and not self._terms.skip_leak_check:
            leak_check = LeakCheck(codebook, self._dataset.rows)
        check = self._target.checking(space.content, leak_check)
        tags: dict[int, tuple[bytes, ...]] = {}
        leaks: list[LeakEvidence] = []
        rows_left = {shard.first_row: shard.part.rows for shard in shards}
        self._progress(0, self._dataset.rows, "checking")
        for result in self._engine(check, shards):
            tags[result.first_row] = result.tags
            if result.leaks is not None:
                leaks.append(result.leaks)
            rows_left.pop(result.first_row, None)
            done = self._dataset.rows - sum(rows_left.values())
            self._progress(done, self._dataset.rows, "checking")
        if leak_check is not None:
            refuse_leaks(leak_check.codebook, LeakEvidence.joined(leaks))
        return [shard.with_tags(tags[shard.first_row]) for shard in shards]

    def _begun(self, shards: list[Shard], space: Space) -> str:
        """Begin the release, or go on with it; return its token, which the ledger knows then."""
        segments = [segment for shard in shards for segment in shard.segments]
        facts = {
            **self._target.facts,
            "number of rows": self._dataset.rows,
            "ledger": self._terms.ledger is not None,
        }
        mark = ReleaseMark(facts, b"".join(segment.tag for segment in segments))
        begun = space.find(mark)
        if begun is not None:
            self._book(begun.token)
            return begun.token
        self._refuse_known_ids()
        space.begin(mark)
        try:
            self._book(mark.token)
        except InputError:
            space.end()  # nothing was drawn
            raise
        return mark.token

    def _drawn(self, shards: list[Shard], draw: Callable[[Shard], list[Receipt]]) -> list[Receipt]:
        receipts: dict[str, Receipt] = {}
        drawn: dict[str, int] = {}
        self._progress(0, self._dataset.rows, "privatizing")
        segments = [segment for shard in shards for segment in shard.segments]
        rows = {segment.number: segment.rows for segment in segments}
        for results in self._engine(draw, shards):
            for receipt in results:
                _refuse_contradiction(receipts.setdefault(receipt.number, receipt), receipt)
                drawn[receipt.number] = drawn.get(receipt.number, 0) + receipt.drawn
            done = sum(rows[number] for number in receipts)
            self._progress(done, self._dataset.rows, "privatizing")
        missing = [number for number in rows if number not in receipts]
        if missing:
            raise InputError(f"the engine gave no receipt for segment {missing[0]}; run it again.")
        return [Receipt(number, receipts[number].files, drawn[number]) for number in rows]

    def _refuse_known_ids(self) -> None:
        ledger = self._terms.ledger
        if ledger is not None:
            for ids in self._ids.batches():
                ledger.check(ids, allow_rerelease=self._terms.allow_rerelease)

    def _book(self, token: str) -> None:
        """Tell the ledger of every id, durably; a token that it knows is not counted again."""
        ledger = self._terms.ledger
        if ledger is None:
            return
        allowed = self._terms.allow_rerelease
        for number, ids in enumerate(self._ids.batches()):
            ledger.record(
                self._target.spec, ids, allow_rerelease=allowed, token=f"{token}/{number}"
            )


def _refuse_contradiction(first: Receipt, second: Receipt) -> None:
    if dict(first.files) != dict(second.files):
        raise DamagedError(f"segment {first.number} was changed after it was staged.")


def _shards(dataset: Dataset, segment_rows: int) -> list[Shard]:
    """Cut a dataset into segments, whose numbers they keep for ever."""
    shards = []
    first_row = 0
    number = 0
    for part in dataset.parts:
        segments = []
        for rows in row_blocks(part.rows, segment_rows):
            count = rows.stop - rows.start
            segments.append(Segment(segment_number(number), rows.start, count))
            number += 1
        shards.append(Shard(part, first_row, tuple(segments)))
        first_row += part.rows
    return shards


@dataclass
class _ReleasedIds:
    """The ids of a dataset, read a part at a time."""

    dataset: Dataset
    at_once: int

    def batches(self) -> Iterator[AnyArray | None]:
        """Yield all ids, at most ``at_once`` or those of one part; None if there are none."""
        batch: list[AnyArray] = []
        for part in self.dataset.parts:
            ids = part.ids()
            if ids is None:
                yield None
                return
            if batch and sum(map(len, batch)) + len(ids) > self.at_once:
                yield np.concatenate(batch)
                batch = []
            batch.append(ids)
        yield np.concatenate(batch)

    def refuse_duplicates(self) -> None:
        """Refuse an id that is given twice; this takes 16 bytes an id."""
        digests: list[bytes] = []
        kind = ""
        for part in self.dataset.parts:
            ids = part.ids()
            if ids is None:
                return
            if len(ids) != part.rows:
                raise InputError(f"{part.name} has {len(ids)} ids for {part.rows} vectors.")
            if kind not in ("", ids.dtype.kind):
                raise InputError(f"{part.name} has ids of another type than the parts before it.")
            kind = ids.dtype.kind
            digests.append(_digests(ids))
        halves = np.frombuffer(b"".join(digests), np.int64).reshape(-1, 2)
        order = np.lexsort((halves[:, 1], halves[:, 0]))  # stable
        sorted_halves = halves[order]
        same = (sorted_halves[1:] == sorted_halves[:-1]).all(axis=1)
        if same.any():
            place = int(np.argmax(same))
            first = int(order[place])
            second = int(order[place + 1])
            raise InputError(
                f"rows {first} and {second} have the same id; ids must be unique in all files."
            )


def _digests(ids: AnyArray) -> bytes:
    """Return 16 bytes for each id, different for different ids."""
    if ids.dtype.kind == "U":
        names = (name.encode() for name in ids.tolist())
        return b"".join(hashlib.blake2b(name, digest_size=16).digest() for name in names)
    wide = np.zeros((len(ids), 2), np.int64)
    wide[:, 0] = ids
    return wide.tobytes()
