"""What the codes of a collection show of the cosines of their vectors, and what is made of it.

Unlike the estimates of :mod:`dpindex.estimators.similarity`, observations are not clipped, their
law is known given the *true* cosine, and norms that nobody declared are shrunk towards those of the
collection.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from dpindex.arrays import AnyArray, Doubles, Singles
from dpindex.codes import Codes
from dpindex.estimators.denoise.channel import Channel, ScoreTable
from dpindex.estimators.float_codes import Estimate, NoisyVectorStats
from dpindex.estimators.posterior import GRID, ObservationLaw, Priors, posterior
from dpindex.estimators.sign_codes import (
    agreement_curve,
    agreement_variance,
    score_variance,
    self_score,
)
from dpindex.estimators.similarity import Metric, Queries, sign_deviation
from dpindex.randomness import PublicStream
from dpindex.spec import Spec

_BLOCK = 512

_MODEL_ERROR = 0.25
"""Relative deviation of a cosine where each bin holds one attribute; measured on MNIST."""

_TRUSTED_OWN_NORMS = 3e4
"""Pairs that are trusted where norms come from the codes: these differ with the cosine."""


class Observer(ABC):
    """Observations of the codes of one collection.

    Parameters
    ----------
    spec : Spec
    codes : Codes
        A sample of the collection.
    """

    def __init__(self, spec: Spec, codes: Codes) -> None:
        self.spec = spec

    @abstractmethod
    def independence(self, law: ObservationLaw, prior: Priors, items: int) -> float:
        """How much of an independent observation of a query each of so many items is, [0, 1].

        Vectors that are like each other are projected with like errors.
        """

    model_error = 0.0
    """Of cosines of private queries, what the law of observations leaves out, as a share."""

    @abstractmethod
    def law(self, spec: Spec, private: bool) -> ObservationLaw:
        """The law for exact queries, or for private ones under that spec."""

    @abstractmethod
    def of(self, x: AnyArray, queries: Queries) -> tuple[Doubles, Doubles]:
        """Observations and their scales, shape (nq, count), of decoded codes.

        x has shape (nq or 1, count, k).
        """

    def refined_law(self, spec: Spec, private: bool) -> ObservationLaw:
        """The law of inner products of :meth:`refined_items` and :meth:`refined_queries`."""
        return self.law(spec, private)

    def refined_items(self, x: AnyArray) -> Singles | None:
        """Decoded codes, shape (n, k), as they tell most of a distribution of cosines.

        None where observations have scales, and :meth:`of` is all there is.
        """
        return None

    def refined_queries(self, queries: Queries) -> Singles:
        """The other side, shape (nq, k)."""
        raise NotImplementedError


def _products(x: AnyArray, y: AnyArray) -> Doubles:
    """Inner products, shape (nq, count), of x, shape (nq or 1, count, k), and y, shape (nq, k)."""
    if len(x) == 1:
        return np.asarray(y @ x[0].T, dtype=np.float64)
    return np.asarray(np.matmul(x, y[:, :, None])[:, :, 0], dtype=np.float64)


def _independence(law: ObservationLaw, prior: Priors, items: int, projection: float) -> float:
    """What all vectors have in common is projected once, with an error that all observations share.

    The mean of so many independent ones would have that error.
    """
    mean, square = (float(prior.density[0] @ GRID**power) for power in (1, 2))
    own = (square - mean**2 + float(law.variance(np.ones(()))[len(GRID) // 2])) / items
    return own / max(own, mean**2 * projection)


class SignObserver(Observer):
    """Signs: their agreement, or the score of an exact query.

    Of attributes that are never negative many may be 0, and sums of few of them are then not
    normal. Neither codes nor public parameters say how many.
    """

    def __init__(self, spec: Spec, codes: Codes) -> None:
        super().__init__(spec, codes)
        if spec.bounds is not None and spec.bounds[0] >= 0:
            self.model_error = _MODEL_ERROR * math.sqrt(spec.code_length / spec.dim)

    def independence(self, law: ObservationLaw, prior: Priors, items: int) -> float:
        # Near neighbours share the error of their projection too: where flips are less than that,
        # observations of one query mislead.
        projection = 1.0 / self.spec.code_length
        if law.common[len(GRID) // 2] < 2 * projection:
            return 0.0
        return _independence(law, prior, items, projection)

    def law(self, spec: Spec, private: bool) -> ObservationLaw:
        rms, factor = sign_deviation(self.spec), self.spec.projection.inner_product_factor
        k, none = self.spec.code_length, np.zeros(len(GRID))
        if not private:
            variance = score_variance(GRID, k, self.spec.law, rms, factor)
            return ObservationLaw(GRID, none, variance)
        curve = agreement_curve(self.spec.law, rms, spec.law, sign_deviation(spec))
        expected = np.interp(np.arcsin(GRID), curve.angles, curve.agreement)
        variance = agreement_variance(GRID, k, curve, factor)
        return ObservationLaw(k * expected, none, k**2 * variance, step=2.0)

    def of(self, x: AnyArray, queries: Queries) -> tuple[Doubles, Doubles]:
        seen = _products(x.astype(np.float32, copy=False), self.refined_queries(queries))
        return seen, np.ones_like(seen)

    def refined_items(self, x: AnyArray) -> Singles:
        return x.astype(np.float32, copy=False)

    def refined_queries(self, queries: Queries) -> Singles:
        y = queries.to_float()
        if queries.private:
            return np.asarray(y, np.float32)
        # Over what a vector equal to the query scores: so its cosine is 1 whatever the law of the
        # coordinates.
        full = self_score(y, self.spec.law, sign_deviation(self.spec))
        return np.asarray(y / full[:, None], np.float32)


class NumberObserver(Observer):
    """Numbers: inner products over norms, which are declared or shrunk towards the collection's."""

    def __init__(self, spec: Spec, codes: Codes) -> None:
        super().__init__(spec, codes)
        self._noises: dict[bytes, tuple[float, float]] = {}
        self._scores: dict[bytes, CoordinateScore] = {}
        x = codes.to_float()
        stats = NoisyVectorStats.of(x, spec.law.moments.in_units(spec.step))
        fourth = np.einsum("nk,nk->n", x**2, x**2) / np.maximum(stats.squares**2, 1e-300)
        self._fourth = float(fourth.mean())
        self._energy, self._spread = 0.0, 0.0
        if spec.norm is not None:
            self._energy = spec.norm**2
        else:
            noise = float(stats.energy_variance.mean())
            self._spread = max(float(stats.energy.var()) - noise, 0.0)
            floor = math.sqrt(noise / len(codes)) + 1e-150
            self._energy = max(float(stats.energy.mean()), floor)

    def _noise(self, spec: Spec) -> tuple[float, float]:
        """Noise of a coordinate of a typical vector, and the noise of its squared norm."""
        if spec.fingerprint not in self._noises:
            k, zero = spec.code_length, np.zeros(1)
            moments = spec.law.moments.in_units(spec.step)
            stats = NoisyVectorStats(zero, zero, k, moments, math.sqrt(self._energy))
            found = float(stats.noise_energy[0]) / k, float(stats.energy_variance[0])
            self._noises[spec.fingerprint] = found
        return self._noises[spec.fingerprint]

    def _weight(self, noise: float, energy_noise: float) -> float:
        """How much of the error of a code's own squared norm is divided out of observations.

        Norms that are not declared are the codes' own, shrunk towards the collection's mean;
        where they are declared, codes are brought to the length that is expected of them.
        """
        if self.spec.norm is not None:
            return self._energy / (self._energy + self.spec.code_length * noise)
        total = self._spread + energy_noise
        return self._spread / total if total > 0 else 1.0

    def law(self, spec: Spec, private: bool) -> ObservationLaw:
        m, rho, weights = self._energy, GRID**2, [1.0]
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
        excess = self._excess() if private and self.spec.norm is not None else 0.0
        return ObservationLaw(GRID, own, factor * lost, excess=excess, trusted=_TRUSTED_OWN_NORMS)

    def _excess(self) -> float:
        """Excess kurtosis of the cosine of two codes whose signs are independent.

        Their largest coordinates may meet: ``E[3V² − 2F]/E[V]² − 3`` with V the sum of the products
        of squares and F that of their squares, the places of squares being exchangeable.
        """
        k, fourth = self.spec.code_length, self._fourth
        excess = k * fourth**2 + 3 * k * (1 - fourth) ** 2 / max(k - 1, 1) - 3
        return min(max(excess, 0.0), 2.9)

    def _by_products(self, spec: Spec, private: bool) -> bool:
        """Whether noise times noise, which has heavy tails, is most of the noise."""
        if not private or self.spec.norm is not None:
            return False
        noise, asked = self._noise(self.spec)[0], self._noise(spec)[0]
        return spec.code_length * noise * asked > (noise + asked) * self._energy

    def _scale(self, spec: Spec, private: bool) -> float:
        """Noise variance of a typical observation at cosine 0."""
        noise, m = self._noise(self.spec)[0], self._energy
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
        if self.spec.norm is None:
            stats = NoisyVectorStats.of(x, spec.law.moments.in_units(spec.step))
            energy += self._weight(noise, energy_noise) * (stats.energy - self._energy)
            energy = np.maximum(energy, 0.1 * self._energy)
        length = energy + spec.code_length * noise
        return energy, length / np.maximum(squares, 1e-300)

    def of(self, x: AnyArray, queries: Queries) -> tuple[Doubles, Doubles]:
        y = queries.to_float()
        (energy, ratio), (asked, asked_ratio) = (
            self._sizes(x, self.spec, True),
            self._sizes(y[:, None], queries.spec, queries.private),
        )
        size = energy * asked
        value = _products(x, y.astype(x.dtype)) / np.sqrt(size)
        noise = self._noise(self.spec)[0]
        if not queries.private:
            typical = max(self._scale(queries.spec, False), 1e-300)
            return value * np.sqrt(ratio), np.broadcast_to(noise / energy, value.shape) / typical
        other, k = self._noise(queries.spec)[0], x.shape[2]
        variance = noise / energy + other / asked + k * noise * other / size
        if self._by_products(queries.spec, True):  # how much, is seen in the products
            seen = _products(x * x, (y * y).astype(x.dtype)) / size - 1.0 / k
            variance = np.maximum(seen, 0.3 * variance)
        elif self.spec.norm is not None:
            value = value * np.sqrt(ratio * asked_ratio)
        return value, variance / max(self._scale(queries.spec, True), 1e-300)

    def refined_law(self, spec: Spec, private: bool) -> ObservationLaw:
        m, factor = self._energy, self.spec.projection.inner_product_factor
        noise, asked = self._score(self.spec).noise, self._score(spec).noise if private else 0.0
        own = (noise + asked) / m + self.spec.code_length * noise * asked / m**2
        return ObservationLaw(GRID, np.full(len(GRID), own), factor * (1 + GRID**2))

    def independence(self, law: ObservationLaw, prior: Priors, items: int) -> float:
        return _independence(law, prior, items, self.spec.projection.inner_product_factor)

    def refined_items(self, x: AnyArray) -> Singles | None:
        norm = self.spec.norm
        return None if norm is None else self._score(self.spec)(x) / np.float32(norm)

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
    :class:`dpindex.estimators.denoise.channel.ScoreTable`.
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


_OBSERVERS: dict[str, type[Observer]] = {"numbers": NumberObserver, "signs": SignObserver}


def can_learn(spec: Spec, metric: Metric) -> bool:
    """Whether posteriors are known: for cosines, of codes that show them.

    >>> can_learn(Spec("dp-signoporp-geometric", dim=64, epsilon=2.0), "cosine")  # no norm
    False
    """
    if metric != "cosine" or spec.format.name not in _OBSERVERS:
        return False
    return spec.format.name != "signs" or not math.isnan(sign_deviation(spec))


class LearnedSimilarity:
    """Posterior cosines of the codes of a collection, learned from the codes themselves.

    Nothing but codes and public parameters enters, and equal codes give equal posteriors.

    Parameters
    ----------
    spec : Spec
    codes : Codes
        A sample of the collection, in a fixed order.
    rows : int
        Codes in the collection.
    """

    def __init__(self, spec: Spec, codes: Codes, rows: int) -> None:
        self._observer = _OBSERVERS[spec.format.name](spec, codes)
        self._sample = self._observer.refined_items(codes.to_float())
        value, scale = (
            np.concatenate(part) for part in zip(*self._pairs(spec, codes), strict=True)
        )
        laws = self._observer.law if self._sample is None else self._observer.refined_law
        self.prior = Priors.of_pairs(value, scale, laws(spec, True), rows)
        self._law, self._refined_law = lru_cache(self._observer.law), lru_cache(laws)

    def _pairs(self, spec: Spec, codes: Codes) -> Iterator[tuple[Doubles, Doubles]]:
        """Observations of every pair within blocks of a random order."""
        order = PublicStream(0, "pairs of codes").permutation(len(codes))
        for first in range(0, len(codes), _BLOCK):
            some = order[first : first + _BLOCK]
            asked, upper = Queries(codes.take(some), spec, True), np.triu_indices(len(some), 1)
            if self._sample is None:
                value, scale = self._observer.of(asked.to_float()[None], asked)
                yield value[upper], scale[upper]
            else:
                seen = self._observer.refined_queries(asked) @ self._sample[some].T
                yield seen[upper].astype(np.float64), np.ones(len(upper[0]))

    def of_found(self, codes: Codes, queries: Queries) -> Estimate:
        """Each query with codes of its own: see :class:`Similarity`."""
        return self._of(codes.to_float().reshape(len(queries), -1, codes.k), queries)

    def of_all(self, codes: Codes, queries: Queries) -> Estimate:
        """Every query with all of the codes."""
        return self._of(codes.to_float()[None], queries)

    def _of(self, x: AnyArray, queries: Queries) -> Estimate:
        law = self._law(queries.spec, queries.private)
        value, scale = self._observer.of(x.astype(np.float64), queries)
        cosine, error = posterior(self._priors(queries), law, value, scale)
        beyond = self._observer.model_error if queries.private else 0.0
        return cosine, np.hypot(error, beyond * cosine)

    def _priors(self, queries: Queries) -> Priors:
        """Each exact query's own, learned from what it shows of the sample.

        The noise of a private query is in all that it shows, so there the collection's is taken.
        """
        if queries.private or self._sample is None:
            return self.prior
        law = self._refined_law(queries.spec, False)
        weight = self._observer.independence(law, self.prior, len(self._sample))
        if weight == 0:
            return self.prior
        seen = self._observer.refined_queries(queries) @ self._sample.T
        return self.prior.of_queries(seen.astype(np.float64), law, weight)
