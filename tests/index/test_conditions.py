"""What expressions mean: exact comparisons and SQL's three values, over every type of column."""

import datetime as dt
import operator
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from helpers.common import attribute_spec, filled_index, folded, refuses
from hypothesis import given, settings
from hypothesis import strategies as st

from dpindex.index.filters import kept_rows
from dpindex.mechanism.codes import SignFormat
from dpindex.storage.code_store import CodeStore

pa = pytest.importorskip("pyarrow")
pc = pytest.importorskip("pyarrow.compute")

DAYS = [dt.date(2024, 1, 9), dt.date(2024, 1, 10), None, dt.date(1969, 12, 31)]
NOON = dt.timedelta(hours=12)
TIMES = [None if day is None else dt.datetime.combine(day, dt.time()) + NOON for day in DAYS]
ZONED = [None if one is None else one.replace(tzinfo=dt.timezone.utc) for one in TIMES]
PRICES = [Decimal("1.00"), Decimal("0.99"), None, Decimal("1.01")]
COLUMNS = {
    "lang": pa.array(["en", "de", None, "fr"]),
    "h": pa.array([5, 2**63 + 9, None, 2**64 - 1], pa.uint64()),
    "n": pa.array([1, -5, None, 2**63 - 1], pa.int64()),
    "when": pa.array([1_700_000_000, 1_700_000_001, None, 2**53 + 1], pa.int64()),
    "price": pa.array(PRICES, pa.decimal128(10, 2)),
    "day": pa.array(DAYS, pa.date32()),
    "at": pa.array(TIMES, pa.timestamp("us")),
    "utc": pa.array(ZONED, pa.timestamp("ns", tz="UTC")),
    "half": pa.array(np.array([1.5, 2.5, 0, 4], np.float16), mask=np.array([0, 0, 1, 0], bool)),
    "f": pa.array([0.1, np.inf, None, -3.0], pa.float32()),
    "ok": pa.array([True, False, None, True]),
}


def _store(columns=COLUMNS, ids=None):
    format_ = SignFormat(8, bytes(16))
    store = CodeStore.of_segments(format_)
    count = len(next(iter(columns.values())))
    codes = format_.codes(np.zeros((count, 1), np.uint8))
    payload = store.payload.checked(pa.table(columns), count)
    return store.grown(codes, store.ids.check(ids, count), payload)


STORE = _store()
CASES = {
    "lang not in ('en', 'it')": [1, 3],
    "~(lang in ['en'])": [1, 3],
    "lang != 'en'": [1, 3],
    "not (lang == 'en')": [1, 3],
    "not (lang == 'en' and n > 5)": [0, 1, 3],
    "not (lang == 'en' or n > 5)": [1],
    "lang in []": [],
    "lang not in []": [0, 1, 3],
    "lang is None or lang == 'de'": [1, 2],
    "lang is not None and not (lang > 'de')": [1],
    "id == 99999999999999999999": [],
    "id != 99999999999999999999": [0, 1, 2, 3],
    "id < 1e400": [0, 1, 2, 3],
    "n >= 9223372036854775807": [3],
    "n in [1, 99999999999999999999, 0.5]": [0],
    "h > 9223372036854775807": [1, 3],
    "h == 18446744073709551615": [3],
    "h not in [18446744073709551615]": [0, 1],
    "when > 1.7e9": [1, 3],
    "when == 9007199254740992.0": [],
    "when > 9007199254740992.0": [3],
    "price < 0.995": [1],
    "price in [1.01, 0.99]": [1, 3],  # as they are written, and not their nearest floats
    "price >= 1.01": [3],
    "price == 1.005": [],
    "price > 1e30 or price < -1e30": [],
    "day >= '2024-01-10'": [1],
    "day < '2024-01-09T12:00:00'": [0, 3],
    "at >= '2024-01-10'": [1],
    "at == '2024-01-09T12:00:00'": [0],
    "at > '2024-01-09 11:59:59.9999999'": [0, 1],
    "utc >= '2024-01-10T13:00:00+01:00'": [1],
    "utc <= '1970-01-01'": [3],
    "half not in [2.5]": [0, 3],
    "f > 1e300": [1],
    "f == 0.1": [],
    "0.09 < f < 0.2": [0],
    "ok": [0, 3],
    "not ok": [1],
    "ok in [False]": [1],
    "ok not in [True, False]": [],
}


@folded("text, rows", CASES.items())
def test_a_condition_means_what_it_says(text, rows):
    assert kept_rows(text, STORE).tolist() == rows


F = {name: pc.field(name) for name in COLUMNS}


@folded(
    "expression, rows",
    [
        (~F["lang"].isin(["en", "it"]), [1, 3]),
        (~(F["lang"].isin(["en"]) & (F["n"] > 0)), [1, 3]),
        (F["lang"].is_null() | (F["lang"] == "de"), [1, 2]),
        (F["lang"].is_valid() & ~F["ok"], [1]),
        (F["n"] < pc.scalar(pa.scalar(2.5)), [0, 1]),
        (F["day"] >= pc.scalar(dt.date(2024, 1, 10)), [1]),
        (F["at"] >= dt.datetime(2024, 1, 10), [1]),
        (F["price"] > Decimal("1.00"), [3]),
        (F["lang"].isin(["de", None]), [1, 2]),
        (~F["lang"].isin(["de", None]), [0, 3]),
        (F["ok"].isin([False, None]), [1, 2]),
        (pc.is_in(F["lang"], value_set=pa.array(["de", None]), skip_nulls=True), [1]),
    ],
)
def test_an_expression_of_pyarrow_means_the_same(expression, rows):
    assert kept_rows(expression, STORE).tolist() == rows


@folded(
    "filter_",
    [
        "n == 'one'", "lang > 3", "price == '1'", "day > 3", "day > 'yesterday'", "ok > 0",
        "ok < True", "at > '2024-01-10T00:00:00+02:00'", "h == n", "n > None", "'a' == 'b'",
        "lang", F["n"] + 1 > 2, pc.starts_with(F["lang"], "e"), pc.field("x") == 1,
        F["h"].is_null(nan_is_null=True),
    ],
)  # fmt: skip
def test_what_has_no_meaning_is_one_sentence(filter_):
    with refuses() as caught:
        kept_rows(filter_, STORE)
    assert "\n" not in str(caught.value)


_TYPES = {
    "int8": pa.int8(),
    "int64": pa.int64(),
    "uint64": pa.uint64(),
    "float16": pa.float16(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "decimal": pa.decimal128(20, 3),
}
_LITERALS = st.one_of(
    st.integers(-(2**70), 2**70),
    st.integers(-3, 3),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([0.5, -0.5, 2.0**53, 2.0**63, 65504.0, 65520.0, 1e39]),
)
_OPERATORS = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}


def _values(kind):
    if kind == "decimal":
        return st.decimals(-(10**16), 10**16, places=3)
    if kind.startswith("float"):
        return st.floats(
            width=int(kind[5:]),
            allow_nan=False,
            allow_infinity=False,
        )
    ends = np.iinfo(kind)
    return st.integers(int(ends.min), int(ends.max))


def _exact(value):
    return Fraction(value if isinstance(value, int | Decimal) else float(value))


@pytest.mark.parametrize("kind", _TYPES)
@given(data=st.data())
@settings(max_examples=50)
def test_comparisons_are_those_of_exact_fractions(kind, data):
    values = data.draw(st.lists(_values(kind) | st.none(), min_size=1, max_size=6))
    literal = data.draw(_LITERALS | st.sampled_from([v for v in values if v is not None] or [0]))
    literal = literal if isinstance(literal, int) else float(literal)
    sign = data.draw(st.sampled_from(list(_OPERATORS)))
    exact = Fraction(repr(literal)) if kind == "decimal" else Fraction(literal)
    if kind == "float16":
        values = [None if value is None else np.float16(value) for value in values]
    array = pa.array(values, _TYPES[kind])
    store = _store({"x": array})
    said = f"x {sign} {literal!r}"
    for text, wanted in ((said, True), (f"not ({said})", False)):
        rows = [
            row
            for row, value in enumerate(values)
            if value is not None and _OPERATORS[sign](_exact(value), exact) == wanted
        ]
        assert kept_rows(text, store).tolist() == rows


def test_where_is_for_databases_alone():
    spec = attribute_spec("dp-oporp-staircase", 4, epsilon=20.0)
    index = filled_index(spec, np.zeros((3, 4)), payload={"n": [1, 2, 3]})
    with refuses("where is text for the database"):
        index.search(np.ones(4), k=1, where="n > 1")
    with refuses("not both"):
        index.search(np.ones(4), k=1, where="n > 1", filter="n > 1")
    assert index.search(np.ones(4), k=3, filter=pa.array([0, 2])).ids.shape == (1, 2)
