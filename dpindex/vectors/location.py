"""What a user names, ``PATH`` or ``PATH:KEY``, checked before any parser sees a byte of it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import IO, Any

from dpindex.errors import InputError

__all__ = ["MAX_RATIO", "Location", "import_extra", "locate", "open_binary", "reading"]

MAX_RATIO = 1032
"""No DEFLATE stream grows by more than this factor; what claims to is damaged, or a bomb."""


@dataclass(frozen=True)
class Location:
    """A regular, non-empty file, and the key of an array in it: ``size`` in bytes when named."""

    name: str
    path: str
    key: str | None
    size: int
    mtime_ns: int

    @property
    def suffix(self) -> str:
        return os.path.splitext(self.path)[1].lower()

    def error(self, sentence: str) -> InputError:
        return InputError(f"{self.name}: {sentence}")


def locate(location: str | os.PathLike[str]) -> Location:
    """The file that ``PATH`` or ``PATH:KEY`` names; a path that exists as written has no key."""
    name = os.fsdecode(location)
    path, key = _split(name)
    try:
        status = os.stat(path)
    except ValueError as error:  # a null byte
        raise InputError(f"{name!r} cannot be the name of a file.") from error
    except OSError as error:
        reason = error.strerror or "it cannot be found"
        raise InputError(f"{name}: {reason}; check the path.") from error
    if stat.S_ISDIR(status.st_mode):
        raise InputError(f"{name}: this is a directory; name a file in it.")
    if not stat.S_ISREG(status.st_mode):
        raise InputError(f"{name}: this is not a regular file; save the vectors to one first.")
    if status.st_size == 0:
        raise InputError(f"{name}: the file is empty; write it again.")
    return Location(name, path, key, status.st_size, status.st_mtime_ns)


def _split(name: str) -> tuple[str, str | None]:
    if not os.path.exists(name):
        # from the right, so that a file 'a:b.npz' is found in 'a:b.npz:key'
        for colon in reversed([i for i, letter in enumerate(name) if letter == ":"]):
            if os.path.isfile(name[:colon]):
                return name[:colon], name[colon + 1 :]
    return name, None


@contextmanager
def reading(name: str) -> Iterator[None]:
    """Turn whatever a parser raises on foreign bytes into one :class:`InputError`.

    The net is wide on purpose: zipfile, zlib, numpy, HDF5 and Arrow raise a dozen unrelated types
    for a damaged file, and promise none of them. The cause stays chained for whoever debugs.
    """
    try:
        yield
    except InputError:
        raise
    except MemoryError as error:
        raise InputError(f"{name}: not enough memory; read fewer rows at a time.") from error
    except PermissionError as error:
        raise InputError(f"{name}: permission denied; make the file readable.") from error
    except Exception as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise InputError(
            f"{name}: cannot be read ({reason}); check that the file is whole and is what its"
            " suffix says."
        ) from error


def open_binary(location: Location, resources: ExitStack) -> IO[bytes]:
    """Open a file of a format that has no keys; ``resources`` closes it."""
    if location.key is not None:
        raise location.error(f"a {location.suffix} file has no keys; leave out the part after ':'.")
    # unbuffered: a buffer would only copy, chunks are large
    return resources.enter_context(open(location.path, "rb", buffering=0))


def import_extra(module: str, name: str) -> Any:
    """Import an optional dependency, or say how to install it."""
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise InputError(
            f"{name}: reading it needs {package}; run pip install 'dpindex[io]'."
        ) from error
