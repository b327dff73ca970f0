"""The command ``plan``: predict what an epsilon will find, and print the commands to build it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from dpindex.base.errors import InputError
from dpindex.base.files import create_file
from dpindex.cli import options as o
from dpindex.cli import output as out
from dpindex.data import Ranges, open_vectors, read_ids

if TYPE_CHECKING:  # help loads no noise laws
    from dpindex.study.planner import Measure, Plan, Row

_SHOWN = 12


@dataclass(frozen=True, kw_only=True)
class PlanOptions:
    """Target of a plan: keywords of :func:`dpindex.plan`."""

    dim: Annotated[int, "Attributes of a vector."]
    n: Annotated[int, "Vectors in the collection."]
    epsilon: Annotated[float | None, "Target epsilon."] = None
    recall: Annotated[
        float | None,
        "Target recall@k: finds the smallest epsilon that reaches it, or with --epsilon the fewest "
        "candidates.",
    ] = None
    candidates: Annotated[
        int | None,
        "Rows that the codes choose, and the owner of the vectors reranks.  [default: with "
        "--record 1000, or 5 % of the collection if that is less; otherwise k]",
    ] = None
    at: Annotated[int, "The k of recall@k: answers and true neighbours that are counted."] = 10
    query: Annotated[
        Literal["exact", "private"], "Query mode to plan for, as of `dpindex query`."
    ] = "exact"
    metric: Annotated[
        Literal["cosine", "l2"], "What neighbours are ranked by: cosine, or l2 if lengths count."
    ] = "cosine"
    max_bytes: Annotated[int | None, "Maximum bytes of a code."] = None
    skip_leak_check: Annotated[bool, "Accept a sample that looks private."] = False


@dataclass(frozen=True)
class SampleOptions:
    """Public vectors to plan with."""

    public_sample: Annotated[str, "File of 500 or more PUBLIC vectors of the same kind."]
    groups: Annotated[
        str | None,
        "File of labels, one for each vector of the sample, if vectors of one label resemble each "
        "other and real queries have no such siblings: those of a query are left out.",
    ] = None
    public_queries: Annotated[
        str | None, "File of PUBLIC vectors like the queries, if these differ in kind."
    ] = None
    ranges: o.RangesFile = None


def plan(
    *,
    target: PlanOptions,
    sample: SampleOptions,
    methods: Annotated[str, "Method names, separated by commas.  [default: all that give DP]"] = "",
    form: out.Format = "table",
    plot: Annotated[Path | None, "Picture of predictions by epsilon, .png."] = None,
    options: o.DataOptions,
) -> None:
    """Predict what an epsilon will find.

    Uses public vectors alone, and recommends a method.
    """
    from dpindex.base.display import require_matplotlib
    from dpindex.study.planner import plan as make_plan
    from dpindex.study.planner import plan_png

    if form == "npz":
        raise InputError("a plan is shown as table or json, not as npz.")
    if plot is not None:
        out.refuse_existing(plot)
        if plot.suffix != ".png":
            raise InputError(f"{plot} must end in .png.")
        require_matplotlib()
    terms = options.stated()
    labels = o.read_if_named(read_ids, sample.groups)
    with (
        open_vectors(sample.public_sample) as public,
        _opened(sample.public_queries) as queries,
        out.progress_bar("simulating") as progress,
    ):
        deciding = []
        if sample.ranges is not None:
            ranges = Ranges.read(sample.ranges)
            deciding = ranges.deciding(public)
            public = ranges.source(public)
            if queries is not None:
                queries = ranges.source(queries)
        outcome = make_plan(
            public,
            groups=labels,
            public_queries=queries,
            methods=o.parsed_list(methods, "--methods", str) or None,
            curves=plot is not None,
            progress=progress,
            **vars(target),
            **terms,
        )
    commands = _commands(outcome, sample, options)
    if plot is not None:
        create_file(plot, plan_png(outcome))
    if form == "json":
        out.print_json({**outcome.to_dict(), "commands": commands})
        return
    _print_plan(outcome)
    if plot is not None:
        typer.echo(f"Plot: {plot}")
    for line in outcome.remarks:
        typer.echo(f"Note: {line}")
    if deciding:
        columns = ", ".join(f"{name} ({share:.0%})" for name, share in deciding)
        typer.echo(f"Note: these columns decide which rows of the sample are near: {columns}.")
    typer.echo("To build and search it, with your own names of files:")
    for line in commands:
        typer.echo(f"  {line}")


def _opened(file: str | None) -> Any:
    """Open vectors, if a file is given."""
    if file is None:
        return nullcontext()
    return open_vectors(file)


def _commands(outcome: Plan, sample: SampleOptions, options: o.DataOptions) -> list[str]:
    """Return the commands for a codebook, if it is not the whole sample, an index and an answer."""
    row = outcome.best
    spec = row.spec
    file = shlex.quote(sample.public_sample)
    suffix = ".npy"
    if sample.public_sample.endswith(".npz"):
        suffix = ".npz"
    commands = []
    build = [f"dpindex build vectors{suffix} my-index --method {spec.method}"]
    build += [f"--epsilon {spec.epsilon:.10g}", *replace(options, delta=spec.delta).as_flags()]
    if spec.codebook is None:
        build.append(f"--code-length {spec.code_length}")
    else:
        size = len(spec.codebook)
        if size < outcome.sample_rows:
            command = f"dpindex codebook {file} codebook.npy --size {size}"
            if row.centroids:
                command += " --centroids"
            commands.append(command)
            file = "codebook.npy"
        build.append(f"--codebook {file} --subset {spec.subset}")
    if outcome.metric != "cosine":
        build.append(f"--metric {outcome.metric}")
    if row.denoiser:
        build.append(f"--denoise {row.denoiser}")
    scaled = ""
    if sample.ranges is not None:
        scaled = f" --ranges {shlex.quote(str(sample.ranges))}"
    commands.append(" ".join(build) + scaled)
    query = f"dpindex query my-index queries{suffix} -k {outcome.at}"
    if outcome.candidates > outcome.at:
        query += f" --candidates {outcome.candidates} --rerank vectors{suffix}"
    if outcome.query != "exact":
        query += f" --query {outcome.query}"
    return [*commands, query + scaled]


def _print_plan(outcome: Plan) -> None:
    """Print a line of at most 80 columns for each spec, and below it what is promised."""
    typer.echo(f"Predicted for {outcome.n} vectors")
    measures = outcome.measures
    typer.echo(f"{'':44}" + "".join(f"{measure.kind:>15}" for measure in measures))
    typer.echo(f"{'':42}" + "".join(f"{measure.terms:>17}" for measure in measures))
    columns = "".join(f"{'private':>9}{'exact':>6}" for _ in measures)
    typer.echo(f"{'method':23}{'k':12}{'denoiser':9}{columns}{'bytes':>6}")
    for row in (*outcome.rows[:_SHOWN], *outcome.contrast):
        _print_row(row, measures)
    if any(row.centroids for row in outcome.rows):
        typer.echo("K: codewords that are public vectors; C: centroids of public vectors")
    typer.echo(f"under {outcome.best.guarantee}")
    for row in outcome.contrast:
        typer.echo(
            f"for contrast, {row.method}: {row.guarantee}, which is any two vectors of norm 1"
        )
    if len(outcome.rows) > _SHOWN:
        typer.echo(f"and {len(outcome.rows) - _SHOWN} more (--format json shows all).")
    typer.echo(f"Recommended: {outcome.why}")
    _print_candidates(outcome)
    typer.echo("What it protects:")
    for line in outcome.protection:
        typer.echo(f"  - {line}")


def _print_candidates(outcome: Plan) -> None:
    """Print how recall grows with the candidates that the owner of the vectors orders."""
    best = outcome.best
    numbers = sorted({*outcome.shown_candidates, outcome.candidates})
    typer.echo(
        f"If the owner of the vectors puts the first R answers in order, recall@{outcome.at} is:"
    )
    typer.echo("  R      " + "".join(f"{number:>9}" for number in numbers))
    shares = [f"{number / outcome.n:.2%}" for number in numbers]
    typer.echo("         " + "".join(f"{share:>9}" for share in shares))
    for mode, found in (("private", best.private), ("exact", best.exact)):
        line = "".join(f"{found.recall_within(number):9.2f}" for number in numbers)
        typer.echo(f"  {mode:7}{line}")


def _print_row(row: Row, measures: Sequence[Measure]) -> None:
    denoiser = row.denoiser or "–"
    shares = ""
    for measure in measures:
        shares += f"{measure.of(row.private):9.2f}{measure.of(row.exact):6.2f}"
    typer.echo(f"{row.method:23}{row.size:12}{denoiser:9}{shares}{row.bytes_per_vector:6}")
