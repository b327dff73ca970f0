"""The square wave: its ratio, its total and its moments, by exact sums over every cell."""

from fractions import Fraction

import numpy as np
from helpers.common import Scripted, folded
from independent.rigorous import exp_between

from dpindex.mechanism.noise.response import square_wave

ONE = 1 << 64
CELL = 32
"""Grid steps in a cell: 2^12 steps of a beta in 128 cells."""

EPSILONS = (0.01, 0.1, 0.5, 1.0, 2.0, 3.0, 5.0, 8.0, 10.0, 20.0, 40.0, 64.0)
INTERVALS = ((0, 4096), (-2048, 2048), (-37, 1003), (0, 1), (5, 5 + 33))


def _law_of_cell(law, cell):
    """P(y) for y = 0 … G + 2B given the cell, from the definition and the shipped integer alone."""
    window = 2 * law.half_width + 1
    inside = Fraction(law.inside, ONE) / window
    outside = (1 - Fraction(law.inside, ONE)) / law.cells
    return [inside if cell <= y < cell + window else outside for y in range(law.cells + window)]


def _law_of_point(law, x):
    """P(y) given the grid integer x: the uniform offset picks one of two cells."""
    whole, part = divmod(x - law.low, CELL)
    up = Fraction(part, CELL)
    here = _law_of_cell(law, whole)
    above = _law_of_cell(law, whole + 1) if part else here
    return [(1 - up) * a + up * b for a, b in zip(here, above, strict=True)]


def _ratio(law):
    """p/q of the shipped integers."""
    window = 2 * law.half_width + 1
    return Fraction(law.inside * law.cells, (ONE - law.inside) * window)


@folded("epsilon", EPSILONS)
@folded("low, high", INTERVALS)
def test_any_two_values_differ_by_at_most_e_to_the_epsilon(epsilon, low, high):
    law = square_wave(epsilon, low, high)
    below, _ = exp_between(epsilon)
    assert 1 <= _ratio(law) <= below


@folded("epsilon", [0.1, 1.0, 3.0])
def test_the_ratio_holds_for_whole_distributions(epsilon):
    """Every output and every pair out of nine points of the grid, dither included."""
    law = square_wave(epsilon, -2048, 2048)
    below, _ = exp_between(epsilon)
    laws = [_law_of_point(law, x) for x in (-2048, -2047, -1000, -1, 0, 16, 511, 2047, 2048)]
    assert all(sum(chances) == 1 for chances in laws)
    for chances in zip(*laws, strict=True):
        assert max(chances) <= below * min(chances)


def _perturb(law, x, offset, inside, drawn):
    """One code with a scripted offset, a scripted side and a scripted place."""
    limit = 2 * law.half_width + 1 if inside else law.cells
    word = ((drawn << 32) + (1 << 31)) // limit
    script = [
        np.array([offset | 0xE0], np.uint8),
        np.array([0 if inside else 0xFFFF], np.uint16),
        np.array([word], np.uint32),
    ]
    stream = Scripted(script)
    code = law.perturb(np.array([[x]], np.float32), stream)
    assert stream.spent
    assert code.dtype == np.int32
    assert code.shape == (1, 1)
    return int(code[0, 0])


def test_a_step_past_a_bound_is_brought_back():
    """float32 may round a value at a bound that is nearly a tie one step outside."""
    law = square_wave(1.0, 0, 4096)
    assert _perturb(law, 4097, 31, True, 0) == _perturb(law, 4096, 0, True, 0) == law.cells
    assert _perturb(law, -1, 0, True, 0) == _perturb(law, 0, 0, True, 0) == 0
