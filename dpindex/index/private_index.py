"""The index: add vectors or codes, search, read similarities with error bars, save, open."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import numpy as np

from dpindex.arrays import AnyArray, Vectors
from dpindex.checks import finite_number
from dpindex.codes import Codes, check_format
from dpindex.errors import InputError
from dpindex.estimators.denoise import Denoiser, Kind, fit_denoiser
from dpindex.estimators.float_codes import Estimate
from dpindex.estimators.observation import SAMPLE_ROWS, LearnedSimilarity, can_learn
from dpindex.estimators.similarity import Metric, Queries, similarity_of
from dpindex.index.code_store import CodeStore
from dpindex.index.directory import Checkpoint, Settings, read_index, write_index
from dpindex.index.hits import Hits
from dpindex.index.leak_check import refuse_shared_rows
from dpindex.index.locks import ReadWriteLock
from dpindex.index.ranking import new_ranking
from dpindex.index.search_backend import EXACT, Rows
from dpindex.ledger import Ledger
from dpindex.projector import Projector
from dpindex.spec import Spec

QueryMode = Literal["exact", "private"]
_Answer = TypeVar("_Answer")

_BATCH_QUERIES = 64
"""Query batch size: Ctrl-C is honoured between batches, a tenth of a second on a million codes."""

_BLOCK_NUMBERS = 1 << 22
"""Numbers that are handled together where similarities are estimated: 32 MB."""


class PrivateIndex:
    """A searchable set of private codes, each under an id.

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
        self.spec: Final = spec
        self.metric: Final = metric
        self.index_type: Final = index_type
        self.query_epsilon: Final = self._settings.query_epsilon
        self.query_spec: Final = self._settings.query_spec
        self._projector = Projector(spec)
        Projector(self.query_spec)  # refuses now what could not be asked later
        self._store = CodeStore(spec.format)
        self._similarity = similarity_of(spec, metric)
        self._learned: tuple[tuple[int, int], LearnedSimilarity] | None = None
        self._lock = ReadWriteLock()
        self._rank_with(None)
        self._checkpoint: Checkpoint | None = None

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
        return None if self._checkpoint is None else self._checkpoint.path

    def __len__(self) -> int:
        return len(self._store)

    @property
    def ids(self) -> AnyArray:
        """All ids in the order of their rows, int64 or strings."""
        return self._store.ids.copy()

    @property
    def codes(self) -> Codes:
        """All codes in the order of their rows: what the index publishes."""
        with self._lock.read():
            return self._store.codes

    def add(
        self,
        X: Vectors,
        ids: Any | None = None,
        *,
        ledger: Ledger | None = None,
        allow_rerelease: bool = False,
        skip_leak_check: bool = False,
    ) -> None:
        """Privatize vectors and add them; this spends the budget of each.

        Parameters
        ----------
        X : array or sparse matrix, shape (n, dim)
        ids : sequence of n whole numbers or strings, optional
            Unique; default the next free numbers.
        ledger : Ledger, optional
            Where the releases are written down first. It remembers ids that were removed here, and
            ids of other indexes; it needs ``ids``.
        allow_rerelease : bool
            Allow ids that the ledger knows, at the price of one more epsilon each.
        skip_leak_check : bool
            Accept a codebook that shares rows with ``X``: see :mod:`dpindex.index.leak_check`.

        Raises
        ------
        InputError
            For bad vectors or ids, ids that the ledger knows, and a codebook that holds private
            vectors; nothing is added then.
        """
        from dpindex.privatizer import Privatizer  # here: who only searches needs no secret stream

        with self._lock.write():
            count = 1 if np.ndim(X) == 1 else int(np.shape(X)[0] if np.ndim(X) else 0)
            checked = self._store.checked_ids(ids, count)
            if ledger is None and allow_rerelease:
                raise InputError("allow_rerelease is about what a ledger knows; name the ledger.")
            rows, book = self._projector.rows(X), None if skip_leak_check else self.spec.codebook
            names = None if ids is None else checked
            if ledger is not None and self.path is not None:
                ledger.refuse_inside(self.path)

            def checked_first() -> None:
                if book is not None:
                    refuse_shared_rows(book, [(0, rows)])
                if ledger is not None:
                    ledger.record(self.spec, names, allow_rerelease=allow_rerelease)

            before = checked_first if book is not None or ledger is not None else None
            # In memory only: save refuses what is unprotected.
            privatizer = Privatizer(self.spec, allow_unprotected=True)
            codes = privatizer.privatize(rows, before=before)
            self._store.append(codes, checked)

    def check_ids(self, ids: Any | None, count: int) -> AnyArray:
        """The ids that ``count`` new rows would get, or the InputError that adding would raise."""
        with self._lock.read():
            return self._store.checked_ids(ids, count)

    def add_codes(self, codes: Codes, ids: Any | None = None) -> None:
        """Add codes that devices made under the same spec; spends nothing.

        Raises
        ------
        InputError
            If the codes come from another spec, or for bad ids.
        """
        if not isinstance(codes, Codes):
            raise InputError("add_codes takes dpindex codes; use add for vectors.")
        if codes.fingerprint != self.spec.fingerprint:
            raise InputError("these codes were made under another spec than this index.")
        check_format(codes, self.spec.format)
        with self._lock.write():
            self._store.append(codes, self._store.checked_ids(ids, len(codes)))

    def remove(self, ids: Any) -> int:
        """Remove vectors by id; returns how many. Their codes are gone from the next save on.

        Raises
        ------
        InputError
            If one of the ids is not in the index; nothing is removed then.
        """
        with self._lock.write():
            return self._store.remove(ids)

    def fit_denoiser(self, kind: Kind = "auto") -> Denoiser:
        """Learn from the private codes how their coordinates hang together, and rank with it.

        Post-processing of what is published already: it reads codes and public parameters only and
        costs no budget. Codes and private queries are denoised, exact queries need not be; codes
        that are added later go through the same denoiser, until it is fitted again. It is saved
        with the index. ``Hits.scores`` rank denoised vectors, which are shrunken towards what is
        usual in the collection. ``similarity`` and ``stderr`` are of the codes of the pair alone,
        which say less than the denoiser knows: for the best neighbours they are cautious, and they
        need not fall in the order of the ranking.

        Parameters
        ----------
        kind : "auto", "linear" or "score"
            See :func:`dpindex.estimators.denoise.fit_denoiser`.

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

    def search(
        self,
        Q: Vectors | Codes,
        k: int = 10,
        query: QueryMode = "exact",
        *,
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
        allow_unprotected : bool
            Allow a "private" query of a ``none-*`` baseline, which adds no noise to it.

        Raises
        ------
        InputError
            For bad queries, k < 1, an empty index, or a private query that would not be private.
        """
        if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
            raise InputError(f"k must be a whole number of at least 1, not {k!r}.")
        batches = self._batches(Q, query, allow_unprotected)
        parts = [self._searching(partial(self._search, batch, int(k))) for batch in batches]
        return Hits(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))

    def range_search(
        self,
        Q: Vectors | Codes,
        threshold: float,
        query: QueryMode = "exact",
        *,
        allow_unprotected: bool = False,
    ) -> list[Hits]:
        """Every vector whose ``similarity`` reaches ``threshold``, for each query.

        All codes are looked at, whatever the index type, and ``similarity`` alone decides, whether
        or not there is a denoiser; memory is that of a block of codes and of what is found. A
        cosine that the codes leave uncertain is stated near what is usual in the collection, so
        with much noise few reach a high threshold.

        Parameters
        ----------
        threshold : float
            Least ``similarity`` (for ``l2``: greatest squared distance).

        Returns
        -------
        One Hits for each query, with arrays of shape (found,), best first; ``scores`` are the
        similarities (for ``l2``: minus the squared distances). Errors as ``search``.
        """
        least = finite_number(threshold, "the threshold")
        found: list[Hits] = []
        for batch in self._batches(Q, query, allow_unprotected):
            with self._lock.read():
                self._refuse_empty()
                found += self._range(batch, least)
        return found

    def _batches(
        self, asked: Vectors | Codes, query: QueryMode, allow_unprotected: bool
    ) -> list[Queries]:
        queries = self._queries(asked, query, allow_unprotected)
        return [queries[i : i + _BATCH_QUERIES] for i in range(0, len(queries), _BATCH_QUERIES)]

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
        from dpindex.privatizer import Privatizer  # here: other queries need no secret stream

        self.query_spec.refuse_unprotected(allow_unprotected, "send its query as a private one")
        codes = Privatizer(self.query_spec, allow_unprotected=True).privatize(asked)
        return Queries(codes, self.query_spec, private=True)

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

    def _search(self, queries: Queries, k: int) -> tuple[AnyArray, ...]:
        scores, rows = self._ranking.search(queries, min(k, len(self)))
        posterior, unbiased = self._estimates(queries, rows)
        return self._store.ids[rows], scores, *posterior, *unbiased

    def _estimates(self, queries: Queries, rows: Rows) -> tuple[Estimate, Estimate]:
        """Posterior and unbiased similarities of rows that were found, a few at a time."""
        step, learned = max(1, self._block_rows(1) // len(rows)), self._posterior()
        parts = []
        for start in range(0, rows.shape[1], step):
            codes = self._store.take(rows[:, start : start + step].ravel())
            unbiased = self._similarity.of_found(codes, queries)
            posterior = unbiased if learned is None else learned.of_found(codes, queries)
            parts.append((*posterior, *unbiased))
        columns = [np.concatenate(part, axis=1) for part in zip(*parts, strict=True)]
        return (columns[0], columns[1]), (columns[2], columns[3])

    def _posterior(self) -> LearnedSimilarity | None:
        """What gives posterior similarities, learned anew after any change; None without one."""
        if not can_learn(self.spec, self.metric):
            return None
        state = self._store.removals, len(self)
        if self._learned is None or self._learned[0] != state:
            rows = np.linspace(0, len(self) - 1, min(len(self), SAMPLE_ROWS)).astype(np.int64)
            learned = LearnedSimilarity(self.spec, self._store.take(rows), len(self))
            self._learned = state, learned  # in one step: several readers may be here
        return self._learned[1]

    def _block_rows(self, queries: int) -> int:
        """Codes that are compared with so many queries together: an estimate takes 40 numbers."""
        return max(1, _BLOCK_NUMBERS // (self.spec.code_length + 40 * queries))

    def _range(self, queries: Queries, threshold: float) -> list[Hits]:
        sign = -1.0 if self.metric == "l2" else 1.0
        first, parts, learned = 0, [], self._posterior()
        for codes in self._store.blocks(rows=self._block_rows(len(queries))):
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
            parts.append((near[0], near[1] + first, *estimates))
            first += len(codes)
        asked, rows, *estimates = map(np.concatenate, zip(*parts, strict=True))
        ids, scores = self._store.ids[rows], sign * estimates[0]
        order = np.lexsort((rows, -scores, asked))
        cuts = np.searchsorted(asked[order], np.arange(1, len(queries)))
        columns = ids, scores, *estimates
        return [Hits(*(part[i] for part in columns)) for i in np.split(order, cuts)]

    def save(self, path: str | os.PathLike[str], *, allow_unprotected: bool = False) -> None:
        """Write the index as a directory, all or nothing.

        Saving to the directory an index was opened from brings it up to date. Codes of removed
        vectors are not in it any more. All new files are first written to a journal in the folder
        that ``DPINDEX_STATE`` names (default ``~/.local/state/dpindex``): what is interrupted after
        that is finished when the index is next opened or saved, on this machine.

        Raises
        ------
        InputError
            If the directory belongs to something else, cannot be written, or the method protects
            nothing and ``allow_unprotected`` is false.
        """
        self.spec.refuse_unprotected(allow_unprotected, "save it")
        with self._lock.write():
            stated = self._settings, self._store, self._denoiser, self._checkpoint
            write_index(Path(path), *stated, self._remember)

    def _remember(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> PrivateIndex:
        """Open a saved index: sizes and hashes are verified before anything is parsed.

        A save that this user began here and that was cut off is finished first, if it can be.

        Raises
        ------
        InputError
            If the directory is not an index, is unfinished, or was damaged or changed.
        """
        settings, segments, checkpoint = read_index(Path(path))
        index = cls(**vars(settings))
        for codes, ids in segments:
            check_format(codes, settings.spec.format)
            index._store.append(codes, index._store.checked_ids(ids, len(codes)))
        index._rank_with(checkpoint.denoiser)
        index._checkpoint = checkpoint
        return index


def describe(index: PrivateIndex) -> dict[str, Any]:
    """What an index holds, how it is searched and what it promises, as plain JSON values.

    ``bytes`` counts the files of the directory that the index was opened from or saved to, and is 0
    without one. ``index_recall`` is measured now, if the index type is not exact.

    >>> from dpindex.spec import Spec
    >>> facts = describe(PrivateIndex(Spec("dp-oporp-staircase", dim=8, k=4, epsilon=2.0)))
    >>> facts["count"], facts["code_length"], facts["guarantee"]["epsilon"]
    (0, 4, 2.0)
    """
    spec, denoiser = index.spec, index.denoiser
    files = [] if index.path is None else index.path.rglob("*")
    return {
        "count": len(index),
        "bytes": sum(file.stat().st_size for file in files if file.is_file()),
        "code_length": spec.code_length,
        "metric": index.metric,
        "index_type": index.index_type,
        "index_recall": index.index_recall,
        "denoiser": denoiser
        and {"kind": denoiser.kind, "rows": denoiser.rows, "error": denoiser.error},
        "query_epsilon": index.query_spec.epsilon,
        "spec": spec.to_dict(),
        **spec.guarantee.statement(spec.dim),
    }
