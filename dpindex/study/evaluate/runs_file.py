"""The file runs.csv of a report: a line for each run, appended as the run ends, and read to resume.

Each line has a key of everything that its figures depend on, so lines of other evaluations are
recognised and never taken for, or replaced by, those of this one. The vectors are part of that, so
the key is hashed with the secret of this machine: a reader of the file confirms no guess of them.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dpindex.base.errors import InputError
from dpindex.base.files import holding_lock, make_folder, read_file
from dpindex.base.private_files import machine_secret

__all__ = ["NAME", "RunsFile", "as_text", "csv_bytes", "kept_in", "refuse_other_report", "run_key"]

NAME = "runs.csv"
_REPORT = ("curve.csv", "report.html")
_MAX_BYTES = 1 << 30

Line = Mapping[str, Any]


def run_key(**facts: Any) -> str:
    """Return 16 hexadecimal digits of everything that a run depends on, on this machine.

    The secret of the machine is made if it has none: see :func:`machine_secret`.

    >>> run_key(seed=1) == run_key(seed=1), run_key(seed=1) == run_key(seed=2)
    (True, False)
    """
    text = json.dumps(facts, sort_keys=True).encode()
    return hashlib.blake2b(text, key=machine_secret(), digest_size=8).hexdigest()


def csv_bytes(lines: Iterable[Line], *, header: bool = True) -> bytes:
    """Lines of equal columns as CSV."""
    first, *rest = lines
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, first, lineterminator="\n")
    if header:
        writer.writeheader()
    writer.writerows([first, *rest])
    return buffer.getvalue().encode()


def read_runs(folder: Path) -> list[dict[str, str]]:
    """The whole lines of the file; a last one that was cut off is left out."""
    if not (folder / NAME).exists():
        return []
    data = read_file(folder / NAME, _MAX_BYTES)
    text = data[: data.rfind(b"\n") + 1].decode("utf-8", "replace")
    return list(csv.DictReader(io.StringIO(text)))


def as_text(line: Line) -> dict[str, str]:
    """A line as it is read from the file."""
    return {name: "" if value is None else str(value) for name, value in line.items()}


def refuse_other_report(folder: Path, is_ours: Callable[[dict[str, str]], bool]) -> None:
    """InputError if the folder holds a report with other runs than ours, or none that is known."""
    lines = read_runs(folder)
    others = [line for line in lines if not is_ours(line)]
    unknown = not lines and any((folder / name).exists() for name in _REPORT)
    if others or unknown:
        what = "another report"
        if others:
            what = f"{len(others)} runs of another evaluation"
        raise InputError(
            f"{folder} holds {what}; choose another directory, repeat the command that made it "
            f"(it may have more epsilons, methods or runs), or replace it.",
            field="replace",
        )


class RunsFile:
    """The file while runs are appended to it.

    Attributes
    ----------
    lines : dict from str to dict
        The runs that are known, by their keys, every value as text.
    """

    def __init__(self, path: Path | None, lines: Iterable[dict[str, str]] = ()) -> None:
        self._path = path
        self.lines = {line["run"]: line for line in lines}

    def append(self, lines: Iterable[Line]) -> None:
        """Add the lines of one build; those in a file are kept whatever happens later."""
        lines = list(lines)
        for line in lines:
            self.lines[line["run"]] = as_text(line)
        if self._path is None:
            return
        with open(self._path, "ab") as file:
            file.write(csv_bytes(lines, header=file.tell() == 0))


@contextmanager
def kept_in(
    report: str | os.PathLike[str] | None, keys: Collection[str], *, replace: bool = False
) -> Iterator[RunsFile]:
    """The runs of a report that is made or continued; nothing is kept without a folder.

    Raises
    ------
    InputError
        If the folder holds another report and ``replace`` is not stated, cannot be written, or
        another process evaluates into it.
    """
    if report is None:
        yield RunsFile(None)
        return
    folder = Path(report)
    if not replace:
        refuse_other_report(folder, lambda line: line.get("run") in keys)
    try:
        make_folder(folder)
    except OSError as error:
        reason = error.strerror or error
        raise InputError(f"{folder}: {reason}; choose another directory.") from error
    with holding_lock(folder / NAME, str(folder)):
        lines = [line for line in read_runs(folder) if line.get("run") in keys]
        with open(folder / NAME, "r+b") as file:  # in place: the lock is that of this file
            # Without what was cut off, and without the runs that are to be replaced.
            file.write(csv_bytes(lines) if lines else b"")
            file.truncate()
        try:
            yield RunsFile(folder / NAME, lines)
        finally:
            if not (folder / NAME).stat().st_size:
                (folder / NAME).unlink()
