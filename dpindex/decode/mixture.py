"""Gaussian mixture priors, learned from noisy rows, and the filters that they give.

With one Gaussian the filter is the optimal linear (Wiener) filter with spiked-covariance shrinkage.
A prior covers the leading directions of the whitened signal. Each component has a full covariance
over the first of them and variances over the rest: enough to tell kinds of vectors apart, few
enough parameters to be learned from noisy codes.

``Annotated`` gives the sides of an array, one letter each, which readers of stored arrays check.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated

import numpy as np
import scipy

from dpindex.base.arrays import Doubles, Indices, Singles, row_blocks
from dpindex.mechanism.public_random import PublicStream

_MIN_SIGNAL = 0.02
"""Directions whose estimated signal is below this share of the noise are left out."""

_MAX_LEVERAGE = 0.95
"""A coordinate's weight in its own estimate is kept below this when it is divided out."""

_MAX_SURPRISE = np.float32(60.0)
"""Logarithm of the largest factor by which a coordinate may have lowered a component's odds."""

_FULL = 96
"""Directions over which a component has a full covariance."""

_PRIOR_ROWS = 200.0
"""Each component's covariance is averaged with the common one, which has this many rows' weight."""

_ROUNDS = 4
_WARM_ROUNDS = 2
_CENTRE_ROUNDS = 8
_SCALE_ROUNDS = 50
_UNLIKELY = 1e-3
_NO_GAIN = 1e-6
_DENOISED_ROWS = 512

_ONE_SCALE: Doubles = np.ones(1)
SCALES: Doubles = np.exp2(np.arange(-5, 5, dtype=np.float64))
"""Component variances of a scale mixture, over those of the common Gaussian."""


def spiked(eigenvalues: Doubles, aspect: float) -> tuple[Doubles, Doubles]:
    """Signal variances behind sample eigenvalues under unit noise, and how reliable they are.

    A signal of variance t appears as ``(1 + t)(1 + aspect/t)`` along a direction that has squared
    cosine ``c² = (1 − aspect/t²)/(1 + aspect/t)`` with the true one, if t > √aspect, else not at
    all (Baik & Silverstein 2006; Paul 2007).

    Parameters
    ----------
    eigenvalues : array
    aspect : float
        Coordinates over rows.

    Returns
    -------
    t and c², both 0 below the detection threshold.
    """
    excess = eigenvalues - 1.0 - aspect
    detected = excess > 2 * np.sqrt(aspect)
    discriminant = np.maximum(excess**2 - 4 * aspect, 0.0)
    root = np.sqrt(discriminant)
    signal = np.where(detected, (excess + root) / 2, 1.0)
    squared_cosine = (1 - aspect / signal**2) / (1 + aspect / signal)
    return signal * detected, np.maximum(squared_cosine, 0.0) * detected


def _likely_rows(share: Singles) -> list[Indices]:
    """For each component, the rows for which its responsibility counts."""
    return [np.flatnonzero(column > _UNLIKELY) for column in share.T]


def _detected(moment: Doubles, aspect: float) -> tuple[Doubles, Doubles]:
    """Eigenvalues of a covariance of signal plus unit noise above the noise's own, with vectors."""
    # Not SciPy's, which has threads of its own: they and NumPy's would wait for each other's cores.
    eigenvalues, vectors = np.linalg.eigh(moment)
    detected = eigenvalues > 1.0 + aspect + 2.0 * math.sqrt(aspect)
    return eigenvalues[detected], vectors[:, detected]


def _reliable(eigenvalues: Doubles, aspect: float) -> Doubles:
    """Signal ``t·c²`` along each sample eigenvector.

    It is the shrinkage that is optimal in mean square (Donoho, Gavish & Johnstone 2018): what a
    filter may expect along the *estimated* direction.
    """
    signal, squared_cosine = spiked(eigenvalues, aspect)
    return signal * squared_cosine


def signal_directions(moment: Doubles, rows: int, max_count: int) -> tuple[Singles, Doubles]:
    """Leading eigenvectors of a whitened covariance, shape (k, R), and the signal's variance there.

    R is at most ``max_count``, and 0 if no direction is detected above the noise. Once directions
    are chosen, the variances are shrunk as of a covariance over the first of them only: full
    shrinkage predicts coordinates better and finds fewer neighbours.
    """
    aspect = len(moment) / rows
    eigenvalues, vectors = _detected(moment, aspect)
    # Eigenvalues ascend: the last ones are the leading ones.
    first = max(len(eigenvalues) - max_count, 0)
    kept = _reliable(eigenvalues, aspect) > _MIN_SIGNAL
    kept[:first] = False
    variances = eigenvalues[kept][::-1]
    signal = np.maximum(variances - 1.0, 0.0)
    leading = variances[:_FULL]
    signal[:_FULL] = _reliable(leading, len(leading) / rows)
    largest_first = vectors[:, kept][:, ::-1]
    return np.ascontiguousarray(largest_first, dtype=np.float32), signal


def _shrunk(moment: Doubles, rows: float) -> Doubles:
    """The signal's covariance behind a sample covariance of signal plus unit noise."""
    aspect = min(1.0, len(moment) / max(rows, 1.0))
    eigenvalues, vectors = _detected(moment, aspect)
    return (vectors * _reliable(eigenvalues, aspect)) @ vectors.T


@dataclass(frozen=True, eq=False)
class Mixture:
    """``Σ_c π_c N(μ_c, S_c)``, observed with unit noise, over R directions.

    Attributes
    ----------
    log_weight, log_density : float64 arrays, shape (K,)
        ``log π_c``, and half the log-determinant of the precision of what is observed.
    mean : float32 array, shape (K, R)
    filters : float32 array, shape (K, F, F)
        ``S(S+I)⁻¹`` over the first F directions.
    gains : float32 array, shape (K, R − F)
        ``s/(s+1)`` for the remaining directions.
    """

    log_weight: Annotated[Doubles, "K"]
    log_density: Annotated[Doubles, "K"]
    mean: Annotated[Singles, "KR"]
    filters: Annotated[Singles, "KFF"]
    gains: Annotated[Singles, "KT"]

    @property
    def components(self) -> int:
        """K."""
        return len(self.mean)

    @property
    def weight(self) -> Doubles:
        """``π_c``."""
        return np.exp(self.log_weight)

    @property
    def _full(self) -> int:
        return len(self.filters[0])

    @classmethod
    def of_signals(
        cls,
        weight: Doubles,
        mean: Singles,
        signals: Doubles,
        rest: Doubles,
    ) -> Mixture:
        """From weights ``π``, means, covariances (K, F, F) and the other variances (K, R − F)."""
        precision = np.linalg.inv(signals + np.eye(signals.shape[1]))
        gains = rest / (rest + 1.0)
        _, log_determinant = np.linalg.slogdet(precision)
        of_rest = np.log1p(-gains).sum(axis=1)
        return cls(
            log_weight=np.log(weight),
            log_density=log_determinant / 2 + of_rest / 2,
            mean=mean.astype(np.float32),
            filters=(signals @ precision).astype(np.float32),
            gains=gains.astype(np.float32),
        )

    @classmethod
    def gaussian(cls, signal: Doubles, scales: Doubles = _ONE_SCALE) -> Mixture:
        """Mean 0 and these variances, shape (R,), at scales of equal probability, shape (K,)."""
        count = len(scales)
        variances = scales[:, None] * signal
        unit = np.eye(min(_FULL, len(signal)))
        return cls.of_signals(
            weight=np.full(count, 1 / count),
            mean=np.zeros(variances.shape, dtype=np.float32),
            signals=variances[:, :_FULL, None] * unit,
            rest=variances[:, _FULL:],
        )

    @classmethod
    def fit(
        cls,
        rows: Singles,
        components: int,
        share: Singles | None = None,
    ) -> Mixture:
        """Expectation–maximisation from rows of shape (n, R), with soft assignments throughout.

        Hard clusters would take each row's own noise for structure. A few rounds are enough where
        the responsibilities, shape (n, components), are known from noisier rows.
        """
        common = _Common(rows)
        rounds = _ROUNDS if share is None else _WARM_ROUNDS
        if share is None:
            share = common.first_responsibilities(components)
        mixture = common.maximise(share)
        for _ in range(rounds):
            mixture = common.maximise(mixture.responsibilities(rows))
        return mixture

    @classmethod
    def of_scales(cls, rows: Singles, signal: Doubles) -> Mixture:
        """A Gaussian at scales a factor of two apart, with weights fitted to rows, shape (n, R).

        The Gaussian scale mixture of Wainwright & Simoncelli 2000: vectors with one covariance up
        to a factor that varies between them, as contrast does between photographs.
        """
        even = cls.gaussian(signal, SCALES)
        odds = even._log_odds(rows)
        likelihood = np.exp(odds - odds.max(axis=1, keepdims=True))
        count = len(rows)
        weight = np.full(len(SCALES), 1 / len(SCALES))
        for _ in range(_SCALE_ROUNDS):  # expectation–maximisation over the weights alone
            expected = likelihood @ weight
            weight *= (1 / expected) @ likelihood / count
            weight += _UNLIKELY / count  # a weight of 0 could never come back
        return replace(even, log_weight=np.log(weight))

    def responsibilities(self, rows: Singles) -> Singles:
        """Posterior probability of each component, shape (n, K)."""
        if self.components == 1:
            return np.ones((len(rows), 1), dtype=np.float32)
        return np.asarray(scipy.special.softmax(self._log_odds(rows), axis=1))

    def _log_odds(self, rows: Singles) -> Singles:
        """``log π_c`` plus the log-likelihood of each row, up to a constant: shape (n, K)."""
        # With S(S+I)⁻¹ = VVᵀ: Σ (z − μ)²(1 − gain), expanded, without |Vᵀ(z − μ)|², by components.
        ones = np.ones_like(self.mean[:, : self._full])
        precision = np.hstack([ones, 1.0 - self.gains])
        weighted_mean = precision * self.mean
        odds = rows**2 @ precision.T
        odds -= 2 * (rows @ weighted_mean.T)
        odds += (weighted_mean * self.mean).sum(axis=1)
        odds *= -0.5
        constant = self.log_weight + self.log_density
        odds += constant.astype(np.float32)
        roots, shift, members = self._gained
        for block in row_blocks(len(rows), _DENOISED_ROWS):
            gained = rows[block, : self._full] @ roots
            gained -= shift
            np.square(gained, out=gained)
            odds[block] += gained @ members
        return odds

    @cached_property
    def _gained(self) -> tuple[Singles, Singles, Singles]:
        """Columns V/√2 of all components' filters ``2VVᵀ``, their ``Vᵀμ``, and whose they are."""
        values, vectors = np.linalg.eigh(self.filters.astype(np.float64))
        component, column = np.nonzero(values > _NO_GAIN)
        half = values[component, column, None] / 2
        roots = vectors[component, :, column] * np.sqrt(half)
        means = self.mean[component, : self._full]
        shift = np.einsum("ij,ij->i", roots, means)
        members = component[:, None] == np.arange(self.components)
        return (
            roots.T.astype(np.float32),
            shift.astype(np.float32),
            members.astype(np.float32),
        )

    def posterior(self, rows: Singles) -> tuple[Singles, Singles]:
        """Posterior means, shape (n, R), and responsibilities, shape (n, K)."""
        share = self.responsibilities(rows)
        return self.means(rows, share), share

    def means(self, rows: Singles, share: Singles) -> Singles:
        """Posterior means under these responsibilities, shape (n, R)."""
        if self.components == 1:
            return self.under_component(rows, 0)
        out = np.zeros_like(rows)
        for c, likely in enumerate(_likely_rows(share)):
            mean = self.under_component(rows[likely], c)
            out[likely] += share[likely, c : c + 1] * mean
        return out

    def under_component(self, rows: Singles, c: int) -> Singles:
        """Posterior means under component c, shape (n, R)."""
        centred = rows - self.mean[c]
        full = self._full
        first = centred[:, :full]
        first[:] = first @ self.filters[c]
        centred[:, full:] *= self.gains[c]
        return np.asarray(centred + self.mean[c])

    def leverage(self, basis: Singles) -> Singles:
        """``diag(B F_c Bᵀ)`` for each component's filter F_c and a basis B (k, R): (K, k)."""
        first = basis[:, : self._full]
        squares = basis[:, self._full :] ** 2
        inner = np.einsum("cij,ij->ci", first @ self.filters, first)
        of_rest = (squares @ self.gains[..., None])[..., 0]
        return np.asarray(inner + of_rest)

    def covariance(self) -> Doubles:
        """Second moment of the signal, all components together, shape (R, R)."""
        full = self._full
        filters = self.filters.astype(np.float64)
        gains = self.gains.astype(np.float64)
        mean = self.mean.astype(np.float64)
        signals = np.linalg.solve(np.eye(full) - filters, filters)
        signals = (signals + signals.transpose(0, 2, 1)) / 2
        total = (mean.T * self.weight) @ mean
        rest = gains / (1 - gains)
        total[:full, :full] += np.tensordot(self.weight, signals, 1)
        total[full:, full:] += np.diag(self.weight @ rest)
        return total

    def error(self) -> Doubles:
        """Posterior covariance, averaged over components, shape (R, R).

        Under unit noise that of a component is its filter ``S(S+I)⁻¹``.
        """
        full = self._full
        directions = self.mean.shape[1]
        total = np.zeros((directions, directions))
        filters = self.filters.astype(np.float64)
        total[:full, :full] = np.tensordot(self.weight, filters, 1)
        total[full:, full:] = np.diag(self.weight @ self.gains)
        return total


def _root(covariance: Doubles) -> Doubles:
    """L with ``LLᵀ`` the symmetric covariance, negative eigenvalues taken for 0."""
    symmetric = (covariance + covariance.T) / 2
    values, vectors = np.linalg.eigh(symmetric)
    deviations = np.sqrt(np.maximum(values, 0.0))
    return np.asarray(vectors * deviations)


class _Common:
    """The rows that a mixture is fitted to, and their common covariance."""

    def __init__(self, rows: Singles) -> None:
        self.rows = rows
        self.full = min(_FULL, rows.shape[1])
        centred = rows - rows.mean(axis=0)
        head = centred[:, : self.full]
        tail = centred[:, self.full :]
        scatter = (head.T @ head).astype(np.float64)
        self.covariance = scatter / len(rows)
        self.rest = tail.astype(np.float64).var(axis=0)

    def maximise(self, share: Singles) -> Mixture:
        """The most likely mixture given responsibilities, shape (n, K)."""
        rows = self.rows
        full = self.full
        count = share.sum(axis=0, dtype=np.float64)
        divisor = np.maximum(count, 1e-3)[:, None]
        mean = (share.T @ rows) / divisor.astype(np.float32)
        squares = rows[:, full:] ** 2
        mean_square = (share.T @ squares) / divisor
        variance = mean_square - mean[:, full:] ** 2
        # The common covariance counts for some more rows of every component.
        rows_of = count + _PRIOR_ROWS
        own_rest = variance * count[:, None]
        rest = (own_rest + _PRIOR_ROWS * self.rest) / rows_of[:, None]
        signals = []
        for c, likely in enumerate(_likely_rows(share)):
            centred = rows[likely, :full] - mean[c, :full]
            weighted = centred * share[likely, c, None]
            scatter = weighted.T @ centred
            # Rows that a component hardly explains are left out of the product, which takes most of
            # the time; what they would add is below a thousandth each.
            observed = (scatter + _PRIOR_ROWS * self.covariance) / rows_of[c]
            signals.append(_shrunk(observed, rows_of[c]))
        return Mixture.of_signals(
            weight=count / len(rows) + 1e-12,
            mean=mean,
            signals=np.stack(signals),
            rest=np.maximum(rest - 1.0, 0.0),
        )

    def first_responsibilities(self, components: int) -> Singles:
        """Nearly hard responsibilities from a few rounds of k-means on filtered rows."""
        count = len(self.rows)
        signal = _shrunk(self.covariance, count)
        observed = signal + np.eye(self.full)
        filter_ = signal @ np.linalg.inv(observed)
        first = self.rows[:, : self.full]
        points = first @ filter_.astype(np.float32)
        order = PublicStream(0, "denoise/centres").permutation(count)
        centres = points[order[:components]]
        for _ in range(_CENTRE_ROUNDS):
            squares = (centres**2).sum(axis=1)
            closeness = points @ centres.T - squares / 2
            nearest = np.argmax(closeness, axis=1)
            member = np.zeros((count, components), dtype=np.float32)
            member[np.arange(count), nearest] = 1.0
            sizes = member.sum(axis=0)[:, None]
            means = (member.T @ points) / np.maximum(sizes, 1)
            centres = np.where(sizes > 0, means, centres)
        elsewhere = np.float32(0.1 / components)
        return 0.9 * member + elsewhere


@dataclass(frozen=True, eq=False)
class MixtureFilter:
    """Posterior means under a mixture prior of vectors seen through independent Gaussian noise.

    Attributes
    ----------
    mean, noise : float32 arrays, shape (k,)
        Mean of the vectors, and the noise variance of each coordinate.
    basis : float32 array, shape (k, R)
        Leading directions of the whitened signal.
    prior : Mixture
        Over those directions.
    leverage : float32 array, shape (K, k)
        Weight of each coordinate in its own estimate under each component.
    """

    mean: Annotated[Singles, "k"]
    noise: Annotated[Singles, "k"]
    basis: Annotated[Singles, "kR"]
    prior: Mixture
    leverage: Annotated[Singles, "Kk"]

    @cached_property
    def synthesis(self) -> Singles:
        """The basis in units of the data, shape (k, R)."""
        return self.basis * np.sqrt(self.noise)[:, None]

    @cached_property
    def _analysis(self) -> Singles:
        """The basis over the noise's deviations, shape (k, R)."""
        return np.asarray(self.basis / np.sqrt(self.noise)[:, None])

    @property
    def error_variance(self) -> Doubles:
        """Squared error of a posterior mean under each component, shape (K,)."""
        return np.asarray(self.leverage @ self.noise, dtype=np.float64)

    def mapped_error_variance(self, weights: Singles) -> Doubles:
        """Return :attr:`error_variance` of posterior means times weights of shape (k, p)."""
        leverage = self.prior.leverage(weights.T @ self.synthesis)
        return np.asarray(leverage.sum(axis=1, dtype=np.float64))

    def _along(self, z: Singles) -> Singles:
        """Return observations along the basis, in deviations of the noise: shape (n, R)."""
        rows = z @ self._analysis - self.mean @ self._analysis
        return np.asarray(rows, dtype=np.float32)

    def _expanded(self, inner: Singles) -> Singles:
        """Return vectors of coordinates along the basis, shape (n, k)."""
        out = inner @ self.synthesis.T
        out += self.mean
        return out

    def inner(self, z: Singles) -> tuple[Singles, Singles]:
        """Posterior means along the basis, (n, R), and the responsibilities behind them, (n, K)."""
        return self.prior.posterior(self._along(z))

    def under(self, noise: Doubles) -> Singles:
        """The best linear filter ``A`` for the same vectors under other noise: ``(z − mean) @ A``.

        The prior's own mean and covariance, components taken together, replace the mixture.
        """
        # S(S + D)⁻¹ = ED⁻¹ for signal S, noise D and error covariance E.
        root = self.error_root_under(noise)
        filter_ = (root / noise[:, None]) @ root.T
        return filter_.astype(np.float32)

    def error_root(self) -> Singles:
        """L such that errors of posterior means have the covariance LLᵀ, as the prior claims it."""
        root = _root(self.prior.error())
        return (self.synthesis @ root).astype(np.float32)

    def error_root_under(self, noise: Doubles) -> Doubles:
        """Return the root of the error covariance of the filter ``under`` that noise.

        It is that of ``L(I + LᵀD⁻¹L)⁻¹Lᵀ``, by Woodbury, where LLᵀ is the signal's covariance.
        """
        # Components of the prior are taken together.
        synthesis = self.synthesis.astype(np.float64)
        factor = synthesis @ _root(self.prior.covariance())
        observed = factor.T @ (factor / noise[:, None])
        precision = np.eye(factor.shape[1]) + observed
        inverse = np.asarray(np.linalg.inv(precision), dtype=np.float64)
        return factor @ _root(inverse)

    def predict(self, z: Singles) -> tuple[Singles, Singles, Singles]:
        """Each coordinate predicted from the others, and the variance the filter claims for it.

        The variances have one row if they are those of all. Also the responsibilities, (n, K). A
        Gaussian estimate is ``a·z + (1−a)·prediction`` with a the coordinate's leverage, so the
        prediction is ``estimate + a/(1−a)·(estimate − z)``.
        """
        rows = self._along(z)
        share = self.prior.responsibilities(rows)
        is_mixed = share.max(axis=1) < 1 - _UNLIKELY
        if not is_mixed.any():
            return *self._predict_sure(z, rows, share), share
        prediction = np.empty_like(z)
        variance = np.empty_like(z)
        # Rows between components are estimated under each of them; once is enough.
        for part, predict in ((is_mixed, self._predict_mixed), (~is_mixed, self._predict_sure)):
            prediction[part], variance[part] = predict(z[part], rows[part], share[part])
        return prediction, variance, share

    def _predict_sure(self, z: Singles, rows: Singles, share: Singles) -> tuple[Singles, Singles]:
        """Predictions of rows of one component, and claimed variances."""
        estimate = self._expanded(self.prior.means(rows, share))
        # Under one component the claims of all rows are alike.
        if self.prior.components == 1:
            share = share[:1]
        weight = share @ self.leverage
        np.minimum(weight, np.float32(_MAX_LEVERAGE), out=weight)
        weight /= 1 - weight
        change = estimate - z
        change *= weight
        estimate += change
        weight *= self.noise
        return estimate, weight

    def _predict_mixed(self, z: Singles, rows: Singles, share: Singles) -> tuple[Singles, Singles]:
        """Predictions of rows between components, and claimed variances, both of shape (n, k).

        The responsibilities have read the coordinate, too. Those of the others alone are these over
        the density of the coordinate given the others, which is normal around the prediction with
        variance ``noise/(1−a)``.
        """
        leverage = np.minimum(self.leverage, np.float32(_MAX_LEVERAGE))
        rest = 1 - leverage
        claims = leverage / rest * self.noise
        total, moved, squared = (np.zeros_like(z) for _ in range(3))
        for c, likely in enumerate(_likely_rows(share)):
            gap = self._expanded(self.prior.under_component(rows[likely], c))
            gap -= z[likely]
            weight = gap**2
            weight /= 2 * self.noise * rest[c]
            np.exp(np.minimum(weight, _MAX_SURPRISE, out=weight), out=weight)
            weight *= share[likely, c, None] / np.sqrt(rest[c])
            gap /= rest[c]
            total[likely] += weight
            moved[likely] += weight * gap
            np.square(gap, out=gap)
            gap += claims[c]
            weight *= gap
            squared[likely] += weight
        moved /= total
        squared /= total
        squared -= moved**2
        np.maximum(squared, claims.min(axis=0), out=squared)
        moved += z
        return moved, squared
