"""Rows in parts against the same rows in one array."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpindex.storage.ids import RowParts

LENGTHS = st.lists(st.integers(0, 5), min_size=1, max_size=6)


@given(LENGTHS, st.data())
def test_rows_are_those_of_the_joined_array(lengths: list[int], data: st.DataObject) -> None:
    joined = np.arange(2 * sum(lengths)).reshape(-1, 2)
    parts = RowParts(np.split(joined, np.cumsum(lengths)[:-1]))
    assert len(parts) == len(joined)
    start, stop = data.draw(st.integers(0, 32)), data.draw(st.integers(0, 32))
    np.testing.assert_array_equal(parts.take(slice(start, stop)), joined[start:stop])
    pieces = list(parts.within(start, stop, rows=3))
    assert all(1 <= len(piece) <= 3 for _, piece in pieces)
    for first, piece in pieces:
        np.testing.assert_array_equal(piece, joined[first : first + len(piece)])
    assert sum(len(piece) for _, piece in pieces) == len(joined[start:stop])
    if len(joined):
        wanted = data.draw(st.lists(st.integers(0, len(joined) - 1), max_size=12).map(np.array))
        rows = wanted.astype(np.int64)
        np.testing.assert_array_equal(parts.take(rows), joined[rows])
        if len(rows) % 2 == 0:
            square = rows.reshape(2, -1)
            np.testing.assert_array_equal(parts.take(square), joined[square])


def test_a_slice_of_one_part_is_no_copy() -> None:
    parts = RowParts([np.arange(4), np.arange(4, 9)])
    assert np.shares_memory(parts.take(slice(5, 8)), parts.arrays[1])
    assert all(np.shares_memory(piece, parts.arrays[1]) for _, piece in parts.within(4, 9, 2))


def test_one_more_part_leaves_the_others_as_they_are() -> None:
    parts = RowParts([np.arange(2)])
    more = parts.plus(np.array([9]))
    assert (len(parts), more.take(slice(None)).tolist()) == (2, [0, 1, 9])


@pytest.mark.parametrize(
    ("parts", "dtype"),
    [([np.int8, np.int16], np.int16), ([np.int16, np.int32], np.int32), (["U2", "U5"], "U5")],
)
def test_the_wider_type_is_taken(parts: list[str], dtype: str) -> None:
    rows = RowParts([np.zeros(2, part) for part in parts])
    assert rows.take(np.array([3, 0])).dtype == dtype
    assert rows.take(slice(1, 3)).dtype == dtype
