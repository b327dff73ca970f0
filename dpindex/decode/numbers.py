"""Number codes: decoded vectors, corrected by the moments of the noise."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from dpindex.base.arrays import Doubles, Floats
from dpindex.decode.base import Estimate, InnerProductDecoder, PrivateQueries, Queries
from dpindex.decode.calibration import (
    GRID,
    PAIRED_ROWS,
    Decoded,
    ObservationLaw,
    SimilarityCalibration,
    energies_given,
    fitted_energies,
    log_energies,
)
from dpindex.decode.common import with_common, without_common
from dpindex.decode.jumps import jump_limit, jumps, moments_within, without_jumps
from dpindex.decode.number_likelihoods import NumberLikelihoods
from dpindex.decode.number_moments import METRICS, NOISELESS, NoisyVectorStats
from dpindex.decode.posterior import TablePosterior
from dpindex.mechanism.codes import Codes
from dpindex.mechanism.noise.moments import NoiseMoments
from dpindex.mechanism.spec import Spec

_TINY = 1e-300

_MANY = 48
"""Codes of fewer coordinates, as of tables, keep their common direction: without it too little is
left. Sums of few coordinates are not normal, so errors reach to the unbiased estimate."""

_HEDGE = 0.15
"""Without it, errors of pictures made of blobs hold 88 times in 100."""


class NumberPosterior(TablePosterior):
    """Number codes: inner products over norms, as the codes of the collection show them.

    Below m is the energy (squared norm) of a vector, σ² the noise variance of a coordinate and f
    the projection's factor of inner products.
    """

    @classmethod
    def fit(cls, spec: Spec, codes: Codes, rows: int) -> SimilarityCalibration:
        x = codes.to_float().astype(np.float64)
        limit = jump_limit(x, spec)
        if limit:
            x = without_jumps(x, limit)
        stats = NoisyVectorStats.of(x, _moments(spec, limit))
        least = max(1e-9 * float(stats.squares.mean()), 1e-150)
        energy = max(float(stats.energy.mean()), least)
        total = float(stats.total.mean()) / math.sqrt(energy)
        known = SimilarityCalibration(rows, energy, total, limit=limit)
        variance = cls(spec, known)._energy_variance(spec)
        energies = fitted_energies(stats.energy[:PAIRED_ROWS], energy, variance)
        known = replace(known, energies=energies)
        if spec.code_length >= _MANY:
            known = with_common(known, cls(spec, known).decode(codes))
        return cls(spec, known).with_prior(codes)

    def _energy_variance(self, spec: Spec) -> Doubles:
        """Variance of an estimate of m at each value of the grid, for typical codes."""
        grid = log_energies(self.calibration.energy)
        norm = np.sqrt(grid)
        total = self.calibration.total * norm
        typical = NoisyVectorStats(
            total,
            grid,
            spec.code_length,
            _moments(spec, self.calibration.limit),
            norm,
        )
        least = 1e-4 * grid**2
        return typical.energy_variance + least

    @property
    def hedge(self) -> float:
        return _HEDGE if self.spec.code_length >= _MANY else 1.0

    def law(self, query_spec: Spec | None) -> ObservationLaw:
        # What the noise does is in s².
        of_projection = self.spec.projection.inner_product_factor * (1 - GRID**2) ** 2
        return ObservationLaw(GRID, of_projection)

    def decode(self, codes: Codes) -> Decoded:
        decoded = self._decoded(codes.to_float().astype(np.float64), self.spec)
        return without_common(decoded, self.calibration)

    def decode_queries(self, queries: Queries) -> Decoded:
        y = queries.to_float()
        if isinstance(queries, PrivateQueries):
            side = self._decoded(y, queries.spec)
        else:
            norms = np.linalg.norm(y, axis=1, keepdims=True)
            side = Decoded.plain(y / np.maximum(norms, _TINY))
        return without_common(side, self.calibration)

    def _decoded(self, x: Doubles, spec: Spec) -> Decoded:
        limit = self.calibration.limit
        if limit and jumps(spec):
            x = without_jumps(x, limit)
        stats = NoisyVectorStats.of(x, _moments(spec, limit))
        variance = self._energy_variance(spec)
        known = self.calibration
        energy, spread = energies_given(
            stats.energy,
            known.energy,
            variance,
            known.energies,
        )
        norms = np.sqrt(energy)
        with_norms = replace(stats, norm=norms)
        # The noise along x is seen in the energy, of which it is a part: by regression.
        own = np.interp(energy, log_energies(known.energy), variance)
        along = np.clip(with_norms.covariance, 0.0, own / 2)
        shift = along / energy * (stats.energy - energy) / own
        scale = norms * np.clip(1 + shift, 0.5, 2.0)
        least = stats.k * with_norms.noise.variance[0]
        noise = np.maximum(with_norms.noise_energy, least) / stats.k / scale**2
        seen = np.minimum(along**2 / own / energy / scale**2, noise)
        hidden = 1 - 2 * along / own
        none = np.zeros_like(scale)
        return Decoded(x / scale[:, None], noise, seen, spread * hidden**2, none, none)


def _moments(spec: Spec, limit: float) -> NoiseMoments:
    """Return the moments of the noise, without jumps beyond a limit other than 0."""
    if limit and jumps(spec):
        return moments_within(spec, limit)
    return spec.noise_moments


class NumberDecoder(InnerProductDecoder):
    """Sums of the decoded vectors, corrected by the moments of the noise."""

    posterior_type = NumberPosterior
    likelihoods = NumberLikelihoods

    @classmethod
    def reads(cls, spec: Spec) -> bool:
        return True

    def _corrected(
        self,
        ip: Doubles,
        x: Floats,
        y: Doubles,
        queries: Queries,
    ) -> Estimate:
        norm = self.spec.norm
        query_noise = NOISELESS
        if isinstance(queries, PrivateQueries):
            query_noise = queries.spec.noise_moments
        codes = NoisyVectorStats.of(x, self.spec.noise_moments, norm)
        other_side = NoisyVectorStats.of(y[:, None], query_noise, norm)
        return METRICS[self.metric](
            ip,
            codes,
            other_side,
            self.spec.projection.inner_product_factor,
        )
