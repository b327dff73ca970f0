"""The client: where it sends a token, and what it makes of answers."""

from __future__ import annotations

import gc
import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import numpy as np
import pytest
from helpers.common import refuses

import dpindex as dpi
from dpindex.integrations.client import Client

Answers = dict[str, tuple[int, Any]]
ESTIMATES = ("similarity", "stderr", "unbiased", "unbiased_stderr")


class Server(HTTPServer):
    """Gives fixed answers by path and remembers what was asked."""

    answers: Answers
    asked: list[tuple[str, dict[str, str], bytes]]


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self):
        length = int(self.headers.get("content-length", 0))
        named = {name.lower(): value for name, value in self.headers.items()}
        self.server.asked.append((self.path, named, self.rfile.read(length)))
        status, content = self.server.answers[self.path]
        self.send_response(status)
        if status == 302:
            self.send_header("location", content)
        self.end_headers()
        self.wfile.write(json.dumps(content).encode())

    do_POST = do_GET  # noqa: N815

    def log_message(self, *_):
        """Nothing."""


@pytest.fixture
def server():
    with Server(("127.0.0.1", 0), Handler) as made:
        made.answers = {}
        made.asked = []
        thread = threading.Thread(target=made.serve_forever, args=(0.01,))
        thread.start()
        yield made
        made.shutdown()
        thread.join()


@pytest.fixture
def proxied(monkeypatch):
    """Sets a proxy for a protocol, which no host is exempt from."""
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch.setenv


def client(server):
    return Client(f"http://127.0.0.1:{server.server_port}/", "secret")


@pytest.mark.parametrize(
    "url",
    ["http://collector.example", "ftp://localhost", "collector.example", "", "https://",
     "http://localhost.example", "http://localhost@a.example", "file:///etc/passwd"],
)  # fmt: skip
def test_a_token_does_not_travel_in_the_clear(url):
    with refuses("begins with https://"):
        Client(url, "secret")


def test_f4_what_is_meant_for_this_machine_goes_to_no_proxy(server, proxied):
    """A proxy would see the token and a query in the clear."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        proxied(name, "http://127.0.0.1:9")  # where nobody listens
    server.answers["/rerank"] = (200, {"similarity": [0.5]})
    (found,) = client(server).similarities([1.0, 2.0], ["a"])
    assert found == 0.5
    ((path, headers, body),) = server.asked
    assert path == "/rerank"
    assert headers["authorization"] == "Bearer secret"
    assert json.loads(body) == {"query": [1.0, 2.0], "ids": ["a"]}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_f4_a_proxy_for_another_machine_is_a_tunnel(proxied):
    """It is told the name of the collector, and is sent nothing before TLS begins."""
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        seen = []

        def refuse():
            connection, _ = proxy.accept()
            with connection:
                seen.append(connection.recv(1 << 16))
                connection.sendall(b"HTTP/1.1 502 no\r\n\r\n")

        thread = threading.Thread(target=refuse)
        thread.start()
        proxied("https_proxy", f"http://127.0.0.1:{proxy.getsockname()[1]}")
        with refuses("does not answer"):
            Client("https://collector.example", "secret").similarities([1.0], ["a"])
        thread.join()
    gc.collect()  # Python 3.10 leaves the refusal of a proxy open, which later tests would be told
    assert seen[0].startswith(b"CONNECT collector.example:443 ")
    assert b"secret" not in seen[0]


def test_a_collector_has_no_collections():
    with refuses("https://collector.example is one index, without collections"):
        dpi.open("https://collector.example", "books")


def test_redirections_are_not_followed(server):
    server.answers["/spec"] = (302, "/elsewhere")
    server.answers["/elsewhere"] = (200, {})
    with refuses("answers 302"):
        client(server).spec()
    assert [path for path, _, _ in server.asked] == ["/spec"]


def test_submissions_have_keys(server):
    for status, outcome in {201: "stored", 200: "repeated", 409: "taken"}.items():
        server.answers["/codes"] = (status, {"detail": "…"})
        said = client(server).submit(b"codes", ["é"], key=16 * "k")
        assert said == outcome
    _, headers, body = server.asked[-1]
    assert headers["authorization"] == "Bearer secret"
    assert headers["dpindex-ids"] == '["\\u00e9"]'
    assert headers["idempotency-key"] == 16 * "k"
    assert body == b"codes"
    for _ in range(2):
        client(server).submit(b"codes", [1])
    keys = {names["idempotency-key"] for _, names, _ in server.asked}
    assert len(keys) == 3


def test_hits(server):
    numbers = [[0.5, None]]
    content = {"ids": [["a", "b"]], "scores": [[2, 1]], **dict.fromkeys(ESTIMATES, numbers)}
    content["unstated"] = "no similarity is stated: 2 codes are too few."
    server.answers = {"/search?k=2": (200, content)}
    hits = client(server).search(b"codes", k=2)
    assert hits.ids.tolist() == [["a", "b"]]
    assert np.isnan(hits.similarity[0, 1])
    assert hits.unstated.endswith("too few.")
    assert len(hits) == 1


def test_refusals_and_silence(server):
    server.answers["/codes"] = (413, {"detail": "too\x1b[2J much."})
    server.answers["/spec"] = (500, [])
    with refuses(r"answers 413: too\[2J much\."):
        client(server).submit(b"", [])
    with refuses("answers 500: it does not say why"):
        client(server).spec()
    with refuses("does not answer"):
        Client("http://127.0.0.1:1").spec()


def test_vectors_in_place_of_codes_are_not_sent(server):
    vectors = np.zeros((1, 4))
    for given in (vectors, memoryview(vectors)):
        with refuses("nothing was sent"):
            client(server).submit(given, ["anna"])
        with refuses("nothing was sent"):
            client(server).search(given)
    assert server.asked == []
