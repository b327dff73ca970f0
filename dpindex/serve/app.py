"""The collector over HTTP: a FastAPI application.

Nothing that was sent is logged or repeated in an answer: access is not logged, ids travel in a
header and not in the address, and what fails unexpectedly is logged by its type and place alone.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np

from dpindex.base.errors import InputError
from dpindex.base.extras import import_extra
from dpindex.index.hits import Hits
from dpindex.serve import requests as r
from dpindex.serve.acceptor import Acceptor, Outcome, UnavailableError
from dpindex.serve.comparisons import Comparisons
from dpindex.serve.requests import RefusedError
from dpindex.serve.tokens import Role, Tokens
from dpindex.version import __version__

_Answer = tuple[int, Any]
_CODES = "application/octet-stream"
_JSON = "application/json"
_BODY_SECONDS = 30.0
_DRAINED_BYTES = 1 << 26
_LOCAL_NAMES = ["127.0.0.1", "localhost"]
_log = logging.getLogger(__name__)

_RETRY_SECONDS = {429: "60", 503: "1"}
_OUTCOMES: dict[Outcome, tuple[int, str]] = {
    "stored": (201, "stored durably."),
    "repeated": (200, "this submission was stored before."),
    "taken": (409, "an id of this submission is taken; nothing of it was stored."),
}
_REFUSALS = {
    401: "No token, or an unknown one.",
    403: "The token has another role, exact queries are off, or codes are shuffled.",
    408: "The body took too long.",
    413: "Too many bytes, codes or queries.",
    415: "Another content type, or a compressed body.",
    422: "The body, a header or a parameter is wrong; one sentence says which.",
    429: "Too many candidates in a minute.",
    503: "Too busy, or the log cannot be written; nothing was stored.",
}


def make_app(
    collector: Acceptor,
    tokens: Tokens | None,
    *,
    id_type: type | None = str,
    exact_queries: bool = False,
    body_seconds: float = _BODY_SECONDS,
    comparisons: Comparisons | None = None,
) -> Any:
    """A FastAPI application that answers for a collector.

    Parameters
    ----------
    collector : Acceptor
        Whose thread runs.
    tokens : Tokens or None
        None lets everybody in, who must have addressed this machine by a local name.
    id_type : str, int or None
        What the ids of the index are; None refuses ids.
    exact_queries : bool
        Accept vectors as queries, which the server then sees.
    body_seconds : float
        How long a body may take to arrive.
    comparisons : Comparisons, optional
        Answers ``POST /rerank``, which is not there without it.

    Raises
    ------
    InputError
        Without fastapi.
    """
    fastapi = import_extra("fastapi", "a collector needs fastapi and uvicorn", "serve")
    app = fastapi.FastAPI(
        title="dpindex collector", version=__version__, docs_url=None, redoc_url=None
    )
    if tokens is None:  # another name would be that of a page in somebody's browser
        hosts = import_extra("starlette.middleware.trustedhost", "", "serve").TrustedHostMiddleware
        app.add_middleware(hosts, allowed_hosts=_LOCAL_NAMES)
    answers = _Answers(collector, tokens, id_type, exact_queries, body_seconds, comparisons)
    token = fastapi.Depends(fastapi.security.HTTPBearer(auto_error=False))  # for the page alone
    for route in _routes(answers):
        app.add_api_route(
            route.path,
            _endpoint(route.answer, fastapi),
            methods=[route.method],
            summary=route.summary,
            dependencies=[token] if route.method == "POST" else [],
            **route.document,
        )
    return app


@dataclass
class _Answers:
    """Answers a request to each path with a status and what becomes JSON."""

    collector: Acceptor
    tokens: Tokens | None
    id_type: type | None
    exact_queries: bool
    body_seconds: float
    comparisons: Comparisons | None

    def __post_init__(self) -> None:
        self.searcher = self.collector.searcher
        self.spec = self.searcher.spec
        self.searches = asyncio.Semaphore(os.cpu_count() or 1)
        self.promise = self._promise()

    def _promise(self) -> dict[str, Any]:
        promise = self.spec.guarantee.statement(self.spec.dim)
        promise["query_epsilon"] = self.searcher.query_spec.epsilon
        promise["metric"] = self.searcher.metric
        if self.collector.shuffle is not None:
            shuffled = self.collector.shuffle.guarantee(self.spec)
            promise["shuffled"] = shuffled.statement(self.spec.dim)
        return promise

    async def health(self, request: Any) -> _Answer:
        if self.collector.accepts:
            return (200, {"status": "ok"})
        return (503, {"status": "read only"})

    async def stated_spec(self, request: Any) -> _Answer:
        return 200, json.loads(self.spec.to_json())

    async def guarantee(self, request: Any) -> _Answer:
        return 200, self.promise

    async def submit(self, request: Any) -> _Answer:
        _require(request, self.tokens, "submit")
        if self.searcher.is_shuffled:
            raise RefusedError(
                403, "this index is a published shuffle: a code that comes later would stand apart."
            )
        body = await _body(request, (_CODES,), r.max_body(self.spec), self.body_seconds)
        headers = request.headers
        labels = headers.get("dpindex-ids"), headers.get("idempotency-key")
        checked = await asyncio.to_thread(r.submission, body, *labels, self.spec, self.id_type)
        status, sentence = _OUTCOMES[await asyncio.wrap_future(self.collector.submit(checked))]
        return status, {"detail": sentence}

    async def search(self, request: Any) -> _Answer:
        _require(request, self.tokens, "search")
        if self.collector.shuffle is not None:
            raise RefusedError(
                403, "codes are shuffled here, and searched once they are published."
            )
        k = r.neighbours(request.query_params.get("k"))
        exact = _content_type(request) == _JSON
        if exact and not self.exact_queries:
            raise RefusedError(
                403, "exact queries are off here: privatize the query yourself and send its code."
            )
        limit = r.max_vectors_body(self.spec) if exact else r.max_body(self.spec)
        body = await _body(request, (_CODES, _JSON), limit, self.body_seconds)
        async with self.searches:
            hits = await asyncio.to_thread(self._found, body, exact, k)
        return 200, _as_json(hits)

    def _found(self, body: bytes, exact: bool, k: int) -> Hits:
        if exact:
            queries: Any = r.query_vectors(body, self.spec.dim)
        else:
            queries = r.query_codes(body, (self.spec, self.searcher.query_spec))
        if len(self.searcher) == 0:
            raise RefusedError(409, "the index is empty.")
        try:
            return self.searcher.search(queries, k=k)
        except InputError as error:  # which names rows and columns, and never a value
            raise RefusedError(422, str(error)) from None

    async def rerank(self, request: Any) -> _Answer:
        asker = _require(request, self.tokens, "rerank")
        compared = cast("Comparisons", self.comparisons)
        body = await _body(request, (_JSON,), compared.max_body, self.body_seconds)
        async with self.searches:
            similarity = await asyncio.to_thread(compared.answer, body, self.id_type or str, asker)
        return 200, {"similarity": similarity}


class _Route(NamedTuple):
    method: str
    path: str
    answer: Callable[[Any], Awaitable[_Answer]]
    summary: str
    document: dict[str, Any]


def _routes(to: _Answers) -> list[_Route]:
    routes = [
        _Route("GET", "/health", to.health, "Whether submissions are accepted", {}),
        _Route("GET", "/spec", to.stated_spec, "What devices privatize under", {}),
        _Route("GET", "/guarantee", to.guarantee, "What a code protects and what it does not", {}),
        _Route("POST", "/codes", to.submit, "Submit codes (role submit)", _SUBMIT),
        _Route(
            "POST", "/search", to.search, "The nearest neighbours of queries (role search)", _SEARCH
        ),
    ]
    if to.comparisons is not None:
        rerank = "Exact similarities of candidates (role rerank)"
        routes.append(_Route("POST", "/rerank", to.rerank, rerank, _RERANK))
    return routes


def _endpoint(answer: Callable[[Any], Awaitable[_Answer]], fastapi: Any) -> Any:
    """A function of a request as FastAPI takes it: every outcome becomes a response."""
    respond = fastapi.responses.JSONResponse

    async def endpoint(request: Any) -> Any:
        try:
            status, content = await answer(request)
            return respond(content, status)
        except RefusedError as refusal:
            status = refusal.status
            sentence = str(refusal)
        except UnavailableError:
            status = 503
            sentence = "nothing can be stored now, and nothing was; try again later."
        except Exception as error:
            # The message of an error may repeat what was sent; where it was raised does not.
            places = "".join(traceback.format_tb(error.__traceback__))
            _log.error("%s\n%s", type(error).__name__, places)
            status = 500
            sentence = "the server failed; its log says where."
        # What is left of the body is not waited for.
        headers = {"connection": "close"}
        if status == 401:
            headers["www-authenticate"] = "Bearer"
        if status in _RETRY_SECONDS:
            headers["retry-after"] = _RETRY_SECONDS[status]
        return respond({"detail": sentence}, status, headers)

    endpoint.__name__ = getattr(answer, "__name__", "endpoint")
    endpoint.__annotations__ = {"request": fastapi.Request}
    return endpoint


def _require(request: Any, tokens: Tokens | None, role: Role) -> str:
    """Return what logs call the sender; RefusedError without a token of that role."""
    if tokens is None:
        return "somebody on this machine"
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not tokens.know(token):
        raise RefusedError(401, "a valid token is needed: Authorization: Bearer TOKEN.")
    if not tokens.allow(token, role):
        raise RefusedError(403, f"this token does not have the role {role}.")
    return tokens.name(token)


def _content_type(request: Any) -> str:
    kind: str = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind


async def _body(request: Any, kinds: tuple[str, ...], limit: int, seconds: float) -> bytes:
    """The whole body, or RefusedError for too many bytes, too slow ones, and compressed ones."""
    headers = request.headers
    if _content_type(request) not in kinds:
        raise RefusedError(415, f"the content type must be {' or '.join(kinds)}.")
    if headers.get("content-encoding", "identity") != "identity":
        raise RefusedError(415, "compressed bodies are not accepted.")
    large = RefusedError(413, f"a body has at most {limit} bytes; send several.")
    declared = headers.get("content-length", "0")
    if "expect" in headers and int(declared) > limit:
        raise large  # the sender waits for this
    try:
        body = await asyncio.wait_for(_received(request, limit), seconds)
    except (TimeoutError, asyncio.TimeoutError):  # one since Python 3.11
        raise RefusedError(408, f"the body did not arrive within {seconds:g} seconds.") from None
    if body is None:
        raise large
    return body


async def _received(request: Any, limit: int) -> bytes | None:
    """The bytes of a body, None if there are too many.

    Up to a limit those are received and dropped: who still sends would not see an answer.
    """
    parts: list[bytes] = []
    size = 0
    while True:
        message = await request.receive()
        if message["type"] != "http.request":
            raise RefusedError(400, "the body ends too early.")
        part = message.get("body", b"")
        size += len(part)
        if size > limit:
            parts.clear()
        else:
            parts.append(part)
        if size > _DRAINED_BYTES or not message.get("more_body", False):
            if size <= limit:
                return b"".join(parts)
            return None


def _as_json(hits: Hits) -> dict[str, Any]:
    """The arrays of hits as lists; what is not known is null."""
    lists = {}
    for name, column in hits.columns.items():
        if name == "exact":
            continue  # a collector has no originals to rerank by
        if column.dtype.kind == "f" and not np.isfinite(column).all():
            finite = np.isfinite(column)
            column = column.astype(object)
            column[~finite] = None
        lists[name] = column.tolist()
    return lists


def _document(description: str, answers: dict[int, str]) -> dict[str, Any]:
    """Return what the OpenAPI page says of a route with a body, as FastAPI takes it."""
    texts = {**answers, **_REFUSALS}
    responses = {status: {"description": text} for status, text in texts.items()}
    return {"description": description, "responses": responses}


_SUBMIT = _document(
    f"The body is {_CODES}. Header Dpindex-Ids: a JSON list, an id for each code. Header "
    "Idempotency-Key, optional: a secret, the same when sent again.",
    dict(_OUTCOMES.values()),
)
_SEARCH = _document(
    f"The body is {_CODES}, or {_JSON} where exact queries are on. Query parameter k: neighbours "
    f"of each query, 1 to {r.MAX_K}, default 10.",
    {200: "Lists of ids, scores and estimates, one for each query."},
)
_RERANK = _document(
    f"The body is {_JSON}: a query and the ids of its candidates.",
    {200: "The similarity of each candidate, or null."},
)
