"""The page of a report, on which an epsilon is dragged and recall and exposure follow."""

from dpindex.study.evaluate.explorer.measured import measured_views
from dpindex.study.evaluate.explorer.samples import Examples, View
from dpindex.study.evaluate.explorer.shown import Shown

__all__ = ["Examples", "Shown", "View", "measured_views"]
