"""What would an epsilon buy: plan."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from dpindex.cli import options as o
from dpindex.cli.output import Format
from dpindex.cli.search import Mode
from dpindex.cli.spec_options import DataOptions, with_options
from dpindex.errors import InputError
from dpindex.vectors import open_vectors

__all__ = ["register"]

_SHOWN = 12
_RANKINGS = {"plain": "–", "linear": "linear", "auto": "auto"}


def register(app: typer.Typer) -> None:
    app.command(short_help="Predict what an epsilon will buy.")(plan)


@with_options
def plan(
    dim: Annotated[int, typer.Option(help="Attributes of a vector.")],
    n: Annotated[int, typer.Option("--n", help="Vectors in the collection.")],
    options: DataOptions,
    epsilon: Annotated[float | None, typer.Option(help="Target epsilon.")] = None,
    recall: Annotated[
        float | None, typer.Option(help="Instead: target precision@10; finds the epsilon.")
    ] = None,
    public_sample: Annotated[
        str | None,
        typer.Option(help="File of 500 or more PUBLIC vectors of that kind (PATH:KEY picks)."),
    ] = None,
    typical_norm: Annotated[
        float | None, typer.Option(help="Instead of a sample: norm of a vector, after scaling.")
    ] = None,
    neighbour_cosine: Annotated[
        float | None, typer.Option(help="With --typical-norm: cosine to the tenth nearest.")
    ] = None,
    typical_cosine: Annotated[float, typer.Option(help="Mean cosine of two vectors.")] = 0.0,
    spectrum_decay: Annotated[
        float, typer.Option(help="The j-th largest variance falls as j^-DECAY.")
    ] = 1.0,
    query: Annotated[Mode, typer.Option(help="Query mode to plan for.")] = Mode.private,
    max_bytes: Annotated[int | None, typer.Option(help="Bytes that a code may have.")] = None,
    methods: Annotated[
        str, typer.Option(help="Methods to consider, with commas.  [default: all that give DP]")
    ] = "",
    form: Annotated[Format, typer.Option("--format", help="table or json.")] = Format.table,
    skip_leak_check: Annotated[
        bool, typer.Option("--skip-leak-check", help="Accept a sample that looks private.")
    ] = False,
) -> None:
    """Predict, from public knowledge alone, what an epsilon will find, and recommend a method."""
    from dpindex.planner import plan as make_plan

    if form is Format.npz:
        raise InputError("a plan is shown as table or json, not as npz.")
    stated: dict[str, Any] = {
        **options.stated(),
        "dim": dim,
        "n": n,
        "epsilon": epsilon,
        "recall": recall,
        "facts": _facts(typical_norm, neighbour_cosine, typical_cosine, spectrum_decay),
        "query": query.value,
        "max_bytes": max_bytes,
        "methods": methods.replace(",", " ").split() or None,
        "skip_leak_check": skip_leak_check,
    }
    with o.task_bar("simulating") as bar:
        if public_sample is None:
            outcome = make_plan(**stated, progress=bar)
        else:
            with open_vectors(public_sample) as source:
                outcome = make_plan(**stated, public_sample=source, progress=bar)
    if form is Format.json:
        typer.echo(json.dumps(outcome.to_json(), indent=1, ensure_ascii=False))
    else:
        _print(outcome)


def _facts(norm: float | None, neighbour: float | None, typical: float, decay: float) -> Any:
    from dpindex.planner import Facts

    if norm is None and neighbour is None:
        return None
    if norm is None or neighbour is None:
        raise InputError("public facts need both --typical-norm and --neighbour-cosine.")
    return Facts(norm, neighbour, typical, decay)


def _print(outcome: Any) -> None:
    best = outcome.best
    table = Table(
        "method", "k", "denoiser", "private", "exact", "bytes", box=box.SIMPLE,
        title=f"Predicted precision@10 of {outcome.n} vectors", title_justify="left",
        caption=str(best.guarantee), caption_justify="left",
    )  # fmt: skip
    for row in outcome.rows[:_SHOWN]:
        table.add_row(
            row.method, str(row.k), _RANKINGS[row.ranking],
            f"{row.private:.2f}", f"{row.calibration.exact:.2f}", str(row.bytes_per_vector),
        )  # fmt: skip
    Console().print(table)
    if len(outcome.rows) > _SHOWN:
        typer.echo(f"and {len(outcome.rows) - _SHOWN} more (--format json shows all).")
    typer.echo(f"Recommended: {outcome.why}")
    for line in outcome.remarks:
        typer.echo(f"Note: {line}")
