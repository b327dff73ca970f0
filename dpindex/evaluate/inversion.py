"""What an attacker gets back who inverts the codes: from public facts, or from all codes together.

The attacker knows the spec, so the projection, the law of the noise and the public bounds; as a
prior, attributes are independent and uniform over the bounds. Who holds many codes learns from them
what vectors of the collection look like, by the same denoiser that improves search: a far stronger
attack. Nothing is learned from other data of the kind; who has that does better still.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from dpindex.codes import BitCodes, Codes
from dpindex.errors import InputError
from dpindex.estimators.denoise import Denoiser
from dpindex.spec import Spec

__all__ = ["cosines", "invert"]

_MAX_NUMBERS = 1 << 26
_QUANTILES = 4096


@dataclass(frozen=True)
class _Channel:
    """A code seen as ``slope · x + noise``: per coordinate, in scaled units, given the prior on x.

    ``expected`` is the mean of the code, ``noise`` the variance that x does not explain.
    """

    slope: npt.NDArray[np.float64]
    expected: npt.NDArray[np.float64]
    noise: npt.NDArray[np.float64]


def invert(codes: Codes, spec: Spec, denoiser: Denoiser | None = None) -> npt.NDArray[np.float32]:
    """The least-squares linear estimate of the vectors behind codes, given public facts only.

    With prior mean m and variance v of every attribute and code ``z ≈ B A u + noise`` (A the public
    projection, B and the noise variances R from the public law) it is
    ``m + v (BA)ᵀ (v BA(BA)ᵀ + R)⁻¹ (z − E z)``, clipped to the public bounds. A sign is linear in
    what it was the sign of only in Bussgang's sense (1952): B is then the regression coefficient.

    Parameters
    ----------
    codes : FloatCodes or BitCodes
        Codes of n vectors made under ``spec``.
    spec : Spec
        Their public description.
    denoiser : Denoiser, optional
        Learned from the collection's codes. Float codes are denoised first, which leaves the
        projection alone to be undone; signs are inverted as they are.

    Returns
    -------
    float32 array, shape (n, dim), in the units of the vectors before division by ``scale``.

    Raises
    ------
    InputError
        If the codes come from another spec, or the projection is too large to write out.

    >>> from dpindex import Privatizer
    >>> spec = Spec(method="raw-staircase", dim=3, epsilon=50.0, bounds=(0, 1))
    >>> codes = Privatizer(spec).privatize(np.array([[0.0, 0.5, 1.0]]))
    >>> np.round(invert(codes, spec), 1).tolist()
    [[0.0, 0.5, 1.0]]
    """
    if codes.fingerprint != spec.fingerprint:
        raise InputError("these codes were made under another spec than the one given.")
    if spec.dim * spec.code_length > _MAX_NUMBERS:
        raise InputError(
            f"the projection has {spec.dim} × {spec.code_length} entries, too many to invert; "
            f"{_MAX_NUMBERS} at most."
        )
    low, high = spec.bounds
    mean, variance = (low + high) / 2, (high - low) ** 2 / 12
    projection = _matrix(spec)
    prior_mean = mean * projection.sum(axis=0)
    prior_variance = variance * (projection**2).sum(axis=0)
    see = _signs_seen if isinstance(codes, BitCodes) else _numbers_seen
    channel = see(spec, prior_mean, prior_variance)
    decoded, noise = codes.to_float(), channel.noise
    if denoiser is not None and not isinstance(codes, BitCodes):
        decoded, noise = denoiser(codes), np.zeros_like(noise)
    seen = projection * channel.slope
    covariance = variance * (seen.T @ seen) + np.diag(noise)
    # The pseudo-inverse leaves out coordinates that carry nothing (empty bins without noise).
    filter_ = variance * (np.linalg.pinv(covariance, hermitian=True) @ seen.T)
    estimate = mean + (decoded - channel.expected) @ filter_
    return (np.clip(estimate, low, high) * spec.scale).astype(np.float32)


def _matrix(spec: Spec) -> npt.NDArray[np.float64]:
    """The public projection written out, with its gain: float64, shape (dim, k)."""
    entries = spec.projection.apply(np.eye(spec.dim, dtype=np.float32))
    return entries.astype(np.float64) * spec.projection.scale


def _numbers_seen(
    spec: Spec, mean: npt.NDArray[np.float64], variance: npt.NDArray[np.float64]
) -> _Channel:
    step = spec.step
    constant, first, second = spec.law.moments.variance_of_x
    # The law's variance may depend on x (square wave): its mean over the prior, in grid steps.
    noise = constant + first * mean / step + second * (mean**2 + variance) / step**2
    return _Channel(np.ones_like(mean), mean, noise * step**2)


def _signs_seen(
    spec: Spec, mean: npt.NDArray[np.float64], variance: npt.NDArray[np.float64]
) -> _Channel:
    law: Any = spec.law  # a SignLaw, since the codes are bits
    quantiles = ndtri((np.arange(_QUANTILES) + 0.5) / _QUANTILES)
    deviation = np.sqrt(variance)
    places = mean[:, None] + deviation[:, None] * quantiles
    # The law counts in betas of the unscaled projection.
    betas = places / (spec.projection.scale * spec.adjacency.size)
    spread = float(np.sqrt(np.mean(mean**2 + variance))) / (
        spec.projection.scale * spec.adjacency.size
    )
    sign = np.sign(places) * (1 - 2 * law.flip_probability(np.abs(betas), spread))
    expected = sign.mean(axis=1)
    covariance = (sign * quantiles).mean(axis=1) * deviation
    slope = np.divide(covariance, variance, out=np.zeros_like(covariance), where=variance > 0)
    return _Channel(slope, expected, 1 - expected**2 - slope**2 * variance)


def cosines(
    estimates: npt.NDArray[np.floating], originals: npt.NDArray[np.floating]
) -> npt.NDArray[np.float64]:
    """Cosine of each estimate to its original, shape (n,); 0 where one of them is zero."""
    u, v = estimates.astype(np.float64), originals.astype(np.float64)
    norms = np.linalg.norm(u, axis=1) * np.linalg.norm(v, axis=1)
    result = np.zeros(len(u))
    np.divide((u * v).sum(axis=1), norms, out=result, where=norms > 0)
    return result
