"""What has been released of whom: ledger."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from dpindex.ledger import Ledger

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    app.command(short_help="Show releases, and what they promise in all.")(ledger)


def ledger(
    path: Annotated[Path, typer.Argument(help="Ledger file, made by --ledger.")],
    delta: Annotated[
        float | None,
        typer.Option(help="Compose tightly at this delta.  [default: epsilons and deltas add up]"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON for programs.")] = False,
) -> None:
    """Show every release in a ledger, and what it promises in total; needs no key."""
    book = Ledger(path)
    entries, totals = book.entries(), book.totals(delta=delta)
    if as_json:
        facts = {
            "releases": [
                {"when": entry.when, "ids": entry.count, "spec": json.loads(entry.spec.to_json())}
                for entry in entries
            ],
            "totals": [total.to_json() for total in totals],
        }
        typer.echo(json.dumps(facts, indent=1))
        return
    for entry in entries:
        stated = entry.spec
        typer.echo(f"{entry.when}  {entry.count} ids  {stated.method}: {stated.guarantee}")
    typer.echo("In total" + (":" if totals else ": nothing was released."))
    for total in totals:
        typer.echo(f"  {total}")
