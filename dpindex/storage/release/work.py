"""The tasks that an engine runs: check the vectors of a shard, then draw its codes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dpindex.base.arrays import AnyArray
from dpindex.base.errors import InputError, naming
from dpindex.data.dataset import Part
from dpindex.data.source import Chunk
from dpindex.mechanism.codes import Codes
from dpindex.mechanism.privatizer import Privatizer
from dpindex.mechanism.spec import Projector, Spec
from dpindex.storage.ids import ids_to_bytes
from dpindex.storage.leak_check import LeakCheck, LeakEvidence
from dpindex.storage.manifest import FileMark
from dpindex.storage.payload import Payload, Table, payload_to_bytes
from dpindex.storage.release.content import ContentKey

__all__ = [
    "Checked",
    "CodeCheck",
    "CodeDraw",
    "Draws",
    "Labels",
    "Receipt",
    "Segment",
    "Shard",
    "chunks_of",
    "content_tag",
    "refuse_changed",
]


@dataclass(frozen=True)
class Segment:
    """Rows that are drawn together.

    Attributes
    ----------
    number : str
        Six digits, which are its name for ever.
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
        Of equal length, but for the last.
    """

    part: Part
    first_row: int
    segments: tuple[Segment, ...]

    def with_tags(self, tags: Sequence[bytes]) -> Shard:
        """Return the shard with the tags of its check."""
        pairs = zip(self.segments, tags, strict=True)
        return replace(self, segments=tuple(replace(segment, tag=tag) for segment, tag in pairs))


@dataclass(frozen=True)
class Checked:
    """The result of the check of a shard.

    Attributes
    ----------
    first_row : int
        Of the shard.
    tags : tuple of bytes
        Of its segments.
    leaks : LeakEvidence, optional
        What a codebook is judged by.
    """

    first_row: int
    tags: tuple[bytes, ...]
    leaks: LeakEvidence | None = None


@dataclass(frozen=True)
class Receipt:
    """The receipt for a segment: which files hold it.

    Attributes
    ----------
    number : str
        Of the segment.
    files : mapping of paths to FileMark
        Empty for draws in memory.
    drawn : int
        Rows that this attempt drew; 0 if an earlier attempt had.
    """

    number: str
    files: Mapping[str, FileMark]
    drawn: int


@dataclass(frozen=True)
class Labels:
    """Ids and payload of some rows, which are published in the clear.

    Attributes
    ----------
    ids : array
    payload : pyarrow.Table, optional
    """

    ids: AnyArray
    payload: Table

    @classmethod
    def of_shard(cls, shard: Shard) -> Labels:
        """Read the ids and the payload of a shard; rows without ids get their numbers."""
        part = shard.part
        ids = part.ids()
        if ids is None:
            ids = np.arange(shard.first_row, shard.first_row + part.rows, dtype=np.int64)
        return cls(ids, Payload().checked(part.payload(), part.rows))

    def of(self, segment: Segment) -> Labels:
        """Return the labels of one segment."""
        ids = self.ids[segment.start : segment.start + segment.rows]
        if self.payload is None:
            return Labels(ids, None)
        return Labels(ids, self.payload.slice(segment.start, segment.rows))

    def to_bytes(self) -> tuple[bytes, bytes | None]:
        """Return the files of ids and payload; None without a payload."""
        if self.payload is None:
            return ids_to_bytes(self.ids), None
        return ids_to_bytes(self.ids), payload_to_bytes(self.payload)


class Draws(ABC):
    """The draws of one release, each kept once: of any number of attempts the first counts."""

    @abstractmethod
    def find(self, segment: Segment) -> Receipt | None:
        """Return the receipt of a segment that was drawn, None if it was not."""

    @abstractmethod
    def keep(self, segment: Segment, codes: Codes, labels: Labels) -> Receipt:
        """Keep the codes of a segment, or discard them for those of an earlier attempt."""

    @abstractmethod
    def codes(self, segment: Segment) -> Codes:
        """Return the codes of a segment that was drawn."""


@dataclass(frozen=True)
class CodeCheck:
    """Checks every vector and the payload of a shard, before any budget is spent.

    Attributes
    ----------
    spec : Spec
    content : ContentKey, optional
        Tags the vectors; None where nothing can be resumed.
    leak_check : LeakCheck, optional
        Compares the vectors with the codebook.
    """

    spec: Spec
    content: ContentKey | None
    leak_check: LeakCheck | None

    def __call__(self, shard: Shard) -> Checked:
        """Check a shard.

        Raises
        ------
        InputError
            For vectors that privatizing would refuse. Rows are counted as the part counts them.
        """
        labels = Labels.of_shard(shard)
        projector = Projector(self.spec)
        tags: list[bytes] = []

        def checked() -> Iterator[tuple[int, Chunk]]:
            for segment, chunk in chunks_of(shard):
                with naming(shard.part.name):
                    projector.check(chunk, first_row=shard.part.start + segment.start)
                tags.append(content_tag(self.content, shard, segment, chunk, labels))
                yield shard.first_row + segment.start, chunk

        leaks = None
        if self.leak_check is None:
            deque(checked(), maxlen=0)
        else:
            leaks = self.leak_check.evidence(checked())
        return Checked(shard.first_row, tuple(tags), leaks)


@dataclass(frozen=True)
class CodeDraw:
    """Draws the codes of a checked shard that are not kept yet.

    An engine may call it as often as it likes, at the same time, and kill it: noise is drawn in the
    memory of this process, and a segment is kept by one attempt only. What another attempt drew is
    discarded unread, and its receipt is for what it finds.

    Attributes
    ----------
    spec : Spec
    content : ContentKey, optional
        Recognises the vectors that were checked.
    draws : Draws
    threads : int, optional
        Threads of one call; default all cores.
    """

    spec: Spec
    content: ContentKey | None
    draws: Draws
    threads: int | None

    def __call__(self, shard: Shard) -> list[Receipt]:
        """Draw a shard.

        Raises
        ------
        InputError
            If the vectors, ids or payload are not those that were checked, the release has ended,
            or its staging cannot be written.
        """
        receipts = {segment.number: self.draws.find(segment) for segment in shard.segments}
        missing = [segment for segment in shard.segments if receipts[segment.number] is None]
        if missing:
            labels = Labels.of_shard(shard)
            for segment, chunk in chunks_of(shard, missing[0].start):
                if receipts[segment.number] is None:
                    refuse_changed(self.content, shard, segment, chunk, labels)
                    codes = self._privatized(shard, segment, chunk)
                    receipts[segment.number] = self.draws.keep(segment, codes, labels.of(segment))
        return [receipt for receipt in receipts.values() if receipt is not None]

    def _privatized(self, shard: Shard, segment: Segment, chunk: Chunk) -> Codes:
        # The target refused methods without protection before anything was read.
        privatizer = Privatizer(self.spec, allow_unprotected=True)
        first_row = shard.part.start + segment.start
        # Without a key nothing shows that these are the vectors that were checked.
        checked = self.content is not None
        with naming(shard.part.name):
            return privatizer._privatized(chunk, first_row, self.threads, checked=checked)


def chunks_of(shard: Shard, start: int = 0) -> Iterator[tuple[Segment, Chunk]]:
    """Read the segments of a shard from a row of its part on, one chunk each."""
    segments = [segment for segment in shard.segments if segment.start >= start]
    with shard.part.vectors() as source:
        chunks = source.chunks(shard.segments[0].rows, start)
        for segment, (_, chunk) in zip(segments, chunks, strict=True):
            yield segment, chunk


def content_tag(
    content: ContentKey | None, shard: Shard, segment: Segment, chunk: Chunk, labels: Labels
) -> bytes:
    """Return the tag of the vectors, ids and payload of a segment; nothing without a key."""
    if content is None:
        return b""
    return content.tag(shard.first_row + segment.start, chunk, *labels.of(segment).to_bytes())


def refuse_changed(
    content: ContentKey | None, shard: Shard, segment: Segment, chunk: Chunk, labels: Labels
) -> None:
    """Refuse a segment whose content is not what was checked."""
    if content_tag(content, shard, segment, chunk, labels) != segment.tag:
        first_row = shard.part.start + segment.start
        raise InputError(
            f"{shard.part.name} was changed since it was checked (rows {first_row} to "
            f"{first_row + segment.rows - 1}); restore it, or choose another place for a build of "
            f"other vectors."
        )
