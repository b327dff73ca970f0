"""What codes of numbers show of cosines."""

from __future__ import annotations

import math

import numpy as np

from dpindex.base.arrays import AnyArray, Doubles, Singles
from dpindex.denoise.channel import Channel, ScoreTable
from dpindex.mechanism.codes import Codes
from dpindex.mechanism.spec import Spec
from dpindex.similarity.float_codes import NoisyVectorStats, noise_moments
from dpindex.similarity.observation import Observer, products
from dpindex.similarity.observation_law import GRID, ObservationLaw
from dpindex.similarity.similarity import Queries

_EVEN_ENERGIES = 0.01
"""Relative variance of squared norms, beside that of the projection, up to which they are taken to
be equal, where the codes' own squared norms have more noise than that."""

_NO_NOISE = 1e-4
"""Variance of a coordinate's noise, over that of the coordinate, below which it has no score."""

_TRUSTED_OWN_NORMS = 3e4
"""Pairs that are trusted where norms come from the codes: these differ with the cosine."""


class NumberObserver(Observer):
    """Inner products over norms: declared, all equal, or shrunk towards the collection's."""

    def __init__(self, spec: Spec, codes: Codes) -> None:
        super().__init__(spec, codes)
        self._noises: dict[bytes, tuple[float, float]] = {}
        self._scores: dict[bytes, CoordinateScore] = {}
        x = codes.to_float()
        stats = NoisyVectorStats.of(x, noise_moments(spec))
        fourth = np.einsum("nk,nk->n", x**2, x**2) / np.maximum(stats.squares**2, 1e-300)
        self._fourth = float(fourth.mean())
        self._norm = spec.norm
        self._spread = 0.0
        if spec.norm is None:
            noise = float(stats.energy_variance.mean())
            whole = float(stats.energy.var())
            self._energy = max(float(stats.energy.mean()), math.sqrt(noise / len(codes)) + 1e-150)
            even = _EVEN_ENERGIES * self._energy**2
            lost = 2 * spec.projection.inner_product_factor * self._energy**2
            spread = whole - noise
            error = whole * math.sqrt(2 / len(codes))
            if noise > even and spread < even + lost + 3 * error:
                self._norm = math.sqrt(self._energy)
            else:
                self._spread = max(spread, 0.0)
        if self._norm is not None:
            self._energy = self._norm**2

    def _noise(self, spec: Spec) -> tuple[float, float]:
        """Noise of a coordinate of a typical vector, and the noise of its squared norm."""
        if spec.fingerprint not in self._noises:
            k = spec.code_length
            zero = np.zeros(1)
            moments = noise_moments(spec)
            stats = NoisyVectorStats(zero, zero, k, moments, math.sqrt(self._energy))
            found = float(stats.noise_energy[0]) / k, float(stats.energy_variance[0])
            self._noises[spec.fingerprint] = found
        return self._noises[spec.fingerprint]

    def _weight(self, noise: float, energy_noise: float) -> float:
        """How much of the error of a code's own squared norm is divided out of observations.

        Norms that are not declared are the codes' own, shrunk towards the collection's mean;
        where they are declared, codes are brought to the length that is expected of them.
        """
        if self._norm is not None:
            return self._energy / (self._energy + self.spec.code_length * noise)
        total = self._spread + energy_noise
        return self._spread / total if total > 0 else 1.0

    def law(self, spec: Spec, private: bool) -> ObservationLaw:
        m = self._energy
        rho = GRID**2
        weights = [1.0]
        own = np.full(len(GRID), self._scale(spec, private))
        for side in (self.spec, spec)[: 1 + private]:
            # The error of the norm: what is correlated with the inner product's, its noise, and
            # what the shrinkage leaves of the vectors' own differences.
            noise, energy_noise = self._noise(side)
            w = self._weight(noise, energy_noise)
            rest = w**2 * energy_noise + (1 - w) ** 2 * self._spread
            own += (rest / (4 * m) - 2 * w * noise) / m * rho
            weights.append(w)
        # Of the projection: Var(e − ρ(w·δ + v·δ')/2), e and δ the errors of the inner product and
        # of squared norms, with Var(e) = f(1+ρ²), Var(δ) = 2f, Cov(e, δ) = 2fρ, Cov(δ, δ') = 2fρ².
        v, w = weights[-2:]
        lost = 1 + rho * (1 - 2 * (v + w) + (v**2 + w**2) / 2 + rho * v * w)
        factor = self.spec.projection.inner_product_factor
        own = np.maximum(own, 0.02 * max(self._scale(spec, private), 1e-300))
        excess = self._excess() if private and self._norm is not None else 0.0
        return ObservationLaw(GRID, own, factor * lost, excess=excess, trusted=_TRUSTED_OWN_NORMS)

    def _excess(self) -> float:
        """Excess kurtosis of the cosine of two codes whose signs are independent.

        Their largest coordinates may meet: ``E[3V² − 2F]/E[V]² − 3`` with V the sum of the products
        of squares and F that of their squares, the places of squares being exchangeable.
        """
        k = self.spec.code_length
        fourth = self._fourth
        excess = k * fourth**2 + 3 * k * (1 - fourth) ** 2 / max(k - 1, 1) - 3
        return min(max(excess, 0.0), 2.9)

    def _by_products(self, spec: Spec, private: bool) -> bool:
        """Whether noise times noise, which has heavy tails, is most of the noise."""
        if not private or self._norm is not None:
            return False
        noise = self._noise(self.spec)[0]
        asked = self._noise(spec)[0]
        return spec.code_length * noise * asked > (noise + asked) * self._energy

    def _scale(self, spec: Spec, private: bool) -> float:
        """Noise variance of a typical observation at cosine 0."""
        noise = self._noise(self.spec)[0]
        m = self._energy
        if not private:
            return noise / m
        asked = self._noise(spec)[0]
        return (noise + asked) / m + spec.code_length * noise * asked / m**2

    def _sizes(self, x: AnyArray, spec: Spec, noisy: bool) -> tuple[Doubles, Doubles]:
        """Squared norms as far as they are known, and expected over actual squared length."""
        squares = np.einsum("...k,...k->...", x, x, dtype=np.float64)
        if not noisy:
            return np.maximum(squares, 1e-300), np.ones_like(squares)
        noise, energy_noise = self._noise(spec)
        energy = np.full_like(squares, self._energy)
        if self._norm is None:
            stats = NoisyVectorStats.of(x, noise_moments(spec))
            energy += self._weight(noise, energy_noise) * (stats.energy - self._energy)
            energy = np.maximum(energy, 0.1 * self._energy)
        length = energy + spec.code_length * noise
        return energy, length / np.maximum(squares, 1e-300)

    def of(self, x: AnyArray, queries: Queries) -> tuple[Doubles, Doubles]:
        y = queries.to_float()
        (energy, ratio) = self._sizes(x, self.spec, True)
        (asked, asked_ratio) = self._sizes(y[:, None], queries.spec, queries.private)
        size = energy * asked
        value = products(x, y.astype(x.dtype)) / np.sqrt(size)
        noise = self._noise(self.spec)[0]
        if not queries.private:
            typical = max(self._scale(queries.spec, False), 1e-300)
            return value * np.sqrt(ratio), np.broadcast_to(noise / energy, value.shape) / typical
        other = self._noise(queries.spec)[0]
        k = x.shape[2]
        variance = noise / energy + other / asked + k * noise * other / size
        if self._by_products(queries.spec, True):  # how much, is seen in the products
            seen = products(x * x, (y * y).astype(x.dtype)) / size - 1.0 / k
            variance = np.maximum(seen, 0.3 * variance)
        elif self._norm is not None:
            value = value * np.sqrt(ratio * asked_ratio)
        return value, variance / max(self._scale(queries.spec, True), 1e-300)

    def refined_law(self, spec: Spec, private: bool) -> ObservationLaw:
        m = self._energy
        factor = self.spec.projection.inner_product_factor
        noise = self._score(self.spec).noise
        asked = self._score(spec).noise if private else 0.0
        own = (noise + asked) / m + self.spec.code_length * noise * asked / m**2
        return ObservationLaw(GRID, np.full(len(GRID), own), factor * (1 + GRID**2))

    def refined_items(self, x: AnyArray) -> Singles | None:
        noise = self.spec.code_length * self._noise(self.spec)[0]
        if self._norm is None or noise < _NO_NOISE * self._energy:
            return None
        return self._score(self.spec)(x) / np.float32(self._norm)

    def own_items(self, codes: Codes) -> Singles | None:
        if self.spec.projection.inner_product_factor > 0:
            return None
        x = codes.to_float()
        energy, ratio = self._sizes(x, self.spec, True)
        return np.asarray(x * np.sqrt(ratio / energy)[:, None], np.float32)

    def refined_queries(self, queries: Queries) -> Singles:
        y = queries.to_float()
        if queries.private:
            return self._score(queries.spec)(y) / np.float32(math.sqrt(self._energy))
        norms = np.linalg.norm(y, axis=1, keepdims=True)
        return np.asarray(y / np.maximum(norms, 1e-300), np.float32)

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
