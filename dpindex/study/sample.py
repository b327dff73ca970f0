"""The public sample of a plan, and the codebooks and populations that are made of it.

A design, or centroids, know the vectors that they are fitted to. So they are made of one half of
the sample and tried on the other; what is published is made of the whole. Codewords may be vectors
of the sample: then no vector is encoded by itself or by others of its group.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from functools import cache, cached_property
from typing import Any

import numpy as np
import scipy

from dpindex.base.arrays import Integers, Vectors, of_norm_1, row_norms, spaced
from dpindex.base.errors import InputError
from dpindex.data import VectorSource
from dpindex.decode.base import Metric
from dpindex.mechanism.codebooks import MAX_SIZE, Codebook, Guide, centroid_codebook, grown_codebook
from dpindex.mechanism.public_random import PublicStream
from dpindex.mechanism.spec import Spec
from dpindex.privacy import Record
from dpindex.study.goal import MAX_DENSE_DIM, Goal
from dpindex.study.groups import NearRows, numbered_groups
from dpindex.study.population import Population
from dpindex.study.sample_source import sample_rows

# Vectors that are used, of wide sparse ones fewer.
_ROWS = 1 << 13
_WIDE_ROWS = 2000
# Vectors that play the collection: more of a table, whose near vectors differ little.
_PLAYED = 2000
_MAX_PLAYED = 1 << 13
_PLAYED_NUMBERS = 1 << 20
# Scores of all codewords that are held for a codebook: fewer vectors play for a large one.
_SCORES = 1 << 23
_MIN_PLAYED = 1000
# Vectors for each coordinate of a code, below which a denoiser comes to know them: with 4, counts
# of 300 trigrams were promised .07 too much.
_PER_COORDINATE = 8
# Parts of the sample, of which one predicts what is counted in all.
_PARTS = 4
# Near-copies that a vector of a collection hardly has more of, on average: a dozen. If independent
# rows would have, rows are taken to come in whole groups.
_MANY_COPIES = 12
# By how much a norm may differ from 1: embeddings are often kept in float16.
_SAME_NORM = 1e-3


class Sample:
    """Public vectors that public parts are made of, and that specs are tried on.

    Parameters
    ----------
    vectors : float32 array or CSR matrix, shape (m, dim)
        As the vectors of a collection are compared: in their ranges, clipped.
    n : int
        Vectors in the collection.
    groups : int array, shape (m,), optional
        Vectors of one group, such as captions of one picture, resemble each other more than others
        do; by default those that are found, or each is a group of its own.
    metric : "cosine" or "l2"
        What neighbours are ranked by.
    queries : vectors, shape (q, dim), optional
        Public queries; by default some of the vectors play them.
    guides : bool
        Learn guides of centroids, which a share of candidates is given out by.

    Attributes
    ----------
    has_found_groups : bool
        Groups were not given, and were found.
    is_grouped : bool
        Vectors are of groups, of which no query sees its own.
    copied : float
        Share of the vectors that have near-copies; 0 where it is known whether queries have some in
        the collection.
    copies_each : float
        Near-copies of a vector in the collection, on average, if queries have some.
    played : int
        Vectors that specs are tried on, at most.
    """

    def __init__(
        self,
        vectors: Any,
        n: int,
        groups: Integers | None = None,
        metric: Metric = "cosine",
        queries: Vectors | None = None,
        guides: bool = False,
    ) -> None:
        self.vectors = vectors
        self.has_found_groups = False
        self._guides = guides
        self._queries = queries
        self._copies: Integers | None = None
        self.copied = self.copies_each = 0.0
        if groups is None:
            near = NearRows(vectors, metric)
            groups = near.groups()
            self.has_found_groups = groups is not None
            if groups is None and queries is None:
                groups = self._likely_groups(near.copies(), n)
        self._group(groups)
        is_tried = self._groups % 2 == 1
        # Designs of signs, which compare codes with public vectors, are made of three quarters if
        # the last one is enough to try them on: more find more.
        is_last = self._groups % 4 == 3
        if is_last.sum() < _MIN_PLAYED:
            is_last = is_tried
        parts = {
            "all": self._groups >= 0,
            "half": is_tried,
            "fitted": ~is_tried,
            "rest": is_last,
            "compared": ~is_last,
        }
        self._parts = {name: np.flatnonzero(part) for name, part in parts.items()}
        self._n = n
        self._metric = metric
        dim = vectors.shape[1]
        self.played = min(max(_PLAYED_NUMBERS // dim, _PLAYED), _MAX_PLAYED)
        self._centroid_books: set[Codebook] = set()
        self._ends: dict[int, Integers] = {}  # of grown codebooks, by their size
        self.book_of_vectors = cache(self._new_book_of_vectors)
        self.book_of_centroids = cache(self._new_book_of_centroids)
        self.grown_book = cache(self._new_grown_book)

    def __len__(self) -> int:
        return int(self.vectors.shape[0])

    def _likely_groups(self, copies: Integers | None, n: int) -> Integers | None:
        """Return near-copies as groups if a vector hardly has as many as independent rows would."""
        if copies is None:
            return None
        others = np.bincount(copies)[copies] - 1
        self._copies = copies
        self.copied = float((others > 0).mean())
        self.copies_each = float(others.mean()) * n / len(self)
        return copies if self.copies_each > _MANY_COPIES else None

    def _group(self, groups: Integers | None) -> None:
        self._groups = np.arange(len(self)) if groups is None else groups
        self.is_grouped = len(np.unique(self._groups)) < len(self)
        self._population = cache(self._new_population)

    @cached_property
    def otherwise(self) -> Sample | None:
        """The sample for queries with near-copies in the collection if they are taken to have none,
        and the other way round; None if that is known."""
        if self._copies is None:
            return None
        other = copy(self)
        other._group(None if self.is_grouped else self._copies)
        return other

    @cached_property
    def at_norm_1(self) -> bool:
        """Whether all vectors have norm 1, as embeddings have."""
        norms = row_norms(self.vectors)
        return bool((np.abs(norms - 1.0) <= _SAME_NORM).all())

    @property
    def fitted(self) -> Any:
        """The half that designs and centroids are made of while they are tried."""
        return self.vectors[self._parts["fitted"]]

    @property
    def compared(self) -> Any:
        """Vectors that designs of signs are made of while they are tried."""
        return self.vectors[self._parts["compared"]]

    def _new_book_of_vectors(self, size: int) -> Codebook:
        """Return a codebook of ``size`` of the vectors, evenly spaced."""
        return Codebook(self.vectors[spaced(len(self), size)])

    def _new_grown_book(self, vectors: int, size: int) -> Codebook:
        """Return a codebook of so many vectors, and of points between near ones."""
        rows = spaced(len(self), vectors)
        book, ends = grown_codebook(self.vectors[rows], size)
        self._ends[size] = rows[ends]
        return book

    def _new_book_of_centroids(self, size: int) -> Codebook:
        fitted = of_norm_1(self.fitted)
        book = centroid_codebook(fitted, size, rounds=0)
        if self._guides:
            book.guide = Guide.learned(fitted, book.vectors)
        self._centroid_books.add(book)
        return book

    def has_centroids(self, spec: Spec) -> bool:
        """Return whether the codewords of a spec are centroids, and no vectors of the sample."""
        return spec.codebook in self._centroid_books

    def tests_of(self, spec: Spec, queries: int) -> tuple[Spec, Population, Population]:
        """Return a spec like it, a quarter of the vectors that it is tried on, and the others.

        Both stand for as many vectors as there are others, as the same queries see them: the
        quarter predicts, and the others count. If codewords are vectors, they are those of the
        quarter.
        """
        whole = self.population_of(spec, queries)
        rows = np.arange(whole.vectors.shape[0])
        part = rows[::_PARTS]
        others = np.flatnonzero(rows % _PARTS)
        asking = self._asking(others, whole.vectors)
        asked = asking[spaced(len(asking), queries)]
        codewords = None
        if whole.codewords is not None:
            spec = _with_vectors(spec, whole.vectors[part])
            codewords = whole.labels[part]

        def population(chosen: Integers) -> Population:
            return Population(
                whole.vectors[chosen],
                len(others),
                whole.vectors[asked],
                asked_labels=whole.labels[asked],
                groups=whole.labels[chosen],
                metric=self._metric,
                codewords=codewords,
            )

        return spec, population(part), population(others)

    def population_of(
        self, spec: Spec, queries: int, common: bool = False, denoised: bool = False
    ) -> Population:
        """Return the vectors that a spec is tried on, with at most ``queries`` queries.

        A public part of the spec is of this sample. ``common`` queries are the same whatever the
        vectors, so that specs are compared by them, and on half as many vectors. A denoiser of long
        codes is learned from other vectors: of mail, linear ones that had seen the same were
        promised .41, and found .26.
        """
        rows = self.played // 2 if common else self.played
        long = denoised and _PER_COORDINATE * spec.code_length > min(len(self), rows)
        if spec.public is None and not long:
            return self._population(rows, queries, common)
        if not spec.symbols or self.has_centroids(spec):
            return self._population(rows, queries, common, self._unseen(spec))
        size = spec.symbols
        rows = max(_MIN_PLAYED, min(rows, _SCORES // size))
        if size in self._ends:
            rows = _PLAYED  # with half as many, .07 less was promised of them
        return self._population(rows, queries, common, codewords=size)

    def forget(self) -> None:
        """Let go of all populations: they are large, and are made again where they are needed."""
        self._population.cache_clear()

    def attacked(self, spec: Spec) -> tuple[Spec, Vectors]:
        """Return a spec like it, and vectors that its public part was not made of."""
        unseen = "all" if spec.public is None else self._unseen(spec)
        played = self.vectors[self._rows(self.played, unseen)]
        if not spec.symbols or self.has_centroids(spec):
            return spec, played
        return _with_vectors(spec, self.fitted), played

    def _unseen(self, spec: Spec) -> str:
        """Return a part of the sample of which no public part of a spec was made."""
        return "rest" if is_compared(spec) else "half"

    def _rows(self, count: int, unseen: str) -> Integers:
        """Return at most ``count`` row numbers, evenly spaced, of a part of the sample."""
        rows = self._parts[unseen]
        return rows[spaced(len(rows), count)]

    def _asking(self, rows: Integers, vectors: Any) -> Integers:
        """Return those of the rows that may be queries: by cosine, a zero vector has no nearest.

        Raises
        ------
        InputError
            If none is left.
        """
        if self._metric == "cosine":
            rows = rows[row_norms(vectors[rows]) > 0]
        if not len(rows):
            raise InputError("public vectors of norm 0 have no nearest neighbours by cosine.")
        return rows

    def _one_of_each(self, rows: Integers) -> tuple[Integers, Integers]:
        """Return a row of each group, drawn at random, and the row in the middle of each.

        Vectors of one group lie at one distance from a query, which say no more of how distances
        grow than one does. Where others are variants of one vector, queries are like that one.
        """
        labels = np.unique(self._groups[rows], return_inverse=True)[1]
        sizes = np.bincount(labels)
        vectors = self.vectors[rows]
        members = scipy.sparse.csr_matrix((1.0 / sizes[labels], (labels, np.arange(len(rows)))))
        means = (members @ vectors)[labels]
        from_mean = row_norms(vectors - means)
        middle = np.lexsort((from_mean, labels))
        drawn = np.lexsort((PublicStream(0, "plan groups").permutation(len(rows)), labels))
        first = np.cumsum(sizes) - sizes
        return np.sort(rows[drawn[first]]), rows[middle[first]]

    def _new_population(
        self, count: int, queries: int, common: bool, unseen: str = "all", codewords: int = 0
    ) -> Population:
        """Return a population of at most ``count`` rows: of all, or of those not fitted to.

        ``codewords`` is the size of a codebook of vectors of the sample that is tried on it.
        """
        rows = self._rows(count, unseen)
        # Common ones are of what no public part is fitted to.
        asking = self._parts["rest"] if common else rows
        if self.is_grouped:
            rows, asking = self._one_of_each(rows)[0], self._one_of_each(asking)[1]
        asking = self._asking(asking, self.vectors)
        asking = asking[spaced(len(asking), queries)]
        asked = self.vectors[asking]
        labels: Integers | None = self._groups[asking]
        if self._queries is not None:
            asking = self._asking(np.arange(self._queries.shape[0]), self._queries)
            asked = self._queries[asking[spaced(len(asking), queries)]]
            labels = None
        others = None
        if unseen != "all":
            others = self.vectors[self._rows(count, "fitted")]
        groups_of_codewords = None
        if codewords:
            ends = self._ends.get(codewords, spaced(len(self), codewords))
            groups_of_codewords = self._groups[ends]
        return Population(
            self.vectors[rows],
            self._n,
            asked,
            asked_labels=labels,
            groups=self._groups[rows],
            metric=self._metric,
            codewords=groups_of_codewords,
            others=others,
            coarse=common,
        )


def _with_vectors(spec: Spec, vectors: Any) -> Spec:
    """Return a spec like it whose codewords are some vectors.

    A codebook of more codewords than vectors is made smaller, and the sets of nearest codewords
    with it, so that reports are as often true.
    """
    size = min(spec.codewords.size, vectors.shape[0])
    subset = spec.subset
    if subset is not None:
        subset = max(1, round(subset * size / spec.codewords.size))
    book = Codebook(vectors[spaced(vectors.shape[0], size)])
    return replace(spec, codebook=book, subset=subset, k=None)


def is_compared(spec: Spec) -> bool:
    """Return whether each code of a spec is compared with public vectors, which takes long."""
    return spec.is_designed and spec.format_type.are_signs


def new_sample(
    goal: Goal, groups: Any | None, source: VectorSource, queries: VectorSource | None = None
) -> Sample:
    """Return the sample of a plan, of vectors as they are compared."""
    whole_records = isinstance(goal.adjacency, Record)
    count = MAX_SIZE if whole_records else _ROWS
    if goal.dim > MAX_DENSE_DIM:
        count = _WIDE_ROWS

    def taken(some: VectorSource) -> Any:
        rows = sample_rows(some, count)
        return of_norm_1(rows) if whole_records else rows

    labels = numbered_groups(groups, source, count)
    asked = None if queries is None else taken(queries)
    guides = goal.on_average is not None
    return Sample(taken(source), goal.n, labels, goal.metric, asked, guides)
