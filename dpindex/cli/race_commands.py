"""Commands of the RACE sketch: race build, race query, race info."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import typer
from rich.table import Table

from dpindex.arrays import AnyArray
from dpindex.cli import options as o
from dpindex.cli import output as out
from dpindex.cli.kinds import Takes
from dpindex.errors import InputError, naming
from dpindex.vectors import VectorSource, open_vectors

_ROWS = 1000

Sketch = Annotated[Path, typer.Argument(help="File of the released sketch."), Takes(("sketch",))]


def build(
    vectors: o.VectorFile,
    sketch: Annotated[Path, typer.Argument(help="File to write the released sketch to.")],
    *,
    epsilon: Annotated[float, "Budget of the one release, over all queries."],
    delta: Annotated[float, "0 for geometric noise; above 0, e.g. 1e-6, for Gaussian noise."] = 0.0,
    neighbouring: Annotated[
        Literal["add-remove", "replace"], "How neighbouring collections differ in one record."
    ] = "add-remove",
    hash: Annotated[Literal["srp", "p-stable"], "srp: angles; p-stable: distances."] = "p-stable",
    bits: Annotated[int | None, "For srp: signs in a hash."] = None,
    bandwidth: Annotated[
        float | None, "For p-stable: bucket width, in the units of the data."
    ] = None,
    hashes: Annotated[int | None, "For p-stable: hashes concatenated.  [default: 1]"] = None,
    rows: Annotated[
        int | None, f"Rows, each with a hash function of its own.  [default: {_ROWS}]"
    ] = None,
    expected_count: Annotated[
        float | None, "Instead of --rows: public estimate of a typical count."
    ] = None,
    width: Annotated[int | None, "Columns of a row.  [default: up to 1000]"] = None,
    seed: Annotated[int, "Public seed of the hash functions."] = 0,
    release: o.ReleaseOptions,
    as_json: o.AsJson = False,
) -> None:
    """Count vectors, add the noise, write the sketch.

    VECTORS is read once. The noise is added once, and every later question is free. A record
    adds one to one count in each row, whatever it holds: no bounds are needed.

    With a ledger each id is one record; a record in a second sketch spends its epsilon again.
    """
    from dpindex.index.code_store import Ids
    from dpindex.race import RaceSketch, SketchSpec, optimal_rows
    from dpindex.race.hashes import hash_from_dict

    out.refuse_existing(sketch)
    stated = release.stated()
    ids, ledger = stated["ids"], stated["ledger"]
    allowed = {"allow_rerelease": release.allow_rerelease}
    if ledger is None and (ids is not None or release.allow_rerelease):
        raise InputError(
            "--ids and --allow-rerelease are for the ledger; name the ledger (--ledger)."
        )
    if expected_count is not None:
        if rows is not None:
            raise InputError("give --rows or --expected-count, not both.")
        rows = optimal_rows(expected_count, epsilon, neighbouring, delta)
    rows = _ROWS if rows is None else rows
    facts = {"kind": hash, "bits": bits, "bandwidth": bandwidth, "hashes": hashes}
    kernel = hash_from_dict({name: value for name, value in facts.items() if value is not None})
    with open_vectors(vectors) as source, out.progress_bar("counting") as report:
        dim = source.shape[1]
        spec = SketchSpec(dim, rows, width, kernel, epsilon, delta, neighbouring, seed)
        if ledger is not None:
            ids = None if ids is None else Ids().check(ids, source.shape[0])
            ledger.check(ids, **allowed)
        with naming(source.name):
            made = RaceSketch(spec).partial_fit(_chunks(source, report))
    if ledger is not None:
        ledger.record(spec, ids, **allowed)
    made.release().save(sketch)
    facts = _facts(sketch, made)
    if as_json:
        out.print_json({"sketch": str(sketch), **facts})
        return
    typer.echo(
        f"{sketch}: {rows} × {spec.columns} counts, {facts['bytes']} bytes, of about "
        f"{facts['records']} records (a private estimate).\n{made.guarantee}."
    )
    out.print_totals(stated)


def query(
    sketch: Sketch,
    queries: o.VectorFile,
    estimator: Annotated[
        Literal["mean", "median-of-means"],
        "The median of means comes with the bound of Theorem 4 (95 %).",
    ] = "mean",
    form: out.Format = "table",
    output: out.Output = None,
) -> None:
    """Estimate how many records lie near each query.

    Prints the estimated kernel sum, its standard error, and the share of the collection.
    """
    from dpindex.race import RaceSketch

    out.check_output(form, output)
    opened = RaceSketch.open(sketch)
    with (
        open_vectors(queries) as source,
        out.progress_bar("estimating") as report,
        naming(queries),
    ):
        parts = [opened.summary(chunk, estimator) for chunk in _chunks(source, report)]
    answers = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    facts = {"guarantee": opened.guarantee.to_dict()}
    out.write_answers(form, output, answers, lambda: _table(answers), facts)


def info(sketch: Sketch, as_json: o.AsJson = False) -> None:
    """Say what a sketch protects, and what it does not."""
    from dpindex.race import RaceSketch

    opened = RaceSketch.open(sketch)
    if as_json:
        out.print_json(_facts(sketch, opened))
        return
    spec = opened.spec
    title = f"{sketch}: {spec.rows} × {spec.columns} counts of records with {spec.dim} attributes"
    lines = {
        "records": f"about {opened.size:.0f} ± {opened.size_stderr:.0f} (a private estimate)",
        "hash": f"{spec.hash}, public seed {spec.seed}",
        "guarantee": str(opened.guarantee),
    }
    out.print_facts(title, lines, opened.guarantee, spec.dim)


def _facts(path: Path, sketch: Any) -> dict[str, Any]:
    return {"bytes": path.stat().st_size, **sketch.describe()}


def _chunks(source: VectorSource, report: Callable[..., None]) -> Iterator[Any]:
    for first, chunk in source.chunks():
        yield chunk
        report(first + chunk.shape[0], source.shape[0])


def _table(answers: dict[str, AnyArray]) -> Table:
    table = Table("query", *answers, box=None)
    for row, values in enumerate(zip(*answers.values(), strict=True)):
        table.add_row(str(row), *(f"{value:.6g}" for value in values))
    return table
