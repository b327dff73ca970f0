"""What commands print: progress, tables and facts for people, JSON for programs."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from dpindex.base.arrays import AnyArray
from dpindex.base.display import progress_bar as progress_bar
from dpindex.base.errors import InputError, escaped
from dpindex.mechanism.codes import CodeFormat
from dpindex.privacy import Guarantee

if TYPE_CHECKING:
    from dpindex.accounting.ledger import Ledger


def refuse_existing(path: Path) -> None:
    """Refuse, before any work, an output file that is already there or has no folder."""
    if os.path.lexists(path):
        raise InputError(f"{path} already exists; choose another name.")
    if not path.parent.is_dir():
        raise InputError(f"{path.parent} is not a directory; make it first.")


def print_json(facts: Any, indent: int | None = 1) -> None:
    """Print plain values as JSON, and dates as text; without an indent on one line."""
    typer.echo(json.dumps(facts, indent=indent, default=str))


def table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return rows as aligned text; what cannot be printed of a cell is escaped, None is empty.

    >>> print(table(["id", "score"], [[7, "0.5"], ["doc-1", None]]))
    id     score
    7      0.5
    doc-1
    """
    lines = [
        ["" if cell is None else escaped(str(cell)) for cell in row] for row in [headings, *rows]
    ]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = [map(str.ljust, line, widths) for line in lines]
    return "\n".join("  ".join(line).rstrip() for line in padded)


def say(text: object = "", *, error: bool = False) -> None:
    """Print one line; what cannot be printed of it, line breaks included, is escaped."""
    typer.echo(escaped(str(text)), err=error)


def print_facts(
    title: str,
    lines: Mapping[str, str],
    guarantee: Guarantee,
    dim: int,
    exposure: Sequence[str] = (),
) -> None:
    """Print labelled lines, what is protected and what not, and what attacks may find."""
    say(title)
    for label, text in lines.items():
        say(f"{label:12}{text}")
    say()
    say("What is protected")
    say(f"  {guarantee.protects()}")
    say(f"  {guarantee.odds()}")
    if exposure:
        say()
        say("What attacks may find")
        for line in exposure:
            say(f"  - {line}")
    say()
    say("What is not protected")
    for line in guarantee.does_not_protect(dim):
        say(f"  - {line}")


_UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


def size_in_words(size: float) -> str:
    """Bytes with a unit, three digits.

    >>> size_in_words(20_700 * 256), size_in_words(999)
    ('5.3 MB', '999 B')
    """
    unit = [name for name, worth in _UNITS.items() if worth <= max(size, 1)][-1]
    return f"{size / _UNITS[unit]:.3g} {unit}"


def announce_size(count: int, format_: CodeFormat) -> None:
    """Say how large the codes may become."""
    each = format_.max_row_bytes
    typer.echo(
        f"{count} codes of {format_.contents}, at most {size_in_words(each)} each: at most "
        f"{size_in_words(count * each)}."
    )


def print_totals(ledger: Ledger | None, ids: AnyArray | None) -> None:
    """Print what was released of these ids in all, if some were released more than once."""
    totals = []
    if ledger is not None:
        totals = ledger.totals(ids)
    if totals and totals[0].releases > 1:
        typer.echo("In total, by the ledger:")
        for total in totals:
            typer.echo(f"  {total}.")


def warn_of_payload(columns: object) -> None:
    """Say that a payload is public, if there is one."""
    if columns:
        typer.echo("The payload is published in the clear, beside the codes: it is not protected.")
