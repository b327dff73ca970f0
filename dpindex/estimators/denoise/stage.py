"""One round of denoising: filter, predict each coordinate from the others, read its code again.

The filter alone is METHODS 5a, generalised to a mixture. What follows is expectation propagation
with one variance per coordinate for messages (Minka 2001; Rangan, Schniter & Fletcher 2019, VAMP):
the prediction of a coordinate must not contain its own code, or its noise would be counted twice.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dpindex.estimators.denoise.channel import ScoreTable
from dpindex.estimators.denoise.mixture import Mixture

__all__ = ["Bins", "Filter", "Stage"]

Doubles = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]
Places = npt.NDArray[np.int32]

_MAX_OWN = 0.95
"""A coordinate's share in its own estimate is kept below this when it is divided out."""


@dataclass(frozen=True, eq=False)
class Filter:
    """Posterior means under a mixture prior of vectors seen through independent Gaussian noise.

    Attributes
    ----------
    mean, noise : float32 arrays, shape (k,)
        About which vectors are centred, and the variance of the noise of each coordinate.
    basis : float32 array, shape (k, R)
        Leading directions of the whitened signal.
    prior : Mixture
        Over those directions.
    own : float32 array, shape (K, k)
        Share of each coordinate in its own estimate under each component.
    between : float32 array, shape (k,)
        What it has beside that, on average, as it sways which components are likely.
    """

    mean: Singles
    noise: Singles
    basis: Singles
    prior: Mixture
    own: Singles
    between: Singles

    def whitened(self, z: Singles) -> Singles:
        """Coordinates over the leading directions, where the noise has unit variance."""
        return np.asarray((z - self.mean) @ self._analysis)

    @property
    def _analysis(self) -> Singles:
        return np.asarray(self.basis / np.sqrt(self.noise)[:, None])

    def apply(self, z: Singles) -> tuple[Singles, Singles]:
        """Posterior means, shape (n, k), and the responsibilities behind them, (n, K)."""
        inner, share = self.prior.posterior(self.whitened(z))
        out = inner @ (self.basis * np.sqrt(self.noise)[:, None]).T
        out += self.mean
        return out, share

    def under(self, noise: Doubles) -> Singles:
        """The best linear filter ``A`` for the same vectors under other noise: ``(z − mean) @ A``.

        The prior's own mean and covariance, components taken together, replace the mixture.
        """
        signal = self.prior.covariance()
        values, vectors = np.linalg.eigh(signal)
        spread = (self.basis * np.sqrt(self.noise)[:, None]).astype(np.float64) @ vectors
        spread *= np.sqrt(np.maximum(values, 0.0))
        seen = spread / noise[:, None]
        # Woodbury: D⁻¹L(I + LᵀD⁻¹L)⁻¹Lᵀ
        inner = np.linalg.solve(np.eye(len(values)) + spread.T @ seen, spread.T)
        return np.asarray(seen @ inner, dtype=np.float32)

    def predict(self, z: Singles) -> tuple[Singles, Singles, Singles]:
        """Each coordinate predicted from the others, and the variance the filter claims for it.

        With the responsibilities behind them, as ``apply`` gives them. A Gaussian estimate is
        ``a·z + (1−a)·prediction`` with a the coordinate's own share.
        """
        estimate, share = self.apply(z)
        own = share @ self.own
        own += self.between
        np.minimum(own, np.float32(_MAX_OWN), out=own)
        others = 1 - own
        estimate -= own * z
        estimate /= others
        own /= others
        own *= self.noise
        return estimate, own, share


@dataclass(frozen=True, eq=False)
class Bins:
    """What predictions are worth, by predicted value and claimed variance: measured, not assumed.

    Filters overrate themselves, and attributes with a floor or a ceiling are predicted with a bias
    near it. Codes are unbiased and independent of the predictions, so their mean difference and
    mean square in a bin say what the true coordinates do, without seeing one.

    Attributes
    ----------
    values, claims : (float, float)
        Range of the predictions and of the logarithms of the claimed variances.
    offset, variance : float32 arrays, shape (_VALUES · _CLAIMS,)
        To add to a prediction, and the variance of what is left.
    """

    values: tuple[float, float]
    claims: tuple[float, float]
    offset: Singles
    variance: Singles

    SIDES = (24, 24)

    def place(self, prediction: Singles, claimed: Singles) -> Places:
        """The bin of each element."""
        return bin_of(prediction, claimed, self.values, self.claims)


def bin_of(
    prediction: Singles, claimed: Singles, values: tuple[float, float], claims: tuple[float, float]
) -> Places:
    rows, columns = Bins.SIDES
    i = _cut(prediction, values, rows)
    i *= columns
    i += _cut(np.log(np.maximum(claimed, np.float32(1e-30))), claims, columns)
    return i


def _cut(x: Singles, span: tuple[float, float], parts: int) -> Places:
    low, high = span
    scaled = (x - np.float32(low)) * np.float32(parts / max(high - low, 1e-30))
    return np.asarray(np.clip(scaled, 0, parts - 1), dtype=np.int32)


@dataclass(frozen=True, eq=False)
class Stage:
    """A filter, what its predictions are worth, and how codes are read in their light."""

    filter: Filter
    bins: Bins

    def _read(
        self, z: Singles, location: Singles, table: ScoreTable
    ) -> tuple[Singles, Singles, Places, npt.NDArray[np.intp], Singles]:
        prediction, claimed, share = self.filter.predict(z)
        place = self.bins.place(prediction, claimed)
        prediction += np.take(self.bins.offset, place)
        row = table.row(self.bins.variance.astype(np.float64))
        score = table.look_up(np.take(row, place), location - prediction)
        return prediction, score, place, row, share

    def message(self, z: Singles, location: Singles, table: ScoreTable) -> Singles:
        """The codes as observations in Gaussian noise, for the next stage's filter."""
        prediction, score, place, row, _ = self._read(z, location, table)
        gain = (1 / np.maximum(table.information[row], 1e-300)).astype(np.float32)
        score *= np.take(gain, place)
        score += prediction
        return score

    def message_noise(self, z: Singles, table: ScoreTable) -> Doubles:
        """Mean variance of each coordinate's message noise over rows, shape (k,)."""
        prediction, claimed, _ = self.filter.predict(z)
        place = self.bins.place(prediction, claimed)
        by_bin = table.equivalent(table.row(self.bins.variance.astype(np.float64)))
        return np.asarray(np.take(by_bin, place).mean(axis=0))

    def posterior(
        self, z: Singles, location: Singles, table: ScoreTable
    ) -> tuple[Singles, Singles]:
        """``E[x | everything]``: the prediction and the code's score, ``m + v·g``.

        And the posterior chance of each component of the filter's prior, shape (n, K).
        """
        prediction, score, place, row, share = self._read(z, location, table)
        score *= np.take(table.variances[row].astype(np.float32), place)
        score += prediction
        return score, share
