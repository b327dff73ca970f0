"""The RACE sketch: build, query, info."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.table import Table

from dpindex.arrays import AnyArray
from dpindex.cli import options as o
from dpindex.cli.output import Format, FormatOption, Output, check_output, write_answers
from dpindex.errors import InputError
from dpindex.vectors import VectorSource, open_vectors

__all__ = ["race_app", "register"]

_CHUNK_BYTES = 1 << 25
_ROWS = 1000

Sketch = Annotated[Path, typer.Argument(help="File of the released sketch.")]


class Kind(str, Enum):
    srp = "srp"
    p_stable = "p-stable"


class Neighbouring(str, Enum):
    one_more = "add-remove"
    replaced = "replace"


class Means(str, Enum):
    mean = "mean"
    median_of_means = "median-of-means"


race_app = typer.Typer(
    help="A private sketch of a whole collection, for density and counts near a query.\n\n"
    "Every answer comes from one release under one epsilon (Coleman & Shrivastava 2020). "
    "`dpindex audit --exact SKETCH` verifies its guarantee.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


def register(app: typer.Typer) -> None:
    app.add_typer(race_app, name="race", short_help="Sketch a whole collection: density, counts.")


@race_app.command()
def build(
    vectors: o.VectorFile,
    sketch: Sketch,
    epsilon: Annotated[float, typer.Option(help="Budget of the one release, over all queries.")],
    delta: o.Delta = 0.0,
    neighbouring: Annotated[
        Neighbouring, typer.Option(help="How neighbouring collections differ in one record.")
    ] = Neighbouring.one_more,
    hash: Annotated[Kind, typer.Option(help="srp: angles; p-stable: distances.")] = Kind.p_stable,
    bits: Annotated[int | None, typer.Option(help="For srp: signs a hash.")] = None,
    bandwidth: Annotated[
        float | None, typer.Option(help="For p-stable: bucket width, in the units of the data.")
    ] = None,
    hashes: Annotated[
        int | None, typer.Option(help="For p-stable: hashes concatenated.  [default: 1]")
    ] = None,
    rows: Annotated[int | None, typer.Option(help=f"Hash functions.  [default: {_ROWS}]")] = None,
    expected_count: Annotated[
        float | None, typer.Option(help="Instead of --rows: public guess of a typical count.")
    ] = None,
    width: Annotated[int | None, typer.Option(help="Columns a row.  [default: up to 1000]")] = None,
    seed: o.Seed = 0,
    as_published: Annotated[
        bool, typer.Option("--as-published", help="The paper's floor of Laplace noise.")
    ] = False,
    as_json: o.AsJson = False,
) -> None:
    """Count vectors, add the noise, write the sketch.

    One pass over VECTORS. The noise is added once, and every later question is free. A record
    moves one count a row by one, whatever it holds: no bounds are needed.
    """
    from dpindex.race import RaceSketch, SketchSpec, optimal_rows

    o.refuse_existing(sketch)
    if expected_count is not None:
        if rows is not None:
            raise InputError("give --rows or --expected-count, not both.")
        rows = optimal_rows(expected_count, epsilon, neighbouring.value, delta)
    family = {"kind": hash.value, "bits": bits, "bandwidth": bandwidth, "hashes": hashes}
    law = {"epsilon": epsilon, "delta": delta, "neighbouring": neighbouring.value}
    size = {"rows": _ROWS if rows is None else rows, "width": width}
    stated: dict[str, Any] = {**size, **law, "seed": seed, "as_published": as_published}
    stated["hash"] = {name: value for name, value in family.items() if value is not None}
    with open_vectors(vectors) as source, o.progress_bar("counting") as report:
        made = RaceSketch(SketchSpec.from_dict({"dim": source.shape[1], **stated}))
        made.partial_fit(_chunks(source, report))
    made.release().save(sketch)
    facts = {"sketch": str(sketch), **_facts(sketch, made)}
    if as_json:
        typer.echo(json.dumps(facts, ensure_ascii=False))
        return
    typer.echo(
        f"{sketch}: {made.spec.rows} × {made.spec.columns} counts, {facts['bytes']} bytes, of "
        f"about {facts['records']} records (a private estimate).\n{made.guarantee}."
    )


@race_app.command()
def query(
    sketch: Sketch,
    queries: o.VectorFile,
    estimator: Annotated[
        Means, typer.Option(help="The median of means comes with the bound of Theorem 4 (95 %).")
    ] = Means.mean,
    form: FormatOption = Format.table,
    output: Output = None,
) -> None:
    """Ask how many records lie near each query.

    Prints the estimated kernel sum, its standard error, and the share of the collection.
    """
    from dpindex.race import RaceSketch

    check_output(form, output)
    opened = RaceSketch.open(sketch)
    with open_vectors(queries) as source, o.progress_bar("asking") as report:
        parts = [opened.summary(chunk, estimator.value) for chunk in _chunks(source, report)]
    answers = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    facts = {"guarantee": opened.guarantee.to_dict()}
    write_answers(form, output, answers, lambda: _table(answers), facts)


@race_app.command()
def info(sketch: Sketch, as_json: o.AsJson = False) -> None:
    """Say what a sketch protects, and what it does not."""
    from dpindex.race import RaceSketch

    opened = RaceSketch.open(sketch)
    spec, facts = opened.spec, _facts(sketch, opened)
    if as_json:
        typer.echo(json.dumps(facts, ensure_ascii=False))
        return
    lines = [
        f"{sketch}: {spec.rows} × {spec.columns} counts of records with {spec.dim} attributes",
        f"records     about {opened.size:.0f} ± {opened.size_stderr:.0f} (a private estimate)",
        f"hash        {spec.hash}, public seed {spec.seed}",
        f"guarantee   {opened.guarantee}",
        f"protects    {facts['protects']}",
        "does not protect",
        *(f"  - {line}" for line in facts["does_not_protect"]),
    ]
    typer.echo("\n".join(lines))


def _facts(path: Path, sketch: Any) -> dict[str, Any]:
    return {
        "records": round(sketch.size),
        "records_stderr": sketch.size_stderr,
        "bytes": path.stat().st_size,
        "spec": sketch.spec.to_dict(),
        "guarantee": sketch.guarantee.to_dict(),
        "protects": sketch.guarantee.protects(),
        "does_not_protect": sketch.guarantee.does_not_protect(sketch.spec.dim),
    }


def _chunks(source: VectorSource, report: Callable[[int, int], None]) -> Iterator[Any]:
    for first, chunk in source.chunks(max(1, _CHUNK_BYTES // (8 * source.shape[1]))):
        yield chunk
        report(first + chunk.shape[0], source.shape[0])


def _table(answers: dict[str, AnyArray]) -> Table:
    table = Table("query", *answers, box=None)
    for row, values in enumerate(zip(*answers.values(), strict=True)):
        table.add_row(str(row), *(f"{value:.6g}" for value in values))
    return table
