"""Sign codes: cosines from how many signs agree, corrected for the flips, and likelihoods."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
import scipy

from dpindex.base.arrays import AnyArray, Doubles, Floats, Singles, Vectors, unit
from dpindex.decode.base import (
    CodeLikelihoods,
    Decoder,
    Estimate,
    ExactQueries,
    Metric,
    PrivateQueries,
    Queries,
    inner_products,
)
from dpindex.decode.calibration import (
    GRID,
    MOST_SHARED,
    Decoded,
    ObservationLaw,
    SimilarityCalibration,
)
from dpindex.decode.posterior import TablePosterior
from dpindex.mechanism.codes import Codes, SignFormat
from dpindex.mechanism.noise.base import SignLaw
from dpindex.mechanism.spec import Projector, Spec

_ANGLES = 129
_NODES = 24
_RANGE = 8.0
"""Standard deviations of a coordinate over which is integrated."""

_MAX_CELLS = 96


class AgreementCurve(NamedTuple):
    """Expected agreement ``E[s̃·t̃]`` against ``arcsin ρ``, increasing, for a pair of laws."""

    angles: Doubles
    agreement: Doubles
    slope: Doubles

    @classmethod
    def of(cls, angles: Doubles, agreement: Doubles) -> AgreementCurve:
        return cls(angles, agreement, np.gradient(agreement, angles))


def _kept(law: SignLaw, size: Doubles, rms: float) -> Doubles:
    """``1 − 2q``: how much of a sign survives at magnitude ``size`` (in standard deviations)."""
    return 1.0 - 2.0 * law.flip_probability(size * rms, rms)


def _edges(law: SignLaw, rms: float) -> Doubles:
    """Return where flip probabilities may jump, in standard deviations: at multiples of beta."""
    if not law.depends_on_size:
        return np.array([0.0, _RANGE])
    betas = min(_MAX_CELLS, math.ceil(_RANGE * rms))
    edges = np.arange(betas + 1) / rms
    inside = edges[edges < _RANGE]
    return np.append(inside, _RANGE)


def _quadrature(law: SignLaw, rms: float) -> tuple[Doubles, Doubles]:
    """Nodes, and weights that integrate ``(1 − 2q)·f`` over a half-normal magnitude.

    Gauss–Legendre on every interval between edges; wide ones are cut so that the normal density is
    smooth on each piece.
    """
    ends = _with_steps(_edges(law, rms), 16)
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    half = np.diff(ends)[:, None] / 2
    middle = ends[:-1, None] + half
    points = (middle + half * nodes).ravel()
    lengths = (half * weights).ravel()
    bell = np.exp(-(points**2) / 2) / math.sqrt(2 * math.pi)
    chances = 2 * lengths * bell
    return points, chances * _kept(law, points, rms)


def _with_steps(edges: Doubles, count: int) -> Doubles:
    """Return the edges, and the ends of ``count`` equal steps over the range of integration."""
    steps = np.linspace(0.0, _RANGE, count + 1)
    return np.unique(np.concatenate([edges, steps]))


@lru_cache(maxsize=64)
def signal_kept(law: SignLaw, rms: float, power: int = 1) -> float:
    """``E[|Z|^power·(1−2q(|Z|))]`` for a standard normal Z and power 1 or 3.

    Without flips it is √(2/π) or 2√(2/π).
    """
    points, weights = _quadrature(law, rms)
    return float(np.sum(weights * points**power))


@lru_cache(maxsize=64)
def agreement_curve(
    law_x: SignLaw,
    rms_x: float,
    law_y: SignLaw,
    rms_y: float,
) -> AgreementCurve:
    """The curve of two laws, given the standard deviations of their coordinates in betas.

    Uniform flips have the closed form ``(1−2q₁)(1−2q₂)·(2/π)·arcsin ρ`` (Li & Li 2023, Thm 4.6).
    Flips that depend on |x| are integrated: ``E[g(X)·E[h(Y) | X]]`` with g and h the diluted signs
    and ``Y | X`` normal with mean ρX.
    """
    angles = np.linspace(-math.pi / 2, math.pi / 2, _ANGLES)
    if not (law_x.depends_on_size or law_y.depends_on_size):
        kept_x = _kept(law_x, np.ones(1), 1.0)
        kept_y = _kept(law_y, np.ones(1), 1.0)
        dilution = float((kept_x * kept_y)[0])
        return AgreementCurve.of(angles, dilution * 2 / math.pi * angles)
    points, weights = _quadrature(law_x, rms_x)
    # h as a step function: its value on each fine cell, both signs by oddness.
    edges = _with_steps(_edges(law_y, rms_y), 64)
    middles = (edges[:-1] + edges[1:]) / 2
    kept = _kept(law_y, middles, rms_y)
    jumps = np.diff(kept, prepend=0.0, append=0.0)
    zero = _ANGLES // 2
    half = np.zeros(zero + 1)
    for i, angle in enumerate(angles[zero + 1 :], start=1):
        mean = math.sin(angle) * points[:, None]
        deviation = max(math.cos(angle), 1e-9)
        # E[h(Y)] = Σ jumps·(P(Y > edge) − P(Y < −edge)).
        above = scipy.special.ndtr((mean - edges) / deviation)
        below = scipy.special.ndtr((-mean - edges) / deviation)
        given_x = (above - below) @ jumps
        half[i] = float(weights @ given_x)
    agreement = np.concatenate([-half[:0:-1], half])  # an odd function
    return AgreementCurve.of(angles, np.maximum.accumulate(agreement))


@dataclass(frozen=True)
class SignChannel:
    """From the signs of one spec's codes to cosines: coordinates are taken to be normal.

    Attributes
    ----------
    law : SignLaw
    rms : float
        Deviation of a projected coordinate in betas; NaN where flips depend on it and no norm is
        declared.
    k : int
        Signs of a code.
    factor : float
        ``Projection.inner_product_factor``.
    """

    law: SignLaw
    rms: float
    k: int
    factor: float

    @classmethod
    def of(cls, spec: Spec) -> SignChannel:
        law = SignLaw.of(spec.law)
        rms = 1.0
        if not law.scale_free:
            if spec.norm is not None:
                rms = spec.norm * spec.projection.rms / spec.change
            elif law.depends_on_size:
                rms = math.nan
        return cls(law, rms, spec.code_length, spec.projection.inner_product_factor)

    @property
    def is_known(self) -> bool:
        """False if flips depend on norms that nobody declared."""
        return not math.isnan(self.rms)

    def curve(self, other: SignChannel) -> AgreementCurve:
        """The expected agreement of such codes with those of another channel."""
        return agreement_curve(self.law, self.rms, other.law, other.rms)

    def from_agreement(self, agreement: Doubles, curve: AgreementCurve) -> Estimate:
        """Cosines and errors from mean agreements ``1 − 2·hamming/k`` of two private codes.

        Variance of ρ by Li & Li 2023, Thm 4.6, with the curve's slope in place of the constant,
        less what a projection of inner product ``factor`` below 1/k does not lose: see
        :meth:`_known_variance`.
        """
        angle = np.interp(agreement, curve.agreement, curve.angles)
        slope = np.interp(angle, curve.angles, curve.slope)
        sine = np.sin(angle)
        of_agreement = np.maximum(1.0 - agreement**2, 0.0) / self.k
        of_angle = of_agreement / np.maximum(slope, 1e-12) ** 2
        avoided = self._known_variance(sine, power=1)
        variance = np.maximum(of_angle - avoided, 0.0)
        # The sine is curved: E[sin(a + e)] = sin(a)·(1 − Var(e)/2) to second order.
        curvature = 1.0 + np.minimum(variance, 1.0) / 2
        value = np.clip(sine * curvature, -1.0, 1.0)
        # Near |ρ| = 1 the slope of the sine vanishes; it is taken half an error away, not to claim
        # too small an error.
        error = np.sqrt(variance)
        half_an_error = np.minimum(error, 1.0) / 2
        steepness = np.maximum(np.cos(angle), half_an_error)
        return value, np.minimum(error * steepness, 2.0)

    def from_score(self, score: Doubles, query_norm: Doubles) -> Estimate:
        """Cosines and errors from scores ``Σ_j y_j s̃_j`` with exact queries y of these norms.

        ``E[Σ y_j s̃_j] = ρ·σ_y·k·E[|Z|(1−2q)]`` is linear in ρ, whatever the flips, because
        ``E[y | x]`` is; ``σ_y = ‖y‖/√k`` is measured on the same y, which removes part of the error
        (delta method).
        """
        norm = np.maximum(query_norm, 1e-300)
        value = np.clip(score / self.normal_score(norm), -1.0, 1.0)
        return value, np.sqrt(self.score_variance(value))

    def normal_score(self, norm: Doubles) -> Doubles:
        """Return expected scores of exact queries' own codes, if their coordinates are normal."""
        return math.sqrt(self.k) * norm * signal_kept(self.law, self.rms)

    def self_score(self, query: Doubles) -> Doubles:
        """Return them whatever the coordinates are, ``Σ_j |y_j|(1−2q_j)``, shape (nq,)."""
        size = np.abs(query)
        mean_square = np.mean(query**2, axis=1, keepdims=True)
        deviation = np.maximum(np.sqrt(mean_square), 1e-300)
        kept = _kept(self.law, size / deviation, self.rms)
        score = np.sum(size * kept, axis=1)
        return np.asarray(np.maximum(score, 1e-300))

    def score_variance(self, rho: Doubles) -> Doubles:
        """Variance of the unclipped estimate of :meth:`from_score`, at a true cosine."""
        kept = signal_kept(self.law, self.rms)
        cubed = signal_kept(self.law, self.rms, 3)
        squared = rho**2
        # With μ = ρ·kept: Var(y s̃) + μ²·Var(y²)/4 − μ·Cov(y s̃, y²), and E[y³ s̃] by E[y | x] = ρx.
        of_norm = kept / 2 + squared * cubed + (2 - 3 * squared) * kept
        of_score = (1.0 - squared * kept * of_norm) / (self.k * kept**2)
        avoided = self._known_variance(rho, power=2)
        return np.maximum(of_score - avoided, 0.0)

    def agreement_law(self, rho: Doubles, curve: AgreementCurve) -> ObservationLaw:
        """Mean and variance of the mean agreement of two private codes, at true cosines."""
        angle = np.arcsin(rho)
        agreement = np.interp(angle, curve.angles, curve.agreement)
        slope = np.interp(angle, curve.angles, curve.slope)
        of_agreement = (1.0 - agreement**2) / self.k
        avoided = slope**2 * self._known_variance(rho, power=1)
        return ObservationLaw(agreement, np.maximum(of_agreement - avoided, 0.0))

    def _known_variance(self, rho: Doubles, power: int) -> Doubles:
        """Part of a cosine's sampling variance that the projection avoids, over (1−ρ²)^(2−power).

        Over vectors, any estimate of ρ errs by the sample cosine's error and by something
        uncorrelated with it (the sample cosine is efficient). Bins that cover every attribute once
        avoid ``(1−ρ²)²·(1/k − factor)`` of it; independent coordinates have ``factor = 1/k`` and
        avoid none.
        """
        per_pair = max(1.0 / self.k - self.factor, 0.0)
        return (1.0 - rho**2) ** power * per_pair

    @property
    def unmixed(self) -> float:
        """The part of the projection's error that sums of few attributes avoid, [0, 1]."""
        return math.sqrt(max(1 - self.k * self.factor, 0.0))


def unlike_signs(spec: Spec, query_spec: Spec) -> float:
    """Share of signs that flips make unlike in two codes of one vector; 0 where it is unknown."""
    signs = SignChannel.of(spec)
    others = SignChannel.of(query_spec)
    if not (signs.is_known and others.is_known):
        return 0.0
    return float(1 - signs.curve(others).agreement[-1]) / 2


_TINY = 1e-300

_UNMIXED = 0.6
"""Standard error of a cosine where every sign is that of one attribute that is never negative.

Such signs say nothing: 1.96 of it on either side cover all cosines from 0 to 1.
"""


class SignPosterior(TablePosterior):
    """Sign codes: their agreement, or the score of an exact query.

    The laws hold for normal coordinates, and sums of few attributes are not normal. An attribute
    that is never negative has the same sign whatever its value, and a fair coin where it is 0, so
    the cosine may be anything from 0 to 1. That error counts by the share of the projection's error
    that sums of few attributes avoid: wholly under bounds of one sign, else as far as mean signs
    resemble those of equal attributes more than chance would. For an exact query, its own score
    tells how far it is from normal coordinates.
    """

    hedge = 0.5
    """With a quarter, errors of 64 signs of made-up topics hold 88 times in 100."""

    @cached_property
    def _signs(self) -> SignChannel:
        return SignChannel.of(self.spec)

    @classmethod
    def lacks(cls, spec: Spec) -> str:
        if SignLaw.of(spec.law).flips_together:
            return (
                f"signs of {spec.method} flip together, and what that does to the best hits is "
                f"not known; rerank with the original vectors, or read the ranking"
            )
        if SignChannel.of(spec).is_known:
            return ""
        return (
            f"it needs a declared norm, as signs of {spec.method} flip more often for short "
            f"vectors; build with norm (`--norm 1` for embeddings of length 1), or read the ranking"
        )

    @classmethod
    def fit(cls, spec: Spec, codes: Codes, rows: int) -> SimilarityCalibration:
        of_one_sign = 0.0
        # Vectors that hold thousands of attributes are not made here.
        if SignChannel.of(spec).unmixed > 0.01:
            mean = unit(codes.to_float().mean(axis=0, keepdims=True))
            equal = unit(spec.projection.apply(np.ones((1, spec.dim), dtype=np.float32)))
            by_chance = 2 / math.sqrt(spec.code_length)  # two standard errors of a direction
            of_one_sign = max(float(np.abs(np.vdot(mean, equal))) - by_chance, 0.0)
        return cls(spec, SimilarityCalibration(rows, total=of_one_sign)).with_prior(codes)

    def law(self, query_spec: Spec | None) -> ObservationLaw:
        if query_spec is None:
            return ObservationLaw(GRID, self._signs.score_variance(GRID))
        curve = self._signs.curve(SignChannel.of(query_spec))
        return self._signs.agreement_law(GRID, curve)

    def decode(self, codes: Codes) -> Decoded:
        return Decoded.plain(codes.to_float())

    def decode_queries(self, queries: Queries) -> Decoded:
        y = queries.to_float()
        if isinstance(queries, PrivateQueries):
            per_sign = y / self.spec.code_length
            return Decoded.plain(per_sign.astype(np.float32))
        # Over what a vector equal to the query scores: so its cosine is 1 whatever the law of the
        # coordinates.
        scaled = y / self._signs.self_score(y)[:, None]
        return Decoded.plain(scaled.astype(np.float32))

    def hidden_error(self, cosine: Doubles, queries: Queries) -> Doubles:
        low, high = self.spec.bounds
        of_one_sign = self.calibration.total if low < 0 < high else 1.0
        common = _UNMIXED * self._signs.unmixed * of_one_sign
        if isinstance(queries, PrivateQueries):
            return np.full_like(cosine, common if common <= MOST_SHARED else np.inf)
        # Of an exact query: how far its own score is from that of normal coordinates.
        y = queries.to_float()
        normal = self._signs.normal_score(np.linalg.norm(y, axis=1))
        ratio = self._signs.self_score(y) / np.maximum(normal, _TINY)
        model = 1 - ratio[:, None]
        # Of k normal coordinates, mean size over root mean square deviates by √((π − 3)/2k).
        by_chance = 2 * math.sqrt((math.pi - 3) / (2 * self.spec.code_length))
        beyond = np.maximum(np.abs(model) - by_chance, 0.0)
        known = np.hypot(common, beyond) <= MOST_SHARED
        return np.where(known, np.hypot(common, model * cosine), np.inf)


_MAX_SIGN = 1.0 - 1e-6


class SignLikelihoods(CodeLikelihoods):
    """``Σ log (1 + s·E s)/2`` of signs s."""

    def __init__(self, projector: Projector, known: Vectors) -> None:
        spec = projector.spec
        projected = ExactQueries(projector.project(known), spec).to_float()
        signs = expected_signs(spec, projected)
        mixed = signs.mean(axis=0)
        with_mixed = np.vstack([signs, mixed])
        self._weights, constant = log_likelihood_of_signs(with_mixed)
        self._constant = constant[:, None]

    def logs(self, codes: Codes) -> Floats:
        scores = self._weights @ codes.to_float().T
        return scores - self._constant


def expected_signs(spec: Spec, projected: Floats) -> Doubles:
    """Return the mean signs of codes of projected vectors, shape (m, k)."""
    beta = spec.projection.scale * spec.unit
    in_betas = projected / beta
    mean_squares = np.square(in_betas).mean(axis=1, keepdims=True)
    deviations = np.maximum(np.sqrt(mean_squares), 1e-30)
    return SignLaw.of(spec.law).expected_signs(in_betas, deviations)


def log_likelihood_of_signs(signs: Doubles) -> tuple[Singles, Doubles]:
    """Return w and c of the log-likelihoods ``s·w − c`` of codes s under mean signs, (m, k).

    These have the shapes (m, k) and (m,), and what they are short of is ``k·log 2``.
    """
    # log (1 + s·E s)/2 = s·w − log cosh w − log 2, with w half the log-odds of +1.
    weights = np.arctanh(np.clip(signs, -_MAX_SIGN, _MAX_SIGN))  # [−7.3, 7.3]
    return weights.astype(np.float32), np.log(np.cosh(weights)).sum(axis=1)


class SignDecoder(Decoder):
    """How many signs agree, or the score of an exact query, corrected for the flips.

    Similarities are NaN where flips depend on norms that nobody declared.
    """

    ranked_as = "signs"
    by_hamming = True
    exact_only = True
    posterior_type = SignPosterior
    likelihoods = SignLikelihoods

    def __init__(self, spec: Spec, metric: Metric) -> None:
        super().__init__(spec, metric)
        self.ranked_by = "ip"  # all codes have one norm

    @classmethod
    def reads(cls, spec: Spec) -> bool:
        return issubclass(spec.format_type, SignFormat)

    def items(self, codes: Codes) -> AnyArray:
        return codes.stored

    def query_items(self, queries: Queries) -> AnyArray:
        """Packed signs, or exact queries in grid integers, so that scores are exact."""
        if isinstance(queries, PrivateQueries):
            return queries.codes.stored
        return queries.projections

    def estimates(self, codes: Codes, queries: Queries, groups: int) -> Estimate:
        # Single precision is exact for sums of ±1, and takes half the time.
        ip, _, y = inner_products(codes, queries, groups, np.float32)
        signs = SignChannel.of(self.spec)
        others = SignChannel.of(queries.spec)
        if not (signs.is_known and others.is_known):
            unknown = np.full(ip.shape, math.nan)
            return unknown, unknown.copy()
        if isinstance(queries, ExactQueries):
            norms = np.linalg.norm(y, axis=1)
            return signs.from_score(ip, norms[:, None])
        return signs.from_agreement(ip / signs.k, signs.curve(others))
