"""Codebook response: a record becomes one symbol, and any two records look alike.

Subset selection turned round (a two-level, extremal mechanism: Kairouz, Oh & Viswanath 2016). W(u)
is the set of the w codewords nearest to u. With probability p the symbol is uniform on W(u), else
uniform on the other K − w. Every record gives a symbol probability p/w or (1−p)/(K−w), so the ratio
of two records is at most e^ε for ``p = w·e^ε/(w·e^ε + K − w)``.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import numpy.typing as npt

from dpindex.base.arrays import Floats
from dpindex.base.errors import InputError
from dpindex.mechanism.codebook import Codebook
from dpindex.mechanism.codes.symbols import SymbolFormat
from dpindex.mechanism.noise.law import ONE, Calibration, SymbolLaw, two_level_chance
from dpindex.mechanism.parameters import Parameters
from dpindex.mechanism.projections import Projection
from dpindex.randomness import BitSource

_REPEATED = 32
"""Sets of at most so many are found by taking the largest again and again."""


def draw_uniform(limit: int, count: int, stream: BitSource) -> npt.NDArray[np.int64]:
    """``⌊word·limit/2^64⌋``: whole numbers below limit < 2^32, the same work for every draw.

    Each is drawn by ⌊2^64/limit⌋ of the words, or by one word more.
    """
    words = stream.words(count, np.uint64)
    high = words >> np.uint64(32)
    low = words & np.uint64((1 << 32) - 1)
    size = np.uint64(limit)
    product = high * size + ((low * size) >> np.uint64(32))
    return (product >> np.uint64(32)).astype(np.int64)


def nearest(similarity: Floats, count: int) -> npt.NDArray[np.int64]:
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
    """Draws symbols; ``perturb`` takes similarities to all codewords, shape (n, K).

    Parameters
    ----------
    codebook : Codebook
        What the symbols stand for.
    subset : int
        w, 1 ≤ w < K.
    inside : int
        Chance of the set of nearest codewords, times 2^64.
    """

    grid_bits = 0

    def __init__(self, codebook: Codebook, subset: int, inside: int) -> None:
        self.codebook = codebook
        self.subset = subset
        self.inside = inside

    def ratio(self) -> Fraction:
        """The largest ratio of the probabilities of one symbol under two records, exactly."""
        outside = self.size - self.subset
        chances = [
            Fraction(side * words, ONE)
            for side, limit in ((self.inside, self.subset), (ONE - self.inside, outside))
            for words in (ONE // limit, -(-ONE // limit))
        ]
        return max(chances) / min(chances)

    def perturb(self, x: Floats, stream: BitSource) -> npt.NDArray[np.int64]:
        count = len(x)
        near = nearest(x, self.subset)
        inside = stream.words(count, np.uint64) < np.uint64(self.inside)
        chosen = near[np.arange(count), draw_uniform(self.subset, count, stream)]
        outside = draw_uniform(self.size - self.subset, count, stream)
        # The drawn symbol, counted among those that the set leaves free.
        near.sort(axis=1)
        for i in range(self.subset):
            outside += outside >= near[:, i]
        return np.where(inside, chosen, outside)


def codebook_response(codebook: Codebook, subset: int, epsilon: float) -> CodebookResponse:
    """The response with sets of ``subset`` codewords at that epsilon.

    The chance of the set is rounded down until the ratio is at most e^ε in integers, the rounding
    of both uniform draws counted.
    """
    most_words = -(-ONE // subset)
    least_words = ONE // (len(codebook) - subset)
    # inside·most ≤ e^ε·(2^64 − inside)·least
    inside = two_level_chance(epsilon, least_words, most_words)
    return CodebookResponse(codebook, subset, inside)


def _calibrated(parameters: Parameters, projection: Projection) -> CodebookResponse:
    if parameters.codebook is None or parameters.subset is None:
        raise InputError(f"{parameters.method} needs a codebook.")
    return codebook_response(parameters.codebook, parameters.subset, parameters.budget)


CODEBOOK_RESPONSE = Calibration(_calibrated, SymbolFormat, adjacencies=("record",), rounded=False)
