"""What is promised: adjacency and guarantee."""

from dpindex.privacy.adjacency import (
    L2,
    Adjacency,
    Attribute,
    Neighbouring,
    Records,
    VectorAdjacency,
    adjacency_from_dict,
    attribute,
    l2,
)
from dpindex.privacy.guarantee import Guarantee, compose

__all__ = [
    "L2", "Adjacency", "Attribute", "Guarantee", "Neighbouring", "Records", "VectorAdjacency",
    "adjacency_from_dict", "attribute", "compose", "l2",
]  # fmt: skip
