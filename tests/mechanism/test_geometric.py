"""Laplace and staircase noise: the ratio e^ε between neighbours, in exact integers.

The check knows the table's masses and the meaning of a restart, nothing of how they were made. For
a magnitude a its probability is f(a), and restarts give f(a + period) = f(a)·t. Values within N
cells of each other have magnitudes within N cells of each other (also across −½), and of two
magnitudes beyond a period both may be moved in by one; so the first period against N cells around
it is all.
"""

from collections import deque

import mpmath
import numpy as np
import pytest
from helpers.specs import folded
from independent.rigorous import exp_below

from dpindex import Spec, attribute
from dpindex.mechanism.noise.additive import (
    geometric_table,
    laplace_noise,
    staircase_noise,
)

EPSILONS = (0.001, 0.01, 0.1, 0.5, 1.0, 2.0, 3.0, 5.0, 8.0, 10.0, 20.0, 40.0, 50.0, 64.0)
LAWS = {"laplace": laplace_noise, "staircase": staircase_noise}
_EXP_BITS = 256


def _magnitudes(table, count):
    """f(0), f(1), …, f(count − 1) as integers over one common denominator."""
    half = len(table.masses) // 2
    left = table.masses[:half]
    right = table.masses[half:]
    assert list(reversed(left)) == list(right), "not symmetric about −½"
    assert table.first == -half
    # a restart happens with either sign
    side = list(right[:-1])
    tail = 2 * right[-1]
    assert len(side) == table.period
    restarts = -(-count // table.period) - 1
    total = 1 << table.bits
    law = []
    for restart in range(restarts + 1):
        factor = tail**restart * total ** (restarts - restart)
        law += [mass * factor for mass in side]
    return law[:count]


def _sliding_least(values, reach):
    """The least value within ``reach`` places of each place (a monotone queue; ends cut off)."""
    least = []
    queue = deque[int]()
    for place in range(len(values) + reach):
        if place < len(values):
            while queue and values[queue[-1]] >= values[place]:
                queue.pop()
            queue.append(place)
        if place >= reach:
            while queue[0] < place - 2 * reach:
                queue.popleft()
            least.append(values[queue[0]])
    return least


def _keeps(noise, epsilon):
    """Whether P(z) ≤ e^ε P(z') for all cells z, z' that are at most one beta apart."""
    table = noise.source
    reach = 1 << (noise.grid_bits - table.cell_bits)
    law = _magnitudes(table, 2 * table.period + 2 * reach)
    least = _sliding_least(law, reach)
    bound = exp_below(epsilon, _EXP_BITS)
    inside = len(law) - reach
    return all(law[a] << _EXP_BITS <= bound * near for a, near in enumerate(least[:inside]))


@folded("epsilon", EPSILONS)
@folded("name", LAWS)
def test_neighbours_differ_by_at_most_e_to_the_epsilon(name, epsilon):
    noise = LAWS[name](epsilon)
    assert min(noise.source.masses) > 0
    assert _keeps(noise, epsilon)


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
    law = _magnitudes(table, 2 * table.period + 2 * width)
    least = _sliding_least(law, width)
    bound = exp_below(drop, _EXP_BITS)
    inside = len(law) - width
    assert all(law[a] << _EXP_BITS <= bound * near for a, near in enumerate(least[:inside]))


@pytest.mark.parametrize("method", ["raw-staircase", "raw-laplace"])
@pytest.mark.parametrize("epsilon", [0.96, 1.04])
def test_low_a_law_knows_every_digit_of_epsilon(method, epsilon):
    """Masses of two budgets differ that are the same to one digit."""
    rounded, stated = (
        Spec(method, dim=2, epsilon=budget, adjacency=attribute(1.0)).law
        for budget in (1.0, epsilon)
    )
    assert rounded.drawn_from.masses != stated.drawn_from.masses
