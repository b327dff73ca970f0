"""Chances that a code stands out among n: that it is found first by its own vector.

A code has a score for a vector, such as a correlation. The own code has the highest one if no other
code has a higher one: :func:`own_code_first`, :func:`own_symbol_first`, :func:`own_level_first`.
Scores are normal or nearly so.
"""

from __future__ import annotations

import math

import numpy as np
import scipy

from dpindex.base.arrays import Singles
from dpindex.base.normal import cosine_tails, quantiles
from dpindex.mechanism.noise.law import SignLaw, SymbolLaw, TwoLevels
from dpindex.mechanism.spec import Spec

__all__ = ["SCORES", "own_code_first", "own_level_first", "own_symbol_first"]

SCORES = 4096
"""Equally likely values that a normal law is averaged over."""

_TINY = 1e-9
_ALMOST = 1.0 - 1e-12
_NODES = 32


def own_code_first(correlation: float, spec: Spec, n: int, cosines: Singles | None) -> float:
    """Return the chance that a vector's own code correlates with it most, among n codes.

    The own correlation has Fisher's distribution (Fisher 1915), for signs the binomial variance.
    Those of codes of other directions are cosines of random ones. Those of a vector at cosine c
    are normal about c times the expected correlation, for signs about their agreement.

    Parameters
    ----------
    correlation : float
        Expected correlation of a vector and its code, [0, 1].
    spec : Spec
    n : int
    cosines : float32 array, shape (m, others), optional
        Cosines of some vectors to others; without them directions are independent.
    """
    k = spec.code_length
    signs = isinstance(spec.law, SignLaw)
    rho = min(correlation, _ALMOST)
    variance = (1.0 - rho**2) / k
    if signs:
        own_scores = rho + quantiles(SCORES) * math.sqrt(variance)
    else:
        own_scores = np.tanh(math.atanh(rho) + quantiles(SCORES) / math.sqrt(k))
    own_scores = np.clip(own_scores, -1.0, 1.0)
    others = max(n - 1, 0)
    if cosines is None:
        freedom = 1.0 / (rho**2 / min(spec.dim, k) + variance)
        above = cosine_tails(own_scores, max(freedom, 1.001))
        log_below = np.log1p(-np.minimum(above, _ALMOST))
        return float(np.exp(others * log_below).mean())
    if signs:  # that agree (Goemans & Williamson 1995, Lemma 3.2)
        cosines = np.arcsin(np.clip(cosines, -1.0, 1.0)) * np.float32(2 / math.pi)
    deviation = np.float32(math.sqrt(variance) + _TINY)
    per_cosine = others / cosines.shape[1]
    step = len(own_scores) // _NODES
    log_first = []
    for score in own_scores[step // 2 :: step].astype(np.float32):
        log_below = scipy.special.log_ndtr((score - rho * cosines) / deviation)
        log_first.append(log_below.sum(axis=1, dtype=np.float64) * per_cosine)
    return float(np.exp(log_first).mean())


def own_symbol_first(law: SymbolLaw, n: int) -> float:
    """Return the chance that no other symbol is nearer to a vector than its own, among n.

    A symbol is, with a chance, one of the codewords nearest to its vector. If it is the j-th
    nearest, no other record may report a nearer one.
    """
    total = 0.0
    for j in range(law.subset):
        none_nearer = (1.0 - j / law.size) ** max(n - 1, 0)
        total += none_nearer * _tied(n, 1.0 / (law.size - j))
    return law.chance_inside / law.subset * total


def own_level_first(levels: TwoLevels, n: int) -> float:
    """Return the chance to be drawn first where codes tie, inside a likelier set and outside."""
    none_inside = (1.0 - levels.share) ** max(n - 1, 0)
    if_inside = levels.inside * _tied(n, levels.share)
    return if_inside + (1.0 - levels.inside) * none_inside / max(n, 1)


def _tied(n: int, chance: float) -> float:
    """Return the chance to be drawn among oneself and those of n − 1 others that tie.

    Each ties with that chance: this is E[1/(1 + B)] for B binomial.
    """
    ties = max(n - 1, 0) + 1
    return -math.expm1(ties * math.log1p(-chance)) / (ties * chance)
