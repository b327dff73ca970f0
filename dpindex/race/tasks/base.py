"""What the estimators share: one way to make, fill and release a sketch."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from dpindex.arrays import Floats, Vectors
from dpindex.errors import InputError
from dpindex.privacy.adjacency import Neighbouring
from dpindex.race.hashes import L2, Hash
from dpindex.race.sketch import RaceSketch
from dpindex.race.spec import SketchGuarantee

__all__ = ["KernelEstimator", "SketchEstimator", "columns", "targets"]


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
        self.n_features_in_ = columns(x)
        return self._kernel_sketch().fit(x).release()

    def _kernel_sketch(self) -> RaceSketch:
        hash = L2(1.0, hashes=2) if self.hash is None else self.hash
        return self._empty(self.n_features_in_, hash)


def columns(x: Vectors) -> int:
    """Attributes of a record."""
    shape = np.shape(x)
    if len(shape) != 2:
        raise InputError(f"X must be a table of two dimensions, not {len(shape)}.")
    return int(shape[1])


def targets(y: Any, x: Vectors) -> Any:
    """``y`` as an array of shape (n,), one for each row of ``x``."""
    values = np.asarray(y)
    if values.shape != (np.shape(x)[0],):
        raise InputError(f"y must have one value for each of the {np.shape(x)[0]} rows of X.")
    return values


def floored(counts: Floats) -> Floats:
    """Counts for logarithms and ratios: noise below half a record is read as half a record."""
    return np.maximum(counts, 0.5)
