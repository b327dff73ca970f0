"""Questions: query."""

from __future__ import annotations

import json
import os
from enum import Enum
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich import box
from rich.console import Console
from rich.table import Table

from dpindex.cli import options as o
from dpindex.errors import InputError
from dpindex.vectors import open_vectors

if TYPE_CHECKING:
    from dpindex.index import Hits

__all__ = ["register"]

_SHOWN = 10


class Mode(str, Enum):
    exact = "exact"
    private = "private"


class Format(str, Enum):
    table = "table"
    json = "json"
    npz = "npz"


def register(app: typer.Typer) -> None:
    app.command()(query)


def query(
    index: Annotated[Path, typer.Argument(help="Index directory.")],
    queries: Annotated[str, typer.Argument(help="Vector file, or codes of devices.")],
    k: Annotated[int, typer.Option("-k", help="Neighbours of each query.")] = 10,
    mode: Annotated[
        Mode, typer.Option("--query", help="exact: used as it is; private: privatized first.")
    ] = Mode.exact,
    form: Annotated[
        Format, typer.Option("--format", help="For people or programs.")
    ] = Format.table,
    output: Annotated[
        Path | None, typer.Option(help="File to write to.  [default: standard output]")
    ] = None,
) -> None:
    """Find the nearest vectors of each query."""
    from dpindex.index import PrivateIndex

    if form is Format.npz and output is None:
        raise InputError("--format npz needs --output FILE: it is not text.")
    if output is not None:
        o.refuse_existing(output)
    opened = PrivateIndex.open(index)
    asked: Any = o.read_codes(Path(queries))
    if asked is None:
        with open_vectors(queries) as source:
            asked = source.read()
    elif mode is Mode.private:
        raise InputError(f"{queries} holds codes, which are private already; leave --query out.")
    hits = opened.search(asked, k=k, query=mode.value)
    if form is Format.table:
        _print_table(hits, opened.metric, output)
    else:
        _write(hits, form, output)


def _print_table(hits: Hits, metric: str, output: Path | None) -> None:
    table = Table("query", "rank", "id", f"{metric} (estimate ± standard error)", box=box.SIMPLE)
    shown = len(hits.ids) if output else min(_SHOWN, len(hits.ids))
    for row in range(shown):
        for rank in range(hits.ids.shape[1]):
            value, error = hits.similarity[row, rank], hits.stderr[row, rank]
            estimate = f"{value:.3f} ± {error:.3f}" if np.isfinite(value) else "needs declared norm"
            table.add_row(str(row), str(rank + 1), str(hits.ids[row, rank]), estimate)
    if output is None:
        Console().print(table)
        if shown < len(hits.ids):
            typer.echo(f"… and {len(hits.ids) - shown} more queries: see --format json or npz.")
        return
    with output.open("x", encoding="utf-8") as file:
        Console(file=file, width=100).print(table)


def _write(hits: Hits, form: Format, output: Path | None) -> None:
    columns = {
        "ids": hits.ids,
        "scores": hits.scores,
        "similarity": hits.similarity,
        "stderr": hits.stderr,
    }
    if form is Format.npz and output is not None:
        temporary = output.with_name(output.name + ".tmp")
        with temporary.open("wb") as binary:
            np.savez(binary, **columns)  # type: ignore[arg-type]
        os.replace(temporary, output)
        return
    # JSON has no NaN: a similarity that cannot be estimated is null.
    lists = {name: column.tolist() for name, column in columns.items()}
    for name in ("similarity", "stderr"):
        lists[name] = [[v if isfinite(v) else None for v in row] for row in lists[name]]
    text = json.dumps(lists)
    if output is None:
        typer.echo(text)
    else:
        output.write_text(text + "\n", encoding="utf-8")
