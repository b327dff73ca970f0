"""Predicted retrieval quality by method and epsilon, from trials on public vectors."""

from dpindex.study.planner.codebook_plan import fit_codebook
from dpindex.study.planner.plan_result import Found, Measure, Plan, Row, plan_png
from dpindex.study.planner.planner import plan

__all__ = ["Found", "Measure", "Plan", "Row", "fit_codebook", "plan", "plan_png"]
