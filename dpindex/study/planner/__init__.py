"""Predicted retrieval quality by method and epsilon, from trials on public vectors."""

from dpindex.study.planner.plan_result import Plan, plan_png
from dpindex.study.planner.planner import plan
from dpindex.study.planner.sample import fit_codebook
from dpindex.study.planner.target import Found, Measure, Row

__all__ = ["Found", "Measure", "Plan", "Row", "fit_codebook", "plan", "plan_png"]
