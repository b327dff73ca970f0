"""Filters: every kind means the same rows, and text is never run."""

import re

import numpy as np
import pytest
from helpers.common import folded, refuses

from dpindex.index.filters import kept_rows
from dpindex.mechanism.codes import SignFormat
from dpindex.storage.code_store import CodeStore

pa = pytest.importorskip("pyarrow")
pc = pytest.importorskip("pyarrow.compute")

YEARS = [2018, 2019, None, 2021, 2022, 2023]


def _store(ids):
    store = CodeStore.of_segments(SignFormat(8, bytes(16)))
    format_ = SignFormat(8, bytes(16))
    codes = format_.codes(np.zeros((6, 1), np.uint8))
    words = ["en", "de", "en", None, "it's", "fr"]
    flags = [True, False, None, True, False, True]
    columns = {"year": YEARS, "lang": words, "two words": YEARS, "ok": flags}
    return store.grown(
        codes,
        store.ids.check(ids, 6),
        store.payload.checked(columns, 6),
    )


NUMBERS = _store(range(10, 16))
NAMES = _store(list("abcdef"))


@folded(
    "filter_, rows",
    [
        ([14, 10, 99], [0, 4]),
        ({10}, [0]),
        (np.array([11, 12], np.uint8), [1, 2]),
        (12, [2]),
        ([], []),
        (np.array([1, 0, 0, 0, 0, 1], bool), [0, 5]),
        ([True] * 5 + [False], [0, 1, 2, 3, 4]),
        (pa.array([False] * 5 + [True]), [5]),
        (lambda row: row["id"] % 2 and row["lang"] != "fr", [1, 3]),
        (pc.field("year") > 2020, [3, 4, 5]),
        ("2019 <= year < 2022 or lang == 'fr'", [1, 3, 5]),
        ("(year < 2019) | (lang in ['de', 'fr']) & ~(year > 2022)", [0, 1]),
        ("id == 12", [2]),
        ('lang == "it\'s"', [4]),
        ("field('two words') == 2018", [0]),
    ],
)
def test_rows_that_are_kept(filter_, rows):
    assert kept_rows(filter_, NUMBERS).tolist() == rows


@folded(
    "filter_, match",
    [
        (np.ma.array(["a", "b"], mask=[False, True]), "row 1 is masked"),
        (np.ma.array([True] * 6, mask=[True] + [False] * 5), "masked entries itself"),
        (["a", 1], "row 1 is int"),
        ([True, 1], "row 0 is bool"),
    ],
)
def test_ids_and_masks_are_taken_exactly(filter_, match):
    for store in (NUMBERS, NAMES):
        with refuses(match):
            kept_rows(filter_, store)


def test_ids_that_are_strings():
    assert kept_rows(["b", "zzzz"], NAMES).tolist() == [1]
    assert kept_rows("id in ['b', 'c']", NAMES).tolist() == [1, 2]


@folded(
    "filter_, match",
    [
        ([True, False], r"the mask has shape \(2,\)"),
        (["a"], "ids of this index are whole numbers"),
        ([1.5], "a filter is a list of ids, a mask"),
        ({"year": 2020}, "not a mapping"),
        ("years > 3", "names 'years'; the columns are id, year, lang, two words, ok"),
        ("lang == en", "names 'en'"),
        ("year = 2020", "is written as in Python"),
        ("year == 'x'", "has no meaning here"),
        ("year", "has no meaning here"),
        ("2020", "cannot be read at '2020'"),
        ("__import__('os').system('true')", "cannot be read at"),
        ("year.__class__ == 3", "cannot be read at 'year.__class__'"),
        ("[x for x in year]", "cannot be read at"),
        ("(lambda: 1)() == 1", "cannot be read at"),
        ("year == 2 ** 99999999", "cannot be read at"),
        ("not " * 9000 + "ok", "cannot be read"),
        ("(" * 3000, "cannot be read"),
        ("ok\0", "cannot be read"),
        ("", "cannot be read"),
    ],
)
def test_what_has_no_meaning(filter_, match):
    with refuses(match) as caught:
        kept_rows(filter_, NUMBERS)
    assert len(re.findall(r"\n", str(caught.value))) == 0
