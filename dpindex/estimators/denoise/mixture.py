"""A soft mixture of Gaussians under unit noise: the prior that the filters of METHODS 5 come from.

It lives in the leading directions of the whitened signal. Each component has a full covariance over
the first few of them and variances over the rest: enough to tell kinds of vectors apart, few enough
parameters to be learned from noisy codes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy.special import softmax

from dpindex.estimators.denoise.spectrum import shrunk
from dpindex.randomness import PublicStream

__all__ = ["SCALES", "Mixture"]

Doubles = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]

_FULL = 96
_PRIOR_ROWS = 200.0
"""Every component's covariance is mixed with this many rows of the common one."""

_ROUNDS = 8
_CENTRE_ROUNDS = 8
_UNLIKELY = 1e-3

SCALES = 2.0 ** np.arange(-5, 5)
"""Sizes of a scale mixture: variances over that of the common Gaussian."""

_SCALE_ROUNDS = 50


@dataclass(frozen=True, eq=False)
class Mixture:
    """``Σ_c π_c N(μ_c, S_c)``, observed with unit noise, over R directions.

    Attributes
    ----------
    log_weight : float64 array, shape (K,)
        ``log π_c`` and half the log-determinant of the precision of what is observed.
    mean : float32 array, shape (K, R)
    filters, roots : float32 arrays, shape (K, F, F)
        ``S(S+I)⁻¹`` and the Cholesky factor of ``(S+I)⁻¹`` over the first F directions.
    gains : float32 array, shape (K, R)
        ``s/(s+1)`` for the directions after those.
    """

    log_weight: Doubles
    mean: Singles
    filters: Singles
    roots: Singles
    gains: Singles

    @property
    def components(self) -> int:
        return len(self.mean)

    @classmethod
    def fit(cls, rows: Singles, components: int) -> Mixture:
        """Expectation–maximisation from rows of shape (n, R), soft throughout.

        Hard clusters would count each row's own noise as structure.
        """
        common = _Common(rows)
        if components == 1:
            return common.maximise(rows, np.ones((len(rows), 1), dtype=np.float32))
        mixture = common.maximise(rows, _near_centres(common, rows, components))
        for _ in range(_ROUNDS):
            mixture = common.maximise(rows, mixture.responsibilities(rows))
        return mixture

    @classmethod
    def of_scales(cls, rows: Singles) -> Mixture:
        """One Gaussian in several sizes, a factor of two apart, from rows of shape (n, R).

        The scale mixture of Wainwright & Simoncelli 2000: vectors of one shape that have more or
        less of everything, as photographs have of contrast.
        """
        unweighted = _Common(rows).in_sizes(rows.mean(axis=0))
        odds = unweighted._log_odds(rows)
        weight = np.full(len(SCALES), 1 / len(SCALES))
        for _ in range(_SCALE_ROUNDS):  # expectation–maximisation, over the weights alone
            share = softmax(odds + np.log(weight), axis=1)
            weight = share.mean(axis=0) + _UNLIKELY / len(rows)
        return replace(unweighted, log_weight=unweighted.log_weight + np.log(weight))

    def responsibilities(self, rows: Singles) -> Singles:
        """Posterior chance of each component, shape (n, K)."""
        if self.components == 1:
            return np.ones((len(rows), 1), dtype=np.float32)
        odds = self._log_odds(rows)
        odds -= odds.max(axis=1, keepdims=True)
        np.exp(odds, out=odds)
        return np.asarray(odds / odds.sum(axis=1, keepdims=True))

    def _log_odds(self, rows: Singles) -> Singles:
        """Log-likelihood of each row under each component, weighted, but for a constant: (n, K)."""
        full = self.filters.shape[1]
        odds = np.empty((len(rows), self.components), dtype=np.float32)
        rest = rows[:, full:]
        for c in range(self.components):
            near = (rows[:, :full] - self.mean[c, :full]) @ self.roots[c]
            odds[:, c] = np.einsum("ij,ij->i", near, near)
        # Σ (z − μ)²(1 − gain) over the rest, expanded into two products.
        precision = 1.0 - self.gains[:, full:]
        centre = self.mean[:, full:]
        odds += rest**2 @ precision.T - 2 * (rest @ (precision * centre).T)
        odds += (precision * centre**2).sum(axis=1)
        odds *= -0.5
        odds += self.log_weight.astype(np.float32)
        return odds

    def posterior(self, rows: Singles) -> tuple[Singles, Singles]:
        """Posterior means, shape (n, R), and responsibilities."""
        share = self.responsibilities(rows)
        out = np.zeros_like(rows)
        for c in range(self.components):
            if self.components == 1:
                return self._component(rows, 0), share
            likely = np.flatnonzero(share[:, c] > _UNLIKELY)
            out[likely] += share[likely, c : c + 1] * self._component(rows[likely], c)
        return out, share

    def _component(self, rows: Singles, c: int) -> Singles:
        full = self.filters.shape[1]
        centred = rows - self.mean[c]
        out = centred * self.gains[c]
        out[:, :full] = centred[:, :full] @ self.filters[c]
        return np.asarray(out + self.mean[c])

    def between(self, rows: Singles, basis: Singles) -> Singles:
        """What responsibilities add to ``diagonal``, on average over rows: shape (k,).

        Under unit noise the derivative of a posterior mean is the posterior covariance: that of the
        components, and that between their means, ``Σ_c r_c (m_c − m)(m_c − m)ᵀ``.
        """
        if self.components == 1:
            return np.zeros(len(basis), dtype=np.float32)
        mean, share = self.posterior(rows)
        total = np.zeros(len(basis), dtype=np.float32)
        for c in range(self.components):
            likely = np.flatnonzero(share[:, c] > _UNLIKELY)
            apart = (self._component(rows[likely], c) - mean[likely]) @ basis.T
            total += share[likely, c] @ apart**2
        return np.asarray(total / np.float32(len(rows)))

    def covariance(self) -> Doubles:
        """Second moment of the signal, all components together, shape (R, R)."""
        full, directions = self.filters.shape[1], self.mean.shape[1]
        total = np.zeros((directions, directions))
        for c, chance in enumerate(self.weights):
            filter_ = self.filters[c].astype(np.float64)
            gains = self.gains[c, full:].astype(np.float64)
            own = np.diag(np.concatenate([np.zeros(full), gains / (1 - gains)]))
            own[:full, :full] = np.linalg.solve(np.eye(full) - filter_, filter_)
            centre = self.mean[c].astype(np.float64)
            total += chance * ((own + own.T) / 2 + np.outer(centre, centre))
        return total

    @property
    def weights(self) -> Doubles:
        """``π_c``."""
        full = self.filters.shape[1]
        roots = np.diagonal(self.roots, axis1=1, axis2=2).astype(np.float64)
        gains = self.gains[:, full:].astype(np.float64)
        spread = np.log(roots).sum(axis=1) + np.log1p(-gains).sum(axis=1) / 2
        return np.asarray(np.exp(self.log_weight - spread))

    def diagonal(self, basis: Singles) -> Singles:
        """``diag(B F_c Bᵀ)`` for each component's filter F_c and a basis B (k, R): (K, k)."""
        full = self.filters.shape[1]
        first, rest = basis[:, :full], basis[:, full:] ** 2
        return np.stack(
            [
                np.einsum("ij,ij->i", first @ self.filters[c], first) + rest @ self.gains[c, full:]
                for c in range(self.components)
            ]
        )


class _Common:
    """What the components share while a mixture is fitted: the covariance of all rows."""

    def __init__(self, rows: Singles) -> None:
        self.rows, self.full = len(rows), min(_FULL, rows.shape[1])
        centred = rows - rows.mean(axis=0)
        self.variance = centred.astype(np.float64).var(axis=0)
        head = centred[:, : self.full]
        self.covariance = (head.T @ head).astype(np.float64) / len(rows)

    def maximise(self, rows: Singles, share: Singles) -> Mixture:
        count = share.sum(axis=0, dtype=np.float64)
        prior = _PRIOR_ROWS if share.shape[1] > 1 else 0.0
        mean = (share.T @ rows) / np.maximum(count, 1e-3)[:, None].astype(np.float32)
        square = (share.T @ rows**2) / np.maximum(count, 1e-3)[:, None] - mean**2
        mixed = (square * count[:, None] + prior * self.variance) / (count[:, None] + prior)
        signal = np.maximum(mixed - 1.0, 0.0)
        gains = signal / (signal + 1.0)
        filters, roots, log_weight = [], [], []
        for c in range(share.shape[1]):
            precision, filter_ = self._component(rows, share[:, c], mean[c], count[c], prior)
            filters.append(filter_)
            root = np.linalg.cholesky(precision)
            roots.append(root)
            spread = np.log(np.diag(root)).sum() - np.log1p(signal[c, self.full :]).sum() / 2
            log_weight.append(np.log(count[c] / len(rows) + 1e-12) + spread)
        single = [np.asarray(a, dtype=np.float32) for a in (mean, filters, roots, gains)]
        return Mixture(np.array(log_weight), *single)

    def in_sizes(self, mean: Singles) -> Mixture:
        """The common Gaussian in every size, each of weight one."""
        values, vectors = np.linalg.eigh(shrunk(self.covariance, self.rows))
        rest = np.maximum(self.variance[self.full :] - 1.0, 0.0)
        filters, roots, gains, log_weight = [], [], [], []
        for scale in SCALES:
            signal = scale * np.maximum(values, 0.0)
            precision = (vectors / (1 + signal)) @ vectors.T
            filters.append((vectors * (signal / (1 + signal))) @ vectors.T)
            roots.append(np.linalg.cholesky((precision + precision.T) / 2))
            tail = scale * rest
            gains.append(np.concatenate([np.zeros(self.full), tail / (1 + tail)]))
            log_weight.append(-(np.log1p(signal).sum() + np.log1p(tail).sum()) / 2)
        means = np.tile(mean, (len(SCALES), 1))
        single = [np.asarray(a, dtype=np.float32) for a in (means, filters, roots, gains)]
        return Mixture(np.array(log_weight), *single)

    def _component(
        self, rows: Singles, share: Singles, mean: Singles, count: float, prior: float
    ) -> tuple[Doubles, Doubles]:
        likely = np.flatnonzero(share > _UNLIKELY)
        centred = rows[likely, : self.full] - mean[: self.full]
        scatter = (centred * share[likely, None]).T @ centred
        observed = (scatter + prior * self.covariance) / (count + prior)
        signal = shrunk(observed, count + prior)
        precision = np.linalg.inv(signal + np.eye(self.full))
        return (precision + precision.T) / 2, signal @ precision


def _near_centres(common: _Common, rows: Singles, components: int) -> Singles:
    """First responsibilities, by a few rounds of k-means on filtered rows; nearly hard."""
    signal = shrunk(common.covariance, len(rows))
    filter_ = signal @ np.linalg.inv(signal + np.eye(common.full))
    points = rows[:, : common.full] @ filter_.astype(np.float32)
    first = PublicStream(0, "denoise/centres").permutation(len(rows))[:components]
    centres = points[first]
    for _ in range(_CENTRE_ROUNDS):
        nearest = np.argmax(points @ centres.T - (centres**2).sum(axis=1) / 2, axis=1)
        member = np.zeros((len(rows), components), dtype=np.float32)
        member[np.arange(len(rows)), nearest] = 1.0
        count = member.sum(axis=0)[:, None]
        centres = np.where(count > 0, (member.T @ points) / np.maximum(count, 1), centres)
    return np.asarray(0.9 * member + np.float32(0.1 / components), dtype=np.float32)
