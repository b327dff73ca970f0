"""What LanceDB cannot keep or compare, and how its files are kept few."""

import numpy as np
import pytest
from helpers.lite import LITE
from helpers.refusals import refuses

import dpindex as dpi
from dpindex.base.files import pack, unpack
from dpindex.integrations.database import Layout
from dpindex.integrations.lance import Lance
from dpindex.integrations.publication import WHOLE, Documents
from dpindex.testing.database import rows_of

pa = pytest.importorskip("pyarrow")
lancedb = pytest.importorskip("lancedb")
pytestmark = [*LITE, pytest.mark.extra]


@pytest.fixture
def database(tmp_path):
    return Lance(str(tmp_path / "x.lance"), "books")


def test_conditions_are_those_of_sql(database):
    table = pa.table(
        {
            "small": pa.array([-5, 7, None], "int8"),
            "big": pa.array([2**64 - 1, 0, None], "uint64"),
            "half": pa.array([0.5, -3.0, None], "float32"),
            "two words": ["it's", "", None],
        }
    )
    database.create(Layout(False, 2, 3, "ip", table.schema))
    database.insert(rows_of(database, [1, 2, 3], table))
    for where, count in {
        "small < 7": 1,
        "big > 0": 1,
        "half < 1e300": 2,
        "not (half < 0)": 1,
        "id >= 1": 3,
        "`two words` = 'it''s'": 1,
        "small is null": 1,
    }.items():
        assert database.count(where) == count, where


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e6])
def test_products_of_any_size_lose_nothing(database, size):
    database.create(Layout(False, 2, 3, "ip"))
    rows = rows_of(database, range(9), size=size)
    database.insert(rows)
    query = np.array([[0.3, -0.2, 0.1]], np.float32)
    ((ids, scores),) = database.search(query, 9, None)
    expected = (np.array(rows["vector"].to_pylist()) @ query[0])[ids]
    np.testing.assert_allclose(scores, expected, atol=3e-7 * np.abs(expected).max())


def test_small_files_are_joined(database):
    database.create(Layout(False, 2, 3, "ip"))
    for i in range(102):
        database.insert(rows_of(database, [i]))
    other = Lance(database.address, "books")
    other.open(Layout(False, 2, 3, "ip"))
    database.finish()
    table = lancedb.connect(database.address).open_table("books")
    assert table.stats()["fragment_stats"]["num_fragments"] == 1
    assert other.count() == database.count() == 102


@pytest.mark.parametrize("name", ["", "a.b", "a`b", "code", "_distance", "_rowid"])
def test_columns_that_lance_cannot_have(database, name):
    with refuses(r"rename it|reserved name"):
        database.create(Layout(False, 2, 3, "ip", pa.schema({name: pa.int64()})))


def test_what_lance_refuses_is_one_sentence(database):
    database.create(Layout(False, 2, 3, "ip"))
    with refuses(r"LanceDB refuses this \([^/]*No field named[^/]*\)\.$"):
        database.count("nothing = 3")


def test_a_place_where_no_folder_can_be(tmp_path):
    (tmp_path / "no.lance").write_bytes(b"a file")
    with refuses("refuses"):
        Lance(str(tmp_path / "no.lance"), "books").exists()


def _documents(place):
    documents = Documents(Lance(place, "books"))
    assert documents.open()
    return documents


def _write_anew(documents, data):
    documents.begin()
    documents.write(WHOLE, data)


def _with_part(whole, name, part):
    """A publication with a part that somebody else wrote."""
    facts, arrays = unpack(whole, WHOLE)
    return pack(WHOLE, facts, {**arrays, name: np.frombuffer(part, np.uint8)})


FOREIGN_DOCUMENTS = (
    *(b"", b"\xff", b"[]", b"1", b"null", b'"x"', b"{}", b"[" * 100_000, b'{"format": 1}'),
    b'{"format": [1]}',
)
FOREIGN_FIELDS = (
    *({"effort": 7}, {"effort": True}, {"recall": 1.5}, {"recall": -0.5}),
    *({"dtype": 1}, {"dtype": "O"}, {"dtype": "nonsense"}, {"rows": "9"}, {"rows": -1}),
    *({"text_ids": 1}, {"settings": 1}, {"settings": {}}, {"settings": []}, {"rows": True}),
)
FOREIGN_SETTINGS = (
    *(
        {"metric": "dot"},
        {"metric": 1},
        {"metric": []},
        {"query_epsilon": []},
        {"query_epsilon": -1.0},
        {"index_type": "HNSW32"},
        {"index_type": []},
    ),
    *(
        {"spec": None},
        {"spec": {}},
        {"spec": []},
        {"spec": {"method": "x"}},
        {"query_epsilon": "much"},
    ),
)


def test_low_foreign_documents_end_in_one_sentence(tmp_path):
    place = str(tmp_path / "x.lance")
    index = dpi.PrivateIndex(
        dpi.Spec("dp-oporp-staircase", dim=6, k=4, epsilon=8.0, adjacency=dpi.attribute(1.0))
    )
    index.add(np.random.default_rng(0).uniform(-1, 1, (9, 6)))
    dpi.publish(index, place, "books")
    documents = _documents(place)
    whole = documents.read(WHOLE)
    assert whole is not None
    known, arrays = unpack(whole, WHOLE)
    fields = [*FOREIGN_FIELDS, *({"settings": known["settings"] | s} for s in FOREIGN_SETTINGS)]
    changed = [pack(WHOLE, {**known, **field}, arrays) for field in fields]
    lacking = [pack(WHOLE, {k: known[k] for k in known if k != name}, arrays) for name in known]
    parts = [_with_part(whole, part, b"AAAA") for part in ("denoiser", "calibration")]
    headless = pack(WHOLE, {}, {}), pack("denoiser", known, arrays)
    for document in (*FOREIGN_DOCUMENTS, *changed, *lacking, *parts, *headless):
        _write_anew(documents, document)
        with refuses() as caught:
            dpi.open(place, "books")
        assert str(caught.value).isprintable()
        assert str(caught.value).endswith("."), document
    for document in (*FOREIGN_DOCUMENTS, b"AAAA"):
        _write_anew(documents, _with_part(whole, "schema", document))
        with refuses("no schema"):
            dpi.open(place, "books")
    for place_ in range(0, len(whole), 97):
        _write_anew(documents, whole[:place_] + bytes([whole[place_] ^ 1]) + whole[place_ + 1 :])
        with refuses():
            dpi.open(place, "books")


def test_h2_a_published_schema_with_names_that_forge_is_refused(tmp_path):
    place = str(tmp_path / "x.lance")
    index = dpi.PrivateIndex(
        dpi.Spec("dp-oporp-staircase", dim=6, k=4, epsilon=8.0, adjacency=dpi.attribute(1.0))
    )
    index.add(np.random.default_rng(0).uniform(-1, 1, (9, 6)))
    dpi.publish(index, place, "books")
    documents = _documents(place)
    schema = pa.schema([("year\n\x1b[2Jepsilon = 0.1", "string")]).serialize().to_pybytes()
    _write_anew(documents, _with_part(documents.read(WHOLE) or b"", "schema", schema))
    with refuses("characters that cannot be printed") as caught:
        dpi.open(place, "books")
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    "table",
    [
        {"id": ["publication"]},
        {"id": ["publication"], "data": [7]},
        {"id": ["publication"], "data": ["{}"]},
        {"id": [1], "data": [b"{}"]},
        {"key": ["publication"], "data": [b"{}"]},
        {"id": ["publication/0"], "code": [1], "data": [None]},
        {"id": ["publication/0"], "code": [1], "data": ["%"]},
        {"id": ["publication/0", "publication/0"], "code": [1, 1], "data": ["", ""]},
    ],
)
def test_low_a_foreign_table_of_documents_is_refused(tmp_path, table):
    place = str(tmp_path / "x.lance")
    lancedb.connect(place).create_table("books_dpindex", pa.table(table))
    with refuses(r"LanceDB refuses|damaged|no published|no dpindex"):
        dpi.open(place, "books")
