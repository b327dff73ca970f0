"""Commands on how much a search finds: evaluate, demo, plan."""

from __future__ import annotations

import shlex
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.table import Table

from dpindex.cli import options as o
from dpindex.cli import output as out
from dpindex.errors import InputError
from dpindex.vectors import open_vectors

_CONTRAST = "raw-gaussian"
_EPSILONS, _RECORD_EPSILONS = "1,2,3,5,10", "6,8,10,12,16"
_METHODS = "dp-oporp-staircase,dp-oporp,dp-signoporp-geometric,none-oporp"
_SHOWN = 12


def _list(text: str, option: str, read: type) -> list[Any]:
    try:
        return [read(part) for part in text.replace(",", " ").split()]
    except ValueError:
        raise InputError(f"{option} must be a list such as 1,2,5, not {text!r}.") from None


def evaluate(
    base: Annotated[str, typer.Argument(help="Vectors to search.")],
    queries: Annotated[str, typer.Argument(help="Query vectors.")],
    *,
    report: Annotated[Path, "Directory for curve.csv, curve.png, report.html."],
    methods: Annotated[
        str,
        f"Method names, separated by commas.  [default: {_METHODS}; with --record: the "
        f"methods of that name, and {_CONTRAST} of radius 2 for contrast]",
    ] = "",
    epsilons: Annotated[
        str,
        f"Epsilons, separated by commas.  [default: {_EPSILONS}; with --record: "
        f"{_RECORD_EPSILONS}]",
    ] = "",
    code_length: Annotated[str, "Separated by commas.  [default: the methods']"] = "",
    runs: Annotated[int, "Builds of each spec, with a new seed and new noise."] = 10,
    query: Annotated[str, "Query modes, separated by commas."] = "private,exact",
    max_queries: Annotated[int | None, "Use the first so many only.  [default: all]"] = None,
    neighbours: Annotated[int, "True neighbours of a query."] = 50,
    metric: o.Metric = "cosine",
    denoise: o.Denoise = None,
    public_texts: Annotated[
        Path | None,
        "Text file, a line for each vector of --public-sample or --codebook: shows "
        "which of them an attacker takes a record for.",
    ] = None,
    public_sample: Annotated[str | None, "PUBLIC vectors of --public-texts."] = None,
    base_texts: Annotated[Path | None, "The true texts to show beside them, a line each."] = None,
    skip_leak_check: Annotated[bool, "Accept a codebook that shares rows with BASE."] = False,
    options: o.CurveOptions,
) -> None:
    """Measure recall against epsilon and write a report."""
    from dpindex.evaluate import recall_curve, require_matplotlib, spec_grid, write_curve
    from dpindex.evaluate.text_attack import read_texts, text_attack

    require_matplotlib()
    if options.record:
        book = ",record-codebook" if options.codebook else ""
        methods = methods or f"record-cap{book},{_CONTRAST}"
        epsilons = epsilons or _RECORD_EPSILONS
    public = public_sample or (None if options.codebook is None else str(options.codebook))
    if public_texts is None and (public_sample or base_texts):
        raise InputError("--public-sample and --base-texts need --public-texts.")
    if public_texts is not None and public is None:
        raise InputError("--public-texts needs the vectors of these texts: --public-sample FILE.")
    with open_vectors(base) as base_source, open_vectors(queries) as query_source:
        grid = spec_grid(
            base_source.shape[1],
            _list(methods or _METHODS, "--methods", str),
            _list(epsilons or _EPSILONS, "--epsilons", float),
            _list(code_length, "--code-length", int) or [None],
            **options.stated(),
        )
        for sentence in grid.refused:
            typer.echo(f"left out: {sentence}", err=True)
        with out.progress_bar("measuring") as progress:
            curve = recall_curve(
                base_source,
                query_source,
                grid.specs,
                runs=runs,
                query_modes=_list(query, "--query", str),
                neighbours=neighbours,
                metric=metric,  # type: ignore[arg-type]
                denoise=denoise,
                max_queries=max_queries,
                skip_leak_check=skip_leak_check,
                progress=progress,
            )
        texts = None
        if public_texts is not None:
            with open_vectors(str(public)) as source:
                true = None if base_texts is None else read_texts(base_texts)
                texts = text_attack(base_source, grid.specs, source, read_texts(public_texts), true)
    page = write_curve(curve, report, notes=grid.refused, texts=texts)
    out.print_table(_curve_table(curve))
    typer.echo(f"Report: {page}")


def _curve_table(curve: Any) -> Table:
    """Precision@10: a row for each method and query mode, a column for each epsilon."""
    table = Table("precision@10", "query", box=box.SIMPLE, caption=curve.adjacency)
    for epsilon in curve.epsilons:
        table.add_column(f"ε = {epsilon:g}", justify="right", no_wrap=True)
    for mode in curve.query_modes:
        for name, line in curve.series(mode).items():
            at = {point.spec.epsilon: f"{point.mean['precision@10']:.2f}" for point in line}
            cells = (at.get(epsilon, at.get(None, "")) for epsilon in curve.epsilons)
            table.add_row(name, mode, *cells)
    return table


def demo(
    directory: Annotated[
        Path, typer.Argument(help="Directory for the index and the report.")
    ] = Path("dpindex-demo"),
) -> None:
    """Run an example on bundled digits, in under a minute."""
    from dpindex.evaluate import run_demo

    with out.progress_bar("measuring") as progress:
        result = run_demo(directory, progress=progress)
    out.print_table(_curve_table(result.curve))
    typer.echo(
        f"Ten nearest answers to private queries at {result.spec.guarantee}: "
        f"{result.same_digit:.0%} show the digit asked for.\n"
        f"Index:   {result.index}   (try: dpindex info {result.index})\n"
        f"Report:  {result.report}\n"
        f"Attack:  {result.report.with_name('inversion.png')}   what inverting the codes gives back"
    )


def plan(
    *,
    dim: Annotated[int, "Attributes of a vector."],
    n: Annotated[int, "Vectors in the collection."],
    epsilon: Annotated[float | None, "Target epsilon."] = None,
    recall: Annotated[float | None, "Instead of --epsilon: target precision@10."] = None,
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
    skip_leak_check: Annotated[bool, "Accept a sample that looks private."] = False,
    options: o.DataOptions,
) -> None:
    """Predict what an epsilon will find.

    Uses public knowledge alone, and recommends a method.
    """
    from dpindex.planner import Facts
    from dpindex.planner import plan as make_plan

    if form == "npz":
        raise InputError("a plan is shown as table or json, not as npz.")
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
            public_sample=sample,
            facts=facts,
            query=query,
            max_bytes=max_bytes,
            methods=_list(methods, "--methods", str) or None,
            skip_leak_check=skip_leak_check,
            progress=progress,
            **stated,
        )
    commands = _commands(outcome, public_sample, options)
    if form == "json":
        out.print_json({**outcome.to_dict(), "commands": commands})
        return
    out.print_table(_plan_table(outcome))
    if len(outcome.rows) > _SHOWN:
        typer.echo(f"and {len(outcome.rows) - _SHOWN} more (--format json shows all).")
    typer.echo(f"Recommended: {outcome.why}")
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


def _plan_table(outcome: Any) -> Table:
    table = Table(
        *("method", "k", "denoiser", "private", "exact", "bytes"),
        title=f"Predicted precision@10 of {outcome.n} vectors",
        caption=str(outcome.best.guarantee),
        box=box.SIMPLE,
        title_justify="left",
        caption_justify="left",
    )
    for row in (*outcome.rows[:_SHOWN], *outcome.contrast):
        ranking = "–" if row.ranking == "plain" else row.ranking
        cells = (f"{row.private:.2f}", f"{row.exact:.2f}", str(row.bytes_per_vector))
        table.add_row(row.method, row.size, ranking, *cells)
    for row in outcome.contrast:
        caption = f"for contrast, {row.method}: {row.guarantee}, which is any two vectors of norm 1"
        table.caption = f"{table.caption}; {caption}"
    return table
