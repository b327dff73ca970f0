"""Public linear maps, exact on the grid."""

from dpindex.mechanism.projections.base import Identity, Projection, Sensitivity
from dpindex.mechanism.projections.dense import (
    FINE_ENTRY_BITS,
    Dense,
    Gaussian,
    Rademacher,
    Uniform,
)
from dpindex.mechanism.projections.oporp import Oporp
from dpindex.mechanism.projections.sparse_jl import FastJL, SparseJL, VerySparse

__all__ = [
    "FINE_ENTRY_BITS", "Dense", "FastJL", "Gaussian", "Identity", "Oporp", "Projection",
    "Rademacher", "Sensitivity", "SparseJL", "Uniform", "VerySparse",
]  # fmt: skip
