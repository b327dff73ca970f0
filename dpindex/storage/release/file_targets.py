"""Targets without an index: a file of codes, and the memory of this process."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpindex.base.errors import InputError
from dpindex.data.dataset import Dataset
from dpindex.mechanism.codes import Codes
from dpindex.mechanism.privatizer import Privatizer
from dpindex.mechanism.spec import Spec
from dpindex.storage.release.draws import HeldDraws, StagedDraws
from dpindex.storage.release.target import CodeTarget, Drawn
from dpindex.storage.release.work import Draws
from dpindex.storage.release.workspace import (
    FolderWorkspace,
    LedgerWorkspace,
    NoWorkspace,
    Workspace,
)
from dpindex.storage.staging import create_once, writing_beside

if TYPE_CHECKING:  # devices keep no ledger
    from dpindex.accounting.ledger import Ledger

__all__ = ["CodesFile", "HeldCodes", "Memory", "NewFile"]


class NewFile:
    """A file that a release makes, once.

    Parameters
    ----------
    path : path
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).absolute()

    def workspace(self) -> FolderWorkspace:
        """Return the workspace beside the file; InputError if the file exists."""
        if os.path.lexists(self.path):
            raise self._exists()
        return FolderWorkspace.beside(self.path)

    def create(self, data: bytes, space: FolderWorkspace) -> None:
        """Create the file, unless it holds these bytes, and end the workspace."""
        with writing_beside(self.path):
            created = create_once(self.path, data, space.path)
        if not created and self.path.read_bytes() != data:
            raise self._exists()
        space.end()

    def _exists(self) -> InputError:
        return InputError(f"{self.path} already exists; choose another name.")


class CodesFile(CodeTarget[FolderWorkspace, int]):
    """A new file of codes. Ids are for the ledger and not in it.

    Parameters
    ----------
    path : path
    spec : Spec
    allow_unprotected : bool
        Allow a ``none-*`` baseline.
    max_epsilon : float, optional
        Refuse a spec with a larger epsilon: see :class:`dpindex.Privatizer`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        spec: Spec,
        *,
        allow_unprotected: bool = False,
        max_epsilon: float | None = None,
    ) -> None:
        Privatizer(spec, allow_unprotected=allow_unprotected, max_epsilon=max_epsilon)
        self.spec = spec
        self._file = NewFile(path)

    @property
    def facts(self) -> dict[str, Any]:
        return {"spec": self.spec.to_dict()}

    def check(self, dataset: Dataset) -> None:
        super().check(dataset)
        if any(part.payload() is not None for part in dataset.parts):
            raise InputError("a file of codes has no payload; give it where they are added.")

    def workspace(self, ledger: Ledger | None) -> FolderWorkspace:
        return self._file.workspace()

    def draws(self, space: FolderWorkspace, token: str) -> Draws:
        return StagedDraws(space.staging(token), self.spec.format, with_labels=False)

    def commit(self, space: FolderWorkspace, token: str, drawn: Drawn) -> int:
        """Create the file; return its bytes."""
        data = self.all_codes(self.draws(space, token), drawn).to_bytes()
        self._file.create(data, space)
        return len(data)


@dataclass(frozen=True)
class HeldCodes:
    """Codes in memory.

    Attributes
    ----------
    codes : Codes
    workspace : Workspace
        Where a ledger's codes lie until they are saved; whoever saves them ends it then.
    """

    codes: Codes
    workspace: Workspace


class Memory(CodeTarget[Workspace, HeldCodes]):
    """The memory of this process. What a ledger counts also lies beside it until it is saved.

    Parameters
    ----------
    spec : Spec
    path : Path, optional
        Where the codes are going to be saved.
    """

    def __init__(self, spec: Spec, path: Path | None = None) -> None:
        self.spec = spec
        self.path = path
        self._held = HeldDraws()

    @property
    def facts(self) -> dict[str, Any]:
        return {"spec": self.spec.to_dict()}

    def segment_rows(self, dataset: Dataset) -> int:
        return max(1, dataset.rows)

    def workspace(self, ledger: Ledger | None) -> Workspace:
        if ledger is None:
            return NoWorkspace()
        return LedgerWorkspace(ledger.path)

    def draws(self, space: Workspace, token: str) -> Draws:
        if isinstance(space, LedgerWorkspace):
            return StagedDraws(space.staging(token), self.spec.format, with_labels=False)
        return self._held

    def commit(self, space: Workspace, token: str, drawn: Drawn) -> HeldCodes:
        return HeldCodes(self.all_codes(self.draws(space, token), drawn), space)
