"""What a search returns."""

from __future__ import annotations

from dataclasses import dataclass

from dpindex.arrays import AnyArray, Floats


@dataclass(frozen=True)
class Hits:
    """Neighbours of each query, best first.

    Attributes
    ----------
    ids : array, shape (nq, k)
        Ids of the neighbours, int64 or strings. With fewer than k vectors, k is their number.
    scores : float64 array, shape (nq, k)
        What the ranking is by; higher is nearer. Of ``search``: cosine of the noisy codes
        (``cosine``), their inner product (``ip``), minus their squared distance (``l2``), as the
        index type computes it, which may round; for sign codes ``Σ y_j s_j`` with an exact query
        and ``Σ s_j t_j`` with a private one. Where a denoiser was fitted, the same of denoised
        vectors (a cosine, shrunk by the estimate's posterior variance where the denoiser knows
        it): these rank far better, but they are shrunken towards what is usual in the collection,
        so they are no estimates. Of ``range_search``: the similarity (``l2``: minus it).
    similarity : float64 array, shape (nq, k)
        The estimate of the true metric, corrected for noise and flips: a cosine in [−1, 1], an
        inner product, or a squared distance. NaN where flips depend on norms nobody declared
        (``Spec.norm``). Always read off the codes themselves, whatever the index type or denoiser
        that found them, so unbiased; it need not fall in the order of the ranking.
    stderr : float64 array, shape (nq, k)
        Its standard error. For the best of many candidates the estimate is biased upwards, as any
        maximum of noisy numbers is; the error is that of one pair looked at on its own.
    """

    ids: AnyArray
    scores: Floats
    similarity: Floats
    stderr: Floats
