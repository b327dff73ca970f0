"""Options that several commands share, and how they become a spec."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from dpindex.codes import Codes, codes_from_bytes
from dpindex.errors import InputError
from dpindex.files import parse_file
from dpindex.ledger import Ledger

__all__ = [
    "AsJson",
    "Delta",
    "Denoise",
    "Denoiser",
    "LedgerFile",
    "Rerelease",
    "Seed",
    "VectorFile",
    "open_ledger",
    "progress_bar",
    "read_codes",
    "refuse_existing",
    "show_totals",
    "task_bar",
]

_MAX_CODES = 1 << 33

VectorFile = Annotated[
    str,
    typer.Argument(
        help="Vector file: .npy, .npz, .fvecs, .bvecs, .hdf5, .parquet or a CSR .npz; "
        "PATH:KEY picks."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="JSON for programs.")]
Delta = Annotated[float, typer.Option(help="For Gaussian methods, e.g. 1e-6; pure ones need 0.")]


class Denoiser(str, Enum):
    auto = "auto"
    linear = "linear"
    score = "score"


Denoise = Annotated[
    Denoiser | None,
    typer.Option(help="Learn from the codes how to denoise them; free.  [default: do not]"),
]
Seed = Annotated[int, typer.Option(help="Public seed of the projection, or of the hashes.")]
LedgerFile = Annotated[
    Path | None,
    typer.Option("--ledger", help="Your private file of releases: refuses an id a second time."),
]
Rerelease = Annotated[
    bool,
    typer.Option("--allow-rerelease", help="Allow ids that the ledger knows; epsilons add up."),
]


def open_ledger(path: Path | None, ids: Any | None, allow_rerelease: bool) -> Ledger | None:
    """The ledger that was named, if any; it needs ids, and ``--allow-rerelease`` needs it."""
    if path is None:
        if allow_rerelease:
            raise InputError(
                "--allow-rerelease is about what a ledger knows; name it with --ledger."
            )
        return None
    if ids is None:
        raise InputError("a ledger counts releases by id; name a file of ids with --ids.")
    return Ledger(path)


def show_totals(ledger: Ledger | None, ids: Any) -> None:
    """What has been released of these ids in all, if some were released more than once."""
    if ledger is not None:
        totals = ledger.totals(ids)
        if totals[0].releases > 1:
            typer.echo("In total, by the ledger:")
            for total in totals:
                typer.echo(f"  {total}.")


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on a terminal, silence in a pipe; yields ``report(done, total)``."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(
        *columns, console=console, disable=not console.is_terminal, transient=True
    ) as progress:
        task = progress.add_task(what, total=None)

        def report(done: int, total: int) -> None:
            progress.update(task, completed=done, total=total)

        yield report


@contextmanager
def task_bar(what: str) -> Iterator[Callable[[int, int, str], None]]:
    """The same with a word on what is done now: yields ``report(done, total, task)``."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(
        *columns, console=console, disable=not console.is_terminal, transient=True
    ) as progress:
        task = progress.add_task(what, total=None)

        def report(done: int, total: int, now: str) -> None:
            progress.update(task, completed=done, total=total, description=f"{what}: {now}")

        yield report


def read_codes(path: Path) -> Codes | None:
    """The codes in a file written by ``dpindex privatize``, or None if it is another kind."""
    if not path.is_file():
        return None
    with path.open("rb") as file:
        if file.read(4) != b"DPIX":
            return None
    return parse_file(path, _MAX_CODES, codes_from_bytes)


def refuse_existing(path: Path) -> None:
    """Refuse, before any work, an output file that is already there or has no folder."""
    if path.exists():
        raise InputError(f"{path} already exists; choose another name.")
    if not path.parent.is_dir():
        raise InputError(f"{path.parent} is not a directory; make it first.")
