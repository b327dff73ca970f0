"""The index: add vectors or codes, search, read similarities with error bars, save, open."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dpindex.arrays import AnyArray, Floats, Vectors
from dpindex.codes import BitCodes, Codes, FloatCodes
from dpindex.errors import InputError
from dpindex.estimators.denoise import Denoiser, Kind, fit_denoiser
from dpindex.index.denoised import DenoisedScorer
from dpindex.index.hits import Hits
from dpindex.index.ids import Ids
from dpindex.index.locks import ReadWriteLock
from dpindex.index.queries import Queries, QueryMode, check_format, prepared
from dpindex.index.rows import CodeBuffer
from dpindex.index.saved import Contents, Saved, read_index, write_index
from dpindex.index.scoring import BitScorer, FloatScorer, Scorer
from dpindex.index.settings import Metric, Settings, Storage
from dpindex.privatizer import Privatizer
from dpindex.spec import Spec

if TYPE_CHECKING:
    import os

    from dpindex.ledger import Ledger

__all__ = ["Hits", "PrivateIndex", "QueryMode"]

_QUERIES_AT_A_TIME = 64
"""Queries between two chances for Ctrl-C: about a tenth of a second on a million codes."""


class PrivateIndex:
    """A searchable set of private codes. Think of it as a dictionary from id to code.

    The one warning: with ``query="exact"`` the query itself is used as it is, by whoever calls
    ``search``. Call it on your own machine, or send a private query.

    Parameters
    ----------
    spec : Spec
        The public description of the mechanism.
    metric : "cosine", "ip" or "l2"
        What neighbours are ranked by; sign codes know cosines only.
    storage : "f32", "f16", "int8" or a Faiss factory string
        Precision of the search structure of float codes. The codes themselves stay as they are.
    query_epsilon : float, optional
        Budget of a private query; default the spec's epsilon.

    Raises
    ------
    InputError
        For a metric or a storage that the method's codes do not have.

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
        storage: Storage = "f32",
        query_epsilon: float | None = None,
    ) -> None:
        self._settings = Settings(spec, metric, storage, query_epsilon)
        self._privatizer = Privatizer(spec)
        self._query_privatizer = Privatizer(self.query_spec)
        self._ids = Ids()
        self._values = CodeBuffer()
        self._lock = ReadWriteLock()
        self._denoiser: Denoiser | None = None
        self._scorer = self._new_scorer()
        self._saved: Saved | None = None

    @property
    def spec(self) -> Spec:
        """The public description of the mechanism."""
        return self._settings.spec

    @property
    def metric(self) -> Metric:
        """What neighbours are ranked by."""
        return self._settings.metric

    @property
    def storage(self) -> Storage:
        """Precision of the search structure of float codes."""
        return self._settings.storage

    @property
    def storage_recall(self) -> float | None:
        """Share of the ten flat neighbours that a factory string's structure finds.

        Measured on stored codes (denoised, where there is a denoiser) when the structure is built,
        which this does if need be; None for storage that is searched exhaustively.
        """
        if self.storage in ("f32", "f16", "int8") or len(self) == 0:
            return None
        recall: float | None = self._reading(lambda: self._scorer.recall)
        return recall

    @property
    def query_epsilon(self) -> float | None:
        """Budget of a private query, if it is not the spec's."""
        return self._settings.query_epsilon

    @property
    def query_spec(self) -> Spec:
        """The spec of private queries."""
        return self._settings.query_spec

    @property
    def denoiser(self) -> Denoiser | None:
        """What :meth:`fit_denoiser` learned, or None."""
        return self._denoiser

    def _new_scorer(self) -> Scorer:
        data, query = self._privatizer, self._query_privatizer
        if self._denoiser is not None:
            return DenoisedScorer(data, query, self.metric, self.storage, self._denoiser)
        if self.spec.mechanism.codes == "signs":
            return BitScorer(data, query)
        return FloatScorer(data, query, self.metric, self.storage)

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def ids(self) -> AnyArray:
        """All ids in the order of their rows, int64 or strings."""
        return self._ids.array.copy()

    @property
    def codes(self) -> Codes:
        """All codes in the order of their rows: what the index publishes."""
        with self._lock.read():
            return self.spec.format.codes(self._values.first(len(self)).copy())

    def add(
        self,
        X: Vectors,
        ids: Any | None = None,
        *,
        ledger: Ledger | None = None,
        allow_rerelease: bool = False,
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

        Raises
        ------
        InputError
            For bad vectors or ids, and ids that the ledger knows; nothing is added then.
        """
        with self._lock.write():
            count = 1 if np.ndim(X) == 1 else int(np.shape(X)[0] if np.ndim(X) else 0)
            checked = self._ids.check(ids, count)
            if ledger is not None:
                if self._saved is not None:
                    ledger.refuse_inside(self._saved.path)
                self._privatizer.check(X)  # what is refused should not cost anything
                ledger.record(
                    self.spec, None if ids is None else checked, allow_rerelease=allow_rerelease
                )
            elif allow_rerelease:
                raise InputError("allow_rerelease is about what a ledger knows; name the ledger.")
            self._append(self._privatizer.privatize(X), checked)

    def check_ids(self, ids: Any | None, count: int) -> None:
        """Raise the InputError that adding ``count`` rows under these ids would raise, if any."""
        with self._lock.read():
            self._ids.check(ids, count)

    def add_codes(self, codes: Codes, ids: Any | None = None) -> None:
        """Add codes that devices made under the same spec; spends nothing.

        Raises
        ------
        InputError
            If the codes come from another spec, or for bad ids.
        """
        if not isinstance(codes, BitCodes | FloatCodes):
            raise InputError("add_codes takes dpindex codes; use add for vectors.")
        if codes.fingerprint != self.spec.fingerprint:
            raise InputError("these codes were made under another spec than this index.")
        check_format(codes, self.spec)
        with self._lock.write():
            self._append(codes, self._ids.check(ids, len(codes)))

    def _append(self, codes: Codes, ids: AnyArray) -> None:
        # The ids say how many rows there are: values beyond, left by Ctrl-C, are overwritten.
        self._values.put(len(self._ids), codes.stored)
        self._ids.append(ids)

    def remove(self, ids: Any) -> int:
        """Remove vectors by id; returns how many. Their codes are gone from the next save on.

        Raises
        ------
        InputError
            If one of the ids is not in the index; nothing is removed then.
        """
        with self._lock.write():
            rows = self._ids.rows(ids)
            mask = np.ones(len(self._ids), dtype=np.bool_)
            mask[rows] = False
            ids, values = self._ids.kept(mask), CodeBuffer()
            values.put(0, self._values.first(len(self))[mask])
            saved = None if self._saved is None else replace(self._saved, rows=0)
            scorer = self._new_scorer()
            self._ids, self._values, self._scorer, self._saved = ids, values, scorer, saved
            return len(rows)

    def fit_denoiser(self, kind: Kind = "auto") -> Denoiser:
        """Learn from the private codes how their coordinates hang together, and rank with it.

        Post-processing of what is published already: it reads codes and public parameters only and
        costs no budget. Codes and private queries are denoised, exact queries need not be; codes
        that are added later go through the same denoiser, until it is fitted again. It is saved
        with the index. ``Hits.scores`` rank denoised vectors, which are shrunken towards what is
        usual in the collection; ``similarity`` and ``stderr`` stay the unbiased estimates from the
        codes, so they need not fall in the order of the ranking.

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
            self._denoiser = denoiser
            self._scorer = self._new_scorer()
        return denoiser

    def search(self, Q: Vectors | Codes, k: int = 10, query: QueryMode = "exact") -> Hits:
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

        Raises
        ------
        InputError
            For bad queries, k < 1, or an empty index.
        """
        if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
            raise InputError(f"k must be a whole number of at least 1, not {k!r}.")
        prepared = self._prepared(Q, query)
        parts = []
        for start in range(0, len(prepared), _QUERIES_AT_A_TIME):
            part = prepared[start : start + _QUERIES_AT_A_TIME]
            parts.append(self._reading(partial(self._search, part, int(k))))
        return Hits(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))

    def range_search(
        self, Q: Vectors | Codes, threshold: float, query: QueryMode = "exact"
    ) -> list[Hits]:
        """Every vector whose estimated similarity reaches ``threshold``, for each query.

        Parameters
        ----------
        threshold : float
            Least ``similarity`` (for ``l2``: greatest squared distance).

        Returns
        -------
        One Hits for each query, with arrays of shape (found,), best first. Errors as ``search``.
        """
        if not isinstance(threshold, int | float | np.number) or not np.isfinite(threshold):
            raise InputError(f"the threshold must be a finite number, not {threshold!r}.")
        prepared = self._prepared(Q, query)
        found = []
        for start in range(0, len(prepared), _QUERIES_AT_A_TIME):
            part = prepared[start : start + _QUERIES_AT_A_TIME]
            found += self._reading(partial(self._range, part, float(threshold)))
        return found

    def _prepared(self, Q: Vectors | Codes, query: QueryMode) -> Queries:
        return prepared(Q, query, self._privatizer, self._query_privatizer)

    def _reading(self, action: Callable[[], Any]) -> Any:
        """Run under the read lock with search structures that cover every row."""
        while True:
            with self._lock.read():
                if len(self._ids) == 0:
                    raise InputError("the index is empty: add vectors before searching.")
                if self._scorer.covers(len(self._ids)):
                    return action()
            with self._lock.write():
                self._scorer.cover(self._values.first(len(self)))

    def _search(self, queries: Queries, k: int) -> tuple[AnyArray, Floats, Floats, Floats]:
        scores, rows = self._scorer.search(queries.vectors, queries.spec, min(k, len(self._ids)))
        similarity, stderr = self._scorer.estimate(queries.vectors, queries.spec, scores, rows)
        return self._ids.array[rows], scores, similarity, stderr

    def _range(self, queries: Queries, threshold: float) -> list[Hits]:
        found = []
        everything = len(self._ids)
        for i in range(len(queries)):
            ids, scores, similarity, stderr = self._search(queries[i : i + 1], everything)
            if np.isnan(similarity).any():
                raise InputError(
                    f"similarities of {self.spec.method} need the norm of the vectors: declare "
                    f"norm in the spec, or rank with search."
                )
            near = similarity[0] <= threshold if self.metric == "l2" else similarity[0] >= threshold
            columns = (ids, scores, similarity, stderr)
            found.append(Hits(*(column[0][near] for column in columns)))
        return found

    def save(self, path: str | os.PathLike[str], *, allow_unprotected: bool = False) -> None:
        """Write the index as a directory, all or nothing.

        Saving to the directory an index was opened from brings it up to date. Codes of removed
        vectors are not in it any more.

        Raises
        ------
        InputError
            If the directory belongs to something else, cannot be written, or the method protects
            nothing and ``allow_unprotected`` is false.
        """
        if not self.spec.mechanism.private and not allow_unprotected:
            raise InputError(
                f"{self.spec.method} protects nothing; pass allow_unprotected=True to save it."
            )
        with self._lock.write():
            values, ids = self._values.first(len(self)), self._ids.array
            contents = Contents(self._settings, values, ids, self._denoiser)
            self._saved = write_index(Path(path), contents, self._saved)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> PrivateIndex:
        """Open a saved index: sizes and hashes are verified before anything is parsed.

        Raises
        ------
        InputError
            If the directory is not an index, is unfinished, or was damaged or changed.
        """
        settings, segments, saved = read_index(Path(path))
        index = cls(
            settings.spec,
            metric=settings.metric,
            storage=settings.storage,
            query_epsilon=settings.query_epsilon,
        )
        for codes, ids in segments:
            check_format(codes, settings.spec)
            index._append(codes, index._ids.check(ids, len(codes)))
        index._denoiser, index._saved = saved.denoiser, saved
        index._scorer = index._new_scorer()
        return index
