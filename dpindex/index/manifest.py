"""The manifest of an index directory: what belongs to it, and by which hashes that is known."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dpindex.errors import InputError
from dpindex.index.settings import Settings
from dpindex.spec import Spec
from dpindex.version import __version__

__all__ = ["FORMAT", "NAME", "Denoising", "FileMark", "Manifest", "Segment"]

FORMAT = 1
NAME = re.compile(r"[0-9]{6}")
"""Segments and denoisers are numbered, and no number is used twice."""

_MAX_FILE_BYTES = 1 << 33
_HASH = re.compile(r"[0-9a-f]{64}")
_STATES = ("building", "complete")


@dataclass(frozen=True)
class FileMark:
    """Size and hash by which a file is recognised."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class Segment:
    """One committed piece of the index."""

    name: str
    count: int
    codes: FileMark
    ids: FileMark

    @property
    def files(self) -> tuple[tuple[str, FileMark], tuple[str, FileMark]]:
        return (f"segments/{self.name}.codes", self.codes), (f"ids/{self.name}.ids", self.ids)


@dataclass(frozen=True)
class Denoising:
    """The denoiser that was learned from the segments: it can be learned again."""

    name: str
    model: FileMark

    @property
    def path(self) -> str:
        return f"denoiser/{self.name}.model"


@dataclass(frozen=True)
class Manifest:
    """The table of contents; the only mutable thing in an index directory, replaced whole."""

    settings: Settings
    state: str = "building"
    next_segment: int = 0
    segments: tuple[Segment, ...] = field(default=())
    denoiser: Denoising | None = None

    @property
    def files(self) -> dict[str, FileMark]:
        """Every file that belongs to the index, by its path in the directory."""
        files = dict(file for segment in self.segments for file in segment.files)
        if self.denoiser is not None:
            files[self.denoiser.path] = self.denoiser.model
        return files

    @property
    def names(self) -> set[str]:
        """Numbers that are taken."""
        taken = {segment.name for segment in self.segments}
        return taken if self.denoiser is None else taken | {self.denoiser.name}

    @property
    def count(self) -> int:
        return sum(segment.count for segment in self.segments)

    def to_json(self) -> str:
        files = {
            path: {"bytes": mark.bytes, "sha256": mark.sha256} for path, mark in self.files.items()
        }
        data = {
            "format": FORMAT,
            "library": __version__,
            "state": self.state,
            "guarantee": self.settings.spec.guarantee.to_json(),
            "count": self.count,
            "next_segment": self.next_segment,
            "segments": [{"name": s.name, "count": s.count} for s in self.segments],
            "files": files,
            **self.settings.to_json(),
        }
        if self.denoiser is not None:
            data["denoiser"] = self.denoiser.name
        return _sealed(data)

    @property
    def digest(self) -> str:
        """SHA-256 of the manifest: names one state of the index."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    @classmethod
    def from_json(cls, text: bytes, place: Path) -> Manifest:
        """Parse and check a manifest; InputError names ``place``."""
        try:
            data = json.loads(text)
        except (ValueError, RecursionError):
            raise InputError(f"{place} is not a manifest: it is no valid JSON.") from None
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            raise InputError(f"{place} is not a manifest of format {FORMAT}.")
        data.pop("checksum", None)
        if _sealed(data).encode() != text:
            raise InputError(f"{place} is damaged: its checksum does not match.")
        try:
            segments = tuple(_segment(entry, data["files"]) for entry in data["segments"])
            manifest = cls(
                Settings(
                    Spec.from_json(json.dumps(data["spec"])),
                    data["metric"],
                    data["storage"],
                    data["query_epsilon"],
                ),
                data["state"],
                data["next_segment"],
                segments,
                _denoising(data),
            )
            sound = (
                manifest.state in _STATES
                and data["guarantee"] == manifest.settings.spec.guarantee.to_json()
                and type(manifest.next_segment) is int
                and data["count"] == manifest.count
                and len(manifest.files) == 2 * len(segments) + (manifest.denoiser is not None)
                and set(data["files"]) == set(manifest.files)
                and all(int(name) < manifest.next_segment for name in manifest.names)
            )
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            detail = str(error) if isinstance(error, InputError) else "a field is missing or wrong."
            raise InputError(f"{place} is damaged: {detail}") from None
        if not sound:
            raise InputError(f"{place} is damaged: it contradicts itself.")
        return manifest


def _sealed(data: dict[str, Any]) -> str:
    """Canonical text of a manifest with a checksum of itself: no changed byte goes unnoticed."""
    body = json.dumps(data, sort_keys=True)
    seal = hashlib.sha256(body.encode()).hexdigest()
    return json.dumps({**data, "checksum": seal}, indent=1, sort_keys=True)


def _segment(entry: Any, files: Any) -> Segment:
    name, count = entry["name"], entry["count"]
    if type(name) is not str or not NAME.fullmatch(name) or type(count) is not int or count < 1:
        raise ValueError("segment")
    marks = [_mark(files[f"segments/{name}.codes"]), _mark(files[f"ids/{name}.ids"])]
    return Segment(name, count, *marks)


def _denoising(data: Any) -> Denoising | None:
    if "denoiser" not in data:
        return None
    name = data["denoiser"]
    if type(name) is not str or not NAME.fullmatch(name):
        raise ValueError("denoiser")
    return Denoising(name, _mark(data["files"][f"denoiser/{name}.model"]))


def _mark(entry: Any) -> FileMark:
    size, digest = entry["bytes"], entry["sha256"]
    if type(size) is not int or not 0 <= size <= _MAX_FILE_BYTES:
        raise ValueError("size")
    if type(digest) is not str or not _HASH.fullmatch(digest):
        raise ValueError("hash")
    return FileMark(size, digest)
