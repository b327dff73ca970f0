"""Predicted retrieval quality by method and epsilon, from public knowledge alone."""

from dpindex.study.planner.codebook_fit import fit_codebook
from dpindex.study.planner.plan_result import Found, Measure, Plan, Row
from dpindex.study.planner.planner import plan
from dpindex.study.planner.plot import plan_png
from dpindex.study.planner.public_sample import Facts

__all__ = [
    "Facts", "Found", "Measure", "Plan", "Row", "fit_codebook", "plan", "plan_png",
]  # fmt: skip
