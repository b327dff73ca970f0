"""A valid spec for any row of the method table, also for rows that come later."""

from __future__ import annotations

from functools import cache
from typing import Any

import mpmath

from dpindex import Spec, attribute, l2
from dpindex.method_table import Method
from dpindex.noise.additive import AdditiveNoise
from dpindex.noise.counts import CHANGES
from dpindex.noise.geometric import geometric_table
from dpindex.projections import families
from dpindex.projections.families import Family

FAMILIES = {name: value for name, value in vars(families).items() if isinstance(value, Family)}
"""Every family of projections there is, by its name in the package."""


def needed(row: Method) -> dict[str, Any]:
    """What the method cannot do without, at ordinary values."""
    epsilon = None if row.definition == "none" else 2.0
    arguments: dict[str, Any] = {"method": row.name, "epsilon": epsilon}
    if row.needs_delta:
        arguments["delta"] = 1e-6
    if row.calibration.bounded:
        arguments["bounds"] = (0.0, 1.0)
    if "min_norm" in row.needs:
        arguments["min_norm"] = 2.0
    arguments["adjacency"] = attribute(1.0) if "attribute" in row.adjacencies else l2(1.0)
    return arguments


def example(row: Method, dim: int = 24, **changes: Any) -> Spec:
    """A small spec of that method."""
    k = None if row.family.keeps_all else min(dim, 8)
    return Spec(**{**needed(row), "dim": dim, "k": k, **changes})


@cache
def small(row: Method) -> Spec:
    """The plain example, made once for all tests that only look at it."""
    return example(row)


def published_count_noise(epsilon: float, rows: int, neighbouring: str) -> AdditiveNoise:
    """``⌊Laplace(R/ε)⌋`` for a sketch (Coleman & Shrivastava 2020, Alg. 1), of mean −½."""
    drop = mpmath.mpf(epsilon) / (rows * CHANGES[neighbouring])
    return AdditiveNoise(geometric_table(drop, 1, 1, 0), 0)
