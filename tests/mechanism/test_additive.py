"""Laws that are added: how tables are drawn and added, and what neighbours differ by.

The worst ratio of a table is that of the exact audit, which ``audit/test_exact.py`` compares with
all pairs; it knows the masses and the meaning of a restart, nothing of how they were made.
"""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from helpers.common import Seeded, attribute_spec, folded
from numpy.testing import assert_array_equal
from self_test.words import Aimed, Recorder, Replay, table_draws

from dpindex.audit.exact_arithmetic import loss_within, worst_table_ratio, worst_two_digit_step
from dpindex.mechanism.noise.additive import (
    AdditiveNoise,
    CellTable,
    NoNoise,
    TwoDigitLaplace,
    laplace_noise,
    staircase_noise,
)
from dpindex.mechanism.noise.gaussian import (
    TwoDigitGaussian,
    discrete_gaussian_table,
    gaussian_table,
)

CELL_BITS = 3
CELL = 1 << CELL_BITS
WEIGHTS = (1, 3, 9, 2, 1)  # sixteenths, so that every cell is a whole number of buckets
FIRST = -2
MASSES = [weight << 60 for weight in WEIGHTS]
TABLE = CellTable(MASSES, FIRST, cell_bits=CELL_BITS)


class _EveryWord:
    """All pairs of a sixteenth and an offset, each once: the law itself instead of draws."""

    def words(self, count, dtype):
        assert dtype is np.uint32
        assert count == 16 * CELL
        pairs = np.arange(count, dtype=np.uint32)
        cells = (pairs >> np.uint32(CELL_BITS)) << np.uint32(28)
        return cells | pairs % np.uint32(CELL)


def _law(x):
    """The law of the code of x: the cell of x plus an offset, plus an independent cell of noise."""
    law = {}
    for offset in range(CELL):
        for cell, weight in enumerate(WEIGHTS, FIRST):
            code = (x + offset) // CELL + cell
            chance = Fraction(weight, 16 * CELL)
            law[code] = law.get(code, Fraction(0)) + chance
    return law


@folded("dtype", [np.float32, np.float64])
@folded("x", [0, 1, 7, 8, 4096, -1, -8, -13])
def test_codes_are_the_convolution_of_cells_and_dither(dtype, x):
    noise = AdditiveNoise(TABLE, 12)
    x = np.full((CELL, 16), x, dtype)
    codes = noise.perturb(x, _EveryWord())
    assert codes.dtype == np.int32
    assert codes.shape == (CELL, 16)
    values, counts = np.unique(codes, return_counts=True)
    chances = [Fraction(count, 16 * CELL) for count in counts.tolist()]
    assert dict(zip(values.tolist(), chances, strict=True)) == _law(int(x[0, 0]))


@folded("largest", [0, 2**24, 2**30 - 1, 2**30, 2**31, 2**33 - 1])
@folded("sign", [-1, 1])
def test_wide_sums_are_exact_whatever_integers_hold_them(largest, sign):
    x = np.array([[sign * largest, 7, -8, 0]], dtype=np.float64)
    noise = TABLE.sample(4, Seeded(1)).tolist()
    codes = AdditiveNoise(TABLE, grid_bits=12).perturb(x, Seeded(1))
    sums = [int(value) + cell for value, cell in zip(x[0], noise, strict=True)]
    assert codes.tolist() == [[total >> CELL_BITS for total in sums]]


@folded("shape", [(0, 4), (3, 0), (1, 1), (5, 7)])
def test_shapes_are_kept(shape):
    for law in (AdditiveNoise(TABLE, 12), NoNoise()):
        codes = law.perturb(np.zeros(shape, np.float32), Seeded(1))
        assert codes.shape == shape


# The table sampler against a second reading of its words, which counts boundaries of cells


def _masses(weights, bits=64):
    """Integers in proportion to ``weights`` that add up to 2^bits."""
    total = sum(map(Fraction, weights))
    shares = [Fraction(weight) / total for weight in weights]
    masses = [int(share * (1 << bits)) for share in shares]
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
    bits = sum(masses).bit_length() - 1
    table = CellTable(masses, -2, bits=bits)
    aimed = Aimed(below)
    expected = table_draws(table, 1 << 12, aimed)
    words = Replay(aimed.reads)
    assert_array_equal(table.sample(1 << 12, words), expected)
    assert words.spent


@folded("count", [0, 1, (1 << 16) - 1, 1 << 16, (1 << 16) + 1, 3 << 16])
@folded("method", ["raw-laplace", "raw-staircase"])
def test_any_number_of_draws(method, count):
    source = attribute_spec(method, 4, epsilon=1.0).law.source
    stream = Recorder(Seeded(5))
    drawn = source.sample(count, stream)
    assert drawn.dtype == np.int32
    words = Replay(stream.reads)
    assert_array_equal(table_draws(source, count, words), drawn)
    assert words.spent


@folded(
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


@folded(
    "side, kept",
    [
        ([5], [5]),
        ([7, 0, 3], [7, 0, 3]),
        ([7, 3, 0, 0], [7, 3]),
    ],
)
def test_a_symmetric_table_ends_with_its_last_mass(side, kept):
    table = CellTable.symmetric(side, 64, 3)
    middle = (1 << 64) - 2 * sum(kept)
    assert list(table.masses) == [*kept[::-1], middle, *kept]
    assert table.first == -len(kept)
    assert table.bits == 64
    assert table.cell_bits == 3
    assert table.offset == 0.0


# Laplace and staircase noise: the ratio e^ε between neighbours, in exact integers


EPSILONS = (0.001, 0.01, 0.1, 0.5, 1.0, 2.0, 3.0, 5.0, 8.0, 10.0, 20.0, 40.0, 50.0, 64.0)
LAWS = {"laplace": laplace_noise, "staircase": staircase_noise}


@folded("epsilon", EPSILONS)
@folded("name", LAWS)
def test_neighbours_differ_by_at_most_e_to_the_epsilon(name, epsilon):
    noise = LAWS[name](epsilon)
    table = noise.source
    assert min(table.masses) > 0
    assert list(table.masses) == list(reversed(table.masses))
    reach = 1 << (noise.grid_bits - table.cell_bits)
    assert loss_within(worst_table_ratio(table, reach), Fraction(epsilon))


@folded("method", ["raw-staircase", "raw-laplace"])
@folded("epsilon", [0.96, 1.04])
def test_low_a_law_knows_every_digit_of_epsilon(method, epsilon):
    """Masses of two budgets differ that are the same to one digit."""
    rounded = attribute_spec(method, 2, epsilon=1.0).law
    law = attribute_spec(method, 2, epsilon=epsilon).law
    assert law.drawn_from.masses != rounded.drawn_from.masses


# Laws of two digits: the exact law of the sum, against the law that one table would have


def _sum_of_digits(source):
    """Masses of ``L·C + F`` from the two tables, over 2^(bits + bits), and the first value."""
    step = 1 << source.digit
    first = source.coarse.first * step + source.fine.first
    coarse = source.coarse.masses
    fine = source.fine.masses
    law = [0] * ((len(coarse) - 1) * step + len(fine))
    for c, high in enumerate(coarse):
        for f, low in enumerate(fine):
            law[c * step + f] += high * low
    return law, first


def test_two_digits_have_the_law_of_one_rounded_gaussian():
    """σ = 40 with L = 4: every mass within 10^-30 of the rounded N(0, σ²), relatively, near the
    centre, and absolutely everywhere within the tables' precision."""
    digit = 2
    bits = 192
    fine_sigma = 16.0
    coarse_sigma = math.sqrt(40.0**2 - 16.0**2) / 4
    source = TwoDigitGaussian(
        discrete_gaussian_table(coarse_sigma, bits),
        gaussian_table(fine_sigma, 60.0, 1e-12, 1000, 0),
        digit,
    )
    law, first = _sum_of_digits(source)
    total = 1 << (bits + source.fine.bits)
    assert sum(law) == total
    with mpmath.workprec(500):
        variance = 16 * mpmath.mpf(coarse_sigma) ** 2 + fine_sigma**2
        width = mpmath.sqrt(2 * variance)
        for z in (0, 1, 2, 3, 17, 40, 100, 200):
            lower = (z - 0.5) / width
            upper = (z + 0.5) / width
            wanted = (mpmath.erfc(lower) - mpmath.erfc(upper)) / 2
            for signed in (z, -z):
                found = mpmath.mpf(law[signed - first]) / total
                assert abs(found / wanted - 1) < mpmath.mpf(10) ** -30


@pytest.mark.parametrize("drop", [0.3, 0.01, 2.0**-12])
def test_every_step_of_the_wide_laplace_loses_at_most_the_drop(drop):
    """And no less than 99.9 % of it is used; by the audit, which is compared with all pairs."""
    worst = worst_two_digit_step(TwoDigitLaplace(mpmath.mpf(drop), 0))
    assert loss_within(worst, Fraction(drop))
    lost = math.log(Fraction(*worst))
    assert lost == pytest.approx(drop, rel=1e-3)
