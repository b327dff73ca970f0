"""Kernel density and outliers: one sketch of all records."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import DensityMixin, OutlierMixin

from dpindex.arrays import Floats, Vectors
from dpindex.privacy.adjacency import Neighbouring
from dpindex.race.checks import number
from dpindex.race.hashes import Hash
from dpindex.race.tasks.base import KernelEstimator, floored

__all__ = ["RaceDensity", "RaceOutliers"]


class RaceDensity(DensityMixin, KernelEstimator):  # type: ignore[misc]
    """Private kernel density estimation (Coleman & Shrivastava 2020, Sec. 4).

    "Density" is the mean kernel over the records, in (0, 1]: a share of the collection, not a
    probability per volume; the two differ by a constant for a given hash and dimension.

    Attributes
    ----------
    sketch_ : RaceSketch
        The released sketch.

    >>> from dpindex.race import L2, RaceDensity
    >>> x = np.random.default_rng(0).normal(size=(2000, 2))
    >>> model = RaceDensity(L2(2.0), rows=100, epsilon=5.0).fit(x)
    >>> near, far = model.score_samples([[0.0, 0.0], [9.0, 9.0]])
    >>> bool(near > far)
    True
    """

    def fit(self, X: Vectors, y: Any = None) -> RaceDensity:
        """Sketch the records, shape (n, dim), and release; ``y`` is there for pipelines only."""
        self.sketch_ = self._sketch(X)
        return self

    def score_samples(self, X: Vectors) -> Floats:
        """Logarithm of the density at each row, shape (n,); never below half a record's."""
        records = self._records(X)
        counts = floored(self.sketch_.count(records))
        logs: Floats = np.log(counts / max(1.0, self.sketch_.size))
        return logs

    def score(self, X: Vectors, y: Any = None) -> float:
        """Sum of the log densities."""
        return float(self.score_samples(X).sum())


class RaceOutliers(OutlierMixin, KernelEstimator):  # type: ignore[misc]
    """Outliers are where the sketch says that few records lie (Coleman & Shrivastava, Sec. 4).

    The threshold is ``fraction`` of the records' own mean density. That mean is read from the
    released sketch, so it costs nothing; a quantile of training scores would cost extra budget.

    Parameters
    ----------
    fraction : float
        (0, ∞); 0.1 calls a point an outlier where the density is a tenth of what a record has on
        average.
    hash, rows, width, epsilon, delta, neighbouring, seed
        As in :class:`RaceDensity`.

    Attributes
    ----------
    sketch_ : RaceSketch
    offset_ : float
        The threshold.
    """

    def __init__(
        self,
        hash: Hash | None = None,
        *,
        fraction: float = 0.1,
        rows: int = 1000,
        width: int | None = None,
        epsilon: float = 1.0,
        delta: float = 0.0,
        neighbouring: Neighbouring = "add-remove",
        seed: int = 0,
    ) -> None:
        super().__init__(
            hash,
            rows=rows,
            width=width,
            epsilon=epsilon,
            delta=delta,
            neighbouring=neighbouring,
            seed=seed,
        )
        self.fraction = fraction

    def fit(self, X: Vectors, y: Any = None) -> RaceOutliers:
        """Sketch the records, shape (n, dim), and release."""
        share = number(self.fraction, "fraction", above=0.0)
        self.sketch_ = self._sketch(X)
        self.offset_ = share * self.sketch_.mean_density()
        return self

    def score_samples(self, X: Vectors) -> Floats:
        """Density of each row, shape (n,): the lower, the more abnormal."""
        records = self._records(X)
        return self.sketch_.density(records)

    def decision_function(self, X: Vectors) -> Floats:
        """``score_samples − offset_``: negative for outliers."""
        return self.score_samples(X) - self.offset_

    def predict(self, X: Vectors) -> npt.NDArray[np.int64]:
        """−1 for outliers, +1 for the rest, shape (n,)."""
        return np.where(self.decision_function(X) < 0, -1, 1)
