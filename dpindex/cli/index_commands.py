"""Commands of an index and its codes: build, privatize, add, query, info, methods, spec."""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich import box
from rich.table import Table

from dpindex.arrays import AnyArray
from dpindex.cli import options as o
from dpindex.cli import output as out
from dpindex.codebook import Codebook
from dpindex.codes import read_codes
from dpindex.errors import InputError
from dpindex.files import create_file
from dpindex.method_table import methods as all_methods
from dpindex.spec import Spec
from dpindex.vectors import open_vectors

_SHOWN = 10


def build(
    vectors: o.VectorFile,
    index: Annotated[Path, typer.Argument(help="Directory to make.")],
    *,
    method: o.MethodName,
    epsilon: o.Epsilon = None,
    code_length: o.CodeLength = None,
    options: o.SpecOptions,
    release: o.ReleaseOptions,
    metric: o.Metric = "cosine",
    index_type: Annotated[
        str, "f32, f16, int8, or a Faiss factory string such as SQ4 or HNSW32."
    ] = "f32",
    denoise: o.Denoise = None,
    query_epsilon: Annotated[float | None, "Budget of a private query.  [default: epsilon]"] = None,
    allow_unprotected: o.Unprotected = False,
) -> None:
    """Privatize vectors into an index; run again to resume."""
    from dpindex.index import Settings
    from dpindex.index.ingest import NewDirectory, ingest

    stated = release.stated()
    with open_vectors(vectors) as source, out.progress_bar("privatizing") as report:
        spec = Spec(method, source.shape[1], code_length, epsilon, **options.stated())
        settings: Any = (spec, metric, index_type, query_epsilon)
        sink = NewDirectory(index, Settings(*settings), allow_unprotected=allow_unprotected)
        done = ingest(source, sink, progress=report, **stated)
    typer.echo(f"{index}: {source.shape[0]} vectors ({done} privatized now).")
    _denoise(index, denoise)
    typer.echo(f"{sink.spec.guarantee}.")
    out.print_totals(stated)
    typer.echo(f"What this protects and what it does not: dpindex info {index}")


def privatize(
    vectors: o.VectorFile,
    codes: Annotated[Path, typer.Argument(help="File to write the codes to.")],
    spec: Annotated[Path, "Spec as JSON: see `dpindex spec`."],
    release: o.ReleaseOptions,
    codebook: o.CodebookFile = None,
    max_epsilon: Annotated[
        float | None, "Refuse a spec with more, or of iDP.  [default: any epsilon]"
    ] = None,
    allow_unprotected: o.Unprotected = False,
) -> None:
    """Turn vectors into codes, as a device does.

    Codes carry no ids: those are for the ledger.
    """
    from dpindex.index.ingest import CodesFile, ingest

    out.refuse_existing(codes)
    described = o.with_codebook(Spec.read(spec), codebook)
    stated = {**release.stated(), "max_epsilon": max_epsilon}
    sink = CodesFile(codes, described, allow_unprotected=allow_unprotected)
    with open_vectors(vectors) as source, out.progress_bar("privatizing") as report:
        done = ingest(source, sink, progress=report, **stated)
    typer.echo(f"{codes}: {done} codes, {codes.stat().st_size} bytes. {sink.spec.guarantee}.")
    out.print_totals(stated)


def add(
    index: o.IndexPath,
    items: Annotated[
        str, typer.Argument(metavar="CODES-OR-VECTORS", help="Codes of devices, or vectors.")
    ],
    release: o.ReleaseOptions,
    denoise: o.Denoise = None,
    allow_unprotected: o.Unprotected = False,
) -> None:
    """Add codes of devices, or vectors.

    If a denoiser was fitted, it is used for them too.
    """
    from dpindex.index import PrivateIndex
    from dpindex.index.ingest import OpenIndex, ingest

    opened, stated = PrivateIndex.open(index), release.stated()
    before, codes = len(opened), read_codes(items)
    if codes is None:
        with open_vectors(items) as source, out.progress_bar("privatizing") as report:
            sink = OpenIndex(opened, allow_unprotected=allow_unprotected)
            ingest(source, sink, progress=report, **stated)
    elif stated["ledger"] or stated["allow_rerelease"]:
        raise InputError(f"{items} holds codes: the ledger of who made them counts them.")
    else:
        opened.add_codes(codes, stated["ids"])
    opened.save(index, allow_unprotected=allow_unprotected)
    added, promise = len(opened) - before, opened.spec.guarantee
    typer.echo(f"{index}: {added} added, {len(opened)} in all.")
    if codes is None:
        typer.echo(f"Each of these {added} ids spent {promise}: {promise.adjacency.describe()}.")
    else:
        typer.echo("Nothing was spent here: the codes were paid for by who made them.")
    _denoise(index, denoise)
    out.print_totals(stated)


def _denoise(index: Path, kind: o.Denoise) -> None:
    """Fit a denoiser, or say why not: the index works without one."""
    from dpindex.index.ingest import fit_saved_denoiser

    if kind is None:
        return
    try:
        denoiser = fit_saved_denoiser(index, kind)
    except InputError as error:
        typer.echo(f"not denoised: {error}", err=True)
    else:
        typer.echo(f"Denoised: {denoiser.kind}, learned from {denoiser.rows} codes.")


def query(
    index: o.IndexPath,
    queries: Annotated[str, typer.Argument(help="Vector file, or codes of devices.")],
    k: Annotated[int, "-k", "Neighbours of each query."] = 10,
    mode: Annotated[
        o.QueryMode, "--query", "exact: used as it is; private: privatized first."
    ] = "exact",
    form: out.Format = "table",
    output: out.Output = None,
    allow_unprotected: o.Unprotected = False,
) -> None:
    """Find the nearest vectors of each query.

    Cosines are those to expect given the codes, ± the error to expect; the truth lies within two
    errors about 95 times in 100. The unbiased estimates, which are too high for the best of many,
    are in json and npz.
    """
    from dpindex.index import PrivateIndex

    out.check_output(form, output)
    opened = PrivateIndex.open(index)
    asked: Any = read_codes(queries)
    if asked is None:
        with open_vectors(queries) as source:
            asked = source.read()
    elif mode == "private":
        raise InputError(f"{queries} holds codes, which are private already; leave --query out.")
    hits = opened.search(asked, k=k, query=mode, allow_unprotected=allow_unprotected)
    columns = vars(hits)
    shown = len(hits.ids) if output else min(_SHOWN, len(hits.ids))
    out.write_answers(form, output, columns, lambda: _hits_table(columns, opened.metric, shown))
    if form == "table" and shown < len(hits.ids):
        typer.echo(f"… and {len(hits.ids) - shown} more queries: see --format json or npz.")


def _hits_table(columns: Mapping[str, AnyArray], metric: str, shown: int) -> Table:
    table = Table("query", "rank", "id", f"{metric} (estimate ± error)", box=box.SIMPLE)
    for row, rank in np.ndindex(shown, columns["ids"].shape[1]):
        name, value, error = (columns[c][row, rank] for c in ("ids", "similarity", "stderr"))
        estimate = f"{value:.3f} ± {error:.3f}" if np.isfinite(value) else "needs declared norm"
        table.add_row(str(row), str(rank + 1), str(name), estimate)
    return table


def info(
    index: o.IndexPath,
    as_json: o.AsJson = False,
    show_spec: Annotated[
        bool, "--spec", "Print the spec alone, for devices to privatize under."
    ] = False,
) -> None:
    """Say what an index protects, and what it does not."""
    from dpindex.index import PrivateIndex, describe

    opened = PrivateIndex.open(index)
    spec, denoiser = opened.spec, opened.denoiser
    if show_spec:
        typer.echo(spec.to_json())
        return
    facts = describe(opened)
    if as_json:
        out.print_json(facts)
        return
    lines = {
        "method": f"{spec.method}: {spec.mechanism.summary}",
        "source": spec.mechanism.source,
        "code": spec.format.contents
        + (f" in {spec.repetitions} repetitions" if spec.repetitions > 1 else ""),
        "search": f"{opened.metric}, index type {opened.index_type}, private queries at epsilon = "
        f"{opened.query_spec.budget:g}",
    }
    if (book := spec.codebook) is not None:
        nearest = "the nearest codeword" if spec.subset == 1 else f"{spec.subset} nearest codewords"
        lines["codebook"] = (
            f"{len(book)} public codewords, {book.digest[:12]}…; {spec.law.inside / 2**64:.1%} of "
            f"the codes are of {nearest}, the others are random"
        )
    if (recall := facts["index_recall"]) is not None:
        of_what = "of the ten nearest that a flat search finds, measured on codes here"
        lines["recall"] = f"{opened.index_type} finds {recall:.3f} {of_what}"
    if denoiser is not None:
        quality = f"predicts coordinates to {denoiser.error:.3g} of their noise variance"
        lines["denoiser"] = f"{denoiser.kind}, learned from {denoiser.rows} codes; {quality}"
    if spec.scale != 1:
        lines["scale"] = (
            f"attributes are divided by {spec.scale:g}; the guarantee is in units of the data, "
            f"where {spec.adjacency} is {spec.guarantee.adjacency}"
        )
    lines["guarantee"] = str(spec.guarantee)
    if spec.mechanism.private:
        integers, reals = "the integers that run (exact)", "the real numbers, not the floats"
        lines["proved for"] = integers if spec.guarantee.exact else reals
    title = f"{index}: {len(opened)} vectors of {spec.dim} attributes, {facts['bytes']} bytes"
    out.print_facts(title, lines, spec.guarantee, spec.dim)


def methods(as_json: o.AsJson = False) -> None:
    """List every method, its promise and its source."""
    rows = [row.to_dict() for row in all_methods()]
    if as_json:
        out.print_json(rows)
        return
    for row in rows:
        promise = "not private" if row["kind"] == "none" else f"{row['kind']} {row['definition']}"
        if row["delta_over"] == "projection":
            promise += ", delta over the projection too: no promise for the published one"
        needs = f"; needs {row['needs']}" if row["needs"] else ""
        needs += f"; entries {row['entries']}" if row["entries"] else ""
        typer.echo(f"{row['name']}  ({row['codes']}, {promise}, {row['adjacency']}{needs})")
        typer.echo(f"    {row['summary']}\n    {row['source']}")


def codebook(
    public: Annotated[str, typer.Argument(help="PUBLIC vectors of the same kind.")],
    output: Annotated[Path, typer.Argument(help="File to write, .npy.")],
    *,
    size: Annotated[int, "Codewords."],
    centroids: Annotated[
        bool, "Centroids of all vectors, in place of evenly spaced vectors."
    ] = False,
) -> None:
    """Make a codebook file from public vectors, for --codebook.

    Codewords beyond the number of vectors are points between near neighbours.
    """
    from dpindex.planner import fit_codebook

    if output.suffix != ".npy":
        raise InputError(f"{output} must end in .npy.")
    out.refuse_existing(output)
    with open_vectors(public) as source:
        fitted = centroids or size > source.shape[0]
        book = fit_codebook(source, size) if fitted else Codebook.spaced(source, size)
    archive = BytesIO()
    np.save(archive, book.stated)
    create_file(output, archive.getvalue())
    typer.echo(f"{output}: {len(book)} codewords of {book.dim} attributes, {book.digest[:12]}….")


def spec(
    *,
    method: o.MethodName,
    dim: Annotated[int, "Attributes of a vector."],
    epsilon: o.Epsilon = None,
    code_length: o.CodeLength = None,
    options: o.SpecOptions,
) -> None:
    """Print a spec as JSON, for devices to use."""
    typer.echo(Spec(method, dim, code_length, epsilon, **options.stated()).to_json())
