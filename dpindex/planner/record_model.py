"""What record-level methods find in a collection, predicted on a public sample of its kind.

The sample itself plays the collection: each of m vectors stands for n/m vectors of it, so the true
neighbours of a query are its nearest by the same share. Vectors between the sampled ones, as in
:mod:`dpindex.planner.collection_model`, would lie in the middle between codewords, where private
vectors do not.

A codebook is made of the same sample, and no vector may be encoded by itself: every record and
every query is compared with the *other* codewords (leave one out), and a query does not meet the
records that its own codeword would have attracted. So codebooks of up to the whole sample are
predicted without keeping a part of it back.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from dpindex.arrays import Floats, Singles, in_units_of_largest, unit
from dpindex.codebook import Codebook, spaced
from dpindex.planner.plan_result import FOUND, NEIGHBOURS, Found, Row
from dpindex.privatizer import Privatizer
from dpindex.randomness import PublicStream
from dpindex.spec import Spec

__all__ = ["RecordModel"]

UNLIKE = 1 / 8
"""Share of a collection that is assumed to be unlike its sample, so that no codebook finds it."""

_RECORDS, _QUERIES, _ROUNDS, _BEST = 2000, 250, 4, 128
_BLOCK = 256
_TIE = 2e-6

Indices = npt.NDArray[np.intp]


class RecordModel:
    """A collection of ``n`` vectors like those of a public sample.

    Parameters
    ----------
    sample : float array, shape (rows, dim)
        At most 65 536 public vectors; directions count.
    n : int
        Vectors in the collection.
    """

    def __init__(self, sample: Floats, n: int) -> None:
        self._sample = sample
        self._unit = unit(in_units_of_largest(sample))
        self._rows = spaced(len(sample), min(_RECORDS, n))
        self._records = self._unit[self._rows]
        self._asked = spaced(len(self._rows), _QUERIES)
        self._queries = self._records[self._asked]
        count = len(self._rows)
        self._per_record = n / (count - 1)
        cosines = self._queries @ self._records.T
        cosines[np.arange(len(self._asked)), self._asked] = np.inf  # itself: before all others
        order = np.argsort(-cosines, axis=1, kind="stable")
        rank = np.argsort(order, axis=1) - 1.0
        self._before = rank
        self.codebook = lru_cache(maxsize=None)(self._codebook)
        self._nearest = lru_cache(maxsize=None)(self._nearest_codewords)

    def _codebook(self, size: int) -> Codebook:
        """That many vectors of the sample, evenly spaced."""
        return Codebook.spaced(self._sample, size)

    def predict(self, spec: Spec, at: int) -> Row:
        """What is expected to be found, in both query modes; recall is that of ``at`` answers."""
        if spec.mechanism.codes == "symbols":
            return self._symbols(spec, at)
        privatizer = Privatizer(spec)
        codes = privatizer.privatize(np.concatenate([self._records] * _ROUNDS))
        decoded = unit(codes.to_float())
        queries = privatizer.privatize(self._queries).to_float(), privatizer.project(self._queries)
        private, exact = (
            self._found([row @ decoded.T for row in unit(asked)], at) for asked in queries
        )
        noisy, true = queries[0], queries[1] * spec.step
        if spec.mechanism.codes == "signs":
            noise = float(np.mean((noisy > 0) != (true > 0)))
        else:
            noise = float((noisy - true).std() / max(true.std(axis=0).mean(), 1e-30))
        return Row(spec, "plain", private, exact, int(codes.stored[0].nbytes), noise)

    def _symbols(self, spec: Spec, at: int) -> Row:
        law: Any = spec.law
        size, subset, stream = law.size, law.subset, PublicStream(0, "plan symbols")
        words = spaced(len(self._sample), size)
        near = self._nearest(size)
        shape = (_ROUNDS, len(self._rows))

        def uniform(limit: int, shape: tuple[int, ...]) -> Indices:
            draws = stream.words(math.prod(shape), np.uint32).reshape(shape) / 2.0**32
            return (draws * limit).astype(np.intp)

        def inside(shape: tuple[int, ...]) -> npt.NDArray[np.bool_]:
            return stream.words(math.prod(shape), np.uint64).reshape(shape) < np.uint64(law.inside)

        kept, place, other = inside(shape), uniform(subset, shape), uniform(size, shape)
        everyone = np.arange(len(self._rows))
        asked = self._asked, uniform(subset, (len(self._asked),))
        reported = np.where(inside((len(self._asked),)), near[asked], uniform(size, asked[1].shape))
        of_row = np.full(len(self._sample), -1)
        of_row[words] = np.arange(size)
        scores: tuple[list[Singles], list[Singles]] = ([], [])
        vectors = self._unit[words]
        for query, said in zip(self._asked, reported, strict=True):
            # Without the codeword that is the query itself, the next one takes its place.
            own = of_row[self._rows[query]]
            met = near == own
            first = np.where(met.any(axis=1) & (own >= 0), met.argmax(axis=1), subset)
            symbols = np.where(kept, near[everyone, place + (place >= first)], other)
            for into, vector in zip(scores, (vectors[said], self._records[query]), strict=True):
                value = vectors @ vector
                if own >= 0:
                    value[own] = -1.0
                into.append(value[symbols].ravel())
        private, exact = (self._found(part, at, 1 - UNLIKE) for part in scores)
        return Row(spec, "plain", private, exact, 2, 1.0 - law.inside / 2.0**64)

    def _nearest_codewords(self, size: int) -> Indices:
        """The nearest codewords of each record but for itself, best first."""
        words = spaced(len(self._sample), size)
        count = min(size - 1, _BEST)
        vectors = self._unit[words]
        parts = []
        for start in range(0, len(self._rows), _BLOCK):
            rows = self._rows[start : start + _BLOCK]
            cosines = self._unit[rows] @ vectors.T
            cosines[rows[:, None] == words[None, :]] = -np.inf
            near = np.argpartition(-cosines, count - 1, axis=1)[:, :count]
            order = np.argsort(-np.take_along_axis(cosines, near, axis=1), axis=1)
            parts.append(np.take_along_axis(near, order, axis=1))
        return np.concatenate(parts)

    def _found(self, scores: list[Singles], at: int, like: float = 1.0) -> Found:
        """Shares of true neighbours among the best; a code stands for ``n/(4m)`` vectors.

        They are multiplied by ``like``, the share of the collection that is like the sample.
        """
        weight = self._per_record / _ROUNDS
        chance = PublicStream(0, "plan ties").words(scores[0].size, np.uint16) / 2.0**16
        count = min(max(_BEST, math.ceil(max(FOUND, at) / weight)), scores[0].size - 1)
        ranks = np.empty((len(scores), count))
        for into, query, before, score in zip(
            ranks, self._asked, self._before, scores, strict=True
        ):
            value = score + _TIE * chance
            value[query :: len(before)] = -np.inf
            best = np.argpartition(-value, count - 1)[:count]
            into[:] = before[best[np.argsort(-value[best])] % len(before)]

        def share(found: int, neighbours: int) -> float:
            counted = np.clip(found - weight * np.arange(count), 0.0, weight)
            true = np.clip(neighbours / self._per_record - ranks, 0.0, 1.0)
            return like * float((true @ counted).mean()) / found

        return Found(share(FOUND, NEIGHBOURS), share(at, at))


def promising_subsets(size: int, epsilon: float) -> tuple[int, ...]:
    """Powers of two near ``K/e^ε``, at which a report is as often inside the set as outside.

    Smaller sets would be reported too seldom, larger ones say little; those of which 1/5 to 9/10
    of the reports are inside are worth trying.

    >>> promising_subsets(4000, 6.0), promising_subsets(4000, 8.0), promising_subsets(4000, 12.0)
    ((4, 8, 16, 32, 64), (1, 2, 4, 8), (1,))
    """
    odds = math.exp(epsilon) / size
    powers = [1 << i for i in range(7) if 1 << i <= size // 2]
    found = [w for w in powers if 0.2 <= w * odds / (w * odds + 1) <= 0.9]
    return tuple(found or [powers[0] if odds > 1 else powers[-1]])
