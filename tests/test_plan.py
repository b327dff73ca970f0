"""The planner: what it predicts for a larger collection, what it refuses, and its messages.

A prediction is a mean over 100 queries; its standard deviation from one noise to another is 0.05
(at 24 attributes, the worst case here), and 0.025 with 500 queries. So the noise is known here:
these tests are about predictions, not about privacy.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import scipy.sparse
from releases import build
from streams import Seeded

import dpindex as dpi
from dpindex.cli import main
from dpindex.data import open_vectors
from dpindex.similarity.similarity import Metric
from dpindex.study import evaluate, ground_truth
from dpindex.study.linkage import Linkage
from dpindex.study.plan_options import NEIGHBOURS, PlanOptions
from dpindex.study.planner import Facts, collection_model
from dpindex.study.planner.attribute_neighbourhood import AttributeNeighbourhood
from dpindex.study.planner.attribute_specs import attribute_specs
from dpindex.study.planner.collection_model import CollectionModel
from dpindex.study.planner.plan_result import Found, Row
from dpindex.study.planner.public_sample import Sample
from dpindex.study.planner.simulated_attack import linked_share
from dpindex.study.planner.simulation import Simulation

DIM, N = 24, 6000
TERMS: dict[str, Any] = {
    "adjacency": dpi.attribute(1.0),
    "dim": DIM, "n": N, "bounds": (0.0, 1.0), "epsilon": 4.0, "query": "private",
}  # fmt: skip
FEW = ["raw-square-wave", "dp-oporp-staircase", "dp-signoporp-rr"]


def collection(rows: int, seed: int) -> np.ndarray:
    """Vectors in [0, 1] of about six dimensions."""
    maps = np.random.default_rng(0).normal(size=(6, DIM))
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(rows, 6)) @ maps * 0.09 + rng.normal(size=(rows, DIM)) * 0.02 + 0.5
    return np.clip(values, 0, 1).astype(np.float32)


@pytest.fixture(scope="module")
def sample() -> np.ndarray:
    return collection(1000, 1)


@pytest.fixture(scope="module")
def base() -> np.ndarray:
    return collection(N, 2)


# The model of the collection


@pytest.mark.parametrize("n", [500, 900, 2000, 4500, 100_000])
def test_candidates_stand_for_the_whole_collection(sample: np.ndarray, n: int) -> None:
    model = CollectionModel(Sample.ungrouped(sample), n, (0.0, 1.0), None)
    np.testing.assert_allclose(model.weight.sum(axis=1), n)
    for neighbours in (1, 10, NEIGHBOURS):
        counted = model.true(neighbours).sum(axis=1)
        assert (counted > neighbours - 1e-9).all()
        assert counted.mean() < 1.01 * neighbours  # a few tie with the last
    assert model.near.min(initial=0.0) >= 0.0
    assert model.near.max(initial=0.0) <= 1.0


@pytest.mark.parametrize("metric", ["cosine", "l2"])
def test_all_of_a_large_sample_tells_how_near_neighbours_are(metric: Metric) -> None:
    """Every query has its own nearest sampled vectors, and shares few of the others."""
    rows = np.random.default_rng(0).uniform(-1, 1, (20_000, 3)).astype(np.float32)
    model = CollectionModel(Sample.ungrouped(rows[:5000]), 15_000, (-1.0, 1.0), None, metric)
    assert model.sampled.shape[0] == 2000
    np.testing.assert_allclose(model.weight.sum(axis=1), 15_000)
    truth = ground_truth(rows[5000:], model.queries, NEIGHBOURS, metric)
    per_query = len(model.near) // len(model.queries)
    distances = []
    for i, query in enumerate(model.queries):
        own = model.near[per_query * i : per_query * (i + 1)]
        candidates = np.concatenate([model.sampled, own])
        if metric == "cosine":
            cosines = candidates @ query / np.linalg.norm(candidates, axis=1)
            far = 1 - cosines / np.linalg.norm(query)
        else:
            far = ((candidates - query) ** 2).sum(axis=1)
        distances.append(far[model.true(NEIGHBOURS)[i] > 0].max())
    actual = -truth.scores[:, NEIGHBOURS - 1]
    if metric == "cosine":
        actual += 1
    assert np.mean(distances) == pytest.approx(actual.mean(), rel=0.1)


def test_what_ties_with_the_last_true_neighbour_is_true_too() -> None:
    """Tables of few columns repeat rows, and an answer that equals a true one is right."""
    rows = np.random.default_rng(0).integers(1, 4, (2000, 2)).astype(np.float32)
    model = CollectionModel(Sample.ungrouped(rows), 1800, (0.0, 4.0), None)
    true = model.true(NEIGHBOURS)
    cosines = model.queries @ model.sampled.T
    cosines /= np.outer(*(np.linalg.norm(x, axis=1) for x in (model.queries, model.sampled)))
    same = cosines > 1 - 1e-6
    assert true.shape == cosines.shape
    assert (same.sum(axis=1) > NEIGHBOURS).any()
    assert (true[same] == 1).all()


def test_neighbours_are_predicted_as_near_as_they_are(sample: np.ndarray, base: np.ndarray) -> None:
    model = CollectionModel(Sample.ungrouped(sample), N, (0.0, 1.0), None)
    truth = ground_truth(base, collection(300, 3), NEIGHBOURS)
    heads = model.queries / np.linalg.norm(model.queries, axis=1, keepdims=True)
    near = model.near.reshape(len(heads), -1, DIM)
    near /= np.linalg.norm(near, axis=2, keepdims=True)
    cosines = np.einsum("qsk,qk->qs", near, heads)
    stranger = 1 - float((heads @ heads.T).mean())
    for rank in (9, 29, 49):
        predicted = 1 - cosines[:, rank // 2].mean()  # a stratum is two ranks wide
        actual = 1 - truth.scores[:, rank].mean()
        assert abs(predicted - actual) < 0.15 * actual + 0.01 * stranger


def test_a_stated_neighbour_cosine_is_kept(sample: np.ndarray) -> None:
    model = CollectionModel(Sample.ungrouped(sample), N, (0.0, 1.0), neighbour_cosine=0.9995)
    heads = model.queries / np.linalg.norm(model.queries, axis=1, keepdims=True)
    tenth = model.near.reshape(len(heads), -1, DIM)[:, 4:6]
    tenth /= np.linalg.norm(tenth, axis=2, keepdims=True)
    assert np.einsum("qsk,qk->qs", tenth, heads).mean() == pytest.approx(0.9995, abs=2e-4)


def counts(rows: int, seed: int) -> np.ndarray:
    """How often each of 60 words occurs, mostly not at all; from ten topics."""
    topics = np.random.default_rng(0).gamma(0.3, 1.0, (10, 60))
    rng = np.random.default_rng(seed)
    mixed = rng.dirichlet(np.full(10, 0.3), rows) @ topics
    return np.minimum(rng.poisson(mixed), 10).astype(np.float32)


def test_near_vectors_of_counts_are_counts() -> None:
    """Signs would tell a tenth of a count from none: nearly all of them would be the query's."""
    model = CollectionModel(Sample.ungrouped(counts(1000, 1)), N, (0.0, 10.0), None)
    assert np.isin(model.near, model.sampled).all()
    spec = dpi.Spec(
        "dp-signoporp-rr",
        dim=60,
        k=30,
        epsilon=3.0,
        scale=10.0,
        bounds=(0.0, 1.0),
        adjacency=dpi.attribute(1.0),
    )
    base, queries = counts(N, 2), counts(300, 3)
    found = ground_truth(base, queries, NEIGHBOURS).ids
    signs = [np.sign(dpi.Privatizer(spec).project(x)) for x in (base, queries, model.near)]
    same = (signs[0][found] == signs[1][:, None]).mean()
    several = signs[2].reshape(len(model.queries), -1, 30)[:, : NEIGHBOURS // 2]
    asked = np.sign(dpi.Privatizer(spec).project(model.queries))
    assert abs((several == asked[:, None]).mean() - same) < 0.03


def test_a_sample_is_clipped_as_the_vectors_will_be() -> None:
    """Counts above the limit lie far away from the near vectors, which are made inside it."""
    lengths = np.random.default_rng(9).lognormal(1.0, 2.0, (1000, 1))
    rows = np.rint(lengths * counts(1000, 1)).astype(np.float32)
    rows = rows[rows.any(axis=1)]
    terms: dict[str, Any] = {
        "adjacency": dpi.attribute(1.0),
        "dim": 60,
        "n": N,
        "epsilon": 8.0,
        "scale": 10.0,
        "clip": True,
    }
    terms |= {"bounds": (0.0, 1.0), "methods": ["raw-staircase"]}
    inside = dpi.plan(**terms, public_sample=np.minimum(rows, 10))
    clipped = dpi.plan(**terms, public_sample=rows)
    assert abs(clipped.best.exact.precision - inside.best.exact.precision) < 0.04
    assert any("as they are clipped" in line for line in clipped.remarks)
    wide_rows = scipy.sparse.csr_matrix(rows)
    sample = Sample(wide_rows, np.arange(len(rows)), rows).clipped(0.0, 10.0)
    for found in (sample.vectors.toarray(), sample.queries):
        np.testing.assert_array_equal(found, np.minimum(rows, 10))


def wide(rows: int, seed: int) -> scipy.sparse.csr_matrix:
    """Twelve of 5000 words in each row, most of them from its topic."""
    rng = np.random.default_rng(seed)
    topic = rng.integers(0, 30, (rows, 1))
    words = np.where(rng.random((rows, 12)) < 0.7, 40 * topic, 0) + rng.integers(0, 40, (rows, 12))
    ends = 12 * np.arange(rows + 1)
    x = scipy.sparse.csr_matrix((np.ones(words.size), words.ravel(), ends), (rows, 5000))
    x.sum_duplicates()
    x.data[:] = 1.0
    return x


@pytest.mark.slow
def test_sparse_near_vectors_have_the_cosines_that_are_wanted() -> None:
    model = CollectionModel(
        Sample.ungrouped(wide(600, 1).astype(np.float32)), 5000, (0.0, 1.0), 0.9
    )
    assert set(model.near.data) == {1.0}
    dense = model.near.toarray().reshape(len(model.weight), -1, 5000)
    heads = model.queries.toarray()
    cosines = np.einsum("qsp,qp->qs", dense, heads)
    cosines /= np.linalg.norm(dense, axis=2) * np.linalg.norm(heads, axis=1)[:, None]
    assert abs(cosines[:, 4:6].mean() - 0.9) < 0.01


@pytest.mark.slow
def test_near_vectors_are_as_long_as_neighbours_are() -> None:
    """Whoever is near is short where the other words are chance: noise hides short ones best."""

    def texts(rows: int, seed: int) -> scipy.sparse.csr_matrix:
        rng = np.random.default_rng(seed)
        shape, chance = (rows, 5000), rng.uniform(0, 40, rows) / 5000
        others = scipy.sparse.random_array(shape, density=0.008, rng=rng, format="coo")
        kept = rng.random(others.nnz) * 0.008 < chance[others.row]
        ends = others.row[kept], others.col[kept]
        x = wide(rows, seed + 1) + scipy.sparse.csr_matrix((np.ones(kept.sum()), ends), shape)
        x.data = np.minimum(x.data, 1.0)
        return x.astype(np.float32)

    base, queries = texts(20_000, 1), texts(300, 11)
    found = ground_truth(base, queries, NEIGHBOURS).ids
    model = CollectionModel(Sample.ungrouped(texts(2000, 21)), 20_000, (0.0, 1.0), None)
    near = np.diff(model.near.indptr).reshape(len(model.weight), -1)[:, : NEIGHBOURS // 2]
    lengths = np.diff(base.indptr)
    assert lengths[found].mean() < 0.8 * lengths.mean()
    assert abs(near.mean() / lengths[found].mean() - 1) < 0.1


@pytest.mark.slow
def test_predictions_for_sparse_vectors(tmp_path: Path) -> None:
    base, queries = wide(N, 2), wide(300, 3)
    terms = {
        "adjacency": dpi.attribute(1.0),
        "dim": 5000,
        "n": N,
        "epsilon": 6.0,
        "bounds": (0.0, 1.0),
    }
    made = dpi.plan(**terms, public_sample=wide(2000, 1), methods=FEW)
    assert made.refused[0] == "raw-square-wave is not planned above 4096 attributes."
    assert {row.k for row in made.rows} == {256, 512, 1024}
    index = dpi.PrivateIndex(made.best.spec)
    index.add(base)
    truth = ground_truth(base, queries, NEIGHBOURS)
    for query in ("private", "exact"):
        found = truth.recall(index.search(queries, k=10, query=query).ids, 10, 10).mean()
        assert abs(made.best.found(query).recall - found) < 0.15


def test_queries_have_no_siblings_among_the_sampled() -> None:
    """Neither when some of the sample are told apart by groups, nor when queries are given."""
    vectors = collection(900, 1)
    groups = np.arange(900) // 3
    row_of = {row.tobytes(): i for i, row in enumerate(vectors)}

    def rows(part: Any) -> Any:
        return np.array([row_of[row.tobytes()] for row in part])

    model = CollectionModel(Sample(vectors, groups), N, (0.0, 1.0), None)
    asked = groups[rows(model.queries)]
    assert not set(asked) & set(groups[rows(model.sampled)])
    given = collection(50, 9)
    model = CollectionModel(Sample(vectors, groups, given), N, (0.0, 1.0), None)
    assert model.queries == pytest.approx(given)
    assert len(model.sampled) == 900


# Plans


@pytest.mark.slow
@pytest.mark.parametrize(("method", "k"), [("dp-signoporp-rr", 16), ("dp-oporp-staircase", 12)])
def test_how_often_codes_are_recognised_is_simulated(method: str, k: int) -> None:
    """Thirty topics: signs of one topic depend on each other, which no closed form knows."""
    rng = np.random.default_rng(5)
    topics = rng.uniform(0.3, 0.7, (30, DIM))
    x = topics[rng.integers(0, 30, 5000)] + rng.normal(0, 0.03, (5000, DIM))
    sample, base = np.split(2 * x.astype(np.float32) - 1, [1000])
    spec = dpi.Spec(method, DIM, k=k, epsilon=6.0, adjacency=dpi.attribute(2.0))
    model = CollectionModel(Sample.ungrouped(sample), len(base), spec.bounds, None)
    privatizer = dpi.Privatizer(spec)
    linkage = Linkage(privatizer, base[:500], codes := privatizer.privatize(base))
    linkage.count(codes)
    assert 0.02 < linkage.share < 0.98
    assert abs(linked_share(spec, model) - linkage.share) < 0.12


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [1.0, 3.0])
def test_the_stated_exposure_is_what_attacks_on_the_codes_find(
    base: np.ndarray, epsilon: float
) -> None:
    """Own code found, by the likelihood and by a denoised search, and vectors rebuilt."""
    terms = {**TERMS, "epsilon": epsilon}
    planned = dpi.plan(**terms, public_sample=collection(2000, 1), methods=["raw-square-wave"])
    stated = planned.exposure
    assert stated is not None
    assert stated.simulated
    spec = planned.best.spec
    (curve,) = evaluate(base, base[:20], [spec], runs=1, denoise="auto", query_modes=["exact"])
    measured = curve.points[0].mean
    assert stated.linked == pytest.approx(measured["linked"], abs=0.1)
    assert stated.rebuilt_error == pytest.approx(measured["rebuilt_error"], abs=0.05)
    assert stated.rebuilt_cosine == pytest.approx(measured["rebuilt_cosine"], abs=0.02)
    assert stated.guess_cosine == pytest.approx(measured["guess_cosine"], abs=0.02)


@contextmanager
def noise_known() -> Iterator[pytest.MonkeyPatch]:
    """The same noise whichever tests are run."""
    seeds = count()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dpindex.base.arrays.cores", lambda: 1)  # seeds are drawn in order
        patch.setattr("dpindex.mechanism.privatizer.secret_stream", lambda: Seeded(next(seeds)))
        yield patch


@pytest.fixture(autouse=True)
def known_noise() -> Iterator[None]:
    with noise_known():
        yield


@pytest.fixture(scope="module")
def outcome() -> Any:
    with noise_known() as patch:
        patch.setattr(collection_model, "_QUERIES", 500)
        return dpi.plan(**TERMS, public_sample=collection(2000, 1), methods=FEW)


@pytest.mark.slow
def test_predictions_are_near_what_is_measured(outcome: Any, base: np.ndarray) -> None:
    queries = collection(300, 3)
    truth = ground_truth(base, queries, NEIGHBOURS)
    for method in FEW:
        row = next(row for row in outcome.rows if row.method == method)
        index = dpi.PrivateIndex(row.spec)
        index.add(base)
        if row.ranking != "plain":
            index.fit_denoiser(row.denoiser)
        for query in ("private", "exact"):
            found = index.search(queries, k=10, query=query).ids
            precision = truth.precision(found, 10, NEIGHBOURS).mean()
            recall = truth.recall(found, 10, 10).mean()
            assert abs(row.found(query).precision - precision) < 0.15, (method, query)
            assert abs(row.found(query).recall - recall) < 0.15, (method, query)


@pytest.mark.slow
def test_the_best_row_is_recommended_in_a_sentence(outcome: Any) -> None:
    best = max(row.private.recall for row in outcome.rows)
    assert outcome.best.private.recall >= best - 0.01
    assert "recall@10 of the true 10 = " in outcome.why
    assert "precision@10 of the true 50 = " in outcome.why
    assert "becomes at most 98.3 % sure" in outcome.protection[0]
    assert "rebuilds a vector from its code to cosine" in outcome.protection[1]
    assert f"finds its code among {N}" in outcome.protection[2]
    assert outcome.why.startswith(outcome.best.method)
    assert "epsilon = 4 (pure DP) under attribute(beta=1)" in outcome.why
    assert outcome.why.endswith(".")
    assert all(row.guarantee.epsilon == row.spec.epsilon == 4.0 for row in outcome.rows)
    assert any("24 attributes together cost up to 96" in line for line in outcome.remarks)
    recommended = outcome.to_dict()["recommended"]
    assert dpi.Spec.from_json(json.dumps(recommended["spec"])) == outcome.best.spec
    assert recommended["denoiser"] == outcome.best.denoiser


@pytest.mark.slow
def test_a_plan_for_exact_queries_ranks_by_them(sample: np.ndarray) -> None:
    made = dpi.plan(**{**TERMS, "query": "exact"}, public_sample=sample, methods=FEW[1:])
    assert made.best.exact.recall >= max(row.exact.recall for row in made.rows) - 0.01


def test_signs_that_find_everything_need_no_denoiser(
    sample: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dpindex.study.planner.attribute_neighbourhood._ENOUGH", -1.0)
    outcome = dpi.plan(**TERMS, public_sample=sample, methods=["dp-signoporp-rr"])
    assert {row.method for row in outcome.rows} == {"dp-signoporp-rr"}


@pytest.mark.slow
def test_codes_with_next_to_no_signal_are_not_simulated(
    sample: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    """128 or more noisy sums have a signal-to-noise ratio of 0.1 in all, raw numbers one of 9."""
    simulated, predict = set(), Simulation.predict

    def noted(self: Simulation, *rest: Any) -> Any:
        simulated.add(self.spec.method)
        return predict(self, *rest)

    monkeypatch.setattr(Simulation, "predict", noted)
    stated = {**TERMS, "public_sample": sample}
    rows = dpi.plan(**stated, methods=["dp-rp-l", "raw-staircase"]).rows
    assert {row.exact.recall for row in rows if row.method == "dp-rp-l"} == {0.0}
    assert simulated == {"raw-staircase"}
    dpi.plan(**stated, methods=["dp-rp-l"])
    assert "dp-rp-l" in simulated  # there is no other


@pytest.mark.slow
def test_a_byte_budget_is_kept(sample: np.ndarray) -> None:
    made = dpi.plan(**TERMS, public_sample=sample, methods=FEW, max_bytes=6)
    assert {row.bytes_per_vector for row in made.rows} <= set(range(7))
    with pytest.raises(dpi.InputError, match="codes of at most 2 bytes"):
        dpi.plan(**TERMS, public_sample=sample, methods=["raw-square-wave"], max_bytes=2)


@pytest.mark.slow
def test_the_epsilon_for_a_recall_reaches_it(sample: np.ndarray) -> None:
    stated = {**TERMS, "epsilon": None, "recall": 0.5, "methods": ["raw-staircase"]}
    made = dpi.plan(**stated, public_sample=sample)
    assert 0.38 < made.best.private.recall < 0.75
    assert made.best.private.precision > made.best.private.recall
    assert made.best.spec.budget == float(f"{made.best.spec.budget:.2g}")
    less = {**stated, "recall": None, "epsilon": made.best.spec.budget / 3}
    assert dpi.plan(**less, public_sample=sample).best.private.recall < 0.3
    nearest = dpi.plan(**{**stated, "recall": None, "epsilon": 8.0}, at=1, public_sample=sample)
    assert "recall@1 of the true 1 = " in nearest.why


@pytest.mark.slow
def test_facts_do_where_there_is_no_sample() -> None:
    facts = Facts(norm=2.5, neighbour_cosine=0.97, typical_cosine=0.5, decay=1.0)
    vectors = facts.sample(DIM)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 2.5, rtol=1e-5)
    pairs = vectors[:500] @ vectors[500:1000].T / 2.5**2
    assert pairs.mean() == pytest.approx(0.5, abs=0.05)
    made = dpi.plan(**{**TERMS, "bounds": (-2, 2)}, facts=facts, methods=["raw-staircase"])
    assert any("rough substitute" in line for line in made.remarks)


@pytest.mark.slow
def test_record_level_terms_lead_to_record_level_methods(sample: np.ndarray) -> None:
    stated = {**TERMS, "epsilon": 32.0, "adjacency": dpi.l2(2.0), "delta": 1e-6}
    made = dpi.plan(**stated, public_sample=sample, methods=["raw-gaussian", "raw-staircase"])
    assert [row.method for row in made.rows] == ["raw-gaussian"]
    assert any("raw-staircase" in sentence for sentence in made.refused)


# What is refused


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"epsilon": None}, "an epsilon, a target recall, or both"),
        ({"recall": 0.5, "candidates": 100}, "leave one of the three out"),
        ({"candidates": 9}, "candidates must be a whole number from 10"),
        ({"recall": 0.999, "epsilon": 0.1}, "out of reach at epsilon = 0.1"),
        ({"epsilon": None, "recall": 1.5}, "between 0 and 1"),
        (
            {"epsilon": None, "recall": 0.9, "methods": ["dp-signoporp-rr"], "max_bytes": 1},
            "out of reach",
        ),
        (
            {"epsilon": None, "recall": 0.9, "methods": ["raw-square-wave"], "max_bytes": 2},
            "codes of at most 2 bytes",
        ),
        ({"at": 51}, "at must be a whole number from 1 to 50"),
        ({"n": 10}, "n must be a whole number from 500"),
        ({"dim": 1}, "dim must be a whole number from 2"),
        ({"dim": 5000}, "raw-staircase is not planned above 4096 attributes"),
        ({"dim": 5000, "adjacency": dpi.record()}, "dim must be a whole number from 2 to 4096"),
        ({"dim": 23}, "has 24 columns, not dim = 23"),
        ({"query": "both"}, "'private' or 'exact'"),
        ({"max_bytes": 0}, "max_bytes must be"),
        ({"methods": ["none-oporp"]}, "not private"),
        ({"methods": ["raw-gaussian"]}, "needs a delta"),
        ({"methods": ["magic"]}, "there is no method 'magic'"),
        ({"epsilons": 3.0}, "plan has no option epsilons"),
        ({"k": 8}, "plan has no option k"),
        ({"bounds": (0.4, 0.6)}, "row"),
        ({"facts": Facts(1.0, 0.5)}, "either a public sample or public facts"),
        ({"public_sample": None}, "either a public sample or public facts"),
        ({"public_sample": np.zeros((20, DIM))}, "at least 500 public vectors"),
    ],
)
def test_what_makes_no_plan_is_said_in_a_sentence(
    sample: np.ndarray, changes: dict[str, Any], words: str
) -> None:
    stated = {"methods": ["raw-staircase"], "public_sample": sample, **TERMS, **changes}
    with pytest.raises(dpi.InputError, match=words):
        dpi.plan(**stated)


@pytest.mark.parametrize(
    "numbers", [(0, 0.5), (1, 1.0), (1, 0.2, 0.3), (1, 0.5, 1.0), (1, 0.5, 0.1, 9)]
)
def test_facts_out_of_range_are_refused(numbers: tuple[float, ...]) -> None:
    with pytest.raises(dpi.InputError):
        Facts(*numbers)


# Private vectors


def test_the_collection_itself_is_refused_as_a_sample(sample: np.ndarray) -> None:
    stated = {**TERMS, "n": len(sample)}
    with pytest.raises(dpi.InputError, match="no epsilon covers"):
        dpi.plan(**stated, public_sample=sample, methods=["raw-staircase"])
    made = dpi.plan(**stated, public_sample=sample, methods=["raw-staircase"], skip_leak_check=True)
    assert made.n == len(sample)


def test_a_file_that_an_index_was_built_from_is_refused(tmp_path: Path, sample: np.ndarray) -> None:
    np.save(tmp_path / "x.npy", sample)
    spec = dpi.Spec(
        method="raw-staircase",
        dim=DIM,
        epsilon=1.0,
        bounds=(0.0, 1.0),
        adjacency=dpi.attribute(1.0),
    )
    build(tmp_path / "index", spec, sample)
    with (
        open_vectors(str(tmp_path / "x.npy")) as source,
        pytest.raises(dpi.InputError, match="looks like the private vectors"),
    ):
        dpi.plan(**TERMS, public_sample=source, methods=["raw-staircase"])


# The command line


@pytest.fixture
def run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    monkeypatch.chdir(tmp_path)
    np.save(tmp_path / "sample.npy", collection(600, 1))

    def call(*arguments: object) -> tuple[int, str, str]:
        common = (
            "plan",
            "--dim",
            DIM,
            "--n",
            N,
            "--methods",
            "dp-signoporp-rr",
            "--beta",
            1,
            *arguments,
        )
        monkeypatch.setattr(sys, "argv", ["dpindex", *map(str, common)])
        with pytest.raises(SystemExit) as stop:
            main()
        output = capsys.readouterr()
        return int(stop.value.code or 0), output.out, output.err

    return call


def test_the_command_line_shows_a_table_and_a_reason(run: Callable[..., Any]) -> None:
    code, out, err = run("--epsilon", 4, "--public-sample", "sample.npy")
    assert (code, err) == (0, "")
    assert "dp-signoporp-rr" in out
    assert "Recommended: dp-signoporp-rr with" in out
    assert "Note: " in out
    assert "What it protects:\n  - Of two possibilities" in out
    assert "recall@10" in out
    table = out[: out.index("under epsilon")]
    assert max(map(len, table.splitlines())) <= 80


@pytest.mark.slow
def test_the_command_line_writes_json(run: Callable[..., Any]) -> None:
    code, out, _ = run(
        "--epsilon", 4, "--typical-norm", 1, "--neighbour-cosine", 0.9, "--format", "json"
    )
    assert code == 0
    rows = json.loads(out)["rows"]
    assert {
        "method",
        "k",
        "epsilon",
        "precision@10 of the true 50, private queries",
        "bytes_per_vector",
    } <= set(rows[0])


@pytest.mark.slow
def test_a_plan_has_a_picture(run: Callable[..., Any], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    facts = ("--epsilon", 4, "--typical-norm", 1, "--neighbour-cosine", 0.9, "--max-bytes", 3)
    code, out, err = run(*facts, "--plot", "plan.png")
    assert (code, err) == (0, "")
    assert "Plot: plan.png" in out
    assert (tmp_path / "plan.png").read_bytes().startswith(b"\x89PNG")
    for name, words in (("plan.png", "already exists"), ("plan.jpg", "must end in .png")):
        code, _, err = run(*facts, "--plot", name)
        assert code == 2
        assert words in err


@pytest.mark.slow
def test_curves_go_through_the_recommended_point(sample: np.ndarray) -> None:
    made = dpi.plan(**TERMS, public_sample=sample, methods=FEW[1:], max_bytes=3, curves=True)
    line = next(line for line in made.curves if made.best in line)
    assert line[-1].private.recall > line[0].private.recall
    for line in made.curves:
        assert len({row.method for row in line}) == 1
        assert [row.spec.budget for row in line] == [1.0, 2.0, 4.0, 8.0, 16.0]


@pytest.mark.parametrize("query", ["exact", "private"])
def test_the_lines_of_a_plan_can_be_pasted(
    run: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    query: str,
) -> None:
    """They build what was planned, options and all, and ask in the mode that was planned for."""
    np.save(tmp_path / "vectors.npy", (collection(800, 2) * 255).astype(np.uint8))
    np.save(tmp_path / "queries.npy", (collection(3, 3) * 255).astype(np.uint8))
    np.save(tmp_path / "sample.npy", (collection(600, 1) * 255).astype(np.uint8))
    stated = ("--scale", 255, "--bounds", 0, 1, "--clip", "--beta", 0.5, "--query", query)
    terms = (*stated, "--epsilon", 4, "--public-sample", "sample.npy")
    plan = json.loads(run(*terms, "--format", "json")[1])
    build, ask = plan["commands"]
    assert ("--query private" in ask) == (query == "private")
    for line in (build, ask):
        monkeypatch.setattr(sys, "argv", shlex.split(line))
        with pytest.raises(SystemExit) as stop:
            main()
        assert not stop.value.code, capsys.readouterr().err
    built = dpi.PrivateIndex.open(tmp_path / "my-index").spec
    assert built == dpi.Spec.from_dict(plan["recommended"]["spec"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--epsilon", 4), "publicly known of such vectors: --public-sample"),
        (("--epsilon", 4, "--public-sample", "absent.npy"), "absent.npy"),
        (("--epsilon", 4, "--typical-norm", 1), "--neighbour-cosine"),
        (("--epsilon", 4, "--beta", 1, "--l2", 1), "different promises"),
        (("--epsilon", 4, "--format", "npz"), "not as npz"),
        (("--epsilon", 4, "--public-sample", "sample.npy", "--n", 600), "--skip-leak-check"),
    ],
)
def test_bad_input_is_one_sentence(
    run: Callable[..., Any], arguments: tuple[object, ...], words: str
) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert words in err
    assert err.count("\n") == 1


def test_finding_7_no_default_has_a_delta_over_the_projection() -> None:
    options = PlanOptions(dim=DIM, n=N, epsilon=5.0)
    for adjacency in (dpi.attribute(1.0), dpi.l2(2.0)):
        terms = {"delta": 1e-6, "adjacency": adjacency, "min_norm": 2.5}
        found = attribute_specs(options, None, 5.0, terms).specs
        assert {spec.guarantee.delta_over for spec in found} == {"noise"}
        assert len({spec.method for spec in found}) >= 3
    named = attribute_specs(options, ["row-rp-g-direct"], 5.0, terms).specs
    assert named[0].guarantee.delta_over == "projection"


@pytest.mark.parametrize(("gain", "ranking"), [(0.02, "plain"), (0.05, "auto")])
def test_a_denoiser_that_adds_little_is_left_out(gain: float, ranking: str) -> None:
    def row(ranking: Any, recall: float) -> Row:
        found = Found(precision=recall, recall=recall)
        spec = dpi.Spec("raw-staircase", dim=8, epsilon=5.0, adjacency=dpi.attribute(1.0))
        return Row(spec, ranking, found, found, bytes_per_vector=16, noise=0.4)

    simulation = Mock()
    simulation.predict.return_value = [row("plain", 0.4), row("auto", 0.4 + gain)]
    neighbourhood = Mock()
    neighbourhood._request.value = lambda row: row.found("exact").recall
    chosen = AttributeNeighbourhood._best_row(neighbourhood, simulation, "plain", "auto")
    assert chosen.ranking == ranking
