"""What states similarities that selection does not bias, for the codes and ranking at hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from dpindex.codes import Codes
from dpindex.estimators.denoise import Denoiser
from dpindex.estimators.denoised import DenoisedSimilarity
from dpindex.estimators.observation import LearnedSimilarity, can_learn
from dpindex.estimators.similarity import Metric
from dpindex.spec import Spec

Learned: TypeAlias = LearnedSimilarity | DenoisedSimilarity

SAMPLE_ROWS = 16384
"""Codes that the distribution of cosines is learned from."""


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
    if not can_learn(spec, metric):
        return None
    if denoiser is None:
        return LearnedSimilarity(spec, sample(), rows)
    return None if spec.format.name == "signs" else DenoisedSimilarity(denoiser, sample())
