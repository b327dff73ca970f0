"""The release of a sketch into a file, on the same way as codes."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dpindex.accounting.ledger import Ledger
from dpindex.base.arrays import check_values, real_matrix
from dpindex.base.display import Progress
from dpindex.base.errors import naming
from dpindex.data.dataset import Dataset
from dpindex.race.sketch import MAX_BYTES, RaceSketch, SketchSpec
from dpindex.storage.leak_check import LeakCheck
from dpindex.storage.release import Drawn, NewFile, Receipt, Shard, Target, Terms, release
from dpindex.storage.release.content import ContentKey
from dpindex.storage.release.work import (
    Checked,
    Labels,
    chunks_of,
    content_tag,
    refuse_changed,
)
from dpindex.storage.release.workspace import FolderWorkspace

__all__ = ["SketchTarget", "build_sketch"]

_SKETCH = "sketch"


def build_sketch(
    dataset: Dataset,
    path: str | os.PathLike[str],
    spec: SketchSpec,
    terms: Terms | None = None,
    *,
    progress: Progress | None = None,
) -> RaceSketch:
    """Count all records of a dataset and release the sketch into a new file, once.

    If the process dies, the same call is the same release: the ledger counts it once.

    Parameters
    ----------
    dataset : Dataset
        With ids, if there is a ledger: each id is one record.
    path : path
        The file to make.
    spec : SketchSpec
    terms : Terms, optional
    progress : callable, optional
        Called with the rows that are done, all rows, and "checking" or "privatizing".

    Raises
    ------
    InputError
        For bad records, ids that the ledger knows, and a file that exists.

    >>> import tempfile
    >>> import numpy as np
    >>> from dpindex.race import PStable
    >>> from dpindex.data.dataset import as_dataset
    >>> from dpindex.data import as_source
    >>> records = as_dataset(as_source(np.zeros((50, 2))))
    >>> spec = SketchSpec(dim=2, rows=20, width=10, hash=PStable(1.0), epsilon=64.0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     sketch = build_sketch(records, folder + "/x.sketch", spec)
    >>> 40 < sketch.size < 60
    True
    """
    return release(dataset, SketchTarget(path, spec), terms, progress=progress).published


class SketchTarget(Target[FolderWorkspace, RaceSketch]):
    """A new file with a released sketch; its shards are counted in this process.

    Parameters
    ----------
    path : path
    spec : SketchSpec
    """

    def __init__(self, path: str | os.PathLike[str], spec: SketchSpec) -> None:
        self.spec: SketchSpec = spec
        self._file = NewFile(path)
        self._sketch = RaceSketch(spec)  # refuses now what could not be released

    @property
    def facts(self) -> dict[str, Any]:
        return {"spec": self.spec.to_dict()}

    def segment_rows(self, dataset: Dataset) -> int:
        return dataset.rows_at_a_time

    def workspace(self, ledger: Ledger | None) -> FolderWorkspace:
        return self._file.workspace()

    def checking(
        self, content: ContentKey | None, leak_check: LeakCheck | None
    ) -> Callable[[Shard], Checked]:
        return _SketchCheck(self.spec.dim, content)

    def drawing(
        self, space: FolderWorkspace, token: str, threads: int | None
    ) -> Callable[[Shard], list[Receipt]]:
        def count(shard: Shard) -> list[Receipt]:
            labels = Labels.of_shard(shard)
            for segment, chunk in chunks_of(shard):
                refuse_changed(space.content, shard, segment, chunk, labels)
                self._sketch.partial_fit(chunk)
            return [Receipt(segment.number, {}, segment.rows) for segment in shard.segments]

        return count

    def commit(self, space: FolderWorkspace, token: str, drawn: Drawn) -> RaceSketch:
        """Add the noise, unless an earlier attempt had, and create the file."""
        staging = space.staging(token)
        data = staging.read(_SKETCH, MAX_BYTES)
        if data is None:
            staging.create(_SKETCH, self._sketch.release().to_bytes())
            data = staging.read(_SKETCH, MAX_BYTES) or b""
        self._file.create(data, space)
        return RaceSketch.from_bytes(data)


@dataclass(frozen=True)
class _SketchCheck:
    """Checks the records of a shard."""

    dim: int
    content: ContentKey | None

    def __call__(self, shard: Shard) -> Checked:
        labels = Labels.of_shard(shard)
        tags = []
        for segment, chunk in chunks_of(shard):
            with naming(shard.part.name):
                records = real_matrix(chunk, self.dim, "records", min_rows=0)
                check_values(records, segment.start)
            tags.append(content_tag(self.content, shard, segment, chunk, labels))
        return Checked(shard.first_row, tuple(tags))
