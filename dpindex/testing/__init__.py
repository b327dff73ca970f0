"""What an extension must do, as classes of tests to subclass: they need ``pip install pytest``.

A search backend and a vector database are here, a release target is in
:mod:`dpindex.testing.release`. Nothing else of the package imports them.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest

from dpindex.base.arrays import AnyArray, Doubles, unit
from dpindex.base.errors import InputError
from dpindex.index.backends import SearchBackend
from dpindex.integrations.database import Database, Layout
from dpindex.integrations.publication import Documents


@dataclass
class BackendCase:
    """A backend, and made vectors with what NumPy finds among them.

    Parameters
    ----------
    backend : SearchBackend
        An empty one.
    metric : str
        What it ranks by: ``"cosine"``, ``"ip"`` or ``"l2"``.
    width : int
        Coordinates of a vector.
    signs : bool
        Whether its items are signs, eight in a byte, which are asked by vectors too.
    in_any_order : bool
        Whether items may come in any pieces: False for a graph, whose links depend on their order.
    least_recall : float
        Share of the ten nearest that a search must find where it is not exact.
    """

    backend: SearchBackend
    metric: str
    width: int = 24
    signs: bool = False
    in_any_order: bool = True
    least_recall: float = 0.0

    def vectors(self, rows: int, seed: int = 0) -> Doubles:
        """Points near a plane of three directions, or their signs."""
        rng = np.random.default_rng(seed)
        plane = np.random.default_rng(99).normal(size=(3, self.width))
        points: Doubles = 0.1 + 0.09 * rng.normal(size=(rows, 3)) @ plane
        points += 0.01 * rng.normal(size=points.shape)
        if self.signs:
            points = np.sign(points + rng.normal(0, 0.2, points.shape))
        return points

    def queries(self, count: int = 40) -> Doubles:
        """Like the vectors; the last is of zeros, where there are zeros."""
        asked = self.vectors(count, seed=9)
        if not self.signs:
            asked[-1] = 0
        return asked

    def items(self, vectors: Doubles) -> AnyArray:
        """What the backend is given."""
        if self.signs:
            return np.packbits(vectors > 0, axis=1, bitorder="little")
        return vectors.astype(np.float32)

    def fill(self, vectors: Doubles) -> SearchBackend:
        """Begin anew, with a sample of every second vector, and add all of them."""
        self.backend.begin(self.items(vectors)[::2])
        self.backend.add(self.items(vectors))
        self.backend.finish()
        return self.backend

    def truth(self, vectors: Doubles, queries: Doubles) -> Doubles:
        """Scores of all vectors, shape (nq, n)."""
        if self.metric == "l2":
            squares: Doubles = ((queries[:, None] - vectors) ** 2).sum(axis=2)
            return -squares
        if self.metric == "cosine" and not self.signs:
            vectors = unit(vectors).astype(np.float64)
            queries = unit(queries).astype(np.float64)
        return queries @ vectors.T


class SearchBackendContract:
    """NumPy's answers where search is exact, every place filled, honest recall where it is not.

    Subclass it in a test file, with a fixture ``case`` that returns a :class:`BackendCase`.
    """

    rows = 1500

    def test_exact_search_is_numpys(self, case: BackendCase) -> None:
        vectors = case.vectors(self.rows)
        queries = case.queries()
        backend = case.fill(vectors)
        assert (backend.recall is None) == backend.exact
        if not backend.exact:
            return
        truth = case.truth(vectors, queries)
        for found in (1, 10, self.rows):
            wanted = -np.sort(-truth, axis=1)[:, :found]
            for asked in (case.items(queries), queries):
                scores, rows = backend.search(asked, found)
                assert scores.dtype == np.float64
                np.testing.assert_allclose(scores, wanted, atol=1e-5)
                # The rows are those scores' rows: among ties any order will do.
                of_rows = np.take_along_axis(truth, rows, axis=1)
                np.testing.assert_allclose(of_rows, scores, atol=1e-5)
        assert not backend.needs_retraining(10**9)

    def test_every_place_is_filled(self, case: BackendCase) -> None:
        """However many are wanted and whatever is asked, every row stands once, best first."""
        backend = case.fill(case.vectors(self.rows))
        queries = case.queries()
        for wanted in (1, self.rows // 2, self.rows):
            for asked in (case.items(queries), queries):
                scores, rows = backend.search(asked, wanted)
                assert scores.shape == rows.shape == (len(queries), wanted)
                assert np.isfinite(scores).all()
                assert (np.diff(scores, axis=1) <= 1e-6).all()
                assert (rows >= 0).all()
                assert np.diff(np.sort(rows, axis=1), axis=1).all()

    def test_recall_is_what_queries_see(self, case: BackendCase, capfd: Any) -> None:
        """Of two hundred new queries, as often as measured on a hundred items, within 0.06."""
        vectors = case.vectors(4000)
        queries = case.queries(201)[:-1]
        backend = case.fill(vectors)
        if backend.exact:
            return
        true = np.argsort(-case.truth(vectors, queries), axis=1)[:, :10]
        _, rows = backend.search(case.items(queries), 10)
        shares = [np.isin(*pair).mean() for pair in zip(true, rows, strict=True)]
        assert backend.recall is not None
        assert backend.recall >= case.least_recall
        assert backend.recall == pytest.approx(np.mean(shares), abs=0.06)
        assert capfd.readouterr() == ("", "")  # it does not talk

    def test_added_in_pieces_with_searches_between(self, case: BackendCase) -> None:
        vectors = case.vectors(self.rows)
        queries = case.queries()
        whole = case.fill(vectors)
        wanted, _ = whole.search(queries, 50)
        recall = whole.recall
        pieces = case.backend
        pieces.begin(case.items(vectors)[::2])
        for start in range(0, self.rows, 400):
            pieces.add(case.items(vectors[start : start + 400]))
            pieces.finish()
            assert len(pieces) == min(self.rows, start + 400)
            scores = pieces.search(queries, 50)[0]
        if case.in_any_order:
            np.testing.assert_allclose(scores, wanted, atol=1e-5)
        assert pieces.recall == pytest.approx(recall, abs=0.02)

    def test_beginning_anew_forgets_everything(self, case: BackendCase) -> None:
        case.fill(case.vectors(self.rows))
        vectors = case.vectors(600, seed=4)
        case.backend.begin(case.items(vectors))
        assert len(case.backend) == 0
        _, rows = case.fill(vectors).search(case.queries(), 600)
        assert len(case.backend) == 600
        assert (np.sort(rows, axis=1) == np.arange(600)).all()

    def test_equal_items_have_equal_scores(self, case: BackendCase) -> None:
        vectors = case.vectors(self.rows)
        queries = case.queries()
        crowd = slice(self.rows // 2, self.rows // 2 + 40)
        vectors[crowd] = vectors[self.rows // 2]
        backend = case.fill(vectors)
        for asked in (case.items(queries), queries):
            scores, rows = backend.search(asked, self.rows)
            of_rows = np.take_along_axis(scores, np.argsort(rows, axis=1), axis=1)
            assert np.ptp(of_rows[:, crowd], axis=1).max() <= 1e-5

    def test_a_subset_gives_its_items_the_same_scores(self, case: BackendCase) -> None:
        """Where search is exact; rounded tables of scores are made for each search."""
        backend = case.fill(case.vectors(self.rows))
        queries = case.queries()
        if not backend.exact:
            return
        scores, rows = backend.search(queries, self.rows)
        chosen = np.arange(0, self.rows, 7)
        part = backend.subset(chosen)
        assert len(part) == len(chosen)
        some, places = part.search(queries, len(chosen))
        wanted = np.take_along_axis(scores, np.argsort(rows, axis=1), axis=1)[:, chosen]
        found = np.take_along_axis(some, np.argsort(places, axis=1), axis=1)
        np.testing.assert_allclose(found, wanted, atol=1e-5)


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
