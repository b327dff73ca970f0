"""A guarantee never shows an epsilon without what it is counted in."""

import json
import math
import re
from dataclasses import dataclass
from fractions import Fraction
from itertools import permutations

import numpy as np
from helpers.common import attribute_spec, dp, folded, refuses
from hypothesis import given
from hypothesis import strategies as st

from dpindex import Spec
from dpindex.privacy import (
    L2,
    Attribute,
    Group,
    Guarantee,
    Records,
    VectorAdjacency,
    attribute,
    l2,
    record,
)


def test_text_names_adjacency_delta_and_definition():
    pure = str(dp(2.0, attribute(0.5)))
    assert pure == "epsilon = 2 (pure DP) under attribute(beta=0.5)"
    approximate = str(Guarantee(0.1, 1e-6, "DP", l2(2.0)))
    assert approximate == "epsilon = 0.1, delta = 1e-06 (DP) under l2(radius=2)"


def test_idp_is_never_called_dp():
    for delta in (0.0, 1e-6):
        guarantee = Guarantee(1.0, delta, "iDP", attribute(1.0))
        assert "DP" not in str(guarantee).replace("iDP", "")
        assert "weaker than differential privacy" in guarantee.protects()


def test_none_promises_nothing():
    nothing = Guarantee(float("inf"), 0.0, "none", attribute(1.0))
    assert "no guarantee" in str(nothing)
    assert "Nothing is protected" in nothing.protects()
    assert nothing.does_not_protect(3) == ["anything at all"]


@dataclass(frozen=True)
class AnyVector(VectorAdjacency):
    """An adjacency of someone else's: all that it takes is one small class."""

    kind = "any-vector"
    size = 1.0

    def describe(self):
        return "one whole vector, replaced by any other"

    def larger_changes(self, epsilon, growth, dim):
        return []


VECTORS = [attribute(0.5), l2(0.5), AnyVector()]
RECORDS = [Records("add-remove"), Records("replace")]


@folded("adjacency", [*VECTORS, *RECORDS])
def test_says_what_is_protected_and_what_is_not(adjacency):
    guarantee = Guarantee(2.0, 1e-6, "DP", adjacency)
    text = guarantee.protects()
    lines = guarantee.does_not_protect(784)
    assert adjacency.describe() in text
    assert "exp(2)" in text
    assert "1e-06" in text
    assert any("epsilons and deltas add up" in line for line in lines)
    assert len(lines) == len(set(lines)) > 5
    assert str(adjacency) in str(guarantee)
    assert guarantee.to_dict()["adjacency"]["kind"] == adjacency.kind


@folded("adjacency", [*VECTORS[:2], *RECORDS])
def test_larger_changes_have_a_price(adjacency):
    for delta, growth in ((0.0, False), (1e-6, True)):
        lines = Guarantee(2.0, delta, "DP", adjacency).does_not_protect(784)
        (price,) = [line for line in lines if "m × 2" in line]
        assert ("delta grows to m·exp" in price) == growth


def test_codes_and_sketches_leave_other_things_open():
    for adjacency in VECTORS:
        guarantee = dp(2.0, adjacency)
        assert "operator of the search server" in guarantee.protects()
        assert any(line.startswith("ids") for line in guarantee.does_not_protect(784))
    for records in RECORDS:
        guarantee = dp(2.0, records)
        assert "not against whoever built it" in guarantee.protects()
        assert "however many are asked" in guarantee.protects()
        lines = guarantee.does_not_protect(784)
        assert not any(line.startswith("ids") for line in lines)
        assert ("how many records there are" in lines) == (records.neighbouring == "replace")


WEAK = (
    Guarantee(1.0, 0.0, "iDP", attribute(0.5)),
    Guarantee(1.0, 1e-6, "DP", attribute(0.5), delta_over="projection"),
)


@given(st.integers(1, 40), st.floats(1e-3, 2.0), st.sampled_from([0.0, 1e-12, 1e-6]))
def test_a_group_is_stated_alike_everywhere(m, epsilon, delta):
    """One chain of m neighbours: δ_m = δ_(m−1)·e^ε + δ is below what is stated."""
    guarantee = Guarantee(epsilon, delta, "DP", attribute(0.5))
    together = guarantee.group(m)
    far = guarantee.at(attribute(0.5 * m))
    assert together.epsilon == far.epsilon
    assert together.delta == far.delta
    assert Fraction(together.epsilon) >= m * Fraction(epsilon)
    least = 0.0
    for _ in range(m):
        least = least * math.exp(epsilon) + delta
    assert min(1.0, least) <= together.delta * (1 + 1e-12)
    assert f"up to {guarantee.whole(m)}" in " ".join(guarantee.does_not_protect(m))
    assert f"{together.epsilon:g}" in guarantee.whole(m)


def test_no_group_is_stated_where_there_is_none():
    """Two attributes moved by one beta each give an infinite loss."""
    for weak in WEAK:
        assert weak.group(1) == weak
        with refuses("says nothing about"):
            weak.group(2)
        statement = json.dumps(weak.statement(24), ensure_ascii=False)
        assert "m ×" not in statement
        assert "group privacy" not in statement
        assert "more than one such change at once" in statement


@folded("changes", [-1, 0, 0.5, "2", True, math.nan, math.inf, None, [2]])
def test_a_group_is_a_whole_number_of_changes(changes):
    with refuses("number of changes must be a whole number from 1"):
        dp(1.0, attribute(0.5)).group(changes)


def test_a_group_costs_no_more_than_a_whole_record():
    whole = dp(8.0, record())
    both = Guarantee(2.0, 0.0, "DP", attribute(1.0), also=(whole,))
    costs = {1: 2, 2: 4, 3: 6, 4: 8, 5: 8, 784: 8}
    for changes, epsilon in costs.items():
        assert both.group(changes).epsilon == epsilon
    assert whole.group(3).epsilon == 24.0  # of one person's vectors
    assert both.group(3).to_dict()["adjacency"]["changes"] == 3
    assert "3 changes at once" in both.group(3).protects()


@given(st.floats(1e-6, 1e6), st.floats(1e-6, 1e6))
def test_finding_2_group_privacy_takes_whole_steps(beta, change):
    exact = Fraction(change) / Fraction(beta)
    for neighbours in (attribute(beta), l2(beta)):
        steps = dp(1.0, neighbours).at(attribute(change)).epsilon
        assert steps - 1 < exact <= steps


def test_neighbours_under_one_adjacency_are_neighbours_under_what_covers_it():
    """Pairs that differ in one coordinate, in and beside it; what is unknown covers nothing."""
    ball = l2(2.0)
    one = attribute(2.0)
    for size in (0.1, 1.0, 2.0, 5.0):
        steps = ball.steps(attribute(size))
        assert (steps - 1) * ball.radius < size <= steps * ball.radius
        assert record().steps(attribute(size)) == 1
        assert record().steps(l2(size)) == 1
    assert ball.steps(Group(3, one)) == 3
    assert one.steps(ball) is None
    assert one.steps(record()) is None
    assert ball.steps(record()) is None
    for units in ("0" * 16, "1" * 16):  # shares of the ranges of columns, and of others
        assert ball.steps(Attribute(2.0, units)) is None
    measured = L2(2.0, "0" * 16)
    assert measured.steps(Attribute(4.0, "0" * 16)) == 2
    assert measured.steps(Attribute(4.0, "1" * 16)) is None


def test_finding_2_what_says_nothing_about_a_change_is_refused():
    for weak in WEAK:
        assert weak.at(attribute(0.25)).epsilon == 1.0
        with refuses("says nothing about"):
            weak.at(attribute(1.0))
    kinds = [*VECTORS, *RECORDS]
    # Alone of these, each change of one coordinate by a half is a move of the vector by a half.
    known = (l2(0.5), attribute(0.5))
    for one, other in {*permutations(kinds, 2)} - {known}:
        with refuses("count different changes"):
            dp(1.0, one).at(other)
    for alike in kinds:  # an adjacency without a size composes with itself
        promise = dp(1.0, alike)
        assert promise.at(alike) == promise
    assert AnyVector().in_data_units(255.0) == AnyVector()


def test_finding_2_a_delta_that_grows_beyond_one_promises_nothing_more():
    near = Guarantee(10.0, 1e-6, "DP", attribute(1e-9))
    far = near.at(attribute(1.0))
    assert far.epsilon == 1e10
    assert far.delta == 1.0


@folded("size", [0.01, 255.0, 1.0])
def test_finding_3_a_guarantee_is_in_the_units_of_the_data(size):
    """``x / scale`` changes by at most beta when ``x`` does by at most beta · scale."""
    spec = attribute_spec("dp-oporp-staircase", 6, k=2, epsilon=2.0, scale=size)
    promise = spec.guarantee
    assert str(promise) == f"epsilon = 2 (pure DP) under attribute(beta={size:g})"
    assert f"by at most {size:g} in the units of the data" in promise.protects()
    assert promise.to_dict()["adjacency"] == {"kind": "attribute", "beta": size}
    low, high = spec.grid.round(np.array([-size / 2, size / 2]))
    slack = (1 << spec.grid.bits) - (high - low)
    assert 0 <= slack <= 1
    ball = Spec("raw-gaussian", 6, epsilon=1.0, delta=1e-6, adjacency=l2(0.5), scale=size)
    assert ball.guarantee.adjacency == l2(size / 2)
    assert f"moved by at most {size / 2:g} in Euclidean" in ball.guarantee.protects()


def test_finding_7_delta_over_the_projection_is_no_promise_given_the_map():
    weak = Guarantee(1.0, 1e-6, "DP", attribute(1.0), delta_over="projection")
    assert any("projection stretches most" in line for line in weak.does_not_protect(10))
    assert "chosen without looking at the projection" in weak.protects()
    assert "not a promise given the published projection" in weak.protects()
    assert "delta = 1e-06 over noise and projection" in str(weak)
    strong = Guarantee(1.0, 1e-6, "DP", attribute(1.0))
    assert not any("projection" in line for line in strong.does_not_protect(10))
    assert "chosen without" not in strong.protects()
    assert "over noise" not in str(strong)


def test_json_holds_every_field():
    guarantee = Guarantee(1.5, 1e-6, "iDP", attribute(0.5), False, "projection")
    assert json.loads(json.dumps(guarantee.to_dict())) == {
        "epsilon": 1.5,
        "delta": 1e-6,
        "definition": "iDP",
        "adjacency": {"kind": "attribute", "beta": 0.5},
        "exact": False,
        "delta_over": "projection",
    }


@folded("epsilon", [0.1, 1.0, 3.0, 8.0, 15.0, 40.0])
@folded("delta", [0.0, 1e-6, 0.01])
def test_the_odds_are_those_of_the_best_test(epsilon, delta):
    """The two-point mechanism that reaches (epsilon, delta): Kairouz, Oh & Viswanath 2015."""
    weight = (1 - delta) / (1 + math.exp(epsilon))
    one = [delta, math.exp(epsilon) * weight, weight, 0.0]
    right = sum(map(max, one, reversed(one))) / 2
    told = Guarantee(epsilon, delta, "DP", attribute(1.0)).odds()
    number = re.search(r"at most (?:([\d.]+)|practically 100) %", told)
    stated = float(number[1] or 100.0) / 100
    slack = max(0.2 * (1 - right), 1e-9)
    assert right - 1e-7 <= stated <= right + slack
    assert ("delta" in told) == (delta > 0)


def test_odds_say_for_what_they_hold():
    beta = attribute(1.0)
    odds = {
        "at most 95.3 % sure.": dp(3.0, beta),
        "any two vectors": dp(3.0, record()),
        "actual vector (iDP)": Guarantee(3.0, 0.0, "iDP", beta),
        "before the projection is known": Guarantee(3.0, 1e-6, "DP", beta, delta_over="projection"),
        "nothing is protected": Guarantee(0.0, 0.0, "none", beta),
    }
    for words, promise in odds.items():
        assert words in promise.odds()
