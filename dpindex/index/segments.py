"""The index on disk: immutable segments, and a manifest that alone says which of them count.

A directory holds ``manifest.json``, ``segments/NNNNNN.codes``, ``ids/NNNNNN.ids`` and, where one
was learned, ``denoiser/NNNNNN.model``. A file belongs to the index only once a manifest that names
it has been renamed into place; whatever the manifest does not name is discarded unread. Reading
checks sizes and SHA-256 hashes before any parser sees a byte. No raw vector, norm, noise or secret
is ever written.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from dpindex.arrays import AnyArray
from dpindex.codes import Codes, codes_from_bytes
from dpindex.errors import InputError
from dpindex.index.ids import ids_from_bytes, ids_to_bytes
from dpindex.index.locks import writer_lock
from dpindex.index.manifest import NAME, Denoising, FileMark, Manifest, Segment
from dpindex.index.settings import Settings
from dpindex.spec import Spec

__all__ = ["IndexDirectory", "Manifest", "rows_per_segment"]

NOTE = "source.json"
"""Tells one build's input from another; it goes when the build ends."""

_MANIFEST = "manifest.json"
_MAX_MANIFEST_BYTES = 1 << 24
_PLAIN_ONLY = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_SEGMENT_FILE = re.compile(r"[0-9]{6}\.(codes|ids|model)(\.tmp)?")
_FOLDERS = ("segments", "ids", "denoiser")
_SEGMENT_BYTES = 1 << 25
_SEGMENT_ROWS = 65536


def rows_per_segment(spec: Spec) -> int:
    """Rows whose codes fill a segment: few enough for memory, and for one file to be read whole."""
    width = -(-spec.code_length // 8) if spec.mechanism.codes == "signs" else 4 * spec.code_length
    return max(1, min(_SEGMENT_ROWS, _SEGMENT_BYTES // width))


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
        text = self._read(_MANIFEST, _MAX_MANIFEST_BYTES)
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
        for folder in ("segments", "ids"):
            (self.path / folder).mkdir(exist_ok=True)
        manifest = Manifest(settings)
        self.discard_uncommitted(manifest)
        return manifest

    def _next_name(self, manifest: Manifest) -> str:
        name = f"{manifest.next_segment:06d}"
        if not NAME.fullmatch(name):
            raise InputError(f"{self.path} has had a million segments; save to a new directory.")
        return name

    def write_denoiser(self, manifest: Manifest, model: bytes) -> Manifest:
        """Write a denoiser and return the manifest that names it, which is not yet committed."""
        name = self._next_name(manifest)
        (self.path / "denoiser").mkdir(exist_ok=True)
        mark = self._write(f"denoiser/{name}.model", model)
        number = manifest.next_segment + 1
        return replace(manifest, next_segment=number, denoiser=Denoising(name, mark))

    def read_denoiser(self, manifest: Manifest) -> bytes | None:
        """The denoiser's bytes, verified against the manifest; None if there is none."""
        if manifest.denoiser is None:
            return None
        return self._verified(manifest.denoiser.path, manifest.denoiser.model)

    def write_segment(self, manifest: Manifest, codes: Codes, ids: AnyArray) -> Manifest:
        """Write a segment and return the manifest that names it, which is not yet committed."""
        name = self._next_name(manifest)
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
        if len(text) > _MAX_MANIFEST_BYTES:
            raise InputError(
                f"{self.path} has {len(manifest.segments)} segments, too many for one manifest; "
                f"save the index to a new directory."
            )
        self._write(_MANIFEST, text)
        return manifest

    def discard_uncommitted(self, manifest: Manifest) -> None:
        """Delete, unread, the segments that the manifest does not name."""
        for folder in (self.path / name for name in _FOLDERS):
            for entry in folder.iterdir() if folder.is_dir() else ():
                ours = _SEGMENT_FILE.fullmatch(entry.name)
                if ours and f"{folder.name}/{entry.name}" not in manifest.files:
                    entry.unlink()

    def note(self, data: dict[str, Any]) -> None:
        """Keep a small JSON file beside the manifest while a build is under way."""
        self._write(NOTE, json.dumps(data, sort_keys=True).encode())

    def read_note(self) -> Any:
        """What ``note`` kept, or None."""
        if not (self.path / NOTE).is_file():
            return None
        try:
            return json.loads(self._read(NOTE, _MAX_MANIFEST_BYTES))
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
