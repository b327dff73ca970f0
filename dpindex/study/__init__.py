"""How good private indexes are, and what they reveal: the evaluator, attacks, and a report."""

from __future__ import annotations

from dpindex.study.attacks import Attack, Labels, attack_panel
from dpindex.study.curve import MEASURES, Curve, Point, Run
from dpindex.study.demo import DemoResult, load_digits, run_demo
from dpindex.study.evaluation import evaluate
from dpindex.study.examples import Examples, TextGuess, text_attack
from dpindex.study.explorer import Shown
from dpindex.study.reconstruction import invert
from dpindex.study.report import Additions, require_libraries, write_report
from dpindex.study.specs import SpecGrid, spec_grid
from dpindex.study.truth import GroundTruth, ground_truth

__all__ = [
    "MEASURES",
    "Additions",
    "Attack",
    "Curve",
    "DemoResult",
    "Examples",
    "GroundTruth",
    "Labels",
    "Point",
    "Run",
    "Shown",
    "SpecGrid",
    "TextGuess",
    "attack_panel",
    "evaluate",
    "ground_truth",
    "invert",
    "load_digits",
    "require_libraries",
    "run_demo",
    "spec_grid",
    "text_attack",
    "write_report",
]
