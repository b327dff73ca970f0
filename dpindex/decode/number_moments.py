"""What noisy vectors say of inner products, cosines and distances, corrected for their noise.

Similarities are computed from three sums per pair: ``⟨x̃, ỹ⟩`` and, of each vector, ``Σ x̃`` and
``Σ x̃²``. So correcting a search result costs little compared with the search.

A staircase of a large epsilon moves few coordinates, and these by up to β. A code and a query that
both jumped in one coordinate look alike, whatever the vectors are, and no normal law expects it. So
coordinates where such jumps are as common as all that is observed say nothing, and count as 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dpindex.base.arrays import Doubles, Floats
from dpindex.decode.base import Estimate
from dpindex.mechanism.noise.moments import NoiseMoments, Polynomial
from dpindex.mechanism.spec import Spec

# Shares of coordinates that may be left out.
_SHARES = np.geomspace(0.05, 1e-4, 40)
_LOST = 0.02

# Of what is left out, by far the most has to be jumps: else the longest vectors lose what they are.
_JUMPS = 0.8


def jumps(spec: Spec) -> bool:
    """True if the sum of k products of such noise is far from normal: its kurtosis exceeds 1."""
    noise = spec.noise_moments
    variance = noise.variance[0]
    if not np.isinf(noise.reach) or variance == 0.0:
        return False
    kurtosis = noise.squared[0] / variance**2 + 1
    return bool(kurtosis**2 > spec.code_length)


def jump_limit(decoded: Floats, spec: Spec) -> float:
    """Return the size from which on nearly all coordinates are jumps; 0 if there is none.

    Larger ones hold at most a fiftieth of the energy of vectors, so that little is lost.
    """
    if not jumps(spec):
        return 0.0
    noise = spec.noise_moments.variance[0]
    sizes = np.abs(decoded)
    squares = sizes**2
    energy = float(squares.mean()) - noise
    limits: list[float] = np.quantile(sizes, 1 - _SHARES).tolist()
    # The largest shares first: the first that may be left out takes most of the jumps with it.
    for limit, share in zip(limits, _SHARES.tolist(), strict=True):
        # Chances and energies of the noise are known; what is observed beyond them are the vectors.
        beyond = _within(spec, np.inf, 0) - _within(spec, limit, 0)
        noise_beyond = noise - _within(spec, limit, 2)
        observed = float(squares[sizes > limit].sum()) / squares.size
        if beyond > _JUMPS * share and observed - noise_beyond < _LOST * energy:
            return limit
    return 0.0


def without_jumps(decoded: Doubles, spec: Spec, limit: float) -> Doubles:
    """Return decoded codes with 0 for jumps beyond a limit; a limit of 0 is none."""
    if not limit or not jumps(spec):
        return decoded
    return np.where(np.abs(decoded) > limit, 0.0, decoded)


def moments_within(spec: Spec, limit: float) -> NoiseMoments:
    """Return the moments of the noise that :func:`without_jumps` leaves."""
    if not limit or not jumps(spec):
        return spec.noise_moments
    variance, fourth = (_within(spec, limit, power) for power in (2, 4))
    return NoiseMoments.additive(variance, fourth)


def _within(spec: Spec, limit: float, power: int) -> float:
    """Return the mean of a power of the noise, counted up to a limit."""
    law = spec.likelihood
    ends = np.clip(law.edges, -limit, limit) ** (power + 1) / (power + 1)
    return float(np.diff(ends) @ law.levels[1:-1])


NOISELESS = NoiseMoments.additive(0.0, 0.0)
"""Of vectors without noise."""


@dataclass(frozen=True)
class NoisyVectorStats:
    """The vectors on one side of a comparison: their sums, and the moments of their noise.

    Attributes
    ----------
    total, squares : float64 arrays of one shape
        ``Σ_j x̃_j`` and ``Σ_j x̃_j²`` of each decoded vector, in units of the data.
    k : int
        Coordinates of a vector.
    noise : NoiseMoments
        Of one coordinate, in units of the data; zero for exact vectors.
    norm : float or array, optional
        Norms that are known: the declared one of every vector, or one for each.
    """

    total: Doubles
    squares: Doubles
    k: int
    noise: NoiseMoments = NOISELESS
    norm: float | Doubles | None = None

    @classmethod
    def of(
        cls,
        decoded: Floats,
        noise: NoiseMoments = NOISELESS,
        norm: float | None = None,
    ) -> NoisyVectorStats:
        """The sums of decoded vectors, shape (…, k); ``total`` and ``squares`` have shape (…)."""
        wide = decoded.astype(np.float64, copy=False)
        squares = np.einsum("...k,...k->...", wide, wide)
        total = wide.sum(axis=-1)
        return cls(total, squares, wide.shape[-1], noise, norm)

    @cached_property
    def _powers(self) -> tuple[Doubles, ...]:
        """Estimates of ``Σ z^i`` for i = 0 … 4, z about the law's centre.

        Unbiased up to i = 2, where a declared norm is used if there is one. The higher two matter
        for bounded laws only: ``z³ ≈ r²z`` and ``z⁴ ≈ r²z²``, which is exact in the middle and at
        both ends.
        """
        law = self.noise
        centre = law.centre
        count = np.full_like(self.total, self.k)
        first = self.total - self.k * centre
        if self.norm is None:
            about_centre = self.squares - 2 * centre * self.total + self.k * centre**2
            second = law.weight * (about_centre - self.k * law.variance[0])
        else:  # of Σx², as x = z + centre
            second = self.norm**2 - centre * (2 * first + self.k * centre)
        bounded = 0.0
        if np.isfinite(law.reach):
            bounded = law.reach**2
        return count, first, second, bounded * first, bounded * second

    def _sum(self, polynomial: Polynomial) -> Doubles:
        """``Σ_j`` of a polynomial in z_j."""
        total = np.zeros_like(self.total)
        for factor, power in zip(polynomial, self._powers, strict=False):
            if factor:
                total = total + factor * power
        return total

    @cached_property
    def noise_energy(self) -> Doubles:
        """Unbiased estimate of ``Σ_j Var(x̃_j)``: k·σ² for additive noise."""
        return self._sum(self.noise.variance)

    @cached_property
    def energy(self) -> Doubles:
        """``‖x̃‖² − kσ²``: unbiased for the squared norm of the projected vector."""
        return self.squares - self.noise_energy

    @property
    def signal(self) -> Doubles:
        """Squared norm of the projected vector: the declared one, else the estimate, at least 0."""
        if self.norm is not None:
            return np.full_like(self.squares, self.norm**2)
        return np.maximum(self.energy, 0.0)

    @cached_property
    def energy_variance(self) -> Doubles:
        """Noise variance of ``energy``: ``k·(fourth moment − σ⁴) + 4σ²‖x‖²`` if additive."""
        return np.maximum(self._sum(self.noise.squared), 0.0)

    @cached_property
    def covariance(self) -> Doubles:
        """Covariance of ``energy`` and of x̃ along x: ``2σ²‖x‖²`` if additive."""
        x = (self.noise.centre, 1.0)
        mixed_times_x = np.convolve(self.noise.mixed, x)
        return self._sum(tuple(mixed_times_x))

    @cached_property
    def safe_energy(self) -> Doubles:
        """``energy``, at least its own standard deviation for a zero vector."""
        highest_first = self.noise.squared[::-1]
        of_zero = float(np.polyval(highest_first, -self.noise.centre))
        variance = self.k * max(of_zero, 0.0)
        deviation = math.sqrt(variance) + 1e-150
        return np.maximum(self.energy, deviation)

    @cached_property
    def relative_variance(self) -> Doubles:
        """Variance of ``energy`` over its square."""
        return self.energy_variance / self.safe_energy**2

    @property
    def inverse_norm(self) -> Doubles:
        """``h`` such that ``E[x̃·h] ≈ x/‖x‖``: the factor from an inner product to a cosine.

        The estimated energy E is correlated with x̃. For normal errors the series of the unbiased h
        is ``1 − 3t/8 + 105t²/128 − …`` with ``t = Var(E)/E² − 4/3·Cov(x̃, E)·x/E²``
        (k·fourth/E² + 4/3·σ²/E for additive noise); its Padé form stays bounded.
        """
        energy = self.safe_energy
        unbounded = self.energy_variance - 4 * self.covariance / 3
        t = np.maximum(unbounded / energy**2, 0.0)
        correction = (16 + 29 * t) / (16 + 35 * t)
        return np.asarray(correction / np.sqrt(energy))

    def noise_along(self, other: NoisyVectorStats, ip: Doubles, energy: Doubles) -> Estimate:
        """``Σ_j Var(x̃_j)·y_j²`` and ``Σ_j Cov(x̃_j, g_j)·y_j`` for y the other side.

        Additive noise needs only y's ``energy`` and the inner product. Where the noise depends on
        z, y is modelled as its linear regression on z plus a residual of constant variance.
        """
        law = self.noise
        count, first, second, third, fourth = self._powers
        v0, _, v2 = law.variance
        m0, m1, m2, m3 = law.mixed
        crossed = ip - law.centre * other.total
        variance = v0 * energy
        mixed = m0 * other.total + m1 * crossed
        if v2 == 0.0:
            return np.asarray(variance), np.asarray(mixed)
        # At least the noise of the sum itself, so that short vectors give no extreme slopes.
        floor = np.sqrt(count) * v0
        second = np.maximum(second, floor)
        fourth = np.maximum(fourth, 0.0)
        scatter = np.maximum(second - first**2 / count, floor)
        slope = (crossed - first * other.total / count) / scatter
        level = (other.total - slope * first) / count
        # The residual of least squares is orthogonal to the line, so this is its Σ of squares.
        unexplained = energy - level * other.total - slope * crossed
        residual = np.maximum(unexplained, 0.0) / count
        # Sums of z²·y², z²·y and z³·y over coordinates.
        bent = (level**2 + residual) * second
        bent = bent + 2 * level * slope * third
        bent = bent + slope**2 * fourth
        mixed = mixed + m2 * (level * second + slope * third)
        mixed = mixed + m3 * (level * third + slope * fourth)
        variance = variance + v2 * np.maximum(bent, 0.0)
        return np.asarray(variance), np.asarray(mixed)


def _both(x: NoisyVectorStats, y: NoisyVectorStats) -> Doubles:
    """``Σ_j Var(x̃_j)·Var(ỹ_j)``."""
    return x.noise_energy * y.noise_energy / x.k


def inner_product(
    ip: Doubles,
    x: NoisyVectorStats,
    y: NoisyVectorStats,
    factor: float,
) -> Estimate:
    """Unbiased inner products and their standard errors.

    Parameters
    ----------
    ip : array
        ``⟨x̃, ỹ⟩``, which is unbiased as it stands.
    x, y : NoisyVectorStats
        Both sides, of shapes that broadcast with ``ip``.
    factor : float
        ``Projection.inner_product_factor``.

    Li & Li 2023, Thms 3.8–3.10: ``σ_x²‖v‖² + σ_y²‖u‖² + kσ_x²σ_y² + Var_projection``.
    """
    of_x, _ = x.noise_along(y, ip, y.signal)
    of_y, _ = y.noise_along(x, ip, x.signal)
    of_projection = factor * (x.signal * y.signal + ip**2)
    variance = of_x + of_y + _both(x, y) + of_projection
    return ip, np.sqrt(variance)


def cosine(
    ip: Doubles,
    x: NoisyVectorStats,
    y: NoisyVectorStats,
    factor: float,
) -> Estimate:
    """Noise-corrected cosines, clipped to [−1, 1], and their standard errors.

    The ratio to the corrected norms. Its error is the first-order (delta-method) deviation, in
    which the projection contributes only ``(1−ρ²)²·factor`` because the errors of norms and inner
    product are correlated; the shrinkage of a sample cosine is divided out. With declared norms see
    :func:`declared_cosine`. Parameters as for :func:`inner_product`.
    """
    if x.norm is not None and y.norm is not None:
        value, variance = declared_cosine(ip, x, y, x.norm * y.norm, factor)
        return np.clip(value, -1.0, 1.0), np.sqrt(variance)
    scale = x.inverse_norm * y.inverse_norm
    ratio = ip * scale
    sample_cosine = np.clip(ratio, -1.0, 1.0)
    squared_sine = 1.0 - sample_cosine**2
    shrinkage = 1.0 - squared_sine * factor / 2
    value = np.clip(ratio / shrinkage, -1.0, 1.0)
    of_x = _ratio_noise(ip, x, y, value, scale)
    of_y = _ratio_noise(ip, y, x, value, scale)
    excess = (1 + x.relative_variance) * (1 + y.relative_variance)
    energies = x.safe_energy * y.safe_energy
    of_both = _both(x, y) / (energies * excess)
    of_projection = (1.0 - value**2) ** 2 * factor
    return value, np.sqrt(of_x + of_y + of_both + of_projection)


def _ratio_noise(
    ip: Doubles,
    x: NoisyVectorStats,
    y: NoisyVectorStats,
    rho: Doubles,
    scale: Doubles,
) -> Doubles:
    """Variance that the noise of x gives to the ratio ``⟨x, y⟩/‖x‖‖y‖``.

    By ``p·x̃_j·y_j + q·g(x̃_j)`` with ``p = 1/‖x‖‖y‖`` and ``q = −ρ/2‖x‖²``. Powers of the inverse
    of a noisy energy are too large on average: ``E[Ê⁻¹] ≈ E⁻¹(1 + τ)`` with τ the relative variance
    of Ê, and ``E[Ê⁻²] ≈ E⁻²(1 + 3τ)``; that is divided out.
    """
    energy = x.safe_energy
    tau = x.relative_variance
    variance, mixed = x.noise_along(y, ip, y.safe_energy)
    along = variance / (energy * y.safe_energy)
    along = along - rho * mixed * scale / energy
    of_norm = rho**2 * tau / (4 * (1 + 2 * tau))
    return np.maximum(along / (1 + tau) + of_norm, 0.0)


def declared_cosine(
    ip: Doubles,
    x: NoisyVectorStats,
    y: NoisyVectorStats,
    size: float | Doubles,
    factor: float,
) -> Estimate:
    """Unclipped cosines given declared norms, and their variances.

    The observed error of the norms is a control variate.

    The error of ``plain = ⟨x̃, ỹ⟩/‖u‖‖v‖`` is correlated with ``shift``, the mean relative error of
    the estimated squared norms, which declared norms reveal. Subtracting the regression on it keeps
    the mean and never raises the variance: near ρ = 1 it removes most of the projection's error.
    """
    plain = ip / size
    ratio_x = x.energy / x.signal
    ratio_y = y.energy / y.signal
    shift = (ratio_x + ratio_y) / 2 - 1.0
    variance_x = x.energy_variance / x.signal**2
    variance_y = y.energy_variance / y.signal**2
    shift_noise = (variance_x + variance_y) / 4
    value = plain
    for _ in range(3):  # the slope depends on the cosine: a fixed point, reached at once
        rho = np.clip(value, -1.0, 1.0)
        of_projection = factor * (1 + rho**2)
        expected = rho * size
        of_x, mixed_x = x.noise_along(y, expected, y.signal)
        of_y, mixed_y = y.noise_along(x, expected, x.signal)
        mixed = mixed_x / x.signal + mixed_y / y.signal
        # With the shift: that of the noise, and that of the projection.
        covariance = mixed / (2 * size) + 2 * factor * rho
        slope = covariance / np.maximum(shift_noise + of_projection, 1e-300)
        value = plain - slope * shift
    of_noise = (of_x + of_y + _both(x, y)) / size**2
    variance = of_noise + of_projection - slope * covariance
    return value, np.maximum(variance, 0.0)


def squared_distance(
    ip: Doubles,
    x: NoisyVectorStats,
    y: NoisyVectorStats,
    factor: float,
) -> Estimate:
    """Unbiased squared Euclidean distances (possibly negative) and their standard errors.

    ``‖x̃−ỹ‖²`` less the noise energy of the private sides (Stausholm 2021). Parameters as for
    :func:`inner_product`.
    """
    value = x.energy + y.energy - 2 * ip
    of_projection = 2 * factor * np.maximum(value, 0.0) ** 2
    variance = 4 * _both(x, y) + of_projection
    for side, other in ((x, y), (y, x)):
        along, mixed = side.noise_along(other, ip, other.signal)
        of_side = 4 * along - 4 * mixed + side.energy_variance
        variance = variance + np.maximum(of_side, 0.0)
    return value, np.sqrt(variance)


METRICS = {"cosine": cosine, "ip": inner_product, "l2": squared_distance}
