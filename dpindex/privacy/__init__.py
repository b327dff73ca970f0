"""Privacy: adjacency and guarantee."""

from dpindex.privacy.adjacency import (
    L2,
    Adjacency,
    Attribute,
    Group,
    Neighbouring,
    Record,
    Records,
    VectorAdjacency,
    adjacency_from_dict,
    attribute,
    l2,
    record,
)
from dpindex.privacy.guarantee import Guarantee

__all__ = [
    "L2", "Adjacency", "Attribute", "Group", "Guarantee", "Neighbouring", "Record",
    "Records", "VectorAdjacency", "adjacency_from_dict", "attribute", "l2", "record",
]  # fmt: skip
