"""Commands for data holders: embed, build, privatize, add, denoise, codebook, design, spec."""

from __future__ import annotations

import shlex
from contextlib import AbstractContextManager, ExitStack
from io import BytesIO
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from dpindex.base.errors import InputError, NoDenoiserError
from dpindex.base.files import create_file
from dpindex.cli import shared as o
from dpindex.data import Ranges, open_dataset, open_vectors
from dpindex.data.source import split_key
from dpindex.data.stores import is_url
from dpindex.mechanism.codes import read_codes

# Two codes of this many bits are not equal by chance.
_TELLING_BITS = 128


def embed(
    texts: Annotated[
        Path,
        typer.Argument(help="File or folder: .parquet, .csv, .tsv, .jsonl, .arrow (datasets)."),
    ],
    *,
    model: Annotated[
        str | None, "Folder or name of model2vec.  [default: an English model in dpindex]"
    ] = None,
    column: Annotated[str, "Column of the texts."] = "text",
    public: Annotated[int, "--public ROWS", "Rows to hold out as the public sample."] = 0,
    queries: Annotated[int, "--queries ROWS", "Rows to hold out as queries."] = 0,
    to: Annotated[Path, "--to FOLDER", "Folder to write to."] = Path(),
) -> None:
    """Turn texts into Parquet files of vectors.

    Ids and other columns are kept; texts are left out. Rows are held out at random.

    $ dpindex embed texts.csv --public 1000 --queries 20
    """
    from dpindex.integrations.embed import embed as embed_texts

    counts = embed_texts(texts, to, model=model, column=column, public=public, queries=queries)
    for file, count in counts.items():
        o.say(f"{file}: {count} vectors")


def build(
    vectors: Annotated[
        str,
        typer.Argument(help="Vector file, folder or s3:// prefix of .parquet."),
        o.Takes(("vectors",)),
    ],
    index: Annotated[
        str,
        typer.Argument(help="Directory, .parquet, or s3://, gs:// or az:// prefix, to make."),
    ],
    *,
    public: Annotated[
        str | None,
        "--public FILE",
        "PUBLIC vectors to plan with; else --plan or --method.",
    ] = None,
    plan: Annotated[Path | None, "Or: file of `dpindex plan --save`."] = None,
    method: o.MethodOptions,
    options: o.SpecOptions,
    release: o.CodeReleaseOptions,
    payload: o.PayloadOptions,
    metric: o.MetricOption = "cosine",
    index_type: Annotated[str, "f32, f16, int8, SQ4, HNSW32, …"] = "f32",
    denoise: o.FitDenoiser = None,
    query_epsilon: Annotated[float | None, "Budget of private queries.  [default: epsilon]"] = None,
    id_column: Annotated[str | None, "--id-column NAME", "Column of ids in .parquet files."] = None,
    dask: Annotated[
        str | None, "--dask ADDRESS", "Run on that Dask cluster; local: all cores here."
    ] = None,
    private: Annotated[
        Path | None,
        "--private FOLDER",
        "Folder of an unfinished build, for object stores.",
    ] = None,
    allow_unprotected: o.Unprotected = False,
) -> None:
    """Plan and build an index; run again to resume.

    $ dpindex build vectors.parquet my-index --record --epsilon 8 --public public.parquet
    """
    from dpindex.cli.planned_build import Unfinished, check_choice, plan_of, query_line
    from dpindex.integrations.publication import table_at
    from dpindex.storage.manifest import Settings
    from dpindex.storage.statement import coverage_warning
    from dpindex.storage.targets import IndexOptions, build_index

    if id_column is not None and release.ids is not None:
        raise InputError("give --ids or --id-column, not both.")
    id_column = id_column or release.id_column(vectors)
    ids = None if id_column is not None else release.read_ids()
    terms = release.terms()
    check_choice(method, options, public, plan)
    unfinished = Unfinished.of(index, private)
    columns = payload.within(vectors)
    with ExitStack() as stack:
        opened = stack.enter_context(
            open_dataset(
                vectors, id_column=id_column, payload_columns=columns, in_process=dask is None
            )
        )
        table = None if columns else payload.read(vectors)
        dataset = opened.with_labels(ids, table)
        planned = None
        if public is not None:
            planned = plan_of(
                dataset,
                public,
                method.epsilon,
                metric,
                options,
                unfinished,
                skip_leak_check=release.skip_leak_check,
            )
            stack.enter_context(unfinished.kept())
        elif plan is not None:
            from dpindex.study.saved_plan import SavedPlan

            planned = SavedPlan.read(plan)
        if planned is None:
            spec = method.spec(dataset.columns, options)
        else:
            spec = planned.spec
            metric = planned.metric
            denoise = denoise or planned.denoiser
            o.say(planned.choice)
        o.note_warnings(spec, dataset.rows)
        o.announce_size(dataset.rows, spec.format)
        publish = table_at(index, dataset)
        where: dict[str, Any] = {}
        if dask is not None:
            from dpindex.integrations.dask import connected, engine

            client = stack.enter_context(connected(None if dask == "local" else dask))
            where = {"engine": engine(client), "threads": 1}
        report = stack.enter_context(o.progress_bar("building"))
        outcome = build_index(
            dataset,
            index,
            Settings(spec, metric, index_type, query_epsilon),
            IndexOptions(denoise, allow_unprotected, private, publish),
            terms,
            progress=report,
            **where,
        )
    built = outcome.published
    o.say(f"{index}: {outcome.rows} vectors ({outcome.drawn} privatized now).")
    _tell_clipped(outcome.clipped)
    if built.denoiser is not None:
        typer.echo(f"Denoised: {built.denoiser.kind}, learned from {built.denoiser.rows} codes.")
    if built.not_denoised:
        typer.echo(f"not denoised: {built.not_denoised}", err=True)
    typer.echo(f"{spec.guarantee}.")
    o.warn_of_payload(payload.payload or payload.payload_columns)
    if ids is not None or terms.allow_rerelease:
        o.print_totals(terms.ledger, ids)
    uncovered = coverage_warning(built.manifest.crowding)
    if uncovered is not None:
        o.note(uncovered.removesuffix("."))
    if publish is None:
        o.say(f"What this protects and what it does not: dpindex info {shlex.quote(index)}")
    if planned is not None:
        names = release.ids
        if names is None and id_column is not None:
            file, _ = split_key(vectors)  # which may name the column of the vectors
            names = f"{file}:{id_column}"
        o.say(f"Search it: {query_line(planned, index, vectors, names)}")


def _tell_clipped(share: float) -> None:
    if share > 0:
        typer.echo(f"{share:.2%} of the values lay outside the bounds, and were clipped to them.")


def privatize(
    vectors: o.VectorFile,
    codes: Annotated[Path, typer.Argument(help="File to write the codes to.")],
    spec: Annotated[
        Path, typer.Option("--spec", help="Spec as JSON: see `dpindex spec`."), o.Takes(("spec",))
    ],
    release: o.CodeReleaseOptions,
    public_part: o.PublicFile = None,
    max_epsilon: Annotated[float | None, "Refuse a spec with a larger epsilon, or iDP."] = None,
    allow_unprotected: o.Unprotected = False,
) -> None:
    """Turn vectors into codes, as a device does.

    Codes carry no ids: those are for the ledger.

    $ dpindex privatize vectors.npy my.codes --spec spec.json --ledger mine.db --ids ids.txt
    """
    from dpindex.mechanism.spec import Spec
    from dpindex.storage.release import release as release_into
    from dpindex.storage.targets import CodesFile

    described = Spec.read(spec)
    if public_part is not None:
        described = described.with_public(public_part)
    terms = release.terms()
    ids = release.ids_for_ledger("codes carry")
    target = CodesFile(
        codes, described, allow_unprotected=allow_unprotected, max_epsilon=max_epsilon
    )
    with (
        open_dataset(vectors, in_process=True) as dataset,
        o.progress_bar("releasing") as report,
    ):
        o.note_warnings(described, dataset.rows)
        o.announce_size(dataset.rows, described.format)
        labelled = dataset.with_labels(ids)
        outcome = release_into(labelled, target, terms, progress=report)
    _tell_clipped(outcome.clipped)
    o.say(f"{codes}: {outcome.rows} codes, {outcome.published} bytes. {described.guarantee}.")
    o.print_totals(terms.ledger, ids)


def add(
    index: o.IndexFolder,
    items: Annotated[
        str,
        typer.Argument(metavar="CODES-OR-VECTORS", help="Codes of devices, or vectors."),
        o.Takes(("codes", "vectors")),
    ],
    release: o.CodeReleaseOptions,
    payload: o.PayloadOptions,
    kind: o.FitDenoiser = None,
    upsert: Annotated[
        bool, "Replace ids; of vectors a second release (--allow-rerelease)."
    ] = False,
    allow_unprotected: o.Unprotected = False,
) -> None:
    """Add codes of devices, or vectors.

    If a denoiser was fitted, it is used for them too.

    $ dpindex add my-index device.codes
    """
    from dpindex.accounting.ledger import Ledger

    codes = read_codes(items)
    if codes is not None and (release.ledger is not None or release.allow_rerelease):
        raise InputError(
            f"{items} holds codes, which the ledger of whoever made them counts; leave yours out."
        )
    ledger = o.read_if_named(Ledger, release.ledger)
    table = payload.read(items)
    ids = release.read_ids()
    # Nobody else may write between what is booked and what is saved.
    with _changing(index) as opened:
        opened.spec.refuse_unprotected(allow_unprotected, "add to it")
        rows_before = len(opened)
        if codes is None:
            with (
                open_dataset(
                    items,
                    id_column=release.id_column(items),  # refused where it is an attribute
                    payload_columns=payload.within(items),
                    in_process=True,
                ) as dataset,
                o.progress_bar("releasing") as report,
            ):
                added = dataset.rows
                o.announce_size(rows_before + added, opened.spec.format)
                opened.add(
                    dataset,
                    ids,
                    payload=table,
                    upsert=upsert,
                    ledger=ledger,
                    allow_rerelease=release.allow_rerelease,
                    skip_leak_check=release.skip_leak_check,
                    progress=report,
                )
        else:
            added = len(codes)
            o.announce_size(rows_before + added, opened.spec.format)
            # Short codes may be equal by chance.
            if 8 * codes.stored[:1].nbytes >= _TELLING_BITS and (again := opened.repeats(codes)):
                o.note(
                    f"{again} of the {added} codes of {items} are in the index already, byte "
                    f"for byte: if it was added before, `remove` the new ids in Python"
                )
            opened.add_codes(codes, ids, payload=table, upsert=upsert)
        opened.save(index, allow_unprotected=allow_unprotected)
    replacing = ""
    if upsert:
        replacing = f" ({rows_before + added - len(opened)} replaced)"
    o.say(f"{index}: {added} added{replacing}, {len(opened)} in all.")
    if codes is None:
        promise = opened.spec.guarantee
        typer.echo(f"Each of these {added} ids spent {promise}: {promise.units}.")
    else:
        typer.echo("Nothing was spent here: the codes were paid for by who made them.")
    o.warn_of_payload(payload.payload or payload.payload_columns)
    if kind is not None:
        try:
            denoise(index, kind)
        except NoDenoiserError as error:  # the index works without one
            typer.echo(f"not denoised: {error}", err=True)
    o.print_totals(ledger, ids)


def denoise(
    index: o.IndexFolder,
    kind: Annotated[o.DenoiserOption, "linear, score, or auto: what suits the codes."] = "auto",
) -> None:
    """Learn a denoiser from an index, and keep it there.

    Reads private codes only: it costs no budget. It replaces an earlier denoiser.

    $ dpindex denoise my-index
    """
    with _changing(index) as opened:
        learned = opened.fit_denoiser(kind)
        opened.save(index, allow_unprotected=True)
    typer.echo(f"Denoised: {learned.kind}, learned from {learned.rows} codes.")


def calibrate(index: o.IndexPath) -> None:
    """Learn again what the similarities of an index mean.

    Reads codes only, so it costs no budget. `dpindex build` and `dpindex add` do it by themselves.

    $ dpindex calibrate my-index
    """
    from dpindex.index.private_index import PrivateIndex
    from dpindex.storage.contents import replace_learned

    if is_url(index):
        stored = PrivateIndex.open(index)
        learned = stored.calibrate()
        if learned is None:
            raise InputError(stored.unstated)
        replace_learned(index, "calibration", learned.to_bytes())
    else:
        with _changing(index) as opened:
            learned = opened.calibrate()
            if learned is None:
                raise InputError(opened.unstated)
            opened.save(index, allow_unprotected=True)
    o.say(f"Calibrated: learned from {learned.rows} codes.")


def _changing(index: str) -> AbstractContextManager[Any]:
    """Open an index that no other process changes; InputError for one in an object store."""
    from dpindex.index.private_index import PrivateIndex

    if is_url(index):
        raise InputError(f"{index} is not a folder, and an index is changed in a folder only.")
    message = f"waiting for another process that writes {index} …"
    return PrivateIndex.changing(index, lambda: o.say(message, error=True))


def codebook(
    public: Annotated[str, typer.Argument(help="PUBLIC vectors of the same kind.")],
    output: Annotated[Path, typer.Argument(help="File to write, .codebook or .npy.")],
    *,
    size: Annotated[int, "Codewords."],
    centroids: Annotated[bool, "Centroids of all vectors, not evenly spaced ones."] = False,
    compared: o.ComparedOptions,
) -> None:
    """Make a codebook file from public vectors, for --codebook.

    If more codewords than vectors are wanted, the rest are points between near neighbours.

    A .codebook of centroids also holds how neighbours spread over them. A search for a share of
    --candidates then gives more to hard queries. A .npy holds the codewords only.

    $ dpindex codebook public.npy public.codebook --size 200 --centroids
    """
    from dpindex.mechanism.codebooks import Codebook, fit_codebook

    if output.suffix not in (".npy", Codebook.suffix):
        raise InputError(f"{output} must end in {Codebook.suffix} or .npy.")
    o.refuse_existing(output)
    with open_vectors(public) as source:
        vectors = compared.compared(source)
        if centroids or size > source.shape[0]:
            book = fit_codebook(vectors, size)
        else:
            book = Codebook.spaced(vectors, size)
        if compared.ranges is not None:
            book = Codebook(Ranges.read(compared.ranges).unscale(book.stated), book.guide)
    content = book.to_bytes()
    if output.suffix == ".npy":
        archive = BytesIO()
        np.save(archive, book.stated)
        content = archive.getvalue()
    create_file(output, content)
    o.say(f"{output}: {len(book)} codewords of {book.dim} attributes, {book.digest[:12]}….")


def design(
    public: Annotated[str, typer.Argument(help="PUBLIC vectors of the same kind.")],
    output: Annotated[Path, typer.Argument(help="File to write.")],
    *,
    epsilon: Annotated[float, "Budget of one changed attribute."],
    beta: Annotated[float, "Size of that change, after --scale."],
    code_length: Annotated[int | None, "Coordinates.  [default: by epsilon]"] = None,
    delta: Annotated[float, "For Gaussian noise."] = 0.0,
    signs: Annotated[bool, "For codes of bits."] = False,
    window: Annotated[
        float | None,
        "Clip attributes to this many deviations around their mean; 0: do not.  [default: chosen "
        "on the public vectors]",
    ] = None,
    seed: Annotated[int, "Seed of the search."] = 0,
    compared: o.ComparedOptions,
) -> None:
    """Make a projection of public vectors, for --design.

    Adds up attributes that vary together, so the same noise hides less of what vectors have in
    common. A few hundred vectors are enough; some thousand are better.

    $ dpindex design public.npy public.design --epsilon 1 --beta 1 --scale 255
    """
    from dpindex.mechanism.optimiser import design as designed

    o.refuse_existing(output)
    with open_vectors(public) as source:
        made = designed(
            compared.compared(source),
            epsilon=epsilon,
            beta=beta,
            code_length=code_length,
            delta=delta,
            signs=signs,
            scale=compared.scale,
            window=window,
            seed=seed,
        )
    create_file(output, made.to_bytes())
    o.say(f"{output}: {made.dim} attributes to {made.code_length}, {made.digest[:12]}….")


def spec(
    *,
    method: o.MethodOptions,
    dim: Annotated[int, "Attributes of a vector."],
    options: o.SpecOptions,
) -> None:
    """Print a spec as JSON, for devices to use.

    $ dpindex spec --method dp-oporp-staircase --dim 784 --epsilon 3 --beta 1 --scale 255
    --bounds 0 1 > spec.json
    """
    spec = method.spec(dim, options)
    o.note_warnings(spec)
    typer.echo(spec.to_json())
