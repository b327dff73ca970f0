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
    def signal(self) -> Doubles:
        """Squared norm of the projected vector: the declared one, else the estimate, never < 0."""
        if self.norm is not None:
            return np.full_like(self.squares, self.norm**2)
        return np.maximum(self.energy, 0.0)

    @property
    def _ratios(self) -> tuple[Doubles, Doubles, Doubles]:
        """A safe energy, and the noise per coordinate and of the energy relative to it."""
        # Kept above one of its own standard deviations at zero signal.
        energy = np.maximum(self.energy, np.sqrt(self.energy_noise) + 1e-300)
        return energy, self.noise_energy / self.k / energy, self.energy_noise / energy**2

    @property
    def inverse_norm(self) -> Doubles:
        """``h`` such that ``E[x̃·h] ≈ x/‖x‖``: what turns an inner product into a cosine.

        The estimated energy errs with relative variance ``a + 4b`` (a: noise squared, b: noise
        against signal) and together with x̃. For normal errors the series of the unbiased h is
        ``1 − 3t/8 + 105t²/128 − …`` in ``t = a + 4b/3``; its Padé form stays bounded.
        """
        energy, share, spread = self._ratios
        t = spread + 4 * share / 3
        return np.asarray((16 + 29 * t) / (16 + 35 * t) / np.sqrt(energy))

    @property
    def relative_noise(self) -> tuple[Doubles, Doubles]:
        """``σ²/‖x‖²`` and ``Var(Σ noise²)/‖x‖⁴``.

        Powers of 1/energy are too large on average, as the energy is noisy; to first order this is
        divided out: ``E[Ê⁻¹] = E⁻¹(1 + τ)``, ``E[Ê⁻²] = E⁻²(1 + 3τ)`` with τ the relative variance.
        """
        if self.norm is not None:
            return self.noise_energy / self.k / self.norm**2, self.energy_noise / self.norm**4
        _, share, spread = self._ratios
        variance = spread + 4 * share
        return share / (1 + variance), spread / (1 + 3 * variance)


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
    energy_x, energy_y = x.signal, y.signal
    noise_x, noise_y = x.noise_energy / x.k, y.noise_energy / y.k
    variance = noise_x * energy_y + noise_y * energy_x + x.k * noise_x * noise_y
    variance = variance + factor * (energy_x * energy_y + ip**2)
    return ip, np.sqrt(variance)


def cosine(ip: Doubles, x: Side, y: Side, factor: float) -> tuple[Doubles, Doubles]:
    """Noise-corrected cosines, clipped to [−1, 1], and their standard errors.

    The ratio to the corrected norms; its error is the first-order (delta-method) deviation, in
    which the projection contributes only ``(1−ρ²)²·factor`` because norms and inner product err
    together, and the shrinkage of a sample cosine is divided out. With declared norms see
    ``_declared_cosine``.
    """
    share_x, spread_x = x.relative_noise
    share_y, spread_y = y.relative_noise
    if x.norm is not None and y.norm is not None:
        shift = (x.energy / x.norm**2 + y.energy / y.norm**2) / 2 - 1.0
        own = share_x + share_y, (spread_x + spread_y) / 4, x.k * share_x * share_y
        return _declared_cosine(ip / (x.norm * y.norm), shift, *own, factor)
    ratio = ip * x.inverse_norm * y.inverse_norm
    apart = 1.0 - np.clip(ratio, -1.0, 1.0) ** 2
    value = np.clip(ratio / (1.0 - apart * factor / 2), -1.0, 1.0)
    apart = 1.0 - value**2
    variance = (
        apart * (share_x + share_y)
        + x.k * share_x * share_y
        + value**2 * (spread_x + spread_y) / 4
        + apart**2 * factor
    )
    return value, np.sqrt(variance)


def _declared_cosine(
    plain: Doubles, shift: Doubles, share: Doubles, spread: Doubles, cross: Doubles, factor: float
) -> tuple[Doubles, Doubles]:
    """Cosines given declared norms: the unbiased one with the seen error of the norms as control.

    ``plain`` errs together with ``shift``, the mean relative error of the estimated squared norms,
    which declared norms reveal. Subtracting the regression on it leaves the mean alone and never
    raises the variance: near ρ = 1 it removes most of the projection's error.
    """
    value = plain
    for _ in range(3):  # the slope depends on the cosine: a fixed point, reached at once
        rho = np.clip(value, -1.0, 1.0)
        together = rho * (2 * factor + share)
        alone = factor * (1 + rho**2) + share + spread
        slope = together / np.maximum(alone, 1e-300)
        value = plain - slope * shift
    variance = factor * (1 + rho**2) + share + cross - slope * together
    return np.clip(value, -1.0, 1.0), np.sqrt(np.maximum(variance, 0.0))


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
