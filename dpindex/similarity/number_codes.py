"""Number codes: similarities from sums of decoded vectors, corrected for noise, and likelihoods.

Similarities are computed from three sums per pair: ``⟨x̃, ỹ⟩`` and, of each vector, ``Σ x̃`` and
``Σ x̃²``. So correcting a search result costs little compared with the search.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy

from dpindex.base.arrays import Doubles, Floats, Longs, Vectors, row_blocks
from dpindex.mechanism.codes import Codes
from dpindex.mechanism.noise import Likelihood, NoiseMoments, Polynomial
from dpindex.mechanism.spec import Projector
from dpindex.similarity.similarity import (
    CodeLikelihoods,
    Estimate,
    ExactQueries,
    InnerProductSimilarity,
    PrivateQueries,
    Queries,
)

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
        cls, decoded: Floats, noise: NoiseMoments = NOISELESS, norm: float | None = None
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


class NumberSimilarity(InnerProductSimilarity):
    """Number codes: sums of the decoded vectors, corrected by the moments of the noise."""

    def _corrected(self, ip: Doubles, x: Floats, y: Doubles, queries: Queries) -> Estimate:
        norm = self.spec.norm
        query_noise = (
            queries.spec.noise_moments if isinstance(queries, PrivateQueries) else NOISELESS
        )
        codes = NoisyVectorStats.of(x, self.spec.noise_moments, norm)
        other_side = NoisyVectorStats.of(y[:, None], query_noise, norm)
        return METRICS[self.metric](
            ip, codes, other_side, self.spec.projection.inner_product_factor
        )


_LEAST_CHANCE = 1e-12
# Entries of a table, about, and cells that it has for the values of one coordinate.
_TABLE = 1 << 25
_MIN_CELLS = 8
_MAX_CELLS = 1024
# Narrower cells tell no more about additive noise, even by the steps of the staircase.
_CELLS_PER_DEVIATION = 64
_PARTS = 8
_DEVIATIONS = 2.5
# Codes and coordinates that are looked up at a time: their part of the table fits the cache.
_CODES = 4096
_COORDINATES = 64


class NumberLikelihoods(CodeLikelihoods):
    """The chance of the cell that each coordinate of a code lies in: a table.

    Cells of a coordinate are equally wide. Without a public range they cover the known vectors and
    most of the noise about them, and the outermost cells have no end. Known vectors are rounded to
    parts of a cell, so that all cells are looked up in one list of chances.
    """

    crowd_size = 250  # more would make the cells too wide

    def __init__(self, projector: Projector, known: Vectors) -> None:
        spec = projector.spec
        projected = ExactQueries(projector.project(known), spec).to_float()
        moments = spec.noise_moments
        self._likelihood = spec.likelihood
        count, coordinates = projected.shape
        self._low, span = _limits(projected, moments, self._likelihood)
        most = min(_MAX_CELLS, _TABLE // projected.size)
        deviation = math.sqrt(moments.variance[0])
        if math.isinf(moments.reach) and deviation > 0:
            most = min(most, math.ceil(_CELLS_PER_DEVIATION * span / deviation))
        cells = max(_MIN_CELLS, most)
        self._width = span / cells
        # One list of chances for all: to integrate at the ends of every cell takes thrice as long.
        part = self._width / _PARTS
        start = self._low - projected
        lowest = start.min()
        places = np.rint((start - lowest) / part).astype(np.intp)
        ends = lowest + part * np.arange(places.max() + cells * _PARTS + 1)
        below = _integral(self._likelihood, ends)
        total = _integral(self._likelihood, self._likelihood.edges[-1:])
        inside = (below[_PARTS:] - below[:-_PARTS]).astype(np.float32)
        steps = _PARTS * np.arange(cells)[:, None]
        self._table = np.empty((coordinates, cells, count + 1), dtype=np.float32)
        for cell_chance, place in zip(self._table, places.T, strict=True):
            chance = inside[place + steps]
            if not math.isfinite(moments.reach):
                chance[0] = below[place + _PARTS]
                chance[-1] = total - below[place + steps[-1]]
            cell_chance[:, :-1] = chance
            cell_chance[:, -1] = chance.mean(axis=1)
            np.maximum(cell_chance, _LEAST_CHANCE, out=cell_chance)
            np.log(cell_chance, out=cell_chance)

    def logs(self, codes: Codes) -> Floats:
        count = self._table.shape[2]
        logs = np.zeros((len(codes), count), dtype=np.float32)
        for block in row_blocks(len(codes), _CODES):
            location = self._likelihood.locate(codes.take(block).to_float())
            cells = np.floor((location - self._low) / self._width)
            cells = np.clip(cells, 0, self._table.shape[1] - 1).astype(np.int64)
            for coordinates in row_blocks(cells.shape[1], _COORDINATES):
                table = self._table[coordinates].reshape(-1, count)
                logs[block] += _one_hot(cells[:, coordinates], self._table.shape[1]) @ table
        return logs.T


def _limits(
    projected: Doubles, moments: NoiseMoments, likelihood: Likelihood
) -> tuple[Doubles, float]:
    """Return from where on most codes lie in each coordinate, and over which span at most."""
    farthest = float(np.abs(likelihood.edges).max())
    if math.isfinite(moments.reach):
        reach = moments.reach + farthest
        return np.full(projected.shape[1], moments.centre - reach), 2.0 * reach
    deviation = math.sqrt(moments.variance[0])
    margin = min(farthest, _DEVIATIONS * deviation) + likelihood.cell
    low = projected.min(axis=0) - margin
    return low, float((projected.max(axis=0) + margin - low).max())


def _integral(likelihood: Likelihood, distance: Doubles) -> Doubles:
    """Return the integral of a likelihood over all distances below.

    Of one that is not 0 below its first edge it is known up to a constant.
    """
    below = min(distance.min(), likelihood.edges[0]) - likelihood.cell
    above = max(distance.max(), likelihood.edges[-1]) + likelihood.cell
    knots = np.concatenate([[below], likelihood.edges, [above]])
    integral = np.concatenate([[0.0], np.cumsum(likelihood.levels * np.diff(knots))])
    return np.asarray(np.interp(distance, knots, integral))


def _one_hot(cells: Longs, size: int) -> scipy.sparse.csr_array:
    """Return rows with a one for the cell of each coordinate, shape (n, coordinates·size)."""
    count, coordinates = cells.shape
    columns = cells + size * np.arange(coordinates)
    starts = np.arange(count + 1) * coordinates
    ones = np.ones(columns.size, dtype=np.float32)
    return scipy.sparse.csr_array((ones, columns.ravel(), starts), (count, coordinates * size))
