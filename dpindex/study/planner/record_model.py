"""Model of whole records: recall of record-level methods, predicted on a public sample.

Sampled vectors play the collection: each of m stands for n/m vectors of it, so the true neighbours
of a query are its nearest by the same share. Vectors between the sampled ones, as in
:mod:`dpindex.study.planner.collection_model`, would lie in the middle between codewords, where
private vectors do not.

For a codebook the sample is split: at most a third of it are codewords, the rest records and
queries, which are no codewords themselves: their own codewords would hide from each other. Two
things are extrapolated. So few records leave some codewords without any, which is rare in a
collection: what that loses is taken to be inverse to the number of records (Richardson), so half
of them lose it once more. And the share of right answers rises by the same amount whenever the
codewords double, recall within many candidates by half as much at each doubling. Twice the
codewords make subsets of w of them half as wide, or, if w doubles too, leave them as wide: both
rises are measured, from half of that third to the whole. The rules were chosen with CLINC150, MNIST
and trigrams of newsgroups in sight.
"""

from __future__ import annotations

import math
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dpindex.base.arrays import Doubles, Singles, in_units_of_largest, row_blocks, spaced, unit
from dpindex.mechanism.noise import SymbolLaw
from dpindex.mechanism.parameters import Codebook
from dpindex.mechanism.privatizer import Privatizer
from dpindex.mechanism.public_random import PublicStream
from dpindex.mechanism.spec import Spec
from dpindex.study.plan_options import FOUND, PlanOptions
from dpindex.study.planner.codebook_fit import fit_codebook
from dpindex.study.planner.plan_result import Found, Row
from dpindex.study.planner.public_sample import Sample
from dpindex.study.planner.retrieval import best_columns, shares_found, tie_breaks

__all__ = ["RecordModel"]

_RECORDS = 2000
_QUERIES = 250
_BEST = 128
# Codes of each record.
_ROUNDS = 4
# At most one in three vectors of the sample, and so many, plays a codeword; twice as many records.
_SPLITS = 3
# Vectors of the sample, in a hundred, that centroids are fitted to.
_CENTROID_PERCENT = 60
_CODEWORDS = 4000
_BLOCK = 256
_SUBSETS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96)

Indices = npt.NDArray[np.intp]


class RecordModel:
    """A collection of ``n`` vectors like those of a public sample.

    Parameters
    ----------
    sample : Sample
        At most 65 536 public vectors; directions count.
    n : int
        Vectors in the collection.
    """

    def __init__(self, sample: Sample, n: int) -> None:
        self._sample = sample.vectors
        self._groups = sample.groups
        self._n = n
        self._unit = unit(in_units_of_largest(sample.vectors))
        self._queries = None
        if sample.queries is not None:
            asked = sample.queries[spaced(len(sample.queries), _QUERIES)]
            self._queries = unit(in_units_of_largest(asked))
        self._records = self._records_of(spaced(len(self._unit), min(_RECORDS, n)))
        self._centroid_books: set[Codebook] = set()
        self.codebook = lru_cache(maxsize=None)(self._codebook)
        self._centroids = lru_cache(maxsize=None)(partial(fit_codebook, sample.vectors))
        self._split = lru_cache(maxsize=None)(self._split_at)

    def _codebook(self, size: int) -> Codebook:
        """Return a codebook of that many vectors of the sample, evenly spaced."""
        return Codebook.spaced(self._sample, size)

    def centroids(self, size: int) -> Codebook:
        """Return the codebook of so many centroids of the sample."""
        book = self._centroids(size)
        self._centroid_books.add(book)
        return book

    def predict(self, spec: Spec, options: PlanOptions) -> Row:
        """Return what is expected to be found, in the terms of a plan's options."""
        if isinstance(spec.law, SymbolLaw):
            return self._predict_symbols(spec, spec.law, options)
        privatizer = Privatizer(spec)
        records = self._records
        codes = privatizer.privatize(np.concatenate([records.vectors] * _ROUNDS))
        decoded = unit(codes.to_float())
        queries = records.queries
        noisy = privatizer.privatize(queries).to_float()
        projected = privatizer.project(queries)
        private_scores = [row @ decoded.T for row in unit(noisy)]
        exact_scores = [row @ decoded.T for row in unit(projected)]
        private = records.found(private_scores, options)
        exact = records.found(exact_scores, options)
        noise = spec.format.noise_share(noisy, projected * spec.step)
        return Row(spec, "plain", private, exact, int(codes.stored[0].nbytes), noise)

    def _predict_symbols(self, spec: Spec, law: SymbolLaw, options: PlanOptions) -> Row:
        centroids = spec.codebook in self._centroid_books
        size = law.size
        if not centroids:
            size = min(size, len(self._unit) // _SPLITS, _CODEWORDS)
        subset = max(1.0, law.subset * size / law.size)
        played = _PlayedCodebook(size, subset, law.inside, centroids)
        whole = self._found_with(played, options)
        half_records = self._found_with(played, options, step=2)
        shares = whole + _rise(half_records, whole)
        if size < law.size:
            half_size = self._found_with(played._replace(size=size // 2), options)
            double_subset = self._found_with(played._replace(subset=2 * subset), options)
            subset_doublings = math.log2(law.subset / subset)
            size_doublings = math.log2(law.size / size) - subset_doublings
            shares = shares + _reach(size_doublings, options) * _rise(half_size, whole)
            shares = shares + _reach(subset_doublings, options) * _rise(half_size, double_subset)
        private, exact = (
            Found.from_array(row, options.ladder) for row in np.minimum(shares, 1.0).tolist()
        )
        size_in_bytes = spec.format.max_row_bytes
        return Row(spec, "plain", private, exact, size_in_bytes, played.noise, centroids)

    def _records_of(self, rows: Indices) -> _Records:
        """Return the vectors in these rows with queries: public ones, or some of themselves."""
        groups = self._groups[rows]
        if self._queries is not None:
            return _Records(self._unit[rows], self._queries, None)
        asked = spaced(len(rows), _QUERIES)
        siblings = groups[asked][:, None] == groups
        return _Records(self._unit[rows], self._unit[rows[asked]], siblings)

    def _found_with(self, played: _PlayedCodebook, options: PlanOptions, step: int = 1) -> Doubles:
        """Return what is found by query mode and measure, float64, shape (2, m).

        Rows are private and exact, columns those of :meth:`Found.to_array`. One in ``step`` records
        is there.
        """
        stream = PublicStream(0, "plan symbols")
        shares = np.zeros((2, 2 + len(options.ladder)))
        for first in range(_SPLITS):
            words, records, near, near_queries = self._split(
                played.size, played.centroids, first, step
            )
            symbols = played.reported(np.concatenate([near] * _ROUNDS), stream)
            private_queries = words[played.reported(near_queries, stream)]
            for mode, queries in enumerate((private_queries, records.queries)):
                scores = [row[symbols] for row in queries @ words.T]
                shares[mode] += records.found(scores, options).to_array() / _SPLITS
        return shares

    def _split_at(
        self, size: int, centroids: bool, first: int, step: int
    ) -> tuple[Singles, _Records, Indices, Indices]:
        """Return codewords, records among the others, and nearest codewords of records and queries.

        The nearest, at most 128, are best first. ``first`` is the number of the first group that
        gives codewords; no record has a sibling among them.
        """
        rows = len(self._unit)
        fitted = size
        if centroids:
            fitted = rows * _CENTROID_PERCENT // 100
        given = self._rows_of_groups(fitted, first)
        words = self._unit[given[spaced(len(given), fitted)]]
        if centroids:
            words = fit_codebook(words, size).vectors
        others = np.setdiff1d(np.arange(rows), given)
        chosen = spaced(len(others), min(2 * _CODEWORDS, self._n))[::step]
        records = self._records_of(others[chosen])
        count = min(size - 1, _BEST)
        near = _nearest(records.vectors, words, count)
        return words, records, near, _nearest(records.queries, words, count)

    def _rows_of_groups(self, count: int, first: int) -> Indices:
        """Return the rows of evenly spaced groups that have ``count`` rows or more in all."""
        groups = int(self._groups.max()) + 1
        needed = -(-groups * count // len(self._groups))
        while True:
            chosen = (spaced(groups, needed) + first) % groups
            rows = np.flatnonzero(np.isin(self._groups, chosen))
            if len(rows) >= count:
                return rows
            needed += 1


def _nearest(vectors: Singles, words: Singles, count: int) -> Indices:
    """Return the rows of the nearest codewords of each vector, best first."""
    blocks = row_blocks(len(vectors), _BLOCK)
    return np.concatenate([best_columns(vectors[rows] @ words.T, count) for rows in blocks])


class _PlayedCodebook(NamedTuple):
    """A codebook of the model: how a record with known nearest codewords is reported.

    Attributes
    ----------
    size : int
        Number of codewords.
    subset : float
        Nearest codewords that share the report; what it has above a whole number is the share of
        records with one more.
    inside : int
        Chance of a report among them, times 2^64.
    centroids : bool
        Codewords are centroids of a part of the sample, not vectors of it.
    """

    size: int
    subset: float
    inside: int
    centroids: bool = False

    @property
    def noise(self) -> float:
        """Share of the reports outside the set of nearest codewords, [0, 1]."""
        return 1.0 - self.inside / 2.0**64

    def reported(self, near: Indices, stream: PublicStream) -> Indices:
        """Return a symbol for each row of nearest codewords, shape (n,)."""
        count = len(near)
        kept = stream.words(count, np.uint64) < np.uint64(self.inside)
        nearest = near[np.arange(count), _uniform(self.subset, count, stream)]
        return np.where(kept, nearest, _uniform(self.size, count, stream))


def _uniform(limit: float, count: int, stream: PublicStream) -> Indices:
    """Return whole numbers in [0, limit)."""
    numbers = stream.words(count, np.uint32) / 2.0**32 * limit
    return numbers.astype(np.intp)


class _Records:
    """Vectors that play the collection, and the queries.

    Parameters
    ----------
    vectors : float32 array, shape (m, dim)
        Of norm 1.
    queries : float32 array, shape (q, dim)
        Of norm 1.
    left_out : bool array, shape (q, m), optional
        Vectors that are not there for a query: itself and its siblings.
    """

    def __init__(
        self, vectors: Singles, queries: Singles, left_out: npt.NDArray[np.bool_] | None
    ) -> None:
        self.vectors = vectors
        self.queries = queries
        if left_out is None:
            left_out = np.zeros((len(queries), len(vectors)), dtype=np.bool_)
        cosines = queries @ vectors.T
        cosines[left_out] = -np.inf  # behind all others
        order = np.argsort(-cosines, axis=1, kind="stable")
        self._nearer = np.argsort(order, axis=1).astype(np.float64)
        self._left_out = np.tile(left_out, _ROUNDS)
        self._count = len(vectors) - float(left_out.sum(axis=1).mean())

    def found(self, scores: list[Singles], options: PlanOptions) -> Found:
        """Return what is found in the collection by the scores of four codes of each record."""
        per_record = options.n / self._count
        per_code = per_record / _ROUNDS
        breaks = tie_breaks(scores[0].size)
        needed = math.ceil(max(FOUND, *options.ladder) / per_code)
        there = scores[0].size - int(self._left_out.sum(axis=1).max())
        count = min(max(_BEST, needed), there)
        nearer = np.empty((len(scores), count))
        for i, score in enumerate(scores):
            value = score + breaks
            value[self._left_out[i]] = -np.inf
            nearer[i] = self._nearer[i][best_columns(value, count) % len(self.vectors)]

        def true_weight(neighbours: int) -> Doubles:
            true: Doubles = per_code * np.clip(neighbours / per_record - nearer, 0.0, 1.0)
            return true

        weight = np.full((1, count), per_code)
        return shares_found(weight, true_weight, options.at, options.ladder)


def _rise(half: Doubles, whole: Doubles) -> Doubles:
    """Return the gain in shares when a size doubles; negative gains are noise and count as 0."""
    return np.maximum(whole - half, 0.0)


def _reach(doublings: float, options: PlanOptions) -> Doubles:
    """Return how many times the last doubling's rise is still to come, by measure, shape (m,).

    The share of right first answers goes on rising by as much. Recall within more candidates levels
    off: every doubling is taken to add half of what the one before it added.
    """
    steady = np.array([True, True, *(number <= options.at for number in options.ladder)])
    return np.where(steady, doublings, 1.0 - 0.5**doublings)


def promising_subsets(size: int, epsilon: float, reranked: bool) -> tuple[int, ...]:
    """Return sizes of sets of nearest codewords that are worth trying.

    Small sets say where a record lies and are seldom reported, large ones say little. A search for
    ten answers needs precise reports, of which about half may be random. One for a thousand
    candidates needs reports that are nearly always true: ``w·e^ε/K`` from 0.7 to 5 times ``ε − 1``,
    where a report carries the most information.

    >>> promising_subsets(4000, 8.0, reranked=False), promising_subsets(4000, 8.0, reranked=True)
    ((1, 2, 4, 8), (8, 12, 16, 24, 32))
    """
    odds = math.exp(epsilon) / size
    most = min(96, size // 2)
    if reranked:
        informative = max(1.0, epsilon - 1.0) / odds
        least = 0.7 * informative
        sizes = [w for w in _SUBSETS if w <= min(most, 5 * informative)]
        return tuple(w for w in sizes if w >= least) or tuple(sizes[-1:]) or (1, 2)
    powers = [1 << i for i in range(7) if 1 << i <= most]
    inside = {w: w * odds / (w * odds + 1) for w in powers}
    promising = tuple(w for w, chance in inside.items() if 0.2 <= chance <= 0.9)
    if promising:
        return promising
    if odds > 1:
        return (powers[0],)
    return (powers[-1],)
