"""Number codes: decoded vectors, corrected by the moments of the noise."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from dpindex.base.arrays import Doubles, Floats
from dpindex.base.errors import DamagedError
from dpindex.decode.base import Estimate, InnerProductDecoder, PrivateQueries, Queries
from dpindex.decode.calibration import (
    GRID,
    LOG_ENERGIES,
    PAIRED_ROWS,
    Decoded,
    ObservationLaw,
    SimilarityCalibration,
)
from dpindex.decode.common import with_common, without_common
from dpindex.decode.jumps import jump_limit, moments_within, without_jumps
from dpindex.decode.number_likelihoods import NumberLikelihoods
from dpindex.decode.number_moments import METRICS, NOISELESS, NoisyVectorStats
from dpindex.decode.posterior import TablePosterior
from dpindex.mechanism.codes import Codes
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
        x = without_jumps(x, spec, limit)
        stats = NoisyVectorStats.of(x, moments_within(spec, limit))
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
            moments_within(spec, self.calibration.limit),
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
        x = without_jumps(x, spec, limit)
        stats = NoisyVectorStats.of(x, moments_within(spec, limit))
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


def log_energies(middle: float) -> Doubles:
    """Return the grid of squared norms about a middle, a constant factor apart, shape (121,)."""
    return middle * np.exp(LOG_ENERGIES)


def fitted_energies(energy: Doubles, middle: float, variance: Doubles) -> Doubles:
    """Return the chances of squared norms, shape (121,), given noisy estimates of them.

    An average of lognormal laws, weighted by their likelihoods: where noise hides how norms differ,
    it contains all laws that explain the estimates.

    Parameters
    ----------
    energy : float64 array, shape (n,)
        Unbiased estimates of squared norms.
    middle : float
        The middle of the grid.
    variance : float64 array, shape (121,)
        Of an estimate, at each value of the grid.
    """
    likelihood = _energy_likelihood(energy, log_energies(middle), variance)
    means = LOG_ENERGIES[30:91:2, None, None]
    deviations = np.geomspace(0.02, 2.0, 24)[:, None]
    standardised = (LOG_ENERGIES - means) / deviations
    laws = np.exp(-(standardised**2) / 2)
    laws /= laws.sum(axis=2, keepdims=True)
    laws = laws.reshape(-1, len(LOG_ENERGIES))
    chances = likelihood @ laws.T
    log_fit = np.log(chances + 1e-300).sum(axis=0)
    share = np.exp(log_fit - log_fit.max())
    return np.asarray(share @ laws / share.sum())


def energies_given(
    energy: Doubles,
    middle: float,
    variance: Doubles,
    chances: Doubles,
) -> tuple[Doubles, Doubles]:
    """Return posterior squared norms given noisy estimates, and relative variances of the norms.

    The first is the square of the mean norm. Parameters as of :func:`fitted_energies`; ``chances``
    is what it returned. DamagedError without a middle or chances.
    """
    if middle <= 0 or len(chances) != len(LOG_ENERGIES):
        raise DamagedError("the calibration of this index is of other codes; calibrate it again.")
    grid = log_energies(middle)
    weight = _energy_likelihood(energy, grid, variance) * chances
    weight /= weight.sum(axis=1, keepdims=True)
    mean_norm = weight @ np.sqrt(grid)
    mean_square = weight @ grid
    spread = np.maximum(mean_square / mean_norm**2 - 1, 0.0)
    # An estimate that is finer than the grid is taken as it is.
    own_variance = np.interp(energy, grid, variance)
    relative = own_variance / np.maximum(energy, grid[0]) ** 2
    step = LOG_ENERGIES[1] - LOG_ENERGIES[0]
    fine = (relative < 4 * step**2) & (energy > grid[0])
    shown = np.where(fine, energy, mean_norm**2)
    return shown, np.where(fine, relative / 4, spread)


def _energy_likelihood(energy: Doubles, grid: Doubles, variance: Doubles) -> Doubles:
    squares = (energy[:, None] - grid) ** 2
    log = -squares / (2 * variance)
    log -= np.log(variance) / 2
    log -= log.max(axis=1, keepdims=True)
    return np.exp(np.maximum(log, -600.0))


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
