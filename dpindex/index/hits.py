"""Hits: the results of a search."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dpindex.base.arrays import AnyArray, Bools, Doubles, Floats, Table
from dpindex.base.display import json_columns, table_html
from dpindex.base.errors import InputError, import_extra
from dpindex.base.ids import ID
from dpindex.decode.base import Estimate

_NAMES = {"ids": ID, "scores": "score"}
_SHOWN = 10
_BEST = 10


@dataclass(frozen=True, eq=False)
class Estimates:
    """Similarities of hits and their errors, each pair computed when it is first asked for.

    Attributes
    ----------
    of_pairs : callable
        Returns unbiased similarities and their standard errors.
    of_chosen : callable
        Returns what selection does not bias; None where that is not known.
    why : callable
        Returns why no similarity is stated but exact ones; "" if the codes state some.
    """

    of_pairs: Callable[[], Estimate]
    of_chosen: Callable[[], Estimate | None]
    why: Callable[[], str]

    @classmethod
    def of(
        cls,
        similarity: Doubles,
        stderr: Doubles,
        unbiased: Doubles,
        unbiased_stderr: Doubles,
        unstated: str = "",
    ) -> Estimates:
        """Estimates that are known: the attributes of :class:`Hits` of these names."""
        return cls(
            lambda: (unbiased, unbiased_stderr), lambda: (similarity, stderr), lambda: unstated
        )

    @cached_property
    def plain(self) -> Estimate:
        """Values and errors of single pairs."""
        return self.of_pairs()

    @cached_property
    def posterior(self) -> Estimate:
        """Values and errors of what a search chose."""
        chosen = self.of_chosen()
        if chosen is None:
            return not_stated(self.plain)
        return chosen

    def mapped(self, change: Callable[[AnyArray], AnyArray]) -> Estimates:
        """Return these estimates with each array changed."""

        def changed(pair: Estimate) -> Estimate:
            return change(pair[0]), change(pair[1])

        return Estimates(lambda: changed(self.plain), lambda: changed(self.posterior), self.why)

    def __reduce__(self) -> Any:
        # What is still to be made needs codes; values are copied or sent.
        return Estimates.of, (*self.posterior, *self.plain, self.why())


def not_stated(estimate: Estimate) -> Estimate:
    """Return NaN in the place of estimates that are too high for what a search chose."""
    nothing = np.full_like(estimate[1], np.nan)
    return nothing, nothing


MOST_ERROR = 0.15
"""Twice as much on either side spans 0.6: more says little but what is usual in a collection."""

TOO_NOISY = (
    f"some similarities are not stated: codes say too little about them, their errors would be "
    f"above {MOST_ERROR:g}. A larger epsilon or longer codes help; rerank with the original "
    f"vectors is exact."
)


def sure(estimate: Estimate, each: bool = False) -> Estimate:
    """Return estimates of hits, shape (nq, k), with NaN where errors are too large.

    For all hits of a query by the mean error of its best, as of all of them those that chance makes
    look certain would be left else; or for each by itself. What is not known has an infinite error.
    """
    value, error = estimate
    unsure = error > MOST_ERROR
    if error.size and not each:
        unsure = error[:, :_BEST].mean(axis=1, keepdims=True) > MOST_ERROR
        unsure = unsure | np.isinf(error)
    return np.where(unsure, np.nan, value), np.where(unsure, np.nan, error)


@dataclass(frozen=True, eq=False, repr=False)
class Hits:
    """Neighbours of each query, best first.

    ``scores, ids = hits`` unpacks them in Faiss's order. ``len`` is the number of queries, and
    ``hits[i]`` are those of one query, with arrays of shape (k,); these, as ``range_search`` gives
    them, have the length and the items of their arrays. Similarities and errors are computed when
    one of them is first asked for, from the codes and the calibration of the time of the search.
    What an index knows nothing of yet it learns then, which takes a second or so: see
    :meth:`dpindex.PrivateIndex.calibrate`.

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
        squared distance, corrected for noise and flips; of attributes after division by the spec's
        scale, or brought to 0 … 1 by its ranges. Cosines are posterior means under what an index
        learned from its codes: right on average also for the best of many candidates (see
        :meth:`dpindex.PrivateIndex.calibrate`). Of codeword codes they are means under the
        codebook's cosines. NaN where ``unstated`` says why.
    stderr : float64 array, shape (nq, k)
        Its error, [0, ∞): the truth should lie within two of it about 95 times in 100. NaN where
        ``similarity`` is.
    unbiased : float64 array, shape (nq, k)
        The unbiased estimate from the codes of this pair alone, cosines clipped to [−1, 1]. The
        best of many are too high, as any maximum of noisy numbers is. NaN where flips depend on
        norms nobody declared (``Spec.norm``).
    unbiased_stderr : float64 array, shape (nq, k)
        Its standard error, of one pair looked at on its own.
    estimates : Estimates
    exact : bool array, shape (nq, k)
        Where ``similarity`` is that of the original vector, which ``rerank`` gave:
        ``stderr`` is 0 there, and ``scores`` are the similarities (``l2``: minus them). Hits of a
        reranked search without an answer come after those, with the estimates and the score −∞.
    payload : pyarrow.Table, optional
        The payload of the neighbours, one row for each in the order of ``ids.ravel()``; None if
        the index has none. It is not protected, and as trustworthy as who published it.

    >>> ones = np.ones((1, 2))
    >>> hits = Hits(np.array([[7, 9]]), ones, Estimates.of(ones, ones, ones, ones), ones < 1)
    >>> scores, ids = hits
    >>> hits, ids.tolist(), hits.to_list()[0][1]["id"]
    (<Hits: 1 query, 2 neighbours each>, [[7, 9]], 9)
    """

    ids: AnyArray
    scores: Floats
    estimates: Estimates
    exact: Bools
    payload: Table = None

    @property
    def unstated(self) -> str:
        """Why ``similarity`` is NaN in some places, and what helps; empty if all are stated."""
        reason = self.estimates.why()
        if not reason and np.isnan(self.similarity).any():
            return TOO_NOISY
        return reason

    @property
    def similarity(self) -> Floats:
        """What the true metric is, given the codes."""
        return self.estimates.posterior[0]

    @property
    def stderr(self) -> Floats:
        """The error of :attr:`similarity`."""
        return self.estimates.posterior[1]

    @property
    def unbiased(self) -> Floats:
        """The unbiased estimate from the codes of this pair alone."""
        return self.estimates.plain[0]

    @property
    def unbiased_stderr(self) -> Floats:
        """The standard error of :attr:`unbiased`."""
        return self.estimates.plain[1]

    @property
    def columns(self) -> dict[str, AnyArray]:
        """The arrays by name."""
        names = ("ids", "scores", "similarity", "stderr", "unbiased", "unbiased_stderr", "exact")
        return {name: getattr(self, name) for name in names}

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, query: int) -> Hits:
        """The hits of one query; IndexError beyond the last."""
        row = range(len(self))[query]
        return self._chosen(lambda column: column[row])

    def __iter__(self) -> Iterator[AnyArray]:
        """Scores and ids, so that hits unpack."""
        return iter((self.scores, self.ids))

    def take(self, places: AnyArray) -> Hits:
        """Return the hits of one query at some places."""
        return self._chosen(lambda column: column[places])

    def at(self, places: AnyArray) -> Hits:
        """Return the hits of every query at some places of it, shape (nq, k)."""
        return self._chosen(lambda column: np.take_along_axis(column, places, axis=1))

    def _chosen(self, choose: Callable[[AnyArray], AnyArray]) -> Hits:
        """Return these hits with something chosen of each column."""
        payload = None
        if self.payload is not None:
            rows = np.arange(self.ids.size).reshape(self.ids.shape)
            chosen = choose(rows)
            payload = self.payload.take(chosen.ravel())
        return Hits(
            choose(self.ids),
            choose(self.scores),
            self.estimates.mapped(choose),
            choose(self.exact),
            payload,
        )

    def to_list(self) -> list[list[dict[str, Any]]]:
        """Return a list for each query of its hits as dicts: id, score, estimates and payload.

        None is in the place of what is not stated.
        """
        columns = self._lists()
        del columns["query"], columns["rank"]
        hits = []
        for values in zip(*columns.values(), strict=True):
            hits.append(dict(zip(columns, values, strict=True)))
        queries, width = np.atleast_2d(self.ids).shape
        return [hits[query * width : (query + 1) * width] for query in range(queries)]

    def to_arrow(self) -> Table:
        """A ``pyarrow.Table`` with one row for each hit.

        Its columns are ``query`` (from 0), ``rank`` (from 1), ``id``, ``score``, the estimates, and
        those of the payload; one whose name is taken gets ``payload_`` before it.

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
        columns: dict[str, Any] = self._hit_columns()
        for name, column in self._payload_columns().items():
            kind = str(column.type)
            if column.null_count and kind in _NULLABLE:  # pandas would make floats of them
                column = pandas.array(column.to_pylist(), dtype=_NULLABLE[kind])
            else:
                column = column.to_pandas()
            columns[name] = column
        return pandas.DataFrame(columns)

    def _hit_columns(self) -> dict[str, AnyArray]:
        query, rank = np.indices(np.atleast_2d(self.ids).shape)
        columns = {"query": query.ravel(), "rank": rank.ravel() + 1}
        for name, column in self.columns.items():
            columns[_NAMES.get(name, name)] = column.ravel()
        return columns

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

    def _lists(self, count: int | None = None) -> dict[str, list[Any]]:
        """Return all columns as lists, of the first hits alone if a count is given."""
        first = {name: column[:count] for name, column in self._hit_columns().items()}
        lists = json_columns(first)
        for name, column in self._payload_columns().items():
            values = column[:count].to_pylist()
            lists |= json_columns({name: np.fromiter(values, object, len(values))})
        return lists

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
        columns = self._lists(_SHOWN)
        texts = [map(_short, column) for column in columns.values()]
        title = repr(self).strip("<>")
        if np.size(self.ids) > _SHOWN:
            title += f"; the first {_SHOWN} rows"
        if self.unstated:
            title += f"; {self.unstated}"
        return table_html(title, list(columns), zip(*texts, strict=True))


_NULLABLE = {
    **{f"int{bits}": f"Int{bits}" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"UInt{bits}" for bits in (8, 16, 32, 64)},
    "bool": "boolean",
}
"""Types of pandas that hold a missing value, by those of Arrow."""


def _short(value: object) -> str:
    text = str(value)
    if isinstance(value, float):
        text = f"{value:.3g}"
    if len(text) > 60:
        return f"{text[:59]}…"
    return text
