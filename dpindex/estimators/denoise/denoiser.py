"""The denoiser: learned from private codes alone, applied to codes of the same spec."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from dpindex.codes import BitCodes, Codes, FloatCodes
from dpindex.errors import InputError
from dpindex.estimators.denoise.channel import Channel, ScoreTable, channel_of
from dpindex.estimators.denoise.fit import (
    JUDGED,
    clearly_better,
    fit_linear,
    fit_score,
    unbiased_error,
)
from dpindex.estimators.denoise.rows import Rows, blockwise
from dpindex.estimators.denoise.stage import Filter, Stage
from dpindex.spec import Spec

__all__ = ["Denoiser", "Kind", "fit_denoiser"]

Kind = Literal["auto", "linear", "score"]
Doubles = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]

_KINDS = ("auto", "linear", "score")
_HARDLY_ANY = 1e-6
"""Less noise than this share of the codes' variance is left alone: single precision ends there."""


@dataclass(frozen=True, eq=False)
class Denoiser:
    """Turns codes into the best estimate of the vectors behind them. Post-processing: it is free.

    Think of it as a filter that knows how the coordinates of *this* collection hang together. It
    has seen codes and public parameters only. Estimates are shrunken: rank by ``to_rank``, and read
    similarities off the codes themselves, which are unbiased.

    Attributes
    ----------
    spec : Spec
        The spec of the codes it was learned from and may be applied to.
    kind : "linear" or "score"
        Which of the two was chosen.
    error : float
        Mean squared error of a coordinate predicted from the others, over the variance of its
        noise: held out and unbiased, so comparable between denoisers of the same codes.
    rows : int
        Codes it was learned from.
    spread : float64 array, shape (K,) or (0,)
        Squared error of an estimate under each component of the last stage, as its filter claims
        it, where vectors have more or less of everything, as photographs have of contrast.
    """

    spec: Spec
    kind: Literal["linear", "score"]
    error: float
    rows: int
    linear: Filter
    stages: tuple[Stage, ...]
    table: ScoreTable | None
    spread: Doubles

    @cached_property
    def _channel(self) -> Channel:
        return channel_of(self.spec)

    def __call__(self, codes: Codes, spec: Spec | None = None) -> Singles:
        """Estimates of the projected vectors, float32, shape (n, k), in the data's units.

        Codes made under another epsilon (private queries with a budget of their own) go through
        the linear filter for their noise.

        Raises
        ------
        InputError
            For anything that is not codes made under the denoiser's spec, epsilon aside.
        """
        if spec is not None and spec != self.spec:
            return self._foreign(codes, spec)
        _check(codes, self.spec)
        return self._estimates(codes, self._block)

    def to_rank(self, codes: Codes) -> Singles:
        """Estimates to rank by their inner products for the nearest by cosine, float32, (n, k).

        Their inner product with q is ``E⟨x, q⟩ / √E‖x‖²`` given the code. Where errors are known to
        differ, an estimate that lost much counts for less: a blurred one, having little of its own,
        lies near everything. Else these are unit vectors, or zero.

        Raises
        ------
        InputError
            For anything that is not codes made under the denoiser's spec.
        """
        _check(codes, self.spec)
        return self._estimates(codes, self._ranked_block)

    def _estimates(self, codes: Codes, block: Callable[[Singles], Singles]) -> Singles:
        stored = codes.stored
        out = np.empty((len(codes), self.spec.code_length), dtype=np.float32)

        def denoise(rows: slice) -> None:
            out[rows] = block(self._channel.decode(stored[rows]))

        blockwise(len(codes), self.spec.code_length, denoise)
        return out

    def _foreign(self, codes: Codes, spec: Spec) -> Singles:
        if spec.with_epsilon(self.spec.budget) != self.spec:
            raise InputError("these codes differ from the denoiser's in more than epsilon.")
        _check(codes, spec)
        channel = channel_of(spec)
        y = channel.decode(codes.stored)
        mean = self.linear.mean
        return np.asarray(mean + (y - mean) @ self.linear.under(channel.noise_at(mean)))

    def _block(self, y: Singles) -> Singles:
        return self._read(y)[0]

    def _ranked_block(self, y: Singles) -> Singles:
        estimate, uncertain = self._read(y)
        squares = np.einsum("ij,ij->i", estimate, estimate, dtype=np.float64) + uncertain
        norms = np.sqrt(squares).astype(np.float32)[:, None]
        norms[norms == 0] = 1.0
        return np.asarray(estimate / norms)

    def _read(self, y: Singles) -> tuple[Singles, Doubles | float]:
        """Estimates and their squared errors, as far as they are known to differ."""
        if self.table is None:
            return self.linear.apply(y)[0], 0.0
        z, location = y, self._channel.locate(y)
        for stage in self.stages[:-1]:
            z = stage.message(z, location, self.table)
        estimate, share = self.stages[-1].posterior(z, location, self.table)
        return estimate, share @ self.spread if self.spread.size else 0.0


def fit_denoiser(codes: Codes, spec: Spec, kind: Kind = "auto") -> Denoiser:
    """Learn a denoiser from the private codes of a collection.

    Parameters
    ----------
    codes : FloatCodes or BitCodes
        At least as many as they have coordinates, and 500.
    spec : Spec
        The spec they were made under.
    kind : "auto", "linear" or "score"
        "linear" is METHODS 5a, "score" 5b generalised: predictions from a mixture of Gaussians,
        what they are worth measured on held-out codes, and each code read again by the exact law
        of its noise. "auto" takes whichever predicts held-out coordinates better, from codes alone.

    What is learned is what the collection has in common, and a vector's own small differences are
    shrunk with the noise. So "linear" may serve *exact* queries worse than the codes as they are,
    where neighbours differ from others in many small directions: on sentence embeddings it did,
    as it did for Gaussian noise under l2. Nothing in the codes tells; measure on public data.

    Raises
    ------
    InputError
        If there are too few codes to learn from, nothing stands out of the noise, or the codes
        come from another spec. Sign codes have no "score".

    >>> from dpindex import Privatizer
    >>> base = np.random.default_rng(0).random((2000, 2)) @ np.random.default_rng(1).random((2, 8))
    >>> spec = Spec(method="raw-staircase", dim=8, epsilon=8.0, bounds=(0, 2))
    >>> codes = Privatizer(spec).privatize(base)
    >>> denoised = fit_denoiser(codes, spec)(codes)
    >>> bool(np.mean((denoised - base) ** 2) < 0.5 * np.mean((codes.to_float() - base) ** 2))
    True
    """
    if kind not in _KINDS:
        raise InputError(f"kind must be one of {', '.join(_KINDS)}, not {kind!r}.")
    _check(codes, spec)
    channel = channel_of(spec)
    if kind == "score" and not channel.has_shape:
        raise InputError(f"{spec.method} keeps signs, which have a linear denoiser only.")
    rows = Rows(codes.stored, channel, spec.code_length)
    y = rows.held[JUDGED].copy()
    if channel.noise(y).mean() < _HARDLY_ANY * y.var():
        raise InputError(f"{spec.method} adds hardly any noise here: there is nothing to denoise.")
    linear, plain = fit_linear(rows, channel)
    if kind != "linear" and channel.has_shape:
        table = ScoreTable(channel.likelihood, 4 * float(y.var(axis=0).max()))
        stages, read, spread = fit_score(rows, channel, table)
        if kind == "score" or clearly_better(read, plain, y):
            error = unbiased_error(read, y, channel)
            return Denoiser(spec, "score", error, len(codes), linear, stages, table, spread)
    error = unbiased_error(plain, y, channel)
    return Denoiser(spec, "linear", error, len(codes), linear, (), None, np.empty(0))


def _check(codes: Codes, spec: Spec) -> None:
    """Only codes come in: no array of numbers, so no vector, is ever accepted."""
    if not isinstance(codes, BitCodes | FloatCodes):
        raise InputError("a denoiser takes dpindex codes, never vectors.")
    if codes.fingerprint != spec.fingerprint or codes.k != spec.code_length:
        raise InputError("these codes were made under another spec than the denoiser's.")
