"""Predicted retrieval quality by method and epsilon, from public knowledge alone."""

from dpindex.planner.codebook_fit import fit_codebook
from dpindex.planner.collection_model import Facts
from dpindex.planner.plan_result import Choice, Plan, Row
from dpindex.planner.planner import plan

__all__ = ["Choice", "Facts", "Plan", "Row", "fit_codebook", "plan"]
