"""Graphs of bits in LanceDB and PostgreSQL: they find what they state, or are refused."""

import numpy as np
import pytest
from helpers.common import attribute_spec, filled_index, refuses, uniform
from helpers.lite import LITE, PLACES, address
from numpy.testing import assert_array_equal

import dpindex as dpi
from dpindex.integrations.postgres import Postgres

pytestmark = [*LITE]
BY_NAME = {one.values[0]: one for one in PLACES}
WITH_GRAPHS = pytest.mark.parametrize("place", [BY_NAME["x.lance"], BY_NAME["postgresql"]])


@pytest.fixture
def uri(tmp_path, place):
    return address(tmp_path, place)


def _signs(epsilon, rows):
    spec = attribute_spec("dp-signoporp-rr", 64, k=64, epsilon=epsilon)
    return filled_index(spec, uniform(rows, 64))


@WITH_GRAPHS
def test_a_graph_finds_as_many_neighbours_as_it_states(uri):
    index = _signs(8.0, 3000)
    dpi.publish(index, uri, "graph", graph=True)
    dpi.publish(index, uri, "scan")
    graph = dpi.open(uri, "graph")
    scan = dpi.open(uri, "scan")
    assert scan.index_recall is None
    assert (graph.index_recall or 0) > 0.9
    assert len(graph) == 3000
    queries = uniform(20, 64, seed=1)
    exact = graph.search(queries, 10, query="exact")
    assert_array_equal(exact.ids, scan.search(queries, 10, query="exact").ids)
    asked = index.codes.take(np.arange(0, 3000, 60)).stored
    near = graph.database.search(asked, 10, None)
    scanned = scan.database.search(asked, 10, None)
    shares = []
    for (_, found), (_, best) in zip(near, scanned, strict=True):
        shares.append(np.mean(found >= best[-1]))
    assert np.mean(shares) > 0.9
    for where in ("id < 9", "id = 2999"):  # among few rows all are found
        pairs = zip(
            graph.database.search(asked, 9, where),
            scan.database.search(asked, 9, where),
            strict=True,
        )
        for (found, _), (ids, _) in pairs:
            assert_array_equal(np.sort(found), np.sort(ids))
    moved = index.codes.take(slice(7, 8))
    graph.remove([7])
    graph.add_codes(moved, [5000])
    ((ids, scores),) = graph.database.search(moved.stored, 1, None)
    assert ids.tolist() == [5000]
    assert scores.tolist() == [0]


@WITH_GRAPHS
def test_as_many_rows_are_found_as_there_are(uri):
    """Also where most nodes of the graph are removed, and where more are wanted than it visits."""
    index = _signs(8.0, 1500)
    dpi.publish(index, uri, "graph", graph=True)
    graph = dpi.open(uri, "graph")
    asked = index.codes.take(slice(5)).stored
    for rows in (1500, 30):
        graph.remove(np.arange(rows, len(graph)))
        for count in (1, 20, 600, 2000):
            found = graph.database.search(asked, count, None)
            assert {len(ids) for ids, _ in found} == {min(count, rows)}
            for ids, scores in found:
                assert len(np.unique(ids)) == len(ids)
                assert np.all(np.diff(scores) <= 0)


@WITH_GRAPHS
def test_a_graph_that_cannot_pay_is_refused_before_anything_is_written(uri):
    for epsilon, rows, words in (
        (1.0, 1000, "cannot pay here: flips make 39%"),
        (8.0, 999, "999"),
    ):
        with refuses(words):
            dpi.publish(_signs(epsilon, rows), uri, "graph", graph=True)
        with refuses("no published index"):
            dpi.open(uri, "graph")


@pytest.mark.parametrize("place", [BY_NAME["x.db"]])
def test_milvus_scans(uri):
    index = _signs(8.0, 1000)
    with refuses("Milvus scans bits here"):
        dpi.publish(index, uri, "graph", graph=True)


@pytest.mark.parametrize("place", [BY_NAME["postgresql"]])
def test_an_old_pgvector_is_named(uri, monkeypatch):
    monkeypatch.setattr(Postgres, "has_graphs", lambda self: False)
    index = _signs(8.0, 1000)
    with refuses(r"needs the extension pgvector 0\.8 or later"):
        dpi.publish(index, uri, "graph", graph=True)
