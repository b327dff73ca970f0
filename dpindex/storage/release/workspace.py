"""Workspaces: where an unfinished release keeps its mark, its key and what it has staged.

A workspace is private. It is made when a release begins and removed when the release ends.
"""

from __future__ import annotations

import gc
import json
import os
import secrets
import shutil
import weakref
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dpindex.base.arrays import AnyArray
from dpindex.base.errors import BusyError, InputError, StorageError, naming
from dpindex.base.files import (
    holding_lock,
    make_folder,
    pack,
    private_folder,
    read_private_file,
    refuse_open_to_others,
    unpack,
)
from dpindex.storage.release.content import TAG_BYTES, ContentKey
from dpindex.storage.staging import (
    RELEASE_MARK,
    StagingFolder,
    create_once,
    foreign_names,
    unpublished_path,
    writing_beside,
)

__all__ = ["FolderWorkspace", "LedgerWorkspace", "NoWorkspace", "ReleaseMark", "Workspace"]

_KEY = "key"
_KEY_BYTES = 32
_LOCK = "lock"
_MAX_MARK_BYTES = 1 << 30


@dataclass(frozen=True)
class ReleaseMark:
    """The mark of a release, by which whoever repeats it is recognised.

    Attributes
    ----------
    facts : mapping
        Plain JSON values that must match, each under the name that messages give it.
    tags : bytes
        Of all segments, under the key of the workspace.
    token : str
        Names the release in the ledger and in its staging.
    """

    facts: Mapping[str, Any]
    tags: bytes
    token: str = field(default_factory=lambda: secrets.token_hex(16))

    def differences(self, other: ReleaseMark) -> list[str]:
        """Return the names of what differs between two marks."""
        names = [name for name, value in self.facts.items() if other.facts.get(name) != value]
        if self.tags != other.tags:
            names.append("vectors, ids or payload")
        return names


class Workspace(ABC):
    """Where an unfinished release is kept.

    Attributes
    ----------
    content : ContentKey, optional
        Recognises its vectors; None where nothing can be resumed.
    """

    content: ContentKey | None

    @property
    @abstractmethod
    def is_new(self) -> bool:
        """Whether nothing is unfinished here for certain."""

    @abstractmethod
    def find(self, mark: ReleaseMark) -> ReleaseMark | None:
        """Return the mark of the same release, if it has begun; None if it has not.

        Raises
        ------
        InputError
            If another release is unfinished here, or a copy of one.
        """

    @abstractmethod
    def begin(self, mark: ReleaseMark) -> None:
        """Keep the mark of a release that begins, durably.

        Raises
        ------
        InputError
            If another process began one meanwhile, or the workspace cannot be written.
        """

    @abstractmethod
    def end(self) -> None:
        """Remove everything: the release is finished, or nothing of it was drawn."""


class NoWorkspace(Workspace):
    """Nothing is kept: what dies in memory was seen by nobody, and no ledger counts it."""

    content = None

    @property
    def is_new(self) -> bool:
        return True

    def find(self, mark: ReleaseMark) -> ReleaseMark | None:
        return None

    def begin(self, mark: ReleaseMark) -> None:
        pass

    def end(self) -> None:
        pass


class FolderWorkspace(Workspace):
    """A private folder of one release, beside its target or where it was named.

    Parameters
    ----------
    path : Path
        The folder, made when the release begins.
    target : str
        What the release is published as.

    Attributes
    ----------
    begun : ReleaseMark, optional
        The release that is unfinished here; None if there is none.
    """

    content: ContentKey

    def __init__(self, path: Path, target: str) -> None:
        self.path = path
        self._target = target
        refuse_open_to_others(path)
        foreign = foreign_names(path)
        if foreign:
            raise InputError(
                f"{path} holds {foreign[0]}, which is not of a release; what is not published yet "
                f"needs a folder of its own, as its content goes when the release ends."
            )
        self.begun: ReleaseMark | None = None
        self.content = ContentKey()
        if os.path.lexists(path / RELEASE_MARK):
            data = read_private_file(path / RELEASE_MARK, _MAX_MARK_BYTES)
            with naming(str(path / RELEASE_MARK)):
                self.begun = self._parsed(data)

    @classmethod
    def beside(cls, target: Path) -> FolderWorkspace:
        """Return the workspace beside a target."""
        return cls(unpublished_path(target), str(target))

    @property
    def is_new(self) -> bool:
        return self.begun is None

    def find(self, mark: ReleaseMark) -> ReleaseMark | None:
        begun = self.begun
        if begun is None:
            return None
        differences = mark.differences(begun)
        if differences:
            raise InputError(
                f"{self._target} has an unfinished build of other input (its "
                f"{' and '.join(differences)} differ); finish it with the same input and options, "
                f"or choose another place. A build elsewhere would release its vectors a second "
                f"time."
            )
        with writing_beside(Path(self._target)):
            make_folder(self.path / begun.token)
        return begun

    def begin(self, mark: ReleaseMark) -> None:
        with writing_beside(Path(self._target)):
            private_folder(self.path)
            make_folder(self.path / mark.token)  # before the mark, which says that it is there
            place = self.path / RELEASE_MARK
            created = create_once(place, self._bytes(mark), self.path, mode=0o600)
        if not created:
            raise BusyError(
                f"{self._target} is being built by another process; run it again to go on with it."
            )

    def staging(self, token: str) -> StagingFolder:
        """Return the staging of the release with that token."""
        return StagingFolder(self.path / token)

    def end(self) -> None:
        with suppress(OSError):
            # First: without it nothing is unfinished.
            (self.path / RELEASE_MARK).unlink(missing_ok=True)
        if not foreign_names(self.path):  # of a folder that the user named
            shutil.rmtree(self.path, ignore_errors=True)

    def _bytes(self, mark: ReleaseMark) -> bytes:
        """Return the file of a mark; it names this very folder, so that a copy is recognised."""
        header = {"token": mark.token, "target": self._target, "folder": self._folder_number()}
        arrays: dict[str, AnyArray] = {
            "key": np.frombuffer(self.content.key, np.uint8),
            "tags": np.frombuffer(mark.tags, np.uint8).reshape(-1, TAG_BYTES),
            "facts": np.frombuffer(json.dumps(dict(mark.facts)).encode(), np.uint8),
        }
        return pack(RELEASE_MARK, header, arrays)

    def _parsed(self, data: bytes) -> ReleaseMark:
        header, arrays = unpack(data, RELEASE_MARK)
        if (header["target"], header["folder"]) != (self._target, self._folder_number()):
            raise InputError(
                f"this unfinished build was begun elsewhere ({header['target']}) and copied or "
                f"moved here. Finish the one that was begun; finishing both would release vectors "
                f"twice."
            )
        self.content = ContentKey(arrays["key"].tobytes())
        facts = json.loads(arrays["facts"].tobytes())
        return ReleaseMark(facts, arrays["tags"].tobytes(), header["token"])

    def _folder_number(self) -> int:
        return self.path.stat().st_ino


class LedgerWorkspace(Workspace):
    """A private folder beside a ledger, for codes that are in memory and not saved yet.

    Codes that the ledger counts lie here until their index is saved. If the index or the process is
    gone before, the same call finds them: nothing is drawn or charged a second time. What an index
    that lives keeps here belongs to it alone.

    Parameters
    ----------
    ledger : Path
    """

    content: ContentKey

    def __init__(self, ledger: Path) -> None:
        self._ledger = ledger
        self._root = unpublished_path(ledger)
        self._path: Path | None = None
        refuse_open_to_others(self._root)
        place = self._root / _KEY
        key = None
        if place.exists():
            key = read_private_file(place, _KEY_BYTES)
        self.content = ContentKey(key)

    @property
    def is_new(self) -> bool:
        return not self._root.is_dir()

    def find(self, mark: ReleaseMark) -> ReleaseMark | None:
        name = self._name(mark)
        for begun in self._root.glob(f"process-*/{name}.*"):
            if self._took(begun):
                return ReleaseMark(mark.facts, mark.tags, begun.name.partition(".")[2])
        return None

    def _took(self, begun: Path) -> bool:
        """Take over what nobody uses any more; return whether it was so."""
        held = _HELD.get((self._root, os.getpid()))
        if held is not None and begun.parent == held.path:
            gc.collect()  # an index that is gone may wait in a cycle
            if begun in _IN_USE:
                return False
            self._use(begun)
            return True
        # A process that lives holds its lock; what a dead one left is taken by one rename.
        with (
            suppress(BusyError, StorageError, FileNotFoundError),
            holding_lock(begun.parent / _LOCK, ""),
        ):
            path = _process_folder(self._root) / begun.name
            os.rename(begun, path)
            self._use(path)
            return True
        return False

    def _use(self, path: Path) -> None:
        make_folder(path / path.name.partition(".")[2])
        self._path = path
        _IN_USE[path] = self

    def begin(self, mark: ReleaseMark) -> None:
        with writing_beside(self._ledger):
            private_folder(self._root)
            create_once(self._root / _KEY, self.content.key, self._root, mode=0o600)
            self._use(_process_folder(self._root) / f"{self._name(mark)}.{mark.token}")

    def staging(self, token: str) -> StagingFolder:
        """Return the staging of the release with that token, which has begun."""
        assert self._path is not None, "begin or find comes first"
        return StagingFolder(self._path / token)

    def end(self) -> None:
        if self._path is None:
            return
        shutil.rmtree(self._path, ignore_errors=True)
        self._path = None
        _let_go(self._root)

    def _name(self, mark: ReleaseMark) -> str:
        return self.content.tag(-1, json.dumps(dict(mark.facts)).encode(), mark.tags).hex()


@dataclass(frozen=True)
class _ProcessFolder:
    """A folder that a process holds by a lock while it lives."""

    path: Path
    lock: ExitStack


_IN_USE: weakref.WeakValueDictionary[Path, LedgerWorkspace] = weakref.WeakValueDictionary()
"""What an index of this process that lives keeps, by its folder."""

_HELD: dict[tuple[Path, int], _ProcessFolder] = {}
"""By the folder around it and the number of the process: a fork has one of its own."""


def _process_folder(root: Path) -> Path:
    """Return the folder of this process in a root, made if need be."""
    key = (root, os.getpid())
    if key not in _HELD:
        folder = root / f"process-{secrets.token_hex(8)}"
        make_folder(folder)
        lock = ExitStack()
        lock.enter_context(holding_lock(folder / _LOCK, str(folder)))
        _HELD[key] = _ProcessFolder(folder, lock)
    return _HELD[key].path


def _let_go(root: Path) -> None:
    """Remove the folder of this process if nothing is left in it, and the root after the last."""
    key = (root, os.getpid())
    if key in _HELD and {path.name for path in _HELD[key].path.iterdir()} <= {_LOCK}:
        folder = _HELD.pop(key)
        shutil.rmtree(folder.path, ignore_errors=True)
        folder.lock.close()
    for process in root.glob("process-*"):
        if {path.name for path in process.iterdir()} <= {_LOCK}:
            # Left by a process that died after another had taken what was in it.
            with suppress(BusyError, StorageError, OSError), holding_lock(process / _LOCK, ""):
                shutil.rmtree(process, ignore_errors=True)
    if not any(path.is_dir() for path in root.iterdir()):  # the key, and files that never got whole
        shutil.rmtree(root, ignore_errors=True)
