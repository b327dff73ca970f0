"""What a projection must offer: exact integers in, exact integers out."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from scipy import sparse

from dpindex.arrays import Floats

__all__ = ["Identity", "Projection"]


class Projection(Protocol):
    """A public linear map with entries in {−1, 0, +1}, applied to grid integers held in floats."""

    @property
    def dim(self) -> int: ...

    @property
    def k(self) -> int: ...

    @property
    def fan_in(self) -> int:
        """The most attributes that one projected coordinate sums: bounds how large it can be."""
        ...

    @property
    def gain(self) -> float:
        """Factor that makes inner products of projected vectors unbiased for the originals'."""
        ...

    @property
    def spread(self) -> float:
        """Root mean square of a projected coordinate (before ``gain``) of a unit vector."""
        ...

    @property
    def inner_product_factor(self) -> float:
        """c such that ``Var⟨x,y⟩ ≈ c·(‖u‖²‖v‖² + ⟨u,v⟩²)`` over the choice of the projection."""
        ...

    def apply(self, x: Floats) -> Floats:
        """Project rows, shape (n, dim) to (n, k), same dtype, exactly."""
        ...

    def apply_sparse(self, x: sparse.csr_matrix) -> Floats:
        """Project CSR rows of grid integers, never making them dense in ``dim``."""
        ...


class Identity:
    """No projection: the raw coordinates themselves, k = dim."""

    fan_in = 1
    gain = 1.0
    inner_product_factor = 0.0

    def __init__(self, dim: int) -> None:
        self.dim = dim
        self.k = dim
        self.spread = 1.0 / float(np.sqrt(dim))

    def apply(self, x: Floats) -> Floats:
        return x

    def apply_sparse(self, x: sparse.csr_matrix) -> Floats:
        dense: Any = x.toarray()
        return np.asarray(dense)
