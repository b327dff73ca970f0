"""RACE: one private sketch for questions about a whole collection (Coleman & Shrivastava 2020).

A :class:`RaceSketch` counts records, is released once, and then answers any number of kernel sums.
Estimators that follow scikit-learn (``pip install scikit-learn``) and two explorers are built on
it; :func:`dpindex.audit.verify` checks a sketch's guarantee in exact integers.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dpindex.race.explore import Modes, diversity_sample, find_modes
from dpindex.race.hashes import SRP, Hash, PairedSRP, PStable, kernel_sum
from dpindex.race.sketch import RaceSketch
from dpindex.race.spec import SketchSpec, error_bound, optimal_rows

if TYPE_CHECKING:
    from dpindex.race.tasks import RaceClassifier, RaceDensity, RaceOutliers, RaceRegressor

__all__ = [
    "SRP",
    "Hash",
    "Modes",
    "PStable",
    "PairedSRP",
    "RaceClassifier",
    "RaceDensity",
    "RaceOutliers",
    "RaceRegressor",
    "RaceSketch",
    "SketchSpec",
    "diversity_sample",
    "error_bound",
    "find_modes",
    "kernel_sum",
    "optimal_rows",
]


def __getattr__(name: str) -> Any:
    if name in __all__:  # an estimator: only they need scikit-learn
        return getattr(import_module("dpindex.race.tasks"), name)
    raise AttributeError(f"module 'dpindex.race' has no attribute {name!r}")
