"""Measured retrieval quality by epsilon: exact neighbours, curves, charts, and a report."""

from dpindex.evaluate.curve import MEASURES, Curve, Point, Run, recall_curve
from dpindex.evaluate.demo import DemoResult, run_demo
from dpindex.evaluate.ground_truth import GroundTruth, ground_truth
from dpindex.evaluate.inversion import invert
from dpindex.evaluate.report import Picture, require_matplotlib, write_curve
from dpindex.evaluate.spec_grid import SpecGrid, spec_grid

__all__ = [
    "MEASURES", "Curve", "DemoResult", "GroundTruth", "Picture", "Point", "Run", "SpecGrid",
    "ground_truth", "invert", "recall_curve", "require_matplotlib", "run_demo", "spec_grid",
    "write_curve",
]  # fmt: skip
