"""The planner: what it predicts for a larger collection, what it refuses, and its messages.

A prediction is a mean over 100 queries; its standard deviation from one noise to another is 0.05
(at 24 attributes, the worst case here), and 0.025 with 500 queries. So the noise is known here:
these tests are about predictions, not about privacy.
"""

import json
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse
from found_shares import assert_found, found_shares
from helpers.common import (
    attribute_spec,
    build,
    fails,
    few_queries,
    known_noise,
    normal,
    refuses,
    some_queries,
    uniform,
    unit,
)
from numpy.random import default_rng
from numpy.testing import assert_allclose, assert_array_equal
from scipy.spatial.distance import cdist

from dpindex import Dense, PrivateIndex, QualityWarning, Spec, attribute, l2, plan, record
from dpindex.cli.build_commands import query_line
from dpindex.data import as_source, open_vectors
from dpindex.study import evaluate, ground_truth, predictor
from dpindex.study.goal import NEIGHBOURS, Goal
from dpindex.study.groups import NearRows
from dpindex.study.plan_result import SavedPlan
from dpindex.study.population import Population
from dpindex.study.prediction import predicted_rows
from dpindex.study.row import FoundShares
from dpindex.study.sample import Sample

DIM = 24
N = 6000
TERMS = {
    "adjacency": attribute(1.0),
    "n": N, "bounds": (0.0, 1.0), "epsilon": 4.0, "query": "private",
}  # fmt: skip
pytestmark = known_noise
some = some_queries
few = few_queries
WIDE = np.zeros((600, 5000))
BETA = {"adjacency": attribute(1.0)}
FEW = ["raw-square-wave", "dp-oporp-staircase", "dp-signoporp-rr"]


def collection(rows, seed):
    """Vectors in [0, 1] of about six dimensions."""
    maps = normal(6, DIM)
    rng = default_rng(seed)
    values = 0.09 * rng.normal(size=(rows, 6)) @ maps
    values += 0.02 * rng.normal(size=(rows, DIM)) + 0.5
    return values.clip(0, 1).astype(np.float32)


def planned(sample, *methods, **changes):
    """The plan under these terms, of a part of the methods."""
    terms = TERMS | {"methods": methods or ["raw-staircase"]}
    return plan(sample, **terms | changes)


@pytest.fixture(scope="module")
def sample():
    return collection(1000, 1)


@pytest.fixture(scope="module")
def base():
    return collection(N, 2)


# The model of the collection


@pytest.mark.parametrize("n", [500, 900, 2000, 4500, 50_000, 10**9])
def test_candidates_stand_for_the_whole_collection(sample, n, monkeypatch):
    population = Population(sample, n, 200)
    monkeypatch.setattr("dpindex.study.population.TIE", 0.0)
    untied = Population(sample, n, 200)
    assert_allclose(population.weight.sum(axis=1), n)
    for neighbours in (1, 10, NEIGHBOURS):
        counted = population.true(neighbours).sum(axis=1)
        assert (counted > neighbours - 1e-9).all()
        assert_allclose(untied.true(neighbours).sum(axis=1), neighbours)


@pytest.mark.parametrize("metric", ["cosine", "l2"])
def test_all_of_a_large_sample_tells_how_near_neighbours_are(metric):
    """Every query has its own nearest sampled vectors."""
    rows = uniform(20_000, 3).astype(np.float32)
    population = Population(rows[:5000], 15_000, 200, metric=metric)
    assert_allclose(population.weight.sum(axis=1), 15_000)
    truth = ground_truth(rows[5000:], population.queries, NEIGHBOURS, metric)
    distances = np.hstack([population.distances, population.near])
    is_true = population.true(NEIGHBOURS) > 0
    farthest = np.where(is_true, distances, 0.0).max(axis=1)
    actual = -truth.scores[:, NEIGHBOURS - 1]
    actual = actual / 2 if metric == "l2" else actual + 1
    assert farthest.mean() == pytest.approx(actual.mean(), rel=0.1)


def test_zero_vectors_ask_nothing():
    """By cosine all vectors are as near to one: any answer would be right."""
    rows = uniform(600, 8).astype(np.float32)
    rows[::2] = 0
    sample = Sample(rows, 5000)
    spec = attribute_spec("raw-staircase", 8, epsilon=5.0)
    _, *tests = sample.tests_of(spec, 100)
    for population in (sample.population_of(spec, 100), *tests):
        assert len(population.queries) == 100
        assert population.queries.any(axis=1).all()
    zeros = np.zeros((500, 8))
    with refuses("norm 0"):
        plan(rows, n=5000, **BETA, epsilon=5.0, public_queries=zeros)


def test_vectors_of_one_norm_are_compared_by_directions_under_any_metric(sample):
    rows = 3.0 * unit(sample)
    by_cosine = Population(rows, N, 50)
    by_distance = Population(rows, N, 50, metric="l2")
    assert_array_equal(by_cosine.near, by_distance.near)
    assert_array_equal(by_cosine.true(NEIGHBOURS), by_distance.true(NEIGHBOURS))


def test_what_ties_with_the_last_true_neighbour_is_true_too():
    """Tables of few columns repeat rows, and an answer that equals a true one is right."""
    rows = default_rng(0).integers(1, 4, (2000, 2)).astype(np.float32)
    population = Population(rows, 1800, 200)
    true = population.true(NEIGHBOURS)
    same = population.distances < 1e-6
    assert true.shape == same.shape
    assert (same.sum(axis=1) > NEIGHBOURS).any()
    assert (true[same] == population.weight[same]).all()


def test_neighbours_are_predicted_as_near_as_they_are(sample, base):
    population = Population(sample, N, 250)
    truth = ground_truth(base, collection(300, 3), NEIGHBOURS)
    assert_as_near(population, len(sample), truth)


def counts(rows, seed):
    """How often each of 60 words occurs, mostly not at all; from ten topics."""
    topics = default_rng(0).gamma(0.3, 1.0, (10, 60))
    rng = default_rng(seed)
    mixed = rng.dirichlet(np.full(10, 0.3), rows) @ topics
    return np.minimum(rng.poisson(mixed), 10).astype(np.float32)


@pytest.mark.slow
@some
def test_a_sample_is_clipped_as_the_vectors_will_be():
    """Counts above the limit lie far away from the near vectors, which are made inside it."""
    lengths = default_rng(9).lognormal(1.0, 2.0, (1000, 1))
    rows = np.rint(lengths * counts(1000, 1)).astype(np.float32)
    rows = rows[rows.any(axis=1)]
    terms = {**BETA, "n": N, "epsilon": 8.0, "scale": 10.0, "clip": True}
    terms |= {"bounds": (0.0, 1.0), "methods": ["raw-staircase"]}
    inside = plan(**terms, public=np.minimum(rows, 10))
    outcome = plan(**terms, public=rows)
    promised = [made.best.exact.precision for made in (inside, outcome)]
    assert abs(promised[0] - promised[1]) < 0.04
    assert any("that are clipped to the bounds" in line for line in outcome.remarks)
    sparse = scipy.sparse.csr_matrix(rows)
    clipped = as_source(sparse).clipped(0.0, 10.0).read()
    assert_array_equal(clipped.toarray(), np.minimum(rows, 10))


@pytest.mark.slow
@some
def test_embeddings_are_clipped_to_the_middle_of_the_sample(base):
    """A change is no wider than the bounds, so that more is found, of the vectors as they are."""
    directions = unit(base - 0.5)
    public, private, asked = np.split(directions, [1000, 5800])
    terms = TERMS | {"bounds": (-1.0, 1.0), "n": 4800, "query": "exact"}
    terms |= {"adjacency": attribute(2.0), "methods": ["dp-oporp-staircase"]}
    outcome = plan(public, **terms)
    spec = outcome.best.spec
    assert spec.clip
    assert spec.adjacency == attribute(2.0)
    low, high = spec.bounds
    inside = (public >= low) & (public <= high)
    assert 0.73 < inside.mean() < 0.77
    assert any("three quarters of the sample" in line for line in outcome.remarks)
    index = PrivateIndex(spec)
    with pytest.warns(QualityWarning, match="unless a plan chose them"):
        index.add(private)
    truth = ground_truth(private, asked, NEIGHBOURS)  # of the vectors as they are
    ids = index.search(asked, k=10).ids
    found = truth.precision(ids, 10, NEIGHBOURS).mean()
    assert abs(outcome.best.exact.precision - found) < 0.1
    wide = plan(public, **terms, clip=True).best
    gained = outcome.best.exact.within[100] - wide.exact.within[100]
    assert gained > 0.2


def wide(rows, seed):
    """Twelve of 5000 words in each row, most of them from its topic."""
    rng = default_rng(seed)
    topic = rng.integers(0, 30, (rows, 1))
    of_topic = rng.random((rows, 12)) < 0.7
    first = np.where(of_topic, 40 * topic, 0)
    words = first + rng.integers(0, 40, (rows, 12))
    x = np.zeros((rows, 5000))
    np.put_along_axis(x, words, 1.0, axis=1)
    return scipy.sparse.csr_matrix(x)


@pytest.mark.slow
@some
def test_predictions_for_sparse_vectors(tmp_path):
    n = 3000
    base = wide(n, 2)
    queries = wide(300, 3)
    terms = {**BETA, "n": n, "epsilon": 6.0, "bounds": (0.0, 1.0)}
    made = plan(**terms, public=wide(1000, 1), methods=FEW)
    assert made.refused[0] == "raw-square-wave is not planned above 4096 attributes."
    assert {row.k for row in made.rows} == {256, 512, 1024}
    found = found_shares(made.best.spec, base, queries)
    for query, (_, recall) in found.items():
        assert abs(made.best.found(query).recall - recall) < 0.1


def test_queries_have_no_siblings_among_the_sampled():
    """Neither when some of the sample are told apart by groups, nor when queries are given."""
    vectors = collection(900, 1)
    groups = np.arange(900) // 3
    population = Population(vectors, N, 100, groups=groups)
    row_of = {row.tobytes(): i for i, row in enumerate(vectors)}
    rows = [row_of[row.tobytes()] for row in population.queries]
    siblings = groups[rows][:, None] == groups
    assert siblings.sum() == 3 * len(rows)
    for weight in (population.weight, population.true(NEIGHBOURS)):
        assert not weight[:, :900][siblings].any()
    given = collection(50, 9)
    population = Population(vectors, N, given)
    assert population.queries == pytest.approx(given)
    assert np.isfinite(population.distances).all()


# Plans


@pytest.mark.slow
@some
def test_the_stated_exposure_is_what_attacks_on_the_codes_find(base):
    """Own code found, by the likelihood and by a denoised search, and vectors rebuilt."""
    terms = {**TERMS, "epsilon": 3.0}
    planned = plan(**terms, public=collection(2000, 1), methods=["raw-square-wave"])
    stated = planned.attacks
    as_many = base[: stated.codes]
    how = {"runs": 1, "denoise": "auto", "query_modes": ["exact"]}
    (curve,) = evaluate(as_many, base[:20], [planned.best.spec], **how)
    measured = curve.points[0].mean
    within = {
        "linked": 0.1,
        "reconstruction_error": 0.05,
        "reconstruction_cosine": 0.02,
        "guess_cosine": 0.02,
    }
    for name, most in within.items():
        assert getattr(stated, name) == pytest.approx(measured[name], abs=most)


@pytest.mark.slow
def test_predictions_are_near_what_is_measured_and_the_best_is_recommended(base, monkeypatch):
    monkeypatch.setattr(predictor, "QUERIES", 500)
    outcome = planned(collection(2000, 1), *FEW)
    queries = collection(300, 3)
    for method in FEW:
        row = next(row for row in outcome.rows if row.method == method)
        found = found_shares(row.spec, base, queries, denoiser=row.denoiser)
        assert_found(row, found, 0.15)
    best = max(row.private.recall for row in outcome.rows)
    assert outcome.best.private.recall >= best - 0.01
    assert "becomes at most 98.3 % sure" in outcome.protection[0]
    assert "reconstructs a vector from its code to cosine" in outcome.protection[1]
    assert "of the time among 2000 codes" in outcome.protection[2]
    why = outcome.why
    assert why.startswith(outcome.best.method)
    assert "recall@10 of the true 10 = " in why
    assert "epsilon = 4 (pure DP) under attribute(beta=1)" in why
    assert why.endswith(".")
    for row in outcome.rows:
        assert row.spec.epsilon == 4.0
        assert row.guarantee.epsilon == 4.0
    assert any("24 attributes together cost up to 96" in line for line in outcome.remarks)
    recommended = outcome.to_dict()["recommended"]
    spec = json.dumps(recommended["spec"])
    assert Spec.from_json(spec) == outcome.best.spec
    assert recommended["denoiser"] == outcome.best.denoiser


@pytest.mark.slow
@few
def test_no_next_method_is_said_to_find_more_than_what_is_recommended(sample):
    """What is promised of the best comes from other queries than what is predicted of others."""
    outcome = planned(sample, "raw-staircase", "raw-laplace")
    of_all = FoundShares(1.0, {10: 1.0})
    better = [replace(row, exact=of_all) for row in outcome.rows[1:]]
    goal = replace(outcome.goal, query="exact")
    told = replace(outcome, goal=goal, rows=(outcome.best, *better)).why
    assert told.endswith(f"; raw-laplace with {DIM} numbers is about as good.")


@pytest.mark.slow
@few
def test_a_plan_for_exact_queries_ranks_by_them(sample):
    made = planned(sample, *FEW[1:], query="exact", at=1)
    # The best one is promised what other queries find.
    of_others = [row.exact.recall for row in made.rows[1:]]
    assert of_others == sorted(of_others, reverse=True)
    assert "recall@1 of the true 1 = " in made.why


@pytest.mark.slow
@few
def test_codes_with_next_to_no_signal_are_not_tried(sample, monkeypatch):
    """128 or more noisy sums have a signal-to-noise ratio of 0.1 in all, raw numbers one of 9."""
    tried = set()
    predicted_rows = predictor.predicted_rows

    def noted(spec, *rest, **named):
        tried.add(spec.method)
        return predicted_rows(spec, *rest, **named)

    monkeypatch.setattr(predictor, "predicted_rows", noted)
    rows = planned(sample[:500], "dp-rp-l", "raw-staircase").rows
    found = {row.exact.recall for row in rows if row.method == "dp-rp-l"}
    assert found == {0.0}
    assert tried == {"raw-staircase"}
    planned(sample[:500], "dp-rp-l")
    assert "dp-rp-l" in tried  # there is no other


@pytest.mark.slow
@few
def test_the_epsilon_for_a_recall_reaches_it(sample):
    made = planned(sample[:500], epsilon=None, recall=0.5)
    assert 0.38 < made.best.private.recall < 0.75
    assert made.best.private.precision > made.best.private.recall
    assert made.best.spec.budget == float(f"{made.best.spec.budget:.2g}")
    less = planned(sample[:500], epsilon=made.best.spec.budget / 3)
    assert less.best.private.recall < 0.3


# What is refused


@few
@pytest.mark.parametrize(
    "changes, words",
    [
        ({"epsilon": None}, "an epsilon, a target recall, or both"),
        ({"recall": 0.5, "candidates": 100}, "leave one of the three out"),
        ({"candidates": 9}, "candidates must be a whole number from 10"),
        ({"candidates": "5"}, "candidates must be a whole number or a share"),
        ({"recall": 0.999, "epsilon": 0.1}, "out of reach at epsilon = 0.1"),
        ({"epsilon": None, "recall": 1.5}, "between 0 and 1"),
        (
            {
                "epsilon": None,
                "recall": 0.9,
                "methods": ["dp-signoporp-rr"],
                "max_bytes": 1,
            },
            "out of reach",
        ),
        ({"methods": ["raw-square-wave"], "max_bytes": 2}, "codes of at most 2 bytes"),
        ({"at": 51}, "at must be a whole number from 1 to 50"),
        ({"n": 10}, "n must be a whole number from 500"),
        ({"sample": np.zeros((600, 1))}, "dim must be a whole number from 2"),
        ({"sample": WIDE}, "is not planned above 4096 attributes"),
        (
            {"sample": WIDE, "adjacency": record()},
            "dim must be a whole number from 2 to 4096",
        ),
        ({"public_queries": np.zeros((20, 23))}, "has 23 columns, and the sample 24"),
        ({"query": "both"}, "'exact' or 'private'"),
        ({"max_bytes": 0}, "max_bytes must be"),
        ({"methods": ["none-oporp"]}, "not private"),
        ({"methods": ["raw-gaussian"]}, "needs a delta"),
        ({"methods": ["magic"]}, "there is no method 'magic'"),
        ({"sample": np.zeros((20, DIM))}, "at least 500 public vectors"),
    ],
)
def test_what_makes_no_plan_is_said_in_a_sentence(sample, changes, words):
    with refuses(words):
        planned(**{"sample": sample, **changes})


def test_a_share_of_candidates_is_planned_for_as_their_mean_number():
    terms = {"dim": 24, "n": 4000, "adjacency": record(), "epsilon": 6.0}
    assert Goal(**terms, candidates="5%").counted_candidates == 200
    assert Goal(**terms, candidates="0.01%").counted_candidates == 10
    spec = attribute_spec("none-oporp", 24)
    kept = SavedPlan(spec, "cosine", None, 10, "5%", "exact", "", {})
    words = "dpindex query ix QUERIES -k 10 --query exact --candidates 5% --rerank v.npy"
    assert query_line(kept, "ix", "v.npy", None) == words


@pytest.mark.parametrize("row", [12_345, 19_999])
def test_a_value_outside_the_bounds_is_named_by_its_row_whichever_rows_are_taken(row):
    public = np.zeros((20_000, 4))
    public[row, 3] = 7.0
    sound = np.full((500, 4), 1e-3)
    for named in ("public", "public_queries"):
        stated = {**TERMS, "methods": ["raw-staircase"], "public": sound, named: public}
        with refuses(f"row {row}, column 3 lies outside the public bounds"):
            plan(**stated)


# Private vectors


@few
def test_the_collection_itself_is_refused_as_a_sample(sample):
    with refuses("no epsilon covers"):
        planned(sample, n=len(sample))
    made = planned(sample, n=len(sample), skip_leak_check=True)
    assert made.goal.n == len(sample)


def test_a_file_that_an_index_was_built_from_is_refused(tmp_path, sample):
    path = tmp_path / "x.npy"
    np.save(path, sample)
    spec = attribute_spec("raw-staircase", DIM, epsilon=1.0, bounds=(0.0, 1.0))
    build(tmp_path / "index", spec, sample)
    with open_vectors(path) as source, refuses("looks like the private vectors"):
        planned(source)


# The command line


@pytest.fixture
def plan_line(run, tmp_path):
    np.save(tmp_path / "sample.npy", collection(600, 1))
    return lambda line: run(f"plan --n {N} --methods dp-signoporp-rr --beta 1 {line}")


@pytest.mark.slow
@few
def test_the_command_line_shows_a_table_and_a_reason(plan_line):
    code, out, err = plan_line("--epsilon 4 --public sample.npy")
    assert code == 0, err
    assert "dp-signoporp-rr" in out
    assert "Recommended: dp-signoporp-rr with" in out
    assert "Note: " in out
    assert "What it protects:\n  - Of two possibilities" in out
    assert "recall@10" in out
    table = out[: out.index("under epsilon")]
    assert max(map(len, table.splitlines())) <= 80


@pytest.mark.slow
@few
def test_a_plan_has_a_picture(plan_line, tmp_path):
    pytest.importorskip("matplotlib")
    terms = "--epsilon 4 --public sample.npy --max-bytes 3"
    code, out, err = plan_line(f"{terms} --plot plan.png")
    assert code == 0, err
    assert "Plot: plan.png" in out
    assert (tmp_path / "plan.png").read_bytes().startswith(b"\x89PNG")
    for name, words in (("plan.png", "already exists"), ("plan.jpg", "must end in .png")):
        fails(plan_line(f"{terms} --plot {name}"), words)


@pytest.mark.slow
@few
def test_a_byte_budget_is_kept_and_curves_go_through_the_recommended_point(sample):
    made = planned(sample, *FEW[1:], max_bytes=3, curves=True)
    sizes = {row.bytes_per_vector for row in made.rows}
    assert sizes <= {0, 1, 2, 3}
    line = next(line for line in made.curves if made.best in line)
    first = line[0].private
    last = line[-1].private
    assert last.recall_within(100) > first.recall_within(100)
    for line in made.curves:
        assert len({row.method for row in line}) == 1
        budgets = [row.spec.budget for row in line]
        assert budgets == [1.0, 2.0, 4.0, 8.0, 16.0]


@pytest.mark.parametrize(
    "line, words",
    [
        ("", "--public"),
        ("--public absent.npy", "absent.npy"),
        ("--public sample.npy --l2 1", "different promises"),
        ("--public sample.npy --n 600", "--skip-leak-check"),
    ],
)
def test_bad_input_is_one_sentence(plan_line, line, words):
    said = plan_line(f"--epsilon 4 {line}")
    fails(said, words)
    assert said[1] == ""


@pytest.mark.slow
@pytest.mark.parametrize("adjacency", [attribute(1.0), l2(2.0)])
@few
def test_finding_7_no_default_has_a_delta_over_the_projection(sample, adjacency):
    terms = {**TERMS, "public": sample[:500], "adjacency": adjacency}
    terms |= {"delta": 1e-6, "epsilon": 5.0, "variant": Dense(min_norm=0.5)}
    rows = plan(**terms).rows
    assert {row.guarantee.delta_over for row in rows} == {"noise"}
    assert len({row.method for row in rows}) >= 3
    if adjacency == l2(2.0):
        named = plan(**terms, methods=["row-rp-g-direct"])
        assert named.best.guarantee.delta_over == "projection"


def test_a_denoiser_that_adds_little_is_left_out_and_a_design_is_denoised_for_less():
    gains = (0.005, 0.02, 0.05)
    for informed, wanted in ((False, [False, False, True]), (True, [False, True, True])):
        worth = [predictor.is_worth_denoising(0.4, 0.4 + gain, informed) for gain in gains]
        assert worth == wanted


def test_denoised_noise_is_promised_to_find_nothing():
    """Its scores end where a denoiser is sure, which normal noise around them does not."""
    rng = default_rng(0)
    maps = rng.normal(size=(8, 192)) / 20
    vectors = rng.normal(size=(2000, 8)) @ maps
    vectors += 0.02 * rng.normal(size=(2000, 192))
    public = vectors.clip(-1, 1).astype(np.float32)
    population = Population(public, 20_000, 100)
    spec = attribute_spec("dp-oporp-staircase", 192, 96, epsilon=0.7)
    levels = (10, 200, 1000)
    *_, denoised = predicted_rows(spec, population, 3, levels, 0.9, "linear")
    assert denoised.denoiser == "linear"
    assert denoised.exact.precision < 0.05


def topics(rows, seed, shares=None):
    """Directions about thirty centres, in all dimensions around each."""
    centres = normal(30, DIM)
    rng = default_rng(seed)
    chosen = centres[rng.choice(30, rows, p=shares)]
    x = chosen + 0.5 * rng.normal(size=(rows, DIM))
    return unit(x).astype(np.float32)


RARE = 1.0 / np.arange(1, 31)


def assert_as_near(population, sampled, truth):
    """Vectors of three near ranks lie as far away as those of a collection do."""
    ranks = population.weight[0, sampled:].cumsum()  # of the last vector of each near rank
    for rank in (4, 9, 29):
        place = np.searchsorted(ranks, rank)
        actual = 1 - truth.scores[:, rank].mean()
        assert population.near[:, place].mean() == pytest.approx(actual, rel=0.12)


@pytest.mark.parametrize("shares", [None, RARE / RARE.sum()], ids=["equal", "rare"])
@pytest.mark.parametrize("n", [8000, 16_000, 40_000])
def test_the_nearest_of_a_topic_are_no_nearer_than_they_are(n, shares):
    """Distances leap behind the last sampled vector of a rare topic, and in no other place."""
    population = Population(topics(1000, 1, shares), n, 250)
    base = topics(n, 2, shares)
    queries = topics(300, 3, shares)
    truth = ground_truth(base, queries, NEIGHBOURS)
    assert_as_near(population, 1000, truth)


def test_near_copies_say_no_more_of_how_distances_grow_than_one_vector():
    """And of a vector and its variants, the one in the middle asks."""
    rng = default_rng(4)

    def with_variants(rows, seed):
        sentences = topics(rows, seed)
        noise = 0.12 * rng.normal(size=(4, rows, DIM))
        variants = [sentences, *(sentences + noise)]
        return np.concatenate(variants).astype(np.float32)

    public = with_variants(400, 1)
    groups = np.tile(np.arange(400), 5)
    sample = Sample(public, 10_000, groups)
    spec = Spec("raw-staircase", DIM, epsilon=4.0, **BETA)
    population = sample.population_of(spec, 400)
    assert sorted(population.labels) == list(range(400))
    asked = {bytes(row) for row in population.queries}
    assert asked <= {bytes(row) for row in public[:400]}
    truth = ground_truth(with_variants(2000, 2), topics(300, 3), NEIGHBOURS)
    assert_as_near(population, 400, truth)


def test_whole_groups_are_told_from_independent_rows_of_as_many_kinds():
    rng = default_rng(5)
    things = rng.normal(size=(400, DIM)).astype(np.float32)

    def rows_of(kinds):
        noise = 0.2 * rng.normal(size=(len(kinds), DIM))
        near = things[kinds] + noise.astype(np.float32)
        return rng.permutation(near)

    whole = np.repeat(np.arange(400), rng.integers(1, 9, 400))
    groups = NearRows(rows_of(whole), "l2").groups()
    assert 390 <= groups.max() + 1 <= 450
    kinds = rng.integers(0, 400, len(whole))
    assert NearRows(rows_of(kinds), "l2").groups() is None
    # Rows of a table are often repeated.
    assert NearRows(things[kinds], "l2").groups() is None
    answers = rng.integers(0, 3, size=(1500, 3)).astype(np.float32)
    assert NearRows(answers, "l2").groups() is None
    bits = scipy.sparse.csr_matrix(things[kinds] > 1, dtype=np.float32)
    assert NearRows(bits, "l2").groups() is None


def test_near_copies_are_seen_whether_they_are_whole_groups_or_kinds():
    """And no repetitions of rows, clusters, or sentences that are near in part."""
    rng = default_rng(6)
    things = rng.normal(size=(400, DIM)).astype(np.float32)

    def rows_of(kinds):
        noise = 0.02 * rng.normal(size=(len(kinds), DIM)).astype(np.float32)
        return rng.permutation(things[kinds] + noise)

    for kinds in (np.repeat(np.arange(400), rng.geometric(0.2, 400)), rng.integers(0, 400, 1200)):
        for metric in ("l2", "cosine"):
            assert NearRows(rows_of(kinds), metric).copies().max() + 1 == len(np.unique(kinds))
    assert NearRows(things[kinds], "l2").copies() is None
    assert NearRows(topics(2000, 1), "cosine").copies() is None
    table = rng.integers(0, 9, size=(1500, 3)).astype(np.float32)
    assert NearRows(table, "l2").copies() is None
    assert NearRows(rows_of(rng.integers(0, 60, 1200)), "l2").copies() is None


@pytest.mark.filterwarnings("error")
@few
def test_half_of_a_sample_may_be_one_group(sample):
    groups = np.maximum(np.arange(1000) - 499, 0)
    made = planned(sample, groups=groups)
    assert 0.0 < made.best.private.recall < 1.0


def test_vectors_of_near_ranks_lie_where_they_should(sample):
    for metric in ("cosine", "l2"):
        population = Population(sample, N, 40, metric=metric)
        made, asked = near_vectors(population, 9, start=3)
        distances = distances_of(made.astype(np.float64), asked.astype(np.float64), metric)
        # Values that leave the range of the sample are clipped, and a vector is then nearer.
        at_ends = (made <= sample.min()) | (made >= sample.max())
        clipped = at_ends.any(axis=1)
        wanted = population.near[3:9].ravel()
        assert clipped.mean() < 0.25
        assert_allclose(distances[~clipped], wanted[~clipped], rtol=0.01, atol=1e-6)
        assert_allclose(distances[clipped], wanted[clipped], rtol=0.05)
        assert made.min() >= sample.min()
        assert made.max() <= sample.max()


@pytest.mark.parametrize("copied", [0, 24], ids=["", "with copies"])
def test_near_ranks_are_as_near_as_each_querys_exponent_says(copied):
    """Two thirds of the vectors lie in a plane, and the others fill 16 dimensions.

    Copies of a few vectors make no other's neighbours nearer.
    """
    rng = default_rng(0)
    is_of_many = np.arange(12_000) % 3 % 2 == 1
    dims = np.where(is_of_many, 16, 2)
    vectors = rng.normal(size=(12_000, 18))
    vectors[dims == 2, 2:] = 0.0
    vectors[dims == 16, :2] = 0.0
    vectors[:copied] = vectors[copied : 2 * copied] + 1e-3
    public, private = np.split(vectors, [1000])
    population = Population(public, len(private), 500, metric="l2")
    for dim in (2, 16):
        own = dims[population.asked_labels] == dim
        distances = cdist(population.queries[own], private, "sqeuclidean") / 2
        nearest = np.sort(distances, axis=1)

        def crowd(distances):
            """The logarithm of how many vectors lie that near, up to a constant."""
            return dim / 2 * np.log(np.median(distances[:, [4, 19]], axis=0))  # noqa: B023

        # With one exponent for all 5 to 13.
        assert_allclose(crowd(population.near[own]), crowd(nearest), rtol=0, atol=2.2)


def distances_of(made, asked, metric):
    """Between rows, as a population states them."""
    if metric == "cosine":
        return 1 - (unit(made) * unit(asked)).sum(axis=1)
    return ((made - asked) ** 2).sum(axis=1) / 2


def near_vectors(population, stop, start=0):
    """Those of all near ranks of some queries, and of each the query that it is near."""
    asked = np.arange(start, stop)
    ranks = np.arange(population.near.shape[1])
    made = population.ends.vectors_at(population.between(asked, ranks))
    return made, population.queries[np.repeat(asked, len(ranks))]


def test_near_vectors_of_sparse_ones_have_whole_attributes():
    """Half attributes flip no more signs than whole ones: mail was promised .98, and found .10."""
    rng = default_rng(0)
    is_likely = rng.integers(0, 8, (8, 6000)) == 0
    chances = np.where(is_likely, 0.2, 0.02)
    words = rng.random((800, 6000)) < chances[rng.integers(0, 8, 800)]
    rows = scipy.sparse.csr_matrix(words, dtype=np.float32)
    population = Population(rows, 8000, 40)
    made, queries = near_vectors(population, 6)
    assert set(made.data) == {1.0}
    cosines = made.multiply(queries).sum(axis=1).A1
    for part in (made, queries):
        cosines = cosines / np.sqrt(part.sum(axis=1).A1)
    wanted = 1 - population.near[:6].ravel()
    assert np.abs(cosines - wanted).max() < 0.1
    assert abs(cosines.mean() - wanted.mean()) < 0.01


def test_near_vectors_of_words_lie_and_tie_as_those_of_a_collection_do():
    """They were made towards nearer ones, so none had a distance, and half of spacings are zero."""
    public = wide(1000, 1).astype(np.float32)
    population = Population(public, 3000, 300)
    truth = ground_truth(wide(3000, 2), population.queries, NEIGHBOURS)
    spacings = np.diff(population.near[:, :10])
    assert (spacings == 0).mean() > 0.1
    for rank in (0, 4, 9):
        actual = 1 - truth.scores[:, rank].mean()
        predicted = population.near[:, rank].mean()
        assert predicted == pytest.approx(actual, abs=0.04)


@pytest.mark.parametrize("metric", ["cosine", "l2"])
def test_near_vectors_of_few_values_have_no_others(metric):
    """Sums of bits are often zero: signs of them were promised .25 of ten, and found .06."""
    rows = default_rng(0).integers(0, 3, (800, 60)).astype(np.float32)
    population = Population(rows, 8000, 40, metric=metric)
    made, queries = near_vectors(population, 20)
    assert {*np.unique(made)} == {0.0, 1.0, 2.0}
    apart = distances_of(made, queries, metric)
    wanted = population.near[:20].mean()
    assert apart.mean() == pytest.approx(wanted, rel=0.1)


def test_near_vectors_of_bits_are_no_nearer_than_those_of_a_collection():
    """Of many with so many bits by chance the nearest were too near: .54 for .44 was promised."""
    rng = default_rng(0)
    likely = rng.normal(size=(8800, 6)) @ rng.normal(size=(6, 100))
    bits = likely + rng.normal(size=likely.shape) > 1
    bits = bits.astype(np.float32)
    asked = np.arange(100)
    population = Population(bits[:800], 8000, bits[:100], asked_labels=asked)
    rows = unit(bits)
    distances = 1 - rows[:100] @ rows[800:].T
    actual = np.sort(distances, axis=1)[:, 9].mean()
    assert population.near[:, 9].mean() == pytest.approx(actual, rel=0.03)


def test_near_vectors_of_counts_have_no_values_between():
    """Of counts, too, which have many values, few of them common: .79 was promised, .10 found."""
    rows = default_rng(0).poisson(0.2, (800, 80)).astype(np.float32)
    rows[0, :7] = np.arange(10, 17)
    population = Population(rows, 8000, 40)
    made, _ = near_vectors(population, 20)
    assert {*np.unique(made)} <= {*np.unique(rows)}


@pytest.mark.parametrize("data", ["answers", "square roots of shares"])
def test_near_vectors_of_one_norm_stay_within_bounds(data):
    """Plans for answers to questions, or roots of shares, said that a row was outside of bounds."""
    rng = default_rng(0)
    kind = rng.integers(0, 8, 800)
    if data == "answers":  # to twelve questions, of five each: norms are the root of twelve
        likely = rng.dirichlet(np.full(5, 0.4), size=(8, 12))
        ends = likely[kind].cumsum(axis=2)[:, :, :-1]
        answers = (rng.random((800, 12, 1)) > ends).sum(axis=2)
        chosen = answers[:, :, None] == np.arange(5)
        rows = chosen.reshape(800, 60).astype(np.float32)
    else:
        weights = rng.gamma(0.3 + 3 * np.eye(20)[kind]) + 1e-6
        shares = weights / weights.sum(axis=1, keepdims=True)
        rows = np.sqrt(shares).astype(np.float32)
    population = Population(rows, 18_000, 40)
    made, _ = near_vectors(population, 40)
    assert rows.min() <= made.min()
    assert made.max() <= rows.max()
    if data == "answers":
        assert {*np.unique(made)} == {0.0, 1.0}
    else:
        assert_allclose(np.linalg.norm(made, axis=1), 1.0, atol=0.01)


@pytest.mark.slow
@some
def test_what_is_promised_of_topics_is_found():
    """Fifteen times the sample: .72 of ten answers were promised, and .52 found."""
    n = 30_000
    terms = {"n": n, "bounds": (-1.0, 1.0), "epsilon": 10.0, "query": "exact"}
    made = planned(topics(2000, 1), **terms, candidates=n // 100)
    shares = found_shares(made.best.spec, topics(n, 2), topics(500, 3), n // 100)
    assert_found(made.best, shares, 0.07, n // 100)
    _, found = shares["exact"]
    low, high = made.range_of(made.goal.measures[0])
    assert low <= found <= high
    assert f"{100 * low:.0f} to {100 * high:.0f} %" in made.expected


@few
def test_a_plan_says_where_its_sample_is_too_small_for_a_test():
    """And which sample would do, if a plan tries as many vectors."""
    public = topics(600, 1)

    def remarks(n):
        made = planned(public, n=n, bounds=(-1.0, 1.0))
        return " ".join(made.remarks)

    assert "may lie outside the range" not in remarks(6000)
    of_many = remarks(60_000)
    assert "stands for 100 of the collection" in of_many
    assert "1000 public vectors would do" in of_many
    assert "8192 vectors at most" in remarks(10**9)
