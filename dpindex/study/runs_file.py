"""The file of runs of a report: runs are appended to it as they end, and read from it to go on.

A line for each run. It has a key of everything that its figures depend on, so lines of other
evaluations are recognised and never taken for, or replaced by, those of this one. The vectors are
part of that, so the key is hashed with the secret of this machine: a reader of the file confirms no
guess of them.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dpindex.base.errors import InputError
from dpindex.base.files import (
    AnyPath,
    holding_lock,
    machine_secret,
    make_folder,
    read_file,
    writing,
)
from dpindex.data import VectorSource

RUNS_FILE = "runs.csv"
_REPORT_FILES = ("curve.csv", "report.html")
_MAX_BYTES = 1 << 30
REMEDY = "choose another directory"
"""For a folder that cannot be written."""


@dataclass(frozen=True)
class RunsFile:
    """The file of runs while runs are appended to it.

    Attributes
    ----------
    path : Path, optional
        Nothing is kept without one.
    lines : dict from str to dict
        The runs that were in it, by their keys, every value as text.
    """

    path: Path | None = None
    lines: Mapping[str, dict[str, str]] = field(default_factory=dict)

    def append(self, lines: Sequence[Mapping[str, Any]]) -> None:
        """Add the lines of one build; they are kept whatever happens later."""
        if self.path is None or not lines:
            return
        with open(self.path, "ab") as file:
            file.write(csv_bytes(lines, header=file.tell() == 0))


@contextmanager
def kept_in(
    report: AnyPath | None,
    keys: Collection[str],
    *,
    replace: bool = False,
) -> Iterator[RunsFile]:
    """The runs of a report that is made or continued; nothing is kept without a folder.

    Raises
    ------
    InputError
        If the folder holds another report and ``replace`` is not stated, cannot be written, or
        another process evaluates into it.
    """
    if report is None:
        yield RunsFile()
        return
    folder = Path(report)
    if not replace:
        refuse_other_report(folder, keys)
    with writing(folder, REMEDY):
        make_folder(folder)
    path = folder / RUNS_FILE
    with holding_lock(path, str(folder)):
        lines = {line["run"]: line for line in read_runs(folder) if line.get("run") in keys}
        with open(path, "r+b") as file:  # in place: the lock is that of this file
            # Without what was cut off, and without the runs that are to be replaced.
            if lines:
                file.write(csv_bytes(list(lines.values())))
            file.truncate()
        try:
            yield RunsFile(path, lines)
        finally:
            if not path.stat().st_size:
                path.unlink()


def refuse_other_report(folder: Path, keys: Collection[str]) -> None:
    """InputError if the folder holds a report of runs without these keys, or of none at all."""
    lines = read_runs(folder)
    others = [line for line in lines if line.get("run") not in keys]
    unknown = not lines and any((folder / name).exists() for name in _REPORT_FILES)
    if others or unknown:
        what = f"{len(others)} runs of another evaluation" if others else "another report"
        raise InputError(
            f"{folder} holds {what}; {REMEDY}, repeat the command that made it (it may have more "
            f"epsilons, methods or runs), or replace it.",
            field="replace",
        )


def read_runs(folder: Path) -> list[dict[str, str]]:
    """The whole lines of the file; a last one that was cut off is left out."""
    path = folder / RUNS_FILE
    if not path.exists():
        return []
    data = read_file(path, _MAX_BYTES)
    whole_lines = data[: data.rfind(b"\n") + 1]
    text = whole_lines.decode("utf-8", "replace")
    return list(csv.DictReader(io.StringIO(text)))


def csv_bytes(lines: Sequence[Mapping[str, Any]], *, header: bool = True) -> bytes:
    """Lines of equal columns, at least one, as CSV."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, lines[0], lineterminator="\n")
    if header:
        writer.writeheader()
    writer.writerows(lines)
    return buffer.getvalue().encode()


def identity_of(source: VectorSource) -> dict[str, Any]:
    """Return what tells vectors apart: their number and their content."""
    content = hashlib.blake2b(digest_size=8)
    for _, chunk in source.chunks():
        parts = [chunk]
        if source.is_sparse:
            parts = [chunk.indptr, chunk.indices, chunk.data]
        for part in parts:
            content.update(np.ascontiguousarray(part).data)
    return {"shape": source.shape, "content": content.hexdigest()}


def run_key(**facts: Any) -> str:
    """Return 16 hexadecimal digits of everything that a run depends on, on this machine.

    The secret of the machine is made if it has none: see :func:`machine_secret`.

    >>> run_key(seed=1) == run_key(seed=1), run_key(seed=1) == run_key(seed=2)
    (True, False)
    """
    text = json.dumps(facts, sort_keys=True).encode()
    return hashlib.blake2b(text, key=machine_secret(), digest_size=8).hexdigest()
