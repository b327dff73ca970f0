"""What is promised to whom, in the words of the field: statements, persons, shuffled codes."""

import json

import numpy as np
import pytest
from helpers.common import attribute_spec, dp, filled_index, refuses, unit
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from dpindex import PrivateIndex, Spec, attribute, record
from dpindex.accounting import shuffled
from dpindex.data import one_per_person
from dpindex.privacy import Guarantee, adjacency_from_dict
from dpindex.storage.statement import statement_of, summarize

DELTA = 1e-6


def divergence(epsilon0, count, epsilon):
    """The delta of two clones at epsilon, by summing their exact laws (FMT 2021, Thm 3.2).

    Of ``count − 1`` others, C look like one of the two inputs, and a fair coin says which; the
    record itself says the truth with the odds of randomized response. The other input swaps the
    counts of the two.
    """
    clones = np.arange(count)
    seldom = np.exp(-epsilon0)
    weights = binom.pmf(clones, count - 1, seldom)
    likely = np.flatnonzero(weights > 1e-18)
    odds = np.exp(epsilon0)
    truth = odds / (odds + 1)
    delta = 1e-12
    for c in clones[likely]:
        # Beyond ten deviations of a fair coin lie 1e-22 of it.
        reach = 2 + 5 * int(np.sqrt(c))
        middle = c // 2
        first = np.arange(max(0, middle - reach), min(c + 2, middle + reach))
        with_truth = binom.pmf(first - 1, c, 0.5)
        without = binom.pmf(first, c, 0.5)
        one = truth * with_truth + (1 - truth) * without
        other = (1 - truth) * with_truth + truth * without
        excess = np.maximum(one - np.exp(epsilon) * other, 0)
        delta += weights[c] * excess.sum()
    return float(delta)


@pytest.mark.parametrize(
    "epsilon, count", [(1.0, 3000), (2.0, 3000), (3.0, 300), (3.0, 20_000), (2.0, 40_000)]
)
def test_a_shuffle_promises_no_more_than_two_clones_keep(epsilon, count):
    """An independent computation: the theorem's epsilon holds for the laws that it rests on."""
    promised = shuffled(pure(epsilon), count, DELTA)
    assert divergence(epsilon, count, promised.epsilon) <= DELTA
    assert promised.epsilon < epsilon
    assert divergence(epsilon, count, 0.95 * promised.epsilon) > DELTA


def pure(epsilon):
    return dp(epsilon, record())


def closed_form(epsilon, count, delta):
    """Feldman, McMillan & Talwar 2021, Thm 3.1."""
    growth = np.exp(epsilon)
    crowd = growth / count
    spread = 8 * np.sqrt(crowd * np.log(4 / delta)) + 8 * crowd
    return float(np.log1p((growth - 1) / (growth + 1) * spread))


def test_a_million_at_eight_are_about_a_half():
    promised = shuffled(pure(8.0), 10**6, 1e-8)
    plain = closed_form(8.0, 10**6, 1e-8)
    assert plain == pytest.approx(1.0875, abs=1e-3)
    assert 0.5 < promised.epsilon < plain
    assert promised.delta == 1e-8
    text = promised.protects() + "".join(promised.does_not_protect(3))
    assert "shuffled order alone" in text
    assert "there epsilon is 8" in text


@pytest.mark.slow
@settings(deadline=None, max_examples=20)
@given(st.floats(0.1, 5.0), st.integers(10**3, 10**5))
def test_a_larger_crowd_hides_better(epsilon, count):
    own = pure(epsilon)
    few = shuffled(own, count, DELTA).epsilon
    many = shuffled(own, 2 * count, DELTA).epsilon
    assert many <= few <= epsilon


@pytest.mark.parametrize(
    "guarantee",
    [
        dp(1.0, attribute(1.0)),
        Guarantee(1.0, 1e-9, "DP", record()),
        Guarantee(1.0, 0.0, "iDP", record()),
    ],
)
def test_what_cannot_be_shuffled(guarantee):
    with refuses("pure DP about any two vectors"):
        shuffled(guarantee, 1000, DELTA)


def test_a_person_is_hidden_by_one_vector():
    spec = Spec("record-cap", 3, k=64, epsilon=4.0, adjacency=record("person"))
    assert Spec.from_json(spec.to_json()) == spec
    assert adjacency_from_dict(spec.adjacency.to_dict()) == record("person")
    assert "one person's vectors" in spec.guarantee.protects()
    assert not any("several vectors" in line for line in spec.guarantee.does_not_protect(3))
    assert spec.guarantee.epsilon == 4.0
    with refuses("unit"):
        record("family")


def test_one_vector_a_person_depends_on_that_person_alone():
    rng = np.random.default_rng(1)
    vectors = rng.normal(size=(60, 4))
    persons = rng.integers(0, 9, 60)
    for how in ("mean", "first"):
        before, names = one_per_person(vectors, persons, how)
        assert names.tolist() == sorted(set(persons.tolist()))
        others = rng.normal(size=(60, 4))
        changed = np.where((persons == 3)[:, None], others, vectors)
        after, _ = one_per_person(changed, persons, how)
        moved = (before != after).any(axis=1)
        assert names[moved].tolist() == [3]
    total = unit(vectors[persons == 5]).sum(axis=0)
    mean, _ = one_per_person(vectors, persons)
    np.testing.assert_allclose(mean[5], total / np.linalg.norm(total))
    with refuses("one person for each row"):
        one_per_person(vectors, persons[1:])


def test_a_statement_says_what_registries_ask(prints, tmp_path):
    spec = Spec("dp-oporp-staircase", 4, k=4, epsilon=2.0, adjacency=attribute(0.5))
    index = filled_index(spec, np.zeros((3, 4)))
    index.save(tmp_path / "index")
    statement = statement_of(summarize(tmp_path / "index"))
    assert statement["epsilon"] == 2.0
    assert statement["definition"] == "pure differential privacy"
    assert statement["outside the guarantee"] == spec.guarantee.does_not_protect(4)
    assert json.loads(prints("info index --statement --json")) == statement
    said = prints("info index --statement")
    for heading in statement:
        assert f"## {heading.capitalize()}" in said


def test_a_statement_never_calls_idp_dp(tmp_path):
    spec = attribute_spec("idp-signoporp-rr", 4, k=4, epsilon=2.0)
    PrivateIndex(spec).save(tmp_path / "index")
    definition = statement_of(summarize(tmp_path / "index"))["definition"]
    assert definition == (
        "pure individual differential privacy (iDP), which is weaker than differential privacy"
    )
