"""The index: add vectors or codes, search, read similarities with error bars, save, open."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from dpindex.arrays import AnyArray, Floats, Integers, Vectors
from dpindex.codes import BitCodes, Codes, FloatCodes, narrowest
from dpindex.errors import InputError
from dpindex.index.ids import Ids
from dpindex.index.locks import ReadWriteLock
from dpindex.index.scoring import BitScorer, FloatScorer, Metric, Scorer
from dpindex.index.segments import IndexDirectory, Settings
from dpindex.index.stores import Storage
from dpindex.privatizer import Privatizer
from dpindex.spec import Spec

if TYPE_CHECKING:
    import os

__all__ = ["Hits", "PrivateIndex", "QueryMode"]

QueryMode = Literal["exact", "private"]

_QUERIES_AT_A_TIME = 64
"""Queries between two chances for Ctrl-C: about a tenth of a second on a million codes."""

_ROWS_PER_SEGMENT = 65536

_METRICS = ("cosine", "ip", "l2")
_STORAGES = ("f32", "f16", "int8")


@dataclass(frozen=True)
class Hits:
    """Neighbours of each query, best first.

    Attributes
    ----------
    ids : array, shape (nq, k)
        Ids of the neighbours, int64 or strings. With fewer than k vectors, k is their number.
    scores : float64 array, shape (nq, k)
        What the ranking is by; higher is nearer. Cosine of the noisy codes (``cosine``), their
        inner product (``ip``), minus their squared distance (``l2``); for sign codes ``Σ y_j s_j``
        with an exact query and ``Σ s_j t_j`` with a private one.
    similarity : float64 array, shape (nq, k)
        The estimate of the true metric, corrected for noise and flips: a cosine in [−1, 1], an
        inner product, or a squared distance. NaN where flips depend on norms nobody declared
        (``Spec.norm``).
    stderr : float64 array, shape (nq, k)
        Its standard error. For the best of many candidates the estimate is biased upwards, as any
        maximum of noisy numbers is; the error is that of one pair looked at on its own.
    """

    ids: AnyArray
    scores: Floats
    similarity: Floats
    stderr: Floats


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
    storage : "f32", "f16" or "int8"
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
        if metric not in _METRICS:
            raise InputError(f"metric must be one of {', '.join(_METRICS)}, not {metric!r}.")
        if storage not in _STORAGES:
            raise InputError(f"storage must be one of {', '.join(_STORAGES)}, not {storage!r}.")
        if spec.row.kind == "bits" and metric != "cosine":
            raise InputError(f"{spec.method} keeps signs, which know cosines only, not {metric!r}.")
        if spec.row.kind == "bits" and storage != "f32":
            raise InputError(f"{spec.method} keeps bits; storage {storage!r} is for float codes.")
        self.spec = spec
        self.metric = metric
        self.storage = storage
        self.query_epsilon = query_epsilon
        self.query_spec = spec if query_epsilon is None else spec.with_epsilon(query_epsilon)
        self._privatizer = Privatizer(spec)
        self._query_privatizer = Privatizer(self.query_spec)
        self._ids = Ids()
        self._values = _Growing()
        self._lock = ReadWriteLock()
        self._scorer = self._new_scorer()
        self._saved: Saved | None = None

    def _new_scorer(self) -> Scorer:
        if self.spec.row.kind == "bits":
            return BitScorer(self._privatizer, self._query_privatizer)
        return FloatScorer(self._privatizer, self._query_privatizer, self.metric, self.storage)

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
            return self._privatizer.wrap(self._values.array.copy())

    def add(self, X: Vectors, ids: Any | None = None) -> None:
        """Privatize vectors and add them; this spends the budget of each.

        Parameters
        ----------
        X : array or sparse matrix, shape (n, dim)
        ids : sequence of n whole numbers or strings, optional
            Unique; default the next free numbers.

        Raises
        ------
        InputError
            For bad vectors or ids; nothing is added then.
        """
        with self._lock.write():
            count = 1 if np.ndim(X) == 1 else int(np.shape(X)[0] if np.ndim(X) else 0)
            checked = self._ids.check(ids, count)
            self._append(self._privatizer.privatize(X), checked)

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
        self._check_form(codes)
        with self._lock.write():
            self._append(codes, self._ids.check(ids, len(codes)))

    def _check_form(self, codes: Codes) -> None:
        """A fingerprint can be copied; the form of the codes must fit as well."""
        kind = "bits" if isinstance(codes, BitCodes) else "float"
        if kind != self.spec.row.kind or codes.k != self.spec.dims:
            raise InputError(
                f"these are {kind} codes of length {codes.k}; the index holds "
                f"{self.spec.row.kind} codes of length {self.spec.dims}."
            )

    def _append(self, codes: Codes, ids: AnyArray) -> None:
        self._values.append(codes.stored)
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
            self._ids.keep(mask)
            self._values.keep(mask)
            self._scorer = self._new_scorer()
            if self._saved is not None:
                self._saved = replace(self._saved, rows=0)
            return len(rows)

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
        if not np.isfinite(threshold):
            raise InputError(f"the threshold must be a finite number, not {threshold!r}.")
        prepared = self._prepared(Q, query)
        found = []
        for start in range(0, len(prepared), _QUERIES_AT_A_TIME):
            part = prepared[start : start + _QUERIES_AT_A_TIME]
            found += self._reading(partial(self._range, part, float(threshold)))
        return found

    def _prepared(self, Q: Vectors | Codes, query: QueryMode) -> Queries:
        if isinstance(Q, BitCodes | FloatCodes):
            known = {self.query_spec.fingerprint: self.query_spec, self.spec.fingerprint: self.spec}
            if Q.fingerprint not in known:
                raise InputError("these query codes were made under another spec than this index.")
            self._check_form(Q)
            return Queries(Q, known[Q.fingerprint])
        if query == "private":
            return Queries(self._query_privatizer.privatize(Q), self.query_spec)
        if query != "exact":
            raise InputError(f"query must be 'exact' or 'private', not {query!r}.")
        return Queries(self._privatizer.project(Q), None)

    def _reading(self, action: Callable[[], Any]) -> Any:
        """Run under the read lock with search structures that cover every row."""
        while True:
            with self._lock.read():
                if len(self._ids) == 0:
                    raise InputError("the index is empty: add vectors before searching.")
                if self._scorer.covers(len(self._ids)):
                    return action()
            with self._lock.write():
                self._scorer.cover(self._values.array)

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
        if self.spec.row.definition == "none" and not allow_unprotected:
            raise InputError(
                f"{self.spec.method} protects nothing; pass allow_unprotected=True to save it."
            )
        with self._lock.write():
            directory = IndexDirectory(Path(path))
            again = self._saved is not None and self._saved.path == directory.path
            with directory.writing(new=not again):
                self._saved = self._write(directory)

    def _write(self, directory: IndexDirectory) -> Saved:
        settings = Settings(self.spec, self.metric, self.storage, self.query_epsilon)
        start = 0
        if self._saved is not None and self._saved.path == directory.path:
            manifest = directory.manifest()
            if manifest.digest != self._saved.digest:
                raise InputError(f"{directory.path} was changed since this index was opened.")
            start = self._saved.rows
            if start == 0:  # rows were removed: everything that is left is written anew
                manifest = replace(manifest, segments=())
        else:
            manifest = directory.start(settings)
        for row in range(start, len(self), _ROWS_PER_SEGMENT):
            rows = slice(row, row + _ROWS_PER_SEGMENT)
            codes = self._privatizer.wrap(self._values.array[rows])
            manifest = directory.write_segment(manifest, codes, self._ids.array[rows])
        manifest = directory.commit(replace(manifest, state="complete"))
        directory.discard_uncommitted(manifest)
        return Saved(directory.path, manifest.digest, len(self))

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> PrivateIndex:
        """Open a saved index: sizes and hashes are verified before anything is parsed.

        Raises
        ------
        InputError
            If the directory is not an index, is unfinished, or was damaged or changed.
        """
        directory = IndexDirectory(Path(path))
        manifest = directory.manifest()
        if manifest.state != "complete":
            raise InputError(
                f"{directory.path} holds an unfinished build; run the same build again to end it."
            )
        settings = manifest.settings
        index = cls(
            settings.spec,
            metric=settings.metric,
            storage=settings.storage,
            query_epsilon=settings.query_epsilon,
        )
        for codes, ids in directory.segments(manifest):
            index._append(codes, index._ids.check(ids, len(codes)))
        index._saved = Saved(directory.path, manifest.digest, len(index))
        return index


@dataclass(frozen=True)
class Saved:
    """Where an index was last written or read, which state of it, and how many rows still stand."""

    path: Path
    digest: str
    rows: int


@dataclass(frozen=True)
class Queries:
    """Prepared queries: exact projections (``spec`` None) or codes and the spec of their noise."""

    vectors: Any
    spec: Spec | None

    def __len__(self) -> int:
        return len(self.vectors)

    def __getitem__(self, rows: slice) -> Queries:
        if self.spec is None:
            return Queries(self.vectors[rows], None)
        return Queries(self.vectors.take(rows), self.spec)


class _Growing:
    """Rows in one array that doubles its room; widens its integers when new rows need it."""

    def __init__(self) -> None:
        self._room: npt.NDArray[Any] | None = None
        self._count = 0

    @property
    def array(self) -> Integers:
        """All rows, shape (n, width)."""
        if self._room is None:
            return np.empty((0, 0), dtype=np.int8)
        return self._room[: self._count]

    def append(self, rows: Integers) -> None:
        rows = rows if rows.dtype == np.uint8 else narrowest(rows)
        if self._room is None:
            self._room = rows.copy()
        elif self._count + len(rows) > len(self._room) or rows.dtype.itemsize > self._room.itemsize:
            widest = max(rows.dtype, self._room.dtype, key=lambda dtype: dtype.itemsize)
            length = max(2 * self._count, self._count + len(rows))
            room = np.empty((length, rows.shape[1]), dtype=widest)
            room[: self._count] = self._room[: self._count]
            self._room = room
        self._room[self._count : self._count + len(rows)] = rows
        self._count += len(rows)

    def keep(self, mask: npt.NDArray[np.bool_]) -> None:
        self._room = self.array[mask]
        self._count = len(self._room)
