"""The command that serves an index: serve."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dpindex.base.errors import InputError
from dpindex.cli import options as o


def serve(
    index: o.IndexPath,
    *,
    collection: o.Collection = "dpindex",
    tokens: Annotated[
        Path | None, 'File of lines "submit TOKEN" and "search TOKEN", yours alone (chmod 600).'
    ] = None,
    host: Annotated[str, "Address to listen on; beyond this machine put TLS before it."] = (
        "127.0.0.1"
    ),
    port: Annotated[int, "Port to listen on; 0 takes a free one."] = 8000,
    exact_queries: Annotated[
        bool, "Accept vectors as queries, which this server then sees."
    ] = False,
    open_to_all: Annotated[bool, "Let everybody on this machine submit and search."] = False,
    allow_unprotected: o.Unprotected = False,
) -> None:
    """Collect codes of devices over HTTP, and search.

    A code is on the disk before its sender is answered, and no other process writes the index
    meanwhile. Ctrl-C or SIGTERM saves it and ends. The URI of a published index is served too.
    """
    from dpindex.serve.process import LOOPBACK, serve
    from dpindex.serve.tokens import Tokens

    if open_to_all == (tokens is not None):
        raise InputError("give --tokens FILE, or --open-to-all on a machine that is yours alone.")

    def ready(url: str) -> None:
        typer.echo(f"{index}: listening at {url}")
        if host not in LOOPBACK:
            o.note("tokens travel in the clear without TLS: put a proxy that speaks it before this")

    serve(
        index,
        collection=collection,
        host=host,
        port=port,
        tokens=None if tokens is None else Tokens.read(tokens),
        exact_queries=exact_queries,
        allow_unprotected=allow_unprotected,
        ready=ready,
    )
    typer.echo(f"{index}: saved.")
