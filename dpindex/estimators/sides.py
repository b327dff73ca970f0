"""One side of a comparison of float codes: the sums of its vectors and the law of its noise."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from dpindex.arrays import Floats
from dpindex.estimators.moments import NoiseMoments, Polynomial, noise_moments
from dpindex.noise import Decoder

__all__ = ["Side"]

Doubles = npt.NDArray[np.float64]

_EXACT = Decoder()


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

    @cached_property
    def _moments(self) -> NoiseMoments:
        return noise_moments(self.noise or _EXACT, self.unit)

    @cached_property
    def _powers(self) -> tuple[Doubles, ...]:
        """``Σ z^i`` for i = 0 … 4, z about the law's centre; 0 to 2 unbiased, or by declaration.

        The higher two matter for bounded laws only: ``z³ ≈ r²z`` and ``z⁴ ≈ r²z²``, which is exact
        in the middle and at both ends.
        """
        law = self._moments
        first = self.total - self.k * law.centre
        about = self.squares - 2 * law.centre * self.total + self.k * law.centre**2
        second = law.weight * (about - self.k * law.variance[0])
        if self.norm is not None:
            second = self.norm**2 - law.centre * (2 * first + self.k * law.centre)
        bounded = law.reach**2 if np.isfinite(law.reach) else 0.0
        count = np.full_like(first, self.k)
        return count, first, second, bounded * first, bounded * second

    def _sum(self, polynomial: Polynomial) -> Doubles:
        terms = zip(polynomial, self._powers, strict=False)
        return np.asarray(sum(factor * power for factor, power in terms))

    @property
    def noise_energy(self) -> Doubles:
        """Unbiased estimate of ``Σ_j Var(x̃_j)``: k·σ² for additive noise."""
        return self._sum(self._moments.variance)

    @property
    def energy(self) -> Doubles:
        """``‖x̃‖² − kσ²``: unbiased for the squared norm of the projected vector (METHODS 5)."""
        return np.asarray(self.squares - self.noise_energy)

    @property
    def signal(self) -> Doubles:
        """Squared norm of the projected vector: the declared one, else the estimate, never < 0."""
        if self.norm is not None:
            return np.full_like(self.squares, self.norm**2)
        return np.maximum(self.energy, 0.0)

    @property
    def energy_variance(self) -> Doubles:
        """Variance of ``energy`` by noise: ``k·(fourth moment − σ⁴) + 4σ²‖x‖²`` if additive."""
        return np.maximum(self._sum(self._moments.squared), 0.0)

    @property
    def safe_energy(self) -> Doubles:
        """``energy`` kept above one of its own standard deviations at zero signal."""
        blank = self.k * max(sum(self._at_zero(self._moments.squared)), 0.0)
        return np.asarray(np.maximum(self.energy, np.sqrt(blank) + 1e-150))

    def _at_zero(self, polynomial: Polynomial) -> list[float]:
        centre = self._moments.centre
        return [factor * (-centre) ** power for power, factor in enumerate(polynomial)]

    @property
    def relative_variance(self) -> Doubles:
        """Variance of ``energy`` over its square."""
        return np.asarray(self.energy_variance / self.safe_energy**2)

    @property
    def inverse_norm(self) -> Doubles:
        """``h`` such that ``E[x̃·h] ≈ x/‖x‖``: what turns an inner product into a cosine.

        The estimated energy errs, and errs together with x̃. For normal errors the series of the
        unbiased h is ``1 − 3t/8 + 105t²/128 − …`` with ``t = Var(E)/E² − 4/3·Cov(x̃, E)·x/E²``
        (k·fourth/E² + 4/3·σ²/E for additive noise); its Padé form stays bounded.
        """
        energy = self.safe_energy
        law = self._moments
        along = [law.centre * factor for factor in law.mixed] + [0.0]
        along = [a + b for a, b in zip(along, [0.0, *law.mixed], strict=True)]  # times x = c + z
        t = np.maximum((self.energy_variance - 4 * self._sum(tuple(along)) / 3) / energy**2, 0.0)
        return np.asarray((16 + 29 * t) / (16 + 35 * t) / np.sqrt(energy))

    def spread_with(self, other: Side, ip: Doubles, energy: Doubles) -> tuple[Doubles, Doubles]:
        """``Σ_j Var(x̃_j)·y_j²`` and ``Σ_j Cov(x̃_j, g_j)·y_j`` for y the other side.

        Additive noise needs y's ``energy`` and the inner product alone. Where the noise depends on
        z, y is taken for its regression on z and an even rest.
        """
        law = self._moments
        count, first, second, third, fourth = self._powers
        crossed = ip - law.centre * other.total
        variance = law.variance[0] * energy
        mixed = law.mixed[0] * other.total + law.mixed[1] * crossed
        if law.variance[2] == 0.0:
            return np.asarray(variance), np.asarray(mixed)
        # Not below the noise of the sum itself, so that faint vectors give no wild slopes.
        floor = np.sqrt(count) * law.variance[0]
        second, fourth = np.maximum(second, floor), np.maximum(fourth, 0.0)
        scatter = np.maximum(second - first**2 / count, floor)
        slope = (crossed - first * other.total / count) / scatter
        level = (other.total - slope * first) / count
        rest = np.maximum(energy - level * other.total - slope * crossed, 0.0) / count
        bent = (level**2 + rest) * second + 2 * level * slope * third + slope**2 * fourth
        mixed = mixed + law.mixed[2] * (level * second + slope * third)
        mixed = mixed + law.mixed[3] * (level * third + slope * fourth)
        return np.asarray(variance + law.variance[2] * np.maximum(bent, 0.0)), np.asarray(mixed)
