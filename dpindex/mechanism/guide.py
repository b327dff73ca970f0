"""What public vectors say of where neighbours report: kept with a codebook of few cells.

Whole records are found through cells: a record reports its nearest codeword, or a random one. Some
queries have their neighbours in one cell, others in several. A guide says how a query's neighbours
spread over cells, so that candidates can go to the queries that need them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy

from dpindex.base.arrays import (
    AnyArray,
    Doubles,
    Singles,
    nearest_items,
    row_blocks,
    spaced,
    unit,
)
from dpindex.base.checks import finite_number
from dpindex.base.files import checked_array

MAX_CELLS = 512
"""Codewords of a codebook that has a guide, at most."""

_VECTORS = 4096
# Numbers in the cosines of players: what 512 of them take on average errs by a fiftieth.
_PLAYED = 1 << 18
_NEIGHBOURS = 5
_LEAST_PER_CELL = 4
_TEMPERATURES = np.geomspace(4.0, 128.0, 21)
_LEAST_CHANCE = 1e-9


@dataclass(frozen=True, eq=False)
class Guide:
    """How neighbours spread over cells, learned from public vectors.

    Attributes
    ----------
    temperature : float
        ``softmax(temperature·cosines)`` of a query with all codewords is the chance that a
        neighbour's nearest codeword is each of them.
    moves : float32 array, shape (K, K)
        How many pairs of near neighbours have the first in one cell and the second in another.
    players : float32 array, shape (m, K)
        Cosines of some public vectors with all codewords; they play queries.
    """

    temperature: float
    moves: Singles
    players: Singles

    @classmethod
    def learned(cls, vectors: Singles, words: Singles) -> Guide | None:
        """Return the guide of public vectors and codewords, all of norm 1; None for too few.

        Parameters
        ----------
        vectors : float32 array, shape (n, dim)
        words : float32 array, shape (K, dim)
        """
        rows = spaced(len(vectors), _VECTORS)
        cells = len(words)
        if cells > MAX_CELLS or len(rows) < _LEAST_PER_CELL * cells:
            return None
        some = vectors[rows]
        cosines = some @ words.T
        cosines[np.arange(len(rows)), cosines.argmax(axis=1)] = _to_others(vectors, words)[rows]
        cell = cosines.argmax(axis=1)
        _, near = nearest_items(some, some, 1 + _NEIGHBOURS)
        others = near != np.arange(len(rows))[:, None]
        others[others.all(axis=1), -1] = False  # of many copies, one in the place of itself
        near = near[others].reshape(len(rows), _NEIGHBOURS)
        moves = np.zeros((cells, cells), dtype=np.float32)
        np.add.at(moves, (np.repeat(cell, _NEIGHBOURS), cell[near].ravel()), 1)

        def likelihood(temperature: float) -> float:
            chances = scipy.special.softmax(temperature * cosines, axis=1)
            own = np.take_along_axis(chances, cell[near], axis=1)
            return float(np.log(own + _LEAST_CHANCE).mean())

        best = max(_TEMPERATURES.tolist(), key=likelihood)
        return cls(best, moves, cosines[spaced(len(some), _PLAYED // cells)])

    @classmethod
    def read(cls, facts: Mapping[str, Any], arrays: dict[str, AnyArray], size: int) -> Guide:
        """Return the guide of a container for ``size`` codewords; raise for any other."""
        sizes = {"K": size}
        moves = checked_array(arrays["moves"], "f4", "KK", sizes)
        players = checked_array(arrays["players"], "f4", "mK", sizes)
        temperature = finite_number(facts["temperature"], "temperature", above=0.0)
        if set(arrays) != {"moves", "players"} or set(facts) != {"temperature"}:
            raise ValueError("names")
        if not len(players) or moves.min() < 0 or not moves.sum() > 0:
            raise ValueError("guide")
        return cls(temperature, moves, players)

    def of_cosines(self, cosines: Singles) -> Doubles:
        """Return chances of neighbours' cells, given cosines with all codewords: (nq, K)."""
        chances = scipy.special.softmax(self.temperature * cosines.astype(np.float64), axis=1)
        return np.asarray(chances)

    def of_reports(self, channel: Doubles) -> tuple[Doubles, Doubles]:
        """Return chances of neighbours' cells for each report of a query, and of the reports.

        Parameters
        ----------
        channel : array, shape (K, K)
            Chances of reports, a row for each cell.

        Returns
        -------
        arrays of shape (K, K) and (K,)
        """
        pairs = self.moves.astype(np.float64)
        # A few pairs as if cells had nothing to do with each other, for those never seen.
        total = pairs.sum()
        at_random = np.outer(pairs.sum(axis=1), pairs.sum(axis=0)) / total
        joint = channel.T @ (0.98 * pairs + 0.02 * at_random)
        reports = joint.sum(axis=1)
        return joint / np.maximum(reports[:, None], 1e-300), reports / total


def _to_others(vectors: Singles, words: Singles) -> Singles:
    """Return each vector's cosine with what its centroid is without it, shape (n,).

    A vector pulls its own centroid towards itself, which no query does: with centroids as they are,
    public vectors know their cells better than queries do, and these take too many candidates.
    """
    sums = np.zeros_like(words)
    blocks = [*row_blocks(len(vectors), _VECTORS)]
    cell = np.concatenate([(vectors[rows] @ words.T).argmax(axis=1) for rows in blocks])
    np.add.at(sums, cell, vectors)
    return np.asarray(np.einsum("ij,ij->i", unit(sums[cell] - vectors), vectors))
