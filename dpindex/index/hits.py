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
        What the true metric is, given the codes: a cosine in [−1, 1], an inner product, or a
        squared distance, corrected for noise and flips. Cosines are posterior means, under the
        distribution of cosines that was learned from the collection's codes: right on average also
        for the best of many candidates (see :mod:`dpindex.estimators.posterior`). Of codeword
        codes they are means under the codebook's cosines. Inner products and squared distances are
        the unbiased estimates. NaN where flips depend on norms nobody declared (``Spec.norm``).
    stderr : float64 array, shape (nq, k)
        Its error: the posterior deviation of cosines, the standard error of the others. The truth
        lies within two of it about 95 times in 100.
    unbiased : float64 array, shape (nq, k)
        The unbiased estimate from the codes of this pair alone, cosines clipped to [−1, 1]. The
        best of many are too high, as any maximum of noisy numbers is. Equal to ``similarity``
        where there is no posterior.
    unbiased_stderr : float64 array, shape (nq, k)
        Its standard error, of one pair looked at on its own.
    """

    ids: AnyArray
    scores: Floats
    similarity: Floats
    stderr: Floats
    unbiased: Floats
    unbiased_stderr: Floats
