"""The explorer: a page on which an epsilon is dragged, and recall and exposure follow."""

from dpindex.evaluate.explorer.explore import explore
from dpindex.evaluate.explorer.page import Shown, write_page
from dpindex.evaluate.explorer.samples import View, view

__all__ = ["Shown", "View", "explore", "view", "write_page"]
