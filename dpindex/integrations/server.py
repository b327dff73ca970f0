"""A collector over HTTP, in a process of its own: what is answered, a socket, and limits.

Nothing that was sent is logged or repeated in an answer: access is not logged, ids travel in a
header and not in the address, and what fails unexpectedly is logged by its type and place alone.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import signal
import socket
import time
import traceback
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import dpindex.integrations.requests as r
from dpindex.base.display import json_columns
from dpindex.base.errors import BusyError, InputError, import_extra
from dpindex.base.files import AnyPath, holding_folder, state_folder
from dpindex.base.ids import COLLECTION
from dpindex.index.originals import Originals
from dpindex.index.private_index import PrivateIndex
from dpindex.integrations import is_published
from dpindex.integrations.collector import Acceptance, Collector, Submission, UnavailableError
from dpindex.integrations.published import PublishedIndex, open_published

LOG_NAME = ".accepted"
"""The file of accepted codes and keys, in the directory of the index."""
LOOPBACK = ("127.0.0.1", "localhost")

_CONNECTIONS = 256
_HEAD_BYTES = 1 << 16
_BESIDE_HEADER = len(b": \r\n")
_IDLE_SECONDS = 10
_GRACE_SECONDS = 10
_BACKLOG = 1024
_DRAINED_BYTES = 1 << 26
_NEED = "a collector needs starlette and uvicorn"
_CODES = "application/octet-stream"
_JSON = "application/json"
_Answer = tuple[int, Any]
_Endpoint = Callable[[Any], Awaitable[_Answer]]
_log = logging.getLogger(__name__)

_HEADERS = {
    401: {"www-authenticate": "Bearer"},
    429: {"retry-after": "60"},
    503: {"retry-after": "1"},
}
_OUTCOMES: dict[Acceptance, tuple[int, str]] = {
    "stored": (201, "stored durably."),
    "repeated": (200, "this submission was stored before."),
    "reused": (
        422,
        "another submission had this Idempotency-Key; nothing was stored: choose another key.",
    ),
    "taken": (409, "an id of this submission is taken; nothing of it was stored."),
}


def serve(
    index: AnyPath,
    *,
    collection: str = COLLECTION,
    address: tuple[str, int] = ("127.0.0.1", 8000),
    tokens: r.Tokens | None,
    exact_queries: bool = False,
    originals: Any = None,
    original_ids: Any = None,
    per_minute: int = r.PER_MINUTE,
    allow_unprotected: bool = False,
    ready: Callable[[str], object] = lambda url: None,
) -> None:
    """Serve a saved index until SIGINT or SIGTERM.

    No other process can change the index meanwhile.

    Parameters
    ----------
    index : path
        Directory of the index, or the address of a published one: see :func:`dpindex.open`.
    collection : str
        Name of a published index.
    address : (str, int)
        Host and port to listen at; port 0 is any that is free.
    tokens : Tokens or None
        None lets everybody in, on this machine only.
    exact_queries : bool
        Accept vectors as queries, which the server then sees.
    originals : array, path or Dataset, optional
        Original vectors, by which exact similarities of candidates are answered: see
        :class:`dpindex.Originals`.
    original_ids : array, optional
        The id of each original; default the ids of the index, in its order.
    per_minute : int
        Candidates that one token may ask about in a minute, [1, ∞).
    ready : callable
        Called with the address when connections are accepted.

    Raises
    ------
    InputError
        Without starlette and uvicorn, for an index that cannot be opened or is being written, a
        port that cannot be had, no tokens on an address that others reach, and originals that do
        not fit.
    """
    import_extra("uvicorn", _NEED, "serve")
    if tokens is None and address[0] not in LOOPBACK:
        raise InputError(
            f"without tokens only {' and '.join(LOOPBACK)} may be served; give tokens."
        )
    with _opened(index, collection) as (opened, accepted, save):
        opened.spec.refuse_unprotected(allow_unprotected, "serve it")
        comparisons = None
        if originals is not None:
            comparisons = comparisons_of(opened, originals, original_ids, per_minute)
        with (
            _listening(*address) as listening,
            Collector(opened, accepted, save) as collector,
        ):
            service = Service(collector, tokens, exact_queries, comparisons=comparisons)
            _run(service.app(), listening, ready)


def comparisons_of(
    index: PrivateIndex | PublishedIndex, originals: Any, ids: Any, per_minute: int
) -> r.Comparisons:
    """Return what compares candidates of an index; InputError if the vectors do not fit."""
    if ids is None:
        if isinstance(index, PublishedIndex):
            raise InputError(
                "the originals of a published index need ids; name the id of each row.",
                field="ids",
            )
        ids = index.ids
    holder = Originals(originals, ids)
    holder.check(index.spec.dim)
    return r.Comparisons(holder, index.spec, index.metric, per_minute)


@contextmanager
def _opened(
    place: AnyPath, collection: str
) -> Iterator[tuple[PrivateIndex | PublishedIndex, Path, Callable[[], object]]]:
    """Give an index that nobody else changes, its file of codes, and what saves it."""
    with ExitStack() as stack:
        if not is_published(place, collection):
            path = Path(os.path.realpath(place))

            def refuse() -> NoReturn:
                raise BusyError(f"{path} is being written by another process; wait for it to end.")

            index = stack.enter_context(PrivateIndex.changing(path, refuse))
            yield index, path / LOG_NAME, lambda: index.save(path)
            return
        published = stack.enter_context(closing(open_published(place, collection)))
        folder = stack.enter_context(published.database.lease())
        if folder is None:  # of a server the file lies in the user's own state here
            digest = hashlib.sha256(f"{os.fspath(place)} {collection}".encode())
            own_folder = state_folder() / "collectors" / digest.hexdigest()[:16]
            folder = stack.enter_context(holding_folder(own_folder, os.fspath(place)))
        yield published, folder / LOG_NAME, published.save


def _id_type(index: PrivateIndex | PublishedIndex) -> type:
    """What the ids of an index are."""
    if isinstance(index, PublishedIndex):
        return index.id_type
    # An index without codes takes strings: whoever submits first must not decide for all.
    if len(index) and index.ids.dtype.kind == "i":
        return int
    return str


def _listening(host: str, port: int) -> socket.socket:
    if not 0 <= port < 1 << 16:
        raise InputError(f"port must be from 0 to 65535, not {port}.")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        why = error.strerror or error
        raise InputError(f"{host}, port {port}, cannot be served: {why}; choose another.") from None


def _run(app: Any, listening: socket.socket, ready: Callable[[str], object]) -> None:
    """Answer requests until a signal ends it, in order also before uvicorn has its handlers."""
    uvicorn = import_extra("uvicorn", _NEED, "serve")
    config = uvicorn.Config(
        app,
        http="h11",  # whose limit on the bytes of headers is set below
        ws="none",
        lifespan="off",
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        limit_concurrency=_CONNECTIONS,
        timeout_keep_alive=_IDLE_SECONDS,
        timeout_graceful_shutdown=_GRACE_SECONDS,
        h11_max_incomplete_event_size=_HEAD_BYTES,
    )
    host, port = listening.getsockname()[:2]
    name = host
    if ":" in host:
        name = f"[{host}]"
    server = uvicorn.Server(config)

    def end(number: int, frame: object) -> None:
        server.should_exit = True

    before = {}
    for number in (signal.SIGINT, signal.SIGTERM):
        before[number] = signal.signal(number, end)
    try:
        ready(f"http://{name}:{port}")
        server.run(sockets=[listening])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@dataclass
class Service:
    """What a collector answers over HTTP.

    Parameters
    ----------
    collector : Collector
        Whose thread runs.
    tokens : Tokens or None
        None lets everybody in, who must have addressed this machine by a local name.
    exact_queries : bool
        Accept vectors as queries, which the server then sees.
    body_seconds : float
        How long a body may take to arrive.
    comparisons : Comparisons, optional
        Answers ``POST /rerank`` and ``POST /reaches``, which are not there without it.
    """

    collector: Collector
    tokens: r.Tokens | None
    exact_queries: bool = False
    body_seconds: float = 30.0
    comparisons: r.Comparisons | None = None

    def __post_init__(self) -> None:
        self.index = self.collector.index
        self.spec = self.index.spec
        self.id_type = _id_type(self.index)
        self.searches = asyncio.Semaphore(os.cpu_count() or 1)
        self.seconds: dict[tuple[str, int], tuple[int, float]] = {}

    def app(self) -> Any:
        """A Starlette application; InputError without starlette."""
        applications = import_extra("starlette.applications", _NEED, "serve")
        routing = import_extra("starlette.routing", _NEED, "serve")
        answers: dict[str, _Endpoint] = {
            "GET /health": self.health,
            "GET /spec": self.stated_spec,
            "GET /guarantee": self.guarantee,
            "GET /metrics": self.metrics,
            "POST /codes": self.submit,
            "POST /search": self.search,
        }
        if self.comparisons is not None:
            answers |= {"POST /rerank": self.rerank, "POST /reaches": self.reaches}
        routes = []
        for name, answer in answers.items():
            method, path = name.split()
            endpoint = self._endpoint(path, answer)
            routes.append(routing.Route(path, endpoint, methods=[method]))
        app = applications.Starlette(routes=routes)
        if self.tokens is None:  # another name would be that of a page in somebody's browser
            hosts = import_extra("starlette.middleware.trustedhost", _NEED, "serve")
            app.add_middleware(hosts.TrustedHostMiddleware, allowed_hosts=list(LOOPBACK))
        return app

    def _endpoint(self, path: str, answer: _Endpoint) -> Callable[[Any], Awaitable[Any]]:
        """A function of a request as Starlette takes it: every outcome is counted and answered."""
        responses = import_extra("starlette.responses", _NEED, "serve")

        async def endpoint(request: Any) -> Any:
            began = time.perf_counter()
            headers = {}
            try:
                _check_head(request)
                status, content = await answer(request)
            except Exception as error:
                refusal = _refusal(error)
                status = refusal.status
                content = {"detail": str(refusal)}
                # What is left of the body is not waited for.
                headers = {"connection": "close", **_HEADERS.get(status, {})}
            count, seconds = self.seconds.get((path, status), (0, 0.0))
            seconds += time.perf_counter() - began
            self.seconds[path, status] = count + 1, seconds
            if isinstance(content, str):
                return responses.PlainTextResponse(content, status)
            return responses.JSONResponse(content, status, headers)

        return endpoint

    async def health(self, request: Any) -> _Answer:
        if not self.collector.accepts:
            return 503, {"status": "read only until it is started again"}
        if not self.collector.has_room:
            return 503, {"status": "read only until there is room on the disk"}
        return 200, {"status": "ok"}

    async def stated_spec(self, request: Any) -> _Answer:
        return 200, json.loads(self.spec.to_json())

    async def guarantee(self, request: Any) -> _Answer:
        promise = self.spec.guarantee.statement(self.spec.dim)
        promise["query_epsilon"] = self.index.query_spec.epsilon
        promise["metric"] = self.index.metric
        return 200, promise

    async def metrics(self, request: Any) -> _Answer:
        """Counts and seconds by route and status, in Prometheus' text format."""
        self._admit(request, "metrics")
        lines = ["# TYPE dpindex_request_seconds summary"]
        for (path, status), (count, seconds) in sorted(self.seconds.items()):
            labels = f'{{route="{path}",status="{status}"}}'
            lines += [
                f"dpindex_request_seconds_count{labels} {count}",
                f"dpindex_request_seconds_sum{labels} {seconds:.6f}",
            ]
        return 200, "\n".join([*lines, ""])

    async def submit(self, request: Any) -> _Answer:
        """Keep codes: the body, application/octet-stream, is what `dpindex privatize` writes.

        Header Dpindex-Ids: a JSON list, an id for each code. Header Idempotency-Key, optional: a
        secret, the same when sent again. 201: stored durably; 200: it was stored before; 409: an id
        is taken, 422: another submission had the key, and nothing was stored.
        """
        self._admit(request, "submit")
        body = await self._body(request, {_CODES: r.max_body(self.spec)})
        ids = request.headers.get("dpindex-ids")
        key = request.headers.get("idempotency-key")
        submission = await asyncio.to_thread(self._submission, body, ids, key)
        outcome = await asyncio.wrap_future(self.collector.submit(submission))
        status, sentence = _OUTCOMES[outcome]
        return status, {"detail": sentence}

    def _submission(self, body: bytes, ids: str | None, key: str | None) -> Submission:
        codes = r.sent_codes(body, [self.spec], r.max_rows(self.spec))
        names = r.sent_ids(ids, self.id_type, len(codes))
        whole = r.receipt(key, (ids or "").encode(), body)
        return Submission(codes, names, whole, r.receipt(key))

    async def search(self, request: Any) -> _Answer:
        """Lists of ids, scores and estimates, one for each query, and why some are null.

        The body is application/octet-stream, or application/json where exact queries are on.
        Query parameter k: neighbours of each query, 1 to 1000, default 10.
        """
        self._admit(request, "search")
        k = r.neighbours(request.query_params.multi_items())
        is_exact = _content_type(request) == _JSON
        if is_exact and not self.exact_queries:
            raise r.RefusedError(
                403, "exact queries are off here: privatize the query yourself and send its code."
            )
        limits = {_CODES: r.max_body(self.spec), _JSON: r.max_vectors_body(self.spec)}
        body = await self._body(request, limits)
        async with self.searches:
            return 200, await asyncio.to_thread(self._found, body, is_exact, k)

    def _found(self, body: bytes, is_exact: bool, k: int) -> dict[str, Any]:
        queries: Any
        if is_exact:
            queries = r.query_vectors(body, self.spec.dim)
        else:
            queries = r.sent_codes(body, [self.spec, self.index.query_spec], r.MAX_QUERIES)
        if len(self.index) == 0:
            raise r.RefusedError(409, "the index is empty.")
        try:
            hits = self.index.search(queries, k=k, query="exact")
        except InputError as error:  # which names rows and columns, and never a value
            raise r.RefusedError(422, str(error)) from None
        columns = hits.columns
        r.check_sent_ids(columns["ids"])
        del columns["exact"]  # a collector has no originals to rerank by
        return {**json_columns(columns), "unstated": hits.unstated}

    async def rerank(self, request: Any) -> _Answer:
        """The similarity of each candidate, or null.

        The body is application/json: a query and the ids of its candidates.
        """
        return 200, {"similarity": await self._compared(request, "rerank")}

    async def reaches(self, request: Any) -> _Answer:
        """Whether the similarity of each candidate reaches a threshold, or null.

        The body is application/json: a query, the ids of its candidates and a threshold.
        """
        return 200, {"reaches": await self._compared(request, "reaches")}

    async def _compared(self, request: Any, role: r.Role) -> Any:
        asker = self._admit(request, role)
        assert self.comparisons is not None  # or there is no such route
        body = await self._body(request, {_JSON: self.comparisons.max_body})
        answer = partial(self.comparisons.answer, yes_or_no=role == "reaches")
        async with self.searches:
            return await asyncio.to_thread(answer, body, self.id_type, asker)

    def _admit(self, request: Any, role: r.Role) -> str:
        """Return what logs call the sender; RefusedError without a token of that role."""
        if self.tokens is None:
            return "somebody on this machine"
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        roles = self.tokens.roles(token)
        if scheme.lower() != "bearer" or not roles:
            raise r.RefusedError(401, "a valid token is needed: Authorization: Bearer TOKEN.")
        if role not in roles:
            raise r.RefusedError(403, f"this token does not have the role {role}.")
        return self.tokens.name(token)

    async def _body(self, request: Any, limits: dict[str, int]) -> bytes:
        """The whole body, within the limit of bytes of its content type.

        RefusedError for another type, too many bytes, too slow ones, and compressed ones.
        """
        headers = request.headers
        kind = _content_type(request)
        if kind not in limits:
            raise r.RefusedError(415, f"the content type must be {' or '.join(limits)}.")
        if headers.get("content-encoding", "identity") != "identity":
            raise r.RefusedError(415, "compressed bodies are not accepted.")
        limit = limits[kind]
        if "expect" in headers:  # the sender waits for this
            stated = int(headers.get("content-length", "0"))
            if stated > limit:
                raise _too_large(limit)
        try:
            return await asyncio.wait_for(_received(request, limit), self.body_seconds)
        except (TimeoutError, asyncio.TimeoutError):  # one since Python 3.11
            raise r.RefusedError(
                408, f"the body did not arrive within {self.body_seconds:g} seconds."
            ) from None


def _refusal(error: Exception) -> r.RefusedError:
    """What is answered where a request could not be."""
    if isinstance(error, r.RefusedError):
        return error
    if isinstance(error, UnavailableError):
        return r.RefusedError(
            503,
            "nothing can be stored now, and nothing was; send the same again later, under the same "
            "key.",
        )
    # The message of an error may repeat what was sent; where it was raised does not.
    places = "".join(traceback.format_tb(error.__traceback__))
    _log.error("%s\n%s", type(error).__name__, places)
    return r.RefusedError(500, "the server failed; its log says where.")


def _check_head(request: Any) -> None:
    """RefusedError for a long head: the limit of uvicorn holds for heads that come in pieces."""
    size = len(request.scope["raw_path"]) + len(request.scope["query_string"])
    for name, value in request.scope["headers"]:
        size += len(name) + len(value) + _BESIDE_HEADER
    if size > _HEAD_BYTES:
        raise r.RefusedError(400, f"the request's line and headers exceed {_HEAD_BYTES} bytes.")


def _content_type(request: Any) -> str:
    kind, *_ = request.headers.get("content-type", "").split(";")
    return str(kind).strip().lower()


async def _received(request: Any, limit: int) -> bytes:
    """The bytes of a body; RefusedError if there are too many.

    Up to a limit those are received and dropped: who still sends would not see an answer.
    """
    disconnected = import_extra("starlette.requests", _NEED, "serve").ClientDisconnect
    parts = []
    size = 0
    try:
        async for part in request.stream():
            size += len(part)
            if size <= limit:
                parts.append(part)
            if size > _DRAINED_BYTES:
                break
    except disconnected:
        raise r.RefusedError(400, "the body ends too early.") from None
    if size > limit:
        raise _too_large(limit)
    return b"".join(parts)


def _too_large(limit: int) -> r.RefusedError:
    return r.RefusedError(413, f"a body has at most {limit} bytes; send several.")
