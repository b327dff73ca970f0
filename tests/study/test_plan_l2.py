"""Plans for neighbours by Euclidean distance, where lengths count."""

import numpy as np
import pytest
from found_shares import found_shares
from helpers.common import few_queries, known_noise, refuses
from scipy import sparse

from dpindex import Spec, attribute, plan, record
from dpindex.study.population import Population
from dpindex.study.prediction import predicted_rows

pytestmark = known_noise

TERMS = {"bounds": (0, 1), "adjacency": attribute(0.1)}


def table(rows, seed=0):
    """Six columns of which three follow the others."""
    rng = np.random.default_rng(seed)
    free = rng.uniform(0, 1, (rows, 3))
    noise = rng.normal(0, 0.1, free.shape)
    follow = np.clip(free[:, ::-1] + noise, 0, 1)
    return np.hstack([free, follow]).astype(np.float32)


def small_plan(**changes):
    """Of raw numbers and a small table, unless it is said otherwise."""
    terms = {"n": 3000, "epsilon": 6.0, "public": table(700), "methods": ["raw-staircase"]}
    return plan(**{**terms, **TERMS, **changes})


@pytest.mark.slow
def test_promises_by_distance_are_found():
    """Within 0.08: a promise varies by 0.04 and 200 queries by 0.02."""
    rows = table(8200)
    base = rows[:6000]
    sample = rows[6000:8000]
    queries = rows[8000:]
    outcome = plan(
        n=6000, epsilon=3.0, public=sample, metric="l2",
        methods=["raw-staircase"], **TERMS,
    )  # fmt: skip
    assert outcome.metric == "l2"
    assert outcome.to_dict()["metric"] == "l2"
    row = outcome.best
    found = found_shares(
        row.spec,
        base,
        queries,
        denoiser=row.denoiser,
        metric="l2",
    )
    for mode, (precision, _) in found.items():
        assert abs(row.found(mode).precision - precision) < 0.08, mode


@pytest.mark.slow
@few_queries
def test_a_plan_says_that_cosines_rank_unless_distances_do():
    by_cosine = small_plan()
    assert any("ranked by cosine, which ignores lengths" in line for line in by_cosine.remarks)
    by_distance = small_plan(metric="l2")
    assert not any("ranked by cosine" in line for line in by_distance.remarks)
    assert by_distance.best.exact != by_cosine.best.exact


@few_queries
def test_a_plan_names_a_delta_above_one_over_n():
    outcome = small_plan(methods=["raw-gaussian"], delta=0.01)
    assert any("delta = 0.01 is more than one over" in line for line in outcome.remarks)


@pytest.mark.slow
@few_queries
def test_a_plan_names_a_beta_that_is_a_small_part_of_the_range():
    """Bytes without a scale: one grey level is hidden, and only the build said so."""
    outcome = small_plan(public=255 * table(700), bounds=(0, 255), adjacency=attribute(1.0))
    (said,) = [line for line in outcome.remarks if line.startswith("beta")]
    assert said.startswith("beta = 1 is 0.392 % of the range of an attribute, 0 to 255:")
    assert said.endswith(".")
    whole = small_plan()
    assert not any(line.startswith("beta") for line in whole.remarks)


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"metric": "ip"}, "metric must be 'cosine' or 'l2'"),
        ({"adjacency": record(), "bounds": (-1, 1)}, "not whole records"),
        (
            {"public": sparse.identity(9000, format="csr")[:700]},
            "takes a dense public sample",
        ),
        ({"methods": ["dp-signoporp-rr"]}, "has no codes that are ranked by l2"),
    ],
)
def test_what_has_no_plan_by_distance(changes, words):
    with refuses(words):
        small_plan(**{"metric": "l2", **changes})


def test_rows_of_a_table_of_few_values_tie_as_those_of_a_collection_do():
    """Near vectors had fractions: .69 was promised among a hundred answers, and all are found."""
    rng = np.random.default_rng(0)
    score = rng.normal(size=(13_300, 2)) @ rng.normal(size=(2, 8))
    chance = 1 / (1 + np.exp(-score))
    rows = (rng.binomial(6, chance) / 6).astype(np.float32)
    base, queries, public = np.split(rows, [12_000, 12_300])
    spec = Spec(
        "raw-square-wave",
        8,
        epsilon=8.0,
        bounds=(0, 1),
        adjacency=attribute(1.0),
    )
    population = Population(public, len(base), 300, metric="l2")
    (row,) = predicted_rows(spec, population, 12, (10, 100), 0.1)
    shares = found_shares(spec, base, queries, 100, metric="l2")
    precision, recall = shares["exact"]
    assert abs(row.exact.recall_within(100) - recall) < 0.05
    assert row.exact.precision > precision - 0.08
