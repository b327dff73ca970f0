"""Engines keep rows and documents as they were given, and find them by the metric."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lite import LITE, PLACES, address

from dpindex.integrations.database import Database, Layout, Rows
from dpindex.integrations.published import open_database

pa = pytest.importorskip("pyarrow")
pytestmark = LITE

WEIRD = ["plain", "a'b", 'a"b', "a\\b", "a%27b", "tab\t", "snow ☃", " "]
COLUMNS: dict[str, tuple[Any, list[Any]]] = {
    "flag": ("bool", [True, False, None]),
    "small": ("int8", [-128, 127, None]),
    "half": ("float32", [0.5, -1.25, None]),
    "day": ("date32", [date(2020, 1, 31), date(1969, 7, 20), None]),
    "price": (pa.decimal128(7, 2), [Decimal("12.30"), Decimal("-0.01"), None]),
    "title": ("string", ["a'b\"\\", "", None]),
    "tags": (pa.list_(pa.string()), [["a", "☃"], [], None]),
}


@pytest.fixture(params=PLACES)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    made = open_database(address(tmp_path, request.param), "books", new=True)
    yield made
    made.close()


def _rows(ids: Any, payload: Any = None) -> Rows:
    codes = np.arange(2 * len(ids), dtype=np.uint8).reshape(-1, 2)
    vectors = np.arange(3 * len(ids), dtype=np.float32).reshape(-1, 3) + 1
    return Rows(np.array(ids), codes, vectors, payload)


@pytest.mark.parametrize("ids", [WEIRD, [1 - 2**63, -1, 0, 7, 2**63 - 1]])
def test_ids_and_codes_come_back(database: Database, ids: Any) -> None:
    database.create(Layout(isinstance(ids[0], str), 2, 3, "ip"))
    rows = _rows(ids)
    database.insert(rows)
    database.insert(rows, replace=True)
    database.finish()
    assert database.count() == len(ids)
    for row, id_ in enumerate(ids):
        found = database.select(database.is_in("id", [id_]), 10)
        assert found.ids.tolist() == [id_]
        assert found.codes.tolist() == rows.codes[row : row + 1].tolist()


def test_payload_comes_back_with_its_types_and_gaps(database: Database) -> None:
    table = pa.table([pa.array(v, t) for t, v in COLUMNS.values()], names=list(COLUMNS))
    database.create(Layout(False, 2, 3, "ip", table.schema))
    database.insert(_rows([1, 2, 3], table))
    database.insert(_rows([4]))
    database.finish()
    found = database.select(database.is_in("id", [1, 2, 3, 4]), 10, payload=True)
    assert found.payload.schema == table.schema
    ordered = found.payload.take(np.argsort(found.ids)).to_pylist()
    assert ordered == [*table.to_pylist(), dict.fromkeys(COLUMNS)]


@pytest.mark.parametrize("metric", ["ip", "l2"])
def test_scores_are_the_metrics(database: Database, metric: Any) -> None:
    database.create(Layout(False, 2, 3, metric))
    rows = _rows([1, 2, 3, 4])
    database.insert(rows)
    database.finish()
    query, x = np.array([[1, -2, 0.5]], np.float32), rows.vectors
    assert x is not None
    expected = x @ query[0] if metric == "ip" else -((x - query) ** 2).sum(axis=1)
    ids, scores = database.search(query, 3, None)
    order = np.argsort(-expected)[:3]
    assert ids[0].tolist() == (order + 1).tolist()
    np.testing.assert_allclose(scores[0], expected[order], rtol=1e-5)
    ids, scores = database.search(np.array([[0, 1], [6, 6]], np.uint8), 2, "id < 5")
    assert [i.tolist()[0] for i in ids] == [1, 4]
    assert [i.tolist() for i in scores] == [[0.0, -2.0], [-1.0, -3.0]]
    assert [len(i) for i in database.search(rows.codes[:3], 2, "id > 4")[0]] == [0, 0, 0]


def test_documents_of_any_size(database: Database) -> None:
    assert database.read("facts") is None
    for size in (0, 1, 48_000, 6_000_001):
        data = np.random.default_rng(size).bytes(size)
        database.write("facts", data)
        database.write("facts2", b"another")
        assert database.read("facts") == data
    database.drop()
    assert not database.exists()
