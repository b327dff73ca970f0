"""An index directory: holding it for writing, making it and growing it.

A file belongs to the index only once a manifest that names it has been renamed into place. New
files come from a staging in the private folder beside the directory, where all of them lie before
the first is seen. What they hold is in :mod:`dpindex.storage.contents`.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from dpindex.base.errors import BusyError, DamagedError, InputError, StorageError
from dpindex.base.files import (
    holding_lock,
    make_folder,
    read_file,
    sync_folder,
    write_file,
)
from dpindex.storage.history import History, released_path
from dpindex.storage.journal import (
    LOCK,
    RELEASE_MARK,
    Journal,
    PrivateFolder,
    unpublished_path,
    writing_beside,
)
from dpindex.storage.manifest import (
    FOLDERS,
    MANIFEST,
    MAX_MANIFEST_BYTES,
    NUMBERED_FILE,
    Manifest,
)

_OF_SAVES = re.compile(r"(save|part)-[0-9a-f]{32}|seal-[0-9a-f-]+")
_SEAL = re.compile(r"seal-(?P<digest>[0-9a-f]{64})-(?P<token>[0-9a-f]*)")
"""The name of a staging that is sealed: it grows the index of that digest, by the codes of that
release if it has a token."""

RELEASED = "released"
"""Name in a staging of what is known of releases once it is published."""


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
        self.path = path.expanduser().resolve()
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
            elif not self.path.exists():
                raise StorageError(f"{self.path}: there is no such index; check the path.")
            raise DamagedError(f"{self.path} is not a dpindex index: no {MANIFEST}{unfinished}.")
        return Manifest.from_bytes(self._text(), self.path / MANIFEST)

    def finished_manifest(self) -> Manifest:
        """Return the manifest after finishing a growth that was cut off, where this user may."""
        if self.exists and self._sealed():
            with suppress(BusyError, StorageError), self.held():
                pass
        return self.manifest()

    def _sealed(self) -> list[re.Match[str]]:
        """Return the names of stagings that are sealed, one at most."""
        names = PrivateFolder(self.unpublished).names()
        return [seal for seal in map(_SEAL.fullmatch, names) if seal]

    def _text(self) -> bytes:
        return read_file(self.path / MANIFEST, MAX_MANIFEST_BYTES, links=False)

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
                if not self.path.exists():
                    raise StorageError(
                        f"{self.path} was moved or removed since this index was opened; save it "
                        f"at another place, or open it where it is now."
                    )
                lock = holding_lock(self.path / LOCK, str(self.path), waiting)
                stack.enter_context(lock)
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

    def refuse_taken(self) -> None:
        """Refuse a place for a new index that holds something."""
        if self.exists:
            with suppress(InputError), self.held():  # clears what a save that was killed left
                pass
        refuse_occupied(self.path)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Make a new index in the block: no other process makes one here, and none is unfinished.

        Raises
        ------
        InputError
        """
        journal = Journal(self.unpublished, str(self.path))
        with journal.held():
            if journal.begun:
                raise InputError(
                    f"{self.path} has an unfinished build; run it again to end it, or choose "
                    f"another directory."
                )
            refuse_occupied(self.path)
            yield

    @contextmanager
    def staged(self) -> Iterator[Staging]:
        """Give a staging for new files; what is not sealed when the block ends is discarded."""
        staging = Staging(PrivateFolder(self.unpublished), f"save-{secrets.token_hex(16)}")
        staging.folder.make()
        staging.folder.mkdir(staging.name)
        try:
            yield staging
        finally:
            staging.folder.close()
            staging.folder.discard(re.compile(staging.name))

    def appear(self, staging: Staging, history: History) -> None:
        """Publish a staging, whose manifest was put last, as the index that was not there."""
        history.write(self.path)  # what was released is known before its codes are seen
        staging.folder.publish(staging.name, self.path)
        staging.folder.discard(_OF_SAVES)

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
            From :meth:`staged`; the manifest was put last, which made all names in it durable.
        sealed : callable
            Called once the growth can no longer fail, only be finished later by the next writer.
        token : str
            Of a release whose codes these are: its journal ends with the growth.
        """
        seal = f"seal-{self.manifest_digest}-{token}"
        staging.folder.move(staging.name, self.unpublished / seal)
        sealed()
        self._finish(manifest)

    @property
    def manifest_digest(self) -> str:
        """SHA-256 of the manifest; "" if there is none."""
        if not self.exists:
            return ""
        digest = hashlib.sha256(self._text())
        return digest.hexdigest()

    def _finish(self, manifest: Manifest | None = None) -> None:
        """Publish what was sealed, if nobody else has written since, and tidy up.

        ``manifest`` is what was sealed just now.
        """
        if not os.path.isdir(self.unpublished):
            return
        private = PrivateFolder(self.unpublished)
        for seal in self._sealed():
            name = seal[0]
            # None where it was published before, and its removal was cut off.
            text = private.get(f"{name}/{MANIFEST}", MAX_MANIFEST_BYTES)
            if text is not None and seal["digest"] == self.manifest_digest:
                # What was released is known before its codes are seen.
                released = private.get(f"{name}/{RELEASED}")
                if released is not None:
                    write_file(released_path(self.path), released, mode=0o600)
                self.publish_staged(self.unpublished / name, text)
            if seal["token"] and text in (None, self._text()):
                # The release has ended. A loss of power may bring its mark back: then the seal,
                # which is removed later, is back too, and ends the release once more.
                (self.unpublished / RELEASE_MARK).unlink(missing_ok=True)
        if manifest is None or manifest.digest != self.manifest_digest:
            manifest = self.manifest()
        # Only now: until the manifest was replaced, the one before named these.
        self.discard_unnamed(manifest.paths)
        # Until the seal is gone whoever comes next does the same.
        if os.path.lexists(self.unpublished / RELEASE_MARK):  # an unfinished release stays
            private.discard(_OF_SAVES)
        else:  # what a loss of power brings back of it is removed by the next writer
            shutil.rmtree(self.unpublished, ignore_errors=True)

    def publish_staged(self, staged: Path, text: bytes) -> None:
        """Link staged files into the directory; they count once the manifest is replaced, last."""
        for folder in FOLDERS:
            if not (staged / folder).is_dir():
                continue
            make_folder(self.path / folder)
            for file in sorted((staged / folder).iterdir()):
                # Linked, not moved: after a loss of power one of both names is there.
                place = self.path / folder / file.name
                place.unlink(missing_ok=True)
                os.link(file, place)
            # Names last before the manifest tells of them.
            sync_folder(self.path / folder)
        write_file(self.path / MANIFEST, text)

    def discard_unnamed(self, named: Collection[str]) -> None:
        """Delete, unread and durably, the numbered files that the manifest does not name."""
        for folder in FOLDERS:
            if not (self.path / folder).is_dir():
                continue
            names = [
                name for name in os.listdir(self.path / folder) if NUMBERED_FILE.fullmatch(name)
            ]
            unnamed = {f"{folder}/{name}" for name in names}.difference(named)
            for path in unnamed:
                (self.path / path).unlink()
            if unnamed:
                sync_folder(self.path / folder)


def refuse_occupied(path: Path) -> None:
    """Refuse a place for a new index that holds something.

    Raises
    ------
    InputError
        If there is an index, or anything else but an empty folder.
    """
    with writing_beside(path):
        if (path / MANIFEST).exists():
            raise InputError(
                f"{path} already holds an index; open it to add to it, or choose another directory."
            )
        is_empty_folder = path.is_dir() and not any(path.iterdir())
        if os.path.lexists(path) and not is_empty_folder:
            raise InputError(f"{path} is not an empty directory; choose another place.")
