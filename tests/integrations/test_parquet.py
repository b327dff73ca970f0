"""A Parquet table: what lies in the file, that no byte of it can be changed, and its parts."""

import shutil
from itertools import pairwise

import numpy as np
import pytest
from helpers.common import (
    attribute_spec,
    filled_index,
    flipped,
    interrupted_at,
    names_in,
    record_spec,
    refuses,
)
from helpers.faulty_s3 import moto_server
from helpers.lite import LITE, layout
from numpy.testing import assert_array_equal

import dpindex as dpi
from dpindex.data import as_source, open_dataset
from dpindex.data.dataset import as_dataset
from dpindex.integrations import parquet
from dpindex.integrations.database import open_database
from dpindex.testing import rows_of

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
duckdb = pytest.importorskip("duckdb")
pytestmark = [*LITE, pytest.mark.extra]

RNG = np.random.default_rng(0)
X = RNG.normal(size=(3000, 16))
BOOK = dpi.Codebook(RNG.normal(size=(50, 16)))
SYMBOLS = record_spec("record-codebook", 16, epsilon=8.0, codebook=BOOK)
NUMBERS = attribute_spec("dp-oporp-staircase", 16, k=8, epsilon=8.0)
YEARS = {"year": 100 * [*range(1990, 2020)]}


@pytest.fixture(scope="module")
def index():
    return filled_index(SYMBOLS, X, payload=YEARS)


@pytest.fixture
def small_groups(monkeypatch):
    """Six parts of 500 rows."""
    monkeypatch.setattr(parquet, "GROUP_ROWS", 250)
    monkeypatch.setattr(parquet, "PART_GROUPS", 2)


@pytest.fixture
def place(index, tmp_path):
    """A file that holds the index."""
    dpi.publish(index, tmp_path / "codes.parquet")
    return tmp_path / "codes.parquet"


@pytest.mark.usefixtures("small_groups")
def test_anyone_reads_the_file(index, place, tmp_path):
    assert names_in(tmp_path) == ["codes.parquet"]
    table = pq.read_table(place)
    written = table.to_pydict()
    assert table.schema.names == ["id", "code", "year"]
    rows = table.sort_by("id").to_pydict()
    assert rows["id"] == list(range(len(X)))
    assert_array_equal(rows["code"], index.codes.stored[:, 0])
    assert rows["year"] == YEARS["year"]
    order = np.lexsort((written["id"], written["code"]))
    assert_array_equal(order, np.arange(len(X)))
    ((counted, mean),) = duckdb.sql(f"select count(*), avg(year) from '{place}'").fetchall()
    assert counted == len(X)
    assert mean == np.mean(YEARS["year"])


def test_codes_are_not_taken_for_vectors(tmp_path):
    index = filled_index(NUMBERS, X[:20].clip(-1, 1))
    place = tmp_path / "codes.parquet"
    dpi.publish(index, str(place))
    with refuses("name the file of vectors"):
        open_dataset(place, in_process=True)


@pytest.mark.usefixtures("small_groups")
def test_the_footer_states_the_promise_and_lets_engines_skip(place):
    footer = pq.read_metadata(place)
    stated = dpi.Spec.from_json(footer.metadata[b"dpindex.spec"].decode())
    assert stated.epsilon == 8.0
    assert footer.metadata[b"dpindex.guarantee"].decode() == str(SYMBOLS.guarantee)
    assert len(footer.metadata[b"dpindex.sha256"]) == 64
    assert footer.num_row_groups == 12
    codes = footer.row_group(3).column(1)
    assert codes.has_column_index
    assert codes.has_offset_index
    assert codes.statistics.max - codes.statistics.min < 10


def test_a_changed_byte_anywhere_is_found_before_a_search(place):
    whole = place.read_bytes()
    content = range(4, len(whole) - 8, 997)
    footer = range(len(whole) - 200, len(whole), 3)
    for byte in (*content, *footer):
        place.write_bytes(flipped(whole, byte))
        with refuses(r"was changed|refuses|no published|damaged"):
            dpi.open(place)
    shorter = (whole[:-1], whole[: len(whole) // 2], b"")
    for changed in (*shorter, whole + b"\0"):
        place.write_bytes(changed)
        with refuses(r"was changed|refuses|no published"):
            dpi.open(place)
    place.write_bytes(whole)
    assert len(dpi.open(place)) == len(X)


def test_a_file_that_is_changed_later_is_refused_at_the_next_search(place):
    served = dpi.open(place)
    place.write_bytes(flipped(place.read_bytes(), 1000))
    with refuses(r"was changed or cut off|refuses"):
        served.search(X[:1], 3, "exact")


@pytest.mark.usefixtures("small_groups")
def test_parts_are_ranges_of_the_code_and_belong_together(index, tmp_path):
    place = tmp_path / "codes.parquet"
    dpi.publish(index, f"{place}/")
    parts = sorted(place.glob("part-*.parquet"))
    assert len(parts) == 6
    tables = [pq.read_table(part) for part in parts]
    codes = [table["code"].to_numpy() for table in tables]
    assert all(one[-1] <= other[0] for one, other in pairwise(codes))
    ((counted,),) = duckdb.sql(f"select count(*) from '{place}/*.parquet'").fetchall()
    assert counted == len(X)
    served = dpi.open(place)
    asked = (X[:9], 20, "exact")
    here = index.search(*asked, filter="year >= 2000")
    found = served.search(*asked, filter="year >= 2000")
    assert_array_equal(found.ids, here.ids)
    assert found.payload.equals(here.payload)

    other = tmp_path / "other.parquet"
    dpi.publish(index, f"{other}/")
    foreign = parts[3].read_bytes()
    (other / parts[2].name).write_bytes(foreign)
    with refuses(f"{parts[2].name} is of another table"):
        dpi.open(other)
    parts[2].unlink()
    with refuses("refuses"):
        dpi.open(place)


@pytest.mark.usefixtures("small_groups")
@pytest.mark.parametrize("end", ["", "/"])
def test_a_table_is_searched_after_all_rows_of_a_part_or_all_of_it_were_removed(
    index, tmp_path, end
):
    place = f"{tmp_path}/codes.parquet{end}"
    dpi.publish(index, place)
    table = dpi.open(place)
    in_order = np.argsort(index.codes.stored[:, 0], kind="stable")
    first = in_order[:600]
    left = dpi.PrivateIndex(SYMBOLS)
    kept = np.delete(np.arange(len(X)), first)
    left.add_codes(index.codes.take(kept), kept)
    table.remove(first)
    asked = (X[:5], len(kept), "exact")
    found = table.search(*asked)
    assert_array_equal(found.scores, left.search(*asked).scores)
    table.remove(kept)
    lookup = table.to_lookup(X[:1], "exact", candidates=5)
    assert list(table.stream(lookup)) == []
    table.add_codes(index.codes.take(kept[:1]), kept[:1])
    found = table.search(X[:1], 1, "exact")
    assert found.ids.tolist() == [[kept[0]]]


def test_a_table_in_an_object_store(index, monkeypatch, tmp_path):
    pytest.importorskip("moto")
    credentials = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
    for name in credentials:
        monkeypatch.setenv(name, "of-a-test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    with moto_server("lake") as (host, port):
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        for place in ("s3://lake/codes.parquet", "s3://lake/folder.parquet/"):
            dpi.publish(index, place)
            served = dpi.open(place)
            asked = (X[:9], 20, "exact")
            found = served.search(*asked, filter="year >= 2000")
            here = index.search(*asked, filter="year >= 2000")
            assert_array_equal(found.ids, here.ids)
            assert served.remove([3, 5]) == 2
            assert len(dpi.open(place)) == len(X) - 2
            served.close()
        dataset = as_dataset(as_source(X))
        private = tmp_path / "private"
        dpi.build(dataset, "s3://lake/built.parquet/", SYMBOLS, private=private)
        assert len(dpi.open("s3://lake/built.parquet/")) == len(X)
        assert not private.exists()


def backwards(function, shards):
    """An engine that gives each result twice."""
    twice = [*shards, *shards]
    return [function(shard) for shard in reversed(twice)]


@pytest.mark.parametrize("end", ["", "/"])
def test_a_build_becomes_a_table_and_goes_on_wherever_it_was_cut_off(tmp_path, end):
    place = f"{tmp_path}/codes.parquet{end}"
    source = as_dataset(as_source(X))
    dataset = source.with_labels(np.arange(len(X)), pa.table(YEARS))

    def built():
        return dpi.build(dataset, place, SYMBOLS, engine=backwards)

    interrupted_at("os.replace", built)
    with refuses("its options differ"):
        dpi.build(dataset, place, SYMBOLS, query_epsilon=2.0)
    staged = next(tmp_path.glob("codes.parquet.unpublished/*/segments/*.codes"))
    drawn = dpi.codes_from_bytes(staged.read_bytes())
    interrupted_at("dpindex.storage.journal.Journal.end", built)
    assert len(dpi.open(place)) == len(X)
    assert built().drawn == 0
    assert names_in(tmp_path) == ["codes.parquet"]
    table = dpi.open(place)
    assert len(table) == len(X)
    assert table[7].stored == drawn.stored[7]
    found = table.search(X[:1], 5, "exact", filter="year >= 2010")
    assert min(found.payload["year"].to_pylist()) >= 2010
    with refuses("already exists"):
        built()


def test_what_no_table_keeps_is_refused_before_anything_is_drawn(tmp_path):
    labels = pa.table({"Code": range(len(X))})
    named = as_dataset(as_source(X)).with_labels(None, labels)
    with refuses("rename it"):
        dpi.build(named, tmp_path / "codes.parquet", SYMBOLS)
    assert list(tmp_path.iterdir()) == []
    with refuses(r"as a prefix: say s3://lake/x\.parquet/"):
        dpi.build(
            named,
            "s3://lake/x.parquet",
            SYMBOLS,
            private=tmp_path / "private",
        )


def test_another_file_of_that_name_is_none(index, tmp_path):
    place = tmp_path / "codes.parquet"
    pq.write_table(pa.table({"id": [1]}), place)
    with refuses("there is no published index"):
        dpi.open(place)
    with refuses("none of dpindex's"):
        dpi.publish(index, place)
    for content in (b"PAR1", b"PAR1 and more", b"id,code"):
        place.write_bytes(content)
        with refuses("cut off, or is no Parquet file; publish the"):
            dpi.open(place)
        with refuses("cut off, or is no Parquet file; publish the"):
            dpi.publish(index, place)
    with refuses(r"nothing at .*missing.parquet"):
        dpi.open(tmp_path / "missing.parquet")


def test_a_file_has_one_collection(index, place):
    with refuses("name another file, or drop that one"):
        dpi.publish(index, place)
    with refuses(r"is a file, which has one collection; name another"):
        dpi.publish(index, place, "other")
    with refuses(r"is a file, which has one collection; name another"):
        dpi.open(place, "other")
    assert len(dpi.open(place)) == len(index)


def test_a_place_whose_name_looks_like_a_pattern(index, tmp_path):
    place = tmp_path / "a[1]*?.parquet"
    dpi.publish(index, place)
    assert len(dpi.open(place)) == len(X)
    shutil.copy(place, tmp_path / "it's.parquet")
    assert len(dpi.open(tmp_path / "it's.parquet")) == len(X)


@pytest.fixture
def database(tmp_path):
    return open_database(tmp_path / "x.parquet", "dpindex", new=True)


@pytest.mark.parametrize("name", ["Code", "ID", "vector"])
def test_columns_that_differ_by_case_are_refused(database, name):
    with refuses("rename it"):
        database.create(layout(pa.schema({name: "int64"})))
    with refuses("rename a payload column"):
        database.create(layout(pa.schema({"a": "int64", "A": "int64"})))


@pytest.mark.parametrize("kind", [pa.duration("us"), pa.float16()])
def test_types_that_would_lose_something_are_refused(database, kind):
    with refuses("keeps no payload column of type .*: turn 'a' into"):
        database.create(layout(pa.schema({"a": kind})))


@pytest.mark.parametrize(
    "kind",
    [pa.timestamp("us", "Europe/Berlin"), pa.timestamp("ns"), pa.time32("s"), pa.date64(),
     pa.uint64(), pa.decimal128(38, 10), pa.large_string(), pa.binary(), pa.list_(pa.int8())],
)  # fmt: skip
def test_other_types_come_back(database, kind):
    table = pa.table({"a": pa.nulls(2, kind)})
    database.create(layout(table.schema))
    database.insert(rows_of(database, [1, 2], table))
    found = database.select("true", 5, ["a"])
    assert found.schema.field("a").type == kind


@pytest.mark.usefixtures("place")
def test_a_table_says_what_it_protects_as_the_index_does(index, tmp_path, prints):
    index.save(tmp_path / "ix")
    table = prints("info codes.parquet").splitlines()
    folder = prints("info ix").splitlines()
    assert table[0] == "codes.parquet: 3000 vectors of 16 attributes"
    assert set(folder[1:]) <= set(table)
    statement = prints("info codes.parquet --statement")
    assert statement == prints("info ix --statement")
