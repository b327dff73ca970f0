"""Symbol codes to cosines: what a reported codeword says of the record, learned on public vectors.

A report is a codeword near the record or, by chance, any other. What it tells about the cosine of
the record and a query is measured on the codebook itself, which is public: its codewords play
records and queries, each compared with the *other* codewords only, and the mechanism is run on
them. The estimate is the mean cosine among such pairs that look alike, the standard error their
deviation: both are those of public vectors of the same kind, and no better than the codebook is
like the private collection.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from dpindex.codebook import Codebook
from dpindex.randomness import PublicStream

__all__ = ["PairCurve", "codeword_similarities", "pair_curve"]

Doubles = npt.NDArray[np.float64]

_ROLES = 2048
_NEAR = 16
_BINS = 64


def codeword_similarities(queries: Any) -> npt.NDArray[np.float32]:
    """Cosines of all codewords to each query, or to the codeword that it reports, shape (nq, K)."""
    if not queries.private:
        return np.asarray(queries.to_float(), dtype=np.float32)
    words = queries.spec.codebook.vectors
    return np.asarray(words[queries.values.symbols] @ words.T)


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
        return np.interp(seen, self.seen, self.mean), np.interp(seen, self.seen, self.deviation)


@lru_cache(maxsize=8)
def pair_curve(
    codebook: Codebook, subset: int, inside: float, query: tuple[int, float] | None
) -> PairCurve:
    """The curve for records under sets of ``subset`` codewords, reported with chance ``inside``.

    ``query`` is the subset and the chance of private queries, None for exact ones.
    """
    words, size = codebook.vectors, len(codebook)
    stream = PublicStream(0, "symbol pairs")
    roles = stream.permutation(size)[:_ROLES]
    cosines = words[roles] @ words.T
    cosines[np.arange(len(roles)), roles] = -np.inf
    # Pairs at random, and pairs of near neighbours, of which there would be few.
    near = np.argpartition(-cosines[:, roles], min(_NEAR, len(roles) - 1), axis=1)[:, :_NEAR]
    others = np.stack([stream.permutation(len(roles)) for _ in range(_NEAR)], axis=1)
    left = np.repeat(np.arange(len(roles)), 2 * _NEAR)
    right = np.concatenate([near, others], axis=1).ravel()[: len(left)]
    kept = left != right
    left, right = left[kept], right[kept]
    # A near pair stands for fewer pairs than one at random does.
    weight = np.where(
        np.tile(np.arange(2 * near.shape[1]) < near.shape[1], len(roles)), 1.0, len(roles) / _NEAR
    )[kept]
    record = _reports(cosines, left, subset, inside, stream)
    if query is None:
        seen = cosines[right, record]
        seen[np.isinf(seen)] = 1.0
    else:
        seen = np.einsum("ij,ij->i", words[record], words[_reports(cosines, right, *query, stream)])
    truth = np.einsum("ij,ij->i", words[roles[left]], words[roles[right]])
    return _curve(seen.astype(np.float64), truth.astype(np.float64), weight)


def _reports(cosines: Any, rows: Any, subset: int, inside: float, stream: PublicStream) -> Any:
    """Symbols that the mechanism would report for some public vectors."""
    near = np.argpartition(-cosines, subset - 1, axis=1)[:, :subset]
    words = [stream.words(len(rows), np.uint32).astype(np.float64) / 2.0**32 for _ in range(3)]
    chosen = near[rows, (words[0] * subset).astype(np.intp)]
    return np.where(words[1] < inside, chosen, (words[2] * cosines.shape[1]).astype(np.intp))


def _curve(seen: Doubles, truth: Doubles, weight: Doubles) -> PairCurve:
    order = np.argsort(seen, kind="stable")
    parts = np.array_split(order, min(_BINS, max(1, len(order) // 64)))
    rows = []
    for part in parts:
        total = weight[part].sum()
        mean = float(weight[part] @ truth[part] / total)
        spread = float(weight[part] @ (truth[part] - mean) ** 2 / total)
        rows.append((float(weight[part] @ seen[part] / total), mean, np.sqrt(spread)))
    found = np.array(rows)
    return PairCurve(found[:, 0], np.maximum.accumulate(found[:, 1]), found[:, 2])
