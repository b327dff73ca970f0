"""The panel of attacks, on codes of any scheme: what is picked, rebuilt and recognised.

The measures are those of ``dpindex.study.matching``. The attacker knows the scheme, the codes
of the whole collection and a public sample of the same kind of vectors, on which it imitates the
scheme. It never holds a key, but it may know some records with their codes.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from peers_schemes import Array, Scheme

from dpindex.base.arrays import nearest_items, unit
from dpindex.study.matching import (
    TruePlaces,
    learned_map,
    rank_by_scores,
    true_positive_rate,
)
from dpindex.study.reconstruction import cosines

CANDIDATES = 1000
PAIRS = (10, 100, 1000)
FALSE_POSITIVES = 0.01
_ATTACKED = 500
_HELD = 500
_SHARPNESS = 4.0 ** np.arange(-4, 5)
_PROFILE = np.concatenate([np.linspace(0.0, 0.9, 28), 1.0 - np.geomspace(0.1, 1e-3, 20)])
_PROFILED = 2000


def rank_candidates(estimates: Array, candidates: Array, own: Array) -> TruePlaces:
    """Rank candidates by their cosines to estimates; both less what is expected without a code."""
    directions = unit(candidates)
    targets = unit(estimates)
    return rank_by_scores(lambda codes: targets[codes] @ directions.T, own, len(candidates))


class Attacker:
    """The attacks on one build of a scheme.

    Parameters
    ----------
    scheme : Scheme
    codes
        Of the whole collection.
    base, public : arrays, shapes (n, dim) and (m, dim), norm 1
    strangers : array, shape (s, dim)
        Vectors of the kind that are in neither.
    """

    def __init__(
        self, scheme: Scheme, codes: Any, base: Array, public: Array, strangers: Array
    ) -> None:
        self._rng = np.random.default_rng()
        chosen = self._rng.permutation(len(base))
        self._attacked, self._known, _ = np.split(chosen, [_ATTACKED, _ATTACKED + max(PAIRS)])
        self._scheme = scheme
        self._codes = codes
        self._attacked_codes = scheme.take(codes, self._attacked)
        self._base = base
        self._truth = base[self._attacked]
        self._public = self._rng.permutation(public)
        self._strangers = strangers
        self._readings = scheme.read(codes)

    def figures(self) -> dict[str, float]:
        """Return the success of every attack.

        ``picked`` is the rate of attacked codes whose vector is picked among 1000, ``best`` its
        maximum over all attacks, ``rebuilt`` the highest mean cosine of rebuilt vectors, and
        ``recognised`` the true-positive rate of membership at 1 % false positives.
        """
        figures = self._without_pairs()
        best = figures["picked"]
        for pairs in PAIRS:
            cosine, rate = self._with_pairs(pairs)
            figures["rebuilt"] = max(figures["rebuilt"], cosine)
            figures[f"picked, {pairs} pairs"] = rate
            best = max(best, rate)
        figures["best"] = best
        figures["recognised"] = self._membership()
        return figures

    def _without_pairs(self) -> dict[str, float]:
        guess = self._public.mean(axis=0)
        key = self._scheme.key_from_sample(self._readings, self._public)
        rankings = []
        if key is None:
            estimates = np.broadcast_to(guess, self._truth.shape)
        else:
            readings = self._readings @ key
            estimates = self._rebuilt(readings)
            rankings.append(self._ranking(readings[self._attacked], readings.mean(axis=0)))
            rankings.append(self._ranking(estimates, guess))
        rankings += self._scheme.rankings(self._attacked_codes, self._base, self._attacked)
        if self._scheme.keyed:
            rankings.append(self._profiles())
        return {
            "rebuilt": float(cosines(estimates, self._truth).mean()),
            "picked": max(ranking.found(CANDIDATES) for ranking in rankings),
            "picked of all": max(ranking.found(len(self._base)) for ranking in rankings),
        }

    def _with_pairs(self, pairs: int) -> tuple[float, float]:
        """Return the mean cosine of rebuilt vectors and the rate of picked ones.

        The best of three counts: a learned map, the key that fits the pairs, and similarities to
        the known records, which an orthogonal map keeps.
        """
        known = self._base[self._known[:pairs]]
        readings = self._readings[self._known[:pairs]]
        attacked = self._readings[self._attacked]
        mapped = learned_map(readings, known)(attacked)
        turned = attacked @ self._scheme.key_from_pairs(readings, known)
        rankings = [self._ranking(estimates, known.mean(axis=0)) for estimates in (mapped, turned)]
        similarities = self._base @ known.T
        centre = similarities.mean(axis=0)
        rankings.append(
            rank_candidates(attacked @ readings.T - centre, similarities - centre, self._attacked)
        )
        cosine = max(cosines(estimates, self._truth).mean() for estimates in (mapped, turned))
        return float(cosine), max(ranking.found(CANDIDATES) for ranking in rankings)

    def _membership(self) -> float:
        """Return the true-positive rate by the best score; a key is learned from all pairs."""
        key = self._scheme.key_from_pairs(self._readings[self._known], self._base[self._known])
        readings = self._readings @ key
        queries = np.concatenate([self._truth, self._strangers])
        directions = [unit(rows - rows.mean(axis=0)) for rows in (queries, readings)]
        scores, _ = nearest_items(*directions, 1)
        members, others = np.split(scores[:, 0], [len(self._truth)])
        return true_positive_rate(members, others, FALSE_POSITIVES)

    def _ranking(self, estimates: Array, centre: Array) -> TruePlaces:
        mean = self._base.mean(axis=0)
        return rank_candidates(estimates - centre, self._base - mean, self._attacked)

    def _profiles(self) -> TruePlaces:
        """Rank by the law of a record's similarities to the others, which needs no key."""
        others = np.setdiff1d(np.arange(len(self._base)), self._attacked)
        sample = self._readings[self._rng.permutation(others)[:_PROFILED]]
        observed = _profile(self._readings[self._attacked], sample)
        candidates = self._scheme.imitate(self._base)
        expected = _profile(candidates, self._scheme.imitate(self._public[:_PROFILED]))
        spread = expected.std(axis=0)
        return rank_candidates(
            (observed - observed.mean(axis=0)) / spread,
            (expected - expected.mean(axis=0)) / spread,
            self._attacked,
        )

    def _rebuilt(self, readings: Array) -> Array:
        """Return the attacked vectors by the estimate that does best on held-out public ones.

        The reading itself; a learned map; and the mean of public vectors with weights
        exp(t·⟨reading, vector⟩), which is Bayes' estimate for isotropic normal noise.
        """
        held, learned = np.split(self._public, [_HELD])
        codes = self._scheme.imitate(held)
        held_readings = self._scheme.read(codes)
        attacked = readings[self._attacked]
        imitation = self._scheme.read(self._scheme.imitate(learned))
        tries = [(held_readings, attacked)]
        for estimate in (
            learned_map(imitation, learned),
            *(partial(_posterior_mean, learned, t) for t in _SHARPNESS),
        ):
            tries.append((estimate(held_readings), estimate(attacked)))
        for by_law in self._scheme.estimates(self._codes, learned):
            tries.append((by_law(codes), by_law(self._attacked_codes)))
        return max(tries, key=lambda pair: float(cosines(pair[0], held).mean()))[1]


def _profile(vectors: Array, others: Array) -> Array:
    """Return quantiles of the cosines of each vector to the others, shape (n, quantiles)."""
    cosine = vectors @ others.T
    cosine.sort(axis=1)
    return cosine[:, (_PROFILE * (len(others) - 1)).astype(int)]


def _posterior_mean(known: Array, t: float, readings: Array) -> Array:
    logs = np.float32(t) * (readings @ known.T)
    weights = np.exp(logs - logs.max(axis=1, keepdims=True))
    return np.asarray(weights @ known)
