"""One vector a person, made of all that a person gave: what a promise about persons needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpindex.base.errors import InputError

__all__ = ["one_per_person"]


def one_per_person(
    vectors: ArrayLike, persons: Sequence[Any], how: Literal["mean", "first"] = "mean"
) -> tuple[NDArray[np.float64], NDArray[Any]]:
    """Return one vector for each person, and the persons in sorted order.

    What is returned for a person depends on that person's vectors alone, so one release of it under
    ``adjacency=dpindex.record("person")`` hides everything that this person gave.

    Parameters
    ----------
    vectors : array of shape (n, dim)
    persons : sequence of n names or numbers
        Whose vector each row is. Names are published as ids, and are not protected.
    how : "mean" or "first"
        ``"mean"``: the mean direction, of norm 1 (rows count equally, whatever their norms; zeros
        where rows cancel out). ``"first"``: the person's first row as it is.

    Raises
    ------
    InputError
        If there is not one person for each row, or for another ``how``.

    >>> vectors, persons = one_per_person([[1, 0], [0, 2], [3, 4]], ["ann", "ann", "bob"])
    >>> vectors.round(2).tolist(), persons.tolist()
    ([[0.71, 0.71], [0.6, 0.8]], ['ann', 'bob'])
    """
    rows = np.asarray(vectors, dtype=np.float64)
    labels = np.asarray(persons)
    if rows.ndim != 2 or labels.shape != (len(rows),):
        raise InputError(
            f"persons must name one person for each row of the vectors: got shapes {labels.shape} "
            f"and {rows.shape}."
        )
    names, first, sizes = np.unique(labels, return_index=True, return_counts=True)
    if how == "first":
        return rows[first], names
    if how != "mean":
        raise InputError(f"how must be 'mean' or 'first', not {how!r}.")
    by_person = np.argsort(labels, kind="stable")
    starts = np.cumsum(sizes) - sizes
    sums = np.add.reduceat(_at_norm_1(rows[by_person]), starts)
    return _at_norm_1(sums), names


def _at_norm_1(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return rows divided by their norms; rows of zeros stay zeros."""
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    directions: NDArray[np.float64] = rows / np.where(norms > 0, norms, 1.0)
    return directions
