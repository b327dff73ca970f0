"""An iteration of expectation propagation: predicted coordinates, and their codes read again."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

import numpy as np

from dpindex.base.arrays import Doubles, Indices, Singles
from dpindex.decode.mixture import MixtureFilter
from dpindex.decode.scores import Growth, Readings, ScoreReadings, ScoreTable
from dpindex.decode.values import ValueReadings, ValueTable
from dpindex.mechanism.noise.moments import Likelihood


@dataclass(frozen=True, eq=False)
class CalibrationBins:
    """The measured error of predictions, by predicted value and claimed variance.

    Filters claim too little variance, and predictions of attributes with a lower or upper limit are
    biased near it. Codes are unbiased and independent of the predictions, so their mean difference
    and mean square in a bin estimate the error without any true coordinate.

    Attributes
    ----------
    ranges : float64 array, shape (2, 2)
        Least and largest prediction, and least and largest logarithm of the claimed variance.
    offset, variance : float32 arrays, shape (BINS,)
        To add to a prediction, and the variance of its remaining error.
    chances : float32 array, shape (BINS, P)
        Of the values of a coordinate in an interval: see :class:`ValueTable`. P is 0 for others.
    """

    ranges: Annotated[Doubles, "22"]
    offset: Annotated[Singles, "B"]
    variance: Annotated[Singles, "B"]
    chances: Annotated[Singles, "BP"]

    SIDE = 24
    BINS = SIDE**2

    @property
    def middles(self) -> Doubles:
        """The prediction in the middle of each bin, shape (BINS,)."""
        low, high = self.ranges[0]
        row = np.repeat(np.arange(self.SIDE), self.SIDE)
        return np.asarray(low + (high - low) * (row + 0.5) / self.SIDE)

    def place(self, prediction: Singles, claimed: Singles) -> Indices:
        """The bin of each element."""
        # In place and in single precision throughout: this runs once for each coordinate of each
        # code.
        log_claimed = np.maximum(claimed, np.float32(1e-30))
        np.log(log_claimed, out=log_claimed)
        low, high = self.ranges.T.tolist()
        row = self._along(prediction, low[0], high[0])
        column = self._along(log_claimed, low[1], high[1])
        np.floor(row, out=row)
        row *= self.SIDE
        row += column
        return row.astype(np.intp)

    def _along(self, x: Singles, low: float, high: float) -> Singles:
        """Return places on a side of the table, in [0, SIDE)."""
        per_unit = self.SIDE / max(high - low, 1e-30)
        last = np.float32(self.SIDE - 1)
        place = x - np.float32(low)
        place *= np.float32(per_unit)
        return np.clip(place, 0, last, out=place)


@dataclass(frozen=True, eq=False)
class CodeTables:
    """By what codes are read: scores, and values where coordinates lie in an interval.

    All iterations of a denoiser share it.
    """

    scores: ScoreTable
    values: ValueTable | None

    @classmethod
    def of(cls, likelihood: Likelihood, max_variance: float) -> CodeTables:
        """Return the tables of one code's likelihood: see :class:`ScoreTable`."""
        return cls(ScoreTable(likelihood, max_variance), ValueTable.of(likelihood))

    @property
    def value_count(self) -> int:
        """Values of each bin, P."""
        return 0 if self.values is None else len(self.values.values)

    def readings(self, bins: CalibrationBins) -> Readings:
        """Return what codes say of coordinates whose predictions lie in these bins."""
        scores = ScoreReadings(self.scores, bins.variance)
        if self.values is None:
            return scores
        return ValueReadings(self.values, bins.chances, scores)


@dataclass(frozen=True, eq=False)
class EPIteration:
    """A filter, the calibration of its predictions, and how codes are read given predictions."""

    filter: MixtureFilter
    bins: CalibrationBins
    tables: CodeTables

    @cached_property
    def _readings(self) -> Readings:
        return self.tables.readings(self.bins)

    def predict(self, z: Singles) -> tuple[Singles, Indices, Singles]:
        """Calibrated predictions, shape (n, k), their bins, and responsibilities, (n, K)."""
        prediction, claimed, share = self.filter.predict(z)
        place = self.bins.place(prediction, claimed)
        prediction += np.take(self.bins.offset, place)
        return prediction, place, share

    def message(self, z: Singles, location: Singles) -> Singles:
        """The codes as observations in Gaussian noise, for the filter of the next iteration."""
        prediction, bins, _ = self.predict(z)
        return self._readings.message(prediction, bins, location)

    def message_and_noise(self, z: Singles, location: Singles) -> tuple[Singles, Singles]:
        """Return messages, and the noise variance of each coordinate's, (k,), a mean of rows."""
        prediction, bins, _ = self.predict(z)
        noise = np.take(self._readings.noise, bins).mean(axis=0)
        return self._readings.message(prediction, bins, location), noise.astype(np.float32)

    def posterior(self, z: Singles, location: Singles) -> tuple[Singles, Singles, Growth]:
        """Posterior means of the coordinates given all codes, shape (n, k).

        And the posterior probability of each component of the filter's prior, shape (n, K), and
        what tells how claimed variances are wrong, which takes long and is seldom asked for.
        """
        prediction, bins, share = self.predict(z)
        estimate, growth = self._readings.posterior(prediction, bins, location)
        return estimate, share, growth
