"""A model of a collection, made from a public sample of its kind: queries with their candidates.

The nearest neighbours in a collection of n vectors are nearer than those in a sample of m. So the
candidates of a query in the model are

- synthetic *near* vectors (:mod:`dpindex.study.planner.near_vectors`), at the ranks below those of
  the sample. Each stands for a few ranks and has the cosine to the query that the sample predicts
  for them;
- the *sampled* vectors, each of which stands for n/m vectors. Of a large sample, those nearest to a
  query are counted among its near vectors, and some of the others stand for all of them.

Cosines: the distances ``1 − cosine`` of the nearest vectors follow a power of the rank, with an
exponent estimated from the sample (Hill 1975; Amsaleg et al. 2015, local intrinsic dimension).
Lengths follow a power of the rank, too.
"""

from __future__ import annotations

import math
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpindex.base.arrays import (
    AnyArray,
    Doubles,
    Integers,
    Singles,
    Vectors,
    issparse,
    row_norms,
    spaced,
)
from dpindex.base.errors import InputError
from dpindex.mechanism.public_random import PublicStream
from dpindex.similarity.similarity import Metric
from dpindex.study.plan_options import NEIGHBOURS
from dpindex.study.planner.near_vectors import (
    Placement,
    cosines_between,
    cosines_within,
    near_by_distance,
    near_vectors,
    squared_distances,
)
from dpindex.study.planner.public_sample import Sample
from dpindex.study.planner.retrieval import tie_breaks
from dpindex.study.truth import TIE

__all__ = ["CollectionModel"]

_QUERIES = 200
_MIN_QUERIES = 20
# Sampled vectors that are candidates of every query.
_SHARED = 2000
# Entries of sparse near vectors, of which there are as many as attributes of dense ones: 256 MB.
_MAX_NEAR_ENTRIES = 1 << 25
# Ranks of the sample that the exponent is estimated from, and that near vectors replace.
_TAIL = 10
# Ranks of the sampled vectors that near vectors are made from.
_ANCHORS = slice(5, 30)
# Ranks that a near vector stands for among the true neighbours; number of near vectors after them.
_NEAREST_WIDTH = 2
_FARTHER_STEPS = 20
_MAX_NEAR = NEIGHBOURS // _NEAREST_WIDTH + _FARTHER_STEPS
_MIN_DISTANCE = 1e-6


class CollectionModel:
    """A model of a collection of ``n`` vectors of the sample's kind.

    Parameters
    ----------
    sample : Sample
        Of m vectors with p attributes.
    n : int
        Vectors in the collection.
    limits : (float, float)
        Range of an attribute; near vectors are clipped to it.
    neighbour_cosine : float or None
        Cosine of the tenth nearest vector, if it is known; otherwise the sample predicts it.
    metric : "cosine" or "l2"
        What neighbours are ranked by. Under l2 a similarity takes the place of a cosine: one less
        half the squared distance, in units of the mean squared norm.

    Attributes
    ----------
    queries : as the sample, shape (q, p)
    sampled : as the sample, shape (m, p)
        Candidates of every query; denoisers are fitted to their codes.
    near : as the sample, shape (q·s, p)
        Further candidates, synthetic or of the sample: s of the first query, then of the next; s
        may be 0.
    weight : float64 array, shape (q, m + s)
        Vectors that each sampled and each near candidate stands for.
    vectors_per_row : float
        Vectors of the collection for each sampled vector, [1, ∞).
    """

    def __init__(
        self,
        sample: Sample,
        n: int,
        limits: tuple[float, float],
        neighbour_cosine: float | None,
        metric: Metric = "cosine",
    ) -> None:
        stream = PublicStream(0, "plan population")
        self.queries, vectors = _split(sample, n, stream)
        shared = np.arange(vectors.shape[0])
        self.sampled = vectors
        if not issparse(vectors):
            shared = spaced(vectors.shape[0], _SHARED)
            self.sampled = vectors[shared]
        self.vectors_per_row = n / len(shared)
        self.metric = metric
        self._unit = 1.0
        if metric == "l2":
            if issparse(vectors):
                raise InputError("a plan for l2 takes a dense public sample.")
            squares = row_norms(vectors) ** 2
            self._unit = max(float(squares.mean()), _MIN_DISTANCE)
        ranked = _Ranked.of(vectors, self._similarities(self.queries, vectors), n)
        edges = _near_ranks(ranked.vectors_per_row)
        self.near = vectors[:0]
        replaced_ranks = 0
        if len(edges) > 1:
            self.near = self._synthetic(ranked, edges, limits, neighbour_cosine, stream)
            replaced_ranks = _TAIL
        near_weight = np.diff(edges)
        if len(shared) < vectors.shape[0]:
            last = math.ceil(_TAIL * vectors.shape[0] / len(shared))
            nearest = ranked.order[:, replaced_ranks:last]
            self.near = _side_by_side(self.near, vectors[nearest])
            near_weight = np.append(near_weight, np.full(nearest.shape[1], ranked.vectors_per_row))
            replaced_ranks = last
        is_farther = ranked.rank[:, shared] >= replaced_ranks
        farther = n - near_weight.sum()
        sampled_weight = is_farther * (farther / is_farther.sum(axis=1, keepdims=True))
        self.weight = np.hstack([sampled_weight, np.tile(near_weight, (len(is_farther), 1))])
        similarities: AnyArray = np.hstack([ranked.cosines[:, shared], self._near_similarities()])
        self._nearer = _weight_of_nearer(similarities, self.weight)
        self._ties: dict[int, Singles] = {}

    def _synthetic(
        self,
        ranked: _Ranked,
        edges: Doubles,
        limits: tuple[float, float],
        neighbour_cosine: float | None,
        stream: PublicStream,
    ) -> Any:
        """Return near vectors for the ranks between the edges."""
        placement = ranked.placement(edges, neighbour_cosine, stream)
        if self.metric == "l2":
            distances = 2 * self._unit * (1 - placement.cosines)
            return near_by_distance(
                self.queries, ranked.vectors, placement.sources, distances, limits
            )
        anchors = ranked.order[:, _ANCHORS]
        return near_vectors(self.queries, ranked.vectors, placement, anchors, limits, stream)

    def _similarities(self, queries: Vectors, vectors: Vectors) -> Singles:
        """Return the cosines, or similarities, of all queries and all vectors."""
        if self.metric == "cosine":
            return cosines_between(queries, vectors)
        distances = squared_distances(queries, vectors) / (2 * self._unit)
        return np.asarray(1 - distances, dtype=np.float32)

    def _near_similarities(self) -> Singles:
        """Return the cosines, or similarities, of each query and its own near vectors."""
        if not self.near.shape[0]:
            return np.empty((self.queries.shape[0], 0), dtype=np.float32)
        if self.metric == "cosine":
            return cosines_within(self.queries, self.near)
        per_query = self.near.shape[0] // self.queries.shape[0]
        rows = [
            self._similarities(query[None], self.near[per_query * i : per_query * (i + 1)])[0]
            for i, query in enumerate(self.queries)
        ]
        return np.stack(rows)

    def true(self, neighbours: int) -> Doubles:
        """Return how many true neighbours each candidate of each query stands for, (q, m + s).

        ``neighbours`` is in [1, 50]. What is as near as the last of them counts too.
        """
        return np.asarray(np.clip(neighbours - self._nearer, 0.0, self.weight))

    def of_queries(self, count: int) -> CollectionModel:
        """Return the model with at most ``count`` of its queries, evenly spaced."""
        whole = len(self.weight)
        chosen = spaced(whole, count)
        part = copy(self)
        part.queries = self.queries[chosen]
        near_rows = np.arange(self.near.shape[0]).reshape(whole, -1)[chosen]
        part.near = self.near[near_rows.ravel()]
        part.weight = self.weight[chosen]
        part._nearer = self._nearer[chosen]
        part._ties = {}
        return part

    def tie_breaks(self, rounds: int) -> Singles:
        """Return what to add to the scores of ``rounds`` codes of each sampled vector and of near.

        Many short sign codes have equal scores, and an index returns them in any order. What stands
        for no vector is never found.
        """
        if rounds not in self._ties:
            split = self.sampled.shape[0]
            sampled_weight = np.tile(self.weight[:, :split], rounds)
            weight = np.hstack([sampled_weight, self.weight[:, split:]])
            breaks = tie_breaks(weight.size).reshape(weight.shape)
            breaks[weight == 0] = -np.inf
            self._ties[rounds] = breaks.astype(np.float32)
        return self._ties[rounds]


@dataclass(frozen=True, eq=False)
class _Ranked:
    """A sample as queries see it.

    Attributes
    ----------
    vectors : array or CSR matrix, shape (m, p)
    cosines : float32 array, shape (q, m)
    order, rank : integer arrays, shape (q, m)
        Rows of the sample, nearest first, and the place of each row in that order.
    vectors_per_row : float
        Vectors of the collection for each row of the sample.
    """

    vectors: Vectors
    cosines: Singles
    order: Integers
    rank: Integers
    vectors_per_row: float

    @classmethod
    def of(cls, vectors: Vectors, cosines: Singles, n: int) -> _Ranked:
        """Return the sample of a collection of n vectors."""
        order = np.argsort(-cosines, axis=1)
        rank = np.argsort(order, axis=1)
        return cls(vectors, cosines, order, rank, n / vectors.shape[0])

    def placement(
        self, edges: Doubles, neighbour_cosine: float | None, stream: PublicStream
    ) -> Placement:
        """Return where near vectors lie that stand for the ranks between edges."""
        nearest = np.take_along_axis(self.cosines, self.order[:, : _TAIL + 1], axis=1)
        sample_ranks = (edges[1:] + edges[:-1] + 1) / 2 / self.vectors_per_row
        target = _predicted_cosines(
            1.0 - nearest.astype(np.float64), sample_ranks, neighbour_cosine, self.vectors_per_row
        )
        sources = _sources(self.cosines, self.order[:, _ANCHORS], target, stream)
        source_ranks = 1.0 + np.take_along_axis(self.rank, sources, axis=1)
        rank_ratio = np.maximum(sample_ranks, 0.5) / source_ranks
        return Placement(sources, target, _lengths(self.vectors, self.order, sources, rank_ratio))


def _side_by_side(near: AnyArray, nearest: AnyArray) -> AnyArray:
    """Return near vectors, (q·s, p), followed by others of each query, (q, t, p): (q·(s+t), p)."""
    queries, _, columns = nearest.shape
    parts = [near.reshape(queries, -1, columns), nearest]
    return np.concatenate(parts, axis=1).reshape(-1, columns)


def _split(sample: Sample, n: int, stream: PublicStream) -> tuple[Vectors, Vectors]:
    """Return queries, and at most n other vectors, of which none has a query in its group."""
    order = stream.permutation(sample.vectors.shape[0])
    vectors = sample.vectors[order]
    if sample.queries is not None:
        asked = sample.queries[spaced(sample.queries.shape[0], _query_count(vectors))]
        return asked, vectors[:n]
    groups = sample.groups[order]
    count = _query_count(vectors)
    others = np.flatnonzero(~np.isin(groups, groups[:count]))
    return vectors[:count], vectors[others][:n]


def _query_count(sample: Vectors) -> int:
    """Return how many vectors of the sample play queries."""
    rows = sample.shape[0]
    count: int = min(_QUERIES, rows // 4)
    if issparse(sample):
        affordable = _MAX_NEAR_ENTRIES * rows // (_MAX_NEAR * max(sample.nnz, 1))
        count = min(count, max(_MIN_QUERIES, affordable))
    return count


def _weight_of_nearer(cosines: Doubles, weight: Doubles) -> Doubles:
    """Return for each candidate of each query the weight of those nearer, (q, c); ties are not.

    Repeated vectors are common in tables of few columns.
    """
    nearer = np.empty_like(weight)
    for row, (cosine, row_weight) in enumerate(zip(cosines, weight, strict=True)):
        order = np.argsort(-cosine, kind="stable")
        before = np.concatenate([[0.0], np.cumsum(row_weight[order])])
        tied = cosine * (1.0 + TIE * np.sign(cosine))
        nearer[row] = before[np.searchsorted(-cosine[order], -tied)]
    return nearer


def _near_ranks(per_row: float) -> Doubles:
    """Return edges of the ranks that near vectors stand for: narrow among the true neighbours."""
    last = _TAIL * per_row
    if per_row <= 1.0:
        return np.zeros(1)
    nearest = np.arange(0.0, min(NEIGHBOURS, last), _NEAREST_WIDTH)
    if last <= NEIGHBOURS:
        return np.append(nearest, last)
    return np.concatenate([nearest, np.geomspace(NEIGHBOURS, last, _FARTHER_STEPS)])


def _predicted_cosines(
    distance: Doubles, ranks: Doubles, neighbour_cosine: float | None, per_row: float
) -> Doubles:
    """Return cosines at fractional sample ranks, (q, s), from distances of the nearest, (q, 11).

    Each query has an exponent of its own. That is noisy, but one mean exponent would be biased,
    because queries differ.
    """
    distance = np.maximum(distance, _MIN_DISTANCE)
    last = distance[:, _TAIL:]
    if neighbour_cosine is None:
        power = np.log(last / distance[:, :_TAIL]).mean(axis=1, keepdims=True)
    else:
        ratio = np.maximum(last / (1.0 - neighbour_cosine), 1.0)
        power = np.log(ratio) / np.log((_TAIL + 1) * per_row / 10)
    return np.asarray(1.0 - last * (ranks / (_TAIL + 1)) ** power)


def _sources(
    cosines: Singles, anchors: Integers, target: Doubles, stream: PublicStream
) -> Integers:
    """Return a sampled vector for each near one, drawn from those no nearer than it: (q, s)."""
    chance = stream.words(target.size, np.uint32).reshape(target.shape) / 2.0**32
    falling = np.take_along_axis(cosines, anchors, axis=1)
    pairs = zip(-falling, -target, strict=True)
    first = np.stack([np.searchsorted(rising, value) for rising, value in pairs])
    first = np.minimum(first, anchors.shape[1] - 1)
    chosen = (first + chance * (anchors.shape[1] - first)).astype(np.intp)
    return np.take_along_axis(anchors, chosen, axis=1)


def _lengths(sampled: Vectors, order: Integers, sources: Integers, rank_ratio: Doubles) -> Doubles:
    """Return lengths of near vectors, (q, s), at ``rank_ratio`` times the ranks of their sources.

    Lengths follow a power of the rank, as distances do: in many collections of texts the nearest
    are shorter than those behind them.
    """
    norms = row_norms(sampled)
    ranks = np.log(1.0 + np.arange(_ANCHORS.stop))
    ranks -= ranks.mean()
    nearest = norms[order[:, : _ANCHORS.stop]]
    powers = np.log(np.maximum(nearest, 1e-3 * norms.mean())) @ ranks / (ranks @ ranks)
    power = powers.mean()
    variance = powers.var() / len(powers)
    power *= max(0.0, 1.0 - variance / power**2)  # James & Stein 1961
    return np.asarray(norms[sources] * rank_ratio**power)
