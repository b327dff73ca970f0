"""Sign codes to cosines, corrected for the flips, with standard errors.

Two signs of a pair agree more the closer the pair is; flips dilute that. The expected agreement as
a function of the cosine ρ is inverted by interpolation. Coordinates of the projection are taken as
bivariate normal, as in Li & Li 2023 (Thm 4.6); for OPORP this needs bins of several attributes.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from dpindex.noise.law import SignLaw

__all__ = ["AgreementCurve", "agreement_curve", "cosine_from_agreement", "cosine_from_score"]

Doubles = npt.NDArray[np.float64]

_ANGLES = 129
_NODES = 24
_REACH = 8.0
_MAX_CELLS = 96


class AgreementCurve:
    """Expected agreement ``E[s̃·t̃]`` against ``arcsin ρ``, increasing; one for a pair of laws."""

    def __init__(self, angles: Doubles, agreement: Doubles) -> None:
        self.angles = angles
        self.agreement = agreement
        self._slope = np.gradient(agreement, angles)

    def invert(self, agreement: Doubles) -> tuple[Doubles, Doubles]:
        """``arcsin ρ`` and the curve's slope there."""
        angle = np.interp(agreement, self.agreement, self.angles)
        return angle, np.interp(angle, self.angles, self._slope)


def _keep(law: SignLaw, size: Doubles, rms: float) -> Doubles:
    """``1 − 2q``: how much of a sign survives at magnitude ``size`` (in standard deviations)."""
    return np.asarray(1.0 - 2.0 * law.flip_probability(size * rms, rms))


def _edges(law: SignLaw, rms: float) -> Doubles:
    """Where flips may jump, in standard deviations: at whole betas, up to eight deviations."""
    if not law.depends_on_size:
        return np.array([0.0, _REACH])
    cells = min(_MAX_CELLS, math.ceil(_REACH * rms))
    edges = np.arange(cells + 1) / rms
    return np.unique(np.concatenate([edges[edges < _REACH], [_REACH]]))


def _quadrature(edges: Doubles) -> tuple[Doubles, Doubles]:
    """Gauss–Legendre nodes and weights on every interval between edges."""
    # Wide cells are cut so that the normal density is smooth on each piece.
    pieces = np.unique(np.concatenate([edges, np.linspace(0.0, _REACH, 17)]))
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    half = np.diff(pieces)[:, None] / 2
    points = (pieces[:-1, None] + half) + half * nodes
    return points.ravel(), (half * weights).ravel()


@lru_cache(maxsize=64)
def signal_kept(law: SignLaw, rms: float, power: int = 1) -> float:
    """``E[|Z|^power·(1−2q(|Z|))]``, power 1 or 3, for a standard normal Z: √(2/π), 2√(2/π) bare."""
    points, weights = _quadrature(_edges(law, rms))
    density = np.exp(-(points**2) / 2) / math.sqrt(2 * math.pi)
    return float(2 * np.sum(weights * density * points**power * _keep(law, points, rms)))


@lru_cache(maxsize=64)
def agreement_curve(law_x: SignLaw, rms_x: float, law_y: SignLaw, rms_y: float) -> AgreementCurve:
    """The curve of two laws, given the standard deviations of their coordinates in betas.

    Uniform flips have the closed form ``(1−2q₁)(1−2q₂)·(2/π)·arcsin ρ`` (Li & Li 2023, Thm 4.6).
    Flips that depend on |x| are integrated: ``E[g(X)·E[h(Y) | X]]`` with g and h the diluted signs
    and ``Y | X`` normal with mean ρX.
    """
    angles = np.linspace(-math.pi / 2, math.pi / 2, _ANGLES)
    if not (law_x.depends_on_size or law_y.depends_on_size):
        dilution = float(_keep(law_x, np.ones(1), 1.0)[0] * _keep(law_y, np.ones(1), 1.0)[0])
        return AgreementCurve(angles, dilution * 2 / math.pi * angles)
    points, weights = _quadrature(_edges(law_x, rms_x))
    weights = weights * np.exp(-(points**2) / 2) / math.sqrt(2 * math.pi)
    weights = 2 * weights * _keep(law_x, points, rms_x)
    # h as a step function: its value on each fine cell, both signs by oddness.
    fine = np.unique(np.concatenate([_edges(law_y, rms_y), np.linspace(0.0, _REACH, 65)]))
    height = _keep(law_y, (fine[:-1] + fine[1:]) / 2, rms_y)
    jumps = np.diff(np.concatenate([[0.0], height, [0.0]]))
    half = np.empty(_ANGLES // 2 + 1)
    for i, angle in enumerate(angles[_ANGLES // 2 :]):
        rho, rest = math.sin(angle), max(math.cos(angle), 1e-9)
        mean = rho * points[:, None]
        # E[h(Y)] = Σ jumps·(P(Y > edge) − P(Y < −edge)).
        above = ndtr((mean - fine) / rest) - ndtr((-mean - fine) / rest)
        half[i] = float(weights @ (above @ jumps))
    half[0] = 0.0
    agreement = np.concatenate([-half[:0:-1], half])
    return AgreementCurve(angles, np.maximum.accumulate(agreement))


def cosine_from_agreement(
    agreement: Doubles, k: int, curve: AgreementCurve, factor: float
) -> tuple[Doubles, Doubles]:
    """Cosines and standard errors from mean agreements ``1 − 2·hamming/k`` of two private codes.

    Variance of ρ by Li & Li 2023, Thm 4.6, with the curve's slope in place of the constant, less
    what a projection of inner product ``factor`` below 1/k knows better: see ``_known``.
    """
    angle, slope = curve.invert(agreement)
    variance = np.maximum(1.0 - agreement**2, 0.0) / k / np.maximum(slope, 1e-12) ** 2
    variance = np.maximum(variance - _known(np.sin(angle), k, factor, power=1), 0.0)
    # The sine is curved: E[sin(a + e)] = sin(a)·(1 − Var(e)/2) to second order.
    value = np.clip(np.sin(angle) * (1.0 + np.minimum(variance, 1.0) / 2), -1.0, 1.0)
    # Near |ρ| = 1 the slope of sin vanishes; half a step on the far side keeps the error honest.
    error = np.sqrt(variance)
    steepness = np.maximum(np.cos(angle), np.minimum(error, 1.0) / 2)
    return value, np.minimum(error * steepness, 2.0)


def cosine_from_score(
    score: Doubles, query_norm: Doubles, k: int, law: SignLaw, rms: float, factor: float
) -> tuple[Doubles, Doubles]:
    """Cosines and standard errors from ``Σ_j y_j s̃_j`` with an exact query y.

    ``E[Σ y_j s̃_j] = ρ·σ_y·k·E[|Z|(1−2q)]`` is linear in ρ, whatever the flips, because
    ``E[y | x]`` is; ``σ_y = ‖y‖/√k``, measured on the same y, which takes part of the error away
    (delta method).
    """
    kept, cubed = signal_kept(law, rms), signal_kept(law, rms, 3)
    value = score / (math.sqrt(k) * np.maximum(query_norm, 1e-300) * kept)
    bounded = np.clip(value, -1.0, 1.0)
    squared = bounded**2
    # With μ = ρ·kept: Var(y s̃) + μ²·Var(y²)/4 − μ·Cov(y s̃, y²), and E[y³ s̃] by E[y | x] = ρx.
    variance = (
        1.0 - squared * kept**2 / 2 - squared * kept * (squared * cubed + (2 - 3 * squared) * kept)
    )
    variance = variance / (k * kept**2) - _known(bounded, k, factor, power=2)
    return bounded, np.sqrt(np.maximum(variance, 0.0))


def _known(rho: Doubles, k: int, factor: float, power: int) -> Doubles:
    """Part of a cosine's variance that is sampled away, over (1−ρ²)^(2−power).

    Over vectors, any estimate of ρ errs by the sample cosine's error and something uncorrelated to
    it (the sample cosine is efficient). Bins that cover every attribute once know that error:
    ``(1−ρ²)²·(1/k − factor)``; independent coordinates have ``factor = 1/k`` and know nothing.
    """
    return np.asarray((1.0 - rho**2) ** power * max(1.0 / k - factor, 0.0))
