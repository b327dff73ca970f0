"""What sign codes show of cosines."""

from __future__ import annotations

import math

import numpy as np

from dpindex.base.arrays import AnyArray, Doubles, Singles, products
from dpindex.mechanism.codes import Codes
from dpindex.mechanism.spec import Spec
from dpindex.similarity.observation import Observer
from dpindex.similarity.observation_law import GRID, AgreementLaw, ObservationLaw
from dpindex.similarity.sign_codes import (
    AgreementCurve,
    agreement_curve,
    agreement_variance,
    score_variance,
    self_score,
)
from dpindex.similarity.similarity import PrivateQueries, Queries, sign_deviation

_MODEL_ERROR = 0.25
"""Relative deviation of a cosine where each bin holds one attribute; measured on MNIST."""


class SignObserver(Observer):
    """Signs: their agreement, or the score of an exact query.

    What all vectors have in common is projected once. Of the common direction m, ``‖Wm‖²/‖m‖²``
    has a deviation of ``√(2/k)``, so all cosines are off together, by ``(1 − ρ)`` of that times
    the mean cosine ``‖m‖²``: the norms are off likewise. Pairs of codes do not show it, so it is
    left out of their law, and is in the stated error.

    Of attributes that are never negative many may be 0, and sums of few of them are then not
    normal. Neither codes nor public parameters say how many.
    """

    pairs_of = 2048

    # Near neighbours share the error of their projection too, which would be taken for the query's
    # own distribution.
    shows_queries = False

    knows_denoised = False

    @classmethod
    def can_observe(cls, spec: Spec) -> bool:
        return not math.isnan(sign_deviation(spec))

    def __init__(self, spec: Spec, codes: Codes) -> None:
        super().__init__(spec, codes)
        count = len(codes)
        k = spec.code_length
        sums = codes.to_float().sum(axis=0, dtype=np.float64)
        agreement = float(np.sum(sums**2) - count * k) / max(count * (count - 1) * k, 1)
        curve = self._curve(spec)
        angle = np.interp(agreement, curve.agreement, curve.angles)
        self._shared = max(math.sin(angle), 0.0) * math.sqrt(2 / k)
        self._model_error = 0.0
        if spec.bounds[0] >= 0:  # many attributes may be 0
            self._model_error = _MODEL_ERROR * math.sqrt(k / spec.dim)

    def hidden_error(self, cosine: Doubles, private: bool) -> Doubles:
        shared = self._shared * (1 - cosine)
        if not private:
            return np.abs(shared)
        return np.asarray(np.hypot(shared, self._model_error * cosine))

    def _curve(self, spec: Spec) -> AgreementCurve:
        rms = sign_deviation(self.spec)
        return agreement_curve(self.spec.sign_law, rms, spec.sign_law, sign_deviation(spec))

    def law(self, spec: Spec, private: bool) -> ObservationLaw:
        factor = self.spec.projection.inner_product_factor
        k = self.spec.code_length
        no_scale = np.zeros(len(GRID))
        shared = self._shared * (1 - GRID)
        if not private:
            rms = sign_deviation(self.spec)
            variance = score_variance(GRID, k, self.spec.sign_law, rms, factor)
            return ObservationLaw(GRID, no_scale, _less(variance, shared))
        curve = self._curve(spec)
        expected = k * np.interp(np.arcsin(GRID), curve.angles, curve.agreement)
        variance = k**2 * agreement_variance(GRID, k, curve, factor)
        own = _less(variance, np.gradient(expected, GRID) * shared)
        return AgreementLaw(expected, no_scale, own, trusted=math.inf, bits=k)

    def of(self, x: AnyArray, queries: Queries) -> tuple[Doubles, Doubles]:
        seen = products(x.astype(np.float32, copy=False), self.refined_queries(queries))
        return seen, np.ones_like(seen)

    def refined_items(self, x: AnyArray) -> Singles:
        return x.astype(np.float32, copy=False)

    def own_items(self, codes: Codes) -> Singles | None:
        factor = self.spec.projection.inner_product_factor
        if factor > 0:
            return None
        return self.refined_items(codes.to_float())

    def refined_queries(self, queries: Queries) -> Singles:
        y = queries.to_float()
        if isinstance(queries, PrivateQueries):
            return np.asarray(y, np.float32)
        # Over what a vector equal to the query scores: so its cosine is 1 whatever the law of the
        # coordinates.
        full = self_score(y, self.spec.sign_law, sign_deviation(self.spec))
        return np.asarray(y / full[:, None], np.float32)


def _less(variance: Doubles, shared: Doubles) -> Doubles:
    """Variances without the part that all observations share."""
    return np.asarray(np.maximum(variance - shared**2, 0.05 * variance))
