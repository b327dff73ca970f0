"""Laplace and staircase noise: the ratio e^ε between neighbours, in exact integers.

The worst ratio of a table is that of the exact audit, which ``audit/test_exact.py`` compares with
all pairs; it knows the masses and the meaning of a restart, nothing of how they were made.
"""

from fractions import Fraction

import mpmath
import numpy as np
import pytest
from helpers.specs import attribute_spec, folded

from dpindex.audit.exact_arithmetic import loss_within, worst_table_ratio
from dpindex.mechanism.noise.additive import (
    geometric_table,
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


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 2.0, 5.0, 10.0])
def test_variance_is_close_to_that_of_the_law_on_the_line(epsilon):
    """In units of beta². Laplace: 2/ε². The staircase: summed over its levels."""
    least = min(_steps(epsilon, share) for share in np.linspace(0.0005, 0.5, 2000))
    for law, real in ((laplace_noise, 2 / epsilon**2), (staircase_noise, least)):
        noise = law(epsilon)
        assert noise.moments.variance[0] / 4.0**noise.grid_bits / real == pytest.approx(1, rel=0.03)


def _steps(epsilon, inner):
    """Variance of the staircase law of sensitivity 1 with an inner level up to ``inner``."""
    edges = inner + np.arange(-1.0, 4000.0)
    edges[0] = 0.0
    weights = np.exp(-epsilon * np.arange(len(edges) - 1))
    return float(weights @ np.diff(edges**3) / 3 / (weights @ np.diff(edges)))


@pytest.mark.parametrize(("width", "inner"), [(1, 1), (7, 1), (7, 7), (16, 5)])
@pytest.mark.parametrize("drop", [0.003, 0.4, 30.0])
def test_any_widths_keep_their_drop(width, inner, drop):
    """The masses of values ``width`` apart, for shapes that no method uses."""
    table = geometric_table(mpmath.mpf(drop), width, inner, 0)
    assert loss_within(worst_table_ratio(table, width), Fraction(drop))


@pytest.mark.parametrize("method", ["raw-staircase", "raw-laplace"])
@pytest.mark.parametrize("epsilon", [0.96, 1.04])
def test_low_a_law_knows_every_digit_of_epsilon(method, epsilon):
    """Masses of two budgets differ that are the same to one digit."""
    rounded, stated = (
        attribute_spec(method, dim=2, epsilon=budget).law for budget in (1.0, epsilon)
    )
    assert rounded.drawn_from.masses != stated.drawn_from.masses
