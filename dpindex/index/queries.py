"""Queries of an index: vectors that are projected or privatized, or codes."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from dpindex.base.arrays import Vectors
from dpindex.base.errors import InputError
from dpindex.mechanism.codes import Codes, check_format
from dpindex.mechanism.spec import Projector, Spec
from dpindex.similarity.similarity import ExactQueries, PrivateQueries, Queries

__all__ = ["QueryMaker", "QueryMode", "checked_k"]

QueryMode = Literal["exact", "private"]


def checked_k(k: Any) -> int:
    """Return ``k``; InputError unless it is a whole number of at least 1."""
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
        raise InputError(f"k must be a whole number of at least 1, not {k!r}.")
    return int(k)


class QueryMaker:
    """Makes queries of vectors or codes.

    Parameters
    ----------
    spec, query_spec : Spec
        Of the codes that are searched, and of private queries.

    Raises
    ------
    InputError
        For a spec of queries that no query can be made under.

    >>> from dpindex import attribute
    >>> spec = Spec("dp-oporp-staircase", dim=6, k=2, epsilon=2.0, adjacency=attribute(1.0))
    >>> len(QueryMaker(spec, spec)(np.zeros((3, 6)), "exact"))
    3
    """

    def __init__(self, spec: Spec, query_spec: Spec) -> None:
        self.spec = spec
        self.query_spec = query_spec
        self._projector = Projector(spec)
        Projector(query_spec)  # refuses now what could not be asked later

    def vectors(self, queries: Vectors) -> Any:
        """Return queries as an array or CSR matrix, shape (nq, dim)."""
        return self._projector.rows(queries)

    def __call__(
        self, queries: Vectors | Codes, mode: QueryMode, *, allow_unprotected: bool = False
    ) -> Queries:
        """Return vectors projected or privatized, codes as they are."""
        if mode not in ("exact", "private"):
            raise InputError(f"query must be 'exact' or 'private', not {mode!r}.")
        if isinstance(queries, Codes):
            return self._of_codes(queries)
        if mode == "exact":
            return ExactQueries(self._projector.project(queries), self.spec)
        # here: other queries need no secret stream
        from dpindex.mechanism.privatizer import Privatizer

        self.query_spec.refuse_unprotected(allow_unprotected, "send its query as a private one")
        codes = Privatizer(self.query_spec, allow_unprotected=True).privatize(queries)
        return PrivateQueries(codes, self.query_spec)

    def _of_codes(self, codes: Codes) -> Queries:
        specs = {spec.fingerprint: spec for spec in (self.query_spec, self.spec)}
        if codes.fingerprint not in specs:
            raise InputError("these query codes were made under another spec than this index.")
        check_format(codes, self.spec.format)
        if len(codes) == 0:
            raise InputError("there are no query codes.")
        # The spec decodes them, whatever they say of themselves.
        spec = specs[codes.fingerprint]
        return PrivateQueries(spec.format.codes(codes.stored), spec)
