"""The command that runs a collector."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from dpindex.base.errors import InputError
from dpindex.cli import options as o
from dpindex.cli import output as out
from dpindex.data import read_ids

if TYPE_CHECKING:
    from dpindex.integrations.requests import Tokens


@dataclass(frozen=True)
class AccessOptions:
    """Who may ask a collector."""

    tokens: Annotated[
        Path | None,
        'File of lines "submit TOKEN", "search TOKEN" and "rerank TOKEN", yours alone (chmod 600).',
    ] = None
    open_to_all: Annotated[bool, "Let everybody on this machine submit and search."] = False

    def read(self) -> Tokens | None:
        """Return the tokens, None for everybody."""
        from dpindex.integrations.requests import Tokens

        if self.open_to_all == (self.tokens is not None):
            raise InputError(
                "give --tokens FILE, or --open-to-all on a machine that is yours alone."
            )
        if self.tokens is None:
            return None
        return Tokens.read(self.tokens)


@dataclass(frozen=True)
class HolderOptions:
    """Original vectors that a collector compares candidates with."""

    rerank: Annotated[
        str | None,
        "Original vectors: answer exact similarities of candidates, which no epsilon bounds.",
    ] = None
    ids: o.RerankIds = None
    per_minute: Annotated[
        int, "--rerank-per-minute", "Candidates that one token may ask about in a minute."
    ] = 60_000


def serve(
    index: o.IndexPath,
    *,
    access: AccessOptions,
    collection: o.Collection = "dpindex",
    host: Annotated[str, "Address to listen on; beyond this machine put TLS before it."] = (
        "127.0.0.1"
    ),
    port: Annotated[int, "Port to listen on; 0 takes a free one."] = 8000,
    exact_queries: Annotated[
        bool, "Accept vectors as queries, which this server then sees."
    ] = False,
    originals: HolderOptions,
    allow_unprotected: o.Unprotected = False,
) -> None:
    """Collect codes of devices over HTTP, and search.

    A code is on the disk before its sender is answered, and no other process writes the index
    meanwhile. Ctrl-C or SIGTERM saves it and ends. The URI of a published index is served too.

    With --rerank it also answers POST /rerank, and logs who asked about how many candidates.
    """
    from dpindex.integrations.server import serve

    tokens = access.read()
    if originals.rerank is not None:
        _log_comparisons()

    serve(
        index,
        collection=collection,
        address=(host, port),
        tokens=tokens,
        exact_queries=exact_queries,
        originals=originals.rerank,
        original_ids=o.read_if_named(read_ids, originals.ids),
        per_minute=originals.per_minute,
        allow_unprotected=allow_unprotected,
        ready=_ready(index, host),
    )
    out.say(f"{index}: saved.")


def _ready(index: str, host: str) -> Callable[[str], None]:
    """Return what tells where a collector listens."""
    from dpindex.integrations.server import LOOPBACK

    def ready(url: str) -> None:
        out.say(f"{index}: listening at {url}")
        if host not in LOOPBACK:
            o.note("tokens travel in the clear without TLS: put a proxy that speaks it before this")

    return ready


def _log_comparisons() -> None:
    """Write the log of comparisons to standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    log = logging.getLogger("dpindex.integrations.requests")
    log.addHandler(handler)
    log.setLevel(logging.INFO)
