"""A filter means the same on a published index, in every language of a database."""

from contextlib import closing, contextmanager
from decimal import Decimal

import numpy as np
import pytest
from helpers.common import filled_index, refuses
from helpers.lite import LITE, PLACES, address

import dpindex as dpi
from dpindex.integrations.publication import publish

pa = pytest.importorskip("pyarrow")
pc = pytest.importorskip("pyarrow.compute")
pytestmark = LITE


COLUMNS = {
    "n": pa.array([1, -5, None, 2**63 - 1], pa.int64()),
    "f": pa.array([0.5, np.inf, None, np.nan], pa.float64(), from_pandas=False),
    "g": pa.array([2.0, 2.0, None, np.nan], pa.float32(), from_pandas=False),
    "zero": pa.array([-0.0, 1.0, np.nan, 0.0], pa.float64(), from_pandas=False),
    "s": pa.array(["it's", 'q"ü\\', None, "z"]),
    "ok": pa.array([True, False, None, True]),
    "day": pa.array([19731, 19732, None, -1], pa.date32()),
    "price": pa.array(
        [Decimal("1.00"), Decimal("-0.99"), None, Decimal("10.1")],
        pa.decimal128(9, 2),
    ),
}
CONDITIONS = [
    "n not in (1, 7)", "not (n in [1])", "n != 1", "not (n == 1)", "n < 9223372036854775808",
    "n >= 0.5", "n in []", "n not in []", "n == 1.5", "n != 1.5", "n is None", "n is not None",
    "not (n is None) and not (n > 1)", "f > 0.5", "f >= 0.25", "not (f > 0.5)", "f < 1e300",
    "f != 0.5", "not (f != 0.5)", "f in [0.5, 2]", "f not in [0.5]", "g > 1", "not (g > 1)",
    "g <= 2", "not (g <= 2)", "g == 2", "g != 2", "g in [2]", "not (g in [2])", "zero in [0]",
    "zero not in [0]", "zero == 0", "zero < 0", "zero > 0", "zero <= 1", "not (zero <= 1)",
    "s == \"it's\"", "s != \"it's\"", "s > 'q'", "not (s <= 'q')",
    "s in ['q\"ü\\\\\\\\', 'z']", "ok", "not ok", "ok != True", "day >= '2024-01-10'",
    "day < '2024-01-10'", "day != '2024-01-09'", "price == 1", "price != 1", "price in [1, 10.5]",
    "not (n == 1 and ok)", "not (n == 1 or not ok)", "id in [0, 3]", "id not in [0]", "id > 1.5",
]  # fmt: skip
BEYOND_MILVUS = [
    "price > 1", "price <= 0.995", "not (price > 1)",
    "n > -9223372036854775809", "n == -9223372036854775808", "n in [-9223372036854775808, 1]",
]  # fmt: skip
"""What compares order in decimals, or with the lowest whole number of 64 bits."""


@contextmanager
def published(rows, payload, uri):
    """An index of these rows, and the same where it was published."""
    spec = dpi.Spec("dp-oporp-staircase", 4, epsilon=60.0, adjacency=dpi.attribute(0.001))
    index = filled_index(spec, rows, payload=payload)
    publish(index, uri, "t")
    with closing(dpi.open(uri, "t")) as served:
        yield index, served


def found(index, filter_):
    """The ids of all rows that a filter keeps."""
    kept = index.search(np.ones(4), len(index), "exact", filter=filter_).ids
    return sorted(kept.ravel())


@pytest.mark.parametrize("place", PLACES)
def test_a_filter_means_the_same_where_it_is_published(place, tmp_path):
    others = [] if place.endswith(".db") else BEYOND_MILVUS
    uri = address(tmp_path, place)
    with published(np.eye(4), pa.table(COLUMNS), uri) as (index, served):
        for text in (*CONDITIONS, *others):
            assert found(served, text) == found(index, text), text
        other_numbers = ~pc.field("n").isin([1])
        assert len(found(served, other_numbers)) == 2


@pytest.mark.parametrize("place", PLACES)
def test_values_that_engines_read_in_their_own_way_are_found_in_every_row(place, tmp_path):
    # Engines compare whole blocks of rows by other instructions than the rows that are left.
    rows = 150
    numbers = np.arange(rows) % 5 - 1.0
    numbers[::3] = np.nan
    texts = ["a\tb", "a b", "\x01", "é", "\\n", "n", '\\"', "\x7f"]
    of_lines = ["line\nbreak", "end\r"]
    payload = {"f": numbers, "s": 15 * [*texts, *of_lines]}
    of_numbers = ["f != 1", "not (f == 1)", "not (f > 1)", "not (f <= 1)", "f not in [0, 1]"]
    of_texts = [f"s == {text!r}" for text in texts]
    uri = address(tmp_path, place)
    with published(np.ones((rows, 4)), payload, uri) as (index, served):
        for text in (*of_numbers, "f < 1", *of_texts, f"s in {texts}"):
            assert found(served, text) == found(index, text), text
        for text in of_lines:
            asked = f"s == {text!r}"
            if place.endswith(".db"):
                with refuses("no text that has line breaks"):
                    found(served, asked)
            else:
                assert len(found(served, asked)) == 15
