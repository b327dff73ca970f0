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
from dpindex.privacy import attribute, l2
from dpindex.spec import Spec

__all__ = [
    "Again",
    "AsJson",
    "Beta",
    "Bounds",
    "Clip",
    "Delta",
    "Denoise",
    "Denoiser",
    "Entries",
    "Epsilon",
    "L2Radius",
    "LedgerFile",
    "Length",
    "MinNorm",
    "Norm",
    "Repetitions",
    "Scale",
    "Seed",
    "Sparsity",
    "VectorFile",
    "make_spec",
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
Epsilon = Annotated[float | None, typer.Option(help="Budget of one release of one vector.")]
Delta = Annotated[float, typer.Option(help="For Gaussian methods, e.g. 1e-6; pure ones need 0.")]
Beta = Annotated[
    float | None,
    typer.Option(help="Neighbours differ in one attribute by at most this.  [default: 1]"),
]
L2Radius = Annotated[
    float | None,
    typer.Option("--l2", help="Instead of --beta: neighbours lie within this Euclidean distance."),
]
Length = Annotated[
    int | None, typer.Option("--k", help="Length of a code.  [default: the method's]")
]
Repetitions = Annotated[int, typer.Option(help="OPORP repetitions that share epsilon (signs).")]
Scale = Annotated[float, typer.Option(help="Public divisor of every attribute, e.g. 255.")]
Bounds = Annotated[
    tuple[float, float], typer.Option(help="Public range of a scaled attribute, LOW HIGH.")
]
Clip = Annotated[bool, typer.Option("--clip", help="Clip to the bounds instead of refusing.")]
MinNorm = Annotated[
    float | None, typer.Option(help="Public least norm of a vector, for methods that need it.")
]
Norm = Annotated[
    float | None,
    typer.Option(help="Public norm of every vector (1 for unit embeddings): better similarities."),
]
Entries = Annotated[
    str | None,
    typer.Option(
        help="Entries of a random projection: gaussian, rademacher, uniform, very-sparse.  "
        "[default: the method's]"
    ),
]
Sparsity = Annotated[
    int | None,
    typer.Option(
        help="Coordinates an attribute moves (dp-sjlt-*), or one entry in so many (very-sparse)."
    ),
]


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
Again = Annotated[
    bool,
    typer.Option("--allow-rerelease", help="Allow ids that the ledger knows; epsilons add up."),
]


def make_spec(
    method: str,
    dim: int,
    *,
    beta: float | None,
    l2_radius: float | None,
    **rest: Any,
) -> Spec:
    """A spec from command-line options."""
    if beta is not None and l2_radius is not None:
        raise InputError("give --beta or --l2, not both: they are different promises.")
    adjacency = l2(l2_radius) if l2_radius is not None else attribute(1.0 if beta is None else beta)
    return Spec(method=method, dim=dim, adjacency=adjacency, **rest)


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
