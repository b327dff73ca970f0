"""What a law does to a coordinate, and what a code says of it: moments, likelihood, channel."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import numpy as np

from dpindex.base.arrays import Doubles, Singles

Polynomial = tuple[float, ...]


_Numbers = TypeVar("_Numbers", Singles, Doubles)


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
        """Return the moments of symmetric noise of that variance and fourth central moment."""
        kurtosis = max(fourth - variance**2, 0.0)
        mixed = (0.0, 2 * variance, 0.0, 0.0)
        squared = (kurtosis, 0.0, 4 * variance, 0.0, 0.0)
        return cls(0.0, math.inf, 1.0, (variance, 0.0, 0.0), mixed, squared)

    @classmethod
    def window(
        cls,
        weight: float,
        centre: float,
        widest: float,
        constant: float,
    ) -> NoiseMoments:
        """Return the moments of a mixture of two uniforms, divided by the weight of the first.

        With chance w = ``weight`` the code is uniform within b of z, else uniform within a =
        ``widest`` of the centre, whatever z. ``Var(z̃) = v₀ + z²(1/w − 1)`` with
        v₀ = ``constant`` = ``(w·b² + (1 − w)·a²)/3w²``, which determines b.
        """
        w = weight
        a = widest
        v0 = constant
        second = 1 / weight - 1
        if second < 1e-6:  # the window is hardly ever missed
            return cls.additive(v0, 0.0)
        within = (3 * w**2 * v0 - (1 - w) * a**2) / w
        b2 = max(within, 0.0)
        # Cov(z̃, z̃²) = t₁z + t₃z³ and Var(z̃²) = q₀ + q₂z² + q₄z⁴, from E z̃³ and E z̃⁴.
        t1 = b2 / w**2 - v0
        t3 = 1 / w**2 - 1 / w
        q0 = b2**2 / (5 * w**3) + (1 - w) * a**4 / (5 * w**4) - v0**2
        q2 = 2 * b2 / w**3 - 2 * v0 / w
        q4 = 1 / w**3 - 1 / w**2
        # g = w·(z̃² − v₀) + 2c·z̃ + c², c the centre.
        c2 = 2 * centre
        mixed = (
            c2 * v0,
            w * t1,
            c2 * second,
            w * t3,
        )
        squared = (
            w**2 * q0 + c2**2 * v0,
            2 * c2 * w * t1,
            w**2 * q2 + c2**2 * second,
            2 * c2 * w * t3,
            w**2 * q4,
        )
        return cls(
            centre,
            reach=a - math.sqrt(b2),
            weight=w,
            variance=(v0, 0.0, second),
            mixed=mixed,
            squared=squared,
        )

    def in_units(self, unit: float) -> NoiseMoments:
        """Return these moments in other units, ``unit`` of which make one of these."""

        def scaled(moment: Polynomial, order: int) -> Polynomial:
            # The coefficient of z^i in a moment of that order scales with unit^(order − i).
            return tuple(c * unit ** (order - i) for i, c in enumerate(moment))

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
        at_zero = constant - first * m + second * m**2
        return at_zero, first - 2 * second * m, second


@dataclass(frozen=True, eq=False)
class Likelihood:
    """``P(code | x)`` for one coordinate, as a step function of the distance from the code to x.

    With y the decoded code, it depends on x through ``u = slope·y + shift − x`` alone and is
    ``base + Σ jumps[edges < u]``.

    Attributes
    ----------
    edges, jumps : arrays, shape (m,)
        Empty for sign codes, whose laws have none.
    cell : float
        Width of a cell of the law, over which the code's rounding is spread.
    slope, shift : float
        Of ``u`` as a function of y.
    base : float
        The likelihood below the first edge.
    interval : two floats, optional
        Where x lies, if the law is one of the values of an interval.
    """

    edges: Doubles = field(default_factory=lambda: np.empty(0))
    jumps: Doubles = field(default_factory=lambda: np.empty(0))
    cell: float = 1.0
    slope: float = 1.0
    shift: float = 0.0
    base: float = 0.0
    interval: tuple[float, float] | None = None

    @property
    def levels(self) -> Doubles:
        """The likelihood below the first edge, between the first two, and so on."""
        above_base = np.concatenate([[0.0], np.cumsum(self.jumps)])
        return self.base + above_base

    def locate(self, y: _Numbers) -> _Numbers:
        """Return the coordinates about which the likelihoods of decoded codes y lie."""
        return self.slope * y + self.shift

    def in_units(self, unit: float) -> Likelihood:
        """Return this likelihood in other units, ``unit`` of which make one of these."""
        interval = None
        if self.interval is not None:
            low, high = self.interval
            interval = (low * unit, high * unit)
        return Likelihood(
            edges=self.edges * unit,
            jumps=self.jumps / unit,
            cell=self.cell * unit,
            slope=self.slope,
            shift=self.shift * unit,
            base=self.base / unit,
            interval=interval,
        )


class LinearChannel(NamedTuple):
    """Code coordinates as ``slope·x + noise`` of coordinates x with a known mean and variance.

    Attributes
    ----------
    slope, mean, noise : float64 arrays of one shape
        The slope, the mean of the code coordinate, and the variance that x does not explain.
    bends : float64 array, shape (k, m)
        What x explains beyond a line: coefficients of Hermite polynomials of orders 2, 3, ….
    """

    slope: Doubles
    mean: Doubles
    noise: Doubles
    bends: Doubles

    def covariance(self, within: Doubles) -> Doubles:
        """Return the covariance of code coordinates, given that of the coordinates, (k, k).

        Normal coordinates of correlation ρ have order n in common by ρⁿ (Mehler 1866).
        """
        deviation = np.sqrt(np.maximum(np.diag(within), 1e-300))
        correlation = within / deviation / deviation[:, None]
        total = self.slope * within * self.slope[:, None]
        power = correlation.copy()
        for bend in self.bends.T:
            power *= correlation  # a power of it takes ten times as long
            total += bend * power * bend[:, None]
        return total + np.diag(self.noise)
