"""The seam of search engines: what each has to offer to an index."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import numpy.typing as npt

from dpindex.base.arrays import AnyArray, Doubles

Rows = npt.NDArray[np.int64]

EXACT = "f32"
"""The index type that every backend has."""


def best_of(scores: AnyArray, rows: Rows, count: int) -> tuple[AnyArray, Rows]:
    """The best ``count`` of each line, best first; of equal scores the lower row comes first."""
    if scores.dtype.kind == "i":
        return _best_of_integers(scores, rows, count)
    order = np.argsort(-scores, axis=1)  # several times as fast as a sort that keeps rows in order
    in_order = np.take_along_axis(scores, order, axis=1)
    tied = (in_order[:, 1:] == in_order[:, :-1]).any(axis=1)
    if tied.any():
        order[tied] = np.lexsort((rows[tied], -scores[tied]), axis=1)
    return in_order[:, :count], np.take_along_axis(rows, order[:, :count], axis=1)


def _best_of_integers(scores: AnyArray, rows: Rows, count: int) -> tuple[AnyArray, Rows]:
    """Sort whole scores and rows, none negative, as one number each."""
    span = 1 + int(rows.max(initial=0))
    keys = np.sort(rows - span * scores.astype(np.int64), axis=1)[:, :count]
    negated, ordered = np.divmod(keys, span)
    return -negated, ordered


class SearchBackend(ABC):
    """Items under the row numbers 0, 1, 2, …, and the nearest of them to a query.

    Items are what one entry of the table in :mod:`dpindex.index.ranking` makes of codes: vectors,
    or packed signs. A backend keeps nothing that cannot be rebuilt from the codes, and it is asked
    for scores and rows only: similarities are read off the codes. Items and queries are finite.

    Parameters
    ----------
    width : int
        Coordinates of an item.
    metric : "cosine", "ip" or "l2"
        What neighbours are ranked by.
    index_type : str
        How items are kept, in words of the backend's own; every one knows :data:`EXACT`.

    Raises
    ------
    InputError
        For an index type that it does not have.
    """

    sample_rows: int = 0
    """Items that :meth:`begin` should be given a sample of."""

    block_rows: int | None = None
    """Items that :meth:`add` should be given at most, None for a few megabytes of coordinates."""

    of_vectors: bool = False
    """True if items are vectors of numbers, for which there are several index types."""

    exact: bool = True
    """True if a search always finds the true neighbours."""

    recall: float | None = None
    """Share of the ten nearest that a search finds, measured on the items, where not exact."""

    @abstractmethod
    def __init__(self, width: int, metric: str, index_type: str) -> None: ...

    @abstractmethod
    def __len__(self) -> int:
        """Items that were added."""

    @property
    @abstractmethod
    def row_bytes(self) -> float:
        """Bytes of memory that an item takes, the codes themselves aside."""

    def check_count(self, count: int) -> None:  # noqa: B027
        """InputError if so many items are too few to fit it to; by default any number will do."""

    @abstractmethod
    def begin(self, sample: AnyArray) -> None:
        """Forget all items, and fit whatever is fitted to a sample of those that will come."""

    def reserve(self, count: int) -> None:  # noqa: B027
        """Called after :meth:`begin`, with the number of items that come; by default nothing."""

    @abstractmethod
    def add(self, items: AnyArray) -> None:
        """Append items, shape (n, …), which nobody changes afterwards: it may keep them."""

    def finish(self) -> None:  # noqa: B027
        """Called before a search when items were added; by default nothing."""

    def needs_retraining(self, count: int) -> bool:
        """Return True if it was fitted to far fewer than ``count`` items, and should begin anew."""
        return False

    @abstractmethod
    def search(self, queries: AnyArray, count: int) -> tuple[Doubles, Rows]:
        """The nearest items of queries that are items themselves.

        Parameters
        ----------
        queries : array, shape (nq, …)
        count : int
            Items wanted for each query, [1, len].

        Returns
        -------
        Scores (higher is nearer) and rows, both of shape (nq, count), best first; every row number
        is of an item, and none stands twice for a query.
        """

    def search_exact(self, queries: AnyArray, count: int) -> tuple[Doubles, Rows]:
        """Return the nearest items of exact vectors; by default as :meth:`search` does."""
        return self.search(queries, count)

    max_subset: int = 1 << 62
    """Items that :meth:`subset` should be asked for at once."""

    @abstractmethod
    def subset(self, rows: Rows) -> SearchBackend:
        """A backend of these items alone (ascending row numbers), to be searched and not added to.

        Item i of it is item ``rows[i]`` here, and has the same score.
        """
