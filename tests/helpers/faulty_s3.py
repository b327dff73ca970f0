"""An S3-compatible server on this machine (moto's), and a proxy before it that injects faults."""

import http.client
import random
import select
import socket
import threading
from collections import Counter
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

FAULTS = ("409", "412", "500", "500 done", "cut off", "cut off done", "late")
"""What happens to a PUT. "done": it is done nevertheless; "late": only after the client gave up."""

KEYS = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_REGION": "us-east-1",
    "AWS_ALLOW_HTTP": "true",
    "AWS_TIMEOUT": "4s",
}


class Proxy(ThreadingHTTPServer):
    """Passes requests on; a share of the PUTs meets a fault, but not more than twice an object.

    ``bodies`` are those of all PUTs by path, done or not: what the operator of a store can read.
    """

    daemon_threads = True

    def __init__(self, backend, share, seed):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.backend = backend
        self.share = share
        self.injected = Counter()
        self.bodies = {}
        self._hit = Counter()
        self._random = random.Random(seed)
        self._lock = threading.Lock()

    def fault(self, method, path):
        """What happens to a request, "" if nothing."""
        with self._lock:
            if method != "PUT" or self._hit[path] >= 2 or self._random.random() >= self.share:
                return ""
            # Each of them in turn, so that none is left out by chance.
            fault = FAULTS[sum(self.injected.values()) % len(FAULTS)]
            self._hit[path] += 1
            self.injected[fault] += 1
            return fault

    def record(self, path, body):
        """Keep the body of a PUT."""
        with self._lock:
            self.bodies.setdefault(path.partition("?")[0], set()).add(body)

    def sent_once(self, place):
        """All bodies of PUTs below a place, and the one of each name that is not unpublished."""
        prefix = f"/{place}/"
        everything = []
        plain = {}
        for path, bodies in self.bodies.items():
            name = path.removeprefix(prefix)
            if name == path:
                continue
            everything += bodies
            if not name.startswith("unpublished/"):
                (plain[name],) = bodies
        return everything, plain

    def handle_error(self, request, client_address):
        """A client that has gone is no error here."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def _handle(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.command == "PUT":
            self.server.record(self.path, body)
        fault = self.server.fault(self.command, self.path)
        if fault == "late":
            select.select([self.connection], [], [])  # until the client hangs up
        if not fault or fault.endswith(("done", "late")):
            answer = self._forward(body)
        if fault.startswith("cut off") or fault == "late":
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
        elif fault:
            self._answer(
                int(fault[:3]),
                [("Content-Type", "application/xml")],
                _ERROR,
            )
        else:
            self._answer(*answer)

    do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = _handle  # noqa: N815

    def _forward(self, body):
        connection = http.client.HTTPConnection(*self.server.backend)
        connection.request(self.command, self.path, body, dict(self.headers))
        response = connection.getresponse()
        data = response.read()
        headers = response.getheaders()
        connection.close()
        return response.status, headers, data

    def _answer(self, status, headers, data):
        self.send_response(status)
        length = str(len(data))
        for name, value in headers:
            if name.lower() == "content-length":
                length = value
            elif name.lower() not in ("connection", "transfer-encoding", "date", "server"):
                self.send_header(name, value)
        self.send_header("Content-Length", length)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, *args):
        """Say nothing."""


_ERROR = b"<Error><Code>InternalError</Code><Message>injected</Message></Error>"


@contextmanager
def moto_server(bucket):
    """Host and port of a server with one bucket."""
    import logging

    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        connection = http.client.HTTPConnection(host, port)
        connection.request("PUT", f"/{bucket}")
        connection.getresponse().read()
        connection.close()
        yield host, port
    finally:
        server.stop()


@contextmanager
def proxied(backend, share, seed=0):
    """The proxy, and its URL."""
    proxy = Proxy(backend, share, seed)
    thread = threading.Thread(target=proxy.serve_forever, daemon=True)
    thread.start()
    try:
        yield proxy, f"http://127.0.0.1:{proxy.server_port}"
    finally:
        proxy.shutdown()
        proxy.server_close()


def objects(url, backend):
    """What anyone reads below a URL, past the proxy: every object by its name."""
    import obstore

    store = obstore.store.from_url(url, config={"endpoint": f"http://{backend[0]}:{backend[1]}"})
    names = [meta["path"] for page in obstore.list(store) for meta in page]
    return {name: bytes(obstore.get(store, name).bytes()) for name in names}
