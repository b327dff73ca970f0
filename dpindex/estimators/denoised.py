"""Cosines read off denoised codes, with the errors that the denoiser knows of.

A denoised code is the posterior mean of its vector, so inner products with it are posterior means
too, which selection does not bias. It is shorter than the vector by what the codes hide, and
cosines are lower by as much: ``cos(x̂, q)·√(E‖x̂‖²/E‖x‖²)``, on both sides if both are denoised.
"""

from __future__ import annotations

import math

import numpy as np

from dpindex.arrays import Doubles, Singles, unit
from dpindex.codes import Codes
from dpindex.estimators.denoise import Denoiser
from dpindex.estimators.float_codes import Estimate, NoisyVectorStats
from dpindex.estimators.similarity import Queries
from dpindex.spec import Spec

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
        self._denoiser, spec = denoiser, denoiser.spec
        some = codes.take(np.linspace(0, len(codes) - 1, min(len(codes), _SAMPLE_ROWS)).astype(int))
        noise = spec.law.moments.in_units(spec.step)
        # to_rank divides by what the denoiser takes for the vector's length.
        found, ranked = (
            np.sum(x.astype(np.float64) ** 2, axis=1)
            for x in (denoiser(some), denoiser.to_rank(some))
        )
        energy = float(NoisyVectorStats.of(some.to_float(), noise).energy.mean())
        self._energy = max(energy, float(found.mean()), 1e-300)
        explained = float(np.mean(found / np.maximum(ranked, 1e-300))) / self._energy
        self._kept = min(math.sqrt(explained), 1.0)
        self._sides: dict[Spec, tuple[float, Singles]] = {}

    def of_found(self, codes: Codes, queries: Queries) -> Estimate:
        """Each query with codes of its own: see :class:`Similarity`."""
        return self._of(self._denoiser.to_rank(codes), queries, len(queries))

    def of_all(self, codes: Codes, queries: Queries) -> Estimate:
        """Every query with all of the codes."""
        return self._of(self._denoiser.to_rank(codes), queries, 1)

    def _of(self, items: Singles, queries: Queries, groups: int) -> Estimate:
        """Of items, in as many groups as there are queries, or one for all."""
        spec, asked = self._denoiser.spec, queries.to_float()
        if queries.private:
            asked = self._denoiser(queries.values, queries.spec).astype(np.float64)
        v = unit(asked)[:, None]
        items, u = (x.reshape(groups, -1, items.shape[1]) for x in (items, unit(items)))
        score = np.matmul(items, v.swapaxes(1, 2))[..., 0].astype(np.float64)
        kept, root = self._side(spec)
        value, variance = score * kept, self._variance(v, u, root) + (score * (1 - kept)) ** 2
        if queries.private:
            kept, root = self._side(queries.spec)
            variance += self._variance(u, v, root) + (score * (1 - kept)) ** 2
            value *= kept
        variance += (1 - value**2) ** 2 * spec.projection.inner_product_factor
        return np.clip(value, -1.0, 1.0), np.sqrt(variance)

    def _side(self, spec: Spec) -> tuple[float, Singles]:
        """What denoised codes of a spec keep of the length, and the root of their error."""
        if spec not in self._sides:
            root = self._denoiser.error_root(spec)
            hidden = float(np.sum(root**2)) / self._energy
            kept = math.sqrt(max(1 - hidden, 0.0))
            if spec == self._denoiser.spec:  # the error is at least what the lengths show
                kept = self._kept
                root = root * np.float32(max(1, (1 - kept**2) / max(hidden, 1e-30)) ** 0.5)
            self._sides[spec] = kept, root
        return self._sides[spec]

    def _variance(self, other: Singles, own: Singles, root: Singles) -> Doubles:
        """Of the cosine, by the error of one side, unit vectors of which are ``own``.

        The cosine ρ changes with that side's vector x by ``(other − ρ·own)/‖x‖``.
        """
        a, b = other @ root, own @ root
        rho, mixed = (
            np.matmul(x, y.swapaxes(1, 2)).reshape(max(len(x), len(y)), -1)
            for x, y in ((other, own), (a, b))
        )
        along, across = np.sum(a**2, axis=2), np.sum(b**2, axis=2)
        changed = along - 2 * rho * mixed + rho**2 * across
        return np.asarray(np.maximum(changed, 0.0) / self._energy, np.float64)
