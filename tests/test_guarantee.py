"""A guarantee never shows an epsilon without what it is counted in."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from dpindex.privacy import Guarantee, Records, VectorAdjacency, attribute, l2


def test_text_names_adjacency_delta_and_definition() -> None:
    pure = str(Guarantee(2.0, 0.0, "DP", attribute(0.5)))
    assert pure == "epsilon = 2 (pure DP) under attribute(beta=0.5)"
    approximate = str(Guarantee(0.1, 1e-6, "DP", l2(2.0)))
    assert approximate == "epsilon = 0.1, delta = 1e-06 (DP) under l2(radius=2)"


def test_idp_is_never_called_dp() -> None:
    for delta in (0.0, 1e-6):
        guarantee = Guarantee(1.0, delta, "iDP", attribute())
        assert "DP" not in str(guarantee).replace("iDP", "")
        assert "weaker than differential privacy" in guarantee.protects()


def test_none_promises_nothing() -> None:
    nothing = Guarantee(float("inf"), 0.0, "none", attribute())
    assert "no guarantee" in str(nothing)
    assert "Nothing is protected" in nothing.protects()
    assert nothing.does_not_protect(3) == ["anything at all"]


@dataclass(frozen=True)
class AnyVector(VectorAdjacency):
    """An adjacency of someone else's: all that it takes is one small class."""

    kind = "any-vector"
    size = 1.0

    def describe(self) -> str:
        return "one whole vector, replaced by any other"

    def larger_changes(self, epsilon: float, growth: str, dim: int) -> list[str]:
        return []


VECTORS = [attribute(0.5), l2(0.5), AnyVector()]
RECORDS = [Records("add-remove"), Records("replace")]


@pytest.mark.parametrize("adjacency", [*VECTORS, *RECORDS], ids=str)
def test_says_what_is_protected_and_what_is_not(adjacency: Any) -> None:
    guarantee = Guarantee(2.0, 1e-6, "DP", adjacency)
    text, lines = guarantee.protects(), guarantee.does_not_protect(784)
    assert adjacency.describe() in text
    assert "exp(2)" in text
    assert "1e-06" in text
    assert any("epsilons and deltas add up" in line for line in lines)
    assert len(lines) == len(set(lines)) > 5
    assert str(adjacency) in str(guarantee)
    assert guarantee.to_dict()["adjacency"]["kind"] == adjacency.kind


@pytest.mark.parametrize("adjacency", [*VECTORS[:2], *RECORDS], ids=str)
def test_larger_changes_have_a_price(adjacency: Any) -> None:
    for delta, growth in ((0.0, False), (1e-6, True)):
        lines = Guarantee(2.0, delta, "DP", adjacency).does_not_protect(784)
        (price,) = [line for line in lines if "m × 2" in line]
        assert ("delta grows to m·exp" in price) == growth


def test_codes_and_sketches_leave_other_things_open() -> None:
    for adjacency in VECTORS:
        guarantee = Guarantee(2.0, 0.0, "DP", adjacency)
        assert "operator of the search server" in guarantee.protects()
        assert any(line.startswith("ids") for line in guarantee.does_not_protect(784))
    for records in RECORDS:
        guarantee = Guarantee(2.0, 0.0, "DP", records)
        assert "not against whoever built it" in guarantee.protects()
        assert "however many are asked" in guarantee.protects()
        lines = guarantee.does_not_protect(784)
        assert not any(line.startswith("ids") for line in lines)
        assert ("how many records there are" in lines) == (records.neighbouring == "replace")


def test_attribute_level_epsilon_tells_the_price_of_a_record() -> None:
    guarantee = Guarantee(2.0, 0.0, "DP", attribute())
    assert guarantee.group(784) == 1568.0
    assert any("1568" in line for line in guarantee.does_not_protect(784))
    assert "delta" not in guarantee.protects()


def test_finding_7_delta_over_the_projection_is_no_promise_given_the_map() -> None:
    weak = Guarantee(1.0, 1e-6, "DP", attribute(), delta_over="projection")
    assert any("projection stretches most" in line for line in weak.does_not_protect(10))
    assert "chosen without looking at the projection" in weak.protects()
    assert "not a promise given the published projection" in weak.protects()
    assert "delta = 1e-06 over noise and projection" in str(weak)
    strong = Guarantee(1.0, 1e-6, "DP", attribute())
    assert not any("projection" in line for line in strong.does_not_protect(10))
    assert "chosen without" not in strong.protects()
    assert "over noise" not in str(strong)


def test_json_holds_every_field() -> None:
    guarantee = Guarantee(1.5, 1e-6, "iDP", attribute(0.5), False, "projection")
    data = json.loads(json.dumps(guarantee.to_dict()))
    assert data == {
        "epsilon": 1.5,
        "delta": 1e-6,
        "definition": "iDP",
        "adjacency": {"kind": "attribute", "beta": 0.5},
        "exact": False,
        "delta_over": "projection",
    }
