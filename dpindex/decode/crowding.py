"""How badly a codebook covers a collection, read off the symbols."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from dpindex.base.arrays import AnyArray, Singles, spaced
from dpindex.mechanism.codes import Codes
from dpindex.mechanism.noise.base import ONE, SymbolLaw
from dpindex.mechanism.noise.symbols import CodebookResponse, nearest
from dpindex.mechanism.public_random import PublicStream

SAMPLED_SYMBOLS = 4096
"""Symbols of an index that its crowding is estimated from, at most."""

_COMPARED = 2048
_DEVIATIONS = 4.0
_MAX_HALVES = 16
_ENOUGH_PAIRS = 2000


def crowding(sample: Codes, law: SymbolLaw) -> float:
    """Return how many times as unevenly codes fall on codewords as those of public vectors would.

    It is in [0, ∞), and 1 or less if the collection resembles the codebook. The estimate is lowered
    by four standard deviations, so a larger number is no accident.

    Parameters
    ----------
    sample : Codes
        Some thousand symbols, of rows from everywhere, shape (m, 1), m ≥ 2.
    law : SymbolLaw
        Their law.
    """
    symbols = sample.stored.ravel()
    count = len(symbols)
    # Uniform symbols would meet in m(m − 1)/K ordered pairs: this is 1 for them, and larger the
    # more unevenly codewords are used.
    meetings = _pairs_on_one(symbols, law.size)
    collisions = law.size * meetings / (count * (count - 1))
    least = max(collisions, 1.0)
    deviation = math.sqrt(2.0 * law.size * least) / count
    if not isinstance(law, CodebookResponse):
        codewords = spaced(law.size, _COMPARED)
        usual = law.of_codewords(codewords).mean(axis=0)
        expected = law.size * float(usual @ usual)
        least = (collisions - _DEVIATIONS * deviation) / expected
        return max(least, 0.0)
    # Of two symbols, both are drawn by their vectors with this chance; else they meet by chance.
    drawn = (1.0 - law.uniform / ONE) ** 2
    observed = (collisions - 1.0) / drawn + 1.0
    expected, relative = _expected(law)
    deviation /= drawn
    least_observed = observed - _DEVIATIONS * deviation
    most_expected = expected * (1.0 + _DEVIATIONS * relative)
    return max(least_observed / most_expected, 0.0)


def _pairs_on_one(symbols: AnyArray, size: int) -> float:
    """Return how many ordered pairs of symbols, each below ``size``, are equal."""
    falls = np.bincount(symbols, minlength=size).astype(np.float64)
    return float((falls * (falls - 1.0)).sum())


@lru_cache(maxsize=8)
def _expected(law: CodebookResponse) -> tuple[float, float]:
    """Return what public vectors give, and its relative standard deviation.

    Few codewords in halves have few pairs on one codeword, so they are halved several times.
    """
    words = law.codebook.vectors
    subset = max(1, round(law.subset / 2))
    stream = PublicStream(0, "coverage")
    shares: list[float] = []
    pairs = 0.0
    while len(shares) < _MAX_HALVES and pairs < _ENOUGH_PAIRS:
        order = stream.permutation(len(words))
        for half in (order[::2], order[1::2]):
            # One half of the codewords plays the codebook and the other the collection: a vector is
            # never compared with itself, as no private vector is a codeword.
            other_half = np.setdiff1d(order, half)
            compared = other_half[spaced(len(other_half), _COMPARED)]
            share, met = _met(words[half], words[compared], subset)
            shares.append(share)
            pairs += met
    expected = max(float(np.mean(shares)), 1.0)
    return expected, 1.0 / math.sqrt(max(pairs, 1.0))


def _met(left: Singles, right: Singles, subset: int) -> tuple[float, float]:
    """Return the crowding of vectors on codewords ``left``, and in how many pairs of vectors.

    Pairs are of different vectors: one has no codeword twice.
    """
    near = nearest(right @ left.T, min(subset, len(left)))
    met = _pairs_on_one(near.ravel(), len(left)) / subset**2
    count = len(right)
    pairs = max(count * (count - 1), 1)
    return len(left) * met / pairs, met / 2.0
