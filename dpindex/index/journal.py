"""The journal of one index directory: what an interrupted write needs to go on, kept outside of it.

New files are staged here, out of sight of whoever reads or copies the directory. Once a pending
manifest seals them they are certain: they are copied into the directory, and the next to write
there copies what is missing. So codes that were seen are never drawn again. Of a build the journal
also holds the claim, without which the build cannot be continued.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np

from dpindex.base.arrays import AnyArray
from dpindex.base.errors import InputError
from dpindex.base.files import make_folder, pack, parse_file, read_file, unpack, write_file

_PENDING, _CLAIM, _STAGED = "pending", "claim", "staged"
_MAX_BYTES = 1 << 33
_Claim = TypeVar("_Claim")


def state_folder() -> Path:
    """Where journals lie unless there is a ledger: ``$DPINDEX_STATE``, or the user's own state."""
    if stated := os.environ.get("DPINDEX_STATE"):
        return Path(stated)
    users = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return Path(users) / "dpindex"


class Journal:
    """The journal of the index directory ``index``, in a folder of its own inside ``state``.

    It belongs to the place of the directory, not to its content: a copy elsewhere has none.
    """

    def __init__(self, index: Path, state: Path) -> None:
        self._index = index
        self.path = state.absolute() / hashlib.sha256(os.fsencode(index)).hexdigest()[:32]

    @property
    def exists(self) -> bool:
        """Whether something was interrupted, or is being written."""
        return os.path.isdir(self.path)  # false also where it may not be looked for

    def begin(self) -> None:
        """Make the folder, without anything that was staged and not sealed.

        Raises
        ------
        InputError
            If it would lie in the directory, or cannot be written.
        """
        if self.path.resolve().is_relative_to(self._index):
            raise InputError(
                f"{self.path} would lie inside {self._index}, which is meant to be published; name "
                f"another folder for what is not finished in DPINDEX_STATE."
            )
        try:
            make_folder(self.path, 0o700)
            shutil.rmtree(self.path / _STAGED, ignore_errors=True)
            make_folder(self.path / _STAGED, 0o700)
        except OSError as error:
            raise InputError(
                f"{self.path} cannot be written: {error.strerror}; make room for it there, or, "
                f"without a ledger, name another folder in DPINDEX_STATE."
            ) from None

    def stage(self, name: str, data: bytes) -> None:
        """Keep a file that is meant for the directory, under its path there."""
        write_file(self._place(name), data, mode=0o600)

    def _place(self, name: str) -> Path:
        """Where a file is staged: all in one folder, which is synced with each."""
        return self.path / _STAGED / name.replace("/", "-")

    def staged(self) -> list[str]:
        """Paths in the directory of all files that are staged."""
        folder = self.path / _STAGED
        return [f.name.replace("-", "/") for f in folder.iterdir()] if folder.is_dir() else []

    def read(self, name: str) -> bytes:
        """A staged file."""
        return read_file(self._place(name), _MAX_BYTES, links=False)

    def published(self, name: str) -> None:
        """Drop a staged file that lies in the directory now."""
        self._place(name).unlink()

    def seal(self, base: str, manifest: bytes) -> None:
        """Make certain what is staged: with this manifest it follows that of the hash ``base``."""
        arrays: dict[str, AnyArray] = {"manifest": np.frombuffer(manifest, np.uint8)}
        write_file(self.path / _PENDING, pack(_PENDING, {"base": base}, arrays), mode=0o600)

    def pending(self) -> tuple[str, bytes] | None:
        """The base and the manifest of the last seal, published or not; None if there is none."""
        if not os.path.isfile(self.path / _PENDING):
            return None
        facts, arrays = parse_file(self.path / _PENDING, _MAX_BYTES, partial(unpack, kind=_PENDING))
        return str(facts["base"]), arrays["manifest"].tobytes()

    def write_claim(self, claim: bytes) -> None:
        """Keep the claim of a build that begins."""
        write_file(self.path / _CLAIM, claim, mode=0o600)

    def claim(self, parse: Callable[[bytes], _Claim]) -> _Claim | None:
        """The claim of the unfinished build, or None if it was not begun under this journal."""
        place = self.path / _CLAIM
        return parse_file(place, _MAX_BYTES, parse) if os.path.isfile(place) else None

    def clear(self) -> None:
        """Remove it: nothing is unfinished."""
        if self.exists:
            shutil.rmtree(self.path)
            with suppress(OSError):  # others' journals are there
                self.path.parent.rmdir()
