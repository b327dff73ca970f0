"""What codes say about the similarities of a collection, and what a search may state then.

A release learns it as it publishes, whatever it publishes to: :func:`learned`. What cannot be
learned is not stated, and :func:`unstated` says why.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from dpindex.base.arrays import Rows, spaced
from dpindex.decode.base import Estimator, Metric
from dpindex.decode.calibration import PAIRED_ROWS, SAMPLE_ROWS, SimilarityCalibration
from dpindex.decode.denoiser import Denoiser
from dpindex.decode.posterior import (
    DenoisedPosterior,
    NumberPosterior,
    Posterior,
    SignPosterior,
    SymbolPosterior,
)
from dpindex.mechanism.codes import CodeFormat, Codes, SignFormat, SymbolFormat
from dpindex.mechanism.public_random import PublicStream
from dpindex.mechanism.spec import Spec

LEAST_ROWS = 100
"""Fewer codes say too little about what is usual in a collection."""

POSTERIORS: dict[type[CodeFormat], type[Posterior]] = {
    SignFormat: SignPosterior,
    SymbolFormat: SymbolPosterior,
    CodeFormat: NumberPosterior,  # type: ignore[type-abstract]
}
"""What estimates cosines by what was learned; the first format that fits counts."""


def posterior_type(spec: Spec, metric: Metric) -> type[Posterior] | None:
    """Return what can state similarities of such codes, once it has learned; None if nothing can.

    >>> from dpindex import attribute
    >>> spec = Spec("dp-signoporp-rr", dim=8, k=8, epsilon=2.0, adjacency=attribute(1.0))
    >>> posterior_type(spec, "cosine").__name__, posterior_type(spec, "ip")
    ('SignPosterior', None)
    """
    if metric != "cosine" or spec.design is not None:
        return None
    formats = [kind for kind in POSTERIORS if issubclass(spec.format_type, kind)]
    return POSTERIORS[formats[0]]


def learned(
    spec: Spec,
    metric: Metric,
    take: Callable[[Rows], Codes],
    rows: int,
    denoiser: Denoiser | None = None,
) -> SimilarityCalibration | None:
    """Return what :func:`posterior_of` needs; None if nothing can be learned.

    It reads codes and public parameters, so it costs no budget.

    Parameters
    ----------
    spec : Spec
    metric : "cosine", "ip" or "l2"
    take : callable
        Returns the codes of some rows, in any order.
    rows : int
        Codes in the collection.
    denoiser : Denoiser, optional
        What the codes are ranked with.
    """
    posterior = posterior_type(spec, metric)
    if posterior is None or posterior.lacks(spec) or rows < LEAST_ROWS:
        return None
    places = spaced(rows, SAMPLE_ROWS)
    order = PublicStream(0, "calibration").permutation(len(places))
    sample = take(places[order])
    found = posterior.fit(spec, sample, rows)
    if not np.isfinite(found.density).all():
        return None
    if denoiser is None or found.energy == 0.0:
        return found
    denoised = denoiser(sample.take(slice(PAIRED_ROWS)))
    squares = np.square(denoised).sum(axis=1, dtype=np.float64)
    return replace(found, denoised_energy=float(squares.mean()))


def posterior_of(
    spec: Spec,
    metric: Metric,
    calibration: SimilarityCalibration | None,
    denoiser: Denoiser | None,
) -> Estimator | None:
    """Return what estimates cosines that selection does not bias; None if nothing does.

    A denoiser ranks by more than the two codes of a pair, so there the denoised codes say what the
    cosines are; of denoised signs nothing is known.
    """
    posterior = posterior_type(spec, metric)
    if calibration is None or posterior is None:
        return None
    if denoiser is None:
        return posterior(spec, calibration)
    if calibration.denoised_energy == 0.0:
        return None
    return DenoisedPosterior(denoiser, calibration)


def unstated(spec: Spec, metric: Metric, rows: int, denoiser: Denoiser | None) -> str:
    """Return why :func:`posterior_of` states nothing, and what helps.

    >>> from dpindex import attribute
    >>> spec = Spec("dp-oporp-staircase", dim=8, k=8, epsilon=2.0, adjacency=attribute(1.0))
    >>> unstated(spec, "cosine", 5, None)[:50]
    'no similarity is stated: 5 codes are too few to le'
    """
    posterior = posterior_type(spec, metric)
    alone = "`unbiased` estimates each pair alone, and is too high for the best of many"
    if metric != "cosine":
        why = f"what codes tell of a collection holds for cosines, and this index ranks by {metric}"
    elif posterior is None:
        why = "errors of codes under a design are not known"
    elif lacking := posterior.lacks(spec):
        return f"no similarity is stated: {lacking}."
    elif rows < LEAST_ROWS:
        why = f"{rows} codes are too few to learn what they mean, {LEAST_ROWS} are enough"
    elif denoiser is not None:
        why = "errors of denoised signs are not known"
    else:
        why = "nothing was learned from these codes yet, `calibrate` does it"
    return f"no similarity is stated: {why}. {alone}; rerank with the original vectors is exact."
