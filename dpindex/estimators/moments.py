"""How the noise of a law scatters a coordinate and its square, as polynomials in the coordinate."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from dpindex.noise import Decoder

__all__ = ["NoiseMoments", "noise_moments"]

Polynomial = tuple[float, ...]


@dataclass(frozen=True)
class NoiseMoments:
    """Moments of one decoded coordinate x̃ given x, in ``z = x − centre``, lowest power first.

    ``g(x̃)``, unbiased for x², is ``weight·(z̃² − constant) + 2·centre·z̃ + centre²``.

    Attributes
    ----------
    centre, reach : float
        Where the law is symmetric about, and how far from it coordinates may lie.
    weight : float
        1 for additive noise; the chance of the window for the square wave.
    variance : polynomial of degree 2
        ``Var(x̃)``.
    mixed : polynomial of degree 3
        ``Cov(x̃, g)``.
    squared : polynomial of degree 4
        ``Var(g)``.
    """

    centre: float
    reach: float
    weight: float
    variance: Polynomial
    mixed: Polynomial
    squared: Polynomial


@lru_cache(maxsize=64)
def noise_moments(law: Decoder, unit: float) -> NoiseMoments:
    """Moments in the data's units, of which ``unit`` make a grid step."""
    constant, first, second = law.variance
    if abs(second) < 1e-6:  # additive, or a window that is hardly ever missed
        sigma2, fourth = constant * unit**2, law.fourth * unit**4
        kurtosis = max(fourth - sigma2**2, 0.0)
        mixed, squared = (0.0, 2 * sigma2, 0.0, 0.0), (kurtosis, 0.0, 4 * sigma2, 0.0, 0.0)
        return NoiseMoments(0.0, math.inf, 1.0, (sigma2, 0.0, 0.0), mixed, squared)
    # The square wave: with chance w uniform within b of z, else uniform within the widest a = r + b
    # (r the reach of z), all divided by w. Its decoder holds the three: Var(z̃) = v₀ + z²(1/w − 1)
    # with v₀ = (w·b² + (1 − w)·a²)/3w², and code 0 decodes to the lowest estimate, −a/w.
    w, centre = 1.0 / (1.0 + second), -first / (2.0 * second)
    a = w * (centre - law.offset * law.gain)
    v0 = constant - second * centre**2
    b2 = max((3 * w**2 * v0 - (1 - w) * a**2) / w, 0.0)
    reach = a - math.sqrt(b2)
    # Cov(z̃, z̃²) = t₁z + t₃z³ and Var(z̃²) = q₀ + q₂z² + q₄z⁴, from E z̃³ and E z̃⁴.
    t1, t3 = b2 / w**2 - v0, 1 / w**2 - 1 / w
    q0 = b2**2 / (5 * w**3) + (1 - w) * a**4 / (5 * w**4) - v0**2
    q2, q4 = 2 * b2 / w**3 - 2 * v0 / w, 1 / w**3 - 1 / w**2
    mixed = (2 * centre * v0, w * t1, 2 * centre * second, w * t3)
    squared = (
        w**2 * q0 + 4 * centre**2 * v0,
        4 * centre * w * t1,
        w**2 * q2 + 4 * centre**2 * second,
        4 * centre * w * t3,
        w**2 * q4,
    )
    # From grid steps to the data's units: z^i in a moment of order m scales with unit^(m−i).
    return NoiseMoments(
        centre * unit,
        reach * unit,
        w,
        _scaled((v0, 0.0, second), 2, unit),
        _scaled(mixed, 3, unit),
        _scaled(squared, 4, unit),
    )


def _scaled(coefficients: Polynomial, order: int, unit: float) -> Polynomial:
    return tuple(value * unit ** (order - power) for power, value in enumerate(coefficients))
