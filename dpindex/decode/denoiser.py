"""The denoiser, the channel of a spec's codes and its score tables, and how they are stored."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cached_property
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_type_hints

import numpy as np
import scipy

from dpindex.base.arrays import AnyArray, Doubles, Indices, Singles, matrix_product, row_blocks
from dpindex.base.checks import finite_number, whole_number
from dpindex.base.display import facts_html
from dpindex.base.errors import DamagedError, InputError, NoDenoiserError
from dpindex.base.files import checked_array, pack, unpack
from dpindex.base.threads import cores
from dpindex.decode.mixture import MixtureFilter
from dpindex.mechanism.codes import Codes
from dpindex.mechanism.noise.base import NumberLaw, SignLaw
from dpindex.mechanism.noise.moments import Likelihood
from dpindex.mechanism.spec import Spec

_DENOISED_NUMBERS = 1 << 18
_VARIANCES = 64
_MAX_POINTS = 4096
"""Rows and columns of a score table."""

_VALUES = 33
_CELLS = 64
"""Values of an interval that coordinates may have, and cells of the codes that tell of them."""

_RESOLVED = 4
"""Steps between values in half of a window, at least: less noise leaves less than a step open."""

_FIT_ROUNDS = 60
_LEAST_WEIGHT = 1e-3
_TINY = 1e-9
_UNEXPECTED = 1e-6
"""Chance that any value has, however far it is from a prediction."""

_MIN_LIKELIHOOD = 1e-14
"""Likelihoods below this share of the largest one are raised to it, so that scores stay finite."""

_MAX_LOG_SIZE = 2.5
"""No vector's errors are taken to be more than twelve times what is claimed, or less."""

_LEAST_KNOWN = 0.1
"""Measured over claimed information, below which codes tell no sizes: .9 and more if likelihoods
are right, 1e-11 where they are at their floor."""


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
            self.likelihood = spec.likelihood
            self.variance = spec.noise_moments.variance_of_x
        else:  # signs are read as ±1; flips are likeliest near zero: this is an upper bound
            nearest = np.full(1, 0.5)
            flip, *_ = SignLaw.of(spec.law).flip_probability(nearest, 0.5).tolist()
            kept = 1.0 - 2.0 * flip
            self.variance = (1.0 - kept**2, 0.0, 0.0)

    def check(self, codes: Codes) -> None:
        """Accept codes of this format alone: never an array of numbers, so never a vector."""
        if not isinstance(codes, Codes):
            raise InputError("a denoiser takes dpindex codes, never vectors.")
        of_spec = codes.fingerprint == self.format.fingerprint
        if not of_spec or codes.k != self.format.code_length:
            raise InputError("these codes were made under another spec than the denoiser's.")

    def for_each_block(self, count: int, action: Callable[[slice], None]) -> None:
        """Run ``action`` on slices of ``count`` rows whose decoded codes fit the cache.

        All cores work.
        """
        size = max(64, _DENOISED_NUMBERS // self.format.code_length)
        if count <= size:
            action(slice(count))
            return
        blocks = row_blocks(count, size)
        with ThreadPoolExecutor(cores()) as pool:
            list(pool.map(action, blocks))  # the list raises what an action raised

    def noise(self, y: Singles) -> Singles:
        """Unbiased estimates of ``Var(y | x)``, element by element."""
        # E[v₀ + v₁y + v₂y² | x] = Var(y | x)·(1 + v₂).
        scale = 1.0 / (1.0 + self.variance[2])
        constant, first, second = (np.float32(v * scale) for v in self.variance)
        estimate: Singles = (second * y + first) * y + constant
        return estimate


class ScoreTable:
    """The score ``g = d log P(code | prediction) / d prediction``, tabulated over distances.

    If a coordinate is predicted as N(m, v), then ``E[x | code] = m + v·g`` (Tweedie's formula,
    Efron 2011). The Fisher information ``E[g²]`` is what the code adds: as much as an observation
    in Gaussian noise of variance ``1/E[g²] − v``. For Laplace, staircase and square-wave noise that
    falls far below the variance of the noise as v decreases.

    ``d log P(code | prediction) / d log v`` tells if predictions are better or worse than v. Its
    mean is 0 if v is right, and its variance the Fisher information about ``log v``.

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
    scores, growth : float32 arrays, shape (64, points)
        The score at distances ``code − m``, and the derivative by ``log v``.
    growth_information : float64 array, shape (64,)
        The Fisher information about ``log v``.
    values : ValueTable, optional
        Of coordinates that lie in an interval.
    """

    def __init__(self, likelihood: Likelihood, max_variance: float) -> None:
        self.max_variance = max_variance
        # Edges are multiples of half a cell; where there are very many, a coarser lattice is used.
        farthest = float(np.abs(likelihood.edges).max())
        widest = farthest + 3 * math.sqrt(max_variance)
        step = likelihood.cell / 2
        points = 2 * widest / step
        step *= max(1, math.ceil(points / _MAX_POINTS))
        self._half = math.ceil(widest / step)
        self._per_unit = 1 / step
        smallest = (step / 2) ** 2
        largest = max(max_variance, 4 * smallest)
        self.variances = np.geomspace(smallest, largest, _VARIANCES)
        points = 2 * self._half + 1
        places = np.rint(likelihood.edges / step).astype(np.intp)
        places += self._half
        jumps = np.bincount(places, likelihood.jumps, points).astype(np.float64)
        # Rounding x to cells has variance cell²/6; the tabulated steps contain half of that.
        with_rounding = self.variances + likelihood.cell**2 / 12
        deviations = np.sqrt(with_rounding)[:, None]
        # P(code | prediction) = base + Σ jumps·Φ(t), with t the distance of an edge in deviations.
        t = step * np.arange(-points + 1, points) / deviations
        bell = np.exp(t**2 / -2) / math.sqrt(2 * math.pi)
        density = bell / deviations
        below = scipy.special.ndtr(t)
        chance = likelihood.base + _convolved(below, jumps)
        lowest = _MIN_LIKELIHOOD * chance.max(axis=1, keepdims=True)
        np.maximum(chance, lowest, out=chance)
        scores = -_convolved(density, jumps) / chance
        # Φ(t) changes with log v, which t is in deviations of, by −t/2 times the bell.
        growth = _convolved(-t * bell / 2, jumps) / chance
        self.information = np.sum(scores**2 * chance, axis=1) * step
        self.growth_information = np.sum(growth**2 * chance, axis=1) * step
        self.scores = scores.astype(np.float32)
        self.growth = growth.astype(np.float32)
        self.inverse_information = 1 / np.maximum(self.information, 1e-300)
        self.values = ValueTable.of(likelihood)

    def row(self, variance: Doubles) -> Indices:
        """The table row for each prediction variance."""
        log = np.log(np.maximum(variance, 1e-300))
        log_rows = np.log(self.variances)
        place = np.interp(log, log_rows, np.arange(_VARIANCES))
        return np.rint(place).astype(np.intp)

    def equivalent_noise(self, row: Indices) -> Doubles:
        """Variance of the Gaussian noise that would be as informative as the code."""
        variance = self.inverse_information[row] - self.variances[row]
        return np.asarray(np.maximum(variance, self.variances[0]))

    def place(self, row: AnyArray, distance: Singles) -> Indices:
        """Return the places, in flattened tables, of a row's values at distances ``code − m``."""
        place = distance * np.float32(self._per_unit)
        np.rint(place, out=place)
        np.clip(place, -self._half, self._half, out=place)
        index = place.astype(np.intp)
        index += row * self.scores.shape[1] + self._half
        return index

    def look_up(self, row: AnyArray, distance: Singles) -> Singles:
        """Scores at distances ``code − m``, float32."""
        return np.take(self.scores, self.place(row, distance))


def _convolved(rows: Doubles, kernel: Doubles) -> Doubles:
    """Convolution of each row with the kernel, where they overlap wholly."""
    # What a circular convolution wraps around lies outside of that.
    size = 1 << (rows.shape[1] - 1).bit_length()
    of_rows = np.fft.rfft(rows, size)
    of_kernel = np.fft.rfft(kernel, size)
    circular = np.fft.irfft(of_rows * of_kernel, size)
    first = len(kernel) - 1
    return circular[:, first : rows.shape[1]]


class ValueTable:
    """Chances of codes for the values of an interval, in which all coordinates lie.

    Coordinates with like predictions need not be normal about them: dark and bright are common in
    pictures, and clipped attributes lie at the ends. What they are is told by their codes
    (deconvolution by expectation–maximisation, as of Li et al. 2020 Sec. 5.5), and a posterior mean
    follows by Bayes' rule, in place of Tweedie's formula for a normal prior.

    Attributes
    ----------
    values : float64 array, shape (P,)
        Evenly spaced over the interval.
    """

    cells = _CELLS

    def __init__(self, likelihood: Likelihood, low: float, high: float) -> None:
        reach = float(np.abs(likelihood.edges).max())
        ends, width = np.linspace(low - reach, high + reach, _CELLS + 1, retstep=True)
        self.values = np.linspace(low, high, _VALUES)
        self._first = np.float32(ends[0])
        self._per_unit = np.float32(1 / width)
        distance = ends[:, None] - self.values
        below = likelihood.base * distance
        for edge, jump in zip(likelihood.edges, likelihood.jumps, strict=True):
            below += jump * np.maximum(distance - edge, 0)
        chance = np.diff(below, axis=0)
        self._chance = chance / chance.sum(axis=0)

    @classmethod
    def of(cls, likelihood: Likelihood) -> ValueTable | None:
        """Return the table of a law of an interval if its values resolve the windows; else None."""
        if likelihood.interval is None:
            return None
        low, high = likelihood.interval
        reach = float(np.abs(likelihood.edges).max())
        if _RESOLVED * (high - low) > (_VALUES - 1) * reach:
            return None
        return cls(likelihood, low, high)

    def place(self, bins: Indices, location: Singles) -> Indices:
        """Return the places, in flattened tables by bin and cell, of codes at locations."""
        cell = location - self._first
        cell *= self._per_unit
        np.clip(cell, 0, _CELLS - 1, out=cell)
        return bins * _CELLS + cell.astype(np.intp)

    def normal(self, mean: Doubles, variance: Doubles) -> Doubles:
        """Return chances of the values under normal laws, shape (B, P); the ends take the tails.

        A deviation is at least half of a step: else values between two would be said to be one.
        """
        between = (self.values[1:] + self.values[:-1]) / 2
        least = (self.values[1] - self.values[0]) / 2
        deviations = np.maximum(np.sqrt(variance), least)[:, None]
        below = scipy.special.ndtr((between - mean[:, None]) / deviations)
        chances = np.diff(below, axis=1, prepend=0.0, append=1.0)
        return np.asarray(chances + _UNEXPECTED)

    def fitted(self, counts: Doubles, prior: Doubles) -> Singles:
        """Return the likeliest chances of the values, (B, P), given codes and a prior.

        Parameters
        ----------
        counts : float64 array, shape (B, cells)
            Codes of each bin by cell.
        prior : float64 array, shape (B, P)
            Chances that are expected, in numbers of further coordinates.
        """
        total = prior.sum(axis=1) + counts.sum(axis=1)
        chances = prior / prior.sum(axis=1)[:, None]
        for _ in range(_FIT_ROUNDS):
            expected = chances @ self._chance.T
            found = (counts / expected) @ self._chance
            chances = (found * chances + prior) / total[:, None]
        return np.asarray(chances, dtype=np.float32)

    def read(self, chances: Singles) -> Readings:
        """Return what codes say where values have such chances, shape (B, P)."""
        likely = np.maximum(chances.astype(np.float64), _TINY)
        likely /= likely.sum(axis=1, keepdims=True)
        of_codes = likely @ self._chance.T
        mean = likely @ self.values
        variance = np.maximum(likely @ self.values**2 - mean**2, _TINY)
        posterior = (likely * self.values) @ self._chance.T / of_codes
        # A posterior mean varies by v·w of the variance v of a prior, w the weight of the message.
        explained = np.sum(of_codes * (posterior - mean[:, None]) ** 2, axis=1)
        weight = np.clip(explained / variance, _LEAST_WEIGHT, 1 - _LEAST_WEIGHT)
        messages = mean[:, None] + (posterior - mean[:, None]) / weight[:, None]
        noise = variance * (1 / weight - 1)
        parts = (part.astype(np.float32) for part in (messages, weight, noise))
        return Readings(self, *parts)


class Readings(NamedTuple):
    """What codes say of coordinates in an interval, by bin of their predictions.

    Attributes
    ----------
    table : ValueTable
    messages : float32 array, shape (BINS, cells)
        Observations in normal noise that are worth as much as codes, by cell of the code.
    weight, noise : float32 arrays, shape (BINS,)
        How far a posterior mean goes from a prediction to a message, and the message's variance.
    """

    table: ValueTable
    messages: Singles
    weight: Singles
    noise: Singles

    def message(self, bins: Indices, location: Singles) -> Singles:
        """Return the messages of codes at locations."""
        return np.asarray(np.take(self.messages, self.table.place(bins, location)))


@dataclass(frozen=True, eq=False)
class CalibrationBins:
    """The measured error of predictions, by predicted value and claimed variance.

    Filters claim too little variance, and predictions of attributes with a lower or upper limit are
    biased near it. Codes are unbiased and independent of the predictions, so their mean difference
    and mean square in a bin estimate the error without any true coordinate.

    Attributes
    ----------
    ranges : float64 array, shape (2, 2)
        Least and largest prediction, and least and largest logarithm of the claimed variance.
    offset, variance : float32 arrays, shape (BINS,)
        To add to a prediction, and the variance of its remaining error.
    chances : float32 array, shape (BINS, P)
        Of the values of a coordinate in an interval: see :class:`ValueTable`. P is 0 for others.
    """

    ranges: Annotated[Doubles, "22"]
    offset: Annotated[Singles, "B"]
    variance: Annotated[Singles, "B"]
    chances: Annotated[Singles, "BP"]

    SIDE = 24
    BINS = SIDE**2

    @property
    def middles(self) -> Doubles:
        """The prediction in the middle of each bin, shape (BINS,)."""
        low, high = self.ranges[0]
        row = np.repeat(np.arange(self.SIDE), self.SIDE)
        return np.asarray(low + (high - low) * (row + 0.5) / self.SIDE)

    def place(self, prediction: Singles, claimed: Singles) -> Indices:
        """The bin of each element."""
        log_claimed = np.maximum(claimed, np.float32(1e-30))
        np.log(log_claimed, out=log_claimed)
        low, high = self.ranges.T.tolist()
        row = self._along(prediction, low[0], high[0])
        column = self._along(log_claimed, low[1], high[1])
        np.floor(row, out=row)
        row *= self.SIDE
        row += column
        return row.astype(np.intp)

    def _along(self, x: Singles, low: float, high: float) -> Singles:
        """Return places on a side of the table, in [0, SIDE)."""
        per_unit = self.SIDE / max(high - low, 1e-30)
        last = np.float32(self.SIDE - 1)
        place = x - np.float32(low)
        place *= np.float32(per_unit)
        return np.clip(place, 0, last, out=place)


@dataclass(frozen=True, eq=False)
class EPIteration:
    """A filter, the calibration of its predictions, and how codes are read given predictions.

    ``location`` of a code is where its likelihood lies: see
    :meth:`dpindex.mechanism.noise.moments.Likelihood.locate`.
    """

    filter: MixtureFilter
    bins: CalibrationBins
    table: ScoreTable

    @cached_property
    def _row(self) -> Indices:
        """The row of the score table for each bin."""
        return self.table.row(self.bins.variance.astype(np.float64))

    def predict(self, z: Singles) -> tuple[Singles, Indices, Singles]:
        """Calibrated predictions, shape (n, k), their bins, and responsibilities, (n, K)."""
        prediction, claimed, share = self.filter.predict(z)
        place = self.bins.place(prediction, claimed)
        prediction += np.take(self.bins.offset, place)
        return prediction, place, share

    @cached_property
    def _readings(self) -> Readings | None:
        """What codes say of coordinates in an interval; None of others."""
        values = self.table.values
        return None if values is None else values.read(self.bins.chances)

    def message(self, z: Singles, location: Singles) -> Singles:
        """The codes as observations in Gaussian noise, for the filter of the next iteration."""
        prediction, bins, _ = self.predict(z)
        if self._readings is not None:
            return self._readings.message(bins, location)
        change = self.table.look_up(np.take(self._row, bins), location - prediction)
        change *= self._of_bins(self.table.inverse_information, bins)
        return prediction + change

    def _of_bins(self, by_row: Doubles, bins: Indices) -> Singles:
        """Return values of the table's rows, for the bins of elements."""
        return np.take(by_row[self._row].astype(np.float32), bins)

    def message_noise(self, z: Singles) -> Singles:
        """Noise variance of each coordinate's message, averaged over rows, shape (k,)."""
        by_bin: AnyArray = self.table.equivalent_noise(self._row)
        if self._readings is not None:
            by_bin = self._readings.noise
        _, place, _ = self.predict(z)
        noise: Singles = np.take(by_bin, place).mean(axis=0).astype(np.float32)
        return noise

    def posterior(
        self,
        z: Singles,
        location: Singles,
    ) -> tuple[Singles, Singles, Singles, Doubles]:
        """Posterior means of the coordinates given all codes, shape (n, k).

        And the posterior probability of each component of the filter's prior, shape (n, K). Then
        what each code says of a factor of all variances v of its row, the derivative of its
        log-likelihood by the factor's logarithm, (n, k), and the row's Fisher information, (n,).
        """
        prediction, bins, share = self.predict(z)
        place = self.table.place(np.take(self._row, bins), location - prediction)
        growth = np.take(self.table.growth, place)
        by_bin = self.table.growth_information[self._row]
        information = np.take(by_bin, bins).sum(axis=1)
        if self._readings is None:
            change = np.take(self.table.scores, place)
            change *= self._of_bins(self.table.variances, bins)
        else:
            change = self._readings.message(bins, location) - prediction
            change *= np.take(self._readings.weight, bins)
        return prediction + change, share, growth, information


@dataclass(frozen=True, eq=False, repr=False)
class Denoiser:
    """Turns codes into the best estimates of the projected vectors behind them.

    It has learned how the coordinates of one collection are correlated, from codes and public
    parameters only. Estimates are shrunk towards the collection's mean: rank by ``to_rank``, and
    read similarities off the codes themselves.

    Attributes
    ----------
    spec : Spec
        The spec of the codes it was learned from and may be applied to.
    error : float
        Mean squared error of a coordinate predicted from the others, over the variance of its
        noise: held out and unbiased, so comparable between denoisers of the same codes.
    rows : int
        Codes it was learned from.
    linear : MixtureFilter
        The optimal linear filter.
    iterations : tuple of EPIteration
        Of expectation propagation; empty if the denoiser is linear.
    error_variance : float64 array, shape (K,) or (0,)
        Squared error of an estimate under each component of the last iteration's prior, as its
        filter claims it, if that prior has several; else empty.
    sizes : float64 array, shape (3,)
        Mean and variance, over the vectors, of the logarithm of the factor by which the errors of
        a vector's predictions differ from what is claimed, and the measured over the claimed Fisher
        information about it, [0, ∞): 1 if errors are normal. Zeros: no vector's errors differ.
    """

    spec: Spec
    error: float
    rows: int
    linear: MixtureFilter
    iterations: tuple[EPIteration, ...] = ()
    error_variance: Doubles = field(default_factory=lambda: np.empty(0))
    sizes: Doubles = field(default_factory=lambda: np.zeros(3))

    def __repr__(self) -> str:
        return f"<Denoiser: {self.kind}, learned from {self.rows} codes, error {self.error:.3g}>"

    def _repr_html_(self) -> str:
        """For notebooks: what was learned, from what, and how well."""
        facts = {
            "learned from": f"{self.rows} codes of {self.spec.method}",
            "error of a predicted coordinate": self.error_in_words,
        }
        return facts_html(f"Denoiser: {self.kind}", facts)

    @property
    def error_in_words(self) -> str:
        """The error of predictions; the unbiased estimate of a small one may be negative."""
        if self.error <= 0.0:
            return "too small to be measured"
        return f"{self.error:.3g} of the noise variance"

    @property
    def kind(self) -> Literal["linear", "score"]:
        """The kind, "linear" or "score": see :func:`fit_denoiser`."""
        if self.iterations:
            return "score"
        return "linear"

    @cached_property
    def _channel(self) -> Channel:
        return Channel(self.spec)

    def __call__(self, codes: Codes, spec: Spec | None = None) -> Singles:
        """Estimates of the projected vectors, float32, shape (n, k), in the data's units.

        Codes made under another epsilon (private queries with a budget of their own) go through
        the linear filter for their noise.

        Raises
        ------
        InputError
            For anything that is not codes made under the denoiser's spec, epsilon aside.
        """
        if spec is None or spec == self.spec:
            return self._blockwise(codes, lambda y: self._expanded(self._mean_posterior(y)))
        if spec.with_epsilon(self.spec.budget) != self.spec:
            raise InputError("these codes differ from the denoiser's in more than epsilon.")
        channel = Channel(spec)
        channel.check(codes)
        mean = self.linear.mean
        filter_ = self.linear.under(_mean_noise(channel, mean))
        centred = codes.to_float() - mean
        return np.asarray(mean + centred @ filter_)

    def to_rank(self, codes: Codes) -> Singles:
        """Estimates to rank by their inner products for the nearest by cosine, float32, (n, k).

        Their inner product with q is ``E⟨x, q⟩ / √E‖x‖²`` given the code. Where errors are known to
        differ, estimates of large error are scaled down, as they would otherwise lie near every
        query. Else these are unit vectors, or zero.

        Raises
        ------
        InputError
            For anything that is not codes made under the denoiser's spec.
        """
        return self._blockwise(codes, lambda y: self._expanded(self._scaled_posterior(y)))

    def mapped_to_rank(self, codes: Codes, weights: Singles, constant: Singles) -> Singles:
        """Return :meth:`to_rank` of ``x @ weights + constant``, x what is estimated: (n, p).

        Errors of a score denoiser count, whatever its prior.
        """
        error_variance = self.error_variance
        if self.iterations:
            error_variance = self.iterations[-1].filter.mapped_error_variance(weights)

        def ranked(y: Singles) -> Singles:
            estimate, error = self._posterior(y, error_variance)
            return _scaled(self._expanded(estimate) @ weights + constant, error)

        return self._blockwise(codes, ranked)

    def error_root(self, spec: Spec) -> Singles:
        """L such that the errors of estimates have the covariance LLᵀ, shape (k, R).

        As the filters claim it, averaged over the components of the prior; for codes made under
        another epsilon, of the linear filter for their noise.
        """
        if spec == self.spec:
            if not self.iterations:
                return self.linear.error_root()
            return self.iterations[-1].filter.error_root()
        mean = self.linear.mean.astype(np.float64)
        noise = _mean_noise(Channel(spec), mean)
        return self.linear.error_root_under(noise).astype(np.float32)

    @cached_property
    def basis(self) -> Singles | None:
        """Orthonormal directions in which all estimates lie, float32, shape (k, d); None for all.

        Those of a linear denoiser lie in the few that stand out of the noise, and along the mean.
        """
        if self.iterations:
            return None
        span = np.column_stack([self.linear.synthesis, self.linear.mean])
        basis, _ = np.linalg.qr(span.astype(np.float64))
        return basis.astype(np.float32)

    @cached_property
    def _linear_along_basis(self) -> tuple[Singles, Singles] | None:
        """Synthesis and mean along :attr:`basis`, (R, d) and (d,); None if that is None."""
        basis = self.basis
        if basis is None:
            return None
        return self.linear.synthesis.T @ basis, self.linear.mean @ basis

    def coordinates(self, codes: Codes, *, to_rank: bool = False) -> Singles:
        """Return estimates, or what ranks, along :attr:`basis`: float32, shape (n, d)."""
        estimate = self._scaled_posterior if to_rank else self._mean_posterior
        return self._blockwise(codes, estimate)

    def along_basis(self, vectors: Singles) -> Singles:
        """Return the coordinates of vectors that have the same products with all estimates."""
        if self.basis is None:
            return vectors
        return matrix_product(vectors, self.basis)

    def _expanded(self, estimate: Singles) -> Singles:
        if self.basis is None:
            return estimate
        return estimate @ self.basis.T

    def _blockwise(self, codes: Codes, estimate: Callable[[Singles], Singles]) -> Singles:
        self._channel.check(codes)
        decode = self._channel.format.decode
        none = estimate(decode(codes.stored[:0]))
        out = np.empty((len(codes), none.shape[1]), dtype=np.float32)

        def denoise(rows: slice) -> None:
            y = decode(codes.stored[rows])
            out[rows] = estimate(y)

        self._channel.for_each_block(len(codes), denoise)
        return out

    def sized(self, y: Singles) -> Denoiser:
        """The denoiser with :attr:`sizes` as decoded codes show them.

        No filter should have been learned from these: its errors would look too small.
        """
        *_, growth, information = self._last_iteration(y)
        measured = np.square(growth).sum(dtype=np.float64)
        claimed = information.sum()
        if not measured > _LEAST_KNOWN * claimed:
            return replace(self, sizes=np.zeros(3))
        known = measured / claimed
        information *= known
        mean = growth.sum(dtype=np.float64) / information.sum()
        total = growth.sum(axis=1, dtype=np.float64)
        beyond_chance = (total - mean * information) ** 2 - information
        variance = beyond_chance.sum() / np.sum(information**2)
        return replace(self, sizes=np.array([mean, max(variance, 0.0), known]))

    def _scaled_posterior(self, y: Singles) -> Singles:
        return _scaled(*self._posterior(y, self.error_variance))

    def _mean_posterior(self, y: Singles) -> Singles:
        return self._posterior(y, self.error_variance)[0]

    def _posterior(self, y: Singles, error_variance: Doubles) -> tuple[Singles, Doubles]:
        """Estimates along the basis, and the squared error of each, 0 of a linear denoiser.

        What the codes of a vector say of the size of its errors counts as much as it is reliable:
        a normal prior of the logarithm, and one step of Newton's method for its likelihood.
        """
        if self._linear_along_basis is not None:
            weights, mean = self._linear_along_basis
            inner, _ = self.linear.inner(y)
            return inner @ weights + mean, np.zeros(len(y))
        estimate, share, growth, information = self._last_iteration(y)
        if not error_variance.size:
            return estimate, np.zeros(len(y))
        mean, variance, known = self.sizes
        information *= known
        total = growth.sum(axis=1, dtype=np.float64)
        size = variance * (total - mean * information) / (1 + variance * information)
        np.clip(size, -_MAX_LOG_SIZE, _MAX_LOG_SIZE, out=size)
        return estimate, (share @ error_variance) * np.exp(size)

    def _last_iteration(self, y: Singles) -> tuple[Singles, Singles, Singles, Doubles]:
        z = y
        location = self._channel.likelihood.locate(y)
        for iteration in self.iterations[:-1]:
            z = iteration.message(z, location)
        return self.iterations[-1].posterior(z, location)


def _scaled(estimate: Singles, error: Doubles) -> Singles:
    """Estimates over the root of ``‖x̂‖² + error``."""
    squares = np.einsum("ij,ij->i", estimate, estimate, dtype=np.float64)
    norms = np.sqrt(squares + error).astype(np.float32)
    norms[norms == 0] = 1.0
    return np.asarray(estimate / norms[:, None])


def _mean_noise(channel: Channel, mean: AnyArray) -> Doubles:
    """Noise variance of each coordinate at the collection's mean, shape (k,)."""
    highest_first = channel.variance[::-1]
    noise = np.polyval(highest_first, mean)
    return np.asarray(noise, dtype=np.float64)


def denoiser_to_bytes(denoiser: Denoiser) -> bytes:
    """The denoiser as a container of arrays, without its spec: see :func:`denoiser_from_bytes`."""
    arrays = {"error_variance": denoiser.error_variance}
    if denoiser.iterations:
        arrays["sizes"] = denoiser.sizes
    arrays |= _arrays("linear", denoiser.linear)
    max_variance = 0.0
    for number, iteration in enumerate(denoiser.iterations):
        arrays |= _arrays(f"{number}.filter", iteration.filter)
        arrays |= _arrays(f"{number}.bins", iteration.bins)
        max_variance = iteration.table.max_variance  # of the table that all share
    facts = {
        "error": denoiser.error,
        "rows": denoiser.rows,
        "iterations": len(denoiser.iterations),
        "max_variance": max_variance,
    }
    return pack("denoiser", facts, arrays)


def _arrays(name: str, part: Any) -> dict[str, AnyArray]:
    """All arrays of a part and of the parts in it, by their dotted names."""
    if isinstance(part, np.ndarray):
        return {name: part}
    arrays: dict[str, AnyArray] = {}
    for entry in fields(part):
        arrays |= _arrays(f"{name}.{entry.name}", getattr(part, entry.name))
    return arrays


def denoiser_from_bytes(data: bytes, spec: Spec) -> Denoiser:
    """The inverse of :func:`denoiser_to_bytes` for the index of that spec; no size is trusted.

    Raises
    ------
    InputError
        If the bytes are no denoiser for codes of that length.
    """
    try:
        facts, arrays = unpack(data, "denoiser")
        error = finite_number(facts["error"], "error")
        rows = whole_number(facts["rows"], "rows", 0, 2**63)
        count = whole_number(facts["iterations"], "iterations", 0, len(arrays))
        linear = _read_filter(arrays, "linear.", spec)
        parts: list[tuple[MixtureFilter, CalibrationBins]] = []
        components = 0
        for number in range(count):
            filter_ = _read_filter(arrays, f"{number}.filter.", spec)
            sides = {"2": 2, "B": CalibrationBins.BINS}
            bins: CalibrationBins = _read(arrays, f"{number}.bins.", CalibrationBins, sides)
            if (bins.chances < 0).any():
                raise ValueError("chances")
            parts.append((filter_, bins))
            components = filter_.prior.components
        error_variance = checked_array(arrays.pop("error_variance"), "f8", "E", {})
        sizes = np.zeros(3)
        if count:
            sizes = checked_array(arrays.pop("sizes"), "f8", "3", {"3": 3})
        fits = len(error_variance) in (0, components)
        if arrays or not fits or (error_variance < 0).any() or sizes[1:].min() < 0:
            raise ValueError("error_variance")
        iterations = []
        if count:  # a table takes longer than all the rest: of what is sound alone
            max_variance = finite_number(facts["max_variance"], "max_variance", above=0.0)
            table = ScoreTable(Channel(spec).likelihood, max_variance)
            values = 0 if table.values is None else len(table.values.values)
            if any(bins.chances.shape[1] != values for _, bins in parts):
                raise ValueError("chances")
            iterations = [EPIteration(filter_, bins, table) for filter_, bins in parts]
        return Denoiser(spec, error, rows, linear, tuple(iterations), error_variance, sizes)
    except (ValueError, LookupError, TypeError, RecursionError, ArithmeticError):
        sentence = "these bytes are not a denoiser of this index; learn it again."
        raise DamagedError(sentence) from None


def _read_filter(arrays: dict[str, AnyArray], prefix: str, spec: Spec) -> MixtureFilter:
    sizes = {"k": spec.code_length}
    filter_: MixtureFilter = _read(arrays, prefix, MixtureFilter, sizes)
    # What equal sides do not say.
    sound = sizes["F"] + sizes["T"] == sizes["R"]
    some = min(sizes["K"], sizes["F"]) > 0
    if not sound or not some or (filter_.noise <= 0).any():
        raise ValueError("filter")
    return filter_


def _read(
    arrays: dict[str, AnyArray],
    prefix: str,
    part: Any,
    sizes: dict[str, int],
) -> Any:
    """Remove the arrays of one part, check them and make the part of them."""
    values: dict[str, Any] = {}
    for name, kind in get_type_hints(part, include_extras=True).items():
        if is_dataclass(kind):
            values[name] = _read(arrays, f"{prefix}{name}.", kind, sizes)
        else:
            numbers, sides = get_args(kind)
            dtype = "f8" if numbers == Doubles else "f4"
            array = arrays.pop(prefix + name)
            values[name] = checked_array(array, dtype, sides, sizes)
    return part(**values)
