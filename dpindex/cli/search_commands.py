"""Commands for searching and serving: query, info, publish, methods, serve."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import typer

from dpindex.base.arrays import AnyArray
from dpindex.base.display import counted, json_columns
from dpindex.base.errors import InputError, naming
from dpindex.base.ids import COLLECTION
from dpindex.base.threads import limited_threads
from dpindex.cli import shared as o
from dpindex.data import open_vectors
from dpindex.data.source import split_key
from dpindex.data.stores import is_url
from dpindex.integrations import is_published, open
from dpindex.mechanism.codes import read_codes

if TYPE_CHECKING:  # help loads no noise laws
    from dpindex.index.originals import Holder
    from dpindex.mechanism.spec import Spec
    from dpindex.storage.statement import Summary


_SHOWN = 10
_MEASURES = {"ip": "inner product", "l2": "squared distance"}


def query(
    index: o.IndexPath,
    queries: Annotated[
        str | None,
        typer.Argument(help="Vector file, or codes of devices; or give --text."),
        o.Takes(("vectors", "codes")),
    ] = None,
    text: Annotated[str | None, "Instead of QUERIES: one question, which is embedded here."] = None,
    model: Annotated[
        str | None, "Model of --text: the one that `dpindex embed` used.  [default: as there]"
    ] = None,
    k: Annotated[int, "-k", "Neighbours of each query."] = 10,
    query: Annotated[
        Literal["exact", "private"] | None,
        "exact: as it is; private: privatized first.  [default: exact; a published index needs it]",
    ] = None,
    filter: Annotated[str | None, "Rows to search: \"year >= 2020 and lang in ['en']\"."] = None,
    where: Annotated[str | None, "Instead, in the language of a database."] = None,
    rerank: Annotated[
        str | None,
        "--rerank FILE",
        "Original vectors, to re-rank the candidates exactly.",
    ] = None,
    ids: o.RerankIds = None,
    candidates: Annotated[
        str | None,
        "--candidates N",
        "Rows to re-rank, or 5%: a share of the index on average.  [default: 1000]",
    ] = None,
    show: Annotated[str | None, "--show A,B", "Payload columns to show with the hits."] = None,
    show_from: Annotated[
        str | None,
        "--show-from FILE:COLUMN",
        "Show texts of your own file, by the ids of the hits.",
    ] = None,
    as_sql: Annotated[
        Literal["duckdb", "spark", "postgresql"] | None,
        "Print the statement that finds the candidates of one query in a table of symbols.",
    ] = None,
    collection: o.Collection = COLLECTION,
    as_json: o.AsJson = False,
    allow_unprotected: o.Unprotected = False,
) -> None:
    """Find the nearest vectors of each query.

    With --rerank, the codes pick --candidates and the original vectors re-rank them; similarities
    are then exact.

    A cosine is shown as its expected value given the codes, ± its error. The true cosine lies
    within two errors about 95 times in 100. The JSON also has unbiased estimates, which are too
    high for top hits.

    One question can be given as --text. Texts for --show-from are read on this machine, because the
    index does not hold them.

    $ dpindex query my-index queries.npy -k 10 --rerank vectors.npy --candidates 1000
    """
    opened: Any = open(index, collection)
    if not hasattr(opened, "payload_columns"):
        raise InputError(f"{index} is a collector: it is asked in Python, with dpindex.open.")
    payload_names = _payload_names(show, index, opened.payload_columns)
    shown_texts = _texts_to_show(show_from)
    vectors = _queries(queries, text, model, opened.spec)
    if as_sql is not None:
        lookup = opened.to_lookup(
            vectors,
            query,
            candidates=o.number_or_share(candidates),
            filter=filter,
            allow_unprotected=allow_unprotected,
        )
        typer.echo(lookup.sql(_rows_at(index, collection, as_sql), as_sql))
        return
    if k > len(opened):
        o.note(f"-k {k} is more than the {len(opened)} vectors of {index}: all are listed")
    holder = _holder(rerank, ids)
    with (
        naming(queries or "--text", but=("filter", "where", "k", "candidates", "rerank", "ids")),
        limited_threads(),
    ):
        hits = opened.search(
            vectors,
            k=k,
            query=query,
            filter=filter,
            where=where,
            candidates=o.number_or_share(candidates),
            rerank=holder,
            allow_unprotected=allow_unprotected,
        )
    columns = hits.columns
    if holder is None:
        del columns["exact"]
    elif not hits.exact.all():
        missing = np.count_nonzero(~hits.exact)
        o.note(f"{missing} hits have no vector in {rerank}; they come last, with estimates")
    payload = {
        name: np.array(hits.payload[name].to_pylist(), object).reshape(hits.ids.shape)
        for name in payload_names
    }
    if show_from is not None:
        texts = [shown_texts.get(id) for id in hits.ids.ravel().tolist()]
        if None in texts:
            o.note(f"{texts.count(None)} of {len(texts)} hits have no text in {show_from}")
        payload["text"] = np.array(texts, object).reshape(hits.ids.shape)
    if as_json:
        shown = {f"payload_{name}": column for name, column in payload.items()}
        listed: dict[str, Any] = json_columns({**columns, **shown})
        if hits.unstated:
            listed["unstated"] = hits.unstated
        o.print_json(listed, indent=None)
        return
    if hits.unstated and not hits.exact.all():
        o.note(hits.unstated.removesuffix("."))
    rows = min(_SHOWN, len(hits.ids))
    typer.echo(_hits_table(columns, payload, opened.metric, rows))
    if rows < len(hits.ids):
        typer.echo(f"… and {len(hits.ids) - rows} more queries: see --json.")


def _queries(file: str | None, text: str | None, model: str | None, spec: Spec) -> Any:
    """Return the queries of a file, codes or vectors, or the vector of a text."""
    if (file is None) == (text is None):
        raise InputError("give a file of QUERIES, or one question with --text.")
    if file is None:
        from dpindex.integrations.embed import embedded

        assert text is not None
        with naming("--text"):
            vectors = embedded([text], model)
        if vectors.shape[1] != spec.dim:
            raise InputError(
                f"--text: the model makes {vectors.shape[1]} numbers, and vectors of the index "
                f"have {spec.dim}; name with --model the one that made them."
            )
        return vectors
    if model is not None:
        raise InputError("--model is for --text; a file holds vectors already.")
    codes = read_codes(file)
    if codes is not None:
        return codes
    with open_vectors(file) as source:
        if spec.ranges is not None:
            spec.ranges.check_order(source.attributes, source.name)
        return source.read()


def _texts_to_show(stated: str | None) -> dict[Any, str]:
    """Return the texts of FILE:COLUMN by their ids."""
    from dpindex.integrations.embed import texts_by_id

    if stated is None:
        return {}
    file, column = split_key(stated)
    return texts_by_id(Path(file), column or "text")


def _rows_at(index: str, collection: str, dialect: str) -> str:
    """Where an engine finds the rows of an index; a folder with a slash at its end."""
    if dialect == "postgresql":
        return collection
    if ".parquet" not in index:
        return "codes.parquet"
    if Path(index).is_dir() or index.endswith("/"):
        return f"{index.rstrip('/')}/"
    return index


def _holder(rerank: str | None, ids: str | None) -> Holder | None:
    """Return who orders the candidates, None without original vectors."""
    from dpindex.index.originals import Originals

    if rerank is None:
        if ids is not None:
            raise InputError("--rerank-ids names the rows of --rerank; give that too.")
        return None
    return Originals(rerank, o.read_ids_of(rerank, ids))


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


def _hits_table(
    columns: Mapping[str, AnyArray], payload: Mapping[str, AnyArray], metric: str, rows: int
) -> str:
    lines = []
    for row, rank in np.ndindex(rows, columns["ids"].shape[1]):
        value = float(columns["similarity"][row, rank])
        estimate = "not stated"
        if "exact" in columns and columns["exact"][row, rank]:
            estimate = f"{value:.3f} exact"
        elif np.isfinite(value):
            estimate = f"{value:.3f} ± {columns['stderr'][row, rank]:.3f}"
        extra = [column[row, rank] for column in payload.values()]
        lines.append((row, rank + 1, columns["ids"][row, rank], estimate, *extra))
    heading = _MEASURES.get(metric, metric)
    return o.text_table(["query", "rank", "id", f"{heading} (estimate ± error)", *payload], lines)


def publish(
    index: o.IndexPath,
    uri: Annotated[
        str,
        typer.Argument(
            help="milvus://HOST:PORT, postgresql://USER@HOST/DATABASE, a file of Milvus Lite, .db, "
            "a folder of LanceDB, .lance, or a Parquet file or folder of them, .parquet, .parquet/."
        ),
    ],
    collection: o.Collection = COLLECTION,
    private_only: Annotated[
        bool, "Signs for private queries only, in a 33rd of the space."
    ] = False,
    graph: Annotated[
        bool, "LanceDB, PostgreSQL: search signs by a graph, which misses some."
    ] = False,
    allow_unprotected: o.Unprotected = False,
) -> None:
    """Write an index to a vector database.

    `dpindex query URI` searches it there. Codes, ids, payload, spec and denoiser are published, and
    nothing else: it costs no budget. After an interruption run the same command again.

    $ dpindex publish my-index postgresql://me@localhost/db --collection pictures
    """
    from dpindex.index.private_index import PrivateIndex
    from dpindex.integrations.publication import publish as written
    from dpindex.integrations.published import open_published

    opened = PrivateIndex.open(index)
    with o.progress_bar("publishing") as report:
        written(
            opened,
            uri,
            collection,
            exact_queries=not private_only,
            graph=graph,
            allow_unprotected=allow_unprotected,
            progress=report,
        )
    codes = counted(len(opened), "code")
    o.say(f"{uri}, collection {collection}: {codes}. {opened.spec.guarantee}.")
    if graph:
        recall = open_published(uri, collection).index_recall
        o.say(f"Its graph finds {recall:.3f} of the ten nearest that a scan finds.")
    o.warn_of_payload(opened.payload_columns)


def info(
    index: o.IndexPath,
    as_json: o.AsJson = False,
    show_spec: Annotated[bool, "--spec", "Print the spec alone, for devices."] = False,
    show_statement: Annotated[
        bool,
        "--statement",
        "Print the facts that reviewers ask for, as Markdown.",
    ] = False,
    index_recall: Annotated[bool, "Measure the recall of the index type; reads all codes."] = False,
    collection: o.Collection = COLLECTION,
) -> None:
    """Say what an index protects, and what it does not.

    Reads no codes of an index in a folder.

    $ dpindex info my-index --statement
    """
    from dpindex.mechanism.promises import exposure_line, information_lines, max_linkage_rate
    from dpindex.storage.contents import fetched
    from dpindex.storage.statement import (
        coverage_warning,
        statement_markdown,
        statement_of,
        summarize,
    )

    if is_published(index, collection):
        from dpindex.integrations.published import open_published

        about = open_published(index, collection).summary
    else:
        with fetched(index) if is_url(index) else nullcontext(index) as folder:
            about = summarize(folder)
    spec = about.settings.spec
    if show_spec:
        typer.echo(spec.to_json())
        return
    if show_statement:
        statement = statement_of(about)
        if as_json:
            o.print_json(statement)
        else:
            typer.echo(statement_markdown(statement))
        return
    facts = about.to_dict()
    facts["max_linkage_rate"] = max_linkage_rate(spec, about.count)
    if index_recall:
        opened: Any = open(index, collection)
        facts["index_recall"] = opened.index_recall
    if as_json:
        o.print_json(facts)
        return
    uncovered = coverage_warning(about.crowding)
    if uncovered is not None:
        o.say(f"Warning: {uncovered}")
    title = f"{index}: {counted(about.count, 'vector')} of {spec.dim} attributes"
    if about.bytes is not None:
        title += f", {about.bytes} bytes"
    lines = _lines(about, facts.get("index_recall"))
    protection = (exposure_line(spec, about.count), *information_lines(spec, about.count))
    o.print_facts(title, lines, spec.guarantee, spec.dim, protection)


def _lines(about: Summary, recall: float | None) -> dict[str, str]:
    """Return the lines about codes, search and guarantee by their headings."""
    from dpindex.mechanism.promises import quality_warnings

    settings = about.settings
    spec = settings.spec
    code = spec.format.contents
    if spec.variant.repetitions > 1:
        code += f" in {spec.variant.repetitions} repetitions"
    lines = {
        "method": f"{spec.method}: {spec.method_row.summary}",
        "source": spec.method_row.source,
        "code": code,
        "search": f"{settings.metric}, index type {settings.index_type}, private queries at "
        f"epsilon = {settings.query_spec.budget:g}",
    }
    if spec.public is not None:
        use = spec.law.summary or "codes are decoded and then compared"
        lines[spec.public.kind] = f"{spec.public.contents}, {spec.public.digest[:12]}…; {use}"
    if recall is not None:
        lines["recall"] = (
            f"{settings.index_type} finds {recall:.3f} of the ten nearest that a flat search "
            f"finds, measured on codes here"
        )
    if about.payload:
        lines["payload"] = f"{', '.join(about.payload)}: in the clear, NOT protected"
    if about.calibration is not None:
        lines["calibration"] = f"learned when there were {about.calibration.rows} codes"
    if about.denoiser is not None:
        lines["denoiser"] = (
            f"{about.denoiser.kind}, learned from {about.denoiser.rows} codes; error of a "
            f"coordinate predicted from the others alone: {about.denoiser.error_in_words}"
        )
    if spec.scale != 1:
        lines["scale"] = (
            f"attributes are divided by {spec.scale:g}; the guarantee is in units of the data, "
            f"where {spec.adjacency} is {spec.guarantee.adjacency}"
        )
    if spec.ranges is not None:
        lines["ranges"] = str(spec.ranges)
    lines["guarantee"] = str(spec.guarantee)
    if sentences := quality_warnings(spec, about.count):
        lines["note"] = "; ".join(sentences)
    if spec.method_row.private:
        lines["proved for"] = "the real numbers, not the floats"
        if spec.guarantee.exact:
            lines["proved for"] = "the integers that run (exact)"
    return lines


def methods(
    as_json: o.AsJson = False,
    every: Annotated[bool, "--all", "Also list methods of papers."] = False,
) -> None:
    """Say when to choose which method, best first.

    $ dpindex methods --all
    """
    from dpindex.mechanism.method_table import CHOSEN_FOR
    from dpindex.mechanism.method_table import methods as all_methods

    rows = {row.name: row.to_dict() for row in all_methods()}
    if as_json:
        o.print_json(list(rows.values()))
        return
    for name in dict.fromkeys([*CHOSEN_FOR, *(rows if every else ())]):
        row = rows[name]
        promise = "not private"
        if row["kind"] != "none":
            promise = f"{row['kind']} {row['definition']}"
        if row["delta_over"] == "projection":
            promise += ", delta over the projection too: no promise for the published one"
        needs = ""
        if row["needs"]:
            needs = f"; needs {row['needs']}"
        if row["variants"]:
            needs += f"; --variant: {row['variants']}"
        typer.echo(f"{name}  ({row['codes']}, {promise}, {row['adjacency']}{needs})")
        if name in CHOSEN_FOR:
            typer.echo(f"    Choose it for: {CHOSEN_FOR[name]}")
        typer.echo(f"    {row['summary']}\n    {row['source']}")
    if not every:
        typer.echo(f"and {len(rows) - len(CHOSEN_FOR)} more of papers and for comparison: --all.")


def serve(
    index: o.IndexPath,
    *,
    tokens: Annotated[
        Path | None,
        'Lines "submit TOKEN", "search TOKEN", "rerank TOKEN"; chmod 600.',
    ] = None,
    open_to_all: Annotated[bool, "Let all on this machine submit and search."] = False,
    collection: o.Collection = COLLECTION,
    host: Annotated[str, "Address; beyond this machine put TLS before it."] = ("127.0.0.1"),
    port: Annotated[int, "Port; 0 takes a free one."] = 8000,
    exact_queries: Annotated[
        bool, "Accept vectors as queries, which this server then sees."
    ] = False,
    rerank: Annotated[
        str | None,
        "--rerank FILE",
        "Original vectors: also answer exact similarities, which no epsilon bounds.",
    ] = None,
    ids: o.RerankIds = None,
    per_minute: Annotated[int, "--rerank-per-minute", "Candidates a token may ask about."] = 60_000,
    allow_unprotected: o.Unprotected = False,
) -> None:
    """Collect codes of devices over HTTP, and search.

    A code is on disk before its sender gets an answer. No other process may write the index
    meanwhile. Ctrl-C or SIGTERM saves and ends. It serves a published index too, by its URI.

    With --rerank it also answers POST /rerank, and logs who asked about how many candidates.

    $ dpindex serve my-index --tokens tokens.txt --exact-queries
    """
    from dpindex.integrations.requests import Tokens
    from dpindex.integrations.server import LOOPBACK
    from dpindex.integrations.server import serve as run_server

    if open_to_all == (tokens is not None):
        raise InputError("give --tokens FILE, or --open-to-all on a machine that is yours alone.")
    known_tokens = o.read_if_named(Tokens.read, tokens)
    if rerank is not None:
        # Who asked about how many candidates, on standard error.
        logging.basicConfig(format="%(asctime)s %(message)s")
        logging.getLogger("dpindex.integrations.requests").setLevel(logging.INFO)

    def ready(url: str) -> None:
        o.say(f"{index}: listening at {url}")
        if host not in LOOPBACK:
            o.note("tokens travel in the clear without TLS: put a proxy that speaks it before this")

    run_server(
        index,
        collection=collection,
        address=(host, port),
        tokens=known_tokens,
        exact_queries=exact_queries,
        originals=rerank,
        original_ids=o.read_ids_of(rerank, ids),
        per_minute=per_minute,
        allow_unprotected=allow_unprotected,
        ready=ready,
    )
    o.say(f"{index}: saved.")
