"""Is the promise kept? audit."""

from __future__ import annotations

import json
import math
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from dpindex.cli.output import progress_bar, refuse_existing
from dpindex.errors import InputError
from dpindex.files import MAGIC
from dpindex.format1 import SKETCH_MAGIC_1
from dpindex.spec import Spec

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
    if exact:
        _verify(spec, as_json)
        return
    if spec is None:
        raise InputError("name the spec to attack: a JSON file of `dpindex spec`, or an index.")
    from dpindex.audit import attack, attack_png

    if plot is not None:
        refuse_existing(plot)
    with progress_bar("attacking") as bar:
        report = attack(
            _read(spec),
            trials=trials,
            seconds=seconds,
            confidence=confidence,
            progress=lambda done: bar(math.floor(100 * done), 100),
        )
    if plot is not None:
        plot.write_bytes(attack_png(report))
    typer.echo(json.dumps(report.to_json(), ensure_ascii=False) if as_json else str(report))
    raise typer.Exit(1 if report.violated else 0)


def _verify(spec: Path | None, as_json: bool) -> None:
    from dpindex.audit import default_specs, not_covered, verify
    from dpindex.race.verify import default_sketches, verify_file, verify_sketch

    if spec is None:
        reports = chain(map(verify, default_specs()), map(verify_sketch, default_sketches()))
    else:
        reports = chain([verify_file(spec) if _is_binary(spec) else verify(_read(spec))])
    failed = 0
    for report in reports:
        failed += not report.passed
        if as_json:
            typer.echo(report.to_json())
        else:
            # Of the many specs of the default set, only what fails is shown in full.
            text = str(report)
            typer.echo(text if spec is not None or not report.passed else text.splitlines()[0])
    if spec is None:
        for method, reason in not_covered().items():
            line = {"method": method, "not_covered": reason}
            typer.echo(json.dumps(line) if as_json else f"{method}: NOT COVERED: {reason}.")
    raise typer.Exit(1 if failed else 0)


def _is_binary(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(4) in (MAGIC, SKETCH_MAGIC_1)


def _read(path: Path) -> Spec:
    if path.is_dir():
        from dpindex.index import PrivateIndex

        return PrivateIndex.open(path).spec
    if _is_binary(path):
        raise InputError(
            f"{path} is no spec; if it is a sketch, its guarantee is verified, not attacked: add "
            f"--exact."
        )
    return Spec.read(path)
