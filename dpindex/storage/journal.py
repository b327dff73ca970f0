"""The durable state of one release: begun, drawn, published, and never back.

A journal is a private folder, ``NAME.unpublished`` beside a target or one that the user named. One
driver holds its lock from before the vectors are checked to the end. In it lie

- ``record``, the mark of the release: its token, a key, and by which facts and content it is known
  again. With it the release has *begun*; the ledger is told next, and only then is noise drawn.
- ``TOKEN/…``: what is drawn, each file created once.
- ``TOKEN.drawn``, the SHA-256 of all codes. With it (or the ledger's copy) the release is *drawn*:
  from then on nothing is ever drawn under this token, whatever is missing.

The record is removed when the release is *published*. So a release that is found drawn and whose
codes are gone was published, and its token is spent.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dpindex.base.arrays import AnyArray, issparse
from dpindex.base.errors import BusyError, DamagedError, InputError, StorageError, naming
from dpindex.base.files import (
    Buffer,
    holding_lock,
    pack,
    private_folder,
    read_file,
    read_private_file,
    sync_folder,
    unpack,
    write_through,
    writing,
)
from dpindex.data.stores import Bucket
from dpindex.storage.manifest import MANIFEST, MAX_FILE_BYTES

RELEASE_MARK = "record"
"""Name of the mark of an unfinished release in a private folder."""

LOCK = ".lock"
"""Name of the lock file of an index directory."""

RESERVATION = "unpublished/build"
"""Path of the object by which an unfinished build reserves an object store."""

TAG_BYTES = 16

_JOURNAL_LOCK = "lock"
_KEY_BYTES = 32
_NONCE_BYTES = 12
_MAX_MARK_BYTES = 1 << 21
_OF_RELEASE = re.compile(r"(part-)?[0-9a-f]{32}(\.drawn)?")
_PRIVATE_NAME = re.compile(rf"{_OF_RELEASE.pattern}|(save-|seal-)[0-9a-f-]+|record|lock")

# Windows has no descriptors of folders: there every name is resolved from the path.
_USED = {os.open, os.mkdir, os.link, os.unlink, os.rename}
_HAS_DESCRIPTORS = os.supports_dir_fd >= _USED


def unpublished_path(place: Path) -> Path:
    """Return the private folder beside a target."""
    return place.with_name(place.name + ".unpublished")


def writing_beside(place: Path | str) -> AbstractContextManager[None]:
    """Turn an error of the system into a sentence about what lies beside ``place``."""
    return writing(
        place,
        "the folder around it needs room, and a file system with hard links, for what is not "
        "published yet",
    )


def identity(path: Path) -> list[int]:
    """Return what tells a file from every copy of it: its inode, and when its status changed.

    A freed inode is given out again. The time of a change of status is the system's: neither
    ``cp -a`` nor tar nor rsync can restore it. It lasts until a name, an owner or the permissions
    of the file change, so the file is one that nobody writes. A snapshot of the whole file system
    keeps both numbers.
    """
    status = path.stat()
    return [status.st_ino, status.st_ctime_ns]


class PrivateFolder:
    """A folder that its owner alone may enter, with files that are created once.

    Names are resolved from the descriptor of the folder, so that one which was removed stays so,
    even where another of its name was made: writing is an error then. Whoever repeats a step, after
    a crash or at the same time, gets the file of the first attempt.

    Parameters
    ----------
    path : Path
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handle: int | None = None

    def make(self) -> None:
        """Make the folder unless it is there.

        Raises
        ------
        InputError
            If others may enter it, or it holds files of another use.
        """
        private_folder(self.path)
        for name in self.names():
            if not _PRIVATE_NAME.fullmatch(name):
                raise InputError(
                    f"{self.path} holds {name}, which is not of a release; what is not published "
                    f"yet needs a folder of its own, as its content goes when the release ends."
                )

    def names(self) -> list[str]:
        """Return the names in the folder; none if it is gone."""
        with suppress(FileNotFoundError):
            return sorted(os.listdir(self.path))
        return []

    @property
    def _folder(self) -> int | None:
        if _HAS_DESCRIPTORS and self._handle is None:
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
            self._handle = os.open(self.path, flags)
        return self._handle

    def _place(self, name: str) -> str:
        if _HAS_DESCRIPTORS:
            return name
        return str(self.path / name)

    def close(self) -> None:
        """Close the descriptor; the next use opens the folder of that path."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def __del__(self) -> None:
        self.close()

    def sync(self, name: str = "") -> None:
        """Make the names in the folder, or in one within it, durable."""
        sync_folder(self._place(name or "."), within=self._folder)

    def mkdir(self, name: str) -> None:
        """Make a folder within; its name lasts from the next :meth:`sync` of what holds it."""
        with suppress(FileExistsError):
            os.mkdir(self._place(name), dir_fd=self._folder)

    def create(
        self,
        name: str,
        data: Buffer,
        *,
        mode: int = 0o666,
    ) -> bool:
        """Create a file, whole and durably, unless it is there; return whether it was created.

        Parameters
        ----------
        name : str
            A path within, or an absolute path on the same disk.
        data : bytes
        mode : int
            Permissions of the file, less the process's umask.
        """
        temporary = self._place(f"part-{secrets.token_hex(16)}")
        opened = partial(os.open, mode=mode, dir_fd=self._folder)
        place = self._place(name)
        try:
            with open(temporary, "xb", opener=opened) as file:
                write_through(file, data, self.path / name)
            # A link fails where the name is taken, so what was there first stays, and is whole.
            os.link(
                temporary,
                place,
                src_dir_fd=self._folder,
                dst_dir_fd=self._folder,
            )
        except FileExistsError:
            return False
        finally:
            with suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=self._folder)
        self.sync(os.path.dirname(name))
        return True

    def put(self, name: str, data: Buffer) -> bool:
        """Create ``FOLDER/…/FILE``, of which FOLDER is there; return whether it holds these bytes.

        Raises
        ------
        StorageError
            If FOLDER was removed or published.
        """
        try:
            if name.count("/") > 1:
                self.mkdir(os.path.dirname(name))
            return self.create(name, data) or self.get(name) == data
        except (FileNotFoundError, NotADirectoryError):
            raise StorageError(
                f"{self.path} was removed: what is made here has ended, and is discarded."
            ) from None

    def get(self, name: str, max_bytes: int = MAX_FILE_BYTES) -> bytes | None:
        """Return the bytes of a file, None if there is none; InputError if it has more bytes."""
        place = self.path / name
        if os.path.lexists(place):
            return read_file(place, max_bytes, links=False)
        return None

    def publish(self, name: str, place: Path) -> None:
        """Make a folder within an index, by one rename.

        Raises
        ------
        StorageError
            If the place holds something, or the folder is gone.
        """
        try:
            # With its lock, so that a command that is refused later leaves it as it is.
            flags = os.O_CREAT | os.O_WRONLY
            lock = os.open(self._place(f"{name}/{LOCK}"), flags, 0o600, dir_fd=self._folder)
            os.close(lock)
            with suppress(OSError):
                place.rmdir()  # an empty folder may wait there
            self.move(name, place)
        except OSError as error:
            raise StorageError(
                f"{place} cannot be made: {error.strerror or error}; choose another place."
            ) from error

    def move(self, name: str, place: Path) -> None:
        """Move a folder within to a place on the same disk, durably."""
        os.rename(self._place(name), place, src_dir_fd=self._folder)
        sync_folder(place.parent)

    def unlink(self, name: str) -> None:
        """Remove a file, durably, if it is there."""
        with suppress(FileNotFoundError):
            os.unlink(self._place(name), dir_fd=self._folder)
            self.sync()

    def discard(self, pattern: re.Pattern[str]) -> None:
        """Remove the files and folders of these names, and the folder if nothing is left."""
        for name in self.names():
            if pattern.fullmatch(name):
                place = self.path / name
                if place.is_dir() and not place.is_symlink():
                    shutil.rmtree(place, ignore_errors=True)
                else:
                    with suppress(OSError):
                        place.unlink()
        with suppress(OSError):  # others work here
            self.path.rmdir()


class Journal:
    """The state of the release of one target, and what is drawn of it until it is published.

    What is drawn lies in a folder of the private folder, which can become an index by one rename:
    :meth:`PrivateFolder.publish`.

    Parameters
    ----------
    path : Path
        The private folder.
    target : str
        What the release is published as.

    Attributes
    ----------
    key : bytes
        Tags content: see :func:`content_tag`.
    begun : bool
        Whether a release is unfinished here.
    token : str
        Names it in the ledger and here.
    """

    def __init__(self, path: Path, target: str) -> None:
        self.folder = PrivateFolder(path)
        self.target = target
        self.key = secrets.token_bytes(_KEY_BYTES)
        self.begun = False
        self.token = ""
        self._facts: Mapping[str, Any] = {}

    @contextmanager
    def held(self) -> Iterator[None]:
        """Open the journal, and keep every other driver from it while the block runs.

        Raises
        ------
        BusyError
            If another driver holds it.
        InputError
            If the folder cannot be made, is not private, or holds something else.
        """
        path = self.folder.path
        with ExitStack() as stack:
            stack.callback(self.folder.close)
            with writing_beside(self.target):
                self.folder.make()
                stack.enter_context(holding_lock(path / _JOURNAL_LOCK, self.target))
            try:
                if os.path.lexists(path / RELEASE_MARK):
                    data = read_private_file(path / RELEASE_MARK, _MAX_MARK_BYTES)
                    with naming(str(path / RELEASE_MARK)):
                        self._read(data)
                    self.folder.mkdir(self.token)  # a loss of power may have kept the record alone
                yield
            finally:
                # Also after a kill or a loss of power between the removal of the record and this.
                if not os.path.lexists(path / RELEASE_MARK):
                    self.folder.discard(re.compile(rf"{_OF_RELEASE.pattern}|{_JOURNAL_LOCK}"))

    def begin(self, facts: Mapping[str, Any]) -> None:
        """Begin a release, durably, under a new token. The ledger is to be told next.

        Parameters
        ----------
        facts : mapping
            Plain JSON values by which the release is known again, each under the name that messages
            give it.
        """
        assert not self.begun, "one release at a time"
        self.token = secrets.token_hex(16)
        self._facts = facts
        with writing_beside(self.target):
            self.folder.sync(_JOURNAL_LOCK)  # so that it is the same file after a loss of power
            self.folder.mkdir(self.token)  # lasts with the record, which says that it is there
            created = self.folder.create(RELEASE_MARK, self._bytes(), mode=0o600)
        if not created:
            raise BusyError(f"{self.target} is being built by another process; run it again.")
        self.begun = True

    def refuse_other(self, facts: Mapping[str, Any]) -> None:
        """Refuse to go on with a release of other facts.

        Raises
        ------
        InputError
            With the names of what differs.
        """
        assert self.begun, "begin comes first"
        known = self._facts
        names = [name for name, value in facts.items() if known.get(name) != value]
        if names:
            raise InputError(
                f"{self.target} has an unfinished build of other input (its {' and '.join(names)} "
                f"differ); finish it with the same input and options, or choose another place. A "
                f"build elsewhere would release its vectors a second time."
            )

    def put(self, path: str, data: Buffer) -> bool:
        """Create a file, whole, unless it is there; return whether it holds these bytes now.

        Raises
        ------
        InputError
            If the release has ended, or the file cannot be written.
        """
        with writing_beside(self.target):
            return self.folder.put(f"{self.token}/{path}", data)

    def get(self, path: str, max_bytes: int = MAX_FILE_BYTES) -> bytes | None:
        """Return the bytes of a file, None if there is none; InputError if it has more bytes."""
        return self.folder.get(f"{self.token}/{path}", max_bytes)

    def drawn(self, digest: str) -> None:
        """Record, durably, that everything is drawn, with the SHA-256 of all codes in hex.

        Raises
        ------
        DamagedError
            If other codes were recorded before.
        """
        with writing_beside(self.target):
            self.folder.sync(self.token)  # the folders of what was drawn
            self.folder.create(f"{self.token}.drawn", digest.encode(), mode=0o600)
        if self.digest() != digest:
            raise DamagedError(f"the codes of {self.target} are not those that were drawn.")

    def digest(self) -> str | None:
        """Return what :meth:`drawn` recorded; None if this release is not drawn."""
        data = self.folder.get(f"{self.token}.drawn", _MAX_MARK_BYTES)
        if data is None:
            return None
        return data.decode()

    def end(self) -> None:
        """Remove everything: the release is published, or nothing of it was drawn."""
        with suppress(OSError):
            # First: without it nothing is unfinished. Should it stay, the token is spent.
            self.folder.unlink(RELEASE_MARK)
            self.begun = False
            self.folder.discard(_OF_RELEASE)

    def _bytes(self) -> bytes:
        """Return the mark of the release. It names this very lock file: a copy is told apart."""
        mark = {
            "token": self.token,
            "target": self.target,
            "lock": identity(self.folder.path / _JOURNAL_LOCK),
            "key": self.key.hex(),
            "facts": dict(self._facts),
        }
        return pack(RELEASE_MARK, mark, {})

    def _read(self, data: bytes) -> None:
        mark, _ = unpack(data, RELEASE_MARK)
        lock = identity(self.folder.path / _JOURNAL_LOCK)
        if (mark["target"], mark["lock"]) != (self.target, lock):
            raise InputError(
                f"this unfinished build was begun elsewhere ({mark['target']}) and copied, "
                f"restored or moved here, or its lock file was changed. Finish the one that was "
                f"begun; finishing both would release vectors twice. Where that is gone, remove "
                f"{self.folder.path}: what is built then is another release."
            )
        self.key = bytes.fromhex(mark["key"])
        self.token = mark["token"]
        self._facts = mark["facts"]
        self.begun = True


class BucketJournal(Journal):
    """The journal of a build in an object store, where one object reserves the place for it.

    Parameters
    ----------
    path : Path
        The private folder, on this machine.
    bucket : Bucket
        What the release is published as.
    """

    def __init__(self, path: Path, bucket: Bucket) -> None:
        super().__init__(path, bucket.location)
        self.bucket = bucket

    def begin(self, facts: Mapping[str, Any]) -> None:
        """Begin, and reserve the store: of several builds one alone ever sends codes."""
        super().begin(facts)
        try:
            self.reserve()
        except InputError:
            self.end()  # nothing was drawn
            raise

    def reserve(self) -> None:
        """Reserve the store for this release.

        Raises
        ------
        BusyError
            If it is another's, or another build ended since this one looked.
        InputError
            If the store ignores the condition under which objects are created once.
        """
        other = (
            f"{self.target} is being built with another private folder; finish it with that one."
        )
        token = self.token.encode()
        if not self.bucket.create(RESERVATION, token):
            raise BusyError(other)
        if MANIFEST in self.bucket.sizes():
            self.bucket.remove([RESERVATION])
            raise BusyError(other)
        self.bucket.refuse_overwriting(RESERVATION, token)

    def end(self) -> None:
        # The record goes last: where it stays the release is drawn, and its token spent.
        if self.bucket.read(RESERVATION, _MAX_MARK_BYTES) == self.token.encode():
            self.bucket.remove([RESERVATION])
        super().end()


def content_tag(key: bytes, place: int, *parts: Any) -> bytes:
    """Return the tag of arrays, CSR matrices and byte strings at a place of the input.

    A tag is AES-256-GMAC (NIST SP 800-38D), which runs at the speed of memory, hashed once more
    with BLAKE2b together with the types and shapes. Other content of n blocks of 16 bytes has the
    same tag with chance n·2⁻¹²⁸, whoever chose it without the key. Without the key a tag says
    nothing about the content. Key and tags never lie where codes are published.

    Parameters
    ----------
    key : bytes
        32 bytes.
    place : int
        Where in the input the content stands; content elsewhere has another tag.
    parts : array, CSR matrix or bytes

    >>> key, rows = bytes(32), np.eye(3)
    >>> content_tag(key, 0, rows) == content_tag(key, 0, rows)
    True
    >>> content_tag(key, 0, rows) == content_tag(key, 0, rows[::-1])
    False
    """
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    arrays = [array for part in parts for array in _arrays(part)]
    forms = [(array.dtype.str, array.shape) for array in arrays]
    form = repr((place, forms)).encode()
    nonce = hashlib.blake2b(form, key=key, digest_size=_NONCE_BYTES).digest()
    coder = Cipher(algorithms.AES(key), modes.GCM(nonce)).encryptor()
    for array in arrays:
        flat = array.reshape(-1).view(np.uint8)
        coder.authenticate_additional_data(flat.data)
    coder.finalize()
    tag = hashlib.blake2b(form + coder.tag, key=key, digest_size=TAG_BYTES)
    return tag.digest()


def _arrays(part: Any) -> Iterable[AnyArray]:
    """Return the contiguous arrays that a part consists of."""
    arrays = [part]
    if isinstance(part, bytes):
        arrays = [np.frombuffer(part, np.uint8)]
    elif issparse(part):
        arrays = [part.indptr, part.indices, part.data]
    return map(np.ascontiguousarray, arrays)
