"""How much recall an epsilon buys: exact neighbours, curves, pictures and a report to mail."""

from __future__ import annotations

from dpindex.evaluate.curve import MEASURES, Curve, Point, Run
from dpindex.evaluate.demo import DemoResult, run_demo
from dpindex.evaluate.files import write_curve
from dpindex.evaluate.ground_truth import GroundTruth, ground_truth
from dpindex.evaluate.inversion import invert
from dpindex.evaluate.measure import recall_curve
from dpindex.evaluate.plots import require_matplotlib
from dpindex.evaluate.report import Picture
from dpindex.evaluate.specs import SpecGrid, spec_grid

__all__ = [
    "MEASURES",
    "Curve",
    "DemoResult",
    "GroundTruth",
    "Picture",
    "Point",
    "Run",
    "SpecGrid",
    "ground_truth",
    "invert",
    "recall_curve",
    "require_matplotlib",
    "run_demo",
    "spec_grid",
    "write_curve",
]
