"""What the adapter of a vector database must do."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest

from dpindex.base.errors import InputError
from dpindex.integrations.database import Database, Layout
from dpindex.integrations.publication import Documents


def rows_of(database: Database, ids: Any, payload: Any = None, size: float = 1.0) -> Any:
    """Rows with two bytes of code and three numbers of vector each."""
    codes = np.arange(2 * len(ids), dtype=np.uint8).reshape(-1, 2)
    numbers = np.arange(1, 3 * len(ids) + 1, dtype=np.float32)
    columns = {
        "id": list(ids),
        "code": [code.tobytes() for code in codes],
        "vector": list(numbers.reshape(-1, 3) * np.float32(size)),
    }
    rows = database.layout.table(columns)
    for field in database.layout.fields:
        rows = rows.append_column(field, payload[field.name])
    return rows


class DatabaseContract:
    """Rows and documents come back as they were given, and are found by the metric.

    Subclass it in a test file, with a fixture ``database`` that gives an open, empty one and closes
    it afterwards::

        class TestMine(DatabaseContract):
            @pytest.fixture
            def database(self, tmp_path):
                made = Mine(str(tmp_path), "books")
                yield made
                made.close()
    """

    text_ids: ClassVar[list[str]] = [
        *("plain", "a'b", 'a"b', "a\\b", "a%27b", "tab\t", "snow ☃", " "),
        *("\\' or true --", "'); drop table books; --", "%s %(x)s", "x\\"),
    ]
    payload: ClassVar[dict[str, tuple[Any, list[Any]]]] = {
        "flag": ("bool", [True, False, None]),
        "small": ("int8", [-128, 127, None]),
        "half": ("float32", [0.5, -1.25, None]),
        "day": ("date32", [date(2020, 1, 31), date(1969, 7, 20), None]),
        "price": (pa.decimal128(7, 2), [Decimal("12.30"), Decimal("-0.01"), None]),
        "title": ("string", ["a'b\"\\", "", None]),
        "tags": (pa.list_(pa.string()), [["a", "☃"], [], None]),
        "many": (pa.large_list(pa.large_string()), [["a", "☃"], [], None]),
    }

    @pytest.mark.parametrize("kind", ["text", "numbers"])
    def test_ids_and_codes_come_back(self, database: Database, kind: str) -> None:
        ids: list[Any] = [1 - 2**63, -1, 0, 7, 2**63 - 1]
        if kind == "text":
            ids = self.text_ids
        database.create(Layout(kind == "text", 2, 3, "ip"))
        rows = rows_of(database, ids)
        database.insert(rows)
        database.finish()
        assert database.count() == len(ids)
        for row, id_ in enumerate(ids):
            found = database.select(database.is_in("id", [id_]), 10)
            assert found.to_pylist() == rows.select(["id", "code"]).slice(row, 1).to_pylist()
        assert database.count(database.is_in("id", ids)) == len(ids)

    def test_symbols_are_found_by_their_number(self, database: Database) -> None:
        database.create(Layout(False, 0, 0, "ip"))
        symbols = [3, 1, 3, 0, 65535, 1]
        database.insert(database.layout.table({"id": range(6), "code": symbols}))
        database.finish()
        found = database.select(database.is_in("code", [3, 65535]), 10)
        assert found.sort_by("id").to_pylist() == [
            {"id": 0, "code": 3}, {"id": 2, "code": 3}, {"id": 4, "code": 65535}
        ]  # fmt: skip
        assert len(database.select(database.is_in("code", [1]), 1)) == 1
        assert database.count(f"({database.is_in('code', [1])}) and (id > 3)") == 1

    def test_payload_comes_back_with_its_types_and_gaps(self, database: Database) -> None:
        columns = self.payload
        table = pa.table([pa.array(v, t) for t, v in columns.values()], names=list(columns))
        database.create(Layout(False, 2, 3, "ip", table.schema))
        database.insert(rows_of(database, [1, 2, 3], table))
        nothing = dict.fromkeys(columns)
        nulls = pa.Table.from_pylist([nothing], schema=table.schema)
        database.insert(rows_of(database, [4], nulls))
        database.finish()
        found = database.select(database.is_in("id", [1, 2, 3, 4]), 10, list(columns))
        payload = found.sort_by("id").select(list(columns))
        assert payload.schema == table.schema
        assert payload.to_pylist() == [*table.to_pylist(), nothing]

    @pytest.mark.parametrize("metric", ["ip", "l2"])
    def test_scores_are_the_metrics(self, database: Database, metric: Any) -> None:
        database.create(Layout(False, 2, 3, metric))
        rows = rows_of(database, [1, 2, 3, 4])
        database.insert(rows)
        database.finish()
        query = np.array([[1, -2, 0.5]], np.float32)
        x = np.array(rows["vector"].to_pylist())
        expected = x @ query[0]
        if metric == "l2":
            expected = -((x - query) ** 2).sum(axis=1)
        ((ids, scores),) = database.search(query, 3, None)
        order = np.argsort(-expected)[:3]
        assert ids.tolist() == (order + 1).tolist()
        np.testing.assert_allclose(scores, expected[order], rtol=1e-5)
        one, two = database.search(np.array([[0, 1], [6, 6]], np.uint8), 2, "id < 5")
        assert [one[0][0], two[0][0]] == [1, 4]
        assert [one[1].tolist(), two[1].tolist()] == [[0.0, -2.0], [-1.0, -3.0]]
        none = database.search(np.zeros((3, 2), np.uint8), 2, "id > 4")
        assert [len(ids) for ids, _ in none] == [0, 0, 0]

    def test_deleted_rows_are_gone(self, database: Database) -> None:
        ids = self.text_ids
        database.create(Layout(True, 2, 3, "ip"))
        database.insert(rows_of(database, ids))
        database.finish()
        database.delete(database.is_in("id", [*ids[:3], "nobody"]))
        assert database.count() == len(ids) - 3
        assert database.count(database.is_in("id", ids[:3])) == 0
        ((found, _),) = database.search(np.ones((1, 3), np.float32), len(ids), None)
        assert set(found.tolist()) == set(ids[3:])
        database.insert(rows_of(database, ids[:1]))
        database.finish()
        assert database.count(database.is_in("id", ids[:1])) == 1

    def test_a_document_whose_parts_are_miscounted_is_damaged(self, database: Database) -> None:
        documents = Documents(database)
        for count in (0, -1, 1 << 30):
            documents.begin()
            rows = documents.rows.layout.table({"id": ["x/0"], "code": [count], "data": ["AAAA"]})
            documents.rows.insert(rows)
            documents.rows.finish()
            with pytest.raises(InputError, match="the document x is damaged"):
                documents.read("x")

    def test_documents_of_any_size(self, database: Database) -> None:
        documents = Documents(database)
        assert not documents.open()
        documents.begin()
        assert documents.rows.count() == 0
        assert documents.read("facts") is None
        for size in (0, 1, 48_000, 6_000_001):
            documents.begin()
            data = np.random.default_rng(size).bytes(size)
            documents.write("facts", data)
            documents.write("facts2", b"another")
            assert documents.read("facts") == data
        assert documents.open()
        documents.begin()
        assert documents.read("facts") is None
        assert not database.exists()

    def test_a_collection_can_be_dropped_and_made_again(self, database: Database) -> None:
        for _ in range(2):
            database.drop()
            assert not database.exists()
            database.create(Layout(False, 2, 3, "ip"))
            assert database.exists()
            assert database.count() == 0
            database.insert(rows_of(database, [1]))
