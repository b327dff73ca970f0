"""The square wave: its ratio, its total and its moments, by exact sums over every cell."""

import math
from fractions import Fraction

import numpy as np
import pytest
from helpers.specs import folded
from helpers.streams import Scripted, Seeded
from hypothesis import given, settings
from hypothesis import strategies as st
from independent.rigorous import exp_between

from dpindex.mechanism.noise.square_wave import draw_below, square_wave
from dpindex.mechanism.secret_random import secret_stream

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
@folded(("low", "high"), INTERVALS)
def test_any_two_values_differ_by_at_most_e_to_the_epsilon(epsilon, low, high):
    law = square_wave(epsilon, low, high)
    below, _ = exp_between(epsilon)
    assert 1 <= _ratio(law) <= below


@folded("epsilon", [e for e in EPSILONS if e <= 40])
@folded(("low", "high"), INTERVALS)
def test_a_law_for_five_percent_more_fails(epsilon, low, high):
    """(At 64 the 64 bits of the threshold themselves keep the ratio below e^ε.)"""
    _, above = exp_between(epsilon)
    assert _ratio(square_wave(1.05 * epsilon, low, high)) > above


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_the_ratio_holds_for_whole_distributions(epsilon):
    """Every output and every pair out of nine points of the grid, dither included."""
    law = square_wave(epsilon, -2048, 2048)
    below, _ = exp_between(epsilon)
    laws = [_law_of_point(law, x) for x in (-2048, -2047, -1000, -1, 0, 16, 511, 2047, 2048)]
    assert all(sum(chances) == 1 for chances in laws)
    for chances in zip(*laws, strict=True):
        assert max(chances) <= below * min(chances)


def _mean_and_variance(chances):
    mean = sum((y * p for y, p in enumerate(chances)), Fraction(0))
    second = sum((y * y * p for y, p in enumerate(chances)), Fraction(0))
    return mean, second - mean**2


@folded("epsilon", [0.1, 1.0, 3.0, 10.0])
@folded(("low", "high"), INTERVALS)
def test_decoded_codes_are_unbiased_by_exact_sums(epsilon, low, high):
    law = square_wave(epsilon, low, high)
    scale = law.scale
    offset = law.offset
    for x in {low, low + 1, (low + high) // 2, high - 1, high}:
        mean, _ = _mean_and_variance(_law_of_point(law, x))
        assert (float(mean) + offset) * scale == pytest.approx(x, abs=1e-9 * (high - low + scale))


@folded("epsilon", [0.1, 1.0, 3.0, 10.0])
@folded(("low", "high"), INTERVALS[:3])
def test_variance_polynomial_against_sums_over_every_output(epsilon, low, high):
    """At cell boundaries and inside. The polynomial averages the rounding f(1−f) over the cell:
    the sums minus that, plus its mean of 1/6 (times 1/slope, as for the mean of cells)."""
    law = square_wave(epsilon, low, high)
    scale = law.scale
    slope = CELL / scale
    constant, first, second = law.moments.variance_of_x
    for x in range(low, high, max(1, (high - low) // 11)):
        _, variance = _mean_and_variance(_law_of_point(law, x))
        f = (x - low) % CELL / CELL
        exact = float(variance) * scale**2 + CELL**2 / slope * (1 / 6 - f * (1 - f))
        assert constant + first * x + second * x**2 == pytest.approx(exact, rel=1e-6)


def test_the_mean_over_all_points_of_the_variance():
    """Nothing taken out or put in: the polynomial's average is the exact one, up to 1/32² of the
    dither, which is averaged over 32 places here and over real ones there."""
    law = square_wave(2.0, 0, 4096)
    scale = law.scale
    exact = [_mean_and_variance(_law_of_point(law, x))[1] for x in range(1024, 1024 + CELL)]
    constant, first, second = law.moments.variance_of_x
    stated = [constant + first * x + second * x**2 for x in range(1024, 1024 + CELL)]
    dither = CELL**2 / 6 / (CELL / scale)
    average = float(sum(exact)) / CELL * scale**2
    assert np.mean(stated) - average == pytest.approx(dither / CELL**2, rel=0.02, abs=1e-3)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0, 3.0])
def test_the_half_width_is_the_one_of_least_variance(epsilon):
    """Against the continuous law, integrated by hand over widths b: within 1 %."""

    def variance(b):
        q = 1 / (2 * b * math.exp(epsilon) + 1)
        p = q * math.exp(epsilon)
        slope = 2 * b * (p - q)
        total = 0.0
        for u in np.linspace(0, 1, 9):
            second = q * ((1 + b) ** 3 + b**3) / 3 + (p - q) * ((u + b) ** 3 - (u - b) ** 3) / 3
            mean = q * ((1 + b) ** 2 - b**2) / 2 + (p - q) * 2 * b * u
            total += (second - mean**2) / slope**2
        return total / 9

    best = min(variance(b) for b in np.linspace(0.01, 1.5, 1500))
    law = square_wave(epsilon, 0, 4096)
    constant, first, second = law.moments.variance_of_x
    places = np.linspace(0, 4096, 9)
    ours = float(np.mean(constant + first * places + second * places**2)) / 4096**2
    assert ours == pytest.approx(best, rel=0.01)


@settings(max_examples=60)
@given(
    limit=st.one_of(st.integers(1, 300), st.integers(1, (1 << 31) - 1)),
    word=st.integers(0, (1 << 32) - 1),
)
def test_draw_below_takes_the_high_half_and_refuses_the_unfair(limit, word):
    """Lemire 2019, Alg. 5, in Python integers: a refused word is followed by a fair one."""
    fair = ((1 << 32) - 1) * limit & ((1 << 32) - 1) >= (1 << 32) % limit
    last = (1 << 32) - 1 if fair else 1 << 31
    refused = (word * limit) & ((1 << 32) - 1) < (1 << 32) % limit
    script = [np.array([word], np.uint32)]
    if refused:
        spare = next(w for w in range(last, -1, -1) if (w * limit) % (1 << 32) >= (1 << 32) % limit)
        script.append(np.array([spare], np.uint32))
        word = spare
    stream = Scripted(script)
    assert draw_below(np.array([limit]), stream).tolist() == [word * limit >> 32]
    assert stream.spent


@folded("limit", [1, 2, 3, 5, 127, 128, 129, 257])
def test_draw_below_is_exactly_uniform(limit):
    """Words near every edge between two results show how many words each result has: the same
    number for each. The edges are where ``word · limit`` passes a multiple of 2^32."""
    fair_words = []
    for result in range(limit):
        first = -(-(result << 32) // limit)
        last = ((result + 1 << 32) - 1) // limit
        near = [w for w in (first, first + 1, last) if first <= w <= last]
        refused = []
        for word in dict.fromkeys(near):
            spare = np.array([1 << 31 if limit == 1 else last], np.uint32)
            stream = Scripted([np.array([word], np.uint32), spare])
            drawn = draw_below(np.array([limit]), stream).tolist()
            if stream.spent:
                refused.append(word)
            assert drawn == [result]
        # Only the first word of a run can be unfair: the low half then grows by ``limit``.
        assert set(refused) <= {first}
        fair_words.append(last - first + 1 - len(refused))
    assert len(set(fair_words)) == 1
    assert fair_words[0] == (1 << 32) // limit


def test_draw_below_draws_again_only_where_refused():
    limits = np.array([3, 1, 3, 5])
    script = [np.array([0, 0, 7, 0], np.uint32), np.array([0, 0], np.uint32)]
    script.append(np.array([1 << 31, (1 << 32) - 1], np.uint32))
    stream = Scripted(script)
    assert draw_below(limits, stream).tolist() == [1, 0, 0, 4]
    assert stream.spent


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


@pytest.mark.parametrize(("low", "high"), [(0, 4096), (-37, 1003), (0, 1)])
def test_every_place_is_reached_once(low, high):
    """Given the cell, the draws inside fill the window and those outside fill all the rest."""
    law = square_wave(1.0, low, high)
    window = 2 * law.half_width + 1
    for x, offset in ((low, 0), (low, 31), (high, 0), (high, 31), ((low + high) // 2, 17)):
        cell = (x - low + offset) // CELL
        near = [_perturb(law, x, offset, True, i) for i in range(window)]
        far = [_perturb(law, x, offset, False, i) for i in range(law.cells)]
        assert near == list(range(cell, cell + window))
        assert sorted(near + far) == list(range(law.cells + window))


def test_a_step_past_a_bound_is_brought_back():
    """float32 may round a value at a bound that is nearly a tie one step outside."""
    law = square_wave(1.0, 0, 4096)
    assert _perturb(law, 4097, 31, True, 0) == _perturb(law, 4096, 0, True, 0) == law.cells
    assert _perturb(law, -1, 0, True, 0) == _perturb(law, 0, 0, True, 0) == 0


@pytest.mark.parametrize("epsilon", [0.1, 2.0, 20.0])
def test_codes_stay_in_range(epsilon):
    law = square_wave(epsilon, -100, 3000)
    x = np.random.default_rng(0).integers(-100, 3001, (500, 40)).astype(np.float32)
    codes = law.perturb(x, secret_stream())
    assert codes.shape == x.shape
    assert codes.min() >= 0
    assert codes.max() <= law.cells + 2 * law.half_width


@folded("epsilon", [0.5, 2.0, 8.0])
@folded("x", [0, 16, 2049, 4096])
def test_codes_have_the_law(epsilon, x):
    """Chi-square of 2^18 codes against the exact law; outputs expecting fewer than 20 are pooled.
    Bound at df + 8·√(2·df) + 30: false alarm below 1e-7, with seeded words none."""
    law = square_wave(epsilon, 0, 4096)
    count = 1 << 18
    codes = law.perturb(np.full((count // 8, 8), x, np.float32), Seeded(21)).ravel()
    expected = np.array([float(p) for p in _law_of_point(law, x)]) * count
    seen = np.bincount(codes, minlength=len(expected))
    assert len(seen) == len(expected)
    common = expected >= 20
    statistic = float(((seen - expected)[common] ** 2 / expected[common]).sum())
    pooled = float(expected[~common].sum())
    if pooled > 0:
        statistic += (int(seen[~common].sum()) - pooled) ** 2 / pooled
    df = int(common.sum())
    assert statistic < df + 8 * math.sqrt(2 * df) + 30
