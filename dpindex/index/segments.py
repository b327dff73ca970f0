"""The index on disk: immutable segments, and a manifest that alone says which of them count.

A directory holds ``manifest.json``, ``segments/NNNNNN.codes`` and ``ids/NNNNNN.ids``. A segment
belongs to the index only once a manifest that names it has been renamed into place; whatever the
manifest does not name is discarded unread. Reading checks sizes and SHA-256 hashes before any
parser sees a byte. No raw vector, norm, noise or secret is ever written.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dpindex.arrays import AnyArray
from dpindex.codes import Codes, codes_from_bytes
from dpindex.errors import InputError
from dpindex.index.ids import ids_from_bytes, ids_to_bytes
from dpindex.index.locks import writer_lock
from dpindex.index.settings import Settings
from dpindex.spec import Spec

__all__ = ["IndexDirectory", "Manifest", "rows_per_segment"]

FORMAT = 1
NOTE = "source.json"
"""Tells one build's input from another; it goes when the build ends."""

_MANIFEST = "manifest.json"
_MOST_MANIFEST_BYTES = 1 << 24
_MOST_FILE_BYTES = 1 << 33
_PLAIN_ONLY = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_NAME = re.compile(r"[0-9]{6}")
_HASH = re.compile(r"[0-9a-f]{64}")
_SEGMENT_FILE = re.compile(r"[0-9]{6}\.(codes|ids)(\.tmp)?")
_FOLDERS = ("segments", "ids")
_STATES = ("building", "complete")
_SEGMENT_BYTES = 1 << 25
_SEGMENT_ROWS = 65536


def rows_per_segment(spec: Spec) -> int:
    """Rows whose codes fill a segment: few enough for memory, and for one file to be read whole."""
    width = -(-spec.dims // 8) if spec.row.kind == "bits" else 4 * spec.dims
    return max(1, min(_SEGMENT_ROWS, _SEGMENT_BYTES // width))


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
class Manifest:
    """The table of contents; the only mutable thing in an index directory, replaced whole."""

    settings: Settings
    state: str = "building"
    next_segment: int = 0
    segments: tuple[Segment, ...] = field(default=())

    @property
    def count(self) -> int:
        return sum(segment.count for segment in self.segments)

    def to_json(self) -> str:
        from dpindex import __version__

        files = {
            path: {"bytes": mark.bytes, "sha256": mark.sha256}
            for segment in self.segments
            for path, mark in segment.files
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
            )
            names = {segment.name for segment in segments}
            sound = (
                manifest.state in _STATES
                and data["guarantee"] == manifest.settings.spec.guarantee.to_json()
                and type(manifest.next_segment) is int
                and data["count"] == manifest.count
                and len(names) == len(segments)
                and len(data["files"]) == 2 * len(segments)
                and all(int(name) < manifest.next_segment for name in names)
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
    if type(name) is not str or not _NAME.fullmatch(name) or type(count) is not int or count < 1:
        raise ValueError("segment")
    marks = [_mark(files[f"segments/{name}.codes"]), _mark(files[f"ids/{name}.ids"])]
    return Segment(name, count, *marks)


def _mark(entry: Any) -> FileMark:
    size, digest = entry["bytes"], entry["sha256"]
    if type(size) is not int or not 0 <= size <= _MOST_FILE_BYTES:
        raise ValueError("size")
    if type(digest) is not str or not _HASH.fullmatch(digest):
        raise ValueError("hash")
    return FileMark(size, digest)


class IndexDirectory:
    """Reads and writes an index directory; every change is committed by one rename."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()

    @property
    def exists(self) -> bool:
        """Whether there is a manifest."""
        return (self.path / _MANIFEST).is_file()

    def manifest(self) -> Manifest:
        """The committed manifest."""
        if not self.exists:
            raise InputError(f"{self.path} is not a dpindex index: it has no {_MANIFEST}.")
        text = self._read(_MANIFEST, _MOST_MANIFEST_BYTES)
        return Manifest.from_json(text, self.path / _MANIFEST)

    def segments(self, manifest: Manifest) -> Iterator[tuple[Codes, AnyArray]]:
        """Codes and ids of every segment, verified against the manifest first."""
        fingerprint = manifest.settings.spec.fingerprint
        for segment in manifest.segments:
            (codes_name, codes_mark), (ids_name, ids_mark) = segment.files
            codes = codes_from_bytes(self._verified(codes_name, codes_mark))
            ids = ids_from_bytes(self._verified(ids_name, ids_mark))
            if codes.fingerprint != fingerprint:
                raise InputError(f"{self.path / codes_name} was made under another spec.")
            if not len(codes) == len(ids) == segment.count:
                raise InputError(f"{self.path / codes_name} does not have the rows it should.")
            yield codes, ids

    def _read(self, name: str, most: int) -> bytes:
        place = self.path / name
        # No link is followed: an index is the files in its own directory.
        if place.is_symlink() or place.parent.is_symlink():
            raise InputError(f"{place} is a symbolic link; an index holds plain files only.")
        try:
            handle = os.open(place, os.O_RDONLY | _PLAIN_ONLY)
            with open(handle, "rb") as file:
                status = os.fstat(file.fileno())
                if not stat.S_ISREG(status.st_mode):
                    raise InputError(f"{place} is not a plain file.")
                if status.st_size > most:
                    raise InputError(f"{place} is larger than it may be ({status.st_size} bytes).")
                return file.read(status.st_size)  # allocated at once, so not what is declared
        except OSError as error:
            raise InputError(f"{place} cannot be read: {error.strerror}.") from None

    def _verified(self, name: str, mark: FileMark) -> bytes:
        data = self._read(name, mark.bytes)
        if len(data) != mark.bytes:
            raise InputError(f"{self.path / name} is cut off; restore it from a copy.")
        if hashlib.sha256(data).hexdigest() != mark.sha256:
            raise InputError(f"{self.path / name} was changed or damaged; restore it from a copy.")
        return data

    @contextmanager
    def writing(self, *, new: bool) -> Iterator[None]:
        """Hold the directory for writing; a ``new`` one must be absent or empty.

        What is left of a first save or build that died before its manifest counts as empty.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            with writer_lock(self.path):
                if new and (self.path / _MANIFEST).exists():
                    raise InputError(
                        f"{self.path} already holds an index; open it to add to it, or choose "
                        f"another directory."
                    )
                if new and not self._is_blank():
                    raise InputError(f"{self.path} is not empty; choose another directory.")
                for folder in _FOLDERS:
                    if (self.path / folder).is_symlink():
                        raise InputError(f"{self.path / folder} is a symbolic link, not a folder.")
                yield
        except OSError as error:
            detail = error.strerror or error
            raise InputError(f"{self.path} cannot be written: {detail}.") from error

    def _is_blank(self) -> bool:
        """Whether nothing is here but, perhaps, leftovers of our own that no manifest names."""
        known = {".lock", NOTE, f"{NOTE}.tmp", f"{_MANIFEST}.tmp", *_FOLDERS}
        if any(entry.name not in known for entry in self.path.iterdir()):
            return False
        folders = [self.path / name for name in _FOLDERS if (self.path / name).is_dir()]
        names = [entry.name for folder in folders for entry in folder.iterdir()]
        return all(_SEGMENT_FILE.fullmatch(name) for name in names)

    def start(self, settings: Settings) -> Manifest:
        """An empty manifest, not yet committed, and the folders for its segments."""
        for folder in _FOLDERS:
            (self.path / folder).mkdir(exist_ok=True)
        manifest = Manifest(settings)
        self.discard_uncommitted(manifest)
        return manifest

    def write_segment(self, manifest: Manifest, codes: Codes, ids: AnyArray) -> Manifest:
        """Write a segment and return the manifest that names it, which is not yet committed."""
        name = f"{manifest.next_segment:06d}"
        if not _NAME.fullmatch(name):
            raise InputError(f"{self.path} has had a million segments; save to a new directory.")
        segment = Segment(
            name,
            len(codes),
            self._write(f"segments/{name}.codes", codes.to_bytes()),
            self._write(f"ids/{name}.ids", ids_to_bytes(ids)),
        )
        return replace(
            manifest,
            next_segment=manifest.next_segment + 1,
            segments=(*manifest.segments, segment),
        )

    def commit(self, manifest: Manifest) -> Manifest:
        """Make the manifest the truth, durably, in one rename."""
        text = manifest.to_json().encode()
        if len(text) > _MOST_MANIFEST_BYTES:
            raise InputError(
                f"{self.path} has {len(manifest.segments)} segments, too many for one manifest; "
                f"save the index to a new directory."
            )
        self._write(_MANIFEST, text)
        return manifest

    def discard_uncommitted(self, manifest: Manifest) -> None:
        """Delete, unread, the segments that the manifest does not name."""
        named = {path for segment in manifest.segments for path, _ in segment.files}
        for folder in _FOLDERS:
            for entry in (self.path / folder).iterdir():
                ours = _SEGMENT_FILE.fullmatch(entry.name)
                if ours and f"{folder}/{entry.name}" not in named:
                    entry.unlink()

    def note(self, data: dict[str, Any]) -> None:
        """Keep a small JSON file beside the manifest while a build is under way."""
        self._write(NOTE, json.dumps(data, sort_keys=True).encode())

    def read_note(self) -> Any:
        """What ``note`` kept, or None."""
        if not (self.path / NOTE).is_file():
            return None
        try:
            return json.loads(self._read(NOTE, _MOST_MANIFEST_BYTES))
        except (ValueError, RecursionError):
            raise InputError(f"{self.path / NOTE} is damaged: it is no valid JSON.") from None

    def drop_note(self) -> None:
        (self.path / NOTE).unlink(missing_ok=True)

    def _write(self, name: str, data: bytes) -> FileMark:
        """Write durably: a temporary file, fsync, rename, fsync of the folder."""
        place = self.path / name
        temporary = place.with_name(place.name + ".tmp")
        # Made anew: a link that someone put there is replaced, not followed.
        temporary.unlink(missing_ok=True)
        with open(temporary, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, place)
        _sync_folder(place.parent)
        return FileMark(len(data), hashlib.sha256(data).hexdigest())


def _sync_folder(folder: Path) -> None:
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
