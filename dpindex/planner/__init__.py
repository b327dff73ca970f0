"""Predicted retrieval quality by method and epsilon, from public knowledge alone."""

from dpindex.planner.codebook_fit import fit_codebook
from dpindex.planner.collection_model import Facts
from dpindex.planner.plan_result import Choice, Found, Plan, Row, names_of
from dpindex.planner.planner import plan
from dpindex.planner.plot import plan_png

__all__ = [
    "Choice", "Facts", "Found", "Plan", "Row", "fit_codebook", "names_of", "plan", "plan_png",
]  # fmt: skip
