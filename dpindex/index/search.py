"""Search as private and published indexes share it: candidates, reranking, estimates, hits."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NamedTuple

import numpy as np

from dpindex.base.arrays import AnyArray, Doubles, Longs, Rows, Table, Vectors, row_blocks
from dpindex.base.checks import at_least_one, finite_number
from dpindex.base.errors import InputError
from dpindex.decode import Learned, decoder_of
from dpindex.decode.base import Estimate, Estimator, PrivateQueries, Queries
from dpindex.decode.calibration import SimilarityCalibration
from dpindex.decode.guided import Worth, guide_of, worth_of
from dpindex.index.filters import Filter, Lookup, Where, condition_of
from dpindex.index.hits import Estimates, Hits, sure
from dpindex.index.originals import Candidates, Rerank
from dpindex.index.reranking import Reranking, new_reranking, wanted, with_exact, within
from dpindex.mechanism.codes import Codes, check_format
from dpindex.mechanism.spec import Projector, Spec
from dpindex.storage.manifest import Settings

if TYPE_CHECKING:
    from dpindex.mechanism.privatizer import Privatizer

ESTIMATED_NUMBERS = 1 << 22
"""Numbers that are handled together where similarities are estimated: 32 MB."""

BATCH_QUERIES = 128
"""Query batch size: Ctrl-C is honoured between batches, 0.2 seconds on a million sign codes."""

BATCH_CANDIDATES = 1 << 22
"""Candidates of a batch of queries, each of which takes about 50 bytes."""


@dataclass(frozen=True)
class Found(Candidates):
    """Candidates with the scores that the codes give them.

    Attributes
    ----------
    scores : float64 array, shape (nq, R)
    """

    scores: Doubles

    @classmethod
    def joined(cls, parts: Sequence[Found]) -> Found:
        """Return what several batches of queries found as one."""
        if len(parts) == 1:
            return parts[0]
        ids = np.concatenate([part.ids for part in parts])
        scores = np.concatenate([part.scores for part in parts])
        numbered = [part.rows for part in parts if part.rows is not None]
        rows = np.concatenate(numbered) if numbered else None
        return cls(ids, rows, parts[0].total, scores)

    def first(self, query: int, count: int) -> Found:
        """Return the first columns of one line."""
        part = slice(query, query + 1), slice(count)
        return self._chosen(lambda column: column[part])

    def at(self, places: Rows) -> Found:
        """Return what stands at some columns of each line, in another order."""
        return self._chosen(lambda column: np.take_along_axis(column, places, axis=1))

    def _chosen(self, choose: Callable[[AnyArray], AnyArray]) -> Found:
        """Return what is chosen of each column."""
        rows = None
        if self.rows is not None:
            rows = choose(self.rows)
        return Found(choose(self.ids), rows, self.total, choose(self.scores))


class FoundCodes(NamedTuple):
    """Codes and payload of the rows that were found.

    Attributes
    ----------
    codes : callable
        Returns the codes of some queries in some columns, query after query.
    payload : pyarrow.Table, optional
    """

    codes: Callable[[slice, slice], Codes]
    payload: Table


class Searchable(ABC):
    """An index that is searched by vectors or codes.

    Parameters
    ----------
    settings : Settings

    Raises
    ------
    InputError
        For a spec of queries that no query can be made under.
    """

    _learned: Learned
    is_remote: ClassVar[bool] = False
    """Whether queries leave this machine, so that ``query`` has to be said."""

    def __init__(self, settings: Settings) -> None:
        self.spec: Final = settings.spec
        self.query_spec: Final = settings.query_spec
        self.metric: Final = settings.metric
        self.query_epsilon: Final = settings.query_epsilon
        self._settings = settings
        self._decoder = decoder_of(self.spec, self.metric)
        self._queries = QueryMaker(self.spec, self.query_spec, leaves=self.is_remote)

    @property
    def unstated(self) -> str:
        """Why hits state no similarity, and what helps; empty if they do."""
        return self._known_of(None).unstated

    def _state_by(
        self, calibration: SimilarityCalibration | None, rows: int, changes: int = 0
    ) -> None:
        """State similarities by what was learned before; DamagedError if it is of other codes."""
        self._learned = Learned(self._decoder, rows, lambda: calibration, changes)
        self._learned.posterior  # noqa: B018

    def _known_of(self, selection: Any) -> Learned:
        """Return what is known of the codes among which a search selects, or of all."""
        return self._learned

    def search(
        self,
        Q: Vectors | Codes,
        k: int = 10,
        query: QueryMode | None = None,
        *,
        filter: Filter = None,
        where: str | None = None,
        candidates: int | str | None = None,
        rerank: Rerank = None,
        allow_unprotected: bool = False,
    ) -> Hits:
        """The k nearest neighbours of each query.

        Ids are found now, and similarities are computed when they are read: see :class:`Hits`.

        Parameters
        ----------
        Q : array or sparse matrix, shape (nq, dim), or codes
            Queries. Codes (made under the spec, or under the query's epsilon) are private already
            and searched as they are.
        k : int
            Neighbours wanted, [1, ∞); of a published index at most what one answer of the database
            holds.
        query : "exact" or "private"
            "exact": the query is projected and used as it is. "private": it is privatized first,
            under ``query_epsilon``. Default "exact" where the index is on this machine; of a
            published index it has to be said, as the database sees the projection of an exact
            query, from which the query can be computed.
        filter : optional
            Rows that a hit may come from: a list of ids; a mask of one bool for each row, in the
            order of ``ids``; a function that gets each row as a dict of ``id`` and payload columns;
            or an expression over them, as text such as ``"year >= 2020 and lang == 'en'"`` or of
            ``pyarrow.compute``. With fewer than k such rows, all of them are found. See
            :func:`dpindex.index.filters.kept_rows`. A published index takes ids and expressions,
            which mean the same there.
        where : str, optional
            Instead of ``filter``, of a published index alone: a condition in the language of its
            database, such as SQL, which is passed on as it is. Never pass on what a stranger wrote.
        candidates : int or str, optional
            Rows that the codes pick for each query, among which ``rerank`` finds the k nearest,
            [k, ∞); default 1000. "5%" is such a share of the index on average: with a guide in its
            codebook (:func:`dpindex.fit_codebook`) queries that need more get up to twice as many,
            and others fewer; else each gets as many.
        rerank : optional
            Who has the original vectors: an array, memory map, sparse matrix, file or dataset whose
            rows stand in the order of the index; a mapping of ids to vectors, or a function from an
            array of ids to vectors; :class:`dpindex.Originals` with ids of its own; or
            :class:`dpindex.Answers`, a function from a query and ids to similarities. Queries are
            compared in the clear, also with ``query="private"``. Hits come in the order of exact
            similarities, then those without an answer in the order of the codes: see
            ``Hits.exact``.
        allow_unprotected : bool
            Allow a "private" query of a ``none-*`` baseline, which adds no noise to it.

        Raises
        ------
        InputError
            For bad queries, k < 1, a filter without meaning, an empty index, a private query that
            would not be private, originals or answers that do not fit, and exact queries of sign
            codes that were published without them.

        >>> import dpindex as dpi
        >>> terms = {"epsilon": 1.0, "adjacency": dpi.attribute(1.0)}
        >>> index = dpi.PrivateIndex(dpi.Spec("dp-oporp-staircase", dim=8, k=8, **terms))
        >>> index.add(np.eye(8))
        >>> hits = index.search(np.eye(8)[:2], k=1, candidates=8, rerank=np.eye(8))
        >>> hits.ids.tolist(), hits.similarity.tolist(), hits.exact.tolist()
        ([[0], [1]], [[1.0], [1.0]], [[True], [True]])
        """
        k = at_least_one(k, "k")
        reranking = self._reranking(Q, k, candidates, rerank)
        queries = self._queries(Q, query, allow_unprotected=allow_unprotected)
        return self._answers(queries, k, reranking, _one_filter(filter, where))

    def range_search(
        self,
        Q: Vectors | Codes,
        threshold: float,
        query: QueryMode | None = None,
        *,
        filter: Filter = None,
        where: str | None = None,
        candidates: int | str | None = None,
        rerank: Rerank = None,
        allow_unprotected: bool = False,
    ) -> list[Hits]:
        """Every vector whose ``similarity`` reaches ``threshold``, for each query.

        All codes are looked at, whatever the index type, and ``similarity`` alone decides, whether
        or not there is a denoiser, so an index learns first what it has not learned yet: see
        :class:`Hits`. Memory is that of a block of codes and of what is found. A
        cosine that the codes leave uncertain is stated near what is usual in the collection, so
        with much noise few reach a high threshold. For ``ip``, ``l2`` and designs, which state no
        similarity, ``unbiased`` decides: it lets too many through.

        With ``rerank`` the codes choose ``candidates``, and the exact similarities of these decide;
        those without an answer are found if their estimate reaches the threshold. A published index
        is searched in this way alone.

        Parameters
        ----------
        Q, query, filter, where, candidates, rerank, allow_unprotected
            As for :meth:`search`.
        threshold : float
            Least ``similarity`` (for ``l2``: greatest squared distance).

        Returns
        -------
        One Hits for each query, with arrays of shape (found,), best first; ``scores`` are the
        similarities (for ``l2``: minus the squared distances). Errors as ``search``, and if an
        index that ranks by cosines states none.
        """
        least = finite_number(threshold, "the threshold")
        reranking = self._reranking(Q, 1, candidates, rerank)
        queries = self._queries(Q, query, allow_unprotected=allow_unprotected)
        only = _one_filter(filter, where)
        if reranking is None:
            return self._in_range(queries, least, only)
        every = replace(reranking, on_average=False)
        hits = self._answers(queries, every.candidates, every, only)
        return within(hits, least, self.metric)

    @abstractmethod
    def __len__(self) -> int:
        """Number of codes."""

    @abstractmethod
    def _selected(self, filter_: Filter) -> AbstractContextManager[Any]:
        """Be ready to search, and give what selects the rows of a filter."""

    @abstractmethod
    def _find(
        self,
        queries: Queries,
        count: int,
        selection: Any,
    ) -> Found:
        """Return the first ``count`` rows by the codes, or all rows that a selection has."""

    @abstractmethod
    def _codes_of(self, found: Found, selection: Any) -> FoundCodes:
        """Return the codes and the payload of rows that were found, perhaps of none."""

    @abstractmethod
    def _in_range(
        self,
        queries: Queries,
        threshold: float,
        filter_: Filter,
    ) -> list[Hits]:
        """Return every vector whose estimate reaches the threshold."""

    def _reranking(
        self,
        queries: Vectors | Codes,
        k: int,
        candidates: int | str | None,
        rerank: Rerank,
    ) -> Reranking | None:
        """Return what orders the candidates of queries; None if there are none."""
        if rerank is None and candidates is None:
            return None
        if not isinstance(queries, Codes):
            queries = self._queries.projector.rows(queries)
        rows = len(self)
        return new_reranking(rerank, candidates, k, queries, self.metric, self.spec, rows)

    def to_lookup(
        self,
        Q: Vectors | Codes,
        query: QueryMode | None = None,
        *,
        candidates: int | str | None = None,
        filter: Filter = None,
        allow_unprotected: bool = False,
    ) -> Lookup:
        """Scores of symbols for one query: joined with a table of codes, they find its candidates.

        Parameters
        ----------
        Q : array or sparse matrix, shape (1, dim), or one code
        candidates : int or str, optional
            As for :meth:`search`, without anyone who orders them.
        filter : str or expression of pyarrow, optional
            Rows that a candidate may be, as for :meth:`search`.
        query, allow_unprotected
            As for :meth:`search`.

        Raises
        ------
        InputError
            For several queries, for codes that are not symbols, and as :meth:`search`.

        >>> import dpindex as dpi
        >>> spec = dpi.Spec("record-codebook", dim=4, epsilon=60.0, adjacency=dpi.record(),
        ...     codebook=dpi.Codebook(np.eye(4)))
        >>> index = dpi.PrivateIndex(spec)
        >>> index.add(np.eye(4)[[0, 1, 1, 2]] + 0.1)
        >>> lookup = index.to_lookup(np.array([[0.1, 1, 0.5, 0]]), candidates=3)
        >>> lookup.codes.tolist(), lookup.count
        ([1, 2], 3)
        """
        if not self._decoder.by_symbol:
            raise InputError(
                f"a look-up needs codes that are symbols, and those of {self.spec.method} are not; "
                f"use search."
            )
        queries = self._queries(Q, query, allow_unprotected=allow_unprotected)
        if len(queries) != 1:
            raise InputError(f"a look-up is of one query, not of {len(queries)}.")
        condition = None
        if filter is not None:
            condition = condition_of(filter, self._column_types)
            if condition is None:
                raise InputError("a look-up is filtered by an expression, such as 'year >= 2020'.")
        counts = self._symbol_counts()
        (scores,) = self._decoder.query_items(queries).astype(np.float64)
        if counts is None:
            count = wanted(candidates, 1, len(self))
            return Lookup(*_best_first(scores), count, condition)
        count = wanted(candidates, 1, int(counts.sum()))
        worth = None
        if isinstance(candidates, str):
            worth = self._worth(queries, count)
        if worth is not None:
            (scores,) = worth.scores
        codes, best = _best_first(np.where(counts > 0, scores, -np.inf))
        needed = int(np.count_nonzero(counts))
        if worth is not None:
            count = worth.most
            needed = worth.taken(best)
        if condition is None:
            so_far = np.cumsum(counts[codes])
            needed = min(needed, 1 + int(np.searchsorted(so_far, count)))
        return Lookup(codes[:needed], best[:needed], count, condition)

    @property
    @abstractmethod
    def _column_types(self) -> Mapping[str, Any]:
        """Arrow types of ``id`` and the payload columns."""

    @abstractmethod
    def _symbol_counts(self) -> Longs | None:
        """Return how many codes each symbol has, shape (K,); None where that is not known."""

    def _worth(self, queries: Queries, count: int) -> Worth | None:
        """Return what cells are worth to queries; None where all take as many candidates."""
        if guide_of(self.spec) is None:
            return None
        counts = self._symbol_counts()
        if counts is None:
            return None
        return worth_of(self.spec, queries, counts, count)

    def _answers(
        self, queries: Queries, k: int, reranking: Reranking | None, filter_: Filter
    ) -> Hits:
        """Return the k nearest of the rows that a filter selects, perhaps reranked."""
        count = k
        worth = None
        if reranking is not None:
            count = reranking.candidates
            if reranking.on_average:
                worth = self._worth(queries, count)
        asked = queries
        if worth is not None:
            asked = replace(queries, worth=worth.scores)
            count = worth.most
        parts = []
        exact = []
        with self._selected(filter_) as selection:
            for block in row_blocks(len(queries), min(BATCH_QUERIES, BATCH_CANDIDATES // count)):
                every = self._find(asked[block], count, selection)
                portions: Iterable[tuple[slice, Found]] = [(block, every)]
                if worth is not None:
                    portions = _portions(block, every, worth, k)
                for some, found in portions:
                    if reranking is not None:
                        nearest = reranking.nearest(some, found, k)
                        found = found.at(nearest.places)
                        exact.append(nearest.similarity)
                    parts.append(found)
            hits = self._hits(queries, Found.joined(parts), selection)
        if reranking is None:
            return hits
        return with_exact(hits, np.concatenate(exact), self.metric)

    def _hits(self, queries: Queries, found: Found, selection: Any) -> Hits:
        codes, payload = self._codes_of(found, selection)
        width = found.ids.shape[1]
        estimated = partial(self._estimated, queries, width, codes)
        learned = self._known_of(selection)  # now: the index may change before hits are read

        def posterior() -> Estimate | None:
            estimator = learned.posterior
            if estimator is None:
                return None
            return sure(estimated(estimator))

        estimates = Estimates(
            partial(estimated, self._decoder), posterior, lambda: learned.unstated
        )
        exact = np.zeros(found.ids.shape, np.bool_)
        return Hits(found.ids, found.scores, estimates, exact, payload)

    def _estimated(
        self,
        queries: Queries,
        width: int,
        codes: Callable[[slice, slice], Codes],
        estimator: Estimator,
    ) -> Estimate:
        """Compare queries with the codes that were found for them, a block at a time."""
        values = np.empty((len(queries), width))
        errors = np.empty((len(queries), width))
        for block in row_blocks(len(queries), BATCH_QUERIES):
            batch = queries[block]
            size = self._block_rows(1) // len(batch)
            for columns in row_blocks(width, size):
                found = codes(block, columns)
                estimate = estimator.estimates(found, batch, len(batch))
                values[block, columns], errors[block, columns] = estimate
        return values, errors

    def _block_rows(self, queries: int) -> int:
        """Codes compared with ``queries`` queries at once: an estimate takes 40 numbers."""
        return max(1, ESTIMATED_NUMBERS // (self.spec.code_length + 40 * queries))

    def _check_codes(self, codes: Codes) -> None:
        """Raise InputError unless these are codes of the index's own spec."""
        if not isinstance(codes, Codes):
            raise InputError("add_codes takes dpindex codes; use add for vectors.")
        _spec_of(codes, [self.spec])


def _one_filter(filter_: Filter, where: str | None) -> Filter:
    """Return a filter, or a condition in the language of a database; InputError for both."""
    if where is None:
        return filter_
    if filter_ is not None:
        raise InputError("give a filter or where, not both.", field="where")
    return Where(where)


def _portions(block: slice, found: Found, worth: Worth, k: int) -> Iterator[tuple[slice, Found]]:
    """Yield queries of a block with what they take of what was found; at least k each."""
    for place, scores in enumerate(found.scores):
        query = block.start + place
        yield slice(query, query + 1), found.first(place, max(k, worth.taken(scores)))


def _best_first(scores: Doubles) -> tuple[Longs, Doubles]:
    """Return all symbols and their scores, the highest first."""
    order = np.argsort(-scores, kind="stable")
    return order, scores[order]


def _spec_of(codes: Codes, specs: Sequence[Spec]) -> Spec:
    """Return under which of the specs codes were made; InputError for another one."""
    for spec in specs:
        if codes.fingerprint == spec.fingerprint:
            check_format(codes, spec.format)
            return spec
    raise InputError("these codes were made under another spec than this index.")


QueryMode = Literal["exact", "private"]


class QueryMaker:
    """Makes queries of vectors or codes: nothing else decides whether a query is used as it is.

    Parameters
    ----------
    spec, query_spec : Spec
        Of the codes that are searched, and of private queries.
    leaves : bool
        Whether queries leave this machine. Then the caller says whether they are exact: whoever has
        an exact query's projection can compute the query.

    Raises
    ------
    InputError
        For a spec of queries that no query can be made under.

    >>> from dpindex import attribute
    >>> spec = Spec("dp-oporp-staircase", dim=6, k=2, epsilon=2.0, adjacency=attribute(1.0))
    >>> len(QueryMaker(spec, spec)(np.zeros((3, 6)), "exact"))
    3
    """

    def __init__(
        self,
        spec: Spec,
        query_spec: Spec,
        *,
        leaves: bool = False,
    ) -> None:
        self.spec = spec
        self.query_spec = query_spec
        self._leaves = leaves
        self.projector = Projector(spec)
        self._decoder = decoder_of(spec)
        Projector(query_spec)  # refuses now what no query could be made under later

    def __call__(
        self,
        queries: Vectors | Codes,
        mode: QueryMode | None,
        *,
        allow_unprotected: bool = False,
    ) -> Queries:
        """Return vectors projected or privatized, codes as they are.

        Parameters
        ----------
        queries : array, sparse matrix or Codes
        mode : "exact" or "private", optional
            Default "exact" on this machine.
        allow_unprotected : bool
            Allow a "private" query without noise.

        Raises
        ------
        InputError
            For another mode, and for a query that would leave without a word.
        """
        if mode not in (None, "exact", "private"):
            raise InputError(f"query must be 'exact' or 'private', not {mode!r}.")
        if isinstance(queries, Codes):
            return self._of_codes(queries)
        if mode is None and self._leaves:
            raise InputError(
                "queries leave this machine: say query='private', or 'exact' where whoever is "
                "asked may know them.",
                field="query",
            )
        if mode == "private":
            self.query_spec.refuse_unprotected(allow_unprotected, "send its query as a private one")
            return PrivateQueries(self._privatizer.privatize(queries), self.query_spec)
        return self._decoder.exact_queries(self.projector, queries)

    @cached_property
    def _privatizer(self) -> Privatizer:
        # here: other queries need no secret stream
        from dpindex.mechanism.privatizer import Privatizer

        return Privatizer(self.query_spec, allow_unprotected=True)

    def _of_codes(self, codes: Codes) -> Queries:
        spec = _spec_of(codes, [self.query_spec, self.spec])
        if len(codes) == 0:
            raise InputError("there are no query codes.")
        # The spec decodes them, whatever they say of themselves.
        return PrivateQueries(spec.format.codes(codes.stored), spec)
