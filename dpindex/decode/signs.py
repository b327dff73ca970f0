"""Sign codes: cosines from how many signs agree, corrected for the flips, and likelihoods."""

from __future__ import annotations

import math

import numpy as np

from dpindex.base.arrays import AnyArray, Doubles, Floats, Singles, Vectors, unit
from dpindex.decode.base import (
    CodeLikelihoods,
    Estimate,
    ExactQueries,
    InnerProductDecoder,
    Metric,
    PrivateQueries,
    Queries,
)
from dpindex.decode.calibration import (
    GRID,
    MOST_SHARED,
    Decoded,
    ObservationLaw,
    SimilarityCalibration,
)
from dpindex.decode.posterior import TablePosterior
from dpindex.decode.sign_agreement import (
    agreement_curve,
    agreement_variance,
    cosine_from_agreement,
    cosine_from_score,
    score_variance,
    self_score,
    sign_deviation,
    signal_kept,
)
from dpindex.mechanism.codes import Codes, SignFormat
from dpindex.mechanism.noise.base import SignLaw
from dpindex.mechanism.spec import Projector, Spec

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

    @classmethod
    def lacks(cls, spec: Spec) -> str:
        if SignLaw.of(spec.law).flips_together:
            return (
                f"signs of {spec.method} flip together, and what that does to the best hits is "
                f"not known; rerank with the original vectors, or read the ranking"
            )
        if not math.isnan(sign_deviation(spec)):
            return ""
        return (
            f"it needs a declared norm, as signs of {spec.method} flip more often for short "
            f"vectors; build with norm (`--norm 1` for embeddings of length 1), or read the ranking"
        )

    @classmethod
    def fit(cls, spec: Spec, codes: Codes, rows: int) -> SimilarityCalibration:
        of_one_sign = 0.0
        if _unmixed(spec) > 0.01:  # vectors that hold thousands of attributes are not made here
            mean = unit(codes.to_float().mean(axis=0, keepdims=True))
            equal = unit(spec.projection.apply(np.ones((1, spec.dim), dtype=np.float32)))
            by_chance = 2 / math.sqrt(spec.code_length)  # two standard errors of a direction
            of_one_sign = max(float(np.abs(np.vdot(mean, equal))) - by_chance, 0.0)
        return cls(spec, SimilarityCalibration(rows, total=of_one_sign)).with_prior(codes)

    def law(self, query_spec: Spec | None) -> ObservationLaw:
        factor = self.spec.projection.inner_product_factor
        k = self.spec.code_length
        law = SignLaw.of(self.spec.law)
        rms = sign_deviation(self.spec)
        if query_spec is None:
            variance = score_variance(GRID, k, law, rms, factor)
            return ObservationLaw(GRID, variance)
        query_rms = sign_deviation(query_spec)
        curve = agreement_curve(law, rms, SignLaw.of(query_spec.law), query_rms)
        expected = np.interp(np.arcsin(GRID), curve.angles, curve.agreement)
        return ObservationLaw(expected, agreement_variance(GRID, k, curve, factor))

    def decode(self, codes: Codes) -> Decoded:
        return Decoded.plain(codes.to_float())

    def decode_queries(self, queries: Queries) -> Decoded:
        y = queries.to_float()
        if isinstance(queries, PrivateQueries):
            per_sign = y / self.spec.code_length
            return Decoded.plain(per_sign.astype(np.float32))
        # Over what a vector equal to the query scores: so its cosine is 1 whatever the law of the
        # coordinates.
        full = self_score(y, SignLaw.of(self.spec.law), sign_deviation(self.spec))
        scaled = y / full[:, None]
        return Decoded.plain(scaled.astype(np.float32))

    def hidden_error(self, cosine: Doubles, queries: Queries) -> Doubles:
        low, high = self.spec.bounds
        of_one_sign = self.calibration.total if low < 0 < high else 1.0
        common = _UNMIXED * _unmixed(self.spec) * of_one_sign
        if isinstance(queries, PrivateQueries):
            return np.full_like(cosine, common if common <= MOST_SHARED else np.inf)
        # Of an exact query: how far its own score is from that of normal coordinates.
        law = SignLaw.of(self.spec.law)
        rms = sign_deviation(self.spec)
        y = queries.to_float()
        norms = np.linalg.norm(y, axis=1)
        normal = math.sqrt(self.spec.code_length) * norms * signal_kept(law, rms)
        ratio = self_score(y, law, rms) / np.maximum(normal, _TINY)
        model = 1 - ratio[:, None]
        # Of k normal coordinates, mean size over root mean square deviates by √((π − 3)/2k).
        by_chance = 2 * math.sqrt((math.pi - 3) / (2 * self.spec.code_length))
        beyond = np.maximum(np.abs(model) - by_chance, 0.0)
        known = np.hypot(common, beyond) <= MOST_SHARED
        return np.where(known, np.hypot(common, model * cosine), np.inf)


def _unmixed(spec: Spec) -> float:
    """Return the part of the projection's error that sums of few attributes avoid, [0, 1]."""
    avoided = 1 - spec.code_length * spec.projection.inner_product_factor
    return math.sqrt(max(avoided, 0.0))


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


class SignDecoder(InnerProductDecoder):
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

    def vectors(self, codes: Codes) -> AnyArray:
        return codes.to_float()

    def query_vectors(self, queries: Queries) -> AnyArray:
        return queries.to_float()

    dtype = np.float32  # exact for sums of ±1, and half the time

    def _corrected(
        self,
        ip: Doubles,
        x: Floats,
        y: Doubles,
        queries: Queries,
    ) -> Estimate:
        k = x.shape[2]
        law = SignLaw.of(self.spec.law)
        factor = self.spec.projection.inner_product_factor
        rms = sign_deviation(self.spec)
        query_rms = 1.0
        if isinstance(queries, PrivateQueries):
            query_rms = sign_deviation(queries.spec)
        if math.isnan(rms * query_rms):
            unknown = np.full(ip.shape, math.nan)
            return unknown, unknown.copy()
        if isinstance(queries, ExactQueries):
            norms = np.linalg.norm(y, axis=1)
            return cosine_from_score(ip, norms[:, None], k, law, rms, factor)
        curve = agreement_curve(law, rms, SignLaw.of(queries.spec.law), query_rms)
        return cosine_from_agreement(ip / k, k, curve, factor)
