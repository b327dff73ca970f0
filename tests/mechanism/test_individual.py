"""Individual DP for signs: which signs flip, how often, and how many share the budget.

The set A of coordinates within one beta of zero is that of the actual vector.
"""

import math
from fractions import Fraction

import numpy as np
import pytest
from helpers.common import Scripted
from independent.rigorous import exp_between

from dpindex.mechanism.noise.response import response_threshold
from dpindex.mechanism.papers.signs import IndividualFlips, IndividualGaussian

BETA = 4096
ONE = 1 << 64
SIGMA = 4.22467889
"""Optimal at ε = 1, δ = 1e-6 and L2 sensitivity 1, by Balle & Wang's bisection in float64."""


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0, 64.0])
@pytest.mark.parametrize("size", [1, 2, 7, 512])
def test_idp_product_of_ratios_over_a_fixed_set(epsilon, size):
    """((1−q)/q)^N ≤ e^ε with the shipped q: all N signs of A may change."""
    law = IndividualFlips(epsilon, 512)
    flip = int(law.table[1 + size])
    assert Fraction(ONE - flip, flip) ** size <= exp_between(epsilon)[0]
    weaker = response_threshold(1.05 * epsilon, size)
    sharp = epsilon / size < 43
    odds = Fraction(ONE - weaker, weaker)
    assert (odds**size > exp_between(epsilon)[0]) == sharp


def test_idp_flips_only_inside_a_and_tosses_for_zero():
    law = IndividualFlips(2.0, 6)
    near_and_far = [0, 4096, -4096, 4097, -9999, 1]
    far = [5000, -5000, 4097, -4097, 9000, 4098]
    x = np.array([near_and_far, far], np.float32)
    always = np.zeros(12, np.uint16)  # 0 flips whatever may be flipped at all
    tied = np.zeros(8, np.uint64)  # the eight of chance 0 tie with the word 0, and do not flip
    signs = law.perturb(x, Scripted([always, tied]))
    assert signs[0].tolist() == [True, False, True, True, False, False]
    assert signs[1].tolist() == (x[1] > 0).tolist()
    never = np.full(12, 0xFFFF, np.uint16)
    signs = law.perturb(x, Scripted([never]))
    assert signs.tolist() == (x > 0).tolist()


class _Falling:
    """In place of the noise table: row c of a batch gets the noise −c, in every coordinate."""

    def __init__(self, rows):
        self.rows = rows

    def sample(self, count, stream):
        return -np.repeat(np.arange(self.rows, dtype=np.int32), count // self.rows)


def test_idp_gaussian_moves_no_further_than_its_noise_is_made_for(
    monkeypatch,
):
    """One beta moves each of N coordinates by m cells, with m√N ≤ S/σ: m read off from where the
    sign turns, S from the table's own variance."""
    law = IndividualGaussian(1.0, 1e-6, 8)
    rows = 500
    variance = law.table.moments()[0] - 1 / 12
    deviation = math.sqrt(variance)
    monkeypatch.setattr(law, "table", _Falling(rows))
    for size in range(1, 9):
        x = np.full((rows, 8), 9999.0)
        x[:, :size] = BETA
        zeros = [np.zeros(rows * size, kind) for kind in (np.uint16, np.uint8)]
        turns = law.perturb(x, Scripted(zeros)).sum(axis=0)
        m = int(turns[0])
        expected = np.where(np.arange(8) < size, m, rows)
        assert turns.tolist() == expected.tolist()
        assert 0.95 < m * math.sqrt(size) * SIGMA / deviation <= 1.0000001
