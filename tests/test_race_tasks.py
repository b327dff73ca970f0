"""The estimators over sketches: what they find, and scikit-learn's conventions."""

from __future__ import annotations

import math
import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy import sparse, stats
from streams import Seeded

from dpindex.base.errors import InputError, QualityWarning
from dpindex.race import (
    SRP,
    PairedSRP,
    PStable,
    RaceSketch,
    SketchSpec,
    diversity_sample,
    find_modes,
    kernel_sum,
)

sklearn = pytest.importorskip("sklearn")

from sklearn.base import clone  # noqa: E402
from sklearn.exceptions import NotFittedError  # noqa: E402
from sklearn.model_selection import cross_val_score  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import FunctionTransformer  # noqa: E402
from sklearn.utils import estimator_checks  # noqa: E402
from sklearn.utils.estimator_checks import check_estimator  # noqa: E402

from dpindex.race import (  # noqa: E402
    RaceClassifier,
    RaceDensity,
    RaceOutliers,
    RaceRegressor,
)

Array = npt.NDArray[np.float64]


pytestmark = pytest.mark.usefixtures("known_noise")


def blobs(n: int = 3000, seed: int = 0) -> tuple[Array, npt.NDArray[np.str_]]:
    """Two clusters, three quarters and one quarter of the records."""
    rng = np.random.default_rng(seed)
    y = np.where(rng.random(n) < 0.75, "many", "few")
    x = rng.normal(size=(n, 2)) + np.where(y == "many", -2.0, 2.0)[:, None]
    return x, y


LABELS = ("few", "many")


class ClassesOfData(RaceClassifier):
    """Not private: scikit-learn's checks state no classes."""

    def _public_classes(self, labels: Any) -> Any:
        return labels


def line(n: int = 4000, seed: int = 0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    x = rng.uniform([0, 10], [1, 30], (n, 2))
    return x, 5.0 + 4.0 * x[:, 0] - 0.3 * x[:, 1] + rng.normal(0, 0.2, n)


ESTIMATORS: list[Any] = [
    RaceDensity(PStable(2.0), rows=50, width=100, epsilon=8.0),
    RaceOutliers(PStable(2.0, 2), rows=50, width=100, epsilon=8.0),
    RaceClassifier(PStable(2.0), classes=LABELS, rows=50, width=100, epsilon=8.0),
    RaceRegressor(bounds_x=(-6.0, 6.0), rows=2000, epsilon=8.0, delta=1e-6),
]


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)
def test_conventions(estimator: Any) -> None:
    x, labels = blobs()
    y = x[:, 0] / 9 if isinstance(estimator, RaceRegressor) else labels
    model = clone(estimator)
    assert model.get_params() == estimator.get_params()
    for ask in (lambda: model.guarantee_, lambda: probe(model, x)):
        with pytest.raises(NotFittedError):
            ask()
    assert model.fit(x, y) is model
    assert model.n_features_in_ == 2
    assert probe(model, x[:7]).shape == (7,)
    assert "records(add-remove)" in str(model.guarantee_)
    assert model.guarantee_.epsilon == 8.0
    again = pickle.loads(pickle.dumps(model))
    assert (probe(again, x[:7]) == probe(model, x[:7])).all()
    assert not hasattr(clone(model), "n_features_in_")
    assert type(model).__name__ in repr(model)
    for bad in (x[:, :1], np.full((3, 2), np.nan), x[0]):
        with pytest.raises(ValueError, match=r"features|NaN|1D"):
            clone(estimator).fit(bad, y[: len(bad)]) if bad.ndim == 1 else probe(model, bad)
    with pytest.raises(InputError):
        clone(estimator).set_params(epsilon=-1).fit(x, y)


@pytest.mark.slow
@pytest.mark.parametrize(
    "estimator",
    [
        RaceDensity(PStable(2.0), rows=20, width=50, epsilon=60.0),
        RaceOutliers(PStable(2.0), fraction=1.0, rows=20, width=50, epsilon=60.0),
        ClassesOfData(PStable(2.0, 2), rows=50, width=100, epsilon=60.0),
        RaceRegressor(rows=1000, epsilon=60.0, delta=1e-6),
    ],
    ids=lambda e: type(e).__name__,
)
@pytest.mark.filterwarnings("ignore")
def test_check_estimator(estimator: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of scikit-learn's checks, each fit with the same noise so that fits can be compared."""
    monkeypatch.setattr("dpindex.race.sketch.secret_stream", lambda: Seeded(0))
    check_estimator(estimator, on_skip=None)


@pytest.mark.slow
@pytest.mark.parametrize(
    "estimator",
    [RaceDensity(), RaceOutliers(), RaceClassifier(classes=range(4)), RaceRegressor()],
    ids=lambda e: type(e).__name__,
)
@pytest.mark.filterwarnings("ignore")
def test_checks_that_fail_are_listed_with_their_reason(estimator: Any) -> None:
    """With default parameters and fresh noise; nothing else fails in any version installed."""
    expected = estimator.expected_failed_checks
    results = check_estimator(estimator, expected_failed_checks=expected, on_fail=None)
    assert {result["check_name"] for result in results if result["status"] == "failed"} == set()
    assert len(results) > 30
    for name, reason in expected.items():
        assert hasattr(estimator_checks, name), name
        assert len(reason) > 20


def probe(model: Any, x: Any) -> Any:
    return model.predict(x) if hasattr(model, "predict") else model.score_samples(x)


def test_density() -> None:
    x, _ = blobs()
    model = RaceDensity(PStable(2.0), rows=200, width=200, epsilon=8.0).fit(x)
    grid = np.array([[-2.0, -2.0], [2.0, 2.0], [0.0, 0.0]])
    truth = kernel_sum(PStable(2.0), x, grid) / len(x)
    assert np.exp(model.score_samples(grid)) == pytest.approx(truth, rel=0.2)
    far = model.score_samples(np.full((50, 2), 1e3))
    assert np.isfinite(far).all()  # below half a record the noise is cut off
    assert model.score(grid) == pytest.approx(model.score_samples(grid).sum())
    pipe = make_pipeline(FunctionTransformer(np.negative), model).fit(x)
    assert pipe.score_samples(-grid)[0] < pipe.score_samples(grid)[0] + 9


def test_outliers() -> None:
    x, _ = blobs()
    model = RaceOutliers(PStable(2.0, 2), rows=200, width=500, epsilon=8.0).fit(x)
    assert (model.predict(x) == 1).mean() > 0.9
    assert (model.predict(np.random.default_rng(0).uniform(20, 90, (100, 2))) == -1).all()
    scores = model.decision_function(x[:9])
    assert scores == pytest.approx(model.score_samples(x[:9]) - model.offset_)
    with pytest.raises(InputError, match="fraction"):
        RaceOutliers(fraction=0).fit(x)


@pytest.mark.parametrize("rule", ["ml", "map"])
@pytest.mark.parametrize("hash", [PStable(1.5, 2), SRP(6)], ids=str)
def test_classifier(rule: Any, hash: Any) -> None:
    x, y = blobs()
    model = RaceClassifier(hash, rule=rule, rows=100, width=64, epsilon=8.0, classes=LABELS)
    model.fit(x, y)
    unseen, truth = blobs(seed=1)
    assert model.classes_.tolist() == ["few", "many"]
    assert model.score(unseen, truth) > 0.95
    shares = model.predict_proba(unseen[:5])
    assert shares.sum(axis=1) == pytest.approx(1)
    assert model.predict_log_proba(unseen[:5]) == pytest.approx(np.log(shares))
    from_sparse = clone(model).fit(sparse.csr_matrix(x), y)
    assert from_sparse.score(sparse.csr_matrix(unseen), truth) > 0.95


@pytest.mark.filterwarnings("ignore:Records of class few will mostly be called many")
def test_map_weighs_classes() -> None:
    """Where the likelihoods are equal, the class with three times the records wins by three."""
    x, y = blobs(20_000)
    options: dict[str, Any] = {"hash": PStable(8.0), "rows": 100, "epsilon": 20.0}
    options["classes"] = LABELS
    ratio = [
        (lambda p: p[0, 1] / p[0, 0])(
            RaceClassifier(rule=rule, **options).fit(x, y).predict_proba([[0, 0]])
        )
        for rule in ("ml", "map")
    ]
    assert ratio == pytest.approx([1, 3], rel=0.2)


def test_parallel_composition() -> None:
    """Each class has the whole epsilon, and a record is in one sketch only."""
    x, y = blobs()
    model = RaceClassifier(PStable(2.0), rows=50, epsilon=3.0, classes=LABELS).fit(x, y)
    assert [sketch.spec.epsilon for sketch in model.sketches_] == [3.0, 3.0]
    sizes = [sketch.size for sketch in model.sketches_]
    # A standard deviation of √(2·50·1000)/3 = 105.
    assert sizes == pytest.approx([(y == c).sum() for c in ("few", "many")], abs=700)
    assert len({sketch.spec for sketch in model.sketches_}) == 1


def test_public_classes() -> None:
    x, y = blobs()
    model = RaceClassifier(PStable(2.0), rows=50, classes=["none", "many", "few"])
    with pytest.warns(QualityWarning, match="Class none has too few records"):
        model.fit(x, y)
    assert model.classes_.tolist() == ["few", "many", "none"]
    assert abs(model.sketches_[2].size) < 2500  # an empty class is noise alone
    with pytest.raises(InputError, match="not in classes"):
        RaceClassifier(classes=["many"]).fit(x, y)
    with pytest.raises(InputError, match="rule must be"):
        RaceClassifier(rule="mode").fit(x, y)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        RaceClassifier().fit(x, y[:-1])


def test_finding_10_classes_are_stated_and_never_read_from_the_data() -> None:
    """One record more, of a class of its own, would be seen in ``classes_``."""
    x, y = blobs(50)
    with pytest.raises(InputError, match="needs classes: the labels, which are published"):
        RaceClassifier(PStable(2.0)).fit(x, y)
    alone = RaceClassifier(PStable(2.0), rows=50, classes=LABELS)
    with pytest.warns(QualityWarning):
        alone.fit(x, np.full(50, "many"))
    assert alone.classes_.tolist() == ["few", "many"]


def test_cross_validation() -> None:
    x, y = blobs()
    model = RaceClassifier(PStable(2.0), rows=50, epsilon=8.0, classes=LABELS)
    scores = cross_val_score(model, x, y, cv=3)
    assert scores.min() > 0.9


PUBLIC: dict[str, Any] = {"bounds_x": ([0, 10], [1, 30]), "bounds_y": (-5.0, 8.0)}


@pytest.mark.slow
def test_regressor_finds_the_line() -> None:
    x, y = line(10_000)
    model = RaceRegressor(rows=10_000, epsilon=4.0, delta=1e-6, **PUBLIC).fit(x, y)
    assert model.score(*line(seed=1)) > 0.8
    assert model.coef_ == pytest.approx([4.0, -0.3], rel=0.35)
    pure = RaceRegressor(rows=2000, epsilon=4.0, **PUBLIC).fit(x, y)
    assert pure.score(*line(seed=1)) > 0.6


@pytest.mark.slow
def test_published_solver_on_an_easy_line() -> None:
    """The step function still finds a slope when rows are many and residuals vary widely."""
    x = np.random.default_rng(0).uniform(-1, 1, (10_000, 1))
    model = RaceRegressor(rows=10_000, epsilon=20.0, delta=1e-6, solver="surrogate")
    model.fit(x, x[:, 0])
    assert 0.5 < model.coef_[0] < 2


def test_regression_costs_one_count_a_row() -> None:
    """A record's z and −z share one column, so the sensitivity is R and not 2R."""
    model = RaceRegressor(rows=100, epsilon=2.0, **PUBLIC)
    with pytest.warns(QualityWarning, match="no slope stands out"):
        model.fit(*line(50))
    spec = model.sketch_.spec
    assert spec.hash == PairedSRP(2)
    assert spec.columns == 2
    assert model.sketch_.noise_variance == pytest.approx(2 * (100 / 2) ** 2, rel=1e-3)


@pytest.mark.parametrize(
    "options",
    [
        {"solver": "newton"},
        {"bounds_x": (1.0, 1.0)},
        {"bounds_x": (0.0, math.inf)},
        {"bounds_x": ([0, 0, 0], [1, 1, 1])},
        {"bounds_x": 3.0},
        {"bounds_y": ("a", "b")},
        {"bounds_y": (1, 0)},
    ],
    ids=str,
)
def test_bad_regression(options: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        RaceRegressor(**options).fit(*line(50))
    with pytest.raises(TypeError, match="dense"):
        RaceRegressor().fit(sparse.csr_matrix(np.eye(3)), np.zeros(3))


# Modes and diversity.


def three() -> tuple[RaceSketch, Array]:
    rng = np.random.default_rng(0)
    centres = np.array([[1.0, 1.0], [8.0, 2.0], [4.0, 8.0]])
    x = np.concatenate(
        [c + rng.normal(0, 0.4, (n, 2)) for c, n in zip(centres, (6000, 3000, 1000), strict=True)]
    )
    return RaceSketch(SketchSpec(2, 300, 500, PStable(1.5, 2), 8.0)).fit(x).release(), centres


@pytest.mark.slow
def test_modes() -> None:
    sketch, centres = three()
    found = find_modes(sketch, (0, 10), modes=3, separation=2.0)
    assert np.linalg.norm(found.points - centres, axis=1).max() < 0.8
    assert (np.diff(found.density) < 0).all()
    assert (find_modes(sketch, (0, 10), modes=3, separation=2.0).points == found.points).all()
    narrow = find_modes(sketch, ([3, 7], [5, 9]))
    assert np.linalg.norm(narrow.points[0] - centres[2]) < 0.8
    assert (narrow.points >= [3, 7]).all()
    assert (narrow.points <= [5, 9]).all()
    for wrong in ({"bounds": (1, 0)}, {"modes": 0}, {"starts": 0}, {"separation": -1.0}):
        with pytest.raises(InputError):
            find_modes(sketch, **{"bounds": (0, 10), **wrong})


def test_diversity_sample_evens_out() -> None:
    """Of a pool with clusters of 6000, 3000 and 1000 records, each cluster gets about a third.

    Chi-square with the exact shares of a third; false alarm 1e-6. A plain sample fails.
    """
    sketch, centres = three()
    rng = np.random.default_rng(1)
    which = rng.choice(3, 10_000, p=[0.6, 0.3, 0.1])
    pool = centres[which] + rng.normal(0, 0.1, (10_000, 2))
    picked = diversity_sample(sketch, pool, 300)
    assert len(set(picked.tolist())) == 300
    counts = np.bincount(which[picked], minlength=3)
    assert stats.chisquare(counts).pvalue > 1e-6
    assert stats.chisquare(np.bincount(which[:300], minlength=3)).pvalue < 1e-6
    assert (diversity_sample(sketch, pool, 300, seed=1) != picked).any()
    with pytest.raises(InputError, match="size"):
        diversity_sample(sketch, pool, 10_001)


@pytest.mark.slow
def test_only_the_estimators_need_scikit_learn() -> None:
    """Without it sketches work, and naming an estimator says what to install."""
    code = (
        "import sys; sys.modules['sklearn'] = None\n"
        "import dpindex.race as race\n"
        "race.RaceSketch(race.SketchSpec(2, 3, 4, race.SRP(2), 1.0))\n"
        "try:\n    race.RaceDensity\n"
        "except ImportError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install scikit-learn" in done.stdout
