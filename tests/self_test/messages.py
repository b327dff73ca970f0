"""What a client sends to a collector: codes, and nothing of the vectors that they are made of."""

from __future__ import annotations

import json
from io import BytesIO
from typing import Any

import numpy as np

from dpindex.base.arrays import AnyArray
from dpindex.integrations.client import Client
from dpindex.mechanism.codes import Codes
from dpindex.mechanism.spec import Spec

__all__ = ["sent_by_client"]

_FOUND = 3


def sent_by_client(spec: Spec, codes: Codes, vectors: AnyArray) -> bytes:
    """Everything that a client sends that submits codes, and searches with vectors to rerank by.

    The vectors stay with the owner, who is in this process.
    """
    client = Client("https://collector.example")
    collector = _Collector(spec, len(codes))
    opened: Any = client
    opened.opener = collector
    owned = dict(enumerate(np.resize(vectors, (_FOUND, vectors.shape[1]))))
    client.submit(codes.to_bytes(), [f"id-{row}" for row in range(len(codes))], key=32 * "k")
    client.search(codes.to_bytes(), _FOUND)
    client.search(codes.to_bytes(), 1, queries=vectors, candidates=_FOUND, rerank=owned)
    return b"\n".join(collector.received)


class _Answer(BytesIO):
    status = 200


class _Collector:
    """A collector that keeps what it receives, and finds the same rows for every query."""

    def __init__(self, spec: Spec, queries: int) -> None:
        self.received: list[bytes] = []
        self._spec = spec
        self._queries = queries

    def open(self, request: Any, timeout: float) -> _Answer:
        """Answer a request as HTTP would."""
        headers = json.dumps(sorted(request.header_items()))
        self.received += [request.full_url.encode(), headers.encode(), request.data or b""]
        answers = {
            "/spec": self._spec.to_json(),
            "/guarantee": json.dumps({"metric": "cosine"}),
            "/codes": "{}",
            "/search": json.dumps(self._hits()),
        }
        return _Answer(answers[request.selector.partition("?")[0]].encode())

    def _hits(self) -> dict[str, Any]:
        numbers = np.linspace(1.0, 0.0, _FOUND)
        rows: AnyArray = np.tile(numbers, (self._queries, 1))
        names = ("scores", "similarity", "stderr", "unbiased", "unbiased_stderr")
        ids = np.tile(np.arange(_FOUND), (self._queries, 1))
        columns = {name: rows.tolist() for name in names}
        return {"ids": ids.tolist(), **columns, "unstated": ""}
