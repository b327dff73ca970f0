"""How a table law is added: the dither and the dropped bits, by counting every case."""

from fractions import Fraction

import numpy as np
import pytest
from helpers.specs import folded
from helpers.streams import Seeded

from dpindex.mechanism.noise.additive import AdditiveNoise, CellTable, NoNoise

CELL_BITS = 3
CELL = 1 << CELL_BITS
WEIGHTS = (1, 3, 9, 2, 1)  # sixteenths, so that every cell is a whole number of buckets
FIRST = -2
TABLE = CellTable([weight << 60 for weight in WEIGHTS], FIRST, cell_bits=CELL_BITS)


class _EveryWord:
    """All pairs of a sixteenth and an offset, each once: the law itself instead of draws."""

    def words(self, count, dtype):
        assert dtype is np.uint32
        assert count == 16 * CELL
        pairs = np.arange(count, dtype=np.uint32)
        return (pairs >> np.uint32(CELL_BITS)) << np.uint32(28) | pairs % np.uint32(CELL)


def _law(x):
    """The law of the code of x: the cell of x plus an offset, plus an independent cell of noise."""
    law = {}
    for offset in range(CELL):
        for cell, weight in enumerate(WEIGHTS, FIRST):
            code = (x + offset) // CELL + cell
            law[code] = law.get(code, Fraction(0)) + Fraction(weight, 16 * CELL)
    return law


@folded("dtype", [np.float32, np.float64])
@folded("x", [0, 1, 7, 8, 4096, -1, -8, -13])
def test_codes_are_the_convolution_of_cells_and_dither(dtype, x):
    noise = AdditiveNoise(TABLE, 12)
    codes = noise.perturb(np.full((CELL, 16), x, dtype), _EveryWord())
    assert codes.dtype == np.int32
    assert codes.shape == (CELL, 16)
    values, counts = np.unique(codes, return_counts=True)
    counted = {int(v): Fraction(int(c), 16 * CELL) for v, c in zip(values, counts, strict=True)}
    assert counted == _law(x)


@folded("largest", [0, 2**24, 2**30 - 1, 2**30, 2**31, 2**33 - 1])
@folded("sign", [-1, 1])
def test_wide_sums_are_exact_whatever_integers_hold_them(largest, sign):
    x = np.array([[sign * largest, 7, -8, 0]], dtype=np.float64)
    noise = TABLE.sample(4, Seeded(1)).astype(object)
    codes = AdditiveNoise(TABLE, grid_bits=12).perturb(x, Seeded(1))
    assert codes.tolist() == [[(int(v) + n) >> CELL_BITS for v, n in zip(x[0], noise, strict=True)]]


@pytest.mark.parametrize("shape", [(0, 4), (3, 0), (1, 1), (5, 7)])
def test_shapes_are_kept(shape):
    for law in (AdditiveNoise(TABLE, 12), NoNoise()):
        assert law.perturb(np.zeros(shape, np.float32), Seeded(1)).shape == shape
