"""Measured retrieval quality by epsilon: exact neighbours, curves, charts, and a report."""

from dpindex.study.evaluate.curve import (
    MEASURES,
    Curve,
    Point,
    Run,
    SpecGrid,
    recall_curve,
    spec_grid,
)
from dpindex.study.evaluate.demo import DemoResult, run_demo
from dpindex.study.evaluate.explorer import explore
from dpindex.study.evaluate.ground_truth import GroundTruth, ground_truth
from dpindex.study.evaluate.image_attack import image_attack
from dpindex.study.evaluate.inversion import invert
from dpindex.study.evaluate.report import Picture, require_matplotlib, write_curve
from dpindex.study.evaluate.text_attack import TextAttack, text_attack

__all__ = [
    "MEASURES", "Curve", "DemoResult", "GroundTruth", "Picture", "Point", "Run", "SpecGrid",
    "TextAttack", "explore", "ground_truth", "image_attack", "invert", "recall_curve",
    "require_matplotlib",
    "run_demo", "spec_grid", "text_attack", "write_curve",
]  # fmt: skip
