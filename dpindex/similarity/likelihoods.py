"""Likelihoods of codes for known vectors, by the public law of the noise.

The noise of the coordinates of a code is taken as independent.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
import scipy

from dpindex.base.arrays import Doubles, Floats, Longs, Singles, Vectors, row_blocks
from dpindex.mechanism.codes import Codes
from dpindex.mechanism.noise import Likelihood, NoiseMoments
from dpindex.mechanism.spec import Projector, Spec

_MAX_SIGN = 1.0 - 1e-6
_LEAST_CHANCE = 1e-12
# Entries of a table, about, and cells that it has for the values of one coordinate.
_TABLE = 1 << 25
_MIN_CELLS = 8
_MAX_CELLS = 1024
_PARTS = 8
_DEVIATIONS = 2.5
# Codes and coordinates that are looked up at a time: their part of the table fits the cache.
_CODES = 4096
_COORDINATES = 64
_VECTORS = 500


class CodeLikelihoods(ABC):
    """Log-likelihoods of codes for known vectors.

    Parameters
    ----------
    projector : Projector
        Of the spec of the codes.
    known : array or CSR matrix, shape (m, dim)

    Attributes
    ----------
    crowd_size : int
        Further vectors to know: more of them tell better what stands out.
    """

    crowd_size: ClassVar[int] = 1000

    @abstractmethod
    def __init__(self, projector: Projector, known: Vectors) -> None: ...

    @abstractmethod
    def logs(self, codes: Codes) -> Floats:
        """Return ``log P(code | vector)``, up to a constant for each code, shape (m + 1, n).

        The last row is of a vector whose coordinates are each one of a known vector's.
        """


class SignLikelihoods(CodeLikelihoods):
    """``Σ log (1 + s·E s)/2`` of signs s."""

    def __init__(self, projector: Projector, known: Vectors) -> None:
        signs = _expected_signs(projector.spec, _projected(projector, known))
        weights = _half_log_odds(np.vstack([signs, signs.mean(axis=0)]))
        self._weights = weights.astype(np.float32)
        self._constant = np.log(np.cosh(weights)).sum(axis=1)[:, None]

    def logs(self, codes: Codes) -> Floats:
        return np.asarray(self._weights @ codes.to_float().T - self._constant)


class SymbolLikelihoods(CodeLikelihoods):
    """The chances of symbols, by their law."""

    def __init__(self, projector: Projector, known: Vectors) -> None:
        law = projector.spec.symbol_law
        count = known.shape[0]
        self._table = np.empty((count + 1, law.size), dtype=np.float32)
        for block in row_blocks(count, _VECTORS):
            self._table[block] = law.chances(projector.project(known[block]))
        self._table[-1] = self._table[:-1].mean(axis=0)
        np.log(self._table, out=self._table)

    def logs(self, codes: Codes) -> Floats:
        return self._table[:, codes.stored.ravel()]


class NumberLikelihoods(CodeLikelihoods):
    """The chance of the cell that each coordinate of a code lies in: a table.

    Cells of a coordinate are equally wide. Without a public range they cover the known vectors and
    most of the noise about them, and the outermost cells have no end. Known vectors are rounded to
    parts of a cell, so that all cells are looked up in one list of chances.
    """

    crowd_size = 250  # more would make the cells too wide

    def __init__(self, projector: Projector, known: Vectors) -> None:
        spec = projector.spec
        projected = _projected(projector, known)
        self._likelihood = spec.number_law.likelihood.in_units(spec.step)
        moments = spec.number_law.moments.in_units(spec.step)
        count, coordinates = projected.shape
        cells = int(np.clip(_TABLE // projected.size, _MIN_CELLS, _MAX_CELLS))
        self._low, span = _limits(projected, moments, self._likelihood)
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
        np.maximum(self._table, _LEAST_CHANCE, out=self._table)
        np.log(self._table, out=self._table)

    def logs(self, codes: Codes) -> Floats:
        count = self._table.shape[2]
        logs = np.zeros((len(codes), count), dtype=np.float32)
        for block in row_blocks(len(codes), _CODES):
            decoded = codes.take(block).to_float()
            location = self._likelihood.slope * decoded + self._likelihood.shift
            cells = np.floor((location - self._low) / self._width)
            cells = np.clip(cells, 0, self._table.shape[1] - 1).astype(np.int64)
            for coordinates in row_blocks(cells.shape[1], _COORDINATES):
                table = self._table[coordinates].reshape(-1, count)
                logs[block] += _one_hot(cells[:, coordinates], self._table.shape[1]) @ table
        return logs.T


def _projected(projector: Projector, known: Vectors) -> Doubles:
    return np.asarray(projector.project(known), dtype=np.float64) * projector.spec.step


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


def _expected_signs(spec: Spec, projected: Floats) -> Doubles:
    """Return the mean signs of codes of projected vectors, shape (m, k)."""
    beta = spec.projection.scale * spec.change
    in_betas = projected / beta
    rms = np.maximum(np.sqrt(np.square(in_betas).mean(axis=1)), 1e-30)
    rows = zip(in_betas, rms, strict=True)
    return np.stack([spec.sign_law.expected_signs(row, size) for row, size in rows])


def _half_log_odds(signs: Doubles | Singles) -> Doubles:
    """Return half the log-odds of +1 for signs of these means, [−7.3, 7.3]."""
    return np.arctanh(np.clip(signs.astype(np.float64), -_MAX_SIGN, _MAX_SIGN))
