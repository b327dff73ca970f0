"""How good private indexes are, and what they give away: the evaluator, attacks, and a report."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpindex.study.attacks import Attack, Labels, attack_panel
    from dpindex.study.curve import MEASURES, Curve, Point, Run
    from dpindex.study.demo import DemoResult, run_demo
    from dpindex.study.evaluation import evaluate
    from dpindex.study.examples import Examples, TextGuess, text_attack
    from dpindex.study.explorer import Shown
    from dpindex.study.reconstruction import invert
    from dpindex.study.report import Additions, require_libraries, write_report
    from dpindex.study.specs import SpecGrid, spec_grid
    from dpindex.study.truth import GroundTruth, ground_truth

__all__ = [
    "MEASURES", "Additions", "Attack", "Curve", "DemoResult", "Examples", "GroundTruth", "Labels",
    "Point", "Run", "Shown", "SpecGrid", "TextGuess", "attack_panel", "evaluate", "ground_truth",
    "invert", "require_libraries", "run_demo", "spec_grid", "text_attack", "write_report",
]  # fmt: skip

# Imported when first used: `dpindex info` needs a bound of this room, and no search engine.
_HOME = {
    "attacks": ["Attack", "Labels", "attack_panel"],
    "curve": ["MEASURES", "Curve", "Point", "Run"],
    "demo": ["DemoResult", "run_demo"],
    "evaluation": ["evaluate"],
    "examples": ["Examples", "TextGuess", "text_attack"],
    "explorer": ["Shown"],
    "truth": ["GroundTruth", "ground_truth"],
    "reconstruction": ["invert"],
    "report": ["Additions", "require_libraries", "write_report"],
    "specs": ["SpecGrid", "spec_grid"],
}
_MODULES = {name: f"dpindex.study.{home}" for home, names in _HOME.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'dpindex.study' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
