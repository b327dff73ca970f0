"""Cosines read off denoised codes, with the errors that the denoiser knows of.

A denoised code is the posterior mean of its vector, so inner products with it are posterior means
too, which selection does not bias. It is shorter than the vector by what the codes hide, and
cosines are lower by as much: ``cos(x̂, q)·√(E‖x̂‖²/E‖x‖²)``, on both sides if both are denoised.
"""

from __future__ import annotations

import math

import numpy as np

from dpindex.base.arrays import Doubles, Singles, unit
from dpindex.denoise import Denoiser
from dpindex.mechanism.codes import Codes
from dpindex.mechanism.spec import Spec
from dpindex.similarity.float_codes import Estimate, NoisyVectorStats, noise_moments
from dpindex.similarity.similarity import Queries

_SAMPLE_ROWS = 2048


class DenoisedSimilarity:
    """Posterior cosines of number codes, in the order in which a denoiser ranks them.

    Parameters
    ----------
    denoiser : Denoiser
    codes : Codes
        Of the collection; a sample of them says how much shorter denoised codes are.
    """

    def __init__(self, denoiser: Denoiser, codes: Codes) -> None:
        self._denoiser = denoiser
        spec = denoiser.spec
        some = codes.take(np.linspace(0, len(codes) - 1, min(len(codes), _SAMPLE_ROWS)).astype(int))
        noise = noise_moments(spec)
        found = float(np.mean(np.sum(denoiser(some).astype(np.float64) ** 2, axis=1)))
        energy = float(NoisyVectorStats.of(some.to_float(), noise).energy.mean())
        self._energy = max(energy, found, 1e-300)
        self._hidden = self._energy - found
        self._errors: dict[Spec, tuple[float, Singles]] = {}

    def of_found(self, codes: Codes, queries: Queries) -> Estimate:
        """Each query with codes of its own: see :class:`Similarity`."""
        return self._of(self._denoiser(codes), queries, len(queries))

    def of_all(self, codes: Codes, queries: Queries) -> Estimate:
        """Every query with all of the codes."""
        return self._of(self._denoiser(codes), queries, 1)

    def _of(self, x: Singles, queries: Queries, groups: int) -> Estimate:
        """Of denoised codes, in as many groups as there are queries, or one for all."""
        spec = self._denoiser.spec
        y = queries.to_float()
        if queries.private:
            y = self._denoiser(queries.values, queries.spec).astype(np.float64)
        u = unit(x).reshape(groups, -1, x.shape[1])
        v = unit(y)[:, None]
        squares = np.sum(x.astype(np.float64) ** 2, axis=1).reshape(groups, -1)
        score = np.matmul(u, v.swapaxes(1, 2))[..., 0].astype(np.float64)
        hidden, root = self._error(spec)
        kept = math.sqrt(1 - hidden / self._energy)
        value = score * kept
        least = 1e-12 * self._energy
        variance = (
            self._variance(v, u, root) / (squares + hidden + least) + (score * (1 - kept)) ** 2
        )
        if queries.private:
            hidden, root = self._error(queries.spec)
            squares = np.sum(y**2, axis=1)[:, None]
            kept = math.sqrt(1 - hidden / self._energy)
            value *= kept
            variance += (
                self._variance(u, v, root) / (squares + hidden + least) + (score * (1 - kept)) ** 2
            )
        variance += (1 - value**2) ** 2 * spec.projection.inner_product_factor
        return np.clip(value, -1.0, 1.0), np.sqrt(variance)

    def _error(self, spec: Spec) -> tuple[float, Singles]:
        """Squared length that estimates lack, and the root of the covariance of their errors."""
        if spec not in self._errors:
            root = self._denoiser.error_root(spec)
            claimed = float(np.sum(root**2))
            if spec == self._denoiser.spec:  # the error is at least what the lengths show
                larger = max(1.0, self._hidden / max(claimed, 1e-30))
                self._errors[spec] = self._hidden, root * np.float32(math.sqrt(larger))
            else:
                self._errors[spec] = min(claimed, self._energy), root
        return self._errors[spec]

    @staticmethod
    def _variance(other: Singles, own: Singles, root: Singles) -> Doubles:
        """Of the cosine, times ‖x‖², by the error of one side x, whose directions are ``own``.

        The cosine ρ changes with x by ``(other − ρ·own)/‖x‖``.
        """
        a = other @ root
        b = own @ root
        rho, mixed = (
            np.matmul(p, q.swapaxes(1, 2)).reshape(max(len(p), len(q)), -1)
            for p, q in ((other, own), (a, b))
        )
        along = np.sum(a**2, axis=2)
        across = np.sum(b**2, axis=2)
        return np.asarray(np.maximum(along - 2 * rho * mixed + rho**2 * across, 0.0), np.float64)
