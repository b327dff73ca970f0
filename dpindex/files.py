"""Reading a small file whole, without letting it take more than it may."""

from __future__ import annotations

import os
import stat

from dpindex.errors import InputError

__all__ = ["read_file"]


def read_file(path: str | os.PathLike[str], most: int) -> bytes:
    """The bytes of a plain file of at most ``most`` bytes.

    Raises
    ------
    InputError
        If there is no such file, it is larger, or it is none (a folder, a pipe, a device).
    """
    name = os.fspath(path)
    if "\0" in name:
        raise InputError(f"{name!r} cannot be the name of a file.")
    try:
        # Looked at first: opening a pipe would wait for someone to write to it.
        status = os.stat(name)
        if not stat.S_ISREG(status.st_mode):
            raise InputError(f"{name} is not a plain file.")
        if status.st_size > most:
            raise InputError(f"{name} has {status.st_size} bytes; at most {most} are read.")
        with open(name, "rb") as file:
            return file.read(status.st_size)  # which is allocated at once, so not ``most``
    except OSError as error:
        raise InputError(f"{name} cannot be read: {error.strerror}; check the path.") from None
