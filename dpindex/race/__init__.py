"""RACE: one private sketch for questions about a whole collection (Coleman & Shrivastava 2020).

:class:`RaceSketch` counts, is released once, and answers kernel sums for ever. On top of it stand
estimators that follow scikit-learn (``pip install 'dpindex[eval]'``) and two explorers.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dpindex.race.explore import Modes, diversity_sample, find_modes
from dpindex.race.hashes import L2, SRP, Hash, PairedSRP, kernel_sum
from dpindex.race.sketch import RaceSketch
from dpindex.race.spec import SketchGuarantee, SketchSpec
from dpindex.race.theory import error_bound, optimal_rows

if TYPE_CHECKING:
    from dpindex.race.tasks import RaceClassifier, RaceDensity, RaceOutliers, RaceRegressor

__all__ = [
    "L2",
    "SRP",
    "Hash",
    "Modes",
    "PairedSRP",
    "RaceClassifier",
    "RaceDensity",
    "RaceOutliers",
    "RaceRegressor",
    "RaceSketch",
    "SketchGuarantee",
    "SketchSpec",
    "diversity_sample",
    "error_bound",
    "find_modes",
    "kernel_sum",
    "optimal_rows",
]

# Only the estimators need scikit-learn, so it is imported when one of them is first named.
_TASKS = {"RaceClassifier", "RaceDensity", "RaceOutliers", "RaceRegressor"}


def __getattr__(name: str) -> Any:
    if name in _TASKS:
        return getattr(import_module("dpindex.race.tasks"), name)
    raise AttributeError(f"module 'dpindex.race' has no attribute {name!r}")
