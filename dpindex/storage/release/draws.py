"""Where draws are kept until they are published: in memory, or as files of a staging."""

from __future__ import annotations

from dpindex.base.errors import DamagedError
from dpindex.mechanism.codes import CodeFormat, Codes, codes_from_bytes
from dpindex.storage.manifest import FileMark, SegmentPaths
from dpindex.storage.release.work import Draws, Labels, Receipt, Segment
from dpindex.storage.staging import Staging

__all__ = ["HeldDraws", "StagedDraws"]

_MAX_HEADER_BYTES = 1 << 16


class HeldDraws(Draws):
    """Draws in the memory of this process, with which they die unseen."""

    def __init__(self) -> None:
        self._codes: dict[str, Codes] = {}

    def find(self, segment: Segment) -> Receipt | None:
        return None

    def keep(self, segment: Segment, codes: Codes, labels: Labels) -> Receipt:
        self._codes[segment.number] = codes
        return Receipt(segment.number, {}, segment.rows)

    def codes(self, segment: Segment) -> Codes:
        return self._codes[segment.number]


class StagedDraws(Draws):
    """Draws as files, where whoever repeats the work finds them.

    Parameters
    ----------
    staging : Staging
    format : CodeFormat
        Of the codes.
    with_labels : bool
        Whether ids and payload are staged with the codes.
    """

    def __init__(self, staging: Staging, format: CodeFormat, *, with_labels: bool) -> None:
        self.staging = staging
        self._format = format
        self._with_labels = with_labels

    def find(self, segment: Segment) -> Receipt | None:
        data = self._read(segment)
        if data is None:
            return None
        paths = SegmentPaths(segment.number)
        files = {paths.codes: FileMark.of(data)}
        for path in (paths.ids, paths.payload):
            label = self.staging.read(path)
            if label is not None:
                files[path] = FileMark.of(label)
        self._parsed(segment, data)
        return Receipt(segment.number, files, 0)

    def keep(self, segment: Segment, codes: Codes, labels: Labels) -> Receipt:
        paths = SegmentPaths(segment.number)
        files: dict[str, bytes] = {}
        if self._with_labels:
            ids, payload = labels.to_bytes()
            files[paths.ids] = ids
            if payload is not None:
                files[paths.payload] = payload
        for path, label in files.items():
            if not self.staging.create(path, label):
                raise DamagedError(f"the staged {path} is not of this release; it was changed.")
        data = codes.to_bytes()
        if self.staging.create(paths.codes, data):  # last: with its codes a segment is whole
            files[paths.codes] = data
            marks = {path: FileMark.of(content) for path, content in files.items()}
            return Receipt(segment.number, marks, segment.rows)
        receipt = self.find(segment)
        if receipt is None:
            raise DamagedError(f"the staged segment {segment.number} was removed; run it again.")
        return receipt

    def codes(self, segment: Segment) -> Codes:
        data = self._read(segment)
        if data is None:
            raise DamagedError(f"the staged segment {segment.number} was removed; run it again.")
        return self._parsed(segment, data)

    def _read(self, segment: Segment) -> bytes | None:
        max_bytes = segment.rows * self._format.max_row_bytes + _MAX_HEADER_BYTES
        return self.staging.read(SegmentPaths(segment.number).codes, max_bytes)

    def _parsed(self, segment: Segment, data: bytes) -> Codes:
        codes = codes_from_bytes(data)
        if codes.fingerprint != self._format.fingerprint or len(codes) != segment.rows:
            raise DamagedError(
                f"the staged segment {segment.number} is not of this release; it was changed."
            )
        return self._format.codes(codes.stored)
