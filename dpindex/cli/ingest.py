"""Vectors in: build, privatize, add."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpindex.cli import options as o
from dpindex.cli.spec_options import SpecOptions, with_options
from dpindex.errors import InputError
from dpindex.spec import Spec
from dpindex.vectors import open_vectors, read_ids

if TYPE_CHECKING:
    from dpindex.index import PrivateIndex

__all__ = ["register"]


IdsFile = Annotated[
    str | None, typer.Option("--ids", help="File of ids, one for each row (.txt, .npy, PATH:KEY).")
]


def register(app: typer.Typer) -> None:
    app.command()(build)
    app.command()(privatize)
    app.command(short_help="Add the codes of devices, or vectors.")(add)


@with_options
def build(
    vectors: o.VectorFile,
    index: Annotated[Path, typer.Argument(help="Directory to make.")],
    method: Annotated[str, typer.Option(help="A name from `dpindex methods`.")],
    options: SpecOptions,
    ids: IdsFile = None,
    metric: Annotated[str, typer.Option(help="cosine, ip or l2.")] = "cosine",
    index_type: Annotated[
        str, typer.Option(help="f32, f16, int8, or a Faiss factory string such as SQ4 or HNSW32.")
    ] = "f32",
    denoise: o.Denoise = None,
    query_epsilon: Annotated[
        float | None, typer.Option(help="Budget of a private query.  [default: epsilon]")
    ] = None,
    allow_unprotected: Annotated[
        bool, typer.Option("--allow-unprotected", help="Build with a none-* baseline.")
    ] = False,
    ledger: o.LedgerFile = None,
    allow_rerelease: o.Rerelease = False,
) -> None:
    """Privatize vectors into an index; run again to resume."""
    from dpindex.index import PrivateIndex, Settings
    from dpindex.index.ingest import NewDirectory, ingest

    with open_vectors(vectors) as source:
        spec = options.spec(method, source.shape[1])
        stated: Any = (spec, metric, index_type, query_epsilon)
        sink = NewDirectory(index, Settings(*stated), allow_unprotected=allow_unprotected)
        names = None if ids is None else read_ids(ids)
        book = o.open_ledger(ledger, names, allow_rerelease)
        with o.progress_bar("privatizing") as report:
            done = ingest(
                source,
                sink,
                ids=names,
                progress=report,
                ledger=book,
                allow_rerelease=allow_rerelease,
            )
        typer.echo(f"{index}: {source.shape[0]} vectors ({done} privatized now).")
    if denoise is not None:
        made = PrivateIndex.open(index)
        _fit(made, denoise)
        made.save(index)
    typer.echo(f"{spec.guarantee}.")
    o.show_totals(book, names)
    typer.echo(f"What this protects and what it does not: dpindex info {index}")


def privatize(
    vectors: o.VectorFile,
    codes: Annotated[Path, typer.Argument(help="File to write the codes to.")],
    spec: Annotated[Path, typer.Option(help="Spec as JSON: see `dpindex spec`.")],
    ids: Annotated[
        str | None, typer.Option("--ids", help="File of ids, one for each row, for the ledger.")
    ] = None,
    ledger: o.LedgerFile = None,
    allow_rerelease: o.Rerelease = False,
) -> None:
    """Turn vectors into codes, as a device does."""
    from dpindex.index.ingest import CodesFile, ingest

    o.refuse_existing(codes)
    names = None if ids is None else read_ids(ids)
    book = o.open_ledger(ledger, names, allow_rerelease)
    stated = Spec.read(spec)
    with open_vectors(vectors) as source, o.progress_bar("privatizing") as report:
        done = ingest(
            source,
            CodesFile(codes, stated),
            ids=names,
            progress=report,
            ledger=book,
            allow_rerelease=allow_rerelease,
        )
    typer.echo(f"{codes}: {done} codes, {codes.stat().st_size} bytes. {stated.guarantee}.")
    o.show_totals(book, names)


def add(
    index: Annotated[Path, typer.Argument(help="Index directory.")],
    items: Annotated[
        str, typer.Argument(metavar="CODES-OR-VECTORS", help="Codes of devices, or vectors.")
    ],
    ids: IdsFile = None,
    denoise: o.Denoise = None,
    ledger: o.LedgerFile = None,
    allow_rerelease: o.Rerelease = False,
) -> None:
    """Add the codes of devices, or vectors; a denoiser that was fitted serves them too."""
    from dpindex.index import PrivateIndex
    from dpindex.index.ingest import OpenIndex, ingest

    opened = PrivateIndex.open(index)
    names = None if ids is None else read_ids(ids)
    before = len(opened)
    book = o.open_ledger(ledger, names, allow_rerelease)
    codes = o.read_codes(Path(items))
    if codes is not None:
        if book is not None:
            raise InputError(f"{items} holds codes: the ledger of who made them counts them.")
        opened.add_codes(codes, names)
    else:
        with open_vectors(items) as source, o.progress_bar("privatizing") as report:
            ingest(
                source,
                OpenIndex(opened),
                ids=names,
                progress=report,
                ledger=book,
                allow_rerelease=allow_rerelease,
            )
    if denoise is not None:
        _fit(opened, denoise)
    opened.save(index)
    typer.echo(f"{index}: {len(opened) - before} added, {len(opened)} in all.")
    o.show_totals(book, names)


def _fit(index: PrivateIndex, kind: o.Denoiser) -> None:
    """Learn a denoiser from all codes, or say why not: the index is as good without."""
    try:
        found = index.fit_denoiser(kind.value)
    except InputError as error:
        typer.echo(f"not denoised: {error}", err=True)
    else:
        typer.echo(f"Denoised: {found.kind}, learned from {found.rows} codes.")
