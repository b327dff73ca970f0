"""The table sampler against a second reading of its words, which counts boundaries of cells."""

from fractions import Fraction

import numpy as np
import pytest
from helpers.specs import attribute_spec, folded
from helpers.streams import Seeded
from self_test.words import Aimed, Recorder, Replay, table_draws

from dpindex.mechanism.noise.additive import CellTable


def _masses(weights, bits=64):
    """Integers in proportion to ``weights`` that add up to 2^bits."""
    total = sum(map(Fraction, weights))
    masses = [int(Fraction(w) / total * (1 << bits)) for w in weights]
    masses[0] += (1 << bits) - sum(masses)
    return masses


TABLES = {
    "halves": [1 << 63, 1 << 63],
    "odd": _masses([1, 3, 5, 7, 11, 0.5]),
    "small masses": [1, 2, 3, (1 << 64) - 9, 2, 1],
    "zero inside": [1 << 62, 0, 1 << 62, 0, 1 << 63],
    "many in a bucket": _masses([1e-6] * 40 + [1.0] + [1e-7] * 40),
    "128 bits": _masses([1, 1e-3, 1e-12, 1e-25, 1e-3], 128),
    "ties": [1 << 100, 1, 5, 3, (1 << 128) - (1 << 101) - 9, 1 << 100],
    "192 bits": _masses([1e-40, 1e-20, 1, 1e-20, 1e-40], 192),
}


@folded("name", TABLES)
@folded("below", [0, 128, 256])
def test_words_on_either_side_of_every_boundary_draw_the_cell_that_it_ends(name, below):
    masses = TABLES[name]
    table = CellTable(masses, -2, bits=sum(masses).bit_length() - 1)
    aimed = Aimed(below)
    expected = table_draws(table, 1 << 12, aimed)
    words = Replay(aimed.reads)
    assert np.array_equal(table.sample(1 << 12, words), expected)
    assert words.spent


@folded("count", [0, 1, (1 << 16) - 1, 1 << 16, (1 << 16) + 1, 3 << 16])
@folded("method", ["raw-laplace", "raw-staircase"])
def test_any_number_of_draws(method, count):
    source = attribute_spec(method, 4, epsilon=1.0).law.source
    stream = Recorder(Seeded(5))
    drawn = source.sample(count, stream)
    assert drawn.dtype == np.int32
    words = Replay(stream.reads)
    assert np.array_equal(table_draws(source, count, words), drawn)
    assert words.spent


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
    assert table.first == -len(kept)
    assert table.bits == 64
    assert table.cell_bits == 3
    assert table.offset == 0.0
