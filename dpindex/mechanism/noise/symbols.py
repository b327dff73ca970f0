"""Symbols: one of the codewords nearest to a vector, or one drawn by the scores of all of them.

*Softmax of scores.* A symbol c of K is reported with chance ``∝ exp(⟨A_c, x⟩ + b_c)``; A and b are
public. It is pure epsilon for one attribute or an L2 ball: the exponential mechanism (McSherry &
Talwar 2007) for scores of bounded *range* (Durfee & Rogers 2019; Dong, Durfee & Rogers 2020). What
counts is how far apart a neighbour can move two symbols' scores, and the usual factor of 2 is not
lost. In integers a score is ``L_c = Σ_i w_ic û_i + b_c``, with attributes on a grid, and a symbol
has the weight ``T[d_c]``, ``d_c = ⌊(max_c L_c − L_c) / m⌋``, from a table of integers.

*Why it is pure ε in these integers.* Let the scores of a neighbour differ by ``δ_c`` whose range
``max_c δ_c − min_c δ_c`` is at most R, and let the table fall by no more than a factor ``e^η`` a
step (and never rise; beyond its end it stays as it is). With ``t = max L' − max L``, which lies in
the range of δ, d_c rises by at most ``⌈(t − δ_c)/m⌉`` if ``δ_c ≤ t`` and does not rise otherwise;
so ``T[d_c]/T[d'_c] ≤ exp(η·max(0, ⌈(t − δ_c)/m⌉))``, and in the same way the sum of all weights
grows by at most ``exp(η·⌈(max δ − t)/m⌉)``. Together that is at most ``exp(η·R')`` with

    R' = R where m = 1, else ``⌊(R − 2)/m⌋ + 2``  (two quotients are rounded up).

No rounding of the table adds to this: each entry is the one before times ``e^−η``, *rounded up*, as
the thresholds of geometric flips are. Where rounding stops the fall, all further weights are equal.

*The draw.* A 64-bit word stands for the place ``⌊word·S/2^64⌋`` below the sum S of the weights, so
a symbol of weight w has between ``w·2^64/S − 1`` and ``w·2^64/S + 1`` words. With q the least
``w·2^64/S``, ``T[end]·2^64/(K·T[0])``, that adds a factor of ``(1 + 1/q)/(1 − 1/q)``, for which
2^-16 of ε is held back. The verifier takes all of this from the bytes that are used.

*Whole records, too.* The uniform share of :class:`~dpindex.mechanism.noise.base.SymbolLaw` keeps
any two records apart by no more than an epsilon of their own: both promises hold for the one
symbol.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np

from dpindex.base.arrays import (
    Doubles,
    Floats,
    Integers,
    Longs,
    Singles,
    Words,
    row_blocks,
)
from dpindex.mechanism.codebooks import Codebook
from dpindex.mechanism.codes import SymbolFormat
from dpindex.mechanism.grid import GRID_BITS, neighbour_distance
from dpindex.mechanism.noise.base import (
    ONE,
    Calibration,
    SymbolLaw,
    draw_uniform,
    high_product,
    power_below,
    uniform_share,
)
from dpindex.mechanism.parameters import Parameters
from dpindex.mechanism.projections import RecordEncoder
from dpindex.mechanism.projections.dense import CodewordScores
from dpindex.mechanism.public_random import BitSource
from dpindex.privacy import L2

_STEPS = 1 << 12
"""Most steps of the table for the range of one neighbour's scores, about."""

TOP = (1 << 32) - 1
_MAX_TABLE = 1 << 19
_FOR_DRAWS = Fraction(1, 1 << 16)
SCORED_NUMBERS = 1 << 17
"""Weights that are handled together, so that they stay in the cache."""


@lru_cache(maxsize=8)  # every opened index and every copy of a spec has the same law
def falling_weights(loss: Fraction, top: int = TOP) -> Words:
    """Weights from ``top`` on, each the one before times ``e^−loss``, rounded up.

    The table ends where rounding up stops the fall, or after 2^19 steps.

    >>> falling_weights(Fraction(1, 2), 100).tolist()
    [100, 61, 37, 23, 14, 9, 6, 4, 3, 2]
    """
    # Never below 2^64·e^−loss, since power_below is never above 2^160·e^loss.
    factor = (1 << 64 + 160) // power_below(loss) + 1
    weights = [top]
    while len(weights) < _MAX_TABLE:
        following = -(-weights[-1] * factor >> 64)
        if following == weights[-1]:
            break
        weights.append(following)
    table = np.array(weights, dtype=np.uint64)
    table.flags.writeable = False
    return table


@dataclass(eq=False)
class SoftmaxResponse(SymbolLaw):
    """Draws symbols by their scores; a vector maps to scores without offsets, shape (n, K).

    Attributes
    ----------
    scores : CodewordScores
    codebook : Codebook
        What the symbols stand for.
    codeword_grid : array, shape (K, dim)
        The codewords as the grid rounds them.
    offsets : float32 array, shape (K,)
        b_c in whole numbers.
    shift : int
        m is 2^shift.
    table : uint64 array
        Weights by steps below the highest score, of at most 32 bits.
    uniform : int
        γ, the chance of a uniform symbol, times 2^64.
    """

    scores: CodewordScores
    codebook: Codebook
    codeword_grid: Floats
    offsets: Singles
    shift: int
    table: Words
    uniform: int

    drawn_by = "a symbol is drawn by the scores of all codewords"

    def draw(self, x: Floats, stream: BitSource) -> Longs:
        places = stream.words(len(x), np.uint64)
        drawn = np.empty(len(x), dtype=np.int64)
        for block in row_blocks(len(x), SCORED_NUMBERS // self.size):
            sums = self._weights(x[block])
            np.cumsum(sums, axis=1, out=sums)
            place = high_product(places[block], sums[:, -1])
            beyond = sums > place[:, None]
            drawn[block] = beyond.argmax(axis=1)  # the first
        return drawn

    def _weights(self, x: Floats) -> Words:
        """Whole numbers by the exact scores; the same work for every vector."""
        scores = x + self.offsets
        highest = scores.max(axis=1, keepdims=True)
        below = np.subtract(highest, scores, out=scores)
        if self.shift:
            below *= below.dtype.type(0.5**self.shift)  # exact, and cut off next
        weights: Words = self.table.take(below.astype(np.intp), mode="clip")
        return weights

    def draw_chances(self, x: Floats) -> Doubles:
        weights = self._weights(x).astype(np.float64)
        weights /= weights.sum(axis=1, keepdims=True)
        return weights

    def mapped(self, codewords: Integers) -> Floats:
        return self.scores.apply(self.codeword_grid[codewords])


def _calibrated(parameters: Parameters, scores: CodewordScores) -> SoftmaxResponse:
    codebook = parameters.codewords
    # R: the most that a neighbour moves two scores apart, in whole numbers.
    moved = Fraction(scores.spread << GRID_BITS)
    if isinstance(parameters.adjacency, L2):
        radius = parameters.adjacency.size
        steps = neighbour_distance(radius, GRID_BITS, parameters.bounds, parameters.dim)
        moved = Fraction(steps) * Fraction(scores.distance)
    shift = max(0, math.ceil(moved / _STEPS) - 1).bit_length()
    spent = Fraction(parameters.budget) * (1 - _FOR_DRAWS)
    loss = spent / steps_apart(moved, shift)
    # The codewords on the grid, within the bounds: their mean score is what offsets make equal.
    words = codebook.stated.astype(np.float64) / parameters.scale
    inside = np.clip(words, *parameters.bounds)
    rounding = parameters.grid_of(GRID_BITS, scores.max_column_l1, scores.windows)
    rounding.check_unit()
    grid = rounding.round(inside * parameters.scale)
    total = grid.sum(axis=0, keepdims=True, dtype=np.float64)
    mean = scores.apply(total)[0] / len(codebook)  # exact until it is divided
    together = parameters.record_epsilon
    return SoftmaxResponse(
        scores=scores,
        codebook=codebook,
        codeword_grid=grid.astype(np.float32),
        offsets=np.rint(-mean).astype(np.float32),
        shift=shift,
        table=falling_weights(loss),
        uniform=0 if together is None else uniform_share(len(codebook), together),
    )


def steps_apart(moved: Fraction, shift: int) -> int:
    """Return R', the steps of the table that scores ``moved`` apart by at most R cost together."""
    if shift == 0:
        return math.floor(moved)
    return (math.floor(moved) - 2 >> shift) + 2


SOFTMAX = Calibration(
    _calibrated,
    SymbolFormat,
    adjacencies=("attribute", "l2"),
    joint=True,
    moves="any",
)


_REPEATED = 128
"""Sets of at most this size are found by taking the largest again and again."""


def nearest(similarity: Floats, count: int) -> Longs:
    """Columns of the ``count`` largest of each row, ties to the smaller one, shape (n, count)."""
    rows = np.arange(len(similarity))
    if count <= _REPEATED:
        remaining = similarity.copy() if count > 1 else similarity
        columns = np.empty((len(remaining), count), dtype=np.int64)
        for i in range(count):
            columns[:, i] = remaining.argmax(axis=1)  # the first of equals
            if i + 1 < count:
                remaining[rows, columns[:, i]] = -np.inf
        return columns
    order = np.argsort(-similarity, axis=1, kind="stable")
    return order[:, :count]


class CodebookResponse(SymbolLaw):
    """Draws one of the nearest codewords; the map of a vector is its similarities to all, (n, K).

    Parameters
    ----------
    codebook : Codebook
        What the symbols stand for.
    subset : int
        w, the number of nearest codewords, 1 ≤ w < K.
    uniform : int
        Chance of a uniform symbol, times 2^64.
    """

    grid_bits = 0
    of_nearest = True

    def __init__(self, codebook: Codebook, subset: int, uniform: int) -> None:
        self.codebook = codebook
        self.subset = subset
        self.uniform = uniform

    @property
    def chance_inside(self) -> float:
        """Chance that a symbol is one of the nearest codewords, [0, 1]."""
        share = self.uniform / ONE
        return 1.0 - share * (1.0 - self.subset / self.size)

    @property
    def drawn_by(self) -> str:
        if self.subset == 1:
            return "a symbol is the nearest codeword"
        return f"a symbol is one of the {self.subset} nearest codewords"

    def draw(self, x: Floats, stream: BitSource) -> Longs:
        near = nearest(x, self.subset)
        place = draw_uniform(self.subset, len(x), stream)
        chosen: Longs = near[np.arange(len(x)), place]
        return chosen

    def draw_chances(self, x: Floats) -> Doubles:
        chances = np.zeros(x.shape)
        near = nearest(x, self.subset)
        np.put_along_axis(chances, near, 1.0 / self.subset, 1)
        return chances

    def mapped(self, codewords: Integers) -> Floats:
        return self.codebook.vectors[codewords] @ self.codebook.vectors.T


def _nearest_of(parameters: Parameters, encoder: RecordEncoder) -> CodebookResponse:
    book = parameters.codewords
    subset = parameters.subset or 1
    uniform = uniform_share(len(book), parameters.budget, subset)
    return CodebookResponse(book, subset, uniform)


CODEBOOK_RESPONSE = Calibration(
    _nearest_of,
    SymbolFormat,
    adjacencies=("record",),
    rounded=False,
)
