"""The secret noise of a sketch's counts: exact integer laws, calibrated to one whole record.

METHODS 6. A record adds 1 to one count in each of R rows, *whatever the record holds*: no bounds on
the data are needed. Neighbours that differ by one record more or less differ by R in L1 and √R in
L2; a replaced record takes a count from one column and gives it to another: 2R and √(2R).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import mpmath
import numpy as np
import numpy.typing as npt

from dpindex.errors import InputError
from dpindex.noise.gaussian import gaussian_table, optimal_sigma
from dpindex.noise.geometric import geometric_table
from dpindex.noise.tables import CellTable
from dpindex.privacy import Neighbouring
from dpindex.randomness import BitSource

__all__ = ["CHANGES", "CountNoise", "count_noise"]

CHANGES: dict[str, int] = {"add-remove": 1, "replace": 2}
"""Counts of a row that differ between neighbours, each by one."""

_MIN_DROP = 9e-6
"""Down to here masses of 64 bits keep the ratio (verified); the table then has 3·10⁶ cells."""

_MAX_SIGMA = 1e5


@dataclass(frozen=True)
class CountNoise:
    """Noise for one count. Think of it as a die: ``table`` says which, and how it is read.

    Attributes
    ----------
    table : CellTable
        The exact integer law.
    two_sided : bool
        When true a draw is the difference of two magnitudes of the table (a and −1−a have
        magnitude a), which centres the law on 0: with magnitudes ``P(a) ∝ r^a`` the difference is
        the two-sided geometric law ``P(z) ∝ r^|z|`` (Ghosh, Roughgarden & Sundararajan 2009).
    offset : float
        What must be added on reading to be unbiased.
    variance : float
        Of one draw, in squared counts.
    """

    table: CellTable
    two_sided: bool
    offset: float
    variance: float

    def sample(self, count: int, stream: BitSource) -> npt.NDArray[np.int32]:
        """``count`` independent draws, int32."""
        draws = self.table.sample(count, stream)
        if self.two_sided:
            draws = np.maximum(draws, ~draws)  # the magnitude: ~z = −1 − z mirrors z
            other = self.table.sample(count, stream)
            draws -= np.maximum(other, ~other)
        return draws


@lru_cache(maxsize=32)
def count_noise(
    epsilon: float,
    delta: float,
    rows: int,
    width: int,
    neighbouring: Neighbouring,
    as_published: bool,
) -> CountNoise:
    """The law for a sketch of ``rows × width`` counts under one global (epsilon, delta).

    delta = 0: two-sided geometric noise with ratio ``e^{−ε/R}`` (``e^{−ε/2R}`` under replace).
    *Proof in the integers that run.* Let g be the implemented law of a magnitude, r = e^{−drop}.
    The table guarantees ``r·g(a) ≤ g(a+1) ≤ g(a)/r`` for all a ≥ 0, tails included. The difference
    has ``P(k) = Σ_b g(k+b)·g(b)`` for k ≥ 0, so ``r·P(k) ≤ P(k+1) ≤ P(k)/r`` term by term, and the
    same below 0 by symmetry. One count moved by 1 costs drop, R counts cost ε.

    ``as_published``: ``⌊Laplace(R/ε)⌋`` (Coleman & Shrivastava 2020, Alg. 1; floor is
    post-processing), the same table read directly; its mean −½ is corrected on reading.

    delta > 0: ``round(N(0, σ²))``, σ the optimal Gaussian sigma times √R (√(2R) under replace).
    """
    changed = rows * CHANGES[neighbouring]
    if delta > 0:
        sigma = optimal_sigma(epsilon, delta) * math.sqrt(changed)
        if sigma > _MAX_SIGMA:
            raise InputError(
                f"{rows} rows under epsilon = {epsilon:g}, delta = {delta:g} need a standard "
                f"deviation {sigma:.3g}, above {_MAX_SIGMA:g}; take fewer rows or a larger budget."
            )
        table = gaussian_table(sigma, epsilon, delta, rows * width, 0)
        return CountNoise(table, False, 0.0, table.moments()[0])
    with mpmath.workprec(400):
        drop = mpmath.mpf(epsilon) / changed
    if drop < _MIN_DROP:
        raise InputError(
            f"{rows} rows leave each count epsilon = {float(drop):.2g}, below {_MIN_DROP:g}; "
            f"take fewer rows, more epsilon, or delta > 0."
        )
    table = geometric_table(drop, 1, 1, 0)
    if as_published:
        return CountNoise(table, False, 0.5, table.moments()[0])
    ratio = math.exp(-float(drop))
    return CountNoise(table, True, 0.0, 2.0 * ratio / math.expm1(-float(drop)) ** 2)
