"""Warnings of sketches that cannot answer: each failure is made, named, and mended as advised."""

from __future__ import annotations

import tracemalloc
import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from dpindex.base.errors import QualityWarning
from dpindex.race import SRP, Hash, PairedSRP, PStable, RaceSketch, SketchSpec, kernel_sum
from dpindex.race.diagnosis import classes_blur, line_blurs, noise_drowns, outliers_blur
from dpindex.race.moments import SignPairs

pytest.importorskip("sklearn")

from dpindex.race import RaceClassifier, RaceDensity, RaceOutliers, RaceRegressor
from dpindex.race.tasks import _moments

Array = npt.NDArray[np.float64]

pytestmark = pytest.mark.usefixtures("known_noise")


def normal(n: int = 5000, dim: int = 2, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=(n, dim))


def quarter(seed: int = 0) -> tuple[Array, npt.NDArray[np.bool_]]:
    """Three attributes; a quarter of the records is where the first one is large."""
    x = normal(5000, 3, seed)
    return x, x[:, 0] > 0.6745


def line(seed: int = 0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (5000, 2))
    return x, 120.0 + 5.0 * x[:, 0] - 3.0 * x[:, 1] + rng.normal(0, 1, 5000)


def fitted(model: Any, *data: Any) -> tuple[Any, list[str]]:
    """The fitted estimator and what it warned of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(*data)
    assert all(warning.category is QualityWarning for warning in caught)
    assert all(warning.filename == __file__ for warning in caught)  # it points at the caller
    return model, [str(warning.message) for warning in caught]


@pytest.mark.parametrize(
    ("hash", "width"), [(PStable(2.0, 2), 64), (SRP(4), None), (SRP(9), 64)], ids=str
)
def test_pairs_are_kernel_sums(hash: Hash, width: int | None) -> None:
    """Against the exact sum over all pairs, of a collection with itself and with another one."""
    x, y = normal(800), normal(600, seed=1) + 1.0
    spec = SketchSpec(2, 1000, width, hash, epsilon=20.0)
    mine, theirs = (RaceSketch(spec).fit(part).release() for part in (x, y))
    for estimates, truth in (
        (mine.pairs(mine), kernel_sum(hash, x, x).sum()),
        (mine.pairs(theirs), kernel_sum(hash, x, y).sum()),
    ):
        assert estimates.shape == (1000,)
        error = estimates.std() / np.sqrt(1000)
        assert abs(estimates.mean() - truth) < 5 * error
        assert error < 0.05 * truth


def test_pairs_of_no_records_are_noise_around_zero() -> None:
    """The square of the noise is taken away; without that the mean would be 64 · 2 · 500²."""
    empty = RaceSketch(SketchSpec(2, 500, 64, PStable(1.0), epsilon=1.0)).release()
    estimates = empty.pairs(empty)
    assert abs(estimates.mean()) < 5 * estimates.std() / np.sqrt(500)
    assert noise_drowns(empty)


@pytest.mark.slow
def test_outliers_that_drown_in_noise() -> None:
    """A thousand rows and columns at epsilon 1: what is flagged is chance, and it says so."""
    x, far = normal(), np.random.default_rng(1).uniform(20, 90, (200, 2))
    model, said = fitted(RaceOutliers(rows=1000, width=1000), x)
    assert len(said) == 1
    assert said[0].startswith("Noise may drown the answers")
    for remedy in ("larger epsilon", "fewer rows or columns", "delta", "larger bandwidth"):
        assert remedy in said[0]
    for better in (RaceOutliers(rows=100), RaceOutliers(), RaceOutliers(rows=1000, delta=1e-6)):
        model, said = fitted(better, x)
        assert not said
        assert (model.predict(far) == -1).mean() > 0.9
        assert (model.predict(x) == 1).mean() > 0.9


@pytest.mark.parametrize("epsilon", [1.0, 8.0, 64.0])
def test_outliers_that_flag_nothing_at_any_epsilon(epsilon: float) -> None:
    """One hash, or a bandwidth wider than the data, is dense everywhere."""
    x, far = normal(), normal(200, seed=1) * 0.1 + 4.0
    for hash in (PStable(2.0), PStable(50.0, 2)):
        model, said = fitted(RaceOutliers(hash, rows=100, epsilon=epsilon), x)
        assert (model.predict(far) == -1).mean() < 0.01
        assert len(said) == 1
        assert "kernel is too wide" in said[0]
        assert "more hashes or a smaller bandwidth, or a larger fraction" in said[0]
    model, said = fitted(RaceOutliers(PStable(2.0, 3), rows=100, epsilon=epsilon), x)
    assert not said
    assert (model.predict(far) == -1).mean() > 0.9


def test_outliers_by_angle() -> None:
    """Two signs leave a quarter of the density at a right angle, where nobody looks further."""
    x = normal(dim=8) * 0.2 + 1.0
    model, said = fitted(RaceOutliers(SRP(2), rows=100, epsilon=8.0), x)
    assert len(said) == 1
    assert "at a right angle to every record" in said[0]
    assert "more bits" in said[0]
    away = np.tile([1.0, -1.0], (20, 4))
    assert (model.predict(away) == 1).all()
    model, said = fitted(RaceOutliers(SRP(8), rows=100, epsilon=8.0), x)
    assert not said
    assert (model.predict(away) == -1).all()


def test_a_threshold_below_the_noise() -> None:
    _, said = fitted(RaceOutliers(PStable(1.0, 4), fraction=0.02), normal())
    assert len(said) == 1
    assert "as large as the threshold" in said[0]
    _, said = fitted(RaceOutliers(PStable(1.0, 4), fraction=0.5), normal())
    assert not said


def test_density_of_records_far_apart() -> None:
    """Attributes in other units than the bandwidth: no record is near another."""
    _, said = fitted(RaceDensity(PStable(1.0), epsilon=8.0), normal() * 1000)
    assert len(said) == 1
    assert said[0].startswith("Noise drowns the answers")
    assert "larger bandwidth" in said[0]
    _, said = fitted(RaceDensity(PStable(1000.0)), normal() * 1000)
    assert not said


def test_a_record_is_no_neighbour_of_its_own() -> None:
    """With hardly any noise each record finds itself, and a new one finds nothing."""
    model, said = fitted(RaceOutliers(rows=1000, epsilon=64.0, delta=1e-6), normal() * 1e5)
    assert model.sketch_.count_noise < 0.2
    assert len(said) == 1
    assert said[0].startswith("Noise drowns the answers")


def test_a_classifier_that_predicts_the_majority() -> None:
    """Counts weigh classes by size, and a wide kernel lets the larger one win everywhere."""
    x, y = quarter()
    unseen, truth = quarter(seed=1)
    stated: dict[str, Any] = {"classes": [False, True], "epsilon": 2.0}
    model, said = fitted(RaceClassifier(PStable(2.0), rule="map", **stated), x, y)
    assert model.score(unseen, truth) == pytest.approx((~truth).mean(), abs=0.01)
    assert len(said) == 1
    assert "Records of class True will mostly be called False" in said[0]
    assert "rule='ml'" in said[0]
    model, said = fitted(RaceClassifier(PStable(2.0), **stated), x, y)
    assert not said
    assert model.score(unseen, truth) > 0.88
    assert model.predict(unseen[truth]).mean() > 0.85


def test_a_classifier_that_noise_decides() -> None:
    x, y = quarter()
    _, said = fitted(RaceClassifier(PStable(2.0), classes=[False, True]), x * 1000, y)
    assert len(said) == 1
    assert "Noise may decide about records of class False, True" in said[0]
    assert "bandwidth" in said[0]
    _, said = fitted(RaceClassifier(SRP(12), classes=[False, True], epsilon=0.5), x, y)
    assert "fewer bits" in said[0]


def test_a_class_with_too_few_records() -> None:
    x, y = quarter()
    labels = np.where(y, "yes", "no").astype(object)
    labels[:5] = "rare"
    model = RaceClassifier(PStable(2.0), classes=["no", "rare", "yes"], epsilon=2.0)
    _, said = fitted(model, x, labels)
    assert len(said) == 1
    assert said[0].startswith("Class rare has too few records")


def test_one_class_and_one_row_say_nothing_wrong() -> None:
    _, said = fitted(RaceClassifier(classes=["a"], epsilon=8.0), normal(), np.full(5000, "a"))
    assert not said
    _, said = fitted(RaceDensity(rows=1, epsilon=8.0), normal())
    assert "± inf others near it" in said[0]


@pytest.mark.slow
def test_targets_outside_their_bounds() -> None:
    """The default bounds and a target of about 120: an R² far below −100, and the cause."""
    x, y = line()
    options: dict[str, Any] = {"rows": 2000, "epsilon": 5.0, "delta": 1e-6}
    model, said = fitted(RaceRegressor(**options), x, y)
    assert model.score(*line(seed=1)) < -100
    assert len(said) == 1
    assert "the target leaves bounds_y; state the public range" in said[0]
    model, said = fitted(RaceRegressor(bounds_y=(100.0, 140.0), **options), x, y)
    assert not said
    assert model.score(*line(seed=1)) > 0.7
    _, said = fitted(RaceRegressor(bounds_y=(100.0, 140.0), **options), x * [1, 50], y)
    assert "attribute 1 leaves bounds_x" in said[0]


def test_a_regression_that_predicts_the_mean() -> None:
    x, y = line()
    for model in (
        RaceRegressor(bounds_y=(100.0, 140.0), epsilon=0.1),
        RaceRegressor(bounds_x=(-99.0, 99.0), bounds_y=(100.0, 140.0), epsilon=5.0, delta=1e-6),
    ):
        fit, said = fitted(model, x, y)
        assert fit.score(*line(seed=1)) < 0.3
        assert len(said) == 1
        assert "no slope stands out of the noise" in said[0]


def sloped(n: int, dim: int, seed: int = 0) -> tuple[Array, Array]:
    """Attributes and targets that fill their bounds, which are [-1, 1]."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (n, dim))
    return x, np.clip(0.5 * x[:, 0] - 0.4 * x[:, 1] + 0.5 * rng.normal(size=n), -1, 1)


@pytest.mark.parametrize(("n", "dim", "rows"), [(1000, 5, 1000), (1000, 40, 200), (500, 3, 2000)])
def test_a_regression_worse_than_the_mean(n: int, dim: int, rows: int) -> None:
    model, said = fitted(RaceRegressor(rows=rows), *sloped(n, dim))
    assert model.score(*sloped(2000, dim, seed=1)) < 0.0
    assert len(said) == 1
    assert "worse than" in said[0]
    assert "bounds_x" not in said[0]


def test_a_regression_better_than_the_mean_says_nothing() -> None:
    model, said = fitted(RaceRegressor(rows=2000, epsilon=8.0), *sloped(10_000, 3))
    assert model.score(*sloped(2000, 3, seed=1)) > 0.2
    assert not said


@pytest.mark.slow
def test_rows_that_hardly_outnumber_second_moments_are_used() -> None:
    """595 moments of 32 attributes, 1000 rows, little noise: least squares errs less."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (10_000, 32))
    y = np.clip(0.3 * x[:, 0] - 0.3 * x[:, 1] + 0.1 * rng.normal(size=10_000), -1, 1)
    model, _ = fitted(RaceRegressor(rows=1000, epsilon=1.0, delta=1e-6), x, y)
    assert model.score(x, y) > 0.3


@pytest.mark.slow
def test_the_published_solver_worse_than_the_mean() -> None:
    """Slopes show in these counts; a step function of 2000 rows does not find them."""
    model, said = fitted(
        RaceRegressor(rows=2000, epsilon=8.0, solver="surrogate"), *sloped(10_000, 3)
    )
    assert model.score(*sloped(2000, 3, seed=1)) < 0.0
    assert len(said) == 1
    assert "may predict worse than the mean" in said[0]


@pytest.mark.parametrize("dim", [2, 10, 40])
def test_bounds_that_hold_are_not_blamed(dim: int) -> None:
    """Attributes as large as their bounds, with more and fewer rows than second moments."""
    signs = np.random.default_rng(dim).choice([-1.0, 1.0], size=(2000, dim))
    for x in (signs, np.repeat(signs[:, :1], dim, axis=1), np.ones((2000, dim))):
        _, said = fitted(RaceRegressor(rows=400, epsilon=4.0), x, x[:, 0])
        assert not any("inside the bounds" in sentence for sentence in said)


@pytest.mark.slow
@pytest.mark.parametrize("rows", [1500, 300])
def test_the_bound_that_does_not_hold_is_blamed_alone(rows: int) -> None:
    """With 20 attributes there are 253 second moments, fewer and more than half the rows."""
    x, y = sloped(10_000, 20)
    x[:, 7] *= 50.0
    _, said = fitted(RaceRegressor(rows=rows, epsilon=5.0), x, y)
    assert len(said) == 1
    assert "the bounds: attribute 7 leaves bounds_x; state" in said[0]


@pytest.mark.slow
def test_many_attributes_take_little_memory() -> None:
    """A matrix of rows × second moments would take 26 MB."""
    rng = np.random.default_rng(0)
    left = rng.normal(size=(4000, 40))
    right = rng.normal(size=(4000, 40))
    form = np.diag(np.linspace(0.1, 1.0, 40))
    signs = SignPairs(left, right, 2 / np.pi * np.einsum("rd,de,re->r", left, form, right))
    tracemalloc.start()
    moments = signs.moments
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 15 << 20
    np.testing.assert_allclose(moments.form, form, atol=1e-4)
    assert moments.error < 1e-4


def test_outliers_of_an_unknown_number_of_records() -> None:
    """A density is divided by the size: one that noise makes too small flags nothing."""
    x = normal(700)
    for model in (RaceOutliers(rows=1000, width=1000), RaceDensity(width=1000)):
        _, said = fitted(model, x)
        assert len(said) == 1
        assert said[0].startswith("Noise hides how many records there are")
        assert "fewer rows or columns (width)" in said[0]


@pytest.mark.slow
def test_second_moments() -> None:
    """Against the exact mean of zzᵀ/‖z‖², within the error that is stated."""
    z = normal(3000, 4) * [1, 2, 1, 3] + [0, 1, 0, 0]
    spec = SketchSpec(4, 4000, 2, PairedSRP(2), epsilon=20.0, delta=1e-6)
    moments = SignPairs.of_sketch(RaceSketch(spec).fit(z).release()).moments
    form = moments.form
    error = moments.error
    unit = z / np.linalg.norm(z, axis=1)[:, None]
    deviation = form - unit.T @ unit / len(z)
    assert error < 0.02
    assert np.abs(np.diag(deviation)).max() < 5 * error
    assert np.abs(deviation - np.diag(np.diag(deviation))).max() < 5 * error / np.sqrt(2)
    assert np.abs(deviation).max() > 0.2 * error


def test_whoever_holds_the_release_reads_the_same() -> None:
    """A warning tells nothing that the released bytes do not: it may be passed on."""
    x, y = quarter()
    model, said = fitted(RaceOutliers(PStable(2.0)), x)
    again = RaceSketch.from_bytes(model.sketch_.to_bytes())
    assert outliers_blur(again, 0.1) == said
    model, said = fitted(RaceClassifier(PStable(2.0), rule="map", classes=[False, True]), x, y)
    copies = [RaceSketch.from_bytes(sketch.to_bytes()) for sketch in model.sketches_]
    assert classes_blur(copies, [False, True], "map") == said
    model, said = fitted(RaceRegressor(epsilon=5.0), *line())
    again = RaceSketch.from_bytes(model.sketch_.to_bytes())
    assert line_blurs(SignPairs.of_sketch(again), _moments) == said
    assert said
