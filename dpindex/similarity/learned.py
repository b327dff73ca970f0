"""Posterior similarities, learned from the codes of a collection or read off denoised codes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from dpindex.base.arrays import Singles, row_blocks
from dpindex.base.errors import InputError
from dpindex.denoise import Denoiser
from dpindex.mechanism.codes import (
    CodeFormat,
    Codes,
    NumberFormat,
    SignFormat,
    SymbolFormat,
    for_format,
)
from dpindex.mechanism.public_random import PublicStream
from dpindex.mechanism.spec import Spec
from dpindex.similarity.covered_symbols import CoveredSymbols
from dpindex.similarity.denoised import DenoisedSimilarity
from dpindex.similarity.float_codes import Estimate
from dpindex.similarity.observation import Observer
from dpindex.similarity.observed_numbers import NumberObserver
from dpindex.similarity.observed_signs import SignObserver
from dpindex.similarity.posterior import posterior
from dpindex.similarity.prior import Priors
from dpindex.similarity.similarity import Estimator, Metric, PrivateQueries, Queries

SAMPLE_ROWS = 16384
"""Codes that the distribution of cosines is learned from."""

OBSERVERS: dict[type[object], type[Observer] | None] = {
    CodeFormat: None,
    NumberFormat: NumberObserver,
    SignFormat: SignObserver,
}
"""By code format. Codes of a format without an entry have no posterior similarities."""


def _observer_of(spec: Spec) -> type[Observer] | None:
    """Return the class that observes a spec's codes, None if the spec says too little."""
    observer = for_format(OBSERVERS, spec.format_type)
    if observer is None or not observer.can_observe(spec):
        return None
    return observer


class LearnedSimilarity(Estimator):
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
        observer = _observer_of(spec)
        if observer is None:
            raise InputError(f"codes of {spec.method} say too little to learn similarities from.")
        self._rows = max(len(codes), 1)
        self._observer = observer(spec, codes)
        self._law = lru_cache(self._observer.law)
        self._refined_law = lru_cache(self._observer.refined_law)
        self._sample = self._observer.refined_items(codes.to_float())
        if self._sample is None:
            self.prior = self._learned_from_scaled(spec, codes, rows)
        else:
            self.prior = self._learned_from_counts(spec, codes, self._sample, rows)
        self._moments = self._moments_of(codes)

    def _learned_from_scaled(self, spec: Spec, codes: Codes, rows: int) -> Priors:
        """Return the collection's prior from observations that have scales."""
        values = []
        scales = []
        for block, above in self._blocks_of_pairs(spec, codes):
            queries = PrivateQueries(codes.take(block), spec)
            value, scale = self._observer.of(queries.to_float()[None], queries)
            values.append(value[above])
            scales.append(scale[above])
        law = self._law(spec, True)
        return Priors.of_pairs(np.concatenate(values), np.concatenate(scales), law, rows)

    def _learned_from_counts(self, spec: Spec, codes: Codes, items: Singles, rows: int) -> Priors:
        """Return the collection's prior from inner products of refined items, counted in bins."""
        law = self._refined_law(spec, True)
        counts = np.zeros((1, len(law.edges) - 1))
        for block, above in self._blocks_of_pairs(spec, codes):
            queries = PrivateQueries(codes.take(block), spec)
            seen = self._observer.refined_queries(queries) @ items[block].T
            counts += law.count(seen[above][None])
        return Priors.of_counts(counts, law, rows)

    def _blocks_of_pairs(
        self, spec: Spec, codes: Codes
    ) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]]:
        """Yield blocks of rows in a random order, and where each pair of a block stands once."""
        order = PublicStream(0, "pairs of codes").permutation(len(codes))
        for places in row_blocks(len(codes), self._observer.pairs_of):
            block = order[places]
            yield block, np.triu(np.ones((len(block), len(block)), np.bool_), 1)

    def _moments_of(self, codes: Codes) -> tuple[Singles, Singles] | None:
        """Return mean and mean square of items whose moments along a query tell its prior.

        None where all its observations are taken instead, or where moments say less.
        """
        if self._sample is not None and self._observer.shows_queries:
            return None
        items = self._observer.own_items(codes)
        if items is None:
            return None
        return items.mean(axis=0), items.T @ items / np.float32(self._rows)

    def estimates(self, codes: Codes, queries: Queries, groups: int) -> Estimate:
        x = codes.to_float().reshape(groups, -1, codes.k).astype(np.float64)
        law = self._law(queries.spec, isinstance(queries, PrivateQueries))
        value, scale = self._observer.of(x, queries)
        cosine, error = posterior(self._priors(queries), law, value, scale)
        return cosine, np.hypot(
            error, self._observer.hidden_error(cosine, isinstance(queries, PrivateQueries))
        )

    def _priors(self, queries: Queries) -> Priors:
        """Return the prior of each exact query, learned from what it shows of the sample.

        The noise of a private query is in all that it shows, so there the collection's is taken.
        """
        if isinstance(queries, PrivateQueries):
            return self.prior
        if self._moments is not None:
            mean, square = self._moments
            y = self._observer.refined_queries(queries)
            seen = np.stack([y @ mean, np.sum((y @ square) * y, axis=1)], axis=1)
            law = self._law(queries.spec, False)
            return self.prior.of_moments(seen.astype(np.float64), law, self._rows)
        if self._sample is None or not self._observer.shows_queries:
            return self.prior
        observed = self._observer.refined_queries(queries) @ self._sample.T
        law = self._refined_law(queries.spec, False)
        return self.prior.of_queries(observed.astype(np.float64), law)


def learned_similarity(
    spec: Spec,
    metric: Metric,
    denoiser: Denoiser | None,
    sample: Callable[[], Codes],
    rows: int,
) -> Estimator | None:
    """Return what gives posterior similarities; None if nothing does.

    A denoiser ranks by more than the two codes of a pair, so there the denoised codes say what the
    cosines are; of denoised signs nothing is known.

    Parameters
    ----------
    sample : callable
        Gives up to :data:`SAMPLE_ROWS` codes of the collection, in a fixed order.
    rows : int
        Codes in the collection.

    >>> from dpindex import Spec, attribute
    >>> spec = Spec("dp-oporp-staircase", dim=8, k=8, epsilon=2.0, adjacency=attribute(1.0))
    >>> learned_similarity(spec, "l2", None, lambda: spec.format.codes([]), 0) is None
    True
    """
    if metric != "cosine":
        return None
    learn = for_format(_LEARNED, spec.format_type)
    return learn(spec, denoiser, sample, rows)


def _observed(
    spec: Spec, denoiser: Denoiser | None, sample: Callable[[], Codes], rows: int
) -> Estimator | None:
    observer = _observer_of(spec)
    if observer is None:
        return None
    if denoiser is None:
        return LearnedSimilarity(spec, sample(), rows)
    if not observer.knows_denoised:
        return None
    return DenoisedSimilarity(denoiser, sample())


def _covered(
    spec: Spec, denoiser: Denoiser | None, sample: Callable[[], Codes], rows: int
) -> Estimator | None:
    return CoveredSymbols(spec, sample())


_LEARNED: dict[type[object], Callable[..., Estimator | None]] = {
    CodeFormat: _observed,
    SymbolFormat: _covered,
}
