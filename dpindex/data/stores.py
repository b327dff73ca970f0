"""Stores: folders and object stores, from which vectors are read and to which indexes are written.

An object is created whole and only if it is not there yet, so of any number of attempts one is
seen: one PUT under ``If-None-Match: *`` (S3, Azure) or ``ifGenerationMatch=0`` (Google Cloud).
"""

from __future__ import annotations

import io
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import IO, Any, TypeAlias

from dpindex.base.errors import DamagedError, InputError, StorageError, import_extra, one_line
from dpindex.base.files import AnyPath

FILE_URL = "file://"
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
WAITS = (0.1, 0.5, 2.0, 5.0)
"""Seconds before a PUT of unknown outcome is tried again; the client itself retries as well."""


def local_path(location: AnyPath) -> Path | None:
    """Return the path of a folder or file on this machine; None for a URL of an object store.

    >>> local_path("file:///srv/index") == local_path("/srv/index") == Path("/srv/index")
    True
    """
    text = os.fspath(location)
    if text.startswith(FILE_URL):
        path = Path(text.removeprefix(FILE_URL))
        if not path.is_absolute():
            raise InputError(f"{text} names another machine; write file:///PATH, or the path.")
        return path
    if is_url(text):
        return None
    return Path(text).expanduser()


def is_url(location: AnyPath) -> bool:
    """Whether a location is one in an object store."""
    return "://" in os.fspath(location)


class Folder:
    """A folder of a local or shared file system.

    Attributes
    ----------
    location : str
        Absolute path.
    """

    def __init__(self, path: AnyPath) -> None:
        self._path = Path(path).resolve()
        self.location = str(self._path)

    def sizes(self) -> dict[str, int]:
        """Return the bytes of every file by its path within, in the order of paths."""
        sizes = {}
        for file in sorted(self._path.rglob("*")):
            if file.is_file():
                name = file.relative_to(self._path)
                sizes[name.as_posix()] = file.stat().st_size
        return sizes

    def open(self, path: str) -> IO[bytes]:
        """Return a file opened for reading."""
        return open(self._path / path, "rb")


class Bucket:
    """A prefix in an object store, reached through ``obstore``: S3, Google Cloud, Azure.

    Keys, region and endpoint come from the environment, as the store's own tools take them.

    A PUT whose answer is an error or does not come may have been done, or may be done later. So the
    object is read, and where there is none the same bytes are sent again.

    Attributes
    ----------
    location : str
        Its URL.

    Raises
    ------
    InputError
        For a URL that is not understood, or names a password.
    """

    def __init__(self, url: str) -> None:
        _, _, address = url.partition("://")
        host, *_ = address.split("/")
        if "@" in host and not url.startswith("abfs"):
            raise InputError("the URL of a store holds no keys; give them in the environment.")
        self.location = url.rstrip("/")
        need = f"{url} is in an object store, which needs obstore"
        self._obstore = import_extra("obstore", need, "cloud")
        with self._asking("opened"):
            stores = import_extra("obstore.store", need, "cloud")
            self._store = stores.from_url(self.location)

    def __reduce__(self) -> Any:
        return Bucket, (self.location,)

    def refuse_overwriting(self, path: str, data: bytes) -> None:
        """InputError for a store that takes an object which is there a second time.

        Such a store would take other codes too. The bytes are those that are there.
        """
        exists = self._obstore.exceptions.AlreadyExistsError
        with suppress(exists):
            with self._asking("written", exists):
                self.put(path, data)
            raise InputError(
                f"{self.location} overwrites objects that it should only create (If-None-Match is "
                f"ignored), so codes could be published twice; use another store."
            )

    def create(self, path: str, data: bytes) -> bool:
        """Create an object, whole, unless it is there; return whether it holds these bytes now.

        Raises
        ------
        InputError
            If the store cannot be written.
        """
        waits = iter(WAITS)
        while True:
            try:
                self.put(path, data)
                return True
            except Exception as error:  # it may be there: by us, by another attempt, or not at all
                try:
                    stored = self.read(path, len(data))
                except DamagedError:  # it is longer
                    return False
                if stored is not None:
                    return stored == data
                self._wait(waits, error)

    def replace(self, path: str, old: bytes, new: bytes) -> bool:
        """Put bytes in the place of others; return whether the object holds them now.

        Of several who replace the same bytes one succeeds, where the store knows If-Match.
        """
        waits = iter(WAITS)
        while True:
            with self._asking("read"):
                found = self._obstore.head(self._store, path)
            stored = self.read(path, found["size"])
            if stored != old:  # by another, or by an attempt of ours whose answer was lost
                return stored == new
            condition = {name: found[name] for name in ("e_tag", "version") if found[name]}
            try:
                self._obstore.put(self._store, path, new, mode=condition, use_multipart=False)
                return True
            except NotImplementedError:  # a folder in the place of a store
                self._obstore.put(self._store, path, new)
                return True
            except Exception as error:
                self._wait(waits, error)

    def _wait(self, waits: Iterator[float], error: Exception) -> None:
        """Wait before another attempt at a PUT; after the last one its error is raised."""
        wait = next(waits, None)
        if wait is None:
            raise self._error("written", error) from error
        time.sleep(wait)

    def remove(self, paths: Iterable[str]) -> None:
        """Remove objects."""
        with self._asking("tidied up"):
            self._obstore.delete(self._store, list(paths))

    def put(self, path: str, data: bytes) -> None:
        """Ask for an object that is not there yet, in one request.

        Parts of an upload that was cut off would lie in the bucket.
        """
        self._obstore.put(
            self._store,
            path,
            data,
            mode="create",
            use_multipart=False,
        )

    def read(self, path: str, max_bytes: int) -> bytes | None:
        """Return the bytes of an object, None if there is none; InputError if it has more bytes."""
        with suppress(FileNotFoundError), self._asking("read", FileNotFoundError):
            size = self._obstore.head(self._store, path)["size"]
            if size > max_bytes:
                raise DamagedError(
                    f"{self.location}/{path} has {size} bytes; at most {max_bytes} are read."
                )
            stored = self._obstore.get(self._store, path)
            return bytes(stored.bytes())
        return None

    def sizes(self) -> dict[str, int]:
        """Return the bytes of every object by its path within, in the order of paths."""
        with self._asking("listed"):
            objects = chain.from_iterable(self._obstore.list(self._store))
            sizes = {meta["path"]: meta["size"] for meta in objects}
        return dict(sorted(sizes.items()))

    def open(self, path: str) -> IO[bytes]:
        """Return an object opened for reading, by ranges."""

        def read_range(start: int, end: int) -> Any:
            with self._asking("read"):
                return self._obstore.get_range(self._store, path, start=start, end=end)

        with self._asking("read"):
            size = self._obstore.head(self._store, path)["size"]
        return io.BufferedReader(_Object(read_range, size), 1 << 16)

    @contextmanager
    def _asking(self, done: str, *passed: type[Exception]) -> Iterator[None]:
        expected: tuple[type[Exception], ...] = (InputError, *passed)
        try:
            yield
        except expected:
            raise
        except Exception as error:
            raise self._error(done, error) from error

    def _error(self, done: str, error: Exception) -> InputError:
        reason = one_line(str(error).partition("Debug source")[0])
        remedy = "check the address, the keys and the network"
        endpoints = [os.environ.get(name, "") for name in _ENDPOINTS]
        is_plain = any(endpoint.startswith("http://") for endpoint in endpoints)
        if is_plain and "AWS_ALLOW_HTTP" not in os.environ:
            remedy = "an endpoint without TLS, http://…, needs AWS_ALLOW_HTTP=true"
        return StorageError(
            f"{self.location} cannot be {done} ({reason}); {remedy}. A build that is run again "
            f"goes on where it stopped."
        )


class _Object(io.RawIOBase):
    """An object as a file that is read by ranges."""

    def __init__(self, read_range: Any, size: int) -> None:
        self._read_range = read_range
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        bases = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}
        self._at = bases[whence] + offset
        return self._at

    def readinto(self, buffer: Any) -> int:
        end = min(self._at + len(buffer), self._size)
        if end <= self._at:
            return 0
        data = memoryview(self._read_range(self._at, end))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


Store: TypeAlias = Folder | Bucket
"""Files under one location, each with a path of its own such as ``segments/000000.codes``."""


def open_store(location: AnyPath) -> Store:
    """The store at a path, or at a URL such as ``s3://bucket/prefix``.

    Raises
    ------
    InputError
        For a URL that is not understood, or names a password.

    >>> open_store("/tmp").location
    '/tmp'
    """
    path = local_path(location)
    if path is not None:  # a folder needs no client
        return Folder(path)
    return Bucket(os.fspath(location))
