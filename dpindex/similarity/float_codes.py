"""Inner products, cosines and distances of number codes, corrected for noise, with standard errors.

Everything is computed from three sums per pair: ``⟨x̃, ỹ⟩`` and, of each vector, ``Σ x̃`` and
``Σ x̃²``. So correcting a search result costs little compared with the search.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple, TypeAlias

import numpy as np
import scipy

from dpindex.base.arrays import Doubles, Floats
from dpindex.mechanism.noise import NoiseMoments, Polynomial, SignLaw
from dpindex.mechanism.spec import Spec

Estimate: TypeAlias = tuple[Doubles, Doubles]
"""Values and their standard errors, of one shape."""

EXACT = NoiseMoments.additive(0.0, 0.0)
"""Of vectors without noise."""


@lru_cache(maxsize=16)
def noise_moments(spec: Spec) -> NoiseMoments:
    """Return the moments of the noise of a decoded coordinate, in units of the data."""
    return spec.number_law.moments.in_units(spec.step)


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
    noise: NoiseMoments = EXACT
    norm: float | Doubles | None = None

    @classmethod
    def of(
        cls, decoded: Floats, noise: NoiseMoments = EXACT, norm: float | None = None
    ) -> NoisyVectorStats:
        """The sums of decoded vectors, shape (…, k); ``total`` and ``squares`` have shape (…)."""
        wide = decoded.astype(np.float64, copy=False)
        squares = np.einsum("...k,...k->...", wide, wide)
        return cls(wide.sum(axis=-1), squares, wide.shape[-1], noise, norm)

    @cached_property
    def _powers(self) -> tuple[Doubles, ...]:
        """Estimates of ``Σ z^i`` for i = 0 … 4, z about the law's centre.

        Unbiased up to i = 2, where a declared norm is used if there is one. The higher two matter
        for bounded laws only: ``z³ ≈ r²z`` and ``z⁴ ≈ r²z²``, which is exact in the middle and at
        both ends.
        """
        law = self.noise
        first = self.total - self.k * law.centre
        about = self.squares - 2 * law.centre * self.total + self.k * law.centre**2
        second = law.weight * (about - self.k * law.variance[0])
        if self.norm is not None:
            second = self.norm**2 - law.centre * (2 * first + self.k * law.centre)
        bounded = 0.0
        if np.isfinite(law.reach):
            bounded = law.reach**2
        return np.full_like(first, self.k), first, second, bounded * first, bounded * second

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
    def safe_energy(self) -> Doubles:
        """``energy``, at least its own standard deviation for a zero vector."""
        variance = float(np.polyval(self.noise.squared[::-1], -self.noise.centre))
        deviation = np.sqrt(self.k * max(variance, 0.0)) + 1e-150
        return np.asarray(np.maximum(self.energy, deviation))

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
        mixed_times_x = np.convolve(self.noise.mixed, (self.noise.centre, 1.0))
        covariance = self._sum(tuple(mixed_times_x))
        t = np.maximum((self.energy_variance - 4 * covariance / 3) / energy**2, 0.0)
        correction = (16 + 29 * t) / (16 + 35 * t)
        return np.asarray(correction / np.sqrt(energy))

    def noise_along(self, other: NoisyVectorStats, ip: Doubles, energy: Doubles) -> Estimate:
        """``Σ_j Var(x̃_j)·y_j²`` and ``Σ_j Cov(x̃_j, g_j)·y_j`` for y the other side.

        Additive noise needs only y's ``energy`` and the inner product. Where the noise depends on
        z, y is modelled as its linear regression on z plus a residual of constant variance.
        """
        law = self.noise
        count, first, second, third, fourth = self._powers
        crossed = ip - law.centre * other.total
        variance = law.variance[0] * energy
        mixed = law.mixed[0] * other.total + law.mixed[1] * crossed
        if law.variance[2] == 0.0:
            return np.asarray(variance), np.asarray(mixed)
        # At least the noise of the sum itself, so that short vectors give no extreme slopes.
        floor = np.sqrt(count) * law.variance[0]
        second = np.maximum(second, floor)
        fourth = np.maximum(fourth, 0.0)
        scatter = np.maximum(second - first**2 / count, floor)
        slope = (crossed - first * other.total / count) / scatter
        level = (other.total - slope * first) / count
        unexplained = energy - level * other.total - slope * crossed
        residual = np.maximum(unexplained, 0.0) / count
        # Sums of z²·y², z²·y and z³·y over coordinates.
        bent = (level**2 + residual) * second
        bent = bent + 2 * level * slope * third
        bent = bent + slope**2 * fourth
        mixed = mixed + law.mixed[2] * (level * second + slope * third)
        mixed = mixed + law.mixed[3] * (level * third + slope * fourth)
        variance = variance + law.variance[2] * np.maximum(bent, 0.0)
        return np.asarray(variance), np.asarray(mixed)


def _both(x: NoisyVectorStats, y: NoisyVectorStats) -> Doubles:
    """``Σ_j Var(x̃_j)·Var(ỹ_j)``."""
    return x.noise_energy * y.noise_energy / x.k


def inner_product(ip: Doubles, x: NoisyVectorStats, y: NoisyVectorStats, factor: float) -> Estimate:
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


def cosine(ip: Doubles, x: NoisyVectorStats, y: NoisyVectorStats, factor: float) -> Estimate:
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
    squared_sine = 1.0 - np.clip(ratio, -1.0, 1.0) ** 2
    shrinkage = 1.0 - squared_sine * factor / 2
    value = np.clip(ratio / shrinkage, -1.0, 1.0)
    of_x = _ratio_noise(ip, x, y, value, scale)
    of_y = _ratio_noise(ip, y, x, value, scale)
    excess = (1 + x.relative_variance) * (1 + y.relative_variance)
    of_both = _both(x, y) / (x.safe_energy * y.safe_energy * excess)
    of_projection = (1.0 - value**2) ** 2 * factor
    return value, np.sqrt(of_x + of_y + of_both + of_projection)


def _ratio_noise(
    ip: Doubles, x: NoisyVectorStats, y: NoisyVectorStats, rho: Doubles, scale: Doubles
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
    ip: Doubles, x: NoisyVectorStats, y: NoisyVectorStats, size: float | Doubles, factor: float
) -> Estimate:
    """Unclipped cosines given declared norms, and their variances.

    The observed error of the norms is a control variate.

    The error of ``plain = ⟨x̃, ỹ⟩/‖u‖‖v‖`` is correlated with ``shift``, the mean relative error of
    the estimated squared norms, which declared norms reveal. Subtracting the regression on it keeps
    the mean and never raises the variance: near ρ = 1 it removes most of the projection's error.
    """
    plain = ip / size
    mean_ratio = (x.energy / x.signal + y.energy / y.signal) / 2
    shift = mean_ratio - 1.0
    ratio_variances = x.energy_variance / x.signal**2 + y.energy_variance / y.signal**2
    shift_noise = ratio_variances / 4
    value = plain
    for _ in range(3):  # the slope depends on the cosine: a fixed point, reached at once
        rho = np.clip(value, -1.0, 1.0)
        of_projection = factor * (1 + rho**2)
        of_x, mixed_x = x.noise_along(y, rho * size, y.signal)
        of_y, mixed_y = y.noise_along(x, rho * size, x.signal)
        covariance = (mixed_x / x.signal + mixed_y / y.signal) / (2 * size)
        covariance = covariance + 2 * factor * rho
        slope = covariance / np.maximum(shift_noise + of_projection, 1e-300)
        value = plain - slope * shift
    of_noise = (of_x + of_y + _both(x, y)) / size**2
    variance = of_noise + of_projection - slope * covariance
    return value, np.maximum(variance, 0.0)


def squared_distance(
    ip: Doubles, x: NoisyVectorStats, y: NoisyVectorStats, factor: float
) -> Estimate:
    """Unbiased squared Euclidean distances (possibly negative) and their standard errors.

    ``‖x̃−ỹ‖²`` less the noise energy of the private sides (Stausholm 2021). Parameters as for
    :func:`inner_product`.
    """
    value = x.energy + y.energy - 2 * ip
    variance = 4 * _both(x, y) + 2 * factor * np.maximum(value, 0.0) ** 2
    for side, other in ((x, y), (y, x)):
        along, mixed = side.noise_along(other, ip, other.signal)
        variance = variance + np.maximum(4 * along - 4 * mixed + side.energy_variance, 0.0)
    return value, np.sqrt(variance)


METRICS = {"cosine": cosine, "ip": inner_product, "l2": squared_distance}


_ANGLES = 129
_NODES = 24
_RANGE = 8.0
"""Standard deviations of a coordinate over which is integrated."""

_MAX_CELLS = 96


class AgreementCurve(NamedTuple):
    """Expected agreement ``E[s̃·t̃]`` against ``arcsin ρ``, increasing, for a pair of laws."""

    angles: Doubles
    agreement: Doubles
    slope: Doubles

    @classmethod
    def of(cls, angles: Doubles, agreement: Doubles) -> AgreementCurve:
        return cls(angles, agreement, np.gradient(agreement, angles))


def _kept(law: SignLaw, size: Doubles, rms: float) -> Doubles:
    """``1 − 2q``: how much of a sign survives at magnitude ``size`` (in standard deviations)."""
    return 1.0 - 2.0 * law.flip_probability(size * rms, rms)


def _edges(law: SignLaw, rms: float) -> Doubles:
    """Return where flip probabilities may jump, in standard deviations: at multiples of beta."""
    if not law.depends_on_size:
        return np.array([0.0, _RANGE])
    edges = np.arange(min(_MAX_CELLS, math.ceil(_RANGE * rms)) + 1) / rms
    return np.unique(np.append(edges[edges < _RANGE], _RANGE))


def _quadrature(law: SignLaw, rms: float) -> tuple[Doubles, Doubles]:
    """Nodes, and weights that integrate ``(1 − 2q)·f`` over a half-normal magnitude.

    Gauss–Legendre on every interval between edges; wide ones are cut so that the normal density is
    smooth on each piece.
    """
    pieces = np.unique(np.concatenate([_edges(law, rms), np.linspace(0.0, _RANGE, 17)]))
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    half = np.diff(pieces)[:, None] / 2
    points = ((pieces[:-1, None] + half) + half * nodes).ravel()
    density = np.exp(-(points**2) / 2) / math.sqrt(2 * math.pi)
    return points, 2 * (half * weights).ravel() * density * _kept(law, points, rms)


@lru_cache(maxsize=64)
def signal_kept(law: SignLaw, rms: float, power: int = 1) -> float:
    """``E[|Z|^power·(1−2q(|Z|))]`` for a standard normal Z and power 1 or 3.

    Without flips it is √(2/π) or 2√(2/π).
    """
    points, weights = _quadrature(law, rms)
    return float(np.sum(weights * points**power))


@lru_cache(maxsize=64)
def kept_spread(law: SignLaw, rms: float) -> float:
    """Relative variance of ``(1−2q(|Z|))²``, by which two signs of one coordinate agree."""
    points, weights = _quadrature(law, rms)
    kept = _kept(law, points, rms)
    return float(np.sum(weights * kept**3) / np.sum(weights * kept) ** 2) - 1


@lru_cache(maxsize=64)
def agreement_curve(law_x: SignLaw, rms_x: float, law_y: SignLaw, rms_y: float) -> AgreementCurve:
    """The curve of two laws, given the standard deviations of their coordinates in betas.

    Uniform flips have the closed form ``(1−2q₁)(1−2q₂)·(2/π)·arcsin ρ`` (Li & Li 2023, Thm 4.6).
    Flips that depend on |x| are integrated: ``E[g(X)·E[h(Y) | X]]`` with g and h the diluted signs
    and ``Y | X`` normal with mean ρX.
    """
    angles = np.linspace(-math.pi / 2, math.pi / 2, _ANGLES)
    if not (law_x.depends_on_size or law_y.depends_on_size):
        kept_x = _kept(law_x, np.ones(1), 1.0)
        kept_y = _kept(law_y, np.ones(1), 1.0)
        dilution = float((kept_x * kept_y)[0])
        return AgreementCurve.of(angles, dilution * 2 / math.pi * angles)
    points, weights = _quadrature(law_x, rms_x)
    # h as a step function: its value on each fine cell, both signs by oddness.
    fine = np.unique(np.concatenate([_edges(law_y, rms_y), np.linspace(0.0, _RANGE, 65)]))
    jumps = np.diff(_kept(law_y, (fine[:-1] + fine[1:]) / 2, rms_y), prepend=0.0, append=0.0)
    half = np.zeros(_ANGLES // 2 + 1)
    for i, angle in enumerate(angles[_ANGLES // 2 + 1 :], start=1):
        mean = math.sin(angle) * points[:, None]
        deviation = max(math.cos(angle), 1e-9)
        # E[h(Y)] = Σ jumps·(P(Y > edge) − P(Y < −edge)).
        above = scipy.special.ndtr((mean - fine) / deviation)
        below = scipy.special.ndtr((-mean - fine) / deviation)
        half[i] = float(weights @ ((above - below) @ jumps))
    return AgreementCurve.of(angles, np.maximum.accumulate(np.concatenate([-half[:0:-1], half])))


def cosine_from_agreement(
    agreement: Doubles, k: int, curve: AgreementCurve, factor: float
) -> tuple[Doubles, Doubles]:
    """Cosines and standard errors from mean agreements ``1 − 2·hamming/k`` of two private codes.

    Variance of ρ by Li & Li 2023, Thm 4.6, with the curve's slope in place of the constant, less
    what a projection of inner product ``factor`` below 1/k does not lose: see
    ``_known_variance``.
    """
    angle = np.interp(agreement, curve.agreement, curve.angles)
    slope = np.interp(angle, curve.angles, curve.slope)
    sine = np.sin(angle)
    of_agreement = np.maximum(1.0 - agreement**2, 0.0) / k
    of_angle = of_agreement / np.maximum(slope, 1e-12) ** 2
    avoided = _known_variance(sine, k, factor, power=1)
    variance = np.maximum(of_angle - avoided, 0.0)
    # The sine is curved: E[sin(a + e)] = sin(a)·(1 − Var(e)/2) to second order.
    curvature = 1.0 + np.minimum(variance, 1.0) / 2
    value = np.clip(sine * curvature, -1.0, 1.0)
    # Near |ρ| = 1 the slope of the sine vanishes; it is taken half an error away, not to claim
    # too small an error.
    error = np.sqrt(variance)
    steepness = np.maximum(np.cos(angle), np.minimum(error, 1.0) / 2)
    return value, np.minimum(error * steepness, 2.0)


def cosine_from_score(
    score: Doubles, query_norm: Doubles, k: int, law: SignLaw, rms: float, factor: float
) -> tuple[Doubles, Doubles]:
    """Cosines and standard errors from ``Σ_j y_j s̃_j`` with an exact query y.

    ``E[Σ y_j s̃_j] = ρ·σ_y·k·E[|Z|(1−2q)]`` is linear in ρ, whatever the flips, because
    ``E[y | x]`` is; ``σ_y = ‖y‖/√k`` is measured on the same y, which removes part of the error
    (delta method).
    """
    full_score = math.sqrt(k) * np.maximum(query_norm, 1e-300) * signal_kept(law, rms)
    value = score / full_score
    bounded = np.clip(value, -1.0, 1.0)
    return bounded, np.sqrt(score_variance(bounded, k, law, rms, factor))


def self_score(query: Doubles, law: SignLaw, rms: float) -> Doubles:
    """Return expected scores of exact queries' own codes, ``Σ_j |y_j|(1−2q_j)``, shape (nq,)."""
    size = np.abs(query)
    deviation = np.sqrt(np.mean(query**2, axis=1, keepdims=True))
    kept = _kept(law, size / np.maximum(deviation, 1e-300), rms)
    return np.asarray(np.maximum(np.sum(size * kept, axis=1), 1e-300))


def score_variance(rho: Doubles, k: int, law: SignLaw, rms: float, factor: float) -> Doubles:
    """Variance of the unclipped estimate that :func:`cosine_from_score` makes, at a true cosine."""
    kept = signal_kept(law, rms)
    cubed = signal_kept(law, rms, 3)
    squared = rho**2
    # With μ = ρ·kept: Var(y s̃) + μ²·Var(y²)/4 − μ·Cov(y s̃, y²), and E[y³ s̃] by E[y | x] = ρx.
    variance = 1.0 - squared * kept * (kept / 2 + squared * cubed + (2 - 3 * squared) * kept)
    variance = variance / (k * kept**2) - _known_variance(rho, k, factor, power=2)
    return np.maximum(variance, 0.0)


def agreement_variance(rho: Doubles, k: int, curve: AgreementCurve, factor: float) -> Doubles:
    """Variance of the mean agreement of two private codes of k signs, at a true cosine."""
    angle = np.arcsin(rho)
    agreement = np.interp(angle, curve.angles, curve.agreement)
    slope = np.interp(angle, curve.angles, curve.slope)
    avoided = slope**2 * _known_variance(rho, k, factor, power=1)
    return np.maximum((1.0 - agreement**2) / k - avoided, 0.0)


def _known_variance(rho: Doubles, k: int, factor: float, power: int) -> Doubles:
    """Part of a cosine's sampling variance that the projection avoids, over (1−ρ²)^(2−power).

    Over vectors, any estimate of ρ errs by the sample cosine's error and by something uncorrelated
    with it (the sample cosine is efficient). Bins that cover every attribute once avoid
    ``(1−ρ²)²·(1/k − factor)`` of it; independent coordinates have ``factor = 1/k`` and avoid none.
    """
    return (1.0 - rho**2) ** power * max(1.0 / k - factor, 0.0)
