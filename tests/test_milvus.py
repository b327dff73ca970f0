"""Milvus Lite keeps rows and documents as they were given."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lite import LITE

from dpindex import InputError
from dpindex.engines import Layout, Rows
from dpindex.engines.milvus import Milvus

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


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Milvus]:
    made = Milvus(str(tmp_path / "x.db"), "books")
    yield made
    made.close()


def _rows(ids: Any, payload: Any = None) -> Rows:
    codes = np.arange(2 * len(ids), dtype=np.uint8).reshape(-1, 2)
    vectors = np.arange(3 * len(ids), dtype=np.float32).reshape(-1, 3) + 1
    return Rows(np.array(ids), codes, vectors, payload)


@pytest.mark.parametrize("ids", [WEIRD, [1 - 2**63, -1, 0, 7, 2**63 - 1]])
def test_ids_and_codes_come_back(engine: Milvus, ids: Any) -> None:
    engine.create(Layout(isinstance(ids[0], str), 2, 3, "ip"))
    rows = _rows(ids)
    engine.insert(rows)
    engine.insert(rows, replace=True)
    engine.finish()
    assert engine.count() == len(ids)
    for row, id_ in enumerate(ids):
        found = engine.select(engine.dialect.is_in("id", [id_]), 10)
        assert found.ids.tolist() == [id_]
        assert found.codes.tolist() == rows.codes[row : row + 1].tolist()


def test_payload_comes_back_with_its_types_and_gaps(engine: Milvus) -> None:
    table = pa.table([pa.array(v, t) for t, v in COLUMNS.values()], names=list(COLUMNS))
    engine.create(Layout(False, 2, 3, "ip", table.schema))
    engine.insert(_rows([1, 2, 3], table))
    engine.insert(_rows([4]))
    engine.finish()
    found = engine.select(engine.dialect.is_in("id", [1, 2, 3, 4]), 10, payload=True)
    assert found.payload.schema == table.schema
    ordered = found.payload.take(np.argsort(found.ids)).to_pylist()
    assert ordered == [*table.to_pylist(), dict.fromkeys(COLUMNS)]


@pytest.mark.parametrize("metric", ["ip", "l2"])
def test_scores_are_the_metrics(engine: Milvus, metric: Any) -> None:
    engine.create(Layout(False, 2, 3, metric))
    rows = _rows([1, 2, 3, 4])
    engine.insert(rows)
    engine.finish()
    query, x = np.array([[1, -2, 0.5]], np.float32), rows.vectors
    assert x is not None
    expected = x @ query[0] if metric == "ip" else -((x - query) ** 2).sum(axis=1)
    ids, scores = engine.search(query, 3, None)
    order = np.argsort(-expected)[:3]
    assert ids[0].tolist() == (order + 1).tolist()
    np.testing.assert_allclose(scores[0], expected[order], rtol=1e-5)
    ids, scores = engine.search(rows.codes[:1], 1, None)
    assert (ids[0].tolist(), scores[0].tolist()) == ([1], [0.0])


def test_documents_of_any_size(engine: Milvus) -> None:
    assert engine.read("facts") is None
    for size in (0, 1, 48_000, 6_000_001):
        data = np.random.default_rng(size).bytes(size)
        engine.write("facts", data)
        engine.write("facts2", b"another")
        assert engine.read("facts") == data
    engine.drop()
    assert not engine.exists()


@pytest.mark.parametrize("name", ["two words", "code", "_ö"])
def test_columns_that_milvus_cannot_have(engine: Milvus, name: str) -> None:
    with pytest.raises(InputError, match="rename it"):
        engine.create(Layout(False, 2, 3, "ip", pa.schema({name: pa.int64()})))


def test_what_milvus_refuses_is_one_sentence(engine: Milvus) -> None:
    engine.create(Layout(False, 2, 3, "ip"))
    with pytest.raises(InputError, match="Milvus refuses this"):
        engine.count("nothing == 3")
    with pytest.raises(InputError, match="control characters"):
        engine.dialect.is_in("title", ["\n"])
    with pytest.raises(InputError, match="cannot look up"):
        engine.insert(_rows([-(2**63)]))


def test_numbers_beyond_64_bits_are_refused(engine: Milvus) -> None:
    big = pa.table({"n": pa.array([2**64 - 1], "uint64")})
    engine.create(Layout(False, 2, 3, "ip", big.schema))
    with pytest.raises(InputError, match="cannot keep payload column 'n'"):
        engine.insert(_rows([1], big))


def test_places_where_no_milvus_is(tmp_path: Path) -> None:
    (tmp_path / "no.db").write_bytes(b"no database, but something else" * 99)
    with pytest.raises(InputError, match="refuses"):
        Milvus(str(tmp_path / "no.db"), "books")
    with pytest.raises(InputError, match="no server answers"):
        Milvus("http://127.0.0.1:9", "books")
