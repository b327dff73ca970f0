"""A model of the whole collection, and what a mechanism's codes find of it.

The model is made from a public sample of the collection's kind, or from public facts.

The nearest neighbours in a collection of n vectors are nearer than those in a sample of m. So the
candidates of a query in the model are

- synthetic *near* vectors, at the ranks below those of the sample. Each stands for a few ranks and
  has the cosine to the query that the sample predicts for them;
- the *sampled* vectors, each of which stands for n/m vectors.

Cosines: the distances ``1 − cosine`` of the nearest vectors follow a power of the rank, with an
exponent estimated from the sample (Hill 1975; Amsaleg et al. 2015, local intrinsic dimension).
Directions: near vectors agree with the query first in the directions in which vectors differ most.
If a Gaussian with variances λ is weighted by ``exp(−τ‖x − q‖²/2)``, the difference of its mean to q
is divided by ``1 + τλ`` in each direction; the difference of a sampled vector to the query is
shrunk in the same way, with the τ that gives the cosine. Otherwise predictions for denoisers, which
keep the directions of large variance, are too low. Attributes with gaps, as counts, are rounded
at random to values that they have in the sample.

A sparse vector is moved by replacing attributes by those of the query instead, in random order, so
many that cosine and length are right: counts stay counts, and what is empty in both stays empty.
Lengths: they follow a power of the rank, too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse

from dpindex.base.arrays import (
    AnyArray,
    Doubles,
    Integers,
    Singles,
    Vectors,
    issparse,
    row_by_row,
    unit,
)
from dpindex.base.checks import finite_number
from dpindex.base.errors import InputError, NoDenoiserError
from dpindex.denoise import Denoiser, fit_denoiser
from dpindex.mechanism.codebook import spaced
from dpindex.mechanism.codes import Codes
from dpindex.mechanism.privatizer import Privatizer
from dpindex.mechanism.projections.dense import normal_integers
from dpindex.mechanism.spec import Spec
from dpindex.randomness import PublicStream
from dpindex.study.evaluate.ground_truth import TIE
from dpindex.study.evaluate.linkage import Linkage
from dpindex.study.planner.plan_result import FOUND, NEIGHBOURS, Found, Ranking, Row

_SYNTHETIC_ROWS, _NORMAL_BITS = 2000, 8
_QUERIES, _MIN_QUERIES = 200, 20
# Entries of sparse near vectors, of which there are as many as attributes of dense ones: 256 MB.
_MAX_NEAR_ENTRIES = 1 << 25
# Ranks of the sample that the exponent is estimated from, and that near vectors replace.
_TAIL = 10
# Ranks of the sampled vectors that near vectors are made from.
_ANCHORS = slice(5, 30)
# Ranks that a near vector stands for among the true neighbours; number of near vectors after them.
_NEAREST_WIDTH, _FARTHER_STEPS = 2, 20
_MAX_NEAR = NEIGHBOURS // _NEAREST_WIDTH + _FARTHER_STEPS
_LOG_TAU = np.linspace(-8.0, 12.0, 61, dtype=np.float32)
_MIN_DISTANCE = 1e-6
# Share of the vectors that have a frequent value; a gap beside it, in deviations of the attribute.
_FREQUENT, _GAP = 0.05, 0.1

# Noise relative to a coordinate, or share of flipped signs, below which no denoiser is tried.
_NO_NOISE = 1e-3
_LINKED_ROUNDS = 4
# Cosines that differ by less are equal, up to rounding.
_TIE = 2e-6
# Best candidates that stand for at least ten vectors: few stand for less than half a vector.
_CANDIDATES = 64


@dataclass(frozen=True)
class Facts:
    """Public facts about a collection, for when there is no public sample of its kind.

    They are a rough substitute: synthetic vectors lack the many small regularities of real ones,
    which a denoiser exploits. Prefer a public sample, even a small one.

    Parameters
    ----------
    norm : float
        Typical norm of a vector after scaling, (0, ∞).
    neighbour_cosine : float
        Cosine of a vector and its tenth nearest in the collection, (typical_cosine, 1).
    typical_cosine : float
        Mean cosine of two random vectors, [0, 1).
    decay : float
        The j-th largest variance is proportional to ``j^−decay``, [0, 4); 1 to 2 for images and
        embeddings.

    Raises
    ------
    InputError
        For a fact out of its range.

    >>> Facts(norm=1.0, neighbour_cosine=0.8, decay=1.5).sample(16).shape[1]
    16
    """

    norm: float
    neighbour_cosine: float
    typical_cosine: float = 0.0
    decay: float = 1.0

    def __post_init__(self) -> None:
        finite_number(self.norm, "the typical norm", above=0.0)
        for name, high in (("typical_cosine", 1.0), ("neighbour_cosine", 1.0), ("decay", 4.0)):
            words = f"the {name.replace('_', ' ')}"
            if not 0.0 <= finite_number(value := getattr(self, name), words) < high:
                raise InputError(f"{words} must lie in [0, {high:g}), not {value:g}.")
        if self.neighbour_cosine <= self.typical_cosine:
            raise InputError(
                f"the neighbour cosine, {self.neighbour_cosine:g}, must be above the typical "
                f"cosine, {self.typical_cosine:g}."
            )

    def sample(self, dim: int) -> Singles:
        """Synthetic vectors with these properties, in scaled units, float32, shape (2000, dim).

        Each is ``√t·mean + √(1 − t)·z`` brought to the typical norm, where t is the typical cosine
        and z a Gaussian vector of norm 1 with decaying variances along random directions.
        """
        stream = PublicStream(0, "plan facts")
        z = _normal(_SYNTHETIC_ROWS, dim, stream) * np.arange(1, dim + 1) ** (-self.decay / 2)
        z /= np.linalg.norm(z, axis=1, keepdims=True)
        rotation = np.linalg.qr(_normal(dim, dim, stream))[0]
        mean = np.sign(_normal(1, dim, stream)[0]) / math.sqrt(dim)
        vectors = math.sqrt(self.typical_cosine) * mean
        vectors = vectors + math.sqrt(1 - self.typical_cosine) * (z @ rotation)
        vectors *= self.norm / np.linalg.norm(vectors, axis=1, keepdims=True)
        return np.asarray(vectors, dtype=np.float32)


def _normal(rows: int, columns: int, stream: PublicStream) -> Doubles:
    values = normal_integers(rows * columns, _NORMAL_BITS, stream)
    return values.reshape(rows, columns) / 2.0**_NORMAL_BITS


class CollectionModel:
    """A model of a collection of ``n`` vectors of the sample's kind: queries with their candidates.

    Parameters
    ----------
    sample : float32 array or CSR matrix, shape (m, p)
    n : int
        Vectors in the collection.
    limits : (float, float)
        Range of an attribute; near vectors are clipped to it.
    neighbour_cosine : float or None
        Cosine of the tenth nearest vector, if it is known; otherwise the sample predicts it.

    Attributes
    ----------
    queries : as the sample, shape (q, p)
    sampled : as the sample, shape (m, p)
        Candidates of every query; denoisers are fitted to their codes.
    near : as the sample, shape (q·s, p)
        Further candidates: s of the first query, then of the next; s may be 0.
    weight : float64 array, shape (q, m + s)
        Vectors that each sampled and each near candidate stands for.
    vectors_per_row : float
        Vectors of the collection for each sampled vector, [1, ∞).
    """

    def __init__(
        self, sample: Vectors, n: int, limits: tuple[float, float], neighbour_cosine: float | None
    ) -> None:
        stream = PublicStream(0, "plan population")
        rows = sample.shape[0]
        sample = sample[stream.permutation(rows)]
        count = min(_QUERIES, rows // 4)
        if issparse(sample):
            most = _MAX_NEAR_ENTRIES * rows // (_MAX_NEAR * max(sample.nnz, 1))
            count = min(count, max(_MIN_QUERIES, most))
        self.queries, self.sampled = sample[:count], sample[count:][:n]
        self.vectors_per_row = per_row = n / self.sampled.shape[0]
        cosines = _cosines(self.queries, self.sampled)
        order = np.argsort(-cosines, axis=1)
        rank = np.argsort(order, axis=1)
        edges = _near_ranks(per_row)
        self.near, reached = sample[:0], np.empty((count, 0))
        if len(edges) > 1:
            nearest = np.take_along_axis(cosines, order[:, : _TAIL + 1], axis=1).astype(np.float64)
            place = (edges[1:] + edges[:-1] + 1) / 2 / per_row
            wanted = _predicted_cosines(1.0 - nearest, place, neighbour_cosine, per_row)
            moved = _anchors(cosines, order[:, _ANCHORS], wanted, stream)
            passed = np.maximum(place, 0.5) / (1.0 + np.take_along_axis(rank, moved, axis=1))
            lengths = _lengths(self.sampled, order, moved, passed)
            near = self.queries, self.sampled, moved, wanted, lengths
            if issparse(sample):
                self.near = _replaced(*near, stream)
            else:
                self.near = _synthesize(*near, order, stream)
                np.clip(self.near, *limits, out=self.near)
            reached = _own_cosines(self.queries, self.near)
        kept = rank >= (_TAIL if reached.size else 0)
        near_weight = np.tile(np.diff(edges), (count, 1))
        self.weight = np.hstack([np.where(kept, per_row, 0.0), near_weight])
        self._nearer = _weight_of_nearer(np.hstack([cosines, reached]), self.weight)
        self._ties: dict[int, Singles] = {}

    def true(self, neighbours: int) -> Doubles:
        """How many true neighbours each candidate of each query stands for, (q, m + s).

        ``neighbours`` is in [1, 50]. What is as near as the last of them counts too.
        """
        return np.asarray(np.clip(neighbours - self._nearer, 0.0, self.weight))

    def of_queries(self, count: int) -> CollectionModel:
        """The same model with evenly spaced ones of its queries, at most so many."""
        whole = len(self.weight)
        part, some = copy(self), spaced(whole, count)
        part.queries = self.queries[some]
        part.near = self.near[np.arange(self.near.shape[0]).reshape(whole, -1)[some].ravel()]
        part.weight, part._nearer = self.weight[some], self._nearer[some]
        part._ties = {}
        return part

    def tie_breaks(self, rounds: int) -> Singles:
        """To add to scores of sampled vectors, so many codes of each, and of near ones.

        Many short sign codes have equal scores, and an index returns them in any order. What stands
        for no vector is never found.
        """
        if rounds not in self._ties:
            split = self.sampled.shape[0]
            weight = np.hstack([np.tile(self.weight[:, :split], rounds), self.weight[:, split:]])
            words = PublicStream(0, "plan ties").words(weight.size, np.uint16)
            add = np.where(weight == 0, -np.inf, _TIE * (words.reshape(weight.shape) / 2.0**16))
            self._ties[rounds] = add.astype(np.float32)
        return self._ties[rounds]


def _weight_of_nearer(cosines: Doubles, weight: Doubles) -> Doubles:
    """For each candidate of each query the weight of those that are nearer, (q, c); ties are not.

    Repeated vectors are common in tables of few columns.
    """
    nearer = np.empty_like(weight)
    for row, (cosine, heavy) in enumerate(zip(cosines, weight, strict=True)):
        order = np.argsort(-cosine, kind="stable")
        before = np.concatenate([[0.0], np.cumsum(heavy[order])])
        tied = cosine * (1.0 + TIE * np.sign(cosine))
        nearer[row] = before[np.searchsorted(-cosine[order], -tied)]
    return nearer


def _near_ranks(per_row: float) -> Doubles:
    """Edges of the ranks that each near vector stands for: narrow among the true neighbours."""
    last = _TAIL * per_row
    if per_row <= 1.0:
        return np.zeros(1)
    others = np.geomspace(NEIGHBOURS, last, _FARTHER_STEPS) if last > NEIGHBOURS else [last]
    return np.concatenate([np.arange(0.0, min(NEIGHBOURS, last), _NEAREST_WIDTH), others])


def _predicted_cosines(
    distance: Doubles, place: Doubles, neighbour_cosine: float | None, per_row: float
) -> Doubles:
    """Cosines, (q, s), at fractional sample ranks ``place``, from distances of the nearest (q, 11).

    Each query has an exponent of its own. That is noisy, but one mean exponent would be biased,
    because queries differ.
    """
    distance = np.maximum(distance, _MIN_DISTANCE)
    last = distance[:, _TAIL:]
    power = np.log(last / distance[:, :_TAIL]).mean(axis=1, keepdims=True)
    if neighbour_cosine is not None:
        ratio = np.maximum(last / (1.0 - neighbour_cosine), 1.0)
        power = np.log(ratio) / np.log((_TAIL + 1) * per_row / 10)
    return np.asarray(1.0 - last * (place / (_TAIL + 1)) ** power)


def _cosines(queries: Vectors, sampled: Vectors) -> Singles:
    """Cosines of all queries and all sampled vectors, (q, m)."""
    if not issparse(queries):
        return np.asarray(unit(queries) @ unit(sampled).T)
    inner = (queries @ sampled.T).toarray()
    norms = np.outer(_norms(queries), _norms(sampled))
    return np.asarray(inner / np.maximum(norms, 1e-30), dtype=np.float32)


def _own_cosines(queries: Any, near: Any) -> Singles:
    """Cosines of each query and its own near vectors, (q·s, p): shape (q, s)."""
    count, several = queries.shape[0], near.shape[0] // queries.shape[0]
    own = (near[several * i : several * (i + 1)] for i in range(count))
    return np.stack([_cosines(queries[i : i + 1], part)[0] for i, part in enumerate(own)])


def _norms(x: Vectors) -> Doubles:
    norm = scipy.sparse.linalg.norm if issparse(x) else np.linalg.norm
    return np.asarray(norm(x, axis=1), dtype=np.float64)


def _anchors(
    cosines: Singles, anchors: Integers, wanted: Doubles, stream: PublicStream
) -> Integers:
    """A sampled vector for each near one, drawn from those that are no nearer than it: (q, s)."""
    picks = stream.words(wanted.size, np.uint32).reshape(wanted.shape) / 2.0**32
    behind = np.take_along_axis(cosines, anchors, axis=1)  # in order of falling cosine
    first = np.stack([np.searchsorted(-b, -w) for b, w in zip(behind, wanted, strict=True)])
    first = np.minimum(first, anchors.shape[1] - 1)
    chosen = (first + picks * (anchors.shape[1] - first)).astype(np.intp)
    return np.take_along_axis(anchors, chosen, axis=1)


def _lengths(sampled: Vectors, order: Integers, moved: Integers, passed: Doubles) -> Doubles:
    """Lengths of near vectors, (q, s), at ``passed`` times the ranks of the ``moved`` ones.

    Lengths follow a power of the rank, as distances do: in many collections of texts the nearest
    are shorter than those behind them.
    """
    norms = _norms(sampled)
    ranks = np.log(1.0 + np.arange(_ANCHORS.stop))
    ranks -= ranks.mean()
    nearest = norms[order[:, : _ANCHORS.stop]]
    powers = np.log(np.maximum(nearest, 1e-3 * norms.mean())) @ ranks / (ranks @ ranks)
    power, variance = powers.mean(), powers.var() / len(powers)
    power *= max(0.0, 1.0 - variance / power**2)  # James & Stein 1961
    return np.asarray(norms[moved] * passed**power)


def _synthesize(
    queries: Singles,
    sampled: Singles,
    moved: Integers,
    wanted: Doubles,
    lengths: Doubles,
    order: Integers,
    stream: PublicStream,
) -> Singles:
    """Vectors at the wanted cosines to each query: sampled vectors moved towards it, (q·s, p)."""
    near = np.empty((*wanted.shape, sampled.shape[1]), dtype=np.float32)
    directions, heads = unit(sampled), unit(queries)
    differences = (directions[order[:, _ANCHORS]] - heads[:, None]).reshape(-1, sampled.shape[1])
    moment = differences.T @ differences / np.float32(len(differences))
    variance, basis = np.linalg.eigh(moment.astype(np.float64))
    variance = np.maximum(variance / max(variance.mean(), 1e-30), 0.0).astype(np.float32)
    basis = basis.astype(np.float32)
    rotated, rotated_heads = directions @ basis, heads @ basis
    steps = _steps(sampled, wanted.size, stream)
    goal = wanted
    for last in (False, True) if steps else (True,):
        for i, head in enumerate(rotated_heads):
            vectors = _moved_to(head, rotated[moved[i]] - head, variance, goal[i])
            near[i] = unit(vectors @ basis.T) * lengths[i][:, None]
        for column, (values, chance) in steps.items():
            near[..., column] = _rounded(near[..., column], values, chance.reshape(wanted.shape))
        if not last:  # correct the cosines for the rounding
            norms = np.maximum(np.linalg.norm(near, axis=2), 1e-30)
            goal = goal + wanted - np.matmul(near, heads[..., None])[..., 0] / norms
    return near.reshape(-1, sampled.shape[1])


def _steps(
    sampled: Singles, count: int, stream: PublicStream
) -> dict[int, tuple[Singles, Singles]]:
    """Columns with a gap beside a frequent value: all values, and ``count`` chances to round by.

    No word occurs a tenth of a time. A code of signs would tell that from a word that does not
    occur, and near vectors would be found far too often.
    """
    steps = {}
    gap = _GAP * sampled.std(axis=0)
    for column in range(sampled.shape[1]):
        values, counts = np.unique(sampled[:, column], return_counts=True)
        frequent = int(np.argmax(counts))
        if len(values) == 1 or counts[frequent] < _FREQUENT * len(sampled):
            continue
        beside = np.abs(np.delete(values, frequent) - values[frequent]).min()
        if beside > gap[column]:
            steps[column] = values, np.ldexp(stream.words(count, np.uint16), -16, dtype=np.float32)
    return steps


def _rounded(column: Singles, values: Singles, chance: Singles) -> Singles:
    """Up or down to one of ``values``, so that the mean stays where it is."""
    above = np.clip(np.searchsorted(values, column), 1, len(values) - 1)
    low, high = values[above - 1], values[above]
    return np.where(column - low > chance * (high - low), high, low)


def _replaced(
    queries: Any,
    sampled: Any,
    moved: Integers,
    wanted: Doubles,
    lengths: Doubles,
    stream: PublicStream,
) -> scipy.sparse.csr_matrix:
    """The same for CSR matrices: attributes are replaced by the query's, in random order.

    So many that vectors of these lengths have the cosine, and so many of the others are kept, or
    taken from a further vector, that they have it.
    """

    def shuffled(items: AnyArray) -> AnyArray:
        return items[np.argsort(stream.words(len(items), np.uint32))]

    parts: list[tuple[Integers, Singles]] = []
    chances = stream.words(2 * wanted.size, np.uint16).reshape(*wanted.shape, 2) / 2.0**16
    for i, head in enumerate(queries):
        goal, norm = head.data, max(float(_norms(head)[0]), 1e-30)
        for j, cosine in enumerate(np.maximum(wanted[i], 1e-3)):
            row, further = sampled[moved[i, j]], sampled[moved[i, j - 1]]
            shared = np.isin(row.indices, head.indices)
            foreign = ~np.isin(further.indices, np.append(head.indices, row.indices))
            values = np.zeros_like(goal)
            values[np.searchsorted(head.indices, row.indices[shared])] = row.data[shared]
            differ = shuffled(np.flatnonzero(values != goal))
            inner = _sums(goal @ values, (goal * (goal - values))[differ])
            square = _sums(values @ values, (goal**2 - values**2)[differ])
            beyond = (inner / (cosine * norm)) ** 2 - square
            few = int(np.argmax((beyond >= 0) & (inner > 0)))
            count = max(
                few, int(_position(inner, cosine * norm * lengths[i, j]) + chances[i, j, 0])
            )
            values[differ[:count]] = goal[differ[:count]]
            own, taken = np.flatnonzero(~shared), len(shared) + np.flatnonzero(foreign)
            others = np.append(shuffled(own), shuffled(taken))
            squares = _sums(0.0, np.append(row.data, further.data)[others] ** 2)
            others = others[: int(_position(squares, beyond[count]) + chances[i, j, 1])]
            columns = np.append(row.indices, further.indices)[others]
            columns = np.append(head.indices[values != 0], columns)
            data = np.append(row.data, further.data)[others]
            parts.append((columns, np.append(values[values != 0], data)))
    indices, entries = map(np.concatenate, zip(*parts, strict=True))
    ends = np.cumsum([0, *(len(row) for row, _ in parts)])
    near = scipy.sparse.csr_matrix((entries, indices, ends), (len(parts), sampled.shape[1]))
    near.sort_indices()
    return near


def _sums(start: float, terms: Singles) -> Doubles:
    """The sums of the first 0, 1, … terms and ``start``."""
    return start + np.cumsum(np.append(0.0, terms), dtype=np.float64)


def _position(ascending: Doubles, wanted: float) -> float:
    """How many of the numbers, and which share of the next step, are passed on the way there."""
    ascending = np.maximum.accumulate(ascending)
    return float(np.interp(wanted, ascending, np.arange(len(ascending))))


def _moved_to(head: Singles, difference: Singles, variance: Singles, wanted: Doubles) -> Singles:
    """``head + difference/(1 + τ·variance)``, shape (s, p), with the τ that gives each cosine.

    Interpolated between cosines at some values of τ, which grow with it.
    """
    kept = 1 / (1 + np.exp(_LOG_TAU)[:, None] * variance)
    square, along = head @ head, (difference * head) @ kept.T
    norms = np.sqrt(square * (square + 2 * along + difference**2 @ (kept**2).T))
    cosine = (square + along) / np.maximum(norms, 1e-30)
    reached = np.hstack([cosine[:, 1:-1] >= wanted[:, None], np.ones((len(wanted), 1), np.bool_)])
    after = 1 + np.argmax(reached, axis=1)
    low, high = (np.take_along_axis(cosine, i[:, None], axis=1)[:, 0] for i in (after - 1, after))
    share = np.clip((wanted - low) / np.maximum(high - low, 1e-30), 0, 1)
    tau = np.exp(_LOG_TAU[after - 1] + share * (_LOG_TAU[1] - _LOG_TAU[0])).astype(np.float32)
    return np.asarray(head + difference / (1 + tau[:, None] * variance), dtype=np.float32)


class Simulation:
    """One spec on one model, with fresh noise.

    Parameters
    ----------
    spec : Spec
    model : CollectionModel
    rounds : int
        Codes of each sampled vector, [1, ∞); a denoiser is fitted to all of them.

    Attributes
    ----------
    bytes_per_vector : int
        Size of a published code, of the queries.
    noise : float
        Standard deviation of the noise relative to that of a coordinate; for signs, the share that
        is flipped.
    snr : float
        Signal-to-noise ratio, added up over the coordinates; for signs, that of a vote of all.

    Raises
    ------
    InputError
        If the noise is too large for any code.
    """

    def __init__(self, spec: Spec, model: CollectionModel, rounds: int) -> None:
        self.spec, self._model, self._rounds = spec, model, rounds
        self._privatizer = Privatizer(spec)
        self._queries = self._privatizer.privatize(model.queries)
        self._exact = self._privatizer.project(model.queries)
        self.bytes_per_vector = int(self._queries.stored[0].nbytes)
        noisy, exact = self._queries.to_float(), self._exact * spec.step
        if spec.mechanism.codes == "signs":
            self.noise = float(np.mean((noisy > 0) != (exact > 0)))
            self.snr = spec.code_length * (1 - 2 * self.noise) ** 2
        else:
            self.noise = float((noisy - exact).std() / max(exact.std(axis=0).mean(), 1e-30))
            self.snr = spec.code_length / max(self.noise, 1e-9) ** 2

    def found_nothing(self) -> Row:
        """The predictions where noise leaves nothing of the signal."""
        nothing = Found(0.0, 0.0)
        return Row(self.spec, "plain", nothing, nothing, self.bytes_per_vector, self.noise)

    def predict(self, rankings: Sequence[Ranking], at: int) -> list[Row]:
        """The predictions for codes that are ranked so; as they are, if no denoiser can be fitted.

        Recall is that of ``at`` answers against as many true neighbours, in [1, 50].
        """
        model, privatize = self._model, self._privatizer.privatize
        stack: Any = scipy.sparse.vstack if issparse(model.sampled) else np.concatenate
        sampled = privatize(stack([model.sampled] * self._rounds))
        some = model.near.shape[0] > 0
        near = privatize(model.near) if some else sampled.take(slice(0))
        rows: list[Row] = []
        for ranking in rankings:
            denoiser = self._denoiser(sampled, ranking)
            if denoiser is None and ranking != "plain":
                continue
            to_rank = _normalised if denoiser is None else denoiser.to_rank
            asked = self._queries.to_float() if denoiser is None else denoiser(self._queries)
            found = partial(self._found, sampled=to_rank(sampled), near=to_rank(near), at=at)
            private, exact = (found(unit(queries)) for queries in (asked, self._exact))
            size = int(sampled.stored[0].nbytes)
            rows.append(Row(self.spec, ranking, private, exact, size, self.noise))
        return rows or self.predict(["plain"], at)

    def _denoiser(self, codes: Codes, ranking: Ranking) -> Denoiser | None:
        """The one that such a ranking needs; None if it needs none, or none can be fitted."""
        if ranking == "plain" or self.noise < _NO_NOISE:
            return None
        # A collection has no more codes than vectors.
        count = round(self._model.sampled.shape[0] * self._model.vectors_per_row)
        with suppress(NoDenoiserError):  # too few codes, or nothing but noise
            return fit_denoiser(codes.take(slice(count)), self.spec, ranking)
        return None

    def _found(self, queries: Singles, sampled: Singles, near: Singles, at: int) -> Found:
        """Shares of true neighbours among the best, by weight; the last one counts in part."""
        model, rounds = self._model, self._rounds
        score = np.hstack([queries @ sampled.T, row_by_row(near, queries)])
        score += model.tie_breaks(rounds)
        best = np.argpartition(-score, _CANDIDATES, axis=1)[:, :_CANDIDATES]
        best = np.take_along_axis(best, np.argsort(-np.take_along_axis(score, best, 1), axis=1), 1)
        # Which candidate a code is of; those of a sampled vector share what it stands for.
        several, count = best < len(sampled), model.sampled.shape[0]
        candidate = np.where(several, best % count, best - count * (rounds - 1))
        codes = np.where(several, rounds, 1)
        weight = np.take_along_axis(model.weight, candidate, axis=1) / codes
        before = np.cumsum(weight, axis=1) - weight

        def share(found: int, neighbours: int) -> float:
            """Share of the first ``found`` that are true neighbours, at most all of those."""
            hits = np.take_along_axis(model.true(neighbours), candidate, axis=1) / codes
            counted = np.clip(found - before, 0.0, weight) / np.maximum(weight, 1e-30)
            return float(np.minimum((counted * hits).sum(axis=1), found).mean() / found)

        return Found(share(FOUND, NEIGHBOURS), share(at, at))


def _normalised(codes: Codes) -> Singles:
    return unit(codes.to_float())


def linked_share(spec: Spec, model: CollectionModel) -> float:
    """Share of the queries whose own code fits best in the collection: see :class:`Linkage`.

    Each candidate beats the own code with a chance, estimated from four codes of it, and stands for
    so many vectors.
    """
    privatizer = Privatizer(spec)
    stack: Any = scipy.sparse.vstack if issparse(model.sampled) else np.concatenate
    codes = privatizer.privatize(stack([model.queries, model.sampled]))
    linkage = Linkage(privatizer, model.queries, codes)
    beaten = np.zeros(model.weight.shape)
    for _ in range(_LINKED_ROUNDS):
        flags = [linkage.compare(privatizer.privatize(model.sampled))]
        if model.near.shape[0]:
            flags.append(linkage.compare(privatizer.privatize(model.near), own=True))
        beaten += np.hstack([above + tied / 2 for above, tied in flags]) / _LINKED_ROUNDS
    return float(np.prod((1.0 - beaten) ** model.weight, axis=1).mean())
