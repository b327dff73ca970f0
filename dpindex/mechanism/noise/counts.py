"""Noise for the counts of a sketch: exact integer laws, calibrated to one whole record.

A record adds 1 to one count in each of R rows, *whatever the record holds*: no bounds on the data
are needed. Neighbours that differ by one record more or less differ by R in L1 and √R in L2; a
replaced record takes a count from one column and gives it to another: 2R and √(2R).
"""

from __future__ import annotations

import math
from functools import lru_cache

import mpmath
import numpy as np
import numpy.typing as npt

from dpindex.base.errors import NoGuaranteeError
from dpindex.mechanism.noise.additive import AdditiveNoise
from dpindex.mechanism.noise.gaussian import gaussian_cells, optimal_sigma
from dpindex.mechanism.noise.geometric import geometric_table
from dpindex.mechanism.noise.tables import Profile
from dpindex.privacy.adjacency import Neighbouring
from dpindex.randomness import BitSource

CHANGES: dict[str, int] = {"add-remove": 1, "replace": 2}
"""Counts of a row that differ between neighbours, each by one."""

_MIN_DROP = 9e-6
"""Down to here masses of 64 bits keep the ratio (verified); the table then has 3·10⁶ cells."""


class TwoSidedGeometric:
    """``P(z) ∝ e^{−drop·|z|}`` on the integers (Ghosh, Roughgarden & Sundararajan 2009).

    A draw is the difference of two magnitudes of a table symmetric about −½, where a and −1−a have
    magnitude a. *Proof in the integers that run.* Let g be the implemented law of a magnitude and
    r = e^{−drop}. The table guarantees ``r·g(a) ≤ g(a+1) ≤ g(a)/r`` for all a ≥ 0, tails included.
    The difference has ``P(k) = Σ_b g(k+b)·g(b)`` for k ≥ 0, so ``r·P(k) ≤ P(k+1) ≤ P(k)/r`` term by
    term, and the same below 0 by symmetry: a shift by 1 costs ``drop``.
    """

    cell_bits = 0
    offset = 0.0

    def __init__(self, drop: mpmath.mpf) -> None:
        self.drop = float(drop)
        self.table = geometric_table(drop, 1, 1, 0)

    def sample(self, count: int, stream: BitSource) -> npt.NDArray[np.int32]:
        """``count`` independent draws, int32."""
        draws, other = (self.table.sample(count, stream) for _ in range(2))
        np.maximum(draws, ~draws, out=draws)
        draws -= np.maximum(other, ~other)
        return draws

    def moments(self) -> tuple[float, float]:
        """Variance ``2q/p²`` and fourth central moment, q = e^{−drop} and p = 1 − q."""
        q = math.exp(-self.drop)
        p = -math.expm1(-self.drop)
        variance = 2.0 * q / p**2
        return variance, 2.0 * q * (1.0 + 4.0 * q + q**2) / p**4 + 3.0 * variance**2

    def profile(self) -> Profile:
        """The values, their chances and the width of one."""
        reach = math.ceil(40.0 / self.drop)
        values = np.arange(-reach, reach + 1.0)
        return values, math.tanh(self.drop / 2) * np.exp(-self.drop * np.abs(values)), 1.0


@lru_cache(maxsize=32)
def count_noise(
    epsilon: float, delta: float, rows: int, width: int, neighbouring: Neighbouring
) -> AdditiveNoise:
    """Noise for a sketch of ``rows × width`` counts under one global (epsilon, delta).

    delta = 0: :class:`TwoSidedGeometric` noise with ratio ``e^{−ε/R}`` (``e^{−ε/2R}`` under
    replace): one count that moves by 1 costs ε/R, R of them cost ε.

    delta > 0: ``round(N(0, σ²))``, σ the optimal Gaussian sigma times √R (√(2R) under replace).

    Raises
    ------
    InputError
        If the noise of a count would be too wide for a table.
    """
    changed = rows * CHANGES[neighbouring]
    if delta > 0:
        sigma = optimal_sigma(epsilon, delta) * math.sqrt(changed)
        return gaussian_cells(sigma, epsilon, delta, rows * width, 0, 0)
    with mpmath.workprec(400):
        drop = mpmath.mpf(epsilon) / changed
    if drop < _MIN_DROP:
        raise NoGuaranteeError(
            f"{rows} rows leave each count epsilon = {float(drop):.2g}, below {_MIN_DROP:g}; "
            f"take fewer rows, more epsilon, or delta > 0."
        )
    return AdditiveNoise(TwoSidedGeometric(drop), 0)
