"""Number codes: decoded vectors, corrected by the moments of the noise, and likelihoods of them."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import scipy

from dpindex.base.arrays import Doubles, Floats, Indices, Longs, Singles, Vectors, row_blocks
from dpindex.base.errors import DamagedError
from dpindex.decode.base import (
    CodeLikelihoods,
    Decoder,
    Estimate,
    ExactQueries,
    PrivateQueries,
    Queries,
    inner_products,
)
from dpindex.decode.calibration import (
    GRID,
    LOG_ENERGIES,
    PAIRED_ROWS,
    Decoded,
    ObservationLaw,
    SimilarityCalibration,
    with_common,
    without_common,
)
from dpindex.decode.number_moments import (
    METRICS,
    NOISELESS,
    NoisyVectorStats,
    jump_limit,
    moments_within,
    without_jumps,
)
from dpindex.decode.posterior import TablePosterior
from dpindex.mechanism.codes import Codes
from dpindex.mechanism.noise.moments import Likelihood, NoiseMoments
from dpindex.mechanism.spec import Projector, Spec

_LEAST_CHANCE = 1e-12

_TABLE = 1 << 25
"""Entries of a table, about."""

_ENTRIES = 1 << 17
_ENOUGH_CELLS = 80
"""Entries of one coordinate, and cells that it has even if these are more entries. Of few vectors
each counts more, so cells are finer."""

_MIN_CELLS = 8
_MAX_CELLS = 500  # no power of two, whose columns would compete for lines of the cache
"""Cells of one coordinate in the table."""

_CELLS_PER_DEVIATION = 64
"""Narrower cells tell no more about additive noise, even by the steps of the staircase."""

_PARTS = 8
"""Parts of a cell to which known vectors are rounded."""

_DEVIATIONS = 2.5
"""Deviations of the noise beyond the known vectors that the table covers."""

_CODES = 4096
_COORDINATES = 8
"""Codes and coordinates whose likelihoods are looked up at a time: their tables fit the cache."""


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
        self._likelihood = spec.likelihood
        self._low, span = _limits(projected, spec.noise_moments, self._likelihood)
        self._cells = _cells_within(span, projected.shape, spec.noise_moments)
        self._width = span / self._cells
        # One list of chances for all: to integrate at the ends of every cell takes thrice as long.
        # It begins at the lowest distance of a cell from a known vector, and goes by parts.
        part = self._width / _PARTS
        start = self._low - projected
        lowest = start.min()
        places = np.rint((start - lowest) / part).astype(np.intp)
        parts = places.max() + self._cells * _PARTS
        below = _integral(self._likelihood, lowest + part * np.arange(parts + 1))
        self._table = self._looked_up(places, below)
        if not math.isfinite(spec.noise_moments.reach):
            self._without_ends(places, below)

    def _looked_up(self, places: Indices, below: Doubles) -> Singles:
        """Return the table of vectors whose first cells begin at places, shape (count, k).

        Its last column is of the vector whose coordinates are each one of a known vector's.
        """
        inside = below[_PARTS:] - below[:-_PARTS]
        # Column p has all cells of a vector whose first one begins at part p.
        firsts = places.max() + 1
        view = np.lib.stride_tricks.sliding_window_view
        chances = view(inside.astype(np.float32), firsts)[::_PARTS]
        logs = np.ascontiguousarray(view(_log(inside), firsts)[::_PARTS])
        count, coordinates = places.shape
        table = np.empty((coordinates, self._cells, count + 1), dtype=np.float32)
        # Means of all coordinates as one product: a tenth of the time that columns take.
        of_firsts = np.stack([np.bincount(place, minlength=firsts) for place in places.T])
        table[:, :, -1] = _log(of_firsts / count @ chances.T)
        for of_cells, place in zip(table, places.T, strict=True):
            of_cells[:, :-1] = logs.take(place, axis=1)
        return table

    def _without_ends(self, places: Indices, below: Doubles) -> None:
        """Let the outermost cells of each coordinate reach to infinity."""
        total = _integral(self._likelihood, self._likelihood.edges[-1:])
        last = _PARTS * (self._cells - 1)
        for of_cells, place in zip(self._table, places.T, strict=True):
            for cell, chance in ((0, below[place + _PARTS]), (-1, total - below[place + last])):
                of_cells[cell, :-1] = _log(chance)
                of_cells[cell, -1] = _log(chance.mean())

    def logs(self, codes: Codes) -> Floats:
        count = self._table.shape[2]
        logs = np.zeros((len(codes), count), dtype=np.float32)
        for block in row_blocks(len(codes), _CODES):
            decoded = codes.take(block).to_float()
            location = self._likelihood.locate(decoded)
            place = np.floor((location - self._low) / self._width)
            np.clip(place, 0, self._cells - 1, out=place)
            cells = place.astype(np.int64)
            for coordinates in row_blocks(cells.shape[1], _COORDINATES):
                table = self._table[coordinates].reshape(-1, count)
                chosen = _one_hot(cells[:, coordinates], self._cells)
                logs[block] += chosen @ table
        return logs.T


def _log(chance: Doubles) -> Floats:
    """Return the logarithm of a chance, which is never 0."""
    return np.log(np.maximum(chance, _LEAST_CHANCE)).astype(np.float32)


def _limits(
    projected: Doubles,
    moments: NoiseMoments,
    likelihood: Likelihood,
) -> tuple[Doubles, float]:
    """Return from where on most codes lie in each coordinate, and over which span at most."""
    farthest = float(np.abs(likelihood.edges).max())
    if math.isfinite(moments.reach):
        reach = moments.reach + farthest
        low = np.full(projected.shape[1], moments.centre - reach)
        return low, 2.0 * reach
    deviation = math.sqrt(moments.variance[0])
    margin = min(farthest, _DEVIATIONS * deviation) + likelihood.cell
    low = projected.min(axis=0) - margin
    high = projected.max(axis=0) + margin
    return low, float((high - low).max())


def _cells_within(span: float, shape: tuple[int, ...], moments: NoiseMoments) -> int:
    """Return into how many cells a span is cut, for known vectors of that shape."""
    count, coordinates = shape
    enough = max(_ENOUGH_CELLS, _ENTRIES // count)
    most = min(_MAX_CELLS, _TABLE // (count * coordinates), enough)
    deviation = math.sqrt(moments.variance[0])
    if math.isinf(moments.reach) and deviation > 0:
        useful = math.ceil(_CELLS_PER_DEVIATION * span / deviation)
        most = min(most, useful)
    return max(_MIN_CELLS, most)


def _integral(likelihood: Likelihood, distance: Doubles) -> Doubles:
    """Return the integral of a likelihood over all distances below.

    Of one that is not 0 below its first edge it is known up to a constant.
    """
    edges = likelihood.edges
    below = min(distance.min(), edges[0]) - likelihood.cell
    above = max(distance.max(), edges[-1]) + likelihood.cell
    knots = np.concatenate([[below], edges, [above]])
    pieces = likelihood.levels * np.diff(knots)
    integral = np.concatenate([[0.0], np.cumsum(pieces)])
    return np.asarray(np.interp(distance, knots, integral))


def _one_hot(cells: Longs, size: int) -> scipy.sparse.csr_array:
    """Return rows with a one for the cell of each coordinate, shape (n, coordinates·size)."""
    count, coordinates = cells.shape
    columns = cells + size * np.arange(coordinates)
    starts = np.arange(count + 1) * coordinates
    ones = np.ones(columns.size, dtype=np.float32)
    entries = (ones, columns.ravel(), starts)
    return scipy.sparse.csr_array(entries, (count, coordinates * size))


_TINY = 1e-300

_MANY = 48
"""Codes of fewer coordinates, as of tables, keep their common direction: without it too little is
left. Sums of few coordinates are not normal, so errors reach to the unbiased estimate."""

_HEDGE = 0.15
"""Without it, errors of pictures made of blobs hold 88 times in 100."""


class NumberPosterior(TablePosterior):
    """Number codes: inner products over norms, as the codes of the collection show them.

    Below m is the energy (squared norm) of a vector, σ² the noise variance of a coordinate and f
    the projection's factor of inner products.
    """

    @classmethod
    def fit(cls, spec: Spec, codes: Codes, rows: int) -> SimilarityCalibration:
        x = codes.to_float().astype(np.float64)
        limit = jump_limit(x, spec)
        x = without_jumps(x, spec, limit)
        stats = NoisyVectorStats.of(x, moments_within(spec, limit))
        least = max(1e-9 * float(stats.squares.mean()), 1e-150)
        energy = max(float(stats.energy.mean()), least)
        total = float(stats.total.mean()) / math.sqrt(energy)
        known = SimilarityCalibration(rows, energy, total, limit=limit)
        variance = cls(spec, known)._energy_variance(spec)
        energies = fitted_energies(stats.energy[:PAIRED_ROWS], energy, variance)
        known = replace(known, energies=energies)
        if spec.code_length >= _MANY:
            known = with_common(known, cls(spec, known).decode(codes))
        return cls(spec, known).with_prior(codes)

    def _energy_variance(self, spec: Spec) -> Doubles:
        """Variance of an estimate of m at each value of the grid, for typical codes."""
        grid = log_energies(self.calibration.energy)
        norm = np.sqrt(grid)
        total = self.calibration.total * norm
        typical = NoisyVectorStats(
            total,
            grid,
            spec.code_length,
            moments_within(spec, self.calibration.limit),
            norm,
        )
        least = 1e-4 * grid**2
        return typical.energy_variance + least

    @property
    def hedge(self) -> float:
        return _HEDGE if self.spec.code_length >= _MANY else 1.0

    def law(self, query_spec: Spec | None) -> ObservationLaw:
        # What the noise does is in s².
        of_projection = self.spec.projection.inner_product_factor * (1 - GRID**2) ** 2
        return ObservationLaw(GRID, of_projection)

    def decode(self, codes: Codes) -> Decoded:
        decoded = self._decoded(codes.to_float().astype(np.float64), self.spec)
        return without_common(decoded, self.calibration)

    def decode_queries(self, queries: Queries) -> Decoded:
        y = queries.to_float()
        if isinstance(queries, PrivateQueries):
            side = self._decoded(y, queries.spec)
        else:
            norms = np.linalg.norm(y, axis=1, keepdims=True)
            side = Decoded.plain(y / np.maximum(norms, _TINY))
        return without_common(side, self.calibration)

    def _decoded(self, x: Doubles, spec: Spec) -> Decoded:
        limit = self.calibration.limit
        x = without_jumps(x, spec, limit)
        stats = NoisyVectorStats.of(x, moments_within(spec, limit))
        variance = self._energy_variance(spec)
        known = self.calibration
        energy, spread = energies_given(
            stats.energy,
            known.energy,
            variance,
            known.energies,
        )
        norms = np.sqrt(energy)
        with_norms = replace(stats, norm=norms)
        # The noise along x is seen in the energy, of which it is a part: by regression.
        own = np.interp(energy, log_energies(known.energy), variance)
        along = np.clip(with_norms.covariance, 0.0, own / 2)
        shift = along / energy * (stats.energy - energy) / own
        scale = norms * np.clip(1 + shift, 0.5, 2.0)
        least = stats.k * with_norms.noise.variance[0]
        noise = np.maximum(with_norms.noise_energy, least) / stats.k / scale**2
        seen = np.minimum(along**2 / own / energy / scale**2, noise)
        # An error of the energy moves the norm by half of itself, and the shift takes back
        # along / own of it: that much of the norm's error is left.
        hidden = 1 - 2 * along / own
        none = np.zeros_like(scale)
        return Decoded(x / scale[:, None], noise, seen, spread * hidden**2, none, none)


def log_energies(middle: float) -> Doubles:
    """Return the grid of squared norms about a middle, a constant factor apart, shape (121,)."""
    return middle * np.exp(LOG_ENERGIES)


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
    means = LOG_ENERGIES[30:91:2, None, None]
    deviations = np.geomspace(0.02, 2.0, 24)[:, None]
    standardised = (LOG_ENERGIES - means) / deviations
    laws = np.exp(-(standardised**2) / 2)
    laws /= laws.sum(axis=2, keepdims=True)
    laws = laws.reshape(-1, len(LOG_ENERGIES))
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
    if middle <= 0 or len(chances) != len(LOG_ENERGIES):
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
    step = LOG_ENERGIES[1] - LOG_ENERGIES[0]
    fine = (relative < 4 * step**2) & (energy > grid[0])
    shown = np.where(fine, energy, mean_norm**2)
    return shown, np.where(fine, relative / 4, spread)


def _energy_likelihood(energy: Doubles, grid: Doubles, variance: Doubles) -> Doubles:
    squares = (energy[:, None] - grid) ** 2
    log = -squares / (2 * variance)
    log -= np.log(variance) / 2
    log -= log.max(axis=1, keepdims=True)
    return np.exp(np.maximum(log, -600.0))


class NumberDecoder(Decoder):
    """Sums of the decoded vectors, corrected by the moments of the noise."""

    posterior_type = NumberPosterior
    likelihoods = NumberLikelihoods

    @classmethod
    def reads(cls, spec: Spec) -> bool:
        return True

    def estimates(self, codes: Codes, queries: Queries, groups: int) -> Estimate:
        ip, x, y = inner_products(codes, queries, groups, np.float64)
        norm = self.spec.norm
        query_noise = NOISELESS
        if isinstance(queries, PrivateQueries):
            query_noise = queries.spec.noise_moments
        one_side = NoisyVectorStats.of(x, self.spec.noise_moments, norm)
        other_side = NoisyVectorStats.of(y[:, None], query_noise, norm)
        factor = self.spec.projection.inner_product_factor
        return METRICS[self.metric](ip, one_side, other_side, factor)
