"""The seam of search engines: what each has to offer to an index."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cache
from typing import Any

from dpindex.base.arrays import AnyArray, Doubles, Rows

PRODUCTS_FROM = 4096
"""Numbers of queries from which on Faiss multiplies matrices."""


@cache
def faiss() -> Any:
    """Return Faiss, imported when vectors are first searched: a manifest is read without it."""
    import faiss as library

    # Faiss turns to matrix products only for large batches by default; ours are small enough to
    # answer Ctrl-C, and six times faster this way. Older versions count queries, from 20.
    library.cvar.distance_compute_blas_threshold = min(
        library.cvar.distance_compute_blas_threshold, PRODUCTS_FROM
    )
    return library


class SearchBackend(ABC):
    """Items under the row numbers 0, 1, 2, …, and the nearest of them to a query.

    Items are what a :class:`dpindex.decode.base.Decoder` makes of codes, such as vectors or packed
    signs. A backend keeps nothing that cannot be rebuilt from the codes, and it gives scores and
    rows only: similarities are read off the codes. Items and queries are finite.

    Parameters
    ----------
    width : int
        Coordinates of an item.
    metric : "cosine", "ip" or "l2"
        What neighbours are ranked by.
    index_type : str
        How vectors are kept: see :func:`dpindex.storage.manifest.parse_index_type`.
    """

    sample_rows: int = 0
    """Items that :meth:`begin` should be given a sample of."""

    block_rows: int | None = None
    """Items that :meth:`add` should be given at most, None for a few megabytes of coordinates."""

    exact: bool = True
    """True if a search always finds the true neighbours."""

    recall: float | None = None
    """Share of the ten nearest that a search finds, measured on the items, where not exact."""

    @abstractmethod
    def __init__(
        self,
        width: int,
        metric: str,
        index_type: str,
    ) -> None: ...

    @abstractmethod
    def __len__(self) -> int:
        """Items that were added."""

    @abstractmethod
    def begin(self, sample: AnyArray, count: int = 0) -> None:
        """Forget all items, and fit whatever is fitted to a sample of those that will come.

        ``count`` of them are expected.
        """

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
        """The nearest items of queries.

        Parameters
        ----------
        queries : array, shape (nq, …)
            Items themselves, or exact vectors, which a backend tells apart where they differ.
        count : int
            Items wanted for each query, [1, len].

        Returns
        -------
        Scores (higher is nearer) and rows, both of shape (nq, count), best first; every row number
        is of an item, and none stands twice for a query.
        """

    max_subset: int = 1 << 62
    """Items that :meth:`subset` should be asked for at once."""

    @abstractmethod
    def subset(self, rows: Rows) -> SearchBackend:
        """A backend of these items alone (ascending row numbers), to be searched and not added to.

        Item i of it is item ``rows[i]`` here, and has the same score.
        """
