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

from dpindex.mechanism.codebook import Codebook
from dpindex.randomness import PublicStream

Doubles = npt.NDArray[np.float64]

_ROLES = 2048
_BLOCK = 256
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
    words = codebook.vectors
    size = len(codebook)
    stream = PublicStream(0, "symbol pairs")
    roles = stream.permutation(size)[:_ROLES]
    count = len(roles)
    among = words[roles] @ words[roles].T
    np.fill_diagonal(among, -np.inf)
    # Pairs of near neighbours, and pairs at random, which stand for more pairs each.
    reach = min(_NEAR, count - 1)
    near = np.argpartition(-among, reach - 1, axis=1)[:, :reach]
    others = np.stack([stream.permutation(count) for _ in range(_NEAR)], axis=1)
    left = np.repeat(np.arange(count), reach + _NEAR)
    right = np.concatenate([near, others], axis=1).ravel()
    weight = np.tile(np.repeat([1.0, count / _NEAR], [reach, _NEAR]), count)
    kept = left != right
    left = left[kept]
    right = right[kept]
    weight = weight[kept]
    record = _reports(words, roles, left, subset, inside, stream)
    asked = roles[right]
    if query is not None:
        asked = _reports(words, roles, right, *query, stream)
    seen = np.einsum("ij,ij->i", words[record], words[asked])
    truth = np.einsum("ij,ij->i", words[roles[left]], words[roles[right]])
    return _curve(seen.astype(np.float64), truth.astype(np.float64), weight)


def _reports(
    words: Any, roles: Any, asked: Any, subset: int, inside: float, stream: PublicStream
) -> Any:
    """Symbols that would be reported for the codewords ``roles[asked]`` by all the others."""
    size = len(words)
    subset = min(subset, len(words) - 1)
    coins = [stream.words(len(asked), np.uint32).astype(np.float64) / 2.0**32 for _ in range(2)]
    within = (coins[0] < inside) | (subset == size - 1)
    rank = np.where(within, coins[1] * subset, subset + coins[1] * (size - 1 - subset))
    found = np.empty(len(asked), dtype=np.intp)
    for start in range(0, len(roles), _BLOCK):
        block = roles[start : start + _BLOCK]
        cosines = words[block] @ words.T
        cosines[np.arange(len(block)), block] = -np.inf
        # The nearest first, itself last, the others between them.
        order = np.argpartition(-cosines, (subset - 1, size - 1), axis=1)
        mine = np.flatnonzero((asked >= start) & (asked < start + len(block)))
        found[mine] = order[asked[mine] - start, rank[mine].astype(np.intp)]
    return found


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
