"""What a client sends to a collector: codes, and nothing of the vectors that they are made of."""

import json
from io import BytesIO

import numpy as np

from dpindex.integrations.client import Client

_FOUND = 3


def sent_by_client(spec, codes, vectors):
    """Everything that a client sends that submits codes, and searches with vectors to rerank by.

    The vectors stay with the owner, who is in this process.
    """
    client = Client("https://collector.example")
    collector = _Collector(spec, len(codes))
    opened = client
    opened.opener = collector
    few = np.resize(vectors, (_FOUND, vectors.shape[1]))
    owned = dict(enumerate(few))
    data = codes.to_bytes()
    names = [f"id-{row}" for row in range(len(codes))]
    client.submit(data, names, key=32 * "k")
    client.search(data, _FOUND)
    client.search(data, 1, queries=vectors, candidates=_FOUND, rerank=owned)
    return b"\n".join(collector.received)


class _Answer(BytesIO):
    status = 200


class _Collector:
    """A collector that keeps what it receives, and finds the same rows for every query."""

    def __init__(self, spec, queries):
        self.received = []
        self._spec = spec
        self._queries = queries

    def open(self, request, timeout):
        """Answer a request as HTTP would."""
        headers = json.dumps(sorted(request.header_items()))
        self.received += [request.full_url.encode(), headers.encode(), request.data or b""]
        answers = {
            "/spec": self._spec.to_json(),
            "/guarantee": json.dumps({"metric": "cosine"}),
            "/codes": "{}",
            "/search": json.dumps(self._hits()),
        }
        path = request.selector.partition("?")[0]
        return _Answer(answers[path].encode())

    def _hits(self):
        numbers = np.linspace(1.0, 0.0, _FOUND)
        rows = np.tile(numbers, (self._queries, 1))
        names = ("scores", "similarity", "stderr", "unbiased", "unbiased_stderr")
        ids = np.tile(range(_FOUND), (self._queries, 1))
        columns = {name: rows.tolist() for name in names}
        return {"ids": ids.tolist(), **columns, "unstated": ""}
