"""What is published, in which order, and how it begins anew."""

from itertools import product

import pytest
from helpers.common import attribute_spec, filled_index, refuses, uniform
from helpers.lite import LITE, PLACES, address, layout
from numpy.testing import assert_array_equal

import dpindex as dpi
from dpindex.base.files import unpack
from dpindex.integrations import publication
from dpindex.integrations.database import open_database
from dpindex.integrations.lance import Lance
from dpindex.integrations.milvus import Milvus
from dpindex.integrations.parquet import Parquet
from dpindex.integrations.postgres import Postgres
from dpindex.integrations.publication import WHOLE, Documents

pytestmark = LITE
SPEC = attribute_spec("dp-oporp-staircase", 16, k=8, epsilon=8.0)
X = uniform(60, 16)


STEPS = ("create", "insert", "drop", "finish")


@pytest.fixture(params=PLACES)
def place(request, tmp_path, monkeypatch):
    monkeypatch.setattr(publication, "CHUNK_BYTES", 3000)  # some ten rows
    return address(tmp_path, request.param)


def _index(rows=60):
    return filled_index(SPEC, X[:rows])


def _fail_at(monkeypatch, name, call):
    """Let one call of the database end as a lost connection does, after it was carried out."""
    calls = iter(range(1000))

    for database in (Milvus, Parquet, Lance, Postgres):
        real = getattr(database, name)

        def lost(self, *args, real=real, **named):
            answer = real(self, *args, **named)
            if next(calls) == call:
                raise ConnectionError
            return answer

        monkeypatch.setattr(database, name, lost)


CUTS = [*product(STEPS, (0, 1)), ("insert", 4), ("insert", 7)]
OF_EVERY_DATABASE = [("insert", 4), ("finish", 1)]


@pytest.mark.parametrize("name, call", CUTS)
def test_what_was_cut_off_begins_anew(name, call, place, monkeypatch):
    if (name, call) not in OF_EVERY_DATABASE and not place.endswith(".lance"):
        return  # the steps are those of publication, whichever the database
    index = _index()
    with monkeypatch.context() as patch:
        _fail_at(patch, name, call)
        with pytest.raises(ConnectionError):
            dpi.publish(index, place, "books")
    if (name, call) == ("finish", 1):  # after the facts
        with refuses("there is a published index"):
            dpi.publish(index, place, "books")
    else:
        with refuses(r"no published index|unfinished|nothing at"):
            dpi.open(place, "books")
        dpi.publish(index, place, "books")
    served = dpi.open(place, "books")
    assert len(served) == 60
    for id_ in (0, 17, 59):
        assert_array_equal(served[id_].stored, index[id_].stored)
    served.close()


def test_another_state_of_the_index_takes_its_place(place, monkeypatch):
    with monkeypatch.context() as patch:
        _fail_at(patch, "insert", 3)
        with pytest.raises(ConnectionError):
            dpi.publish(_index(), place, "books")
    other = _index(5)
    dpi.publish(other, place, "books")
    served = dpi.open(place, "books")
    assert len(served) == 5
    assert_array_equal(served[3].stored, other[3].stored)
    served.close()


def test_what_is_there_is_left_alone(place):
    index = _index()
    dpi.publish(index, place, "books")
    with refuses("there is a published index of that name"):
        dpi.publish(_index(), place, "books")
    with refuses("empty"):
        dpi.publish(dpi.PrivateIndex(SPEC), place, "none")
    bare = filled_index(attribute_spec("none-oporp", 16, k=8), X)
    with refuses("protects nothing"):
        dpi.publish(bare, place, "none")
    foreign = open_database(place, "foreign")
    foreign.create(layout())
    foreign.close()
    if isinstance(foreign, Parquet):  # nothing is there before all is
        parquet = pytest.importorskip("pyarrow.parquet")
        parquet.write_table(foreign.layout.columns.empty_table(), f"{place}/foreign.parquet")
    with refuses("none of dpindex's"):
        dpi.publish(index, place, "foreign")
    if isinstance(foreign, Parquet):
        return
    others = Documents(open_database(place, "letters"))
    others.begin()
    others.write("another", b"")
    with refuses("none of dpindex's"):
        dpi.publish(index, place, "letters")


def _published(database, place):
    """Ids of what is written beside the rows, and the columns of these, as its own client says."""
    if isinstance(database, Milvus):
        client = pytest.importorskip("pymilvus").MilvusClient(place)
        rows = client.query("books_dpindex", filter="id != ''", output_fields=["id"])
        described = client.describe_collection("books")["fields"]
        return [row["id"] for row in rows], [field["name"] for field in described]
    if isinstance(database, Postgres):
        connection = pytest.importorskip("psycopg").connect(place)
        rows = connection.execute("select id from books_dpindex").fetchall()
        described = connection.execute("select * from books").description or []
        return [id_ for (id_,) in rows], [column.name for column in described]
    if isinstance(database, Parquet):
        documents = Documents(database)
        assert documents.open()
        schema = pytest.importorskip("pyarrow.parquet").read_schema(f"{place}/books.parquet")
        return documents.rows.select("true", 10)["id"].to_pylist(), schema.names
    assert isinstance(database, Lance)
    connection = pytest.importorskip("lancedb").connect(place)
    rows = connection.open_table("books_dpindex").to_arrow()
    return rows["id"].to_pylist(), connection.open_table("books").schema.names


def test_nothing_but_the_index_is_published(place, tmp_path):
    """No ledger, no path, no projected vector: documents and columns are those of the index."""
    index = dpi.PrivateIndex(SPEC)
    ledger = dpi.Ledger(tmp_path / "ledger")
    index.save(tmp_path / "index")
    index.add(X, [f"name{i}" for i in range(60)], ledger=ledger)
    dpi.publish(index, place, "books")
    database = open_database(place, "books")
    names, columns = _published(database, place)
    assert {name.removesuffix("/0") for name in names} == {"begun", WHOLE}
    assert columns == ["id", "code", "vector"]
    documents = Documents(database)
    assert documents.open()
    whole = documents.read(WHOLE) or b""
    assert str(tmp_path).encode() not in whole
    facts, arrays = unpack(whole, WHOLE)
    assert set(facts) == {
        *("settings", "dtype", "text_ids", "exact_queries"),
        *("ids_are_rows", "rows", "vector_unit"),
        *("effort", "recall"),  # of a graph over the codes
    }
    assert arrays.keys() <= {"calibration"}
    database.close()
