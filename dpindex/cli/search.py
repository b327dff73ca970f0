"""Search of an index: query."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich import box
from rich.table import Table

from dpindex.cli import options as o
from dpindex.cli.output import Format, FormatOption, Output, check_output, write_answers
from dpindex.errors import InputError
from dpindex.vectors import open_vectors

if TYPE_CHECKING:
    from dpindex.index import Hits

__all__ = ["register"]

_SHOWN = 10


class Mode(str, Enum):
    exact = "exact"
    private = "private"


def register(app: typer.Typer) -> None:
    app.command()(query)


def query(
    index: Annotated[Path, typer.Argument(help="Index directory.")],
    queries: Annotated[str, typer.Argument(help="Vector file, or codes of devices.")],
    k: Annotated[int, typer.Option("-k", help="Neighbours of each query.")] = 10,
    mode: Annotated[
        Mode, typer.Option("--query", help="exact: used as it is; private: privatized first.")
    ] = Mode.exact,
    form: FormatOption = Format.table,
    output: Output = None,
) -> None:
    """Find the nearest vectors of each query."""
    from dpindex.index import PrivateIndex

    check_output(form, output)
    opened = PrivateIndex.open(index)
    asked: Any = o.read_codes(Path(queries))
    if asked is None:
        with open_vectors(queries) as source:
            asked = source.read()
    elif mode is Mode.private:
        raise InputError(f"{queries} holds codes, which are private already; leave --query out.")
    hits = opened.search(asked, k=k, query=mode.value)
    columns = {
        "ids": hits.ids,
        "scores": hits.scores,
        "similarity": hits.similarity,
        "stderr": hits.stderr,
    }
    shown = len(hits.ids) if output else min(_SHOWN, len(hits.ids))
    write_answers(form, output, columns, lambda: _table(hits, opened.metric, shown))
    if form is Format.table and shown < len(hits.ids):
        typer.echo(f"… and {len(hits.ids) - shown} more queries: see --format json or npz.")


def _table(hits: Hits, metric: str, shown: int) -> Table:
    table = Table("query", "rank", "id", f"{metric} (estimate ± standard error)", box=box.SIMPLE)
    for row in range(shown):
        for rank in range(hits.ids.shape[1]):
            value, error = hits.similarity[row, rank], hits.stderr[row, rank]
            estimate = f"{value:.3f} ± {error:.3f}" if np.isfinite(value) else "needs declared norm"
            table.add_row(str(row), str(rank + 1), str(hits.ids[row, rank]), estimate)
    return table
