"""Observations of the cosines of number codes: inner products over norms, or sums of scores.

Written with m the energy (squared norm) of a typical vector, σ² the noise variance of a coordinate,
f the projection's factor of inner products and k the code length.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dpindex.base.arrays import AnyArray, Doubles, Singles, products
from dpindex.denoise.channel import Channel, ScoreTable
from dpindex.mechanism.codes import Codes
from dpindex.mechanism.spec import Spec
from dpindex.similarity.float_codes import NoisyVectorStats, noise_moments
from dpindex.similarity.observation import Observer
from dpindex.similarity.observation_law import GRID, ObservationLaw
from dpindex.similarity.similarity import PrivateQueries, Queries

_EVEN_ENERGIES = 0.01
"""Relative variance of squared norms, beside that of the projection, up to which they are taken to
be equal, where the codes' own squared norms have more noise than that."""

_NO_NOISE = 1e-4
"""Variance of a coordinate's noise, over that of the coordinate, below which it has no score."""

_TRUSTED_OWN_NORMS = 3e4
"""Pairs that are trusted where norms come from the codes: these differ with the cosine."""

_MAX_EXCESS = 2.9
_TINY = 1e-300


class TypicalNoise(NamedTuple):
    """The noise of the codes of one spec, for a typical vector.

    Attributes
    ----------
    variance : float
        Of a coordinate.
    energy_variance : float
        Of the squared norm.
    """

    variance: float
    energy_variance: float


class NumberObserver(Observer):
    """Inner products over norms: declared, all equal, or shrunk towards the collection's."""

    def __init__(self, spec: Spec, codes: Codes) -> None:
        super().__init__(spec, codes)
        self._noises: dict[bytes, TypicalNoise] = {}
        self._scores: dict[bytes, CoordinateScore] = {}
        x = codes.to_float()
        stats = NoisyVectorStats.of(x, noise_moments(spec))
        fourth = np.einsum("nk,nk->n", x**2, x**2) / np.maximum(stats.squares**2, _TINY)
        self._fourth = float(fourth.mean())
        self._norm = spec.norm
        self._spread = 0.0
        if spec.norm is None:
            self._learn_energies(stats, len(codes))
        if self._norm is not None:
            self._energy = self._norm**2

    def _learn_energies(self, stats: NoisyVectorStats, count: int) -> None:
        """Set the mean energy of the vectors, and their one norm or the variance of energies."""
        noise = float(stats.energy_variance.mean())
        variance = float(stats.energy.var())
        self._energy = max(float(stats.energy.mean()), math.sqrt(noise / count) + 1e-150)
        even = _EVEN_ENERGIES * self._energy**2
        of_projection = 2 * self.spec.projection.inner_product_factor * self._energy**2
        error = variance * math.sqrt(2 / count)
        spread = variance - noise
        if noise > even and spread < even + of_projection + 3 * error:
            self._norm = math.sqrt(self._energy)
        else:
            self._spread = max(spread, 0.0)

    def _noise(self, spec: Spec) -> TypicalNoise:
        if spec.fingerprint not in self._noises:
            zero = np.zeros(1)
            norm = math.sqrt(self._energy)
            stats = NoisyVectorStats(zero, zero, spec.code_length, noise_moments(spec), norm)
            variance = float(stats.noise_energy[0]) / spec.code_length
            noise = TypicalNoise(variance, float(stats.energy_variance[0]))
            self._noises[spec.fingerprint] = noise
        return self._noises[spec.fingerprint]

    def _weight(self, noise: TypicalNoise) -> float:
        """Return how much of the error of a code's squared norm is divided out of observations.

        Norms that are not declared are the codes' own, shrunk towards the collection's mean;
        where they are declared, codes are brought to the length that is expected of them.
        """
        if self._norm is not None:
            return self._energy / (self._energy + self.spec.code_length * noise.variance)
        total = self._spread + noise.energy_variance
        if total > 0:
            return self._spread / total
        return 1.0

    def law(self, spec: Spec, private: bool) -> ObservationLaw:
        m = self._energy
        rho_squared = GRID**2
        scale = self._scale(spec, private)
        own = np.full(len(GRID), scale)
        # An exact query is divided by its own norm: all of its error counts.
        weights = [1.0]
        sides = [self.spec, spec] if private else [self.spec]
        for side in sides:
            # The error of the norm: what is correlated with the inner product's, its noise, and
            # what the shrinkage leaves of the vectors' own differences.
            noise = self._noise(side)
            weight = self._weight(noise)
            remaining = weight**2 * noise.energy_variance + (1 - weight) ** 2 * self._spread
            own += (remaining / (4 * m) - 2 * weight * noise.variance) / m * rho_squared
            weights.append(weight)
        # Of the projection: Var(e − ρ(w·δ + v·δ')/2), e and δ the errors of the inner product and
        # of squared norms, with Var(e) = f(1+ρ²), Var(δ) = 2f, Cov(e, δ) = 2fρ, Cov(δ, δ') = 2fρ².
        v, w = weights[-2:]
        of_projection = 1 + rho_squared * (
            1 - 2 * (v + w) + (v**2 + w**2) / 2 + rho_squared * v * w
        )
        factor = self.spec.projection.inner_product_factor
        excess = 0.0
        if private and self._norm is not None:
            excess = self._excess()
        return ObservationLaw(
            expected=GRID,
            own=np.maximum(own, 0.02 * max(scale, _TINY)),
            common=factor * of_projection,
            excess=excess,
            trusted=_TRUSTED_OWN_NORMS,
        )

    def _excess(self) -> float:
        """Return the excess kurtosis of the cosine of two codes whose signs are independent.

        Their largest coordinates may meet: ``E[3V² − 2F]/E[V]² − 3`` with V the sum of the products
        of squares and F that of their squares, the places of squares being exchangeable.
        """
        k = self.spec.code_length
        fourth = self._fourth
        excess = k * fourth**2 + 3 * k * (1 - fourth) ** 2 / max(k - 1, 1) - 3
        return min(max(excess, 0.0), _MAX_EXCESS)

    def _mostly_products(self, spec: Spec) -> bool:
        """Return True if noise times noise, which has heavy tails, is most of a pair's noise."""
        if self._norm is not None:
            return False
        noise = self._noise(self.spec).variance
        query_noise = self._noise(spec).variance
        return spec.code_length * noise * query_noise > (noise + query_noise) * self._energy

    def _scale(self, spec: Spec, private: bool) -> float:
        """Return the noise variance of a typical observation at cosine 0."""
        noise = self._noise(self.spec).variance
        if not private:
            return noise / self._energy
        return self._pair_noise(noise, self._noise(spec).variance, spec.code_length)

    def _pair_noise(self, noise: float, query_noise: float, k: int) -> float:
        m = self._energy
        return (noise + query_noise) / m + k * noise * query_noise / m**2

    def _energies(self, x: AnyArray, spec: Spec, noisy: bool) -> tuple[Doubles, Doubles]:
        """Return squared norms as far as they are known, and expected over actual squared length.

        ``x`` has shape (…, k), both results have shape (…).
        """
        squares = np.einsum("...k,...k->...", x, x, dtype=np.float64)
        if not noisy:
            return np.maximum(squares, _TINY), np.ones_like(squares)
        noise = self._noise(spec)
        energy = np.full_like(squares, self._energy)
        if self._norm is None:
            stats = NoisyVectorStats.of(x, noise_moments(spec))
            energy += self._weight(noise) * (stats.energy - self._energy)
            energy = np.maximum(energy, 0.1 * self._energy)
        length = energy + spec.code_length * noise.variance
        return energy, length / np.maximum(squares, _TINY)

    def of(self, x: AnyArray, queries: Queries) -> tuple[Doubles, Doubles]:
        y = queries.to_float()
        energy, ratio = self._energies(x, self.spec, True)
        query_energy, query_ratio = self._energies(
            y[:, None], queries.spec, isinstance(queries, PrivateQueries)
        )
        both = energy * query_energy
        value = products(x, y.astype(x.dtype)) / np.sqrt(both)
        typical = max(self._scale(queries.spec, isinstance(queries, PrivateQueries)), _TINY)
        noise = self._noise(self.spec).variance
        if not isinstance(queries, PrivateQueries):
            variance = np.broadcast_to(noise / energy, value.shape)
            return value * np.sqrt(ratio), variance / typical
        k = x.shape[2]
        query_noise = self._noise(queries.spec).variance
        variance = noise / energy + query_noise / query_energy + k * noise * query_noise / both
        if self._mostly_products(queries.spec):  # how much, is seen in the products
            seen = products(x * x, (y * y).astype(x.dtype)) / both - 1.0 / k
            variance = np.maximum(seen, 0.3 * variance)
        elif self._norm is not None:
            value = value * np.sqrt(ratio * query_ratio)
        return value, variance / typical

    def refined_law(self, spec: Spec, private: bool) -> ObservationLaw:
        noise = self._score(self.spec).noise
        query_noise = 0.0
        if private:
            query_noise = self._score(spec).noise
        own = self._pair_noise(noise, query_noise, self.spec.code_length)
        factor = self.spec.projection.inner_product_factor
        return ObservationLaw(GRID, np.full(len(GRID), own), factor * (1 + GRID**2))

    def refined_items(self, x: AnyArray) -> Singles | None:
        noise = self.spec.code_length * self._noise(self.spec).variance
        if self._norm is None or noise < _NO_NOISE * self._energy:
            return None
        return self._score(self.spec)(x) / np.float32(self._norm)

    def own_items(self, codes: Codes) -> Singles | None:
        if self.spec.projection.inner_product_factor > 0:
            return None
        x = codes.to_float()
        energy, ratio = self._energies(x, self.spec, True)
        return np.asarray(x * np.sqrt(ratio / energy)[:, None], np.float32)

    def refined_queries(self, queries: Queries) -> Singles:
        y = queries.to_float()
        if isinstance(queries, PrivateQueries):
            return self._score(queries.spec)(y) / np.float32(math.sqrt(self._energy))
        norms = np.linalg.norm(y, axis=1, keepdims=True)
        return np.asarray(y / np.maximum(norms, _TINY), np.float32)

    def _score(self, spec: Spec) -> CoordinateScore:
        if spec.fingerprint not in self._scores:
            variance = self._energy / spec.code_length
            self._scores[spec.fingerprint] = CoordinateScore(spec, variance)
        return self._scores[spec.fingerprint]


class CoordinateScore:
    """Codes read by the score g of their law, as observations of coordinates N(0, v).

    ``E[x | code] = v·g`` (Tweedie's formula), and ``g/E[g²]`` is an observation of x whose noise is
    far below the code's where the law is not normal: see
    :class:`dpindex.denoise.channel.ScoreTable`.
    """

    def __init__(self, spec: Spec, variance: float) -> None:
        self._channel = Channel(spec)
        self._table = ScoreTable(self._channel.likelihood, variance)
        self._row = self._table.row(np.array([variance]))
        self._scale = float(self._table.inverse_information[self._row[0]])
        self.noise = max(self._scale - variance, 0.0)
        """Variance of the observation's noise."""

    def __call__(self, y: AnyArray) -> Singles:
        location = self._channel.locate(y.astype(np.float32, copy=False))
        return self._table.look_up(self._row, location) * np.float32(self._scale)
