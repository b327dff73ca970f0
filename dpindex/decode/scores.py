"""Codes read by the scores of their noise: where coordinates are normal about a prediction."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import numpy as np
import scipy

from dpindex.base.arrays import AnyArray, Doubles, Indices, Singles
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
        step *= max(1, math.ceil(points / _MAX_POINTS))
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
