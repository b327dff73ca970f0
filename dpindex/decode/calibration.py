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
departure from a normal density of deviation 0.125. The noisier the pairs, the less they weigh
against P: where noise hides the shape of the prior it becomes normal, and where noise hides its
width, too, it becomes that default. Then it is widened by the standard error of its mean.

*Norms that the codes leave uncertain* are averaged over: what is observed is a cosine times a norm,
so a large observation speaks for a larger norm than was divided by, as well as for a large cosine.

*What the error contains.* The deviation of the posterior; the error that all cosines share, since
what vectors have in common is projected once; and a share of the distance to the unbiased estimate.
The last is there because the prior is that of all queries, and the neighbours of one query may be
unlike it: the further the prior moves an estimate, the more rests on it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias

import numpy as np
import scipy

from dpindex.base.arrays import AnyArray, Doubles, row_blocks
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

_HEDGE = 0.25
"""Share of the distance to the unbiased estimate that counts as error: bench/coverage."""

_NORMS_HEDGE = 0.6
"""The same where norms come from the codes: what is laid to a norm may be a cosine's."""

_SPLINES = 19
_DEFAULT_DEVIATION = 0.125
_SCALE_GROUPS = 16
_BINS = 96
_TRUSTED_PAIRS = 3e4
"""Most pairs that count where norms come from the codes: their laws are known less well."""

_VALUES = 256
_NORMS = 7
"""Norms that are averaged over."""

_NORMS_SHARE = 0.5
"""Share of the variance by norms that pairs are taken to have: bench/coverage. With all of it the
priors of pictures and tables lose their upper end, with none that of counts has too much of it."""

_SCALES = np.geomspace(1e-6, 30.0, 50)
_LOG_SCALES = np.log(_SCALES)
_REACH = 4.0
_LEAST = 1e-30
_LOG_ENERGIES = np.linspace(-5.0, 5.0, 121)


_LEAST_ENERGY = 1e-150
"""Squares of energies, and those of their inverses, are floats."""

_ROUNDING = 1e-6
_NUMBERS = ("energy", "total", "denoised_energy", "uncovered", "limit")


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
    norm_error : float64 array, shape (n,)
        Relative variance of the scale.
    """

    vectors: AnyArray
    noise: Doubles
    norm_error: Doubles

    def rows(self, block: slice) -> Decoded:
        """Some of the vectors."""
        return Decoded(*(part[block] for part in self))

    @classmethod
    def plain(cls, vectors: AnyArray) -> Decoded:
        """Vectors whose errors are all in the law."""
        none = np.zeros(len(vectors))
        return cls(vectors, none, none)


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
        Mean sum of the coordinates of a vector, over the root of ``energy``.
    denoised_energy : float
        Mean squared norm of denoised codes; 0 without a denoiser.
    limit : float
        Larger coordinates are mostly noise, and count as 0; 0 without such a limit.
    energies : float64 array, shape (121,) or (0,)
        Chances of squared norms e^−5 … e^5 times ``energy``; empty where codes do not show them.
    uncovered : float
        Of symbols, the chance that no codeword resembles a vector, [0, 1].
    density : float64 array, shape (128,)
        Chances of the cells of :data:`GRID`.
    """

    rows: int
    energy: float = 0.0
    total: float = 0.0
    denoised_energy: float = 0.0
    uncovered: float = 0.0
    limit: float = 0.0
    energies: Doubles = field(default_factory=lambda: np.empty(0))
    density: Doubles = field(default_factory=lambda: np.full(CELLS, 1 / CELLS))

    def to_bytes(self) -> bytes:
        """A container of arrays: see :func:`calibration_from_bytes`."""
        facts = {name: getattr(self, name) for name in ("rows", *_NUMBERS)}
        arrays = {"energies": self.energies, "density": self.density}
        return pack("calibration", facts, arrays)

    @property
    def mean_cosine(self) -> float:
        """The mean cosine of two vectors of the collection, [0, 1]."""
        return max(float(self.density @ GRID), 0.0)


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
        energies = checked_array(arrays.pop("energies"), "f8", "e", {})
        fits = len(energies) in (0, len(_LOG_ENERGIES))
        if facts or arrays or not fits:
            raise ValueError("contents")
        chances = np.concatenate([density, energies, [numbers["uncovered"]]])
        if (density <= 0).any() or (chances < 0).any() or (chances > 1).any():
            raise ValueError("chances")
        if any(len(law) and abs(law.sum() - 1) > _ROUNDING for law in (density, energies)):
            raise ValueError("laws")
        if numbers["limit"] < 0:
            raise ValueError("limit")
        sizes = [numbers[name] for name in ("energy", "denoised_energy") if numbers[name] != 0]
        if not all(_LEAST_ENERGY <= size <= 1 / _LEAST_ENERGY for size in sizes):
            raise ValueError("energies")
    except (ValueError, LookupError, TypeError, AttributeError):
        raise DamagedError(
            "these bytes are no calibration of this index; calibrate it again."
        ) from None
    return SimilarityCalibration(rows, **numbers, energies=energies, density=density)


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
    z: list[Doubles] = []
    squares: list[Doubles] = []
    norm_errors: list[Doubles] = []
    for block in row_blocks(rows, _PAIRS_OF):
        one, other = (side.rows(block) for side in sides)
        different = ~np.eye(len(one.vectors), dtype=np.bool_)
        observed = other.vectors @ one.vectors.T
        noise = own_variance(one.noise, other.noise[:, None], k)
        z.append(observed[different].astype(np.float64))
        squares.append(noise[different])
        of_norms = one.norm_error + other.norm_error[:, None]
        norm_errors.append(of_norms[different])
    density = fitted_prior(
        np.concatenate(z),
        np.concatenate(squares),
        np.concatenate(norm_errors),
        law,
        known.rows,
    )
    return replace(known, density=density)


def own_variance(noise: Doubles, query_noise: Doubles, k: int) -> Doubles:
    """Return s² of pairs: noise along the other side, and noise times noise."""
    return noise + query_noise + k * noise * query_noise


def fitted_prior(
    z: Doubles,
    squares: Doubles,
    norm_error: Doubles,
    law: ObservationLaw,
    rows: int,
) -> Doubles:
    """Return the chances of the cells of cosines, shape (128,), that explain observations best.

    One vector in ``rows`` may have any cosine. Parameters as of :meth:`PosteriorTable.__call__`.
    """
    if not len(z):
        return _with_outliers(_density(_start(0.0)), rows)
    shares = np.arange(1, _SCALE_GROUPS) / _SCALE_GROUPS
    levels = np.unique(np.quantile(squares, shares))
    group = np.searchsorted(levels, squares)
    counts = []
    chances = []
    low = law.expected[0]
    high = law.expected[-1]
    for number in np.unique(group):  # observations of nearly one scale share a histogram
        mine = group == number
        of_norms = _NORMS_SHARE * law.expected**2 * norm_error[mine].mean()
        variance = law.variance + squares[mine].mean() + of_norms
        deviation = np.sqrt(np.maximum(variance, 1e-6))
        reach = 5 * deviation.max()
        first = low - reach
        last = high + reach
        edges = np.linspace(first, last, _BINS + 1)
        inside = np.clip(z[mine], first, last)
        count, _ = np.histogram(inside, edges)
        counts.append(count.astype(np.float64))
        standardised = (edges - law.expected[:, None]) / deviation[:, None]
        below = scipy.special.ndtr(standardised)
        below[:, 0] = 0.0  # the outermost bins have no end
        below[:, -1] = 1.0
        chance = np.diff(below, axis=1) * mine.mean()
        chances.append(chance + _LEAST)
    count = np.concatenate(counts)
    # Pairs weigh by the information that noise leaves of the variance of cosines: more weight would
    # fit the shape of the noise, which is not quite normal. ``usual`` is a deviation of cosines:
    # the default one, or a larger one where all noise is that of the law, which is nearly normal.
    slope = (high - low) / 2
    noise = (squares.mean() + law.variance.mean()) / slope**2
    usual = 0.5
    if squares.any():
        usual = _DEFAULT_DEVIATION
        count *= min(1.0, _TRUSTED_PAIRS / len(z))
    count /= (1 + noise / usual**2) ** 2
    chance = np.concatenate(chances, axis=1)
    start = _start(float(law.inverse(z.mean())))

    # The error of the mean of all observations, of which every two are of the same two codes.
    mean_error = math.sqrt(noise * 2 / len(z))
    prior = _smeared(_explaining(count, chance, start), mean_error)
    return _with_outliers(prior, rows)


def _explaining(count: Doubles, chance: Doubles, start: Doubles) -> Doubles:
    """Return the density that explains counts of observations best, less the penalty for it."""

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
    return _density(found.x)


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


def _between(tables: Sequence[Doubles], row: Doubles, column: Doubles) -> list[Doubles]:
    """Interpolate tables of one shape linearly between their rows and columns."""
    # SciPy does so too, in a module whose import is a fifth of a query.
    rows, columns = tables[0].shape
    above = np.minimum(row.astype(np.intp), rows - 2)
    left = np.minimum(column.astype(np.intp), columns - 2)
    down = row - above
    right = column - left
    up = 1 - down
    place = above * columns + left
    below = place + columns
    corners = [
        (up * (1 - right), place),
        (up * right, place + 1),
        (down * (1 - right), below),
        (down * right, below + 1),
    ]

    def between(table: Doubles) -> Doubles:
        parts = [share * np.take(table, corner) for share, corner in corners]
        return np.asarray(sum(parts), np.float64)

    return [between(table) for table in tables]


_Tables: TypeAlias = tuple[Doubles, Doubles, Doubles]


class PosteriorTable:
    """Posterior means and errors of cosines under one law.

    Parameters
    ----------
    calibration : SimilarityCalibration
    law : ObservationLaw
    """

    def __init__(self, calibration: SimilarityCalibration, law: ObservationLaw) -> None:
        self._law = law
        self._density = calibration.density
        self._known: tuple[int, int, _Tables | None] = (len(_SCALES), 0, None)

    def __call__(
        self, z: Doubles, squares: Doubles, norm_error: Doubles
    ) -> tuple[Doubles, Doubles]:
        """Return means and errors of the cosines behind observations, shape (nq, count).

        Parameters
        ----------
        z, squares, norm_error : float64 arrays, shape (nq, count)
            Observations, their s², and the relative variance of the norms that they were divided
            by.
        """
        if norm_error.any():
            mean, error = self._over_norms(z, squares, norm_error)
        else:
            mean, error, _ = self._looked_up(z, squares)
        share = np.where(norm_error > 0, _NORMS_HEDGE, _HEDGE)
        hedge = share * (mean - self._plain(z))
        return mean, np.hypot(error, hedge)

    def _over_norms(
        self, z: Doubles, squares: Doubles, norm_error: Doubles
    ) -> tuple[Doubles, Doubles]:
        """Return means and errors over norms, each as likely as it makes the observation.

        The logarithm of a norm over its divisor is normal; Gauss–Hermite quadrature.
        """
        deviation = np.sqrt(np.log1p(norm_error))
        places, shares = np.polynomial.hermite_e.hermegauss(_NORMS)
        # Sums over norms in units of the largest chance so far: one norm is in memory at a time.
        highest = np.full(z.shape, -np.inf)
        total, first, second = np.zeros((3, *z.shape))
        for place, share in zip(places, shares, strict=True):
            factor = np.exp(place * deviation)
            mean, error, log_chance = self._looked_up(z / factor, squares / factor**2)
            # The density of the observation is that of the quotient over the factor.
            log_chance += np.log(share) - place * deviation
            before = highest
            highest = np.maximum(before, log_chance)
            kept = np.exp(before - highest)
            weight = np.exp(log_chance - highest)
            total = kept * total + weight
            first = kept * first + weight * mean
            second = kept * second + weight * (error**2 + mean**2)
        mean = first / total
        return mean, np.sqrt(np.maximum(second / total - mean**2, 0.0))

    def _plain(self, z: Doubles) -> Doubles:
        """Return the cosines of which observations are the expected ones, on a line beyond ±1."""
        low, high = self._law.ends
        beyond = z - np.clip(z, low, high)
        return self._law.inverse(z) + beyond * 2 / (high - low)

    def _looked_up(self, z: Doubles, squares: Doubles) -> tuple[Doubles, Doubles, Doubles]:
        """Return means, errors, and the logarithms of the chances of observations."""
        s = np.maximum(np.sqrt(squares), _SCALES[0])
        rows = np.arange(len(_SCALES))
        row = np.interp(np.log(s), _LOG_SCALES, rows)
        low, high = self._law.ends
        columns_per_unit = (_VALUES - 1) / (high - low)
        column = (z / self._reach(s) - low) * columns_per_unit
        np.clip(column, 0, _VALUES - 1, out=column)
        first, tables = self._tables_about(row)
        mean, error, log_chance = _between(tables, row - first, column)
        return mean, error, log_chance

    def _reach(self, s: Doubles) -> Doubles:
        """Return how far observations are tabulated, over the range of expected ones."""
        _, highest = self._law.ends
        deviation = np.sqrt(s**2 + self._law.variance.max())
        return np.asarray(1 + _REACH * deviation / highest)

    def _tables_about(self, row: Doubles) -> tuple[int, _Tables]:
        """Return the first scale of tables that span these rows, and the tables.

        A search needs few scales, and the tables of all take a fifth of it.
        """
        first, last, tables = self._known
        lowest = min(int(row.min(initial=len(_SCALES))), len(_SCALES) - 2)
        highest = min(int(row.max(initial=0)) + 1, len(_SCALES) - 1)
        highest = max(highest, lowest + 1)
        if tables is None or lowest < first or highest > last:
            first = min(first, lowest)
            last = max(last, highest)
            tables = self._new_tables(_SCALES[first : last + 1])
            self._known = (first, last, tables)
        return first, tables

    def _new_tables(self, scales: Doubles) -> _Tables:
        """Return means, deviations and log chances by s and by z over its reach.

        Each has the shape (scales, values).
        """
        law = self._law
        column = np.linspace(*law.ends, _VALUES)
        z = column * self._reach(scales)[:, None]
        variance = law.variance + scales[:, None, None] ** 2
        # A law finer than the grid is widened to it, and what that added is taken off again.
        cell = np.gradient(law.expected)
        wide = np.maximum(variance, (0.75 * cell) ** 2)
        distance = z[..., None] - law.expected
        log = -(distance**2) / (2 * wide)
        log -= np.log(wide) / 2
        log += np.log(self._density)
        highest = log.max(axis=2, keepdims=True)
        weight = np.exp(log - highest)
        total = weight.sum(axis=2, keepdims=True)
        log_chance = (highest + np.log(total))[..., 0]
        weight /= total
        mean = weight @ GRID
        mean_square = weight @ GRID**2
        posterior_variance = np.maximum(mean_square - mean**2, 0.0)
        spread = np.sqrt(posterior_variance)
        kept = np.sum(weight * (variance / wide), axis=2)
        plain = law.inverse(z)
        return plain + (mean - plain) * kept, spread * np.sqrt(kept), log_chance
