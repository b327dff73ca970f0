"""What states similarities that selection does not bias, for the codes and ranking at hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import TypeAlias

import numpy as np

from dpindex.base.arrays import AnyArray
from dpindex.base.errors import InputError
from dpindex.denoise import Denoiser
from dpindex.mechanism.codes import CodeFormat, Codes, NumberFormat, SignFormat, for_format
from dpindex.mechanism.spec import Spec
from dpindex.randomness import PublicStream
from dpindex.similarity.denoised import DenoisedSimilarity
from dpindex.similarity.float_codes import Estimate
from dpindex.similarity.observation import Observer
from dpindex.similarity.observed_numbers import NumberObserver
from dpindex.similarity.observed_signs import SignObserver
from dpindex.similarity.posterior import posterior
from dpindex.similarity.prior import Priors
from dpindex.similarity.similarity import Metric, Queries

SAMPLE_ROWS = 16384
"""Codes that the distribution of cosines is learned from."""

OBSERVERS: dict[type[object], type[Observer] | None] = {
    CodeFormat: None,
    NumberFormat: NumberObserver,
    SignFormat: SignObserver,
}
"""By code format. Codes of a format without an entry have no posterior similarities."""


def _observer_of(spec: Spec) -> type[Observer] | None:
    """Return the class that observes a spec's codes; None if there is none, or the spec says too
    little."""
    observer = for_format(OBSERVERS, spec.format_type)
    if observer is None or not observer.can_observe(spec):
        return None
    return observer


def can_learn(spec: Spec, metric: Metric) -> bool:
    """Whether posteriors are known: for cosines, of codes that show them.

    >>> can_learn(Spec("dp-signoporp-geometric", dim=64, epsilon=2.0), "cosine")  # no norm
    False
    """
    return metric == "cosine" and _observer_of(spec) is not None


class LearnedSimilarity:
    """Posterior cosines of the codes of a collection, learned from the codes themselves.

    Nothing but codes and public parameters enters, and equal codes give equal posteriors.

    Parameters
    ----------
    spec : Spec
    codes : Codes
        A sample of the collection, in a fixed order.
    rows : int
        Codes in the collection.
    """

    def __init__(self, spec: Spec, codes: Codes, rows: int) -> None:
        self._rows = max(len(codes), 1)
        observer = _observer_of(spec)
        if observer is None:
            raise InputError(f"codes of {spec.method} say too little to learn similarities from.")
        self._observer = observer(spec, codes)
        self._sample = self._observer.refined_items(codes.to_float())
        laws = self._observer.law if self._sample is None else self._observer.refined_law
        law = laws(spec, True)
        pairs = self._pairs(spec, codes)
        if self._sample is None:
            values, scales = map(np.concatenate, zip(*pairs, strict=True))
            self.prior = Priors.of_pairs(values, scales, law, rows)
        else:
            counts = sum(law.count(value[None]) for value, _ in pairs)
            self.prior = Priors.of_counts(np.asarray(counts), law, rows)
        self._shown = self._sample if self._observer.shows_queries else None
        items = self._observer.own_items(codes) if self._shown is None else None
        self._moments = None
        if items is not None:
            self._moments = items.mean(axis=0), items.T @ items / np.float32(self._rows)
        self._law = lru_cache(self._observer.law)
        self._refined_law = lru_cache(laws)

    def _pairs(self, spec: Spec, codes: Codes) -> Iterator[tuple[AnyArray, AnyArray]]:
        """Observations, and scales if there are any, of pairs within blocks of a random order."""
        order = PublicStream(0, "pairs of codes").permutation(len(codes))
        block = self._observer.pairs_of
        for first in range(0, len(codes), block):
            some = order[first : first + block]
            asked = Queries(codes.take(some), spec, True)
            upper = np.triu(np.ones((len(some), len(some)), np.bool_), 1)
            if self._sample is None:
                value, scale = self._observer.of(asked.to_float()[None], asked)
                yield value[upper], scale[upper]
            else:
                seen = self._observer.refined_queries(asked) @ self._sample[some].T
                yield seen[upper], np.empty(0)

    def of_found(self, codes: Codes, queries: Queries) -> Estimate:
        """Each query with codes of its own: see :class:`Similarity`."""
        return self._of(codes.to_float().reshape(len(queries), -1, codes.k), queries)

    def of_all(self, codes: Codes, queries: Queries) -> Estimate:
        """Every query with all of the codes."""
        return self._of(codes.to_float()[None], queries)

    def _of(self, x: AnyArray, queries: Queries) -> Estimate:
        law = self._law(queries.spec, queries.private)
        value, scale = self._observer.of(x.astype(np.float64), queries)
        cosine, error = posterior(self._priors(queries), law, value, scale)
        return cosine, np.hypot(error, self._observer.hidden_error(cosine, queries.private))

    def _priors(self, queries: Queries) -> Priors:
        """Each exact query's own, learned from what it shows of the sample.

        The noise of a private query is in all that it shows, so there the collection's is taken.
        """
        if queries.private:
            return self.prior
        if self._moments is not None:
            y = self._observer.refined_queries(queries)
            (mean, square) = self._moments
            seen = np.stack([y @ mean, np.sum((y @ square) * y, axis=1)], axis=1)
            law = self._law(queries.spec, False)
            return self.prior.of_moments(seen.astype(np.float64), law, self._rows)
        if self._shown is None:
            return self.prior
        seen = self._observer.refined_queries(queries) @ self._shown.T
        law = self._refined_law(queries.spec, False)
        return self.prior.of_queries(seen.astype(np.float64), law)


Learned: TypeAlias = LearnedSimilarity | DenoisedSimilarity


def learned_similarity(
    spec: Spec,
    metric: Metric,
    denoiser: Denoiser | None,
    sample: Callable[[], Codes],
    rows: int,
) -> Learned | None:
    """What gives posterior similarities; None without one.

    A denoiser ranks by more than the two codes of a pair, so there the denoised codes say what the
    cosines are; of denoised signs nothing is known.

    Parameters
    ----------
    sample : callable
        Gives up to :data:`SAMPLE_ROWS` codes of the collection, in a fixed order.
    rows : int
        Codes in the collection.

    >>> from dpindex import Spec
    >>> spec = Spec("dp-oporp-staircase", dim=8, k=8, epsilon=2.0)
    >>> learned_similarity(spec, "l2", None, lambda: spec.format.codes([]), 0) is None
    True
    """
    observer = _observer_of(spec)
    if metric != "cosine" or observer is None:
        return None
    if denoiser is None:
        return LearnedSimilarity(spec, sample(), rows)
    if not observer.knows_denoised:
        return None
    return DenoisedSimilarity(denoiser, sample())
