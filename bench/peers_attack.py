"""What an attacker makes of codes: vectors rebuilt, and codes linked to records.

The attacker knows the scheme, everything public and a public sample of the same kind of vectors. It
imitates the scheme on that sample and there chooses between simple ways to rebuild vectors. To
link, it holds a noisy copy of every record as well. It never holds a key.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from peers_schemes import Array, Scheme, directions
from scipy.optimize import linear_sum_assignment

Function: TypeAlias = Callable[[Array], Array]

COPY_COSINE = 0.9
IMITATIONS, TRIED = 4, 500
_RIDGES = 10.0 ** np.arange(-4, 3)
_SHARPNESS = 4.0 ** np.arange(-4, 5)
_QUANTILES = (np.arange(32) + 0.5) / 32
_LIKELIHOODS = (40.0, 80.0)
_ROUNDS = 40
_ATTEMPTS = 5
_BLOCK = 500


def noisy_copies(vectors: Array, rng: np.random.Generator) -> Array:
    """Vectors of norm 1 and cosine 0.9 with the given ones."""
    noise = directions(vectors.shape, rng)
    noise -= np.einsum("ij,ij->i", noise, vectors)[:, None] * vectors
    noise *= np.sqrt(1.0 - COPY_COSINE**2) / np.linalg.norm(noise, axis=1, keepdims=True)
    return (COPY_COSINE * vectors + noise).astype(np.float32)


def cosines(left: Array, right: Array) -> Array:
    """Cosine of each row with the row of the other; 0 for zero rows."""
    norms = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
    return np.asarray(np.einsum("ij,ij->i", left, right) / np.maximum(norms, 1e-30))


def find_order(make: Callable[[], Array], readings: Array) -> Array:
    """Which coordinate of the readings is which, from the two distributions alone.

    ``make`` draws vectors with noise like that of the readings. Of five attempts the one counts
    that leaves the covariances nearest to each other.
    """
    observed = np.cov(readings.T)

    def left_over(found: tuple[Array, Array]) -> float:
        order, covariance = found
        return float(np.square(covariance - observed[np.ix_(order, order)]).sum())

    return min((_one_order(make(), readings, observed) for _ in range(_ATTEMPTS)), key=left_over)[0]


def _one_order(known: Array, readings: Array, observed: Array) -> tuple[Array, Array]:
    """Order and covariance of the known vectors.

    Coordinates are matched by their quantiles at first, and then by their covariances with those
    matched best, of which there are more in every round.
    """
    covariance = np.cov(known.T)
    cost = _distances(
        np.quantile(known, _QUANTILES, axis=0).T, np.quantile(readings, _QUANTILES, axis=0).T
    )
    rows = np.arange(len(cost))
    order = linear_sum_assignment(cost)[1]
    for share in np.linspace(0.1, 1.0, _ROUNDS):
        chosen = cost[rows, order]
        cost[rows, order] = np.inf
        margin = cost.min(axis=1) / (chosen + 1e-12)
        seeds = np.argsort(-margin)[: max(10, int(share * len(rows)))]
        cost = _distances(covariance[:, seeds], observed[:, order[seeds]])
        order = linear_sum_assignment(cost)[1]
    return np.asarray(order), covariance


def order_from_pairs(vectors: Array, readings: Array) -> Array:
    """Which coordinate of the readings is which, from vectors and their own readings."""
    return np.asarray(linear_sum_assignment(-_standard(vectors).T @ _standard(readings))[1])


def rebuilder(scheme: Scheme, public: Array, pairs: tuple[Array, Array] | None) -> Function:
    """From readings to vectors: the estimator that does best on a held-out part of the sample.

    The reading itself; ridge regression; and the mean of public vectors with weights
    exp(t·⟨reading, vector⟩), which is Bayes' estimate for isotropic normal noise.
    """
    held, rest = public[:TRIED], public[TRIED:]
    readings = [scheme.imitate(rest) for _ in range(IMITATIONS)]
    vectors = [rest] * IMITATIONS
    if pairs is not None:
        vectors.append(pairs[0])
        readings.append(pairs[1])
    known = rest if pairs is None else np.concatenate([rest, pairs[0]])
    candidates = [lambda y: y, *_ridges(np.concatenate(readings), np.concatenate(vectors))]
    candidates += [_posterior(known, t) for t in _SHARPNESS]
    tried = scheme.imitate(held)
    return max(candidates, key=lambda f: cosines(f(tried), held).mean())


def linked(readings: Array, rebuilt: Array, copies: Array, own: Array, scheme: Scheme) -> float:
    """Share of codes whose best copy is that of their own record, by the score that links most.

    Scores are ⟨reading, copy⟩ and ⟨rebuilt vector, copy⟩; where codes are few, also the logarithm
    of how likely a codeword is for the copy, ``t⟨c, copy⟩ − log Σ exp(t⟨c_j, copy⟩)``.
    """
    plain = np.zeros(len(copies), dtype=np.float32)
    scores = [(readings, plain), (rebuilt, plain)]
    if scheme.alphabet is not None:
        scores += [(readings, _log_sums(copies, scheme.alphabet, t)) for t in _LIKELIHOODS]
    return max(_success(estimates, copies, less, own) for estimates, less in scores)


def _success(estimates: Array, copies: Array, less: Array, own: Array) -> float:
    right = 0
    for start in range(0, len(own), _BLOCK):
        scores = estimates[start : start + _BLOCK].astype(np.float32) @ copies.T - less
        right += int((scores.argmax(axis=1) == own[start : start + _BLOCK]).sum())
    return right / len(own)


def _log_sums(copies: Array, alphabet: Array, t: float) -> Array:
    """``log Σ exp(t⟨c_j, copy⟩)/t`` of each copy, up to a constant."""
    sums = [
        np.exp(np.float32(t) * (copies[start : start + _BLOCK] @ alphabet.T - 1.0)).sum(axis=1)
        for start in range(0, len(copies), _BLOCK)
    ]
    return np.asarray(np.log(np.concatenate(sums)) / np.float32(t))


def _ridges(readings: Array, vectors: Array) -> list[Function]:
    """Ridge regressions with an intercept, from nearly none to heavy."""
    centre, mean = readings.mean(axis=0), vectors.mean(axis=0)
    table = readings - centre
    values, axes = np.linalg.eigh(table.T @ table)
    projected = axes.T @ (table.T @ (vectors - mean))
    scale = values.mean()

    def fitted(penalty: float) -> Function:
        weights = axes @ (projected / (values + penalty * scale)[:, None])
        return lambda y: mean + (y - centre) @ weights

    return [fitted(float(penalty)) for penalty in _RIDGES]


def _posterior(known: Array, t: float) -> Function:
    def estimate(readings: Array) -> Array:
        logs = np.float32(t) * (readings @ known.T)
        weights = np.exp(logs - logs.max(axis=1, keepdims=True))
        return np.asarray(weights @ known)

    return estimate


def _distances(left: Array, right: Array) -> Array:
    squares = np.square(left).sum(axis=1)[:, None] + np.square(right).sum(axis=1)
    return np.asarray(squares - 2.0 * left @ right.T)


def _standard(table: Array) -> Array:
    spread = table.std(axis=0)
    return np.asarray((table - table.mean(axis=0)) / np.where(spread > 0, spread, 1.0))
