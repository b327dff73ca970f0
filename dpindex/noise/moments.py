"""Moments of the noise on a coordinate and on its square, as polynomials in the coordinate."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["NoiseMoments", "Polynomial"]

Polynomial = tuple[float, ...]


@dataclass(frozen=True)
class NoiseMoments:
    """Moments of one decoded coordinate x̃ given x, in ``z = x − centre``, lowest power first.

    ``g(x̃)``, unbiased for x², is ``weight·(z̃² − variance[0]) + 2·centre·z̃ + centre²``.

    Attributes
    ----------
    centre, reach : float
        The point of symmetry of the law, and the largest distance of a coordinate from it.
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

    @classmethod
    def additive(cls, variance: float, fourth: float) -> NoiseMoments:
        """Of symmetric additive noise with that variance and fourth central moment."""
        kurtosis = max(fourth - variance**2, 0.0)
        mixed, squared = (0.0, 2 * variance, 0.0, 0.0), (kurtosis, 0.0, 4 * variance, 0.0, 0.0)
        return cls(0.0, math.inf, 1.0, (variance, 0.0, 0.0), mixed, squared)

    @classmethod
    def window(cls, weight: float, centre: float, widest: float, constant: float) -> NoiseMoments:
        """Of a law that is a mixture of two uniforms, divided by the weight of the first.

        With chance w = ``weight`` the code is uniform within b of z, else uniform within a =
        ``widest`` of the centre, whatever z. ``Var(z̃) = v₀ + z²(1/w − 1)`` with
        v₀ = ``constant`` = ``(w·b² + (1 − w)·a²)/3w²``, which determines b.
        """
        w, a, v0, second = weight, widest, constant, 1 / weight - 1
        if second < 1e-6:  # the window is hardly ever missed
            return cls.additive(v0, 0.0)
        b2 = max((3 * w**2 * v0 - (1 - w) * a**2) / w, 0.0)
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
        return cls(centre, a - math.sqrt(b2), w, (v0, 0.0, second), mixed, squared)

    def in_units(self, unit: float) -> NoiseMoments:
        """The same for coordinates in other units, ``unit`` of which make one of these."""

        def scaled(coefficients: Polynomial, order: int) -> Polynomial:
            # z^i in a moment of order m scales with unit^(m−i).
            return tuple(c * unit ** (order - power) for power, c in enumerate(coefficients))

        return NoiseMoments(
            self.centre * unit,
            self.reach * unit,
            self.weight,
            scaled(self.variance, 2),
            scaled(self.mixed, 3),
            scaled(self.squared, 4),
        )

    @property
    def variance_of_x(self) -> Polynomial:
        """``Var(x̃)`` as a polynomial in x instead of z."""
        constant, first, second = self.variance
        m = self.centre
        return constant - first * m + second * m**2, first - 2 * second * m, second
