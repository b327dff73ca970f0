"""Measured retrieval quality by epsilon: exact neighbours, curves, charts, and a report."""

from dpindex.study.attacks.panel import Attack, Labels, attack_panel
from dpindex.study.evaluate.curve import MEASURES, Curve, Point, Run
from dpindex.study.evaluate.demo import DemoResult, run_demo
from dpindex.study.evaluate.evaluation import recall_curve
from dpindex.study.evaluate.explorer import Examples, Shown, View, measured_views
from dpindex.study.evaluate.explorer.page import Additions, Picture
from dpindex.study.evaluate.grid import SpecGrid, spec_grid
from dpindex.study.evaluate.ground_truth import GroundTruth, ground_truth
from dpindex.study.evaluate.image_attack import image_attack
from dpindex.study.evaluate.report import require_libraries, write_report
from dpindex.study.evaluate.text_attack import TextAttack, text_attack
from dpindex.study.measure_options import MeasureOptions
from dpindex.study.reconstruction import invert

__all__ = [
    "MEASURES", "Additions", "Attack", "Curve", "DemoResult", "Examples", "GroundTruth", "Labels",
    "MeasureOptions", "Picture", "Point", "Run", "Shown", "SpecGrid", "TextAttack", "View",
    "attack_panel", "ground_truth", "image_attack", "invert", "measured_views", "recall_curve",
    "require_libraries", "run_demo", "spec_grid", "text_attack", "write_report",
]  # fmt: skip
