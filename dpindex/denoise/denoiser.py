"""The denoiser of a collection's codes, the iterations it consists of, and its bytes.

A linear denoiser is one filter. Otherwise it is expectation propagation: each iteration filters,
predicts every coordinate and reads its code again in the light of the prediction. The prediction
must not contain the coordinate's own code, or its noise would be counted twice; messages have one
variance per coordinate (Minka 2001; Rangan, Schniter & Fletcher 2019, vector approximate message
passing).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cached_property
from typing import Annotated, Any, Literal, get_args, get_type_hints

import numpy as np
import numpy.typing as npt

from dpindex.base.arrays import AnyArray, Doubles, Singles
from dpindex.base.checks import finite_number, whole_number
from dpindex.base.errors import DamagedError, InputError
from dpindex.base.files import pack, unpack
from dpindex.base.html import facts_html
from dpindex.denoise.channel import Channel, ScoreTable
from dpindex.denoise.mixture import Filter
from dpindex.mechanism.codes import Codes
from dpindex.mechanism.spec import Spec


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
    """

    ranges: Annotated[Doubles, "22"]
    offset: Annotated[Singles, "B"]
    variance: Annotated[Singles, "B"]

    SIDE = 24
    BINS = SIDE**2

    def place(self, prediction: Singles, claimed: Singles) -> npt.NDArray[np.intp]:
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
        place = x - np.float32(low)
        place *= np.float32(self.SIDE / max(high - low, 1e-30))
        return np.clip(place, 0, np.float32(self.SIDE - 1), out=place)


@dataclass(frozen=True, eq=False)
class EPIteration:
    """A filter, the calibration of its predictions, and how codes are read given predictions.

    ``location`` of a code is where its likelihood lies: see :meth:`Channel.locate`.
    """

    filter: Filter
    bins: CalibrationBins
    table: ScoreTable

    @cached_property
    def _row(self) -> npt.NDArray[np.intp]:
        """The row of the score table for each bin."""
        return self.table.row(self.bins.variance.astype(np.float64))

    def predict(self, z: Singles) -> tuple[Singles, npt.NDArray[np.intp], Singles]:
        """Calibrated predictions, shape (n, k), their bins, and responsibilities, (n, K)."""
        prediction, claimed, share = self.filter.predict(z)
        place = self.bins.place(prediction, claimed)
        prediction += np.take(self.bins.offset, place)
        return prediction, place, share

    def _update(self, z: Singles, location: Singles, scale: Doubles) -> tuple[Singles, Singles]:
        """``prediction + scale · score``, scale by row of the table, and responsibilities."""
        prediction, place, share = self.predict(z)
        score = self.table.look_up(np.take(self._row, place), location - prediction)
        score *= np.take(scale[self._row].astype(np.float32), place)
        score += prediction
        return score, share

    def message(self, z: Singles, location: Singles) -> Singles:
        """The codes as observations in Gaussian noise, for the filter of the next iteration."""
        return self._update(z, location, self.table.inverse_information)[0]

    def message_noise(self, z: Singles) -> Singles:
        """Noise variance of each coordinate's message, averaged over rows, shape (k,)."""
        by_bin = self.table.equivalent_noise(self._row)
        return np.asarray(np.take(by_bin, self.predict(z)[1]).mean(axis=0), dtype=np.float32)

    def posterior(self, z: Singles, location: Singles) -> tuple[Singles, Singles]:
        """Posterior means of the coordinates given all codes, ``m + v·g``, shape (n, k).

        And the posterior probability of each component of the filter's prior, shape (n, K).
        """
        return self._update(z, location, self.table.variances)


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
    linear : Filter
        The optimal linear filter.
    iterations : tuple of EPIteration
        Of expectation propagation; empty if the denoiser is linear.
    error_variance : float64 array, shape (K,) or (0,)
        Squared error of an estimate under each component of the last iteration's prior, as its
        filter claims it, if that prior is a scale mixture; else empty.
    """

    spec: Spec
    error: float
    rows: int
    linear: Filter
    iterations: tuple[EPIteration, ...] = ()
    error_variance: Doubles = field(default_factory=lambda: np.empty(0))

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
            return self._blockwise(codes, lambda y: self._posterior(y)[0])
        if spec.with_epsilon(self.spec.budget) != self.spec:
            raise InputError("these codes differ from the denoiser's in more than epsilon.")
        channel = Channel(spec)
        channel.check(codes)
        mean = self.linear.mean
        filter_ = self.linear.under(_mean_noise(channel, mean))
        return np.asarray(mean + (codes.to_float() - mean) @ filter_)

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
        return self._blockwise(codes, self._scaled_posterior)

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
        return self.linear.error_root_under(_mean_noise(Channel(spec), mean))

    def _blockwise(self, codes: Codes, estimate: Callable[[Singles], Singles]) -> Singles:
        self._channel.check(codes)
        out = np.empty((len(codes), codes.k), dtype=np.float32)

        def denoise(rows: slice) -> None:
            out[rows] = estimate(self._channel.format.decode(codes.stored[rows]))

        self._channel.for_each_block(len(codes), denoise)
        return out

    def _scaled_posterior(self, y: Singles) -> Singles:
        estimate, error = self._posterior(y)
        squares = np.einsum("ij,ij->i", estimate, estimate, dtype=np.float64) + error
        norms = np.sqrt(squares).astype(np.float32)[:, None]
        norms[norms == 0] = 1.0
        return np.asarray(estimate / norms)

    def _posterior(self, y: Singles) -> tuple[Singles, Doubles | float]:
        """Estimates and their squared errors, as far as they are known to differ."""
        if not self.iterations:
            estimate, _ = self.linear.apply(y)
            return estimate, 0.0
        z = y
        location = self._channel.locate(y)
        for iteration in self.iterations[:-1]:
            z = iteration.message(z, location)
        estimate, share = self.iterations[-1].posterior(z, location)
        if not self.error_variance.size:
            return estimate, 0.0
        return estimate, share @ self.error_variance


def _mean_noise(channel: Channel, mean: AnyArray) -> Doubles:
    """Noise variance of each coordinate at the collection's mean, shape (k,)."""
    return np.asarray(np.polyval(channel.variance[::-1], mean), dtype=np.float64)


def denoiser_to_bytes(denoiser: Denoiser) -> bytes:
    """The denoiser as a container of arrays, without its spec: see :func:`denoiser_from_bytes`."""
    arrays = {"error_variance": denoiser.error_variance, **_arrays("linear", denoiser.linear)}
    for number, iteration in enumerate(denoiser.iterations):
        arrays |= _arrays(f"{number}.filter", iteration.filter)
        arrays |= _arrays(f"{number}.bins", iteration.bins)
    facts = {
        "error": denoiser.error,
        "rows": denoiser.rows,
        "iterations": len(denoiser.iterations),
        "max_variance": max((i.table.max_variance for i in denoiser.iterations), default=0.0),
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
        parts: list[tuple[Filter, CalibrationBins]] = []
        linear = _read(arrays, "linear.", Filter, {"k": spec.code_length})
        for number in range(whole_number(facts["iterations"], "iterations", 0, len(arrays))):
            filter_ = _read(arrays, f"{number}.filter.", Filter, {"k": spec.code_length})
            sizes = {"2": 2, "B": CalibrationBins.BINS}
            parts.append((filter_, _read(arrays, f"{number}.bins.", CalibrationBins, sizes)))
        error_variance = _checked(arrays.pop("error_variance"), Doubles, "E", {})
        components = 0
        if parts:
            components = parts[-1][0].prior.components
        if len(error_variance) not in (0, components) or (error_variance < 0).any() or arrays:
            raise ValueError("error_variance")
        if not parts:
            return Denoiser(spec, error, rows, linear)
        max_variance = finite_number(facts["max_variance"], "max_variance", above=0.0)
        table = ScoreTable(Channel(spec).likelihood, max_variance)
        iterations = tuple(EPIteration(*part, table) for part in parts)
        return Denoiser(spec, error, rows, linear, iterations, error_variance)
    except (ValueError, LookupError, TypeError, RecursionError, ArithmeticError):
        raise DamagedError("these bytes are no denoiser of this index; learn it again.") from None


def _read(arrays: dict[str, AnyArray], prefix: str, part: Any, sizes: dict[str, int]) -> Any:
    """Remove the arrays of one part, check them and make the part of them."""
    values: dict[str, Any] = {}
    for name, kind in get_type_hints(part, include_extras=True).items():
        if is_dataclass(kind):
            values[name] = _read(arrays, f"{prefix}{name}.", kind, sizes)
        else:
            dtype, sides = get_args(kind)
            values[name] = _checked(arrays.pop(prefix + name), dtype, sides, sizes)
    if part is Filter:  # what equal sides do not say
        sound = sizes["F"] + sizes["T"] == sizes["R"] and sizes["K"] * sizes["F"] > 0
        if not sound or (values["noise"] <= 0).any():
            raise ValueError("filter")
    return part(**values)


def _checked(array: AnyArray, kind: Any, sides: str, sizes: dict[str, int]) -> AnyArray:
    """A finite array in native byte order whose sides of one letter are equal."""
    shape = [sizes.setdefault(*side) for side in zip(sides, array.shape, strict=True)]
    dtype = "<f8" if kind == Doubles else "<f4"
    if array.dtype.str != dtype or shape != [*array.shape] or not np.isfinite(array).all():
        raise ValueError("array")
    return array.astype(array.dtype.newbyteorder("="))
