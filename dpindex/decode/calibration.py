r"""Posterior cosines by table, from a prior that was learned once from the codes of a collection.

The best of many candidates are those with the luckiest noise, so an unbiased estimate of a
*selected* cosine is too high. A posterior mean is right on average, whatever was selected (Efron
2011, "Tweedie's formula and selection bias"). It needs the distribution of true cosines, which
:func:`calibrated` learns from the codes of a collection and from nothing else.

*Decode, then compare.* A decoder scales codes and queries so that their inner product z observes
the cosine ρ, normal about ``expected(ρ)`` with the variance ``variance(ρ) + s²``: an
:class:`ObservationLaw`, and an s² that is known for each pair. Pairs of stored codes are such
observations. The histogram n of a sample has the expectation ``Σ_ρ π(ρ) p(bin | ρ)``, and the prior
``π ∝ exp Σ θ_b B_b`` with cubic B-splines maximises ::

    Σ_bin n_bin log Σ_ρ π(ρ) p(bin | ρ)  −  (θ − θ₀)ᵀ P (θ − θ₀) / 2

(Eilers 2007, penalised composite link model; Efron 2016, "Empirical Bayes deconvolution
estimates"). P penalises third differences, which a normal density does not have, and weakly any
departure from a normal density of deviation 0.125. Pairs weigh by the share of their variance that
cosines of that deviation would have: where noise hides the shape of the prior it becomes normal,
and where noise hides its width, too, it becomes that default. Then it is widened by the standard
error of its mean.

*Noise is seen in norms.* The noise of a code along its own vector changes its squared norm, too. By
regression on that, the part ρ of it that a cosine of ρ observes is known, and only the rest is
error: of additive noise s², at most ``s²(1 − ρ²)``. What the codes leave open of a norm is averaged
over: a large observation speaks for a larger norm as well as for a larger cosine.

*What the error contains.* The deviation of the posterior; what is not known of both locations, the
projection's error in what is common, and a share of the variance by norms, since norms may depend
on cosines (:mod:`dpindex.decode.common`); and what the prior itself may be. That is the covariance
``H⁻¹(J + P)H⁻¹`` of θ, with H the penalised information and J the variance of the gradient over
vectors, each of which is in many pairs (dyadic-robust variance, Fafchamps & Gubert 2007), and what
θ would change if pairs weighed less. To that is added a share of the distance to the unbiased
estimate, for what laws leave out: a small one, or all of it for few coordinates, whose sums are not
normal. Where codes say too little, all this is large, and nothing is stated.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import scipy

from dpindex.base.arrays import AnyArray, Doubles, Indices, row_blocks
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

_PAIRS_OF = 512
"""Codes all of whose pairs are taken together."""

MOST_SHARED = 0.05
"""Hits that may share a larger error are left without a similarity: their mean would be off."""

_SPLINES = 19
_DEFAULT_DEVIATION = 0.125
_SCALE_GROUPS = 16
_BINS = 96
_AT_ONCE = 256
"""Pairs whose chances are in memory together."""

_NORMS = (
    np.polynomial.hermite_e.hermegauss(7)[0],
    np.polynomial.hermite_e.hermegauss(7)[1] / math.sqrt(2 * math.pi),
)
"""Places and weights of norms that are averaged over."""

_LEAST = 1e-30
_LOG_ENERGIES = np.linspace(-5.0, 5.0, 121)


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
    doubt: Doubles = field(default_factory=lambda: np.zeros((_SPLINES, _SPLINES + 1)))

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
        doubt = checked_array(arrays.pop("doubt"), "f8", "sd", {"s": _SPLINES, "d": _SPLINES + 1})
        energies = checked_array(arrays.pop("energies"), "f8", "e", {})
        mean = checked_array(arrays.pop("mean"), "f8", "k", {})
        locations = checked_array(arrays.pop("locations"), "f8", "tg", {"t": 3, "g": 8})
        fits = len(energies) in (0, len(_LOG_ENERGIES))
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


def log_energies(middle: float) -> Doubles:
    """Return the grid of squared norms about a middle, a constant factor apart, shape (121,)."""
    return middle * np.exp(_LOG_ENERGIES)


def fitted_energies(energy: Doubles, middle: float, variance: Doubles) -> Doubles:
    """Return the chances of squared norms, shape (121,), given noisy estimates of them.

    An average of lognormal laws, weighted by their likelihoods: where noise hides how norms differ,
    it contains all laws that explain the estimates.

    Parameters
    ----------
    energy : float64 array, shape (n,)
        Unbiased estimates of squared norms.
    middle : float
        The middle of the grid.
    variance : float64 array, shape (121,)
        Of an estimate, at each value of the grid.
    """
    likelihood = _energy_likelihood(energy, log_energies(middle), variance)
    means = _LOG_ENERGIES[30:91:2, None, None]
    deviations = np.geomspace(0.02, 2.0, 24)[:, None]
    standardised = (_LOG_ENERGIES - means) / deviations
    laws = np.exp(-(standardised**2) / 2)
    laws /= laws.sum(axis=2, keepdims=True)
    laws = laws.reshape(-1, len(_LOG_ENERGIES))
    chances = likelihood @ laws.T
    log_fit = np.log(chances + 1e-300).sum(axis=0)
    share = np.exp(log_fit - log_fit.max())
    return np.asarray(share @ laws / share.sum())


def energies_given(
    energy: Doubles,
    middle: float,
    variance: Doubles,
    chances: Doubles,
) -> tuple[Doubles, Doubles]:
    """Return posterior squared norms given noisy estimates, and relative variances of the norms.

    The first is the square of the mean norm. Parameters as of :func:`fitted_energies`; ``chances``
    is what it returned. DamagedError without a middle or chances.
    """
    if middle <= 0 or len(chances) != len(_LOG_ENERGIES):
        raise DamagedError("the calibration of this index is of other codes; calibrate it again.")
    grid = log_energies(middle)
    weight = _energy_likelihood(energy, grid, variance) * chances
    weight /= weight.sum(axis=1, keepdims=True)
    mean_norm = weight @ np.sqrt(grid)
    mean_square = weight @ grid
    spread = np.maximum(mean_square / mean_norm**2 - 1, 0.0)
    # An estimate that is finer than the grid is taken as it is.
    own_variance = np.interp(energy, grid, variance)
    relative = own_variance / np.maximum(energy, grid[0]) ** 2
    step = _LOG_ENERGIES[1] - _LOG_ENERGIES[0]
    fine = (relative < 4 * step**2) & (energy > grid[0])
    shown = np.where(fine, energy, mean_norm**2)
    return shown, np.where(fine, relative / 4, spread)


def _energy_likelihood(energy: Doubles, grid: Doubles, variance: Doubles) -> Doubles:
    squares = (energy[:, None] - grid) ** 2
    log = -squares / (2 * variance)
    log -= np.log(variance) / 2
    log -= log.max(axis=1, keepdims=True)
    return np.exp(np.maximum(log, -600.0))


def calibrated(
    sides: tuple[Decoded, Decoded],
    law: ObservationLaw,
    known: SimilarityCalibration,
) -> SimilarityCalibration:
    """Return a calibration with the prior that explains pairs of codes.

    Parameters
    ----------
    sides : two Decoded
        Some thousand codes in a random order: as codes, and as private queries.
    law : ObservationLaw
        Of their pairs.
    known : SimilarityCalibration
        What is known of the collection without a prior.
    """
    rows, k = sides[0].vectors.shape
    parts = []
    owners = []
    for block in row_blocks(rows, _PAIRS_OF):
        one, other = (side.rows(block) for side in sides)
        z = (other.vectors @ one.vectors.T).astype(np.float64)
        column = Decoded(other.vectors, *(part[:, None] for part in other[1:]))
        parts.append([_different(part) for part in Observations.of(z, one, column, k)])
        owners.append(np.repeat(np.arange(rows)[block], len(z) - 1))
    pairs = Observations(*(np.concatenate(part) for part in zip(*parts, strict=True)))
    density, doubt = fitted_prior(pairs, law, known.rows, np.concatenate(owners))
    return replace(known, density=density, doubt=doubt)


def _different(square: Doubles) -> Doubles:
    """Return what is not on the diagonal, row by row: in rows of one more it is the last column."""
    size = len(square)
    return square.ravel()[1:].reshape(size - 1, size + 1)[:, :-1].ravel()


def fitted_prior(
    pairs: Observations, law: ObservationLaw, rows: int, owners: Indices
) -> tuple[Doubles, Doubles]:
    """Return the chances of the cells of cosines that explain observations best, and their doubt.

    See :class:`SimilarityCalibration`. One vector in ``rows`` may have any cosine.

    Parameters
    ----------
    pairs : Observations
        Arrays of shape (n,).
    law : ObservationLaw
    rows : int
    owners : int array, shape (n,)
        The vector, from 0, that each pair has in common with others; in order.
    """
    z, squares = pairs.z, pairs.noise
    if not len(z):
        doubt = np.linalg.inv(np.linalg.cholesky(_PENALTY)).T
        doubt = np.column_stack([doubt, np.zeros(_SPLINES)])
        return _with_outliers(_density(_start(0.0)), rows), doubt
    shares = np.arange(1, _SCALE_GROUPS) / _SCALE_GROUPS
    levels = np.unique(np.quantile(squares, shares))
    group = np.searchsorted(levels, squares).astype(np.int8)
    counts: list[Doubles] = []
    chances: list[Doubles] = []
    places = np.empty(len(z), np.intp)
    low = law.expected[0]
    high = law.expected[-1]
    for number in range(_SCALE_GROUPS):  # observations of nearly one scale share a histogram
        members = np.flatnonzero(group == number)
        if not len(members):
            continue
        mine = pairs.at(members)
        typical = Observations(*(np.array([part.mean()]) for part in mine))
        deviation = np.sqrt(law.variance.max() + typical.noise[0])
        reach = 5 * max(deviation, 1e-3)
        edges = np.linspace(low - reach, high + reach, _BINS + 1)
        place = np.clip(np.searchsorted(edges, mine.z) - 1, 0, _BINS - 1)
        places[members] = place + _BINS * len(counts)
        counts.append(np.bincount(place, minlength=_BINS).astype(np.float64))
        chance = np.zeros((CELLS, _BINS))
        for weight, factor, part in typical.scaled():
            variance = law.variance + part.noise - part.seen * GRID**2
            deviation = np.sqrt(np.maximum(variance, 1e-6))[:, None]
            below = scipy.special.ndtr((edges / factor - law.expected[:, None]) / deviation)
            below[:, 0] = 0.0  # the outermost bins have no end
            below[:, -1] = 1.0
            chance += weight * np.diff(below, axis=1)
        chances.append(chance * len(mine.z) / len(z) + _LEAST)
    count = np.concatenate(counts)
    chance = np.concatenate(chances, axis=1)
    start = _start(float(law.inverse(z.mean())))

    slope = (high - low) / 2
    noise = (squares.mean() + law.variance.mean()) / slope**2
    # The error of the mean of all observations, of which every two are of the same two codes.
    mean_error = math.sqrt(noise * 2 / len(z))
    # The more pairs weigh, the more of the shape of the noise is fitted, which is not quite normal:
    # what differs between two weights rests on that, and counts as an error of the prior.
    share = 1 / (1 + noise / _DEFAULT_DEVIATION**2)
    more, less = (_explaining(count * share**power, chance, start) for power in (1, 2))
    density = _density(more)
    bread = np.linalg.inv(_PENALTY + _information(density, chance, share * count))
    varying = share**2 * _varying(density, chance, places, owners)
    doubt = bread @ np.linalg.cholesky(_PENALTY + varying)
    doubt = np.column_stack([doubt, more - less])
    return _with_outliers(_smeared(density, mean_error), rows), doubt


def _explaining(count: Doubles, chance: Doubles, start: Doubles) -> Doubles:
    """Return coefficients of the density that explains counts best, less the penalty."""

    def objective(coefficients: Doubles) -> tuple[float, Doubles]:
        """The negative penalised log-likelihood, and its gradient."""
        density = _density(coefficients)
        expected = density @ chance
        departure = coefficients - start
        penalty = departure @ _PENALTY @ departure / 2
        value = penalty - count @ np.log(expected)
        pull = chance @ (count / expected) - count.sum()
        slope = (density * pull) @ _BASIS
        return float(value), _PENALTY @ departure - slope

    found = scipy.optimize.minimize(
        objective,
        start,
        jac=True,
        method="L-BFGS-B",
    )
    return np.asarray(found.x, np.float64)


def _slopes(density: Doubles, chance: Doubles) -> Doubles:
    """Return how the logarithms of expected counts change with coefficients, (bins, splines)."""
    change = density[:, None] * (_BASIS - density @ _BASIS)
    return chance.T @ change / (density @ chance)[:, None]


def _information(density: Doubles, chance: Doubles, count: Doubles) -> Doubles:
    slopes = _slopes(density, chance)
    return (slopes.T * count) @ slopes


def _varying(density: Doubles, chance: Doubles, places: Indices, owners: Indices) -> Doubles:
    """Return J, shape (splines, splines), of pairs in these places of the counts."""
    slopes = _slopes(density, chance)
    numbers = np.bincount(places, minlength=len(slopes))
    slopes -= numbers @ slopes / len(places)
    # A row for each owner, of ones at its pairs: all splines are added up at once, and in the
    # order of the pairs.
    starts = np.searchsorted(owners, np.arange(owners[-1] + 2))
    pairs_of = scipy.sparse.csr_matrix(
        (np.ones(len(places)), places, starts), (len(starts) - 1, len(slopes))
    )
    sums = np.ascontiguousarray((pairs_of @ slopes).T)
    return np.asarray(4.0 * sums @ sums.T, np.float64)


def _basis() -> Doubles:
    """Return cubic B-splines on a uniform grid of 1/8, shape (128, splines)."""
    centres = np.linspace(-1.125, 1.125, _SPLINES)
    distance = np.abs(GRID[:, None] - centres) * 8
    inner = 2 / 3 - distance**2 + distance**3 / 2
    outer = np.maximum(2 - distance, 0) ** 3 / 6
    return np.where(distance < 1, inner, outer)


def _penalty() -> Doubles:
    """Return P: third differences, and weakly any departure, in units of the default density's."""
    unit = np.eye(_SPLINES)
    third = np.diff(unit, 3, axis=0)
    second = np.diff(unit, 2, axis=0)
    second *= (8 * _DEFAULT_DEVIATION) ** 2
    return third.T @ third + second.T @ second + 1e-4 * unit


_BASIS = _basis()
_PENALTY = _penalty()


def _start(mean: float) -> Doubles:
    """Return the coefficients of the default density about a mean."""
    log = -0.5 * ((GRID - mean) / _DEFAULT_DEVIATION) ** 2
    coefficients, *_ = np.linalg.lstsq(_BASIS, log, rcond=None)
    return np.asarray(coefficients, np.float64)


def _density(coefficients: Doubles) -> Doubles:
    log = _BASIS @ coefficients
    density = np.exp(log - log.max())
    return np.asarray(density / density.sum())


def _smeared(density: Doubles, deviation: float) -> Doubles:
    """Return the density of a cosine of that density with a normal error, between −1 and 1."""
    apart = (GRID[:, None] - GRID) / max(deviation, 1e-6)
    kernel = np.exp(-(apart**2) / 2)
    kernel /= kernel.sum(axis=0)
    return kernel @ density


def _with_outliers(density: Doubles, rows: int) -> Doubles:
    return (density * rows + 1 / CELLS) / (rows + 1)


def posterior_cosines(
    seen: Observations, law: ObservationLaw, known: SimilarityCalibration, hedge: float = 0.0
) -> tuple[Doubles, Doubles]:
    """Return means and errors of the cosines behind observations, of their shape.

    ``hedge`` is the share of the distance to the unbiased estimate that counts as error, for what
    laws leave out.
    """
    mean, error = np.empty((2, seen.z.size))
    flat = Observations(*(part.ravel() for part in seen))
    for block in row_blocks(seen.z.size, _AT_ONCE):
        mean[block], error[block] = _posterior(flat.at(block), law, known)
    low, high = law.ends
    beyond = flat.z - np.clip(flat.z, low, high)
    plain = law.inverse(flat.z) + beyond * 2 / (high - low)
    error = np.hypot(error, hedge * (mean - plain))
    return mean.reshape(seen.z.shape), error.reshape(seen.z.shape)


def _posterior(
    seen: Observations, law: ObservationLaw, known: SimilarityCalibration
) -> tuple[Doubles, Doubles]:
    # A law finer than the grid is widened to it, and what that added is taken off again.
    finest = (0.75 * np.gradient(law.expected)) ** 2
    logs = []
    shares = []
    for weight, factor, part in seen.scaled():
        variance = law.variance + part.noise[:, None] - part.seen[:, None] * GRID**2
        wide = np.maximum(variance, finest)
        log = (part.z[:, None] - law.expected) ** 2 / (-2 * wide) - np.log(wide) / 2
        # The density of the observation is that of the quotient over the factor.
        logs.append(log + np.log(weight * known.density) - np.log(factor)[:, None])
        shares.append(np.minimum(variance / wide, 1.0))
    log = np.array(logs)
    chance = np.exp(log - log.max(axis=(0, 2))[:, None])
    chance /= chance.sum(axis=(0, 2))[:, None]
    kept = np.sum(chance * shares, axis=(0, 2))
    chance = chance.sum(axis=0)
    mean = chance @ GRID
    variance = np.maximum(chance @ GRID**2 - mean**2, 0.0)
    plain = law.inverse(seen.z)
    # The mean changes with coefficients by the covariance of the cosine and their splines.
    slopes = (chance * GRID) @ _BASIS - mean[:, None] * (chance @ _BASIS)
    doubt = np.sum((slopes @ known.doubt) ** 2, axis=1)
    return plain + (mean - plain) * kept, np.sqrt((variance + doubt) * kept)
