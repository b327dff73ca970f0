"""The ways to protect vectors that ``bench/peers.py`` compares, behind one short interface.

The peers are written in floats with an ordinary generator: that is enough to measure what they find
and leak, and not to deploy them (Mironov 2012 on noise in floats).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from peers_keys import order_from_pairs, order_from_samples, rotation_from_pairs
from scipy.special import betainc, betaincinv, betaln

import dpindex as dpi
from dpindex.audit.attack import gaussian_epsilon
from dpindex.mechanism.secret_random import SecretStream
from dpindex.study.matching import TruePlaces, rank_by_law
from dpindex.study.reconstruction import Reconstructor, attackers_denoiser

Array = npt.NDArray[Any]
NEIGHBOURS = 10
FLOAT_BYTES = 4
NO_PROMISE = math.inf
PURE = "any two vectors, pure epsilon"
_FITTED = 8192
_LEAST_SHARE = 1e-30
_SAME = 1.0 - 1e-5


class Scheme(ABC):
    """One scheme with its parameters.

    Attributes
    ----------
    family, setting : str
        Its name and its parameter.
    epsilon : float
        The epsilon of its promise for any two vectors of norm 1; infinite without a promise.
    guarantee : str
        The promise in words.
    keyed : bool
        True if codes are in coordinates that a key tells.
    """

    family: str
    setting: str
    epsilon: float
    guarantee: str
    keyed = False

    @abstractmethod
    def encode(self, vectors: Array) -> Any:
        """Return what the operator of the search holds for vectors of norm 1, shape (n, dim)."""

    def read(self, codes: Any) -> Array:
        """Return codes as vectors, shape (n, dim), up to a factor."""
        return np.asarray(codes)

    def take(self, codes: Any, rows: Array) -> Any:
        """Return the codes of these rows."""
        return codes[rows]

    def imitate(self, vectors: Array) -> Any:
        """Return codes that the attacker, who has no key, makes of vectors of its own."""
        return self.encode(vectors)

    def estimates(self, codes: Any, public: Array) -> list[Callable[[Any], Array]]:
        """Return maps from codes to vectors that use the exact law of the scheme."""
        return []

    def rankings(self, codes: Any, candidates: Array, own: Array) -> list[TruePlaces]:
        """Return rankings of candidates by the exact law of the codes."""
        return []

    def key_from_pairs(self, readings: Array, vectors: Array) -> Array:
        """Return the matrix that brings readings into the coordinates of their vectors."""
        return np.eye(vectors.shape[1], dtype=np.float32)

    def key_from_sample(self, readings: Array, public: Array) -> Array | None:
        """Return that matrix by public vectors alone; None if no attack on it is tried."""
        return np.eye(public.shape[1], dtype=np.float32)

    def size(self, codes: Any) -> int:
        """Return the bytes that are stored for a vector."""
        return FLOAT_BYTES * int(codes.shape[1])

    def query(self, vectors: Array, private: bool) -> Array:
        """Return what the operator compares with codes."""
        return self.read(self.encode(vectors)) if private else vectors

    def search(self, codes: Any, queries: Array, private: bool) -> Array:
        """Return the rows found for each query, shape (queries, 10)."""
        scores = self.query(queries, private) @ self.read(codes).T
        return np.argpartition(-scores, NEIGHBOURS, axis=1)[:, :NEIGHBOURS]


class Plain(Scheme):
    """Vectors as they are."""

    family = "no protection"
    setting = ""
    epsilon = NO_PROMISE
    guarantee = "nothing"

    def encode(self, vectors: Array) -> Array:
        return vectors


class Keyed(Scheme):
    """A secret orthogonal map of perturbed vectors; queries of a holder of the key are exact.

    Attributes
    ----------
    key : array, shape (dim, dim)
        The orthogonal matrix.
    """

    epsilon = NO_PROMISE
    guarantee = "against those without the key, up to what distances tell"
    keyed = True
    key: Array

    @abstractmethod
    def imitate(self, vectors: Array) -> Array:
        """Return perturbed vectors in their own coordinates."""

    def encode(self, vectors: Array) -> Array:
        return self.imitate(vectors) @ self.key

    def query(self, vectors: Array, private: bool) -> Array:
        return self.encode(vectors) if private else vectors @ self.key


class Rotation(Keyed):
    """A secret rotation of vectors with noise across them, as ``privrag-guard`` adds it.

    Without noise it is what ``hadamask`` does, but for the structure of its rotation.
    """

    family = "secret rotation"

    def __init__(self, dim: int, noise: float) -> None:
        self.setting = f"noise {noise:g}"
        self._noise = noise
        self._rng = np.random.default_rng()
        self.key = np.linalg.qr(self._rng.standard_normal((dim, dim)))[0].astype(np.float32)

    def imitate(self, vectors: Array) -> Array:
        noisy = vectors + self._noise * across(vectors, self._rng)
        return np.asarray(noisy / np.linalg.norm(noisy, axis=1, keepdims=True))

    def key_from_pairs(self, readings: Array, vectors: Array) -> Array:
        return rotation_from_pairs(readings, vectors)

    def key_from_sample(self, readings: Array, public: Array) -> None:
        return None


class ScaleAndPerturb(Keyed):
    """Distance-comparison-preserving encryption: Fuchsbauer et al. 2022.

    As in ``ironcore-alloy`` 0.16 the scale is 1 and coordinates are put in a secret order.
    """

    family = "scale and perturb"

    def __init__(self, dim: int, factor: float) -> None:
        self.setting = f"factor {factor:g}"
        self._factor = factor
        self._rng = np.random.default_rng()
        self.key = self._rng.permutation(np.eye(dim, dtype=np.float32))

    def imitate(self, vectors: Array) -> Array:
        """Return vectors with noise that is uniform in a ball of radius factor / 4."""
        dim = vectors.shape[1]
        radius = self._factor / 4.0 * self._rng.random((len(vectors), 1)) ** (1.0 / dim)
        return (vectors + radius * directions(vectors.shape, self._rng)).astype(np.float32)

    def key_from_pairs(self, readings: Array, vectors: Array) -> Array:
        return order_from_pairs(readings, vectors)

    def key_from_sample(self, readings: Array, public: Array) -> Array:
        return order_from_samples(readings, lambda: self.imitate(public))


class OwnNormNoise(Scheme):
    """Gaussian noise by the classical formula, for a sensitivity of the vector's own norm.

    ``σ = ‖x‖·√(2 ln(1.25/δ))/ε``, which is proved for ε < 1 (Dwork & Roth 2014, Thm A.1) and
    for a public sensitivity; that of two vectors of norm 1 is 2. ``epsilon`` is the true one.
    """

    family = "own-norm Gaussian"
    delta = 1e-5

    def __init__(self, stated: float) -> None:
        self.setting = f"stated epsilon {stated:g}"
        self._sigma = math.sqrt(2.0 * math.log(1.25 / self.delta)) / stated
        self.epsilon = round(gaussian_epsilon(2.0 / self._sigma, self.delta), 1)
        self.guarantee = f"any two vectors of norm 1, delta {self.delta:g}"
        self._rng = np.random.default_rng()

    def encode(self, vectors: Array) -> Array:
        sigma = self._sigma * np.linalg.norm(vectors, axis=1, keepdims=True)
        noise = sigma * self._rng.standard_normal(vectors.shape, dtype=np.float32)
        return (vectors + noise).astype(np.float32)


class MetricNoise(Scheme):
    """Noise of density proportional to exp(−rate·‖z‖): Feyisetan et al. 2020."""

    family = "metric-DP noise"

    def __init__(self, rate: float) -> None:
        self.setting = f"{rate:g} a unit of distance"
        self.epsilon = 2.0 * rate
        self.guarantee = f"epsilon = {rate:g} times the distance of two vectors"
        self._rate = rate
        self._rng = np.random.default_rng()

    def encode(self, vectors: Array) -> Array:
        radius = self._rng.gamma(vectors.shape[1], 1.0 / self._rate, (len(vectors), 1))
        return (vectors + radius * directions(vectors.shape, self._rng)).astype(np.float32)


class PrivUnit(Scheme):
    """Uniform in a cap around the vector or outside it: Bhowmick et al. 2018.

    Cap and probability are those of the largest ``E⟨V, u⟩`` (Asi, Feldman & Talwar 2022).
    """

    family = "PrivUnit"
    setting = ""
    guarantee = PURE

    def __init__(self, dim: int, epsilon: float) -> None:
        self.epsilon = epsilon
        self._half = (dim - 1) / 2
        self._rng = np.random.default_rng()
        heights = np.linspace(0.0, 1.0, 4000, endpoint=False)
        share = 0.5 * betainc(self._half, 0.5, 1.0 - heights**2)  # of the sphere, in the cap
        heights = heights[share > _LEAST_SHARE]
        share = share[share > _LEAST_SHARE]
        inside = 1.0 / (1.0 + np.exp(-epsilon) * (1.0 / share - 1.0))
        # ∫ t over the cap; the rest of the sphere has minus that.
        moment = np.exp(self._half * np.log1p(-(heights**2)) - betaln(0.5, self._half))
        moment /= 2.0 * self._half
        best = np.argmax(moment * (inside / share - (1.0 - inside) / (1.0 - share)))
        self._share = float(share[best])
        self._inside = float(inside[best])

    def encode(self, vectors: Array) -> Array:
        count = len(vectors)
        within = self._rng.random(count) < self._inside
        # Share of the sphere that lies above the height ⟨V, u⟩.
        uniform = self._rng.random(count)
        outside = self._share + uniform * (1.0 - self._share)
        above = np.where(within, uniform * self._share, outside)
        tail = 2.0 * np.minimum(above, 1.0 - above)
        height = np.sqrt(1.0 - betaincinv(self._half, 0.5, tail)) * np.where(above < 0.5, 1, -1)
        sideways = np.sqrt(1.0 - height**2)[:, None] * across(vectors, self._rng)
        return np.asarray(height[:, None] * vectors + sideways, dtype=np.float32)


class Ours(Scheme):
    """A method of dpindex."""

    def __init__(self, family: str, setting: str, guarantee: str, spec: dpi.Spec) -> None:
        self.family = family
        self.setting = setting
        self.guarantee = guarantee
        self.spec = spec
        self.epsilon = NO_PROMISE if spec.adjacency.kind == "attribute" else spec.budget
        self._privatizer = dpi.Privatizer(spec)
        self.encode(np.eye(1, spec.dim, dtype=np.float32))  # tables are made once

    def encode(self, vectors: Array) -> dpi.Codes:
        return self._privatizer.privatize(vectors, threads=1)

    def size(self, codes: dpi.Codes) -> int:
        return int(codes.stored[0].nbytes)

    def read(self, codes: Any) -> Array:
        decoded = codes.to_float()
        if decoded.shape[1] == self.spec.dim:
            return np.asarray(decoded)
        return np.asarray(decoded @ self._map.T)

    def take(self, codes: dpi.Codes, rows: Array) -> dpi.Codes:
        return codes.take(rows)

    def imitate(self, vectors: Array) -> dpi.Codes:
        """Return codes of public vectors; those that are codewords are encoded by the others."""
        if self.spec.codebook is None:
            return self.encode(vectors)
        cosines = vectors @ self.spec.codebook.vectors.T
        cosines[cosines > _SAME] = -math.inf
        symbols = self.spec.law.perturb(cosines, SecretStream())
        return self.spec.format.codes(symbols.reshape(-1, 1))

    def estimates(self, codes: Any, public: Array) -> list[Callable[[Any], Array]]:
        denoiser = attackers_denoiser(self.spec, codes.take(slice(_FITTED)))
        return [Reconstructor(self.spec, public, denoiser)]

    def rankings(self, codes: Any, candidates: Array, own: Array) -> list[TruePlaces]:
        return [rank_by_law(self.spec, codes, candidates, own)]

    def search(self, codes: Any, queries: Array, private: bool) -> Array:
        index = dpi.PrivateIndex(self.spec)
        index.add_codes(codes)
        return index.search(queries, k=NEIGHBOURS, query="private" if private else "exact").ids

    @cached_property
    def _map(self) -> Array:
        """The public rotation, shape (dim, k)."""
        return self.spec.projection.apply(np.eye(self.spec.dim, dtype=np.float32))


def directions(shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Return uniform directions, shape (n, dim)."""
    normal = rng.standard_normal(shape, dtype=np.float32)
    return np.asarray(normal / np.linalg.norm(normal, axis=1, keepdims=True))


def across(vectors: Array, rng: np.random.Generator) -> Array:
    """Return uniform directions at right angles to vectors of norm 1."""
    normal = rng.standard_normal(vectors.shape, dtype=np.float32)
    normal -= np.einsum("ij,ij->i", normal, vectors)[:, None] * vectors
    return np.asarray(normal / np.linalg.norm(normal, axis=1, keepdims=True))
