"""The denoiser: what was learned of a collection, applied to codes of a channel that adds noise.

It is stored as the arrays of its parts, by their names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cached_property
from typing import Any, Literal, get_args, get_type_hints

import numpy as np

from dpindex.base.arrays import AnyArray, Doubles, Singles, matrix_product, row_blocks
from dpindex.base.checks import finite_number, whole_number
from dpindex.base.display import facts_html
from dpindex.base.errors import DamagedError, InputError, NoDenoiserError
from dpindex.base.files import checked_array, pack, unpack
from dpindex.base.threads import cores, map_from_both_ends
from dpindex.decode.iteration import CalibrationBins, CodeTables, EPIteration, Growth
from dpindex.decode.mixture import MixtureFilter
from dpindex.mechanism.codes import Codes
from dpindex.mechanism.spec import Spec

_BLOCK_NUMBERS = 1 << 18
"""Decoded numbers of a block that one thread works on."""


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
        self.variance, self.likelihood = spec.law.decoded_noise(spec.step)

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
        size = max(64, _BLOCK_NUMBERS // self.format.code_length)
        map_from_both_ends(action, [*row_blocks(count, size)], cores())

    def noise(self, y: Singles) -> Singles:
        """Unbiased estimates of ``Var(y | x)``, element by element."""
        # E[v₀ + v₁y + v₂y² | x] = Var(y | x)·(1 + v₂).
        scale = 1.0 / (1.0 + self.variance[2])
        constant, first, second = (np.float32(v * scale) for v in self.variance)
        estimate: Singles = (second * y + first) * y + constant
        return estimate

    def noise_at(self, x: AnyArray) -> Doubles:
        """Return ``Var(y | x)``, element by element."""
        highest_first = self.variance[::-1]
        noise = np.polyval(highest_first, x)
        return np.asarray(noise, dtype=np.float64)


_MAX_LOG_SIZE = 2.5
"""No vector's errors are taken to be more than twelve times what is claimed, or less."""

_LEAST_KNOWN = 0.1
"""Measured over claimed information, below which codes tell no sizes: .9 and more if likelihoods
are right, 1e-11 where they are at their floor."""


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
            "error of a coordinate predicted from the others alone": self.error_in_words,
        }
        return facts_html(f"Denoiser: {self.kind}", facts)

    @property
    def error_in_words(self) -> str:
        """The error of predictions; the unbiased estimate of a small one may be negative."""
        if self.error <= 0.0:
            return "too small to be measured"
        return f"{self.error:.3g} times the variance of the noise"

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
        # The vectors are the same, so what was learned of them holds; only the noise is another.
        filter_ = self.linear.under(channel.noise_at(mean))
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
        noise = Channel(spec).noise_at(mean)
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
        # Both lie within the span of the basis, so nothing of them is lost.
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
        *_, grown = self._last_iteration(y)
        growth, information = grown()
        measured = np.square(growth).sum(dtype=np.float64)
        claimed = information.sum()
        if not measured > _LEAST_KNOWN * claimed:
            return replace(self, sizes=np.zeros(3))
        known = measured / claimed
        information *= known
        # One step of Newton's method from a factor of 1, whose logarithm is 0.
        mean = growth.sum(dtype=np.float64) / information.sum()
        total = growth.sum(axis=1, dtype=np.float64)
        # Totals vary by chance by as much as they inform; what is beyond that is how vectors
        # differ.
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
            # A linear estimate has no component that could err by more than another: its error is 0
            # here, and ranks are those of unit vectors.
            inner, _ = self.linear.inner(y)
            return inner @ weights + mean, np.zeros(len(y))
        estimate, share, grown = self._last_iteration(y)
        if not error_variance.size:
            return estimate, np.zeros(len(y))
        growth, information = grown()
        mean, variance, known = self.sizes
        information *= known
        total = growth.sum(axis=1, dtype=np.float64)
        size = variance * (total - mean * information) / (1 + variance * information)
        np.clip(size, -_MAX_LOG_SIZE, _MAX_LOG_SIZE, out=size)
        return estimate, (share @ error_variance) * np.exp(size)

    def _last_iteration(self, y: Singles) -> tuple[Singles, Singles, Growth]:
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
        max_variance = iteration.tables.scores.max_variance  # all share it
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
            tables = CodeTables.of(Channel(spec).likelihood, max_variance)
            if any(bins.chances.shape[1] != tables.value_count for _, bins in parts):
                raise ValueError("chances")
            iterations = [EPIteration(filter_, bins, tables) for filter_, bins in parts]
        return Denoiser(spec, error, rows, linear, tuple(iterations), error_variance, sizes)
    except (ValueError, LookupError, TypeError, RecursionError, ArithmeticError):
        sentence = "these bytes are not a denoiser of this index; learn it again."
        raise DamagedError(sentence) from None


def _read_filter(arrays: dict[str, AnyArray], prefix: str, spec: Spec) -> MixtureFilter:
    sizes = {"k": spec.code_length}
    arrays.pop(f"{prefix}mixing_leverage", None)  # of files that were made before
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
