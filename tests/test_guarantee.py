"""A guarantee never shows an epsilon without what it is counted in."""

from __future__ import annotations

import json

import pytest

from dpindex.privacy import Adjacency, Guarantee, attribute, l2


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


@pytest.mark.parametrize("adjacency", [attribute(0.5), l2(0.5)])
def test_says_what_is_protected_and_what_is_not(adjacency: Adjacency) -> None:
    guarantee = Guarantee(2.0, 1e-6, "DP", adjacency)
    assert adjacency.describe() in guarantee.protects()
    assert "exp(2)" in guarantee.protects()
    assert "1e-06" in guarantee.protects()
    lines = guarantee.does_not_protect(784)
    assert any("epsilons and deltas add up" in line for line in lines)
    assert any("ids" in line for line in lines)


def test_attribute_level_epsilon_tells_the_price_of_a_record() -> None:
    guarantee = Guarantee(2.0, 0.0, "DP", attribute())
    assert guarantee.group(784) == 1568.0
    assert any("1568" in line for line in guarantee.does_not_protect(784))
    assert "delta" not in guarantee.protects()


def test_delta_over_the_projection_is_said() -> None:
    weak = Guarantee(1.0, 1e-6, "DP", attribute(), delta_over="projection")
    assert any("projection" in line for line in weak.does_not_protect(10))
    strong = Guarantee(1.0, 1e-6, "DP", attribute())
    assert not any("projection" in line for line in strong.does_not_protect(10))


def test_json_holds_every_field() -> None:
    guarantee = Guarantee(1.5, 1e-6, "iDP", attribute(0.5), False, "projection")
    data = json.loads(json.dumps(guarantee.to_json()))
    assert data == {
        "epsilon": 1.5,
        "delta": 1e-6,
        "definition": "iDP",
        "adjacency": {"kind": "attribute", "beta": 0.5},
        "exact": False,
        "delta_over": "projection",
    }
