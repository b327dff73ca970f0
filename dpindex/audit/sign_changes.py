"""Signs that one attribute can change: the part of delta that is a chance over the projection.

For a fixed vector û on the grid, a neighbour moves coordinate j by at most 2^b·max_i|w_ij|, so sign
j can change only where |w_j·û| is no more than that. Over random normal entries this has chance at
most P₊, independently for each j (Li & Li 2023, Lemma 4.3 and Prop. 4.5), and if at most N signs
change, N flips cost N times the loss of one. This is a statement about ideal normal entries,
rounded as ours are; that the published ones behave like them rests on SHAKE-256.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from scipy.special import log_ndtr, ndtr

from dpindex.audit.verdict import Check
from dpindex.mechanism.spec import Spec

_POINTS = 1 << 18
_FARTHEST = 9.0
_ROUNDOFF = 1e-9
_SCALE_BITS = 48
_ENTRY_BITS = 12
"""Our normal entries are multiples of 2^-12."""

_RARE = 8.0


def changes_check(spec: Spec, affordable: int) -> Check:
    """Do more signs change than epsilon can afford with at most the chance delta?

    ``affordable`` is how many flips of the law cost no more than epsilon together.
    """
    step = Fraction(spec.grid.step)
    # Half a step a coordinate where the norm is checked, half on the grid, and float errors.
    short = Fraction(math.sqrt(spec.dim)) * step * Fraction(1001, 1000)
    least = Fraction(spec.min_norm or 0) - short
    ratio = math.inf if least <= 0 else float(step * (1 << spec.grid.bits) / least) * (1 + 1e-12)
    chance = _rounded_chance(spec.dim, ratio)
    above = Fraction(math.ceil(chance * (1 << _SCALE_BITS)), 1 << _SCALE_BITS)
    tail = binomial_tail(spec.code_length, above, affordable)
    return Check(
        "law: signs that can change",
        f"more than {affordable} of {spec.code_length} with chance {float(tail):.6g}, each with "
        f"chance {chance:.9g} at most",
        f"δ = {spec.delta!r}",
        "delta is over the projection (Li & Li 2023, Prop. 4.5): for one vector at a time and "
        "ideal normal entries; integral bounded from above, binomial tail in exact rationals",
        spec.entries == "gaussian" and tail <= Fraction(spec.delta),
    )


def change_chance(dim: int, ratio: float) -> float:
    """``P(|g| ≤ r·max|g_i|)`` for dim + 1 independent standard normals, from above.

    Conditioned on s = |g| the chance ``1 − (2Φ(s/r) − 1)^dim`` falls with s, so its value at the
    near end of every interval, weighted with the chance of the interval, bounds it.

    >>> round(change_chance(784, 0.1), 4)
    0.2636
    """
    # Beyond nine deviations of the largest of them there is next to nothing left.
    ends = np.linspace(0.0, _FARTHEST * min(1.0, ratio), _POINTS + 1)
    weights = np.append(np.diff(2.0 * ndtr(ends)), 2.0 * ndtr(-ends[-1]))
    with np.errstate(divide="ignore"):
        # log(2Φ(t) − 1) = log1p(−2Φ(−t)), good to the last digits in the tail.
        inside = np.log1p(-2.0 * np.exp(log_ndtr(-ends / ratio)))
        beyond = -np.expm1(dim * inside)
    return min(1.0, float(weights @ beyond) + _ROUNDOFF)


def _rounded_chance(dim: int, ratio: float) -> float:
    """Bound on :func:`change_chance` where entries were rounded to multiples of h = 2^-12.

    The largest entry moves by at most h/2, and ``w·u/‖u‖`` by at most ``min(√p, t)·h/2`` but for a
    chance ``2e^{−t²/2}`` (Hoeffding 1963). Where the largest entry is at least μ, this is a change
    of r by ``(r + t)·h/2μ``; it lies below μ with chance ``(2Φ(μ) − 1)^p``. Any μ is a bound.
    """
    if not math.isfinite(ratio):
        return 1.0
    slack = (ratio + min(math.sqrt(dim), _RARE)) * 2.0**-_ENTRY_BITS / 2.0
    rare = 2.0 * math.exp(-(_RARE**2) / 2.0) + dim * 2.0**-48
    bounds = (
        change_chance(dim, ratio + slack / least) + (2.0 * float(ndtr(least)) - 1.0) ** dim
        for least in (2.0 ** (quarter / 4.0) for quarter in range(-12, 9))
    )
    return min(1.0, min(bounds) + rare)


def binomial_tail(count: int, chance: Fraction, limit: int) -> Fraction:
    """``P(Binomial(count, chance) > limit)``, exactly.

    >>> binomial_tail(3, Fraction(1, 2), 1)
    Fraction(1, 2)
    """
    hit = chance.numerator
    miss = chance.denominator - chance.numerator
    more = range(limit + 1, count + 1)
    total = sum(math.comb(count, i) * hit**i * miss ** (count - i) for i in more)
    return Fraction(total, chance.denominator**count)
