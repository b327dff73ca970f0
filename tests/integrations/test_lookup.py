"""A look-up finds the candidates of the index: in DuckDB, Spark and PostgreSQL, and as a stream."""

import sys
from itertools import product

import numpy as np
import pytest
from helpers.common import attribute_spec, codes_of, filled_index, known_noise, record_spec, refuses
from helpers.lite import LITE, PLACES, address
from helpers.postgres_server import new_database, programs

import dpindex as dpi
from dpindex.index.filters import Lookup
from dpindex.integrations import published

pa = pytest.importorskip("pyarrow")
pytestmark = [*LITE, known_noise]

RNG = np.random.default_rng(0)
TOPICS = RNG.normal(size=(20, 12))


def about_topics(rows):
    topics = TOPICS[RNG.integers(0, 20, rows)]
    return topics + 0.5 * RNG.normal(size=(rows, 12))


X = about_topics(4000)
PUBLIC = about_topics(800)
Q = X[:4] + 0.2 * RNG.normal(size=(4, 12))
NAMES = ["it's", 'a "b"', "c\\d", "é"]
YEARS = [None if i % 7 == 0 else 1990 + i % 30 for i in range(len(X))]
PAYLOAD = {"year": YEARS, "score": 1000 * NAMES}
FILTERS = [None, "year >= 2000 and not (year == 2005)", "score in [\"it's\", 'c\\\\d']", "id < 99"]
CANDIDATES = [300, "5%"]


@pytest.fixture(scope="module", params=["guided", "plain"])
def index(request):
    guided = request.param == "guided"
    book = dpi.fit_codebook(PUBLIC, 30) if guided else dpi.Codebook(PUBLIC[:50])
    spec = record_spec("record-codebook", 12, epsilon=8.0, codebook=book)
    return filled_index(spec, X, query_epsilon=6.0, payload=PAYLOAD)


def asked(index):
    """Exact queries and a code, with all that is asked of them."""
    code = codes_of(index.query_spec, Q[:1])
    for query, candidates, filter_ in product((Q[:1], Q[1:2], code), CANDIDATES, FILTERS):
        yield query, {"candidates": candidates, "filter": filter_}


def chosen(index, query, **options):
    """Ids and scores of the candidates that the codes of an index choose."""
    found = []

    def answer(_, ids):
        found.extend(ids.tolist())
        return np.zeros(len(ids))

    vector = query if isinstance(query, np.ndarray) else Q[:1]
    holder = dpi.Answers(answer)
    index.search(vector, 1, "exact", rerank=holder, **options)
    return sorted(found)


def agree(rows, index, lookup, every=None):
    """The answer of an engine has the rows that the look-up names, and of the last score any."""
    ids = [id_ for id_, _ in rows]
    scores = [float(score) for _, score in rows]
    assert len(set(ids)) == len(ids) <= lookup.count
    assert scores == sorted(scores, reverse=True)
    codes = index.codes.stored[:, 0]
    known = dict(zip(lookup.codes.tolist(), lookup.scores.tolist(), strict=True))

    def scores_of(ids):
        return [known[codes[id_]] for id_ in ids]

    assert scores_of(ids) == scores
    if every is not None:
        assert sorted(scores_of(every), reverse=True) == scores
        surely = {id_ for id_, score in zip(ids, scores, strict=True) if score > scores[-1]}
        assert surely <= set(every)


def published_places(index, folder):
    """A file and a folder, each once it holds the index."""
    for place in (f"{folder}/codes.parquet", f"{folder}/folder.parquet/"):
        dpi.publish(index, place)
        yield place


def checked(index, run):
    """What an engine finds by each look-up, and whether a search ends with the same candidates."""
    for query, options in asked(index):
        lookup = index.to_lookup(query, **options)
        every = None
        if isinstance(query, np.ndarray):
            every = chosen(index, query, **options)
        agree(run(lookup), index, lookup, every)


@pytest.mark.extra
def test_duckdb_finds_the_candidates_of_the_index(index, tmp_path):
    duckdb = pytest.importorskip("duckdb")
    for place in published_places(index, tmp_path):

        def run(lookup, place=place):
            return duckdb.sql(lookup.sql(place)).fetchall()

        checked(index, run)


@pytest.mark.extra
def test_spark_finds_the_candidates_of_the_index(index, tmp_path, monkeypatch):
    sql = pytest.importorskip("pyspark.sql", reason="pyspark is not installed")
    pytest.importorskip("duckdb")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    builder = sql.SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.shuffle.partitions", "1").getOrCreate()
    for place in published_places(index, tmp_path):

        def run(lookup, place=place):
            found = spark.sql(lookup.sql(place, "spark")).collect()
            return [tuple(row) for row in found]

        checked(index, run)
    spark.stop()


@pytest.mark.extra
@pytest.mark.skipif(programs() is None, reason="no PostgreSQL is installed")
def test_postgresql_finds_the_candidates_of_the_index(index):
    psycopg = pytest.importorskip("psycopg")
    uri = new_database()
    dpi.publish(index, uri, "letters")
    with psycopg.connect(uri) as connection:

        def run(lookup):
            return connection.execute(lookup.sql("letters", "postgresql")).fetchall()

        checked(index, run)


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
        rows = []
        for ids, scores in blocks:
            rows += zip(ids.tolist(), scores, strict=True)
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
    first = lookup.table().to_pylist()[0]
    assert first == {"code": int(lookup.codes[0]), "score": float(lookup.scores[0])}
    few = index.to_lookup(Q[:1], "private", candidates="1%")
    assert few.count > 0
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
    lookup = Lookup(np.array([1]), np.array([0.5]), 3)
    with refuses("dialects are duckdb"):
        lookup.sql("x", "oracle")


@pytest.mark.extra
def test_the_command_prints_a_statement_that_runs(index, tmp_path, prints):
    duckdb = pytest.importorskip("duckdb")
    dpi.publish(index, tmp_path / "codes.parquet")
    np.save(tmp_path / "q.npy", Q[:1])
    options = "--query exact --candidates 5% --filter 'year >= 2000'"
    out = prints(f"query codes.parquet q.npy --as-sql duckdb {options}")
    statement = out.replace("codes.parquet", str(tmp_path / "codes.parquet"))
    found = duckdb.sql(statement).fetchall()
    asked_for = {"candidates": "5%", "filter": "year >= 2000"}
    lookup = index.to_lookup(Q[:1], **asked_for)
    agree(found, index, lookup, chosen(index, Q[:1], **asked_for))
