"""An index directory: reading it verified, holding it for writing, and growing it.

A file belongs to the index only once a manifest that names it has been renamed into place. Reading
checks sizes and SHA-256 hashes before any parser sees a byte. New files come from a staging in the
private folder beside the directory, where all of them lie before the first is seen.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from dpindex.base.arrays import AnyArray, spaced
from dpindex.base.errors import BusyError, DamagedError, StorageError
from dpindex.base.files import (
    Buffer,
    holding_lock,
    make_folder,
    map_file,
    pack,
    parse_file,
    read_file,
    release_pages,
    sync_folder,
    unpack,
    write_file,
)
from dpindex.mechanism.codes import Codes, codes_from_bytes
from dpindex.mechanism.parameters import Codebook
from dpindex.similarity.calibration import SimilarityCalibration, calibration_from_bytes
from dpindex.similarity.symbol_codes import SAMPLED_SYMBOLS
from dpindex.storage.code_store import MAPPED_BYTES
from dpindex.storage.ids import IdBlock, id_block
from dpindex.storage.journal import (
    LOCK,
    RELEASE_MARK,
    PrivateFolder,
    unpublished_path,
    writing_beside,
)
from dpindex.storage.manifest import (
    FOLDERS,
    MANIFEST,
    MAX_MANIFEST_BYTES,
    NUMBERED_FILE,
    FileMark,
    Manifest,
    SegmentPaths,
    Settings,
    calibration_path,
    codebook_path,
    denoiser_path,
)
from dpindex.storage.payload import Payload, Table, payload_from_bytes

if TYPE_CHECKING:  # most indexes have none
    from dpindex.denoise import Denoiser

_SEAL = "seal"
OF_SAVES = re.compile(r"save-[0-9a-f]{32}|part-[0-9a-f]{32}|seal\.tmp")
"""Names in a private folder that saves leave when they die."""

_MAX_SEAL_BYTES = MAX_MANIFEST_BYTES + (1 << 16)
_SAMPLED_SEGMENTS = 64

Segment: TypeAlias = tuple[Codes, IdBlock, Table]
"""Codes, ids, and payload or None; what is large is mapped where it lies."""


def sampled(numbers: Sequence[str], read: Callable[[str], Codes]) -> Codes:
    """Return evenly spaced codes of up to 64 evenly spaced segments, of which there must be one.

    Files are often of one topic each: few of them would not stand for the collection.
    """
    chosen = [numbers[i] for i in spaced(len(numbers), _SAMPLED_SEGMENTS)]
    parts = []
    for number in chosen:
        codes = read(number)
        parts.append(codes.take(spaced(len(codes), SAMPLED_SYMBOLS // len(chosen))))
    format_ = parts[0].format
    return format_.codes(format_.concatenate([part.stored for part in parts]))


@dataclass(frozen=True)
class Staging:
    """New files of an index, in a folder of its private folder, before any of them is seen."""

    folder: PrivateFolder
    name: str

    def put(self, path: str, data: bytes) -> bool:
        """Create a file; return whether it holds these bytes now."""
        return self.folder.put(f"{self.name}/{path}", data)


class IndexDirectory:
    """A directory that holds an index.

    Parameters
    ----------
    path : Path
    """

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        self._held = False

    @property
    def unpublished(self) -> Path:
        """The private folder for what is not published yet."""
        return unpublished_path(self.path)

    @property
    def exists(self) -> bool:
        """Whether there is a manifest."""
        return (self.path / MANIFEST).is_file()

    def manifest(self) -> Manifest:
        """Return the manifest; InputError if there is none, or it is damaged."""
        if not self.exists:
            unfinished = ""
            if os.path.lexists(self.unpublished / RELEASE_MARK):
                unfinished = "; a build of it is unfinished, run the same build again to end it"
            raise DamagedError(f"{self.path} is not a dpindex index: no {MANIFEST}{unfinished}.")
        return Manifest.from_bytes(self._text(), self.path / MANIFEST)

    def finished_manifest(self) -> Manifest:
        """Return the manifest after finishing a growth that was cut off, where this user may."""
        if self.exists and (self.unpublished / _SEAL).exists():
            with suppress(BusyError, StorageError), self.held():
                pass
        return self.manifest()

    def _text(self) -> bytes:
        return read_file(self.path / MANIFEST, MAX_MANIFEST_BYTES, links=False)

    # Reading: every file is compared with the manifest before it is parsed.

    def segments(self, manifest: Manifest) -> Iterator[Segment]:
        """Yield codes, ids and payload of every segment, verified against the manifest first."""
        fingerprint = manifest.settings.spec.fingerprint
        for number, count in manifest.segments.items():
            paths = SegmentPaths(number)
            codes = codes_from_bytes(self._mapped(manifest, paths.codes), verified=True)
            ids = id_block(self._mapped(manifest, paths.ids), verified=True)
            release_pages(codes.stored)
            if codes.fingerprint != fingerprint:
                raise DamagedError(f"{self.path / paths.codes} was made under another spec.")
            payload = None
            lengths = {count, len(codes), len(ids)}
            if paths.payload in manifest.files:
                payload = payload_from_bytes(self._verified(manifest, paths.payload))
                lengths.add(len(payload))
            if len(lengths) > 1:
                raise DamagedError(f"{self.path / paths.codes} does not have the rows it should.")
            yield codes, ids, payload

    def payload_columns(self, manifest: Manifest) -> dict[str, str]:
        """Return the type of each payload column by its name, from one segment with a payload."""
        for number in manifest.segments:
            path = SegmentPaths(number).payload
            if path in manifest.files:
                return Payload(payload_from_bytes(self._verified(manifest, path))).columns
        return {}

    def settings(self, manifest: Manifest) -> Settings:
        """Return the settings, with the codewords of the spec's codebook if it has one."""
        if manifest.codebook is None:
            return manifest.settings
        data = self._verified(manifest, codebook_path(manifest.codebook))
        spec = manifest.settings.spec.with_codebook(Codebook.from_bytes(data))
        return replace(manifest.settings, spec=spec)

    def denoiser(self, manifest: Manifest) -> Denoiser | None:
        """Return the denoiser, verified against the manifest; None if there is none."""
        if manifest.denoiser is None:
            return None
        from dpindex.denoise import denoiser_from_bytes

        data = self._verified(manifest, denoiser_path(manifest.denoiser))
        return denoiser_from_bytes(data, manifest.settings.spec)

    def calibration(self, manifest: Manifest) -> SimilarityCalibration | None:
        """Return the calibration, verified against the manifest; None if there is none."""
        if manifest.calibration is None:
            return None
        return calibration_from_bytes(
            self._verified(manifest, calibration_path(manifest.calibration))
        )

    def check_sizes(self, manifest: Manifest) -> None:
        """Refuse a file that is missing, or is not as long as it was; none is read."""
        for path in manifest.paths:
            place = self.path / path
            if not place.is_file():
                raise DamagedError(f"{place} is missing; restore it from a copy.")
            if place.stat().st_size != manifest.files[path].bytes:
                raise DamagedError(f"{place} is cut off or was changed; restore it from a copy.")

    def _verified(self, manifest: Manifest, path: str) -> bytes:
        data = read_file(self.path / path, manifest.files[path].bytes, links=False)
        self._compare(data, manifest, path)
        return data

    def _mapped(self, manifest: Manifest, path: str) -> Buffer:
        """Return a verified file; the pages of a large one where they lie, each read once."""
        mark = manifest.files[path]
        if mark.bytes < MAPPED_BYTES:
            return self._verified(manifest, path)
        data = map_file(self.path / path, mark.bytes, links=False)
        self._compare(data, manifest, path)
        return data

    def _compare(self, data: Buffer, manifest: Manifest, path: str) -> None:
        mark = manifest.files[path]
        if len(data) != mark.bytes:
            raise DamagedError(f"{self.path / path} is cut off; restore it from a copy.")
        if FileMark.of(data) != mark:
            raise DamagedError(
                f"{self.path / path} was changed or damaged; restore it from a copy."
            )

    # Writing: an index that is there grows by files that were staged as a whole.

    @contextmanager
    def held(self, waiting: Callable[[], object] | None = None) -> Iterator[None]:
        """Keep every other process from writing; this one may write more than once.

        A growth that was sealed and cut off is finished first.

        Raises
        ------
        InputError
            If another process holds it, unless ``waiting`` is given: then it is called, and the
            other waited for.
        """
        if self._held:
            yield
            return
        with ExitStack() as stack:
            with writing_beside(self.path):
                stack.enter_context(holding_lock(self.path / LOCK, str(self.path), waiting))
                for folder in FOLDERS:
                    if (self.path / folder).is_symlink():
                        raise StorageError(
                            f"{self.path / folder} is a symbolic link, not a folder."
                        )
                self._finish()
            self._held = True
            try:
                yield
            finally:
                self._held = False

    @contextmanager
    def staged(self) -> Iterator[Staging]:
        """Give a staging for new files; what is not sealed when the block ends is discarded."""
        staging = Staging(PrivateFolder(self.unpublished), f"save-{secrets.token_hex(16)}")
        with writing_beside(self.path):
            staging.folder.make()
            staging.folder.mkdir(staging.name)
        try:
            yield staging
        finally:
            staging.folder.close()
            if not (self.unpublished / _SEAL).exists():
                staging.folder.discard(re.compile(staging.name))

    def grow(
        self,
        manifest: Manifest,
        staging: Staging,
        sealed: Callable[[], object],
        token: str = "",
    ) -> None:
        """Make a manifest the truth, with the staged files that it names.

        Parameters
        ----------
        manifest : Manifest
        staging : Staging
            From :meth:`staged`.
        sealed : callable
            Called once the growth can no longer fail, only be finished later by the next writer.
        token : str
            Of a release whose codes these are: its journal ends with the growth.
        """
        facts = {"base": self._digest(), "staging": staging.name, "token": token}
        text = {"manifest": np.frombuffer(manifest.to_bytes(), np.uint8)}
        with writing_beside(self.path):
            write_file(self.unpublished / _SEAL, pack(_SEAL, facts, text), mode=0o600)
            sealed()
            self._finish()

    def _digest(self) -> str:
        return hashlib.sha256(self._text()).hexdigest()

    def _finish(self) -> None:
        """Publish what was sealed, if nobody else has written since, and tidy up."""
        if not os.path.isdir(self.unpublished):
            return
        private = PrivateFolder(self.unpublished)
        place = self.unpublished / _SEAL
        if place.exists():
            facts, arrays = parse_file(place, _MAX_SEAL_BYTES, partial(unpack, kind=_SEAL))
            text: AnyArray = arrays["manifest"]
            if facts["base"] == self._digest():
                self._publish(self.unpublished / facts["staging"], text.tobytes())
            if facts["token"] and self._text() == text.tobytes():
                private.unlink(RELEASE_MARK)  # its codes are published: the release has ended
        self._discard(self.manifest().paths)
        # The seal goes last: until then whoever comes next does the same.
        if os.path.lexists(self.unpublished / RELEASE_MARK):  # an unfinished release stays
            private.discard(OF_SAVES)
            private.unlink(_SEAL)
        else:
            shutil.rmtree(self.unpublished, ignore_errors=True)
        private.close()
        sync_folder(self.path.parent)

    def _publish(self, staged: Path, text: bytes) -> None:
        for folder in FOLDERS:
            if not (staged / folder).is_dir():
                continue
            make_folder(self.path / folder)
            for file in sorted((staged / folder).iterdir()):
                # Linked, not moved: after a loss of power one of both names is there.
                place = self.path / folder / file.name
                place.unlink(missing_ok=True)
                os.link(file, place)
            sync_folder(self.path / folder)
        write_file(self.path / MANIFEST, text)

    def _discard(self, named: Collection[str]) -> None:
        """Delete, unread and durably, the numbered files that the manifest does not name."""
        kept = {self.path / path for path in named}
        for folder in FOLDERS:
            if not (self.path / folder).is_dir():
                continue
            for file in (self.path / folder).iterdir():
                if NUMBERED_FILE.fullmatch(file.name) and file not in kept:
                    file.unlink()
            sync_folder(self.path / folder)
