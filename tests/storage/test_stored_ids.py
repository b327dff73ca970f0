"""Ids of saved segments against a dict: rows, duplicates, and strings of equal hash."""

import tracemalloc
from functools import partial

import numpy as np
import pytest
from helpers.common import refuses
from hypothesis import given
from hypothesis import strategies as st

from dpindex.storage import ids as stored_ids
from dpindex.storage.code_store import Ids
from dpindex.storage.ids import StoredIds, TextIds, id_block, ids_to_bytes

some = partial(st.lists, unique=True, min_size=2, max_size=20)
NUMBERS = some(st.integers(-(2**63), 2**63 - 1))
LETTERS = st.characters(exclude_categories=["Cs"])
TEXT = st.text(LETTERS, max_size=6)
TEXTS = some(TEXT.filter(lambda text: not text.endswith("\0")))


def _array(values):
    kind = np.str_ if isinstance(values[0], str) else np.int64
    return np.array(values, kind)


def _stored(values, pieces=3):
    parts = np.array_split(_array(values), pieces)
    return StoredIds([id_block(ids_to_bytes(part)) for part in parts])


def _rows(ids, *wanted):
    """The rows of these ids."""
    return ids.rows(np.array(wanted)).tolist()


@given(NUMBERS | TEXTS, st.booleans())
def test_rows_are_those_of_a_dict(values, one_hash):
    with pytest.MonkeyPatch.context() as patch:
        if one_hash and isinstance(values[0], str):
            patch.setattr(stored_ids, "id_keys", lambda ids: np.zeros(len(ids), np.int64))
        half = len(values) // 2
        ids = _stored(values[:half] + values[half + 1 :])
        known = {value: row for row, value in enumerate(ids[:].tolist())}
        rows = ids.rows(_array(values))
        assert rows.tolist() == [known.get(value, -1) for value in values]
        there = list(known)
        ends = np.array([len(ids) - 1, 0])
        assert ids[ends].tolist() == [there[-1], there[0]]
        left = ids.without(np.array([0]))
        assert left[:].tolist() == there[1:]
        assert left.rows(ids[:])[0] == -1


@pytest.mark.parametrize("values", [[3, 1, 2, 1], [1, 2, 2, 3], ["b", "a", "c", "a"]])
def test_an_id_that_is_there_twice_is_refused(values):
    with refuses(r"rows \d+ and \d+ have the same id; ids must be unique"):
        _stored(values)


def test_both_kinds_are_refused():
    with refuses("numbers and others strings; write all as strings"):
        text = TextIds(np.frombuffer(b"a", np.uint8), np.array([1]))
        StoredIds([np.array([1]), text])


def test_ids_of_the_other_kind_are_not_there():
    assert _rows(_stored([5, 6]), "5") == [-1]
    assert _rows(_stored(["5", "6"]), 5) == [-1]
    assert _rows(StoredIds(), 5) == [-1]


def test_ascending_numbers_take_eight_bytes_each():
    count = 100_000
    tracemalloc.start()
    ids = StoredIds(np.split(np.arange(count), 2))
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(ids) == count
    assert held < 9 * count


@pytest.mark.slow
@given(
    st.lists(st.sampled_from("abcdefgh"), unique=True),
    st.lists(st.sampled_from("ijk"), unique=True),
)
def test_ids_added_to_stored_ones(first, then):
    """As if all had been added."""
    ids = Ids(stored=_stored(first) if first else StoredIds())
    plain = Ids()
    for values in (first, then):
        if values:
            plain = plain.grown(plain.check(values, len(values)))
    if then:
        ids = ids.grown(ids.check(then, len(then)))
    assert plain.array.tolist() == first + then
    assert ids.array.tolist() == first + then
    for value in "abcijkz":
        rows = plain.rows([value], missing=True)
        assert ids.rows([value], missing=True).tolist() == rows.tolist()
        is_there = value in first + then
        assert (value in plain) == is_there
        assert (value in ids) == is_there
        if is_there:
            with refuses("already in the index"):
                ids.check([value], 1)
            left = plain.without(rows).array
            assert ids.without(rows).array.tolist() == left.tolist()


def test_the_next_number_is_above_all_ids():
    """Above those that are stored, those that were added, and those that were added before."""
    ids = Ids(_stored([100, 5]))
    steps = [([3, 7], 101), ([200, 300], 301), ([8, 9], 301), ([301, 302], 303)]
    for added, following in steps:
        ids = ids.grown(ids.check(added, 2))
        assert ids.check(None, 1).tolist() == [following]
    assert _rows(ids, 8, 300, 100) == [0, 5, 6]


def test_ids_that_were_not_added_after_all_are_not_there():
    """What was grown is lost by Ctrl-C, say; the rows that were looked up went with it."""
    ids = Ids().grown(np.array(["a", "b"]))
    assert _rows(ids, "b") == [1]
    other = ids.grown(np.array(["c"]))
    assert _rows(other, "c") == [2]
    again = ids.grown(np.array(["d"]))
    assert "c" not in again
    assert _rows(again, "a", "d") == [0, 2]
