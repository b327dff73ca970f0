"""Where answers go: a table for people, JSON or npz for programs; standard output or a new file."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from enum import Enum
from io import BytesIO, StringIO
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from dpindex.arrays import AnyArray
from dpindex.cli import options as o
from dpindex.errors import InputError
from dpindex.files import create_file

__all__ = ["Format", "FormatOption", "Output", "check_output", "write_answers"]

_WIDTH = 100


class Format(str, Enum):
    table = "table"
    json = "json"
    npz = "npz"


FormatOption = Annotated[Format, typer.Option("--format", help="For people or programs.")]
Output = Annotated[Path | None, typer.Option(help="File to write to.  [default: standard output]")]


def check_output(form: Format, output: Path | None) -> None:
    """Refuse, before any work, npz without a file and a file that exists."""
    if form is Format.npz and output is None:
        raise InputError("--format npz needs --output FILE: it is not text.")
    if output is not None:
        o.refuse_existing(output)


def write_answers(
    form: Format,
    output: Path | None,
    columns: Mapping[str, AnyArray],
    table: Callable[[], Table],
    facts: Mapping[str, Any] | None = None,
) -> None:
    """Write named arrays; ``table`` shows them to people, JSON has ``facts`` as well.

    JSON has no NaN: a number that cannot be estimated is null there.
    """
    if form is Format.table and output is None:
        Console().print(table())
        return
    if form is Format.npz:
        archive = BytesIO()
        np.savez(archive, **columns)  # type: ignore[arg-type]
        data = archive.getvalue()
    elif form is Format.json:
        lists = {name: _plain(column) for name, column in columns.items()}
        data = json.dumps({**(facts or {}), **lists}).encode() + b"\n"
    else:
        text = StringIO()
        Console(file=text, width=_WIDTH).print(table())
        data = text.getvalue().encode()
    if output is None:
        typer.echo(data, nl=False)
    else:
        create_file(output, data)


def _plain(column: AnyArray) -> Any:
    values = column.astype(object)
    if column.dtype.kind == "f":
        values[~np.isfinite(column)] = None
    return values.tolist()
