"""Commands on how much a search finds: evaluate, demo, plan."""

from __future__ import annotations

import shlex
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.table import Table

from dpindex.cli import options as o
from dpindex.cli import output as out
from dpindex.errors import InputError
from dpindex.files import make_folder
from dpindex.privacy import record
from dpindex.vectors import open_vectors, read_ids

_CONTRAST = "raw-gaussian"
_EPSILONS, _RECORD_EPSILONS = "1,2,3,5,10", "6,8,10,12,16"
_EXPLORED, _EXPLORED_RECORD = "0.5,1,2,3,5,10,20", "2,4,6,8,10,12,16"
_METHODS = "dp-oporp-staircase,dp-oporp,dp-signoporp-geometric,none-oporp"
_SHOWN = 12


def _list(text: str, option: str, read: type) -> list[Any]:
    try:
        return [read(part) for part in text.replace(",", " ").split()]
    except ValueError:
        raise InputError(f"{option} must be a list such as 1,2,5, not {text!r}.") from None


def _image_shape(text: str | None) -> tuple[int, ...] | None:
    """The numbers of HEIGHTxWIDTH, or HEIGHTxWIDTHx3."""
    try:
        return None if text is None else tuple(int(part) for part in text.split("x"))
    except ValueError:
        raise InputError(f"--image-shape must be such as 28x28, not {text!r}.") from None


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
    skip_leak_check: Annotated[bool, "Accept a codebook that shares rows with BASE."] = False,
    options: o.CurveOptions,
) -> None:
    """Measure recall against epsilon and write a report."""
    from dpindex.evaluate import explorer, recall_curve, require_matplotlib, spec_grid, write_curve
    from dpindex.evaluate.text_attack import read_texts, text_attack

    require_matplotlib()
    if options.record:
        book = ",record-codebook" if options.codebook else ""
        methods = methods or f"record-cap{book},{_CONTRAST}"
        epsilons = epsilons or _RECORD_EPSILONS
    public = public_sample or (None if options.codebook is None else str(options.codebook))
    if public_texts is None and (public_sample or (base_texts and not explore)):
        raise InputError("--public-sample and --base-texts need --public-texts.")
    if image_shape is not None and not explore:
        raise InputError("--image-shape needs --explore.")
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
        true = None if base_texts is None else read_texts(base_texts)
        if explore:
            explorer.require_libraries()
            explorer.check_range([grid.specs])
            shown = explorer.Shown(
                base_source, query_source, image_shape=_image_shape(image_shape), texts=true
            )
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
            if explore:
                view = explorer.view(
                    curve, base_source, query_source, unit=options.record, progress=progress
                )
        texts = None
        if public_texts is not None:
            with open_vectors(str(public)) as source:
                texts = text_attack(base_source, grid.specs, source, read_texts(public_texts), true)
        linked = None
        if explore:
            make_folder(report)
            linked = explorer.write_page(report / "explorer.html", [view], shown).name
    page = write_curve(curve, report, notes=grid.refused, texts=texts, explorer=linked)
    out.print_table(_curve_table(curve))
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
    from dpindex.evaluate import explorer, spec_grid
    from dpindex.evaluate.text_attack import read_texts

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
                image_shape=_image_shape(image_shape),
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
        f"Explorer: {result.explorer}   drag epsilon in a browser, and see what happens\n"
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
    query: Annotated[o.QueryMode, "Query mode to plan for."] = "private",
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
    facts = None
    if typical_norm is not None or neighbour_cosine is not None:
        if typical_norm is None or neighbour_cosine is None:
            raise InputError("public facts need both --typical-norm and --neighbour-cosine.")
        facts = Facts(typical_norm, neighbour_cosine, typical_cosine, spectrum_decay)
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
            **options.stated(),
        )
    if form == "json":
        out.print_json(outcome.to_dict())
        return
    out.print_table(_plan_table(outcome))
    if len(outcome.rows) > _SHOWN:
        typer.echo(f"and {len(outcome.rows) - _SHOWN} more (--format json shows all).")
    typer.echo(f"Recommended: {outcome.why}")
    for line in outcome.remarks:
        typer.echo(f"Note: {line}")
    if options.record:
        typer.echo("To build it:")
        for line in _build_commands(outcome, public_sample):
            typer.echo(f"  {line}")


def _build_commands(outcome: Any, public_sample: str | None) -> list[str]:
    """The commands that make the codebook, if it is not the whole sample, and the index."""
    spec, lines = outcome.best.spec, []
    build = (
        f"dpindex build VECTORS INDEX --record --method {spec.method} --epsilon {spec.epsilon:g}"
    )
    if (book := spec.codebook) is None:
        return [f"{build} --code-length {spec.code_length}"]
    file = shlex.quote(str(public_sample))
    if len(book) < outcome.sample_rows:
        lines.append(f"dpindex codebook {file} codebook.npy --size {len(book)}")
        file = "codebook.npy"
    return [*lines, f"{build} --codebook {file} --subset {spec.subset}"]


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
