"""Hits and the index as collections: lengths, items, tables, pickles, text for notebooks."""

import copy
import pickle

import numpy as np
import pytest
from helpers.common import attribute_spec, filled_index, reopened, travelled, uniform
from numpy.testing import assert_array_equal

import dpindex as dpi
from dpindex.privacy import Attribute
from dpindex.study.goal import Goal
from dpindex.study.planner import FoundShares, Plan, Row

SPEC = attribute_spec("dp-oporp-staircase", 6, k=3, epsilon=20.0)
VECTORS = uniform(12, 6)
EVIL = "<script>alert(1)</script>"


@pytest.fixture
def index():
    pytest.importorskip("pyarrow")
    made = dpi.PrivateIndex(SPEC)
    names = [f"{EVIL}{i}" for i in range(12)]
    made.add(VECTORS, names, payload={"t&": names, "score": np.arange(12)})
    return made


def test_hits_by_query(index):
    hits = index.search(VECTORS[:3], k=4)
    assert len(hits) == 3
    scores, ids = hits
    assert scores is hits.scores
    assert ids is hits.ids
    for row in range(3):
        one = hits[row]
        found = one.ids.tolist()
        assert found == hits.ids[row].tolist()
        assert one.payload["t&"].to_pylist() == found
        assert one[1].payload["t&"].to_pylist() == [found[1]]
    last = hits[-1].ids
    assert_array_equal(last, hits.ids[-1])
    with pytest.raises(IndexError):
        hits[3]


@pytest.mark.parametrize("stored", [False, True])
def test_similarities_are_those_of_the_search(index, tmp_path, stored):
    """However late they are asked for, and whatever was added, removed or learned meanwhile."""
    if stored:
        index = reopened(index, tmp_path / "index")
    at_once = index.search(VECTORS, k=5)
    late = index.search(VECTORS, k=5)
    names = ["similarity", "stderr", "unbiased", "unbiased_stderr"]
    before = [getattr(at_once, name) for name in names]
    index.add(-VECTORS, [f"new {row}" for row in range(12)])
    index.remove(index.ids[:7])
    index.add(VECTORS[:3], ["x", "y", "z"], upsert=True)
    index.calibrate()
    for name, values in zip(names, before, strict=True):
        assert_array_equal(getattr(late, name), values)


def test_hits_as_a_table(index):
    hits = index.search(VECTORS[:2], k=3)
    table = hits.to_arrow()
    found = hits.ids.ravel().tolist()
    assert table["query"].to_pylist() == [0] * 3 + [1] * 3
    assert table["rank"].to_pylist() == [1, 2, 3] * 2
    assert table["id"].to_pylist() == found
    assert table["t&"].to_pylist() == found
    assert table["score"].to_pylist() == hits.scores.ravel().tolist()
    assert "payload_score" in table.column_names
    (near,) = index.range_search(
        VECTORS[:1],
        -1.0,
        candidates=12,
        rerank=lambda ids: VECTORS,
    )
    one = near.to_arrow()
    assert set(one["query"].to_pylist()) == {0}
    pandas = pytest.importorskip("pandas")
    pandas.testing.assert_frame_equal(
        hits.to_pandas(),
        table.to_pandas(),
        check_dtype=False,
    )


def test_an_index_is_a_dictionary_of_codes(index):
    names = index.ids.tolist()
    assert list(index) == names
    assert names[3] in index
    assert 3 not in index
    code = index[names[3]]
    assert_array_equal(code.stored, index.codes.stored[3:4])
    with pytest.raises(KeyError, match="not in the index"):
        index["x"]
    numbers = filled_index(SPEC, VECTORS)
    assert np.int64(3) in numbers
    assert True not in numbers
    assert "3" not in numbers


def test_pickles(index):
    hits = index.search(VECTORS[:2], k=3)
    assert travelled(SPEC.guarantee) == SPEC.guarantee
    assert travelled(hits).payload.equals(hits.payload)
    assert travelled(index.codes).to_bytes() == index.codes.to_bytes()
    for action in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="cannot be pickled or copied; save it"):
            action(index)


def test_short_text_and_escaped_html(index):
    hits = index.search(VECTORS[:2], k=3)
    assert repr(hits) == "<Hits: 2 queries, 3 neighbours each, with t&, score>"
    assert eval(repr(SPEC), {"Spec": dpi.Spec, "Attribute": Attribute}) == SPEC
    found = FoundShares(0.5, {10: 0.5})
    row = Row(SPEC, None, found, found, bytes_per_vector=9, noise=0.1)
    goal = Goal(SPEC.dim, 1000, SPEC.adjacency, SPEC.epsilon)
    plan = Plan(goal, (row,))
    for value in (SPEC, SPEC.guarantee, index, hits, hits[0], plan):
        assert len(repr(value)) < 300
        html = value._repr_html_()
        assert "<script" not in html
        assert len(html) < 10_000
    assert "&lt;script&gt;" in hits._repr_html_()
    assert "t&amp;" in hits._repr_html_()


def test_hits_are_lists_of_dicts():
    index = filled_index(SPEC, VECTORS, payload={"year": range(12)})
    hits = index.search(VECTORS[:2], k=3)
    listed = hits.to_list()
    for name in ("id", "year"):
        stated = [[one[name] for one in of_query] for of_query in listed]
        assert stated == hits.ids.tolist()
    assert listed[1][2]["unbiased"] == hits.unbiased[1, 2]
    assert listed[1][2]["similarity"] is None  # of twelve codes
    assert hits[0].to_list() == listed[:1]
    none = index.search(VECTORS[:2], k=3, filter=[])
    assert none.to_list() == [[], []]


def test_an_index_is_a_table():
    index = filled_index(SPEC, VECTORS, payload={"year": range(12)})
    table = index.to_arrow()
    assert table.schema.names == ["id", "code", "year"]
    stored = index.codes.stored
    as_stored = stored.dtype.newbyteorder("<")
    code = np.frombuffer(table["code"][5].as_py(), as_stored)
    assert_array_equal(code, stored[5])
    assert_array_equal(table["id"].to_numpy(), index.ids)
