"""Symbol codes: what a reported codeword says of the record, learned on public vectors.

A report is a codeword near the record or, by chance, any other. What it tells about the cosine of
the record and a query is measured on the codebook itself, which is public: its codewords play
records and queries, each compared with the *other* codewords only, and the mechanism is run on
them. The estimate is the mean cosine among such pairs that look alike, the standard error their
deviation: both are those of public vectors of the same kind.

A private query is a report too. What it tells about the query and a codeword is such a mean and
deviation, and what the record's report adds is looked up at them: pairs of reports are not run.

How badly a codebook covers a collection is read off its symbols, too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from dpindex.base.arrays import (
    AnyArray,
    Doubles,
    Floats,
    Integers,
    Singles,
    Vectors,
    matrix_product,
    row_blocks,
    spaced,
)
from dpindex.decode.base import (
    CodeLikelihoods,
    Decoder,
    Estimate,
    ExactQueries,
    Posterior,
    PrivateQueries,
    Queries,
)
from dpindex.decode.calibration import SimilarityCalibration
from dpindex.mechanism.codes import Codes, SymbolFormat
from dpindex.mechanism.noise.base import ONE, SymbolLaw
from dpindex.mechanism.noise.symbols import CodebookResponse, nearest
from dpindex.mechanism.projections import CodewordMap
from dpindex.mechanism.public_random import PublicStream
from dpindex.mechanism.spec import Projector, Spec

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


_ROLES = 2048
_ROLES_AT_ONCE = 256
_NEAR = 16
_BINS = 64
_PAIRS_OF_BIN = 64
_VECTORS = 500
"""Known vectors whose chances are computed at a time."""

_NORMAL = (
    (-math.sqrt(3.0), 1 / 6),
    (0.0, 2 / 3),
    (math.sqrt(3.0), 1 / 6),
)
"""Places and weights of Gauss–Hermite quadrature by three values."""


@dataclass(frozen=True, eq=False)
class PairCurve:
    """Mean and deviation of the cosine of two vectors by what is seen of it.

    Attributes
    ----------
    seen, mean, deviation : float64 arrays, shape (m,)
        ``seen`` ascending; values between are interpolated.
    """

    seen: Doubles
    mean: Doubles
    deviation: Doubles

    def __call__(self, seen: Doubles) -> tuple[Doubles, Doubles]:
        """Estimates and standard errors."""
        estimate = np.interp(seen, self.seen, self.mean)
        error = np.interp(seen, self.seen, self.deviation)
        return estimate, error

    def after(self, first: PairCurve) -> PairCurve:
        """Return the curve of what ``first`` makes of it, with normal errors, seen by this one."""
        mean = np.zeros_like(first.seen)
        square = np.zeros_like(first.seen)
        for place, weight in _NORMAL:
            estimate, error = self(first.mean + place * first.deviation)
            mean += weight * estimate
            square += weight * (estimate**2 + error**2)
        deviation = np.sqrt(square - mean**2)
        return PairCurve(first.seen, np.maximum.accumulate(mean), deviation)


@lru_cache(maxsize=8)
def pair_curve(law: SymbolLaw) -> PairCurve:
    """Return the curve of records that report symbols by a law."""
    words = law.codebook.vectors
    stream = PublicStream(0, "symbol pairs")
    roles = stream.permutation(len(words))[:_ROLES]
    left, right, weight = _pairs(words[roles], stream)
    records = _reports(law, roles, left, stream)
    queries = words[roles[right]]
    seen = np.einsum("ij,ij->i", words[records], queries)
    # What is seen is the reported codeword's cosine, and what is true that of the record itself.
    own = words[roles[left]]
    truth = np.einsum("ij,ij->i", own, queries)
    order = np.argsort(seen, kind="stable")
    # Fewer bins rather than emptier ones: a bin's deviation is an error that hits state.
    filled = max(1, len(order) // _PAIRS_OF_BIN)
    bins = np.array_split(order, min(_BINS, filled))
    return curve_of_bins(
        bins,
        seen.astype(np.float64),
        truth.astype(np.float64),
        weight,
    )


def _pairs(words: Singles, stream: PublicStream) -> tuple[Integers, Integers, Doubles]:
    """Return both sides of pairs of codewords, shape (pairs,), and how many each stands for.

    Pairs of near neighbours, and pairs at random, which stand for more pairs each.
    """
    count = len(words)
    cosines = words @ words.T
    np.fill_diagonal(cosines, -np.inf)
    reach = min(_NEAR, count - 1)
    # A row's near pairs stand for themselves, and its random ones for all others.
    nearest_first = np.argpartition(-cosines, reach - 1, axis=1)
    near = nearest_first[:, :reach]
    permutations = [stream.permutation(count) for _ in range(_NEAR)]
    random = np.stack(permutations, axis=1)
    left = np.repeat(np.arange(count), reach + _NEAR)
    right = np.hstack([near, random]).ravel()
    weights = np.repeat([1.0, count / _NEAR], [reach, _NEAR])
    weight = np.tile(weights, count)
    different = left != right
    return left[different], right[different], weight[different]


def _reports(
    law: SymbolLaw,
    roles: Integers,
    chosen: Integers,
    stream: PublicStream,
) -> Integers:
    """Return symbols reported for the codewords ``roles[chosen]``, never their own."""
    coins = stream.uniform(len(chosen))
    reported = np.empty(len(chosen), dtype=np.intp)
    for places in row_blocks(len(roles), _ROLES_AT_ONCE):
        chances = law.of_codewords(roles[places])
        sums = np.cumsum(chances, axis=1)
        for row, ends in enumerate(sums, places.start):
            drawn = chosen == row
            # By inversion, with the sum of chances in place of 1: rounding never points beyond the
            # last.
            below = coins[drawn] * ends[-1]
            reported[drawn] = np.searchsorted(ends, below, side="right")
    return reported


def curve_of_bins(
    bins: Sequence[Integers],
    seen: Doubles,
    truth: Doubles,
    weight: Doubles,
) -> PairCurve:
    """Return mean and deviation of the truth in bins of pairs, ascending by what is seen."""
    rows = []
    for pairs in bins:
        shares = weight[pairs] / weight[pairs].sum()
        seen_mean = float(shares @ seen[pairs])
        mean = float(shares @ truth[pairs])
        variance = float(shares @ (truth[pairs] - mean) ** 2)
        rows.append((seen_mean, mean, math.sqrt(variance)))
    seen_means, means, deviations = np.array(rows).T
    # What looks nearer is not stated to be farther: estimates keep the order that codes rank by.
    return PairCurve(seen_means, np.maximum.accumulate(means), deviations)


def codeword_similarities(queries: Queries) -> Singles:
    """Return cosines of all codewords to each query, or to its own symbol, shape (nq, K)."""
    if isinstance(queries, ExactQueries):
        cosines = queries.projections.astype(np.float64) * CodewordMap.scale
        return cosines.astype(np.float32)
    words = SymbolLaw.of(queries.spec.law).codebook.vectors
    reported = queries.codes.stored[:, 0]
    return matrix_product(words[reported], words.T)


def estimates_by_curve(
    spec: Spec,
    codes: Codes,
    queries: Queries,
    by_symbol: Singles,
    groups: int,
) -> Estimate:
    """Return what :func:`pair_curve` says of symbols: see :meth:`Estimator.estimates`.

    ``by_symbol`` is what :func:`codeword_similarities` says of the queries.
    """
    symbols = codes.stored.astype(np.intp).reshape(groups, -1)
    seen = np.take_along_axis(by_symbol, symbols, axis=1).astype(np.float64)
    curve = pair_curve(SymbolLaw.of(spec.law))
    if isinstance(queries, PrivateQueries):
        curve = curve.after(pair_curve(SymbolLaw.of(queries.spec.law)))
    return curve(seen)


_MOST_ERROR = 0.08
"""No cosine is stated whose codewords leave a larger error than this: those of pictures were off by
0.06 on average (bench/coverage)."""


class SymbolPosterior(Posterior):
    """Symbol codes, with errors that say how badly a codebook covers a collection.

    Estimates are calibrated on the codebook. A vector that no codeword resembles may be no nearer
    to the codeword of its report than a vector at random. The chance of that is learned from the
    codes of the collection; the cosine of such a vector is taken to be that of one at random, or to
    be off by half of the distance to 1. For a private query that chance is unknown and taken as 1.
    """

    @classmethod
    def fit(cls, spec: Spec, codes: Codes, rows: int) -> SimilarityCalibration:
        crowded = max(crowding(codes, SymbolLaw.of(spec.law)), 1.0)
        return SimilarityCalibration(rows, uncovered=1.0 - 1.0 / crowded)

    def estimates(self, codes: Codes, queries: Queries, groups: int) -> Estimate:
        by_symbol = codeword_similarities(queries)
        estimate, error = estimates_by_curve(self.spec, codes, queries, by_symbol, groups)
        at_random = by_symbol.mean(axis=1, keepdims=True)
        uncovered = self.calibration.uncovered
        if isinstance(queries, PrivateQueries):
            uncovered = 1.0
        # The larger error of the two that an uncovered vector may have; it counts by its chance.
        half_way = (1 - estimate) / 2
        elsewhere = np.maximum(np.abs(estimate - at_random), half_way)
        of_uncovered = math.sqrt(uncovered) * elsewhere
        return estimate, np.where(error > _MOST_ERROR, np.inf, np.hypot(error, of_uncovered))


class SymbolLikelihoods(CodeLikelihoods):
    """The chances of symbols, by their law."""

    def __init__(self, projector: Projector, known: Vectors) -> None:
        law = SymbolLaw.of(projector.spec.law)
        count = known.shape[0]
        chances = np.empty((count + 1, law.size), dtype=np.float32)
        for block in row_blocks(count, _VECTORS):
            projected = projector.project(known[block])
            chances[block] = law.chances(projected)
        chances[-1] = chances[:-1].mean(axis=0)
        self._table = np.log(chances, out=chances)

    def logs(self, codes: Codes) -> Floats:
        return self._table[:, codes.stored.ravel()]


class SymbolDecoder(Decoder):
    """The curve of :func:`pair_curve`.

    Vectors are the codewords that were reported. Items are symbols, and a query is the similarities
    of all codewords to it, or to its own symbol.
    """

    ranked_as = "symbols"
    by_symbol = True
    exact_only = True
    posterior_type = SymbolPosterior
    likelihoods = SymbolLikelihoods

    @classmethod
    def reads(cls, spec: Spec) -> bool:
        return issubclass(spec.format_type, SymbolFormat)

    def items(self, codes: Codes) -> AnyArray:
        return codes.stored

    def query_items(self, queries: Queries) -> AnyArray:
        if queries.worth is not None:
            return queries.worth
        return codeword_similarities(queries)

    def exact_queries(self, projector: Projector, vectors: Vectors) -> ExactQueries:
        words = CodewordMap(self.spec.codewords)

        def compared(block: Any, first_row: int) -> Floats:
            return words.map(projector.checked_rows(block, first_row))

        return ExactQueries(projector.in_blocks(vectors, compared), self.spec)

    def estimates(self, codes: Codes, queries: Queries, groups: int) -> Estimate:
        by_symbol = codeword_similarities(queries)
        return estimates_by_curve(self.spec, codes, queries, by_symbol, groups)
