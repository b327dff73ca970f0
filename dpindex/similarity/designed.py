"""Codes of designed projections, decoded to estimates of the original vectors.

The decoder is public: it knows the mean μ and, where codes can tell anything, the covariance of
public vectors. Under Laplace or Gaussian noise a code is ``y = W(x − c) + noise``; signs are
``D W(x − c) + noise``, as well as a linear law can say it (Bussgang 1952). The estimate
``x̂ = μ + Gᵀ(y − E y)`` lies in a space of k + 1 dimensions, that of μ and of ``W C``, whose
orthonormal rows B the design holds: codes become the k + 1 numbers ``B x̂``, and an exact query q
becomes ``B q`` and the length of the rest of it. Their similarities are those of the original
vectors, as posterior means under the public prior, so the choice of the best does not bias them.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from dpindex.base.arrays import Doubles, Singles, Vectors, issparse
from dpindex.denoise import Denoiser
from dpindex.mechanism.codes import Codes
from dpindex.mechanism.noise import SignLaw
from dpindex.mechanism.public_parts import Design
from dpindex.mechanism.spec import Spec
from dpindex.similarity.float_codes import Estimate
from dpindex.similarity.similarity import Metric, PrivateQueries, Queries, Similarity

_LEFT = 0.1
"""Noise that is taken to be left in denoised codes, over that of the codes."""

_CLAIMED = 1.7
"""Actual over claimed errors, the largest that was measured."""


class Decoder(NamedTuple):
    """The linear estimate from codes of one spec.

    Attributes
    ----------
    weights : float32 array, shape (k, k + 1)
    constant : float32 array, shape (k + 1,)
        ``y @ weights + constant`` is the estimate, in coordinates of B.
    error : float64 array, shape (k + 1, k + 1)
        Covariance of its error.
    """

    weights: Singles
    constant: Singles
    error: Doubles


@lru_cache(maxsize=16)
def decoder_of(spec: Spec, denoised: bool = False) -> Decoder:
    """Return the decoder of codes, or of denoised number codes."""
    design = design_of(spec)
    w = design.entries.astype(np.float64) * spec.projection.scale
    within = design.cross @ (design.basis.astype(np.float64) @ w.T)
    within = (within + within.T) / 2
    variance = np.maximum(np.diag(within), 0.0)
    centre = np.zeros(len(w))
    if isinstance(spec.law, SignLaw):
        beta = spec.projection.scale * spec.adjacency.size
        slope, expected, noise = spec.law.linear_channel(centre, variance, beta)
    else:
        slope, expected, noise = spec.number_law.linear_channel(centre, variance, spec.step)
    covariance = slope * within * slope[:, None]
    across = slope[:, None] * design.cross
    gain = np.linalg.solve(covariance + np.diag(noise * (_LEFT if denoised else 1)), across)
    mean = design.basis.astype(np.float64) @ design.centre
    return Decoder(
        gain.astype(np.float32),
        (mean - expected @ gain).astype(np.float32),
        design.prior - across.T @ np.linalg.solve(covariance + np.diag(noise), across),
    )


def design_of(spec: Spec) -> Design:
    """Return the design of a spec; TypeError if it has none."""
    if spec.design is None:
        raise TypeError(f"{spec.method} has no design")
    return spec.design


def decoded(codes: Codes, spec: Spec, denoiser: Denoiser | None = None) -> Singles:
    """Return estimates of the vectors behind codes, float32, shape (n, k + 1)."""
    numbers = denoiser is not None and not isinstance(spec.law, SignLaw)
    y = denoiser(codes, spec) if denoiser is not None and numbers else codes.to_float()
    decoder = decoder_of(spec, numbers)
    return np.asarray(y @ decoder.weights + decoder.constant)


def exact_coordinates(vectors: Vectors, spec: Spec) -> Doubles | None:
    """Return exact vectors in coordinates of B, and the norm of what lies outside of it.

    float64, shape (n, k + 2); None without a design.
    """
    if spec.design is None:
        return None
    rows: Any = vectors.astype(np.float64) / spec.scale
    used = rows[:, spec.design.attributes]
    inside = np.asarray(used @ spec.design.basis.T.astype(np.float64))
    squares = rows.multiply(rows) if issparse(rows) else rows**2
    energy = np.asarray(squares.sum(axis=1)).reshape(-1, 1)
    rest = np.maximum(energy - (inside**2).sum(axis=1, keepdims=True), 0.0)
    return np.hstack([inside, np.sqrt(rest)])


def decoded_queries(queries: Queries, denoiser: Denoiser | None = None) -> Doubles:
    """Return queries in coordinates of B and one more, float64, shape (nq, k + 2)."""
    if isinstance(queries, PrivateQueries):
        y = decoded(queries.codes, queries.spec, denoiser).astype(np.float64)
        return np.hstack([y, np.zeros((len(y), 1))])
    if queries.vectors is None:
        raise TypeError("exact queries under a design need their vectors")
    return queries.vectors


class DesignedSimilarity(Similarity):
    """Posterior means of similarities under the public prior, and their errors.

    With ``x = x̂ + e``: ``E⟨x, q⟩ = ⟨x̂, q⟩`` and ``E‖x‖² = ‖x̂‖² + E‖e‖²``. Of e the part within B
    has the covariance of the decoder, and the rest is known by its energy alone.
    """

    def __init__(self, spec: Spec, metric: Metric, denoiser: Denoiser | None = None) -> None:
        super().__init__(spec, metric)
        self._denoiser = denoiser

    def estimates(self, codes: Codes, queries: Queries, groups: int) -> Estimate:
        design = design_of(self.spec)
        private = isinstance(queries, PrivateQueries)
        error = decoder_of(self.spec).error
        x = decoded(codes, self.spec, self._denoiser).astype(np.float64)
        x = x.reshape(groups, -1, x.shape[1])
        along = decoded_queries(queries, self._denoiser)
        y = along[:, None, :-1]
        outside = along[:, -1:] ** 2  # of the query
        hidden = float(np.trace(error)) + design.unseen
        x_energy = np.sum(x**2, axis=2) + hidden
        y_energy = np.sum(y**2, axis=2) + outside
        both = 0.0
        if private:
            y_error = decoder_of(queries.spec).error
            y_energy = y_energy + float(np.trace(y_error)) + design.unseen
            both = float(np.sum(error * y_error)) + design.unseen * design.unseen_along
        ip = np.matmul(x, y.swapaxes(1, 2))[..., 0]
        value, by_x, by_y = ip, np.zeros(ip.shape), np.zeros(ip.shape)
        if self.metric == "l2":
            value = x_energy + y_energy - 2 * ip
            by_x, by_y = np.ones(ip.shape), np.ones(ip.shape)
        elif self.metric == "cosine":
            value = ip / np.sqrt(x_energy * y_energy)
            by_x, by_y = ip / x_energy, ip / y_energy
        # The error of x counts along y less what it does to the norm of x.
        variance = _along(error, y, x, by_x) + outside * design.unseen_along + both
        if private:
            variance = variance + _along(y_error, x, y, by_y)
        size = {"cosine": np.sqrt(x_energy * y_energy), "l2": 0.5, "ip": 1.0}[self.metric]
        stderr = _CLAIMED * np.sqrt(np.maximum(variance, 0.0)) / size
        if self.metric == "cosine":
            return np.clip(value, -1.0, 1.0), stderr
        return value, stderr


def _along(error: Doubles, other: Doubles, own: Doubles, share: Doubles) -> Doubles:
    """Return the variance of ``⟨e, other − share·own⟩``, shape (nq, count)."""
    across = _product(other, error, other) - 2 * share * _product(own, error, other)
    return np.asarray(across + share**2 * _product(own, error, own))


def _product(one: Doubles, error: Doubles, other: Doubles) -> Doubles:
    return np.asarray(np.sum((one @ error) * other, axis=2))
