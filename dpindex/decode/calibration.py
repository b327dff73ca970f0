r"""A calibration: what is learned of a collection from its codes, and what pairs of them show.

A part of it is what all vectors have in common, and how near to it each of them lies: short texts
have lower cosines with all others than long ones have. Most of that lies along the mean direction
of a collection. With ``a`` the cosine of a vector to it, its *location*, the cosine of two vectors
is ::

    ρ = a·a' + √(1 − a²)·√(1 − a'²)·ρ'

and ρ' is the cosine of what is left of them: it is near 0 for most pairs, whatever the query. So
the prior is one for ρ', and locations are estimated for each code by itself: by regression on what
codes of as much noise have, since that depends on norms, as locations do.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from dpindex.base.arrays import AnyArray, Doubles
from dpindex.base.checks import finite_number, whole_number
from dpindex.base.errors import DamagedError
from dpindex.base.files import checked_array, pack, unpack

CELLS = 128
_CELL = 2.0 / CELLS
GRID: Doubles = _CELL / 2 - 1.0 + _CELL * np.arange(CELLS, dtype=np.float64)
"""Cosines at which densities and laws are kept, the middles of cells, shape (128,)."""

SAMPLE_ROWS = 16384
"""Codes that a calibration is learned from."""

PAIRED_ROWS = 2048
"""Those of them that are compared with each other."""

MOST_SHARED = 0.05
"""Hits that may share a larger error are left without a similarity: their mean would be off."""

SPLINES = 19
"""Splines whose sum is the logarithm of a density."""

LOG_ENERGIES = np.linspace(-5.0, 5.0, 121)
"""Logarithms of squared norms, over their middle, at which their chances are kept."""

_NORMS = (
    np.polynomial.hermite_e.hermegauss(7)[0],
    np.polynomial.hermite_e.hermegauss(7)[1] / math.sqrt(2 * math.pi),
)
"""Places and weights of norms that are averaged over."""

_LEAST_ENERGY = 1e-150
"""Squares of energies, and those of their inverses, are floats."""

_ROUNDING = 1e-6
_NUMBERS = ("energy", "total", "denoised_energy", "uncovered", "limit")
_ARRAYS = ("mean", "locations", "energies", "density", "doubt")


class ObservationLaw(NamedTuple):
    """The law of an observation z of a cosine ρ.

    Attributes
    ----------
    expected, variance : float64 arrays, shape (128,)
        Mean, increasing, and variance of z at :data:`GRID`, where s is 0.
    """

    expected: Doubles
    variance: Doubles

    def inverse(self, z: Doubles) -> Doubles:
        """The cosines, [−1, 1], of which observations are the expected ones."""
        low, high = self.ends
        expected = np.concatenate([[low], self.expected, [high]])
        cosines = np.concatenate([[-1.0], GRID, [1.0]])
        return np.asarray(np.interp(z, expected, cosines))

    @property
    def ends(self) -> tuple[float, float]:
        """The expected observations of cosines of −1 and 1."""
        # The grid ends half a cell before −1 and 1.
        first, second = self.expected[:2].tolist()
        before_last, last = self.expected[-2:].tolist()
        return 1.5 * first - 0.5 * second, 1.5 * last - 0.5 * before_last


class Decoded(NamedTuple):
    """One side of a comparison.

    Attributes
    ----------
    vectors : array, shape (n, k)
        Scaled so that inner products with the other side observe cosines.
    noise : float64 array, shape (n,)
        Variance of a coordinate's noise that the law leaves out.
    seen : float64 array, shape (n,)
        Variance of it along the vector itself that its norm shows: of noise along a direction at a
        cosine of ρ, ρ² times as much.
    norm_error : float64 array, shape (n,)
        Relative variance of the scale.
    location, unsure : float64 arrays, shape (n,)
        Cosine to what all have in common, which is taken out of ``vectors``, and its variance.
    """

    vectors: AnyArray
    noise: Doubles
    seen: Doubles
    norm_error: Doubles
    location: Doubles
    unsure: Doubles

    def rows(self, block: slice) -> Decoded:
        """Some of the vectors."""
        return Decoded(*(part[block] for part in self))

    @classmethod
    def plain(cls, vectors: AnyArray) -> Decoded:
        """Vectors whose errors are all in the law."""
        none = np.zeros(len(vectors))
        return cls(vectors, none, none, none, none, none)


class Observations(NamedTuple):
    """What pairs of vectors show of their cosines: arrays of one shape.

    Attributes
    ----------
    z : float64 array
        Each observes a cosine ρ, under a law and these:
    noise, seen : float64 arrays
        The variance is ``noise − seen·ρ²`` above that of the law.
    norm_error : float64 array
        Relative variance of the scale of z, of which the logarithm is normal.
    """

    z: Doubles
    noise: Doubles
    seen: Doubles
    norm_error: Doubles

    @classmethod
    def of(cls, z: Doubles, x: Decoded, y: Decoded, k: int) -> Observations:
        """Inner products of two sides whose rows broadcast with them."""
        noise = x.noise + y.noise + k * x.noise * y.noise
        rest = (noise, x.seen + y.seen, x.norm_error + y.norm_error)
        return cls(z, *(np.broadcast_to(part, z.shape) for part in rest))

    def at(self, places: Any) -> Observations:
        """Some of them, flat."""
        return Observations(*(part[places] for part in self))

    def scaled(self) -> Iterator[tuple[float, Doubles, Observations]]:
        """Weights, factors and observations over them: Gauss–Hermite quadrature over the scale."""
        if not self.norm_error.any():
            yield 1.0, np.ones_like(self.z), self
            return
        deviation = np.sqrt(np.log1p(self.norm_error))
        for place, weight in zip(*_NORMS, strict=True):
            factor = np.exp(place * deviation)
            square = factor**2
            yield (
                weight,
                factor,
                Observations(
                    self.z / factor, self.noise / square, self.seen / square, self.norm_error
                ),
            )


@dataclass(frozen=True, eq=False)
class SimilarityCalibration:
    """What similarities need to know of a collection, learned from its codes.

    Attributes
    ----------
    rows : int
        Codes in the collection when it was learned.
    energy : float
        Mean squared norm of the projected vectors; 0 where codes do not show it.
    total : float
        Mean sum of the coordinates of a vector, over the root of ``energy``; of signs, by how much
        their means resemble those of vectors of equal attributes more than chance does, [0, 1].
    denoised_energy : float
        Mean squared norm of denoised codes; 0 without a denoiser.
    limit : float
        Larger coordinates are mostly noise, and count as 0; 0 without such a limit.
    mean : float64 array, shape (k,) or (0,)
        That of vectors of norm 1, which is what they have in common; empty if nothing.
    locations : float64 array, shape (3, 8)
        Minus the logarithms of noise variances, ascending, mean locations of such codes, and by
        what variance locations differ beside.
    energies : float64 array, shape (121,) or (0,)
        Chances of squared norms e^−5 … e^5 times ``energy``; empty where codes do not show them.
    uncovered : float
        Of symbols, the chance that no codeword resembles a vector, [0, 1].
    density : float64 array, shape (128,)
        Chances of the cells of :data:`GRID`.
    doubt : float64 array, shape (19, 20)
        A root of the covariance of what their logarithm is made of.
    """

    rows: int
    energy: float = 0.0
    total: float = 0.0
    denoised_energy: float = 0.0
    uncovered: float = 0.0
    limit: float = 0.0
    mean: Doubles = field(default_factory=lambda: np.empty(0))
    locations: Doubles = field(default_factory=lambda: np.zeros((3, 8)))
    energies: Doubles = field(default_factory=lambda: np.empty(0))
    density: Doubles = field(default_factory=lambda: np.full(CELLS, 1 / CELLS))
    doubt: Doubles = field(default_factory=lambda: np.zeros((SPLINES, SPLINES + 1)))

    def to_bytes(self) -> bytes:
        """A container of arrays: see :func:`calibration_from_bytes`."""
        facts = {name: getattr(self, name) for name in ("rows", *_NUMBERS)}
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        return pack("calibration", facts, arrays)


def calibration_from_bytes(data: bytes) -> SimilarityCalibration:
    """The inverse of :meth:`SimilarityCalibration.to_bytes`; no size is trusted.

    Raises
    ------
    InputError
        If the bytes are no calibration.
    """
    try:
        facts, arrays = unpack(data, "calibration")
        rows = whole_number(facts.pop("rows"), "rows", 0, 2**63)
        numbers = {name: finite_number(facts.pop(name), name) for name in _NUMBERS}
        density = checked_array(arrays.pop("density"), "f8", "c", {"c": CELLS})
        doubt = checked_array(arrays.pop("doubt"), "f8", "sd", {"s": SPLINES, "d": SPLINES + 1})
        energies = checked_array(arrays.pop("energies"), "f8", "e", {})
        mean = checked_array(arrays.pop("mean"), "f8", "k", {})
        locations = checked_array(arrays.pop("locations"), "f8", "tg", {"t": 3, "g": 8})
        fits = len(energies) in (0, len(LOG_ENERGIES))
        if facts or arrays or not fits:
            raise ValueError("contents")
        chances = np.concatenate([density, energies, [numbers["uncovered"]]])
        if (density <= 0).any() or (chances < 0).any() or (chances > 1).any():
            raise ValueError("chances")
        if any(len(law) and abs(law.sum() - 1) > _ROUNDING for law in (density, energies)):
            raise ValueError("laws")
        if numbers["limit"] < 0 or (np.diff(locations[0]) < 0).any():
            raise ValueError("limits")
        if len(mean) and not (0 < np.abs(mean).max() < 1e3 and (locations[2] > 0).all()):
            raise ValueError("mean")
        sizes = [numbers[name] for name in ("energy", "denoised_energy") if numbers[name] != 0]
        if not all(_LEAST_ENERGY <= size <= 1 / _LEAST_ENERGY for size in sizes):
            raise ValueError("energies")
    except (ValueError, LookupError, TypeError, AttributeError):
        raise DamagedError(
            "these bytes are not a calibration of this index; calibrate it again."
        ) from None
    return SimilarityCalibration(
        rows,
        **numbers,
        mean=mean,
        locations=locations,
        energies=energies,
        density=density,
        doubt=doubt,
    )


_CLEAR = 20.0
"""A mean is known if its square is this many times what noise makes of it."""

_GROUPS = 8
"""Codes of nearly as much noise, which have a mean location of their own."""

_DOUBTED = 2.0
"""Standard errors by which locations must differ more than their noise does."""

_LEAST = 1e-9
_MOST = 0.999


def with_common(known: SimilarityCalibration, codes: Decoded) -> SimilarityCalibration:
    """Return a calibration that knows what codes have in common, if anything.

    Parameters
    ----------
    known : SimilarityCalibration
    codes : Decoded
        Codes of the collection. The less noise they have, the more they weigh.
    """
    weight = 1 / np.maximum(codes.noise, _LEAST)
    mean = weight @ codes.vectors / weight.sum()
    if mean @ mean <= _CLEAR * len(mean) / weight.sum():
        return known
    seen, noise = _seen(codes, mean)
    groups = np.array_split(np.argsort(codes.noise, kind="stable"), _GROUPS)
    # Where noise hides how locations differ beside norms, they do as where there is less of it.
    found = [_apart(seen[rows], float(noise[rows].mean())) for rows in groups]
    spread = np.maximum.accumulate(np.maximum(found, _LEAST))
    levels = [
        (np.log(weight[rows]).mean(), seen[rows].mean(), apart)
        for rows, apart in zip(groups[::-1], spread[::-1], strict=True)
    ]
    return replace(known, mean=mean, locations=np.transpose(levels))


def _apart(seen: Doubles, noise: float) -> float:
    """Return by what variance locations differ at least, given noisy ones."""
    chance = 1 + _DOUBTED * math.sqrt(2 / len(seen))
    return float(seen.var()) - chance * noise


def without_common(side: Decoded, known: SimilarityCalibration) -> Decoded:
    """Return what is left of one side of a comparison, scaled to observe ρ', with its locations.

    DamagedError if the mean is of other codes.
    """
    if not len(known.mean):
        return side
    if len(known.mean) != side.vectors.shape[1]:
        raise DamagedError("the calibration of this index is of other codes; calibrate it again.")
    seen, noise = _seen(side, known.mean)
    level, usual, spread = known.locations
    at = -np.log(np.maximum(side.noise, _LEAST))
    expected = np.interp(at, level, usual)
    # That of the level with more noise: levels without any are all the same.
    apart = spread[np.maximum(np.searchsorted(level, at - _LEAST) - 1, 0)]
    share = apart / (apart + noise)
    location = np.clip(expected + share * (seen - expected), -_MOST, _MOST)
    left = np.sqrt(1 - location**2)
    direction = known.mean / np.linalg.norm(known.mean)
    rest = side.vectors - np.outer(side.vectors @ direction, direction)
    return Decoded(
        rest / left[:, None],
        side.noise / left**2,
        side.seen,
        side.norm_error,
        location,
        (1 - share) * apart,
    )


def _seen(side: Decoded, mean: Doubles) -> tuple[Doubles, Doubles]:
    """Return noisy locations, and the variance of their noise."""
    square = mean @ mean
    noise = side.noise + square * (side.norm_error - np.minimum(side.seen, side.noise))
    return side.vectors @ mean / math.sqrt(square), np.maximum(noise, 0.0)


def joined(
    rest: Doubles,
    error: Doubles,
    sides: tuple[Decoded, Decoded],
    factor: float,
) -> tuple[Doubles, Doubles]:
    """Return cosines ρ and their errors, given ρ' and its errors.

    Parameters
    ----------
    rest, error : float64 arrays of one shape
    sides : two Decoded
        Whose arrays broadcast with them.
    factor : float
        ``Projection.inner_product_factor``, of which locations have a share.
    """
    a, b = (side.location for side in sides)
    left_a, left_b = np.sqrt(1 - a**2), np.sqrt(1 - b**2)
    cosine = a * b + left_a * left_b * rest
    variance = np.square(left_a * left_b * error)
    for side, left, other, left_other in (
        (sides[0], left_a, b, left_b),
        (sides[1], left_b, a, left_a),
    ):
        # How the cosine changes with this side's location, at fixed ρ'.
        slope = other - side.location / left * left_other * rest
        projected = np.where(side.location == 0, 0.0, factor * left**4)
        variance = variance + slope**2 * (side.unsure + projected)
    # The projection errs by the same in all that is common, which no prior averages out. Norms may
    # go with cosines: with what is common wholly, else by half of their errors.
    shared = np.clip(a * b / np.maximum(np.abs(cosine), _LEAST), 0.0, 1.0)
    across = 1 - np.square(np.clip(cosine, -1, 1))
    variance = variance + factor * np.square(shared * across)
    of_norms = np.log1p(sides[0].norm_error + sides[1].norm_error)
    variance = variance + np.square(np.maximum(shared, 0.5)) * of_norms
    return cosine, np.sqrt(variance)
