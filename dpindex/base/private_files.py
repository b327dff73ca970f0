"""Files and folders that their owner alone can read, and the secret of this machine."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from dpindex.base.errors import DamagedError, InputError, StorageError
from dpindex.base.files import create_file, holding_lock, make_folder, read_file

__all__ = [
    "holding_folder",
    "machine_secret",
    "private_folder",
    "read_private_file",
    "refuse_open_to_others",
    "state_folder",
]

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
    """Make a folder of mode 0700, and what is missing above it, durably.

    Raises
    ------
    StorageError
        If it is there and another user may enter it.
    """
    make_folder(path, 0o700)
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
        try:
            private_folder(folder)
            stack.enter_context(holding_lock(folder / "lock", what))
        except OSError as error:
            raise StorageError(
                f"{folder} cannot be written: {error.strerror or error}; allow it, or move the "
                f"index to a folder that can be written."
            ) from None
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
    try:
        private_folder(folder)
        if not place.exists():
            with suppress(InputError):  # another process made it first
                create_file(place, os.urandom(_SECRET_BYTES), mode=0o600)
    except OSError as error:
        raise StorageError(
            f"{folder} cannot be written: {error.strerror or error}; name another folder in "
            f"DPINDEX_STATE."
        ) from None
    secret = read_private_file(place, _SECRET_BYTES)
    if len(secret) != _SECRET_BYTES:
        raise DamagedError(f"{place} is not the secret of a machine; remove it.")
    return secret
