"""Float codes to inner products, cosines and distances, corrected for noise, with standard errors.

Everything is computed from three sums per pair: ``⟨x̃, ỹ⟩`` and, of each vector, ``Σ x̃`` and
``Σ x̃²``. So correcting a search result costs nothing beside the search.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dpindex.estimators.sides import Side

__all__ = ["Side", "cosine", "inner_product", "squared_distance"]

Doubles = npt.NDArray[np.float64]


def _both(x: Side, y: Side) -> Doubles:
    """``Σ_j Var(x̃_j)·Var(ỹ_j)``."""
    return np.asarray(x.noise_energy * y.noise_energy / x.k)


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
    variance = x.spread_with(y, ip, y.signal)[0] + y.spread_with(x, ip, x.signal)[0]
    variance = variance + _both(x, y) + factor * (x.signal * y.signal + ip**2)
    return ip, np.sqrt(variance)


def cosine(ip: Doubles, x: Side, y: Side, factor: float) -> tuple[Doubles, Doubles]:
    """Noise-corrected cosines, clipped to [−1, 1], and their standard errors.

    The ratio to the corrected norms; its error is the first-order (delta-method) deviation, in
    which the projection contributes only ``(1−ρ²)²·factor`` because norms and inner product err
    together, and the shrinkage of a sample cosine is divided out. With declared norms see
    ``_declared_cosine``.
    """
    if x.norm is not None and y.norm is not None:
        return _declared_cosine(ip, x, y, x.norm * y.norm, factor)
    scale = x.inverse_norm * y.inverse_norm
    ratio = ip * scale
    apart = 1.0 - np.clip(ratio, -1.0, 1.0) ** 2
    value = np.clip(ratio / (1.0 - apart * factor / 2), -1.0, 1.0)
    noise = _ratio_noise(ip, x, y, value, scale) + _ratio_noise(ip, y, x, value, scale)
    less = (1 + x.relative_variance) * (1 + y.relative_variance)
    noise = noise + _both(x, y) / (x.safe_energy * y.safe_energy * less)
    return value, np.sqrt(noise + (1.0 - value**2) ** 2 * factor)


def _ratio_noise(ip: Doubles, x: Side, y: Side, rho: Doubles, scale: Doubles) -> Doubles:
    """Variance that the noise of x gives to the ratio ``⟨x, y⟩/‖x‖‖y‖``.

    By ``p·x̃_j·y_j + q·g(x̃_j)`` with ``p = 1/‖x‖‖y‖`` and ``q = −ρ/2‖x‖²``. Powers of the inverse
    of a noisy energy are too large on average: ``E[Ê⁻¹] ≈ E⁻¹(1 + τ)`` with τ the relative variance
    of Ê, and ``E[Ê⁻²] ≈ E⁻²(1 + 3τ)``; that is divided out.
    """
    energy, tau = x.safe_energy, x.relative_variance
    variance, mixed = x.spread_with(y, ip, y.safe_energy)
    along = variance / (energy * y.safe_energy) - rho * mixed * scale / energy
    return np.maximum(along / (1 + tau) + rho**2 * tau / (4 * (1 + 2 * tau)), 0.0)


def _declared_cosine(
    ip: Doubles, x: Side, y: Side, size: float, factor: float
) -> tuple[Doubles, Doubles]:
    """Cosines given declared norms: the unbiased one, with the seen error of the norms as control.

    ``plain = ⟨x̃, ỹ⟩/‖u‖‖v‖`` errs together with ``shift``, the mean relative error of the estimated
    squared norms, which declared norms reveal. Subtracting the regression on it leaves the mean
    alone and never raises the variance: near ρ = 1 it removes most of the projection's error.
    """
    plain = ip / size
    shift = (x.energy / x.signal + y.energy / y.signal) / 2 - 1.0
    spread = (x.energy_variance / x.signal**2 + y.energy_variance / y.signal**2) / 4
    value = rho = plain
    for _ in range(3):  # the slope depends on the cosine: a fixed point, reached at once
        rho = np.clip(value, -1.0, 1.0)
        own_x, mixed_x = x.spread_with(y, rho * size, y.signal)
        own_y, mixed_y = y.spread_with(x, rho * size, x.signal)
        together = (mixed_x / x.signal + mixed_y / y.signal) / (2 * size) + 2 * factor * rho
        alone = spread + factor * (1 + rho**2)
        slope = together / np.maximum(alone, 1e-300)
        value = plain - slope * shift
    variance = (own_x + own_y + _both(x, y)) / size**2 + factor * (1 + rho**2) - slope * together
    return np.clip(value, -1.0, 1.0), np.sqrt(np.maximum(variance, 0.0))


def squared_distance(ip: Doubles, x: Side, y: Side, factor: float) -> tuple[Doubles, Doubles]:
    """Unbiased squared Euclidean distances (possibly negative) and their standard errors.

    ``‖x̃−ỹ‖²`` less the noise energy of the private sides (Stausholm 2021; METHODS 5).
    """
    value = x.energy + y.energy - 2 * ip
    variance = 4 * _both(x, y) + 2 * factor * np.maximum(value, 0.0) ** 2
    for side, other in ((x, y), (y, x)):
        own, mixed = side.spread_with(other, ip, other.signal)
        variance = variance + np.maximum(4 * own - 4 * mixed + side.energy_variance, 0.0)
    return value, np.sqrt(variance)
