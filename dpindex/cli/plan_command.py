"""The command ``plan``: predict what an epsilon will find, and print the commands to build it."""

from __future__ import annotations

import shlex
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from dpindex.base.errors import InputError
from dpindex.base.files import create_file
from dpindex.cli import options as o
from dpindex.cli import output as out
from dpindex.vectors import open_vectors

_SHOWN = 12


def plan(
    *,
    dim: Annotated[int, "Attributes of a vector."],
    n: Annotated[int, "Vectors in the collection."],
    epsilon: Annotated[float | None, "Target epsilon."] = None,
    recall: Annotated[
        float | None, "Instead of --epsilon: target recall@k, with the k of --at."
    ] = None,
    at: Annotated[int, "k: answers, and true neighbours, that recall counts."] = 10,
    public_sample: Annotated[
        str | None, "File of 500 or more PUBLIC vectors of the same kind."
    ] = None,
    typical_norm: Annotated[
        float | None, "Instead of a sample: norm of a vector, after scaling."
    ] = None,
    neighbour_cosine: Annotated[
        float | None, "With --typical-norm: cosine to the tenth nearest."
    ] = None,
    typical_cosine: Annotated[float, "Mean cosine of two vectors."] = 0.0,
    spectrum_decay: Annotated[
        float, "The j-th largest variance is proportional to j^-DECAY."
    ] = 1.0,
    query: Annotated[o.QueryMode, "Query mode to plan for, as of `dpindex query`."] = "exact",
    max_bytes: Annotated[int | None, "Maximum bytes of a code."] = None,
    methods: Annotated[str, "Method names, separated by commas.  [default: all that give DP]"] = "",
    form: out.Format = "table",
    plot: Annotated[Path | None, "Picture of predictions by epsilon, .png."] = None,
    skip_leak_check: Annotated[bool, "Accept a sample that looks private."] = False,
    options: o.DataOptions,
) -> None:
    """Predict what an epsilon will find.

    Uses public knowledge alone, and recommends a method.
    """
    from dpindex.study.evaluate import require_matplotlib
    from dpindex.study.planner import Facts, plan_png
    from dpindex.study.planner import plan as make_plan

    if form == "npz":
        raise InputError("a plan is shown as table or json, not as npz.")
    if plot is not None:
        out.refuse_existing(plot)
        if plot.suffix != ".png":
            raise InputError(f"{plot} must end in .png.")
        require_matplotlib()
    facts, stated = None, options.stated()
    if typical_norm is not None or neighbour_cosine is not None:
        if typical_norm is None or neighbour_cosine is None:
            raise InputError("public facts need both --typical-norm and --neighbour-cosine.")
        facts = Facts(typical_norm, neighbour_cosine, typical_cosine, spectrum_decay)
    elif public_sample is None:
        raise InputError(
            "say what is publicly known of such vectors: --public-sample FILE, or --typical-norm "
            "and --neighbour-cosine."
        )
    opened = open_vectors(public_sample) if public_sample else nullcontext()
    with opened as sample, out.progress_bar("simulating") as progress:
        outcome = make_plan(
            dim=dim,
            n=n,
            epsilon=epsilon,
            recall=recall,
            at=at,
            public_sample=sample,
            facts=facts,
            query=query,
            max_bytes=max_bytes,
            methods=o.parsed_list(methods, "--methods", str) or None,
            skip_leak_check=skip_leak_check,
            curves=plot is not None,
            progress=progress,
            **stated,
        )
    commands = _commands(outcome, public_sample, options)
    if plot is not None:
        create_file(plot, plan_png(outcome))
    if form == "json":
        out.print_json({**outcome.to_dict(), "commands": commands})
        return
    _print_plan(outcome)
    if len(outcome.rows) > _SHOWN:
        typer.echo(f"and {len(outcome.rows) - _SHOWN} more (--format json shows all).")
    typer.echo(f"Recommended: {outcome.why}")
    typer.echo("What it protects:")
    for line in outcome.protection:
        typer.echo(f"  - {line}")
    if plot is not None:
        typer.echo(f"Plot: {plot}")
    for line in outcome.remarks:
        typer.echo(f"Note: {line}")
    typer.echo("To build and search it, with your own names of files:")
    for line in commands:
        typer.echo(f"  {line}")


def _commands(outcome: Any, public_sample: str | None, options: o.DataOptions) -> list[str]:
    """What makes the codebook, if it is not the whole sample, the index, and an answer from it."""
    row, lines = outcome.best, []
    spec, file = row.spec, shlex.quote(str(public_sample))
    suffix = ".npz" if str(public_sample).endswith(".npz") else ".npy"
    build = [f"dpindex build vectors{suffix} my-index --method {spec.method}"]
    build += [f"--epsilon {spec.epsilon:.10g}", *replace(options, delta=spec.delta).as_flags()]
    if (book := spec.codebook) is None:
        build.append(f"--code-length {spec.code_length}")
    else:
        if len(book) < outcome.sample_rows:
            lines.append(f"dpindex codebook {file} codebook.npy --size {len(book)}")
            file = "codebook.npy"
        build.append(f"--codebook {file} --subset {spec.subset}")
    if row.ranking != "plain":
        build.append(f"--denoise {row.ranking}")
    mode = "" if outcome.query == "exact" else f" --query {outcome.query}"
    return [*lines, " ".join(build), f"dpindex query my-index queries{suffix} -k 10{mode}"]


def _print_plan(outcome: Any) -> None:
    """A line of at most 80 columns for each spec, and below it what is promised."""
    from dpindex.study.planner import names_of

    names = names_of(outcome.at)
    heads = [name.partition(" ") for name in names.values()]
    typer.echo(f"Predicted for {outcome.n} vectors")
    for part in (0, 2):
        typer.echo(f"{'':44}" + "".join(f"{head[part]:>15}" for head in heads))
    columns = "".join(f"{'private':>9}{'exact':>6}" for _ in names)
    typer.echo(f"{'method':23}{'k':12}{'denoiser':9}{columns}{'bytes':>6}")
    for row in (*outcome.rows[:_SHOWN], *outcome.contrast):
        ranking = "–" if row.ranking == "plain" else row.ranking
        found = "".join(
            f"{getattr(row.private, name):9.2f}{getattr(row.exact, name):6.2f}" for name in names
        )
        typer.echo(f"{row.method:23}{row.size:12}{ranking:9}{found}{row.bytes_per_vector:6}")
    typer.echo(f"under {outcome.best.guarantee}")
    for row in outcome.contrast:
        typer.echo(
            f"for contrast, {row.method}: {row.guarantee}, which is any two vectors of norm 1"
        )
