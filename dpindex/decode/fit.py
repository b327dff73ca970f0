"""Fitting the filters and iterations of a denoiser, from codes and public parameters alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cached_property
from typing import Literal, get_args

import numpy as np

from dpindex.base.arrays import Doubles, Integers, Singles, row_blocks
from dpindex.base.errors import InputError, NoDenoiserError
from dpindex.base.threads import limited_threads
from dpindex.decode.denoiser import Channel, Denoiser
from dpindex.decode.iteration import CalibrationBins, CodeTables, EPIteration, ValueTable
from dpindex.decode.mixture import SCALES, Mixture, MixtureFilter, signal_directions
from dpindex.mechanism.codes import Codes
from dpindex.mechanism.spec import Spec

DenoiserKind = Literal["auto", "linear", "score"]

_MIN_NOISE = 1e-6
"""Less noise than this share of the codes' variance is below single precision: not denoised."""

_MAX_NUMBERS = 1 << 26
_MAX_ROWS = 1 << 18
_HELD_NUMBERS = 1 << 22
_HELD_SHARE = 8
_MIN_ROWS = 500

_TRAINED_ROWS = 2048
_MAX_DIRECTIONS = 256
COMPONENTS = (16, 64)
_ROWS_OF_COMPONENT = 1000
"""Rows for each component of a mixture, which are never fewer nor more than ``COMPONENTS``.

On 60 000 digits 48 in place of 16 found .01 to .03 more, and 128 less again.
"""

_MIN_ROWS_FOR_MIXTURE = 4096
MAX_ITERATIONS = 4

_CONTINUED = 0.9
"""Share of the error that an iteration may leave for another one to be tried.

The gain falls by a factor of five or more from one iteration to the next."""

_MIN_Z = 2.0
"""Standard errors by which a denoiser must be better than another to replace it."""

_MAX_Z_WORSE = 1.0
"""Standard errors by which an iteration may be worse, once a second one was better than the first.

Neighbours differ by less than predictions show: one that predicts equally well finds more of them.
"""

_MAX_LINEAR_ERROR = 4.0
"""Error of linear predictions, in noise variances, above which "auto" tries no score.

The linear filter then leaves four fifths of the weight to the code itself. On tables of 3 and 5
columns errors were 4 to 13, and the score, although it predicted better, found .74 of ten where the
linear filter found .78. On 14 columns they were 1.7 and on images at most .7."""

MIN_Z_OF_PRIORS = {"scales": 5.0, "mixture": 10.0}
"""Standard errors by which the first iteration must be better under such a prior than before.

On natural images a scale mixture is better by five to twenty and finds more neighbours; on sentence
embeddings, all of norm 1, one that was better by three found fewer. A mixture of Gaussians that was
better by up to nine on natural images was worse in the end; on digits it is better by twenty to
fifty and stays so."""

_VALUE_PRIOR = 200.0
"""Weight of a normal prior of a bin's values, in elements."""

# Held-out rows that calibrate bins, and those that tell whether an iteration is an improvement.
_CALIBRATION = slice(0, None, 2)
_VALIDATION = slice(1, None, 2)

_CLAIM_ERROR = 0.5
"""Typical relative error of the variances that a filter claims."""

_RANGE_NUMBERS = 1 << 20
_RANGE_SHARES = (0.002, 0.998)
"""Elements that ranges of bins are read from, and the quantiles of them where bins end."""

_BIN_PRIOR = 16.0
"""Weight of a bin's prior, in elements, at a noise variance equal to the claimed one."""


def fit_denoiser(codes: Codes, spec: Spec, kind: DenoiserKind = "auto") -> Denoiser:
    """Learn a denoiser from the private codes of a collection.

    Parameters
    ----------
    codes : Codes
        At least 500, and at least one for each coordinate.
    spec : Spec
        The spec they were made under.
    kind : "auto", "linear" or "score"
        "linear" is the optimal linear (Wiener) filter with spiked-covariance shrinkage (Donoho,
        Gavish & Johnstone 2018). "score" is expectation propagation (Minka 2001): coordinates are
        predicted from the others under a Gaussian mixture, the error of predictions is measured on
        held-out codes, and each code is read again with the exact likelihood of its noise. "auto"
        takes whichever predicts held-out coordinates better, judged from codes alone, and "linear"
        where others say little about a coordinate, as in tables of few columns.

    What the vectors of the collection have in common is learned; small individual differences are
    shrunk together with the noise. So "linear" may serve *exact* queries worse than the codes as
    they are, where neighbours differ from others in many small directions: it did on sentence
    embeddings, and for Gaussian noise under l2. The codes cannot reveal that; measure it on public
    data.

    Raises
    ------
    InputError
        If there are too few codes to learn from, nothing is above the noise, or the codes
        come from another spec. Sign codes have no "score".

    >>> from dpindex import Privatizer, attribute
    >>> base = np.random.default_rng(0).random((2000, 2)) @ np.random.default_rng(1).random((2, 8))
    >>> spec = Spec(method="raw-staircase", dim=8, epsilon=4.0, bounds=(0, 2),
    ...     adjacency=attribute(1.0))
    >>> codes = Privatizer(spec).privatize(base)
    >>> denoised = fit_denoiser(codes, spec)(codes)
    >>> bool(np.mean((denoised - base) ** 2) < 0.5 * np.mean((codes.to_float() - base) ** 2))
    True
    """
    if kind not in get_args(DenoiserKind):
        raise InputError(f"kind must be one of {', '.join(get_args(DenoiserKind))}, not {kind!r}.")
    channel = Channel(spec)
    channel.check(codes)
    can_score = "score" in spec.format_type.denoisers
    if kind == "score" and not can_score:
        raise NoDenoiserError(
            f"{spec.method} keeps {spec.format.name}, which have a linear denoiser only."
        )
    rows = TrainingCodes(codes.stored, channel)
    y = rows.held_codes[_VALIDATION]
    mean_noise = channel.noise(y).mean()
    if mean_noise < _MIN_NOISE * y.var():
        raise NoDenoiserError(
            f"{spec.method} adds hardly any noise here: there is nothing to denoise."
        )
    linear = _filter(rows, "gaussian")
    predictions, _, _ = linear.predict(rows.held)
    prediction = predictions[_VALIDATION]
    linear_error = _unbiased_error(prediction, y, channel)
    # Coordinates of a design hardly predict each other, and errors of estimates count there.
    designed = spec.design is not None
    worth_score = kind == "auto" and (designed or linear_error < _MAX_LINEAR_ERROR)
    if can_score and (worth_score or kind == "score"):
        largest = float(y.var(axis=0).max())
        tables = CodeTables.of(channel.likelihood, 4 * largest)
        iterations, refined, error_variance = _fit_iterations(rows, linear, tables)
        better = _clearly_better(refined, prediction, y)
        as_good = designed and not _clearly_better(prediction, refined, y)
        if kind == "score" or better or as_good:
            refined_error = _unbiased_error(refined, y, channel)
            denoiser = Denoiser(
                spec, refined_error, len(codes), linear, tuple(iterations), error_variance
            )
            return denoiser.sized(rows.held_codes)
    return Denoiser(spec, linear_error, len(codes), linear)


def fit_if_possible(
    fit: Callable[[DenoiserKind], Denoiser],
    spec: Spec,
    kind: DenoiserKind = "auto",
) -> Denoiser | None:
    """Fit a denoiser to codes of a spec, or return None where none can be fitted.

    None is returned for formats without a denoiser, for too few codes, and for codes without noise
    or with nothing but noise.

    Parameters
    ----------
    fit : callable
        Fits a denoiser of a kind, such as ``partial(fit_denoiser, codes, spec)``.
    spec : Spec
        The spec of the codes.
    kind : "auto", "linear" or "score"
        Formats without a denoiser of kind "score" get the linear one.

    >>> from functools import partial
    >>> from dpindex import Privatizer, attribute
    >>> spec = Spec("raw-staircase", dim=8, epsilon=8.0, bounds=(0, 2), adjacency=attribute(1.0))
    >>> few = Privatizer(spec).privatize(np.ones((3, 8)))
    >>> fit_if_possible(partial(fit_denoiser, few, spec), spec) is None
    True
    """
    if "score" not in spec.format_type.denoisers:
        kind = "linear"
    with suppress(NoDenoiserError):
        return fit(kind)
    return None


class TrainingCodes:
    """A sample of the codes as observations that iterations refine; every eighth is held out.

    At most 2^26 numbers are used (256 MB as float32), evenly spread over all codes; more would not
    improve the result measurably.

    Attributes
    ----------
    held, held_codes : float32 arrays, shape (n, k)
        The held-out observations as refined so far, and their decoded codes.
    mean, noise : float32 arrays, shape (k,)
        Mean of the codes, and mean noise variance of the observations as refined so far.
    share : float32 array, shape (rows, K), optional
        Responsibilities of the last mixture that was fitted, with which the next one begins.

    Raises
    ------
    InputError
        If there are fewer codes than coordinates, or fewer than 500.
    """

    def __init__(self, stored: Integers, channel: Channel) -> None:
        self.channel = channel
        self.k = channel.format.code_length
        needed = max(_MIN_ROWS, self.k)
        if len(stored) < needed:
            raise NoDenoiserError(
                f"{len(stored)} codes are too few to learn a denoiser from; codes of length "
                f"{self.k} need at least {needed}."
            )
        most_rows = min(_MAX_ROWS, _MAX_NUMBERS // self.k)
        # Evenly spread rows are as good as random ones, as rows come in no order that noise knows.
        step = -(-len(stored) // most_rows)
        stored = stored[::step]
        most_held = max(256, _HELD_NUMBERS // self.k)
        held_rows = min(len(stored) // _HELD_SHARE, most_held)
        every = len(stored) // held_rows
        held = np.arange(len(stored)) % every == 0
        self._stored = stored[~held]
        self.held = self.held_codes = channel.format.decode(stored[held])
        self._refined: Singles | None = None
        self.share: Singles | None = None
        total = np.zeros(self.k)
        noise = np.zeros(self.k)
        for y in self.blocks():
            total += y.sum(axis=0, dtype=np.float64)
            noise += channel.noise(y).sum(axis=0, dtype=np.float64)
        least = 1e-3 * noise.mean() / len(self)
        noise = np.maximum(noise, least)
        self.mean = (total / len(self)).astype(np.float32)
        self.noise = (noise / len(self)).astype(np.float32)

    def __len__(self) -> int:
        return len(self._stored)

    def blocks(self) -> Iterator[Singles]:
        """The training observations in blocks of shape (·, k)."""
        for rows in row_blocks(len(self), _TRAINED_ROWS):
            if self._refined is None:
                yield self.channel.format.decode(self._stored[rows])
            else:
                yield self._refined[rows]

    @cached_property
    def directions(self) -> tuple[Singles, Doubles]:
        """Leading directions of the whitened observations, (k, R), and the variances of the signal.

        Raises InputError if there are none.
        """
        moment = np.zeros((self.k, self.k))
        count = len(self)
        scale = 1 / np.sqrt(self.noise)
        for z in self.blocks():
            whitened = (z - self.mean) * scale
            moment += whitened.T @ whitened
        basis, signal = signal_directions(moment / count, count, _MAX_DIRECTIONS)
        if not len(signal):
            raise NoDenoiserError(
                f"{count} codes are too few to denoise: nothing is above the noise; add more "
                f"vectors or use a larger epsilon."
            )
        return basis, signal

    def advance(self, iteration: EPIteration) -> None:
        """Replace the observations by the messages of an iteration.

        All rows are kept: at small epsilons messages are nearly as noisy as codes, and with half of
        the rows fewer directions stand out of the noise than the first iteration knew.
        """
        before = self._refined
        locate = self.channel.likelihood.locate
        refined = np.empty((len(self), self.k), np.float32) if before is None else before

        def refine(rows: slice) -> None:
            y = self.channel.format.decode(self._stored[rows])
            z = y if before is None else before[rows]
            refined[rows] = iteration.message(z, locate(y))

        self.channel.for_each_block(len(self), refine)
        self._refined = refined
        location = locate(self.held_codes)
        self.held, self.noise = iteration.message_and_noise(self.held, location)
        del self.directions


def _filter(rows: TrainingCodes, prior: str) -> MixtureFilter:
    """The filter for the present observations under a prior of that kind."""
    basis, signal = rows.directions
    analysis = basis / np.sqrt(rows.noise)[:, None]
    if prior == "gaussian":
        mixture = Mixture.gaussian(signal)
    else:
        # Only coordinates along the basis are kept of all rows: R numbers each in place of k.
        blocks = [(z - rows.mean) @ analysis for z in rows.blocks()]
        inner = np.concatenate(blocks)
        if prior == "scales":
            mixture = Mixture.of_scales(inner, signal)
        else:
            fewest, most = COMPONENTS
            components = min(max(fewest, len(rows) // _ROWS_OF_COMPONENT), most)
            mixture = Mixture.fit(inner, components, rows.share)
            rows.share = mixture.responsibilities(inner)
    return MixtureFilter(
        mean=rows.mean,
        noise=rows.noise,
        basis=basis,
        prior=mixture,
        leverage=mixture.leverage(basis),
    )


def _unbiased_error(prediction: Singles, y: Singles, channel: Channel) -> float:
    """Mean squared error of predictions over the mean noise variance of the codes y, unbiased.

    The predictions must be independent of the noise in y.
    """
    noise = channel.noise(y)
    squared = (y - prediction) ** 2 - noise
    return float(np.mean(squared, dtype=np.float64) / noise.mean())


def calibrated_bins(
    prediction: Singles,
    claimed: Singles,
    rows: TrainingCodes,
    values: ValueTable | None,
) -> CalibrationBins:
    """Offsets and variances of predictions of the calibration rows, and chances of the values."""
    every = max(1, prediction.size // _RANGE_NUMBERS)
    predictions = prediction.ravel()[::every]
    claims = claimed.ravel()[::every]
    log_claims = np.log(np.maximum(claims, 1e-30))
    ranges = [np.quantile(side, _RANGE_SHARES) for side in (predictions, log_claims)]
    none = np.empty(0, dtype=np.float32)
    bins = CalibrationBins(
        np.stack(ranges), none, none, np.empty((CalibrationBins.BINS, 0), np.float32)
    )
    place = bins.place(prediction, claimed).ravel()
    y = rows.held_codes[_CALIBRATION]
    noise = rows.channel.noise(y)

    def total(weights: Singles) -> Doubles:
        return np.bincount(place, weights.ravel(), bins.BINS).astype(np.float64)

    count = np.bincount(place, minlength=bins.BINS).astype(np.float64)
    level = float(noise.mean())
    overall = max(float(claimed.mean()), 1e-9 * level)
    measured = _unbiased_error(prediction, y, rows.channel) * level
    # Where noise dominates, the error cannot be measured and the claims are all there is.
    reliability = (_CLAIM_ERROR * overall) ** 2
    reliability /= reliability + 2 * level**2 / y.size
    average = reliability * measured + (1 - reliability) * overall
    average = max(average, 1e-3 * overall)
    # The average error is known well; that of a single bin only if it holds many elements.
    claim = total(claimed) / np.maximum(count, 1) * average / overall
    prior = _BIN_PRIOR * (level / average) ** 2
    difference = y - prediction
    # Codes are independent of predictions that were made without them, so this is unbiased before
    # it is shrunk towards 0.
    offset = total(difference) / (count + prior)
    squares = total(difference**2 - noise)
    # The noise variance is taken off each square: what is left is the predictions' own error.
    square = (squares + prior * claim) / (count + prior)
    variance = np.maximum(square - offset**2, 1e-3 * claim)
    variance[count == 0] = average
    chances = bins.chances
    if values is not None:
        location = rows.channel.likelihood.locate(y).ravel()
        places = values.place(place, location)
        cells = np.bincount(places, minlength=values.cells * bins.BINS).astype(np.float64)
        middle = np.where(count > 0, total(prediction) / np.maximum(count, 1), bins.middles)
        expected = values.normal(middle + offset, variance)
        chances = values.fitted(cells.reshape(bins.BINS, -1), _VALUE_PRIOR * expected)
    return CalibrationBins(
        bins.ranges,
        offset.astype(np.float32),
        variance.astype(np.float32),
        chances,
    )


def _clearly_better(
    new: Singles,
    old: Singles,
    y: Singles,
    min_z: float = _MIN_Z,
) -> bool:
    """Return True if ``new`` predicts held-out codes y better than ``old``, by more than chance.

    The noise of the codes cancels in the difference of squared errors, whose mean over rows must
    exceed ``min_z`` of its own standard errors.
    """
    # (y − old)² − (y − new)²
    gains = (new - old) * (2 * y - new - old)
    gain = gains.mean(axis=1, dtype=np.float64)
    error = gain.std() / np.sqrt(len(gain))
    return bool(gain.mean() > min_z * error)


@limited_threads(1)  # iterations run on blocks of codes, in threads of their own
def _fit_iterations(
    rows: TrainingCodes,
    linear: MixtureFilter,
    tables: CodeTables,
) -> tuple[list[EPIteration], Singles, Doubles]:
    """Iterations, until predictions of the held-out rows no longer improve.

    Returns the iterations, the last one's predictions of the validation rows, and the
    ``error_variance`` of :class:`Denoiser`. The observations in ``rows`` are overwritten.
    """
    y = rows.held_codes[_VALIDATION]
    chosen = "gaussian"
    first = {chosen: _iteration(rows, linear, tables)}
    if len(rows) >= _MIN_ROWS_FOR_MIXTURE:  # the first iteration decides for all
        for prior, min_z in MIN_Z_OF_PRIORS.items():
            first[prior] = _iteration(rows, _filter(rows, prior), tables)
            _, best = first[chosen]
            _, prediction = first[prior]
            if _clearly_better(prediction, best, y, min_z):
                chosen = prior
    # Scales come in the last iteration only: in earlier ones they would make the remaining noise
    # vary between vectors, which the next iteration cannot represent.
    before = "gaussian" if chosen == "scales" else chosen
    iteration, best = first[before]
    iterations = [iteration]
    error = _unbiased_error(best, y, rows.channel)
    adopted = True
    share = 0.0
    while adopted and share < _CONTINUED and len(iterations) < MAX_ITERATIONS:
        rows.advance(iterations[-1])
        iteration, prediction = _iteration(rows, _filter(rows, before), tables)
        share = _unbiased_error(prediction, y, rows.channel) / error
        if len(iterations) == 1:
            adopted = _clearly_better(prediction, best, y)
        else:
            adopted = not _clearly_better(best, prediction, y, _MAX_Z_WORSE)
        if adopted:
            iterations.append(iteration)
            best = prediction
            error = error * share
    if chosen == "scales":
        if adopted:
            rows.advance(iterations[-1])
        iteration, prediction = _iteration(rows, _filter(rows, chosen), tables)
        if not _clearly_better(best, prediction, y):
            return [*iterations, iteration], prediction, _error_variance(iteration.filter, rows)
    last = iterations[-1].filter
    within = last.error_variance if last.prior.components > 1 else np.empty(0)
    return iterations, best, within


def _error_variance(filter_: MixtureFilter, rows: TrainingCodes) -> Doubles:
    """Squared error of an estimate under each scale of a scale mixture, shape (K,).

    The posterior variance along the filter's directions, and the signal outside of them, which is
    proportional to the scale.
    """
    prior = filter_.prior
    synthesis = filter_.synthesis.astype(np.float64)
    y = rows.held_codes
    signal = (y - filter_.mean) ** 2 - rows.channel.noise(y)
    total = float(signal.sum(axis=1).mean())
    of_directions = synthesis @ prior.covariance()
    inside = float(np.sum(of_directions * synthesis))
    beyond = max(0.0, total - inside)
    relative_scales = SCALES / (prior.weight @ SCALES)
    error: Doubles = filter_.error_variance + beyond * relative_scales
    return error


def _iteration(
    rows: TrainingCodes,
    filter_: MixtureFilter,
    tables: CodeTables,
) -> tuple[EPIteration, Singles]:
    """An iteration with that filter, calibrated, and its predictions of the validation rows."""
    prediction, claimed, _ = filter_.predict(rows.held)
    claimed = np.broadcast_to(claimed, prediction.shape)
    bins = calibrated_bins(prediction[_CALIBRATION], claimed[_CALIBRATION], rows, tables.values)
    prediction = prediction[_VALIDATION]
    place = bins.place(prediction, claimed[_VALIDATION])
    prediction += np.take(bins.offset, place)
    return EPIteration(filter_, bins, tables), prediction
