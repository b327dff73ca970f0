"""Inverted lists of symbols against brute force."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dpindex.index.backends import SymbolLists, _shuffled


def _lists(symbols: Any, parts: int = 1) -> SymbolLists:
    lists = SymbolLists(1, "cosine", "f32")
    for part in np.array_split(np.array(symbols, dtype=np.uint16)[:, None], parts):
        lists.add(part)
    lists.finish()
    return lists


def _brute(symbols: Any, query: Any, count: int) -> list[int]:
    """By score, then by symbol, then in the fixed order of an index."""
    mixed = _shuffled(np.arange(len(symbols), dtype=np.uint64)).tolist()
    rows = range(len(symbols))
    return sorted(rows, key=lambda r: (-query[symbols[r]], symbols[r], mixed[r]))[:count]


@pytest.mark.parametrize("size", [2, 7, 300, 5000])
@pytest.mark.parametrize("rows", [1, 9, 4000])
@pytest.mark.parametrize("levels", [2, 50, 1 << 20])
def test_it_finds_what_brute_force_finds(size: int, rows: int, levels: int) -> None:
    rng = np.random.default_rng(size + rows + levels)
    symbols = rng.integers(0, size, rows) if levels > 2 else rng.integers(0, size, rows) // 2
    queries = rng.integers(0, levels, (6, size)).astype(np.float32)
    lists = _lists(symbols)
    assert len(lists) == rows
    for count in sorted({1, min(10, rows), rows}):
        scores, found = lists.search(queries, count)
        assert found.tolist() == [_brute(symbols, query, count) for query in queries]
        np.testing.assert_array_equal(scores, np.take_along_axis(queries, symbols[found], axis=1))


def test_adding_in_parts_changes_nothing() -> None:
    symbols = np.random.default_rng(0).integers(0, 90, 3000)
    queries = np.random.default_rng(1).normal(size=(5, 90))
    wanted = _lists(symbols).search(queries, 200)
    growing = _lists(symbols[:1000])
    growing.search(queries, 10)
    for start in (1000, 1001, 2500):
        stop = {1000: 1001, 1001: 2500, 2500: 3000}[start]
        growing.add(symbols[start:stop, None].astype(np.uint16))
        growing.finish()
    for lists in (_lists(symbols, 7), growing):
        for one, other in zip(lists.search(queries, 200), wanted, strict=True):
            np.testing.assert_array_equal(one, other)
    growing.begin(np.empty((0, 1)))
    assert len(growing) == 0


def test_ties_are_in_an_order_of_their_own() -> None:
    """Neither the first nor the last rows are preferred: ranks of rows do not follow rows."""
    rows = 20_000
    _, found = _lists(np.zeros(rows, int)).search(np.ones((1, 3)), rows)
    assert sorted(found[0].tolist()) == list(range(rows))
    correlation = np.corrcoef(found[0], np.arange(rows))[0, 1]
    assert abs(correlation) < 6 / np.sqrt(rows)
    assert abs(found[0, :1000].mean() / rows - 0.5) < 6 / np.sqrt(12 * 1000)


def test_symbols_at_the_end_of_the_codebook() -> None:
    symbols = np.array([65535, 0, 65535])
    query = np.linspace(0, 1, 65536)[None]
    _, found = _lists(symbols).search(query, 3)
    assert sorted(found[0, :2].tolist()) == [0, 2]
    assert found[0, 2] == 1
