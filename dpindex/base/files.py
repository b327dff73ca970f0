"""Files: a bounded reader, a durable writer, a lock, one container of all binary formats; files
and folders that their owner alone can read; and the secret of this machine.

A container is a frame with sizes and a SHA-256, a header of JSON, and plain little-endian arrays.
Sizes and digest are checked before anything is interpreted; nothing is ever unpickled.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import mmap
import os
import stat
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias, TypeVar

import numpy as np

from dpindex.base.arrays import AnyArray
from dpindex.base.errors import BusyError, DamagedError, InputError, StorageError, naming

MAGIC = b"DPIX"
"""First bytes of every file."""

_VERSION = 2
_FRAME = struct.Struct("<4sHHIQ32s")
"""Magic, version, 0, bytes of the header, bytes of the arrays, SHA-256 of both."""

_MAX_HEADER = 1 << 20
_MAX_DESCRIPTORS = 1 << 20
_DTYPES = {"|i1", "|u1", "<i2", "<i4", "<i8", "<u2", "<u4", "<f4", "<f8"}
_NO_LINKS = getattr(os, "O_NOFOLLOW", 0)
_BYTES = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_PLAIN_ONLY = getattr(os, "O_NONBLOCK", 0) | _BYTES

OWN_FILE = _NO_LINKS | _BYTES
"""Flags under which a process opens a file that it alone writes, and never a symbolic link."""

_Parsed = TypeVar("_Parsed")

AnyPath: TypeAlias = str | os.PathLike[str]
Buffer: TypeAlias = bytes | bytearray | memoryview
Unpacked: TypeAlias = tuple[dict[str, Any], dict[str, AnyArray]]
"""Facts and arrays of a container."""


def read_file(
    path: AnyPath,
    max_bytes: int,
    *,
    links: bool = True,
) -> bytes:
    """The bytes of a plain file of at most ``max_bytes`` bytes.

    Raises
    ------
    InputError
        If there is no such file, it is larger, it is a folder, a pipe or a device, or, without
        ``links``, it or its folder is a symbolic link.
    """
    with _opened(path, max_bytes, links=links) as (file, size):
        return file.read(size)  # allocated at once, so never the limit itself


@contextmanager
def _opened(
    path: AnyPath,
    max_bytes: int,
    *,
    links: bool,
) -> Iterator[tuple[BinaryIO, int]]:
    """A plain file and its size, as :func:`read_file` promises."""
    name = os.path.expanduser(os.fspath(path))
    if "\0" in name:
        raise InputError(f"{name!r} cannot be the name of a file.")
    places = (name, os.path.dirname(name))
    if not links and any(map(os.path.islink, places)):
        raise StorageError(f"{name} is a symbolic link; an index holds plain files only.")
    try:
        # Without blocking: opening a pipe would wait for someone to write to it.
        flags = os.O_RDONLY | _PLAIN_ONLY
        if not links:
            flags |= _NO_LINKS
        handle = os.open(name, flags)
        with open(handle, "rb") as file:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode):
                raise StorageError(f"{name} is not a plain file.")
            if status.st_size > max_bytes:
                raise DamagedError(
                    f"{name} has {status.st_size} bytes; at most {max_bytes} are read."
                )
            yield file, status.st_size
    except OSError as error:
        raise StorageError(f"{name} cannot be read: {error.strerror}; check the path.") from None


def map_file(
    path: AnyPath,
    max_bytes: int,
    *,
    links: bool = True,
) -> memoryview:
    """Map a file as :func:`read_file` reads it.

    Pages are read when they are used, and take no memory that the system could not have back. They
    stay what they are when the file is deleted or replaced. The file must not be written or cut off
    in place. Each mapping holds a descriptor, so the process is allowed as many as it may have.

    Where a mapped file cannot be deleted (Windows), it is read.
    """
    if os.name == "posix":
        _allow_descriptors()
    with _opened(path, max_bytes, links=links) as (file, size):
        if os.name != "posix" or size == 0:
            return memoryview(file.read(size))
        mapped = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
        return memoryview(mapped)


@cache
def _allow_descriptors() -> None:
    """Raise the soft limit on descriptors of this process to its hard limit, at most 2^20.

    An index may have more segments than the usual soft limit of 1024.
    """
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MAX_DESCRIPTORS
    if hard != resource.RLIM_INFINITY:
        most = min(hard, _MAX_DESCRIPTORS)
    if resource.RLIM_INFINITY != soft < most:
        with suppress(ValueError, OSError):  # macOS has a limit of its own
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def parse_file(
    path: AnyPath,
    max_bytes: int,
    parse: Callable[[bytes], _Parsed],
) -> _Parsed:
    """Return what ``parse`` makes of the bytes of a file; its errors begin with the path."""
    data = read_file(path, max_bytes)
    with naming(os.fspath(path)):
        return parse(data)


@contextmanager
def writing(place: Path | str, remedy: str) -> Iterator[None]:
    """Turn an error of the system into a sentence: what cannot be written, why, and what to do."""
    try:
        yield
    except OSError as error:
        if error.errno in _FORBIDDEN:
            remedy = "take another place, or let yourself write there"
        raise StorageError(
            f"{place} cannot be written: {error.strerror or error}; {remedy}."
        ) from error


_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)


def write_file(
    path: AnyPath,
    data: bytes,
    *,
    mode: int = 0o666,
) -> None:
    """Write durably and all at once: a temporary file, fsync, rename, fsync of the folder.

    ``mode`` are the permissions of the file, less the process's umask.
    """
    place = Path(path).expanduser()
    temporary = place.with_name(place.name + ".tmp")
    # Created exclusively: a link that someone put there is replaced, not followed.
    temporary.unlink(missing_ok=True)
    try:
        with open(temporary, "xb", opener=partial(os.open, mode=mode)) as file:
            write_through(file, data, place)
        os.replace(temporary, place)
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(place.parent)


def create_file(
    path: AnyPath,
    data: bytes,
    *,
    mode: int = 0o666,
) -> None:
    """Write a new file durably; InputError if there is one, which is never overwritten.

    Its permissions are ``mode``, less the process's umask.
    """
    place = Path(path).expanduser()
    try:
        file = open(place, "xb", opener=partial(os.open, mode=mode))  # noqa: SIM115
    except FileExistsError:
        raise InputError(f"{place} already exists; choose another name.") from None
    try:
        with file:
            write_through(file, data, place)
    except BaseException:
        place.unlink()
        raise
    sync_folder(place.parent)


def write_through(file: BinaryIO, data: Buffer, place: Path) -> None:
    """Write bytes to the disk itself; an error of the system names the place."""
    try:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    except OSError as error:
        error.filename = str(place)  # writes to an open file name none
        raise


def make_folder(path: Path) -> None:
    """Make a folder, and what is missing above it, durably; one that is there is left as it is."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    for folder in reversed(missing):
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)
    path.mkdir(exist_ok=True)  # refuses a file in its place


def sync_folder(path: AnyPath, within: int | None = None) -> None:
    """Make the names in a folder durable, where the system can.

    A relative path is one from the folder of the descriptor ``within``.
    """
    if os.name == "posix":
        folder = os.open(path, os.O_RDONLY, dir_fd=within)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


@contextmanager
def holding_lock(
    path: Path,
    what: str,
    waiting: Callable[[], object] | None = None,
) -> Iterator[None]:
    """Hold the lock file at ``path``, made if need be; InputError if another process holds it.

    With ``waiting``, which is called if there is one, that process is waited for. The lock is the
    operating system's and ends with the process that holds it. A symbolic link at ``path`` is not
    followed.
    """
    flags = os.O_RDWR | os.O_CREAT | _PLAIN_ONLY | _NO_LINKS
    with open(os.open(path, flags, 0o600), "rb") as file:
        try:
            try:
                _lock(file.fileno(), wait=False)
            except OSError:
                if waiting is None:
                    raise
                waiting()
                _lock(file.fileno(), wait=True)
        except ImportError:
            none = f"{what} cannot be written safely: this system has no file locks; use another."
            raise StorageError(none) from None
        except OSError:
            busy = f"{what} is being written by another process; wait for it to end."
            raise BusyError(busy) from None
        yield


def _lock(handle: int, *, wait: bool) -> None:
    """Lock an open file; OSError if another has locked it, ImportError if there are no locks.

    Waiting ends with the other's lock, on Windows after ten seconds.
    """
    try:
        import fcntl
    except ImportError:
        import msvcrt

        msvcrt.locking(handle, msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
    else:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))


def pack(
    kind: str,
    facts: Mapping[str, Any],
    arrays: Mapping[str, AnyArray],
) -> bytes:
    """A container of that kind: public facts as JSON, and arrays of integers or floats.

    >>> facts, arrays = unpack(pack("example", {"a": 1}, {"x": np.arange(3)}), "example")
    >>> facts["a"], arrays["x"].tolist()
    (1, [0, 1, 2])
    """
    shapes = []
    parts = []
    for name, array in arrays.items():
        little = array.astype(array.dtype.newbyteorder("<"), copy=False)
        shapes.append([name, little.dtype.str, list(little.shape)])
        parts.append(little.tobytes())
    content = {"kind": kind, "facts": dict(facts), "arrays": shapes}
    text = json.dumps(content, sort_keys=True, allow_nan=False)
    header = text.encode()
    body = b"".join(parts)
    digest = hashlib.sha256(header + body).digest()
    frame = _FRAME.pack(MAGIC, _VERSION, 0, len(header), len(body), digest)
    return frame + header + body


def unpack(
    data: Buffer,
    kind: str,
    *,
    verified: bool = False,
) -> Unpacked:
    """Facts and arrays (read-only views of the bytes) of a container; the inverse of :func:`pack`.

    With ``verified`` all bytes were compared with a digest before, and the container's own digest
    is not computed once more.

    Raises
    ------
    InputError
        If the bytes are cut off, changed, of another version or kind, or no container at all.
    """
    data = memoryview(data).toreadonly()
    body_start = _framed(data, kind, verified)
    try:
        header = _header(data[_FRAME.size : body_start])
        arrays = _arrays(header["arrays"], data[body_start:])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise DamagedError(
            f"the bytes of the {kind} have a header that no dpindex writes."
        ) from None
    if header["kind"] != kind:
        raise DamagedError(f"these bytes are dpindex {header['kind']:.40}, no {kind}.")
    return header["facts"], arrays


def checked_array(
    array: AnyArray,
    dtype: str,
    sides: str,
    sizes: dict[str, int],
) -> AnyArray:
    """Return a finite array of a container as it is to be used; ValueError for another one.

    Parameters
    ----------
    array : array
        In the byte order of the container.
    dtype : str
        Kind and bytes of a number, such as "f4".
    sides : str
        A letter for each side: those of one letter are equal.
    sizes : dict
        The sides that are known, to which those of this array are added.
    """
    shape = tuple(sizes.setdefault(*side) for side in zip(sides, array.shape, strict=True))
    if array.dtype.str[1:] != dtype or array.shape != shape or not np.isfinite(array).all():
        raise ValueError("array")
    return array.astype(dtype, copy=False)


def _framed(data: memoryview, kind: str, verified: bool) -> int:
    """Check the frame around header and body, and return where the body begins."""
    if len(data) < _FRAME.size or data[:4] != MAGIC:
        raise DamagedError(f"these bytes hold no dpindex {kind}.")
    _, version, reserved, header_bytes, body_bytes, digest = _FRAME.unpack_from(data)
    if version != _VERSION or reserved:
        raise DamagedError(
            f"the bytes of the {kind} have format version {data[4]}; this is version {_VERSION}."
        )
    body_start = _FRAME.size + header_bytes
    if header_bytes > _MAX_HEADER or body_start + body_bytes != len(data):
        raise DamagedError(f"the bytes of the {kind} are cut off or too many.")
    if not verified and hashlib.sha256(data[_FRAME.size :]).digest() != digest:
        raise DamagedError(f"the bytes of the {kind} are damaged: the checksum does not match.")
    return int(body_start)


def _header(data: memoryview) -> dict[str, Any]:
    """Return kind, facts and shapes; some error that is not OSError if they are not such."""
    header: dict[str, Any] = json.loads(bytes(data))
    if set(header) != {"kind", "facts", "arrays"}:
        raise ValueError("other keys")
    if not header["kind"].isidentifier() or not isinstance(header["facts"], dict):
        raise ValueError("other values")
    return header


def _arrays(shapes: Any, body: memoryview) -> dict[str, AnyArray]:
    """Return views of the body as arrays; ValueError unless they fill it."""
    arrays: dict[str, AnyArray] = {}
    start = 0
    for name, dtype, shape in shapes:
        if dtype not in _DTYPES or not all(type(side) is int and side >= 0 for side in shape):
            raise ValueError("another dtype or shape")
        stop = start + np.dtype(dtype).itemsize * math.prod(shape)
        if stop > len(body) or name in arrays or len(shape) > 8:
            raise ValueError("too many numbers, names or axes")
        values = np.frombuffer(body[start:stop], dtype=dtype)
        arrays[name] = values.reshape(shape)
        start = stop
    if start != len(body):
        raise ValueError("bytes of no array")
    return arrays


_SECRET = "secret"
_SECRET_BYTES = 32


def refuse_open_to_others(path: Path) -> None:
    """Refuse a file or folder that is there and that another user may read, write or enter.

    Raises
    ------
    StorageError
        With the command that takes these permissions away. Only POSIX systems have them.
    """
    if os.name != "posix" or not path.exists():
        return
    status = path.stat()
    if stat.S_IMODE(status.st_mode) & 0o077:
        mode = 700 if stat.S_ISDIR(status.st_mode) else 600
        raise StorageError(f"{path} can be read by others; run chmod {mode} {path}.")


def read_private_file(path: Path, max_bytes: int) -> bytes:
    """Return the bytes of a file as :func:`dpindex.base.files.read_file` does.

    Raises
    ------
    StorageError
        Also if another user may read it.
    """
    data = read_file(path, max_bytes)
    refuse_open_to_others(path)
    return data


def private_folder(path: Path) -> None:
    """Make a folder of mode 0700 under any umask, and what is missing above it, durably.

    Raises
    ------
    StorageError
        If it is there and another user may enter it.
    """
    make_folder(path.parent)
    try:
        path.mkdir(mode=0o700)
        path.chmod(0o700)
        sync_folder(path.parent)
    except FileExistsError:
        if not path.is_dir():
            raise
    refuse_open_to_others(path)


@contextmanager
def holding_folder(folder: Path, what: str) -> Iterator[Path]:
    """Make a private folder if need be, hold the lock file in it, and give the folder.

    Raises
    ------
    BusyError
        If another process holds it.
    StorageError
        If it cannot be made, is a symbolic link, or another user may enter it.
    """
    if folder.is_symlink():
        raise StorageError(f"{folder} is a symbolic link, not a folder; remove it.")
    with ExitStack() as stack:
        with writing(folder, "allow it, or move the index to a folder that can be written"):
            private_folder(folder)
            stack.enter_context(holding_lock(folder / "lock", what))
        yield folder


def state_folder() -> Path:
    """Return where this machine's secret and the logs of collectors of database servers lie.

    It is ``$DPINDEX_STATE``, or the folder of the user's own state.
    """
    if named := os.environ.get("DPINDEX_STATE"):
        return Path(named)
    users = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return Path(users) / "dpindex"


def machine_secret() -> bytes:
    """Return 32 secret bytes of this user on this machine, made when they are first needed.

    Hashes of private content are keyed with them: whoever has not the secret confirms no guess of
    the content.

    Raises
    ------
    StorageError
        If the folder of the state cannot be written, or another user may read the secret.
    """
    folder = state_folder()
    place = folder / _SECRET
    with writing(folder, "name another folder in DPINDEX_STATE"):
        private_folder(folder)
        if not place.exists():
            with suppress(InputError):  # another process made it first
                create_file(place, os.urandom(_SECRET_BYTES), mode=0o600)
    secret = read_private_file(place, _SECRET_BYTES)
    if len(secret) != _SECRET_BYTES:
        raise DamagedError(f"{place} is not the secret of a machine; remove it.")
    return secret
