"""Reconstruction of vectors from their codes: a linear attack, and how much it recovers.

The attacker knows everything public: the projection, the law of the noise and the bounds. The prior
of every attribute is uniform over the bounds, and attributes are independent. An attacker who holds
the codes of the whole collection can also fit the denoiser that improves search, which makes the
attack far stronger. Attackers with other data of the same kind can do better still.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse

from dpindex.base.arrays import Doubles, Floats, Singles, Vectors, in_units_of_largest, unit
from dpindex.base.errors import InputError
from dpindex.denoise import Denoiser, fit_denoiser, fit_if_possible
from dpindex.exposure.exposure import linear_channel, nearness
from dpindex.exposure.prior import Prior, directions_only
from dpindex.mechanism.codes import Codes
from dpindex.mechanism.noise.law import SignLaw
from dpindex.mechanism.spec import Spec

EXPOSURE = ("rebuilt_error", "rebuilt_cosine")
"""The measures that :func:`exposure` returns."""

# The largest projections that are inverted on request, and as a part of every evaluation.
_MAX_ENTRIES = 1 << 26
_MAX_MEASURED_ENTRIES = 1 << 22
_MAX_MEASURED_LENGTH = 2048


def exposure(
    spec: Spec, vectors: Vectors, codes: Codes, denoiser: Denoiser | None = None
) -> dict[str, float]:
    """How much of ``vectors`` the attack recovers from their codes.

    Parameters
    ----------
    spec : Spec
        The spec of the codes.
    vectors : array or sparse matrix, shape (n, dim)
        Original vectors.
    codes : FloatCodes or BitCodes
        Codes of those n vectors, and after them of others to fit a denoiser to.
    denoiser : Denoiser, optional
        Used if it is of the kind "score"; otherwise the strongest denoiser is fitted to ``codes``.

    Returns
    -------
    dict
        ``rebuilt_error``: mean squared error of the reconstructions over that of the best guess
        without codes (the middle of the bounds), [0, ∞). ``rebuilt_cosine``: mean cosine to the
        originals. Both are NaN if the projection has more than 2^22 entries or 2048 columns.
        Record-level methods encode directions, so both are of the originals at norm 1.
    """
    large = spec.dim * spec.code_length > _MAX_MEASURED_ENTRIES
    if large or spec.code_length > _MAX_MEASURED_LENGTH:
        return dict.fromkeys(EXPOSURE, math.nan)
    denoiser = attackers_denoiser(spec, codes, denoiser)
    dense = vectors.toarray() if scipy.sparse.issparse(vectors) else vectors
    truth = np.asarray(dense, dtype=np.float64)
    if directions_only(spec):
        truth = unit(in_units_of_largest(truth)).astype(np.float64)
    estimate = invert(codes.take(slice(len(truth))), spec, denoiser).astype(np.float64)
    guess = sum(spec.bounds) / 2 * spec.scale
    error = np.square(estimate - truth).mean() / np.square(truth - guess).mean()
    return {EXPOSURE[0]: float(error), EXPOSURE[1]: float(cosines(estimate, truth).mean())}


def attackers_denoiser(
    spec: Spec, codes: Codes, denoiser: Denoiser | None = None
) -> Denoiser | None:
    """The strongest denoiser for these codes: the one given if it is of the kind "score"."""
    strongest = denoiser is not None and denoiser.kind == "score"
    if strongest or "score" not in spec.format_type.denoisers:
        return denoiser
    return fit_if_possible(partial(fit_denoiser, codes, spec), spec) or denoiser


def invert(codes: Codes, spec: Spec, denoiser: Denoiser | None = None) -> Singles:
    """The least-squares linear estimate of the vectors behind codes; for symbols the public one.

    For prior mean m and variance v of every attribute and codes ``z ≈ B A u + noise`` (A the public
    projection, B and the noise variances R from the public law) it is
    ``m + v (BA)ᵀ (v BA(BA)ᵀ + R)⁻¹ (z − E z)``, clipped to the public bounds. For signs, B is the
    regression coefficient of the sign on the projected value (Bussgang 1952). Codes that depend on
    directions alone give vectors of about norm 1: their prior has mean 0 and variance 1/dim. So has
    one of a declared norm, with norm²/dim, if its bounds are symmetric.

    A symbol is one of the w codewords nearest to its vector with a public probability, else any
    other: the estimate is the codeword, shrunk by the mean cosine of codewords to the w nearest
    others, and the mean of vectors elsewhere, weighted so.

    Parameters
    ----------
    codes : FloatCodes or BitCodes
        Codes of n vectors made under ``spec``.
    spec : Spec
        Their public description.
    denoiser : Denoiser, optional
        Fitted to codes of the same collection; float codes are denoised before they are inverted.
        Sign codes are inverted without it.

    Returns
    -------
    float32 array, shape (n, dim), in the units of the vectors before division by ``scale``.

    Raises
    ------
    InputError
        If the codes come from another spec, or the projection has more than 2^26 entries.

    >>> from dpindex import Privatizer
    >>> spec = Spec(method="raw-staircase", dim=3, epsilon=50.0, bounds=(0, 1))
    >>> codes = Privatizer(spec).privatize(np.array([[0.0, 0.5, 1.0]]))
    >>> np.round(invert(codes, spec), 1).tolist()
    [[0.0, 0.5, 1.0]]
    """
    if codes.fingerprint != spec.fingerprint:
        raise InputError("these codes were made under another spec than the one given.")
    if spec.format.symbolic:
        return _codewords(codes, spec)
    if spec.dim * spec.code_length > _MAX_ENTRIES:
        raise InputError(
            f"the projection has {spec.dim} × {spec.code_length} entries, too many to invert; "
            f"{_MAX_ENTRIES} at most."
        )
    low, high = spec.bounds
    projection = spec.projection.apply(np.eye(spec.dim, dtype=np.float32)).astype(np.float64)
    projection *= spec.projection.scale
    prior = Prior.of(spec)
    prior_mean = prior.mean * projection.sum(axis=0)
    prior_variance = prior.variance * (projection**2).sum(axis=0)
    slope, expected, noise = linear_channel(spec, prior_mean, prior_variance)
    decoded = codes.to_float()
    if denoiser is not None and not isinstance(spec.law, SignLaw):
        decoded = denoiser(codes)
        noise = np.zeros_like(noise)
    response = projection * slope
    covariance = prior.variance * (response.T @ response) + np.diag(noise)
    # The pseudo-inverse leaves out coordinates without information (empty bins without noise).
    weights = prior.variance * (np.linalg.pinv(covariance, hermitian=True) @ response.T)
    estimate = prior.mean + (decoded - expected) @ weights
    return (np.clip(estimate, low, high) * spec.scale).astype(np.float32)


def _codewords(codes: Codes, spec: Spec) -> Singles:
    """What the symbols stand for, each as likely as the law says."""
    law: Any = spec.law
    words = law.codebook.vectors
    kept = law.inside / 2.0**64
    near = nearness(spec) * codes.to_float()
    share = law.subset / len(words)
    far = (words.mean(axis=0) - share * near) / (1.0 - share)  # of vectors that are not near it
    estimates = kept * near + (1.0 - kept) * far
    return np.asarray(estimates, dtype=np.float32)


def cosines(estimates: Floats, originals: Floats) -> Doubles:
    """Cosine of each estimate to its original, shape (n,); 0 where one of them is zero."""
    u = estimates.astype(np.float64)
    v = originals.astype(np.float64)
    norms = np.linalg.norm(u, axis=1) * np.linalg.norm(v, axis=1)
    return np.asarray(np.divide((u * v).sum(axis=1), norms, out=np.zeros(len(u)), where=norms > 0))
