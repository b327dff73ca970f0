"""The client of a collector: the standard library's HTTP.

Vectors become codes where they are, with :func:`dpindex.device.privatize`, and the client sends the
codes. One method sends a query in the clear, to a holder of vectors who compares it.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from http.client import HTTPException
from typing import TYPE_CHECKING, Any, Literal
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

import numpy as np

from dpindex.base.arrays import row_blocks
from dpindex.base.checks import real_matrix
from dpindex.base.errors import InputError
from dpindex.mechanism.spec import Spec

if TYPE_CHECKING:
    from dpindex.index.hits import Hits

__all__ = ["Client"]

_MAX_ANSWER_BYTES = 1 << 26
_MAX_CANDIDATES = 1000
"""Candidates of one request to a holder."""

_LOCAL = ("127.0.0.1", "::1", "localhost")
_SUBMITTED: dict[int, Literal["stored", "repeated", "taken"]] = {
    201: "stored",
    200: "repeated",
    409: "taken",
}


class Client:
    """A collector at an address, as one of its users sees it.

    Parameters
    ----------
    url : str
        As ``dpindex serve`` prints it; ``https`` unless it is this machine, since a token must not
        travel in the clear. Redirections are not followed. A proxy of the environment
        (``https_proxy``) is a tunnel: it sees the name of the collector, and nothing that is sent.
        What is meant for this machine goes to no proxy.
    token : str, optional
        What the holder of the collector gave you.
    timeout : float
        Seconds to wait for an answer, (0, ∞).

    Raises
    ------
    InputError
        For another address.

    >>> Client("https://collector.example")
    Client('https://collector.example')
    """

    def __init__(self, url: str, token: str | None = None, *, timeout: float = 60.0) -> None:
        parts = urlsplit(url)
        local = parts.scheme == "http" and parts.hostname in _LOCAL
        is_safe = local or parts.scheme == "https"
        if not (is_safe and parts.hostname) or parts.query:
            raise InputError(
                "the address of a collector begins with https://, or http:// on this machine."
            )
        self._url = url.rstrip("/")
        self._token = token
        self._timeout = timeout
        proxies = ProxyHandler({}) if local else ProxyHandler()
        self.opener = build_opener(proxies, _NoRedirection)

    def __repr__(self) -> str:
        return f"Client({self._url!r})"

    def spec(self) -> Spec:
        """The spec to privatize under; read ``spec.guarantee`` before you do.

        A private query is made under ``spec.with_epsilon`` of ``guarantee()["query_epsilon"]``.
        """
        return Spec.from_json(self._answer("/spec"))

    def guarantee(self) -> dict[str, Any]:
        """Return what a code protects and what it does not, as plain JSON values."""
        facts: dict[str, Any] = json.loads(self._answer("/guarantee"))
        return facts

    def submit(
        self, codes: bytes, ids: Sequence[str] | Sequence[int] | None, key: str | None = None
    ) -> Literal["stored", "repeated", "taken"]:
        """Send codes to be kept; they are on the collector's disk when this returns.

        Parameters
        ----------
        codes : bytes
            From :func:`dpindex.device.privatize`.
        ids : sequence
            Strings (whole numbers for an index that has such), one for each code; None for a
            collector of a shuffle, which refuses ids.
        key : str, optional
            A secret of 16 to 128 characters; random by default. If no answer came, send the **same
            codes** under the same key again, and do not privatize again: that spends more epsilon.

        Returns
        -------
        "stored"; "repeated" if this very submission was stored before; "taken" if one of the ids
        belongs to another submission (or to this one, very long ago): nothing was stored now.

        Raises
        ------
        InputError
            If the collector refuses it, or cannot be reached.
        """
        headers = {"Idempotency-Key": key or secrets.token_urlsafe(24)}
        if ids is not None:
            headers["Dpindex-Ids"] = json.dumps(list(ids))
        status, content = self.ask("/codes", codes, headers)
        if status not in _SUBMITTED:
            raise self._refusal(status, content)
        return _SUBMITTED[status]

    def search(
        self,
        codes: bytes,
        k: int = 10,
        *,
        queries: Any = None,
        candidates: int | None = None,
        rerank: Any = None,
    ) -> Hits:
        """The k nearest neighbours of private queries, which are codes too.

        Parameters
        ----------
        codes : bytes
            From :func:`dpindex.device.privatize`, under the spec or under that of private queries.
        k : int
            Neighbours wanted, [1, 1000].
        queries : array, shape (nq, dim), optional
            The queries in the clear, which ``rerank`` compares. They are not sent to the searcher.
        candidates : int, optional
            Rows that the codes pick for each query, among which ``rerank`` finds the k nearest,
            [k, 1000]; default 1000.
        rerank : optional
            Who has the original vectors, as of :meth:`dpindex.PrivateIndex.search`: here with ids,
            or ``dpindex.Answers(holder.similarities)`` of a client of the holder.

        Raises
        ------
        InputError
            If the collector refuses it, or cannot be reached, and as the search of an index.
        """
        if rerank is None and candidates is None:
            return self._search(codes, int(k))
        # here: who only submits needs no search engine
        from dpindex.index.originals import Candidates
        from dpindex.index.reranking import new_reranking, with_exact

        spec = self.spec()
        metric = self.guarantee()["metric"]
        clear = real_matrix(queries, spec.dim, "the queries in the clear")
        if spec.ranges is not None:
            spec.ranges.check_frame(queries, "the queries in the clear")
        reranking = new_reranking(rerank, candidates, k, clear, metric, spec)
        hits = self._search(codes, reranking.candidates)
        if len(hits) != clear.shape[0]:
            raise InputError(f"there are {clear.shape[0]} queries for {len(hits)} codes.")
        nearest = reranking.nearest(slice(None), Candidates(hits.ids, None, 0), k)
        return with_exact(hits.at(nearest.places), nearest.similarity, metric)

    def similarities(self, query: Any, ids: Any) -> list[float | None]:
        """Exact similarities of candidates, by the holder of the vectors who serves this address.

        It is what ``rerank=dpindex.Answers(client.similarities)`` calls, needs a token with the
        role rerank, and tells the holder **the query in the clear**.

        Parameters
        ----------
        query : array, shape (dim,)
        ids : sequence of n ids

        Returns
        -------
        A list of n numbers, None for an id whose vector the holder does not have.

        Raises
        ------
        InputError
            If the holder refuses it, does not compare vectors, or cannot be reached.
        """
        return self._compared("/rerank", "similarity", query, ids)

    def reaches(self, query: Any, ids: Any, threshold: float) -> list[bool | None]:
        """Ask whether exact similarities reach a threshold, without learning the similarities.

        It needs a token with the role reaches. Each answer is one inequality for the coordinates of
        a vector, where a similarity is an equation; many thresholds still find the similarity.

        Parameters
        ----------
        query, ids
            As of :meth:`similarities`, and sent to the same holder.
        threshold : float
            Of cosines or inner products; under ``l2`` of minus the squared distances.

        Returns
        -------
        A list of n answers, None for an id whose vector the holder does not have.

        Raises
        ------
        InputError
            As of :meth:`similarities`.
        """
        return self._compared("/reaches", "reaches", query, ids, threshold=threshold)

    def _compared(self, path: str, name: str, query: Any, ids: Any, **more: float) -> list[Any]:
        """Return what the holder answers for each id, in as few requests as its limit allows."""
        numbers = np.asarray(query, np.float64).tolist()
        names = np.asarray(ids).tolist()
        answers: list[Any] = []
        for block in row_blocks(len(names), _MAX_CANDIDATES):
            asked = {"query": numbers, "ids": names[block], **more}
            body = json.dumps(asked).encode()
            answer = self._answer(path, body, {"Content-Type": "application/json"})
            answers += json.loads(answer)[name]
        return answers

    def _search(self, codes: bytes, k: int) -> Hits:
        from dpindex.index.hits import Estimates, Hits

        columns = json.loads(self._answer(f"/search?k={k}", codes))
        ids = np.array(columns.pop("ids"))
        unstated = columns.pop("unstated")
        numbers = {name: np.array(values, np.float64) for name, values in columns.items()}
        scores = numbers.pop("scores")
        not_exact = np.zeros(ids.shape, np.bool_)
        return Hits(ids, scores, Estimates.of(**numbers, unstated=unstated), not_exact)

    def _answer(
        self,
        path: str,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> bytes:
        """The content of a good answer; InputError, with the collector's sentence, for another."""
        status, content = self.ask(path, body, headers)
        if status != 200:
            raise self._refusal(status, content)
        return content

    def ask(
        self,
        path: str,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> tuple[int, bytes]:
        """Return status and content of an answer.

        Parameters
        ----------
        path : str
            Below the address of the collector.
        body : bytes, optional
            Sent with a POST; without one the request is a GET.
        headers : dict, optional
            Beside the type of the content and the token.

        Raises
        ------
        InputError
            If nothing answers there, and for vectors in place of codes, which are not sent.
        """
        if not isinstance(body, bytes | None):
            raise InputError(
                f"what is sent is the bytes of codes, of dpindex.device.privatize or "
                f"codes.to_bytes(), not {type(body).__name__}; nothing was sent."
            )
        all_headers = {"Content-Type": "application/octet-stream", **(headers or {})}
        request = Request(self._url + path, body, all_headers)
        if self._token is not None:
            request.add_header("Authorization", f"Bearer {self._token}")
        try:
            with self.opener.open(request, timeout=self._timeout) as answer:
                return answer.status, _read(answer)
        except HTTPError as answer:
            with answer:
                return answer.code, _read(answer)
        except (OSError, HTTPException) as error:
            why = getattr(error, "reason", None) or error
            raise InputError(f"{self._url} does not answer: {why}.") from None

    def _refusal(self, status: int, content: bytes) -> InputError:
        """The collector's own sentence, as far as it can be printed."""
        try:
            said = str(json.loads(content)["detail"])[:300]
        except (ValueError, KeyError, TypeError):
            said = "it does not say why."
        printable = "".join(filter(str.isprintable, said))
        return InputError(f"{self._url} answers {status}: {printable}")


class _NoRedirection(HTTPRedirectHandler):
    """Another address would be sent the token."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _read(answer: Any) -> bytes:
    content: bytes = answer.read(_MAX_ANSWER_BYTES + 1)
    if len(content) > _MAX_ANSWER_BYTES:
        raise InputError(f"an answer has more than {_MAX_ANSWER_BYTES} bytes, too many to be read.")
    return content
