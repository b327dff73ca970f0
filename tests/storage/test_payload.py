"""Payload: plain columns, aligned with the rows, in a file that holds nothing else."""

import numpy as np
import pytest
from helpers.common import (
    all_bytes,
    attribute_spec,
    filled_index,
    folded,
    refuses,
    reopened,
    uniform,
    write_codes,
)

from dpindex import PrivateIndex
from dpindex.base.errors import InputError
from dpindex.storage.payload import Payload, payload_from_bytes, payload_to_bytes

pa = pytest.importorskip("pyarrow")

SPEC = attribute_spec("dp-oporp-staircase", 6, k=3, epsilon=2.0)
VECTORS = uniform(12, 6)


def titles(first, stop):
    numbers = list(range(first, stop))
    return {"title": [f"t{i}" for i in numbers], "n": numbers}


def numbers_of(index):
    """The column of numbers, by id."""
    numbers = index.payload["n"].to_pylist()
    return dict(zip(index.ids.tolist(), numbers, strict=True))


def _aligned(index):
    """Each row has the payload of its id, which is its number or was added without one."""
    for name, value in numbers_of(index).items():
        assert value in (None, name)


@folded(
    "values",
    [
        {"a": [1, 2]},
        [{"a": 1}, {"a": 2}],
        pa.table({"a": [1, 2]}),
        pa.record_batch({"a": [1, 2]}),
        pa.table({"a": pa.array([1, 2]).dictionary_encode()}),
        pa.table({"a": [0, 1, 2, 3]}).slice(1, 2),
    ],
)
def test_what_can_be_a_payload(values):
    assert Payload().checked(values, 2).to_pydict() == {"a": [1, 2]}


def test_a_dataframe_without_its_index():
    pandas = pytest.importorskip("pandas")
    kinds = pandas.Categorical(["x", "y"])
    frame = pandas.DataFrame({"a": [1, 2], "b": kinds}, index=[7, 8])
    table = Payload().checked(frame, 2)
    assert table.to_pydict() == {"a": [1, 2], "b": ["x", "y"]}
    assert table.schema.metadata is None


def test_an_index_that_is_called_id_joins():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [1, 2]}, index=pandas.Index([1, 0], name="id"))
    assert Payload().checked(frame, 2, np.arange(2)).to_pydict() == {"a": [2, 1]}


def test_sparse_columns_are_named():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": pandas.arrays.SparseArray([0.0, 1.0])})
    with refuses(r"has sparse columns.* frame\.sparse\.to_dense"):
        PrivateIndex(SPEC).add(VECTORS[:2], payload=frame)


@folded(
    "values, match",
    [
        ({"a": 5}, "column 'a' has values of several types"),
        ({"a": [1]}, "1 rows for 2 vectors"),
        ({"a": [[0.1], [0.2]]}, "list<item: double>; a payload is published in the clear"),
        ({"a": [b"x", b"y"]}, "is of type binary"),
        ({"id": [1, 2], "a": [1, 2]}, "column 'id' of the payload names other rows"),
        ({"a": [1, "x"]}, "column 'a' has values of several types or too large ones, in row 1"),
        ({}, "no columns"),
        ([1, 2], "must be a mapping"),
        (pa.table([[1, 2], [1, 2]], names=["a", "a"]), "two columns 'a'"),
    ],
)
def test_what_cannot(values, match):
    index = PrivateIndex(SPEC)
    with refuses(match):
        index.add(VECTORS[:2], payload=values)
    assert len(index) == 0


def test_rows_stay_aligned(tmp_path):
    """Through adding with and without, removing, replacing, saving and opening."""
    index = filled_index(SPEC, VECTORS[:3])
    index.save(tmp_path / "i")
    index.add(VECTORS[:4], payload=titles(3, 7))
    index.add(VECTORS[:2])
    index.save(tmp_path / "i")
    numbers = index.payload["n"].to_pylist()
    assert numbers == [None] * 3 + [3, 4, 5, 6] + [None] * 2
    index.remove([0, 4])
    count = len(index)
    payload = {"title": ["x", "y"], "n": [5, 20]}
    index.add(VECTORS[:2], [5, 20], payload=payload, upsert=True, allow_rerelease=True)
    assert len(index) == count + 1  # one id is new
    _aligned(index)
    opened = reopened(index, tmp_path / "i")
    assert opened.payload.equals(index.payload)
    _aligned(opened)
    hits = opened.search(VECTORS[:3], k=4)
    known = numbers_of(index)
    found = hits.ids.ravel().tolist()
    assert hits.payload["n"].to_pylist() == [known[name] for name in found]
    with refuses("has the columns title, n; new rows need"):
        index.add(VECTORS[:1], payload={"other": [1]})
    index.add(VECTORS[:1], payload={"title": [None], "n": [None]})
    _aligned(index)
    with refuses("does not fit"):
        index.add(VECTORS[:1], payload={"title": ["x"], "n": ["word"]})


def test_an_index_without_a_payload_has_no_trace_of_one(tmp_path):
    index = filled_index(SPEC, VECTORS)
    index.save(tmp_path / "i")
    assert not (tmp_path / "i" / "payload").exists()
    assert "payload" not in (tmp_path / "i" / "manifest.json").read_text()
    assert index.payload is None
    assert index.search(VECTORS[:1]).payload is None


def test_a_file_holds_nothing_of_what_was_removed_or_masked(tmp_path):
    """Arrow keeps values under nulls, and pads slices with what lies beside them."""
    words = [f"secret{i};" for i in range(12)]
    masked = np.arange(12) % 2 == 0
    numbers = pa.array(np.arange(777000, 777012), mask=masked)
    index = filled_index(SPEC, VECTORS, payload={"word": words, "n": numbers})
    index.remove([1, 2, 3, 5])
    index.save(tmp_path / "i")
    data = all_bytes(tmp_path / "i" / "payload")
    assert b"secret0" in data
    for gone in (1, 2, 3, 5):
        assert words[gone].encode() not in data
    assert (777007).to_bytes(8, "little") in data
    for gone in (0, 2, 4, 1, 3, 5):
        assert (777000 + gone).to_bytes(8, "little") not in data
    table = Payload().checked({"word": words}, 12)
    assert b"secret5" not in payload_to_bytes(table.slice(3, 2))


def stream_of(table, **options):
    """A table as Arrow writes it."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, **options) as stream:
        stream.write_table(table)
    return sink.getvalue().to_pybytes()


def test_damaged_and_foreign_bytes_are_refused():
    table = Payload().checked(titles(0, 5), 5)
    good = payload_to_bytes(table)
    assert payload_from_bytes(good).to_pydict() == titles(0, 5)
    zipped = pa.ipc.IpcWriteOptions(compression="zstd")
    compressed = stream_of(pa.table({"a": ["x" * 1000]}), options=zipped)
    numbers = pa.array([[1.0]], pa.list_(pa.float32()))
    listed = stream_of(pa.table({"v": numbers}))
    for data in (b"", b"x" * 100, good[:-50], good[:200], compressed, listed):
        with refuses("file is damaged"):
            payload_from_bytes(data)
    for place in range(0, len(good), 7):
        changed = bytearray(good)
        changed[place] ^= 0xFF
        try:
            payload_from_bytes(bytes(changed))
        except InputError:
            continue


def test_codes_files_have_none(tmp_path):
    with refuses("a file of codes has no payload"):
        write_codes(tmp_path / "c", SPEC, VECTORS, payload=titles(0, 12))


FORGED = "year\n\x1b[2Jguarantee   epsilon = 0.1"


def test_h2_names_that_forge_what_is_printed_cannot_be_added():
    for name in (FORGED, "a\tb", "a\u202eb", "a\x7f"):
        with refuses("characters that cannot be printed") as caught:
            PrivateIndex(SPEC).add(VECTORS, payload={name: range(12)})
        assert str(caught.value).isprintable()


def test_h2_an_index_with_such_names_does_not_open(tmp_path, monkeypatch):
    index = PrivateIndex(SPEC)
    with monkeypatch.context() as patch:
        patch.setattr("dpindex.storage.payload.refuse_unprintable", lambda names, kind: None)
        index.add(VECTORS, payload={FORGED: range(12)})
        reopened(index, tmp_path / "x")
    with refuses() as caught:
        PrivateIndex.open(tmp_path / "x")
    assert str(caught.value).isprintable()
