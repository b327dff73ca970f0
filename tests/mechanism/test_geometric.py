"""Laplace and staircase noise: the ratio e^ε between neighbours, in exact integers.

The check knows the table's masses and the meaning of a restart, nothing of how they were made. For
a magnitude a its probability is f(a), and restarts give f(a + period) = f(a)·t. Values within N
cells of each other have magnitudes within N cells of each other (also across −½), and of two
magnitudes beyond a period both may be moved in by one; so the first period against N cells around
it is all.
"""

import math
from collections import deque

import mpmath
import numpy as np
import pytest
from helpers.specs import folded
from helpers.streams import Seeded
from independent.rigorous import exp_below

from dpindex import Spec, attribute
from dpindex.mechanism.noise.additive import (
    AdditiveNoise,
    CellTable,
    geometric_table,
    laplace_noise,
    staircase_noise,
)
from dpindex.mechanism.secret_random import secret_stream

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
    side, tail = list(right[:-1]), 2 * right[-1]  # a restart happens with either sign
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


@folded("epsilon", [e for e in EPSILONS if e <= 40])
@folded("name", LAWS)
def test_a_law_for_five_percent_more_fails(name, epsilon):
    """(Above 43 no 64-bit mass is small enough to show it, so the law there keeps more.)"""
    assert not _keeps(LAWS[name](1.05 * epsilon), epsilon)


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("epsilon", [0.1, 2.0, 10.0])
def test_one_unit_moved_from_the_tail_fails(name, epsilon):
    """The restart is checked too: its masses are the smallest that keep the ratio, within slack."""
    noise = LAWS[name](epsilon)
    table = noise.source
    masses = list(table.masses)
    middle = len(masses) // 2
    taken = masses[0] // 20
    for end, inner in ((0, middle - 1), (-1, middle)):
        masses[end] -= taken
        masses[inner] += taken
    weaker = CellTable(masses, table.first, bits=table.bits, cell_bits=table.cell_bits, tails=True)
    assert not _keeps(AdditiveNoise(weaker, noise.grid_bits), epsilon)


def _real_laplace(epsilon, cells, a):
    """P(⌊Lap⌋ = a) at scale ``cells``/ε, for a ≥ 0."""
    fall = mpmath.exp(-mpmath.mpf(epsilon) / cells)
    return (1 - fall) * fall**a / 2


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 3.0, 20.0, 64.0])
def test_laplace_is_the_laplace_law_rounded_down(epsilon):
    noise = laplace_noise(epsilon)
    cells = 1 << (noise.grid_bits - noise.source.cell_bits)
    count = 3 * noise.source.period
    law = _magnitudes(noise.source, count)
    scale = (1 << noise.source.bits) ** 3
    with mpmath.workprec(300):
        for a in (0, 1, count // 4, count // 2, count - 1):
            share = mpmath.mpf(law[a]) / scale
            assert abs(share / _real_laplace(epsilon, cells, a) - 1) < 1e-8


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 3.0, 12.0])
def test_staircase_has_levels_of_one_beta(epsilon):
    noise = staircase_noise(epsilon)
    cells = 1 << (noise.grid_bits - noise.source.cell_bits)
    law = _magnitudes(noise.source, 3 * noise.source.period)
    drops = [a for a in range(1, len(law)) if law[a] / law[a - 1] < 0.999]
    gaps = set(np.diff(drops).tolist())
    assert gaps == {cells}
    inner = drops[0]
    shares = np.linspace(0.0005, 0.5, 2000)
    best = shares[np.argmin([_steps(epsilon, share) for share in shares])]
    assert abs(inner - cells * best) <= 0.5 + cells * 0.0005
    for a in drops:
        assert math.isclose(law[a - 1] / law[a], math.exp(epsilon), rel_tol=1e-4)


@folded("name", LAWS)
@folded("epsilon", [0.01, 0.5, 3.0, 10.0, 64.0])
def test_the_law_knows_its_moments(name, epsilon):
    """Against the sum over magnitudes and the dither, in high precision."""
    noise = LAWS[name](epsilon)
    law = _magnitudes(noise.source, 6 * noise.source.period)
    cell = 1 << noise.source.cell_bits
    with mpmath.workprec(300):
        total = mpmath.mpf(sum(law))
        second = sum(mass * (2 * a + 1) ** 2 for a, mass in enumerate(law)) / total / 4
        fourth = sum(mass * (2 * a + 1) ** 4 for a, mass in enumerate(law)) / total / 16
    f = np.arange(cell) / cell
    dither = f * (1 - f)
    dither_fourth = float(np.mean(dither * (1 - 3 * dither)))
    variance = float(second) + float(dither.mean())
    quartic = float(fourth) + 6 * float(second) * float(dither.mean()) + dither_fourth
    assert noise.scale == cell
    assert noise.offset == 0.5
    assert noise.moments.variance[1:] == (0.0, 0.0)
    # The dither is averaged over real positions there, over grid positions here: 1/n² apart.
    slack = 1e-9 + 1.0 / cell**2
    assert noise.moments.variance[0] == pytest.approx(variance * cell**2, rel=slack)
    fourth = noise.moments.squared[0] + noise.moments.variance[0] ** 2
    assert fourth == pytest.approx(quartic * cell**4, rel=2 * slack)


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


@folded("name", LAWS)
@folded("epsilon", [0.5, 4.0, 16.0])
@folded("x", [0, 1, -37, 2048, -4096])
def test_codes_have_the_law_of_cell_noise_and_dither(name, epsilon, x):
    """Chi-square of 2^19 codes of one x against the exact convolution; cells expecting fewer than
    20 are pooled. Bound at df + 8·√(2·df) + 30: false alarm below 1e-7, with seeded words none."""
    noise = LAWS[name](epsilon)
    bits = noise.source.cell_bits
    count = 1 << 19
    codes = noise.perturb(np.full((count // 8, 8), x, np.float32), Seeded(11)).ravel()
    law = _magnitudes(noise.source, 2 * noise.source.period)
    scale = 1 << 2 * noise.source.bits
    side = np.array([mass / scale for mass in law])
    cell_law = np.concatenate([side[::-1], side])
    whole, part = divmod(x, 1 << bits)
    up = part / (1 << bits)  # offsets 0 … 2^b − 1: ``part`` of them carry into the next cell
    expected = np.zeros(len(cell_law) + 1)
    expected[:-1] += (1 - up) * cell_law
    expected[1:] += up * cell_law
    first = whole - len(side)
    seen = np.bincount(np.clip(codes - first, 0, len(expected) - 1), minlength=len(expected))
    expected *= count
    common = expected >= 20
    pairs = [(int(s), e) for s, e in zip(seen[common], expected[common], strict=True)]
    rest = expected[~common].sum()
    if rest >= 20:
        pairs.append((int(seen[~common].sum()), rest))
    statistic = sum((s - e) ** 2 / e for s, e in pairs)
    assert statistic < len(pairs) + 8 * math.sqrt(2 * len(pairs)) + 30


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("epsilon", [0.3, 2.0, 12.0])
def test_decoded_codes_are_unbiased(name, epsilon):
    """Mean of 2^19 secret draws within 5.5 standard errors: false alarm 4e-8 each."""
    noise = LAWS[name](epsilon)
    for x in (0, 13, -2047):
        codes = noise.perturb(np.full((1 << 19, 1), x, np.float64), secret_stream())
        estimate = (codes + noise.offset) * noise.scale
        error = math.sqrt((noise.moments.variance[0] + noise.scale**2 / 12) / len(codes))
        assert abs(estimate.mean() - x) < 5.5 * error


def test_masses_that_are_not_rounded_up_would_fail():
    """The check is sharp: masses rounded to nearest on their own break the ratio."""
    noise = staircase_noise(1.0)
    table = noise.source
    middle = len(table.masses) // 2
    masses = list(table.masses)
    broken = False
    for cell in range(middle + 1, len(masses) - 1):
        if masses[cell] != masses[cell - 1]:
            masses[cell] -= 1
            masses[middle] += 1
            mirrored = masses[middle:]
            law = CellTable(
                [*reversed(mirrored), *mirrored],
                table.first,
                cell_bits=table.cell_bits,
                tails=True,
            )
            broken = not _keeps(AdditiveNoise(law, noise.grid_bits), 1.0)
            break
    assert broken


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


def test_levels_cover_all_but_a_millionth():
    for epsilon in (0.01, 1.0, 30.0):
        for law in LAWS.values():
            table = law(epsilon).source
            assert table.masses[0] * 2 < 2 ** (64 - 19)


@pytest.mark.parametrize("method", ["raw-staircase", "raw-laplace"])
@pytest.mark.parametrize("epsilon", [0.96, 1.04])
def test_low_a_law_knows_every_digit_of_epsilon(method, epsilon):
    """Masses of two budgets differ that are the same to one digit."""
    rounded, stated = (
        Spec(method, dim=2, epsilon=budget, adjacency=attribute(1.0)).law
        for budget in (1.0, epsilon)
    )
    assert rounded.drawn_from.masses != stated.drawn_from.masses
