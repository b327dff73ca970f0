"""What the estimators share: one way to make, fill and release a sketch."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from dpindex.arrays import Floats, Vectors
from dpindex.privacy.adjacency import Neighbouring
from dpindex.race.hashes import L2, Hash
from dpindex.race.sketch import RaceSketch
from dpindex.race.spec import SketchGuarantee

__all__ = ["KernelEstimator", "SketchEstimator", "floored"]


class SketchEstimator(BaseEstimator):  # type: ignore[misc]
    """A scikit-learn estimator that reads its data once, into released sketches.

    ``fit`` spends the whole budget; what comes after is free. Each ``fit`` spends it again, so a
    cross-validation with m fits costs m times epsilon.
    """

    rows: int
    width: int | None
    epsilon: float
    delta: float
    neighbouring: Neighbouring
    seed: int

    _fitted = "sketch_"
    _sparse: tuple[str, ...] | bool = ("csr", "csc")

    @property
    def guarantee_(self) -> SketchGuarantee:
        """What the fitted estimator promises about every training record."""
        self._check_fitted()
        return self._any_sketch().guarantee

    def _check_fitted(self) -> None:
        check_is_fitted(self, self._fitted)

    def _any_sketch(self) -> RaceSketch:
        sketch: RaceSketch = self.sketch_
        return sketch

    def _records(self, X: Vectors) -> Any:
        """Checked records to ask about, as many attributes as were fitted; ValueError otherwise."""
        self._check_fitted()
        return validate_data(self, X, accept_sparse=self._sparse, reset=False)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = bool(self._sparse)
        tags.non_deterministic = True  # two fits differ: the noise is fresh
        return tags

    def _empty(self, dim: int, hash: Hash) -> RaceSketch:
        return RaceSketch(
            dim,
            self.rows,
            self.width,
            hash,
            self.epsilon,
            self.delta,
            self.neighbouring,
            seed=self.seed,
        )


class KernelEstimator(SketchEstimator):
    """An estimator that asks for kernel sums.

    Parameters
    ----------
    hash : SRP or L2, optional
        The kernel; default ``L2(1.0, hashes=2)``, for data scaled to about unit spread.
    rows, width, epsilon, delta, neighbouring, seed
        As in :class:`~dpindex.race.RaceSketch`.
    """

    def __init__(
        self,
        hash: Hash | None = None,
        *,
        rows: int = 1000,
        width: int | None = None,
        epsilon: float = 1.0,
        delta: float = 0.0,
        neighbouring: Neighbouring = "add-remove",
        seed: int = 0,
    ) -> None:
        self.hash = hash
        self.rows = rows
        self.width = width
        self.epsilon = epsilon
        self.delta = delta
        self.neighbouring = neighbouring
        self.seed = seed

    def _sketch(self, x: Vectors) -> RaceSketch:
        """One released sketch of all records."""
        records = validate_data(self, x, accept_sparse=self._sparse)
        return self._kernel_sketch().fit(records).release()

    def _kernel_sketch(self) -> RaceSketch:
        hash = L2(1.0, hashes=2) if self.hash is None else self.hash
        return self._empty(self.n_features_in_, hash)


def floored(counts: Floats) -> Floats:
    """Counts for logarithms and ratios: noise below half a record is read as half a record."""
    return np.maximum(counts, 0.5)
