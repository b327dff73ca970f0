"""Information in a code that hides whole records: the most at an epsilon, and what a search needs.

A report lies in the set of nearest codewords with a chance p, and is uniform otherwise. If all
codewords are equally frequent it carries the Kullback-Leibler divergence of p from the share of
codewords in the set. No mechanism that is epsilon-DP for any two records carries more than the best
share (Kairouz, Oh & Viswanath 2016), which is near ``(ε − 1 − ln ε)/ln 2`` bits.
"""

from __future__ import annotations

import math

import numpy as np

from dpindex.mechanism.noise.law import SymbolLaw
from dpindex.mechanism.spec import Spec
from dpindex.privacy import Record

__all__ = ["information_lines", "most_bits"]

_ANSWERS = 10
_SHARES = np.exp(-np.linspace(0.01, 70.0, 20_000))


def most_bits(epsilon: float) -> float:
    """Return the most that a code says about its record, in bits, if any two may be confused.

    >>> [round(most_bits(epsilon), 2) for epsilon in (6.0, 8.0, 10.0, 12.0)]
    [4.65, 7.1, 9.66, 12.28]
    """
    growth = math.expm1(epsilon) * _SHARES + 1.0
    inside = math.exp(epsilon) * _SHARES / growth
    return float((inside * epsilon - np.log(growth)).max()) / math.log(2)


def _symbol_bits(law: SymbolLaw) -> float:
    """Return the information in a symbol, in bits."""
    share = law.subset / law.size
    inside = law.chance_inside
    bits = inside * math.log2(inside / share)
    if inside < 1.0:
        bits += (1.0 - inside) * math.log2((1.0 - inside) / (1.0 - share))
    return bits


def information_lines(spec: Spec, n: int) -> tuple[str, ...]:
    """Return a sentence on what codes of whole records can say; none for other neighbours.

    Parameters
    ----------
    spec : Spec
        Public parameters of the codes.
    n : int
        Vectors in the collection.
    """
    if not isinstance(spec.adjacency, Record) or n <= _ANSWERS:
        return ()
    carried = ""
    if isinstance(spec.law, SymbolLaw):
        carried = f"; a code of this codebook carries {_symbol_bits(spec.law):.2f}"
    return (
        f"At epsilon = {spec.budget:g} no code of any method says more than "
        f"{most_bits(spec.budget):.2f} bits about its record{carried}. Pointing at {_ANSWERS} of "
        f"{n} takes {math.log2(n / _ANSWERS):.2f} bits, at 1 % of them {math.log2(100):.2f}: let "
        f"the owner of the vectors rerank candidates.",
    )
