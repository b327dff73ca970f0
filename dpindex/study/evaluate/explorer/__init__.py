"""The explorer: a page on which an epsilon is dragged, and recall and exposure follow."""

from dpindex.study.evaluate.explorer.measured import check_range, explore, measured_views
from dpindex.study.evaluate.explorer.page import Shown, require_libraries, write_page
from dpindex.study.evaluate.explorer.samples import View, view

__all__ = [
    "Shown",
    "View",
    "check_range",
    "explore",
    "measured_views",
    "require_libraries",
    "view",
    "write_page",
]
