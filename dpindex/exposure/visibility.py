"""Visibility of copies above the noise, estimated from codes and public parameters alone.

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

from dpindex.base.arrays import spaced
from dpindex.exposure.standing_out import LEVELS, Scores, copies_found, symbol_copies_found
from dpindex.mechanism.codes import CodeFormat, Codes, SignFormat, SymbolFormat, for_format
from dpindex.mechanism.spec import Spec
from dpindex.similarity.codebook_coverage import crowding
from dpindex.similarity.float_codes import NoisyVectorStats
from dpindex.similarity.similarity import sign_deviation

__all__ = ["Visibility", "rows_to_sample", "visibility"]

_NEAR_ZERO = 1e-6
_QUANTILES = 1000
_TINY = 1e-9
_ENERGIES = 16
_MAX_ROWS = 4096
"""Rows of short codes that are looked at: the gap is known to a tenth of a deviation."""
_MAX_NUMBERS = 1 << 22


class Visibility(NamedTuple):
    """What a search can see, estimated from the codes.

    Attributes
    ----------
    exact, private : float
        Share of ten copies of a query among its ten nearest, [0, 1], by query mode. Neighbours are
        found less often than copies. A denoiser may find more.
    crowding : float, optional
        Of symbols: how many times as unevenly they fall on codewords as those of public vectors
        would, [0, ∞): :func:`dpindex.similarity.codebook_coverage.crowding`.
    """

    exact: float
    private: float
    crowding: float | None = None


def rows_to_sample(n: int, k: int) -> npt.NDArray[np.int64]:
    """Return evenly spaced rows of n codes of length k, at most 4096, and fewer of long codes."""
    count = min(_MAX_ROWS, max(1, _MAX_NUMBERS // k))
    return spaced(n, count).astype(np.int64)


def visibility(sample: Codes, spec: Spec, n: int) -> Visibility:
    """Return what noise leaves of the best case, for codes that are ranked as they are.

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
    y = sample.to_float().astype(np.float64)
    stats = NoisyVectorStats.of(y, spec.number_law.moments.in_units(spec.step))
    constant, first, second = stats.noise.variance_of_x
    noise = float(np.mean((constant + first * y + second * y**2) / (1 + second)))
    noise = max(noise, 0.0) + _TINY
    energy = max(float(stats.energy.mean()), _TINY)
    uncertainty = float(stats.energy_variance.mean())
    spread = max(float(stats.energy.var() - uncertainty), 0.0)
    # Cosines: of rows over their lengths, as far as the noise lets these be known.
    reliability = spread / (spread + uncertainty + _TINY)
    own_energy = np.maximum(energy + reliability * (stats.energy - energy), energy / 8)
    y /= np.sqrt(own_energy)[:, None]
    relative_noise = noise * float(np.mean(1 / own_energy))
    unknown_energies = _gamma(1.0, (1 - reliability) * spread / energy**2)
    typical = float(np.mean(np.sqrt(unknown_energies))) ** 2
    mean = float(_squared_means(y).sum()) / typical
    square = _mean_squared_product(y) - 2 * relative_noise - sample.k * relative_noise**2
    cosines = _beta(mean, square)
    energies = _gamma(energy, spread)

    def share(private: bool) -> float:
        added = 0.0
        if private:
            added = noise
        scores = _NumberScores(noise, added, sample.k)
        shares = []
        for query_energy in energies:  # copies have the energy of their query
            copy = scores.of(1.0, query_energy, query_energy)
            others = scores.of(cosines, energies[:, None], query_energy)
            shares.append(copies_found(copy, others, n))
        return float(np.mean(shares))

    return Visibility(share(False), share(True))


class _NumberScores(NamedTuple):
    """The law of a code's cosine with a query.

    Attributes
    ----------
    noise : float
        Variance of the noise of a code's coordinate.
    query_noise : float
        The same of the query's, 0 if it is exact.
    k : int
        Number of coordinates.
    """

    noise: float
    query_noise: float
    k: int

    def of(self, cosine: Any, energy: Any, query_energy: float) -> Scores:
        """Return the scores of vectors with that cosine to the query and that squared length."""
        errors = self.noise * query_energy + self.query_noise * energy
        errors = errors + self.k * self.query_noise * self.noise
        code_square = energy + self.k * self.noise
        query_square = query_energy + self.k * self.query_noise
        squares = code_square * query_square
        mean = cosine * np.sqrt(energy * query_energy / squares)
        # A cosine does not feel the noise along the code itself.
        return Scores(mean, (1 - mean**2) * errors / squares)


def _signs(sample: Codes, spec: Spec, n: int) -> Visibility:
    k = sample.k
    y = sample.to_float().astype(np.float64)
    mean = max(float(_squared_means(y).mean()), 0.0)
    rms = sign_deviation(spec)
    if math.isnan(rms):  # without a declared norm: near 0, where flips are likeliest
        rms = _NEAR_ZERO
    levels = (1 + (np.arange(_QUANTILES) + 0.5) / _QUANTILES) / 2
    size = scipy.special.ndtri(levels)  # of normal coordinates
    kept = 1 - 2 * spec.sign_law.flip_probability(size * rms, rms)
    square = float(np.mean(kept**2))
    larger = 1.0
    if square > 0:  # coordinates that are larger than that show in means of the collection
        larger = max(1.0, math.sqrt(mean / square))
    kept = np.minimum(kept * larger, 1.0)
    agreement = max(square * larger**2, _TINY)
    squared = (_mean_squared_product(y) / k - 1) / max(k - 1, 1)
    agreements = _beta(mean / agreement, squared / agreement**2)
    cosines = np.sin(np.pi / 2 * agreements)[:, None]  # Goemans & Williamson 1995, Lemma 3.2
    # Expected signs beside normal coordinates of those sizes, of codes at a cosine to them.
    deviations = np.sqrt(2 * (1 - cosines**2) + _TINY)
    others = kept * scipy.special.erf(cosines * size / deviations)

    height = math.sqrt(k)

    def weighed(expected: Any) -> Scores:
        """Return the scores, by an exact query, of codes with these expected signs."""
        mean = np.mean(size * expected, axis=-1)
        return Scores(height * mean, np.mean(size**2 * (1 - expected**2), axis=-1))

    def counted(expected: Any) -> Scores:
        """Return the scores, by a private query, of codes with this expected agreement."""
        return Scores(height * expected, 1 - expected**2)

    exact = copies_found(weighed(kept), weighed(others), n)
    private = copies_found(counted(agreement), counted(agreement * agreements), n)
    return Visibility(exact, private)


def _symbols(sample: Codes, spec: Spec, n: int) -> Visibility:
    law = spec.symbol_law
    exact = symbol_copies_found(law, n)
    uneven = None
    if len(sample) > 1:
        uneven = max(crowding(sample, law), 0.0)
    return Visibility(exact, law.chance_inside * exact, uneven)


_BY_FORMAT: dict[type[object], Callable[[Codes, Spec, int], Visibility]] = {
    CodeFormat: _numbers,
    SignFormat: _signs,
    SymbolFormat: _symbols,
}


def _squared_means(y: Any) -> Any:
    """Return the squared mean of each column, less the variance of that mean."""
    return y.mean(axis=0) ** 2 - y.var(axis=0) / max(len(y) - 1, 1)


def _mean_squared_product(y: Any) -> float:
    """Return the mean of the squares of the inner products of different rows."""
    products = y @ y.T if len(y) < y.shape[1] else y.T @ y
    energies = np.einsum("ij,ij->i", y, y)
    squares = float((products**2).sum() - (energies**2).sum())
    return squares / max(len(y) * (len(y) - 1), 1)


def _gamma(mean: float, variance: float) -> Any:
    """Return evenly spaced quantiles of a gamma distribution."""
    shape = mean**2 / (variance + _TINY * mean**2)
    levels = (np.arange(_ENERGIES) + 0.5) / _ENERGIES
    values = scipy.special.gammaincinv(shape, levels) * (mean / shape)
    return np.maximum(values, _TINY * mean)


def _beta(mean: float, square: float) -> Any:
    """Return quantiles, at LEVELS, of a beta distribution on [−1, 1] of that mean and square."""
    mean = min(max(mean, 0.0), 1 - _TINY)
    variance = min(max(square - mean**2, _TINY), (1 - mean**2) * (1 - _TINY))
    total = (1 - mean**2) / variance - 1
    above = total * (1 + mean) / 2
    below = total * (1 - mean) / 2
    return 2 * scipy.special.betaincinv(above, below, LEVELS) - 1
