"""What an epsilon will buy, before it is spent: predictions from public knowledge alone."""

from dpindex.planner.facts import Facts
from dpindex.planner.planner import plan
from dpindex.planner.result import Choice, Plan, Row

__all__ = ["Choice", "Facts", "Plan", "Row", "plan"]
