"""Laplace and staircase noise: the ratio e^ε between neighbours, in exact integers.

The worst ratio of a table is that of the exact audit, which ``audit/test_exact.py`` compares with
all pairs; it knows the masses and the meaning of a restart, nothing of how they were made.
"""

from fractions import Fraction

import pytest
from helpers.specs import attribute_spec, folded

from dpindex.audit.exact_arithmetic import loss_within, worst_table_ratio
from dpindex.mechanism.noise.additive import (
    laplace_noise,
    staircase_noise,
)

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


@pytest.mark.parametrize("method", ["raw-staircase", "raw-laplace"])
@pytest.mark.parametrize("epsilon", [0.96, 1.04])
def test_low_a_law_knows_every_digit_of_epsilon(method, epsilon):
    """Masses of two budgets differ that are the same to one digit."""
    rounded, stated = (attribute_spec(method, 2, epsilon=budget).law for budget in (1.0, epsilon))
    assert rounded.drawn_from.masses != stated.drawn_from.masses
