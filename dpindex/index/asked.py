"""What is asked of an index: vectors that are projected or privatized, or codes."""

from __future__ import annotations

from typing import Any, Final, Literal, NamedTuple

import numpy as np

from dpindex.base.arrays import Vectors
from dpindex.base.errors import InputError
from dpindex.index.owners import Rerank
from dpindex.index.reranking import Reranking, new_reranking
from dpindex.mechanism.codes import Codes, check_format
from dpindex.mechanism.projector import Projector
from dpindex.mechanism.spec import Spec
from dpindex.similarity.similarity import Metric, Queries

QueryMode = Literal["exact", "private"]

_BATCH_QUERIES = 128
"""Query batch size: Ctrl-C is honoured between batches, 0.2 seconds on a million sign codes."""


def checked_k(k: Any) -> int:
    """``k``; InputError unless it is a whole number of at least 1."""
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
        raise InputError(f"k must be a whole number of at least 1, not {k!r}.")
    return int(k)


_BATCH_CANDIDATES = 1 << 22
"""Candidates of a batch of queries, each of which takes about 50 bytes."""


class Batch(NamedTuple):
    """Queries that are answered together, and what orders their candidates."""

    queries: Queries
    reranking: Reranking | None


class Asked:
    """Something that is searched with queries of one spec.

    Parameters
    ----------
    spec, query_spec : Spec
        Of the codes, and of private queries.
    metric : "cosine", "ip" or "l2"
        What neighbours are ranked by.

    Raises
    ------
    InputError
        For a spec of queries that could not be asked.
    """

    def __init__(self, spec: Spec, query_spec: Spec, metric: Metric) -> None:
        self.spec: Final = spec
        self.metric: Final = metric
        self.query_spec: Final = query_spec
        self._projector = Projector(spec)
        Projector(query_spec)  # refuses now what could not be asked later

    def _batches(
        self,
        asked: Vectors | Codes,
        query: QueryMode,
        allow_unprotected: bool,
        reranking: Reranking | None = None,
    ) -> list[Batch]:
        """Return the queries, some at a time, each with what orders its candidates."""
        queries = self._queries(asked, query, allow_unprotected)
        step = _BATCH_QUERIES
        if reranking is not None:
            step = max(1, min(step, _BATCH_CANDIDATES // reranking.candidates))
        batches = []
        for first in range(0, len(queries), step):
            rows = slice(first, first + step)
            part = None if reranking is None else reranking[rows]
            batches.append(Batch(queries[rows], part))
        return batches

    def _reranking(
        self,
        asked: Vectors | Codes,
        k: int,
        candidates: int | None,
        rerank: Rerank,
    ) -> Reranking | None:
        """Return what orders the candidates of queries; None without ``rerank``."""
        clear = asked
        if rerank is not None and not isinstance(asked, Codes):
            clear = self._projector.rows(asked)
        return new_reranking(rerank, candidates, k, clear, self.metric, self.spec.scale)

    def _queries(
        self, asked: Vectors | Codes, query: QueryMode, allow_unprotected: bool
    ) -> Queries:
        """Vectors projected or privatized; codes as they are."""
        if query not in ("exact", "private"):
            raise InputError(f"query must be 'exact' or 'private', not {query!r}.")
        if isinstance(asked, Codes):
            known = {spec.fingerprint: spec for spec in (self.query_spec, self.spec)}
            if asked.fingerprint not in known:
                raise InputError("these query codes were made under another spec than this index.")
            check_format(asked, self.spec.format)
            if len(asked) == 0:
                raise InputError("there are no query codes.")
            # The spec decodes them, whatever they say of themselves.
            spec = known[asked.fingerprint]
            return Queries(spec.format.codes(asked.stored), spec, private=True)
        if query == "exact":
            return Queries(self._projector.project(asked), self.spec, private=False)
        # here: other queries need no secret stream
        from dpindex.mechanism.privatizer import Privatizer

        self.query_spec.refuse_unprotected(allow_unprotected, "send its query as a private one")
        codes = Privatizer(self.query_spec, allow_unprotected=True).privatize(asked)
        return Queries(codes, self.query_spec, private=True)
