"""RACE: one private sketch for questions about a whole collection (Coleman & Shrivastava 2020).

:class:`RaceSketch` counts, is released once, and answers kernel sums for ever. On top of it stand
estimators that follow scikit-learn (``pip install 'dpindex[eval]'``) and two explorers;
:func:`verify_sketch` checks a sketch's guarantee in exact integers.
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
    from dpindex.race.verify import verify_sketch

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
    "verify_sketch",
]

# Only the estimators need scikit-learn, and only the verifier the audit: imported when first named.
_LATER = dict.fromkeys(
    ("RaceClassifier", "RaceDensity", "RaceOutliers", "RaceRegressor"), "dpindex.race.tasks"
) | {"verify_sketch": "dpindex.race.verify"}


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(import_module(_LATER[name]), name)
    raise AttributeError(f"module 'dpindex.race' has no attribute {name!r}")
