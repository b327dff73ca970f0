"""Ids: whole numbers or strings, unique; bytes that come back; nothing else gets in."""

import numpy as np
import pytest
from helpers.common import folded, refuses
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from dpindex.base.arrays import RowParts
from dpindex.base.files import pack
from dpindex.base.ids import id_array
from dpindex.storage.code_store import Ids
from dpindex.storage.ids import id_block, ids_to_bytes

INT64 = st.integers(-(2**63), 2**63 - 1)
LETTERS = st.characters(exclude_categories=["Cs"])
TEXT = st.text(LETTERS, max_size=12).filter(lambda text: not text.endswith("\0"))


def _ids(values):
    ids = Ids()
    return ids.grown(ids.check(values, len(values)))


@folded(
    "given_ids, expected",
    [
        ([3, 1], [3, 1]),
        ([-5, 0, 2**63 - 1, -(2**63)], [-5, 0, 2**63 - 1, -(2**63)]),
        (range(3), [0, 1, 2]),
        (np.array([1, 2], dtype=np.uint8), [1, 2]),
        (["a", "b"], ["a", "b"]),
        (("ü", "日本", ""), ["ü", "日本", ""]),
        (np.array(["x", "yy"], dtype=object), ["x", "yy"]),
        (np.array([1, 2], dtype=object), [1, 2]),
        ("one", ["one"]),
        (4, [4]),
        (np.array(9), [9]),
        (np.array([]), []),
        (np.array(["a"], dtype=">U1"), ["a"]),
    ],
)
def test_what_counts_id_array(given_ids, expected):
    array = id_array(given_ids)
    assert array.tolist() == expected
    assert array.dtype == np.int64 or array.dtype.kind == "U"


@folded(
    "wrong",
    [
        [1.5, 2],
        np.array([1.0]),
        [True, 3],
        np.array([True]),
        ["a", 1],
        [None],
        None,
        np.array([[1, 2]]),
        [b"a"],
        [2**70],
        [-(2**63) - 1],
        [2**63, -1],
        np.array([2**63], dtype=np.uint64),
        ["a" * 4097],
        ["\ud800"],
        ["a\0"],
        [np.nan],
        object(),
        {"a": 1}.items(),
    ],
)
def test_everything_else_is_refused(wrong):
    with refuses():
        id_array(wrong)


def test_duplicates_are_named():
    with refuses(r"id 4 \(row 2\) is twice in the input"):
        Ids().check([4, 5, 4], 3)
    with refuses(r"id 'b' \(row 1\) is already in the index"):
        _ids(["a", "b"]).check(["c", "b"], 2)


def test_kinds_do_not_mix_and_counts_must_fit():
    with refuses("must be strings"):
        _ids(["a"]).check([1], 1)
    with refuses("must be whole numbers"):
        _ids([1]).check(["a"], 1)
    with refuses("2 ids for 3"):
        Ids().check([1, 2], 3)


def test_default_ids_are_the_next_free_numbers():
    assert Ids().check(None, 3).tolist() == [0, 1, 2]
    assert _ids([7, 3]).check(None, 2).tolist() == [8, 9]
    assert _ids([-9, -7]).check(None, 2).tolist() == [0, 1]
    with refuses("string ids"):
        _ids(["a"]).check(None, 1)
    with refuses("64 bits"):
        _ids([2**63 - 2]).check(None, 2)
    assert _ids([2**63 - 2]).check(None, 1).tolist() == [2**63 - 1]


def test_rows_and_kept():
    ids = _ids(["d", "a", "c", "b"])
    assert ids.rows(["b", "d"]).tolist() == [0, 3]
    assert ids.rows("c").tolist() == [2]
    assert ids.rows([]).tolist() == []
    with refuses("'dd' is not in the index"):
        ids.rows(["a", "dd"])
    with refuses("not in the index"):
        ids.rows([1])
    kept = ids.without(np.array([1]))
    assert kept.array.tolist() == ["d", "c", "b"]
    assert kept.check(["a"], 1).tolist() == ["a"]


@pytest.mark.slow
@given(st.lists(INT64, unique=True) | st.lists(TEXT, unique=True))
def test_bytes_come_back(values):
    array = _ids(values).array
    back = id_block(ids_to_bytes(array))[:]
    assert back.tolist() == values
    assert back.dtype.kind == array.dtype.kind


def _strings(lengths, text):
    arrays = {"lengths": np.asarray(lengths, "u4"), "text": np.frombuffer(text, "u1")}
    return pack("ids", {}, arrays)


THREE = np.arange(3)


FORGED = {
    "other width": pack("ids", {}, {"numbers": THREE.astype(np.int32)}),
    "other shape": pack("ids", {}, {"numbers": np.zeros((2, 2), np.int64)}),
    "one array more": pack("ids", {}, {"numbers": THREE, "more": THREE}),
    "no text": pack("ids", {}, {"lengths": np.ones(1, "u4")}),
    "no array": pack("ids", {}, {}),
    "other kind": pack("codes", {}, {"numbers": THREE}),
    "too little text": _strings([1, 1], b"a"),
    "too much text": _strings([1, 1], b"abc"),
    "long strings": _strings([2**32 - 1, 2], b"a"),
    "not UTF-8": _strings([1], b"\xff"),
    "half a surrogate pair": _strings([1], b"\xed\xa0\x80"),
    "a final NUL": _strings([2], b"a\0"),
    "4097 letters": _strings([4097], b"a" * 4097),
}


@folded("kind", FORGED)
def test_forged_bytes_are_refused(kind):
    """Sizes and checksums of the whole are right."""
    with refuses(r"\bids\b"):
        id_block(FORGED[kind])


@pytest.mark.slow
def test_a_small_file_cannot_claim_much_memory():
    lengths = np.zeros(2_000_000, dtype="<u4")
    lengths[0] = 4000
    text = b"x" * 4000
    with refuses("damaged"):
        id_block(_strings(lengths, text))


# Rows in parts against the same rows in one array


LENGTHS = st.lists(st.integers(0, 5), min_size=1, max_size=6)


@given(LENGTHS, st.data())
def test_rows_are_those_of_the_joined_array(lengths, data):
    joined = np.arange(2 * sum(lengths)).reshape(-1, 2)
    ends = np.cumsum(lengths)
    parts = RowParts(np.split(joined, ends[:-1]))
    assert len(parts) == len(joined)
    start = data.draw(st.integers(0, 32))
    stop = data.draw(st.integers(0, 32))
    wanted = joined[start:stop]
    assert_array_equal(parts.take(slice(start, stop)), wanted)
    pieces = list(parts.within(start, stop, rows=3))
    for first, piece in pieces:
        assert 1 <= len(piece) <= 3
        assert_array_equal(piece, joined[first : first + len(piece)])
    assert sum(len(piece) for _, piece in pieces) == len(wanted)
    if len(joined):
        places = st.integers(0, len(joined) - 1)
        rows = np.array(data.draw(st.lists(places, max_size=12)), np.int64)
        assert_array_equal(parts.take(rows), joined[rows])
        if len(rows) % 2 == 0:
            square = rows.reshape(2, -1)
            assert_array_equal(parts.take(square), joined[square])


def test_a_slice_of_one_part_is_no_copy():
    parts = RowParts([np.arange(4), np.arange(4, 9)])
    last = parts.arrays[1]
    assert np.shares_memory(parts.take(slice(5, 8)), last)
    for _, piece in parts.within(4, 9, 2):
        assert np.shares_memory(piece, last)


@folded(
    "parts, dtype",
    [
        ([np.int8, np.int16], np.int16),
        ([np.int16, np.int32], np.int32),
        (["U2", "U5"], "U5"),
    ],
)
def test_the_wider_type_is_taken(parts, dtype):
    rows = RowParts([np.zeros(2, part) for part in parts])
    assert rows.take(np.array([3, 0])).dtype == dtype
    assert rows.take(slice(1, 3)).dtype == dtype
