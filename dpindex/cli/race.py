"""The RACE sketch: build, query."""

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
    help="A private sketch of a whole collection: density, counts, outliers.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


def register(app: typer.Typer) -> None:
    app.add_typer(race_app, name="race", short_help="Sketch a whole collection.")


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
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Count vectors, add the noise once, write the sketch."""
    from dpindex.race import RaceSketch

    o.refuse_existing(sketch)
    options: Any = {"expected_count": expected_count, "seed": seed}
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
        Means, typer.Option(help="The bound of Theorem 4 holds for the median of means.")
    ] = Means.mean,
    form: Annotated[
        Format, typer.Option("--format", help="For people or programs.")
    ] = Format.table,
    output: Annotated[
        Path | None, typer.Option(help="File to write instead of standard output.")
    ] = None,
) -> None:
    """Say how many records lie near each query.

    And which share of the collection that is.
    """
    from dpindex.race import RaceSketch

    if form is Format.npz and output is None:
        raise InputError("--format npz needs --output FILE: it is not text.")
    if output is not None:
        o.refuse_existing(output)
    opened = RaceSketch.open(sketch)
    counts, errors = [], []
    with open_vectors(queries) as source, o.progress_bar("asking") as report:
        for chunk in _chunks(source, report):
            counts.append(opened.count(chunk, estimator.value))
            errors.append(opened.stderr(chunk))
    count, stderr = np.concatenate(counts), np.concatenate(errors)
    answers = {"count": count, "stderr": stderr, "density": count / max(1.0, opened.size)}
    if form is Format.npz:
        with open(str(output), "xb") as file:
            np.savez(file, count=count, stderr=stderr, density=answers["density"])
        return
    text = _json(opened.guarantee.to_json(), answers) if form is Format.json else _table(answers)
    if output is None:
        typer.echo(text)
    else:
        with open(output, "x") as file:
            file.write(text + "\n")


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
    lines = [f"{'query':>8}  {'count':>14}  {'stderr':>12}  {'density':>10}"]
    columns = zip(*answers.values(), strict=True)
    for row, (count, stderr, density) in enumerate(columns):
        lines.append(f"{row:>8}  {count:>14.1f}  {stderr:>12.1f}  {density:>10.6f}")
    return "\n".join(lines)
