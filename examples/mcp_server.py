"""An MCP server over a published index: an agent asks in words, and the query is privatized first.

    pip install mcp sentence-transformers
    python mcp_server.py my-index --model FOLDER_OR_NAME

INDEX is a folder, or the address of a database and the name of a collection. The model is the one
that embedded the collection. Text and vector of a query stay in this process; only its code is
compared. Whoever connects reads the answers, so give the agent nothing that they should not say.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from mcp.server.mcpserver import MCPServer

import dpindex as dpi

MAX_HITS = 100


def make_server(index: Any, embed: Callable[[str], Any]) -> MCPServer:
    """A server with two tools over ``index``; ``embed`` turns a text into a vector, ``(dim,)``."""
    guarantee = str(index.spec.guarantee)
    server = MCPServer("dpindex", instructions=f"Records are protected by {guarantee}.")

    def search(text: str, k: int = 10) -> list[dict[str, Any]]:
        vector = np.asarray(embed(text), dtype=np.float32)
        hits = index.search(vector[None], k=min(max(k, 1), MAX_HITS), query="private")
        found = []
        for hit in hits.to_list()[0]:
            numbers = {name: _number(hit[name]) for name in ("similarity", "stderr")}
            found.append({"id": str(hit["id"]), **numbers})
        return found

    def describe() -> dict[str, Any]:
        return {"records": len(index), "method": index.spec.method, "guarantee": guarantee}

    exposure = (
        f"Each call spends the guarantee of one release ({guarantee}) on the query that it makes, "
        "toward whoever holds the index; calls on the same matter add up. "
        "Similarities are estimates with a standard error, null where it is not known; ids and "
        "payload are not protected."
    )
    server.tool(description=f"The k records most similar to a text. {exposure}")(search)
    server.tool(description="What the index holds, and what is protected.")(describe)
    return server


def _number(value: float | None) -> float | None:
    """A number as JSON has it: null for what is not known."""
    if value is None or not math.isfinite(value):
        return None
    return value


def main() -> None:
    """Serve on standard input and output."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("index", help="a folder, or the address of a database")
    parser.add_argument("--collection", help="the name of the collection in a database")
    parser.add_argument("--model", required=True, help="a model of sentence-transformers")
    options = parser.parse_args()
    from sentence_transformers import SentenceTransformer

    place = [options.index] if options.collection is None else [options.index, options.collection]
    make_server(dpi.open(*place), SentenceTransformer(options.model).encode).run()


if __name__ == "__main__":
    main()
