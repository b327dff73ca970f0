"""What there is and what it promises: info, methods, spec."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from dpindex.cli import options as o
from dpindex.cli.spec_options import SpecOptions, with_options
from dpindex.method_table import Method
from dpindex.method_table import methods as all_methods

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    app.command()(info)
    app.command()(methods)
    app.command()(spec)


def info(
    index: Annotated[Path, typer.Argument(help="Index directory.")],
    as_json: o.AsJson = False,
    show_spec: Annotated[
        bool, typer.Option("--spec", help="Print the spec alone, for devices to privatize under.")
    ] = False,
) -> None:
    """Say what an index protects, and what it does not."""
    from dpindex.index import PrivateIndex

    opened = PrivateIndex.open(index)
    stated = opened.spec
    promise = stated.guarantee
    if show_spec:
        typer.echo(stated.to_json())
        return
    denoiser = opened.denoiser
    size = sum(file.stat().st_size for file in index.rglob("*") if file.is_file())
    if as_json:
        facts = {
            "count": len(opened),
            "bytes": size,
            "metric": opened.metric,
            "index_type": opened.index_type,
            "index_recall": opened.index_recall,
            "denoiser": None
            if denoiser is None
            else {
                "kind": denoiser.kind,
                "rows": denoiser.rows,
                "error": denoiser.error,
            },
            "query_epsilon": opened.query_spec.epsilon,
            "spec": json.loads(stated.to_json()),
            "guarantee": promise.to_dict(),
            "protects": promise.protects(),
            "does_not_protect": promise.does_not_protect(stated.dim),
        }
        typer.echo(json.dumps(facts, indent=1))
        return
    lines = [
        f"{index}: {len(opened)} vectors of {stated.dim} attributes, {size} bytes",
        f"method      {stated.method}: {stated.mechanism.summary}",
        f"source      {stated.mechanism.source}",
        f"code        {stated.code_length} {stated.mechanism.codes}"
        + (f" in {stated.repetitions} repetitions" if stated.repetitions > 1 else ""),
        f"search      {opened.metric}, index type {opened.index_type}, "
        f"private queries at epsilon = {opened.query_spec.budget:g}",
        f"guarantee   {promise}",
    ]
    if opened.index_recall is not None:
        found = f"{opened.index_recall:.3f} of the ten nearest that a flat search finds"
        lines.insert(-1, f"recall      {opened.index_type} finds {found}, measured on codes here")
    if denoiser is not None:
        quality = f"predicts coordinates to {denoiser.error:.3g} of their noise variance"
        learned = f"learned from {denoiser.rows} codes"
        lines.insert(-1, f"denoiser    {denoiser.kind}, {learned}; {quality}")
    typer.echo("\n".join(lines))
    if promise.definition != "none":
        how = "integers that run (exact)" if promise.exact else "real numbers, not the floats"
        typer.echo(f"proved for  the {how}")
    typer.echo(f"\nWhat is protected\n  {promise.protects()}")
    typer.echo("\nWhat is not protected")
    for line in promise.does_not_protect(stated.dim):
        typer.echo(f"  - {line}")


def methods(as_json: o.AsJson = False) -> None:
    """List every method, its promise and its source."""
    rows = [
        {
            "name": row.name,
            "codes": row.codes,
            "definition": row.definition,
            "kind": _kind(row),
            "adjacency": ", ".join(row.adjacencies) if row.definition != "none" else "none",
            "needs": row.needs,
            "entries": ", ".join(row.family.entries),
            "exact": row.calibration.exact and row.definition != "none",
            "summary": row.summary,
            "source": row.source,
        }
        for row in all_methods()
    ]
    if as_json:
        typer.echo(json.dumps(rows, indent=1, ensure_ascii=False))
        return
    for row in rows:
        promise = "not private" if row["kind"] == "none" else f"{row['kind']} {row['definition']}"
        needs = f"; needs {row['needs']}" if row["needs"] else ""
        needs += f"; entries {row['entries']}" if row["entries"] else ""
        typer.echo(f"{row['name']}  ({row['codes']}, {promise}, {row['adjacency']}{needs})")
        typer.echo(f"    {row['summary']}")
        typer.echo(f"    {row['source']}")


def _kind(row: Method) -> str:
    if row.definition == "none":
        return "none"
    if row.calibration.delta == "optional":
        return "pure or approximate"
    return "pure" if row.pure else "approximate"


@with_options
def spec(
    method: Annotated[str, typer.Option(help="A name from `dpindex methods`.")],
    dim: Annotated[int, typer.Option(help="Attributes of a vector.")],
    options: SpecOptions,
) -> None:
    """Print a spec as JSON, for devices to use."""
    typer.echo(options.spec(method, dim).to_json())
