"""The two kinds of bound an audit rests on: of e^x in exact integers, of chances by counting."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from scipy import special

__all__ = ["binomial_bounds", "epsilon_lower_bound", "exp_below"]

_BITS = 384


@lru_cache(maxsize=4096)
def exp_below(x: Fraction) -> tuple[int, int]:
    """Integers ``(m, w)`` with ``m / 2^w ≤ e^x`` for a rational x ≥ 0, tight to about 2^-384.

    Taylor's series of ``e^(x/2^s)`` with x/2^s below 1, squared s times. Every term is positive and
    every division rounds down, so the result is a lower bound whatever the precision; integers
    only, and nothing shared with the code that calibrates the laws.

    >>> m, w = exp_below(Fraction(1))
    >>> m / 2**w
    2.718281828459045
    """
    squarings = max(0, math.ceil(x)).bit_length()
    work = _BITS + 2 * squarings + 32
    argument = (x.numerator << work) // (x.denominator << squarings)
    total = term = 1 << work
    order = 1
    while term:
        term = (term * argument >> work) // order
        total += term
        order += 1
    for _ in range(squarings):
        total = total * total >> work
    return total, work


def binomial_bounds(hits: Any, trials: Any, alpha: float) -> tuple[Any, Any]:
    """Lower and upper bound of a chance, each wrong with probability at most ``alpha``.

    Clopper & Pearson 1934: exact for every number of trials, never approximate. Numbers or arrays.

    >>> low, high = binomial_bounds(0, 1000, 0.001)
    >>> float(low), round(float(high), 5)
    (0.0, 0.00688)
    """
    hits, trials = np.asarray(hits, dtype=np.float64), np.asarray(trials, dtype=np.float64)
    missed = trials - hits
    low = special.betaincinv(np.maximum(hits, 1), missed + 1, alpha)
    high = special.betainccinv(hits + 1, np.maximum(missed, 1), alpha)
    return np.where(hits > 0, low, 0.0), np.where(missed > 0, high, 1.0)


def epsilon_lower_bound(hits: Any, trials: Any, delta: float, alpha: float) -> Any:
    """The least epsilon that counts of one event allow, in [0, ∞), wrong at most ``alpha``.

    ``hits[i]`` of ``trials[i]`` releases of neighbour i fell into the event. Under (ε, δ)
    ``P₀ ≤ e^ε·P₁ + δ``, so ``ε ≥ log((P₀ − δ) / P₁)``; alpha is halved between the two bounds.

    >>> round(float(epsilon_lower_bound((7500, 2500), (10000, 10000), 0.0, 0.001)), 2)
    1.02
    """
    low, _ = binomial_bounds(hits[0], trials[0], alpha / 2)
    _, high = binomial_bounds(hits[1], trials[1], alpha / 2)
    return np.log(np.maximum((low - delta) / high, 1.0))
