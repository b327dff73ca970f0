"""Learning a denoiser from private codes: everything it may see is codes and public parameters."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from dpindex.errors import InputError
from dpindex.estimators.denoise.channel import Channel, ScoreTable
from dpindex.estimators.denoise.mixture import SCALES, Mixture
from dpindex.estimators.denoise.rows import Rows
from dpindex.estimators.denoise.spectrum import covariance, signal_directions
from dpindex.estimators.denoise.stage import Bins, Filter, Stage, bin_of

__all__ = ["JUDGED", "clearly_better", "fit_linear", "fit_score", "unbiased_error"]

Doubles = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]
Prior: TypeAlias = Callable[[Singles], Mixture]

_MAX_DIRECTIONS = 256
_COMPONENTS = 16
_MIXTURE_ROWS = 32768
_MIN_FOR_MIXTURE = 4096
_STAGES = 4
_SURELY = 2.0
"""Standard errors by which a stage or the whole must be better than what it replaces."""

_BY_FAR = 10.0
"""The same for a mixture of kinds, which is judged at the first stage only.

On natural images one that was better there by up to nine was worse in the end; on digits it is
better by twenty to fifty, and stays so.
"""

_SIZED = 5.0
"""The same for a mixture of sizes. On natural images it is better by five to twenty, and finds more
neighbours; on sentence embeddings, all of one size, one that was better by three found fewer."""

_MEASURED, JUDGED = slice(0, None, 2), slice(1, None, 2)
"""Held-out rows that bins are measured on, and those that say whether a stage is any good."""

_PROBE_ROWS = 1024
_TRUST = 0.5
"""How far, relatively, the variances that a filter claims tend to be off."""

_BIN_DOUBT = 16.0
"""Weight of a bin's prior, in elements, at a noise variance equal to the claimed one."""


def _one(rows: Singles) -> Mixture:
    return Mixture.fit(rows, 1)


def _several(rows: Singles) -> Mixture:
    return Mixture.fit(rows, _COMPONENTS)


def _sizes(rows: Singles) -> Mixture:
    return Mixture.of_scales(rows)


def _filter(rows: Rows, mean: Singles, noise: Singles, prior: Prior) -> Filter:
    scale = (1 / np.sqrt(noise)).astype(np.float32)
    moment, count = covariance(((z - mean) * scale for z in rows.blocks()), len(mean))
    basis, _ = signal_directions(moment, count, _MAX_DIRECTIONS)
    if basis.shape[1] == 0:
        raise InputError(
            f"{count} codes are too few to denoise: nothing stands out of the noise; add more "
            f"vectors or use a larger epsilon."
        )
    step = 1 if prior is _one else max(1, -(-count // _MIXTURE_ROWS))
    analysis = basis * scale[:, None]
    inner = np.concatenate([(z[::step] - mean) @ analysis for z in rows.blocks()])
    mixture = prior(inner)
    held = (rows.held[:_PROBE_ROWS] - mean) @ analysis
    own, between = mixture.diagonal(basis), mixture.between(held, basis)
    return Filter(mean, noise, basis, mixture, own, between)


def unbiased_error(prediction: Singles, y: Singles, channel: Channel) -> float:
    """Unbiased mean squared error of predictions that do not contain y's noise, over that noise."""
    noise = channel.noise(y)
    return float(np.mean((y - prediction) ** 2 - noise, dtype=np.float64) / noise.mean())


def _bins(prediction: Singles, claimed: Singles, y: Singles, channel: Channel) -> Bins:
    """Offsets and variances from held-out rows: see :class:`Bins`."""
    some = slice(None, None, max(1, prediction.size // (1 << 20)))
    low, high = np.quantile(prediction.ravel()[some], [0.002, 0.998])
    claims = np.log(np.maximum(claimed.ravel()[some], 1e-30))
    least, most = np.quantile(claims, [0.002, 0.998])
    values, claims_span = (float(low), float(high)), (float(least), float(most))
    size = Bins.SIDES[0] * Bins.SIDES[1]
    place = bin_of(prediction, claimed, values, claims_span).ravel()
    noise = channel.noise(y)

    def total(weights: Singles) -> Doubles:
        sums = np.bincount(place, weights=weights.ravel(), minlength=size)
        return np.asarray(sums, dtype=np.float64)

    count = np.bincount(place, minlength=size).astype(np.float64)
    level = float(noise.mean())
    overall = max(float(claimed.mean()), 1e-9 * level)
    seen = unbiased_error(prediction, y, channel) * level
    # Where the noise drowns the error it cannot be measured, and the claims are all there is.
    known = (_TRUST * overall) ** 2 / ((_TRUST * overall) ** 2 + 2 * level**2 / y.size)
    honest = max(known * seen + (1 - known) * overall, 1e-3 * overall)
    # What the claims are worth on average is known well; single bins only with many elements.
    claim = total(claimed) / np.maximum(count, 1) * honest / overall
    doubt = _BIN_DOUBT * (level / honest) ** 2
    offset = total(y - prediction) / (count + doubt)
    square = (total((y - prediction) ** 2 - noise) + doubt * claim) / (count + doubt)
    variance = np.maximum(square - offset**2, 1e-3 * claim)
    variance[count == 0] = honest
    return Bins(values, claims_span, offset.astype(np.float32), variance.astype(np.float32))


def clearly_better(new: Singles, old: Singles, y: Singles, surely: float = _SURELY) -> bool:
    """Whether ``new`` predicts the held-out codes better than ``old``, by more than chance.

    The noise of the codes cancels in the difference of squared errors. It must exceed ``surely`` of
    its own standard errors over rows.
    """
    gain = ((new - old) * (2 * y - new - old)).mean(axis=1, dtype=np.float64)
    return bool(gain.mean() > surely * gain.std() / np.sqrt(len(gain)))


def fit_linear(rows: Rows, channel: Channel) -> tuple[Filter, Singles]:
    """The linear filter of METHODS 5a and its predictions of the rows that judge."""
    mean, noise = rows.mean_and_noise(channel)
    filter_ = _filter(rows, mean, noise, _one)
    return filter_, filter_.predict(rows.held)[0][JUDGED]


def fit_score(
    rows: Rows, channel: Channel, table: ScoreTable
) -> tuple[tuple[Stage, ...], Singles, Doubles]:
    """Stage after stage until predictions of the held-out rows stop getting better.

    Returns the stages, their last predictions of the rows that judge, and the spread of
    :class:`Denoiser`; ``rows`` are used up.
    """
    mean, noise = rows.mean_and_noise(channel)
    y = rows.held.copy()
    chosen: Prior = _one
    first = {chosen: _stage(rows, mean, noise, chosen, y, channel)}
    if len(rows) >= _MIN_FOR_MIXTURE:  # the first stage decides for all
        for other, surely in ((_sizes, _SIZED), (_several, _BY_FAR)):
            first[other] = _stage(rows, mean, noise, other, y, channel)
            if clearly_better(first[other][1], first[chosen][1], y[JUDGED], surely):
                chosen = other
    # Sizes are told apart at the end: on the way they vary what noise is left, and do harm.
    before = _one if chosen is _sizes else chosen
    stage, best = first[before]
    stages: tuple[Stage, ...] = (stage,)
    noise = _advance(rows, stage, table, channel)
    while len(stages) < _STAGES:
        stage, prediction = _stage(rows, mean, noise, before, y, channel)
        if not clearly_better(prediction, best, y[JUDGED]):
            break
        stages, best = (*stages, stage), prediction
        if len(stages) < _STAGES or chosen is _sizes:
            noise = _advance(rows, stage, table, channel)
    if chosen is _sizes:
        stage, prediction = _stage(rows, mean, noise, _sizes, y, channel)
        if not clearly_better(best, prediction, y[JUDGED]):
            return (*stages, stage), prediction, _spread(stage.filter, y, channel)
    return stages, best, np.empty(0)


def _advance(rows: Rows, stage: Stage, table: ScoreTable, channel: Channel) -> Singles:
    """Refine the rows by a stage; returns the mean variance of the noise that is left in them."""
    noise = stage.message_noise(rows.held, table).astype(np.float32)
    rows.advance(partial(stage.message, table=table), channel)
    return noise


def _spread(filter_: Filter, y: Singles, channel: Channel) -> Doubles:
    """Squared error of an estimate under each size of a scale mixture, shape (K,).

    What is uncertain along the filter's directions, and the signal that has none, in proportion.
    """
    prior = filter_.prior
    back = (filter_.basis * np.sqrt(filter_.noise)[:, None]).astype(np.float64)
    within = prior.diagonal(filter_.basis) @ filter_.noise
    total = float(np.mean(((y - filter_.mean) ** 2 - channel.noise(y)).sum(axis=1)))
    beyond = max(0.0, total - float(np.sum((back @ prior.covariance()) * back)))
    return np.asarray(within + beyond * SCALES / (prior.weights @ SCALES), dtype=np.float64)


def _stage(
    rows: Rows, mean: Singles, noise: Singles, prior: Prior, y: Singles, channel: Channel
) -> tuple[Stage, Singles]:
    filter_ = _filter(rows, mean, noise, prior)
    prediction, claimed, _ = filter_.predict(rows.held)
    bins = _bins(prediction[_MEASURED], claimed[_MEASURED], y[_MEASURED], channel)
    prediction, claimed = prediction[JUDGED], claimed[JUDGED]
    prediction += np.take(bins.offset, bins.place(prediction, claimed))
    return Stage(filter_, bins), prediction
