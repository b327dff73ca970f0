"""Conditions of engines keep the rows that the same filter keeps in memory."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from dpindex.index.filters import kept_rows, parsed
from dpindex.integrations.database import Condition, Dialect
from dpindex.mechanism.codes import SignFormat
from dpindex.storage.code_store import CodeStore
from dpindex.storage.payload import Payload

PYTHON = Dialect(
    name=lambda name: f"row[{name!r}]", literal=repr, missing=("{0} != {0}", "{0} == {0}")
)
"""Conditions as Python evaluates them, with NaN for what is missing."""

ROWS = [
    {
        "id": i,
        "year": math.nan if i % 3 == 0 else float(2000 + i),
        "part": float(i % 2),
        "ok": i > 4,
    }
    for i in range(12)
]
FILTERS = (
    "year == 2004",
    "year != 2004",
    "not (year == 2004)",
    "not (year != 2004 and part == 1)",
    "year < 2005 or not ok",
    "ok & ~(year >= 2008)",
    "2002 <= year <= 2008",
    "year in [2001, 2002]",
    "year not in [2001, 2002]",
    "not (year in [])",
    "year is None",
    "not (year is not None) or year > part",
    "id in [3, 4] or id == 7",
    "not (part > year)",
    "-1 < part",
)


@pytest.fixture(scope="module")
def store() -> CodeStore:
    pytest.importorskip("pyarrow")
    format_ = SignFormat(8, bytes(16))
    made = CodeStore(format_)
    payload = [{k: None if v != v else v for k, v in row.items() if k != "id"} for row in ROWS]
    codes = format_.codes(np.zeros((len(ROWS), 1), np.uint8))
    made.append(codes, np.arange(len(ROWS)), Payload().checked(payload, len(ROWS)))
    return made


def _holds(expression: str, row: dict[str, Any]) -> bool:
    return bool(eval(expression, {"row": row}))


@pytest.mark.parametrize("text", FILTERS)
def test_they_keep_what_a_filter_in_memory_keeps(text: str, store: CodeStore) -> None:
    found = parsed(text, list(ROWS[0]), PYTHON)
    assert isinstance(found, Condition)
    kept = [row["id"] for row in ROWS if _holds(found.true, row)]
    assert kept == kept_rows(text, store).tolist()
    # What is neither true nor false is missing.
    assert not any(_holds(found.true, row) and _holds(found.false, row) for row in ROWS)


def test_names_and_signs_are_the_dialects() -> None:
    sql = Dialect(lambda n: f"`{n}`", repr, ("{} IS NULL", "{} IS NOT NULL"), "=", "<>", ("(", ")"))
    assert (~(sql.field("a") == sql.scalar(1))).true == "(`a` <> 1 and `a` IS NOT NULL)"
    assert sql.is_in("id", ["x", "y"]) == "(`id` in ('x', 'y'))"
    assert sql.field("id").is_null().true == "(`id` <> `id`)"
