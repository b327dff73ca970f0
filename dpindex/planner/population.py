"""A public sample made to stand for a whole collection: who a query's candidates would be.

In a collection of n vectors the nearest neighbours are nearer than in a sample of m. So the
candidates of a query are

- *near* ones, at ranks that the sample does not reach: made up around the query at the cosines that
  the sample foretells, each standing for a few ranks;
- *far* ones, the sample itself, each vector standing for n/m.

How near: distances ``1 − cosine`` of the nearest follow a power of the rank, whose exponent the
sample tells (Hill 1975; Amsaleg et al. 2015, local intrinsic dimension). In which directions:
vectors that are drawn nearer by chance agree first where vectors differ most. Weighting a Gaussian
of variances λ by ``exp(−τ‖x − q‖²/2)`` draws the mean of x towards q by ``1/(1 + τλ)`` in each
direction; differences to vectors of the sample are shrunk so, with the τ that gives the cosine.
Without this, denoisers, which keep strong directions, are foretold too little.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dpindex.arrays import unit
from dpindex.randomness import PublicStream

__all__ = ["NEIGHBOURS", "Population", "populate"]

Singles = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]

NEIGHBOURS = 50
"""True neighbours of a query (Li & Li 2023, Sec. 5.1)."""

_QUERIES = 100
_TAIL = 10
"""Ranks of the sample that the tail is learned from, and that near candidates replace."""

_ANCHORS = slice(5, 30)
"""Ranks of the sample towards which near candidates are made up."""

_TRUE_WIDTH, _OTHER_STRATA = 2, 20
_LOG_PULL, _HALVINGS = (-8.0, 12.0), 16
_MIN_DISTANCE = 1e-6


@dataclass(frozen=True, eq=False)
class Population:
    """Queries and weighted candidates.

    Attributes
    ----------
    queries : float32 array, shape (q, p)
    far : float32 array, shape (m, p)
        Candidates of every query, and what a denoiser is learned from.
    near : float32 array, shape (q, s, p)
        Candidates of one query each; s may be 0.
    near_weight, near_true : float64 arrays, shape (s,)
        Vectors that a candidate stands for, and how many of those are true neighbours.
    far_weight, far_true : float64 arrays, shape (q, m)
    per : float
        Vectors of the collection for each vector in ``far``, [1, ∞).
    """

    queries: Singles
    far: Singles
    near: Singles
    near_weight: Doubles
    near_true: Doubles
    far_weight: Doubles
    far_true: Doubles
    per: float


def populate(
    sample: Singles,
    n: int,
    limits: tuple[float, float],
    neighbour_cosine: float | None = None,
) -> Population:
    """Let ``sample``, shape (m, p), stand for ``n`` vectors of its kind, with values in ``limits``.

    ``neighbour_cosine``, of the tenth nearest among n, replaces what the sample foretells.
    """
    stream = PublicStream(0, "plan population")
    sample = sample[stream.permutation(len(sample))]
    count = min(_QUERIES, len(sample) // 4)
    queries, far = sample[:count], sample[count:][:n]
    per = n / len(far)
    cosines = unit(queries) @ unit(far).T
    order = np.argsort(-cosines, axis=1)
    rank = np.argsort(order, axis=1)
    edges = _strata(per)
    if len(edges) == 1:
        near = np.empty((count, 0, far.shape[1]), dtype=np.float32)
    else:
        nearest = np.take_along_axis(cosines, order[:, : _TAIL + 1], axis=1)
        middle = (edges[1:] + edges[:-1] + 1) / 2
        wanted = _foretold(1.0 - nearest.astype(np.float64), middle / per, neighbour_cosine, per)
        near = _made_up(queries, far, cosines, order[:, _ANCHORS], wanted, stream)
        np.clip(near, *limits, out=near)
    replaced = rank < (_TAIL if near.shape[1] else 0)
    return Population(
        queries=queries,
        far=far,
        near=near,
        near_weight=np.diff(edges),
        near_true=np.diff(np.minimum(edges, NEIGHBOURS)),
        far_weight=np.where(replaced, 0.0, per),
        far_true=np.where(replaced, 0.0, np.clip(NEIGHBOURS - rank * per, 0.0, per)),
        per=per,
    )


def _strata(per: float) -> Doubles:
    """Ranks between which one near candidate stands for all: narrow among the true neighbours."""
    last = _TAIL * per
    if per <= 1.0:
        return np.zeros(1)
    first = np.arange(0.0, min(NEIGHBOURS, last), _TRUE_WIDTH)
    others = np.geomspace(NEIGHBOURS, last, _OTHER_STRATA) if last > NEIGHBOURS else [last]
    return np.concatenate([first, others])


def _foretold(
    distance: Doubles, place: Doubles, neighbour_cosine: float | None, per: float
) -> Doubles:
    """Cosines at fractional ranks ``place`` of the sample, (q, s), from its nearest, (q, 11)."""
    distance = np.maximum(distance, _MIN_DISTANCE)
    last = distance[:, _TAIL:]
    # Each query's own exponent: noisy, but queries differ, and their mean would foretell too much.
    power = np.log(last / distance[:, :_TAIL]).mean(axis=1, keepdims=True)
    if neighbour_cosine is not None:
        ratio = np.maximum(last / (1.0 - neighbour_cosine), 1.0)
        power = np.log(ratio) / np.log((_TAIL + 1) * per / 10)
    return np.asarray(1.0 - last * (place / (_TAIL + 1)) ** power)


def _made_up(
    queries: Singles,
    far: Singles,
    cosines: Singles,
    anchors: npt.NDArray[np.intp],
    wanted: Doubles,
    stream: PublicStream,
) -> Singles:
    """Vectors at the wanted cosines to each query, made of vectors of the sample drawn nearer."""
    near = np.empty((*wanted.shape, far.shape[1]), dtype=np.float32)
    picks = stream.words(wanted.size, np.uint32).reshape(wanted.shape) / 2.0**32
    directions = unit(far)
    heads = unit(queries)
    differences = (directions[anchors] - heads[:, None]).reshape(-1, far.shape[1])
    moment = differences.T @ differences / np.float32(len(differences))
    spread, basis = np.linalg.eigh(moment.astype(np.float64))
    spread = np.maximum(spread / max(spread.mean(), 1e-30), 0.0).astype(np.float32)
    basis = basis.astype(np.float32)
    lengths = np.linalg.norm(far, axis=1)
    for i, head in enumerate(heads @ basis):
        behind = cosines[i, anchors[i]]
        # Anchors fall in cosine: those from the first that is not nearer than wanted will do.
        first = np.minimum(np.searchsorted(-behind, -wanted[i]), len(behind) - 1)
        chosen = anchors[i][(first + picks[i] * (len(behind) - first)).astype(np.intp)]
        vectors = _drawn(head, directions[chosen] @ basis - head, spread, wanted[i])
        near[i] = unit(vectors @ basis.T) * lengths[chosen][:, None]
    return near


def _drawn(head: Singles, difference: Singles, spread: Singles, wanted: Doubles) -> Singles:
    """``head + difference/(1 + τ·spread)``, shape (s, p), with the τ that gives each cosine."""
    low, high = (np.full(len(wanted), edge) for edge in _LOG_PULL)
    for _ in range(_HALVINGS):
        pull = (low + high) / 2
        vectors = head + difference / (1 + np.exp(pull, dtype=np.float32)[:, None] * spread)
        cosine = vectors @ head / np.maximum(np.linalg.norm(vectors, axis=1), 1e-30)
        low, high = np.where(cosine < wanted, pull, low), np.where(cosine < wanted, high, pull)
    return np.asarray(vectors, dtype=np.float32)
