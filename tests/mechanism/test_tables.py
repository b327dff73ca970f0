"""The table sampler against an independent inverse of the distribution function in integers."""

from fractions import Fraction

import numpy as np
import pytest
from helpers.streams import Seeded

from dpindex.mechanism.noise.additive import CellTable

TOPS = np.arange(1 << 16, dtype=np.uint32)


def _masses(weights, bits=64):
    """Integers in proportion to ``weights`` that add up to 2^bits."""
    total = sum(map(Fraction, weights))
    masses = [int(Fraction(w) / total * (1 << bits)) for w in weights]
    masses[0] += (1 << bits) - sum(masses)
    return masses


def _cell(masses, key):
    """The cell in which the integer ``key`` of [0, Σ masses) falls."""
    for cell, mass in enumerate(masses):
        key -= mass
        if key < 0:
            return cell
    raise AssertionError("key beyond the total mass")


class Repeating:
    """Answers requests for 32-bit words with given ones, and for 64-bit words with one value."""

    def __init__(self, first, fresh, low=0):
        self.first = first
        self.fresh = fresh
        self.low = low
        self.at = 0

    def words(self, count, dtype):
        if dtype is np.uint32:
            self.at += count
            return self.first[self.at - count : self.at].copy()
        value = self.fresh if dtype is np.uint64 else self.low
        return np.full(count, value, dtype=dtype)


TABLES = {
    "one cell": ([1 << 64], 64),
    "halves": ([1 << 63, 1 << 63], 64),
    "odd": (_masses([1, 3, 5, 7, 11, 0.5]), 64),
    "small masses": ([1, 2, 3, (1 << 64) - 9, 2, 1], 64),
    "zero inside": ([1 << 62, 0, 1 << 62, 0, 1 << 63], 64),
    "many in a bucket": (_masses([1e-6] * 40 + [1.0] + [1e-7] * 40), 64),
    "128 bits": (_masses([1, 1e-3, 1e-12, 1e-25, 1e-3], 128), 128),
    "ties": ([1 << 100, 1, 5, 3, (1 << 128) - (1 << 101) - 9, 1 << 100], 128),
    "192 bits": (_masses([1e-40, 1e-20, 1, 1e-20, 1e-40], 192), 192),
}


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("fresh", [0, (1 << 64) - 1, 0x0123456789ABCDEF])
def test_every_bucket_against_the_inverse(name, fresh):
    """All 2^16 top halves, with the refining bits at both ends and between: since a cell is
    monotone in the key, a bucket that is right at both ends without refinement is right."""
    masses, bits = TABLES[name]
    table = CellTable(masses, -2, bits=bits)
    drawn = table.sample(1 << 16, Repeating(TOPS << np.uint32(16), fresh, low=fresh & 0xFF))
    keys = [(int(top) << 48 | fresh >> 16) << (bits - 64) for top in TOPS]
    low = int.from_bytes(bytes([fresh & 0xFF]) * 32, "little") & ((1 << (bits - 64)) - 1)
    expected = np.searchsorted(  # a first, coarse answer in floats, corrected below exactly
        np.cumsum([m / (1 << bits) for m in masses])[:-1],
        [key / (1 << bits) for key in keys],
        side="right",
    )
    bounds = [sum(masses[:i]) for i in range(len(masses) + 1)]
    for i, key in enumerate(keys):
        if not bounds[expected[i]] <= key | low < bounds[expected[i] + 1]:
            expected[i] = _cell(masses, key | low)
    assert np.array_equal(drawn, expected - 2)


@pytest.mark.parametrize("count", [0, 1, (1 << 16) - 1, 1 << 16, (1 << 16) + 1, 3 << 16])
def test_any_number_of_draws(count):
    masses = _masses([1, 2, 3])
    words = Seeded(5).words(count, np.uint32)
    drawn = CellTable(masses, 0).sample(count, Repeating(words, 0))
    assert drawn.dtype == np.int32
    bounds = np.cumsum(masses[:-1], dtype=object)
    tops = words >> np.uint32(16)
    edges = [int(-(-b // (1 << 48))) for b in bounds]
    assert np.array_equal(drawn, np.searchsorted(edges, tops, side="right"))


@pytest.mark.parametrize(
    "arguments",
    [
        {"masses": [1 << 63, 1 << 62]},
        {"masses": [(1 << 64) + 1, -1]},
        {"masses": [1 << 32], "bits": 32},
        {"masses": [1 << 64, 0]},
        {"masses": [1 << 64], "cell_bits": 17},
        {"masses": [1 << 64], "cell_bits": -1},
    ],
)
def test_wrong_tables_are_refused(arguments):
    with pytest.raises(ValueError, match=r"masses|cell_bits"):
        CellTable(first=0, **arguments)


@pytest.mark.parametrize("side", [[5], [7, 0, 3], [7, 3, 0, 0]])
def test_a_symmetric_table_ends_with_its_last_mass(side):
    table = CellTable.symmetric(side, 64, 3)
    kept = side[:1] if len(side) == 1 else side[:3] if side[1] == 0 else side[:2]
    assert list(table.masses) == [*kept[::-1], (1 << 64) - 2 * sum(kept), *kept]
    assert (table.first, table.bits, table.cell_bits) == (-len(kept), 64, 3)
    assert table.offset == 0.0
