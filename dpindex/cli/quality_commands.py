"""Commands that measure how much a search finds: evaluate, explore, demo."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import typer

from dpindex.base.errors import InputError
from dpindex.base.files import make_folder
from dpindex.cli import options as o
from dpindex.cli import output as out
from dpindex.privacy import record
from dpindex.vectors import open_vectors, read_ids

_CONTRAST = "raw-gaussian"
_EPSILONS = "1,2,3,5,10"
_RECORD_EPSILONS = "6,8,10,12,16"
_EXPLORED = "0.5,1,2,3,5,10,20"
_EXPLORED_RECORD = "2,4,6,8,10,12,16"
_METHODS = "dp-oporp-staircase,dp-oporp,dp-signoporp-geometric,none-oporp"
# Width of printed tables, and columns of numbers in them.
_WIDTH = 79
_COLUMNS = 7


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
            o.parsed_list(methods or _METHODS, "--methods", str),
            o.parsed_list(epsilons or _EPSILONS, "--epsilons", float),
            o.parsed_list(code_length, "--code-length", int) or [None],
            **options.stated(),
        )
        for sentence in grid.refused:
            typer.echo(f"left out: {sentence}", err=True)
        shape = _image_shape(image_shape, base_source.shape[1])
        true = None
        if base_texts is not None:
            true = read_texts(base_texts)
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
                query_modes=o.parsed_list(query, "--query", str),
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
        pictures = []
        if shape:
            pictures = image_attack(base_source, grid.specs, shape)
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
    lengths = o.parsed_list(code_length, "--code-length", int) or [None]
    with open_vectors(base) as base_source, open_vectors(queries) as query_source:
        dim = base_source.shape[1]
        grids = [
            spec_grid(
                dim,
                o.parsed_list("" if options.record else methods, "--methods", str),
                o.parsed_list(epsilons, "--epsilons", float),
                lengths,
                **stated,
            ),
            spec_grid(
                dim,
                o.parsed_list(record_methods, "--record-methods", str),
                o.parsed_list(record_epsilons, "--record-epsilons", float),
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
                query_modes=o.parsed_list(query, "--query", str),
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
    mode = curve.query_modes[0]
    count = curve.base[1]
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
