"""Codebooks in plans for whole records: made from the sample, and tried on the rest of it.

No vector may be a codeword itself: its own codeword would hide it from its neighbours. So at most a
third of a sample plays codewords, or 60 % of it what centroids are fitted to, and the others play
the collection; three such splits are tried. So few records leave some codewords without any, which
is rare in a collection: what that loses is taken to be inverse to the number of records
(Richardson), so half of them lose it once more. A codebook of more codewords is extrapolated: the
share of right answers rises by the same amount whenever the codewords double, recall within many
candidates by half as much at each doubling. Twice the codewords make subsets of w of them half as
wide, or, if w doubles too, leave them as wide: both rises are measured, from half of that third to
the whole. The rules were chosen with CLINC150, MNIST and trigrams of newsgroups in sight.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import faiss
import numpy as np

from dpindex.base.arrays import Integers, Singles, Vectors, spaced, unit, whole_number
from dpindex.base.errors import InputError
from dpindex.mechanism.parameters import MAX_SIZE, MIN_SIZE, Codebook
from dpindex.mechanism.spec import Spec
from dpindex.study.planner.plan_result import Found, Row
from dpindex.study.planner.population import Population
from dpindex.study.planner.prediction import Prediction, noise_share

_SPLITS = 3
_CODEWORDS = 4000
# Vectors of the sample, in a hundred, that centroids are fitted to.
_CENTROID_PERCENT = 60
# Vectors of the sample for each codeword, and for each centroid, in codebooks that are tried.
_SHARES = (1, 4)
_CENTROID_SHARES = (8, 13, 20)
_MIN_CODEWORDS = 64
_MAX_CENTROIDS = 1000
_SUBSETS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96)
_RECORDS = 8000

_ITERATIONS = 25
# Most further rounds of so many iterations.
_ROUNDS = 4
_SAME_COSINE = 1.0 - 1e-5


class Split(NamedTuple):
    """Codewords, and other vectors that play the collection."""

    words: Codebook
    population: Population


class CodebookPlan:
    """Codebooks that can be made from a sample, and predictions for them.

    Parameters
    ----------
    vectors : float32 array, shape (m, dim)
        The sample; directions count.
    groups : int array, shape (m,), optional
        As of :class:`Population`. No vector has others of its group among the codewords.
    n : int
        Vectors in the collection.
    queries : int or float32 array
        As of :class:`Population`.
    """

    def __init__(
        self, vectors: Singles, groups: Integers | None, n: int, queries: int | Vectors
    ) -> None:
        self._vectors = vectors
        self._groups = np.arange(len(vectors)) if groups is None else groups
        self._n = n
        self._queries = queries
        self.centroid_books: set[Codebook] = set()
        """Codebooks of centroids."""
        self._books: dict[tuple[int, bool], Codebook] = {}
        self._split = lru_cache(maxsize=None)(self._split_at)

    def books(self) -> Iterator[Codebook]:
        """Yield the codebooks to try, the largest of each kind first."""
        rows = len(self._vectors)
        for share in _SHARES:
            yield self._book(max(_MIN_CODEWORDS, rows // share), centroids=False)
        for share in _CENTROID_SHARES:
            if _MIN_CODEWORDS <= rows // share <= _MAX_CENTROIDS:
                yield self._book(rows // share, centroids=True)

    def _book(self, size: int, *, centroids: bool) -> Codebook:
        book = self._books.get((size, centroids))
        if book is None:
            make = fit_codebook if centroids else Codebook.spaced
            book = self._books[size, centroids] = make(self._vectors, size)
            if centroids:
                self.centroid_books.add(book)
        return book

    def row(
        self, spec: Spec, rounds: int, at: int, ladder: Sequence[int], splits: int = _SPLITS
    ) -> Row:
        """Return the prediction for a spec with one of :meth:`books`, from so many splits.

        ``rounds``, ``at`` and ``ladder`` are those of :class:`Prediction`.
        """
        size, subset = spec.symbol_law.size, spec.symbol_law.subset
        centroids = spec.codebook in self.centroid_books
        played, played_subset = size, subset
        if not centroids:
            played = min(size, len(self._vectors) // _SPLITS, _CODEWORDS)
            if played < size and subset * played >= size:  # the same share of fewer codewords
                played_subset = round(subset * played / size)
                played = size * played_subset // subset
            else:
                played_subset = min(subset, max(1, round(subset * played / size)))

        def shares(codewords: int, words: int, step: int = 1) -> Any:
            arrays = []
            for first in range(splits):
                split = self._split(codewords, centroids, first, step)
                played_spec = _played(spec, split.words, words)
                prediction = Prediction(played_spec, split.population, rounds)
                arrays.append([found.to_array() for found in prediction.found(at, ladder)])
            return np.mean(arrays, axis=0)

        whole = shares(played, played_subset)
        found = whole + np.maximum(whole - shares(played, played_subset, step=2), 0.0)
        if played < size:
            half = shares(played // 2, played_subset)
            wider = shares(played, 2 * played_subset)
            subset_doublings = math.log2(subset / played_subset)
            size_doublings = math.log2(size / played) - subset_doublings
            # Recall of first answers goes on rising by as much; within more candidates every
            # doubling is taken to add half of what the one before it added.
            steady = np.array([True, True, *(number <= at for number in ladder)])
            for doublings, doubled in ((size_doublings, whole), (subset_doublings, wider)):
                reach = np.where(steady, doublings, 1.0 - 0.5**doublings)
                found = found + reach * np.maximum(doubled - half, 0.0)
        private, exact = (Found.from_array(line, ladder) for line in np.minimum(found, 1.0))
        return Row(
            spec, "plain", private, exact, spec.format.max_row_bytes,
            noise_share(spec, self._vectors), centroids,
        )  # fmt: skip

    def played(self, spec: Spec) -> tuple[Spec, Population]:
        """Return a spec with codewords of a part of the sample, and the rest, to be attacked."""
        centroids = spec.codebook in self.centroid_books
        size = min(spec.symbol_law.size, len(self._vectors) // _SPLITS)
        split = self._split(size, centroids, 0, 1)
        subset = max(1, round(spec.symbol_law.subset * size / spec.symbol_law.size))
        return _played(spec, split.words, subset), split.population

    def _split_at(self, size: int, centroids: bool, first: int, step: int) -> Split:
        """Return ``size`` codewords, and others of which none has a sibling among them.

        Every ``step``-th of these is there.
        """
        rows = len(self._vectors)
        fitted = size
        if centroids:
            fitted = rows * _CENTROID_PERCENT // 100
        given = self._rows_of_groups(fitted, first)
        words = self._vectors[given[spaced(len(given), fitted)]]
        book = fit_codebook(words, size) if centroids else Codebook(words)
        others = np.setdiff1d(np.arange(rows), given)
        others = others[spaced(len(others), _RECORDS)]
        others = others[::step]
        population = Population(
            self._vectors[others],
            self._n,
            self._queries,
            groups=self._groups[others],
            near_ranks=False,
        )
        return Split(book, population)

    def _rows_of_groups(self, count: int, first: int) -> Integers:
        """Return the rows of evenly spaced groups that have ``count`` rows or more in all."""
        groups = int(self._groups.max()) + 1
        needed = -(-groups * count // len(self._groups))
        while True:
            chosen = (spaced(groups, needed) + first) % groups
            rows: Integers = np.flatnonzero(np.isin(self._groups, chosen))
            if len(rows) >= count:
                return rows
            needed += 1


def _played(spec: Spec, words: Codebook, subset: int) -> Spec:
    """Return a spec of other codewords whose reports are inside their subset as often.

    The chance is ``w·e^ε/(w·e^ε + K − w)``, which gives the epsilon.
    """
    law = spec.symbol_law
    odds = (law.size - law.subset) / law.subset * subset / (len(words) - subset)
    epsilon = min(max(spec.budget - math.log(odds), 0.001), 64.0)
    return replace(spec, codebook=words, subset=subset, epsilon=epsilon, k=None)


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


def fit_codebook(public: Any, size: int) -> Codebook:
    """Return a codebook of ``size`` codewords made of public vectors.

    Fewer codewords than vectors are the centroids of spherical k-means (Dhillon & Modha 2001). More
    are the vectors and points half-way between near neighbours: first between each vector and its
    nearest, then its second nearest, and so on. Smaller codebooks are better at small epsilons and
    with private queries, larger ones at large epsilons and with exact queries: ``plan`` compares.

    Parameters
    ----------
    public : array, sparse matrix, path or VectorSource, shape (n, dim)
        Chosen without looking at the private vectors; of more than 65536, so many evenly spaced
        ones are used. Equal directions count once.
    size : int
        Codewords wanted, [2, 65536].

    Raises
    ------
    InputError
        For vectors that are no codebook themselves, and sizes that they cannot be grown to.

    >>> rng = np.random.default_rng(0)
    >>> public = rng.normal(size=(50, 8))
    >>> len(fit_codebook(public, 10)), len(fit_codebook(public, 80))
    (10, 80)
    """
    whole_number(size, "the size of a codebook", MIN_SIZE, MAX_SIZE)
    sample = Codebook.spaced(public, MAX_SIZE)
    _, first = np.unique(sample.vectors, axis=0, return_index=True)
    first.sort()
    if size == len(first):
        return Codebook(sample.stated[first])
    vectors = sample.vectors[first]
    if size < len(first):
        return Codebook(_centroids(vectors, size))
    return Codebook(_grown(vectors, size))


def _centroids(vectors: Singles, size: int) -> Singles:
    kmeans = faiss.Kmeans(
        vectors.shape[1],
        size,
        niter=_ITERATIONS,
        spherical=True,
        min_points_per_centroid=1,
        max_points_per_centroid=MAX_SIZE,
    )
    kmeans.train(vectors)
    for _ in range(_ROUNDS):
        # Until little moves: the leak check knows centroids by it, should these not be public.
        centroids = kmeans.centroids
        kmeans.train(vectors, init_centroids=centroids)
        if np.array_equal(centroids, kmeans.centroids):
            break
    return np.asarray(kmeans.centroids)


def _grown(vectors: Singles, size: int) -> Singles:
    """Return the vectors and ``size − n`` midpoints of different pairs, near neighbours first."""
    count = len(vectors)
    missing = size - count
    flat = faiss.IndexFlatIP(vectors.shape[1])
    flat.add(vectors)
    reach = 4 * -(-missing // count)
    while True:
        cosines, near = flat.search(vectors, min(reach, count))
        # Column by column: the nearest of every vector come before the second nearest.
        left = np.tile(np.arange(count), near.shape[1])
        right = near.T.ravel()
        apart = (np.abs(cosines.T.ravel()) < _SAME_COSINE) & (left != right)
        low = np.minimum(left, right)[apart]
        high = np.maximum(left, right)[apart]
        _, first = np.unique(low * count + high, return_index=True)
        if len(first) >= missing:
            break
        if reach >= count:
            raise InputError(
                f"{count} public vectors have {len(first)} different pairs, so a codebook of at "
                f"most {count + len(first)} codewords can be grown from them, not {size}."
            )
        reach *= 2
    kept = np.sort(first)[:missing]
    sums = vectors[low[kept]] + vectors[high[kept]]
    return np.concatenate([vectors, unit(sums)])
