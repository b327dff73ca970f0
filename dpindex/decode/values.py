"""Codes read by the values that coordinates of an interval have, whatever their distribution."""

from __future__ import annotations

import numpy as np
import scipy

from dpindex.base.arrays import Doubles, Indices, Singles
from dpindex.decode.scores import Growth, Readings, ScoreReadings
from dpindex.mechanism.noise.moments import Likelihood

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
