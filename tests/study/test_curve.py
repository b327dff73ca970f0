"""Curves: what a run measures, how runs are summarised, and what is refused beforehand."""

import math
from functools import partial
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from helpers.common import attribute_spec, csv_lines, known_noise, low_rank, refuses, top, unit
from numpy.random import default_rng

from dpindex import Blocks, Codebook, Dense, Repeated, Spec, attribute, record
from dpindex.data import open_vectors
from dpindex.mechanism.variants import Variant
from dpindex.study import MEASURES, evaluate, spec_grid, write_report

TRIAL = import_module("dpindex.study.trial")

DIM = 12
BASE = default_rng(1).random((150, DIM))
QUERIES = default_rng(2).random((6, DIM))


def curve_of(*vectors, **terms):
    """What is measured of specs of one adjacency."""
    (curve,) = evaluate(*vectors, **terms)
    return curve


grid_of = partial(spec_grid, adjacency=attribute(1.0))
oporp = partial(attribute_spec, "none-oporp", DIM)


PLAIN = oporp(DIM)


def nearest(count):
    """Exact neighbours by a plain sort."""
    return top(QUERIES @ unit(BASE).T, count)


class FakeIndex:
    """Answers from a script, so that what is measured is known beforehand."""

    answers: np.ndarray
    made: list[tuple[Spec, dict[str, Any]]]

    def __init__(self, spec, **settings):
        self.spec = spec
        self.made.append((spec, settings))
        self.count = 0

    def __len__(self):
        return self.count

    def add_codes(self, codes):
        self.count += len(codes)
        self.codes = codes

    def search(self, queries, k, query, allow_unprotected):
        rows = np.arange(len(queries)) % len(self.answers)
        return SimpleNamespace(ids=self.answers[rows, :k])


@pytest.fixture
def fake(monkeypatch):
    FakeIndex.made = []
    monkeypatch.setattr(TRIAL, "PrivateIndex", FakeIndex)
    return FakeIndex


def test_measures_of_scripted_answers(fake):
    """Of the ten best answers 4 are among the true 50 and 1 in the true ten; of a hundred, 30."""
    true = nearest(150)
    far = true[:, 50:]
    near = true[:, :50]
    first = np.hstack([far[:, :6], near[:, :1], near[:, 10:13]])
    fake.answers = np.hstack([first, near[:, 13:39], far[:, 6:70]])
    assert fake.answers.shape[1] == 100
    point = curve_of(BASE, QUERIES, [PLAIN], runs=1).points[0]
    mean = point.mean
    assert mean["precision@10"] == pytest.approx(0.4)
    assert mean["recall@10"] == pytest.approx(0.1)
    assert mean["recall@100"] == pytest.approx(0.6)
    # Among the first 10, 20, 50 and 100 answers are so many of the true ten; the owner orders them.
    is_near = np.array([np.isin(*rows) for rows in zip(fake.answers, true[:, :10], strict=True)])
    for level in (10, 20, 50, 100):
        hits = is_near[:, :level].sum(axis=1)
        assert mean[f"recall@10 within {level}"] == pytest.approx(hits.mean() / 10)
    assert np.isnan(point.std["recall@10"])


def test_seeds_budgets_and_settings_reach_the_index(fake):
    fake.answers = nearest(100)
    private = attribute_spec("dp-oporp-staircase", DIM, k=4, epsilon=2.0, seed=40)
    baseline = oporp(4, seed=40)
    told = []
    how = {"runs": 2, "query_modes": ["exact"], "index_type": "f16", "query_epsilon": 7.0}
    specs = [private, baseline, private]
    curve = curve_of(BASE, QUERIES, specs, **how, progress=lambda *step: told.append(step))
    built = [spec for spec, _ in fake.made]
    assert [(s.method, s.seed) for s in built] == [
        ("dp-oporp-staircase", 40),
        ("dp-oporp-staircase", 41),
        ("none-oporp", 40),
        ("none-oporp", 41),
    ]
    settings = {"metric": "cosine", "index_type": "f16"}
    assert fake.made[0][1] == settings | {"query_epsilon": 7.0}
    assert fake.made[-1][1] == settings | {"query_epsilon": None}
    assert [step[:2] for step in told] == [(done, 4) for done in range(5)]
    assert told[0][2] == "dp-oporp-staircase, k = 4, ε = 2"
    seeds = [run.seed for run in curve.runs]
    assert seeds == [40, 41] * 2
    assert curve.epsilons == (2.0,)


@known_noise
def test_mean_and_spread_are_those_of_the_runs():
    spec = attribute_spec("dp-oporp-staircase", DIM, k=6, epsilon=8.0)
    curve = curve_of(BASE, QUERIES, [spec], runs=4, query_modes=["private"])
    point = curve.points[0]
    assert set(curve.measures) > set(MEASURES)
    for name in curve.measures:
        values = [run.values[name] for run in curve.runs if name in run.values]
        assert point.mean[name] == pytest.approx(np.mean(values))
        if name == "linked" or name.startswith(("reconstruction", "guess")):
            assert values == [curve.runs[0].values[name]]
        else:
            assert len(values) == 4
            spread = np.std(values, ddof=1)
            assert point.std[name] == pytest.approx(spread)
    assert point.runs == curve.runs_per_point == 4
    # Every run has a seed and noise of its own.
    found = {run.values["recall@10"] for run in curve.runs}
    assert len(found) > 1


def test_attacks_have_fresh_noise():
    spec = attribute_spec("dp-oporp-staircase", DIM, k=6, epsilon=8.0)
    errors = set()
    for _ in range(3):
        curve = curve_of(BASE, QUERIES, [spec], runs=1, query_modes=["private"])
        errors.add(curve.points[0].mean["reconstruction_error"])
    assert len(errors) == 3


def test_every_form_of_the_same_vectors_gives_the_same_curve(tmp_path, monkeypatch):
    """Without noise and with few rows a chunk: arrays, a file and a sparse matrix agree."""
    monkeypatch.setattr("dpindex.data.source.CHUNK_NUMBERS", 40 * DIM)
    monkeypatch.setattr("dpindex.data.source.SPARSE_ROWS", 40)
    np.save(tmp_path / "base.npy", BASE)
    spec = oporp(5)

    def shares(base, queries):
        curve = curve_of(base, queries, [spec], runs=2, query_modes=["exact"])
        values = [run.values for run in curve.runs]
        return [[one[name] for name in MEASURES[:3]] for one in values]

    expected = shares(BASE, QUERIES)
    assert expected[0] != expected[1]
    with open_vectors(tmp_path / "base.npy") as source:
        assert shares(source, QUERIES) == expected
    sparse = scipy.sparse.csr_matrix(BASE)
    assert shares(sparse, scipy.sparse.csc_matrix(QUERIES)) == expected


@known_noise
def test_more_epsilon_finds_more_and_bits_are_small():
    base = default_rng(3).random((400, 30))
    methods = ["dp-oporp-staircase", "dp-signoporp-rr"]
    grid = grid_of(30, methods, [0.5, 30.0], [16])
    curve = curve_of(base, base[:30], grid.specs, runs=3, neighbours=10)
    for lines in (curve.series("private"), curve.series("exact")):
        for little, much in lines.values():
            assert little.spec.epsilon == 0.5
            assert much.mean["recall@100"] > little.mean["recall@100"] + 0.15
    sizes = {point.spec.method: point.mean["bytes_per_vector"] for point in curve.points}
    assert sizes["dp-signoporp-rr"] == 2
    assert sizes["dp-oporp-staircase"] in (32, 64)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"specs": []}, "nothing to evaluate"),
        ({"query_modes": []}, "query_modes must name"),
        ({"query_modes": ["exact", "secret"]}, "query_modes must name"),
        ({"runs": 0}, "runs must be a whole number from 1"),
        ({"neighbours": 9}, "neighbours must be at least 10"),
        ({"neighbours": 151}, "151 true neighbours cannot be found among 150"),
        (
            {"specs": [attribute_spec("none-oporp", 5)]},
            "base has 12 columns .* dim = 5",
        ),
        ({"specs": [PLAIN, oporp(scale=2.0)]}, "must agree in scale"),
        (
            {"specs": [PLAIN, Spec("none-oporp", DIM, adjacency=attribute(0.5))]},
            "must agree in adjacency",
        ),
        (
            {
                "specs": [PLAIN, attribute_spec("none-signrp", DIM)],
                "metric": "ip",
            },
            "none-signrp keeps signs",
        ),
        ({"base": BASE * 2}, "row 0, column .* lies outside the public bounds"),
    ],
)
def test_what_cannot_be_measured_is_refused(change, message):
    arguments = {"base": BASE, "queries": QUERIES, "specs": [PLAIN]} | change
    told = []
    with refuses(message):
        curve_of(**arguments, progress=lambda done, *_: told.append(done))
    assert told in ([], [0])  # before the first build has ended


class TestSpecGrid:
    def test_every_admissible_combination_once(self):
        grid = grid_of(
            64,
            ["dp-oporp", "dp-signoporp-rr", "raw-square-wave", "none-signrp"],
            [1.0, 2.0],
            [16, 32],
            delta=1e-5,
            variant=Repeated(2),
            bounds=(0, 1),
            seed=9,
        )
        assert grid.refused == ()
        both = [(k, epsilon) for k in (16, 32) for epsilon in (1.0, 2.0)]
        expected = [
            *(("dp-oporp", *pair, 1e-5, 1) for pair in both),
            *(("dp-signoporp-rr", *pair, 0.0, 2) for pair in both),
            *(("raw-square-wave", 64, epsilon, 0.0, 1) for epsilon in (1.0, 2.0)),
            *(("none-signrp", k, None, 0.0, 1) for k in (16, 32)),
        ]
        for spec, fields in zip(grid.specs, expected, strict=True):
            size = (spec.code_length, spec.epsilon, spec.delta)
            assert (spec.method, *size, spec.variant.repetitions) == fields
        assert {s.seed for s in grid.specs} == {9}

    def test_methods_get_the_fields_that_they_take(self):
        names = ["dp-signrp-rr", "dp-rp-g-opt", "dp-sjlt-laplace", "dp-oporp-staircase"]
        variant = Dense("very-sparse", sparsity=2, min_norm=3.0)
        grid = grid_of(24, names[1:], [1], delta=1e-5, variant=variant)
        assert grid.refused == ()
        assert [s.variant for s in grid.specs] == [
            Dense("very-sparse", sparsity=2),
            Blocks(4),
            Variant(),
        ]
        grid = grid_of(24, names, [1], delta=1e-5, variant=Dense(min_norm=3.0))
        assert [s.method for s in grid.specs] == names
        assert grid.specs[0].delta == 1e-5
        assert grid.specs[0].variant.min_norm == 3.0

    def test_what_has_no_guarantee_is_named_once(self):
        methods = ["raw-square-wave", "dp-oporp-staircase"]
        grid = grid_of(64, methods, [1, 2, 1], [128, None])
        assert [(s.k, s.epsilon) for s in grid.specs] == [(64, 1.0), (64, 2.0)]
        assert len(grid.refused) == 2
        assert grid.refused[0].startswith("raw-square-wave: raw-square-wave needs bounds no wider")
        assert grid.refused[1].startswith("dp-oporp-staircase with k = 128: ")

    def test_an_unknown_method_is_an_error(self):
        with refuses("no method 'dp-magic'"):
            grid_of(64, ["dp-magic"], [1])


@pytest.mark.slow
def test_csv_files_say_what_was_measured(tmp_path):
    methods = ["dp-oporp", "idp-signrp-rr", "none-oporp"]
    grid = grid_of(DIM, methods, [2], [8])
    curve = curve_of(BASE, QUERIES, grid.specs, runs=2, query_epsilon=3.0)
    write_report(tmp_path, [curve])
    lines = csv_lines(tmp_path / "curve.csv")
    assert len(lines) == 3 * 2 * len(curve.measures)
    by_key = {(line["method"], line["query"], line["measure"]): line for line in lines}
    for point in curve.points:
        for name in curve.measures:
            line = by_key[point.spec.method, point.query, curve.full_name(name)]
            spread = point.std[name]
            assert float(line["mean"]) == point.mean[name]
            assert line["std"] == ("" if math.isnan(spread) else str(spread))
            assert line["runs"] == "2"
    true = "recall@10 of the true 10"
    private = by_key["dp-oporp", "private", true]
    expected = {
        "definition": "DP",
        "adjacency": "attribute(beta=1)",
        "epsilon": "2.0",
        "delta": "1e-06",
        "k": "8",
    }
    assert expected.items() <= private.items()
    assert private["query_epsilon"] == "3.0"
    assert by_key["dp-oporp", "exact", true]["query_epsilon"] == ""
    assert by_key["none-oporp", "private", true]["epsilon"] == ""
    assert by_key["idp-signrp-rr", "exact", true]["definition"] == "iDP"
    assert ("dp-oporp", "private", "precision@10 of the true 50") in by_key
    lines = csv_lines(tmp_path / "runs.csv")
    for line, run in zip(lines, curve.runs, strict=True):
        assert line["seed"] == str(run.seed)
        assert float(line["recall@100 of the true 50"]) == run.values["recall@100"]


@pytest.mark.slow
@known_noise
def test_denoised_curves_find_more_and_say_what_is_exposed():
    """At the same budget; the gain of 0.09 is eight deviations of chance over 300 queries."""
    base = 2 * np.clip(low_rank(2000) - 0.25, 0, 0.5)
    spec = attribute_spec("raw-staircase", 24, epsilon=3.0, bounds=(0, 1))
    ceiling = attribute_spec("none-oporp", 24, k=24, bounds=(0, 1))
    curves = {
        kind: curve_of(base, base[:300], [spec, ceiling], runs=1, denoise=kind)
        for kind in (None, "linear")
    }

    def means(kind, spec):
        points = (point for point in curves[kind].points if point.query == "private")
        return next(point.mean for point in points if point.spec == spec)

    plain = means(None, spec)
    denoised = means("linear", spec)
    assert denoised["precision@10"] > plain["precision@10"]
    for mean in (plain, denoised):  # the attacker learns from the codes, whatever the searcher does
        assert 0 < mean["reconstruction_error"] < 0.2
        assert mean["reconstruction_cosine"] > 0.95
    baseline = means(None, ceiling)
    assert means("linear", ceiling)["precision@10"] == baseline["precision@10"]
    assert baseline["reconstruction_error"] < 0.01
    assert curves[None].denoise is None
    assert curves["linear"].denoise == "linear"


def test_a_codebook_goes_to_the_methods_that_take_one():
    book = Codebook(np.eye(24))
    methods = ["record-cap", "record-codebook"]
    grid = spec_grid(24, methods, [4.0], adjacency=record(), codebook=book, subset=3)
    assert grid.refused == ()
    assert [spec.codebook for spec in grid.specs] == [None, book]
    assert [spec.subset for spec in grid.specs] == [None, 3]


def test_a_curve_prints_as_a_table_and_is_a_frame():
    spec = attribute_spec("dp-oporp-staircase", DIM, epsilon=4.0)
    curve = curve_of(BASE, QUERIES, [spec, PLAIN], runs=2, neighbours=20)
    said = str(curve)
    assert "recall@10 of the true 10" in said
    for point in curve.points:
        assert f"{point.mean['recall@10']:.2f}" in said
    pandas = pytest.importorskip("pandas")
    frame = curve.to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert len(frame) == 8
    assert len(curve.runs) == 8
    assert set(frame["query"]) == {"private", "exact"}


@pytest.mark.slow
def test_a_report_shows_the_examples_that_were_measured(tmp_path):
    specs = grid_of(DIM, ["dp-oporp-staircase"], [2, 8]).specs
    for count, shown in ((3, True), (0, False)):
        curves = evaluate(BASE, QUERIES, specs, runs=1, neighbours=20, examples=count)
        page = write_report(tmp_path / str(count), curves)
        assert ('"sheet":{' in page.read_text("utf-8")) == shown
