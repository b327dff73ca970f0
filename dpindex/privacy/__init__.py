"""What is promised: adjacency and guarantee."""

from dpindex.privacy.adjacency import L2, Adjacency, Attribute, adjacency_from_json, attribute, l2
from dpindex.privacy.guarantee import Guarantee, compose

__all__ = [
    "L2",
    "Adjacency",
    "Attribute",
    "Guarantee",
    "adjacency_from_json",
    "attribute",
    "compose",
    "l2",
]
