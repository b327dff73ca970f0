"""The route of a holder of original vectors: exact similarities of candidates, a bounded number.

Every answer tells the asker about vectors what no epsilon bounds, so the route is off unless the
holder names the vectors, has a role of its own, and counts what each token asks.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from threading import Lock

import numpy as np

from dpindex.base.arrays import AnyArray, Doubles
from dpindex.index.owners import Candidates, Owner
from dpindex.mechanism.spec import Spec
from dpindex.serve.requests import RefusedError
from dpindex.similarity.similarity import Metric

__all__ = ["MAX_CANDIDATES", "PER_MINUTE", "Comparisons"]

MAX_CANDIDATES = 1000
"""Candidates of one request."""

PER_MINUTE = 60_000
"""Candidates that one token may ask about in a minute, where no other number is named."""

_ID_BYTES = 1 << 10
_NUMBER_BYTES = 32
_log = logging.getLogger(__name__)


class Comparisons:
    """Compares a query with the original vectors of candidates, for whoever may ask.

    Parameters
    ----------
    owner : Owner
        Who has the vectors.
    spec : Spec
    metric : "cosine", "ip" or "l2"
        Of the index.
    per_minute : int
        Candidates that one token may ask about in a minute, [1, ∞).
    clock : callable
        Returns seconds.

    >>> import dpindex as dpi
    >>> spec = Spec("dp-oporp-staircase", dim=2, k=2, epsilon=2.0)
    >>> comparisons = Comparisons(dpi.Originals(np.eye(2), ids=["a", "b"]), spec, "cosine")
    >>> comparisons.answer(b'{"query": [3, 4], "ids": ["b", "nobody"]}', str, "who asks")
    [0.8, None]
    """

    def __init__(
        self,
        owner: Owner,
        spec: Spec,
        metric: Metric,
        *,
        per_minute: int = PER_MINUTE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._owner = owner
        self._dim = spec.dim
        self._metric = metric
        self._per_minute = per_minute
        self._clock = clock
        self._lock = Lock()
        self._asked: dict[str, tuple[float, float]] = {}

    @property
    def max_body(self) -> int:
        """Bytes that a request may have."""
        return _NUMBER_BYTES * self._dim + _ID_BYTES * MAX_CANDIDATES

    def answer(self, body: bytes, id_type: type, asker: str) -> list[float | None]:
        """Return the similarity of each candidate, None for an id without a vector.

        Parameters
        ----------
        body : bytes
            JSON: ``{"query": […], "ids": […]}``.
        id_type : str or int
        asker : str
            Whose requests are counted together, and what the log calls them.

        Raises
        ------
        RefusedError
            For another body, too many candidates, and too many in a minute.
        """
        query, ids = self._request(body, id_type)
        self._count(asker, len(ids))
        candidates = Candidates(ids[None], None, 0)
        (similarity,) = self._owner.similarities(query[None], candidates, self._metric)
        answered = int(np.isfinite(similarity).sum())
        # No id, no number of the query and no similarity is logged.
        _log.info("%s asked about %d candidates; %d answered", asker, len(ids), answered)
        return [value if np.isfinite(value) else None for value in similarity.tolist()]

    def _request(self, body: bytes, id_type: type) -> tuple[Doubles, AnyArray]:
        kind = "strings" if id_type is str else "whole numbers"
        wrong = RefusedError(
            422,
            f'the body must be JSON: {{"query": […], "ids": […]}}, {self._dim} finite numbers and '
            f"a list of {kind}.",
        )
        try:
            fields = json.loads(body)
            numbers = fields["query"]
            ids = fields["ids"]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise wrong from None
        if not isinstance(numbers, list) or not isinstance(ids, list) or len(fields) != 2:
            raise wrong
        if not all(type(number) in (int, float) for number in numbers):
            raise wrong
        if not all(type(one) is id_type for one in ids):
            raise wrong
        if len(ids) > MAX_CANDIDATES:
            raise RefusedError(
                413, f"one request has at most {MAX_CANDIDATES} candidates; send several."
            )
        try:
            query = np.array(numbers, np.float64)
            names: AnyArray = np.array(ids, np.str_ if id_type is str else np.int64)
        except OverflowError:
            raise wrong from None
        if not len(names) or query.shape != (self._dim,) or not np.isfinite(query).all():
            raise wrong
        return query, names

    def _count(self, asker: str, candidates: int) -> None:
        """Raise RefusedError if an asker has used up the minute."""
        with self._lock:
            now = self._clock()
            used, last = self._asked.get(asker, (0.0, now))
            used = max(0.0, used - (now - last) * self._per_minute / 60)
            if used + candidates > self._per_minute:
                raise RefusedError(
                    429, f"at most {self._per_minute} candidates are compared in a minute."
                )
            self._asked[asker] = used + candidates, now
