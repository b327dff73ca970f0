"""Cosines read off denoised codes, with the errors that the denoiser knows of.

A denoised code is the posterior mean of its vector, so inner products with it are posterior means
too, which selection does not bias. It is shorter than the vector by what the codes hide, and
cosines are lower by as much: ``cos(x̂, q)·√(E‖x̂‖²/E‖x‖²)``, on both sides if both are denoised.
"""

from __future__ import annotations

import math

import numpy as np

from dpindex.base.arrays import AnyArray, Doubles, Singles, spaced, unit
from dpindex.denoise import Denoiser
from dpindex.mechanism.codes import Codes
from dpindex.mechanism.spec import Spec
from dpindex.similarity.float_codes import Estimate, NoisyVectorStats, noise_moments
from dpindex.similarity.similarity import Estimator, PrivateQueries, Queries

_SAMPLE_ROWS = 2048


class DenoisedSimilarity(Estimator):
    """Posterior cosines of number codes, in the order in which a denoiser ranks them.

    Parameters
    ----------
    denoiser : Denoiser
    codes : Codes
        Of the collection; a sample of them says how much shorter denoised codes are.
    """

    def __init__(self, denoiser: Denoiser, codes: Codes) -> None:
        self._denoiser = denoiser
        sample = codes.take(spaced(len(codes), _SAMPLE_ROWS))
        denoised = float(_squares(denoiser(sample)).mean())
        stats = NoisyVectorStats.of(sample.to_float(), noise_moments(denoiser.spec))
        self._energy = max(float(stats.energy.mean()), denoised, 1e-300)
        self._hidden = self._energy - denoised
        self._errors: dict[Spec, tuple[float, Singles]] = {}

    def estimates(self, codes: Codes, queries: Queries, groups: int) -> Estimate:
        spec = self._denoiser.spec
        x = self._denoiser(codes)
        if isinstance(queries, PrivateQueries):
            y = self._denoiser(queries.codes, queries.spec).astype(np.float64)
        else:
            y = queries.to_float()
        u = unit(x).reshape(groups, -1, x.shape[1])
        v = unit(y)[:, None]
        score = np.matmul(u, v.swapaxes(1, 2))[..., 0].astype(np.float64)
        kept = self._kept(spec)
        value = score * kept
        squares = _squares(x).reshape(groups, -1)
        variance = self._variance(v, u, squares, spec) + (score * (1 - kept)) ** 2
        if isinstance(queries, PrivateQueries):
            kept = self._kept(queries.spec)
            value *= kept
            squares = _squares(y)[:, None]
            variance += self._variance(u, v, squares, queries.spec) + (score * (1 - kept)) ** 2
        variance += (1 - value**2) ** 2 * spec.projection.inner_product_factor
        return np.clip(value, -1.0, 1.0), np.sqrt(variance)

    def _kept(self, spec: Spec) -> float:
        """Return the length of a denoised code over that of its vector, root mean squares."""
        hidden, _ = self._error(spec)
        return math.sqrt(1 - hidden / self._energy)

    def _error(self, spec: Spec) -> tuple[float, Singles]:
        """Return the squared length that estimates lack, and the root of their covariance."""
        if spec not in self._errors:
            root = self._denoiser.error_root(spec)
            claimed = float(np.sum(root**2))
            hidden = min(claimed, self._energy)
            if spec == self._denoiser.spec:  # the error is at least what the lengths show
                hidden = self._hidden
                larger = max(1.0, self._hidden / max(claimed, 1e-30))
                root = root * np.float32(math.sqrt(larger))
            self._errors[spec] = hidden, root
        return self._errors[spec]

    def _variance(self, other: Singles, own: Singles, squares: Doubles, spec: Spec) -> Doubles:
        """Return the variance of the cosine by the error of one side x, shape (nq, count).

        The cosine ρ changes with x by ``(other − ρ·own)/‖x‖``.

        Parameters
        ----------
        other, own : float32 arrays, shapes (groups, count, k) that broadcast
            Directions of the other side, and of x.
        squares : float64 array
            Squared norms of denoised x, (groups, count).
        spec : Spec
            Of the codes of x.
        """
        hidden, root = self._error(spec)
        error_along_other = other @ root
        error_along_own = own @ root
        rho = _pairwise(other, own)
        mixed = _pairwise(error_along_other, error_along_own)
        along = np.sum(error_along_other**2, axis=2)
        across = np.sum(error_along_own**2, axis=2)
        moved = np.maximum(along - 2 * rho * mixed + rho**2 * across, 0.0)
        energy = squares + hidden + 1e-12 * self._energy
        return np.asarray(moved, np.float64) / energy


def _squares(x: AnyArray) -> Doubles:
    """Return squared norms of rows, in double precision."""
    return np.asarray(np.sum(x.astype(np.float64) ** 2, axis=1))


def _pairwise(p: Singles, q: Singles) -> Singles:
    """Return inner products of the rows of two stacks, shape (nq, count)."""
    products = np.matmul(p, q.swapaxes(1, 2))
    return np.asarray(products.reshape(max(len(p), len(q)), -1))
