"""Float codes to inner products, cosines and distances, corrected for noise, with standard errors.

Everything is computed from three sums per pair: ``⟨x̃, ỹ⟩`` and, of each vector, ``Σ x̃`` and
``Σ x̃²``. So correcting a search result costs nothing beside the search.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dpindex.arrays import Floats
from dpindex.noise import Decoder

__all__ = ["Side", "cosine", "inner_product", "squared_distance"]

Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Side:
    """One side of a comparison: the sums of its vectors and the law of its noise.

    Attributes
    ----------
    total, squares : float64 arrays of one shape
        ``Σ_j x̃_j`` and ``Σ_j x̃_j²`` of each decoded vector, in the data's units.
    k : int
        Coordinates of a vector.
    noise : Decoder, optional
        The law's moments in units of ``unit``; None for an exact vector.
    unit : float
        Units of the data per grid step.
    norm : float, optional
        The declared norm of every vector, if it is public.
    """

    total: Doubles
    squares: Doubles
    k: int
    noise: Decoder | None = None
    unit: float = 1.0
    norm: float | None = None

    @classmethod
    def of(
        cls, decoded: Floats, noise: Decoder | None, unit: float, norm: float | None = None
    ) -> Side:
        """The side made of decoded vectors, shape (n, k)."""
        wide = decoded.astype(np.float64)
        return cls(wide.sum(axis=1), (wide**2).sum(axis=1), wide.shape[1], noise, unit, norm)

    def at(self, index: npt.NDArray[np.intp]) -> Side:
        """The same side with its vectors picked (and reshaped) by ``index``."""
        return Side(
            self.total[index], self.squares[index], self.k, self.noise, self.unit, self.norm
        )

    def column(self) -> Side:
        """The same side as a column, to meet a row of others."""
        return self.at(np.arange(len(self.total))[:, None])

    @property
    def noise_energy(self) -> Doubles:
        """Unbiased estimate of ``Σ_j Var(x̃_j)``: k·σ² for additive noise.

        For a variance ``v(x) = a₀ + a₁x + a₂x²``, ``v(x̃)/(1 + a₂)`` is unbiased for v(x).
        """
        if self.noise is None:
            return np.zeros_like(self.squares)
        constant, first, second = self.noise.variance
        total = constant * self.unit**2 * self.k + first * self.unit * self.total
        return np.asarray((total + second * self.squares) / (1.0 + second))

    @property
    def energy(self) -> Doubles:
        """``‖x̃‖² − kσ²``: unbiased for the squared norm of the projected vector (METHODS 5)."""
        return np.asarray(self.squares - self.noise_energy)

    @property
    def energy_noise(self) -> Doubles:
        """Variance of ``Σ noise²``: k·(fourth moment − σ⁴)."""
        if self.noise is None:
            return np.zeros_like(self.squares)
        per_coordinate = self.noise_energy / self.k
        # The square wave has no single fourth moment; it is bounded, so close to a uniform's 9/5.
        fourth = np.maximum(self.noise.fourth * self.unit**4, 1.8 * per_coordinate**2)
        return np.asarray(self.k * np.maximum(fourth - per_coordinate**2, 0.0))

    @property
    def safe_energy(self) -> Doubles:
        """``energy`` kept above one of its own standard deviations at zero signal."""
        return np.maximum(self.energy, np.sqrt(self.energy_noise) + 1e-300)


def inner_product(ip: Doubles, x: Side, y: Side, factor: float) -> tuple[Doubles, Doubles]:
    """Unbiased inner products and their standard errors.

    Parameters
    ----------
    ip : array
        ``⟨x̃, ỹ⟩``, which is unbiased as it stands.
    x, y : Side
        Both sides, of shapes that broadcast with ``ip``.
    factor : float
        ``Projection.inner_product_factor``.

    Li & Li 2023, Thms 3.8–3.10: ``σ_x²‖v‖² + σ_y²‖u‖² + kσ_x²σ_y² + Var_projection``.
    """
    energy_x, energy_y = np.maximum(x.energy, 0.0), np.maximum(y.energy, 0.0)
    noise_x, noise_y = x.noise_energy / x.k, y.noise_energy / y.k
    variance = noise_x * energy_y + noise_y * energy_x + x.k * noise_x * noise_y
    variance = variance + factor * (energy_x * energy_y + ip**2)
    return ip, np.sqrt(variance)


def cosine(ip: Doubles, x: Side, y: Side, factor: float) -> tuple[Doubles, Doubles]:
    """Noise-corrected cosines, clipped to [−1, 1], and their standard errors.

    With declared norms the cosine is the unbiased inner product over them. Otherwise it is the
    ratio to the corrected norms; the error is its first-order (delta-method) deviation, in which
    the projection contributes only ``(1−ρ²)²·factor`` because norms and inner product err together,
    and the ratio's second-order bias is divided out.
    """
    if x.norm is not None and y.norm is not None:
        value, error = inner_product(ip, x, y, factor)
        return np.clip(value / (x.norm * y.norm), -1.0, 1.0), error / (x.norm * y.norm)
    noise_x, noise_y = x.noise_energy / x.k, y.noise_energy / y.k
    energy_x, energy_y = x.safe_energy, y.safe_energy
    share_x, share_y = noise_x / energy_x, noise_y / energy_y
    spread_x, spread_y = x.energy_noise / energy_x**2, y.energy_noise / energy_y**2
    ratio = ip / np.sqrt(energy_x * energy_y)
    bounded = np.clip(ratio, -1.0, 1.0)
    apart = 1.0 - bounded**2
    # E[ratio]/ρ to second order: noise in each norm, and the shrinkage of a sample cosine.
    bias = (share_x + share_y) / 2 + 3 * (spread_x + spread_y) / 8 - apart * factor / 2
    value = np.clip(ratio / (1.0 + bias), -1.0, 1.0)
    variance = (
        apart * (share_x + share_y)
        + x.k * share_x * share_y
        + bounded**2 * (spread_x + spread_y) / 4
        + apart**2 * factor
    )
    return value, np.sqrt(variance)


def squared_distance(ip: Doubles, x: Side, y: Side, factor: float) -> tuple[Doubles, Doubles]:
    """Unbiased squared Euclidean distances (possibly negative) and their standard errors.

    ``‖x̃−ỹ‖²`` less the noise energy of the private sides (Stausholm 2021; METHODS 5).
    """
    value = x.energy + y.energy - 2 * ip
    noise = (x.noise_energy + y.noise_energy) / x.k
    distance = np.maximum(value, 0.0)
    variance = 4 * noise * distance + x.energy_noise + y.energy_noise
    variance = variance + 4 * x.noise_energy * y.noise_energy / x.k + 2 * factor * distance**2
    return value, np.sqrt(variance)
