"""Prior knowledge of vectors, before a code is seen."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpindex.base.arrays import Singles, Vectors, issparse, spaced
from dpindex.mechanism.spec import Spec

__all__ = ["Prior", "directions_only"]

_COMPARED = 100


def directions_only(spec: Spec) -> bool:
    """True if codes depend on the direction of a vector alone: those of record-level methods."""
    return spec.method_row.private and not spec.method_row.calibration.rounded


@dataclass(frozen=True)
class Prior:
    """Prior knowledge of every attribute, in scaled units.

    Attributes
    ----------
    mean, variance : float
        Root mean square of the attributes' means, and mean of their variances.
    cosines : float32 array, shape (m, others), optional
        Cosines of some vectors to others of the collection, all less their mean. Without them
        vectors have independent directions.
    """

    mean: float
    variance: float
    cosines: Singles | None = None

    @classmethod
    def of(cls, spec: Spec) -> Prior:
        """Return the prior of independent attributes, uniform over the bounds, or of a norm.

        Codes that depend on directions alone, and a norm with symmetric bounds, have mean 0 and
        variance ``norm²/dim``.
        """
        low, high = spec.bounds
        middle = (low + high) / 2
        norm_is_known = spec.norm is not None and middle == 0.0
        if directions_only(spec) or norm_is_known:
            return cls(0.0, (spec.norm or 1.0) ** 2 / spec.dim)
        return cls(middle, (high - low) ** 2 / 12)

    @classmethod
    def of_sample(cls, vectors: Vectors, spec: Spec) -> Prior:
        """Return the prior of public vectors, an array or CSR matrix (rows, dim), unscaled."""
        wide: Any = vectors.astype(np.float64)  # products of bytes would not fit into bytes
        product = wide @ wide.T
        if issparse(product):
            product = product.toarray()
        inner = np.asarray(product) / spec.scale**2
        if not spec.method_row.calibration.rounded:
            norms = np.sqrt(np.maximum(np.diag(inner), 1e-60))
            inner /= np.outer(norms, norms)
        # Less the mean vector, which need not be made: it may have millions of attributes.
        to_mean = inner.mean(axis=1)
        squared_mean = float(to_mean.mean())
        inner += squared_mean - to_mean - to_mean[:, None]
        squares = np.maximum(np.diag(inner), 1e-30)
        rows = spaced(len(inner), _COMPARED)
        lengths = np.sqrt(np.outer(squares[rows], squares))
        cosines = (inner[rows] / lengths).astype(np.float32)
        cosines[np.arange(len(rows)), rows] = -1.0  # itself
        return cls(math.sqrt(squared_mean / spec.dim), squares.mean() / spec.dim, cosines)
