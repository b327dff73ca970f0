"""The command audit: attack a guarantee, or verify it exactly."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated

import typer

from dpindex.cli import options as o
from dpindex.errors import InputError

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    app.command(short_help="Attack a guarantee, or prove it.")(audit)


def audit(
    spec: Annotated[
        Path | None,
        typer.Argument(
            help="Spec as JSON, an index directory, or (with --exact) a sketch.", show_default=False
        ),
    ] = None,
    exact: Annotated[
        bool,
        typer.Option("--exact", help="Prove instead of attack; without SPEC, the default set."),
    ] = False,
    seconds: Annotated[float, typer.Option(help="Time for the trials of the attack.")] = 20.0,
    trials: Annotated[
        int | None, typer.Option(help="Vectors for each neighbour, instead of a time.")
    ] = None,
    confidence: Annotated[float, typer.Option(help="Of all lower bounds together.")] = 0.999,
    plot: Annotated[Path | None, typer.Option(help="PNG file to draw the attack in.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON for programs.")] = False,
) -> None:
    """Check a guarantee: attack it with worst-case neighbours, or verify it in exact integers.

    Exit code 1 if the guarantee is refuted or does not hold.
    """
    from dpindex.audit import attack, attack_png, read_claim

    if exact:
        _verify(spec, as_json)
        return
    if spec is None:
        raise InputError("name the spec to attack: a JSON file of `dpindex spec`, or an index.")
    if plot is not None:
        o.refuse_existing(plot)
    with o.progress_bar("attacking") as bar:
        report = attack(
            read_claim(spec),
            trials=trials,
            seconds=seconds,
            confidence=confidence,
            progress=lambda done: bar(math.floor(100 * done), 100),
        )
    if plot is not None:
        plot.write_bytes(attack_png(report))
    typer.echo(json.dumps(report.to_dict(), ensure_ascii=False) if as_json else str(report))
    raise typer.Exit(1 if report.violated else 0)


def _verify(path: Path | None, as_json: bool) -> None:
    """Of the many specs of the default set, only what fails is shown in full."""
    from dpindex.audit import default_specs, not_covered, read_claim, verify

    failed = 0
    for spec in default_specs() if path is None else [read_claim(path)]:
        report = verify(spec)
        failed += not report.passed
        if as_json:
            typer.echo(json.dumps(report.to_dict(), ensure_ascii=False))
        else:
            in_full = path is not None or not report.passed
            typer.echo(str(report) if in_full else str(report).splitlines()[0])
    if path is None:
        for method, reason in not_covered().items():
            line = {"method": method, "not_covered": reason}
            typer.echo(json.dumps(line) if as_json else f"{method}: NOT COVERED: {reason}.")
    raise typer.Exit(1 if failed else 0)
