"""Coverage of a collection by a codebook, estimated from codes and public parameters alone.

A codebook of public vectors of another kind, or of other topics, has few codewords near the private
vectors, and their codes crowd on these. How unevenly vectors fall on codewords is the chance that
two of them share one of their w nearest, times K: 1 if all codewords are equally near. Random
halves of the codewords show what it is for public vectors, with w/2 of the other half. In codes the
chance is known without their noise, whose law is public. Codes in, a number out: this spends
nothing.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from dpindex.base.arrays import Floats, Singles, in_units_of_largest, spaced, unit
from dpindex.mechanism.codes import Codes
from dpindex.mechanism.noise import SymbolLaw
from dpindex.mechanism.noise.symbols import nearest
from dpindex.mechanism.parameters import Codebook
from dpindex.mechanism.public_random import PublicStream

__all__ = ["SAMPLED_SYMBOLS", "crowding", "far_queries"]

SAMPLED_SYMBOLS = 4096
"""Symbols of an index that its crowding is estimated from, at most."""

_COMPARED = 2048
_DEVIATIONS = 4.0
_MAX_HALVES = 16
_ENOUGH_PAIRS = 2000
_FAR = 0.05
"""Share of public vectors that count as far."""


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
    falls = np.bincount(symbols, minlength=law.size).astype(np.float64)
    collisions = law.size * float((falls * (falls - 1.0)).sum()) / (count * (count - 1))
    # A symbol is of the near set with the chance `near` more than of any other set of w.
    outside = (1.0 - law.chance_inside) / (law.size - law.subset)
    near = law.chance_inside - outside * law.subset
    observed = (collisions - 1.0 + near**2) / near**2
    deviation = math.sqrt(2.0 * law.size * max(collisions, 1.0)) / count / near**2
    expected, relative = _expected(law)
    least = (observed - _DEVIATIONS * deviation) / (expected * (1.0 + _DEVIATIONS * relative))
    return max(least, 0.0)


@lru_cache(maxsize=8)
def _expected(law: SymbolLaw) -> tuple[float, float]:
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
            left = words[half]
            right = words[np.setdiff1d(order, half)]
            share, met = _met(left, right[spaced(len(right), _COMPARED)], subset)
            shares.append(share)
            pairs += met
    expected = max(float(np.mean(shares)), 1.0)
    return expected, 1.0 / math.sqrt(max(pairs, 1.0))


def _met(left: Singles, right: Singles, subset: int) -> tuple[float, float]:
    """Return the crowding of vectors on codewords ``left``, and in how many pairs of vectors.

    Pairs are of different vectors: one has no codeword twice.
    """
    near = nearest(right @ left.T, min(subset, len(left)))
    falls = np.bincount(near.ravel(), minlength=len(left)).astype(np.float64)
    met = float((falls * (falls - 1.0)).sum()) / subset**2
    count = len(right)
    return len(left) * met / max(count * (count - 1), 1), met / 2.0


def far_queries(queries: Floats, codebook: Codebook) -> float:
    """Return the share of queries that lie farther from the codebook than public vectors do.

    Farther means that the nearest codeword is farther than that of 95 in 100 codewords is, if every
    second codeword is left out; so it is 0.05 for queries of the codebook's kind.

    >>> book = Codebook(np.random.default_rng(0).normal(size=(400, 8)))
    >>> far_queries(np.random.default_rng(1).normal(size=(500, 8)), book) < 0.15
    True
    """
    left = codebook.vectors[::2]
    asked = unit(in_units_of_largest(queries[spaced(len(queries), _COMPARED)]))
    found = (asked @ left.T).max(axis=1)
    return float((found < _least_usual(codebook)).mean())


@lru_cache(maxsize=8)
def _least_usual(codebook: Codebook) -> float:
    """Return the cosine to the nearest codeword that 95 in 100 codewords reach."""
    left = codebook.vectors[::2]
    right = codebook.vectors[1::2]
    nearest_cosine = (right[spaced(len(right), _COMPARED)] @ left.T).max(axis=1)
    return float(np.quantile(nearest_cosine, _FAR))
