"""How good is it: evaluate and demo."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from dpindex.cli import options as o
from dpindex.cli.spec_options import DataOptions, with_options
from dpindex.errors import InputError
from dpindex.vectors import as_source, open_vectors

__all__ = ["register"]

_METHODS = "dp-oporp-staircase,dp-oporp,dp-signoporp-geometric,none-oporp"


def register(app: typer.Typer) -> None:
    app.command()(evaluate)
    app.command()(demo)


def _list(text: str, what: str, read: type) -> list[Any]:
    try:
        return [read(part) for part in text.replace(",", " ").split()]
    except ValueError:
        raise InputError(f"{what} must be a list such as 1,2,5, not {text!r}.") from None


@dataclass(frozen=True)
class CurveOptions(DataOptions):
    """The same with a delta for the methods that need one, and the public seed."""

    delta: Annotated[float, typer.Option(help="For the methods that need one.")] = 1e-6
    repetitions: Annotated[
        int, typer.Option(help="OPORP repetitions that share epsilon (sign codes).")
    ] = 1
    seed: Annotated[int, typer.Option(help="Public seed of the first run's projection.")] = 0


@with_options
def evaluate(
    base: Annotated[str, typer.Argument(help="Vectors to search.")],
    queries: Annotated[str, typer.Argument(help="Query vectors.")],
    options: CurveOptions,
    report: Annotated[Path, typer.Option(help="Directory for curve.csv, curve.png, report.html.")],
    methods: Annotated[str, typer.Option(help="Names, with commas.")] = _METHODS,
    epsilons: Annotated[str, typer.Option(help="Budgets, with commas.")] = "1,2,3,5,10",
    code_length: Annotated[
        str, typer.Option(help="Code lengths, with commas.  [default: the methods']")
    ] = "",
    runs: Annotated[int, typer.Option(help="Builds of each, with fresh seeds and noise.")] = 10,
    query: Annotated[str, typer.Option(help="Query modes, with commas.")] = "private,exact",
    max_queries: Annotated[
        int | None, typer.Option(help="Use that many queries at most.  [default: all]")
    ] = None,
    neighbours: Annotated[int, typer.Option(help="True neighbours of a query.")] = 50,
    metric: Annotated[str, typer.Option(help="cosine, ip or l2.")] = "cosine",
    denoise: o.Denoise = None,
) -> None:
    """Measure recall against epsilon and write a report."""
    from dpindex.evaluate import recall_curve, require_matplotlib, spec_grid, write_curve

    require_matplotlib()
    lengths: Any = _list(code_length, "--code-length", int) or [None]
    with open_vectors(base) as base_source, open_vectors(queries) as query_source:
        grid = spec_grid(
            base_source.shape[1],
            _list(methods, "--methods", str),
            _list(epsilons, "--epsilons", float),
            lengths,
            **options.stated(),
        )
        for sentence in grid.refused:
            typer.echo(f"left out: {sentence}", err=True)
        asked = as_source(query_source.read()[:max_queries], query_source.name)
        with o.progress_bar("measuring") as bar:
            curve = recall_curve(
                base_source,
                asked,
                grid.specs,
                runs=runs,
                query_modes=_list(query, "--query", str),
                neighbours=neighbours,
                metric=metric,  # type: ignore[arg-type]
                denoise=None if denoise is None else denoise.value,
                progress=lambda done, total, _: bar(done, total),
            )
    page = write_curve(curve, report, notes=grid.refused)
    _print_curve(curve)
    typer.echo(f"Report: {page}")


def _print_curve(curve: Any) -> None:
    """Precision@10 as a small table: a row for each method and query mode, a column an epsilon."""
    table = Table("precision@10", "query", box=box.SIMPLE, caption=curve.adjacency)
    for epsilon in curve.epsilons:
        table.add_column(f"ε = {epsilon:g}", justify="right", no_wrap=True)
    for mode in curve.query_modes:
        for name, line in curve.series(mode).items():
            at = {point.spec.epsilon: f"{point.mean['precision@10']:.2f}" for point in line}
            cells = (at.get(epsilon, at.get(None, "")) for epsilon in curve.epsilons)
            table.add_row(name, mode, *cells)
    Console().print(table)


def demo(
    directory: Annotated[
        Path, typer.Argument(help="Where to write the index, the report and the pictures.")
    ] = Path("dpindex-demo"),
) -> None:
    """See it work on bundled digits in under a minute."""
    from dpindex.evaluate import run_demo

    with o.progress_bar("measuring") as bar:
        result = run_demo(directory, progress=lambda done, total, _: bar(done, total))
    _print_curve(result.curve)
    typer.echo(
        f"Ten nearest answers to private queries at {result.spec.guarantee}: "
        f"{result.same_digit:.0%} show the digit asked for.\n"
        f"Index:   {result.index}   (try: dpindex info {result.index})\n"
        f"Report:  {result.report}\n"
        f"Attack:  {result.report.with_name('inversion.png')}   what inverting the codes gives back"
    )
