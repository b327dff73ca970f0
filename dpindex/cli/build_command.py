"""The command that builds an index, wherever vectors come from and codes go to."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpindex.base.errors import InputError
from dpindex.cli import options as o
from dpindex.cli import output as out
from dpindex.cli.kinds import Takes
from dpindex.vectors import Dataset, open_dataset

if TYPE_CHECKING:  # help loads no noise laws
    from dpindex.base.arrays import AnyArray
    from dpindex.mechanism.spec import Spec

__all__ = ["build"]


@dataclass(frozen=True)
class BuildOptions:
    """How an index is searched, where it is built, and what it may take."""

    metric: o.Metric = "cosine"
    index_type: Annotated[
        str,
        "f32, f16, int8, or a Faiss factory string such as SQ4 or HNSW32; list: print those that "
        "suit, with bytes a vector, and build nothing.",
    ] = "f32"
    denoise: o.Denoise = None
    query_epsilon: Annotated[float | None, "Budget of a private query.  [default: epsilon]"] = None
    id_column: Annotated[str | None, "Column of ids in .parquet files."] = None
    dask: o.Dask = None
    private: Annotated[
        Path | None,
        "Folder for what must not be published while the build is unfinished; an object store "
        "needs one.  [default: INDEX.unpublished beside a folder]",
    ] = None
    max_size: o.MaxSize = "2GB"
    allow_unprotected: o.Unprotected = False


def build(
    vectors: Annotated[
        str,
        typer.Argument(help="Vector file, or a folder or s3:// prefix of .parquet files."),
        Takes(("vectors",)),
    ],
    index: Annotated[
        str, typer.Argument(help="Directory, or s3://, gs:// or az:// prefix, to make.")
    ],
    *,
    method: o.MethodOptions,
    options: o.SpecOptions,
    release: o.ScaledReleaseOptions,
    payload: o.PayloadOptions,
    building: BuildOptions,
) -> None:
    """Privatize vectors into an index; run again to resume."""
    from dpindex.index.build import build_index
    from dpindex.storage.manifest import Settings
    from dpindex.storage.release import IndexOptions
    from dpindex.storage.summary import coverage_warning

    ids = release.read_ids()
    terms = release.terms()
    with _dataset(vectors, building, ids, payload) as labelled:
        dataset = release.scaled(labelled)
        spec = method.spec(dataset.columns, options)
        if building.index_type == "list":
            _print_structures(spec, dataset.rows, building)
            return
        o.note_doubts(spec, dataset.rows)
        out.announce_size(dataset.rows, spec.format, building.max_size)
        metric: Any = building.metric
        settings = Settings(spec, metric, building.index_type, building.query_epsilon)
        how = IndexOptions(building.denoise, building.allow_unprotected, building.private)
        threads = None
        if building.dask is not None:
            threads = 1
        with _engine(building.dask) as engine, out.progress_bar("building") as report:
            outcome = build_index(
                dataset,
                index,
                settings,
                how,
                terms,
                engine=engine,
                threads=threads,
                progress=report,
            )
    built = outcome.published
    out.say(f"{index}: {outcome.rows} vectors ({outcome.drawn} privatized now).")
    if built.denoiser is not None:
        typer.echo(f"Denoised: {built.denoiser.kind}, learned from {built.denoiser.rows} codes.")
    if built.not_denoised:
        typer.echo(f"not denoised: {built.not_denoised}", err=True)
    typer.echo(f"{spec.guarantee}.")
    out.warn_of_payload(payload.payload or payload.payload_columns)
    if ids is not None or terms.allow_rerelease:
        out.print_totals(terms.ledger, ids)
    uncovered = coverage_warning(built.manifest.crowding)
    if uncovered is not None:
        typer.echo(f"Warning: {uncovered}", err=True)
    out.say(f"What this protects and what it does not: dpindex info {shlex.quote(index)}")


@contextmanager
def _dataset(
    vectors: str, building: BuildOptions, ids: AnyArray | None, payload: o.PayloadOptions
) -> Iterator[Dataset]:
    """Open the vectors with their ids and payload, wherever these come from."""
    if building.id_column is not None and ids is not None:
        raise InputError("give --ids or --id-column, not both.")
    columns: tuple[str, ...] = ()
    if payload.payload is None:
        columns = payload.names
    with open_dataset(
        vectors,
        id_column=building.id_column,
        payload_columns=columns,
        in_process=building.dask is None,
    ) as dataset:
        table = None
        if payload.payload is not None:
            table = payload.read(vectors)
        yield dataset.with_labels(ids, table)


@contextmanager
def _engine(dask: str | None) -> Iterator[Any]:
    if dask is None:
        from dpindex.storage.release import one_by_one

        yield one_by_one
        return
    from dpindex.integrations.dask import connected, engine

    address = None
    if dask != o.LOCAL:
        address = dask
    with connected(address) as client:
        yield engine(client)


def _print_structures(spec: Spec, rows: int, building: BuildOptions) -> None:
    from dpindex.index.structures import structures

    row_bytes = spec.format.max_row_bytes
    typer.echo(
        f"{rows} codes of {spec.format.contents}, at most {out.size_in_words(row_bytes)} each: "
        f"{out.size_in_words(rows * row_bytes)} on disk, mapped. A search structure in memory:"
    )
    table = out.new_table("index type", "bytes a vector", "in all", "neighbours")
    metric: Any = building.metric
    denoised = building.denoise is not None
    for name, vector_bytes, exact in structures(spec, rows, metric, denoised=denoised):
        neighbours = "exact" if exact else "approximate"
        size = out.size_in_words(rows * vector_bytes)
        table.add_row(name, f"{vector_bytes:g}", size, neighbours)
    out.print_table(table)
    typer.echo("dpindex info INDEX --index-recall measures what an approximate one finds.")
