"""How far similar vectors stand out of the noise, from codes and public parameters alone.

The best case of a search is a query of which copies are in the index. The score of a copy has to be
above those of almost all other codes, which are scattered by their own cosines to the query, by
the noise, and by the lengths of the vectors. Two moments of the cosines and of the squared lengths
are estimated from the codes, without the noise, whose law is public; a beta and a gamma
distribution have the same. Codes in, numbers out: this is post-processing and spends nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy

from dpindex.mechanism.codebook import spaced
from dpindex.mechanism.codes import CodeFormat, Codes, SignFormat, SymbolFormat, for_format
from dpindex.mechanism.spec import Spec
from dpindex.similarity.float_codes import NoisyVectorStats
from dpindex.similarity.similarity import sign_deviation

COPIES = 10
"""Copies of a query that are looked for, among as many answers."""

_NEAR_ZERO, _QUANTILES = 1e-6, 1000
_TINY, _ENERGIES = 1e-9, 16
_TAIL = np.geomspace(1.0, 1e-6, 61)  # chances of more, each a tenth of a decade apart
_LEVELS, _WEIGHTS = 1 - np.sqrt(_TAIL[1:] * _TAIL[:-1]), -np.diff(_TAIL)
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
    >>> vectors = np.random.default_rng(0).uniform(-1, 1, (4000, 64))
    >>> visibility(Privatizer(spec).privatize(vectors), spec, 4000).exact > 0.99
    True
    >>> spec = Spec("dp-oporp-staircase", dim=64, k=64, epsilon=0.1)
    >>> visibility(Privatizer(spec).privatize(vectors), spec, 4000).exact < 0.1
    True
    """
    predicted = for_format(_BY_FORMAT, spec.format_type)
    return predicted(sample, spec, n)


def _numbers(sample: Codes, spec: Spec, n: int) -> Visibility:
    y, k = sample.to_float().astype(np.float64), sample.k
    law = spec.number_law
    stats = NoisyVectorStats.of(y, law.moments.in_units(spec.step))
    constant, first, second = stats.noise.variance_of_x
    variance = float(np.mean((constant + first * y + second * y**2) / (1 + second)))
    variance = max(variance, 0.0) + _TINY
    energy = max(float(stats.energy.mean()), _TINY)
    spread = max(float(stats.energy.var() - stats.energy_variance.mean()), 0.0)
    energies = _gamma(energy, spread)
    # Cosines: of rows over their lengths, as far as the noise lets these be known.
    known = spread / (spread + float(stats.energy_variance.mean()) + _TINY)
    own = np.maximum(energy + known * (stats.energy - energy), energy / 8)
    y /= np.sqrt(own)[:, None]
    noise = variance * float(np.mean(1 / own))
    typical = float(np.mean(np.sqrt(_gamma(1.0, (1 - known) * spread / energy**2)))) ** 2
    mean = float((y.mean(axis=0) ** 2 - _error(y)).sum()) / typical
    cosines = _beta(mean, _mean_squared_product(y) - 2 * noise - k * noise**2)

    def scores(cosine: Any, energy: Any, asked: float, private: bool) -> tuple[Any, Any]:
        """Mean and variance of a code's cosine with a query of the energy ``asked``."""
        beside = private * k * variance
        errors = variance * (asked + private * energy) + beside * variance
        lengths = (energy + k * variance) * (asked + beside)  # expected squares
        mean = cosine * np.sqrt(energy * asked / lengths)
        # A cosine does not feel the noise along the code itself.
        return mean, (1 - mean**2) * errors / lengths

    def share(private: bool) -> float:
        """Copies have the energy of their query."""
        found = [
            _found(*scores(1.0, e, e, private), *scores(cosines, energies[:, None], e, private), n)
            for e in energies
        ]
        return float(np.mean(found))

    return Visibility(share(False), share(True))


def _signs(sample: Codes, spec: Spec, n: int) -> Visibility:
    y, k = sample.to_float().astype(np.float64), sample.k
    law = spec.sign_law
    mean = max(float((y.mean(axis=0) ** 2 - _error(y)).mean()), 0.0)
    rms = sign_deviation(spec)
    # Without a declared norm: as for coordinates near 0, where flips are likeliest.
    rms = _NEAR_ZERO if math.isnan(rms) else rms
    size = scipy.special.ndtri(
        (1 + (np.arange(_QUANTILES) + 0.5) / _QUANTILES) / 2
    )  # of normal coordinates
    kept = 1 - 2 * law.flip_probability(size * rms, rms)
    square = float(np.mean(kept**2))
    # Coordinates that are larger than that show in means of the collection.
    larger = max(1.0, math.sqrt(mean / square)) if square > 0 else 1.0
    kept, agreement = np.minimum(kept * larger, 1.0), max(square * larger**2, _TINY)
    squared = (_mean_squared_product(y) / k - 1) / max(k - 1, 1)
    agreements = _beta(mean / agreement, squared / agreement**2)
    cosines = np.sin(np.pi / 2 * agreements)[:, None]  # Goemans & Williamson 1995, Lemma 3.2

    def found(copy: Any, copy_variance: Any, others: Any, variances: Any) -> float:
        """From mean scores of coordinates, and their variances."""
        height = math.sqrt(k)
        return _found(height * copy, copy_variance, height * others, variances, n)

    # Expected signs beside normal coordinates of those sizes, of codes at a cosine to them.
    beside = kept * scipy.special.erf(cosines * size / np.sqrt(2 * (1 - cosines**2) + _TINY))
    return Visibility(
        found(
            np.mean(size * kept), np.mean(size**2 * (1 - kept**2)),
            np.mean(size * beside, axis=1), np.mean(size**2 * (1 - beside**2), axis=1),
        ),
        found(
            agreement, 1 - agreement**2,
            agreement * agreements, 1 - (agreement * agreements) ** 2,
        ),
    )  # fmt: skip


def _symbols(sample: Codes, spec: Spec, n: int) -> Visibility:
    """A copy is seen if its symbol is in the set; so are other codes by chance."""
    law = spec.symbol_law
    inside = law.chance_inside
    chance = n * (1 - inside) * law.subset / (law.size - law.subset)
    exact = inside * min(1.0, COPIES / (COPIES * inside + chance))
    return Visibility(exact, inside * exact)


_BY_FORMAT: dict[type[object], Callable[[Codes, Spec, int], Visibility]] = {
    CodeFormat: _numbers,
    SignFormat: _signs,
    SymbolFormat: _symbols,
}


def _error(y: Any) -> Any:
    """Variance of the mean of each column."""
    return y.var(axis=0) / max(len(y) - 1, 1)


def _mean_squared_product(y: Any) -> float:
    """Mean of the squares of the inner products of different rows."""
    products = y @ y.T if len(y) < y.shape[1] else y.T @ y
    squares = float((products**2).sum() - (np.einsum("ij,ij->i", y, y) ** 2).sum())
    return squares / max(len(y) * (len(y) - 1), 1)


def _gamma(mean: float, variance: float) -> Any:
    """Evenly spaced quantiles of a gamma distribution."""
    shape = mean**2 / (variance + _TINY * mean**2)
    levels = (np.arange(_ENERGIES) + 0.5) / _ENERGIES
    return np.maximum(scipy.special.gammaincinv(shape, levels) * (mean / shape), _TINY * mean)


def _beta(mean: float, square: float) -> Any:
    """Quantiles of a beta distribution on [−1, 1] of that mean and mean square, finest on top."""
    mean = min(max(mean, 0.0), 1 - _TINY)
    variance = min(max(square - mean**2, _TINY), (1 - mean**2) * (1 - _TINY))
    total = (1 - mean**2) / variance - 1
    return 2 * scipy.special.betaincinv(total * (1 + mean) / 2, total * (1 - mean) / 2, _LEVELS) - 1


def _found(copy: Any, copy_variance: Any, others: Any, variances: Any, n: int) -> float:
    """Share of ten copies among ten answers out of n, from normal scores.

    ``others`` are the scores of other codes at :data:`_LEVELS`, shape (…, levels).
    """
    if n <= COPIES:
        return 1.0
    width, widths = math.sqrt(copy_variance) + _TINY, np.sqrt(variances) + _TINY

    def answers(threshold: float) -> float:
        above = float(np.mean(scipy.special.ndtr((others - threshold) / widths) @ _WEIGHTS))
        return (
            COPIES * float(scipy.special.ndtr((copy - threshold) / width))
            + (n - COPIES) * above
            - COPIES
        )

    reach = 40 * (width + float(widths.max())) + 1
    low, high = float(others.min()) - reach, max(copy, float(others.max())) + reach
    return float(scipy.special.ndtr((copy - scipy.optimize.brentq(answers, low, high)) / width))
