"""The release of a sketch into a file, on the path that codes take."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

from dpindex.base.checks import check_values
from dpindex.base.display import Progress
from dpindex.base.errors import naming
from dpindex.base.files import AnyPath
from dpindex.data.dataset import Dataset
from dpindex.race.sketch import MAX_BYTES, RaceSketch
from dpindex.race.spec import SketchSpec
from dpindex.storage.history import Terms
from dpindex.storage.journal import Journal
from dpindex.storage.leak_check import LeakCheck
from dpindex.storage.release import Drawn, Files, Target, release
from dpindex.storage.shards import Attempt, Checked, Segment, Shard
from dpindex.storage.targets import publish_file

_SKETCH = "sketch"


def build_sketch(
    dataset: Dataset,
    path: AnyPath,
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


class SketchTarget(Target[RaceSketch]):
    """A new file with a released sketch; its shards are counted in this process.

    Parameters
    ----------
    path : path
    spec : SketchSpec
    """

    def __init__(self, path: AnyPath, spec: SketchSpec) -> None:
        self.spec: SketchSpec = spec
        self.path: Path = Path(path).absolute()
        self._sketch = RaceSketch(spec)  # refuses now what could not be released

    def checking(self, key: bytes, leak_check: LeakCheck | None) -> Callable[[Shard], Checked]:
        def check(shard: Shard) -> Checked:
            segments = []
            for segment, chunk, _ in shard.read(key):
                with naming(shard.part.name):
                    records = self.spec.vectors(chunk, "records")
                    check_values(records, shard.part.start + segment.start)
                segments.append(segment)
            return Checked(shard.first_row, tuple(segments))

        return check

    def drawing(self, key: bytes, threads: int | None) -> Callable[[Shard], Attempt]:
        def count(shard: Shard) -> Attempt:
            for _, chunk, _ in shard.read(key):
                self._sketch.partial_fit(chunk)
            return {segment.number: {} for segment in shard.segments}

        return count

    def found(self, journal: Journal, segments: Sequence[Segment]) -> dict[str, Files]:
        """Return all segments once the noise was added, and none before."""
        if journal.get(_SKETCH, MAX_BYTES) is None:
            return {}
        return {segment.number: {} for segment in segments}

    def digest(self, journal: Journal, drawn: Drawn) -> str:
        """Add the noise, unless an earlier attempt had."""
        data = journal.get(_SKETCH, MAX_BYTES)
        if data is None:
            data = self._sketch.release().to_bytes()
            journal.put(_SKETCH, data)
        return hashlib.sha256(data).hexdigest()

    def publish(self, journal: Journal, drawn: Drawn) -> RaceSketch:
        data = journal.get(_SKETCH, MAX_BYTES) or b""
        publish_file(journal, self.path, data)
        return RaceSketch.from_bytes(data)
