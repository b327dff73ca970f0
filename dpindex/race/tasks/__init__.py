"""Estimators over released sketches, in the conventions of scikit-learn."""

from __future__ import annotations

try:
    import sklearn  # noqa: F401
except ImportError as error:
    raise ImportError(
        "the estimators of dpindex.race need scikit-learn; run pip install 'dpindex[eval]'."
    ) from error

from dpindex.race.tasks.classifier import RaceClassifier
from dpindex.race.tasks.density import RaceDensity, RaceOutliers
from dpindex.race.tasks.regressor import RaceRegressor

__all__ = ["RaceClassifier", "RaceDensity", "RaceOutliers", "RaceRegressor"]
