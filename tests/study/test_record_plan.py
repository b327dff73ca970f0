"""Plans under record(): what they predict, compare and recommend, and the commands they print."""

import json

import numpy as np
import pytest
from found_shares import assert_found, found_shares
from helpers.common import (
    fails,
    few_queries,
    known_noise,
    normal,
    record_spec,
    refuses,
    some_queries,
    topics,
    unit,
)
from numpy.random import default_rng

import dpindex as dpi
from dpindex import Codebook, fit_codebook, l2, record
from dpindex.study.candidates import promising_subsets
from dpindex.study.population import Population
from dpindex.study.prediction import predicted_rows
from dpindex.study.sample import Sample

pytestmark = [known_noise, some_queries]

DIM = 24
N = 6000


def collection(rows, seed):
    return topics(rows, DIM, seed, 60).astype(np.float32)


def plan(**changes):
    terms = {"epsilon": 7.0, "public": collection(800, 1)}
    terms["query"] = "private"
    return dpi.plan(**{"n": N, "adjacency": record(), **terms, **changes})


@pytest.mark.slow
def test_methods_are_compared_and_the_best_is_recommended(monkeypatch):
    # As many as users' plans have: with 200 what the best one is promised differs from what 300
    # queries said of others by luck.
    monkeypatch.setattr("dpindex.study.predictor.ALL_QUERIES", 600)
    outcome = plan(delta=1e-6)
    assert {row.method for row in outcome.rows} == {"record-cap", "record-codebook"}
    sizes = {row.size for row in outcome.rows if row.method == "record-codebook"}
    assert len(sizes) > 4
    largest = max(row.private.recall_within(300) for row in outcome.rows)
    assert outcome.best.private.recall_within(300) > largest - 0.03
    assert all(row.guarantee.adjacency == record() for row in outcome.rows)
    (gaussian,) = outcome.contrast
    assert gaussian.guarantee.adjacency == l2(2)
    assert gaussian.exact.recall < outcome.best.exact.recall
    assert "any two vectors" in outcome.why
    assert "of its reports name" in outcome.why
    assert any("unlike the sample" in line for line in outcome.remarks)
    json.dumps(outcome.to_dict())
    shares = found_shares(outcome.best.spec, collection(N, 2), collection(300, 3))
    assert_found(outcome.best, shares, 0.1)


def test_no_vector_is_encoded_by_itself():
    """Vectors that have nothing in common but themselves: a codebook finds no neighbours."""
    rows = np.eye(600) + 0.001 * normal(600, 600)
    sample = Sample(rows.astype(np.float32), 900)
    spec = record_spec("record-codebook", 600, epsilon=30.0,
                    codebook=sample.book_of_vectors(600), subset=1)  # fmt: skip
    (row,) = predicted_rows(
        spec,
        sample.population_of(spec, 150),
        4,
        (10, 100),
        0.5,
    )
    assert row.exact.precision < 0.1
    # Of ten answers one is the vector that the query's symbol stands for.
    assert row.private.precision < 0.15


def test_neighbours_that_were_encoded_by_the_query_are_not_missed():
    """Each query's nearest has one code, which names the query's own codeword."""
    vectors = normal(500, 8).astype(np.float32)
    population = Population(vectors, 500, 20, codewords=np.arange(500))
    rows = np.arange(20)
    scores = -population.distances[:, None]
    absent = np.zeros(scores.shape, dtype=np.bool_)
    absent[rows, 0, population.distances.argmin(axis=1)] = True
    of_near_ranks = np.empty((20, 0))
    found = population.found(rows, scores, of_near_ranks, 10, [10], absent)
    assert found.min() > 0.99


def test_sets_are_near_the_size_at_which_reports_are_half_true():
    for size in (64, 500, 4000, 65536):
        for epsilon in (1.0, 4.0, 8.0, 12.0, 20.0):
            for reranked in (False, True):
                subsets = promising_subsets(size, epsilon, reranked)
                assert subsets
                assert all(1 <= w <= size // 2 for w in subsets)
    assert promising_subsets(1000, 20.0, reranked=False) == (1,)


@pytest.mark.slow
@few_queries
@pytest.mark.parametrize(
    "changes, words",
    [
        ({"scale": 2.0}, "leave scale out"),
        ({"methods": ["dp-oporp"]}, "no guarantee under record"),
        ({"epsilon": 1000.0}, "epsilon"),
    ],
)
def test_what_cannot_be_planned(changes, words):
    with refuses(words):
        plan(**changes)


def test_codebook_files(run, prints, tmp_path):
    public = collection(100, 1)
    np.save(tmp_path / "public.npy", public)
    prints("codebook public.npy book.npy --size 34")
    third = public[::3]
    np.testing.assert_array_equal(np.load(tmp_path / "book.npy"), third)
    assert Codebook.spaced(tmp_path / "public.npy", 34) == Codebook(third)
    assert Codebook.spaced(public, 100) == Codebook(public)
    fails(run("codebook public.npy book.npy --size 34"), "already exists")
    prints("codebook public.npy grown.npy --size 101")
    assert len(Codebook.read(tmp_path / "grown.npy")) == 101
    prints("codebook public.npy means.npy --size 34 --centroids")
    assert Codebook.read(tmp_path / "means.npy") == fit_codebook(public, 34)
    fails(run("codebook public.npy b.npy --size 1"), "from 2 to 65536")
    fails(run("codebook public.npy b.txt --size 10"), ".npy")


@pytest.mark.slow
def test_predictions_for_sentence_embeddings(data_dir):
    """CLINC150, of whose sentences a random part is public; bench/promises.py tries more."""
    with np.load(data_dir / "clinc150_minilm.npz") as data:
        vectors = default_rng(0).permutation(data["E"].astype(np.float32))
    queries, public, base = np.split(vectors, [500, 2500])
    terms = {"n": len(base), "methods": ["record-codebook"], "epsilon": 10.0, "query": "exact"}
    outcome = plan(**terms, candidates=10, public=public)
    assert len(outcome.best.spec.codebook) == len(public)
    found = found_shares(outcome.best.spec, base, queries)
    assert_found(outcome.best, found, 0.07)


@pytest.mark.slow
def test_a_codebook_of_vectors_without_clusters_is_promised_no_more_than_it_finds():
    """Vectors are encoded by few codewords that their neighbours are: .19 was promised for .09."""
    rng = default_rng(0)
    made = rng.normal(size=(14_500, 64)).astype(np.float32)
    public, base, queries = np.split(made, [2000, 14_000])
    terms = {"n": len(base), "methods": ["record-codebook"], "candidates": 120}
    outcome = plan(**terms, epsilon=10.0, public=public, query="exact")
    found = found_shares(outcome.best.spec, base, queries, 120)
    precision, recall = found["exact"]
    assert outcome.best.exact.precision < precision + 0.03
    assert outcome.best.exact.recall_within(120) < recall + 0.03


def variants(vectors, seed):
    """Five near duplicates of each vector, one after the other, and the number of its group."""
    noise = default_rng(seed).normal(scale=0.05, size=(5, *vectors.shape))
    x = unit(np.concatenate(vectors + noise))
    return x.astype(np.float32), np.tile(np.arange(len(vectors)), 5)


@pytest.mark.slow
def test_promises_hold_for_groups_that_are_told_or_found():
    """Queries without siblings find less than vectors of the sample would."""
    base, _ = variants(collection(1200, 2), 3)
    public, groups = variants(collection(320, 1), 4)
    queries = collection(300, 5)
    terms = {
        "public": public, "epsilon": 8.0, "candidates": 60, "query": "exact",
        "methods": ["record-codebook"],
    }  # fmt: skip
    untold = plan(**terms)
    outcomes = [
        plan(**terms, groups=groups),
        plan(**terms, groups=groups, public_queries=collection(200, 6)),
        untold,
    ]
    assert any("in groups of near-copies" in line for line in untold.remarks)
    for outcome in outcomes:
        found = found_shares(outcome.best.spec, base, queries, 60)
        _, recall = found["exact"]
        assert abs(outcome.best.exact.recall_within(60) - recall) < 0.1


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"groups": np.arange(7)}, "800 vectors, and there are 7 groups"),
        ({"groups": np.arange(800) % 99}, "of 99 groups; a plan needs at least 100"),
        ({"groups": [None, *range(799)]}, "must be labels of one type, one for each vector, none"),
        ({"groups": [np.nan] * 800}, "must be labels of one type, one for each vector, none"),
        ({"groups": np.ones((800, 2))}, "must be labels of one type, one for each vector, none"),
    ],
)
def test_what_is_told_must_fit(changes, words):
    with refuses(words):
        plan(**changes)


@pytest.mark.slow
@few_queries
def test_a_range_covers_queries_with_and_without_near_copies_where_nobody_knows():
    """Versions of documents, 1 to 20 each, in whole documents or at random: both look the same."""
    things = collection(240, 1)
    documents = np.repeat(np.arange(240), default_rng(2).geometric(0.25, 240).clip(max=20))
    noise = default_rng(3).normal(scale=0.02, size=(len(documents), DIM))
    public = unit(things[documents] + noise).astype(np.float32)

    def outcome(**told):
        return plan(
            methods=["record-codebook"],
            epsilon=8.0,
            candidates=60,
            public=public,
            query="exact",
            **told,
        )

    def width(made):
        low, high = made.range_of(made.goal.measures[0])
        assert low <= made.best.exact.recall_within(60) <= high
        return high - low

    asks = "name the groups"
    untold = outcome()
    assert any(asks in line for line in untold.remarks)
    told = [outcome(groups=documents), outcome(groups=np.arange(len(public)))]
    for made in told:
        assert not any(asks in line for line in made.remarks)
        assert width(made) < width(untold)
    # Whether documents are whole or rows are independent.
    low, high = untold.range_of(untold.goal.measures[0])
    for made in told:
        assert low <= made.best.exact.recall_within(60) <= high
