"""Commands on how much a search finds: evaluate, demo, plan."""

from __future__ import annotations

import math
import shlex
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from dpindex.base.errors import InputError
from dpindex.base.files import create_file, make_folder
from dpindex.cli import options as o
from dpindex.cli import output as out
from dpindex.privacy import record
from dpindex.vectors import open_vectors, read_ids

_CONTRAST = "raw-gaussian"
_EPSILONS, _RECORD_EPSILONS = "1,2,3,5,10", "6,8,10,12,16"
_EXPLORED, _EXPLORED_RECORD = "0.5,1,2,3,5,10,20", "2,4,6,8,10,12,16"
_METHODS = "dp-oporp-staircase,dp-oporp,dp-signoporp-geometric,none-oporp"
_SHOWN = 12
# Width of printed tables, and columns of numbers in them.
_WIDTH, _COLUMNS = 79, 7


def _list(text: str, option: str, read: type) -> list[Any]:
    try:
        return [read(part) for part in text.replace(",", " ").split()]
    except ValueError:
        raise InputError(f"{option} must be a list such as 1,2,5, not {text!r}.") from None


def _image_shape(text: str | None, dim: int) -> tuple[int, ...] | None:
    """The numbers of HEIGHTxWIDTH, or HEIGHTxWIDTHx3."""
    if text is None:
        return None
    sizes = text.lower().split("x")
    if not all(size.isdecimal() for size in sizes) or math.prod(map(int, sizes)) != dim:
        raise InputError(
            f"--image-shape must be HEIGHTxWIDTH, or HEIGHTxWIDTHx3 for colours, with {dim} "
            f"numbers in all, such as 28x28; it is {text!r}."
        )
    return tuple(map(int, sizes))


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
    explore: Annotated[bool, "Write explorer.html, too: see `dpindex explore`."] = False,
    image_shape: o.ImageShape = None,
    replace: Annotated[bool, "Replace a report of another evaluation in the directory."] = False,
    skip_leak_check: Annotated[bool, "Accept a codebook that shares rows with BASE."] = False,
    options: o.CurveOptions,
) -> None:
    """Measure recall against epsilon and write a report.

    Runs are kept as they end: run again to resume.
    """
    from dpindex.study.evaluate import (
        explorer,
        image_attack,
        recall_curve,
        require_matplotlib,
        spec_grid,
        write_curve,
    )
    from dpindex.study.evaluate.text_attack import read_texts, text_attack

    require_matplotlib()
    if options.record:
        book = ",record-codebook" if options.codebook else ""
        methods = methods or f"record-cap{book},{_CONTRAST}"
        epsilons = epsilons or _RECORD_EPSILONS
    public = public_sample or (None if options.codebook is None else str(options.codebook))
    if public_texts is None and (public_sample or (base_texts and not explore)):
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
        shape = _image_shape(image_shape, base_source.shape[1])
        true = None if base_texts is None else read_texts(base_texts)
        if explore:
            explorer.require_libraries()
            explorer.check_range([grid.specs])
            shown = explorer.Shown(base_source, query_source, image_shape=shape, texts=true)
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
                report=report,
                replace_report=replace,
                progress=progress,
            )
            if explore:
                view = explorer.view(
                    curve, base_source, query_source, unit=options.record, progress=progress
                )
        pictures = image_attack(base_source, grid.specs, shape) if shape else []
        texts = None
        if public_texts is not None:
            with open_vectors(str(public)) as source:
                texts = text_attack(base_source, grid.specs, source, read_texts(public_texts), true)
        linked = None
        if explore:
            make_folder(report)
            linked = explorer.write_page(report / "explorer.html", [view], shown).name
    page = write_curve(
        curve,
        report,
        notes=grid.refused,
        texts=texts,
        pictures=pictures,
        explorer=linked,
        replace=replace,
    )
    _print_curve(curve)
    typer.echo(f"Report: {page}")


def explore(
    base: Annotated[str, typer.Argument(help="Vectors to search.")],
    queries: Annotated[str, typer.Argument(help="Query vectors.")],
    *,
    output: Annotated[Path, "The page to write."] = Path("explorer.html"),
    methods: Annotated[
        str, "Methods that hide one attribute, separated by commas; '' leaves this view out."
    ] = _METHODS,
    epsilons: Annotated[str, "Their epsilons, two or more."] = _EXPLORED,
    record_methods: Annotated[
        str | None,
        "Methods that hide whole records, on vectors at norm 1; '' leaves this view out.  "
        f"[default: those named record-*, {_CONTRAST} for contrast, none-oporp]",
    ] = None,
    record_epsilons: Annotated[str, "Their epsilons, two or more."] = _EXPLORED_RECORD,
    code_length: Annotated[str, "Separated by commas.  [default: the methods']"] = "",
    runs: Annotated[int, "Builds of each spec, with a new seed and new noise."] = 1,
    query: Annotated[str, "Query modes, separated by commas."] = "private,exact",
    max_queries: Annotated[int | None, "Use the first so many only.  [default: all]"] = None,
    examples: Annotated[int, "Queries and records to show."] = 6,
    metric: o.Metric = "cosine",
    denoise: o.Denoise = None,
    image_shape: o.ImageShape = None,
    base_texts: Annotated[Path | None, "Texts of the vectors, a line each."] = None,
    query_texts: Annotated[Path | None, "Texts of the queries, a line each."] = None,
    ids: Annotated[str | None, "File of ids to show, one for each vector."] = None,
    title: Annotated[str | None, "Heading of the page."] = None,
    skip_leak_check: Annotated[bool, "Accept a codebook that shares rows with BASE."] = False,
    options: o.CurveOptions,
) -> None:
    """Write a page on which epsilon is a slider.

    One file that works offline: recall, exposure, odds, answers and rebuilt records by epsilon. It
    shows the vectors themselves, so make it of public ones before you send it around.
    """
    from dpindex.study.evaluate import explorer, spec_grid
    from dpindex.study.evaluate.text_attack import read_texts

    out.refuse_existing(output)
    explorer.require_libraries()
    if record_methods is None:
        book = "record-codebook," if options.codebook else ""
        record_methods = f"record-cap,{book}{_CONTRAST},none-oporp"
    stated = options.stated()
    kept = ("delta", "codebook", "subset", "seed")
    whole = {"adjacency": record(), **{name: stated[name] for name in kept}}
    lengths = _list(code_length, "--code-length", int) or [None]
    with open_vectors(base) as base_source, open_vectors(queries) as query_source:
        dim = base_source.shape[1]
        grids = [
            spec_grid(
                dim,
                _list("" if options.record else methods, "--methods", str),
                _list(epsilons, "--epsilons", float),
                lengths,
                **stated,
            ),
            spec_grid(
                dim,
                _list(record_methods, "--record-methods", str),
                _list(record_epsilons, "--record-epsilons", float),
                lengths,
                **whole,
            ),
        ]
        refused = [sentence for grid in grids for sentence in grid.refused]
        for sentence in refused:
            typer.echo(f"left out: {sentence}", err=True)
        with out.progress_bar("measuring") as progress:
            page = explorer.explore(
                output,
                base_source,
                query_source,
                [spec for grid in grids for spec in grid.specs],
                image_shape=_image_shape(image_shape, dim),
                texts=None if base_texts is None else read_texts(base_texts),
                query_texts=None if query_texts is None else read_texts(query_texts),
                ids=None if ids is None else read_ids(ids),
                notes=refused,
                count=examples,
                runs=runs,
                query_modes=_list(query, "--query", str),
                neighbours=10,
                metric=metric,
                denoise=denoise,
                max_queries=max_queries,
                skip_leak_check=skip_leak_check,
                progress=progress,
                **({} if title is None else {"title": title}),
            )
    typer.echo(f"Explorer: {page} ({page.stat().st_size / 1e6:.1f} MB); open it in a browser.")


def _print_curve(curve: Any) -> None:
    """Tables of at most 80 columns: what is found in each query mode, and what codes reveal."""
    typer.echo(curve.adjacency)
    for measure in ("recall@10", "precision@10"):
        for mode in curve.query_modes:
            _print_lines(curve, f"{curve.full_name(measure)}, {mode} queries", measure, mode)
    mode, count = curve.query_modes[0], curve.base[1]
    _print_lines(curve, f"known vectors that pick out their code among {count}", "linked", mode)
    _print_lines(curve, "cosine of rebuilt vectors to the originals", "rebuilt_cosine", mode)


def _print_lines(curve: Any, title: str, measure: str, mode: str) -> None:
    """A line for each method, a column for each epsilon; long names have a line of their own."""
    for first in range(0, max(len(curve.epsilons), 1), _COLUMNS):
        epsilons = curve.epsilons[first : first + _COLUMNS]
        width = _WIDTH - 7 * max(len(epsilons), 1)
        typer.echo(f"\n{title}")
        typer.echo(f"{'  ε':{width}}" + "".join(f"{epsilon:>7g}" for epsilon in epsilons))
        for name, line in curve.series(mode).items():
            at = {point.spec.epsilon: point.mean[measure] for point in line}
            values = [at.get(epsilon, at.get(None)) for epsilon in epsilons or (None,)]
            cells = "".join("      –" if v is None or v != v else f"{v:7.2f}" for v in values)
            start = f"  {name}"
            if len(start) > width:
                typer.echo(start)
                start = ""
            typer.echo(f"{start:{width}}{cells}")


def demo(
    directory: Annotated[
        Path, typer.Argument(help="Directory for the index and the report.")
    ] = Path("dpindex-demo"),
) -> None:
    """Run an example on bundled digits, in under a minute."""
    from dpindex.study.evaluate import run_demo

    with out.progress_bar("measuring") as progress:
        result = run_demo(directory, progress=progress)
    _print_curve(result.curve)
    typer.echo(
        f"\nTen nearest answers to private queries at {result.spec.guarantee}: "
        f"{result.same_digit:.0%} show the digit asked for.\n"
        f"Index:   {result.index}   (try: dpindex info {result.index})\n"
        f"Report:  {result.report}\n"
        f"Explorer: {result.explorer}   drag epsilon in a browser, and see what happens\n"
        f"Attack:  {result.report.with_name('inversion.png')}   what inverting the codes gives back"
    )


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
            methods=_list(methods, "--methods", str) or None,
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
