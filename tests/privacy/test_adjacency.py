"""Adjacency: what neighbouring means, in one unit, checked at the door."""

import json

import numpy as np
from helpers.common import folded, refuses

from dpindex.base.display import LowerBound
from dpindex.mechanism.spec import Spec
from dpindex.privacy import (
    L2,
    Attribute,
    Records,
    adjacency_from_dict,
    attribute,
    l2,
)


@folded("make", [attribute, l2])
@folded("value", [0, -1.0, -0.0, np.nan, np.inf, -np.inf, True, "1", None, 1j, [1.0], 10**400])
def test_refuses_what_is_no_positive_finite_number(make, value):
    with refuses(r"(beta|radius) must be (above 0|a finite number)"):
        make(value)


@folded("value", [2, 2.0, np.float32(2), np.float64(2), np.int64(2), np.uint8(2)])
def test_accepts_numbers_of_every_kind_and_keeps_a_float(value):
    for adjacency in (attribute(value), l2(value)):
        text = json.dumps(adjacency.to_dict())
        assert "2.0" in text
        assert adjacency_from_dict(json.loads(text)) == adjacency
    assert type(attribute(value).beta) is LowerBound
    assert attribute(value) == Attribute(2.0)
    assert l2(value) == L2(2.0)


def test_kinds_are_not_equal_and_hash_by_value():
    assert attribute(1.0) != l2(1.0)
    assert len({attribute(1), attribute(1.0), l2(1)}) == 2


@folded(
    "adjacency, name, words",
    [
        (attribute(0.25), "attribute(beta=0.25)", "one attribute"),
        (l2(0.25), "l2(radius=0.25)", "one whole vector"),
    ],
)
def test_says_its_number_and_what_it_hides(adjacency, name, words):
    assert str(adjacency) == name
    assert words in adjacency.describe()
    assert "0.25" in adjacency.describe()


@folded(
    "data",
    [
        None,
        [],
        "attribute",
        {},
        {"kind": "attribute"},
        {"kind": "attribute", "radius": 1.0},
        {"kind": "l2", "beta": 1.0},
        {"kind": "attribute", "beta": 1.0, "more": 1},
        {"kind": "other", "beta": 1.0},
        {"kind": ["attribute"], "beta": 1.0},
        {"kind": "attribute", "beta": "1"},
        {"kind": "attribute", "beta": -1},
    ],
)
def test_json_refuses_everything_else(data):
    with refuses():
        adjacency_from_dict(data)


def test_codes_have_no_guarantee_for_collections():
    collections = Records("replace")
    with refuses(r"adjacency must be dpindex.attribute"):
        Spec("none-oporp", 6, adjacency=collections)
    with refuses("adjacency"):
        adjacency_from_dict(collections.to_dict())
