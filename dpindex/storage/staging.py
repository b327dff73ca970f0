"""Staging: where files are created once, before anybody can see them, until they are published.

Whoever repeats a step, after a crash or at the same time, gets the file of the first attempt. What
another attempt made is never seen by anyone. What is not published yet lies in a private folder
beside the target, ``NAME.unpublished``, which no other user may read.
"""

from __future__ import annotations

import os
import re
import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from dpindex.base.errors import StorageError
from dpindex.base.files import Buffer, read_file, sync_folder

__all__ = [
    "LOCK",
    "MAX_FILE_BYTES",
    "RELEASE_MARK",
    "Staging",
    "StagingFolder",
    "create_once",
    "foreign_names",
    "unpublished_path",
    "writing_beside",
]

MAX_FILE_BYTES = 1 << 33
"""Bytes of any file of an index."""

_PRIVATE_NAME = re.compile(r"(part-)?[0-9a-f]{32}|record|seal(\.tmp)?")

LOCK = ".lock"
"""Name of the lock file of an index directory."""

RELEASE_MARK = "record"
"""Name of the mark of an unfinished release in a private folder."""


def unpublished_path(place: Path) -> Path:
    """Return the private folder beside a target."""
    return place.with_name(place.name + ".unpublished")


def create_once(place: Path, data: Buffer, scratch: Path, *, mode: int = 0o666) -> bool:
    """Create a file, whole and durably, unless it is there; return whether this call created it.

    Parameters
    ----------
    place : Path
    data : bytes
    scratch : Path
        A folder of the same disk in which the file lies until it is whole.
    mode : int
        Permissions of the file, less the process's umask.
    """
    temporary = scratch / f"part-{secrets.token_hex(16)}"
    try:
        with open(temporary, "xb", opener=partial(os.open, mode=mode)) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.link(temporary, place)
    except FileExistsError:
        return False
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(place.parent)
    return True


def foreign_names(private: Path) -> list[str]:
    """Return the names in a private folder that are not of an unfinished release or save."""
    if not private.is_dir():
        return []
    return sorted(name for name in os.listdir(private) if not _PRIVATE_NAME.fullmatch(name))


@contextmanager
def writing_beside(place: Path) -> Iterator[None]:
    """Turn an error of the system into a sentence about what lies beside ``place``."""
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"{place} cannot be written: {error.strerror or error}; the folder around it needs "
            f"room, and a file system with hard links, for what is not published yet."
        ) from error


class Staging(ABC):
    """Files that are created once and never change. A staging pickles."""

    @abstractmethod
    def create(self, path: str, data: Buffer) -> bool:
        """Create a file, whole, unless it is there; return whether it holds these bytes now.

        Raises
        ------
        InputError
            If the staging has ended, or the file cannot be written.
        """

    @abstractmethod
    def read(self, path: str, max_bytes: int = MAX_FILE_BYTES) -> bytes | None:
        """Return the bytes of a file, None if there is none; InputError if it has more bytes."""


class StagingFolder(Staging):
    """A folder inside a private folder, which becomes the target by one rename.

    Parameters
    ----------
    path : Path
        The folder, which is there. The private folder around it holds files that are not whole.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def create(self, path: str, data: Buffer) -> bool:
        place = self.path / path
        try:
            if place.parent != self.path:
                with suppress(FileExistsError):
                    place.parent.mkdir()  # fails where the staging has ended
                    sync_folder(self.path)
            if create_once(place, data, self.path.parent):
                return True
            return self.read(path) == data
        except FileNotFoundError:
            raise StorageError(
                f"{self.path.parent} was removed: what is made here has ended, and is discarded."
            ) from None
        except OSError as error:
            raise StorageError(
                f"{self.path.parent} cannot be written: {error.strerror or error}; it needs room, "
                f"and a file system with hard links."
            ) from error

    def read(self, path: str, max_bytes: int = MAX_FILE_BYTES) -> bytes | None:
        place = self.path / path
        if os.path.lexists(place):
            return read_file(place, max_bytes, links=False)
        return None

    def publish(self, place: Path) -> None:
        """Make this folder the target, by one rename; it can be repeated.

        Raises
        ------
        InputError
            If the target holds something else.
        """
        try:
            # With its lock, so that a command that is refused later leaves it as it is.
            os.close(os.open(self.path / LOCK, os.O_CREAT | os.O_WRONLY, 0o600))
            with suppress(OSError):
                place.rmdir()  # an empty folder may wait there
            os.rename(self.path, place)
            sync_folder(place.parent)
        except OSError as error:
            raise StorageError(
                f"{place} cannot be made: {error.strerror or error}; choose another place."
            ) from error
