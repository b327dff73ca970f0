"""Commands of the RACE sketch: race build, race query, race info."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from dpindex.base.display import json_columns
from dpindex.base.errors import InputError, naming
from dpindex.cli import shared as o
from dpindex.data import Ranges, open_dataset, open_vectors

if TYPE_CHECKING:  # help loads no noise laws
    from dpindex.race import Hash, RaceSketch, SketchSpec

_ROWS = 1000
_FAILURE = 0.05
"""Probability with which a bound of a median of means is exceeded."""

Sketch = Annotated[Path, typer.Argument(help="File of the released sketch."), o.Takes(("sketch",))]


@dataclass(frozen=True)
class SketchOptions:
    """The kernel of a sketch, its size and its budget."""

    epsilon: Annotated[float, "Budget of the one release, over all queries."]
    delta: Annotated[float, "0 for geometric noise; above 0, e.g. 1e-6, for Gaussian noise."] = 0.0
    neighbouring: Annotated[
        Literal["add-remove", "replace"], "How neighbouring collections differ in one record."
    ] = "add-remove"
    bandwidth: Annotated[
        float | None, "Distances: bucket width, in units of the data after --ranges."
    ] = None
    hashes: Annotated[int | None, "Of distances: hashes concatenated.  [default: 1]"] = None
    bits: Annotated[int | None, "Angles instead of distances: signs in a hash."] = None
    rows: Annotated[
        int | None, f"Rows, each with a hash function of its own.  [default: {_ROWS}]"
    ] = None
    expected_count: Annotated[
        float | None, "Instead of --rows: public estimate of a typical count."
    ] = None
    width: Annotated[int | None, "Columns of a row.  [default: up to 1000]"] = None
    seed: Annotated[int, "Public seed of the hash functions."] = 0
    ranges: o.RangesFile = None

    def spec(self, dim: int) -> SketchSpec:
        """Return the spec of a sketch of records with ``dim`` attributes."""
        from dpindex.race import SRP, PStable, SketchSpec, optimal_rows

        kernel: Hash
        if self.bandwidth is not None and self.bits is None:
            kernel = PStable(self.bandwidth, self.hashes or 1)
        elif self.bits is not None and self.bandwidth is None and self.hashes is None:
            kernel = SRP(self.bits)
        else:
            raise InputError(
                "give --bandwidth for distances (about the distance between records of one kind, "
                "and --hashes if you like), or --bits for angles (4, or more for narrower ones)."
            )
        rows = self.rows
        if self.expected_count is not None:
            if rows is not None:
                raise InputError("give --rows or --expected-count, not both.")
            rows = optimal_rows(self.expected_count, self.epsilon, self.neighbouring, self.delta)
        if rows is None:
            rows = _ROWS
        return SketchSpec(
            dim,
            rows,
            self.width,
            kernel,
            self.epsilon,
            self.delta,
            self.neighbouring,
            self.seed,
            o.read_if_named(Ranges.read, self.ranges),
        )


def build(
    vectors: o.VectorFile,
    sketch: Annotated[Path, typer.Argument(help="File to write the released sketch to.")],
    *,
    options: SketchOptions,
    release: o.ReleaseOptions,
    as_json: o.AsJson = False,
) -> None:
    """Count vectors, add the noise, write the sketch.

    VECTORS is read once. The noise is added once, and every later question is free. A record
    adds one to one count in each row, whatever it holds: no bounds are needed.

    With a ledger each id is one record; a record in a second sketch spends its epsilon again.

    $ dpindex race build vectors.npy my.sketch --epsilon 1 --bandwidth 4
    """
    from dpindex.race.release import build_sketch

    terms = release.terms()
    ids = release.ids_for_ledger("a sketch keeps")
    with (
        open_dataset(vectors, in_process=True) as dataset,
        o.progress_bar("counting") as report,
    ):
        spec = options.spec(dataset.columns)
        records = dataset.with_labels(ids)
        released = build_sketch(records, sketch, spec, terms, progress=report)
    facts = _facts(sketch, released)
    if as_json:
        o.print_json({"sketch": str(sketch), **facts})
        return
    typer.echo(
        f"{sketch}: {spec.rows} × {spec.columns} counts, {facts['bytes']} bytes, of about "
        f"{facts['records']} records (a private estimate).\n{released.guarantee}."
    )
    for sentence in released.warnings():
        typer.echo(sentence)
    o.print_totals(terms.ledger, ids)


def query(
    sketch: Sketch,
    queries: o.VectorFile,
    estimator: Annotated[
        Literal["mean", "median-of-means"],
        "The median of means comes with the bound of Theorem 4 (95 %).",
    ] = "mean",
    as_json: o.AsJson = False,
) -> None:
    """Estimate how many records lie near each query.

    Prints the estimated kernel sum, its standard error, and the share of the collection.

    $ dpindex race query my.sketch queries.npy
    """
    from dpindex.race import RaceSketch

    opened = RaceSketch.open(sketch)
    with open_vectors(queries) as source:
        if opened.spec.ranges is not None:
            opened.spec.ranges.check_order(source.attributes, source.name)
        with naming(queries):
            chunks = (chunk for _, chunk in source.chunks())
            answers = opened.summary(chunks, None if estimator == "mean" else _FAILURE)
    if as_json:
        facts = {"guarantee": opened.guarantee.to_dict(), **json_columns(answers)}
        o.print_json(facts, indent=None)
        return
    lines = []
    for row, values in enumerate(zip(*answers.values(), strict=True)):
        lines.append([row, *(f"{value:.6g}" for value in values)])
    typer.echo(o.text_table(["query", *answers], lines))


def info(sketch: Sketch, as_json: o.AsJson = False) -> None:
    """Say what a sketch protects, and what it does not.

    $ dpindex race info my.sketch
    """
    from dpindex.race import RaceSketch

    opened = RaceSketch.open(sketch)
    if as_json:
        o.print_json(_facts(sketch, opened))
        return
    spec = opened.spec
    attributes = "1 attribute" if spec.dim == 1 else f"{spec.dim} attributes"
    title = f"{sketch}: {spec.rows} × {spec.columns} counts of records with {attributes}"
    near, error = opened.neighbours()
    lines = {
        "records": f"about {opened.size:.0f} ± {opened.size_stderr:.0f} (a private estimate)",
        "neighbours": f"about {near:.0f} ± {error:.0f} near an average record; "
        f"an answer has noise of ± {opened.count_noise:.3g}",
        "hash": f"{spec.hash}, public seed {spec.seed}",
        "guarantee": str(opened.guarantee),
    }
    if spec.ranges is not None:
        lines["ranges"] = str(spec.ranges)
    o.print_facts(title, lines, opened.guarantee, spec.dim)
    for sentence in opened.warnings():
        typer.echo(f"\n{sentence}")


def _facts(path: Path, sketch: RaceSketch) -> dict[str, Any]:
    return {"bytes": path.stat().st_size, **sketch.describe()}
