"""The ranking of an index: a search backend that follows the store of codes."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from dpindex.base.arrays import Doubles, Rows, release_pages, spaced
from dpindex.base.threads import limited_threads
from dpindex.decode.base import Decoder, Queries
from dpindex.index.backends import SearchBackend, SymbolLists, faiss
from dpindex.index.exact_vectors import ExactVectors
from dpindex.index.faiss_signs import FaissSigns
from dpindex.index.faiss_vectors import FaissVectors
from dpindex.storage.code_store import CodeStore
from dpindex.storage.manifest import parse_index_type


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
