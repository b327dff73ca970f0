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
departure from a normal density of deviation 0.125. Pairs count for what they say through the noise:
where it hides the shape the prior is normal, and where it hides the width too it is that one. Where
it hides the mean as well, the prior is as wide as the mean is unsure.

*What the error contains.* The deviation of the posterior; the error that all cosines share, as what
vectors have in common is projected once; that of norms; and half the distance to the unbiased
estimate. The last is there because the prior is that of all queries: what codes do not show of one
query's neighbours, the unbiased estimate may.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import NamedTuple

import numpy as np
import scipy

from dpindex.base.arrays import AnyArray, Doubles, finite_number, row_blocks, whole_number
from dpindex.base.errors import DamagedError
from dpindex.base.files import checked_array, pack, unpack

CELLS = 128
GRID: Doubles = np.asarray((np.arange(CELLS) + 0.5) * (2.0 / CELLS) - 1.0, np.float64)
"""Cosines at which densities and laws are kept, shape (128,)."""

SAMPLE_ROWS = 16384
"""Codes that a calibration is learned from."""

PAIRED_ROWS = 2048
"""Those of them that are compared with each other."""

_PAIRS_OF = 512
_HEDGE = 0.6
"""Share of the distance to the unbiased estimate that counts as error: both lie within 1.96."""

_SPLINES = 19
_DEFAULT_DEVIATION = 0.125
_SCALE_GROUPS = 16
_BINS = 96
_TRUSTED_PAIRS = 3e4
"""Pairs count as so many at most where norms come from the codes: laws are then known less well."""

_VALUES = 256
_SCALES = np.geomspace(1e-6, 30.0, 50)
_REACH = 4.0
_LEAST = 1e-30
_LOG_ENERGIES = np.linspace(-5.0, 5.0, 121)


_NUMBERS = ("energy", "total", "shown", "doubt")


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
        return np.asarray(np.interp(z, expected, np.concatenate([[-1.0], GRID, [1.0]])))

    @property
    def ends(self) -> tuple[float, float]:
        """The expected observations of cosines of −1 and 1."""
        first = float(1.5 * self.expected[0] - 0.5 * self.expected[1])
        return first, float(1.5 * self.expected[-1] - 0.5 * self.expected[-2])


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
    shown : float
        Mean squared norm of denoised codes; 0 without a denoiser.
    energies : float64 array, shape (121,) or (0,)
        Chances of squared norms e^−5 … e^5 times ``energy``; empty where codes do not show them.
    doubt : float
        Of symbols, the chance that a vector is unlike the codebook, [0, 1].
    density : float64 array, shape (128,)
        Chances of the cells of :data:`GRID`.
    """

    rows: int
    energy: float = 0.0
    total: float = 0.0
    shown: float = 0.0
    doubt: float = 0.0
    energies: Doubles = field(default_factory=lambda: np.empty(0))
    density: Doubles = field(default_factory=lambda: np.full(CELLS, 1 / CELLS))

    def to_bytes(self) -> bytes:
        """A container of arrays: see :func:`calibration_from_bytes`."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        arrays = {name: v for name, v in values.items() if isinstance(v, np.ndarray)}
        return pack("calibration", {n: v for n, v in values.items() if n not in arrays}, arrays)

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
        if facts or arrays or len(energies) not in (0, len(_LOG_ENERGIES)):
            raise ValueError("contents")
        if (density <= 0).any() or (energies < 0).any():
            raise ValueError("chances")
    except (ValueError, LookupError, TypeError, AttributeError):
        raise DamagedError(
            "these bytes are no calibration of this index; calibrate it again."
        ) from None
    return SimilarityCalibration(rows, **numbers, energies=energies, density=density)


def log_energies(middle: float) -> Doubles:
    """Return the grid of squared norms about a middle, a constant factor apart, shape (121,)."""
    return middle * np.exp(_LOG_ENERGIES)


def fitted_energies(energy: Doubles, middle: float, variance: Doubles) -> Doubles:
    """Return the chances of squared norms, shape (121,), of which estimates were made.

    Lognormal laws, averaged by their likelihoods: where noise hides how norms differ, all that it
    allows are in the average.

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
    laws = np.exp(-(((_LOG_ENERGIES - means) / deviations) ** 2) / 2)
    laws = (laws / laws.sum(axis=2, keepdims=True)).reshape(-1, len(_LOG_ENERGIES))
    log_fit = np.log(likelihood @ laws.T + 1e-300).sum(axis=0)
    share = np.exp(log_fit - log_fit.max())
    return np.asarray(share @ laws / share.sum())


def energies_given(
    energy: Doubles, middle: float, variance: Doubles, chances: Doubles
) -> tuple[Doubles, Doubles]:
    """Return squared norms as estimates of them show, and the relative variances of the norms.

    The first is the square of the mean norm. Parameters as of :func:`fitted_energies`; ``chances``
    is what it returned.
    """
    grid = log_energies(middle)
    weight = _energy_likelihood(energy, grid, variance) * chances
    weight /= weight.sum(axis=1, keepdims=True)
    root = weight @ np.sqrt(grid)
    spread = np.maximum(weight @ grid / root**2 - 1, 0.0)
    # An estimate that is finer than the grid is taken as it is.
    own = np.interp(energy, grid, variance) / np.maximum(energy, grid[0]) ** 2
    step = _LOG_ENERGIES[1] - _LOG_ENERGIES[0]
    fine = (own < 4 * step**2) & (energy > grid[0])
    return np.where(fine, energy, root**2), np.where(fine, own / 4, spread)


def _energy_likelihood(energy: Doubles, grid: Doubles, variance: Doubles) -> Doubles:
    log = -((energy[:, None] - grid) ** 2) / (2 * variance) - np.log(variance) / 2
    return np.asarray(np.exp(np.maximum(log - log.max(axis=1, keepdims=True), -600.0)))


def calibrated(
    sides: tuple[Decoded, Decoded], law: ObservationLaw, known: SimilarityCalibration
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
    for block in row_blocks(rows, _PAIRS_OF):
        one, other = (Decoded(*(part[block] for part in side)) for side in sides)
        apart = ~np.eye(len(one.vectors), dtype=np.bool_)
        z.append((other.vectors @ one.vectors.T).astype(np.float64)[apart])
        squares.append(own_variance(one.noise, other.noise[:, None], k)[apart])
    density = fitted_prior(np.concatenate(z), np.concatenate(squares), law, known.rows)
    return replace(known, density=density)


def own_variance(noise: Doubles, query_noise: Doubles, k: int) -> Doubles:
    """Return s² of pairs: noise along the other side, and noise times noise."""
    return noise + query_noise + k * noise * query_noise


def fitted_prior(z: Doubles, squares: Doubles, law: ObservationLaw, rows: int) -> Doubles:
    """Return the chances of the cells of cosines, shape (128,), that explain observations best.

    One vector in ``rows`` may have any cosine.
    """
    if not len(z):
        return _with_outliers(_density(_start(0.0)), rows)
    levels = np.unique(np.quantile(squares, np.arange(1, _SCALE_GROUPS) / _SCALE_GROUPS))
    group = np.searchsorted(levels, squares)
    counts, chances = [], []
    for number in np.unique(group):  # observations of nearly one scale share a histogram
        mine = group == number
        deviation = np.sqrt(np.maximum(law.variance + squares[mine].mean(), 1e-6))
        reach = 5 * deviation.max()
        edges = np.linspace(law.expected[0] - reach, law.expected[-1] + reach, _BINS + 1)
        counts.append(np.histogram(np.clip(z[mine], edges[0], edges[-1]), edges)[0])
        below = scipy.special.ndtr((edges - law.expected[:, None]) / deviation[:, None])
        below[:, [0, -1]] = (0.0, 1.0)
        chances.append(np.diff(below, axis=1) * mine.mean() + _LEAST)
    count = np.concatenate(counts).astype(np.float64)
    # What a noisy pair says of the variance of cosines, over what one without noise does. Beyond
    # it a histogram shows that noise is not quite normal, and no cosines. That of a law alone is
    # nearly so, and misleads where it is wider than cosines can be.
    slope = (law.expected[-1] - law.expected[0]) / 2
    noise = (squares.mean() + law.variance.mean()) / slope**2
    usual = 0.5
    if squares.any():
        usual = _DEFAULT_DEVIATION
        count *= min(1.0, _TRUSTED_PAIRS / len(z))
    count /= (1 + noise / usual**2) ** 2
    chance = np.concatenate(chances, axis=1)
    start = _start(float(law.inverse(z.mean())))

    def objective(coefficients: Doubles) -> tuple[float, Doubles]:
        """The negative penalised log-likelihood, and its gradient."""
        density = _density(coefficients)
        expected = density @ chance
        departure = coefficients - start
        value = departure @ _PENALTY @ departure / 2 - count @ np.log(expected)
        slope = density * (chance @ (count / expected) - count.sum())
        return float(value), _PENALTY @ departure - slope @ _BASIS

    found = scipy.optimize.minimize(objective, start, jac=True, method="L-BFGS-B")
    # The mean of all observations errs too, half of which are of the same two codes.
    mean_error = math.sqrt(noise * 2 / len(z))
    return _with_outliers(_smeared(_density(found.x), mean_error), rows)


def _basis() -> Doubles:
    """Return cubic B-splines on a uniform grid of 1/8, shape (128, splines)."""
    centres = np.linspace(-1.125, 1.125, _SPLINES)
    distance = np.abs(GRID[:, None] - centres) * 8
    inner = 2 / 3 - distance**2 + distance**3 / 2
    outer = np.maximum(2 - distance, 0) ** 3 / 6
    return np.where(distance < 1, inner, outer)


def _penalty() -> Doubles:
    """Return P: third differences, and weakly any departure, in units of the default density's."""
    third = np.diff(np.eye(_SPLINES), 3, axis=0)
    second = np.diff(np.eye(_SPLINES), 2, axis=0) * (8 * _DEFAULT_DEVIATION) ** 2
    return third.T @ third + second.T @ second + 1e-4 * np.eye(_SPLINES)


_BASIS = _basis()
_PENALTY = _penalty()


def _start(mean: float) -> Doubles:
    """Return the coefficients of the default density about a mean."""
    log = -0.5 * ((GRID - mean) / _DEFAULT_DEVIATION) ** 2
    return np.asarray(np.linalg.lstsq(_BASIS, log, rcond=None)[0], np.float64)


def _density(coefficients: Doubles) -> Doubles:
    log = _BASIS @ coefficients
    density = np.exp(log - log.max())
    return np.asarray(density / density.sum())


def _smeared(density: Doubles, deviation: float) -> Doubles:
    """Return the density of a cosine of that density with a normal error, between −1 and 1."""
    apart = (GRID[:, None] - GRID) / max(deviation, 1e-6)
    kernel = np.exp(-(apart**2) / 2)
    return np.asarray((kernel / kernel.sum(axis=0)) @ density)


def _with_outliers(density: Doubles, rows: int) -> Doubles:
    return (density * rows + 1 / CELLS) / (rows + 1)


def _between(tables: Sequence[Doubles], row: Doubles, column: Doubles) -> list[Doubles]:
    """Interpolate tables of one shape linearly between their rows and columns."""
    # SciPy does so too, in a module whose import is a fifth of a query.
    rows, columns = tables[0].shape
    i = np.minimum(row.astype(np.intp), rows - 2)
    j = np.minimum(column.astype(np.intp), columns - 2)
    down, right = row - i, column - j
    place = i * columns + j
    corners = [
        ((1 - down) * (1 - right), place),
        ((1 - down) * right, place + 1),
        (down * (1 - right), place + columns),
        (down * right, place + columns + 1),
    ]
    return [sum(share * np.take(table, at) for share, at in corners) for table in tables]


class PosteriorTable:
    """Posterior means and errors of cosines under one law.

    Parameters
    ----------
    calibration : SimilarityCalibration
    law : ObservationLaw
    """

    def __init__(self, calibration: SimilarityCalibration, law: ObservationLaw) -> None:
        self._law = law
        self._tables = self._new_tables(calibration.density)

    def __call__(self, z: Doubles, squares: Doubles) -> tuple[Doubles, Doubles]:
        """Return means and errors of the cosines behind observations, shape (nq, count).

        Parameters
        ----------
        z, squares : float64 arrays, shape (nq, count)
            Observations, and their s².
        """
        s = np.maximum(np.sqrt(squares), _SCALES[0])
        row = np.interp(np.log(s), np.log(_SCALES), np.arange(len(_SCALES)))
        low, high = self._law.ends
        column = (z / self._reach(s) - low) * ((_VALUES - 1) / (high - low))
        mean, error = _between(self._tables, row, np.clip(column, 0, _VALUES - 1))
        return mean, np.hypot(error, _HEDGE * (mean - self._law.inverse(z)))

    def _reach(self, s: Doubles) -> Doubles:
        """Return how far observations are tabulated, over the range of expected ones."""
        deviation = np.sqrt(s**2 + self._law.variance.max())
        return np.asarray(1 + _REACH * deviation / self._law.ends[1])

    def _new_tables(self, density: Doubles) -> tuple[Doubles, Doubles]:
        """Return means and deviations by s and by z over its reach, shape (scales, values)."""
        law = self._law
        column = np.linspace(*law.ends, _VALUES)
        z = column * self._reach(_SCALES)[:, None]
        variance = law.variance + _SCALES[:, None, None] ** 2
        # A law finer than the grid is widened to it, and what that added is taken off again.
        wide = np.maximum(variance, (0.75 * np.gradient(law.expected)) ** 2)
        log = -((z[..., None] - law.expected) ** 2) / (2 * wide) - np.log(wide) / 2
        log += np.log(density)
        weight = np.exp(log - log.max(axis=2, keepdims=True))
        weight /= weight.sum(axis=2, keepdims=True)
        mean = weight @ GRID
        kept = np.sum(weight * (variance / wide), axis=2)
        plain = law.inverse(z)
        spread = np.sqrt(np.maximum(weight @ GRID**2 - mean**2, 0.0))
        return plain + (mean - plain) * kept, spread * np.sqrt(kept)
