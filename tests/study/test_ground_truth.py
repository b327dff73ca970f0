"""Exact neighbours and the measures, each against a plain computation of the same thing."""

from importlib import import_module

import numpy as np
import pytest
import scipy.sparse
from helpers.common import folded, picked, refuses, top, unit
from numpy.random import default_rng
from numpy.testing import assert_array_equal

from dpindex.study.truth import GroundTruth, ground_truth

MODULE = import_module("dpindex.study.truth")
ONES = np.ones((5, 3))


def vectors(rows, columns, seed):
    return default_rng(seed).standard_normal((rows, columns))


def plain_scores(base, queries, metric):
    base = base.astype(np.float64)
    queries = queries.astype(np.float64)
    if metric == "l2":
        apart = queries[:, None, :] - base[None, :, :]
        return -(apart**2).sum(axis=2)
    if metric == "cosine":
        norms = np.linalg.norm(base, axis=1, keepdims=True)
        base = base / np.where(norms > 0, norms, 1)
        queries = unit(queries)
    return queries @ base.T


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks so small that merging and the last, shorter block are met."""
    monkeypatch.setattr("dpindex.data.source.CHUNK_NUMBERS", 7 * 6)
    monkeypatch.setattr("dpindex.data.source.SPARSE_ROWS", 7)
    monkeypatch.setattr(MODULE, "QUERY_ROWS", 3)
    monkeypatch.setattr(MODULE, "MARGIN", 2)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("metric", ["cosine", "ip", "l2"])
@pytest.mark.parametrize("base_form", [np.asarray, scipy.sparse.csr_matrix])
@pytest.mark.parametrize("query_form", [np.asarray, scipy.sparse.csr_matrix])
def test_agrees_with_a_plain_sort(metric, base_form, query_form):
    base = vectors(40, 6, seed=1)
    queries = vectors(8, 6, seed=2)
    base[3] = 0
    truth = ground_truth(base_form(base), query_form(queries), 5, metric)
    scores = plain_scores(base, queries, metric)
    order = top(scores, truth.ids.shape[1])
    assert truth.depth == 5
    assert truth.ids.shape[1] > 5
    assert_array_equal(truth.ids, order)
    assert truth.scores == pytest.approx(picked(scores, order), abs=1e-5)


@folded("form", [np.asarray, scipy.sparse.csr_matrix])
def test_distances_far_from_zero_are_those_near_it(form):
    base = vectors(500, 6, seed=1)
    queries = vectors(30, 6, seed=2)
    near = ground_truth(base, queries, 5, "l2")
    far = ground_truth(base + 1e5, form(queries + 1e5), 5, "l2")
    assert_array_equal(near.ids, far.ids)
    assert far.scores == pytest.approx(near.scores, rel=1e-4, abs=1e-4)


@folded("metric", ["ip", "l2"])
def test_what_single_precision_cannot_square_is_refused(metric):
    with refuses("base: row 0 holds NaN, infinity or a number too large to square"):
        ground_truth(np.full((5, 3), 1e19), np.ones((2, 3)), 1, metric)


def test_bytes_and_a_view_of_a_file_are_the_same_vectors(tmp_path):
    base = default_rng(3).integers(0, 256, (50, 9), dtype=np.uint8)
    np.save(tmp_path / "base.npy", base)
    mapped = np.load(tmp_path / "base.npy", mmap_mode="r")
    expected = ground_truth(base / 255.0, base[:4] / 255.0, 3)
    found = ground_truth(mapped, base[:4], 3)
    assert_array_equal(found.ids, expected.ids)
    assert_array_equal(expected.ids[:, 0], np.arange(4))


@folded("repeats", [3, 200])
def test_equals_at_the_cut_all_count(repeats):
    """Also where there are more of them than the first look stores (200 > 1 + margin)."""
    alike = np.ones((repeats, 2))
    others = [[1.0, 0.0], [-1.0, 0.0], [0.0, -1.0]]
    base = np.concatenate([alike, others])
    truth = ground_truth(base, np.array([[1.0, 0.0]]), 2)
    equals = np.arange(repeats)[None, :]
    assert truth.relevant(equals, 2).all()
    of_others = truth.relevant(np.array([[repeats, repeats + 1, -1]]), 2)
    assert of_others.tolist() == [[True, False, False]]
    assert truth.recall(equals, at=repeats, neighbours=2) == 1.0
    assert not truth.relevant(equals, 1).any()


@folded("scale", [1.0, 1e-3])
@folded(
    "scores",
    [
        [2.0, 1.0, 1.0 - 1e-6, 1.0 - 1 / 1024],
        [-0.5, -1.0, -1.0 - 1e-6, -1.0 - 1 / 1024],
    ],
)
def test_the_tolerance_is_relative_and_small(scale, scores):
    """One bit in 1024 is no tie, a part in a million is; the same at every scale of the score."""
    rows = np.arange(4)[None, :]
    scaled = np.array([scores], dtype=np.float32) * scale
    truth = GroundTruth(rows, scaled, 2)
    assert truth.relevant(rows, 2).tolist() == [[True, True, True, False]]


def test_measures_by_hand():
    ids = np.array([[0, 1, 2, 3], [3, 2, 1, 0]])
    scores = np.array([[4, 3, 2, 1]] * 2, dtype=np.float32)
    truth = GroundTruth(ids, scores, 3)
    found = np.array([[1, 9, 0, 2], [-1, -1, -1, 0]])
    assert truth.precision(found, at=2, neighbours=3).tolist() == [0.5, 0.0]
    assert truth.recall(found, at=4, neighbours=3).tolist() == [1.0, 0.0]
    assert truth.recall(found, at=2, neighbours=2).tolist() == [0.5, 0.0]


@folded(
    "base, queries, depth, message",
    [
        (ONES, np.ones((2, 4)), 1, "queries has 4 columns where base has 3"),
        (ONES, ONES, 6, "6 true neighbours cannot be found among 5"),
        (ONES, ONES, 0, "ask for 1 to 5"),
        (ONES, 0 * ONES, 1, "queries: row 0 is the zero vector"),
        (np.diag([1.0, np.nan, 1.0]), ONES, 1, "base: row 1 holds NaN"),
        (ONES, np.inf * ONES, 1, "queries: row 0 holds NaN, infinity"),
    ],
)
def test_bad_input_is_named(base, queries, depth, message):
    with refuses(message):
        ground_truth(base, queries, depth)


def test_asking_deeper_than_the_truth_is_refused():
    axes = np.eye(3)
    truth = ground_truth(axes, axes, 2)
    with refuses("holds 2 neighbours"):
        truth.relevant(truth.ids, 3)
    with refuses("metric must be one of"):
        ground_truth(axes, axes, 2, "euclid")
