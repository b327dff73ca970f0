"""Exact similarities of original vectors."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpindex.base.arrays import Doubles, issparse
from dpindex.similarity.similarity import Metric

__all__ = ["exact_similarities"]


def exact_similarities(query: Doubles, vectors: Any, metric: Metric) -> Doubles:
    """Return the similarity of a query with each of some vectors, float64, shape (n,).

    Parameters
    ----------
    query : float64 array, shape (dim,)
    vectors : real array or CSR matrix, shape (n, dim)
    metric : "cosine", "ip" or "l2"
        Cosines (0 with a vector of norm 0), inner products or squared distances.

    >>> exact_similarities(np.array([3.0, 4.0]), np.array([[0, 2], [0, 0]]), "cosine").tolist()
    [0.8, 0.0]
    >>> exact_similarities(np.array([3.0, 4.0]), np.array([[0, 2], [0, 0]]), "l2").tolist()
    [13.0, 25.0]
    """
    wide = vectors.astype(np.float64)
    if issparse(wide):
        products = np.asarray(wide @ query)
        squares = np.asarray(wide.multiply(wide).sum(axis=1)).ravel()
    elif metric == "l2":
        wide -= query
        return _products(wide, wide)
    else:
        products = _products(wide, query[None])
        squares = _products(wide, wide)
    if metric == "ip":
        return products
    if metric == "l2":
        return np.asarray(np.maximum(squares - 2 * products + query @ query, 0.0))
    norms = np.sqrt(squares) * np.linalg.norm(query)
    cosines = np.zeros(len(norms))
    with np.errstate(invalid="ignore"):  # of infinite vectors, which have none
        np.divide(products, norms, out=cosines, where=norms != 0)
    return np.clip(cosines, -1.0, 1.0)


def _products(rows: Doubles, others: Doubles) -> Doubles:
    """Return the inner product of each row with its other, or with the one other.

    One row at a time: the rounding of a product of matrices depends on the place of the row, and
    equal vectors are to have equal similarities.
    """
    return np.asarray(np.matmul(rows[:, None, :], others[:, :, None])[:, 0, 0])
