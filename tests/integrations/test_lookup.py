"""A look-up finds the candidates of the index: in DuckDB, Spark and PostgreSQL, and as a stream."""

import sys

import numpy as np
import pytest
from helpers.common import attribute_spec, filled_index, known_noise, record_spec, refuses
from helpers.lite import LITE, PLACES, address
from helpers.postgres_server import new_database, programs

import dpindex as dpi
from dpindex.index.filters import Lookup
from dpindex.integrations import published

pa = pytest.importorskip("pyarrow")
pytestmark = [*LITE, known_noise]

RNG = np.random.default_rng(0)
TOPICS = RNG.normal(size=(20, 12))
X = TOPICS[RNG.integers(0, 20, 4000)] + 0.5 * RNG.normal(size=(4000, 12))
PUBLIC = TOPICS[RNG.integers(0, 20, 800)] + 0.5 * RNG.normal(size=(800, 12))
Q = X[:4] + 0.2 * RNG.normal(size=(4, 12))
NAMES = ["it's", 'a "b"', "c\\d", "é"]
PAYLOAD = {
    "year": [None if i % 7 == 0 else 1990 + i % 30 for i in range(len(X))],
    "score": [NAMES[i % 4] for i in range(len(X))],
}
FILTERS = [None, "year >= 2000 and not (year == 2005)", "score in [\"it's\", 'c\\\\d']", "id < 99"]
CANDIDATES = [300, "5%"]


@pytest.fixture(scope="module", params=["guided", "plain"])
def index(request):
    book = dpi.fit_codebook(PUBLIC, 30) if request.param == "guided" else dpi.Codebook(PUBLIC[:50])
    spec = record_spec("record-codebook", 12, epsilon=8.0, codebook=book)
    return filled_index(spec, X, query_epsilon=6.0, payload=PAYLOAD)


def asked(index):
    """Exact queries and a code, with all that is asked of them."""
    code = dpi.Privatizer(index.query_spec).privatize(Q[:1])
    for query in (Q[:1], Q[1:2], code):
        for candidates in CANDIDATES:
            for filter_ in FILTERS:
                yield query, {"candidates": candidates, "filter": filter_}


def chosen(index, query, **options):
    """Ids and scores of the candidates that the codes of an index choose."""
    found = []

    def answer(_, ids):
        found.extend(ids.tolist())
        return np.zeros(len(ids))

    vector = query if isinstance(query, np.ndarray) else Q[:1]
    index.search(vector, 1, "exact", rerank=dpi.Answers(answer), **options)
    return sorted(found)


def agree(rows, index, lookup, every=None):
    """The answer of an engine has the rows that the look-up names, and of the last score any."""
    ids = [id_ for id_, _ in rows]
    scores = np.array([float(score) for _, score in rows])
    assert len(set(ids)) == len(ids) <= lookup.count
    assert (np.diff(scores) <= 0).all()
    stored = index.codes.stored[:, 0]
    known = dict(zip(lookup.codes.tolist(), lookup.scores.tolist(), strict=True))
    assert scores.tolist() == [known[stored[id_]] for id_ in ids]
    if every is not None:
        own = [known[stored[id_]] for id_ in every]
        assert sorted(own) == sorted(scores.tolist())
        inner = scores > scores[-1] if len(scores) else scores
        assert {id_ for id_, is_inner in zip(ids, inner, strict=True) if is_inner} <= set(every)


def published_places(index, folder):
    """A file and a folder, each once it holds the index."""
    for place in (f"{folder}/codes.parquet", f"{folder}/folder.parquet/"):
        dpi.publish(index, place)
        yield place


def checked(index, run):
    for query, options in asked(index):
        lookup = index.to_lookup(query, **options)
        every = chosen(index, query, **options) if isinstance(query, np.ndarray) else None
        agree(run(lookup), index, lookup, every)


@pytest.mark.extra
def test_duckdb_finds_the_candidates_of_the_index(index, tmp_path):
    duckdb = pytest.importorskip("duckdb")
    for place in published_places(index, tmp_path):
        checked(index, lambda lookup, place=place: duckdb.sql(lookup.sql(place)).fetchall())


@pytest.mark.extra
def test_spark_finds_the_candidates_of_the_index(index, tmp_path, monkeypatch):
    sql = pytest.importorskip("pyspark.sql", reason="pyspark is not installed")
    pytest.importorskip("duckdb")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    builder = sql.SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.shuffle.partitions", "1").getOrCreate()
    for place in published_places(index, tmp_path):
        checked(
            index,
            lambda lookup, place=place: [
                tuple(row) for row in spark.sql(lookup.sql(place, "spark")).collect()
            ],
        )
    spark.stop()


@pytest.mark.extra
@pytest.mark.skipif(programs() is None, reason="no PostgreSQL is installed")
def test_postgresql_finds_the_candidates_of_the_index(index):
    psycopg = pytest.importorskip("psycopg")
    uri = new_database()
    dpi.publish(index, uri, "letters")
    with psycopg.connect(uri) as connection:
        checked(
            index,
            lambda lookup: connection.execute(lookup.sql("letters", "postgresql")).fetchall(),
        )


@pytest.mark.parametrize("place", PLACES)
def test_published_candidates_are_those_of_the_index(index, place, tmp_path, monkeypatch):
    monkeypatch.setattr(published, "STREAMED_ROWS", 100)
    uri = address(tmp_path, place)
    dpi.publish(index, uri)
    served = dpi.open(uri)
    counted = served.database.code_counts() is not None
    for query, options in asked(index):
        if not counted:
            lookup = served.to_lookup(query, "exact", **options)
            with refuses("does not count codes"):
                next(served.stream(lookup))
            assert len(lookup.codes) == len(index.spec.codewords)
            continue
        here = index.to_lookup(query, **options)
        lookup = served.to_lookup(query, "exact", **options)
        assert lookup.sql("x") == here.sql("x")
        blocks = list(served.stream(lookup))
        rows = [pair for ids, scores in blocks for pair in zip(ids.tolist(), scores, strict=True)]
        every = None
        if isinstance(query, np.ndarray):
            every = chosen(index, query, **options)
            assert sorted(id_ for id_, _ in rows) == every  # of equal ones too
            assert chosen(served, query, **options) == every
        agree(rows, index, lookup, every)
        assert all(len(ids) < 1500 for ids, _ in blocks)
    served.close()


def test_a_lookup_has_few_symbols_and_a_table(index):
    lookup = index.to_lookup(Q[:1], candidates=50)
    assert len(lookup.codes) < 5
    assert lookup.table().to_pylist()[0] == {
        "code": int(lookup.codes[0]),
        "score": float(lookup.scores[0]),
    }
    assert index.to_lookup(Q[:1], "private", candidates="1%").count > 0
    assert index.to_lookup(Q[:1]).count == 1000


def test_what_no_lookup_is_of(index):
    for query, options, said in (
        (Q, {}, "one query, not of 4"),
        (Q[:1], {"candidates": "x"}, "whole number or a share"),
        (Q[:1], {"filter": [1, 2]}, "an expression"),
        (Q[:1], {"filter": "pages > 3"}, "names 'pages'"),
    ):
        with refuses(said):
            index.to_lookup(query, **options)
    spec = attribute_spec("dp-signoporp-rr", 12, k=12, epsilon=4.0)
    signs = filled_index(spec, X[:9].clip(-1, 1))
    with refuses("needs codes that are symbols"):
        signs.to_lookup(Q[:1].clip(-1, 1))
    with refuses("dialects are duckdb"):
        Lookup(np.array([1]), np.array([0.5]), 3).sql("x", "oracle")


@pytest.mark.extra
def test_the_command_prints_a_statement_that_runs(index, tmp_path, prints):
    duckdb = pytest.importorskip("duckdb")
    dpi.publish(index, tmp_path / "codes.parquet")
    np.save(tmp_path / "q.npy", Q[:1])
    options = "--query exact --candidates 5% --filter 'year >= 2000'"
    out = prints(f"query codes.parquet q.npy --as-sql duckdb {options}")
    found = duckdb.sql(out.replace("codes.parquet", str(tmp_path / "codes.parquet"))).fetchall()
    asked_for = {"candidates": "5%", "filter": "year >= 2000"}
    lookup = index.to_lookup(Q[:1], **asked_for)
    agree(found, index, lookup, chosen(index, Q[:1], **asked_for))
