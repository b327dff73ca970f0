"""An iteration of expectation propagation: predicted coordinates, and their codes read again.

Codes are read by the scores of their noise, where coordinates are normal about a prediction, or by
the values that coordinates of an interval have.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Annotated, TypeAlias

import numpy as np
import scipy

from dpindex.base.arrays import AnyArray, Doubles, Indices, Singles
from dpindex.decode.mixture import MixtureFilter
from dpindex.mechanism.noise.moments import Likelihood

_VARIANCES = 64
_MAX_POINTS = 4096
"""Rows and columns of a score table."""

_MIN_LIKELIHOOD = 1e-14
"""Likelihoods below this share of the largest one are raised to it, so that scores stay finite."""


Growth: TypeAlias = Callable[[], tuple[Singles, Doubles]]


class Readings(ABC):
    """What codes say of coordinates that were predicted, by bin of the predictions.

    The ``location`` of a code is where its likelihood lies: see
    :meth:`dpindex.mechanism.noise.moments.Likelihood.locate`.

    Attributes
    ----------
    noise : array, shape (BINS,)
        Variance of the messages.
    """

    noise: AnyArray

    @abstractmethod
    def message(self, prediction: Singles, bins: Indices, location: Singles) -> Singles:
        """Return codes as observations in Gaussian noise that is as informative."""

    @abstractmethod
    def posterior(
        self,
        prediction: Singles,
        bins: Indices,
        location: Singles,
    ) -> tuple[Singles, Growth]:
        """Return posterior means of coordinates, and what tells how the bins' variances are wrong.

        That returns the derivative of each code's log-likelihood by the logarithm of the variance,
        (n, k), and the Fisher information of each row, (n,).
        """


class ScoreTable:
    """The score ``g = d log P(code | prediction) / d prediction``, tabulated over distances.

    If a coordinate is predicted as N(m, v), then ``E[x | code] = m + v·g`` (Tweedie's formula,
    Efron 2011). The Fisher information ``E[g²]`` is what the code adds: as much as an observation
    in Gaussian noise of variance ``1/E[g²] − v``. For Laplace, staircase and square-wave noise that
    falls far below the variance of the noise as v decreases.

    ``d log P(code | prediction) / d log v`` tells if predictions are better or worse than v. Its
    mean is 0 if v is right, and its variance the Fisher information about ``log v``.

    Parameters
    ----------
    likelihood : Likelihood
        Of one code; not empty.
    max_variance : float
        Largest prediction variance v that is tabulated, in squared units of the data, (0, ∞).

    Attributes
    ----------
    variances, information : float64 arrays, shape (64,)
        Values of v a constant factor apart, and the Fisher information at each.
    scores, growth : float32 arrays, shape (64, points)
        The score at distances ``code − m``, and the derivative by ``log v``.
    growth_information : float64 array, shape (64,)
        The Fisher information about ``log v``.
    """

    def __init__(self, likelihood: Likelihood, max_variance: float) -> None:
        self.max_variance = max_variance
        # Edges are multiples of half a cell; where there are very many, a coarser lattice is used.
        farthest = float(np.abs(likelihood.edges).max())
        widest = farthest + 3 * math.sqrt(max_variance)
        step = likelihood.cell / 2
        points = 2 * widest / step
        step *= math.ceil(points / _MAX_POINTS)
        # An odd number of points, with a distance of 0 in the middle.
        self._half = math.ceil(widest / step)
        self._per_unit = 1 / step
        smallest = (step / 2) ** 2
        largest = max(max_variance, 4 * smallest)
        self.variances = np.geomspace(smallest, largest, _VARIANCES)
        points = 2 * self._half + 1
        places = np.rint(likelihood.edges / step).astype(np.intp)
        places += self._half
        jumps = np.bincount(places, likelihood.jumps, points).astype(np.float64)
        # Rounding x to cells has variance cell²/6; the tabulated steps contain half of that.
        with_rounding = self.variances + likelihood.cell**2 / 12
        deviations = np.sqrt(with_rounding)[:, None]
        # P(code | prediction) = base + Σ jumps·Φ(t), with t the distance of an edge in deviations.
        t = step * np.arange(-points + 1, points) / deviations
        bell = np.exp(t**2 / -2) / math.sqrt(2 * math.pi)
        density = bell / deviations
        below = scipy.special.ndtr(t)
        chance = likelihood.base + _convolved(below, jumps)
        lowest = _MIN_LIKELIHOOD * chance.max(axis=1, keepdims=True)
        np.maximum(chance, lowest, out=chance)
        scores = -_convolved(density, jumps) / chance
        # Φ(t) changes with log v, which t is in deviations of, by −t/2 times the bell.
        growth = _convolved(-t * bell / 2, jumps) / chance
        self.information = np.sum(scores**2 * chance, axis=1) * step
        self.growth_information = np.sum(growth**2 * chance, axis=1) * step
        self.scores = scores.astype(np.float32)
        self.growth = growth.astype(np.float32)
        self.inverse_information = 1 / np.maximum(self.information, 1e-300)

    def row(self, variance: Doubles) -> Indices:
        """The table row for each prediction variance."""
        log = np.log(np.maximum(variance, 1e-300))
        log_rows = np.log(self.variances)
        place = np.interp(log, log_rows, np.arange(_VARIANCES))
        return np.rint(place).astype(np.intp)

    def place(self, row: AnyArray, distance: Singles) -> Indices:
        """Return the places, in flattened tables, of a row's values at distances ``code − m``."""
        place = distance * np.float32(self._per_unit)
        np.rint(place, out=place)
        np.clip(place, -self._half, self._half, out=place)
        index = place.astype(np.intp)
        index += row * self.scores.shape[1] + self._half
        return index


def _convolved(rows: Doubles, kernel: Doubles) -> Doubles:
    """Convolution of each row with the kernel, where they overlap wholly."""
    # What a circular convolution wraps around lies outside of that.
    size = 1 << (rows.shape[1] - 1).bit_length()
    # By Fourier transforms: thousands of points against as many edges would take their product.
    of_rows = np.fft.rfft(rows, size)
    of_kernel = np.fft.rfft(kernel, size)
    circular = np.fft.irfft(of_rows * of_kernel, size)
    first = len(kernel) - 1
    return circular[:, first : rows.shape[1]]


class ScoreReadings(Readings):
    """Codes read by a score table, in the row of it that is next to each bin's variance.

    Parameters
    ----------
    table : ScoreTable
    variance : float32 array, shape (BINS,)
        Of predictions in each bin.
    """

    def __init__(self, table: ScoreTable, variance: Singles) -> None:
        self._table = table
        self._row = table.row(variance.astype(np.float64))
        self._variance = table.variances[self._row].astype(np.float32)
        self._inverse_information = table.inverse_information[self._row].astype(np.float32)
        # Of the Gaussian noise that would be as informative as the code.
        noise = table.inverse_information[self._row] - table.variances[self._row]
        self.noise = np.maximum(noise, table.variances[0])
        self._growth_information = table.growth_information[self._row]

    def message(self, prediction: Singles, bins: Indices, location: Singles) -> Singles:
        change = np.take(self._table.scores, self.place(prediction, bins, location))
        change *= np.take(self._inverse_information, bins)
        return prediction + change

    def posterior(
        self,
        prediction: Singles,
        bins: Indices,
        location: Singles,
    ) -> tuple[Singles, Growth]:
        place = self.place(prediction, bins, location)
        change = np.take(self._table.scores, place)
        change *= np.take(self._variance, bins)
        return prediction + change, partial(self.growth, bins, place)

    def growth(self, bins: Indices, place: Indices) -> tuple[Singles, Doubles]:
        """Return what codes at places of the table say of variances: see :meth:`posterior`."""
        information = np.take(self._growth_information, bins).sum(axis=1)
        return np.take(self._table.growth, place), information

    def place(self, prediction: Singles, bins: Indices, location: Singles) -> Indices:
        """Return the places of codes in the flattened table."""
        return self._table.place(np.take(self._row, bins), location - prediction)


_VALUES = 33
_CELLS = 64
"""Values of an interval that coordinates may have, and cells of the codes that tell of them."""

_RESOLVED = 4
"""Steps between values in half of a window, at least: less noise leaves less than a step open."""

_FIT_ROUNDS = 60
_LEAST_WEIGHT = 1e-3
_TINY = 1e-9
_UNEXPECTED = 1e-6
"""Chance that any value has, however far it is from a prediction."""


class ValueTable:
    """Chances of codes for the values of an interval, in which all coordinates lie.

    Coordinates with like predictions need not be normal about them: dark and bright are common in
    pictures, and clipped attributes lie at the ends. What they are is told by their codes
    (deconvolution by expectation–maximisation, as of Li et al. 2020 Sec. 5.5), and a posterior mean
    follows by Bayes' rule, in place of Tweedie's formula for a normal prior.

    Attributes
    ----------
    values : float64 array, shape (P,)
        Evenly spaced over the interval.
    """

    cells = _CELLS

    def __init__(self, likelihood: Likelihood, low: float, high: float) -> None:
        reach = float(np.abs(likelihood.edges).max())
        ends, width = np.linspace(low - reach, high + reach, _CELLS + 1, retstep=True)
        self.values = np.linspace(low, high, _VALUES)
        self._first = np.float32(ends[0])
        self._per_unit = np.float32(1 / width)
        distance = ends[:, None] - self.values
        # The likelihood is a step function, so its integral is known exactly at the ends of cells.
        below = likelihood.base * distance
        for edge, jump in zip(likelihood.edges, likelihood.jumps, strict=True):
            below += jump * np.maximum(distance - edge, 0)
        chance = np.diff(below, axis=0)
        self._chance = chance / chance.sum(axis=0)

    @classmethod
    def of(cls, likelihood: Likelihood) -> ValueTable | None:
        """Return the table of a law of an interval if its values resolve the windows; else None."""
        if likelihood.interval is None:
            return None
        low, high = likelihood.interval
        reach = float(np.abs(likelihood.edges).max())
        if _RESOLVED * (high - low) > (_VALUES - 1) * reach:
            return None
        return cls(likelihood, low, high)

    def place(self, bins: Indices, location: Singles) -> Indices:
        """Return the places, in flattened tables by bin and cell, of codes at locations."""
        cell = location - self._first
        cell *= self._per_unit
        np.clip(cell, 0, _CELLS - 1, out=cell)
        return bins * _CELLS + cell.astype(np.intp)

    def normal(self, mean: Doubles, variance: Doubles) -> Doubles:
        """Return chances of the values under normal laws, shape (B, P); the ends take the tails.

        A deviation is at least half of a step: else values between two would be said to be one.
        """
        between = (self.values[1:] + self.values[:-1]) / 2
        least = (self.values[1] - self.values[0]) / 2
        deviations = np.maximum(np.sqrt(variance), least)[:, None]
        below = scipy.special.ndtr((between - mean[:, None]) / deviations)
        chances = np.diff(below, axis=1, prepend=0.0, append=1.0)
        return np.asarray(chances + _UNEXPECTED)

    def fitted(self, counts: Doubles, prior: Doubles) -> Singles:
        """Return the likeliest chances of the values, (B, P), given codes and a prior.

        Parameters
        ----------
        counts : float64 array, shape (B, cells)
            Codes of each bin by cell.
        prior : float64 array, shape (B, P)
            Chances that are expected, in numbers of further coordinates.
        """
        total = prior.sum(axis=1) + counts.sum(axis=1)
        chances = prior / prior.sum(axis=1)[:, None]
        for _ in range(_FIT_ROUNDS):
            # Expectation–maximisation of mixture weights: each round raises the likelihood, and
            # none can leave the simplex. Prior counts keep values possible that no code has shown
            # yet.
            expected = chances @ self._chance.T
            found = (counts / expected) @ self._chance
            chances = (found * chances + prior) / total[:, None]
        return np.asarray(chances, dtype=np.float32)

    def read(self, chances: Singles) -> tuple[Doubles, Doubles, Doubles]:
        """Return what codes say where values have such chances, shape (B, P).

        Returns
        -------
        Messages of shape (B, cells), observations in normal noise that are worth as much as codes;
        how far a posterior mean goes from a prediction to a message, and the message's variance,
        of shape (B,).
        """
        likely = np.maximum(chances.astype(np.float64), _TINY)
        likely /= likely.sum(axis=1, keepdims=True)
        of_codes = likely @ self._chance.T
        mean = likely @ self.values
        variance = np.maximum(likely @ self.values**2 - mean**2, _TINY)
        posterior = (likely * self.values) @ self._chance.T / of_codes
        # A posterior mean varies by v·w of the variance v of a prior, w the weight of the message.
        explained = np.sum(of_codes * (posterior - mean[:, None]) ** 2, axis=1)
        weight = np.clip(explained / variance, _LEAST_WEIGHT, 1 - _LEAST_WEIGHT)
        messages = mean[:, None] + (posterior - mean[:, None]) / weight[:, None]
        return messages, weight, variance * (1 / weight - 1)


class ValueReadings(Readings):
    """Codes read by Bayes' rule for the values of each bin.

    What codes say of a bin's variance is read by scores all the same.

    Parameters
    ----------
    table : ValueTable
    chances : float32 array, shape (BINS, P)
        Of the values in each bin.
    scores : ScoreReadings
    """

    def __init__(self, table: ValueTable, chances: Singles, scores: ScoreReadings) -> None:
        messages, weight, noise = table.read(chances)
        self._table = table
        self._messages = messages.astype(np.float32)
        self._weight = weight.astype(np.float32)
        self._scores = scores
        self.noise = noise.astype(np.float32)

    def message(self, prediction: Singles, bins: Indices, location: Singles) -> Singles:
        return np.take(self._messages, self._table.place(bins, location))

    def posterior(
        self,
        prediction: Singles,
        bins: Indices,
        location: Singles,
    ) -> tuple[Singles, Growth]:
        change = self.message(prediction, bins, location) - prediction
        change *= np.take(self._weight, bins)

        def growth() -> tuple[Singles, Doubles]:
            return self._scores.growth(bins, self._scores.place(prediction, bins, location))

        return prediction + change, growth


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
