"""Each database keeps the contract, and an address names the right one."""

from types import SimpleNamespace

import pytest
from helpers.common import attribute_spec, filled_index, normal, record_spec, refuses, uniform
from helpers.lite import LITE, PLACES, address
from helpers.toy_database import MADE, Toy
from numpy.testing import assert_array_equal

import dpindex as dpi
from dpindex.integrations.database import PLACES as ADAPTERS
from dpindex.integrations.database import SqlDatabase, open_database
from dpindex.testing import DatabaseContract


class TestEachDatabase(DatabaseContract):
    pytestmark = LITE

    @pytest.fixture(params=PLACES)
    def database(self, request, tmp_path):
        made = open_database(address(tmp_path, request.param), "books", new=True)
        yield made
        made.close()


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """An address of a database that is a file and a row, as CONTRIBUTING says."""
    MADE.clear()
    monkeypatch.setitem(ADAPTERS, r"toy://.*", "helpers.toy_database.Toy")
    return f"toy://{tmp_path}"


class TestToy(DatabaseContract):
    @pytest.fixture
    def database(self, toy):
        return open_database(toy, "books")


def test_counts_of_a_column_whose_elements_are_no_numbers():
    """As those of pyarrow 19, which is enough to read Parquet tables."""

    class Column(list):
        def __getitem__(self, place):
            return object()

    answer = {"n": Column([3])}
    asked = SimpleNamespace(answer=lambda columns, clauses: answer)
    assert SqlDatabase.count(asked) == 3


def test_a_new_database_is_a_file_and_a_row(toy):
    spec = attribute_spec("dp-oporp-staircase", 16, k=8, epsilon=8.0)
    index = dpi.PrivateIndex(spec)
    x = uniform(60, 16)
    index.add(x, payload={"year": range(60)})
    dpi.publish(index, toy, "books")
    served = dpi.open(toy, "books")
    assert isinstance(served, dpi.PublishedIndex)
    found = served.search(x[:5], 3, "exact", filter="year < 40")
    assert_array_equal(found.ids, index.search(x[:5], 3, filter="year < 40").ids)
    assert repr(served) == "<PublishedIndex: 60 codes, dp-oporp-staircase, cosine>"


BOOK = dpi.Codebook(normal(40, 16, 1))
SYMBOLS = record_spec("record-codebook", 16, epsilon=6.0, codebook=BOOK)
SIGNS = attribute_spec("dp-signoporp-rr", 16, k=16, epsilon=4.0)
VECTORS = uniform(60, 16)


def _published(toy, spec, **options):
    index = filled_index(spec, VECTORS, query_epsilon=5.0)
    dpi.publish(index, toy, "books", **options)
    return dpi.open(toy, "books")


def test_exact_codes_are_published_only_if_that_is_said(toy):
    spec = attribute_spec("none-oporp", 16, k=8)
    index = filled_index(spec, VECTORS)
    with refuses("publish it"):
        dpi.publish(index, toy, "books")
    assert not MADE
    dpi.publish(index, toy, "books", allow_unprotected=True)


def test_signs_for_private_queries_alone_have_no_vectors(toy):
    served = _published(toy, SIGNS, exact_queries=False)
    assert served.query_epsilon == 5.0
    hits = served.search(VECTORS[:2], 3, "private")
    assert hits.ids.shape == (2, 3)
    with refuses("published for private queries alone"):
        served.search(VECTORS[:2], 3, "exact")
    rows = MADE[f"{toy}, books"].values()
    assert {row["vector"] is None for row in rows} == {True}


def test_what_somebody_else_writes_meanwhile_is_noticed(toy, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(Toy, "count", lambda self, where=None: 61)
        with refuses("has 61 rows in place of 60"):
            _published(toy, SIGNS)
    with refuses(r"unfinished|no published index"):
        dpi.open(toy, "books")


def test_codes_that_were_changed_or_removed_are_no_hits(toy, monkeypatch):
    served = _published(toy, SYMBOLS)
    with monkeypatch.context() as patched:
        select = Toy.select

        def one_less(self, where, *rest):
            found = select(self, where, *rest)
            if where.startswith("id"):
                found = found.slice(1)
            return found

        patched.setattr(Toy, "select", one_less)
        with refuses("rows were removed while they were searched"):
            served.search(VECTORS[:1], 5, "exact").similarity  # noqa: B018
    ((found,),) = served.search(VECTORS[:1], 1, "exact").ids.tolist()
    MADE[f"{toy}, books"][found]["code"] = 60_000
    with refuses("the collection is damaged"):
        served[found]
