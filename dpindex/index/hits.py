"""Hits: the results of a search."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from dpindex.base.arrays import AnyArray, Bools, Floats
from dpindex.base.display import table_html
from dpindex.base.errors import InputError, import_extra
from dpindex.storage.payload import ID, Table

_NAMES = {"ids": ID, "scores": "score"}
_SHOWN = 10


@dataclass(frozen=True, eq=False, repr=False)
class Hits:
    """Neighbours of each query, best first.

    ``scores, ids = hits`` unpacks them in Faiss's order. ``len`` is the number of queries, and
    ``hits[i]`` are those of one query, with arrays of shape (k,); these, as ``range_search`` gives
    them, have the length and the items of their arrays.

    Attributes
    ----------
    ids : array, shape (nq, k)
        Ids of the neighbours, int64 or strings. With fewer than k vectors, k is their number.
    scores : float64 array, shape (nq, k)
        What the ranking is by; higher is nearer. Of ``search``: cosine of the noisy codes
        (``cosine``), their inner product (``ip``), minus their squared distance (``l2``), as the
        index type computes it, which may round; for sign codes ``Σ y_j s_j`` with an exact query
        and ``Σ s_j t_j`` with a private one. Where a denoiser was fitted, the same of denoised
        vectors (a cosine, shrunk by the estimate's posterior variance where the denoiser knows
        it): these rank far better, but they are shrunken towards what is usual in the collection,
        so they are no estimates. Of ``range_search``: the similarity (``l2``: minus it).
    similarity : float64 array, shape (nq, k)
        What the true metric is, given the codes: a cosine in [−1, 1], an inner product, or a
        squared distance, corrected for noise and flips. Cosines of a calibrated index are posterior
        means: right on average also for the best of many candidates (see
        :meth:`dpindex.PrivateIndex.calibrate`). Of codeword codes they are means under the
        codebook's cosines. Everything else is the unbiased estimate. NaN where flips depend on
        norms nobody declared (``Spec.norm``).
    stderr : float64 array, shape (nq, k)
        Its error, (0, ∞): the truth lies within two of it 9 times in 10 or more. Without a
        calibration it counts that hits are the best of many.
    unbiased : float64 array, shape (nq, k)
        The unbiased estimate from the codes of this pair alone, cosines clipped to [−1, 1]. The
        best of many are too high, as any maximum of noisy numbers is. Equal to ``similarity``
        where there is no posterior.
    unbiased_stderr : float64 array, shape (nq, k)
        Its standard error, of one pair looked at on its own.
    exact : bool array, shape (nq, k)
        Where ``similarity`` is that of the original vector, which the owner of ``rerank`` gave:
        ``stderr`` is 0 there, and ``scores`` are the similarities (``l2``: minus them). Hits of a
        reranked search without an answer come after those, with the estimates and the score −∞.
    payload : pyarrow.Table, optional
        The payload of the neighbours, one row for each in the order of ``ids.ravel()``; None if
        the index has none. It is not protected, and as trustworthy as who published it.

    >>> hits = Hits(np.array([[7, 9]]), *np.ones((5, 1, 2)), exact=np.zeros((1, 2), bool))
    >>> scores, ids = hits
    >>> hits, ids.tolist(), hits.to_list()[0][1]["id"]
    (<Hits: 1 query, 2 neighbours each>, [[7, 9]], 9)
    """

    ids: AnyArray
    scores: Floats
    similarity: Floats
    stderr: Floats
    unbiased: Floats
    unbiased_stderr: Floats
    exact: Bools
    payload: Table = None

    @property
    def columns(self) -> dict[str, AnyArray]:
        """The arrays by name."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "payload"}

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, query: int) -> Hits:
        """The hits of one query; IndexError beyond the last."""
        columns = {name: column[query] for name, column in self.columns.items()}
        size = np.size(columns["ids"])
        at = range(len(self))[query] * size
        if self.payload is None:
            return Hits(**columns)
        return Hits(**columns, payload=self.payload.slice(at, size))

    def __iter__(self) -> Iterator[AnyArray]:
        """Scores and ids, so that hits unpack."""
        return iter((self.scores, self.ids))

    def to_list(self) -> list[list[dict[str, Any]]]:
        """Return a list for each query of its hits as dicts: id, score, estimates and payload."""
        columns = {name: np.ravel(c).tolist() for name, c in self._named_columns().items()}
        payload = {name: c.to_pylist() for name, c in self._payload_columns().items()}
        columns |= payload
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        queries, width = np.atleast_2d(self.ids).shape
        return [rows[query * width : (query + 1) * width] for query in range(queries)]

    def take(self, places: AnyArray) -> Hits:
        """Return the hits of one query at some places."""
        columns = {name: column[places] for name, column in self.columns.items()}
        if self.payload is None:
            return Hits(**columns)
        return Hits(**columns, payload=self.payload.take(places))

    def at(self, places: AnyArray) -> Hits:
        """Return the hits of every query at some places of it, shape (nq, k)."""
        columns = {
            name: np.take_along_axis(column, places, axis=1)
            for name, column in self.columns.items()
        }
        payload = None
        if self.payload is not None:
            rows = np.arange(self.ids.size).reshape(self.ids.shape)
            payload = self.payload.take(np.take_along_axis(rows, places, axis=1).ravel())
        return Hits(**columns, payload=payload)

    def to_arrow(self) -> Table:
        """A ``pyarrow.Table`` with one row for each hit.

        Its columns are ``query`` (from 0), ``rank`` (from 1), ``id``, ``score``, the estimates, and
        those of the payload, of which one with a name that is taken gets ``payload_`` before it.

        Raises
        ------
        InputError
            Without pyarrow.
        """
        pa = import_extra("pyarrow", "to_arrow needs pyarrow", "io")
        return pa.table({**self._hit_columns(), **self._payload_columns()})

    def to_pandas(self) -> Any:
        """Return the hits as a ``pandas.DataFrame``; InputError without pandas."""
        try:
            import pandas
        except ImportError:
            raise InputError("to_pandas needs pandas; run pip install pandas.") from None
        payload = {name: column.to_pandas() for name, column in self._payload_columns().items()}
        return pandas.DataFrame({**self._hit_columns(), **payload})

    def _hit_columns(self) -> dict[str, AnyArray]:
        shape = np.atleast_2d(self.ids).shape
        query, rank = (place.ravel() for place in np.indices(shape))
        columns = {name: np.ravel(c) for name, c in self._named_columns().items()}
        return {"query": query, "rank": rank + 1, **columns}

    def _named_columns(self) -> dict[str, AnyArray]:
        return {_NAMES.get(name, name): column for name, column in self.columns.items()}

    def _payload_columns(self) -> dict[str, Any]:
        """Return the payload's columns, under names that the hits' own columns do not have."""
        if self.payload is None:
            return {}
        taken = self._hit_columns()
        columns = {}
        for name, column in zip(self.payload.column_names, self.payload.columns, strict=True):
            if name in taken:
                name = f"payload_{name}"
            columns[name] = column
        return columns

    def __repr__(self) -> str:
        payload = ""
        if self.payload is not None:
            payload = f", with {', '.join(self.payload.column_names)}"
        if self.ids.ndim < 2:
            return f"<Hits: {np.size(self.ids)} neighbours of one query{payload}>"
        queries = "1 query" if len(self) == 1 else f"{len(self)} queries"
        return f"<Hits: {queries}, {self.ids.shape[1]} neighbours each{payload}>"

    def _repr_html_(self) -> str:
        """The first of them for a notebook; ids and payload are foreign text and escaped."""
        columns = {
            **{name: column[:_SHOWN].tolist() for name, column in self._hit_columns().items()},
            **{
                name: column[:_SHOWN].to_pylist()
                for name, column in self._payload_columns().items()
            },
        }
        rows = ([_short(value) for value in row] for row in zip(*columns.values(), strict=True))
        title = repr(self).strip("<>")
        if np.size(self.ids) > _SHOWN:
            title += f"; the first {_SHOWN} rows"
        return table_html(title, list(columns), rows)


def joined(parts: Sequence[Hits]) -> Hits:
    """Hits of several batches of queries as one."""
    if len(parts) == 1:
        return parts[0]
    columns = {
        name: np.concatenate([part.columns[name] for part in parts]) for name in parts[0].columns
    }
    tables = [part.payload for part in parts]
    payload = None
    if tables[0] is not None:
        import pyarrow as pa

        payload = pa.concat_tables(tables).combine_chunks()
    return Hits(**columns, payload=payload)


def no_hits(queries: int, ids: AnyArray, payload: Table) -> Hits:
    """No neighbours for so many queries, of an index with such ids; ``payload`` has no rows."""
    numbers = np.empty((queries, 0))
    return Hits(
        ids=np.empty((queries, 0), ids.dtype),
        scores=numbers,
        similarity=numbers,
        stderr=numbers,
        unbiased=numbers,
        unbiased_stderr=numbers,
        exact=np.empty((queries, 0), np.bool_),
        payload=payload,
    )


def _short(value: object) -> str:
    text = str(value)
    if isinstance(value, float):
        text = f"{value:.3g}"
    if len(text) > 60:
        return f"{text[:59]}…"
    return text
