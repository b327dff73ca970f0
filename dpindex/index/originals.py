"""The original vectors, on the holder's side: what is asked about candidates, and the answers."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np

from dpindex.base.arrays import (
    AnyArray,
    Doubles,
    Rows,
    in_units_of_largest,
    issparse,
    row_blocks,
)
from dpindex.base.errors import InputError, naming
from dpindex.base.ids import check_index, id_array, other_kind_of_ids, refuse_unordered
from dpindex.base.tables import index_of
from dpindex.data import Ranges
from dpindex.data.rows import Stretch, open_rows
from dpindex.data.source import clipped
from dpindex.decode.base import Metric, exact_similarities
from dpindex.mechanism.spec import Spec
from dpindex.storage.ids import StoredIds

Rerank: TypeAlias = Any
"""A holder, or what :func:`holder_of` makes one of."""


READ_NUMBERS = 1 << 22
"""Numbers of original vectors that are compared together: 32 MB."""


_ROUNDING = 1e-5
"""By how much a cosine in single precision may leave [−1, 1]."""


@dataclass(frozen=True)
class Candidates:
    """The rows of an index that its codes found for each query, best first.

    Attributes
    ----------
    ids : array, shape (nq, R)
    rows : int64 array, shape (nq, R), optional
        Row numbers of the candidates, in the order in which the ids were added; None where the
        index does not know them.
    total : int
        Rows of the index.
    """

    ids: AnyArray
    rows: Rows | None
    total: int


class Holder(ABC):
    """Who compares the original vectors of candidates with queries.

    >>> import numpy as np
    >>> class Nobody(Holder):
    ...     def similarities(self, queries, candidates, metric):
    ...         return np.full(candidates.ids.shape, np.nan)
    >>> Nobody().similarities(np.eye(2), Candidates(np.array([[7], [8]]), None, 9), "ip").shape
    (2, 1)
    """

    takes_sparse: ClassVar[bool] = False
    """Whether queries come as a CSR matrix where they are given as one."""

    ranges: Ranges | None = None
    """Public ranges of the index, which bring each column to 0 … 1 before vectors are compared."""

    limits: tuple[float, float] | None = None
    """Limits to which vectors and queries are then clipped."""

    def within(self, spec: Spec) -> Holder:
        """Return this holder, who compares vectors as the spec of an index says they are compared.

        Only the parts that count are read: its ranges, and the limits that its vectors are clipped
        to.
        """
        made = copy(self)
        made.ranges = spec.ranges
        made.limits = spec.compared_limits
        return made

    def _compared(
        self,
        query: Doubles,
        vectors: Any,
        metric: Metric,
    ) -> Doubles:
        """Return exact similarities of one query, shape (dim,), and vectors, shape (n, dim)."""
        if self.ranges is not None:
            query = self.ranges.scale(query[None])[0]
            vectors = self.ranges.scale(vectors)
        if self.limits is not None:
            query = clipped(query, *self.limits)
            vectors = clipped(vectors, *self.limits)
        if self.ranges is not None and metric == "cosine":
            # Squares of very large or small numbers are no numbers.
            query = in_units_of_largest(query[None])[0]
        return exact_similarities(query, vectors, metric)

    @abstractmethod
    def similarities(
        self,
        queries: Doubles,
        candidates: Candidates,
        metric: Metric,
    ) -> Doubles:
        """Return the exact similarity of each query with each of its candidates.

        Parameters
        ----------
        queries : float64 array, shape (nq, dim)
            In the clear, in units of the data: before :attr:`ranges`.
        candidates : Candidates
        metric : "cosine", "ip" or "l2"

        Returns
        -------
        Array of shape (nq, R): cosines, inner products or squared distances in units of the data,
        or of its :attr:`ranges`, within its :attr:`limits`; NaN where the holder gives no answer.

        Raises
        ------
        InputError
            For answers that are no similarities.
        """


class Originals(Holder):
    """Original vectors in rows: an array, a memory map, a sparse matrix, a file or a dataset.

    Only the rows of candidates are read, a block at a time. Of a file that is not .npy, and of a
    dataset, the parts that hold candidates are read from their beginning.

    Parameters
    ----------
    vectors : array, memmap, sparse matrix, path or Dataset, shape (n, dim)
    ids : sequence of n whole numbers or strings, optional
        The id of each row; default those of the dataset. Without any, row i is the i-th row of the
        index, whose number of rows must be n. Name the ids of an index from which rows were removed
        or in which they were replaced: the row numbers of an index follow its order.

    Raises
    ------
    InputError
        For vectors that are no matrix, and ids that are not unique or not one for each vector.

    >>> originals = Originals(np.eye(3), ids=["a", "b", "c"])
    >>> candidates = Candidates(np.array([["c", "x", "a"]]), None, 3)
    >>> originals.similarities(np.array([[3.0, 0.0, 4.0]]), candidates, "cosine").tolist()
    [[0.8, nan, 0.6]]
    """

    takes_sparse: ClassVar[bool] = True

    def __init__(self, vectors: Any, ids: Any = None) -> None:
        self._table = open_rows(vectors)
        self._ids: StoredIds | None = None
        if ids is not None:
            refuse_unordered(ids)
            check_index(vectors, ids)
        elif (own := index_of(vectors, named=False)) is not None:
            ids = own
        else:
            ids = self._table.ids
        if ids is not None:
            self._ids = self._names(id_array(ids))

    def _names(self, ids: AnyArray) -> StoredIds:
        """Return the ids of all rows; InputError unless they are as many, and unique."""
        if len(ids) != self._table.rows:
            raise InputError(
                f"there are {len(ids)} ids for {self._table.rows} vectors to rerank by."
            )
        with naming(f"the ids of {self._table.name}"):
            return StoredIds([ids])

    def check(self, dim: int) -> None:
        """Raise InputError unless vectors have ``dim`` attributes."""
        columns = self._table.columns
        if columns != dim:
            raise InputError(
                f"{self._table.name}: there are {columns} columns where the index has {dim}.",
                field="rerank",
            )
        if self.ranges is not None:
            self.ranges.check_order(self._table.attributes, self._table.name, field="rerank")

    def similarities(
        self,
        queries: Doubles,
        candidates: Candidates,
        metric: Metric,
    ) -> Doubles:
        self.check(queries.shape[1])
        rows = self._rows(candidates)
        order = np.argsort(rows, axis=1)
        ascending = np.take_along_axis(rows, order, axis=1)
        result = np.full(rows.shape, np.nan)
        for stretch in self._table.stretches(np.sort(rows, axis=None)):
            for line in range(len(rows)):
                query: Any = queries[line]
                if issparse(query):  # one at a time: there may be millions of columns
                    query = query.toarray()[0]
                for places in self._places_in(stretch, ascending[line]):
                    vectors = stretch.vectors[ascending[line, places] - stretch.first]
                    similarity = self._compared(query, vectors, metric)
                    suspects = ~np.isfinite(similarity)
                    _refuse_gaps(vectors, suspects, ascending[line, places], "row")
                    result[line, order[line, places]] = similarity
        return result

    def _places_in(self, stretch: Stretch, rows: Rows) -> Iterator[slice]:
        """Return where ascending rows lie in a stretch, a block at a time."""
        start, stop = np.searchsorted(rows, [stretch.first, stretch.stop]).tolist()
        numbers = 1
        if not issparse(stretch.vectors):
            numbers = self._table.columns
        return row_blocks(stop, READ_NUMBERS // numbers, start)

    def _rows(self, candidates: Candidates) -> Rows:
        """Return the row of each candidate, −1 for one without a vector."""
        ids = candidates.ids
        if self._ids is not None:
            if ids.dtype.kind != self._ids.kind:
                raise other_kind_of_ids(ids.dtype.kind == "U", "those of the vectors to rerank by")
            return self._ids.rows(ids.ravel()).reshape(ids.shape)
        if candidates.rows is None:
            raise InputError(
                "originals without ids stand in the order of the index, which is not known here; "
                "name its rows by ids.",
                field="ids",
            )
        if self._table.rows != candidates.total:
            raise InputError(
                f"originals without ids stand in the order of the index, and there are "
                f"{self._table.rows} for its {candidates.total} rows; name its rows by ids.",
                field="ids",
            )
        return candidates.rows


class Fetched(Holder):
    """Original vectors by id: a mapping, or a function that returns vectors.

    Parameters
    ----------
    source : mapping of ids to vectors, or callable
        A function gets an array of unique ids, and returns their vectors in the same order, shape
        (n, dim), a row of NaN for an id whose vector it does not give. Ids that a mapping does not
        have get no answer.

    >>> fetched = Fetched({7: [0.0, 2.0]})
    >>> candidates = Candidates(np.array([[7, 8]]), None, 2)
    >>> fetched.similarities(np.array([[1.0, 1.0]]), candidates, "ip").tolist()
    [[2.0, nan]]
    """

    def __init__(self, source: Mapping[Any, Any] | Callable[[AnyArray], Any]) -> None:
        if isinstance(source, Mapping):
            self._fetch = _of_mapping(source)
            return
        _check_arguments(source, 1)
        self._fetch = lambda ids, dim: source(ids)

    def similarities(
        self,
        queries: Doubles,
        candidates: Candidates,
        metric: Metric,
    ) -> Doubles:
        dim = queries.shape[1]
        result = np.empty(candidates.ids.shape)
        for lines, columns in _blocks(result.shape, READ_NUMBERS // dim):
            ids = candidates.ids[lines, columns]
            unique, inverse = np.unique(ids, return_inverse=True)
            vectors = self._vectors(unique, dim)
            places = inverse.reshape(ids.shape)
            result[lines, columns] = [
                self._compared(query, vectors[of_query], metric)
                for query, of_query in zip(queries[lines], places, strict=True)
            ]
            suspects = np.logical_or.reduce(~np.isfinite(vectors), axis=1)
            _refuse_gaps(vectors, suspects, unique, "id")
        return result

    def _vectors(self, keys: AnyArray, dim: int) -> Doubles:
        """Return the vectors of unique ids, NaN for an id without one."""
        vectors = _numbers(self._fetch(keys, dim), "the vectors to rerank by")
        if vectors.shape != (len(keys), dim):
            raise InputError(
                f"the vectors to rerank by have shape {vectors.shape} where {(len(keys), dim)} is "
                f"expected: one vector for each id."
            )
        return vectors


class Answers(Holder):
    """Similarities that holders compute themselves: they see the queries, and keep their vectors.

    Parameters
    ----------
    function : callable
        Gets one query in the clear, a float64 array of shape (dim,), and the ids of its candidates,
        shape (R,). Returns R similarities in the metric of the index and in units of the data, or
        of its ranges; NaN or None for a candidate that gives no answer.

    Raises
    ------
    InputError
        For what cannot be called with a query and ids.

    >>> phones = {7: np.array([0.6, 0.8])}
    >>> def ask(query, ids):
    ...     return [phones[i] @ query if i in phones else None for i in ids]
    >>> candidates = Candidates(np.array([[7, 8]]), None, 2)
    >>> Answers(ask).similarities(np.array([[1.0, 0.0]]), candidates, "cosine").tolist()
    [[0.6, nan]]
    """

    def __init__(self, function: Callable[[Doubles, AnyArray], Any]) -> None:
        _check_arguments(function, 2)
        self._function = function

    def similarities(
        self,
        queries: Doubles,
        candidates: Candidates,
        metric: Metric,
    ) -> Doubles:
        result = np.empty(candidates.ids.shape)
        for row, (query, ids) in enumerate(zip(queries, candidates.ids, strict=True)):
            answers = _numbers(self._function(query, ids), "the answers of a holder")
            if answers.shape != ids.shape:
                raise InputError(
                    f"a holder answered with shape {answers.shape} where {ids.shape} is expected: "
                    f"one similarity for each id, NaN for none."
                )
            result[row] = _checked_answers(answers, metric)
        return result


def holder_of(rerank: Rerank) -> Holder:
    """Return who compares candidates.

    Parameters
    ----------
    rerank : Holder, array, memmap, sparse matrix, path, Dataset, mapping or callable
        A holder is returned as it is. A mapping of ids to vectors, and a function from ids to
        vectors, become :class:`Fetched`; a function from a query and ids to similarities is named
        by :class:`Answers`. Anything else becomes :class:`Originals`.

    Raises
    ------
    InputError
        For anything else.

    >>> type(holder_of(np.eye(3))).__name__, type(holder_of({7: [1.0]})).__name__
    ('Originals', 'Fetched')
    """
    if isinstance(rerank, Holder):
        return rerank
    if isinstance(rerank, Mapping) or callable(rerank):
        return Fetched(rerank)
    return Originals(rerank)


def _blocks(shape: tuple[int, ...], size: int) -> Iterator[tuple[slice, slice]]:
    """Yield blocks of at most ``size`` entries of a table: whole lines where one line fits."""
    lines, width = shape
    for block in row_blocks(lines, size // max(1, width)):
        for columns in row_blocks(width, size):
            yield block, columns


def _of_mapping(mapping: Mapping[Any, Any]) -> Callable[[AnyArray, int], Any]:
    def fetch(ids: AnyArray, dim: int) -> Any:
        is_text = ids.dtype.kind == "U"
        if isinstance(next(iter(mapping), ids[0]), str) is not is_text:  # as keys of JSON are
            raise other_kind_of_ids(is_text, "those of the vectors to rerank by")
        vectors = np.full((len(ids), dim), np.nan)
        for place, key in enumerate(ids.tolist()):
            if key not in mapping:
                continue
            vector = _numbers(mapping[key], f"the vector of id {key!r} to rerank by")
            if vector.shape != (dim,):
                raise InputError(
                    f"the vector of id {key!r} to rerank by has shape {vector.shape} where "
                    f"{(dim,)} is expected."
                )
            vectors[place] = vector
        return vectors

    return fetch


def _check_arguments(function: Any, count: int) -> None:
    """Raise InputError for what cannot be called with ``count`` arguments."""
    sentence = (
        "a function to rerank by takes ids and returns vectors; wrap a function that takes a query "
        "and ids and returns similarities in dpindex.Answers."
    )
    if not callable(function):
        raise InputError(sentence)
    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError):  # a function in C may not tell
        return
    try:
        signature.bind(*range(count))
    except TypeError:
        raise InputError(sentence) from None


def _numbers(values: Any, name: str) -> Doubles:
    """Return real numbers as float64; InputError for anything else."""
    try:
        if np.asarray(values).dtype.kind in "biufO":
            return np.asarray(values, dtype=np.float64)
    except (ValueError, TypeError):
        pass
    raise InputError(f"{name} must be real numbers in a table.")


def _refuse_gaps(vectors: Any, suspects: AnyArray, names: AnyArray, kind: str) -> None:
    """InputError for a suspect with some numbers that are not finite: its hit would be lost.

    One without any finite number is no answer.
    """
    for place in np.flatnonzero(suspects):
        vector = vectors[[place]]
        finite = np.isfinite(vector.data if issparse(vector) else vector)
        if finite.any() and not finite.all():
            raise InputError(
                f"the vectors to rerank by: {kind} {names[place]} has a number that is not finite; "
                f"fill it, or leave the vector out by a row of NaN."
            )


def _checked_answers(answers: Doubles, metric: Metric) -> Doubles:
    """Return answers; InputError for one that no pair of vectors can have."""
    answered = answers[~np.isnan(answers)]
    if np.isinf(answered).any():
        raise InputError("a holder answered with an infinite similarity.")
    if metric == "cosine":
        if (np.abs(answered) > 1 + _ROUNDING).any():
            raise InputError("a holder answered with a cosine outside [-1, 1].")
        return np.clip(answers, -1.0, 1.0)
    if metric == "l2" and (answered < 0).any():
        raise InputError("a holder answered with a squared distance below 0.")
    return answers
