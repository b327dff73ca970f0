"""The ways to protect vectors that ``bench/peers.py`` compares, behind one short interface.

The peers are written in floats with an ordinary generator: that is enough to measure what they find
and leak, and not to deploy them (Mironov 2012 on noise in floats).
"""

from __future__ import annotations

import asyncio
import importlib
import math
import secrets
from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import betainc, betaincinv, betaln

import dpindex as dpi
from dpindex.randomness.secret import SecretStream

Array = npt.NDArray[Any]
NEIGHBOURS = 10
FLOAT_BYTES = 4
_LEAST_SHARE = 1e-30
PURE = "any two vectors, pure epsilon, against everyone"


class Scheme(ABC):
    """One scheme with its parameters.

    Attributes
    ----------
    family, setting : str
        What it is called, and its parameter.
    epsilon : float
        Promise for any two vectors of norm 1; infinite if there is none.
    guarantee : str
        What it protects, in words.
    alphabet : array, shape (K, dim), or None
        All readings that a code can have, if they are few.
    """

    family: str
    setting: str
    epsilon: float
    guarantee: str
    alphabet: Array | None = None
    secret_order = False
    """Whether codes have their coordinates in an order that only the key tells."""

    @abstractmethod
    def encode(self, vectors: Array) -> Any:
        """What the operator of the search holds for vectors of norm 1, shape (n, dim)."""

    def read(self, codes: Any) -> Array:
        """Codes as vectors, shape (n, dim), up to a factor: the attacker's raw material."""
        return np.asarray(codes)

    def size(self, codes: Any) -> int:
        """Bytes that are stored for a vector."""
        return FLOAT_BYTES * int(codes.shape[1])

    def imitate(self, vectors: Array) -> Array:
        """Readings that the attacker makes of vectors of its own."""
        return self.read(self.encode(vectors))

    def search(self, codes: Any, queries: Array, private: bool) -> Array:
        """Rows found for each query, shape (nq, 10)."""
        asked = self.read(self.encode(queries)) if private else queries
        return np.argsort(-(asked @ self.read(codes).T), axis=1)[:, :NEIGHBOURS]


class Plain(Scheme):
    family, setting = "no protection", ""
    epsilon, guarantee = math.inf, "nothing"

    def encode(self, vectors: Array) -> Array:
        return vectors


class MetricNoise(Scheme):
    """Noise of density proportional to exp(−rate·‖z‖): Feyisetan et al. 2020."""

    family = "metric-DP noise"

    def __init__(self, rate: float) -> None:
        self.setting, self.rate = f"{rate:g} a unit of distance", rate
        self.epsilon = 2.0 * rate
        self.guarantee = f"epsilon = {rate:g} times the distance of two vectors, against everyone"
        self._rng = np.random.default_rng()

    def encode(self, vectors: Array) -> Array:
        radius = self._rng.gamma(vectors.shape[1], 1.0 / self.rate, (len(vectors), 1))
        noise = radius * directions(vectors.shape, self._rng)
        return (vectors + noise).astype(np.float32)


class PrivUnit(Scheme):
    """Uniform in a cap around the vector or outside it: Bhowmick et al. 2018.

    Cap and probability are those of the largest ``E⟨V, u⟩`` (Asi, Feldman & Talwar 2022).
    """

    family, guarantee = "PrivUnit", PURE

    def __init__(self, dim: int, epsilon: float) -> None:
        self.setting, self.epsilon = "", epsilon
        self._half = (dim - 1) / 2
        self._rng = np.random.default_rng()
        heights = np.linspace(0.0, 1.0, 4000, endpoint=False)
        share = 0.5 * betainc(self._half, 0.5, 1.0 - heights**2)  # of the sphere, in the cap
        heights, share = heights[share > _LEAST_SHARE], share[share > _LEAST_SHARE]
        inside = 1.0 / (1.0 + np.exp(-epsilon) * (1.0 / share - 1.0))
        # ∫ t over the cap; the rest of the sphere has minus that.
        moment = np.exp(self._half * np.log1p(-(heights**2)) - betaln(0.5, self._half))
        moment /= 2.0 * self._half
        best = np.argmax(moment * (inside / share - (1.0 - inside) / (1.0 - share)))
        self.share, self.inside = float(share[best]), float(inside[best])

    def encode(self, vectors: Array) -> Array:
        count = len(vectors)
        within = self._rng.random(count) < self.inside
        # Share of the sphere that lies above the height ⟨V, u⟩.
        above = self._rng.random(count)
        above = np.where(within, above * self.share, self.share + above * (1.0 - self.share))
        tail = 2.0 * np.minimum(above, 1.0 - above)
        height = np.sqrt(1.0 - betaincinv(self._half, 0.5, tail)) * np.where(above < 0.5, 1, -1)
        across = directions(vectors.shape, self._rng)
        across -= np.einsum("ij,ij->i", across, vectors)[:, None] * vectors
        across *= (np.sqrt(1.0 - height**2) / np.linalg.norm(across, axis=1))[:, None]
        return np.asarray(height[:, None] * vectors + across, dtype=np.float32)


class Encryption(Scheme):
    """Scale and perturb (Fuchsbauer et al. 2022) as ``ironcore-alloy`` does it.

    Coordinates are put in a secret order as well, and the scale of version 0.16 is 1. Queries are
    encrypted too; an exact one is encrypted without perturbation, by a holder of the key.
    """

    family, epsilon = "vector encryption", math.inf
    guarantee = "vectors and queries against those without the key, up to what distances tell"
    secret_order = True

    def __init__(self, factor: float) -> None:
        self.setting, self.factor = f"factor {factor:g}", factor
        self._alloy = importlib.import_module("ironcore_alloy")
        self._key = secrets.token_bytes(32)
        self._rng = np.random.default_rng()

    def encode(self, vectors: Array) -> Array:
        return self._table(vectors, self.factor)

    def size(self, codes: Array) -> int:
        """With what the holder of the key needs to decrypt."""
        kept = self._encrypted(codes[:1], self.factor)[0].paired_icl_info
        return super().size(codes) + len(kept)

    def imitate(self, vectors: Array) -> Array:
        """The published formula, coordinates in the vectors' own order."""
        dim = vectors.shape[1]
        radius = self.factor / 4.0 * self._rng.random((len(vectors), 1)) ** (1.0 / dim)
        noise = radius * directions(vectors.shape, self._rng)
        return np.asarray(vectors + noise, dtype=np.float32)

    def search(self, codes: Any, queries: Array, private: bool) -> Array:
        asked = self._table(queries, self.factor if private else 0.0)
        return np.argsort(-(asked @ codes.T), axis=1)[:, :NEIGHBOURS]

    def _table(self, vectors: Array, factor: float) -> Array:
        found = self._encrypted(vectors, factor)
        return np.array([one.encrypted_vector for one in found], dtype=np.float32)

    def _encrypted(self, vectors: Array, factor: float) -> list[Any]:
        alloy = self._alloy
        secret = alloy.RotatableSecret(alloy.StandaloneSecret(1, alloy.Secret(self._key)), None)
        client = alloy.Standalone(
            alloy.StandaloneConfiguration(
                alloy.StandardSecrets(None, []), {}, {"path": alloy.VectorSecret(factor, secret)}
            )
        ).vector()
        batch = {
            str(i): alloy.PlaintextVector(
                plaintext_vector=row.tolist(), secret_path="path", derivation_path="vectors"
            )
            for i, row in enumerate(vectors)
        }
        tenant = alloy.AlloyMetadata.new_simple("tenant")

        async def run() -> Any:
            return await client.encrypt_batch(batch, tenant)

        done = asyncio.run(run()).successes
        return [done[str(i)] for i in range(len(vectors))]


class Ours(Scheme):
    """A method of dpindex."""

    def __init__(self, family: str, setting: str, guarantee: str, spec: dpi.Spec) -> None:
        self.family, self.setting, self.guarantee = family, setting, guarantee
        self.spec = spec
        whole = spec.adjacency.kind != "attribute"
        self.epsilon = spec.budget if whole else math.inf
        self._privatizer = dpi.Privatizer(spec)
        if spec.codebook is not None:
            self.alphabet = spec.codebook.vectors
        self.encode(np.eye(1, spec.dim, dtype=np.float32))  # tables are made once

    def encode(self, vectors: Array) -> dpi.Codes:
        return self._privatizer.privatize(vectors, threads=1)

    def size(self, codes: dpi.Codes) -> int:
        return int(codes.stored[0].nbytes)

    def read(self, codes: Any) -> Array:
        decoded = codes.to_float()
        return np.asarray(decoded if decoded.shape[1] == self.spec.dim else decoded @ self._map.T)

    def imitate(self, vectors: Array) -> Array:
        """Vectors that are codewords are encoded by the other codewords."""
        if self.alphabet is None:
            return super().imitate(vectors)
        cosines = vectors @ self.alphabet.T
        cosines[cosines > 1.0 - 1e-5] = -math.inf
        symbols: Array = self.spec.law.perturb(cosines, SecretStream())
        return np.asarray(self.alphabet[symbols])

    def search(self, codes: Any, queries: Array, private: bool) -> Array:
        index = dpi.PrivateIndex(self.spec)
        index.add_codes(codes)
        return index.search(queries, k=NEIGHBOURS, query="private" if private else "exact").ids

    @cached_property
    def _map(self) -> Array:
        """The public rotation, shape (dim, k)."""
        return self.spec.projection.apply(np.eye(self.spec.dim, dtype=np.float32))


def directions(shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Uniform directions, shape (n, dim)."""
    normal = rng.standard_normal(shape, dtype=np.float32)
    return np.asarray(normal / np.linalg.norm(normal, axis=1, keepdims=True))
