"""How likely codes of numbers are for known vectors."""

from __future__ import annotations

import math

import numpy as np
import scipy

from dpindex.base.arrays import Doubles, Floats, Longs, Vectors, row_blocks
from dpindex.decode.base import CodeLikelihoods, ExactQueries
from dpindex.mechanism.codes import Codes
from dpindex.mechanism.noise.moments import Likelihood, NoiseMoments
from dpindex.mechanism.spec import Projector

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
"""What is looked up at a time: its part of the table fits the cache."""


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
        enough = max(_ENOUGH_CELLS, _ENTRIES // count)
        most = min(_MAX_CELLS, _TABLE // projected.size, enough)
        deviation = math.sqrt(moments.variance[0])
        if math.isinf(moments.reach) and deviation > 0:
            useful = math.ceil(_CELLS_PER_DEVIATION * span / deviation)
            most = min(most, useful)
        self._cells = max(_MIN_CELLS, most)
        self._width = span / self._cells
        # One list of chances for all: to integrate at the ends of every cell takes thrice as long.
        # It begins at the lowest distance of a cell from a known vector, and goes by parts.
        part = self._width / _PARTS
        start = self._low - projected
        lowest = start.min()
        places = np.rint((start - lowest) / part).astype(np.intp)
        parts = places.max() + self._cells * _PARTS
        ends = lowest + part * np.arange(parts + 1)
        below = _integral(self._likelihood, ends)
        last_edge = self._likelihood.edges[-1:]
        total = _integral(self._likelihood, last_edge)
        inside = below[_PARTS:] - below[:-_PARTS]
        # Column p has all cells of a vector whose first one begins at part p.
        firsts = places.max() + 1
        view = np.lib.stride_tricks.sliding_window_view
        chances = view(inside.astype(np.float32), firsts)[::_PARTS]
        logs = np.ascontiguousarray(view(_log(inside), firsts)[::_PARTS])
        self._table = np.empty((coordinates, self._cells, count + 1), dtype=np.float32)
        # Means of all coordinates as one product: a tenth of the time that columns take.
        of_firsts = np.stack([np.bincount(place, minlength=firsts) for place in places.T])
        self._table[:, :, -1] = _log(of_firsts / count @ chances.T)
        for of_cells, place in zip(self._table, places.T, strict=True):
            of_cells[:, :-1] = logs.take(place, axis=1)
            if not math.isfinite(moments.reach):
                last = _PARTS * (self._cells - 1)
                without_end = {0: below[place + _PARTS], -1: total - below[place + last]}
                for cell, chance in without_end.items():
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
