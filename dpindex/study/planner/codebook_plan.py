"""Codebooks in plans for whole records: made from the sample, and tried on the rest of it.

No vector may be a codeword itself: its own codeword would hide it from its neighbours. So at most a
third of a sample plays codewords, or 60 % of it what centroids are fitted to, and the others play
the collection: each of m stands for n/m vectors of it, so the true neighbours of a query are its
nearest by the same share. Three such splits are tried. What a search finds is the expectation over
the reports of all records, which are few numbers: no code is drawn.

Two things are extrapolated. So few records leave some codewords without any, which is rare in a
collection: what that loses is taken to be inverse to the number of records (Richardson), so half of
them lose it once more. And the share of right answers rises by the same amount whenever the
codewords double, recall within many candidates by half as much at each doubling. Twice the
codewords make subsets of w of them half as wide, or, if w doubles too, leave them as wide: both
rises are measured, from half of that third to the whole. The rules were chosen with CLINC150, MNIST
and trigrams of newsgroups in sight.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import faiss
import numpy as np

from dpindex.base.arrays import Doubles, Integers, Singles, spaced, unit, whole_number
from dpindex.base.errors import InputError
from dpindex.mechanism.public_parts import MAX_SIZE, MIN_SIZE, Codebook
from dpindex.mechanism.public_random import PublicStream
from dpindex.mechanism.spec import Spec
from dpindex.study.planner.plan_result import FOUND, Found, Row
from dpindex.study.planner.population import NEIGHBOURS

_SPLITS = 3
_CODEWORDS = 4000
# Vectors of the sample, in a hundred, that centroids are fitted to.
_CENTROID_PERCENT = 60
# Vectors of the sample for each codeword, and for each centroid, in codebooks that are tried.
_SHARES = (1, 4)
_CENTROID_SHARES = (8, 13, 20)
_MIN_CODEWORDS = 64
_MAX_CENTROIDS = 1000
# Centroids for each time that the candidates go into the collection: cells of about as many records
# as are asked for are best at small epsilons, and a report is then of the nearest centroid alone.
_CELLS = (2, 3, 4, 5)
_MIN_CELLS = 25
_SUBSETS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96)
_RECORDS = 8000
# Reports of each query among its nearest codewords, and among the others.
_REPORTS = 4

_ITERATIONS = 25
# Most further rounds of so many iterations.
_ROUNDS = 4
_SAME_COSINE = 1.0 - 1e-5
_TINY = 1e-30


class CodebookPlan:
    """Codebooks that can be made from a sample, and predictions for them.

    Parameters
    ----------
    vectors : float32 array, shape (m, dim)
        The sample, of norm 1.
    groups : int array, shape (m,), optional
        Vectors of one group, such as captions of one picture, resemble each other more than others
        do. No vector has others of its group among the codewords, and no query among the records.
    n : int
        Vectors in the collection.
    queries : int or float32 array
        How many of the vectors play queries, or public queries of norm 1, shape (q, dim).
    """

    def __init__(
        self, vectors: Singles, groups: Integers | None, n: int, queries: int | Singles
    ) -> None:
        self._vectors = vectors
        self._groups = np.arange(len(vectors)) if groups is None else groups
        self._n = n
        self._queries = queries
        self.centroid_books: set[Codebook] = set()
        """Codebooks of centroids."""
        self._book = lru_cache(maxsize=None)(self._new_book)
        self._split = lru_cache(maxsize=None)(self._new_split)

    def books(self, epsilon: float, at: int, candidates: int) -> Iterator[tuple[Codebook, int]]:
        """Yield codebooks and subset sizes to try, the largest codebooks of each kind first."""
        rows = len(self._vectors)
        sizes = [max(_MIN_CODEWORDS, rows // share) for share in _SHARES]
        few = [rows // share for share in _CENTROID_SHARES]
        few = [size for size in few if _MIN_CODEWORDS <= size <= _MAX_CENTROIDS]
        for size in (*sizes, *few):
            book = self._book(size, size in few)
            for subset in promising_subsets(size, epsilon, candidates > at):
                yield book, subset
        largest = min(rows // _CENTROID_SHARES[0], _MAX_CENTROIDS)
        cells = {max(_MIN_CELLS, cells * self._n // candidates) for cells in _CELLS}
        for size in sorted(size for size in cells if size <= largest):
            yield self._book(size, True), 1

    def _new_book(self, size: int, centroids: bool) -> Codebook:
        if not centroids:
            return Codebook.spaced(self._vectors, size)
        book = Codebook(_centroids(self._vectors, size, rounds=0))
        self.centroid_books.add(book)
        return book

    def row(self, spec: Spec, at: int, ladder: Sequence[int]) -> Row:
        """Return the prediction for a spec with one of :meth:`books`.

        ``at`` answers and true neighbours are counted, and ``ladder`` numbers of candidates.
        """
        law = spec.codebook_law
        centroids = spec.codebook in self.centroid_books
        size = law.size
        if not centroids:
            size = min(size, len(self._vectors) // _SPLITS, _CODEWORDS)
        subset = max(1.0, law.subset * size / law.size)

        def shares(size: int, subset: float, step: int = 1) -> Doubles:
            """Return the means over the splits by query mode, shape (2, 2 + len(ladder))."""
            splits = [self._split(size, centroids, first, step) for first in range(_SPLITS)]
            found = [split.found(subset, law.chance_inside, at, ladder) for split in splits]
            return np.asarray(np.mean(found, axis=0))

        whole = shares(size, subset)
        found = whole + np.maximum(whole - shares(size, subset, step=2), 0.0)
        if size < law.size:
            half = shares(size // 2, subset)
            wider = shares(size, 2 * subset)
            subset_doublings = math.log2(law.subset / subset)
            size_doublings = math.log2(law.size / size) - subset_doublings
            # Recall of first answers goes on rising by as much; within more candidates every
            # doubling is taken to add half of what the one before it added.
            steady = np.array([True, True, *(number <= at for number in ladder)])
            for doublings, doubled in ((size_doublings, whole), (subset_doublings, wider)):
                reach = np.where(steady, doublings, 1.0 - 0.5**doublings)
                found = found + reach * np.maximum(doubled - half, 0.0)
        private, exact = (Found.from_array(line, ladder) for line in np.minimum(found, 1.0))
        noise = 1.0 - law.chance_inside
        return Row(spec, "plain", private, exact, spec.format.max_row_bytes, noise, centroids)

    def published(self, tried: Codebook) -> Codebook:
        """Return centroids of the whole sample until little moves, which takes longest."""
        return fit_codebook(self._vectors, len(tried))

    def played(self, spec: Spec) -> tuple[Spec, Singles]:
        """Return a spec with codewords of a part of the sample, and the rest, to be attacked.

        Its reports are inside their subset as often. The chance of that is
        ``w·e^ε/(w·e^ε + K − w)``, which gives the epsilon.
        """
        law = spec.codebook_law
        size = min(law.size, len(self._vectors) // _SPLITS)
        split = self._split(size, spec.codebook in self.centroid_books, 0, 1)
        subset = max(1, round(law.subset * size / law.size))
        odds = (law.size - law.subset) / law.subset * subset / (size - subset)
        epsilon = min(max(spec.budget - math.log(odds), 0.001), 64.0)
        book = Codebook(split.words)
        return replace(spec, codebook=book, subset=subset, epsilon=epsilon, k=None), split.records

    def _new_split(self, size: int, centroids: bool, first: int, step: int) -> _Split:
        """Return ``size`` codewords, and others of which none has a sibling among them.

        Every ``step``-th of these is there. ``first`` is the number of the first group that gives
        codewords.
        """
        rows = len(self._vectors)
        fitted = rows * _CENTROID_PERCENT // 100 if centroids else size
        given = self._rows_of_groups(fitted, first)
        orders: dict[int, Integers] = {}
        if step > 1:
            whole = self._split(size, centroids, first, 1)
            words, orders = whole.words, whole.orders
        else:
            words = self._vectors[given[spaced(len(given), fitted)]]
            if centroids:
                words = Codebook(_centroids(words, size, rounds=0)).vectors
        others = np.setdiff1d(np.arange(rows), given)
        others = others[spaced(len(others), min(_RECORDS, self._n))][::step]
        records = self._vectors[others]
        if not isinstance(self._queries, int):
            unseen = np.zeros((len(self._queries), len(others)), dtype=np.bool_)
            return _Split(words, records, self._queries, unseen, self._n, orders)
        asked = spaced(len(others), self._queries)
        unseen = self._groups[others[asked]][:, None] == self._groups[others]
        return _Split(words, records, records[asked], unseen, self._n, orders)

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


@dataclass(frozen=True)
class _Reports:
    """The law of a report: see :class:`dpindex.mechanism.noise.SymbolLaw`.

    Attributes
    ----------
    subset, inside : float
        As of :meth:`_Split.found`.
    chances : float64 array, shape (w,)
        Of each of the nearest codewords, given that the report is among them.
    other : float
        Chance of each codeword that is not among them.
    """

    subset: float
    inside: float
    chances: Doubles
    other: float

    @classmethod
    def of(cls, size: int, subset: float, inside: float) -> _Reports:
        """Return the law of a codebook of so many codewords."""
        chances = np.clip(subset - np.arange(math.ceil(subset)), 0.0, 1.0) / subset
        return cls(subset, inside, chances, (1.0 - inside) / (size - subset))


class _Split:
    """Codewords, and other vectors that play the collection and the queries.

    Parameters
    ----------
    words, records, queries : float32 arrays, shapes (K, dim), (m, dim) and (q, dim)
        Of norm 1.
    unseen : bool array, shape (q, m)
        Records that are not there for a query: itself and its siblings.
    n : int
        Vectors in the collection.
    orders : dict
        Codewords by nearness to one of them, filled as symbols are reported.
    """

    def __init__(
        self,
        words: Singles,
        records: Singles,
        queries: Singles,
        unseen: Any,
        n: int,
        orders: dict[int, Integers],
    ) -> None:
        self.words = words
        self.records = records
        self._n = n
        self._vectors_per_record = n / float((~unseen).sum(axis=1).mean())
        self._unseen = np.nonzero(unseen)
        count = min(len(words) - 1, 2 * _SUBSETS[-1])
        self._near = _best(records @ words.T, count)
        scores = queries @ words.T
        self._near_queries = _best(scores, count)
        self._exact = np.argsort(-scores, axis=1)
        self.orders = orders
        cosines = np.where(unseen, -np.inf, queries @ records.T)
        most = math.ceil(NEIGHBOURS / self._vectors_per_record)
        self._true = _best(cosines, min(most, len(records)))

    def found(self, subset: float, inside: float, at: int, ladder: Sequence[int]) -> Doubles:
        """Return the expected shares by query mode, shape (2, 2 + len(ladder)).

        Rows are private and exact, columns those of :meth:`Found.to_array`.

        Parameters
        ----------
        subset : float
            Nearest codewords that share a report; what it has above a whole number is the share of
            records with one more.
        inside : float
            Chance of a report among them.
        at, ladder
            As of :meth:`CodebookPlan.row`.
        """
        queries, size = self._exact.shape
        law = _Reports.of(size, subset, inside)
        near = self._near[:, : len(law.chances)]
        # Vectors of the collection that report each codeword, as each query sees them.
        weighted = np.broadcast_to(law.chances, near.shape)
        nearest = np.bincount(near.ravel(), weighted.ravel(), minlength=size)
        query, record = self._unseen
        own = np.zeros((queries, size))
        np.add.at(own, (query[:, None], near[record]), law.chances)
        counts = len(near) - np.bincount(query, minlength=queries)[:, None]
        reported = (inside - law.other * subset) * (nearest - own) + law.other * counts
        reported = np.maximum(self._vectors_per_record * reported, _TINY)

        def shares(order: Integers, rows: Integers) -> Doubles:
            return self._counted(order, reported[rows], rows, law, at, ladder)

        exact = shares(self._exact, np.arange(queries))
        # A private query is reported as a record is. Among its nearest codewords, some reports are
        # evenly spaced; any other finds true neighbours by chance alone.
        reports = min(_REPORTS, len(law.chances))
        rows = np.repeat(np.arange(queries), reports)
        words = PublicStream(0, "plan reports").words(len(rows), np.uint32)
        rank = (np.tile(np.arange(reports), queries) + words / 2.0**32) / reports * subset
        symbols = self._near_queries[rows, rank.astype(np.intp)]
        private = inside * shares(self._private(symbols), rows)
        private += (1.0 - inside) * np.array([NEIGHBOURS, at, *ladder]) / self._n
        return np.stack([private, exact])

    def _private(self, symbols: Integers) -> Integers:
        """Return all codewords, the nearest to each reported one first, (q, K)."""
        for symbol in set(symbols.tolist()) - set(self.orders):
            order = np.argsort(-(self.words @ self.words[symbol]))
            self.orders[symbol] = order.astype(np.uint16)
        return np.stack([self.orders[symbol] for symbol in symbols.tolist()]).astype(np.intp)

    def _counted(
        self,
        order: Integers,
        reported: Doubles,
        rows: Integers,
        law: _Reports,
        at: int,
        ladder: Sequence[int],
    ) -> Doubles:
        """Return the expected shares, shape (2 + len(ladder),), of queries in ``rows``.

        ``order`` holds their codewords, best first, and ``reported`` how many vectors report each.
        """
        ordered = np.take_along_axis(reported, order, axis=1)
        before = np.cumsum(ordered, axis=1) - ordered
        of_word = np.empty_like(before)
        np.put_along_axis(of_word, order, before, axis=1)
        true = self._true[rows]
        near = self._near[true, : len(law.chances)]
        query = np.arange(len(rows))
        behind = of_word[query[:, None, None], near]
        codes = reported[query[:, None, None], near]

        def share(answers: int, neighbours: int) -> float:
            # The codes of a codeword are in random order, so the last one counts in part.
            nearest = np.clip((answers - behind) / codes, 0.0, 1.0) @ law.chances
            last = (before < answers).sum(axis=1) - 1
            left = answers - before[query, last]
            all_words = last + np.minimum(left / ordered[query, last], 1.0)
            others = all_words[:, None] - law.subset * nearest
            found = law.inside * nearest + law.other * others
            ranks = np.arange(true.shape[1])
            weight = np.clip(neighbours - self._vectors_per_record * ranks, 0.0, None)
            possible = min(answers, neighbours)
            expected = found @ np.minimum(weight, self._vectors_per_record)
            return float(np.minimum(expected, possible).mean() / possible)

        within = [share(candidates, at) for candidates in ladder]
        return np.array([share(FOUND, NEIGHBOURS), share(at, at), *within])


def _best(scores: Singles, count: int) -> Integers:
    """Return where the highest scores of each row stand, best first, shape (…, count)."""
    best = np.argpartition(-scores, count - 1, axis=1)[:, :count]
    order = np.argsort(-np.take_along_axis(scores, best, axis=1), axis=1)
    return np.take_along_axis(best, order, axis=1)


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


def _centroids(vectors: Singles, size: int, rounds: int = _ROUNDS) -> Singles:
    kmeans = faiss.Kmeans(
        vectors.shape[1],
        size,
        niter=_ITERATIONS,
        spherical=True,
        min_points_per_centroid=1,
        max_points_per_centroid=MAX_SIZE,
    )
    kmeans.train(vectors)
    for _ in range(rounds):
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
