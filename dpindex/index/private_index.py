"""The index: add vectors or codes, search, read similarities with error bars, save, open."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np

from dpindex.accounting.ledger import Ledger
from dpindex.base.arrays import AnyArray, Doubles, Vectors
from dpindex.base.checks import finite_number
from dpindex.base.errors import InputError, naming
from dpindex.base.html import facts_html
from dpindex.denoise import Denoiser, Kind, fit_denoiser
from dpindex.index.asked import Asked, Batch, QueryMode, checked_k
from dpindex.index.collection import Collection
from dpindex.index.filters import Filter, kept_rows
from dpindex.index.hits import Hits, joined, no_hits
from dpindex.index.owners import Candidates, Rerank
from dpindex.index.publish import publish
from dpindex.index.ranking import new_ranking
from dpindex.index.reranking import with_exact, within
from dpindex.index.search_backend import EXACT, Rows
from dpindex.index.selection import Selection
from dpindex.mechanism.codes import Codes, check_format
from dpindex.mechanism.spec import Spec
from dpindex.similarity.float_codes import Estimate
from dpindex.similarity.learned import SAMPLE_ROWS, Learned, learned_similarity
from dpindex.similarity.posterior import in_ranking_order
from dpindex.similarity.similarity import Metric, Queries, similarity_of
from dpindex.storage.code_store import CodeStore
from dpindex.storage.databases import open_database
from dpindex.storage.directory import IndexDirectory
from dpindex.storage.fetch import fetched
from dpindex.storage.manifest import Settings
from dpindex.storage.payload import Table
from dpindex.storage.save import Checkpoint, Contents, read_index, write_index
from dpindex.vectors.dataset import Dataset, as_dataset
from dpindex.vectors.source import as_source
from dpindex.vectors.stores import is_url

if TYPE_CHECKING:  # who only searches needs no secret stream
    from dpindex.storage.release.release import Progress
    from dpindex.storage.release.workspace import Workspace

_Answer = TypeVar("_Answer")

_BLOCK_NUMBERS = 1 << 22
"""Numbers that are handled together where similarities are estimated: 32 MB."""


class PrivateIndex(Asked, Collection):
    """A searchable set of private codes, each under an id and perhaps with a payload in the clear.

    Think of it as a dictionary from ids to codes: ``id in index``, ``index[id]`` and ``len(index)``
    work, and iterating gives the ids.

    With ``query="exact"`` the query itself is used as it is, by whoever calls ``search``: call it
    on your own machine, or send a private query.

    Parameters
    ----------
    spec : Spec
        The public description of the mechanism.
    metric : "cosine", "ip" or "l2"
        What neighbours are ranked by; sign codes know cosines only.
    index_type : str
        How number codes, denoised or not, are kept for searching: a Faiss factory string such as
        "SQ8", "IVF1024,PQ32x4fs" or "ROT64,SQ4", or "f32" (Flat, exact), "f16" (SQfp16) or "int8"
        (SQ8). The codes themselves stay as they are, and so do the similarities.
    query_epsilon : float, optional
        Budget of a private query; default the spec's epsilon.

    Attributes
    ----------
    spec, metric, index_type, query_epsilon
        As given; an index keeps them for life.
    query_spec : Spec
        The spec of private queries.

    Raises
    ------
    InputError
        For a metric or an index type that the method's codes do not have.

    >>> spec = Spec(method="dp-oporp-staircase", dim=8, k=4, epsilon=20.0)
    >>> index = PrivateIndex(spec)
    >>> index.add(np.eye(8), ids=list("abcdefgh"))
    >>> hits = index.search(np.eye(8)[:2], k=3)
    >>> hits.ids.shape, len(index)
    ((2, 3), 8)
    """

    def __init__(
        self,
        spec: Spec,
        *,
        metric: Metric = "cosine",
        index_type: str = EXACT,
        query_epsilon: float | None = None,
    ) -> None:
        self._settings = Settings(spec, metric, index_type, query_epsilon)
        self.index_type: Final = index_type
        self.query_epsilon: Final = self._settings.query_epsilon
        Asked.__init__(self, spec, self._settings.query_spec, metric)
        Collection.__init__(self, spec.format)
        self._similarity = similarity_of(spec, metric)
        self._rank_with(None)
        self._checkpoint: Checkpoint | None = None
        self._unsaved: list[Workspace] = []

    @property
    def index_recall(self) -> float | None:
        """Share of the ten nearest by exact search that the index type finds.

        Measured on stored codes (denoised, where there is a denoiser) when the search structure is
        built, which this does if need be; None where every search is exact.
        """
        if self._ranking.backend.exact or len(self) == 0:
            return None
        return self._searching(lambda: self._ranking.backend.recall)

    @property
    def denoiser(self) -> Denoiser | None:
        """What :meth:`fit_denoiser` learned, or None."""
        return self._denoiser

    @property
    def path(self) -> Path | None:
        """The directory it was last opened from or saved to."""
        return None if self._checkpoint is None else self._checkpoint.directory.path

    def __repr__(self) -> str:
        place = "" if self.path is None else f", {self.path}"
        return f"<PrivateIndex: {len(self)} codes, {self.spec.method}, {self.metric}{place}>"

    def _repr_html_(self) -> str:
        """For notebooks: what it holds and promises."""
        facts = {
            "spec": self.spec,
            "guarantee": self.spec.guarantee,
            "search": f"{self.metric}, index type {self.index_type}",
            "denoiser": self.denoiser or "none",
            "payload": f"{', '.join(self.payload_columns) or 'none'} (not protected)",
            "path": self.path or "not saved",
        }
        return facts_html(f"PrivateIndex: {len(self)} codes", facts)

    def add(
        self,
        X: Vectors | Dataset,
        ids: Any | None = None,
        *,
        payload: Any = None,
        ledger: Ledger | None = None,
        allow_rerelease: bool = False,
        skip_leak_check: bool = False,
        progress: Progress | None = None,
    ) -> None:
        """Privatize vectors and add them; this spends the budget of each.

        Parameters
        ----------
        X : array, sparse matrix, DataFrame, column of lists, or Dataset, shape (n, dim)
            A dataset is read a part at a time: see :func:`dpindex.vectors.open_dataset`.
        ids : sequence of n whole numbers or strings, optional
            Unique; default the next free numbers.
        payload : mapping of names to columns, list of dicts, DataFrame or Arrow table, optional
            n rows of plain values to be shown with hits and filtered by. **It is not protected**:
            it is published in the clear, beside the codes. All rows have the same columns; rows
            that are added without a payload have nulls.
        ledger : Ledger, optional
            Where the releases are written down first. It remembers ids that were removed here, and
            ids of other indexes; it needs ``ids``. Until the index is saved the codes also lie
            beside the ledger, in ``LEDGER.unpublished``: if the process dies before, the same call
            takes them up again and spends nothing.
        allow_rerelease : bool
            Allow ids that the ledger knows, at the price of one more epsilon each.
        skip_leak_check : bool
            Accept a codebook that shares rows with ``X``: see :mod:`dpindex.storage.leak_check`.
        progress : callable, optional
            Called with the rows that are done, all rows, and "checking" or "privatizing".

        Raises
        ------
        InputError
            For bad vectors, ids or payload, ids that the ledger knows, and a codebook that holds
            private vectors; nothing is added then.
        """
        terms = (ledger, allow_rerelease, skip_leak_check)
        with self._lock.write():
            dataset = self._dataset(X)
            checked_ids = self._store.checked_ids(ids, dataset.rows)
            columns = self.check_payload(payload, dataset.rows)
            if ids is not None:
                dataset = dataset.with_labels(checked_ids)
            self._store.append(self._released(dataset, terms, progress), checked_ids, columns)

    def upsert(
        self,
        X: Vectors | Dataset,
        ids: Any,
        *,
        payload: Any = None,
        ledger: Ledger | None = None,
        allow_rerelease: bool = False,
        skip_leak_check: bool = False,
        progress: Progress | None = None,
    ) -> int:
        """Privatize vectors and put them in the place of those with the same ids, or add them.

        **Replacing is a second release**: whoever saw the first code, in a published index or a
        copy of it, has both, and the epsilons of that id add up. The old code and its payload go in
        the same step in which the new ones come, in memory and on disk (at the next save), and the
        new rows are the last.

        Parameters
        ----------
        X, payload, skip_leak_check, progress
            As for :meth:`add`.
        ids : sequence of n whole numbers or strings
            Unique; those that are in the index are replaced.
        ledger : Ledger, optional
            Where the releases are written down first.
        allow_rerelease : bool
            Needed to replace an id that is in the index, or that the ledger knows.

        Returns
        -------
        How many were replaced.

        Raises
        ------
        InputError
            As :meth:`add`, and for ids that would be released again; nothing is changed then.
        """
        if ids is None:
            raise InputError("upsert replaces by id; give every vector an id.")
        # Without a ledger the index alone says what was released before.
        terms = (ledger, allow_rerelease and ledger is not None, skip_leak_check)
        with self._lock.write():
            dataset = self._dataset(X)
            checked_ids = self._store.checked_ids(ids, dataset.rows, replace=True)
            columns = self.check_payload(payload, dataset.rows)
            replaced = self.check_rerelease(checked_ids, allow_rerelease)
            codes = self._released(dataset.with_labels(checked_ids), terms, progress)
            self._store.append(codes, checked_ids, columns, replace=True)
            return replaced

    def _dataset(self, X: Vectors | Dataset) -> Dataset:
        if isinstance(X, Dataset):
            return X
        rows = self._projector.rows(X)
        return as_dataset(as_source(rows, ""), rows.shape[0])

    def _released(
        self,
        dataset: Dataset,
        terms: tuple[Ledger | None, bool, bool],
        progress: Progress | None,
    ) -> Codes:
        """Release a dataset into memory; return its codes."""
        # Imported here: who only searches needs no secret stream.
        from dpindex.storage.release import Memory, Terms, release

        target = Memory(self.spec, self.path)
        held = release(dataset, target, Terms(*terms), progress=progress).published
        self._unsaved.append(held.workspace)
        return held.codes

    def add_codes(
        self, codes: Codes, ids: Any | None = None, *, payload: Any = None, replace: bool = False
    ) -> None:
        """Add codes that devices made under the same spec; spends nothing.

        Parameters
        ----------
        codes : Codes
        ids : sequence of whole numbers or strings, optional
            Unique; default the next free numbers.
        payload : table, optional
            One row for each code, **published in the clear**: see :meth:`add`.
        replace : bool
            Put codes in the place of those with the same ids: see :meth:`upsert`.

        Raises
        ------
        InputError
            If the codes come from another spec, or for bad ids or payload.
        """
        if not isinstance(codes, Codes):
            raise InputError("add_codes takes dpindex codes; use add for vectors.")
        if codes.fingerprint != self.spec.fingerprint:
            raise InputError("these codes were made under another spec than this index.")
        check_format(codes, self.spec.format)
        with self._lock.write():
            checked = self._store.checked_ids(ids, len(codes), replace=replace)
            columns = self.check_payload(payload, len(codes))
            self._store.append(codes, checked, columns, replace=replace)

    def fit_denoiser(self, kind: Kind = "auto") -> Denoiser:
        """Learn from the private codes how their coordinates hang together, and rank with it.

        Post-processing of what is published already: it reads codes and public parameters only and
        costs no budget. Codes and private queries are denoised, exact queries need not be; codes
        that are added later go through the same denoiser, until it is fitted again. It is saved
        with the index. ``Hits.scores`` rank denoised vectors, which are shrunken towards what is
        usual in the collection; ``similarity`` and ``stderr`` of cosines correct for that. Of
        denoised signs they are the unbiased estimates, which need not fall in that order.

        Parameters
        ----------
        kind : "auto", "linear" or "score"
            See :func:`dpindex.denoise.fit_denoiser`.

        Returns
        -------
        The denoiser; its ``kind`` and ``error`` say what was chosen and how well it predicts.

        Raises
        ------
        InputError
            If there are too few codes to learn from, or nothing stands out of the noise; the index
            stays as it was.
        """
        denoiser = fit_denoiser(self.codes, self.spec, kind)
        with self._lock.write():
            self._rank_with(denoiser)
        return denoiser

    def _rank_with(self, denoiser: Denoiser | None) -> None:
        ranking = new_ranking(self.spec, self.metric, self.index_type, denoiser)
        self._denoiser, self._ranking = denoiser, ranking
        self._learned: tuple[tuple[int, int], Learned | None] | None = None

    def search(
        self,
        Q: Vectors | Codes,
        k: int = 10,
        query: QueryMode = "exact",
        *,
        filter: Filter = None,
        candidates: int | None = None,
        rerank: Rerank = None,
        allow_unprotected: bool = False,
    ) -> Hits:
        """The k nearest neighbours of each query.

        Parameters
        ----------
        Q : array or sparse matrix, shape (nq, dim), or codes
            Queries. Codes (made under the spec, or under the query's epsilon) are private already
            and searched as they are.
        k : int
            Neighbours wanted, [1, ∞).
        query : "exact" or "private"
            "exact": the query is projected and used as it is. "private": it is privatized first,
            under ``query_epsilon``.
        filter : optional
            Rows that a hit may come from: a list of ids; a mask of one bool for each row, in the
            order of ``ids``; a function that gets each row as a dict of ``id`` and payload columns;
            or an expression over them, as text such as ``"year >= 2020 and lang == 'en'"`` or of
            ``pyarrow.compute``. With fewer than k such rows, all of them are found. See
            :func:`dpindex.index.filters.kept_rows`.
        candidates : int, optional
            Neighbours that the codes choose for each query, of which ``rerank`` finds the k
            nearest, [k, ∞); default 1000.
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
            would not be private, and originals or answers that do not fit.

        >>> index = PrivateIndex(Spec("dp-oporp-staircase", dim=8, k=8, epsilon=1.0))
        >>> index.add(np.eye(8))
        >>> hits = index.search(np.eye(8)[:2], k=1, candidates=8, rerank=np.eye(8))
        >>> hits.ids.tolist(), hits.similarity.tolist(), hits.exact.tolist()
        ([[0], [1]], [[1.0], [1.0]], [[True], [True]])
        """
        count = checked_k(k)
        reranking = self._reranking(Q, count, candidates, rerank)
        batches = self._batches(Q, query, allow_unprotected, reranking)
        if filter is None:
            parts = [self._searching(partial(self._search, [batch], count)) for batch in batches]
            return joined(parts)
        return self._searching(partial(self._search, batches, count, filter))

    def nearest(
        self,
        Q: Vectors | Codes,
        k: int = 10,
        query: QueryMode = "exact",
        *,
        allow_unprotected: bool = False,
    ) -> AnyArray:
        """Ids of the k nearest neighbours of each query, shape (nq, k), without similarities.

        The ids are those of :meth:`search`, which takes several times as long for its estimates.

        Parameters
        ----------
        Q, k, query, allow_unprotected
            As for :meth:`search`. Errors are those of ``search`` too.

        >>> index = PrivateIndex(Spec("dp-oporp-staircase", dim=8, k=8, epsilon=60.0))
        >>> index.add(np.eye(8))
        >>> index.nearest(np.eye(8)[:2], k=1).tolist()
        [[0], [1]]
        """
        count = checked_k(k)

        def ids(batch: Batch) -> AnyArray:
            _, rows = self._ranking.search(batch.queries, min(count, len(self)))
            return self._store.ids_of(rows)

        batches = self._batches(Q, query, allow_unprotected)
        return np.concatenate([self._searching(partial(ids, batch)) for batch in batches])

    def range_search(
        self,
        Q: Vectors | Codes,
        threshold: float,
        query: QueryMode = "exact",
        *,
        filter: Filter = None,
        candidates: int | None = None,
        rerank: Rerank = None,
        allow_unprotected: bool = False,
    ) -> list[Hits]:
        """Every vector whose ``similarity`` reaches ``threshold``, for each query.

        All codes are looked at, whatever the index type, and ``similarity`` alone decides, whether
        or not there is a denoiser; memory is that of a block of codes and of what is found. A
        cosine that the codes leave uncertain is stated near what is usual in the collection, so
        with much noise few reach a high threshold.

        With ``rerank`` the codes choose ``candidates``, and the exact similarities of these decide;
        those without an answer are found if their estimate reaches the threshold.

        Parameters
        ----------
        Q, query, allow_unprotected
            As for :meth:`search`.
        threshold : float
            Least ``similarity`` (for ``l2``: greatest squared distance).
        filter, candidates, rerank : optional
            As for :meth:`search`.

        Returns
        -------
        One Hits for each query, with arrays of shape (found,), best first; ``scores`` are the
        similarities (for ``l2``: minus the squared distances). Errors as ``search``.
        """
        least = finite_number(threshold, "the threshold")
        reranking = self._reranking(Q, 1, candidates, rerank)
        if reranking is not None:
            hits = self.search(
                Q,
                reranking.candidates,
                query,
                filter=filter,
                candidates=reranking.candidates,
                rerank=reranking.owner,
                allow_unprotected=allow_unprotected,
            )
            return within(hits, least, self.metric)
        found: list[Hits] = []
        for batch in self._batches(Q, query, allow_unprotected):
            with self._lock.read():
                self._refuse_empty()
                rows = None if filter is None else kept_rows(filter, self._store)
                found += self._range(batch.queries, least, rows)
        return found

    def _searching(self, action: Callable[[], _Answer]) -> _Answer:
        """Run under the read lock with a search structure that holds every row."""
        while True:
            with self._lock.read():
                self._refuse_empty()
                if self._ranking.is_synced(self._store):
                    return action()
            with self._lock.write():
                self._ranking.sync(self._store)

    def _refuse_empty(self) -> None:
        if len(self) == 0:
            raise InputError("the index is empty: add vectors before searching.")

    def _search(self, batches: list[Batch], k: int, filter_: Filter = None) -> Hits:
        ranking: Any = self._ranking
        available = len(self)
        if filter_ is not None:  # once for all batches, which then see one state of the index
            kept = kept_rows(filter_, self._store)
            available = len(kept)
            ranking = Selection(ranking, kept)
        if available == 0:
            queries = sum(len(batch.queries) for batch in batches)
            return no_hits(queries, self._store.ids_of(slice(0)), self._beside(np.arange(0)))
        return joined([self._nearest(batch, ranking, k, available) for batch in batches])

    def _nearest(self, batch: Batch, ranking: Any, k: int, available: int) -> Hits:
        """Return the k nearest of the rows that a ranking has, perhaps reranked."""
        queries, reranking = batch
        count = min(k, available)
        if reranking is None:
            scores, rows = ranking.search(queries, count)
            return self._hits(queries, scores, rows, self._ranking.backend.exact)
        scores, rows = ranking.search(queries, min(reranking.candidates, available))
        candidates = Candidates(self._store.ids_of(rows), rows, len(self))
        nearest = reranking.nearest(candidates, count)
        rows = np.take_along_axis(rows, nearest.places, axis=1)
        hits = self._hits(queries, nearest.similarity, rows, False)
        return with_exact(hits, nearest.similarity, self.metric)

    def _hits(self, queries: Queries, scores: Doubles, rows: Rows, in_order: bool) -> Hits:
        """Return the hits of rows, which stand in the order of their codes or in another."""
        posterior, unbiased = self._estimates(queries, rows)
        if in_order and self._posterior() is not None:
            posterior = in_ranking_order(*posterior)
        return Hits(
            self._store.ids_of(rows),
            scores,
            *posterior,
            *unbiased,
            exact=np.zeros(rows.shape, np.bool_),
            payload=self._beside(rows),
        )

    def _beside(self, rows: Rows) -> Table:
        """The payload of rows that were found."""
        return self._store.payload.take(rows.ravel())

    def _estimates(self, queries: Queries, rows: Rows) -> tuple[Estimate, Estimate]:
        """Posterior and unbiased similarities of rows that were found, a few at a time."""
        step = max(1, self._block_rows(1) // len(rows))
        learned = self._posterior()
        parts = []
        for start in range(0, rows.shape[1], step):
            codes = self._store.take(rows[:, start : start + step].ravel())
            unbiased = self._similarity.of_found(codes, queries)
            posterior = unbiased if learned is None else learned.of_found(codes, queries)
            parts.append((*posterior, *unbiased))
        columns = [np.concatenate(part, axis=1) for part in zip(*parts, strict=True)]
        return (columns[0], columns[1]), (columns[2], columns[3])

    def _posterior(self) -> Learned | None:
        """What gives posterior similarities, learned anew after any change; None without one."""
        state = self._store.removals, len(self)
        if self._learned is None or self._learned[0] != state:
            rows = np.linspace(0, len(self) - 1, min(len(self), SAMPLE_ROWS)).astype(np.int64)
            sample = partial(self._store.take, rows)
            terms = self.spec, self.metric, self._denoiser, sample, len(self)
            # In one step: several readers may be here.
            self._learned = state, learned_similarity(*terms)
        return self._learned[1]

    def _block_rows(self, queries: int) -> int:
        """Codes that are compared with so many queries together: an estimate takes 40 numbers."""
        return max(1, _BLOCK_NUMBERS // (self.spec.code_length + 40 * queries))

    def _range(self, queries: Queries, threshold: float, among: Rows | None) -> list[Hits]:
        sign = -1.0 if self.metric == "l2" else 1.0
        places, learned = np.arange(len(self)) if among is None else among, self._posterior()
        nothing = np.empty(0)
        parts = [(np.empty(0, np.int64), np.empty(0, np.int64), *[nothing] * 4)]
        step = self._block_rows(len(queries))
        for some in (places[first : first + step] for first in range(0, len(places), step)):
            codes = self._store.take(some)
            unbiased = self._similarity.of_all(codes, queries)
            posterior = unbiased if learned is None else learned.of_all(codes, queries)
            similarity = posterior[0]
            if np.isnan(similarity).any():
                raise InputError(
                    f"similarities of {self.spec.method} need the norm of the vectors: declare "
                    f"norm in the spec, or rank with search."
                )
            near = np.nonzero(sign * similarity >= sign * threshold)
            estimates = [part[near] for part in (*posterior, *unbiased)]
            parts.append((near[0], some[near[1]], *estimates))
        asked, rows, a, b, c, d = map(np.concatenate, zip(*parts, strict=True))
        ids, scores = self._store.ids_of(rows), sign * a
        order = np.lexsort((rows, -scores, asked))
        cuts = np.searchsorted(asked[order], np.arange(1, len(queries)))
        return [
            Hits(
                ids[i],
                scores[i],
                a[i],
                b[i],
                c[i],
                d[i],
                exact=np.zeros(len(i), np.bool_),
                payload=self._beside(rows[i]),
            )
            for i in np.split(order, cuts)
        ]

    def save(self, path: str | os.PathLike[str], *, allow_unprotected: bool = False) -> None:
        """Write the index as a directory, all or nothing.

        Saving to the directory an index was opened from brings it up to date. Codes of removed
        vectors are not in it any more. All new files are first written to a private folder beside
        it, ``NAME.unpublished``: a save that is cut off after that is finished when the index is
        next opened or saved.

        Parameters
        ----------
        path : path
            The directory; created if missing.
        allow_unprotected : bool
            Save the exact codes of a ``none-*`` baseline.

        Raises
        ------
        InputError
            If the directory belongs to something else, cannot be written, or the method protects
            nothing and ``allow_unprotected`` is false.
        """
        self.spec.refuse_unprotected(allow_unprotected, "save it")
        if is_url(path):
            raise InputError(f"an index is saved to a folder; {os.fspath(path)} is none.")

        def remember(checkpoint: Checkpoint) -> None:
            self._checkpoint = checkpoint
            self._saved()

        with self._lock.write():
            contents = Contents(self._settings, self._store, self._denoiser)
            write_index(Path(path), contents, self._checkpoint, remember)

    def _saved(self) -> None:
        """Forget what the ledger's codes need until they are saved."""
        for workspace in self._unsaved:
            workspace.end()
        self._unsaved.clear()

    def publish(
        self,
        uri: str | os.PathLike[str],
        collection: str = "dpindex",
        *,
        exact_queries: bool = True,
        allow_unprotected: bool = False,
        progress: Callable[[int, int], object] | None = None,
    ) -> None:
        """Write the index to a vector database, where :func:`dpindex.connect` finds it.

        Codes, ids, payload, spec and denoiser are published, and nothing else. It costs no budget.
        What was interrupted is gone on with by the same call.

        Parameters
        ----------
        uri : str
            As for :func:`dpindex.connect`.
        collection : str
            Its name there; new.
        exact_queries : bool
            Whether signs are kept as vectors too, 32 times as large, to rank by exact queries.
        allow_unprotected : bool
            Publish the exact codes of a ``none-*`` baseline.
        progress : callable, optional
            Called with the rows that are published, and all.

        Raises
        ------
        InputError
            If the index is empty, the collection is there, or the database refuses something.
        """
        self.spec.refuse_unprotected(allow_unprotected, "publish it")
        with (
            self._lock.read(),
            naming(f"{os.fspath(uri)}, collection {collection}"),
            closing(open_database(uri, collection, new=True)) as database,
        ):
            stated = self._settings, self._store, self._denoiser
            publish(database, *stated, exact_queries=exact_queries, progress=progress)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> PrivateIndex:
        """Open a saved index: sizes and hashes are verified before anything is parsed.

        Large segments are mapped where they lie and not copied, except on Windows. Their files must
        not be written in place while the index is in use; when they are deleted or replaced, as by
        a save after rows were removed, this index keeps what it opened.

        ``path`` may be the URL of one that was built in an object store, such as
        ``s3://bucket/index``. It is copied to a temporary folder first, and to keep changes it is
        saved to a folder.

        A save that this user began here and that was cut off is finished first, if it can be.

        Parameters
        ----------
        path : path
            The directory of the index, or its URL.

        Raises
        ------
        InputError
            If the directory is not an index, is unfinished, or was damaged or changed.
        """
        if is_url(path):
            with fetched(os.fspath(path)) as folder:
                index = cls.open(folder)
            index._checkpoint = None
            return index
        return cls._read(IndexDirectory(Path(path)))

    @classmethod
    @contextmanager
    def changing(
        cls, path: str | os.PathLike[str], waiting: Callable[[], object] = lambda: None
    ) -> Iterator[PrivateIndex]:
        """Open a saved index that no other process can change before the block ends.

        So what is added and saved in the block is saved for certain, whoever else adds at the same
        time: they wait.

        Parameters
        ----------
        waiting : callable, optional
            Called if another process changes the index now, before it is waited for.

        Raises
        ------
        InputError
            As :meth:`open`, and if the directory cannot be written.

        >>> from tempfile import TemporaryDirectory
        >>> folder = TemporaryDirectory()
        >>> path = Path(folder.name) / "index"
        >>> PrivateIndex(Spec("dp-oporp-staircase", dim=8, k=4, epsilon=20.0)).save(path)
        >>> with PrivateIndex.changing(path) as index:
        ...     index.add(np.eye(8))
        ...     index.save(path)
        >>> len(PrivateIndex.open(path))
        8
        >>> folder.cleanup()
        """
        directory = IndexDirectory(Path(path))
        directory.finished_manifest()
        with directory.held(waiting):
            yield cls._read(directory)

    @classmethod
    def _read(cls, directory: IndexDirectory) -> PrivateIndex:
        settings, segments, checkpoint = read_index(directory)
        index = cls(**vars(settings))
        index._store = CodeStore.of_segments(settings.spec.format, segments)
        index._rank_with(checkpoint.denoiser)
        index._checkpoint = checkpoint
        return index
