"""Coordinates that noise of rare jumps has filled.

A staircase of a large epsilon moves few coordinates, and these by up to β. A code and a query that
both jumped in one coordinate look alike, whatever the vectors are, and no normal law expects it. So
coordinates where jumps are as common as all that is observed say nothing, and count as 0.
"""

from __future__ import annotations

import numpy as np

from dpindex.base.arrays import Doubles, Floats
from dpindex.mechanism.noise.moments import NoiseMoments
from dpindex.mechanism.spec import Spec

# Shares of coordinates that may be left out.
_SHARES = np.geomspace(0.05, 1e-4, 40)
_LOST = 0.02

# Of what is left out, by far the most has to be jumps: else the longest vectors lose what they are.
_JUMPS = 0.8


def jumps(spec: Spec) -> bool:
    """True if the sum of k products of such noise is far from normal: its kurtosis exceeds 1."""
    noise = spec.noise_moments
    variance = noise.variance[0]
    if not np.isinf(noise.reach) or variance == 0.0:
        return False
    kurtosis = noise.squared[0] / variance**2 + 1
    return bool(kurtosis**2 > spec.code_length)


def jump_limit(decoded: Floats, spec: Spec) -> float:
    """Return the size from which on nearly all coordinates are jumps; 0 if there is none.

    Larger ones hold at most a fiftieth of the energy of vectors, so that little is lost.
    """
    if not jumps(spec):
        return 0.0
    noise = spec.noise_moments.variance[0]
    sizes = np.abs(decoded)
    squares = sizes**2
    energy = float(squares.mean()) - noise
    limits: list[float] = np.quantile(sizes, 1 - _SHARES).tolist()
    for limit, share in zip(limits, _SHARES.tolist(), strict=True):
        # Chances and energies of the noise are known; what is observed beyond them are the vectors.
        beyond = _within(spec, np.inf, 0) - _within(spec, limit, 0)
        noise_beyond = noise - _within(spec, limit, 2)
        observed = float(squares[sizes > limit].sum()) / squares.size
        if beyond > _JUMPS * share and observed - noise_beyond < _LOST * energy:
            return limit
    return 0.0


def without_jumps(decoded: Doubles, spec: Spec, limit: float) -> Doubles:
    """Return decoded codes with 0 for jumps beyond a limit; a limit of 0 is none."""
    if not limit or not jumps(spec):
        return decoded
    return np.where(np.abs(decoded) > limit, 0.0, decoded)


def moments_within(spec: Spec, limit: float) -> NoiseMoments:
    """Return the moments of the noise that :func:`without_jumps` leaves."""
    if not limit or not jumps(spec):
        return spec.noise_moments
    variance, fourth = (_within(spec, limit, power) for power in (2, 4))
    return NoiseMoments.additive(variance, fourth)


def _within(spec: Spec, limit: float, power: int) -> float:
    """Return the mean of a power of the noise, counted up to a limit."""
    law = spec.likelihood
    ends = np.clip(law.edges, -limit, limit) ** (power + 1) / (power + 1)
    return float(np.diff(ends) @ law.levels[1:-1])
