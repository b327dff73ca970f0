"""The scikit-learn transformer: every check that a randomized transformer can pass."""

import warnings
from contextlib import nullcontext
from dataclasses import fields
from functools import partial
from inspect import signature

import numpy as np
import pytest
from helpers.common import needed, normal, refuses, uniform
from numpy.random import default_rng
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator

import dpindex as dpi
from dpindex.base.errors import QualityWarning
from dpindex.integrations.sklearn import PrivateProjection

hidden = partial(PrivateProjection, adjacency=dpi.attribute(1.0))
FRESH_NOISE = PrivateProjection.expected_failed_checks


@pytest.mark.parametrize(
    "estimator, failing",
    [
        (hidden(), FRESH_NOISE),
        (hidden("dp-signoporp-geometric", k=1, epsilon=0.1), FRESH_NOISE),
        # Without noise all of them pass.
        (hidden("none-oporp", epsilon=None, allow_unprotected=True), {}),
    ],
    ids=["float", "bits", "none"],
)
def test_check_estimator(estimator, failing):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn warns of the checks it skips
        results = check_estimator(
            estimator,
            expected_failed_checks=failing,
            on_fail=None,
        )
    failed = {result["check_name"] for result in results if result["status"] == "failed"}
    assert failed == set()
    assert len(results) > 30


@pytest.mark.parametrize("row", dpi.methods(), ids=lambda row: row.name)
def test_every_method_transforms(row):
    arguments = needed(row, 12) | {"clip": row.calibration.rounded}
    if row.calibration.rounded:
        arguments["bounds"] = (0.0, 1.0)
    k = None if row.family.keeps_all or row.family.lengths else 8
    dim = 12
    x = default_rng(0).uniform(0.5, 1, (20, dim)).astype(np.float32)
    unfitted = PrivateProjection(**arguments, k=k, allow_unprotected=not row.private)
    model = clone(unfitted)
    weak = row.calibration.definition == "iDP"
    with pytest.warns(QualityWarning, match="iDP") if weak else nullcontext():
        codes = model.fit_transform(x)
    assert model.spec_ == dpi.Spec(**arguments, dim=dim, k=k)
    length = dim if row.family.public is dpi.Codebook else model.spec_.code_length
    assert codes.shape == (20, length)
    assert codes.dtype == np.float32
    assert len(model.get_feature_names_out()) == length
    assert np.isfinite(codes).all()
    assert model.transform(sparse.csr_matrix(x)).shape == codes.shape


def test_a_classifier_learns_from_a_table_at_the_defaults():
    """Eight columns of which one tells the classes apart: one bin of all eight would hide it."""
    rng = default_rng(2)
    y = rng.integers(0, 2, 8000)
    x = rng.uniform(-1, 1, (8000, 8))
    x[:, 3] = np.where(y, 0.9, -0.9)
    fitted = hidden().fit(x)
    assert fitted.spec_.k == 8
    few = x[:20]
    assert (fitted.transform(few) != fitted.transform(few)).any()  # fresh noise every time
    model = make_pipeline(hidden(), LogisticRegression())
    model.fit(x[:4000], y[:4000])
    # Noise of deviation 1.4 about ±0.9: 0.75, with a standard deviation of 0.007.
    assert model.score(x[4000:], y[4000:]) > 0.68


def test_a_search_has_every_parameter():
    """They are written out, so that help, completion and ``set_params`` know them."""
    others = {"allow_unprotected", "skip_leak_check"}
    named = set(signature(PrivateProjection).parameters) - others
    of_specs = {field.name for field in fields(dpi.Spec)}
    assert named == of_specs - {"dim"}
    x = uniform(60, 4, seed=3)
    model = make_pipeline(hidden(), LogisticRegression())
    grid = {"privateprojection__epsilon": [1.0, 2.0], "privateprojection__k": [2, 4]}
    search = GridSearchCV(model, grid, cv=3)
    search.fit(x, np.arange(60) % 2)
    assert search.best_estimator_[0].spec_.k in (2, 4)


def test_rows_are_clipped_by_default_where_a_method_has_bounds():
    x = normal(20, 8, 4)
    assert hidden().fit(x).spec_.clip
    whole = PrivateProjection("record-cap", adjacency=dpi.record()).fit(x)
    assert not whole.spec_.clip
    assert whole.transform(x).shape == (20, whole.spec_.code_length)


def test_what_promises_little_is_said():
    """Bytes without a scale hide one grey level; a delta of a half may publish half of the rows."""
    x = np.full((20, 6), 200)
    with pytest.warns(QualityWarning, match=r"beta = 1 is 0\.392 % of the range"):
        hidden(bounds=(0, 255)).fit(x)
    with pytest.warns(QualityWarning, match=r"delta = 0\.5 is more than one over the number"):
        hidden("dp-oporp", delta=0.5).fit(x)


def test_refusals():
    with pytest.raises(NotFittedError):
        hidden().transform(np.zeros((2, 3)))
    with refuses(r"ranges must be a dpindex\.Ranges"):
        hidden(ranges=[(0, 1)]).fit(np.zeros((2, 1)))
    beyond = np.full((2, 3), 2.0)
    with refuses("outside the public bounds"):
        hidden(clip=False).fit_transform(beyond)


def test_low_a_codebook_of_the_rows_is_refused():
    """As a build refuses it; unless the holder says that the rows are public after all."""
    rows = normal(200, 8)
    terms = {
        "method": "record-codebook", "epsilon": 4.0, "adjacency": dpi.record(),
        "codebook": dpi.Codebook(rows[:50]),
    }  # fmt: skip
    with refuses("50 of the 50 codewords are private vectors too"):
        PrivateProjection(**terms).fit_transform(rows)
    allowed = PrivateProjection(**terms, skip_leak_check=True)
    assert allowed.fit_transform(rows).shape == (200, 8)
    others = PrivateProjection(**terms).fit_transform(rows[50:])
    assert others.shape == (150, 8)
