"""What agreeing signs, and scores of exact queries, say of cosines under flips."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import scipy

from dpindex.base.arrays import Doubles
from dpindex.mechanism.noise.base import SignLaw
from dpindex.mechanism.spec import Spec

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


def cosine_from_agreement(
    agreement: Doubles,
    k: int,
    curve: AgreementCurve,
    factor: float,
) -> tuple[Doubles, Doubles]:
    """Cosines and standard errors from mean agreements ``1 − 2·hamming/k`` of two private codes.

    Variance of ρ by Li & Li 2023, Thm 4.6, with the curve's slope in place of the constant, less
    what a projection of inner product ``factor`` below 1/k does not lose: see
    ``_known_variance``.
    """
    angle = np.interp(agreement, curve.agreement, curve.angles)
    slope = np.interp(angle, curve.angles, curve.slope)
    sine = np.sin(angle)
    of_agreement = np.maximum(1.0 - agreement**2, 0.0) / k
    of_angle = of_agreement / np.maximum(slope, 1e-12) ** 2
    avoided = _known_variance(sine, k, factor, power=1)
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


def cosine_from_score(
    score: Doubles,
    query_norm: Doubles,
    k: int,
    law: SignLaw,
    rms: float,
    factor: float,
) -> tuple[Doubles, Doubles]:
    """Cosines and standard errors from ``Σ_j y_j s̃_j`` with an exact query y.

    ``E[Σ y_j s̃_j] = ρ·σ_y·k·E[|Z|(1−2q)]`` is linear in ρ, whatever the flips, because
    ``E[y | x]`` is; ``σ_y = ‖y‖/√k`` is measured on the same y, which removes part of the error
    (delta method).
    """
    norm = np.maximum(query_norm, 1e-300)
    full_score = math.sqrt(k) * norm * signal_kept(law, rms)
    value = np.clip(score / full_score, -1.0, 1.0)
    variance = score_variance(value, k, law, rms, factor)
    return value, np.sqrt(variance)


def self_score(query: Doubles, law: SignLaw, rms: float) -> Doubles:
    """Return expected scores of exact queries' own codes, ``Σ_j |y_j|(1−2q_j)``, shape (nq,)."""
    size = np.abs(query)
    mean_square = np.mean(query**2, axis=1, keepdims=True)
    deviation = np.maximum(np.sqrt(mean_square), 1e-300)
    kept = _kept(law, size / deviation, rms)
    score = np.sum(size * kept, axis=1)
    return np.asarray(np.maximum(score, 1e-300))


def score_variance(
    rho: Doubles,
    k: int,
    law: SignLaw,
    rms: float,
    factor: float,
) -> Doubles:
    """Variance of the unclipped estimate that :func:`cosine_from_score` makes, at a true cosine."""
    kept = signal_kept(law, rms)
    cubed = signal_kept(law, rms, 3)
    squared = rho**2
    # With μ = ρ·kept: Var(y s̃) + μ²·Var(y²)/4 − μ·Cov(y s̃, y²), and E[y³ s̃] by E[y | x] = ρx.
    of_norm = kept / 2 + squared * cubed + (2 - 3 * squared) * kept
    of_score = (1.0 - squared * kept * of_norm) / (k * kept**2)
    avoided = _known_variance(rho, k, factor, power=2)
    return np.maximum(of_score - avoided, 0.0)


def agreement_variance(
    rho: Doubles,
    k: int,
    curve: AgreementCurve,
    factor: float,
) -> Doubles:
    """Variance of the mean agreement of two private codes of k signs, at a true cosine."""
    angle = np.arcsin(rho)
    agreement = np.interp(angle, curve.angles, curve.agreement)
    slope = np.interp(angle, curve.angles, curve.slope)
    of_agreement = (1.0 - agreement**2) / k
    avoided = slope**2 * _known_variance(rho, k, factor, power=1)
    return np.maximum(of_agreement - avoided, 0.0)


def _known_variance(
    rho: Doubles,
    k: int,
    factor: float,
    power: int,
) -> Doubles:
    """Part of a cosine's sampling variance that the projection avoids, over (1−ρ²)^(2−power).

    Over vectors, any estimate of ρ errs by the sample cosine's error and by something uncorrelated
    with it (the sample cosine is efficient). Bins that cover every attribute once avoid
    ``(1−ρ²)²·(1/k − factor)`` of it; independent coordinates have ``factor = 1/k`` and avoid none.
    """
    per_pair = max(1.0 / k - factor, 0.0)
    return (1.0 - rho**2) ** power * per_pair


def unlike_signs(spec: Spec, query_spec: Spec) -> float:
    """Share of signs that flips make unlike in two codes of one vector; 0 where it is unknown."""
    deviation, query_deviation = sign_deviation(spec), sign_deviation(query_spec)
    if math.isnan(deviation + query_deviation):
        return 0.0
    curve = agreement_curve(
        SignLaw.of(spec.law), deviation, SignLaw.of(query_spec.law), query_deviation
    )
    return float(1 - curve.agreement[-1]) / 2


def sign_deviation(spec: Spec) -> float:
    """Deviation of a sign code's projected coordinate in betas; NaN if needed and unknown."""
    law = SignLaw.of(spec.law)
    if law.scale_free:
        return 1.0
    if spec.norm is not None:
        return spec.norm * spec.projection.rms / spec.change
    if law.depends_on_size:
        return math.nan
    return 1.0
