"""Vectors in: build, privatize, add."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from dpindex.cli import options as o
from dpindex.codes import Codes
from dpindex.errors import InputError
from dpindex.ledger import Ledger
from dpindex.privatizer import Privatizer
from dpindex.spec import Spec
from dpindex.vectors import VectorSource, open_vectors, read_ids

if TYPE_CHECKING:
    from dpindex.index import PrivateIndex

__all__ = ["register"]

_CHUNK_BYTES = 1 << 25

IdsFile = Annotated[
    str | None, typer.Option("--ids", help="File of ids, one for each row (.txt, .npy, PATH:KEY).")
]


def register(app: typer.Typer) -> None:
    app.command()(build)
    app.command()(privatize)
    app.command(short_help="Add the codes of devices, or vectors.")(add)


def build(
    vectors: o.VectorFile,
    index: Annotated[Path, typer.Argument(help="Directory to make.")],
    method: Annotated[str, typer.Option(help="A name from `dpindex methods`.")],
    epsilon: o.Epsilon = None,
    delta: o.Delta = 0.0,
    beta: o.Beta = None,
    l2_radius: o.L2Radius = None,
    k: o.Length = None,
    repetitions: o.Repetitions = 1,
    scale: o.Scale = 1.0,
    bounds: o.Bounds = (-1.0, 1.0),
    clip: o.Clip = False,
    min_norm: o.MinNorm = None,
    norm: o.Norm = None,
    entries: o.Entries = None,
    sparsity: o.Sparsity = None,
    seed: o.Seed = 0,
    ids: IdsFile = None,
    metric: Annotated[str, typer.Option(help="cosine, ip or l2.")] = "cosine",
    storage: Annotated[
        str, typer.Option(help="f32, f16, int8, or a Faiss factory string such as SQ8 or HNSW32.")
    ] = "f32",
    denoise: o.Denoise = None,
    query_epsilon: Annotated[
        float | None, typer.Option(help="Budget of a private query.  [default: epsilon]")
    ] = None,
    allow_unprotected: Annotated[
        bool, typer.Option("--allow-unprotected", help="Build with a none-* baseline.")
    ] = False,
    ledger: o.LedgerFile = None,
    allow_rerelease: o.Again = False,
) -> None:
    """Privatize vectors into an index; run again to resume."""
    from dpindex.index import PrivateIndex, Settings, build_index

    with open_vectors(vectors) as source:
        spec = o.make_spec(
            method,
            source.shape[1],
            beta=beta,
            l2_radius=l2_radius,
            epsilon=epsilon,
            delta=delta,
            k=k,
            repetitions=repetitions,
            scale=scale,
            bounds=bounds,
            clip=clip,
            min_norm=min_norm,
            norm=norm,
            entries=entries,
            sparsity=sparsity,
            seed=seed,
        )
        choices: Any = {"metric": metric, "storage": storage, "query_epsilon": query_epsilon}
        PrivateIndex(spec, **choices)  # refuses a wrong choice before the budget is spent
        names = None if ids is None else read_ids(ids)
        book = o.open_ledger(ledger, names, allow_rerelease)
        with o.progress_bar("privatizing") as report:
            done = build_index(
                source,
                index,
                Settings(spec, **choices),
                ids=names,
                progress=report,
                allow_unprotected=allow_unprotected,
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
    allow_rerelease: o.Again = False,
) -> None:
    """Turn vectors into codes, as a device does."""
    o.refuse_existing(codes)
    names = None if ids is None else read_ids(ids)
    book = o.open_ledger(ledger, names, allow_rerelease)
    if names is not None and book is None:
        raise InputError("codes carry no ids: --ids is for the ledger; name it with --ledger.")
    stated = Spec.read(spec)
    with open_vectors(vectors) as source, o.progress_bar("privatizing") as report:
        if book is not None:
            _record(book, source, stated, names, allow_rerelease)
        data = _privatize(source, stated, report).to_bytes()
    temporary = codes.with_name(codes.name + ".tmp")
    temporary.write_bytes(data)
    os.replace(temporary, codes)
    typer.echo(f"{codes}: {source.shape[0]} codes, {len(data)} bytes. {stated.guarantee}.")
    o.show_totals(book, names)


def add(
    index: Annotated[Path, typer.Argument(help="Index directory.")],
    items: Annotated[
        str, typer.Argument(metavar="CODES-OR-VECTORS", help="Codes of devices, or vectors.")
    ],
    ids: IdsFile = None,
    denoise: o.Denoise = None,
    ledger: o.LedgerFile = None,
    allow_rerelease: o.Again = False,
) -> None:
    """Add the codes of devices, or vectors; a denoiser that was fitted serves them too."""
    from dpindex.index import PrivateIndex

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
            if book is not None:
                book.refuse_inside(index)
                opened.check_ids(names, source.shape[0])
                _record(book, source, opened.spec, names, allow_rerelease)
            opened.add_codes(_privatize(source, opened.spec, report), names)
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


def _record(
    book: Ledger, source: VectorSource, spec: Spec, ids: Any, allow_rerelease: bool
) -> None:
    """Look at everything first: what is refused should not cost anything."""
    if len(ids) != source.shape[0]:
        raise InputError(f"there are {len(ids)} ids for {source.shape[0]} vectors.")
    privatizer = Privatizer(spec)
    for first, chunk in source.chunks(_rows_at_a_time(source, spec)):
        privatizer.check(chunk, first_row=first)
    book.record(spec, ids, allow_rerelease=allow_rerelease)


def _rows_at_a_time(source: VectorSource, spec: Spec) -> int:
    if source.shape[1] != spec.dim:
        raise InputError(f"{source.name} has {source.shape[1]} columns; the spec says {spec.dim}.")
    return max(1, _CHUNK_BYTES // (8 * (spec.code_length if source.is_sparse else spec.dim)))


def _privatize(source: VectorSource, spec: Spec, report: Any) -> Codes:
    privatizer = Privatizer(spec)
    parts = []
    for first, chunk in source.chunks(_rows_at_a_time(source, spec)):
        parts.append(privatizer.privatize(chunk, first_row=first).stored)
        report(first + len(parts[-1]), source.shape[0])
    return spec.format.codes(np.concatenate(parts))
