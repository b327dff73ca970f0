"""The noise of a spec's codes as the denoiser uses it: moments, likelihood and score tables."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy

from dpindex.base.arrays import Doubles, Singles, cores, row_blocks
from dpindex.base.errors import InputError, NoDenoiserError
from dpindex.mechanism.codes import Codes
from dpindex.mechanism.noise import Likelihood, NumberLaw
from dpindex.mechanism.spec import Spec

_BLOCK_NUMBERS = 1 << 18
_VARIANCES = 64
_MAX_POINTS = 4096
_MIN_LIKELIHOOD = 1e-14
"""Likelihoods below this share of the largest one are raised to it, so that scores stay finite."""


class Channel:
    """The channel from coordinates to decoded codes: variance and likelihood of the noise.

    Decoded codes y are unbiased for the coordinate x. Units are those of the data. All of it is a
    function of public parameters.

    Attributes
    ----------
    format : CodeFormat
        Decodes stored codes.
    variance : three floats
        ``Var(y | x) = v₀ + v₁x + v₂x²``.
    likelihood : Likelihood
        Empty for sign codes, of which the variance alone is used.

    Raises
    ------
    InputError
        If the spec adds no noise, or keeps symbols.
    """

    def __init__(self, spec: Spec) -> None:
        if not spec.method_row.private:
            raise NoDenoiserError(f"{spec.method} adds no noise: there is nothing to denoise.")
        if not spec.format_type.denoisers:
            raise NoDenoiserError(
                f"{spec.method} keeps {spec.format.name}, which have no denoiser."
            )
        self.format = spec.format
        law = spec.law
        self.likelihood = Likelihood()
        if isinstance(law, NumberLaw):
            self.likelihood = law.likelihood.in_units(spec.step)
            self.variance = law.moments.in_units(spec.step).variance_of_x
        else:  # signs are read as ±1; flips are likeliest near zero: this is an upper bound
            flip = float(spec.sign_law.flip_probability(np.full(1, 0.5), 0.5)[0])
            kept = 1.0 - 2.0 * flip
            self.variance = (1.0 - kept**2, 0.0, 0.0)

    def check(self, codes: Codes) -> None:
        """Accept codes of this format alone: never an array of numbers, so never a vector."""
        if not isinstance(codes, Codes):
            raise InputError("a denoiser takes dpindex codes, never vectors.")
        if codes.fingerprint != self.format.fingerprint or codes.k != self.format.code_length:
            raise InputError("these codes were made under another spec than the denoiser's.")

    def for_each_block(self, count: int, action: Callable[[slice], None]) -> None:
        """Run ``action`` on slices of ``count`` rows whose decoded codes fit the cache.

        All cores work.
        """
        blocks = row_blocks(count, max(64, _BLOCK_NUMBERS // self.format.code_length))
        with ThreadPoolExecutor(cores()) as pool:
            list(pool.map(action, blocks))  # the list raises what an action raised

    def noise(self, y: Singles) -> Singles:
        """Unbiased estimates of ``Var(y | x)``, element by element."""
        scale = 1.0 / (1.0 + self.variance[2])
        constant, first, second = (np.float32(v * scale) for v in self.variance)
        return np.asarray((second * y + first) * y + constant, dtype=np.float32)

    def locate(self, y: Singles) -> Singles:
        """The value of x about which the likelihood of each code lies."""
        slope = np.float32(self.likelihood.slope)
        shift = np.float32(self.likelihood.shift)
        return np.asarray(y * slope + shift, dtype=np.float32)


class ScoreTable:
    """The score ``g = d log P(code | prediction) / d prediction``, tabulated over distances.

    If a coordinate is predicted as N(m, v), then ``E[x | code] = m + v·g`` (Tweedie's formula,
    Efron 2011). The Fisher information ``E[g²]`` is what the code adds: as much as an observation
    in Gaussian noise of variance ``1/E[g²] − v``. For Laplace, staircase and square-wave noise that
    falls far below the variance of the noise as v decreases.

    Parameters
    ----------
    likelihood : Likelihood
        Of one code; not empty.
    max_variance : float
        Largest prediction variance v that is tabulated, in squared units of the data, (0, ∞).

    Attributes
    ----------
    variances, information : float64 arrays, shape (64,)
        Values of v a constant factor apart, and the Fisher information at each.
    scores : float32 array, shape (64, points)
        The score at distances ``code − m``.
    """

    def __init__(self, likelihood: Likelihood, max_variance: float) -> None:
        self.max_variance = max_variance
        # Edges are multiples of half a cell; where there are very many, a coarser lattice is used.
        widest = float(np.abs(likelihood.edges).max()) + 3 * math.sqrt(max_variance)
        step = likelihood.cell / 2
        step *= max(1, math.ceil(2 * widest / step / _MAX_POINTS))
        self._half = math.ceil(widest / step)
        self._per_unit = 1 / step
        smallest = (step / 2) ** 2
        self.variances = np.geomspace(smallest, max(max_variance, 4 * smallest), _VARIANCES)
        points = 2 * self._half + 1
        places = np.rint(likelihood.edges / step).astype(np.intp) + self._half
        jumps = np.bincount(places, likelihood.jumps, points).astype(np.float64)
        # Rounding x to cells has variance cell²/6; the tabulated steps contain half of that.
        deviations = np.sqrt(self.variances + likelihood.cell**2 / 12)[:, None]
        t = step * np.arange(-points + 1, points) / deviations
        density = np.exp(t**2 / -2) / (deviations * math.sqrt(2 * math.pi))
        chance = likelihood.base + _convolved(scipy.special.ndtr(t), jumps)
        lowest = _MIN_LIKELIHOOD * chance.max(axis=1, keepdims=True)
        np.maximum(chance, lowest, out=chance)
        scores = -_convolved(density, jumps) / chance
        self.information = np.sum(scores**2 * chance, axis=1) * step
        self.scores = scores.astype(np.float32)
        self.inverse_information = 1 / np.maximum(self.information, 1e-300)

    def row(self, variance: Doubles) -> npt.NDArray[np.intp]:
        """The table row for each prediction variance."""
        log = np.log(np.maximum(variance, 1e-300))
        place = np.interp(log, np.log(self.variances), np.arange(_VARIANCES))
        return np.asarray(np.rint(place), dtype=np.intp)

    def equivalent_noise(self, row: npt.NDArray[np.intp]) -> Doubles:
        """Variance of the Gaussian noise that would be as informative as the code."""
        variance = self.inverse_information[row] - self.variances[row]
        return np.asarray(np.maximum(variance, self.variances[0]))

    def look_up(self, row: npt.NDArray[Any], distance: Singles) -> Singles:
        """Scores at distances ``code − m``, float32."""
        place = distance * np.float32(self._per_unit)
        np.rint(place, out=place)
        np.clip(place, -self._half, self._half, out=place)
        index = place.astype(np.intp)
        index += row * self.scores.shape[1] + self._half
        return np.take(self.scores, index)


def _convolved(rows: Doubles, kernel: Doubles) -> Doubles:
    """Convolution of each row with the kernel, where they overlap wholly."""
    # What a circular convolution wraps around lies outside of that.
    size = 1 << (rows.shape[1] - 1).bit_length()
    spectrum = np.fft.rfft(rows, size) * np.fft.rfft(kernel, size)
    circular = np.fft.irfft(spectrum, size)
    return circular[:, len(kernel) - 1 : rows.shape[1]]
