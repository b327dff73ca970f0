"""Stores: folders and buckets in which a file that is there once never changes.

What a build makes is created whole and only if it is not there yet, so of any number of attempts
one is seen and the others never are. POSIX: a file is written in a private folder beside the store
and linked to its name, which fails if the name is taken. Object stores: one PUT under
``If-None-Match: *`` (S3, Azure) or ``ifGenerationMatch=0`` (Google Cloud).
"""

from __future__ import annotations

import io
import os
import secrets
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from dpindex.base.errors import InputError
from dpindex.base.extras import import_extra
from dpindex.base.files import make_folder, read_file, sync_folder

__all__ = ["Store", "is_url", "open_store"]

_FILE = "file://"
_WAITS = (0.1, 0.5, 2.0, 5.0)
"""Seconds before a PUT of unknown outcome is tried again; the client itself retries as well."""


def is_url(location: str | os.PathLike[str]) -> bool:
    """Whether a location is one in an object store."""
    return "://" in os.fspath(location)


class Store(ABC):
    """Files under one location, each with a path of its own such as ``segments/000000.codes``.

    Attributes
    ----------
    location : str
        Absolute path, or URL.
    """

    location: str

    @abstractmethod
    def begin(self, build: str, path: str, data: bytes) -> bool:
        """Let a build create files here, this one first; whether that is what is there now.

        Raises
        ------
        InputError
            If files cannot be created here exactly once.
        """

    @abstractmethod
    def create(self, build: str, path: str, data: bytes) -> bool:
        """Create a file, whole, unless it is there; whether what is there now are these bytes.

        Of what is not there afterwards nobody but this process has seen anything.

        Raises
        ------
        InputError
            If the build has not begun or has ended here, or the store cannot be written.
        """

    @abstractmethod
    def end(self, build: str, path: str, data: bytes) -> bool:
        """Create the last file of a build as ``create`` does; attempts that still run fail."""

    @abstractmethod
    def read(self, path: str, max_bytes: int) -> bytes | None:
        """A file of at most so many bytes; None if there is none, InputError if it is larger."""

    @abstractmethod
    def sizes(self) -> dict[str, int]:
        """Bytes of every file by its path, in the order of paths."""

    @abstractmethod
    def stamp(self, path: str) -> str:
        """Size and time of change, or the store's own tag: another file has another stamp."""

    @abstractmethod
    def open(self, path: str) -> IO[bytes]:
        """A file opened for reading."""


class Folder(Store):
    """A folder of a local or shared file system that has hard links.

    What is not published yet lies beside it, in ``NAME.unpublished``, which no other user may read.
    The end of a build takes that folder away first. From then on no attempt that still runs, or
    that was stopped for hours, can publish anything.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path).resolve()
        self.location = str(self._path)
        self._private = self._path.with_name(self._path.name + ".unpublished")

    def begin(self, build: str, path: str, data: bytes) -> bool:
        with self._writing():
            make_folder(self._private, 0o700)
            make_folder(self._private / build, 0o700)
            same = self._link(self._private / build, path, data)
            if same:  # what is left of another build, whose target was removed, ends now
                for other in self._private.iterdir():
                    if other.name != build:
                        shutil.rmtree(other, ignore_errors=True)
        return same

    def create(self, build: str, path: str, data: bytes) -> bool:
        with self._writing():
            if not (self._private / build).is_dir():
                raise InputError(f"this build of {self.location} has not begun, or has ended.")
            return self._link(self._private / build, path, data)

    def end(self, build: str, path: str, data: bytes) -> bool:
        own = self._private / f"{build}.{secrets.token_hex(16)}"
        with self._writing():
            with suppress(FileNotFoundError):  # another process was first
                os.rename(self._private / build, own)  # what is staged has no name any more
            try:
                make_folder(own, 0o700)
                same = self._link(own, path, data)
            except OSError:  # the first tidied up meanwhile, so that its file is there
                found = self.read(path, len(data))
                if found is None:
                    raise
                same = found == data
            shutil.rmtree(self._private, ignore_errors=True)
        return same

    def _link(self, private: Path, path: str, data: bytes) -> bool:
        place, staged = self._path / path, private / secrets.token_hex(16)
        make_folder(place.parent)
        try:
            with open(staged, "xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            try:
                os.link(staged, place)
            except FileExistsError:  # perhaps by a first answer that a network lost
                return place.stat().st_size == len(data) and place.read_bytes() == data
        finally:
            with suppress(OSError):
                staged.unlink()
        sync_folder(place.parent)
        return True

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            detail = f"{self.location} cannot be written: {error.strerror or error}"
            raise InputError(
                f"{detail}; it needs room, and a file system with hard links."
            ) from error

    def read(self, path: str, max_bytes: int) -> bytes | None:
        place = self._path / path
        return read_file(place, max_bytes, links=False) if os.path.lexists(place) else None

    def sizes(self) -> dict[str, int]:
        files = sorted(file for file in self._path.rglob("*") if file.is_file())
        return {file.relative_to(self._path).as_posix(): file.stat().st_size for file in files}

    def stamp(self, path: str) -> str:
        try:
            status = os.stat(self._path / path)
        except OSError as error:
            detail = f"{self._path / path} cannot be read: {error.strerror}"
            raise InputError(f"{detail}; check the path.") from None
        return f"{status.st_size} {status.st_mtime_ns}"

    def open(self, path: str) -> IO[bytes]:
        return open(self._path / path, "rb")


class Bucket(Store):
    """A prefix in an object store, reached through ``obstore``: S3, Google Cloud, Azure.

    Keys, region and endpoint come from the environment, as the store's own tools take them.

    A PUT whose answer is an error or does not come may have been done, or may be done later. So the
    object is read, and where there is none the same bytes are sent again.
    """

    def __init__(self, url: str) -> None:
        self.location = url.rstrip("/")
        need = f"{url} is in an object store, which needs obstore"
        self._obstore = import_extra("obstore", need, "cloud")
        with self._asking("opened"):
            self._store = import_extra("obstore.store", need, "cloud").from_url(self.location)

    def begin(self, build: str, path: str, data: bytes) -> bool:
        same = self.create(build, path, data)
        if same:
            # The same bytes once more: a store that takes them would also take other codes.
            with suppress(self._obstore.exceptions.AlreadyExistsError):
                with self._asking("written", self._obstore.exceptions.AlreadyExistsError):
                    self._put(path, data)
                raise InputError(
                    f"{self.location} overwrites objects that it should only create "
                    f"(If-None-Match is ignored), so codes could be published twice; use another "
                    f"store."
                )
        return same

    def create(self, build: str, path: str, data: bytes) -> bool:
        for wait in (*_WAITS, None):
            try:
                self._put(path, data)
            except Exception as error:  # it may be there: by us, by another attempt, or not at all
                found = self._found(path, len(data))
                if found is not None:
                    return found == data
                if wait is None:
                    raise self._error("written", error) from error
                time.sleep(wait)
            else:
                return True
        raise AssertionError("unreachable")

    def end(self, build: str, path: str, data: bytes) -> bool:
        return self.create(build, path, data)

    def _put(self, path: str, data: bytes) -> None:
        # In one request: parts of an upload that was cut off would lie in the bucket.
        self._obstore.put(self._store, path, data, mode="create", use_multipart=False)

    def _found(self, path: str, size: int) -> bytes | None:
        """What lies there, read no further than one byte too many; None if nothing does."""
        with suppress(FileNotFoundError), self._asking("read", FileNotFoundError):
            if self._head(path)["size"] != size:
                return b""
            return bytes(self._obstore.get(self._store, path).bytes())
        return None

    def read(self, path: str, max_bytes: int) -> bytes | None:
        with suppress(FileNotFoundError), self._asking("read", FileNotFoundError):
            size = self._head(path)["size"]
            if size > max_bytes:
                raise InputError(
                    f"{self.location}/{path} has {size} bytes; at most {max_bytes} are read."
                )
            return bytes(self._obstore.get(self._store, path).bytes())
        return None

    def sizes(self) -> dict[str, int]:
        with self._asking("listed"):
            pages = self._obstore.list(self._store)
            return dict(sorted((meta["path"], meta["size"]) for page in pages for meta in page))

    def stamp(self, path: str) -> str:
        with self._asking("read"):
            meta = self._head(path)
        return f"{meta['size']} {meta['e_tag'] or meta['last_modified']}"

    def open(self, path: str) -> IO[bytes]:
        with self._asking("read"):
            size = self._head(path)["size"]
        raw = _Object(lambda start, end: self._range(path, start, end), size)
        return io.BufferedReader(raw, 1 << 16)

    def _head(self, path: str) -> Any:
        return self._obstore.head(self._store, path)

    def _range(self, path: str, start: int, end: int) -> Any:
        with self._asking("read"):
            return self._obstore.get_range(self._store, path, start=start, end=end)

    @contextmanager
    def _asking(self, done: str, *passed: type[Exception]) -> Iterator[None]:
        known: tuple[type[Exception], ...] = (InputError, *passed)
        try:
            yield
        except known:
            raise
        except Exception as error:
            raise self._error(done, error) from error

    def _error(self, done: str, error: Exception) -> InputError:
        reason = " ".join(str(error).split())[:200]
        return InputError(
            f"{self.location} cannot be {done} ({reason}); check the address, the keys and the "
            f"network. A build that is run again goes on where it stopped."
        )


class _Object(io.RawIOBase):
    """An object as a file that is read by ranges."""

    def __init__(self, read_range: Any, size: int) -> None:
        self._read_range, self._size, self._at = read_range, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        self._at = base + offset
        return self._at

    def readinto(self, buffer: Any) -> int:
        end = min(self._at + len(buffer), self._size)
        if end <= self._at:
            return 0
        data = memoryview(self._read_range(self._at, end))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


def open_store(location: str | os.PathLike[str]) -> Store:
    """The store at a path, or at a URL such as ``s3://bucket/prefix``.

    Raises
    ------
    InputError
        For a URL that is not understood, or names a password.

    >>> open_store("/tmp").location
    '/tmp'
    """
    url = os.fspath(location)
    if not is_url(url) or url.startswith(_FILE):  # obstore's folders show what is not published
        return Folder(url.removeprefix(_FILE))
    if "@" in url.partition("://")[2].partition("/")[0] and not url.startswith("abfs"):
        raise InputError("the URL of a store holds no keys; give them in the environment.")
    return Bucket(url)
