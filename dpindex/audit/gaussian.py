"""A sharper test for Gaussian noise: its deviation, which few trials show well.

A delta of 1e-6 shows itself in tails that take 10⁹ trials to count. If the noise is taken for what
the method says it is, normal, a thousandth of that measures its deviation to a per mille.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import special

from dpindex.audit.trials import Finding, Histogram

__all__ = ["gaussian_epsilon", "gaussian_finding"]


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The least epsilon at which normal noise of deviation ``shift/mu`` is (ε, δ), [0, ∞).

    Balle & Wang 2018, Thm 8: ``δ(ε) = Φ(μ/2 − ε/μ) − e^ε·Φ(−μ/2 − ε/μ)``, decreasing in ε.

    >>> round(gaussian_epsilon(1 / 4.22467889, 1e-6), 6)
    1.0
    """

    def excess(epsilon: float) -> float:
        first, second = (special.log_ndtr(s * mu / 2 - epsilon / mu) for s in (1, -1))
        return math.exp(first) - math.exp(epsilon + second) - delta

    low, high = 0.0, 1.0
    while excess(high) > 0:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
    return low


def gaussian_finding(histogram: Histogram, delta: float, alpha: float) -> Finding:
    """Lower bound from the deviation and the shift of the noise, *if* the noise is normal.

    Exact limits for normal samples, a third of alpha each for the variance and the two means.
    Rounding and dither only widen the observed noise, which errs on the safe side.
    """
    values, *counts = histogram
    sizes = [int(side.sum()) for side in counts]
    means = [float(side @ values) / size for side, size in zip(counts, sizes, strict=True)]
    squares = sum(
        float(side @ (values - mean) ** 2) for side, mean in zip(counts, means, strict=True)
    )
    freedom = sum(sizes) - 2
    deviation = math.sqrt(squares / special.chdtri(freedom, 1 - alpha / 3))
    margin = sum(-special.ndtri(alpha / 3) * deviation / math.sqrt(size) for size in sizes)
    shift = max(0.0, means[1] - means[0] - margin)
    bound = gaussian_epsilon(shift / deviation, delta) if shift > 0 else 0.0
    evidence = f"deviation at most {deviation / shift if shift else np.inf:.6g} shifts"
    return Finding("if the noise is normal: its deviation", bound, evidence, min(sizes))
