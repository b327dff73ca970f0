"""Shards of a release: what a worker is given, checks and draws.

Whoever runs a shard keeps nothing: what it returns is kept by the driver, once, in
:mod:`dpindex.storage.release`. A shard may be run again, elsewhere, and cut off.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import dropwhile
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np

from dpindex.base.arrays import row_blocks
from dpindex.base.errors import InputError, naming
from dpindex.data.dataset import Dataset, Part
from dpindex.data.source import Chunk
from dpindex.mechanism.privatizer import Privatizer
from dpindex.mechanism.spec import Projector, Spec
from dpindex.storage.history import History, Tags
from dpindex.storage.ids import IdBlock, id_block, ids_to_bytes
from dpindex.storage.journal import content_tag
from dpindex.storage.leak_check import LeakCheck, LeakEvidence
from dpindex.storage.manifest import file_path, segment_number
from dpindex.storage.payload import Payload, payload_to_bytes

Attempt: TypeAlias = dict[str, dict[str, bytes]]
"""Files that were drawn for segments, by the number of the segment; that of its codes is last."""

LabelFiles: TypeAlias = Mapping[str, bytes]
"""Files of the ids and of the payload, if there is one, by their kind: published in the clear."""

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Segment:
    """Rows that are drawn together.

    Attributes
    ----------
    number : str
        Its place in the index, as six digits or more; it never changes.
    start : int
        First row in the part.
    rows : int
    tag : bytes
        Of the vectors, ids and payload, from the check; empty before it.
    """

    number: str
    start: int
    rows: int
    tag: bytes = b""


@dataclass(frozen=True)
class Shard:
    """Work for one worker: a part of the vectors, and the segments that it becomes.

    It holds no noise and, unless the part lies in memory, no vector.

    Attributes
    ----------
    part : Part
    first_row : int
        Of the part in the dataset.
    segments : tuple of Segment
        Consecutive, to the end of the part, and of equal length but for the last.
    ids : array of shape (rows of the part,), or TextIds, optional
        What the ledger is told, and what is published. Default the numbers of the rows.
    """

    part: Part
    first_row: int
    segments: tuple[Segment, ...]
    ids: IdBlock | None = None

    def read(self, key: bytes) -> Iterator[tuple[Segment, Chunk, LabelFiles]]:
        """Read the segments, each with its vectors and labels, and tagged under a key.

        Raises
        ------
        InputError
            For a segment that has a tag already, if its content is not what was tagged.
        """
        if not self.segments:
            return
        part = self.part
        ids = self.ids
        if ids is None:
            ids = np.arange(part.rows, dtype=np.int64) + self.first_row
        payload = part.payload()
        if payload is not None:
            payload = Payload().checked(payload, part.rows)
        first = self.segments[0]
        with part.vectors() as source:
            chunks = source.chunks(first.rows, first.start)
            for segment, (start, chunk) in zip(self.segments, chunks, strict=True):
                stop = start + segment.rows
                labels = {"ids": ids_to_bytes(ids[start:stop])}
                if payload is not None:
                    table = payload.slice(start, segment.rows)
                    labels["payload"] = payload_to_bytes(table)
                place = self.first_row + start
                tag = content_tag(key, place, chunk, *labels.values())
                if segment.tag not in (b"", tag):
                    raise InputError(
                        f"{part.name} was changed since it was checked (rows {part.start + start} "
                        f"to {part.start + stop - 1}); restore it, or choose another place for a "
                        f"build of other vectors."
                    )
                yield replace(segment, tag=tag), chunk, labels


class Engine(Protocol):
    """An engine runs shards: it gives the results of a function of all of them, in any order.

    It may run a shard several times, at the same time too, and give one or all of the results. The
    builtin ``map`` is one: it runs them in this process, in order.

    >>> def backwards(function, shards):
    ...     return [function(shard) for shard in reversed(shards)]
    >>> engine: Engine = backwards
    """

    def __call__(
        self, function: Callable[[Shard], _Result], shards: Sequence[Shard], /
    ) -> Iterable[_Result]: ...


@dataclass(frozen=True)
class Checked:
    """The result of the check of a shard.

    Attributes
    ----------
    first_row : int
        Of the shard.
    segments : tuple of Segment
        Its segments with their tags.
    leaks : tuple of LeakEvidence
        What a public part is judged by.
    rows : int64 array, optional
        Tags of the vectors, where they are to be known again.
    clipped : float
        Rows times the share of their values that lies outside the bounds. It is a fact about
        private vectors: it stays with the holder.
    """

    first_row: int
    segments: tuple[Segment, ...]
    leaks: tuple[LeakEvidence, ...] = ()
    rows: Tags | None = None
    clipped: float = 0.0


@dataclass(frozen=True)
class CodeCheck:
    """Checks every vector and the payload of a shard, before any budget is spent.

    Attributes
    ----------
    spec : Spec
    key : bytes
        Tags the content.
    leak_check : LeakCheck, optional
        Compares the vectors with a public part.
    history : History, optional
        Tags the vectors, so that they are known again.
    """

    spec: Spec
    key: bytes = field(repr=False)
    leak_check: LeakCheck | None
    history: History | None = None

    def __call__(self, shard: Shard) -> Checked:
        """Check a shard.

        Raises
        ------
        InputError
            For vectors that privatizing would refuse. Rows are counted as the part counts them.
        """
        projector = Projector(self.spec)
        segments = []
        leaks = []
        tags = []
        clipped = 0.0
        for segment, chunk, _ in shard.read(self.key):
            first_row = shard.part.start + segment.start
            with naming(shard.part.name):
                projector.check(chunk, first_row=first_row)
            clipped += segment.rows * projector.clipped(chunk)
            segments.append(segment)
            if self.history is not None:
                tags.append(self.history.tags(chunk))
            if self.leak_check is not None:
                vectors = projector.scaled(chunk)
                evidence = self.leak_check.evidence(shard.first_row + segment.start, vectors)
                leaks.append(evidence)
        return Checked(
            shard.first_row,
            segments=tuple(segments),
            leaks=tuple(leaks),
            rows=np.concatenate(tags) if tags else None,
            clipped=clipped,
        )


@dataclass(frozen=True)
class CodeDraw:
    """Draws the codes of a checked shard, and keeps nothing: the driver keeps what it is given.

    An engine may call it as often as it likes, at the same time, and kill it. Of several attempts
    at a segment the driver keeps the first that comes; the others are discarded unread.

    Attributes
    ----------
    spec : Spec
    key : bytes
        By which the content was tagged.
    with_labels : bool
        Whether ids and payload are kept with the codes.
    threads : int, optional
        Threads of one call; default all cores.
    """

    spec: Spec
    key: bytes = field(repr=False)
    with_labels: bool
    threads: int | None = None

    def __call__(self, shard: Shard) -> Attempt:
        """Draw a shard.

        Raises
        ------
        InputError
            If the vectors, ids or payload are not those that were checked.
        """
        return {
            segment.number: self.draw_segment(shard, segment, chunk, labels)
            for segment, chunk, labels in shard.read(self.key)
        }

    def draw_segment(
        self,
        shard: Shard,
        segment: Segment,
        chunk: Chunk,
        labels: LabelFiles,
    ) -> dict[str, bytes]:
        """Draw a segment, and return its files; that of codes comes last."""
        first_row = shard.part.start + segment.start
        # Who releases refused methods without protection before anything was read.
        privatizer = Privatizer(self.spec, allow_unprotected=True)
        with naming(shard.part.name):
            codes = privatizer.privatize(chunk, first_row=first_row, threads=self.threads)
        files = {"codes": codes.to_bytes()}
        if self.with_labels:
            files = {**labels, **files}
        return {file_path(kind, segment.number): data for kind, data in files.items()}


def shards_of(dataset: Dataset, segment_rows: int) -> list[Shard]:
    """Cut a dataset into segments, whose numbers they keep for ever.

    The ids of each part are read here alone, as a file may change between two readings.
    """
    shards = []
    first_row = 0
    number = 0
    for part in dataset.parts:
        ids: Any = part.ids()
        if ids is not None:
            if len(ids) != part.rows:
                raise InputError(f"{part.name} has {len(ids)} ids for {part.rows} vectors.")
            ids = id_block(ids_to_bytes(ids), verified=True)
        segments = []
        for rows in row_blocks(part.rows, segment_rows):
            name = segment_number(number)
            segments.append(Segment(name, rows.start, rows.stop - rows.start))
            number += 1
        shards.append(Shard(part, first_row, tuple(segments), ids))
        first_row += part.rows
    return shards


def without_found(shard: Shard, found: Container[str]) -> Shard:
    """Return a shard from its first segment on that is not found."""
    left = dropwhile(lambda segment: segment.number in found, shard.segments)
    return replace(shard, segments=tuple(left))
