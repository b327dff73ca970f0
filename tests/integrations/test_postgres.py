"""PostgreSQL: plain SQL finds what dpindex finds, and what the server cannot keep is said."""

import threading

import numpy as np
import pytest
from helpers.common import attribute_spec, codes_of, filled_index, refuses, uniform
from helpers.documents import code_blocks, section
from helpers.lite import LITE
from helpers.postgres_server import new_database, programs

import dpindex as dpi
from dpindex import InputError
from dpindex.base.errors import StorageError
from dpindex.integrations.database import Layout, open_database
from dpindex.integrations.postgres import Postgres

psycopg = pytest.importorskip("psycopg")
pa = pytest.importorskip("pyarrow")
pytestmark = [
    *LITE,
    pytest.mark.extra,
    pytest.mark.skipif(programs() is None, reason="no PostgreSQL is installed"),
]

PAGE = section("databases.md", "## Plain SQL")
SYMBOLS = Layout(text_ids=False, code_bytes=0, vector_width=0, metric="ip")


@pytest.fixture
def uri():
    return new_database()


@pytest.fixture
def database(uri):
    made = open_database(uri, "books", new=True)
    assert isinstance(made, Postgres)
    yield made
    made.close()


def test_the_page_runs_as_it_is_typed(uri, capsys):
    (made,) = code_blocks(PAGE, "py")
    names = {}
    exec(made.replace("postgresql://me@localhost/library", uri), names)
    code = capsys.readouterr().out.strip()
    common, candidates, neighbours = code_blocks(PAGE, "sql")
    with psycopg.connect(uri) as reader:
        counts = dict(reader.execute(common).fetchall())
        found = reader.execute(candidates).fetchall()
        nearest = reader.execute(neighbours.replace("00ff00ff00ff00ff", code)).fetchall()
    symbols = names["texts"].codes.stored[:, 0]
    for symbol, number in counts.items():
        assert number == np.count_nonzero(symbols == symbol)
    years = np.array(names["years"]["year"])
    wanted = np.flatnonzero(np.isin(symbols, [17, 4, 256]) & (years >= 2000))
    assert sorted(id_ for id_, _ in found) == wanted.tolist()
    hits = names["pictures"].search(names["query"], 10, filter="year >= 2000")
    scores = [64 - 2 * distance for _, distance in nearest]
    assert scores == hits.scores[0].tolist()


def test_without_pgvector_signs_and_symbols_are_searched(uri, monkeypatch):
    def missing(self):
        return False

    monkeypatch.setattr(Postgres, "has_vectors", missing)
    spec = attribute_spec("dp-signoporp-rr", 16, k=16, epsilon=8.0)
    x = uniform(50, 16)
    index = filled_index(spec, x)
    dpi.publish(index, uri, "signs", exact_queries=False)
    code = codes_of(spec, x[:2])
    served = dpi.open(uri, "signs")
    found = served.search(code, 5)
    assert np.array_equal(found.scores, index.search(code, 5).scores)
    with psycopg.connect(uri, autocommit=True) as server:
        user = "create role reader login; grant create on schema public to reader"
        server.execute(user)
    with refuses("need the extension pgvector"):
        dpi.publish(index, uri.replace("postgres@", "reader@"), "vectors")


def test_names_of_columns_are_no_commands(database):
    names = ['x"; drop table books; --', "100%"]
    schema = pa.schema(dict.fromkeys(names, "int64"))
    database.create(Layout(False, 0, 0, "ip", schema))
    row = {"id": 7, "code": 3, names[0]: 1, names[1]: 2}
    rows = pa.Table.from_pylist([row], schema=database.layout.columns)
    database.insert(rows)
    (found,) = database.select("id = 7", 9, names).to_pylist()
    assert found == row


def test_f7_submitted_ids_are_no_commands_where_backslashes_escape(uri):
    """A database may set standard_conforming_strings off: a backslash ends no literal there."""
    with psycopg.connect(uri, autocommit=True) as server:
        name = server.execute("select current_database()").fetchone()
        assert name is not None
        server.execute(f"alter database {name[0]} set standard_conforming_strings = off")
    database = open_database(uri, "books")
    database.create(Layout(True, 0, 0, "ip"))
    ids = ["plain", "\\", "\\' or true --", "\\'; drop table books; --", "a\\\\'b"]
    database.insert(database.layout.table({"id": ids, "code": range(len(ids))}))
    for id_ in ids:
        condition = database.is_in("id", [id_])
        assert database.count(condition) == 1
        assert database.select(condition, 9)["id"].to_pylist() == [id_]
    nobody = database.is_in("id", ["\\' or true --x"])
    assert database.count(nobody) == 0
    assert database.count(database.is_in("id", ids)) == len(ids)
    assert database.count() == len(ids)
    database.close()


@pytest.mark.parametrize(
    "field, sentence",
    [
        (("code", "int64"), "are taken"),
        (("x" * 64, "int64"), "rename it"),
        (("when", pa.timestamp("ns")), "no payload column of type"),
    ],
)
def test_what_it_cannot_keep_is_said(database, field, sentence):
    with refuses(sentence):
        database.create(Layout(False, 0, 0, "ip", pa.schema([field])))


def test_a_text_with_a_zero_is_refused(database):
    database.create(Layout(True, 0, 0, "ip"))
    with refuses("PostgreSQL refuses this"):
        rows = database.layout.table({"id": ["a\0b", "c"], "code": range(2)})
        database.insert(rows)
    assert database.count() == 0


def test_of_two_writers_of_one_id_one_is_refused(uri, database):
    """The second waits for the first, and sees what it has written."""
    database.create(SYMBOLS)
    outcomes = []

    def write(symbol):
        own = open_database(uri, "books")
        own.open(SYMBOLS)
        try:
            rows = SYMBOLS.table({"id": range(2000), "code": 2000 * [symbol]})
            own.insert(rows)
            outcomes.append(symbol)
        except InputError as error:
            outcomes.append(str(error))
        own.close()

    writers = [threading.Thread(target=write, args=[symbol]) for symbol in (1, 2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert sum("another writer" in str(outcome) for outcome in outcomes) == 1
    assert database.count() == 2000
    assert database.count("code = 1") in (0, 2000)


def test_a_lost_connection_is_named_and_loses_nothing(uri, database):
    database.create(SYMBOLS)
    first = SYMBOLS.table({"id": range(5), "code": range(5)})
    more = SYMBOLS.table({"id": range(5, 9), "code": range(4)})
    database.insert(first)
    with psycopg.connect(uri, autocommit=True) as server:
        server.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity "
            "where datname = current_database() and pid <> pg_backend_pid()"
        )
    with pytest.raises(StorageError, match="cannot be reached"):
        database.insert(more)
    again = open_database(uri, "books")
    again.open(SYMBOLS)
    assert again.count() == 5
    again.close()


@pytest.mark.parametrize(
    "address", ["postgresql://me:secret@host/x", "postgres://host/x?password=y"]
)
def test_an_address_holds_no_password(address):
    with refuses("holds no password"):
        open_database(address, "books")


@pytest.mark.parametrize(
    "address",
    ["postgresql://postgres:@/postgres?host=/nowhere", "postgres://me@host.invalid/x?password="],
)
def test_an_empty_password_is_none(address):
    """As pgserver writes its addresses."""
    with pytest.raises(StorageError, match="cannot be reached"):
        open_database(address, "books")


def test_a_server_that_is_not_there_is_named():
    with pytest.raises(StorageError, match="cannot be reached"):
        open_database("postgresql://localhost:1/x", "books")
