"""How many signs of a Gaussian projection one attribute can change: N₊ of Li & Li 2023, Prop. 4.5.

The randomness here is that of the public projection, not of the noise: with probability 1 − δ over
the projection, for a given vector of norm at least m, no neighbour differs in more than N₊ signs.
"""

from __future__ import annotations

import math

from scipy.integrate import quad
from scipy.special import bdtrc, ndtr

from dpindex.grid import grid_step
from dpindex.noise.law import GRID_BITS
from dpindex.parameters import Parameters

__all__ = [
    "change_probability", "min_norm_on_grid", "norm_slack", "quantile_count",
    "rounded_change_probability",
]  # fmt: skip

_MARGIN = 1e-9
_RARE = 8.0
"""Standard deviations beyond which the rounding of a projection may lie: 2e-14."""


def norm_slack(stated: Parameters) -> float:
    """How much rounding to the grid can shorten a vector: half a step in every coordinate."""
    return grid_step(stated.adjacency.size, GRID_BITS) * math.sqrt(stated.dim) / 2


def min_norm_on_grid(stated: Parameters) -> float:
    """What remains of ``min_norm`` on the grid; vectors may fall short of it by one slack."""
    return (stated.min_norm or 0.0) - 2.001 * norm_slack(stated)


def change_probability(dim: int, ratio: float) -> float:
    """``P₊ = ∫₀^∞ 2p(2Φ(t)−1)^{p−1}(2Φ(rt)−1)φ(t) dt``, rounded up by 1e-9.

    Bounds the chance that one attribute, moved by at most β, can change a sign: that r = β/m times
    the largest of p standard normals exceeds another, however they depend (Li & Li, Lemma 4.3).

    >>> round(change_probability(784, 0.1), 4)
    0.2636
    """

    def density(t: float) -> float:
        below = max(2.0 * float(ndtr(t)) - 1.0, 0.0)
        within = math.erf(ratio * t / math.sqrt(2.0))
        bell = math.exp(-t * t / 2.0) / math.sqrt(2.0 * math.pi)
        return 2.0 * dim * math.pow(below, dim - 1) * within * bell

    # The largest of p normals lies near √(2 log p): the pieces keep quad from missing it.
    middle = math.sqrt(2.0 * math.log(2.0 * dim))
    pieces = ((0.0, middle), (middle, middle + 2.0), (middle + 2.0, middle + 12.0))
    total = sum(quad(density, low, high, epsabs=1e-12, limit=200)[0] for low, high in pieces)
    return min(1.0, float(total) + _MARGIN)


def rounded_change_probability(dim: int, ratio: float, width: float) -> float:
    """``P₊`` for a projection whose normal entries were rounded to multiples of ``width``.

    Rounding moves the largest entry by at most h/2, and ``w·u/‖u‖`` by at most ``√p·h/2``, and with
    probability ``1 − 2e^{−t²/2}`` by at most ``t·h/2`` (Hoeffding 1963). Where the largest entry is
    at least μ, an absolute change c is one of r by c/μ; any μ gives a bound, the least is taken.
    """
    slack = (ratio + min(math.sqrt(dim), _RARE)) * width / 2.0
    rare = 2.0 * math.exp(-(_RARE**2) / 2.0) + dim * 2.0**-48  # and the 64 bits of an entry
    bounds = (
        change_probability(dim, ratio + slack / least) + (2.0 * float(ndtr(least)) - 1.0) ** dim
        for least in (2.0 ** (step / 4.0) for step in range(-40, 11))
    )
    return min(1.0, min(bounds) + rare)


def quantile_count(k: int, probability: float, delta: float) -> int:
    """The least N with ``P(Binomial(k, P₊) > N) ≤ δ``; below the Chernoff bound of Prop. 4.5.

    >>> quantile_count(512, 0.25, 1e-6)
    176
    """
    low, high = 0, k  # the chance at high is at most delta, as k itself is never exceeded
    while low < high:
        middle = (low + high) // 2
        if bdtrc(middle, k, probability) * (1.0 + _MARGIN) <= delta:
            high = middle
        else:
            low = middle + 1
    return max(1, low)
