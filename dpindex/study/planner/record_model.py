"""What record-level methods find in a collection, predicted on a public sample of its kind.

Sampled vectors play the collection: each of m stands for n/m vectors of it, so the true neighbours
of a query are its nearest by the same share. Vectors between the sampled ones, as in
:mod:`dpindex.study.planner.collection_model`, would lie in the middle between codewords, where
private vectors do not.

For a codebook the sample is split: at most a third of it are codewords, the rest records and
queries, which are no codewords themselves: their own codewords would hide from each other. Two
things are extrapolated. So few records leave some codewords without any, which is rare in a
collection: what that loses is taken to be inverse to the number of records (Richardson), so half
of them lose it once more. And the share of right answers rises by the same amount whenever the
codewords double. Twice the codewords make subsets of w of them half as wide, or, if w doubles too,
leave them as wide: both rises are measured, from half of that third to the whole. Both rules were
chosen with CLINC150 and MNIST in sight.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from dpindex.base.arrays import Doubles, Floats, Singles, in_units_of_largest, unit
from dpindex.mechanism.codebook import Codebook, spaced
from dpindex.mechanism.privatizer import Privatizer
from dpindex.mechanism.spec import Spec
from dpindex.randomness import PublicStream
from dpindex.study.planner.plan_result import FOUND, NEIGHBOURS, Found, Row

__all__ = ["RecordModel"]

_RECORDS, _QUERIES, _ROUNDS, _BEST = 2000, 250, 4, 128
# A third of the sample, at most, plays the codebook, and so many codewords; twice as many records.
_SHARE, _CODEWORDS = 3, 4000

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
        self._sample, self._n = sample, n
        self._unit = unit(in_units_of_largest(sample))
        self._everyone = _Records(self._unit[spaced(len(sample), min(_RECORDS, n))])
        self.codebook = lru_cache(maxsize=None)(self._codebook)
        self._split = lru_cache(maxsize=None)(self._split_at)

    def _codebook(self, size: int) -> Codebook:
        """That many vectors of the sample, evenly spaced."""
        return Codebook.spaced(self._sample, size)

    def predict(self, spec: Spec, at: int) -> Row:
        """What is expected to be found, in both query modes; recall is that of ``at`` answers."""
        if spec.mechanism.codes == "symbols":
            return self._symbols(spec, at)
        privatizer, those = Privatizer(spec), self._everyone
        codes = privatizer.privatize(np.concatenate([those.vectors] * _ROUNDS))
        decoded, queries = unit(codes.to_float()), those.vectors[those.asked]
        noisy, plain = privatizer.privatize(queries).to_float(), privatizer.project(queries)
        private, exact = (
            those.found([row @ decoded.T for row in unit(asked)], at, self._n)
            for asked in (noisy, plain)
        )
        true = plain * spec.step
        if spec.mechanism.codes == "signs":
            noise = float(np.mean((noisy > 0) != (true > 0)))
        else:
            noise = float((noisy - true).std() / max(true.std(axis=0).mean(), 1e-30))
        return Row(spec, "plain", private, exact, int(codes.stored[0].nbytes), noise)

    def _symbols(self, spec: Spec, at: int) -> Row:
        law: Any = spec.law
        size = min(law.size, len(self._unit) // _SHARE, _CODEWORDS)
        subset = max(1.0, law.subset * size / law.size)
        both = many = self._found_with(size, subset, law, at)
        few = self._found_with(size, subset, law, at, step=2)
        both = both + _rise(few, many)
        if size < law.size:
            half = self._found_with(size // 2, subset, law, at)
            wide = self._found_with(size, 2 * subset, law, at)
            wider = math.log2(law.subset / subset)
            finer = math.log2(law.size / size) - wider
            both = both + finer * _rise(half, many) + wider * _rise(half, wide)
        private, exact = (Found(*row) for row in np.minimum(both, 1.0).tolist())
        return Row(spec, "plain", private, exact, 2, 1.0 - law.inside / 2.0**64)

    def _found_with(self, size: int, subset: float, law: Any, at: int, step: int = 1) -> Doubles:
        """What is found with so many codewords and nearest ones, and the law's chance.

        By query mode, private and exact, and by precision and recall: shape (2, 2). What ``subset``
        has above a whole number is the share of records with one more. One in ``step`` records is
        there.
        """
        stream = PublicStream(0, "plan symbols")

        def uniform(limit: float, count: int) -> Indices:
            return (stream.words(count, np.uint32) / 2.0**32 * limit).astype(np.intp)

        def reported(near: Indices) -> Indices:
            """A symbol for each row of nearest codewords."""
            count = len(near)
            kept = stream.words(count, np.uint64) < np.uint64(law.inside)
            inside = near[np.arange(count), uniform(subset, count)]
            return np.where(kept, inside, uniform(size, count))

        shares = np.zeros((2, 2))
        for first in range(_SHARE):
            words, those, near = self._split(size, first, step)
            symbols = reported(np.concatenate([near] * _ROUNDS))
            queries = words[reported(near[those.asked])], those.vectors[those.asked]
            for mode, asked in enumerate(queries):
                found = those.found([row[symbols] for row in asked @ words.T], at, self._n)
                shares[mode] += np.array([found.precision, found.recall]) / _SHARE
        return shares

    def _split_at(self, size: int, first: int, step: int = 1) -> tuple[Singles, _Records, Indices]:
        """So many codewords, records among the others, and the nearest codewords of each record.

        Best first; at most 128. ``first`` is the row of the first codeword.
        """
        chosen = (spaced(len(self._unit), size) + first) % len(self._unit)
        rest = np.setdiff1d(np.arange(len(self._unit)), chosen)
        words = self._unit[chosen]
        rest = rest[spaced(len(rest), min(2 * _CODEWORDS, self._n))][::step]
        those = _Records(self._unit[rest])
        count, parts = min(size - 1, _BEST), []
        for start in range(0, len(those.vectors), _BLOCK):
            cosines = those.vectors[start : start + _BLOCK] @ words.T
            near = np.argpartition(-cosines, count - 1, axis=1)[:, :count]
            order = np.argsort(-np.take_along_axis(cosines, near, axis=1), axis=1)
            parts.append(np.take_along_axis(near, order, axis=1))
        return words, those, np.concatenate(parts)


class _Records:
    """Vectors that play the collection, and the queries among them.

    Attributes
    ----------
    vectors : float32 array, shape (m, dim)
        Of norm 1.
    asked : integer array, shape (q,)
        Rows of the queries, which do not find themselves.
    """

    def __init__(self, vectors: Singles) -> None:
        self.vectors = vectors
        self.asked = spaced(len(vectors), _QUERIES)
        cosines = vectors[self.asked] @ vectors.T
        cosines[np.arange(len(self.asked)), self.asked] = np.inf  # itself: before all others
        order = np.argsort(-cosines, axis=1, kind="stable")
        self._before = np.argsort(order, axis=1) - 1.0

    def found(self, scores: list[Singles], at: int, n: float) -> Found:
        """Shares of true neighbours among the best of n, by the scores of four codes of each."""
        each = n / (len(self.vectors) - 1)
        weight = each / _ROUNDS
        chance = PublicStream(0, "plan ties").words(scores[0].size, np.uint16) / 2.0**16
        count = min(max(_BEST, math.ceil(max(FOUND, at) / weight)), scores[0].size - 1)
        ranks = np.empty((len(scores), count))
        for into, query, before, score in zip(ranks, self.asked, self._before, scores, strict=True):
            value = score + _TIE * chance
            value[query :: len(before)] = -np.inf
            best = np.argpartition(-value, count - 1)[:count]
            into[:] = before[best[np.argsort(-value[best])] % len(before)]

        def share(found: int, neighbours: int) -> float:
            counted = np.clip(found - weight * np.arange(count), 0.0, weight)
            true = np.clip(neighbours / each - ranks, 0.0, 1.0)
            return float((true @ counted).mean()) / found

        return Found(share(FOUND, NEIGHBOURS), share(at, at))


def _rise(half: Doubles, whole: Doubles) -> Doubles:
    """Of shares by a doubling; what falls does so by chance."""
    return np.maximum(whole - half, 0.0)


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
