"""The RACE sketch: build, query, info."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from dpindex.cli import options as o
from dpindex.errors import InputError
from dpindex.vectors import VectorSource, open_vectors

__all__ = ["race_app", "register"]

_VECTORS = "Vector file: .npy, .npz, .fvecs, .bvecs, .hdf5, .parquet or a CSR .npz; PATH:KEY picks."
_CHUNK_BYTES = 1 << 25

Vectors = Annotated[str, typer.Argument(help=_VECTORS)]
Sketch = Annotated[Path, typer.Argument(help="File of the released sketch.")]


class Kind(str, Enum):
    srp = "srp"
    l2 = "l2"


class Neighbouring(str, Enum):
    one_more = "add-remove"
    replaced = "replace"


class Means(str, Enum):
    mean = "mean"
    median_of_means = "median-of-means"


class Format(str, Enum):
    table = "table"
    json = "json"
    npz = "npz"


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
    vectors: Vectors,
    sketch: Sketch,
    epsilon: Annotated[float, typer.Option(help="Budget of the one release, over all queries.")],
    delta: Annotated[float, typer.Option(help="0 for pure epsilon, or e.g. 1e-6.")] = 0.0,
    neighbouring: Annotated[
        Neighbouring, typer.Option(help="How neighbouring collections differ in one record.")
    ] = Neighbouring.one_more,
    hash: Annotated[Kind, typer.Option(help="srp for angles, l2 for distances.")] = Kind.l2,
    bits: Annotated[int | None, typer.Option(help="For srp: signs a hash.")] = None,
    bandwidth: Annotated[
        float | None, typer.Option(help="For l2: bucket width, in the units of the data.")
    ] = None,
    hashes: Annotated[
        int | None, typer.Option(help="For l2: hashes concatenated. [default: 1]")
    ] = None,
    rows: Annotated[int | None, typer.Option(help="Hash functions.  [default: 1000]")] = None,
    expected_count: Annotated[
        float | None, typer.Option(help="Instead of --rows: public guess of a typical count.")
    ] = None,
    width: Annotated[
        int | None, typer.Option(help="Columns a row.  [default: at most 1000]")
    ] = None,
    seed: Annotated[int, typer.Option(help="Public seed of the hash functions.")] = 0,
    as_published: Annotated[
        bool, typer.Option("--as-published", help="The paper's floor of Laplace noise.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Count vectors, add the noise, write the sketch.

    One pass over VECTORS. The noise is added once, and every later question is free. A record
    moves one count a row by one, whatever it holds: no bounds are needed.
    """
    from dpindex.race import RaceSketch

    o.refuse_existing(sketch)
    if not sketch.parent.is_dir():
        raise InputError(f"{sketch.parent} is not a directory; make it first.")
    options: Any = {"expected_count": expected_count, "seed": seed, "as_published": as_published}
    options["neighbouring"] = neighbouring.value
    if rows is None and expected_count is None:
        rows = 1000
    with open_vectors(vectors) as source, o.progress_bar("counting") as report:
        made = RaceSketch(
            source.shape[1],
            rows,
            width,
            _hash(hash, bits, bandwidth, hashes),
            epsilon,
            delta,
            **options,
        )
        made.partial_fit(_chunks(source, report))
    made.release().save(sketch)
    facts = {
        "sketch": str(sketch),
        "bytes": sketch.stat().st_size,
        "records": round(made.size),
        "guarantee": made.guarantee.to_json(),
        "spec": made.spec.to_json(),
    }
    if as_json:
        typer.echo(json.dumps(facts))
        return
    typer.echo(
        f"{sketch}: {made.spec.rows} × {made.spec.columns} counts, {facts['bytes']} bytes, of "
        f"about {facts['records']} records (a private estimate)."
    )
    typer.echo(f"{made.guarantee}.")


@race_app.command()
def query(
    sketch: Sketch,
    queries: Vectors,
    estimator: Annotated[
        Means, typer.Option(help="The median of means comes with the bound of Theorem 4 (95 %).")
    ] = Means.mean,
    form: Annotated[
        Format, typer.Option("--format", help="For people or programs.")
    ] = Format.table,
    output: Annotated[
        Path | None, typer.Option(help="File to write instead of standard output.")
    ] = None,
) -> None:
    """Ask how many records lie near each query.

    Prints the estimated kernel sum, its standard error, and the share of the collection.
    """
    from dpindex.race import RaceSketch

    if form is Format.npz and output is None:
        raise InputError("--format npz needs --output FILE: it is not text.")
    if output is not None:
        o.refuse_existing(output)
    opened = RaceSketch.open(sketch)
    bounded = estimator is Means.median_of_means
    parts: dict[str, list[Any]] = {"count": [], "stderr": [], **({"bound": []} if bounded else {})}
    with open_vectors(queries) as source, o.progress_bar("asking") as report:
        for chunk in _chunks(source, report):
            parts["count"].append(opened.count(chunk, estimator.value))
            parts["stderr"].append(opened.stderr(chunk))
            if bounded:
                parts["bound"].append(opened.error_bound(chunk))
    answers = {name: np.concatenate(found) for name, found in parts.items()}
    answers["density"] = answers["count"] / max(1.0, opened.size)
    if form is Format.npz:
        with open(str(output), "xb") as file:
            np.savez(file, **answers)  # type: ignore[arg-type]
        return
    text = _json(opened.guarantee.to_json(), answers) if form is Format.json else _table(answers)
    if output is None:
        typer.echo(text)
    else:
        with open(output, "x") as file:
            file.write(text + "\n")


@race_app.command()
def info(
    sketch: Sketch,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Say what a sketch protects, and what it does not."""
    from dpindex.race import RaceSketch

    opened = RaceSketch.open(sketch)
    spec, promise = opened.spec, opened.guarantee
    facts = {
        "records": round(opened.size),
        "records_stderr": opened.size_stderr,
        "bytes": sketch.stat().st_size,
        "spec": spec.to_json(),
        "guarantee": promise.to_json(),
        "protects": promise.protects(),
        "does_not_protect": promise.does_not_protect(spec.dim),
    }
    if as_json:
        typer.echo(json.dumps(facts, ensure_ascii=False))
        return
    lines = [
        f"{sketch}: {spec.rows} × {spec.columns} counts of records with {spec.dim} attributes",
        f"records     about {opened.size:.0f} ± {opened.size_stderr:.0f} (a private estimate)",
        f"hash        {spec.hash}, public seed {spec.seed}",
        f"guarantee   {promise}",
        f"protects    {promise.protects()}",
        "does not protect",
        *(f"  - {line}" for line in promise.does_not_protect(spec.dim)),
    ]
    typer.echo("\n".join(lines))


def _hash(kind: Kind, bits: int | None, bandwidth: float | None, hashes: int | None) -> Any:
    from dpindex.race import L2, SRP

    if kind is Kind.srp:
        if bits is None or bandwidth is not None or hashes is not None:
            raise InputError("--hash srp needs --bits, and neither --bandwidth nor --hashes.")
        return SRP(bits)
    if bandwidth is None or bits is not None:
        raise InputError("--hash l2 needs --bandwidth, and takes no --bits.")
    return L2(bandwidth, 1 if hashes is None else hashes)


def _chunks(source: VectorSource, report: Callable[[int, int], None]) -> Iterator[Any]:
    rows = max(1, _CHUNK_BYTES // (8 * source.shape[1]))
    for first, chunk in source.chunks(rows):
        yield chunk
        report(first + chunk.shape[0], source.shape[0])


def _json(guarantee: dict[str, Any], answers: dict[str, Any]) -> str:
    lists = {name: values.tolist() for name, values in answers.items()}
    return json.dumps({"guarantee": guarantee, **lists})


def _table(answers: dict[str, Any]) -> str:
    columns = [[f"{value:.6g}" for value in values] for values in answers.values()]
    lines = ["".join(f"{name:>14}" for name in ("query", *answers))]
    for row, cells in enumerate(zip(*columns, strict=True)):
        lines.append("".join(f"{cell:>14}" for cell in (row, *cells)))
    return "\n".join(lines)
