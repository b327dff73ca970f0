"""What LanceDB cannot keep or compare, and how its files are kept few."""

import numpy as np
import pytest
from helpers.common import attribute_spec, filled_index, flipped, refuses, uniform
from helpers.lite import LITE, layout

import dpindex as dpi
from dpindex.base.files import pack, unpack
from dpindex.integrations.lance import Lance
from dpindex.integrations.publication import WHOLE, Documents
from dpindex.testing import rows_of

pa = pytest.importorskip("pyarrow")
lancedb = pytest.importorskip("lancedb")
pytestmark = [*LITE, pytest.mark.extra]


@pytest.fixture
def database(tmp_path):
    return Lance(str(tmp_path / "x.lance"), "books")


def test_small_files_are_joined(database):
    database.create(layout())
    for i in range(102):
        database.insert(rows_of(database, [i]))
    other = Lance(database.address, "books")
    other.open(layout())
    database.finish()
    table = lancedb.connect(database.address).open_table("books")
    assert table.stats()["fragment_stats"]["num_fragments"] == 1
    assert other.count() == database.count() == 102


@pytest.mark.parametrize("name", ["", "a.b", "a`b", "code", "_distance", "_rowid"])
def test_columns_that_lance_cannot_have(database, name):
    with refuses(r"rename it|reserved name"):
        database.create(layout(pa.schema({name: "int64"})))


def test_what_lance_refuses_is_one_sentence(database):
    database.create(layout())
    with refuses(r"LanceDB refuses this \([^/]*No field named[^/]*\)\.$"):
        database.count("nothing = 3")


def test_a_place_where_no_folder_can_be(tmp_path):
    (tmp_path / "no.lance").write_bytes(b"a file")
    with refuses("refuses"):
        Lance(str(tmp_path / "no.lance"), "books").exists()


@pytest.fixture
def place(tmp_path):
    """An address at which an index is published."""
    where = str(tmp_path / "x.lance")
    spec = attribute_spec("dp-oporp-staircase", 6, k=4, epsilon=8.0)
    index = filled_index(spec, uniform(9, 6))
    dpi.publish(index, where, "books")
    return where


@pytest.fixture
def documents(place):
    opened = Documents(Lance(place, "books"))
    assert opened.open()
    return opened


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
FOREIGN_FIELDS = {
    "effort": [7, True],
    "recall": [1.5, -0.5],
    "dtype": [1, "O", "nonsense"],
    "rows": ["9", -1, True],
    "text_ids": [1],
    "settings": [1, {}, []],
}
FOREIGN_SETTINGS = {
    "metric": ["dot", 1, []],
    "query_epsilon": [[], -1.0, "much"],
    "index_type": ["HNSW32", []],
    "spec": [None, {}, [], {"method": "x"}],
}


def each_of(fields):
    """One of these values at a time."""
    return [{name: value} for name, values in fields.items() for value in values]


def test_low_foreign_documents_end_in_one_sentence(place, documents):
    whole = documents.read(WHOLE)
    assert whole is not None
    known, arrays = unpack(whole, WHOLE)
    fields = each_of(FOREIGN_FIELDS)
    for setting in each_of(FOREIGN_SETTINGS):
        fields.append({"settings": known["settings"] | setting})
    foreign = [*FOREIGN_DOCUMENTS]
    foreign += [pack(WHOLE, known | field, arrays) for field in fields]
    for name in known:
        left = {field: value for field, value in known.items() if field != name}
        foreign.append(pack(WHOLE, left, arrays))
    for part in ("denoiser", "calibration"):
        foreign.append(_with_part(whole, part, b"AAAA"))
    foreign.append(pack(WHOLE, {}, {}))
    foreign.append(pack("denoiser", known, arrays))
    for document in foreign:
        _write_anew(documents, document)
        with refuses() as caught:
            dpi.open(place, "books")
        assert str(caught.value).isprintable()
        assert str(caught.value).endswith("."), document
    for document in (*FOREIGN_DOCUMENTS, b"AAAA"):
        _write_anew(documents, _with_part(whole, "schema", document))
        with refuses("no schema"):
            dpi.open(place, "books")
    for byte in range(0, len(whole), 97):
        _write_anew(documents, flipped(whole, byte))
        with refuses():
            dpi.open(place, "books")


def test_h2_a_published_schema_with_names_that_forge_is_refused(place, documents):
    schema = pa.schema([("year\n\x1b[2Jepsilon = 0.1", "string")])
    whole = documents.read(WHOLE) or b""
    _write_anew(documents, _with_part(whole, "schema", schema.serialize().to_pybytes()))
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
