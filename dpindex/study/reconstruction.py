"""Vectors reconstructed from their codes, by one who also has public vectors of the kind.

The attacker knows everything public: the projection, the law of the noise and the bounds. It has
the codes of the whole collection too, and can fit the denoiser that improves search. From public
vectors it takes their mean and covariance; without them attributes are independent and uniform over
the bounds. Its best guess without a code is the mean.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from dpindex.base.arrays import (
    AnyArray,
    Doubles,
    Floats,
    Singles,
    Vectors,
    of_norm_1,
    spaced,
    unit,
)
from dpindex.base.errors import InputError
from dpindex.decode import decoder_of
from dpindex.decode.denoiser import Denoiser
from dpindex.decode.designed import decoded
from dpindex.decode.fit import fit_denoiser, fit_if_possible
from dpindex.mechanism.codes import Codes
from dpindex.mechanism.families import IDENTITY
from dpindex.mechanism.noise.base import SymbolLaw
from dpindex.mechanism.noise.symbols import CodebookResponse
from dpindex.mechanism.privatizer import Privatizer
from dpindex.mechanism.public_parts import Design
from dpindex.mechanism.spec import Projector, Spec

EXPOSURE = ("reconstruction_error", "reconstruction_cosine", "guess_cosine")
"""The measures that :meth:`Reconstructor.exposure` returns."""

FITTED = 8192
"""Codes of a collection that an attacker's denoiser is fitted to, at most."""

# The largest projections that are inverted on request, and as a part of every evaluation.
_MAX_ENTRIES = 1 << 26
MAX_MEASURED_ENTRIES = 1 << 22
_MAX_MEASURED_LENGTH = 2048
# Fewer public vectors than this tell no covariance.
_MIN_PUBLIC = 40
# The most vectors, and numbers in them, that stand for public ones.
_PUBLIC = 2000
_MAX_PUBLIC_NUMBERS = 1 << 25
# Weight of independent attributes beside the covariance of public vectors.
_SHRINKAGE = 0.1
# Codewords whose neighbours are looked at, and codewords that stand for records.
_CODEWORDS = 256
_RECORD_CODEWORDS = 4096
# Public values of an attribute that are weighed.
_VALUES = 64
_LEAST_LIKELIHOOD = 1e-300
_LEAST_VARIANCE = 1e-30
# Cosines above this are those of a codeword to itself.
_SAME = 1.0 - 1e-5

_Estimate = Callable[[Codes], Doubles]


@dataclass(frozen=True, eq=False)
class _Moments:
    """What is known of vectors before their codes, in scaled units.

    Attributes
    ----------
    mean : float64 array, shape (dim,)
    variance : float
        Of an attribute, on average.
    centred : float64 array, shape (m, dim)
        Public vectors less their mean; none if attributes are independent.
    """

    mean: Doubles
    variance: float
    centred: Doubles

    def covariances(self, projection: Doubles) -> tuple[Doubles, Doubles]:
        """Return the covariance of vectors and their projections, and that of projections."""
        across = self.variance * projection
        within = self.variance * (projection.T @ projection)
        count = len(self.centred)
        if not count:
            return across, within
        projected = self.centred @ projection
        observed = (1.0 - _SHRINKAGE) / count
        across = _SHRINKAGE * across + observed * (self.centred.T @ projected)
        within = _SHRINKAGE * within + observed * (projected.T @ projected)
        return across, within


def _moments(spec: Spec, public: Doubles) -> _Moments:
    """Return the moments of public vectors, in scaled units.

    Without any, those of independent attributes that are uniform over the bounds. Codes that depend
    on directions alone, and a norm with symmetric bounds, have mean 0 and variance ``norm²/dim``.
    """
    if len(public):
        mean = public.mean(axis=0)
        centred = public - mean
        variance = float(np.square(centred).mean())
        return _Moments(mean, max(variance, _LEAST_VARIANCE), centred)
    low, high = spec.bounds
    middle = (low + high) / 2
    variance = (high - low) ** 2 / 12
    if directions_only(spec) or (spec.norm is not None and middle == 0.0):
        middle = 0.0
        variance = (spec.norm or 1.0) ** 2 / spec.dim
    mean = np.full(spec.dim, middle)
    return _Moments(mean, variance, public)


class Reconstructor:
    """The estimate of vectors from their codes that does best on public vectors.

    Numbers and signs: the linear estimate of least squares, of the codes as they are and of the
    denoised ones. For a mean m and a covariance C of vectors and codes ``z ≈ B A u + noise`` (A the
    public projection, B and the noise variances R from the public law) it is
    ``m + C(BA)ᵀ (BA C(BA)ᵀ + R)⁻¹ (z − E z)``, clipped to the public bounds. For signs, B is the
    regression coefficient of the sign on the projected value (Bussgang 1952). Of denoised codes,
    which are estimates of ``A u`` already, B = 1 and R = 0. Designs bring their decoder.

    Symbols: the codeword, shrunk by how often a report is true and how near it is then.

    All kinds: the mean of public vectors, each as likely as the public law says. Codes of single
    attributes: the mean of each attribute's public values, each as likely.

    Parameters
    ----------
    spec : Spec
        The public description of the codes.
    public : array or sparse matrix, shape (m, dim), optional
        Public vectors of the kind. A quarter of them decides between the estimates.
    denoiser : Denoiser, optional
        Fitted to codes of the same collection. Sign codes are inverted without it.

    Attributes
    ----------
    denoiser : Denoiser or None
        As given.
    guess : float64 array, shape (dim,)
        The best guess without a code, in the units of the vectors.

    Raises
    ------
    InputError
        If the projection has more than 2^26 entries.
    """

    def __init__(
        self,
        spec: Spec,
        public: Vectors | None = None,
        denoiser: Denoiser | None = None,
    ) -> None:
        by_symbol = decoder_of(spec).by_symbol
        if spec.dim * spec.code_length > _MAX_ENTRIES and not by_symbol:
            raise InputError(
                f"the projection has {spec.dim} × {spec.code_length} entries, too many to invert; "
                f"{_MAX_ENTRIES} at most."
            )
        self._spec = spec
        self.denoiser = denoiser
        vectors = np.empty((0, spec.dim))
        if public is not None and public.shape[0] >= _MIN_PUBLIC:
            vectors = dense_units(spec, public)
        held = not_codewords(spec, vectors[::4])
        learned = np.delete(vectors, np.s_[::4], axis=0)
        self._moments = _moments(spec, learned / spec.scale)
        self.guess = self._moments.mean * spec.scale
        estimates = [self.symbol_estimate()] if by_symbol else self._linear_estimates()
        self._estimate = estimates[0]
        if not len(held):
            return
        privatizer = Privatizer(spec, allow_unprotected=True)  # discarded, never published
        estimates += self._public_estimates(privatizer, not_codewords(spec, learned))
        codes = privatizer.privatize(held)

        def error(estimate: _Estimate) -> float:
            return float(np.square(estimate(codes) - held).mean())

        self._estimate = min(estimates, key=error)

    def __call__(self, codes: Codes) -> Singles:
        """Return vectors, float32, shape (n, dim), in their units before division by ``scale``."""
        return self._estimate(codes).astype(np.float32)

    def exposure(self, vectors: Vectors, codes: Codes) -> dict[str, float]:
        """Return how much of original vectors, shape (n, dim), comes back from their codes.

        Returns
        -------
        dict
            ``reconstruction_error``: mean squared error of the reconstructions over that of the
            best guess without codes, [0, 1]: who rebuilds worse than that guesses.
            ``reconstruction_cosine``, ``guess_cosine``: mean cosines of the reconstructions, or of
            that guess where it is nearer, and of the guess to the originals. Record-level methods
            encode directions, so all are of the originals at norm 1.
        """
        truth = dense_units(self._spec, vectors)
        estimate = self(codes).astype(np.float64)
        guess = np.broadcast_to(self.guess, truth.shape)
        squared_error = np.square(estimate - truth).mean()
        squared_guess_error = max(np.square(guess - truth).mean(), 1e-30)  # 0 where all are equal
        reached = float(cosines(estimate, truth).mean())
        guessed = float(cosines(guess, truth).mean())
        return {
            "reconstruction_error": min(float(squared_error / squared_guess_error), 1.0),
            "reconstruction_cosine": max(reached, guessed),
            "guess_cosine": guessed,
        }

    def _linear_estimates(self) -> list[_Estimate]:
        """Return the estimates from denoised codes, if there is a denoiser, and from codes."""
        spec = self._spec
        denoise = self.denoiser if spec.law.adds_noise else None
        if isinstance(spec.public, Design):
            several = dict.fromkeys([denoise, None])
            return [partial(self._decoded, spec.public, denoiser) for denoiser in several]
        attributes = np.eye(spec.dim, dtype=np.float32)
        projection = spec.projection.apply(attributes).astype(np.float64)
        projection *= spec.projection.scale
        mean = self._moments.mean @ projection
        across, within = self._moments.covariances(projection)
        channel = spec.linear_channel(mean, np.diag(within))
        covariance = channel.covariance(within)
        plain = self._linear(Codes.to_float, channel.mean, across * channel.slope, covariance)
        if denoise is None:
            return [plain]
        return [self._linear(denoise, mean, across, within), plain]

    def _linear(
        self,
        read: Callable[[Codes], Floats],
        mean: Doubles,
        across: Doubles,
        within: Doubles,
    ) -> _Estimate:
        """Return the estimate from readings of this mean, by their covariances."""
        # The pseudo-inverse leaves out coordinates without information (bins without noise).
        weights = np.linalg.pinv(within, hermitian=True) @ across.T

        def estimate(codes: Codes) -> Doubles:
            deviation = read(codes) - mean
            return self._bounded(deviation @ weights)

        return estimate

    def _decoded(self, design: Design, denoiser: Denoiser | None, codes: Codes) -> Doubles:
        """Return what a design's own decoder makes of codes, denoised or as they are."""
        deviation = np.zeros((len(codes), self._spec.dim))
        inside = decoded(codes, self._spec, denoiser) @ design.basis
        deviation[:, design.attributes] = inside - self._moments.mean[design.attributes]
        return self._bounded(deviation)

    def _bounded(self, deviation: Doubles) -> Doubles:
        """Return the mean and a deviation from it, clipped to the bounds, in units of vectors."""
        low, high = self._spec.bounds
        scaled = np.clip(self._moments.mean + deviation, low, high)
        return scaled * self._spec.scale

    def _public_estimates(self, privatizer: Privatizer, public: Doubles) -> list[_Estimate]:
        """Return the means of public vectors, and of values of theirs, given codes (Bayes)."""
        spec = self._spec
        likelihoods = decoder_of(spec).likelihoods(privatizer, public)

        def whole(codes: Codes) -> Doubles:
            return _expected(likelihoods.logs(codes)[:-1], public)

        if spec.method_row.family is not IDENTITY:
            return [whole]
        law = spec.likelihood
        logs = np.log(np.maximum(law.levels, _LEAST_LIKELIHOOD))
        shares = np.linspace(0.0, 1.0, _VALUES)
        values = np.quantile(public / spec.scale, shares, axis=0)

        def single(codes: Codes) -> Doubles:
            readings = law.locate(codes.to_float().astype(np.float64))
            estimates = np.empty_like(readings)
            columns = values.T[:, :, None]
            attributes = zip(readings.T, columns, estimates.T, strict=True)
            for reading, value, estimate in attributes:
                places = np.searchsorted(law.edges, reading - value)
                estimate[:] = _expected(logs[places], value)[:, 0]
            return estimates * spec.scale

        return [whole, single]

    def symbol_estimate(self) -> _Estimate:
        """Return the estimate of the vector behind each symbol from codewords alone."""
        law = SymbolLaw.of(self._spec.law)
        words = law.codebook.vectors.astype(np.float64)
        if law.of_nearest:
            means = _means_of_nearest(CodebookResponse.of(law), words)
        else:  # the mean of codewords, as often as they give the symbol if it is not their own
            records = spaced(law.size, _RECORD_CODEWORDS)
            chances = law.of_codewords(records)
            means = (chances.T @ words[records]) / chances.sum(axis=0)[:, None]
        return lambda codes: means[codes.stored.ravel()]


def _means_of_nearest(law: CodebookResponse, words: Doubles) -> Doubles:
    """Return what is expected behind each symbol that is one of the w codewords nearest to it.

    The codeword, as near as codewords are to their w nearest others, and the mean of those not near
    it.
    """
    some = words[spaced(law.size, _CODEWORDS)] @ words.T
    falling = -np.sort(-some, axis=1)
    nearest = falling[:, 1 : 1 + law.subset]  # the first is the codeword itself
    near = float(nearest.mean()) * words
    share = law.subset / law.size
    far = (words.mean(axis=0) - share * near) / (1.0 - share)
    inside = law.chance_inside
    return np.asarray(inside * near + (1.0 - inside) * far)


def highest_cosine(
    projector: Projector,
    vectors: Vectors,
    codes: Codes,
    crowd: Vectors,
) -> float:
    """Return a mean cosine that no attacker without these vectors exceeds, whatever else it has.

    It is that of one who is handed all vectors, without knowing which code is whose. Proof: let S
    be a sample of any population, and the attacked vector one of S at random, so it is of the
    population too. Who knows the whole population, and S besides, has the posterior over S alone,
    and rebuilds at least as well as without S. So no number of other vectors of the population
    helps more. The direction of the mean of unit vectors given a code has the highest expected
    cosine.

    Parameters
    ----------
    projector : Projector
        Of the spec of the codes.
    vectors : array or sparse matrix, shape (n, dim)
        Those attacked, at least one.
    codes : Codes
        Theirs.
    crowd : array or sparse matrix, shape (m, dim)
        Further vectors of the sample. The more, the less the bound exceeds what can be reached.
    """
    spec = projector.spec
    sample = np.concatenate([dense_units(spec, vectors), dense_units(spec, crowd)])
    likelihoods = decoder_of(spec).likelihoods(projector, sample)
    directions = of_norm_1(sample).astype(np.float64)
    estimates = _expected(likelihoods.logs(codes)[:-1], directions)
    return min(1.0, float(cosines(estimates, sample[: len(codes)]).mean()))  # sums are rounded


def directions_only(spec: Spec) -> bool:
    """True if codes depend on the direction of a vector alone: those of record-level methods."""
    return spec.method_row.private and not spec.method_row.calibration.rounded


def not_codewords(spec: Spec, vectors: Doubles) -> Doubles:
    """Return the vectors that are no codewords: those would be encoded by themselves."""
    if not decoder_of(spec).by_symbol:
        return vectors
    similarity = unit(vectors) @ SymbolLaw.of(spec.law).codebook.vectors.T
    return vectors[(similarity <= _SAME).all(axis=1)]


def _expected(logs: Floats, values: Doubles) -> Doubles:
    """Return mean values, shape (n, p), of m that are as likely as logs, shape (m, n), say."""
    below_best = (logs - logs.max(axis=0)).astype(np.float64)
    weights = np.exp(below_best)
    weights /= weights.sum(axis=0)
    return np.asarray(weights.T @ values)


def public_rows(
    count: int,
    dim: int,
    attacked: AnyArray,
) -> AnyArray:
    """Return rows other than the attacked ones, which stand for public vectors of the kind.

    At most 2000, at equal distances, and no more than 2^25 numbers in all; half of the rows are
    returned if all are attacked.
    """
    most = min(_PUBLIC, _MAX_PUBLIC_NUMBERS // dim)
    rows = np.setdiff1d(np.arange(count), attacked)
    if not len(rows):
        rows = np.arange(0, count, 2)
    return rows[spaced(len(rows), most)]


def dense_units(spec: Spec, vectors: Vectors) -> Doubles:
    """Return vectors as an array; at norm 1 if their directions alone are encoded."""
    dense: Any = vectors if isinstance(vectors, np.ndarray) else vectors.toarray()
    if directions_only(spec):
        return of_norm_1(dense).astype(np.float64)
    return np.asarray(dense, dtype=np.float64)


def invert(
    codes: Codes,
    spec: Spec,
    denoiser: Denoiser | None = None,
    public: Vectors | None = None,
) -> Singles:
    """Return the best estimate of the vectors behind codes: :class:`Reconstructor`.

    Codes that depend on directions alone give vectors of about norm 1.

    Parameters
    ----------
    codes : Codes
        Codes of n vectors made under ``spec``.
    spec : Spec
        Their public description.
    denoiser : Denoiser, optional
        Fitted to codes of the same collection.
    public : array or sparse matrix, shape (m, dim), optional
        Public vectors of the kind; fewer than 40 are not used.

    Returns
    -------
    float32 array, shape (n, dim), in the units of the vectors before division by ``scale``.

    Raises
    ------
    InputError
        If the codes come from another spec, or the projection has more than 2^26 entries.

    >>> from dpindex import Privatizer, attribute
    >>> spec = Spec(method="raw-staircase", dim=3, epsilon=50.0, bounds=(0, 1),
    ...     adjacency=attribute(1.0))
    >>> codes = Privatizer(spec).privatize(np.array([[0.0, 0.5, 1.0]]))
    >>> np.round(invert(codes, spec), 1).tolist()
    [[0.0, 0.5, 1.0]]
    """
    if codes.fingerprint != spec.fingerprint:
        raise InputError("these codes were made under another spec than the one given.")
    return Reconstructor(spec, public, denoiser)(codes)


def can_be_reconstructed(spec: Spec) -> bool:
    """True if the projection is small enough to be inverted as a part of every evaluation."""
    if decoder_of(spec).by_symbol:
        return True
    entries = spec.dim * spec.code_length
    return entries <= MAX_MEASURED_ENTRIES and spec.code_length <= _MAX_MEASURED_LENGTH


def attackers_denoiser(
    spec: Spec,
    codes: Codes,
    denoiser: Denoiser | None = None,
) -> Denoiser | None:
    """Return the strongest denoiser for these codes: a given one if it is of the kind "score"."""
    is_strongest = denoiser is not None and denoiser.kind == "score"
    if is_strongest or "score" not in spec.format_type.denoisers:
        return denoiser
    fit = partial(fit_denoiser, codes, spec)
    return fit_if_possible(fit, spec) or denoiser


def reconstructor_of(
    spec: Spec,
    public: Vectors,
    codes: Codes,
    denoiser: Denoiser | None = None,
) -> Reconstructor:
    """Return the reconstructor of an attacker with codes of the collection and public vectors.

    Its denoiser is the strongest: :func:`attackers_denoiser`.
    """
    return Reconstructor(
        spec, public, attackers_denoiser(spec, codes.take(slice(FITTED)), denoiser)
    )


def cosines(estimates: Floats, originals: Floats) -> Doubles:
    """Return the cosine of each estimate to its original, shape (n,); 0 where one is zero."""
    products = of_norm_1(estimates) * of_norm_1(originals)
    return np.asarray(products.sum(axis=1, dtype=np.float64))
