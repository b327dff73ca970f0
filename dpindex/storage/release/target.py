"""The seam of targets: where the codes of a release go.

To add a target of codes, subclass :class:`CodeTarget` and say where the unfinished release is kept
(``workspace``), where its draws are (``draws``), and how they are published (``commit``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from dpindex.base.errors import InputError
from dpindex.data.dataset import Dataset
from dpindex.mechanism.codes import Codes
from dpindex.mechanism.parameters import Codebook
from dpindex.mechanism.spec import Spec
from dpindex.storage.code_store import rows_per_segment
from dpindex.storage.leak_check import LeakCheck
from dpindex.storage.release.content import ContentKey
from dpindex.storage.release.engine import Engine
from dpindex.storage.release.work import (
    Checked,
    CodeCheck,
    CodeDraw,
    Draws,
    Receipt,
    Segment,
    Shard,
)
from dpindex.storage.release.workspace import Workspace

if TYPE_CHECKING:  # devices keep no ledger
    from dpindex.accounting.ledger import Ledger, Released

__all__ = ["CodeTarget", "Drawn", "Target"]

Space = TypeVar("Space", bound=Workspace)
Published = TypeVar("Published")


@dataclass(frozen=True)
class Drawn:
    """A release of which everything is drawn.

    Attributes
    ----------
    shards : sequence of Shard
    receipts : sequence of Receipt
        One for every segment, in order.
    engine : callable
        For work on all shards.
    """

    shards: Sequence[Shard]
    receipts: Sequence[Receipt]
    engine: Engine

    @property
    def segments(self) -> list[Segment]:
        """All segments in the order of rows."""
        return [segment for shard in self.shards for segment in shard.segments]

    @property
    def rows(self) -> int:
        """Rows of all segments."""
        return sum(segment.rows for segment in self.segments)


class Target(ABC, Generic[Space, Published]):
    """Where a release goes.

    Attributes
    ----------
    spec : Spec or SketchSpec
        What is released.
    path : Path, optional
        What is going to be published as a file or folder: no ledger may lie in it.
    """

    spec: Released
    path: Path | None = None

    @property
    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """Options that a resumed release must share, as plain JSON values by name."""

    @property
    def codebook(self) -> Codebook | None:
        """The public vectors of which few may be private ones; None if there are none."""
        return None

    def check(self, dataset: Dataset) -> None:
        """Refuse what cannot be released here, before any vector is read."""
        if dataset.columns != self.spec.dim:
            raise InputError(
                f"{dataset.name} has {dataset.columns} columns where the spec says {self.spec.dim}."
            )

    @abstractmethod
    def segment_rows(self, dataset: Dataset) -> int:
        """Return how many rows are drawn together."""

    @abstractmethod
    def workspace(self, ledger: Ledger | None) -> Space:
        """Return where the unfinished release is kept; InputError if the target is taken."""

    @abstractmethod
    def checking(
        self, content: ContentKey | None, leak_check: LeakCheck | None
    ) -> Callable[[Shard], Checked]:
        """Return what checks a shard."""

    @abstractmethod
    def drawing(
        self, space: Space, token: str, threads: int | None
    ) -> Callable[[Shard], list[Receipt]]:
        """Return what draws a shard."""

    @abstractmethod
    def commit(self, space: Space, token: str, drawn: Drawn) -> Published:
        """Publish what was drawn, in one step that can be repeated."""


class CodeTarget(Target[Space, Published]):
    """A target of codes."""

    spec: Spec

    @property
    def codebook(self) -> Codebook | None:
        return self.spec.codebook

    def segment_rows(self, dataset: Dataset) -> int:
        return min(rows_per_segment(self.spec), dataset.rows_at_a_time)

    def checking(
        self, content: ContentKey | None, leak_check: LeakCheck | None
    ) -> Callable[[Shard], Checked]:
        return CodeCheck(self.spec, content, leak_check)

    def drawing(
        self, space: Space, token: str, threads: int | None
    ) -> Callable[[Shard], list[Receipt]]:
        return CodeDraw(self.spec, space.content, self.draws(space, token), threads)

    @abstractmethod
    def draws(self, space: Space, token: str) -> Draws:
        """Return where draws are kept."""

    def all_codes(self, draws: Draws, drawn: Drawn) -> Codes:
        """Return the codes of all rows."""
        format_ = self.spec.format
        stored = [draws.codes(segment).stored for segment in drawn.segments]
        return format_.codes(format_.concatenate(stored))
