"""Search of a store of codes: a search backend that follows it, some of its rows, or all."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property, partial
from typing import Any, Final, NamedTuple

import numpy as np

from dpindex.base.arrays import (
    Doubles,
    Longs,
    Rows,
    best_of,
    release_pages,
    row_blocks,
    spaced,
    unfilled,
)
from dpindex.base.errors import InputError
from dpindex.base.threads import limited_threads
from dpindex.decode import LEAST_ROWS, Learned, decoder_of, learned
from dpindex.decode.base import Decoder, Queries
from dpindex.decode.denoiser import Denoiser
from dpindex.index.backends import SearchBackend, SymbolLists, faiss
from dpindex.index.exact_vectors import ExactVectors
from dpindex.index.faiss_signs import FaissSigns
from dpindex.index.faiss_vectors import FaissVectors
from dpindex.index.filters import Filter, column_types_of, kept_rows
from dpindex.index.hits import TOO_NOISY, Estimates, Hits, not_stated, sure
from dpindex.index.reranking import direction
from dpindex.index.search import BATCH_QUERIES, Found, FoundCodes, Searchable
from dpindex.mechanism.codes import Codes
from dpindex.storage.code_store import CodeStore
from dpindex.storage.manifest import Settings, parse_index_type


def vector_backend(width: int, metric: str, index_type: str) -> SearchBackend:
    """Return what ranks vectors of an index type."""
    is_exact = parse_index_type(index_type, width).exact
    kind = ExactVectors if is_exact else FaissVectors
    return kind(width, metric, index_type)


BACKENDS: dict[str, Callable[[int, str, str], SearchBackend]] = {
    "vectors": vector_backend,
    "signs": FaissSigns,
    "symbols": SymbolLists,
}
"""What ranks the items of a decoder, by its ``ranked_as``."""

_MANY_ROWS = 1000
_LITTLE_WORK = 1 << 26
"""Coordinates that one thread compares in about ten milliseconds."""


@contextmanager
def few_threads(coordinates: int) -> Iterator[None]:
    """Let Faiss search in the calling thread where little is compared.

    Beside a busy process a second thread comes up to a hundred times later than the first is done.
    Other threads that search keep their own settings.
    """
    before = faiss().omp_get_max_threads()
    if coordinates > _LITTLE_WORK or before == 1:
        yield
        return
    faiss().omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss().omp_set_num_threads(before)


class Door:
    """Lets searches in, in the order in which they came.

    The search at the door may change what is inside, alone. It waits only for those that came
    before it and for searches that run, and none of them waits for it: so each gets in, as each
    search ends.

    >>> door, rows = Door(), [1]
    >>> with door.passed(lambda: len(rows) == 2, lambda: rows.append(2)):
    ...     print(rows)
    [1, 2]
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._queue: deque[object] = deque()
        self._inside = 0

    # Ctrl-C may strike at any call, so what was taken is given back in ``finally``.

    @contextmanager
    def passed(self, is_ready: Callable[[], bool], prepare: Callable[[], object]) -> Iterator[None]:
        """Wait until it is one's turn, ``prepare`` alone unless all ``is_ready``, and be inside."""
        me = object()
        is_inside = False
        try:
            with self._changed:
                self._queue.append(me)
                while self._queue[0] is not me:
                    self._changed.wait()
            if not is_ready():
                with self._changed:
                    while self._inside:
                        self._changed.wait()
                prepare()
            with self._changed:
                self._inside += 1
                is_inside = True
                self._queue.remove(me)
                self._changed.notify_all()
            yield
        finally:
            with self._changed:
                self._inside -= is_inside
                if me in self._queue:
                    self._queue.remove(me)
                self._changed.notify_all()


class Ranking:
    """What ranks the codes of an index: the items of a decoder, in a backend.

    Parameters
    ----------
    decoder : Decoder
        Of the codes of the index.
    index_type : str
        How the backend keeps items.
    """

    def __init__(self, decoder: Decoder, index_type: str) -> None:
        self.decoder = decoder
        new_backend = BACKENDS[decoder.ranked_as]
        self.backend = new_backend(decoder.width, decoder.ranked_by, index_type)
        self.rows = 0
        self._removals: int | None = None
        self._door = Door()

    def __len__(self) -> int:
        return self.rows

    @contextmanager
    def following(self, latest: Callable[[], CodeStore]) -> Iterator[CodeStore]:
        """Give the rows that this ranking holds, which are the latest at the door.

        Several searches run in such blocks together. Before one of them begins, rows that are new
        are added: nobody who adds rows to the index takes part, so nobody waits for that.
        """
        store: CodeStore

        def is_ready() -> bool:
            nonlocal store
            store = latest()
            return (self._removals, self.rows) == (store.removals, store.ids.count)

        # No writer changes a store: later rows wait for the next search.
        with self._door.passed(is_ready, lambda: self.sync(store)):
            yield store

    def sync(self, store: CodeStore) -> None:
        """Bring the backend up to date; after Ctrl-C the next call goes on where it ended."""
        threads: AbstractContextManager[None] = nullcontext()
        begins = self._removals != store.removals or self.backend.needs_retraining(len(store))
        new_rows = len(store)
        if not begins:
            new_rows -= self.rows
        # To look for the pools of threads takes a millisecond.
        if self.decoder.uses_processors and new_rows >= _MANY_ROWS:
            threads = limited_threads(1)
        with threads:
            self._sync(store, begins)

    def _sync(self, store: CodeStore, begins: bool) -> None:
        backend = self.backend
        if begins:
            self._removals = None
            self.rows = 0
            sample = store.take(spaced(len(store), backend.sample_rows))
            backend.begin(self.decoder.items(sample), len(store))
            self._removals = store.removals
        for codes in store.blocks(len(backend), backend.block_rows):
            backend.add(self.decoder.items(codes))
            release_pages(codes.stored)
        backend.finish()
        self.rows = len(store)

    def search(
        self,
        queries: Queries,
        count: int,
        subset: SearchBackend | None = None,
    ) -> tuple[Doubles, Rows]:
        """Scores and rows of the best ``count`` for each query, best first, shape (nq, count).

        With a ``subset`` of the backend, of its items alone.
        """
        backend = self.backend if subset is None else subset
        wanted = self.decoder.query_items(queries)
        with few_threads(len(backend) * wanted.size):
            return backend.search(wanted, count)


FEW = 8
_SPARE = 16


class Selection:
    """Some rows of a ranking that holds every row, for the batches of queries of one search.

    Less than an eighth of all rows are searched by themselves, exactly, whatever the index type. Of
    more, twice the expected number of neighbours is found and the others are left out; queries for
    which too few remain are searched again among the rows alone.

    Parameters
    ----------
    ranking : Ranking
    rows : int64 array, shape (m,)
        Ascending.
    """

    def __init__(self, ranking: Ranking, rows: Rows) -> None:
        self._ranking = ranking
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def search(self, queries: Queries, count: int) -> tuple[Doubles, Rows]:
        """Return scores and rows of the best ``count`` ≤ m, m ≥ 1, for each query, best first."""
        total = len(self._ranking.backend)
        candidates = 2 * count * total // len(self._rows) + _SPARE
        if len(self._rows) * FEW < total or candidates >= total:
            return self._search_alone(queries, count)
        scores, rows = self._ranking.search(queries, candidates)
        is_kept = np.isin(rows, self._rows, kind="table")
        kept_first = np.argsort(~is_kept, axis=1, kind="stable")
        first = kept_first[:, :count]
        scores = np.take_along_axis(scores, first, axis=1)
        rows = np.take_along_axis(rows, first, axis=1)
        short = np.flatnonzero(is_kept.sum(axis=1) < count)
        if short.size:
            short_scores, short_rows = self._search_alone(queries[short], count)
            scores[short] = short_scores
            rows[short] = short_rows
        return scores, rows

    def _search_alone(self, queries: Queries, count: int) -> tuple[Doubles, Rows]:
        """Search the rows by themselves, exactly."""
        backend = self._ranking.backend
        if len(self._rows) <= backend.max_subset:
            # In the order of the backend, also among equals.
            scores, places = self._ranking.search(queries, count, self._subset)
            return scores, self._rows[places]
        scores, rows = unfilled(len(queries))
        for part in row_blocks(len(self._rows), backend.max_subset):  # as fits into memory
            block = self._rows[part]
            depth = min(count, len(block))
            near, places = self._ranking.search(queries, depth, backend.subset(block))
            scores, rows = best_of([(scores, rows), (near, block[places])], count)
        return scores, rows

    @cached_property
    def _subset(self) -> SearchBackend:
        """A backend of all the rows, made once for all batches."""
        return self._ranking.backend.subset(self._rows)


class Ready(NamedTuple):
    """What one search reads: rows as they were at one moment.

    Attributes
    ----------
    store : CodeStore
        Nothing is added to it.
    ranking : Ranking or Selection
        Holds every row of it, or those of a filter.
    """

    store: CodeStore
    ranking: Ranking | Selection


class SearchableStore(Searchable):
    """Codes of a store that are searched on this machine, and what is learned from them.

    Parameters
    ----------
    settings : Settings
    store : CodeStore
    """

    def __init__(self, settings: Settings, store: CodeStore) -> None:
        super().__init__(settings)
        self.index_type: Final = settings.index_type
        # A store is never changed: who changes the index puts another in its place, in one step,
        # so that readers see all of a change or nothing.
        self._store = store
        self._choosing = threading.Lock()  # for assignments alone: no search waits for a writer
        self._set_denoiser(None)

    def __len__(self) -> int:
        return len(self._store)

    @property
    def index_recall(self) -> float | None:
        """Share of the ten nearest by exact search that the index type finds.

        Measured on stored codes (denoised, where there is a denoiser) when the search structure is
        built, which this does if need be; None where every search is exact.
        """
        if self._ranking.backend.exact or len(self) == 0:
            return None
        with self._selected(None):
            return self._ranking.backend.recall

    def _set_denoiser(self, denoiser: Denoiser | None) -> None:
        exact = self._settings.structure().exact
        decoder = decoder_of(self.spec, self.metric, denoiser, exact=exact)
        ranking = Ranking(decoder, self.index_type)
        with self._choosing:
            self._denoiser = denoiser
            self._decoder = decoder
            self._ranking = ranking
            self._learned = self._to_learn(self._store)

    def _known_of(self, selection: Ready | None) -> Learned:
        store = self._store if selection is None else selection.store
        with self._choosing:
            self._learned = self._known_now(store)
            return self._learned

    def _known_now(self, store: CodeStore) -> Learned:
        """Return what was learned of codes, or a new task if too many rows of a store changed."""
        known = self._learned
        changed = store.changes - known.changes
        # Half as many rows as it was learned from may have changed.
        if changed <= 0 or LEAST_ROWS <= known.rows >= 2 * changed:
            return known
        return self._to_learn(store)

    def _to_learn(self, store: CodeStore) -> Learned:
        """Return a task that learns of the codes of a store when it is first read."""
        rows = len(store)
        learn = partial(learned, self._decoder, store.take, rows)
        return Learned(self._decoder, rows, learn, store.changes)

    @contextmanager
    def _selected(self, filter_: Filter) -> Iterator[Ready]:
        """Give the rows of now, and a search structure that has them; no writer is waited for."""
        ranking = self._ranking
        with ranking.following(self._rows_of_now) as store:
            if filter_ is None:
                yield Ready(store, ranking)
            else:
                rows = kept_rows(filter_, store)
                yield Ready(store, Selection(ranking, rows))

    def _rows_of_now(self) -> CodeStore:
        """The rows to search; InputError if there are none."""
        store = self._store
        if store.ids.count == 0:
            raise InputError("the index is empty: add vectors before searching.")
        return store

    def _find(
        self,
        queries: Queries,
        count: int,
        selection: Ready,
    ) -> Found:
        store, ranking = selection
        available = min(count, len(ranking))
        if available:
            scores, rows = ranking.search(queries, available)
        else:
            scores, rows = unfilled(len(queries))
        ids = store.ids.take(rows)
        return Found(ids, rows, store.ids.count, scores)

    def _codes_of(self, found: Found, selection: Ready) -> FoundCodes:
        rows = np.asarray(found.rows)
        store = selection.store  # of now: later rows may have other numbers

        def codes(queries: slice, columns: slice) -> Codes:
            return store.take(rows[queries, columns].ravel())

        return FoundCodes(codes, store.payload_of(rows.ravel()))

    @property
    def _column_types(self) -> Mapping[str, Any]:
        return column_types_of(self._store)

    def _symbol_counts(self) -> Longs | None:
        counts = np.zeros(len(self.spec.codewords), dtype=np.int64)
        for codes in self._rows_of_now().blocks():
            counts += np.bincount(codes.stored[:, 0], minlength=len(counts))
        return counts

    def _in_range(
        self,
        queries: Queries,
        threshold: float,
        filter_: Filter,
    ) -> list[Hits]:
        store = self._rows_of_now()
        learned = self._known_of(Ready(store, self._ranking))
        if learned.posterior is None and self._decoder.stated_by is not None:
            raise InputError(learned.unstated)
        rows = np.arange(len(store))
        if filter_ is not None:
            rows = kept_rows(filter_, store)
        hits: list[Hits] = []
        for block in row_blocks(len(queries), BATCH_QUERIES):
            hits += self._reached(queries[block], threshold, store, rows, learned)
        return hits

    def _reached(
        self,
        queries: Queries,
        threshold: float,
        store: CodeStore,
        rows: Rows,
        learned: Learned,
    ) -> list[Hits]:
        """Return hits of each query among rows of a store; memory is that of a block of them."""
        sign = direction(self.metric)
        parts = []
        reason = learned.unstated
        for part in row_blocks(max(1, len(rows)), self._block_rows(2 * len(queries))):
            block = rows[part]
            codes = store.take(block)
            estimate = self._decoder.estimates(codes, queries, 1)
            if learned.posterior is None:
                posterior = not_stated(estimate)
                compared = estimate[0]
            else:
                posterior = sure(learned.posterior.estimates(codes, queries, 1), each=True)
                compared = posterior[0]
                if np.isnan(compared).any():
                    reason = TOO_NOISY
            places = np.nonzero(sign * compared >= sign * threshold)
            query, column = places
            reached = [values[places] for values in (*posterior, *estimate)]
            parts.append((query, block[column], *reached))
        query, near, *estimates = map(np.concatenate, zip(*parts, strict=True))
        similarity, stderr, unbiased, unbiased_stderr = estimates
        scores = sign * (unbiased if learned.posterior is None else similarity)
        every = Hits(
            store.ids.take(near),
            scores,
            Estimates.of(similarity, stderr, unbiased, unbiased_stderr, reason),
            np.zeros(len(near), np.bool_),
            store.payload_of(near),
        )
        order = np.lexsort((near, -scores, query))
        cuts = np.searchsorted(query[order], np.arange(1, len(queries)))
        return [every.take(places) for places in np.split(order, cuts)]
