"""How far similar vectors stand out of the noise, from codes and public parameters alone.

The best case of a search is a query of which copies are in the index. A copy is more similar to the
query than a typical vector by ``1 − c``, c the typical cosine; noise scatters all similarities with
a deviation that the law tells. Where that gap is few deviations wide, the noise on the other
codes of the collection hides even copies, and neighbours all the more. Codes in, numbers out: this
is post-processing and spends nothing.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

from dpindex.codebook import spaced
from dpindex.codes import Codes
from dpindex.estimators.similarity import sign_deviation
from dpindex.spec import Spec

COPIES = 10
"""Copies of a query that are looked for, among as many answers."""

_NEAR_ZERO, _QUANTILES = 1e-6, 1000
_MAX_ROWS, _MAX_NUMBERS = 4096, 1 << 22
"""What is looked at: of short codes so many, and the gap is known to a tenth of a deviation."""


class Visibility(NamedTuple):
    """Share of ten copies of a query among its ten nearest, [0, 1], by query mode.

    Neighbours are found less often than copies. A denoiser may find more.
    """

    exact: float
    private: float


def rows_to_sample(n: int, k: int) -> npt.NDArray[np.int64]:
    """Evenly spaced rows of n codes of length k, at most 4096, and fewer of long codes."""
    return spaced(n, min(_MAX_ROWS, max(1, _MAX_NUMBERS // k))).astype(np.int64)


def visibility(sample: Codes, spec: Spec, n: int) -> Visibility:
    """What noise leaves of the best case, for codes that are ranked as they are.

    Parameters
    ----------
    sample : Codes
        Some thousand of the codes, of rows from everywhere, shape (m, k) with m ≥ 1.
    spec : Spec
        The spec of the codes.
    n : int
        Codes in the index.

    >>> from dpindex import Privatizer
    >>> spec = Spec("dp-oporp-staircase", dim=64, k=64, epsilon=8.0)
    >>> vectors = np.random.default_rng(0).uniform(-1, 1, (500, 64))
    >>> visibility(Privatizer(spec).privatize(vectors), spec, 500).exact > 0.99
    True
    >>> spec = Spec("dp-oporp-staircase", dim=64, k=64, epsilon=0.1)
    >>> visibility(Privatizer(spec).privatize(vectors), spec, 500).exact < 0.1
    True
    """
    return _BY_FORMAT[spec.format.name](sample, spec, n)


def _numbers(sample: Codes, spec: Spec, n: int) -> Visibility:
    y, k = sample.to_float().astype(np.float64), sample.k
    law: Any = spec.law
    constant, first, second = law.moments.in_units(spec.step).variance_of_x
    noise = (constant + first * y + second * y**2) / (1 + second)  # unbiased, number by number
    energies = (y**2 - noise).sum(axis=1)
    mean_square = float((y.mean(axis=0) ** 2 - _error(y)).sum())
    typical = _share(mean_square, float(energies.mean()))
    # The median: a few long vectors are no measure of the others.
    energy, variance = max(float(np.median(energies)), 0.0), max(float(noise.mean()), 0.0)
    gap = (1 - typical) * energy
    # A cosine does not feel the noise along the code itself.
    felt = 1 - typical**2 * energy / (energy + k * variance + 1e-300)
    exact = gap / math.sqrt(felt * variance * energy + 1e-300)
    private = gap / math.sqrt(2 * felt * variance * energy + k * variance**2 + 1e-300)
    return Visibility(_found(exact, n), _found(private, n))


def _signs(sample: Codes, spec: Spec, n: int) -> Visibility:
    y, k = sample.to_float().astype(np.float64), sample.k
    law: Any = spec.law
    mean_square = max(float((y.mean(axis=0) ** 2 - _error(y)).mean()), 0.0)
    rms = sign_deviation(spec)
    # Without a declared norm: as for coordinates near 0, where flips are likeliest.
    rms = _NEAR_ZERO if math.isnan(rms) else rms
    size = ndtri((1 + (np.arange(_QUANTILES) + 0.5) / _QUANTILES) / 2)  # of normal coordinates
    kept = 1 - 2 * law.flip_probability(size * rms, rms)
    weighed, square = float(np.mean(size * kept)), float(np.mean(kept**2))
    # Coordinates that are larger than that show in means of the collection.
    larger = max(1.0, math.sqrt(mean_square / square)) if square > 0 else 1.0
    gap = (1 - math.sin(math.pi / 2 * _share(mean_square, square))) * math.sqrt(k)
    return Visibility(_found(gap * weighed * larger, n), _found(gap * square * larger**2, n))


def _symbols(sample: Codes, spec: Spec, n: int) -> Visibility:
    """A copy is seen if its symbol is in the set; so are other codes by chance."""
    law: Any = spec.law
    inside = law.inside / 2.0**64
    chance = n * (1 - inside) * law.subset / (law.size - law.subset)
    exact = inside * min(1.0, COPIES / (COPIES * inside + chance))
    return Visibility(exact, inside * exact)


_BY_FORMAT = {"numbers": _numbers, "signs": _signs, "symbols": _symbols}


def _error(y: Any) -> Any:
    """Variance of the mean of each column."""
    return y.var(axis=0) / max(len(y) - 1, 1)


def _share(part: float, whole: float) -> float:
    return min(max(part / whole, 0.0), 1.0) if whole > 0 else 0.0


def _found(gap: float, n: int) -> float:
    """Share of ten copies among ten answers out of n, at that gap in standard deviations."""
    if n <= COPIES:
        return 1.0

    def answers(threshold: float) -> float:
        return float(COPIES * ndtr(gap - threshold) + (n - COPIES) * ndtr(-threshold)) - COPIES

    return float(ndtr(gap - brentq(answers, -40.0, gap + 40.0)))
