"""Commands of an index and its codes: from build and add to query, info and spec."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from dpindex.base.arrays import AnyArray
from dpindex.base.errors import InputError, NoDenoiserError, naming
from dpindex.base.files import create_file
from dpindex.base.threads import limited_threads
from dpindex.cli import options as o
from dpindex.cli import output as out
from dpindex.cli.kinds import Takes
from dpindex.mechanism.codes import Codes, read_codes
from dpindex.vectors import open_dataset, open_vectors
from dpindex.vectors.stores import is_url

if TYPE_CHECKING:  # help loads no noise laws
    from dpindex.storage.summary import Summary

_SHOWN = 10
# Bits of a code from which on two equal ones are no accident.
_TELLING_BITS = 128


def privatize(
    vectors: o.VectorFile,
    codes: Annotated[Path, typer.Argument(help="File to write the codes to.")],
    spec: Annotated[Path, typer.Option(help="Spec as JSON: see `dpindex spec`."), Takes(("spec",))],
    release: o.ScaledReleaseOptions,
    codebook: o.CodebookFile = None,
    max_epsilon: Annotated[
        float | None, "Refuse a spec with more, or of iDP.  [default: any epsilon]"
    ] = None,
    max_size: o.MaxSize = "2GB",
    allow_unprotected: o.Unprotected = False,
) -> None:
    """Turn vectors into codes, as a device does.

    Codes carry no ids: those are for the ledger.
    """
    from dpindex.mechanism.spec import Spec
    from dpindex.storage.release import CodesFile
    from dpindex.storage.release import release as release_into

    out.refuse_existing(codes)
    described = o.with_codebook(Spec.read(spec), codebook)
    terms = release.terms()
    ids = release.read_ids()
    if ids is not None and terms.ledger is None:
        raise InputError("codes carry no ids: they are for the ledger; name the ledger (--ledger).")
    target = CodesFile(
        codes, described, allow_unprotected=allow_unprotected, max_epsilon=max_epsilon
    )
    with (
        open_dataset(vectors, in_process=True) as dataset,
        out.progress_bar("releasing") as report,
    ):
        o.note_doubts(described, dataset.rows)
        out.announce_size(dataset.rows, described.format, max_size)
        labelled = release.scaled(dataset).with_labels(ids)
        outcome = release_into(labelled, target, terms, progress=report)
    out.say(f"{codes}: {outcome.rows} codes, {outcome.published} bytes. {described.guarantee}.")
    out.print_totals(terms.ledger, ids)


def add(
    index: o.IndexPath,
    items: Annotated[
        str,
        typer.Argument(metavar="CODES-OR-VECTORS", help="Codes of devices, or vectors."),
        Takes(("codes", "vectors")),
    ],
    release: o.ScaledReleaseOptions,
    payload: o.PayloadOptions,
    denoise: o.Denoise = None,
    upsert: Annotated[
        bool, "Replace ids that are in the index; of vectors a second release (--allow-rerelease)."
    ] = False,
    max_size: o.MaxSize = "2GB",
    allow_unprotected: o.Unprotected = False,
) -> None:
    """Add codes of devices, or vectors.

    If a denoiser was fitted, it is used for them too.
    """
    from dpindex.accounting.ledger import Ledger
    from dpindex.index.private_index import PrivateIndex

    _refuse_url(index, items)
    codes = read_codes(items)
    if codes is not None and (release.ledger is not None or release.allow_rerelease):
        raise InputError(f"{items} holds codes: the ledger of who made them counts them.")
    ledger = None
    if release.ledger is not None:
        ledger = Ledger(release.ledger)
    table = payload.read(items)
    ids = release.read_ids()
    if upsert and ids is None:
        raise InputError("--upsert replaces by id; give every vector an id (--ids).")
    # Nobody else may write between what is booked and what is saved.
    with PrivateIndex.changing(index, _waiting(index)) as opened:
        opened.spec.refuse_unprotected(allow_unprotected, "add to it")
        rows_before = len(opened)
        replaced = 0
        if codes is None:
            with (
                open_dataset(items, in_process=True) as dataset,
                out.progress_bar("releasing") as report,
            ):
                out.announce_size(rows_before + dataset.rows, opened.spec.format, max_size)
                options: Any = {
                    "payload": table,
                    "ledger": ledger,
                    "allow_rerelease": release.allow_rerelease,
                    "skip_leak_check": release.skip_leak_check,
                    "progress": report,
                }
                vectors = release.scaled(dataset)
                if upsert:
                    replaced = opened.upsert(vectors, ids, **options)
                else:
                    opened.add(vectors, ids, **options)
        else:
            out.announce_size(rows_before + len(codes), opened.spec.format, max_size)
            _note_repeats(opened, codes, items)
            if upsert and ids is not None:
                replaced = opened.check_rerelease(ids, True)
            opened.add_codes(codes, ids, payload=table, replace=upsert)
        opened.save(index, allow_unprotected=allow_unprotected)
    added = len(opened) - rows_before + replaced
    promise = opened.spec.guarantee
    again = ""
    if upsert:
        again = f" ({replaced} replaced)"
    out.say(f"{index}: {added} added{again}, {len(opened)} in all.")
    if codes is None:
        typer.echo(f"Each of these {added} ids spent {promise}: {promise.adjacency.describe()}.")
    else:
        typer.echo("Nothing was spent here: the codes were paid for by who made them.")
    out.warn_of_payload(payload.payload or payload.payload_columns)
    if denoise is not None:
        _denoise(index, denoise)
    out.print_totals(ledger, ids)


def _note_repeats(index: Any, codes: Codes, file: str) -> None:
    if 8 * codes.stored[:1].nbytes < _TELLING_BITS:
        return  # short codes may be equal by chance
    if again := index.repeats(codes):
        o.note(
            f"{again} of the {len(codes)} codes of {file} are in the index already, byte for byte: "
            f"if it was added before, `remove` the new ids in Python"
        )


def denoise(
    index: o.IndexPath,
    kind: Annotated[o.DenoiserKind, "linear, score, or auto: what suits the codes."] = "auto",
) -> None:
    """Learn a denoiser from an index, and keep it there.

    Reads private codes only: it costs no budget. It replaces an earlier denoiser.
    """
    from dpindex.index.private_index import PrivateIndex

    _refuse_url(index, kind)
    with PrivateIndex.changing(index, _waiting(index)) as opened:
        learned = opened.fit_denoiser(kind)
        opened.save(index, allow_unprotected=True)
    typer.echo(f"Denoised: {learned.kind}, learned from {learned.rows} codes.")


def _refuse_url(index: str, change: object) -> None:
    """Refuse to change an index in an object store."""
    if change and is_url(index):
        raise InputError(f"{index} is not a folder, and an index is changed in a folder only.")


def _denoise(index: str, kind: o.DenoiserKind) -> None:
    """Fit a denoiser, or say why not: the index works without one."""
    try:
        denoise(index, kind)
    except NoDenoiserError as error:
        typer.echo(f"not denoised: {error}", err=True)


def _waiting(index: str) -> Callable[[], None]:
    """Return what says, once, why nothing happens."""
    return lambda: out.say(f"waiting for another process that writes {index} …", error=True)


def query(
    index: o.IndexPath,
    queries: Annotated[
        str,
        typer.Argument(help="Vector file, or codes of devices."),
        Takes(("vectors", "codes")),
    ],
    search: o.SearchOptions,
    show: Annotated[
        str | None, "Payload columns to show with the hits, A,B,….  [default: none]"
    ] = None,
    collection: o.Collection = "dpindex",
    form: out.Format = "table",
    output: out.Output = None,
    allow_unprotected: o.Unprotected = False,
) -> None:
    """Find the nearest vectors of each query.

    With --rerank the codes choose --candidates, and the original vectors order them: similarities
    are then exact.

    A cosine is shown as its expected value given the codes, ± its expected error. The true cosine
    lies within two errors about 95 times in 100. The unbiased estimates, which are too high for the
    best of many, are in json and npz.
    """
    out.check_output(form, output)
    opened = _opened(index, collection)
    payload_names = _payload_names(show, index, opened.payload_columns)
    vectors: Any = read_codes(queries)
    if vectors is None:
        with open_vectors(queries) as source:
            vectors = o.scaled_source(source, search.ranges).read()
    elif search.query == "private":
        raise InputError(f"{queries} holds codes, which are private already; leave --query out.")
    if search.k > len(opened):
        o.note(f"-k {search.k} is more than the {len(opened)} vectors of {index}: all are listed")
    owner = search.owner()
    with naming(queries), limited_threads(), o.warnings_as_notes():
        hits = opened.search(
            vectors,
            k=search.k,
            query=search.query,
            filter=search.filter,
            candidates=search.candidates,
            rerank=owner,
            allow_unprotected=allow_unprotected,
        )
    columns = hits.columns
    if owner is None:
        del columns["exact"]
    elif not hits.exact.all():
        missing = np.count_nonzero(~hits.exact)
        o.note(f"{missing} hits have no vector in {search.rerank}; they come last, with estimates")
    as_text = form == "npz"  # which has no missing values
    payload = {name: _payload_column(hits, name, as_text) for name in payload_names}
    rows = len(hits.ids)
    if output is None:
        rows = min(_SHOWN, rows)
    out.write_answers(
        form,
        output,
        {**columns, **{f"payload_{name}": column for name, column in payload.items()}},
        lambda: _hits_table(columns, payload, opened.metric, rows),
    )
    if form == "table" and rows < len(hits.ids):
        typer.echo(f"… and {len(hits.ids) - rows} more queries: see --format json or npz.")


def _opened(index: str, collection: str) -> Any:
    """Open an index in a folder, an object store or a database."""
    from dpindex.integrations import open

    return open(index, collection)


def _payload_names(show: str | None, index: str, columns: Mapping[str, str]) -> list[str]:
    """Return the payload columns to show; InputError for one that the index does not have."""
    if show is None:
        return []
    names = show.split(",")
    for name in names:
        if name not in columns:
            present = ", ".join(columns) or "none"
            raise InputError(f"{index} has no payload column {name!r} to show; it has: {present}.")
    return names


def publish(
    index: o.IndexPath,
    uri: Annotated[
        str,
        typer.Argument(
            help="milvus://HOST:PORT, postgresql://USER@HOST/DATABASE, a file of Milvus Lite, .db, "
            "or a folder of LanceDB, .lance."
        ),
    ],
    collection: o.Collection = "dpindex",
    private_only: Annotated[
        bool, "Keep signs for private queries alone, which takes a 33rd of the room."
    ] = False,
    allow_unprotected: o.Unprotected = False,
) -> None:
    """Write an index to a vector database.

    `dpindex query URI` searches it there. Codes, ids, payload, spec and denoiser are published, and
    nothing else: it costs no budget. After an interruption run the same command again.
    """
    from dpindex.index.private_index import PrivateIndex
    from dpindex.integrations.published import publish as written

    opened = PrivateIndex.open(index)
    with out.progress_bar("publishing") as report:
        written(
            opened,
            uri,
            collection,
            exact_queries=not private_only,
            allow_unprotected=allow_unprotected,
            progress=report,
        )
    out.say(f"{uri}, collection {collection}: {len(opened)} codes. {opened.spec.guarantee}.")
    out.warn_of_payload(opened.payload_columns)


def _payload_column(hits: Any, name: str, as_text: bool) -> AnyArray:
    """Return a payload column in the shape of the ids: plain values, None where missing.

    As text, what is missing is empty.
    """
    values = hits.payload[name].to_pylist()
    if as_text:
        texts = ["" if value is None else str(value) for value in values]
        return np.array(texts, str).reshape(hits.ids.shape)
    plain = bool | int | float | str | None
    values = [value if isinstance(value, plain) else str(value) for value in values]
    return np.array(values, object).reshape(hits.ids.shape)


def _hits_table(
    columns: Mapping[str, AnyArray], payload: Mapping[str, AnyArray], metric: str, rows: int
) -> Any:
    estimate_of = f"{metric} (estimate ± error)"
    table = out.new_table("query", "rank", "id", estimate_of, box="SIMPLE")
    for heading in payload:
        table.add_column(out.plain(heading))
    for row, rank in np.ndindex(rows, columns["ids"].shape[1]):
        name = columns["ids"][row, rank]
        value = columns["similarity"][row, rank]
        error = columns["stderr"][row, rank]
        estimate = "needs declared norm"
        is_exact = "exact" in columns and columns["exact"][row, rank]
        if is_exact:
            estimate = f"{value:.3f} exact"
        elif np.isfinite(value):
            estimate = f"{value:.3f} ± {error:.3f}"
        extra = [out.plain(column[row, rank]) for column in payload.values()]
        table.add_row(str(row), str(rank + 1), out.plain(name), estimate, *extra)
    return table


def info(
    index: o.IndexPath,
    as_json: o.AsJson = False,
    show_spec: Annotated[
        bool, "--spec", "Print the spec alone, for devices to privatize under."
    ] = False,
    show_statement: Annotated[
        bool,
        "--statement",
        "Print the facts that registries of deployments ask for, as Markdown or with --json.",
    ] = False,
    index_recall: Annotated[
        bool, "Measure the recall of the index type, for which all codes are read."
    ] = False,
) -> None:
    """Say what an index protects, and what it does not.

    Reads the manifest and no codes.
    """
    from dpindex.storage.statement import statement_markdown, statement_of
    from dpindex.storage.summary import coverage_warning, summarize
    from dpindex.study.exposure import information_lines, predicted_exposure

    if is_url(index):
        from dpindex.storage.fetch import fetched

        with fetched(index) as folder:
            about = summarize(folder)
    else:
        about = summarize(index)
    spec = about.settings.spec
    if show_spec:
        typer.echo(spec.to_json())
        return
    if show_statement:
        statement = statement_of(about)
        if as_json:
            out.print_json(statement)
        else:
            typer.echo(statement_markdown(statement))
        return
    facts = about.to_dict()
    exposure = predicted_exposure(spec, about.count)
    facts["exposure"] = exposure.to_dict()
    if index_recall:
        from dpindex.index.private_index import PrivateIndex

        facts["index_recall"] = PrivateIndex.open(index).index_recall
    if as_json:
        out.print_json(facts)
        return
    uncovered = coverage_warning(about.crowding)
    if uncovered is not None:
        out.say(f"Warning: {uncovered}")
    title = f"{index}: {about.count} vectors of {spec.dim} attributes, {about.bytes} bytes"
    lines = _code_lines(about, facts.get("index_recall")) | _promise_lines(about)
    protection = (*exposure.lines(about.count), *information_lines(spec, about.count))
    out.print_facts(title, lines, about.guarantee, spec.dim, protection)


def _code_lines(about: Summary, recall: float | None) -> dict[str, str]:
    """Return the lines about codes and search by their headings."""
    settings = about.settings
    spec = settings.spec
    code = spec.format.contents
    if spec.repetitions > 1:
        code += f" in {spec.repetitions} repetitions"
    lines = {
        "method": f"{spec.method}: {spec.method_row.summary}",
        "source": spec.method_row.source,
        "code": code,
        "search": f"{settings.metric}, index type {settings.index_type}, private queries at "
        f"epsilon = {settings.query_spec.budget:g}",
    }
    if spec.codebook is not None:
        nearest = "the nearest codeword"
        if spec.subset != 1:
            nearest = f"{spec.subset} nearest codewords"
        lines["codebook"] = (
            f"{len(spec.codebook)} public codewords, {spec.codebook.digest[:12]}…; "
            f"{spec.symbol_law.chance_inside:.1%} of the codes are of {nearest}, the others are "
            f"random"
        )
    if recall is not None:
        lines["recall"] = (
            f"{settings.index_type} finds {recall:.3f} of the ten nearest that a flat search "
            f"finds, measured on codes here"
        )
    if about.payload:
        lines["payload"] = f"{', '.join(about.payload)}: in the clear, NOT protected"
    if about.denoiser is not None:
        lines["denoiser"] = (
            f"{about.denoiser.kind}, learned from {about.denoiser.rows} codes; error of a "
            f"predicted coordinate: {about.denoiser.error_in_words}"
        )
    return lines


def _promise_lines(about: Summary) -> dict[str, str]:
    """Return the lines about the guarantee by their headings."""
    from dpindex.mechanism.doubts import doubts, share_of_range

    spec = about.settings.spec
    lines = {}
    if spec.scale != 1:
        lines["scale"] = (
            f"attributes are divided by {spec.scale:g}; the guarantee is in units of the data, "
            f"where {spec.adjacency} is {spec.guarantee.adjacency}"
        )
    lines["guarantee"] = str(about.guarantee)
    if about.settings.shuffle_delta is not None:
        lines["shuffle"] = f"of {about.count} codes; whoever saw one arrive: {spec.guarantee}"
    share = share_of_range(spec)
    if share is not None and spec.method_row.private:
        lines["beta"] = f"{share:.3%} of the range of an attribute"
    if sentences := doubts(spec, about.count):
        lines["note"] = "; ".join(sentences)
    if spec.method_row.private:
        lines["proved for"] = "the real numbers, not the floats"
        if spec.guarantee.exact:
            lines["proved for"] = "the integers that run (exact)"
    return lines


def methods(as_json: o.AsJson = False) -> None:
    """List every method, its promise and its source."""
    from dpindex.mechanism.method_table import methods as all_methods

    rows = [row.to_dict() for row in all_methods()]
    if as_json:
        out.print_json(rows)
        return
    for row in rows:
        promise = "not private"
        if row["kind"] != "none":
            promise = f"{row['kind']} {row['definition']}"
        if row["delta_over"] == "projection":
            promise += ", delta over the projection too: no promise for the published one"
        needs = ""
        if row["needs"]:
            needs = f"; needs {row['needs']}"
        if row["entries"]:
            needs += f"; entries {row['entries']}"
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
    from dpindex.mechanism.codebook import Codebook
    from dpindex.study.planner import fit_codebook

    if output.suffix != ".npy":
        raise InputError(f"{output} must end in .npy.")
    out.refuse_existing(output)
    with open_vectors(public) as source:
        fitted = centroids or size > source.shape[0]
        book = fit_codebook(source, size) if fitted else Codebook.spaced(source, size)
    archive = BytesIO()
    np.save(archive, book.stated)
    create_file(output, archive.getvalue())
    out.say(f"{output}: {len(book)} codewords of {book.dim} attributes, {book.digest[:12]}….")


def spec(
    *,
    method: o.MethodOptions,
    dim: Annotated[int, "Attributes of a vector."],
    options: o.SpecOptions,
) -> None:
    """Print a spec as JSON, for devices to use."""
    spec = method.spec(dim, options)
    o.note_doubts(spec)
    typer.echo(spec.to_json())
