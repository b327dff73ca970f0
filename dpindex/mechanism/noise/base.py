"""Base classes of noise laws: draws, decoding, moments, likelihood, and how a law is calibrated."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Literal

import mpmath
import numpy as np
import scipy

from dpindex.base.arrays import AnyArray, Doubles, Floats, Integers, Longs, Words, spaced
from dpindex.base.checks import Narrowed
from dpindex.base.errors import NoGuaranteeError
from dpindex.mechanism.codebooks import Codebook
from dpindex.mechanism.codes import CodeFormat, NumberFormat, SignFormat, SymbolFormat
from dpindex.mechanism.grid import GRID_BITS
from dpindex.mechanism.noise.moments import (
    Likelihood,
    LinearChannel,
    NoiseMoments,
    Polynomial,
)
from dpindex.mechanism.parameters import Parameters
from dpindex.mechanism.public_random import BitSource
from dpindex.mechanism.variants import Variant

ONE = 1 << 64
"""The chance 1: chances are whole numbers over it."""

_POWER_BITS = 160
_MAX_CELLS = 2.0**24
_MAX_SUM = 2**46
_MAX_CODE = 2**30
"""Bounds on projected grid integers, and on what of them is left in a number code, an int32."""

_QUANTILES = 1024
"""Equally likely values of a coordinate over which signs are averaged."""

_ORDERS = 11
"""Orders of the Hermite expansion of a sign; the variance beyond them counts as of order 11."""

_SAMPLE = 256
"""Codewords that play records where a share is averaged."""


def check_deviation(cells: float, max_cells: float = _MAX_CELLS) -> None:
    """Refuse a law that deviates by too many cells for a code, before its table is made."""
    if not cells <= max_cells:
        raise NoGuaranteeError(
            "this epsilon asks for more noise than a code can hold, or a count; raise epsilon, or "
            "lower k or rows."
        )


@lru_cache(maxsize=64)
def power_below(epsilon: float | Fraction | mpmath.mpf) -> int:
    """Return ``e^ε·2^160``, rounded down twice, so that it is never too large."""
    with mpmath.workprec(_POWER_BITS + 128):
        if isinstance(epsilon, Fraction):
            epsilon = mpmath.fdiv(epsilon.numerator, epsilon.denominator, rounding="d")
        power = mpmath.exp(epsilon, rounding="d")
        return int(mpmath.floor(mpmath.ldexp(power, _POWER_BITS)))


def two_level_chance(epsilon: float | mpmath.mpf, likely: int, others: int) -> int:
    """Return the chance, times 2^64, of the likely set under a law of two levels.

    The largest whole number P for which ``p = P/2^64`` keeps the ratio of the probabilities of
    single outcomes, ``(p/likely) / ((1 − p)/others)``, at most e^ε (Kairouz, Oh & Viswanath 2016).

    Parameters
    ----------
    epsilon : float or mpf
    likely, others : int
        Sizes of the likely set and of its complement, [1, ∞).

    >>> two_level_chance(1.0, 1, 1) / 2**64  # e/(1 + e)
    0.7310585786300049
    """
    odds = power_below(epsilon) * likely
    chance = odds * ONE // (odds + (others << _POWER_BITS))
    return min(chance, ONE - 1)


class Law(Narrowed, ABC):
    """A secret law that turns exact projected integers into noisy codes.

    A subclass says how it draws (:meth:`perturb`), what that does to a coordinate (its moments or
    flip probability) and what a code says about the coordinate (its likelihood). Estimators and
    denoisers ask the law; only the exact verifier computes all of it again, independently.
    """

    grid_bits: int = GRID_BITS
    """Grid bits per beta that the law is calibrated on."""

    cell_bits: int = 0
    """Low bits of a noisy sum that the code drops."""

    adds_noise: ClassVar[bool] = False
    """True if noise is added to exact integers; others report one of few outcomes."""

    interchangeable: ClassVar[bool] = False
    """True if laws of its class differ by the size of their noise alone."""

    depends_on_size: bool = False
    """True if the chance of an outcome depends on the magnitude of a coordinate."""

    of_nearest: ClassVar[bool] = False
    """True if a symbol is one of the nearest codewords, each as likely, or any other."""

    @property
    def summary(self) -> str:
        """How a symbol comes about, in words; empty for other codes."""
        return ""

    @property
    def drawn_from(self) -> object:
        """The source of the noise: the law itself, or the source of integers that it adds."""
        return self

    @abstractmethod
    def perturb(self, x: Floats, stream: BitSource) -> AnyArray:
        """Noisy outcomes of grid integers ``x`` (held exactly in floats), same shape (n, k)."""

    @abstractmethod
    def code_format(self, code_length: int, fingerprint: bytes, step: float) -> CodeFormat:
        """The format of such codes; ``step`` is the unit of the data that one grid step is."""

    def decoded_noise(self, step: float) -> tuple[Polynomial, Likelihood]:
        """Return the noise of a decoded code of a coordinate x, which is in units of the data.

        Its variance ``v₀ + v₁x + v₂x²``, and the likelihood of a code. That of signs is empty, as
        their variance alone is used. TypeError for symbols, which have no coordinates.

        Parameters
        ----------
        step : float
            One grid step in those units.
        """
        raise TypeError(f"codes of {type(self).__name__} have no coordinates")

    @cached_property
    def max_sum(self) -> int:
        """A bound on magnitudes of projected grid integers, which must stay below it."""
        return _MAX_SUM


class NumberLaw(Law):
    """A law of number codes: ``estimate = (code + offset) · scale`` is unbiased, in grid steps."""

    scale: float = 1.0
    offset: float = 0.0
    adds_noise = True

    @property
    @abstractmethod
    def moments(self) -> NoiseMoments:
        """Moments of an estimate and its square, in grid steps."""

    @property
    @abstractmethod
    def likelihood(self) -> Likelihood:
        """The likelihood of a coordinate given its code, in grid steps."""

    def code_format(self, code_length: int, fingerprint: bytes, step: float) -> CodeFormat:
        return NumberFormat(code_length, fingerprint, self.scale * step, self.offset)

    def decoded_noise(self, step: float) -> tuple[Polynomial, Likelihood]:
        variance = self.moments.in_units(step).variance_of_x
        return variance, self.likelihood.in_units(step)

    def linear_channel(self, mean: Doubles, variance: Doubles, step: float) -> LinearChannel:
        """Return the decoded codes as linear in their coordinates, which they are on average.

        Parameters
        ----------
        mean, variance : float64 arrays, shape (k,)
            Of the coordinates, in units of the data.
        step : float
            One grid step in those units.
        """
        constant, first, second = self.moments.variance_of_x
        # Where the variance of the law depends on x, its mean over x; in grid steps.
        mean_square = mean**2 + variance
        noise = constant + first * mean / step + second * mean_square / step**2
        return LinearChannel(
            slope=np.ones_like(mean),
            mean=mean,
            noise=noise * step**2,
            bends=np.empty((len(mean), 0)),
        )

    @cached_property
    def max_sum(self) -> int:
        return min(_MAX_SUM, int(_MAX_CODE * self.scale))


class SignLaw(Law):
    """A law of sign codes; outcomes are booleans, True for +1."""

    scale_free: bool = False
    """True if only ratios of magnitudes count, so that no norm need be known."""

    flips_together: bool = False
    """True if the flips of one code depend on each other."""

    @abstractmethod
    def flip_probability(self, x: Floats, rms: float | Doubles) -> Doubles:
        """Chance that the sign of a coordinate of magnitude ``x`` (in betas) comes out flipped.

        It may jump at whole betas only: estimators integrate it from one to the next. ``rms``
        is the standard deviation of a coordinate in betas, one number or a column of one for each
        row; it matters only where the flips of one coordinate depend on the others.
        """

    def expected_signs(self, x: Floats, rms: float | Doubles) -> Doubles:
        """Return the mean of the code's sign for coordinates ``x``, in betas; rms as above."""
        kept = 1.0 - 2.0 * self.flip_probability(np.abs(x), rms)
        return np.sign(x) * kept

    def decoded_noise(self, step: float) -> tuple[Polynomial, Likelihood]:
        # Signs are read as ±1; flips are likeliest near zero: this is an upper bound.
        flip, *_ = self.flip_probability(np.full(1, 0.5), 0.5).tolist()
        kept = 1.0 - 2.0 * flip
        return (1.0 - kept**2, 0.0, 0.0), Likelihood()

    def linear_channel(self, mean: Doubles, variance: Doubles, beta: float) -> LinearChannel:
        """Return signs as linear in their normal coordinates, as well as can be (Bussgang 1952).

        Parameters
        ----------
        mean, variance : float64 arrays, shape (k,)
            Of the coordinates, in units of the data.
        beta : float
            The law's unit in those units.
        """
        probabilities = (np.arange(_QUANTILES) + 0.5) / _QUANTILES
        normal = scipy.special.ndtri(probabilities)
        deviation = np.sqrt(variance)
        mean_square = np.mean(mean**2 + variance)
        rms = float(np.sqrt(mean_square)) / beta
        coordinates = mean[:, None] + deviation[:, None] * normal
        signs = self.expected_signs(coordinates / beta, rms)
        orders = np.arange(_ORDERS)
        hermite = np.polynomial.hermite_e.hermevander(normal, _ORDERS - 1)
        hermite /= np.sqrt(scipy.special.factorial(orders))
        coefficients = signs @ hermite / len(normal)
        expected, linear, *bends = coefficients.T
        slope = np.zeros_like(linear)
        np.divide(linear, deviation, out=slope, where=deviation > 0)
        explained = signs.var(axis=1)
        further = explained - linear**2 - np.sum(np.square(bends), axis=0)
        bends.append(np.sqrt(np.maximum(further, 0.0)))
        return LinearChannel(
            slope,
            mean=expected,
            noise=1 - expected**2 - explained,
            bends=np.column_stack(bends),
        )

    def code_format(self, code_length: int, fingerprint: bytes, step: float) -> CodeFormat:
        return SignFormat(code_length, fingerprint)


def high_product(words: Words, limits: AnyArray) -> Words:
    """``⌊word·limit/2^64⌋`` of 64-bit numbers, shape (n,): no sum of the parts overflows."""
    half = np.uint64(32)
    mask = np.uint64((1 << 32) - 1)
    limits = limits.astype(np.uint64)
    high = words >> half
    low = words & mask
    limit_high = limits >> half
    limit_low = limits & mask
    # Digits of 32 bits: the lowest is only carried from, so the middle ones add up in two steps.
    upper = high * limit_low + (low * limit_low >> half)
    lower = low * limit_high + (upper & mask)
    whole: Words = high * limit_high
    whole += (upper >> half) + (lower >> half)
    return whole


def draw_uniform(limit: int, count: int, stream: BitSource) -> Longs:
    """Whole numbers below limit, the same work for every draw.

    Each is drawn by ⌊2^64/limit⌋ of the words, or by one word more.
    """
    words = stream.words(count, np.uint64)
    return high_product(words, np.array(limit)).astype(np.int64)


def uniform_share(size: int, epsilon: float, likely: int = 1) -> int:
    """Return the share of uniform symbols, times 2^64, with which any two records are ε-close.

    A uniform symbol is one of ``⌊2^64/K⌋`` words or one more, and no record gives more than
    ``⌈2^64/likely⌉`` words to a symbol that its vector draws.

    >>> round(uniform_share(100, 8.0) / 2**64, 6)  # K/(e^ε + K − 1)
    0.032468
    """
    most = -(-ONE // likely)
    # Rounded up for what is most likely, and down for what is least: the bound holds in integers.
    most_uniform = -(-ONE // size)
    least_uniform = ONE // size
    # γ with ((2^64 − γ)·most + γ·⌈2^64/K⌉) ≤ e^ε·γ·⌊2^64/K⌋, over 2^160.
    room = power_below(epsilon) * least_uniform
    room += most - most_uniform << _POWER_BITS
    return -(-(ONE * most << _POWER_BITS) // room)


class SymbolLaw(Law):
    """A law of symbol codes: with a fixed chance γ uniform, else drawn by the vector.

    Whatever the record, no symbol is rarer than γ/K then: a floor that keeps any two records
    apart by no more than ``log((p·(1 − γ) + γ/K)/(γ/K))``, where the vector draws no symbol with a
    chance above p (Kairouz, Oh & Viswanath 2016). And a mixture with a law that does not depend on
    the vector keeps what the drawn symbol promises of neighbours.

    Attributes
    ----------
    codebook : Codebook
        What the symbols stand for.
    uniform : int
        γ, times 2^64.
    drawn_by : str
        How a vector draws its symbol, in words.
    """

    codebook: Codebook
    uniform: int

    @property
    def size(self) -> int:
        """Number of symbols."""
        return self.codebook.size

    @property
    @abstractmethod
    def drawn_by(self) -> str: ...

    @abstractmethod
    def draw(self, x: Floats, stream: BitSource) -> Longs:
        """Symbols that vectors draw, given what they map to, shape (n, K)."""

    @abstractmethod
    def draw_chances(self, x: Floats) -> Doubles:
        """Chances of all symbols in :meth:`draw`, shape (n, K)."""

    @property
    def summary(self) -> str:
        """How a symbol comes about, in words."""
        if not self.uniform:
            return self.drawn_by
        return f"{self.drawn_by}; {self.uniform / ONE:.1%} of the codes are uniform"

    def perturb(self, x: Floats, stream: BitSource) -> Longs:
        # All three are drawn for every row, so that neither time nor words used tell which was
        # taken.
        coins = stream.words(len(x), np.uint64)
        drawn = self.draw(x, stream)
        uniform = draw_uniform(self.codebook.size, len(x), stream)
        return np.where(coins < np.uint64(self.uniform), uniform, drawn)

    def chances(self, x: Floats) -> Doubles:
        """Chances of all symbols given what a vector maps to, both of shape (n, K)."""
        share = self.uniform / ONE
        return share / self.size + (1.0 - share) * self.draw_chances(x)

    @cached_property
    def random_share(self) -> float:
        """Share of symbols that are not the likeliest for their vectors, about, [0, 1]."""
        chances = self.of_codewords(spaced(self.size, _SAMPLE))
        likeliest = chances == chances.max(axis=1, keepdims=True)
        share = chances[likeliest].sum() / len(chances)
        return float(1.0 - share)

    @abstractmethod
    def mapped(self, codewords: Integers) -> Floats:
        """Return what some of the codewords map to, shape (m, K)."""

    def of_codewords(self, codewords: Integers) -> Doubles:
        """Chances of symbols for records that are codewords, if there were only the others.

        So what a symbol says of a record is learned from codewords: they are of the same kind, but
        no record is one. Shape (m, K), 0 for the own symbol.
        """
        return self.chances_without(
            self.mapped(codewords),
            codewords[:, None] == np.arange(self.size),
        )

    def chances_without(self, x: Floats, absent: AnyArray) -> Doubles:
        """Chances of symbols given that each vector's is none of some, both of shape (n, K)."""
        # Chances are rounded relative to the highest, so what is absent must not be it.
        lowest = x.min(axis=1, keepdims=True)
        chances = self.chances(np.where(absent, lowest, x))
        chances[absent] = 0.0
        chances /= chances.sum(axis=1, keepdims=True)
        return chances

    def code_format(self, code_length: int, fingerprint: bytes, step: float) -> CodeFormat:
        return SymbolFormat(1, fingerprint, self.size, self.codebook.vectors)


Moves = Literal["one", "units", "any"]
"""What one attribute may do to a projected vector, the least first: see :class:`Calibration`."""


@dataclass(frozen=True)
class Calibration:
    """The recipe of a law for a given epsilon: how it is made, what it needs and promises.

    Attributes
    ----------
    law : callable
        From checked parameters and the projection or record encoder in use.
    format : type of CodeFormat
        The format of its codes.
    definition : "DP", "iDP" or "none"
        What kind of promise its epsilon is.
    delta : "zero", "optional" or "required"
        Whether it takes a delta in (0, max_delta).
    delta_over : "noise" or "projection"
        What a delta above 0 is a probability over: see :class:`dpindex.Guarantee`.
    adjacencies : tuple of str
        Kinds of adjacency that it has a proof for.
    exact : bool
        False where the proof is about real numbers and not about the integers that run.
    bounded : bool
        Needs bounds no wider than one beta.
    check_norm : callable, optional
        Of a law that needs ``min_norm`` with a delta: refuses parameters and a resolved variant.
    joint : bool
        Takes ``record_epsilon``: a promise about whole records beside that under its adjacency.
    rounded : bool
        What the law is calibrated to: a linear projection, with its sensitivity, of attributes that
        are rounded to a grid within public bounds; False for a record encoder, which takes vectors
        as they are.
    moves : "one", "units" or "any"
        What one attribute may do to a projected vector: move one coordinate by a beta; several, by
        a beta each; or several by whole numbers of betas, of which the law counts all. Another map
        has no guarantee: a staircase may lose a whole epsilon at an arbitrarily small shift.
    deviation : callable, optional
        Gaussian laws whose delta is about the noise alone: the deviation, in L2 sensitivities, that
        epsilon and delta ask for. Tight composition needs it.
    """

    law: Callable[[Parameters, Any], Law]
    format: type[CodeFormat]
    definition: Literal["DP", "iDP", "none"] = "DP"
    delta: Literal["zero", "optional", "required"] = "zero"
    max_delta: float = 1.0
    delta_over: Literal["noise", "projection"] = "noise"
    adjacencies: tuple[str, ...] = ("attribute",)
    exact: bool = True
    bounded: bool = False
    check_norm: Callable[[Parameters, Variant], None] | None = None
    joint: bool = False
    rounded: bool = True
    moves: Moves = "one"
    deviation: Callable[[float, float], float] | None = None
