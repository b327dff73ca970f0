"""The command that serves an index: serve."""

from __future__ import annotations

import logging
from typing import Annotated

import typer

from dpindex.cli import options as o


def serve(
    index: o.IndexPath,
    *,
    access: o.AccessOptions,
    collection: o.Collection = "dpindex",
    host: Annotated[str, "Address to listen on; beyond this machine put TLS before it."] = (
        "127.0.0.1"
    ),
    port: Annotated[int, "Port to listen on; 0 takes a free one."] = 8000,
    exact_queries: Annotated[
        bool, "Accept vectors as queries, which this server then sees."
    ] = False,
    originals: o.HolderOptions,
    allow_unprotected: o.Unprotected = False,
) -> None:
    """Collect codes of devices over HTTP, and search.

    A code is on the disk before its sender is answered, and no other process writes the index
    meanwhile. Ctrl-C or SIGTERM saves it and ends. The URI of a published index is served too.

    With --rerank it also answers POST /rerank, and logs who asked about how many candidates.
    """
    from dpindex.serve.process import LOOPBACK, serve

    tokens = access.read()
    holder = originals.holder()
    if holder is not None:
        _log_comparisons()

    def ready(url: str) -> None:
        typer.echo(f"{index}: listening at {url}")
        if host not in LOOPBACK:
            o.note("tokens travel in the clear without TLS: put a proxy that speaks it before this")

    serve(
        index,
        collection=collection,
        address=(host, port),
        tokens=tokens,
        exact_queries=exact_queries,
        holder=holder,
        allow_unprotected=allow_unprotected,
        ready=ready,
    )
    typer.echo(f"{index}: saved.")


def _log_comparisons() -> None:
    """Write the log of comparisons to standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    log = logging.getLogger("dpindex.serve.comparisons")
    log.addHandler(handler)
    log.setLevel(logging.INFO)
