"""Measured retrieval quality by epsilon: exact neighbours, curves, charts, and a report."""

from dpindex.evaluate.curve import MEASURES, Curve, Point, Run, SpecGrid, recall_curve, spec_grid
from dpindex.evaluate.demo import DemoResult, run_demo
from dpindex.evaluate.explorer import explore
from dpindex.evaluate.ground_truth import GroundTruth, ground_truth
from dpindex.evaluate.image_attack import image_attack
from dpindex.evaluate.inversion import invert
from dpindex.evaluate.report import Picture, require_matplotlib, write_curve
from dpindex.evaluate.text_attack import TextAttack, text_attack

__all__ = [
    "MEASURES", "Curve", "DemoResult", "GroundTruth", "Picture", "Point", "Run", "SpecGrid",
    "TextAttack", "explore", "ground_truth", "image_attack", "invert", "recall_curve",
    "require_matplotlib",
    "run_demo", "spec_grid", "text_attack", "write_curve",
]  # fmt: skip
