"""Public linear maps, exact on the grid."""

from dpindex.projections.base import Identity, Projection
from dpindex.projections.dense import Rademacher
from dpindex.projections.oporp import Oporp

__all__ = ["Identity", "Oporp", "Projection", "Rademacher"]
